"""Calls of all four kinds through middleware and handler, on a wire in memory."""

from collections.abc import AsyncIterator
from typing import Any

from twisted.internet.defer import CancelledError, Deferred, succeed

from storagegate.core.errors import GrpcError, ServiceError, asGrpcError
from storagegate.rpc.call import Call
from storagegate.rpc.dispatch import Middleware
from storagegate.rpc.status import DETAILS_KEY, MESSAGE_LENGTH, decodeDetails
from tests.support.rpccallcase import Boom, CallCase

INVALID_ARGUMENT, NOT_FOUND, EXHAUSTED, UNIMPLEMENTED, INTERNAL, UNAVAILABLE = 3, 5, 8, 12, 13, 14


class ValidationError(Exception):
    """What an application's own validation raises."""


class DatabaseError(Exception):
    """What an application's own database raises."""


class UnaryTests(CallCase):
    """One request, one response."""

    def test_plain(self) -> None:
        """A plain function's result is the response; nothing is watched for it."""
        wire = self.begin(lambda call: call.request.upper(), b"abc")
        self.assertEqual(wire.messages, [b"ABC"])
        self.assertStatus(0)
        self.assertFalse(wire.isWatched)

    def test_ready(self) -> None:
        """A coroutine that does not wait, and a Deferred that has fired, answer at once."""

        async def answer(call: Call) -> str:
            return "a"

        for handler in (answer, lambda call: succeed("a"), lambda call: answer(call)):
            wire = self.begin(handler, b"")
            self.assertEqual(wire.messages, [b"a"])
            self.assertStatus(0)

    def test_waiting(self) -> None:
        """A coroutine may wait, and its client is watched meanwhile."""
        waited: Deferred[str] = Deferred()

        async def answer(call: Call) -> str:
            return await waited

        wire = self.begin(answer, b"")
        self.assertIsNone(wire.status)
        self.assertTrue(wire.isWatched)
        waited.callback("late")
        self.assertEqual(wire.messages, [b"late"])
        self.assertStatus(0)

    def test_compression(self) -> None:
        """Only messages that are long enough are to be compressed."""
        for text, expected in (("abc", False), ("abcd", True)):
            wire = self.begin(lambda call, text=text: text, b"")
            self.assertEqual(wire.sent, [(text.encode(), expected)])

    def test_trailers(self) -> None:
        """Trailers go with the status, of a success and of an error."""

        def answer(call: Call) -> str:
            call.setTrailers({"a": "1"})
            if call.request == "bad":
                raise GrpcError("NOT_FOUND", "no")
            return ""

        for request in (b"good", b"bad"):
            wire = self.begin(answer, request)
            assert wire.status is not None
            self.assertEqual(wire.status[2], [("a", "1")])

    def test_noRequest(self) -> None:
        """A client that ends without a request is told that one is needed."""
        wire = self.begin(lambda call: "", None)
        assert wire.status is not None
        self.assertEqual(wire.status[0], UNIMPLEMENTED)
        self.assertIn("exactly one request", wire.status[1])
        self.assertEqual(self.ended, 1)

    def test_badRequest(self) -> None:
        """Bytes that are no message are the client's fault; the handler never sees them."""
        self.begin(lambda call: self.fail("called"), b"\xff")
        self.assertStatus(INVALID_ARGUMENT, "name: is no text")

    def test_badResult(self) -> None:
        """A result that is no message is the server's fault, and only the log says why."""
        self.begin(lambda call: 5, b"")
        self.assertStatus(INTERNAL, "Internal error")
        [failure] = self.flushLoggedErrors(ValueError)
        self.assertIn("name: is no text", str(failure.value))

    def test_missing(self) -> None:
        """A method of the definition without a handler is UNIMPLEMENTED."""
        self.begin(None, b"")
        self.assertStatus(UNIMPLEMENTED, "/test.Service/Method is not implemented")


class ErrorTests(CallCase):
    """What becomes of exceptions."""

    def raised(self, error: BaseException) -> None:
        """Let a handler raise."""

        def answer(call: Call) -> str:
            raise error

        self.begin(answer, b"")

    def test_foreseen(self) -> None:
        """Errors that callers are meant to see have their own status and text."""
        self.raised(GrpcError(NOT_FOUND, "no such user"))
        self.assertStatus(NOT_FOUND, "no such user")
        self.raised(ServiceError("ORDER_CLOSED", "closed", 404))
        self.assertStatus(NOT_FOUND, "closed")
        self.raised(ValidationError("name is missing"))
        self.assertStatus(INVALID_ARGUMENT, "name is missing")

    def test_database(self) -> None:
        """A database's own text is in the log and nowhere else."""
        self.raised(DatabaseError("SELECT secret"))
        self.assertStatus(UNAVAILABLE, "Database temporarily unavailable")
        self.assertEqual(len(self.flushLoggedErrors(DatabaseError)), 1)

    def test_unforeseen(self) -> None:
        """Anything else is INTERNAL without its text, and logged with its traceback."""
        for error in (Boom("secret"), SystemExit("secret"), KeyboardInterrupt("secret")):
            self.raised(error)
            self.assertStatus(INTERNAL, "Internal error")
            [failure] = self.flushLoggedErrors(type(error))
            self.assertIs(failure.value, error)

    def test_details(self) -> None:
        """Details travel in their trailer."""
        self.raised(GrpcError(INVALID_ARGUMENT, "no", [{"path": "a", "message": "b"}]))
        assert self.wire.status is not None
        trailers: dict[str, Any] = dict(self.wire.status[2])
        self.assertEqual(decodeDetails(trailers[DETAILS_KEY]), [{"path": "a", "message": "b"}])

    def test_long(self) -> None:
        """A message that would not fit in the trailers is cut."""
        self.raised(GrpcError(NOT_FOUND, "x" * 100_000))
        self.assertStatus(NOT_FOUND, "x" * MESSAGE_LENGTH)


