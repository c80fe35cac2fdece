"""Bodies in JSON."""

from collections.abc import Callable
from functools import partial
from typing import Any

from msgspec import DecodeError
from msgspec.json import Decoder

from storagegate.http.bodies import BodyOptions, BodyParser, Wanted, decodeText
from storagegate.http.errors import HTTPError

# RFC 8259 section 8.1 wants UTF-8; Express takes the others, too.
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


def json(
    limit: int | str = "100kb",
    strict: bool = True,
    type: Wanted = "application/json",
    inflate: bool = True,
    verify: Callable[[Any, Any, bytes, str | None], Any] | None = None,
) -> Callable[..., Any]:
    """
    Make middleware that parses bodies in JSON into C{req.body}.

    An empty body is C{{}}. Of keys that come twice the last one counts; integers keep all their
    digits; what Python's strings cannot hold as text, half a surrogate pair, is malformed.

    Errors: 400 C{entity.parse.failed} with the text on the error's C{body}, 403
    C{entity.verify.failed}, 413 C{entity.too.large}, 415 C{charset.unsupported} and
    C{encoding.unsupported}.

    @param limit: How long a body may be once inflated, in bytes or text.
    @param strict: Whether only objects and arrays are taken.
    @param type: The media type, several, or C{(req) -> bool}.
    @param inflate: Whether to take bodies with a Content-Encoding.
    @param verify: Called C{(req, res, body, charset)} before parsing; refuses by raising.
    @raise ValueError: If the limit is no size.
    """
    options = BodyOptions(limit=limit, type=type, inflate=inflate, verify=verify)
    return BodyParser(options, partial(parseJSON, strict=strict), _CHARSETS, "utf-8").handle


def parseJSON(body: bytes, codec: str, *, strict: bool) -> Any:
    """
    Parse a body in JSON.

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
        return _decode(wire)
    except RecursionError:
        raise _malformed(body, codec, "it is nested too deeply") from None
    except UnicodeError:
        raise _malformed(body, codec, f"it is not in {codec}") from None
    except DecodeError as error:
        raise _malformed(body, codec, str(error)) from None


def _malformed(body: bytes, codec: str, reason: str) -> HTTPError:
    text = decodeText(body, codec, "replace")
    return HTTPError(400, f"The body cannot be parsed: {reason}", "entity.parse.failed", body=text)
