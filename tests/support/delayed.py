"""A reactor that the test drives: real threads, and simulated time."""

from collections.abc import Awaitable, Callable
from queue import Empty, Queue
from time import monotonic
from typing import Any, TypeVar

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.python.failure import Failure

T = TypeVar("T")

PATIENCE = 100.0
"""Seconds that a thread or a disk may stall on a busy machine before a test fails."""


class TurnedReactor(Clock):
    """
    Queues calls from threads, and runs them while the test waits for a result.

    Time is simulated, as in L{Clock}.
    """

    def __init__(self) -> None:
        super().__init__()
        # A SimpleQueue waits for ever if a signal interrupts a wait whose time is over.
        self._calls: Queue[tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]] = Queue()

    def callFromThread(self, function: Callable[..., Any], *args: Any, **named: Any) -> None:
        """Queue a call for the next iteration."""
        self._calls.put((function, args, named))

    def settle(self, result: Awaitable[T]) -> T:
        """Run until an awaitable has its result; return it, or raise its error."""
        return self.settleWith(result, lambda: None)

    def settleWith(self, result: Awaitable[T], pass_: Callable[[], object]) -> T:
        """Run as in L{settle}; call C{pass_} to advance time whenever no thread has calls."""
        outcome: list[Any] = []
        deferred = result if isinstance(result, Deferred) else Deferred.fromCoroutine(result)
        deferred.addBoth(outcome.append)
        self.turnUntil(lambda: bool(outcome), pass_)
        if isinstance(outcome[0], Failure):
            outcome[0].raiseException()
        final: T = outcome[0]
        return final

    def turnUntil(self, condition: Callable[[], bool], pass_: Callable[[], object]) -> None:
        """
        Run until a condition holds; call C{pass_} to advance time whenever no thread has calls.
        """
        deadline = monotonic() + PATIENCE
        while not condition():
            self.advance(0)
            try:
                function, args, named = self._calls.get(timeout=0.002)
            except Empty:
                if monotonic() > deadline:
                    raise AssertionError("nothing came of it") from None
                pass_()
            else:
                function(*args, **named)


class PassingReactor(TurnedReactor):
    """
    Advances time automatically while the test waits: by ten milliseconds whenever no thread calls.
    """

    def settle(self, result: Awaitable[T]) -> T:
        """Run until an awaitable has its result; return it, or raise its error."""
        return self.settleWith(result, lambda: self.advance(0.01))
