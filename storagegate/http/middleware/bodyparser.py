"""
C{json}, C{raw}, C{text} and C{urlencoded}: parsers of request bodies.

A body is not read if it has another type, or if its head is refused. A small body that has arrived
is parsed synchronously. Large bodies are inflated and parsed in a thread.
"""

import codecs
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import cache, lru_cache, partial
from inspect import isawaitable, iscoroutinefunction
from typing import Any

from msgspec import DecodeError
from msgspec.json import Decoder

from storagegate.core.inflate import CODINGS, InflatedTooLarge, MalformedCoding, inflate
from storagegate.core.jsonpieces import JSONReader
from storagegate.core.options import parseSize, takesMapping
from storagegate.http.contenttypes import matchesType, parseContentType
from storagegate.http.dispatch import MiddlewareHandler
from storagegate.http.errors import HTTPError, bodyTooLarge
from storagegate.http.querystring import DEPTH_LIMIT, TooDeep, TooManyParameters, parseForm

Parse = Callable[[bytes, str], Any]
"""Parses a body, given its bytes and the codec of its text. May be called in a thread."""

Wanted = str | Sequence[str] | Callable[[Any], Any]
"""A media type, a list of media types, or a function C{(req) -> bool}."""

Verify = Callable[[Any, Any, bytes, str | None], Any]

INLINE_SIZE = 64 * 1024
"""Maximum number of bytes inflated or parsed in the reactor, which takes at most 1 ms. A thread
handles more."""

# Cached Content-Type fields. The clients of one application send two or three.
_REMEMBERED = 16

_BYTE_ORDER_MARKS = {
    "utf-16": (b"\xff\xfe", b"\xfe\xff"),
    "utf-32": (b"\xff\xfe\x00\x00", b"\x00\x00\xfe\xff"),
}


def _readLimit(value: Any) -> int:
    try:
        return parseSize(value)
    except (AttributeError, ValueError):
        raise ValueError(f'the option limit is a size such as "100kb", not {value!r}') from None


def _readTypes(value: Any) -> str | Sequence[str]:
    if callable(value):
        return ()
    if value and isinstance(value, str):
        return value
    if isinstance(value, list | tuple) and value and all(isinstance(each, str) for each in value):
        return tuple(value)
    raise TypeError(f"the option type is a media type, a list of them or a function: {value!r}")


