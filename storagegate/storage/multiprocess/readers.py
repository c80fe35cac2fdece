"""
The readers of other processes, and the blobs that they may still need.

Blobs are removed when nothing names them any more and nobody reads them. The readers of this
process are known; those of another are known by two things in shared memory:

  - Its I{horizon}: the time of the oldest look-up whose reader may not have said yet what it holds.
    It is published before the look-up, and moves on a few turns of the reactor later, for a reader
    says what it holds in the turn in which it looked that up. Zero: nobody has looked anything up.
  - Its counters of held blobs. Blobs may share a counter: then one of them stays a little longer.

So a blob that lost its last reference before every horizon can have no new reader, and if no
counter speaks of it, it has none at all. The clock is the system's C{CLOCK_MONOTONIC}, which is one
for all processes.
"""

from collections.abc import Callable, Iterable, Sequence
from time import monotonic_ns

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.internet.task import deferLater

from storagegate.storage.multiprocess.memory import COUNTERS, HORIZON, TAKEN, StoreMemory

_MOVE_SECONDS = 0.05
"""Between two moves of the horizon: twenty small timers a second while there are readers."""

_LOOK_SECONDS = 0.02
"""
Before the first look at the horizons: longer than any processor keeps a word to itself. Whoever
deletes much waits as long once for each thousand blobs.
"""

_STALE_NS = 5_000_000_000
"""A horizon that has not moved for so long is that of a very busy process, or of a dead one."""

_AGAIN_SECONDS = 1.0
"""Between two questions whether another process still reads what it read."""

_GRACE_SECONDS = 1.0
"""A store that closes waits so long for other processes to go on, which they do twenty times."""

_REMEMBERED = 100_000
"""Ids of blobs that others read (10 MB of them)."""


def _counter(blob: str) -> int:
    """Find the counter of a blob; its first four digits are those of its neighbours, too."""
    return int(blob[4:8], 16) % COUNTERS


class ReaderEpoch:
    """What this process tells of its readers. Methods: reactor thread."""

    def __init__(
        self, memory: StoreMemory, clock: IReactorTime, nowNs: Callable[[], int] = monotonic_ns
    ) -> None:
        self._memory = memory
        self._clock = clock
        self._nowNs = nowNs
        self._noted = False
        self._moving: IDelayedCall | None = None
        self._isClosed = False

    def note(self) -> None:
        """Say that a look-up is about to be made."""
        self._noted = True
        if self._moving is None:
            self._publish()

    def hold(self, blob: str) -> None:
        """Say that a blob is needed, in the turn of its look-up."""
        if not self._isClosed:
            self._memory.count(_counter(blob), 1)

    def release(self, blob: str) -> None:
        """Say that a blob is not needed any more."""
        if not self._isClosed:
            self._memory.count(_counter(blob), -1)

    def close(self) -> None:
        """Say no more; readers may still end."""
        self._isClosed = True
        if self._moving is not None:
            self._moving.cancel()
            self._moving = None

    def _publish(self) -> None:
        self._memory.put(HORIZON, self._nowNs())
        self._moving = self._clock.callLater(_MOVE_SECONDS, self._move)

    def _move(self) -> None:
        """Move the horizon: this is a turn of its own, in which nobody is looking anything up."""
        self._moving = None
        if self._noted:
            self._noted = False
            self._publish()
        else:
            self._memory.put(HORIZON, 0)


class PeerEpochs:
    """The readers of the other processes. Methods: reactor thread."""

    def __init__(
        self, memory: StoreMemory, clock: IReactorTime, nowNs: Callable[[], int] = monotonic_ns
    ) -> None:
        self._memory = memory
        self._clock = clock
        self._nowNs = nowNs
        self._waiting: Deferred[None] | None = None

    async def sort(self, blobs: Sequence[str]) -> tuple[list[str], list[str]]:
        """
        Tell blobs that nobody needs from those that somebody reads. One call at a time.

        @param blobs: Nothing names them any more.
        @return: The first and the second.
        @raise CancelledError: L{close} was called meanwhile.
        """
        lost = self._nowNs()
        await self._pause()
        while not self._isPast(lost):
            await self._pause()
        free: list[str] = []
        held: list[str] = []
        others = [slot for slot, _ in self._horizons()]
        for blob in blobs:
            counter = _counter(blob)
            isHeld = any(self._memory.isCounted(slot, counter) for slot in others)
            (held if isHeld else free).append(blob)
        return free, held

    def close(self) -> None:
        """Break a L{sort} off."""
        if self._waiting is not None:
            self._waiting.cancel()

    async def _pause(self) -> None:
        self._waiting = deferLater(self._clock, _LOOK_SECONDS)
        try:
            await self._waiting
        finally:
            self._waiting = None

    def _isPast(self, lost: int) -> bool:
        """Say whether every look-up of before some time has ended, or its process has."""
        for slot, horizon in self._horizons():
            if horizon and horizon <= lost:
                isStale = self._nowNs() - horizon > _STALE_NS
                if not isStale or self._memory.isAlive(slot):
                    return False
        return True

    def _horizons(self) -> Iterable[tuple[int, int]]:
        taken = self._memory.values(TAKEN)
        for slot, horizon in enumerate(self._memory.values(HORIZON)):
            if taken[slot] and slot != self._memory.slot:
                yield slot, horizon


class PeerReaders:
    """
    The other processes of the store, for a L{GarbageCollector}. Reactor thread.

    @ivar presence: What they are told of the readers of this process.
    @ivar isClean: Whether L{close} has left nothing undone.
    """

    def __init__(self, presence: ReaderEpoch, readers: PeerEpochs, clock: IReactorTime) -> None:
        self.presence = presence
        self.isClean = True
        self._readers = readers
        self._clock = clock
        self._read: list[str] = []
        self._again: IDelayedCall | None = None
        self._closing: IDelayedCall | None = None
        self._isClosed = False

    async def spare(
        self, blobs: Sequence[str], reclaim: Callable[[Iterable[str]], None]
    ) -> Sequence[str]:
        """
        Give those of the blobs that no other process reads.

        @param reclaim: Is given the rest some time later.
        @raise CancelledError: L{close} was called.
        """
        try:
            if self._isClosed:
                raise CancelledError
            free, read = await self._readers.sort(blobs)
        except CancelledError:
            self.isClean = False
            raise
        # Beyond so many the rows alone remember them, until somebody catches up.
        self._read += read[: _REMEMBERED - len(self._read)]
        if self._read and self._again is None:
            self._again = self._clock.callLater(_AGAIN_SECONDS, self._retry, reclaim)
        return free

    def closeSoon(self) -> None:
        """Close if L{close} does not come before."""
        self._closing = self._clock.callLater(_GRACE_SECONDS, self._closeLate)

    def _closeLate(self) -> None:
        self._closing = None
        self.close()

    def close(self) -> None:
        """Wait for them no more. A second time does nothing."""
        if self._closing is not None:
            self._closing.cancel()
            self._closing = None
        if self._isClosed:
            return
        self._isClosed = True
        self.isClean = not self._read
        self._readers.close()
        if self._again is not None:
            self._again.cancel()
            self._again = None

    def _retry(self, reclaim: Callable[[Iterable[str]], None]) -> None:
        self._again = None
        read, self._read = self._read, []
        reclaim(read)
