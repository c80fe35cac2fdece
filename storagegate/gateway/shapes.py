"""
What results and errors look like on each wire: plain dictionaries, for whatever encodes them.

gRPC's shape is a status, see L{asGrpcError<storagegate.core.errors.asGrpcError>}.
"""

import time
from collections.abc import Callable, Mapping
from math import ceil
from typing import Any

from storagegate.core.errors import ServiceError

MessageId = str | int | None

_HTTP_UNKNOWN = "INTERNAL_ERROR"


def httpResult(result: Any) -> dict[str, Any]:
    """Give the body of a response."""
    return {"data": result}


def httpError(error: ServiceError) -> tuple[int, dict[str, Any]]:
    """Give the status and the body of an error."""
    body = {"error": error.code or _HTTP_UNKNOWN, "message": error.message}
    return error.statusCode or 500, _detailed(body, error)


def httpFields(error: ServiceError) -> dict[str, str]:
    """Give the header fields that go with an error."""
    if error.statusCode == 429 and isinstance(error.details, Mapping):
        retryAfterMs = error.details.get("retryAfterMs")
        if isinstance(retryAfterMs, int):
            return {"Retry-After": str(ceil(retryAfterMs / 1000))}
    if error.statusCode == 401:
        return {"WWW-Authenticate": "Bearer"}
    return {}


def messageResult(
    id: MessageId, method: str, result: Any, now: Callable[[], float] = time.time
) -> dict[str, Any]:
    """Give the message of a result; its timestamp is in milliseconds since 1970."""
    message = {
        "id": id,
        "type": "response",
        "method": method,
        "data": result,
        "timestamp": int(now() * 1000),
    }
    return _identified(message)


def messageItem(id: MessageId, item: Any) -> dict[str, Any]:
    """Give the message of an item of a stream."""
    return _identified({"id": id, "type": "stream", "data": item})


def messageEnd(id: MessageId) -> dict[str, Any]:
    """Give the message of a stream's end."""
    return _identified({"id": id, "type": "stream_end"})


def messageError(id: MessageId, error: ServiceError) -> dict[str, Any]:
    """Give the message of an error; it has an id where the request's was readable."""
    inner = _detailed({"code": error.code, "message": error.message}, error)
    message: dict[str, Any] = {"type": "error", "error": inner}
    return message if id is None else {"id": id, **message}


def frameResult(id: MessageId, result: Any) -> Any:
    """Give the payload of a result, or of an item."""
    return result if id is None else {"id": id, "data": result}


def frameEnd(id: MessageId) -> dict[str, Any]:
    """Give the payload of a stream's end."""
    return {} if id is None else {"id": id}


def frameError(id: MessageId, error: ServiceError) -> dict[str, Any]:
    """Give the payload of an error."""
    payload = _detailed({"error": error.code, "message": error.message}, error)
    return payload if id is None else {"id": id, **payload}


def _identified(message: dict[str, Any]) -> dict[str, Any]:
    """Leave out the id if there is none."""
    if message["id"] is None:
        del message["id"]
    return message


def _detailed(shape: dict[str, Any], error: ServiceError) -> dict[str, Any]:
    if error.details is not None:
        shape["details"] = error.details
    return shape
