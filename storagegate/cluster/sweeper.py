"""
Removes the blobs that nodes have left when their leases ended: uploads that were not committed.

The row of a lease has the range of the numbers that may have been used and are not settled. Nothing
can be committed under a lease that has ended, so what the catalog does not know of them now it will
never know. The blob store is not listed. A crash at any step repeats it::

    lapsed -> ended -> late writes are over -> swept, step by step -> forgotten
"""

from collections.abc import Awaitable, Callable

from attrs import define, field
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from storagegate.storage.blobids import blobIds
from storagegate.storage.blobinterfaces import IBlobStore
from storagegate.storage.blobs.remote import LATE_SECONDS
from storagegate.storage.clustercatalog import EndedLease, IClusterCatalog
from storagegate.storage.errors import StoreBusy, StoreError
from storagegate.storage.periodic import PeriodicTask

SWEEP_SECONDS = 3.0
"""Between rounds: garbage of all nodes waits until the lease of one that is gone has ended."""

STEP = 1000
"""Numbers of a lease in one step: one look-up, some removals, one commit."""


@define(eq=False)
class Sweeper:
    """
    Ends leases whose time is over, and sweeps after them. All methods: reactor thread.

    @ivar _confirm: See L{storagegate.cluster.jobs.Job.confirm}.
    @ivar _lateSeconds: After so long no write to the blob store comes to pass any more that the
        node of an ended lease has begun.
    @ivar removed: How many blobs were removed, or were not there.
    @ivar problem: Why the last round has failed; L{None} if it has not.
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
    # When this node has first seen that they are ended.
    _endedAt: dict[int, float] = field(factory=dict, init=False)
    _task: PeriodicTask = field(init=False)

    @_task.default
    def _makeTask(self) -> PeriodicTask:
        return PeriodicTask("the sweeper", self._clock)

    def start(self) -> None:
        """Sweep, round after round, until L{stop}. Also again after that."""
        self._task.start(self._rounds)

    async def stop(self) -> None:
        """Stop, when no step is in work."""
        await self._task.stop()

    async def sweep(self) -> None:
        """
        End what is over, and sweep what has ended long enough ago.

        @raise StoreError: Catalog or blobs do not answer; the next round goes on.
        @raise OSError: A blob could not be removed.
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
                # A blob that cannot be removed; those of other leases may be.
                problem = error
        if problem is not None:
            raise problem

    async def _rounds(self) -> None:
        while not self._task.isStopping:
            try:
                await self.sweep()
            except (StoreError, OSError) as error:
                if self.problem is None:
                    self._log.error("leases are not swept: {error}", error=str(error))
                self.problem = str(error)
            except Exception as error:
                # This node has claimed the work: none would go on in its place.
                self._log.failure("leases are not swept")
                self.problem = repr(error)
            else:
                if self.problem is not None:
                    self.problem = None
                    self._log.info("leases are swept again")
            await self._task.pause(self._pauseSeconds)

    async def _sweepLease(self, lease: EndedLease) -> bool:
        """Return whether this node may go on."""
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
            "lease {number} was swept: {removed} of {count} numbers are of no object",
            number=lease.number,
            removed=removed,
            count=max(0, lease.high - lease.low),
        )
        return True
