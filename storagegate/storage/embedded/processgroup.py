"""
One of several processes that serve the same data directory.

A process that dies leaves upload files and its slot in shared memory; the next process that joins
removes both. All persistent state is in the catalog: each process checks a write in the transaction
that commits it.

B{Blobs.} A blob is removed when it has no references and no readers. Each process publishes its
readers in shared memory in two ways:

  - Its I{horizon}: the time of the oldest look-up whose reader may not have taken a lease yet. It
    is published before the look-up and advances some reactor iterations later, because a lease is
    taken in the iteration of the look-up. Zero means no look-up.
  - Its counters of leased blobs. If blobs share a counter, one of them stays a little longer.

A blob that lost its last reference before every horizon can gain no new reader, and if its counters
are zero, it has no reader. Times are from C{CLOCK_MONOTONIC}, which all processes share.

B{Commits.} SQLite lets one process write at a time. A waiting writer sleeps up to a tenth of a
second between attempts, so one of two busy writers could wait for seconds. Writers therefore queue
before SQLite, with two locks: one for the current writer and one for the next. A process that has
written must take the second lock first, so writers alternate. The locks of a process are released
when it dies.

B{Caches.} A record may be cached until the next commit. Each process counts in shared memory the
commits it starts, before it starts them, and the commits it knows to have ended. If the counts
differ, a commit is in flight and cached records must not be used. If the first count has changed,
the cache is cleared.
"""

import os
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from time import monotonic, monotonic_ns
from typing import Any

import msgspec
from attrs import define, field
from msgspec.structs import replace
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.internet.task import deferLater
from twisted.logger import Logger

from storagegate.storage.blobinterfaces import IBlobStore
from storagegate.storage.embedded import refcounts
from storagegate.storage.embedded.catalog import CachedObject, RecordCache, SharedCatalogState
from storagegate.storage.embedded.connections import Durability, buryUnseenCommits, opened
from storagegate.storage.embedded.groupcommit import WriteLock
from storagegate.storage.embedded.recovery import sweepLeft
from storagegate.storage.embedded.sharedmemory import (
    ACQUIRED,
    CHECKPOINT_LOCK,
    COUNTERS,
    ENDED,
    HORIZON,
    NEXT_LOCK,
    OBSERVERS,
    STARTED,
    TAKEN,
    WAITING,
    WRITE_LOCK,
    WRITTEN,
    ProcessGroupConfig,
    StoreMemory,
)
from storagegate.storage.embedded.wal import CheckpointLock, WALSizeCounter
from storagegate.storage.errors import StoreError, StoreFull, StoreReadOnly
from storagegate.storage.files import DirectoryLock, FailStopLatch, Files
from storagegate.storage.layout import BlobLayout, SyncGroup
from storagegate.storage.records import Attributes, Bucket, Content, ObjectChange, ObjectRecord

_log = Logger()

_ADVANCE_SECONDS = 0.05
"""Interval between advances of the horizon: twenty timers a second while there are readers."""

_CHECK_SECONDS = 0.02
"""
Delay before the first check of the horizons: longer than any processor delays the visibility of a
word. A large deletion incurs it once for each thousand blobs.
"""

_STALE_NS = 5_000_000_000
"""A horizon that has not advanced for this long belongs to a very busy or dead process."""

_RETRY_SECONDS = 1.0
"""Interval between checks of blobs that other processes read."""

_CLOSE_SECONDS = 1.0
"""How long a closing store waits for other horizons, which advance twenty times meanwhile."""

_MAX_LEASED = 100_000
"""The most ids kept of blobs that other processes read (10 MB)."""


def _counter(blob: str) -> int:
    """Return the counter of a blob. All blobs of a directory share the first four digits."""
    return int(blob[4:8], 16) % COUNTERS


