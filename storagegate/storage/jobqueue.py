"""
Jobs for one thread, a batch at a time: what comes while a batch runs makes up the next one.

So many callers wait for one transaction, and for one sync of the disk.
"""

from collections import deque
from typing import Any, Generic, TypeVar

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

J = TypeVar("J")


class JobQueue(Generic[J]):
    """
    The queue of a store with such a thread. All methods: reactor thread.

    What the store adds are the four steps that only raise an error here, and how many may wait.
    """

    def __init__(self) -> None:
        self._jobs: deque[J] = deque()
        self._isRunning = False
        self._closing: Deferred[None] | None = None

    def close(self) -> Deferred[None]:
        """Close the store when everything that was asked for is done. Nothing may follow."""
        if self._closing is None:
            self._closing = Deferred()
            if not self._isRunning:
                self._next()
        # One for each who asks: a Deferred has one result for one chain.
        closed: Deferred[None] = Deferred()
        self._closing.addBoth(_passTo, closed)
        return closed

    def _take(self) -> list[J]:
        """Take the jobs of a batch from the front; none only if there are none left."""
        raise NotImplementedError

    def _run(self, jobs: list[J]) -> Deferred[Any]:
        """Do a batch in the thread."""
        raise NotImplementedError

    def _deliver(self, results: Any, jobs: list[J]) -> None:
        """Tell those who wait for a batch what came of it, which may be a C{Failure}."""
        raise NotImplementedError

    def _finish(self) -> Deferred[None]:
        """Let go of the file and the thread."""
        raise NotImplementedError

    def _put(self, job: J) -> None:
        self._jobs.append(job)
        if not self._isRunning:
            self._next()

    def _next(self) -> None:
        jobs = self._take()
        self._isRunning = bool(jobs)
        if jobs:
            self._run(jobs).addBoth(self._ended, jobs)
        elif self._closing is not None:
            self._finish().chainDeferred(self._closing)

    def _ended(self, results: Any, jobs: list[J]) -> None:
        # First the next batch: whoever has waited may take its time, and ask for more.
        self._next()
        self._deliver(results, jobs)


def _passTo(result: Any, other: Deferred[Any]) -> Any:
    other.callback(result)
    return None if isinstance(result, Failure) else result
