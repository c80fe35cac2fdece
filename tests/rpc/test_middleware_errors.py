"""What becomes of whatever a handler raises."""

from typing import Any

from twisted.internet.defer import CancelledError, Deferred, succeed

from storagegate.core.errors import GrpcError, ServiceError
from storagegate.rpc.middleware import errorHandler
from tests.rpc.middlewarecase import MiddlewareCase, raising


class ValidationError(Exception):
    """Stands for any library's."""


class DatabaseError(Exception):
    """Stands for any library's."""


class RuleTests(MiddlewareCase):
    """The rules."""

    def raised(self, error: Exception, middleware: Any = None) -> GrpcError:
        """Give what a middleware makes of an error."""
        answer = self.start(middleware or errorHandler(), handler=raising(error))
        found = self.failureResultOf(answer, GrpcError).value
        assert isinstance(found, GrpcError)
        return found

    def test_none(self) -> None:
        """A call without an error is left alone."""
        self.assertEqual(self.answer(errorHandler()), "answer")

    def test_grpc(self) -> None:
        """A GrpcError is passed on unchanged."""
        error = GrpcError("NOT_FOUND", "no such user", {"id": 1})
        self.assertIs(self.raised(error), error)
        self.assertEqual(self.logged(), [])

    def test_service(self) -> None:
        """A ServiceError has the status of its own."""
        error = self.raised(ServiceError("TAKEN", "is taken", 409, {"by": "x"}))
        self.assertEqual(str(error), "ALREADY_EXISTS: is taken")
        self.assertEqual(error.details, {"by": "x"})
        self.assertEqual(self.logged(), [])

    def test_validation(self) -> None:
        """An error named ValidationError is INVALID_ARGUMENT, with its text."""
        error = self.raised(ValidationError("id is bad"))
        self.assertEqual(str(error), "INVALID_ARGUMENT: id is bad")
        self.assertEqual(self.logged(), [])

    def test_database(self) -> None:
        """An error named DatabaseError is UNAVAILABLE, its text only in the log."""
        error = self.raised(DatabaseError("SELECT secret"))
        self.assertEqual(str(error), "UNAVAILABLE: Database temporarily unavailable")
        self.assertEqual(len(self.flushLoggedErrors(DatabaseError)), 1)

    def test_unknown(self) -> None:
        """Anything else is INTERNAL without a word of its own, and logged with its call."""
        error = self.raised(KeyError("secret"))
        self.assertEqual(str(error), "INTERNAL: Internal error")
        self.assertEqual(len(self.flushLoggedErrors(KeyError)), 1)
        [event] = self._logEvents
        self.assertEqual(event["path"], "/user.UserService/GetUser")
        self.assertEqual(event["peer"], "192.0.2.7:5000")

    def test_cancelled(self) -> None:
        """A cancelled call stays cancelled: its client has left."""
        waiting: Deferred[Any] = Deferred()
        answer = self.start(errorHandler(), handler=lambda: waiting)
        answer.cancel()
        self.failureResultOf(answer, CancelledError)
        self.assertEqual(self.logged(), [])


class HookTests(RuleTests):
    """The hook for those who want to see errors; the rules hold with it, too."""

    def setUp(self) -> None:
        """Keep what the hook sees."""
        super().setUp()
        self.seen: list[tuple[type, str]] = []

    def see(self, error: Exception, call: Any) -> Any:
        """Keep an error."""
        self.seen.append((type(error), call.method))
        return succeed(None)

    def raised(self, error: Exception, middleware: Any = None) -> GrpcError:
        """Give what a middleware with a hook makes of an error."""
        return super().raised(error, middleware or errorHandler(self.see))

    def test_seen(self) -> None:
        """The hook gets unexpected errors, and no others."""
        for error in (KeyError(), DatabaseError(), ValidationError(), GrpcError(5)):
            self.raised(error)
        self.assertEqual(self.seen, [(KeyError, "GetUser"), (DatabaseError, "GetUser")])
        self.flushLoggedErrors(KeyError, DatabaseError)

    def test_failing(self) -> None:
        """A hook that fails is logged, and changes nothing for the caller."""
        for hook in (raising(ZeroDivisionError()), lambda error, call: self.failing()):
            error = self.raised(KeyError(), errorHandler(hook))
            self.assertEqual(str(error), "INTERNAL: Internal error")
            self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)
            self.assertEqual(len(self.flushLoggedErrors(KeyError)), 1)

    async def failing(self) -> None:
        """Fail, later."""
        raise ZeroDivisionError

    def test_kind(self) -> None:
        """A hook is a function."""
        self.assertRaises(TypeError, errorHandler, "log")