@define(eq=False)
class ReaderEpoch:
    """
    The horizon and the leases of this process, published to the others. Methods: reactor thread.
    """

    _memory: StoreMemory
    _clock: IReactorTime
    _nowNs: Callable[[], int] = monotonic_ns
    _wasRead: bool = field(default=False, init=False)
    _advancing: IDelayedCall | None = field(default=None, init=False)
    _isClosed: bool = field(default=False, init=False)

    def startRead(self) -> None:
        """Publish a horizon before a look-up."""
        self._wasRead = True
        if self._advancing is None:
            self._publish()

    def hold(self, blob: str) -> None:
        """Count a lease, in the reactor iteration of its look-up."""
        if not self._isClosed:
            self._memory.count(_counter(blob), 1)

    def release(self, blob: str) -> None:
        """Count the end of a lease."""
        if not self._isClosed:
            self._memory.count(_counter(blob), -1)

    def close(self) -> None:
        """Stop publishing. Leases may still end."""
        self._isClosed = True
        if self._advancing is not None:
            self._advancing.cancel()
            self._advancing = None

    def _publish(self) -> None:
        self._memory.put(HORIZON, self._nowNs())
        self._advancing = self._clock.callLater(_ADVANCE_SECONDS, self._advance)

    def _advance(self) -> None:
        """Advance the horizon, in a reactor iteration without a look-up."""
        self._advancing = None
        if self._wasRead:
            self._wasRead = False
            self._publish()
        else:
            self._memory.put(HORIZON, 0)


@define(eq=False)
class PeerReaders:
    """
    The readers of all processes of the store, for a L{GarbageCollector}. Reactor thread.

    @ivar _nowNs: The clock that all processes share.
    @ivar epoch: The readers of this process.
    @ivar isClean: Whether all blobs were removed at L{close}.
    """

    epoch: ReaderEpoch
    _memory: StoreMemory
    _clock: IReactorTime
    _nowNs: Callable[[], int] = monotonic_ns
    isClean: bool = field(default=True, init=False)
    _leased: list[str] = field(factory=list, init=False)
    _pausing: Deferred[None] | None = field(default=None, init=False)
    _retrying: IDelayedCall | None = field(default=None, init=False)
    _closing: IDelayedCall | None = field(default=None, init=False)
    _isClosed: bool = field(default=False, init=False)

    async def withoutReaders(
        self, blobs: Sequence[str], reclaim: Callable[[Iterable[str]], None]
    ) -> Sequence[str]:
        """
        Return the blobs that no other process reads. One call at a time.

        @param blobs: Blobs without references.
        @param reclaim: Called later with the remaining blobs.
        @raise CancelledError: L{close} was called before or during this call.
        """
        try:
            if self._isClosed:
                raise CancelledError
            unreferenced = self._nowNs()
            await self._pause()
            while not self._isPast(unreferenced):
                await self._pause()
        except CancelledError:
            self.isClean = False
            raise
        others = [slot for slot, _ in self._horizons()]
        read = {
            blob
            for blob in blobs
            if any(self._memory.isCounted(slot, _counter(blob)) for slot in others)
        }
        # Blobs beyond the limit keep only their rows, until a process resumes collection.
        most = _MAX_LEASED - len(self._leased)
        self._leased += [blob for blob in blobs if blob in read][:most]
        if self._leased and self._retrying is None:
            self._retrying = self._clock.callLater(_RETRY_SECONDS, self._retry, reclaim)
        return [blob for blob in blobs if blob not in read]

    def scheduleClose(self) -> None:
        """Close after a delay, unless L{close} is called first."""
        self._closing = self._clock.callLater(_CLOSE_SECONDS, self.close)

    def close(self) -> None:
        """Stop waiting for other processes. Idempotent."""
        if self._closing is not None and self._closing.active():
            self._closing.cancel()
        if self._isClosed:
            return
        self._isClosed = True
        self.isClean = not self._leased
        if self._pausing is not None:
            self._pausing.cancel()
        if self._retrying is not None:
            self._retrying.cancel()
            self._retrying = None

    def _retry(self, reclaim: Callable[[Iterable[str]], None]) -> None:
        self._retrying = None
        read, self._leased = self._leased, []
        reclaim(read)

    async def _pause(self) -> None:
        self._pausing = deferLater(self._clock, _CHECK_SECONDS)
        try:
            await self._pausing
        finally:
            self._pausing = None

    def _isPast(self, time: int) -> bool:
        """Return whether all look-ups before a time have ended or their processes have died."""
        for slot, horizon in self._horizons():
            if horizon and horizon <= time:
                isStale = self._nowNs() - horizon > _STALE_NS
                if not isStale or self._memory.isAlive(slot):
                    return False
        return True

    def _horizons(self) -> Iterable[tuple[int, int]]:
        """Yield the slot and horizon of each other process."""
        taken = self._memory.values(TAKEN)
        for slot, horizon in enumerate(self._memory.values(HORIZON)):
            if taken[slot] and slot != self._memory.slot:
                yield slot, horizon


