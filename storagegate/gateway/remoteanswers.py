"""What the gateway of an instance answers, read: results, items of streams, and errors."""

from collections.abc import Mapping
from typing import Any

from storagegate.core.errors import (
    CODES,
    GRPC_STATUSES,
    GrpcError,
    ServiceError,
    asServiceError,
    codedError,
)
from storagegate.gateway.codecs import JSON


class AnswerError(ValueError):
    """What came is no answer of a gateway; the text says what it is not."""


def readResult(status: int, body: bytes) -> Any:
    """
    Read the answer to a unary call. May run in a thread.

    @raise ServiceError: The one that it is.
    @raise AnswerError: If it is no answer.
    """
    value = _object(body)
    if status == 200:
        if "data" not in value:
            raise AnswerError("an answer without data")
        return value["data"]
    raise _error(value, status)


def readItem(line: bytes) -> Any:
    """
    Read a line of a stream. May run in a thread.

    @raise ServiceError: The one that it is.
    @raise AnswerError: If it is neither an item nor an error.
    """
    value = _object(line)
    if "data" in value:
        return value["data"]
    raise _error(value, None)


def unavailable(service: str, reason: str) -> ServiceError:
    """Make the error for an instance that has not answered, or nothing that makes sense."""
    return codedError("UNAVAILABLE", f"An instance of {service} {reason}")


def _object(body: bytes) -> dict[str, Any]:
    try:
        value = JSON.decode(body)
    except ValueError as error:
        raise AnswerError("no JSON") from error
    if not isinstance(value, dict):
        raise AnswerError("no JSON object")
    return value


def _error(value: Mapping[str, Any], status: int | None) -> ServiceError:
    """Make the error that an instance has told, with the status that it has on every wire."""
    code, message = value.get("error"), value.get("message", "")
    if not isinstance(code, str) or not isinstance(message, str):
        raise AnswerError("neither data nor an error")
    if status is not None and not 400 <= status <= 599:
        raise AnswerError(f"an error with the status {status}")
    known, grpcCode = _statuses(code)
    details = value.get("details")
    if status is None or status == known:
        return ServiceError(code, message, known, details, grpcCode)
    # The service has given a code of ours, or its own, a status of its own.
    return ServiceError(code, message, status, details)


def _statuses(code: str) -> tuple[int, int | None]:
    """Give the HTTP status and the gRPC code that go with an error code."""
    if code in CODES:
        return CODES[code]
    if code in GRPC_STATUSES and code != "OK":
        error = asServiceError(GrpcError(code))
        return error.statusCode, error.grpcCode
    return 500, None
