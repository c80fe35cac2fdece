"""
The writer: mutations that wait go to the server as one transaction and in one round trip.

Such a batch begins with L{Locks}, shared ones of its buckets and of its leases, in their order;
then the fence sees the leases alive; then the rows of uploads and of copied blobs are
locked, in their order; then comes one statement for each key, sorted by bucket and key. So all
nodes take locks in one order, and never wait for each other in a circle. A mutation of a bucket
itself is alone in its batch, with the bucket's lock alone.

Mutations of one key, or of one bucket itself, happen in the order in which they were submitted: one
waits while another is under way.
"""

from collections import deque
from collections.abc import Callable, Sequence
from itertools import pairwise
from operator import itemgetter
from typing import Any

from attrs import define, field
from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.interfaces import IDelayedCall
from twisted.logger import Logger
from twisted.python.failure import Failure

from storagegate.storage.catalog.postgresql.connection import (
    Connection,
    ConnectionLost,
    Rows,
    StatementRefused,
    Step,
)
from storagegate.storage.catalog.postgresql.locks import Locks
from storagegate.storage.catalog.postgresql.primary import PersistentConnection, Primary
from storagegate.storage.catalog.postgresql.statements import (
    FENCE,
    LOCK_BLOBS,
    LOCK_UPLOADS,
    WRITES,
)
from storagegate.storage.catalog.postgresql.values import int8Array, textArray
from storagegate.storage.catalog.writer import UncancellableDeferred
from storagegate.storage.errors import (
    CommitUnknown,
    ConcurrentChange,
    StoreBusy,
    StoreError,
    StoreFull,
)

CONNECTIONS = 2
"""While the server syncs one batch, the next one is made: more connections were not faster."""

MAX_WAITING = 2048
"""Mutations that wait: as many as the embedded catalog lets wait."""

BATCH = 256
"""Mutations in a batch: beyond this a transaction costs nothing less."""

_SHARED = 16
"""Fewer mutations are not divided among connections: the syncs would cost more."""

SCANNED = 512
"""Mutations that are passed for one that need not wait: a look at a long queue takes 2 ms."""

BATCH_BYTES = 4 * 1024 * 1024
"""Bytes in a batch, which libpq has in memory until they are sent."""

WAIT_SECONDS = 2.5
"""
The longest time in the queue: half of that within which a client must have its answer. The other
half is the least that the server has.
"""

_FENCED = "22012"
_FULL = ("53100", "54000")
_DUPLICATE = "23505"

# Of errors that another try, alone, may not have: deadlocks, locks, timeouts, memory, read-only
# servers.
_BUSY = ("40", "53", "55", "57", "25")

_TRIES = 3


@define(eq=False)
class PendingMutation:
    """
    A change that waits to be committed.

    @ivar bucket: The bucket whose lock it takes.
    @ivar steps: A statement for each key, in the order of the results.
    @ivar read: Returns the outcome for the results of the steps; may raise it.
    @ivar leases: Those that must be alive: that of its request, and those of its new blobs.
    @ivar isAlone: Whether it changes the bucket itself, so that no other of it may be under way.
    @ivar uploads: The ids of the uploads that it changes.
    @ivar blobs: The ids of the blobs whose counts it changes.
    @ivar weight: Bytes that it carries besides small columns.
    """

    bucket: str
    steps: Sequence[tuple[bytes, Step]]
    read: Callable[[Sequence[Rows]], Any]
    leases: Sequence[int] = ()
    isAlone: bool = False
    uploads: Sequence[str] = ()
    blobs: Sequence[str] = ()
    weight: int = 0
    began: float = field(default=0.0, init=False)
    tries: int = field(default=0, init=False)
    # The next one of a batch that is tried again, one by one.
    following: "PendingMutation | None" = field(default=None, init=False)
    done: UncancellableDeferred = field(factory=UncancellableDeferred, init=False)


@define(eq=False)
class _Claims:
    """The buckets and keys that mutations have, so that others of them wait."""

    shared: dict[str, int] = field(factory=dict)
    alone: set[str] = field(factory=set)
    keys: dict[tuple[str, bytes], int] = field(factory=dict)

    def has(self, mutation: PendingMutation) -> bool:
        """Return whether a mutation must wait for one of these."""
        bucket = mutation.bucket
        if bucket in self.alone:
            return True
        if mutation.isAlone:
            return bucket in self.shared
        keys = self.keys
        return bool(keys) and any((bucket, key) in keys for key, _ in mutation.steps)

    def add(self, mutation: PendingMutation) -> None:
        """Note what a mutation has. Batches that are under way never have a key in common."""
        bucket = mutation.bucket
        if mutation.isAlone:
            self.alone.add(bucket)
            return
        self.shared[bucket] = self.shared.get(bucket, 0) + 1
        for key, _ in mutation.steps:
            self.keys[bucket, key] = self.keys.get((bucket, key), 0) + 1

    def remove(self, batch: Sequence[PendingMutation]) -> None:
        """Note the end of a batch."""
        for mutation in batch:
            bucket = mutation.bucket
            if mutation.isAlone:
                self.alone.discard(bucket)
                continue
            self.shared[bucket] -= 1
            if not self.shared[bucket]:
                del self.shared[bucket]
            for key, _ in mutation.steps:
                # Others of it may be tried again, one by one.
                self.keys[bucket, key] -= 1
                if not self.keys[bucket, key]:
                    del self.keys[bucket, key]