Observer = Callable[[ObjectChange], None]


class Observers(list[Observer]):
    """The observers of this process, whose count is in shared memory. Reactor thread."""

    def __init__(self, memory: StoreMemory) -> None:
        super().__init__()
        self._memory = memory

    def append(self, observer: Observer) -> None:
        """Add an observer."""
        super().append(observer)
        self._memory.put(OBSERVERS, len(self))

    def remove(self, observer: Observer) -> None:
        """Remove an observer."""
        super().remove(observer)
        self._memory.put(OBSERVERS, len(self))


@define(eq=False)
class SharedWriteLock(WriteLock):
    """The write lock, which processes acquire in turn."""

    _memory: StoreMemory
    _since: float | None = field(default=None, init=False)

    def __enter__(self) -> None:
        """Acquire the lock, after the processes that already wait."""
        memory = self._memory
        othersWait = memory.field(WAITING) != memory.field(ACQUIRED)
        memory.add(WAITING)
        self._since = monotonic()
        # Each system call may hand the GIL to the reactor thread; this saves one.
        if othersWait or not memory.locks.tryLock(WRITE_LOCK):
            memory.locks.lock(NEXT_LOCK)
            memory.locks.lock(WRITE_LOCK)
            memory.locks.unlock(NEXT_LOCK)
        self._since = None
        memory.add(ACQUIRED)

    def __exit__(self, *error: object) -> None:
        """Release the lock."""
        self._memory.locks.unlock(WRITE_LOCK)

    def commitStarted(self) -> None:
        """Invalidate the caches of all processes."""
        self._memory.add(STARTED)

    def commitEnded(self) -> None:
        """Allow caching of records that are read from now on."""
        self._memory.add(ENDED)

    @property
    def waitedSeconds(self) -> float:
        """How long the writer has been waiting for the lock."""
        since = self._since
        return 0.0 if since is None else monotonic() - since


class SharedRecordCache(RecordCache):
    """Records read since the last commit of any process."""

    def __init__(self, memory: StoreMemory, epoch: ReaderEpoch) -> None:
        super().__init__()
        self._memory = memory
        self._epoch = epoch
        self._started = b""
        self._isQuiet = False
        own = 8 * memory.slot
        self._before, self._after = slice(0, own), slice(own + 8, None)

    def startRead(self) -> None:
        """Publish to the other processes that a read may begin."""
        self._epoch.startRead()

    def find(self, bucket: str, key: bytes, versionId: str | None = None) -> CachedObject | None:
        """Return a cached object and its bucket, unless a commit has invalidated them."""
        self._epoch.startRead()
        return super().find(bucket, key, versionId) if self._isFresh() else None

    def findBucket(self, name: str) -> Bucket | None:
        """Return a cached bucket, unless a commit has invalidated it."""
        return super().findBucket(name) if self._isFresh() else None

    def add(self, bucket: Bucket, record: ObjectRecord, versionId: str | None = None) -> None:
        """Cache a record read since the last L{find}, unless a commit has happened in between."""
        if self._isSame():
            super().add(bucket, record, versionId)

    def addBucket(self, bucket: Bucket) -> None:
        """Cache a bucket read since the last L{findBucket}, under the same condition."""
        if self._isSame():
            super().addBucket(bucket)

    def _isSame(self) -> bool:
        return self._isQuiet and self._memory.field(STARTED) == self._started

    def _isFresh(self) -> bool:
        """Return whether the cache may be used; clear it if another process has committed."""
        started = self._memory.field(STARTED)
        if started == self._started and self._isQuiet:
            return True
        before, after = self._before, self._after
        if started[before] != self._started[before] or started[after] != self._started[after]:
            self.clear()
        self._started = started
        self._isQuiet = started == self._memory.field(ENDED)
        return self._isQuiet