class MiddlewareTests(CallCase):
    """What stands between a call and its handler."""

    def test_order(self) -> None:
        """The first one is the outermost; each sees the response."""
        seen: list[str] = []

        def named(name: str) -> Middleware:
            async def middleware(call: Call, next: Any) -> Any:
                seen.append(f"{name} before")
                response = await next()
                seen.append(f"{name} after {response}")
                return response

            return middleware

        wire = self.begin(lambda call: "r", b"", middleware=(named("a"), named("b")))
        self.assertEqual(seen, ["a before", "b before", "b after r", "a after r"])
        self.assertEqual(wire.messages, [b"r"])
        self.assertStatus(0)

    def test_refuse(self) -> None:
        """One that raises keeps the handler from being called."""

        async def middleware(call: Call, next: Any) -> Any:
            raise GrpcError("UNAUTHENTICATED", "who are you?")

        self.begin(lambda call: self.fail("called"), b"", middleware=(middleware,))
        self.assertStatus(16, "who are you?")

    def test_replace(self) -> None:
        """What one returns is the response; nothing leaves the handler's."""

        async def replaces(call: Call, next: Any) -> Any:
            return (await next()) + "!"

        async def leaves(call: Call, next: Any) -> None:
            await next()

        wire = self.begin(lambda call: "r", b"", middleware=(leaves, replaces, leaves))
        self.assertEqual(wire.messages, [b"r!"])

    def test_plain(self) -> None:
        """Plain functions do as well, whether they return what next gives or only call it."""

        def returns(call: Call, next: Any) -> Any:
            return next()

        def calls(call: Call, next: Any) -> None:
            next()

        wire = self.begin(lambda call: "r", b"", middleware=(calls, returns, calls))
        self.assertEqual(wire.messages, [b"r"])

    def test_catch(self) -> None:
        """One may answer an error of what is inside it."""

        async def middleware(call: Call, next: Any) -> Any:
            try:
                return await next()
            except Boom:
                return "caught"

        def answer(call: Call) -> str:
            raise Boom

        wire = self.begin(answer, b"", middleware=(middleware,))
        self.assertEqual(wire.messages, [b"caught"])

    def test_twice(self) -> None:
        """Calling next twice is an error of the middleware."""

        async def middleware(call: Call, next: Any) -> Any:
            await next()
            await next()

        self.begin(lambda call: "r", b"", middleware=(middleware,))
        self.assertStatus(INTERNAL, "Internal error")
        self.assertEqual(len(self.flushLoggedErrors(RuntimeError)), 1)

    def test_stream(self) -> None:
        """Around a stream, next is done when the last message has gone out."""
        seen: list[int] = []

        async def middleware(call: Call, next: Any) -> Any:
            await next()
            seen.append(len(self.wire.messages))

        async def answer(call: Call) -> AsyncIterator[str]:
            yield "a"
            yield "b"

        self.begin(answer, b"", streaming="server", middleware=(middleware,))
        self.assertEqual(seen, [2])
        self.assertStatus(0)

    def test_user(self) -> None:
        """A middleware may say who calls."""

        def middleware(call: Call, next: Any) -> Any:
            call.user = {"id": "ann"}
            return next()

        wire = self.begin(lambda call: call.user["id"], b"", middleware=(middleware,))
        self.assertEqual(wire.messages, [b"ann"])

    def test_leave(self) -> None:
        """A client that leaves cancels what a middleware waits for."""
        seen: list[str] = []

        async def middleware(call: Call, next: Any) -> Any:
            try:
                await Deferred()
            except CancelledError:
                seen.append("cancelled")
                raise

        self.begin(lambda call: "", b"", middleware=(middleware,)).leave()
        self.assertEqual(seen, ["cancelled"])
        self.assertEqual(self.ended, 1)


class RefusedTests(CallCase):
    """Who is told of calls that no handler is asked about."""

    def handler(self, call: Call) -> str:
        """Fail, which is a handler's own affair."""
        raise GrpcError("NOT_FOUND", "no")

    def test_asked(self) -> None:
        """A handler that fails was asked."""
        self.begin(self.handler, b"")
        self.assertEqual(self.refused, [])

    def test_badRequest(self) -> None:
        """A request that cannot be read is told before it is answered."""
        self.begin(self.handler, b"\xff")
        self.assertStatus(INVALID_ARGUMENT, self.refused[0].message)  # type: ignore[attr-defined]
        self.assertEqual(len(self.refused), 1)

    def test_missing(self) -> None:
        """A method that has no handler is told, whether there is middleware or not."""

        async def middleware(call: Call, next: Any) -> Any:
            return await next()

        for chain in ((), (middleware,)):
            self.begin(None, b"", middleware=chain)
            self.assertEqual([asGrpcError(each).status for each in self.refused], [UNIMPLEMENTED])

    def test_tooLong(self) -> None:
        """A request that the engine has refused is one that is too long."""
        wire = self.begin(self.handler)
        wire.isRefused = True
        wire.arrive(None)
        self.assertEqual([each.code for each in self.refused], ["PAYLOAD_TOO_LARGE"])  # type: ignore[attr-defined]
        self.assertEqual(asGrpcError(self.refused[0]).status, EXHAUSTED)
        self.assertEqual(self.ended, 1)

    def test_noRequest(self) -> None:
        """A call without a request is told once it is known that its client has not left."""
        for isCancelled, count in ((False, 1), (True, 0)):
            wire = self.begin(self.handler, None)
            self.assertEqual(self.refused, [])
            wire.close(isCancelled)
            self.assertEqual(len(self.refused), count)
