"""A test case whose calls are on a wire in memory."""

from collections.abc import Callable
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from storagegate.rpc.dispatch import CallDispatch, Middleware
from tests.support.rpcroutes import textRoute
from tests.support.rpcwire import FakeServerCall


class Boom(Exception):
    """What nobody foresaw."""


class CallCase(SynchronousTestCase):
    """What the cases of this file share."""

    def begin(
        self,
        answer: Callable[..., Any] | None,
        *messages: bytes | None,
        streaming: str = "none",
        middleware: tuple[Middleware, ...] = (),
    ) -> FakeServerCall:
        """Begin a call whose client has sent some messages."""
        self.ended = 0
        self.refused: list[Exception] = []
        self.wire = FakeServerCall()
        self.wire.arrive(*messages)

        def ended() -> None:
            self.ended += 1

        route = textRoute(answer, streaming)
        CallDispatch(
            self.wire,
            route,
            middleware,
            lambda length: length > 3,
            ended,
            lambda call, error: self.refused.append(error),
        ).begin()
        return self.wire

    def assertStatus(self, status: int, message: str = "") -> None:
        """Check how the call has ended: once."""
        assert self.wire.status is not None, "the call has not ended"
        self.assertEqual(self.wire.status[:2], (status, message))
        self.assertEqual(self.ended, 1)
