"""The runner of coroutines: cancelling, deadlines, results now or later."""

from contextvars import ContextVar
from typing import Any

from twisted.internet.defer import CancelledError, Deferred, succeed
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from storagegate.core.errors import ServiceError
from storagegate.core.task import IdleWaiters, resolve, resolveThen, runWithDeadline


class RunTests(SynchronousTestCase):
    """runWithDeadline."""

    def setUp(self) -> None:
        """Make a clock and a handler that waits."""
        self.clock = Clock()
        self.waited: Deferred[str] = Deferred()
        self.seen: list[str] = []

    async def wait(self) -> str:
        """Wait, and tell of a cancel."""
        try:
            return await self.waited
        except CancelledError:
            self.seen.append("cancelled")
            raise

    def codeOf(self, running: Deferred[Any]) -> str:
        """Give the code of the error that a call ended with."""
        error = self.failureResultOf(running).value
        assert isinstance(error, ServiceError)
        return error.code

    def runLater(self, coroutine: Any, seconds: float | None = None) -> Deferred[Any]:
        """Run what waits."""
        running = runWithDeadline(coroutine, self.clock, seconds)
        assert running is not None
        return running

    def test_ready(self) -> None:
        """What does not wait has ended at once, and leaves no timer."""

        async def ready() -> None:
            self.seen.append("ready")

        self.assertIsNone(runWithDeadline(ready(), self.clock, 5))
        self.assertEqual(self.seen, ["ready"])
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_raises(self) -> None:
        """What raises without waiting raises at once."""

        async def raises() -> None:
            raise ServiceError("X", "x")

        error = self.assertRaises(ServiceError, runWithDeadline, raises(), self.clock, 5)
        self.assertEqual(error.code, "X")
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_steps(self) -> None:
        """What waits again and again gets every result and every error, in one context."""
        first: Deferred[int] = Deferred()
        second: Deferred[int] = Deferred()

        async def steps() -> list[Any]:
            place.set("inside")
            seen: list[Any] = [await first]
            try:
                await second
            except ValueError as error:
                seen.append(str(error))
            return [*seen, place.get()]

        place: ContextVar[str] = ContextVar("place", default="outside")
        running = self.runLater(steps())
        first.callback(1)
        self.assertNoResult(running)
        second.errback(ValueError("2"))
        self.assertEqual(self.successResultOf(running), [1, "2", "inside"])
        self.assertEqual(place.get(), "outside")

    def test_late(self) -> None:
        """What waits gives its result, and takes its timer away."""
        running = self.runLater(self.wait(), 5)
        self.waited.callback("r")
        self.assertEqual(self.successResultOf(running), "r")
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_deadline(self) -> None:
        """At its deadline a call is cancelled."""
        running = self.runLater(self.wait(), 5)
        self.clock.advance(4.9)
        self.assertNoResult(running)
        self.clock.advance(0.2)
        self.assertEqual(self.codeOf(running), "DEADLINE_EXCEEDED")
        self.assertEqual(self.seen, ["cancelled"])

    def test_passed(self) -> None:
        """A deadline that has passed leaves a call the time that it takes without waiting."""
        running = self.runLater(self.wait(), -1)
        self.clock.advance(0)
        self.assertEqual(self.codeOf(running), "DEADLINE_EXCEEDED")

    def test_cancel(self) -> None:
        """A call that is cancelled cancels what it waits for."""
        running = self.runLater(self.wait(), 5)
        running.cancel()
        self.assertEqual(self.codeOf(running), "CANCELLED")
        self.assertEqual(self.seen, ["cancelled"])
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_stubborn(self) -> None:
        """What goes on after it was cancelled is not waited for; its result is nobody's."""
        again: Deferred[None] = Deferred()

        async def stubborn() -> str:
            try:
                await self.waited
            except CancelledError:
                await again
            return "too late"

        running = self.runLater(stubborn(), 5)
        self.clock.advance(5)
        self.assertEqual(self.codeOf(running), "DEADLINE_EXCEEDED")
        again.callback(None)

    def test_errorAfter(self) -> None:
        """An error after the end is nobody's either: the invoker has logged it."""

        async def raises() -> None:
            try:
                await self.waited
            finally:
                raise ServiceError("X", "x")

        running = self.runLater(raises())
        running.cancel()
        self.assertEqual(self.codeOf(running), "CANCELLED")


class ResolveTests(SynchronousTestCase):
    """Results of functions that may be asynchronous or not."""

    def test_value(self) -> None:
        """A value is passed on synchronously."""
        self.assertEqual(resolveThen(1, lambda value: value + 1), 2)
        self.assertEqual(self.successResultOf(Deferred.fromCoroutine(resolve(1))), 1)

    def test_awaitable(self) -> None:
        """An awaitable is waited for, and so is what the function makes of its result."""
        waiting: Deferred[int] = Deferred()
        result = Deferred.fromCoroutine(resolveThen(waiting, lambda value: succeed(value + 1)))
        self.assertNoResult(result)
        waiting.callback(1)
        self.assertEqual(self.successResultOf(result), 2)
        self.assertEqual(self.successResultOf(Deferred.fromCoroutine(resolve(succeed(3)))), 3)


class IdleWaitersTests(SynchronousTestCase):
    """Deferreds that fire when work has ended."""

    def test_wait(self) -> None:
        """They fire together at the end of the work; without work, there is no waiting."""
        waiters = IdleWaiters()
        self.successResultOf(waiters.wait(busy=False))
        waiting = [waiters.wait(busy=True) for _ in range(2)]
        self.assertNoResult(waiting[0])
        waiters.notify()
        waiters.notify()
        for each in waiting:
            self.successResultOf(each)
