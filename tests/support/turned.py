"""A reactor that the test turns: real threads, and time that stands still."""

from collections.abc import Awaitable, Callable
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.python.failure import Failure

T = TypeVar("T")

_PATIENCE = 20.0
"""Seconds after which a Deferred that has not fired fails the test."""


class TurnedReactor(Clock):
    """
    Takes calls from threads, and makes them while the test waits for something.

    Time is L{Clock}'s: it passes when the test says so.
    """

    def __init__(self) -> None:
        super().__init__()
        self._calls: SimpleQueue[tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]]
        self._calls = SimpleQueue()

    def callFromThread(self, function: Callable[..., Any], *args: Any, **named: Any) -> None:
        """Keep a call for the next turn."""
        self._calls.put((function, args, named))

    def settle(self, result: Awaitable[T]) -> T:
        """Turn until something has its result; return it, or raise its error."""
        outcome: list[Any] = []
        deferred = result if isinstance(result, Deferred) else Deferred.fromCoroutine(result)
        deferred.addBoth(outcome.append)
        while not outcome:
            try:
                function, args, named = self._calls.get(timeout=_PATIENCE)
            except Empty:
                raise AssertionError("nothing came of it") from None
            function(*args, **named)
        if isinstance(outcome[0], Failure):
            outcome[0].raiseException()
        final: T = outcome[0]
        return final
