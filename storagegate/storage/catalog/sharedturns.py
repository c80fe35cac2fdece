"""
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

from time import monotonic
from types import TracebackType

from storagegate.storage.catalog.faults import Latch
from storagegate.storage.catalog.hot import Found, HotRecords
from storagegate.storage.catalog.turns import Commons, Growth, Turn
from storagegate.storage.presence import Presence
from storagegate.storage.records import Bucket, ObjectRecord
from storagegate.storage.sharedmemory import (
    BEGUN,
    DONE,
    GROWN,
    HAS,
    NEXT,
    WANTS,
    WRITING,
    StoreMemory,
)


class SharedTurn(Turn):
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


class SharedHotRecords(HotRecords):
    """Records that were read lately, as long as nobody has committed since."""

    def __init__(self, memory: StoreMemory, presence: Presence) -> None:
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


class SharedLatch(Latch):
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


class SharedGrowth(Growth):
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


def share(memory: StoreMemory, presence: Presence) -> Commons:
    """Make what a catalog shares."""
    return Commons(
        SharedHotRecords(memory, presence),
        SharedLatch(memory),
        SharedTurn(memory),
        SharedGrowth(memory),
        isShared=True,
    )
