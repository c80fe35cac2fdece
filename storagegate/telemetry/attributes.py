"""
The attributes of spans, by the semantic conventions of OpenTelemetry.

U{https://opentelemetry.io/docs/specs/semconv/}: C{rpc.*}, C{http.*}, C{url.*}, C{client.*},
C{error.type}; what they have no name for begins with C{storagegate.}.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from storagegate.telemetry.records import CallRecord, ExchangeRecord, ForwardRecord

MAX_ATTRIBUTES = 112
"""Of a user's on one span: with ours, the 128 that OpenTelemetry itself keeps."""

MAX_TEXT = 1024
"""Characters of a value, and of a name: more is no name of anything, and spans wait in memory."""

MAX_ITEMS = 128
"""Of a value that is a list."""

_INT64 = 1 << 63

Value = Any
"""Text, a truth value, a number, or a list of one of these kinds."""


def ofCall(record: CallRecord) -> dict[str, Value]:
    """Describe a call of a service."""
    protocol = record.protocol
    found: dict[str, Value] = {
        "rpc.system.name": "grpc" if protocol == "grpc" else "storagegate",
        "rpc.method": f"{record.service}/{record.method}",
        "storagegate.protocol": protocol,
        "client.address": record.address,
    }
    if record.port:
        found["client.port"] = record.port
    if protocol == "http":
        found["http.response.status_code"] = record.statusCode
    if record.userAgent:
        found["user_agent.original"] = _text(record.userAgent)
    if record.error is not None:
        found["error.type"] = _text(record.error)
    if record.extra:
        # What a call is called is not a user's to say.
        found = {**record.extra, **found}
    return found


def ofExchange(record: ExchangeRecord) -> dict[str, Value]:
    """Describe a request of S3. Its query is left out: signatures are there."""
    found: dict[str, Value] = {
        "rpc.system.name": "aws-api",
        "rpc.method": f"S3/{record.operation}",
        "storagegate.protocol": "s3",
        "http.request.method": record.verb.decode("latin-1"),
        "http.response.status_code": record.status,
        "http.request.body.size": record.bytesIn,
        "http.response.body.size": record.bytesOut,
        "url.scheme": "https" if record.isSecure else "http",
        "url.path": _text(record.path.decode("latin-1")),
        "client.address": record.address,
        "aws.request_id": record.requestId,
    }
    if record.error is not None or record.status >= 400:
        found["error.type"] = record.error or str(record.status)
    return found


def ofForward(record: ForwardRecord) -> dict[str, Value]:
    """Describe a call that was made on somebody's behalf."""
    found: dict[str, Value] = {
        "rpc.system.name": "storagegate",
        "rpc.method": f"{record.service}/{record.method}",
        "server.address": record.host,
        "server.port": record.port,
    }
    if record.error is not None:
        found["error.type"] = _text(record.error)
    return found


def readAttributes(given: Mapping[Any, Any]) -> dict[str, Value]:
    """Take a user's attributes; what can be none is left out."""
    found: dict[str, Value] = {}
    for name, value in given.items():
        if len(found) >= MAX_ATTRIBUTES:
            break
        if isinstance(name, str) and name:
            known = readValue(value)
            if known is not None:
                found[_text(name)] = known
    return found


def readValue(value: Any) -> Value:
    """Give a value as a collector can take it; C{None} if it is none."""
    if isinstance(value, list | tuple):
        return _readItems(value)
    return _readScalar(value)


def _readScalar(value: Any) -> Value:
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, bool | float):
        return value
    # What is larger has no place in the messages, and would cost all that are sent with it.
    return value if isinstance(value, int) and -_INT64 <= value < _INT64 else None


def _readItems(values: Sequence[Any]) -> Value:
    items = [_readScalar(value) for value in values[:MAX_ITEMS]]
    kinds = {type(item) for item in items}
    return items if len(kinds) == 1 and None not in items else None


def _text(value: str) -> str:
    """Give text that has a form in UTF-8, and an end."""
    return value[:MAX_TEXT].encode("utf-8", "replace").decode("utf-8")