class Writer:
    """
    Queues mutations and fires their Deferreds. Methods: reactor thread.

    @ivar onUnknown: Called when the outcome of a batch is unknown: its new blobs are the sweeper's,
        and the node needs a new lease.
    @ivar meters: Called for each batch, with the number of its mutations and the seconds it took.
    @ivar isFenced: Whether batches lock their leases and see them alive; tests show what the fence
        is for.
    """

    _log = Logger()

    isFenced = True

    def __init__(self, reactor: Any, primary: Primary, locks: Locks) -> None:
        """@param locks: Those with which each batch begins."""
        self.onUnknown: Callable[[], object] = lambda: None
        self.meters: tuple[Callable[[int], object], Callable[[float], object]] | None = None
        self._reactor = reactor
        self._queue: deque[PendingMutation] = deque()
        # Batches that are made already: what is tried again, one by one.
        self._ready: deque[list[PendingMutation]] = deque()
        self._claims = _Claims()
        self._inFlight = 0
        self._isScheduled = False
        self._timer: IDelayedCall | None = None
        self._closed: Deferred[None] | None = None
        self._locks = locks
        self._connections = [
            PersistentConnection(
                reactor, primary, {**locks.statements, **WRITES}, onOpen=self._opened
            )
            for _ in range(CONNECTIONS)
        ]
        self._idle: list[Connection] = []

    def open(self) -> None:
        """Begin to connect. Once."""
        for each in self._connections:
            each.open()

    def reopen(self, reason: str) -> None:
        """See L{PersistentConnection.reopen}."""
        for each in self._connections:
            each.reopen(reason)

    @property
    def waiting(self) -> int:
        """How many mutations have no outcome yet."""
        return len(self._queue) + self._inFlight

    def submit(self, mutation: PendingMutation) -> Deferred[Any]:
        """Queue a mutation; the Deferred fires when it is durable, or has failed."""
        if self._closed is not None:
            return fail(StoreBusy("the catalog is closed"))
        if self.waiting >= MAX_WAITING:
            return fail(StoreBusy("too many mutations wait"))
        mutation.began = self._reactor.seconds()
        self._queue.append(mutation)
        if self._timer is None:
            self._timer = self._reactor.callLater(WAIT_SECONDS, self._expire)
        # All of one reactor iteration go together.
        if self._idle and not self._isScheduled:
            self._isScheduled = True
            self._reactor.callLater(0, self._dispatch)
        return mutation.done

    def close(self) -> Deferred[None]:
        """Wait for all mutations, then close. Once."""
        self._closed = Deferred() if self.waiting else succeed(None)

        def close(_: None) -> None:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
            for each in self._connections:
                each.close()

        return self._closed.addCallback(close)

    def _opened(self, connection: Connection) -> None:
        self._idle.append(connection)
        if not self._isScheduled:
            self._isScheduled = True
            self._reactor.callLater(0, self._dispatch)

    def _dispatch(self) -> None:
        self._isScheduled = False
        self._idle = [each for each in self._idle if each.isOpen]
        while self._idle and (self._ready or self._queue):
            batch = self._ready.popleft() if self._ready else self._gather()
            if not batch:
                break
            self._send(self._idle.pop(), batch)

    def _gather(self) -> list[PendingMutation]:
        """Take a batch off the queue: the first of those that wait for no other."""
        batch: list[PendingMutation] = []
        passed: list[PendingMutation] = []
        skipped = _Claims()
        weight = 0
        queue = self._queue
        most = BATCH
        if len(queue) >= _SHARED:
            # Clients that were answered together come again together: in one batch they would
            # leave the other connection idle for ever. Divided, 64 of them write 1.6 times as much.
            most = min(most, -(-len(queue) // len(self._idle)))
        while queue and len(batch) < most and weight < BATCH_BYTES and len(passed) < SCANNED:
            mutation = queue.popleft()
            mustWait = self._claims.has(mutation) or skipped.has(mutation)
            if mustWait or (mutation.isAlone and batch):
                skipped.add(mutation)
                passed.append(mutation)
                continue
            batch.append(mutation)
            weight += mutation.weight
            if mutation.isAlone:
                break
        queue.extendleft(reversed(passed))
        for mutation in batch:
            self._claims.add(mutation)
        self._inFlight += len(batch)
        return batch

    def _send(self, connection: Connection, batch: list[PendingMutation]) -> None:
        steps = self._prefix(batch)
        count = len(steps)
        # A stable sort: those of one key stay in their order.
        rows = [
            (mutation.bucket, key, mutation, index, step)
            for mutation in batch
            for index, (key, step) in enumerate(mutation.steps)
        ]
        rows.sort(key=itemgetter(0, 1))
        steps += [row[4] for row in rows]
        began = self._reactor.seconds()

        def finished(result: Any) -> None:
            if isinstance(result, Failure):
                self._failed(batch, result.value)
            else:
                self._succeeded(batch, rows, result[count:], began)
            if connection.isOpen:
                self._idle.append(connection)
            self._dispatch()

        connection.run(steps, min(mutation.began for mutation in batch)).addBoth(finished)

    def _prefix(self, batch: list[PendingMutation]) -> list[Step]:
        """Return the statements with which a batch takes its locks."""
        leases: list[int] = []
        if self.isFenced:
            leases = sorted({lease for mutation in batch for lease in mutation.leases})
        if batch[0].isAlone:
            steps = self._locks.bucketAlone(batch[0].bucket, leases)
        else:
            steps = self._locks.shared({mutation.bucket for mutation in batch}, leases)
        if leases:
            steps.append((FENCE, (int8Array(leases),)))
        uploads = {each for mutation in batch for each in mutation.uploads}
        if uploads:
            steps.append((LOCK_UPLOADS, (textArray(sorted(uploads)),)))
        blobs = {each for mutation in batch for each in mutation.blobs}
        if blobs:
            steps.append((LOCK_BLOBS, (textArray(sorted(blobs)),)))
        return steps

    def _succeeded(
        self,
        batch: list[PendingMutation],
        rows: Sequence[Any],
        results: Sequence[Rows],
        began: float,
    ) -> None:
        self._end(batch)
        if self.meters is not None:
            mutations, seconds = self.meters
            mutations(len(batch))
            seconds(self._reactor.seconds() - began)
        found: dict[PendingMutation, list[Rows]] = {
            each: [None] * len(each.steps) for each in batch
        }
        for (_, _, mutation, index, _), result in zip(rows, results, strict=True):
            found[mutation][index] = result
        for mutation in batch:
            try:
                outcome = mutation.read(found[mutation])
            except Exception:
                mutation.done.errback()
            else:
                mutation.done.callback(outcome)

    def _failed(self, batch: list[PendingMutation], error: BaseException | None) -> None:
        if isinstance(error, ConnectionLost):
            error = CommitUnknown(f"the catalog was lost in a commit: {error}")
        if isinstance(error, CommitUnknown):
            self._log.error(
                "{count} writes may have happened: {error}", count=len(batch), error=error
            )
            self.onUnknown()
        elif isinstance(error, StatementRefused):
            if len(batch) > 1:
                # Only its cause fails. They stay in their order.
                for mutation, following in pairwise(batch):
                    mutation.following = following
                self._ready.append(batch[:1])
                return
            (mutation,) = batch
            mutation.tries += 1
            if error.state[:2] == "40" and mutation.tries < _TRIES:
                self._ready.append(batch)
                return
            error = _explain(error)
        self._end(batch)
        for mutation in batch:
            mutation.done.errback(Failure(error))

    def _end(self, batch: list[PendingMutation]) -> None:
        self._claims.remove(batch)
        self._inFlight -= len(batch)
        self._ready += [[each.following] for each in batch if each.following is not None]
        if self._closed is not None and not self.waiting and not self._closed.called:
            # After the Deferreds of the batch have fired.
            self._reactor.callLater(0, self._closed.callback, None)

    def _expire(self) -> None:
        """Refuse what has waited for too long; nothing of it was sent."""
        self._timer = None
        oldest = self._reactor.seconds() - WAIT_SECONDS
        expired: list[PendingMutation] = []
        while self._queue and self._queue[0].began <= oldest:
            expired.append(self._queue.popleft())
        if self._queue or self._ready:
            waiting = self._queue[0] if self._queue else self._ready[0][0]
            rest = max(0.1, waiting.began - oldest)
            self._timer = self._reactor.callLater(rest, self._expire)
        elif self._closed is not None and not self.waiting and not self._closed.called:
            self._reactor.callLater(0, self._closed.callback, None)
        while self._ready and self._ready[0][0].began <= oldest:
            batch = self._ready.popleft()
            self._end(batch)
            expired += batch
        for mutation in expired:
            mutation.done.errback(StoreBusy("the catalog does not answer"))


def _explain(error: StatementRefused) -> Exception:
    """Return the store's error for that of a server which has done nothing."""
    made: StoreError
    if error.state == _FENCED:
        made = StoreBusy("the lease of this node is over")
    elif error.state in _FULL:
        made = StoreFull(str(error))
    elif error.state == _DUPLICATE:
        made = ConcurrentChange(str(error))
    elif error.state[:2] in _BUSY:
        made = StoreBusy(str(error))
    else:
        return error
    made.__cause__ = error
    return made
