"""
The writer: one thread that commits all the mutations that wait, as a group.

Mutations are gathered during one turn of the reactor and handed over together; the outcomes come
back with one wake-up for each commit.
"""

from collections import deque
from collections.abc import Callable, Sequence
from queue import Empty, SimpleQueue
from threading import Thread
from time import perf_counter
from typing import Any, Protocol

from twisted.internet.defer import Deferred, fail
from twisted.logger import Logger

from storagegate.storage.catalog.committer import Committed, Committer
from storagegate.storage.catalog.transactions import SEQUENCES, Mutation
from storagegate.storage.catalog.turns import Turn
from storagegate.storage.errors import StoreBusy

_log = Logger()

WAITING = 2048
"""Mutations that may wait, twice a listener's calls in flight: at most 128 MiB of small objects."""

BATCH = SEQUENCES
"""Mutations in one transaction; a group larger than this is not cheaper for each."""

BATCH_BYTES = 4 * 1024 * 1024
"""Bulk in one transaction: what a slow disk takes in a few hundredths of a second."""


class WriterReactor(Protocol):
    """What the writer needs of a reactor: C{IReactorFromThreads} and C{IReactorTime}."""

    def callFromThread(self, callable: Callable[..., object], *args: object) -> object:
        """Call in the reactor thread."""

    def callLater(self, delay: float, callable: Callable[..., object], *args: object) -> object:
        """Call later."""


class Undertaken(Deferred[Any]):
    """
    The answer of a mutation.

    To cancel it does nothing: the mutation is committed or refused all the same, and whoever owns
    its blobs must wait to know which.
    """

    def cancel(self) -> None:
        """Do nothing."""


_Waiting = tuple[Mutation, Undertaken]


class Writer:
    """
    Queues mutations and fires their Deferreds. Methods: reactor thread, unless they say otherwise.

    The thread starts with the first mutation: whatever forks before then takes no thread along.

    @param onChange: Told the names of the objects that a commit has changed, or may have, before
        anybody has an answer.
    @param onGarbage: Told which blobs became garbage, just before those who deleted them
        have their answers.
    @param onCommit: Called after each commit.
    @param turn: Entered for each batch.
    @ivar waiting: How many mutations have no answer yet.
    @ivar onBatch: Told of each batch how many mutations it had and the seconds that it took.
    """

    def __init__(
        self,
        reactor: WriterReactor,
        committer: Committer,
        onChange: Callable[[Sequence[tuple[str, bytes]]], object],
        onGarbage: Callable[[list[str]], object],
        onCommit: Callable[[], object],
        turn: Turn | None = None,
    ) -> None:
        self._reactor = reactor
        self._committer = committer
        self._onChange = onChange
        self._onGarbage = onGarbage
        self._onCommit = onCommit
        self._turn = turn or Turn()
        self._gathered: list[_Waiting] = []
        self._queue: SimpleQueue[list[_Waiting] | None] = SimpleQueue()
        self.waiting = 0
        self.onBatch: Callable[[int, float], object] | None = None
        self._thread: Thread | None = None
        self._stopped: Deferred[None] | None = None

    def submit(self, mutation: Mutation) -> Deferred[Any]:
        """
        Let a mutation wait for the next commit.

        @return: Fires with its outcome once that is durable.
        """
        if self._stopped is not None:
            return fail(StoreBusy("the catalog is closed"))
        if self.waiting >= WAITING:
            return fail(StoreBusy())
        self.waiting += 1
        answer = Undertaken()
        self._gathered.append((mutation, answer))
        if len(self._gathered) == 1:
            self._reactor.callLater(0, self._handOver)
        return answer

    def stop(self) -> Deferred[None]:
        """Commit what waits, then close. Once."""
        self._stopped = Deferred()
        self._handOver()
        self._queue.put(None)
        return self._stopped

    def _handOver(self) -> None:
        if self._thread is None:
            self._thread = Thread(target=self._work, name="storagegate-catalog", daemon=True)
            self._thread.start()
        if self._gathered:
            self._queue.put(self._gathered)
            self._gathered = []

    def _work(self) -> None:
        """Commit until the queue ends. The writer thread's whole life."""
        waiting: deque[_Waiting] = deque()
        going = True
        while going or waiting:
            for group in self._arrivals(wait=not waiting):
                if group is None:
                    going = False
                else:
                    waiting.extend(group)
            if waiting:
                batch = _cut(waiting)
                began = perf_counter()
                with self._turn:
                    self._turn.began()
                    done = self._commit(batch)
                    seconds = perf_counter() - began
                    self._reactor.callFromThread(self._deliver, batch, *done, seconds)
                    self._committer.afterwards()
        with self._turn:
            self._committer.close()
        self._reactor.callFromThread(self._finish)

    def _arrivals(self, wait: bool) -> list[list[_Waiting] | None]:
        """Take all that has been handed over; C{wait} until there is something. Writer thread."""
        groups = [self._queue.get()] if wait else []
        try:
            while True:
                groups.append(self._queue.get_nowait())
        except Empty:
            return groups

    def _commit(self, batch: Sequence[_Waiting]) -> Committed:
        """Commit a batch. Writer thread."""
        try:
            return self._committer.commit([mutation for mutation, _ in batch])
        except Exception as error:
            # Nobody may be left to wait for ever, whatever went wrong.
            return [error] * len(batch), []

    def _deliver(
        self,
        batch: Sequence[_Waiting],
        outcomes: Sequence[object],
        garbage: list[str],
        seconds: float,
    ) -> None:
        self.waiting -= len(batch)
        if self.onBatch is not None:
            self.onBatch(len(batch), seconds)
        for mutation, _ in batch:
            if mutation.names:
                self._onChange(mutation.names)
        self._turn.delivered()
        if garbage:
            try:
                self._onGarbage(garbage)
            except Exception:
                # Their rows stay and the next start finds them; the answers must come now.
                _log.failure("garbage was not taken")
        for (_, answer), outcome in zip(batch, outcomes, strict=True):
            if isinstance(outcome, Exception):
                answer.errback(outcome)
            else:
                answer.callback(outcome)
        self._onCommit()

    def _finish(self) -> None:
        if self._thread is not None:
            # It has nothing left to do but to end; who closes a store finds no thread of it.
            self._thread.join()
        stopped = self._stopped
        if stopped is not None:
            stopped.callback(None)


def _cut(waiting: deque[_Waiting]) -> list[_Waiting]:
    """Take a batch from the front: at least one mutation, at most what the limits say."""
    batch = [waiting.popleft()]
    bulk = batch[0][0].weight
    while waiting and len(batch) < BATCH:
        bulk += waiting[0][0].weight
        if bulk > BATCH_BYTES:
            break
        batch.append(waiting.popleft())
    return batch
