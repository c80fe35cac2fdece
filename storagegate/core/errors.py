"""
The errors of services: one class hierarchy, and one table of codes for every transport.

A handler raises L{ServiceError} or L{GrpcError}; L{asServiceError} and L{asGrpcError} convert any
exception to one of them, and hide the text of unexpected exceptions.
"""

import struct
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, TypeVar

GRPC_STATUSES: Mapping[str, int] = MappingProxyType(
    {
        name: number
        for number, name in enumerate(
            [
                "OK",
                "CANCELLED",
                "UNKNOWN",
                "INVALID_ARGUMENT",
                "DEADLINE_EXCEEDED",
                "NOT_FOUND",
                "ALREADY_EXISTS",
                "PERMISSION_DENIED",
                "RESOURCE_EXHAUSTED",
                "FAILED_PRECONDITION",
                "ABORTED",
                "OUT_OF_RANGE",
                "UNIMPLEMENTED",
                "INTERNAL",
                "UNAVAILABLE",
                "DATA_LOSS",
                "UNAUTHENTICATED",
            ]
        )
    }
)
"""The status codes of gRPC (U{https://grpc.io/docs/guides/status-codes/})."""

GRPC_NAMES: Mapping[int, str] = MappingProxyType({v: k for k, v in GRPC_STATUSES.items()})
"""The names of gRPC status codes by number."""

GRPC_OF_HTTP: Mapping[int, int] = MappingProxyType(
    {400: 3, 401: 16, 403: 7, 404: 5, 409: 6, 429: 8}
)
"""The gRPC code of an HTTP status; any other one is C{INTERNAL}."""

CODES: Mapping[str, tuple[int, int]] = MappingProxyType(
    {
        "VALIDATION_ERROR": (400, 3),
        "INVALID_ARGUMENT": (400, 3),
        "UNAUTHENTICATED": (401, 16),
        "PERMISSION_DENIED": (403, 7),
        "NOT_FOUND": (404, 5),
        "ALREADY_EXISTS": (409, 6),
        "PAYLOAD_TOO_LARGE": (413, 8),
        "RESOURCE_EXHAUSTED": (429, 8),
        "RATE_LIMITED": (429, 8),
        "CANCELLED": (499, 1),
        "INTERNAL_ERROR": (500, 13),
        "RESPONSE_TOO_LARGE": (500, 13),
        "UNAVAILABLE": (503, 14),
        "DEADLINE_EXCEEDED": (504, 4),
    }
)
"""The error codes that the gateway itself uses, each with its HTTP status and its gRPC code."""

# The error code and HTTP status of a gRPC code: the last of the codes above, except for 13.
_CODE_OF_GRPC: Mapping[int, tuple[str, int]] = MappingProxyType(
    {
        **{grpcCode: (code, statusCode) for code, (statusCode, grpcCode) in CODES.items()},
        9: ("FAILED_PRECONDITION", 400),
        10: ("ABORTED", 409),
        11: ("OUT_OF_RANGE", 400),
        12: ("UNIMPLEMENTED", 501),
        13: ("INTERNAL_ERROR", 500),
    }
)

# Exceptions whose name attribute names something else: an undefined ValidationError is not a failed
# validation.
_NAMERS = (AttributeError, ImportError, NameError)

# Subclasses of DatabaseError in PEP 249 that a retry cannot fix: invalid statements and rows.
_STATEMENT_ERRORS = frozenset(
    {"DataError", "IntegrityError", "NotSupportedError", "ProgrammingError"}
)

E = TypeVar("E", bound=BaseException)

UNKNOWN_MESSAGE = "Internal error"
"""The message that clients get for an unexpected exception."""

DATABASE_MESSAGE = "Database temporarily unavailable"
"""The message that clients get for a C{DatabaseError}, whose own text may quote a statement."""


class ServiceError(Exception):
    """
    A failure that a service reports to its callers.

    @ivar code: The kind of the failure, such as C{"NOT_FOUND"}.
    @ivar message: A human-readable description.
    @ivar statusCode: The HTTP status.
    @ivar details: Further information for callers, as a JSON value; C{None} for none.
    @ivar grpcCode: The gRPC code; C{None} derives it from the HTTP status.
    """

    def __init__(
        self,
        code: str,
        message: str = "",
        statusCode: int = 500,
        details: Any = None,
        grpcCode: int | str | None = None,
    ) -> None:
        super().__init__(code, message)
        self.code = code
        self.message = message
        self.statusCode = statusCode
        self.details = details
        self.grpcCode = None if grpcCode is None else grpcStatus(grpcCode)

    def __str__(self) -> str:
        return f"{self.code}: {self.message}"

    @property
    def grpcStatus(self) -> int:
        """Return the gRPC code: the explicit one, or else the one for the HTTP status."""
        if self.grpcCode is not None:
            return self.grpcCode
        return GRPC_OF_HTTP.get(self.statusCode, GRPC_STATUSES["INTERNAL"])


