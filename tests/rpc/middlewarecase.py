"""Support for tests of middleware: calls without a client, and a handler at the end."""

from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock

from storagegate.core.errors import GrpcError
from storagegate.rpc.call import Call
from tests.support.log import LogCase
from tests.support.rpcwire import FakeServerCall

NOON = 1_700_000_000
"""14 November 2023, 22:13:20 in Greenwich."""


class MiddlewareCase(LogCase):
    """
    A case with calls.

    @ivar clock: The time.
    @ivar handled: The calls that came through to the handler.
    @ivar wire: The client's end of the last call.
    """

    def setUp(self) -> None:
        """Begin at noon."""
        super().setUp()
        self.clock = Clock()
        self.clock.advance(NOON)
        self.handled: list[Call] = []

    def makeCall(
        self,
        method: str = "GetUser",
        service: str = "user.UserService",
        address: str = "ipv4:192.0.2.7:5000",
        deadline: float | None = None,
        **metadata: str,
    ) -> Call:
        """Make a call; metadata by name."""
        path = f"/{service}/{method}"
        self.wire = FakeServerCall(path, tuple(metadata.items()), deadline, address)
        return Call(self.wire, service, method)

    def start(
        self, middleware: Any, call: Call | None = None, handler: Callable[[], Any] | None = None
    ) -> Deferred[Any]:
        """
        Send a call through a middleware.

        @param handler: What answers it, now or later.
        """
        call = call or self.makeCall()

        async def handle() -> Any:
            self.handled.append(call)
            result = handler() if handler is not None else "answer"
            return await result if hasattr(result, "__await__") else result

        async def run() -> Any:
            result = middleware(call, handle)
            return await result if hasattr(result, "__await__") else result

        return Deferred.fromCoroutine(run())

    def answer(self, middleware: Any, call: Call | None = None) -> Any:
        """Send a call through, and give the answer."""
        return self.successResultOf(self.start(middleware, call))

    def refusal(self, middleware: Any, call: Call | None = None) -> GrpcError:
        """Send a call that is refused before the handler sees it, and give the error."""
        before = len(self.handled)
        error = self.failureResultOf(self.start(middleware, call), GrpcError).value
        self.assertEqual(len(self.handled), before)
        assert isinstance(error, GrpcError)
        return error

    def status(self, middleware: Any, call: Call | None = None) -> str:
        """Send a call through, and give the name of its status."""
        result: list[Any] = []
        self.start(middleware, call).addBoth(result.append)
        error = getattr(result[0], "value", None)
        return error.statusName if isinstance(error, GrpcError) else "OK"


def raising(error: BaseException) -> Callable[..., Any]:
    """Make a function that raises."""

    def fail(*args: Any) -> Any:
        raise error

    return fail
