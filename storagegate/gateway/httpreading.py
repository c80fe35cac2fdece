"""What the header fields and the body of a call over HTTP say."""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from storagegate.core.context import MAX_DEADLINE_MS
from storagegate.core.errors import ServiceError, codedError
from storagegate.core.scalars import parseDecimal
from storagegate.gateway.codecs import JSON
from storagegate.gateway.httpstreams import EVENT_STREAM, EVENTS, NDJSON, StreamFormat, lineFormat
from storagegate.gateway.messagefields import readDeadline
from storagegate.gateway.shapes import httpResult
from storagegate.http.contenttypes import matchesType, parseContentType

_UNTYPED = (b"application/x-www-form-urlencoded", b"text/plain")

_BODY_TYPES = ("json", "+json", NDJSON, "application/ndjson", "application/jsonl")

LINES = lineFormat(httpResult)


def readObject(data: bytes) -> dict[str, Any]:
    """
    Read a request; an empty one is C{{}}.

    @raise ServiceError: C{INVALID_ARGUMENT} if it is no JSON, or no object. May run in a thread.
    """
    try:
        value = JSON.decode(data) if data else {}
    except ValueError as error:
        raise codedError("INVALID_ARGUMENT", f"A request is JSON: {error!s:.200}") from None
    return _object(value)


def readParsed(value: Any) -> dict[str, Any]:
    """
    Take what a parser of the application has made of a body.

    @raise ServiceError: C{INVALID_ARGUMENT} if it is no object, nor the JSON of one.
    """
    if isinstance(value, str):
        value = value.encode()
    return readObject(value) if isinstance(value, bytes) else _object(value)


def _object(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise codedError("INVALID_ARGUMENT", "A request is a JSON object")
    return value


def tooLarge(limit: int) -> ServiceError:
    """Make the error for a request, or a line of a stream of them, over the limit."""
    return codedError("PAYLOAD_TOO_LARGE", f"A request has at most {limit} bytes")


def readDeadlineField(value: bytes) -> float:
    """
    Read C{X-Deadline-Ms}.

    @return: Seconds.
    @raise ServiceError: C{INVALID_ARGUMENT} if it is no deadline.
    """
    try:
        ms: Any = parseDecimal(value, MAX_DEADLINE_MS)
    except ValueError:
        ms = value
    seconds = readDeadline(ms)
    assert seconds is not None
    return seconds


def checkType(headers: Mapping[bytes, bytes]) -> None:
    """
    Check that a body can be read.

    @raise ServiceError: C{UNSUPPORTED_MEDIA_TYPE} if it is no JSON by its head, or compressed.
    """
    kind = headers.get(b"content-type")
    coding = headers.get(b"content-encoding")
    # What tools send that were told no type. Pages of any origin may send it as well, unasked and
    # with no preflight; browsers then say whose page it is.
    readable = _isReadable(kind) or (b"origin" not in headers and _isUntyped(kind))
    if not readable or (coding is not None and coding.lower() != b"identity"):
        raise ServiceError("UNSUPPORTED_MEDIA_TYPE", "A request is JSON in UTF-8, as it is", 415)


def _isUntyped(field: bytes | None) -> bool:
    """Tell whether a Content-Type is what curl says of any text."""
    return field is not None and field.lower() in _UNTYPED


# Clients send two or three; strangers may send any, which then push each other out.
@lru_cache(maxsize=16)
def _isReadable(field: bytes | None) -> bool:
    """Tell whether bodies of a Content-Type can be read; those without one are JSON."""
    if field is None:
        return True
    value = field.decode("latin-1")
    charset = parseContentType(value).charset or "utf-8"
    return matchesType(value, _BODY_TYPES) is not None and charset in ("utf-8", "us-ascii")


def chooseFormat(req: Any) -> StreamFormat:
    """Give the format of a stream that the client likes best."""
    accept = req.lean.headers.get(b"accept", b"")
    # Nobody else needs a negotiation.
    if EVENTS.encode() in accept.lower() and req.accepts(NDJSON, EVENTS) == EVENTS:
        return EVENT_STREAM
    return LINES