class GrpcError(Exception):
    """
    A call that ends with a gRPC status.

    @ivar status: The status's number.
    @ivar message: A human-readable description.
    @ivar details: The content of C{grpc-status-details-bin}: C{None}, a mapping, or a list of
        mappings and protobuf messages.
    @ivar metadata: The trailers, on a client; C{None} on a server.
    """

    def __init__(self, status: Any, message: str = "", details: Any = None) -> None:
        """
        @param status: The number or the name of a status, or one of C{grpc.StatusCode}.
        @raise ValueError: If there is no such status, or it is C{OK}.
        """
        self.status = grpcStatus(status)
        if self.status == 0:
            raise ValueError("OK is no error")
        super().__init__(self.status, message)
        self.message = message
        self.details = details
        self.metadata: Any = None

    def __str__(self) -> str:
        return f"{self.statusName}: {self.message}"

    @property
    def statusName(self) -> str:
        """Return the name of the status, such as C{"NOT_FOUND"}."""
        return GRPC_NAMES[self.status]

    @property
    def code(self) -> int:
        """Return the number of the status; other libraries use this name."""
        return self.status


def grpcStatus(status: Any) -> int:
    """
    Return the number of a status.

    @param status: Its number or name, or one of C{grpc.StatusCode}.
    @raise ValueError: If there is no such status.
    """
    if isinstance(status, int) and not isinstance(status, bool) and status in GRPC_NAMES:
        return int(status)
    name = status if isinstance(status, str) else getattr(status, "name", None)
    if isinstance(name, str) and name.upper() in GRPC_STATUSES:
        return GRPC_STATUSES[name.upper()]
    raise ValueError(f"there is no gRPC status {status!r}")


def errorBody(error: ServiceError) -> dict[str, Any]:
    """Return the body of an error over HTTP: code, message and any details."""
    body: dict[str, Any] = {"error": error.code or "INTERNAL_ERROR", "message": error.message}
    if error.details is not None:
        body["details"] = error.details
    return body


def codedError(code: str, message: str, details: Any = None) -> ServiceError:
    """
    Make an error with a code of L{CODES}, its HTTP status and its gRPC code.

    @param code: A key of L{CODES}.
    @param message: For callers; it must not quote a secret.
    @param details: Further information for callers, in JSON values.
    """
    statusCode, grpcCode = CODES[code]
    return ServiceError(code, message, statusCode, details, grpcCode)


UNREADABLE = (ValueError, LookupError, TypeError, AttributeError, struct.error)
"""The exceptions that a parser of client input raises for malformed input."""


def isExpected(error: BaseException) -> bool:
    """
    Return whether an error is expected; an unexpected one is logged with a traceback.

    Errors of databases are unexpected.
    """
    if isinstance(error, ServiceError | GrpcError):
        return True
    return _kindOf(error) in ("ValidationError", "CancelledError")


def causedBy(error: E, cause: BaseException) -> E:
    """
    Return an error with its cause, to be raised.

    @param cause: The cause; ignored if it is the error itself. An error that is its own cause is a
        reference cycle, whose traceback holds the request.
    """
    if error is not cause:
        error.__cause__ = cause
    return error


def untraced(error: E) -> E:
    """
    Return a copy of an error without its traceback, to be raised by the object that keeps it.

    The traceback of a raised error holds frames, which usually hold the object: a cycle.
    """
    # Not its args, which lack the file name in an OSError.
    copy = error.__class__.__new__(error.__class__, *error.__reduce__()[1])
    copy.args = error.args
    copy.__dict__.update(error.__dict__)
    copy.__cause__ = error.__cause__
    return copy


def asServiceError(error: BaseException) -> ServiceError:
    """Convert an exception to the error of a service."""
    if isinstance(error, ServiceError):
        return error
    if isinstance(error, GrpcError):
        code, statusCode = _CODE_OF_GRPC.get(error.status, ("INTERNAL_ERROR", 500))
        return ServiceError(code, error.message, statusCode, error.details, error.status)
    kind = _kindOf(error)
    if kind == "ValidationError":
        details = getattr(error, "details", None)
        # In other libraries this is a method.
        details = None if callable(details) else details
        return codedError("VALIDATION_ERROR", _textOf(error), details)
    if kind == "DatabaseError":
        return codedError("UNAVAILABLE", DATABASE_MESSAGE)
    if kind == "CancelledError":
        return codedError("CANCELLED", "The call was cancelled")
    return codedError("INTERNAL_ERROR", UNKNOWN_MESSAGE)


def asGrpcError(error: BaseException) -> GrpcError:
    """Convert an exception to a gRPC error."""
    if isinstance(error, GrpcError):
        return error
    known = asServiceError(error)
    # OK is not a valid code of an error.
    status = known.grpcStatus or GRPC_STATUSES["INTERNAL"]
    return GrpcError(status, known.message, known.details)


def _kindOf(error: BaseException) -> str | None:
    """Return the known name of an exception, its own or of a base class."""
    names = {kind.__name__ for kind in type(error).__mro__}
    name = getattr(error, "name", None)
    if isinstance(name, str) and not isinstance(error, _NAMERS):
        names.add(name)
    if "ValidationError" in names:
        return "ValidationError"
    if "DatabaseError" in names and names.isdisjoint(_STATEMENT_ERRORS):
        return "DatabaseError"
    return "CancelledError" if "CancelledError" in names else None


def _textOf(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:
        # The exception has a bug; the caller still gets the status.
        return "Validation failed"