class BodyParser:
    """A parser: its L{handle} is middleware."""

    def __init__(
        self,
        parse: Parse | None,
        limit: int | str,
        type: Wanted,
        inflate: bool,
        verify: Verify | None,
        charsets: Mapping[str, str] | None = None,
        defaultCharset: str | None = None,
    ) -> None:
        """
        @param parse: The parser; C{None} leaves the body unchanged.
        @param limit: Maximum number of bytes of a body after inflating.
        @param inflate: Whether bodies with a Content-Encoding are accepted.
        @param verify: Called C{(req, res, body, charset)} before parsing; refuses by raising.
        @param charsets: The accepted charsets, in lower case, and their codecs; C{None} if the body
            is not text.
        @param defaultCharset: The charset of a body that names none.
        """
        self._limit = _readLimit(limit)
        self._inflates = bool(inflate)
        if verify is not None and not callable(verify):
            raise TypeError("the option verify is a function (req, res, body, charset)")
        if iscoroutinefunction(verify):
            # The error would be raised too late.
            raise TypeError("the option verify is a synchronous function")
        self._verify = verify
        self._choose = type if callable(type) else None
        self._types = _readTypes(type)
        self._parse = parse
        self._charsets = charsets
        self._defaultCharset = defaultCharset
        self._understand = lru_cache(_REMEMBERED)(self._readType)

    def handle(self, req: Any, res: Any, next: Callable[[], Any]) -> Any:
        """Parse the body if its type is wanted, then call C{next}."""
        if not req.hasBody or getattr(req, "bodyParsed", False):
            return next()
        raw = req.raw
        headers = raw.headers
        matches, charset, codec = self._understand(headers.get(b"content-type"))
        if not (matches if self._choose is None else self._choose(req)):
            return next()
        if codec is None:
            raise HTTPError(
                415, f'Unsupported charset "{charset}"', "charset.unsupported", charset=charset
            )
        coding = headers.get(b"content-encoding")
        if coding is not None:
            coding = self._findCoding(coding)
        limit = min(self._limit, req.app.settings.wholeBodySize)
        length = raw.contentLength
        if length is not None and length > limit and length > _encodedLimit(limit, coding):
            raise bodyTooLarge(limit, length)
        wire = req.takeBody()
        if wire is None or coding is not None or len(wire) > INLINE_SIZE:
            value = self._read(req, res, wire, coding, limit, charset, codec)
            return self._finishLater(req, next, value)
        if len(wire) > limit:
            raise bodyTooLarge(limit, None)
        req.bodyParsed = True
        if self._verify is not None:
            self._check(req, res, wire, charset)
        req.body = wire if self._parse is None else self._parse(wire, codec)
        return next()

    async def _finishLater(self, req: Any, next: Callable[[], Any], value: Awaitable[Any]) -> None:
        # Only the parsing coroutine refers to the raw body, so that it is freed early.
        req.body = await value
        await next()

    async def _read(
        self,
        req: Any,
        res: Any,
        body: bytes | None,
        coding: str | None,
        limit: int,
        charset: str | None,
        codec: str,
    ) -> Any:
        """Receive, inflate and parse a body."""
        run = req.app.runtime.run
        if body is None:
            body = await req.read(_encodedLimit(limit, coding), isHeld=True)
        req.bodyParsed = True
        try:
            if coding is not None and body:
                body = await _inflateBody(run, coding, body, limit)
            if len(body) > limit:
                raise bodyTooLarge(limit, None)
            if self._verify is not None:
                self._check(req, res, body, charset)
            if self._parse is None:
                return body
            parse = self._parse
            return await run(parse, body, codec) if _isLarge(body) else parse(body, codec)
        finally:
            req.raw.body.hold(0)

    def _readType(self, contentType: bytes | None) -> tuple[bool, str | None, str | None]:
        """Return whether a Content-Type matches, its charset, and the codec if known."""
        value = (contentType or b"").decode("latin-1")
        matches = matchesType(value, self._types) is not None
        if self._charsets is None:
            return matches, None, ""
        charset = parseContentType(value).charset or self._defaultCharset
        return matches, charset, self._charsets.get(charset or "")

    def _findCoding(self, field: bytes) -> str | None:
        """
        Return the coding to decode, or C{None}.

        @raise HTTPError: 415 if it is unknown, or inflating is disabled.
        """
        coding = field.decode("latin-1").strip(" \t").lower()
        if coding in ("", "identity"):
            return None
        if not self._inflates or coding not in CODINGS:
            raise HTTPError(
                415,
                f'Unsupported content encoding "{coding}"',
                "encoding.unsupported",
                encoding=coding,
            )
        return coding

    def _check(self, req: Any, res: Any, body: bytes, charset: str | None) -> None:
        """Let the application verify the body."""
        assert self._verify is not None
        try:
            result = self._verify(req, res, body, charset)
        except HTTPError:
            raise
        except Exception as error:
            message = str(error) or "The body could not be verified"
            raise HTTPError(403, message, "entity.verify.failed", body=body) from error
        if isawaitable(result):
            # The error would be raised too late.
            raise TypeError("the option verify is a synchronous function")


async def _inflateBody(
    run: Callable[..., Awaitable[bytes]], coding: str, wire: bytes, limit: int
) -> bytes:
    try:
        if not _isLarge(wire):
            try:
                return inflate(coding, wire, min(limit, INLINE_SIZE))
            except InflatedTooLarge:
                if limit <= INLINE_SIZE:
                    raise
        return await run(inflate, coding, wire, limit)
    except InflatedTooLarge:
        raise bodyTooLarge(limit, None) from None
    except MalformedCoding as error:
        raise HTTPError(
            400, f"The body is not in {coding}: {error}", "encoding.malformed", encoding=coding
        ) from None


def _isLarge(body: bytes) -> bool:
    return len(body) > INLINE_SIZE


def _encodedLimit(limit: int, coding: str | None) -> int:
    """Return the limit of an encoded body, as coding makes incompressible data longer."""
    return limit if coding is None else limit + limit // 8 + 1024


def decodeText(body: bytes, codec: str, errors: str) -> str:
    """
    Decode a body and drop its byte order mark.

    UTF-16 and UTF-32 without a mark are big-endian if the first byte is zero, as for an ASCII
    character, and little-endian otherwise.

    @param body: The inflated body.
    @param codec: The name of a Python codec, such as C{utf-8}.
    @param errors: C{strict} or C{replace}.
    @raise UnicodeDecodeError: If C{errors} is C{strict}.
    """
    marks = _BYTE_ORDER_MARKS.get(codec)
    if marks is not None and not body.startswith(marks):
        codec += "-be" if body[:1] == b"\0" else "-le"
    return body.decode(codec, errors).removeprefix("\ufeff")


# RFC 8259 section 8.1 requires UTF-8; Express also accepts the others.
_CHARSETS = {
    "utf-8": "utf-8",
    "utf-16": "utf-16",
    "utf-16be": "utf-16-be",
    "utf-16le": "utf-16-le",
    "utf-32": "utf-32",
    "utf-32be": "utf-32-be",
    "utf-32le": "utf-32-le",
}

