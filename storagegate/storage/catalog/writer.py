"""
The writer: one thread that commits all the mutations that wait, as a group.

Mutations are gathered during one turn of the reactor and handed over together; the outcomes come
back with one wake-up for each commit.

Commits a batch, and decides what its mutations are told when that fails.

A full disk lets pass what frees room and refuses the rest; a lock held elsewhere is C{StoreBusy};
an I/O error in a write is for good (L{FailStopLatch}); anything else is somebody's own, so each
mutation is
tried alone and the guilty one is told.
"""

from collections import deque
from collections.abc import Callable, Sequence
from queue import Empty, SimpleQueue
from sqlite3 import Connection
from threading import Thread
from time import perf_counter
from typing import Any, Protocol

from twisted.internet.defer import Deferred, fail
from twisted.logger import Logger

from storagegate.storage.catalog.connections import PAGE_SIZE
from storagegate.storage.catalog.coordination import WriteLock
from storagegate.storage.catalog.transactions import SEQUENCES, Mutation, runTogether
from storagegate.storage.catalog.wal import Reserve, WALCheckpointer
from storagegate.storage.errors import StoreBusy, StoreFull, StoreReadOnly
from storagegate.storage.sqlite import FailStopLatch, Fault, classify

# Pages that a mutation may add besides its bulk: its row's, and those of a tree that splits.
_PAGES = 4

Committed = tuple[list[object], list[str]]
"""An outcome for each mutation, and the blobs that became garbage."""


class Committer:
    """
    Owns the write connection. Made in any thread, then lives in the writer's.

    @param wal: The keeper of this connection's WAL.
    """

    def __init__(
        self, connection: Connection, reserve: Reserve, latch: FailStopLatch, wal: WALCheckpointer
    ) -> None:
        self._connection = connection
        self._reserve = reserve
        self._latch = latch
        self._wal = wal

    def commit(self, mutations: Sequence[Mutation]) -> Committed:
        """Commit what can be committed, at best all in one transaction."""
        if self._latch.failure is not None:
            return self._refuse(mutations)
        growing = [mutation for mutation in mutations if not mutation.frees]
        size = sum(mutation.weight + _PAGES * PAGE_SIZE for mutation in growing)
        done = self._settle(mutations) if self._hasRoom(size) else None
        if done is None and growing and self._hasFreedRoom(size):
            done = self._settle(mutations)
        return self._whenFull(mutations) if done is None else done

    def afterwards(self) -> None:
        """Do what is due between two commits, when nobody waits for the last one any more."""
        self._wal.keep()
        # It was lent or given up; the WAL has its room now.
        if not self._reserve.ensure() and self._wal.shrink():
            self._reserve.ensure()

    def close(self) -> None:
        """Leave everything in the database and the WAL empty."""
        self._wal.shrink()
        self._connection.close()

    def _hasRoom(self, size: int) -> bool:
        """Say whether the disk can take a commit, and the reserve beside it."""
        return self._reserve.ensure() and (not size or self._wal.hasRoom(size))

    def _hasFreedRoom(self, size: int) -> bool:
        """Say whether deleted rows have left room for a commit; the reserve is lent to it."""
        return self._wal.fitsFreed(size) and self._reserve.lend(size)

    def _settle(self, mutations: Sequence[Mutation]) -> Committed | None:
        """Commit, or answer any fault but a full disk: that gives L{None}."""
        try:
            done = runTogether(self._connection, mutations)
        except Exception as error:
            fault = classify(error)
            if fault is Fault.FULL:
                return None
            if fault is Fault.BUSY:
                return [StoreBusy() for _ in mutations], []
            if fault is Fault.UNSAFE:
                self._latch.set(error)
                return self._refuse(mutations)
            if len(mutations) == 1:
                return [error], []
            return self._separately(mutations)
        self._wal.note(sum(mutation.weight for mutation in mutations))
        return done

    def _separately(self, mutations: Sequence[Mutation]) -> Committed:
        outcomes: list[object] = []
        garbage: list[str] = []
        for mutation in mutations:
            outcome, left = self.commit([mutation])
            outcomes += outcome
            garbage += left
        return outcomes, garbage

    def _whenFull(self, mutations: Sequence[Mutation]) -> Committed:
        outcomes, garbage = self._free([mutation for mutation in mutations if mutation.frees])
        answers = iter(outcomes)
        return [next(answers) if each.frees else StoreFull() for each in mutations], garbage

    def _free(self, freeing: Sequence[Mutation]) -> Committed:
        """Commit what frees room, in all the room that can be had."""
        self._wal.shrink()
        done = self._settle(freeing) if freeing else ([], [])
        if done is None and self._reserve.release():
            done = self._settle(freeing)
            self._wal.shrink()
        if done is None and len(freeing) > 1:
            # Half of them need half of the WAL, and it is short again for the other half.
            half = len(freeing) // 2
            halves = self._free(freeing[:half]), self._free(freeing[half:])
            done = halves[0][0] + halves[1][0], halves[0][1] + halves[1][1]
        return done or ([StoreFull() for _ in freeing], [])

    def _refuse(self, mutations: Sequence[Mutation]) -> Committed:
        return [StoreReadOnly(self._latch.failure) for _ in mutations], []


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


class UncancellableDeferred(Deferred[Any]):
    """
    The answer of a mutation.

    To cancel it does nothing: the mutation is committed or refused all the same, and whoever owns
    its blobs must wait to know which.
    """

    def cancel(self) -> None:
        """Do nothing."""


_Waiting = tuple[Mutation, UncancellableDeferred]


class CatalogWriter:
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
        turn: WriteLock | None = None,
    ) -> None:
        self._reactor = reactor
        self._committer = committer
        self._onChange = onChange
        self._onGarbage = onGarbage
        self._onCommit = onCommit
        self._turn = turn or WriteLock()
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
        answer = UncancellableDeferred()
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
