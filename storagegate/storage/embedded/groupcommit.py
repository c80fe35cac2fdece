"""
Group commit: mutations, their transaction, and the thread that commits all waiting mutations.

A mutation is a function of a L{Transaction} and of the arguments of all successive mutations in the
batch with the same function. It checks before it writes, so that a refusal (a C{StoreError} among
the results) leaves no trace and affects no other mutation. It receives a whole run because each
statement releases the GIL and may wait 5 ms to get it back: beside a busy reactor, 6 rows/s were
measured with a statement for each of 64 rows, and 1,800 with one for all of them.

The mutations of one reactor iteration are queued together, and the outcomes of a commit return with
one wake-up of the reactor.

If the commit fails, the error decides the outcome. On a full disk, mutations that free space are
committed and the others fail. A lock of another process is C{StoreBusy}. An I/O error in a write
sets the L{FailStopLatch}. After any other error each mutation is tried alone, so that only its
cause fails.

After an error in C{COMMIT} itself the outcome is unknown until another commit has overwritten it in
the log; see L{storagegate.storage.embedded.connections}. The writer immediately attempts such a
commit, and each of its transactions includes the overwrite until one succeeds. Until then a full
disk is L{StoreFullUnknown}, so that the new blobs stay.
"""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cache, wraps
from queue import Empty, SimpleQueue
from sqlite3 import Connection, Error
from threading import Thread
from time import perf_counter
from typing import Any, TypeVar

import msgspec
from attrs import define, field
from twisted.internet.defer import Deferred, fail
from twisted.logger import Logger
from twisted.python.failure import Failure

from storagegate.storage.embedded.connections import PAGE_SIZE, bury, buryUnseenCommits
from storagegate.storage.embedded.reserve import Reserve
from storagegate.storage.embedded.wal import WALCheckpointer
from storagegate.storage.errors import (
    CommitUnknown,
    StoreBusy,
    StoreError,
    StoreFull,
    StoreFullUnknown,
    StoreReadOnly,
)
from storagegate.storage.files import FailStopLatch
from storagegate.storage.layout import storeError
from storagegate.storage.mutations import UncancellableDeferred
from storagegate.storage.sqlite import Fault, OpenFiles, abandon, classify, leave, transact

R = TypeVar("R")
T = TypeVar("T")

SEQUENCES = 512
"""
Write numbers per reservation. A mutation that stores an object uses one, so a batch holds at most
this many mutations.
"""


@define
class SequenceBlock:
    """
    Write numbers reserved by a commit.

    @ivar used: The last number taken.
    @ivar end: The last number of the block.
    """

    used: int = 0
    end: int = 0

    def clear(self) -> None:
        """Discard the remaining numbers."""
        self.used = self.end = 0


_NO_CHANGE = [0, 0, 0, 0]


@cache
def _usageSQL(count: int) -> str:
    # Takes 6 microseconds per bucket, half the time of a statement that reads JSON.
    return (
        f"INSERT INTO usage VALUES {', '.join(['(?, ?, ?, ?, ?)'] * count)} ON CONFLICT DO UPDATE"
        " SET objects = objects + excluded.objects, bytes = bytes + excluded.bytes,"
        " uploads = uploads + excluded.uploads, uploadBytes = uploadBytes + excluded.uploadBytes"
    )


