"""Jobs that run one after the other, although their callers are cancelled."""

from collections.abc import Callable
from functools import partial
from typing import Any

from twisted.internet.defer import CancelledError, Deferred
from twisted.trial.unittest import SynchronousTestCase

from storagegate.storage.threadpool import SequentialPool


class _HeldPool:
    """
    A pool whose jobs end when the test says so.

    @ivar running: The jobs that have begun: the function, and the Deferred of its result.
    """

    def __init__(self) -> None:
        self.running: list[tuple[Callable[..., Any], Deferred[Any]]] = []

    def run(self, function: Callable[..., Any], *args: Any) -> Deferred[Any]:
        """Begin a job."""
        result: Deferred[Any] = Deferred()
        self.running.append((partial(function, *args), result))
        return result

    def end(self) -> None:
        """End the first job."""
        function, result = self.running.pop(0)
        try:
            value = function()
        except Exception:
            result.errback()
        else:
            result.callback(value)


class SequentialPoolTests(SynchronousTestCase):
    """L{SequentialPool}."""

    def setUp(self) -> None:
        """Have a pool."""
        self.pool = _HeldPool()
        self.jobs = SequentialPool(self.pool)  # type: ignore[arg-type]

    def test_inTurn(self) -> None:
        """A job begins when the one before it has ended, also with an error."""
        first, second = self.jobs.run(lambda: 1 // 0), self.jobs.run(lambda: 2)
        self.assertEqual(len(self.pool.running), 1)
        self.pool.end()
        self.failureResultOf(first, ZeroDivisionError)
        self.pool.end()
        self.assertEqual(self.successResultOf(second), 2)

    def test_cancelledWhileRunning(self) -> None:
        """A job whose caller is cancelled ends before the next one begins; its error is dropped."""
        for function in (lambda: 1, lambda: 1 // 0):
            first, second = self.jobs.run(function), self.jobs.run(lambda: 2)
            first.cancel()
            self.failureResultOf(first, CancelledError)
            self.assertEqual(len(self.pool.running), 1)
            self.pool.end()
            self.pool.end()
            self.assertEqual(self.successResultOf(second), 2)

    def test_cancelledWhileWaiting(self) -> None:
        """A job that waits is not begun if its caller is cancelled."""
        first, second, third = (self.jobs.run(int, number) for number in (1, 2, 3))
        second.cancel()
        self.failureResultOf(second, CancelledError)
        self.pool.end()
        self.pool.end()
        self.successResultOf(first)
        self.successResultOf(third)
        self.assertEqual(self.pool.running, [])