class SharedCheckpointLock(CheckpointLock):
    """Lets one thread across all processes run a checkpoint at a time."""

    def __init__(self, memory: StoreMemory) -> None:
        super().__init__()
        self._memory = memory

    def tryAcquire(self) -> bool:
        """Acquire the lock unless another thread or process holds it."""
        if not super().tryAcquire():
            return False
        if self._memory.locks.tryLock(CHECKPOINT_LOCK):
            return True
        super().release()
        return False

    def release(self) -> None:
        """Release the lock."""
        self._memory.locks.unlock(CHECKPOINT_LOCK)
        super().release()


class SharedLatch(FailStopLatch):
    """A fail-stop latch that all processes share."""

    def __init__(self, memory: StoreMemory, directory: str | None = None) -> None:
        """
        @param directory: See L{FailStopLatch}.
        """
        self._memory = memory
        super().__init__(directory)

    @property
    def failure(self) -> str | None:
        """Why nothing may be written; L{None} while writing is safe."""
        return self._memory.failure

    @failure.setter
    def failure(self, reason: str | None) -> None:
        if reason is not None:
            self._memory.fail(reason)


@define(eq=False)
class SharedWALSizeCounter(WALSizeCounter):
    """The number of bytes that all processes have written to the WAL."""

    _memory: StoreMemory

    @property
    def total(self) -> int:  # type: ignore[override]
        """Bytes written since the memory was created."""
        return sum(self._memory.values(WRITTEN))

    def add(self, size: int) -> None:
        """Count bytes that were written."""
        self._memory.add(WRITTEN, size)


_CHANGES = "store.changes"
_REMOVED = "store.gone"
_CORRUPT = "store.damaged"
_CLEARED = "store.cleared"

_MAX_CHANGES = 100
"""Changes per message: two megabytes if all have keys and content types of maximum length."""