_OPENING = (b"{", b"[")
_BLANKS = b" \t\r\n"
_MARK = b"\xef\xbb\xbf"

_decode = Decoder().decode


@takesMapping
def json(
    limit: int | str = "100kb",
    strict: bool = True,
    type: Wanted = "application/json",
    inflate: bool = True,
    verify: Verify | None = None,
) -> MiddlewareHandler:
    """
    Make middleware that parses JSON bodies into C{req.body}.

    An empty body becomes C{{}}. The last of duplicate keys wins, integers keep all their digits,
    and half a surrogate pair is malformed.

    Errors: 400 C{entity.parse.failed} with the text on the error's C{body}, 403
    C{entity.verify.failed}, 413 C{entity.too.large}, 415 C{charset.unsupported} and
    C{encoding.unsupported}.

    @param limit: The maximum size after inflating, in bytes or as text such as C{"1mb"}.
    @param strict: Whether only objects and arrays are accepted.
    @param type: A media type, a list of media types, or a function C{(req) -> bool}.
    @param inflate: Whether bodies with a Content-Encoding are accepted.
    @param verify: Called C{(req, res, body, charset)} before parsing; refuses by raising.
    @raise ValueError: If the limit is not a size.
    """
    parse = partial(parseJSON, strict=strict)
    return BodyParser(parse, limit, type, inflate, verify, _CHARSETS, "utf-8").handle


def parseJSON(body: bytes, codec: str, *, strict: bool) -> Any:
    """
    Parse a JSON body.

    @param body: The inflated body; an empty one is an empty object.
    @param codec: The name of a Python codec, such as C{utf-8}.
    @param strict: Whether only objects and arrays are accepted.
    @raise HTTPError: 400 C{entity.parse.failed}.
    """
    if not body:
        return {}
    wire = body
    try:
        if codec != "utf-8":
            wire = decodeText(body, codec, "strict").encode()
        # Nearly every body begins with a brace.
        if wire[:1] not in _OPENING:
            wire = wire.removeprefix(_MARK)
            if strict and wire.lstrip(_BLANKS)[:1] not in _OPENING:
                raise _malformed(body, codec, "it is neither an object nor an array")
        return JSONReader(wire, _decode).readAll() if _isLarge(wire) else _decode(wire)
    except RecursionError:
        raise _malformed(body, codec, "it is nested too deeply") from None
    except UnicodeError:
        raise _malformed(body, codec, f"it is not in {codec}") from None
    except DecodeError as error:
        raise _malformed(body, codec, str(error)) from None


def _malformed(body: bytes, codec: str, reason: str) -> HTTPError:
    text = decodeText(body, codec, "replace")
    return HTTPError(400, f"The body cannot be parsed: {reason}", "entity.parse.failed", body=text)


@takesMapping
def raw(
    type: Wanted = "application/octet-stream",
    limit: int | str = "100kb",
    inflate: bool = True,
    verify: Verify | None = None,
) -> MiddlewareHandler:
    """
    Make middleware that puts bodies into C{req.body}, as C{bytes}.

    @param type: A media type, a list of media types, or a function C{(req) -> bool}.
    @param limit: The maximum size after inflating, in bytes or as text such as C{"1mb"}.
    @param inflate: Whether bodies with a Content-Encoding are accepted.
    @param verify: Called C{(req, res, body, None)}; refuses by raising.
    @raise ValueError: If the limit is not a size.
    """
    return BodyParser(None, limit, type, inflate, verify).handle


# Python's codecs for the charsets of browsers. Looking up any name from a client would import
# modules and cache every name forever; UTF-7 hides markup.
_CODECS = """
    utf-8 utf-16 utf-16-be utf-16-le utf-32 utf-32-be utf-32-le ascii
    iso8859-1 iso8859-2 iso8859-3 iso8859-4 iso8859-5 iso8859-6 iso8859-7 iso8859-8 iso8859-9
    iso8859-10 iso8859-11 iso8859-13 iso8859-14 iso8859-15 iso8859-16
    cp866 cp874 cp932 cp1250 cp1251 cp1252 cp1253 cp1254 cp1255 cp1256 cp1257 cp1258
    koi8-r koi8-u mac-roman mac-cyrillic
    big5 big5hkscs euc-jp euc-kr gb2312 gbk gb18030 shift_jis iso2022_jp
"""

