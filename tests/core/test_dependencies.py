"""The container of an application's dependencies, without a front end."""

from collections.abc import Iterator
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from storagegate.core.dependencies import (
    DependencyCalls,
    DependencyContainer,
    PlanMaker,
    contextReader,
    headerName,
)
from storagegate.core.parameters import Depends


class ContainerTests(SynchronousTestCase):
    """Values of an application, and the ends of calls."""

    def setUp(self) -> None:
        """Make a container and a log."""
        self.container = DependencyContainer()
        self.log: list[str] = []

    def value(self) -> Iterator[str]:
        """Make a value that ends."""
        self.log.append("made")
        yield "value"
        self.log.append("ended")

    def calls(self, scope: Any) -> DependencyCalls:
        """Make the value for a call."""
        calls = DependencyCalls(None, self.container)
        node = PlanMaker(contextReader).node(Depends(self.value, scope=scope))
        self.assertEqual(calls.resolve(node), "value")
        return calls

    def test_shared(self) -> None:
        """Values end with the last application that serves, and can be made anew."""
        serving = {"web", "rpc"}
        for name in ("web", "rpc"):
            self.container.join(lambda name=name: name in serving)
        self.calls("application")
        self.calls("application")
        for name, log in (("web", ["made"]), ("rpc", ["made", "ended"])):
            serving.discard(name)
            self.successResultOf(self.container.close())
            self.assertEqual(self.log, log)
        self.calls("application")
        self.assertEqual(self.log, ["made", "ended", "made"])

    def test_afterAnswer(self) -> None:
        """With a clock, a call ends in a later iteration, which closing waits for."""
        self.container.clock = clock = Clock()
        self.calls("request").endAfterAnswer(None)
        self.assertEqual(self.log, ["made"])
        closing = self.container.close()
        self.assertNoResult(closing)
        clock.advance(0)
        self.successResultOf(closing)
        self.assertEqual(self.log, ["made", "ended"])
        self.container.clock = None
        self.calls("request").endAfterAnswer(None)
        self.assertEqual(self.log, ["made", "ended"] * 2)

    def test_closeWhileMade(self) -> None:
        """Closing waits for a value that is being made, and ends it."""
        waiting: Deferred[None] = Deferred()

        async def slow() -> Any:
            await waiting
            yield "slow"
            self.log.append("ended")

        calls = DependencyCalls(None, self.container)
        node = PlanMaker(contextReader).node(Depends(slow, scope="application"))
        asking = Deferred.fromCoroutine(calls.resolve(node).coroutine)
        closing = self.container.close()
        self.assertNoResult(closing)
        waiting.callback(None)
        self.successResultOf(closing)
        self.assertEqual(self.successResultOf(asking), "slow")
        self.assertEqual(self.log, ["ended"])

    def test_headerName(self) -> None:
        """The field of a parameter has the words of its name."""
        for name, field in (
            ("userAgent", "user-agent"),
            ("user_agent", "user-agent"),
            ("xRequestID", "x-request-id"),
            ("etag", "etag"),
        ):
            self.assertEqual(headerName(name), field)
