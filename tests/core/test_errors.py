"""One tree of errors and one table, for every wire."""

import asyncio
import pickle
import sqlite3
from typing import Any

import grpc
from twisted.internet.defer import CancelledError
from twisted.trial.unittest import SynchronousTestCase

from storagegate.core.errors import (
    CODES,
    GRPC_NAMES,
    GRPC_STATUSES,
    GrpcError,
    ServiceError,
    asGrpcError,
    asServiceError,
    codedError,
    grpcStatus,
    isExpected,
)


class ValidationError(Exception):
    """Stands for any library's."""

    def __init__(self, message: str = "", details: Any = None) -> None:
        super().__init__(message)
        self.details = details


class DatabaseError(Exception):
    """Stands for any library's."""


class StatusTests(SynchronousTestCase):
    """The status codes of gRPC."""

    def test_numbers(self) -> None:
        """Numbers and names are grpcio's, every one of them."""
        self.assertEqual(GRPC_STATUSES, {code.name: code.value[0] for code in grpc.StatusCode})
        self.assertEqual(GRPC_NAMES, {code.value[0]: code.name for code in grpc.StatusCode})

    def test_forms(self) -> None:
        """A status is given by its number, its name in any case, or as grpcio has it."""
        for code in grpc.StatusCode:
            number = code.value[0]
            for form in (number, code.name, code.name.lower(), code):
                self.assertEqual(grpcStatus(form), number)

    def test_none(self) -> None:
        """Anything else is no status."""
        for form in (-1, 17, True, 5.0, "", "NOT FOUND", None, b"OK", [], object()):
            error = self.assertRaises(ValueError, grpcStatus, form)
            self.assertIn(repr(form), str(error))


class GrpcErrorTests(SynchronousTestCase):
    """What handlers raise."""

    def test_members(self) -> None:
        """The status is read in every form, and is there by number and by name."""
        for form in (5, "NOT_FOUND", grpc.StatusCode.NOT_FOUND):
            error = GrpcError(form, "no such user", {"id": "1"})
            self.assertEqual((error.status, error.code, error.statusName), (5, 5, "NOT_FOUND"))
            self.assertEqual((error.message, error.details), ("no such user", {"id": "1"}))
            self.assertEqual(str(error), "NOT_FOUND: no such user")
        self.assertIsNone(GrpcError(5).details)

    def test_ok(self) -> None:
        """OK is no error, nor is what is no status."""
        for form in (0, "OK", grpc.StatusCode.OK, 17, "FOUND"):
            self.assertRaises(ValueError, GrpcError, form)

    def test_pickled(self) -> None:
        """Errors pass from process to process as they are."""
        for error in (GrpcError(5, "no", [1]), ServiceError("A", "b", 404, {"c": 1}, 5)):
            copy = pickle.loads(pickle.dumps(error))
            self.assertEqual((vars(copy), str(copy)), (vars(error), str(error)))


class TableTests(SynchronousTestCase):
    """The tables of codes."""

    def test_codes(self) -> None:
        """Each code has its HTTP status and its gRPC code."""
        expected = {
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
            "UNAVAILABLE": (503, 14),
            "DEADLINE_EXCEEDED": (504, 4),
            "RESPONSE_TOO_LARGE": (500, 13),
        }
        self.assertEqual(CODES, expected)
        for code, (status, number) in expected.items():
            error = codedError(code, "m", [1])
            self.assertEqual(
                (error.code, error.message, error.statusCode, error.grpcStatus, error.details),
                (code, "m", status, number, [1]),
            )
            self.assertEqual(asGrpcError(error).status, number)

    def test_statuses(self) -> None:
        """The gRPC code of a user's error is that of its HTTP status; any other is INTERNAL."""
        table = {400: 3, 401: 16, 403: 7, 404: 5, 409: 6, 429: 8}
        for status in range(100, 600):
            error = ServiceError("MY_OWN", "m", status)
            self.assertEqual(error.grpcStatus, table.get(status, 13))

    def test_default(self) -> None:
        """Without a status it is 500, and INTERNAL."""
        error = ServiceError("MY_OWN", "m")
        self.assertEqual((error.statusCode, error.grpcStatus, error.details), (500, 13, None))
        self.assertEqual(str(error), "MY_OWN: m")

    def test_named(self) -> None:
        """An error may name its gRPC code, in every form."""
        for form in (9, "FAILED_PRECONDITION", grpc.StatusCode.FAILED_PRECONDITION):
            self.assertEqual(ServiceError("X", "m", 409, grpcCode=form).grpcStatus, 9)
        self.assertRaises(ValueError, ServiceError, "X", "m", grpcCode="TEAPOT")

    def test_namedOk(self) -> None:
        """An error that names OK does not become a success."""
        self.assertEqual(asGrpcError(ServiceError("X", "m", grpcCode=0)).status, 13)


