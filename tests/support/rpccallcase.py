"""A test case for calls on an in-memory connection."""

from collections.abc import Callable
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from storagegate.rpc.dispatch import CallLimits, CallRouter, Middleware
from tests.support.rpcroutes import textRoute
from tests.support.rpcwire import FakeServerCall


class Boom(Exception):
    """An unexpected error."""


class CallCase(SynchronousTestCase):
    """The common base of the call cases."""

    def begin(
        self,
        answer: Callable[..., Any] | None,
        *messages: bytes | None,
        streaming: str = "none",
        middleware: tuple[Middleware, ...] = (),
        run: Callable[..., Any] | None = None,
    ) -> FakeServerCall:
        """
        Start a call whose client has sent some messages.

        @param run: Runs functions in threads.
        """
        self.refused: list[Exception] = []
        self.wire = FakeServerCall()
        self.wire.arrive(*messages)
        self.router = CallRouter()
        self.router.run = run
        self.router.middleware.extend(middleware)
        self.router.onRefused = lambda call, error: self.refused.append(error)
        self.route(answer, streaming)
        return self.wire

    def route(self, answer: Callable[..., Any] | None, streaming: str) -> None:
        """Make the router accept the call; messages of more than 3 bytes are compressed."""
        route = textRoute(answer, streaming)
        self.router.routes[route.method.path] = route
        self.router.accept(CallLimits(calls=1, compressAbove=3), self.wire)

    @property
    def ended(self) -> int:
        """Whether the handler of the only call has ended."""
        return 1 - self.router.activeCalls

    def assertStatus(self, status: int, message: str = "") -> None:
        """Check the status of the call, and that it has ended exactly once."""
        assert self.wire.status is not None, "the call has not ended"
        self.assertEqual(self.wire.status[:2], (status, message))
        self.assertEqual(self.ended, 1)
