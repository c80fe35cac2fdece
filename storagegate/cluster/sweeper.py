"""
Removes the blobs that nodes leave behind when their leases end: uncommitted uploads.

The row of a lease has the range of numbers that may have been used and are not settled. No
transaction can commit under an ended lease, so a number in this range that is unknown to the
catalog stays unknown. The blob store is not listed. After a crash, the interrupted step is
repeated::

    lapsed -> ended -> late writes have finished -> swept, step by step -> forgotten
"""

from collections.abc import Awaitable, Callable

from attrs import define, field
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from storagegate.storage.blobids import blobIds
from storagegate.storage.blobinterfaces import IBlobStore
from storagegate.storage.cluster.blobs.remote import LATE_SECONDS
from storagegate.storage.cluster.interfaces import EndedLease, IClusterCatalog
from storagegate.storage.errors import StoreBusy, StoreError
from storagegate.storage.periodic import PeriodicTask

SWEEP_SECONDS = 3.0
"""Pause between two rounds: garbage of all nodes waits until the lease of a dead node has ended."""

STEP = 1000
"""Numbers of a lease in one step: a look-up, removals and a commit."""


@define(eq=False)
class Sweeper:
    """
    Ends expired leases, and sweeps their blobs. Methods must run in the reactor thread.

    @ivar _confirm: See L{storagegate.cluster.jobs.Job.confirm}.
    @ivar _lateSeconds: Blob store writes that the node of an ended lease has begun have completed
        or failed after this time.
    @ivar removed: The number of blobs that were removed or did not exist.
    @ivar problem: Why the last round failed; C{None} if it succeeded.
    """

    _log = Logger()

    _catalog: IClusterCatalog
    _blobs: IBlobStore
    _clock: IReactorTime
    _confirm: Callable[[], Awaitable[bool]]
    _lateSeconds: float = LATE_SECONDS
    _pauseSeconds: float = SWEEP_SECONDS
    removed: int = field(default=0, init=False)
    problem: str | None = field(default=None, init=False)
    # The time at which this node has first seen that each lease has ended.
    _endedAt: dict[int, float] = field(factory=dict, init=False)
    _task: PeriodicTask = field(init=False)

    @_task.default
    def _makeTask(self) -> PeriodicTask:
        return PeriodicTask("the sweeper", self._clock)

    def start(self) -> None:
        """Sweep in rounds until L{stop}, after which it may be called again."""
        self._task.start(self._rounds)

    async def stop(self) -> None:
        """Stop after the current step."""
        await self._task.stop()

    async def sweep(self) -> None:
        """
        End expired leases, and sweep the leases that have ended long enough ago.

        @raise StoreError: If the catalog or the blobs do not respond; the next round continues.
        @raise OSError: If a blob could not be removed.
        """
        ended = await self._catalog.cleanup.endLapsed()
        now = self._clock.seconds()
        self._endedAt = {each.number: self._endedAt.get(each.number, now) for each in ended}
        problem: Exception | None = None
        for lease in ended:
            isLate = now - self._endedAt[lease.number] >= self._lateSeconds
            if lease.low < lease.high and not isLate:
                continue
            try:
                if not await self._sweepLease(lease):
                    break
            except StoreBusy:
                raise
            except (StoreError, OSError) as error:
                # A blob cannot be removed, but blobs of other leases may be removable.
                problem = error
        if problem is not None:
            raise problem

    async def _rounds(self) -> None:
        while not self._task.isStopping:
            try:
                await self.sweep()
            except (StoreError, OSError) as error:
                if self.problem is None:
                    self._log.error("cannot sweep leases: {error}", error=str(error))
                self.problem = str(error)
            except Exception as error:
                # This node has claimed the job: no other node would continue it.
                self._log.failure("cannot sweep leases")
                self.problem = repr(error)
            else:
                if self.problem is not None:
                    self.problem = None
                    self._log.info("sweeping leases works again")
            await self._task.pause(self._pauseSeconds)

    async def _sweepLease(self, lease: EndedLease) -> bool:
        """Sweep one lease; return whether this node may continue."""
        cleanup = self._catalog.cleanup
        removed = 0
        for low in range(lease.low, lease.high, STEP):
            high = min(low + STEP, lease.high)
            ids = list(blobIds(lease.number, low, high))
            known = await self._catalog.knownBlobs(ids)
            unknown = [blob for blob in ids if blob not in known]
            if self._task.isStopping or not await self._confirm():
                return False
            await self._blobs.remove(unknown)
            await cleanup.settleLease(lease.number, high)
            removed += len(unknown)
            self.removed += len(unknown)
        await cleanup.forgetLease(lease.number)
        self._log.info(
            "lease {number} was swept: {removed} of {count} ids belonged to no object",
            number=lease.number,
            removed=removed,
            count=max(0, lease.high - lease.low),
        )
        return True