class ConversionTests(SynchronousTestCase):
    """Whatever was raised becomes an error of either kind."""

    def test_unchanged(self) -> None:
        """An error of the kind that is asked for stays the same object."""
        grpcError, serviceError = GrpcError(5, "no"), ServiceError("X", "m")
        self.assertIs(asGrpcError(grpcError), grpcError)
        self.assertIs(asServiceError(serviceError), serviceError)

    def test_toGrpc(self) -> None:
        """Message and details of a service's error go along."""
        error = asGrpcError(ServiceError("TAKEN", "is taken", 409, {"by": "x"}))
        self.assertEqual((error.status, error.message, error.details), (6, "is taken", {"by": "x"}))

    def test_toService(self) -> None:
        """Every gRPC code has a code and an HTTP status on the other wires, and keeps its own."""
        expected = {
            "CANCELLED": ("CANCELLED", 499),
            "UNKNOWN": ("INTERNAL_ERROR", 500),
            "INVALID_ARGUMENT": ("INVALID_ARGUMENT", 400),
            "DEADLINE_EXCEEDED": ("DEADLINE_EXCEEDED", 504),
            "NOT_FOUND": ("NOT_FOUND", 404),
            "ALREADY_EXISTS": ("ALREADY_EXISTS", 409),
            "PERMISSION_DENIED": ("PERMISSION_DENIED", 403),
            "RESOURCE_EXHAUSTED": ("RATE_LIMITED", 429),
            "FAILED_PRECONDITION": ("FAILED_PRECONDITION", 400),
            "ABORTED": ("ABORTED", 409),
            "OUT_OF_RANGE": ("OUT_OF_RANGE", 400),
            "UNIMPLEMENTED": ("UNIMPLEMENTED", 501),
            "INTERNAL": ("INTERNAL_ERROR", 500),
            "UNAVAILABLE": ("UNAVAILABLE", 503),
            "DATA_LOSS": ("INTERNAL_ERROR", 500),
            "UNAUTHENTICATED": ("UNAUTHENTICATED", 401),
        }
        self.assertEqual({*expected, "OK"}, set(GRPC_STATUSES))
        for name, (code, status) in expected.items():
            error = asServiceError(GrpcError(name, "m", [1]))
            self.assertEqual((error.code, error.statusCode), (code, status))
            self.assertEqual((error.message, error.details), ("m", [1]))
            self.assertEqual(asGrpcError(error).statusName, name)

    def test_unknown(self) -> None:
        """Nothing of an unexpected exception reaches a client."""
        for error in (KeyError("secret"), ZeroDivisionError(), SystemExit("secret")):
            self.assertFalse(isExpected(error))
            grpcError, serviceError = asGrpcError(error), asServiceError(error)
            self.assertEqual(
                (grpcError.status, grpcError.message, grpcError.details),
                (13, "Internal error", None),
            )
            self.assertEqual(
                (serviceError.code, serviceError.message, serviceError.statusCode),
                ("INTERNAL_ERROR", "Internal error", 500),
            )


class NamedTests(SynchronousTestCase):
    """Errors that say by a name what they are."""

    def test_validation(self) -> None:
        """A ValidationError is the caller's mistake: its text and its details go out."""
        violations = [{"path": "a", "message": "b"}]
        error = ValidationError("a is bad", violations)
        self.assertTrue(isExpected(error))
        made = asServiceError(error)
        self.assertEqual(
            (made.code, made.message, made.statusCode, made.details),
            ("VALIDATION_ERROR", "a is bad", 400, violations),
        )
        self.assertEqual(asGrpcError(error).status, 3)

    def test_database(self) -> None:
        """A DatabaseError is UNAVAILABLE; its text is for the log, where it has to get to."""
        error = DatabaseError("SELECT secret")
        self.assertFalse(isExpected(error))
        made = asServiceError(error)
        self.assertEqual(
            (made.code, made.message, made.statusCode),
            ("UNAVAILABLE", "Database temporarily unavailable", 503),
        )
        self.assertEqual(asGrpcError(error).status, 14)

    def test_subclasses(self) -> None:
        """The name of a base class counts: a busy SQLite is a database that is unavailable."""
        error = asGrpcError(sqlite3.OperationalError("database is locked"))
        self.assertEqual((error.status, error.details), (14, None))
        narrower = type("BadEmail", (ValidationError,), {})
        self.assertEqual(asGrpcError(narrower("no email")).status, 3)

    def test_statements(self) -> None:
        """A wrong statement and a wrong row are no outage: calling again does not heal them."""
        for kind in (sqlite3.ProgrammingError, sqlite3.IntegrityError, sqlite3.DataError):
            self.assertEqual(asGrpcError(kind("UNIQUE failed: users.secret")).status, 13)
            self.assertFalse(isExpected(kind()))

    def test_attribute(self) -> None:
        """An attribute C{name} says it as well."""
        for name, status in (("ValidationError", 3), ("DatabaseError", 14), ("Other", 13)):
            error = RuntimeError("text")
            error.name = name  # type: ignore[attr-defined]
            self.assertEqual(asGrpcError(error).status, status)

    def test_names(self) -> None:
        """An undefined or misspelt ValidationError is a mistake in the handler, not in the call."""
        for error in (
            NameError("name 'ValidationError' is not defined", name="ValidationError"),
            AttributeError("module 'm' has no attribute ...", name="ValidationError"),
            ImportError("no module", name="DatabaseError"),
        ):
            self.assertFalse(isExpected(error))
            self.assertEqual(asGrpcError(error).message, "Internal error")

    def test_cancelled(self) -> None:
        """A call that was cancelled is CANCELLED, by the exception of any library."""
        for error in (CancelledError(), asyncio.CancelledError()):
            self.assertTrue(isExpected(error))
            made = asServiceError(error)
            self.assertEqual((made.code, made.statusCode), ("CANCELLED", 499))
            self.assertEqual(asGrpcError(error).status, 1)

    def test_strange(self) -> None:
        """An error that cannot be written, or whose details are a method, is told all the same."""

        class Mute(ValidationError):
            def __str__(self) -> str:
                raise RuntimeError("secret")

        made = asServiceError(Mute(details=len))
        self.assertEqual((made.code, made.details), ("VALIDATION_ERROR", None))
        self.assertNotIn("secret", made.message)
