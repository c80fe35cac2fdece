"""
What a store has where several processes serve one data directory.

One of them that dies leaves files of uploads and, in shared memory, its slot. Whoever comes next
clears both up. Everything that lasts is the catalog's: a write is judged in the transaction that
makes it, whichever process began it.

What observers of the store are told of the commits of other processes.

The catalog of one of several processes that write to one file.

SQLite lets one process write at a time, and whoever comes in between tries again after naps of up
to a tenth of a second: one of two busy writers could wait for seconds. So they queue before they
come to SQLite. There are two locks, for the one who writes and for the one who is next, and whoever
has written must be next again first: so they write in turn. A process that dies holds no lock.

A record that was read may be kept for as long as nobody commits. So each process counts, in shared
memory, the batches that it begins to commit, before it does, and those of which it knows the end.
Where the two differ a commit is under way and nothing that is kept may be used; where the first has
changed, what was kept is forgotten.
"""

import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing
from time import monotonic
from types import TracebackType
from typing import Any

import msgspec
from attrs import evolve
from twisted.internet.interfaces import IDelayedCall, IReactorTime

from storagegate.storage.blobs.fsync import SyncGroup, WriteFence
from storagegate.storage.blobs.layout import BlobLayout
from storagegate.storage.catalog import refcounts
from storagegate.storage.catalog.cache import Found, RecordCache
from storagegate.storage.catalog.connections import Durability as CatalogDurability
from storagegate.storage.catalog.connections import Purpose, connect
from storagegate.storage.catalog.coordination import SharedCatalogState, WALSizeCounter, WriteLock
from storagegate.storage.errors import StoreError
from storagegate.storage.files import DirectoryLock, Files
from storagegate.storage.interfaces import IBlobStore
from storagegate.storage.multiprocess.memory import (
    BEGUN,
    DONE,
    GROWN,
    HAS,
    NEXT,
    WANTS,
    WATCHES,
    WRITING,
    ProcessGroupConfig,
    StoreMemory,
)
from storagegate.storage.multiprocess.readers import PeerEpochs, PeerReaders, ReaderEpoch
from storagegate.storage.records import Bucket, Content, ObjectChange, ObjectRecord
from storagegate.storage.recovery import sweepLeft
from storagegate.storage.sqlite import CatalogUnusable, FailStopLatch

_TOPIC = "store.changes"

_AT_ONCE = 100
"""Changes in one message: half a megabyte where all the metadata of all is as long as it may be."""

Observer = Callable[[ObjectChange], None]


class Observers(list[Observer]):
    """The observers of one process, whose number the others know. Reactor thread."""

    def __init__(self, memory: StoreMemory) -> None:
        super().__init__()
        self._memory = memory

    def append(self, observer: Observer) -> None:
        """Tell one more."""
        super().append(observer)
        self._memory.put(WATCHES, len(self))

    def remove(self, observer: Observer) -> None:
        """Tell one no more."""
        super().remove(observer)
        self._memory.put(WATCHES, len(self))


class ChangeRelay:
    """
    Takes changes to other processes, in order, and theirs to ours. Reactor thread.

    @param tell: Tells the observers of this process.
    """

    def __init__(
        self,
        sharing: ProcessGroupConfig,
        memory: StoreMemory,
        clock: IReactorTime,
        tell: Callable[[ObjectChange], None],
    ) -> None:
        self._broadcast = sharing.broadcast
        self._memory = memory
        self._clock = clock
        self._tell = tell
        self._gathered: list[Any] = []
        self._sending: IDelayedCall | None = None
        sharing.subscribe(_TOPIC, self._receive)

    @property
    def isWanted(self) -> bool:
        """Whether anybody in another process wants to know of changes."""
        return sum(self._memory.values(WATCHES)) > self._memory.word(WATCHES, self._memory.slot)

    def send(self, change: ObjectChange) -> None:
        """Tell the others of a change, with those of the same turn. They get no bytes of it."""
        if change.record is not None:
            record = evolve(change.record, content=Content(change.record.size))
            change = evolve(change, record=record)
        self._gathered.append(msgspec.to_builtins(change))
        if self._sending is None:
            self._sending = self._clock.callLater(0, self._flush)

    def close(self) -> None:
        """Send what waits."""
        if self._sending is not None:
            self._sending.cancel()
            self._flush()

    def _flush(self) -> None:
        self._sending = None
        gathered, self._gathered = self._gathered, []
        for start in range(0, len(gathered), _AT_ONCE):
            self._broadcast(_TOPIC, gathered[start : start + _AT_ONCE])

    def _receive(self, payload: Any) -> None:
        for change in msgspec.convert(payload, list[ObjectChange]):
            self._tell(change)