class ProcessGroup:
    """
    This process's membership in the process group of the store. Reactor thread.

    @param sharing: The message bus and shared memory of the processes.
    @param reactor: Provides C{IReactorTime}.
    @param directory: The data directory.
    @ivar latch: The fail-stop latch for the blobs.
    @ivar catalogState: The shared state for the catalog.
    @ivar peers: The readers of all processes, for the garbage collector.
    @ivar observers: The observers of the store.
    @ivar owner: The suffix of the blob ids of this process.
    @ivar isFirst: Whether this process runs the scrubber.
    @ivar resumesCollection: Whether this process collects the garbage of earlier processes.
    @ivar isClean: Whether this process leaves no garbage to a successor.
    """

    def __init__(self, sharing: ProcessGroupConfig, reactor: Any, directory: str) -> None:
        """
        Join the group; call L{recover} next. Blocks.

        @raise StoreError: No parent has locked the data directory, or the memory cannot be used.
        """
        if not DirectoryLock.isTaken(directory):
            raise StoreError(f"{directory} is not locked for its workers")
        memory = StoreMemory(sharing.memory)
        try:
            self._left = memory.claim()
        except BaseException:
            memory.close(isClean=True)
            raise
        self._memory = memory
        self._sharing = sharing
        self._epoch = ReaderEpoch(memory, reactor)
        self.isFirst = sharing.index == 0
        self.resumesCollection = self.isFirst or bool(self._left)
        self.owner = bytes((memory.slot,))
        self.latch = SharedLatch(memory, directory)
        self.catalogState = SharedCatalogState(
            SharedRecordCache(memory, self._epoch),
            self.latch,
            SharedWriteLock(memory),
            SharedWALSizeCounter(memory),
            SharedCheckpointLock(memory),
            isShared=True,
        )
        self.peers = PeerReaders(self._epoch, memory, reactor)
        self.observers = Observers(memory)
        self._clock: IReactorTime = reactor
        self._changes: list[Any] = []
        self._sending: IDelayedCall | None = None
        self.isClean = False

    def recover(self, directory: str, files: Files, durability: str) -> None:
        """
        Remove files and slots of dead processes. Blocks; call before any other write.

        @param directory: The data directory.
        @param durability: C{"full"}, or C{"os"} for no fsyncs.
        @param files: The operating system's calls.
        @raise CatalogUnusable: The catalog cannot be opened.
        """
        if not self._left or self.latch.failure is not None:
            # Nothing is removed while writing is stopped. The next start sweeps everything.
            return
        kind = Durability(durability)
        syncs = SyncGroup(files, self.latch, kind is Durability.FULL)
        path = os.path.join(directory, "catalog.sqlite")
        try:
            with SharedWriteLock(self._memory), opened(path, kind) as catalog:
                sweepLeft(
                    BlobLayout(directory),
                    files,
                    syncs,
                    [bytes((slot,)) for slot in self._left],
                    partial(refcounts.knownBlobs, catalog),
                    partial(refcounts.knownBlobs, catalog, onlyReferenced=True),
                    partial(buryUnseenCommits, catalog, self.latch),
                )
        except (StoreReadOnly, StoreFull) as error:
            # The files and the slots stay for the next start.
            _log.error("cannot remove the leftovers of a process: {error}", error=str(error))
            return
        for slot in self._left:
            self._memory.clear(slot)
        self._left = []

    def subscribe(self, blobs: IBlobStore, notify: Callable[[ObjectChange], None]) -> None:
        """
        Subscribe to the messages of the other processes. Call once.

        @param blobs: The blob store, which closes removed blobs and refuses corrupt ones.
        @param notify: Called with each change of another process.
        """

        def receive(payload: Any) -> None:
            for change in msgspec.convert(payload, list[ObjectChange]):
                notify(change)

        self._sharing.subscribe(_REMOVED, blobs.forget)
        self._sharing.subscribe(_CORRUPT, blobs.markCorrupt)
        self._sharing.subscribe(_CLEARED, blobs.clearCorrupt)
        self._sharing.subscribe(_CHANGES, receive)

    def broadcastChange(self, change: ObjectChange) -> None:
        """
        Notify the observers of other processes, if any, in the order of the changes.

        @param change: Sent without bytes and, except for the content type, without attributes:
            those of an object in 10,000 parts take a megabyte. Batched with the other changes of
            this reactor iteration.
        """
        observers = self._memory.values(OBSERVERS)
        if sum(observers) == observers[self._memory.slot]:
            return
        if change.record is not None:
            record = change.record
            attributes = Attributes(contentType=record.attributes.contentType)
            record = replace(record, content=Content(record.size), attributes=attributes)
            change = replace(change, record=record)
        self._changes.append(msgspec.to_builtins(change))
        if self._sending is None:
            self._sending = self._clock.callLater(0, self._sendChanges)

    def broadcastRemoved(self, blobs: Sequence[str]) -> None:
        """Notify the other processes of removed blobs."""
        self._sharing.broadcast(_REMOVED, list(blobs))

    def broadcastCorrupt(self, blobs: Sequence[str]) -> None:
        """Notify the other processes of corrupt blobs."""
        self._sharing.broadcast(_CORRUPT, list(blobs))

    def broadcastCleared(self, blobs: Sequence[str]) -> None:
        """Notify the other processes of blobs that are intact again."""
        self._sharing.broadcast(_CLEARED, list(blobs))

    def leave(self) -> None:
        """Send waiting changes and free the slot. Call once."""
        if self._sending is not None:
            self._sending.cancel()
            self._sendChanges()
        self._epoch.close()
        self._memory.close(self.isClean)

    def _sendChanges(self) -> None:
        self._sending = None
        changes, self._changes = self._changes, []
        for start in range(0, len(changes), _MAX_CHANGES):
            self._sharing.broadcast(_CHANGES, changes[start : start + _MAX_CHANGES])
