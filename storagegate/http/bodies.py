"""
What the four parsers of bodies share: when to parse, how to read, what to inflate.

Nothing is read of a body that is not wanted, that has another type, or that is refused by its head.
A small body that is here already is parsed at once; reading, inflating and parsing large ones take
their time, the latter two in a thread.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import lru_cache
from inspect import isawaitable, iscoroutinefunction
from typing import Any

from attrs import field, frozen

from storagegate.core.scalars import parseSize
from storagegate.http.contenttypes import matchesType, parseContentType
from storagegate.http.errors import HTTPError
from storagegate.http.inflating import CODINGS, InflatedTooLarge, MalformedCoding, inflate

Parse = Callable[[bytes, str], Any]
"""Makes a value of a body and the codec of its text. May be called in a thread."""

Wanted = str | Sequence[str] | Callable[[Any], Any]
"""A media type, several, or C{(req) -> bool}."""

INLINE_SIZE = 64 * 1024
"""What is inflated or parsed at once: a millisecond at most. More goes to a thread."""

# Different Content-Type fields whose meaning is remembered. Clients of one application send two or
# three; strangers may send any, which then push each other out.
_REMEMBERED = 16

_BYTE_ORDER_MARKS = {
    "utf-16": (b"\xff\xfe", b"\xfe\xff"),
    "utf-32": (b"\xff\xfe\x00\x00", b"\x00\x00\xfe\xff"),
}


def _limit(value: Any) -> int:
    try:
        return parseSize(value)
    except (AttributeError, ValueError):
        raise ValueError(f'the option limit is a size such as "100kb", not {value!r}') from None


def _wanted(value: Any) -> Wanted:
    if callable(value) or (value and isinstance(value, str)):
        return value  # type: ignore[no-any-return]
    if isinstance(value, list | tuple) and value and all(isinstance(each, str) for each in value):
        return tuple(value)
    raise TypeError(f"the option type is a media type, a list of them or a function: {value!r}")


def _verifier(value: Any) -> Any:
    if value is None:
        return None
    if not callable(value):
        raise TypeError("the option verify is a function (req, res, body, charset)")
    if iscoroutinefunction(value):
        # Nobody would wait for its refusal.
        raise TypeError("the option verify is a function that does not wait")
    return value


@frozen(kw_only=True)
class BodyOptions:
    """
    What every parser can be told.

    @ivar limit: How many bytes a body may have after inflating.
    @ivar type: Which bodies to parse.
    @ivar inflate: Whether to take bodies with a Content-Encoding.
    @ivar verify: Called C{(req, res, body, charset)} before parsing; refuses by raising.
    """

    limit: int = field(converter=_limit)
    type: Wanted = field(converter=_wanted)
    inflate: bool = field(converter=bool)
    verify: Callable[[Any, Any, bytes, str | None], Any] | None = field(converter=_verifier)


class BodyParser:
    """A parser: its L{handle} is middleware."""

    def __init__(
        self,
        options: BodyOptions,
        parse: Parse | None,
        charsets: Mapping[str, str] | None = None,
        defaultCharset: str = "utf-8",
    ) -> None:
        """
        @param parse: C{None} leaves the body as it is.
        @param charsets: The charsets that are taken, in lower case, and their codecs; C{None} if
            the body is no text.
        """
        self._limit = options.limit
        self._inflate = options.inflate
        self._verify = options.verify
        self._choose: Callable[[Any], Any] | None = None
        self._types: str | Sequence[str] = ()
        if callable(options.type):
            self._choose = options.type
        else:
            self._types = options.type
        self._parse = parse
        self._charsets = charsets
        self._defaultCharset = defaultCharset
        self._understand = lru_cache(_REMEMBERED)(self._readType)

    def handle(self, req: Any, res: Any, next: Callable[[], Awaitable[Any]]) -> Any:
        """Parse the body if it is one to parse, and go on."""
        if not req.hasBody or getattr(req, "bodyParsed", False):
            return next()
        headers = req.lean.headers
        matches, charset = self._understand(headers.get(b"content-type"))
        if not (matches if self._choose is None else self._choose(req)):
            return next()
        codec = self._findCodec(charset)
        coding = headers.get(b"content-encoding")
        limit = wireLimit = min(self._limit, req.app.settings.wholeBodySize)
        if coding is not None:
            coding = self._findCoding(coding)
            if coding is not None:
                # What cannot be compressed grows, in a small body by more than its size.
                wireLimit += limit // 8 + 1024
        length = req.contentLength
        if length is not None and length > wireLimit:
            raise _tooLarge(limit, length)
        wire = req.takeBody()
        if wire is None or len(wire) > INLINE_SIZE:
            return self._goOnLater(req, next, self._read(req, res, coding, charset, wire))
        req.bodyParsed = True
        if coding is not None and wire:
            try:
                wire = _inflate(coding, wire, min(limit, INLINE_SIZE))
            except InflatedTooLarge:
                if limit <= INLINE_SIZE:
                    raise _tooLarge(limit, None) from None
                return self._goOnLater(req, next, self._read(req, res, coding, charset, wire))
        elif len(wire) > limit:
            raise _tooLarge(limit, None)
        if self._verify is not None:
            self._callVerify(req, res, wire, charset)
        req.body = wire if self._parse is None else self._parse(wire, codec)
        return next()

    async def _goOnLater(self, req: Any, next: Callable[[], Any], value: Awaitable[Any]) -> None:
        # The body itself is held by whatever makes the value of it, so no longer than that.
        req.body = await value
        await next()

    async def _read(
        self, req: Any, res: Any, coding: str | None, charset: str | None, wire: bytes | None
    ) -> Any:
        """Do what takes its time."""
        limit = min(self._limit, req.app.settings.wholeBodySize)
        run = req.app.runtime.run
        if wire is None:
            wire = await req.read(limit if coding is None else limit + limit // 8 + 1024)
            req.bodyParsed = True
        return wire

    def _readType(self, contentType: bytes | None) -> tuple[bool, str | None]:
        """Tell whether a Content-Type is one to parse, and its charset."""
        raise NotImplementedError