class SharedWriteLock(WriteLock):
    """The right to write, which goes round among processes."""

    def __init__(self, memory: StoreMemory) -> None:
        self._memory = memory
        self._since: float | None = None

    def __enter__(self) -> None:
        """Wait for the turn: as long as those before take to commit."""
        memory = self._memory
        othersWait = memory.field(WANTS) != memory.field(HAS)
        memory.add(WANTS)
        self._since = monotonic()
        # Each call of the system lets the reactor thread have the interpreter: one is saved.
        if othersWait or not memory.locks.tryLock(WRITING):
            memory.locks.lock(NEXT)
            memory.locks.lock(WRITING)
            memory.locks.unlock(NEXT)
        self._since = None
        memory.add(HAS)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Let the next one write."""
        self._memory.locks.unlock(WRITING)

    def began(self) -> None:
        """Have the others look again at what they have read."""
        self._memory.add(BEGUN)

    def delivered(self) -> None:
        """Let what is read from now on be kept."""
        self._memory.add(DONE)

    @property
    def waitedSeconds(self) -> float:
        """How long it has been waited for now."""
        since = self._since
        return 0.0 if since is None else monotonic() - since


class SharedHotRecords(RecordCache):
    """Records that were read lately, as long as nobody has committed since."""

    def __init__(self, memory: StoreMemory, presence: ReaderEpoch) -> None:
        super().__init__()
        self._memory = memory
        self._presence = presence
        self._begun = b""
        self._isQuiet = False
        own = 8 * memory.slot
        self._before, self._behind = slice(0, own), slice(own + 8, None)

    def lookUp(self) -> None:
        """Tell the other processes that blobs may be read from now on."""
        self._presence.note()

    def find(self, bucket: str, key: bytes) -> Found | None:
        """Give a record that was kept, if it is still what is there."""
        self._presence.note()
        return super().find(bucket, key) if self._isFresh() else None

    def findBucket(self, name: str) -> Bucket | None:
        """Give a bucket that was kept, if it is still what is there."""
        return super().findBucket(name) if self._isFresh() else None

    def keep(self, home: Bucket, record: ObjectRecord) -> None:
        """Keep what was read since the last L{find}, if nobody has committed meanwhile."""
        if self._isSame():
            super().keep(home, record)

    def keepBucket(self, bucket: Bucket) -> None:
        """Keep a bucket that was read since the last L{findBucket}."""
        if self._isSame():
            super().keepBucket(bucket)

    def _isSame(self) -> bool:
        return self._isQuiet and self._memory.field(BEGUN) == self._begun

    def _isFresh(self) -> bool:
        """Say whether what is kept may be used; forget it where another process has committed."""
        begun = self._memory.field(BEGUN)
        if begun == self._begun and self._isQuiet:
            return True
        before, behind = self._before, self._behind
        if begun[before] != self._begun[before] or begun[behind] != self._begun[behind]:
            self.clear()
        self._begun = begun
        self._isQuiet = begun == self._memory.field(DONE)
        return self._isQuiet


class SharedLatch(FailStopLatch):
    """Remembers that writing has become unsafe, for all processes."""

    def __init__(self, memory: StoreMemory) -> None:
        self._memory = memory
        super().__init__()

    @property
    def failure(self) -> str | None:
        """Why, or L{None}."""
        return self._memory.failure

    @failure.setter
    def failure(self, reason: str | None) -> None:
        if reason is not None:
            self._memory.fail(reason)


class SharedGrowth(WALSizeCounter):
    """How much all processes have written to the WAL."""

    def __init__(self, memory: StoreMemory) -> None:
        self._memory = memory

    @property
    def total(self) -> int:  # type: ignore[override]
        """Bytes, since the memory was made."""
        return sum(self._memory.values(GROWN))

    def add(self, size: int) -> None:
        """Count more."""
        self._memory.add(GROWN, size)


def share(memory: StoreMemory, presence: ReaderEpoch) -> SharedCatalogState:
    """Make what a catalog shares."""
    return SharedCatalogState(
        SharedHotRecords(memory, presence),
        SharedLatch(memory),
        SharedWriteLock(memory),
        SharedGrowth(memory),
        isShared=True,
    )


_GONE = "store.gone"
_DAMAGED = "store.damaged"


class SharedBlobLatch(WriteFence):
    """Falls for all processes, when it does for one. Any thread."""

    def __init__(self, memory: StoreMemory) -> None:
        self._memory = memory
        super().__init__()

    @property
    def reason(self) -> str | None:
        """Why nothing may be written, or L{None}."""
        return self._memory.failure

    @reason.setter
    def reason(self, reason: str | None) -> None:
        if reason is not None:
            self._memory.fail(reason)


class ProcessGroup:
    """
    This process among those that have the store open. Reactor thread.

    @ivar latch: For the blobs.
    @ivar commons: For the catalog.
    @ivar neighbours: For whoever reclaims blobs.
    @ivar observers: Those of the store.
    @ivar owner: What the ids of our blobs end with.
    @ivar isFirst: Whether this is the process that scrubs.
    @ivar catchesUp: Whether garbage of others is to be looked for.
    """

    def __init__(self, sharing: ProcessGroupConfig, reactor: object, directory: str) -> None:
        """
        Join the others; L{takeOver} comes next. Blocks.

        @raise StoreError: The data directory is not held for us, or the memory cannot be used.
        """
        if not DirectoryLock.isTaken(directory):
            raise StoreError(f"nobody holds {directory} for its workers")
        clock: Any = reactor
        memory = StoreMemory(sharing.memory)
        try:
            self._left = memory.claim()
        except BaseException:
            memory.close(isClean=True)
            raise
        self._memory = memory
        self._sharing = sharing
        self._presence = ReaderEpoch(memory, clock)
        self.isFirst = sharing.index == 0
        self.catchesUp = self.isFirst or bool(self._left)
        self.owner = bytes((memory.slot,))
        self.latch = SharedBlobLatch(memory)
        self.commons = share(memory, self._presence)
        self.neighbours = PeerReaders(self._presence, PeerEpochs(memory, clock), clock)
        self.observers = Observers(memory)
        self._clock = clock
        self._relay: ChangeRelay | None = None
        self.isClean = False

    def takeOver(
        self, path: str, layout: BlobLayout, files: Files, durability: SyncGroup, full: bool
    ) -> None:
        """
        Clear up after those that died. Blocks; before anything else is written.

        @param path: The catalog.
        """
        if not self._left:
            return
        kind = CatalogDurability.FULL if full else CatalogDurability.OS
        try:
            with (
                SharedWriteLock(self._memory),
                closing(connect(path, kind, Purpose.WRITER)) as catalog,
            ):
                # One who died in a commit may have left all of it in the WAL, but not in the index:
                # nobody sees it, yet after a loss of power it would be there, without the blobs
                # that are removed below. Whatever is committed next takes its place.
                catalog.execute("UPDATE meta SET value = value WHERE name = 'sequence'")
                sweepLeft(
                    layout,
                    files,
                    durability,
                    [bytes((slot,)) for slot in self._left],
                    lambda ids: refcounts.knownBlobs(catalog, ids),
                    lambda ids: refcounts.referencedBlobs(catalog, ids),
                )
        except sqlite3.DatabaseError as error:
            raise CatalogUnusable(f"{path} cannot be opened: {error}") from error
        for slot in self._left:
            self._memory.clear(slot)
        self._left = []

    def begin(self, blobs: IBlobStore, tell: Callable[[ObjectChange], None]) -> None:
        """Listen to the others."""
        self._sharing.subscribe(_GONE, blobs.forget)
        self._sharing.subscribe(_DAMAGED, blobs.markDamaged)
        self._relay = ChangeRelay(self._sharing, self._memory, self._clock, tell)

    @property
    def relay(self) -> ChangeRelay:
        """What takes changes to the others, after L{begin}."""
        assert self._relay is not None
        return self._relay

    def tellGone(self, blobs: Sequence[str]) -> None:
        """Have the others close what they have open of blobs that were removed."""
        self._sharing.broadcast(_GONE, list(blobs))

    def tellDamaged(self, blobs: Sequence[str]) -> None:
        """Have the others open these blobs no more."""
        self._sharing.broadcast(_DAMAGED, list(blobs))

    def leave(self) -> None:
        """Send what waits, and let the slot go. Once."""
        if self._relay is not None:
            self._relay.close()
        self._presence.close()
        self._memory.close(self.isClean)