@define(eq=False)
class Transaction:
    """
    An open write transaction, used only in the thread that owns the connection.

    @ivar garbage: Blobs that lost their last reference in this transaction.
    @ivar connection: A connection with an open write transaction.
    @ivar mayGrow: Whether the disk has space for rows that a deletion adds.
    @ivar _sequences: Write numbers left by earlier transactions.
    """

    connection: Connection
    _sequences: SequenceBlock = field(factory=SequenceBlock)
    mayGrow: bool = True
    garbage: list[str] = field(factory=list, init=False)
    _usage: dict[int, list[int]] = field(factory=dict, init=False)

    def execute(self, sql: str, parameters: Sequence[object] = ()) -> None:
        """Run a statement without a result."""
        self.connection.execute(sql, parameters)

    def value(self, sql: str, parameters: Sequence[object] | Mapping[str, object] = ()) -> Any:
        """
        Run a statement and return the single column of its single row; L{None} without a row.

        @param sql: One statement with one column and at most one row.
        @param parameters: The values of its placeholders, in order or by name.
        """
        rows = self.connection.execute(sql, parameters).fetchall()
        return rows[0][0] if rows else None

    def count(
        self, bucketId: int, objects: int, bytes: int, uploads: int = 0, uploadBytes: int = 0
    ) -> None:
        """
        Count the changes of a mutation to a bucket's usage.

        @param bucketId: The number of the bucket.
        @param objects: The change in the number of objects; negative for removals, as below.
        @param bytes: The change in the bytes of objects.
        @param uploads: The change in the number of uploads in progress.
        @param uploadBytes: The change in the bytes of their parts.
        """
        counts = self._usage.get(bucketId)
        if counts is None:
            counts = self._usage[bucketId] = [0, 0, 0, 0]
        counts[0] += objects
        counts[1] += bytes
        counts[2] += uploads
        counts[3] += uploadBytes

    def forgetUsage(self, bucketId: int) -> None:
        """Remove the counts of a removed bucket."""
        self._usage.pop(bucketId, None)
        self.execute("DELETE FROM usage WHERE bucketId = ?", (bucketId,))

    def saveUsage(self) -> None:
        """Write the counts of all mutations, one row per bucket."""
        values: list[int] = []
        for bucketId, counts in self._usage.items():
            if counts != _NO_CHANGE:
                values += (bucketId, *counts)
        if values:
            self.execute(_usageSQL(len(values) // 5), values)

    def takeSequence(self) -> int:
        """Return the next write number. Unused numbers are skipped."""
        block = self._sequences
        if block.used == block.end:
            block.end = self.value(
                "UPDATE meta SET value = value + ? WHERE name = 'sequence' RETURNING value",
                (SEQUENCES,),
            )
            block.used = block.end - SEQUENCES
        block.used += 1
        return block.used


Apply = Callable[[Transaction, Sequence[Any]], Sequence[object]]


SEGMENT_WEIGHT = 200
"""Bytes of a segment and its part summary in a row."""


class QueuedMutation(msgspec.Struct, frozen=True, eq=False):
    """
    A mutation that waits for its commit.

    @ivar apply: Called with the arguments of successive mutations with the same function; returns
        for each its result or its L{StoreError}.
    @ivar frees: Whether it frees space, so that it must work on a full disk.
    @ivar weight: Bytes that it carries in addition to small columns.
    @ivar names: Bucket and key of the objects that it may change.
    """

    apply: Apply
    argument: object
    frees: bool = False
    weight: int = 0
    names: Sequence[tuple[str, bytes]] = ()


def oneByOne(function: Callable[[Transaction, T], R]) -> Apply:
    """
    Convert a function of one argument, which raises its L{StoreError}, to an L{Apply}.

    @param function: Called with the transaction and one argument. Other exceptions abort the whole
        batch.
    """

    @wraps(function)
    def apply(transaction: Transaction, arguments: Sequence[T]) -> list[object]:
        outcomes: list[object] = []
        for argument in arguments:
            try:
                outcomes.append(function(transaction, argument))
            except StoreError as error:
                outcomes.append(error)
        return outcomes

    return apply


def asJSON(value: object) -> str:
    """Encode a value for a text column or C{json_each}."""
    return msgspec.json.encode(value).decode()


def runTogether(
    connection: Connection,
    mutations: Sequence[QueuedMutation],
    sequences: SequenceBlock | None = None,
    mayGrow: bool = True,
    onCommit: Callable[[], object] = lambda: None,
    buries: bool = False,
) -> tuple[list[object], list[str]]:
    """
    Run mutations in order in one transaction, and commit. Successive mutations with the same
    function run together.

    @param connection: The writer's connection, without an open transaction.
    @param mutations: The mutations, in commit order.
    @param sequences: Write numbers left by earlier transactions; L{None} if other processes write.
    @param mayGrow: See L{Transaction}.
    @param onCommit: See L{transact}.
    @param buries: Whether the commit must overwrite an unseen one, regardless of the mutations.
    @return: An outcome for each, and the blobs that became garbage.
    @raise Exception: Any error except a L{StoreError} of a mutation; see L{transact}.
    """
    sequences = sequences or SequenceBlock()
    transaction = Transaction(connection, sequences, mayGrow)

    def act() -> list[object]:
        outcomes: list[object] = []
        if buries:
            bury(connection)
        start = 0
        while start < len(mutations):
            apply = mutations[start].apply
            end = start + 1
            while end < len(mutations) and mutations[end].apply is apply:
                end += 1
            arguments = [mutation.argument for mutation in mutations[start:end]]
            outcomes.extend(apply(transaction, arguments))
            start = end
        transaction.saveUsage()
        return outcomes

    try:
        return transact(connection, act, onCommit), transaction.garbage
    except BaseException:
        # The numbers may have been reserved in this transaction.
        sequences.clear()
        raise


@oneByOne
def settleUnseen(transaction: Transaction, nothing: None) -> None:
    """Make the commit overwrite an unseen one in the log."""
    bury(transaction.connection)


# Pages that a mutation may add besides its weight: the page of its row, and the pages of splits in
# the tree.
_PAGES = 4

Committed = tuple[list[object], list[str]]
"""An outcome for each mutation, and the blobs that became garbage."""


class WriteLock:
    """
    The write lock, which a single process always holds.

    Methods: writer thread, unless they say otherwise.
    """

    def __enter__(self) -> None:
        """Acquire the lock. Blocks."""

    def __exit__(self, *error: object) -> None:
        """Release the lock."""

    def commitStarted(self) -> None:
        """Invalidate records that other processes have cached: a commit is about to begin."""

    def commitEnded(self) -> None:
        """Record that this process knows the outcomes of the commit. Reactor thread."""

    @property
    def waitedSeconds(self) -> float:
        """How long the writer has been waiting for the lock. Any thread."""
        return 0.0


def _unknown(outcome: object) -> object:
    """Convert the outcome of a mutation whose commit may become visible later."""
    if type(outcome) is StoreFull:
        return StoreFullUnknown()
    return CommitUnknown() if type(outcome) is StoreBusy else outcome


@define(eq=False)
class Committer:
    """
    Commits batches. Created in any thread, then used in the writer thread.

    @ivar _connection: The committer's own connection, which L{close} closes.
    @ivar _reserve: Released when a mutation that frees space does not fit on the disk.
    @ivar _wal: Runs checkpoints on the same connection.
    @ivar _openFiles: The files of the connection; L{None} to skip the check.
    @ivar _sequences: Numbers for the next writes; L{None} if other processes write, too. Each
        commit then reserves its own, so that newer writes have larger numbers.
    @ivar isUnknown: Whether the last commit failed but may become visible later.
    @ivar problem: Why the reserve cannot be created, except for a full disk; L{None} otherwise.
    """

    _connection: Connection
    _reserve: Reserve
    _latch: FailStopLatch
    _wal: WALCheckpointer
    _openFiles: OpenFiles | None = None
    _sequences: SequenceBlock | None = None
    isUnknown: bool = field(default=False, init=False)
    problem: str | None = field(default=None, init=False)

    def commit(self, mutations: Sequence[QueuedMutation]) -> Committed:
        """Commit mutations, in one transaction if possible. Writer thread."""
        if self._latch.failure is not None:
            return self._refuse(mutations)
        try:
            outcomes, garbage = self._commit(mutations)
        except OSError as error:
            # An error of the reserve, before or between attempts.
            outcomes, garbage = [storeError(error) for _ in mutations], []
        if self.isUnknown:
            self._settle()
            if self.isUnknown:
                outcomes = [_unknown(each) for each in outcomes]
        return outcomes, garbage

    def _commit(self, mutations: Sequence[QueuedMutation]) -> Committed:
        growing = [mutation for mutation in mutations if not mutation.frees]
        size = sum(mutation.weight + _PAGES * PAGE_SIZE for mutation in growing)
        done = None
        reserve = self._reserve
        if (reserve.isHeld or reserve.ensure()) and (not size or self._wal.hasSpace(size)):
            done = self._tryCommit(mutations)
        # Deleted rows may have left free pages for the commit; the reserve is lent to its WAL.
        if done is None and growing and self._wal.fitsFreePages(size) and self._reserve.lend(size):
            done = self._tryCommit(mutations, self._mayGrow(mutations))
        if done is not None:
            return done
        outcomes, garbage = self._free([mutation for mutation in mutations if mutation.frees])
        results = iter(outcomes)
        return [next(results) if each.frees else StoreFull() for each in mutations], garbage

    def afterwards(self) -> None:
        """
        Maintain WAL and reserve between two commits, after the results of the last one were sent.
        """
        self._wal.restartIfLong()
        # The reserve was lent or released, and the WAL has its space now.
        reserve = self._reserve
        try:
            if not (reserve.isHeld or reserve.ensure()) and self._wal.shrink():
                reserve.ensure()
        except OSError as error:
            # The next commit retries.
            if self.problem is None:
                _log.error("cannot create the reserve: {error}", error=str(error))
            self.problem = f"the reserve cannot be created: {error.strerror or error}"
        else:
            self.problem = None

    def doubt(self) -> str | None:
        """
        Return why commits must not be acknowledged; L{None} if they may. Any thread.

        The reason is a failed sync, or that the files were moved so that no later start finds them.
        """
        if self._openFiles is not None:
            self._openFiles.check()
        return self._latch.failure

    def close(self) -> None:
        """
        Copy all pages to the database, truncate the WAL, and close. This must be the last
        connection.
        """
        if self._openFiles is not None and not self._openFiles.check():
            # SQLite would remove the WAL by name, which may now belong to another store.
            abandon(self._connection)
            return
        self._wal.shrink()
        if self._latch.failure is not None:
            leave(self._connection)
        else:
            # If the checkpoint was blocked, SQLite runs it now, unless other processes remain. If
            # that fails, the log stays, and the next start rebuilds its index.
            self._connection.close()

    def settle(self) -> None:
        """
        Overwrite a commit that another process may have left unseen. Blocks.

        @raise StoreFull: The disk has no space for the commit.
        @raise StoreReadOnly: The latch is set.
        """
        self.isUnknown = True
        self._settle()
        self._latch.check()
        if self.isUnknown:
            raise StoreFull("the disk has no space for a commit")

    def _settle(self) -> None:
        """Overwrite a failed commit, if possible now."""
        for release in (lambda: True, self._reserve.release):
            if not release():
                break
            try:
                buryUnseenCommits(self._connection, self._latch)
            except StoreFull:
                continue
            except (StoreReadOnly, Error):
                break
            self.isUnknown = False
            break

    def _commitBegins(self) -> None:
        self.isUnknown = True

    def _tryCommit(
        self, mutations: Sequence[QueuedMutation], mayGrow: bool = True
    ) -> Committed | None:
        """Commit, or convert an error to outcomes; return L{None} if the disk is full."""
        try:
            done = runTogether(
                self._connection,
                mutations,
                self._sequences,
                mayGrow,
                self._commitBegins,
                self.isUnknown,
            )
        except Exception as error:
            fault = classify(error)
            if fault is Fault.FULL:
                return None
            if fault is Fault.BUSY:
                return [StoreBusy() for _ in mutations], []
            if fault is Fault.UNSAFE:
                self._latch.set(f"a write of the catalog failed: {error}")
                return self._refuse(mutations)
            if len(mutations) == 1:
                return [error], []
            outcomes: list[object] = []
            garbage: list[str] = []
            for mutation in mutations:
                outcome, left = self.commit([mutation])
                outcomes += outcome
                garbage += left
            return outcomes, garbage
        self.isUnknown = False
        self._wal.committed(sum(mutation.weight for mutation in mutations))
        return done

    def _free(self, freeing: Sequence[QueuedMutation]) -> Committed:
        """Commit mutations that free space, using the space of WAL and reserve."""
        self._wal.shrink()
        if not freeing:
            return [], []
        done = self._tryCommit(freeing, self._reserve.ensure() or self._mayGrow(freeing))
        if done is None and self._reserve.release():
            # The WAL may hold pages for which the database had no space to grow.
            self._wal.shrink()
            done = self._tryCommit(freeing, self._mayGrow(freeing))
            self._wal.shrink()
        if done is None and len(freeing) > 1:
            # Half of the mutations need half of the WAL, which is truncated before the other half.
            half = len(freeing) // 2
            halves = self._free(freeing[:half]), self._free(freeing[half:])
            done = halves[0][0] + halves[1][0], halves[0][1] + halves[1][1]
        return done or ([StoreFull() for _ in freeing], [])

    def _mayGrow(self, freeing: Sequence[QueuedMutation]) -> bool:
        """Return whether the released reserve has space for the delete markers of mutations."""
        size = sum(len(mutation.names) for mutation in freeing) * _PAGES * PAGE_SIZE
        # The pages are in the WAL now and in the database later.
        return self._reserve.spares(size if self._wal.fitsFreePages(size) else 2 * size)

    def _refuse(self, mutations: Sequence[QueuedMutation]) -> Committed:
        return [StoreReadOnly(self._latch.failure) for _ in mutations], []


_log = Logger()

MAX_WAITING = 2048
"""
The most waiting mutations, twice a listener's calls in flight: at most 128 MiB of small objects.
"""

BATCH = SEQUENCES
"""The most mutations in one transaction; larger groups are not cheaper per mutation."""

BATCH_BYTES = 4 * 1024 * 1024
"""The largest weight of a transaction, which a slow disk writes in a few hundredths of a second."""


_Waiting = tuple[QueuedMutation, UncancellableDeferred]


@define(eq=False)
class CatalogWriter:
    """
    Queues mutations and fires their Deferreds. Methods: reactor thread, unless they say otherwise.

    The thread starts with the first mutation, so that an earlier fork copies no thread.

    @ivar _reactor: Provides C{IReactorFromThreads} and C{IReactorTime}.
    @ivar _onChange: Called with the names of objects that a commit may have changed, before any of
        its Deferreds fires.
    @ivar _onGarbage: Called with the blobs that lost their last reference, also before the
        Deferreds fire.
    @ivar _onCommit: Called after each commit.
    @ivar _writeLock: Held for each batch.
    @ivar waiting: The number of mutations without a result.
    @ivar meters: Called for each batch, with its number of mutations and its duration in seconds.
    """

    _reactor: Any
    _committer: Committer
    _onChange: Callable[[Sequence[tuple[str, bytes]]], object]
    _onGarbage: Callable[[list[str]], object]
    _onCommit: Callable[[], object]
    _writeLock: WriteLock = field(factory=WriteLock)
    _submitted: list[_Waiting] = field(factory=list, init=False)
    _queue: SimpleQueue[list[_Waiting] | None] = field(factory=SimpleQueue, init=False)
    waiting: int = field(default=0, init=False)
    meters: tuple[Callable[[int], object], Callable[[float], object]] | None = field(
        default=None, init=False
    )
    _thread: Thread | None = field(default=None, init=False)
    # The mutations that the thread has taken from the queue, and the batch that it is committing.
    _taken: deque[_Waiting] = field(factory=deque, init=False)
    _batch: list[_Waiting] = field(factory=list, init=False)
    _stopped: Deferred[None] | None = field(default=None, init=False)
    _closed: Deferred[None] | None = field(default=None, init=False)
    _dead: str | None = field(default=None, init=False)

    @property
    def problem(self) -> str | None:
        """Why writes fail or will fail; L{None} if there is no problem."""
        return self._dead or self._committer.problem

    def submit(self, mutation: QueuedMutation) -> Deferred[Any]:
        """
        Queue a mutation for the next commit.

        @param mutation: The mutation, whose function runs in the writer thread.
        @return: Fires with the outcome once it is durable.
        """
        if self._dead is not None:
            return fail(StoreBusy(self._dead))
        if self._stopped is not None:
            return fail(StoreBusy("the catalog is closed"))
        if self.waiting >= MAX_WAITING:
            return fail(StoreBusy())
        self.waiting += 1
        result = UncancellableDeferred()
        self._submitted.append((mutation, result))
        if len(self._submitted) == 1:
            self._reactor.callLater(0, self._enqueue)
        return result

    def stop(self) -> Deferred[None]:
        """Commit waiting mutations and refuse later ones. Call once, before L{close}."""
        self._stopped = Deferred()
        self._enqueue()
        if self._thread is None:
            self._stopped.callback(None)
        else:
            self._queue.put(None)
        return self._stopped

    def close(self) -> Deferred[None]:
        """
        Close the connection, which must be the last of this process. Call once, after L{stop}.
        """
        self._closed = Deferred()
        if self._thread is None:
            # The thread never started or has died. The store is closing, so blocking the reactor
            # thread is harmless.
            self._closeCommitter()
            self._closed.callback(None)
        else:
            self._queue.put(None)
        return self._closed

    def _enqueue(self) -> None:
        if self._dead is not None:
            self._refuse(self._submitted, StoreBusy(self._dead))
            return
        if self._thread is None and self._submitted:
            thread = Thread(target=self._run, name="storagegate-catalog", daemon=True)
            try:
                thread.start()
            except RuntimeError as error:
                # The system cannot start a thread; the next mutation retries.
                _log.error("cannot start the catalog's writer: {error}", error=str(error))
                self._refuse(self._submitted, StoreBusy(str(error)))
                return
            self._thread = thread
        if self._submitted:
            self._queue.put(self._submitted)
            self._submitted = []

    def _run(self) -> None:
        """Commit until the queue ends, then close. Runs in the writer thread."""
        try:
            self._commitAll()
        except BaseException:
            self._reactor.callFromThread(self._died, Failure())
            return
        self._reactor.callFromThread(self._drained)
        self._queue.get()
        self._closeCommitter()
        self._reactor.callFromThread(self._finish)

    def _commitAll(self) -> None:
        waiting = self._taken
        isOpen = True
        while isOpen or waiting:
            if not waiting:
                isOpen = _extend(waiting, self._queue.get())
            with suppress(Empty):
                while isOpen:
                    isOpen = _extend(waiting, self._queue.get_nowait())
            if waiting:
                batch = self._batch = _takeBatch(waiting)
                started = perf_counter()
                with self._writeLock:
                    self._writeLock.commitStarted()
                    try:
                        done = self._committer.commit([mutation for mutation, _ in batch])
                    except Exception as error:
                        # Every Deferred must fire, whatever the error.
                        done = [error] * len(batch), []
                    seconds = perf_counter() - started
                    self._batch = []
                    self._reactor.callFromThread(self._deliver, batch, *done, seconds)
                    self._committer.afterwards()

    def _closeCommitter(self) -> None:
        try:
            with self._writeLock:
                self._committer.close()
        except Exception:
            # The log stays, and the next start replays it.
            _log.failure("closing the catalog failed")

    def _deliver(
        self,
        batch: Sequence[_Waiting],
        outcomes: Sequence[object],
        garbage: list[str],
        seconds: float,
    ) -> None:
        self.waiting -= len(batch)
        if (doubt := self._committer.doubt()) is not None:
            outcomes, garbage = [StoreReadOnly(doubt)] * len(batch), []
        try:
            for mutation, _ in batch:
                if mutation.names:
                    self._onChange(mutation.names)
            if self.meters is not None:
                self.meters[0](len(batch))
                self.meters[1](seconds)
        except Exception:
            _log.failure("recording a commit failed")
        self._writeLock.commitEnded()
        if garbage:
            try:
                self._onGarbage(garbage)
            except Exception:
                # The rows stay and the next start finds them; the results must be delivered now.
                _log.failure("reading garbage failed")
        for (_, result), outcome in zip(batch, outcomes, strict=True):
            if isinstance(outcome, Exception):
                result.errback(outcome)
            else:
                result.callback(outcome)
        self._onCommit()

    def _drained(self) -> None:
        if self._stopped is not None:
            self._stopped.callback(None)

    def _died(self, failure: Failure) -> None:
        """
        Fail all mutations that wait for the thread, and refuse further writes in this process. The
        outcome of the batch in progress is unknown.
        """
        self._dead = f"the catalog's writer has stopped: {failure.getErrorMessage()}"
        _log.failure("the catalog's writer has stopped", failure)
        self._thread = None
        left, self._batch = [*self._batch, *self._taken], []
        self._taken.clear()
        with suppress(Empty):
            while True:
                left += self._queue.get_nowait() or []
        self._refuse([*left, *self._submitted], CommitUnknown(self._dead))
        if self._stopped is not None and not self._stopped.called:
            self._stopped.callback(None)
        if self._closed is not None:
            self._closeCommitter()
            self._closed.callback(None)

    def _refuse(self, group: list[_Waiting], error: StoreError) -> None:
        self._submitted = []
        self.waiting -= len(group)
        for _, result in group:
            result.errback(error)

    def _finish(self) -> None:
        if self._thread is not None:
            # The thread is about to exit; a closed store must have no threads.
            self._thread.join()
        if self._closed is not None:
            self._closed.callback(None)


def _extend(waiting: deque[_Waiting], group: list[_Waiting] | None) -> bool:
    """Append a group; L{None} ends the queue. Return whether more may follow. Writer thread."""
    if group is None:
        return False
    waiting.extend(group)
    return True


def _takeBatch(waiting: deque[_Waiting]) -> list[_Waiting]:
    """Remove a batch from the front: at least one mutation, at most the limits."""
    batch = [waiting.popleft()]
    weight = batch[0][0].weight
    while waiting and len(batch) < BATCH:
        weight += waiting[0][0].weight
        if weight > BATCH_BYTES:
            break
        batch.append(waiting.popleft())
    return batch
