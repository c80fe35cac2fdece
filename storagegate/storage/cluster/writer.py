"""
The writer: waiting mutations go to the server as one transaction in one round trip.

A batch begins with L{Locks}: shared locks of its buckets and leases, in order. Then the fence
checks that the leases are alive; then the rows of uploads and copied blobs are locked, in order;
then one statement per key follows, sorted by bucket and key. All nodes thus take locks in the same
order and cannot deadlock. A mutation of a bucket itself is alone in its batch and takes the
bucket's lock exclusively.

Mutations of the same key, or of the same bucket itself, are applied in the order of submission: one
waits while another is in flight.
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

from storagegate.storage.cluster.connection import (
    Connection,
    ConnectionLost,
    Rows,
    StatementRefused,
    Step,
)
from storagegate.storage.cluster.databaselocks import Locks
from storagegate.storage.cluster.primary import PersistentConnection, Primary
from storagegate.storage.cluster.statements import (
    FENCE,
    LOCK_BLOBS,
    LOCK_UPLOADS,
    STANDBY,
    WRITES,
)
from storagegate.storage.cluster.values import int8Array, textArray
from storagegate.storage.errors import (
    CommitUnknown,
    ConcurrentChange,
    NoStandby,
    StoreBusy,
    StoreError,
    StoreFull,
)
from storagegate.storage.mutations import UncancellableDeferred

CONNECTIONS = 2
"""While the server syncs one batch, the next one is prepared; more connections were not faster."""

MAX_WAITING = 2048
"""The most waiting mutations: the same as for the embedded catalog."""

BATCH = 256
"""The most mutations in a batch: larger transactions are not cheaper."""

_SHARED = 16
"""Fewer mutations are not divided among connections, because the extra syncs would cost more."""

SCANNED = 512
"""The most mutations skipped to find one that need not wait: scanning a long queue takes 2 ms."""

BATCH_BYTES = 4 * 1024 * 1024
"""The most bytes in a batch, which libpq buffers until they are sent."""

WAIT_SECONDS = 2.5
"""
The longest time in the queue: half of the time within which a client must be answered. The other
half is left for the server.
"""

_LEAST_SECONDS = 0.1
"""The shortest interval between checks of the queue."""

_FENCED = "22012"

# The root of a negative number.
_UNREPLICATED = "2201F"
_FULL = ("53100", "54000")
_DUPLICATE = "23505"

# Classes of errors that a single retry may avoid: deadlocks, locks, timeouts, memory, read-only
# servers.
_BUSY = ("40", "53", "55", "57", "25")

_TRIES = 3


@define(eq=False)
class PendingMutation:
    """
    A mutation that waits for its commit.

    @ivar bucket: The bucket whose lock it takes.
    @ivar steps: Keys and their statements, in the order of the results.
    @ivar read: Converts the results of the steps to the outcome; may raise an exception as the
        outcome.
    @ivar leases: The leases that must be alive: the lease of its request and the leases of its new
        blobs.
    @ivar isAlone: Whether it changes the bucket itself, so that no other mutation of the bucket may
        be in flight.
    @ivar uploads: The ids of changed uploads.
    @ivar blobs: The ids of blobs whose counts change.
    @ivar weight: Bytes that it carries in addition to small columns.
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
    # The next mutation of a batch that is retried one by one.
    following: "PendingMutation | None" = field(default=None, init=False)
    done: UncancellableDeferred = field(factory=UncancellableDeferred, init=False)


@define(eq=False)
class _Claims:
    """The buckets and keys in use by mutations, for which other mutations must wait."""

    shared: dict[str, int] = field(factory=dict)
    alone: set[str] = field(factory=set)
    keys: dict[tuple[str, bytes], int] = field(factory=dict)

    def has(self, mutation: PendingMutation) -> bool:
        """Return whether a mutation must wait for one of these claims."""
        bucket = mutation.bucket
        if bucket in self.alone:
            return True
        if mutation.isAlone:
            return bucket in self.shared
        keys = self.keys
        return bool(keys) and any((bucket, key) in keys for key, _ in mutation.steps)

    def add(self, mutation: PendingMutation) -> None:
        """Add the claims of a mutation. Batches in flight never share a key."""
        bucket = mutation.bucket
        if mutation.isAlone:
            self.alone.add(bucket)
            return
        self.shared[bucket] = self.shared.get(bucket, 0) + 1
        for key, _ in mutation.steps:
            self.keys[bucket, key] = self.keys.get((bucket, key), 0) + 1

    def remove(self, batch: Sequence[PendingMutation]) -> None:
        """Remove the claims of a finished batch."""
        for mutation in batch:
            bucket = mutation.bucket
            if mutation.isAlone:
                self.alone.discard(bucket)
                continue
            self.shared[bucket] -= 1
            if not self.shared[bucket]:
                del self.shared[bucket]
            for key, _ in mutation.steps:
                # Other mutations of the key may be retried one by one.
                self.keys[bucket, key] -= 1
                if not self.keys[bucket, key]:
                    del self.keys[bucket, key]