# Charset names in Content-Type that differ from the codec's.
_NAMES = {
    "utf8": "utf-8",
    "utf-16be": "utf-16-be",
    "utf-16le": "utf-16-le",
    "utf-32be": "utf-32-be",
    "utf-32le": "utf-32-le",
    "us-ascii": "ascii",
    "latin1": "iso8859-1",
    "ibm866": "cp866",
    "windows-31j": "cp932",
    "macintosh": "mac-roman",
    "x-mac-cyrillic": "mac-cyrillic",
    "big5-hkscs": "big5hkscs",
    "sjis": "shift_jis",
    "x-sjis": "shift_jis",
    "iso-2022-jp": "iso2022_jp",
}


@cache
def charsets() -> Mapping[str, str]:
    """
    Return the supported charsets, in lower case, and their codecs.

    The first call imports all codecs, which takes 15 ms and 2 MB: it must not be a request.
    """
    found = dict(_NAMES)
    for codec in _CODECS.split():
        codecs.lookup(codec)
        found[codec] = codec
        found[codec.replace("iso8859-", "iso-8859-")] = codec
        found[codec.replace("cp", "windows-")] = codec
    return found


@takesMapping
def text(
    type: Wanted = "text/plain",
    limit: int | str = "100kb",
    defaultCharset: str = "utf-8",
    inflate: bool = True,
    verify: Verify | None = None,
) -> MiddlewareHandler:
    """
    Make middleware that decodes bodies into C{req.body}, as C{str}.

    Malformed bytes become U+FFFD; a byte order mark is dropped. Errors: as
    L{json<storagegate.http.middleware.bodyparser.json>}.

    @param type: A media type, a list of media types, or a function C{(req) -> bool}.
    @param limit: The maximum size after inflating, in bytes or as text such as C{"1mb"}.
    @param defaultCharset: The charset of a body that names none.
    @param inflate: Whether bodies with a Content-Encoding are accepted.
    @param verify: Called C{(req, res, body, charset)} before decoding; refuses by raising.
    @raise ValueError: If the limit is not a size, or the charset is unknown.
    """
    default = defaultCharset.lower()
    if default not in charsets():
        raise ValueError(f"the option defaultCharset is not a known charset: {defaultCharset}")
    parse = partial(decodeText, errors="replace")
    return BodyParser(parse, limit, type, inflate, verify, charsets(), default).handle


_FORM_CHARSETS = {"utf-8": "utf-8", "iso-8859-1": "latin-1"}


@takesMapping
def urlencoded(
    extended: bool = False,
    limit: int | str = "100kb",
    parameterLimit: int = 1000,
    depth: int = 32,
    inflate: bool = True,
    type: Wanted = "application/x-www-form-urlencoded",
    verify: Verify | None = None,
) -> MiddlewareHandler:
    """
    Make middleware that parses URL-encoded forms into C{req.body}, a dictionary of strings.

    Errors: as L{json<storagegate.http.middleware.bodyparser.json>}, 413 C{parameters.too.many}, 400
    C{querystring.parse.rangeError} for a name that is nested too deeply.

    @param extended: Whether C{a[b]=1} nests; otherwise brackets are part of the name.
    @param limit: The maximum size after inflating, in bytes or as text such as C{"1mb"}.
    @param parameterLimit: Maximum number of parameters of a form.
    @param depth: Maximum number of brackets in a name.
    @param inflate: Whether bodies with a Content-Encoding are accepted.
    @param type: A media type, a list of media types, or a function C{(req) -> bool}.
    @param verify: Called C{(req, res, body, charset)} before parsing; refuses by raising.
    @raise ValueError: If a number is out of range.
    """
    _checkNumber("parameterLimit", parameterLimit, 1, None)
    _checkNumber("depth", depth, 0, DEPTH_LIMIT)
    parse = partial(_parseForm, extended=bool(extended), parameterLimit=parameterLimit, depth=depth)
    return BodyParser(parse, limit, type, inflate, verify, _FORM_CHARSETS, "utf-8").handle


def _checkNumber(name: str, value: Any, minimum: int, maximum: int | None) -> None:
    if (
        isinstance(value, bool)
        or not isinstance(value, int)
        or value < minimum
        or (maximum is not None and value > maximum)
    ):
        bounds = f"from {minimum} to {maximum}" if maximum is not None else f"from {minimum} up"
        raise ValueError(f"the option {name} is a whole number {bounds}, not {value!r}")


def _parseForm(
    body: bytes, codec: str, *, extended: bool, parameterLimit: int, depth: int
) -> dict[str, Any]:
    try:
        return parseForm(body.removeprefix(_MARK), codec, extended, parameterLimit, depth)
    except TooManyParameters:
        raise HTTPError(
            413, "The form has too many parameters", "parameters.too.many", limit=parameterLimit
        ) from None
    except TooDeep:
        raise HTTPError(
            400,
            "The name of a parameter is nested too deeply",
            "querystring.parse.rangeError",
            limit=depth,
        ) from None
