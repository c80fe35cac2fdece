"""
The part of one process in a store over several machines: C{ObjectStore.open(node=ClusterNode)}.

B{The gate.} A request is admitted while this node has a lease; what it writes is committed under
that lease or not at all. B{The reads} in progress are known to the collector of all nodes. B{The
jobs}, those of the store and the sweeper and the collector, run on one node each.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from twisted.internet.defer import Deferred, gatherResults
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import deferLater
from twisted.logger import Logger
from zope.interface import implementer

from storagegate.cluster.collector import Collector
from storagegate.cluster.events import ChangeFollower
from storagegate.cluster.jobs import Job
from storagegate.cluster.lease import LEASE_SECONDS, LeaseKeeper
from storagegate.cluster.reads import OpenReads
from storagegate.cluster.sweeper import Sweeper
from storagegate.storage.backends import BackEndContext
from storagegate.storage.blobinterfaces import IBlobStore
from storagegate.storage.blobs.remote import LATE_SECONDS, RemoteBlobs
from storagegate.storage.clustercatalog import REQUEST_LEASE, IClusterCatalog
from storagegate.storage.errors import StoreBusy
from storagegate.storage.gc import BlobLease, HeldBlobs
from storagegate.storage.interfaces import ICatalog
from storagegate.storage.node import BackgroundTask, IStoreNode
from storagegate.storage.records import ObjectChange

_IDLE_SECONDS = 0.1
"""Between two looks at what waits to be collected."""

_FULL_SECONDS = 10.0
"""So long after a write was refused a warning is given: a removal has freed space by then."""

_NO_STANDBY = "synchronous_standby_names of the catalog is empty: commits wait for no standby"

_STANDBY_AWAY = "no synchronous standby of the catalog is connected"

# Of an object whose bytes are in its row.
_NOTHING = BlobLease((), lambda blobs: None)


@implementer(IStoreNode)
class ClusterNode:
    """
    The part of this process. Methods: reactor thread, unless they say otherwise.

    @ivar keeper: Keeps the lease.
    @ivar reads: The reads in progress.
    @ivar sweeper: Sweeps after the leases of other nodes, if this one does so for all.
    @ivar collector: Collects garbage, likewise.
    @ivar watches: The buckets whose changes this process receives.
    """

    _log = Logger()

    publishes = False

    def __init__(self, context: BackEndContext, catalog: ICatalog, blobs: IBlobStore) -> None:
        """
        @param context: What the back ends were opened with. Its options have C{node}, the name of
            this node, and perhaps C{leaseSeconds}, C{synchronous}, and C{lateSeconds} of
            L{Sweeper}.
        @param catalog: An L{IClusterCatalog}.
        @param blobs: A store of blobs that all nodes reach.
        """
        assert IClusterCatalog.providedBy(catalog)
        shared: Any = catalog
        self._catalog: IClusterCatalog = shared
        self._leases, self._cleanup = shared.leases, shared.cleanup
        self._clock: IReactorTime = context.reactor
        options = context.options
        self._seconds = float(options.get("leaseSeconds", LEASE_SECONDS))
        self._isSynchronous = options.get("synchronous", "off") == "required"
        self._jobs: list[Job] = []
        self._fullAt: float | None = None
        self.reads = OpenReads(self._leases, self._cleanup, self._clock)
        self.keeper = LeaseKeeper(
            self._leases,
            self._cleanup,
            self.reads,
            self._clock,
            str(options.get("node", "")),
            self._seconds,
            self._check,
        )
        sweeping, collecting = self._newJob("sweep"), self._newJob("collect")
        late = float(options.get("lateSeconds", LATE_SECONDS))
        self.sweeper = Sweeper(self._catalog, blobs, self._clock, sweeping.confirm, late)
        self.collector = Collector(self._catalog, blobs, self._clock, collecting.confirm)
        self._own = ((sweeping, self.sweeper), (collecting, self.collector))
        self.watches = ChangeFollower(self._clock, self._catalog)
        if isinstance(blobs, RemoteBlobs):
            blobs.onRemoved = self._leases.settle
        shared.onBlobCleared = lambda blob: blobs.clearCorrupt([blob])

    def admit(self) -> None:
        """
        Admit a request, and let it commit under the lease of this moment.

        @raise StoreBusy: This node has no lease.
        """
        number = self._leases.number
        if not number:
            raise StoreBusy(self.keeper.problem)
        REQUEST_LEASE.set(number)

    def hold(self, blobs: Iterable[str]) -> HeldBlobs:
        """
        Keep blobs until the lease is released; see L{OpenReads.hold}.

        @raise StoreBusy: This node has no lease.
        """
        held = tuple(blobs)
        return self.reads.hold(held) if held else _NOTHING

    @property
    def backlog(self) -> int:
        """How many blobs are to be removed, on the node that removes them."""
        return self.collector.backlog

    def start(self, observe: Callable[[ObjectChange], None]) -> None:
        """Keep the lease, and take part in the work for all nodes."""
        self.keeper.start()
        self.watches.start(observe)
        for job, task in self._own:
            job.start(task)

    def reclaim(self, blobs: Iterable[str]) -> None:
        """Do nothing: the catalog lists what is garbage on any node."""

    def runInOne(self, name: str, task: BackgroundTask) -> None:
        """Run a task on the node that claims its row in the catalog."""
        self._newJob(name).start(task)

    def committed(self, change: ObjectChange) -> None:
        """Do nothing: the journal of the catalog has it, for this process too."""

    def corrupted(self, ids: Sequence[str]) -> None:
        """Do nothing: the catalog has the mark, and other nodes find the damage as this one did."""

    def cleared(self, ids: Sequence[str]) -> None:
        """Do nothing: the catalog notifies all nodes."""

    def full(self) -> None:
        """Note that the blobs' storage is full. Any thread."""
        self._fullAt = self._clock.seconds()

    def space(self) -> None:
        """Return nothing: no object lies on this machine."""
        return

    def health(self) -> Mapping[str, str | None]:
        """Return why there is no lease."""
        return {"lease": self.keeper.problem}

    def warnings(self) -> Mapping[str, str | None]:
        """Return whether the blobs' storage is full, and garbage or uploads cannot be removed."""
        fullAt = self._fullAt
        isFull = fullAt is not None and self._clock.seconds() < fullAt + _FULL_SECONDS
        return {
            "space": "the storage of the blobs is full" if isFull else None,
            "garbage": self.collector.problem,
            "sweep": self.sweeper.problem,
        }

    async def idle(self) -> None:
        """Wait until all garbage of the store is removed that has no readers, on any node."""
        while True:
            backlog = await self._cleanup.backlog()
            if not backlog.freed and backlog.garbage <= backlog.holds:
                return
            await deferLater(self._clock, _IDLE_SECONDS)

    async def stop(self) -> None:
        """End the tasks, and let other nodes do the work. Once, before the blobs are closed."""
        stopping = [job.stop() for job in self._jobs]
        await gatherResults(
            [Deferred.fromCoroutine(each) for each in (*stopping, self.watches.stop())]
        )

    async def leave(self) -> None:
        """End the lease. Once, after the blobs are closed."""
        await self.keeper.stop()

    def _newJob(self, name: str) -> Job:
        job = Job(name, self._leases, self._cleanup, self._clock, self._seconds)
        self._jobs.append(job)
        return job

    async def _check(self) -> None:
        """
        Check that commits wait for a standby, if they must: without one there is no lease.

        @raise StoreBusy: They do not.
        """
        if self._isSynchronous:
            names, count = await self._cleanup.replication()
            if not names:
                raise StoreBusy(_NO_STANDBY)
            if not count:
                # A renewal would wait for one, and say nothing of it.
                raise StoreBusy(_STANDBY_AWAY)