class Writer:
    """
    Queues mutations and fires their Deferreds. Methods: reactor thread.

    @ivar onUnknown: Called when the outcome of a batch is unknown: its new blobs are left to the
        sweeper, and the node needs a new lease.
    @ivar meters: Called for each batch, with its number of mutations and its duration in seconds.
    @ivar isFenced: Whether batches lock and check their leases. Only tests disable the fence, to
        show its purpose.
    @ivar needsStandby: Whether batches are refused if commits wait for no standby.
    """

    _log = Logger()

    isFenced = True
    needsStandby = False

    def __init__(self, reactor: Any, primary: Primary, locks: Locks) -> None:
        """
        @param locks: The locks that each batch takes first.
        """
        self.onUnknown: Callable[[], object] = lambda: None
        self.meters: tuple[Callable[[int], object], Callable[[float], object]] | None = None
        self._reactor = reactor
        self._queue: deque[PendingMutation] = deque()
        # Prepared batches: mutations that are retried one by one.
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
        """Start connecting. Call once."""
        for each in self._connections:
            each.open()

    def reopen(self, reason: str) -> None:
        """See L{PersistentConnection.reopen}."""
        for each in self._connections:
            each.reopen(reason)

    @property
    def waiting(self) -> int:
        """The number of mutations without an outcome."""
        return len(self._queue) + self._inFlight

    def submit(self, mutation: PendingMutation) -> Deferred[Any]:
        """Queue a mutation. The Deferred fires when the mutation is durable or has failed."""
        if self._closed is not None:
            return fail(StoreBusy("the catalog is closed"))
        if self.waiting >= MAX_WAITING:
            return fail(StoreBusy("too many mutations are waiting"))
        mutation.began = self._reactor.seconds()
        self._queue.append(mutation)
        if self._timer is None:
            self._timer = self._reactor.callLater(WAIT_SECONDS, self._expire)
        # All mutations of one reactor iteration go together.
        if self._idle and not self._isScheduled:
            self._isScheduled = True
            self._reactor.callLater(0, self._dispatch)
        return mutation.done

    def close(self) -> Deferred[None]:
        """Wait for all mutations, then close. Call once."""
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
        """Take a batch from the queue: the first mutations that need not wait for others."""
        batch: list[PendingMutation] = []
        passed: list[PendingMutation] = []
        skipped = _Claims()
        weight = 0
        queue = self._queue
        most = BATCH
        if len(queue) >= _SHARED:
            # Clients that are answered together send their next requests together. A single batch
            # of them would leave the other connection idle permanently. Divided, 64 clients write
            # 1.6 times as much.
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
        # The sort is stable, so mutations of one key keep their order.
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
        """Return the statements that take a batch's locks."""
        leases: list[int] = []
        if self.isFenced:
            leases = sorted({lease for mutation in batch for lease in mutation.leases})
        if batch[0].isAlone:
            steps = self._locks.bucketAlone(batch[0].bucket, leases)
        else:
            steps = self._locks.shared({mutation.bucket for mutation in batch}, leases)
        if leases:
            steps.append((FENCE, (int8Array(leases),)))
        if self.needsStandby:
            steps.append((STANDBY, ()))
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
            error = CommitUnknown(f"the connection to the catalog was lost in a commit: {error}")
        if isinstance(error, CommitUnknown):
            self._log.error(
                "the outcome of {count} writes is unknown: {error}", count=len(batch), error=error
            )
            self.onUnknown()
        elif isinstance(error, StatementRefused):
            if len(batch) > 1:
                # Only the mutation that caused the error fails. The retries keep their order.
                for mutation, following in pairwise(batch):
                    mutation.following = following
                self._retry(batch[:1])
                return
            (mutation,) = batch
            mutation.tries += 1
            if error.state[:2] == "40" and mutation.tries < _TRIES:
                self._retry(batch)
                return
            error = _explain(error)
        self._end(batch)
        for mutation in batch:
            mutation.done.errback(Failure(error))

    def _retry(self, batch: list[PendingMutation]) -> None:
        self._ready.append(batch)
        if self._timer is None:
            # There may be no connection.
            self._timer = self._reactor.callLater(_LEAST_SECONDS, self._expire)

    def _end(self, batch: list[PendingMutation]) -> None:
        self._claims.remove(batch)
        self._inFlight -= len(batch)
        for each in batch:
            if each.following is not None:
                self._retry([each.following])
        if self._closed is not None and not self.waiting and not self._closed.called:
            # Fires after the Deferreds of the batch.
            self._reactor.callLater(0, self._closed.callback, None)

    def _expire(self) -> None:
        """Refuse mutations that have waited too long. They were not sent."""
        self._timer = None
        oldest = self._reactor.seconds() - WAIT_SECONDS
        expired: list[PendingMutation] = []
        while self._queue and self._queue[0].began <= oldest:
            expired.append(self._queue.popleft())
        if self._queue or self._ready:
            waiting = self._queue[0] if self._queue else self._ready[0][0]
            rest = max(_LEAST_SECONDS, waiting.began - oldest)
            self._timer = self._reactor.callLater(rest, self._expire)
        elif self._closed is not None and not self.waiting and not self._closed.called:
            self._reactor.callLater(0, self._closed.callback, None)
        while self._ready and self._ready[0][0].began <= oldest:
            batch = self._ready.popleft()
            self._end(batch)
            expired += batch
        for mutation in expired:
            mutation.done.errback(StoreBusy("the catalog does not respond"))


def _explain(error: StatementRefused) -> Exception:
    """Return the store's error for an error of a server that has applied nothing."""
    made: StoreError
    if error.state == _FENCED:
        made = StoreBusy("the lease of this node has expired")
    elif error.state == _UNREPLICATED:
        made = NoStandby()
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
