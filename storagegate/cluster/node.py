"""
One process of a store over several machines: C{ObjectStore.open(node=ClusterNode)}.

B{The gate.} A request is admitted while this node has a lease; its writes are committed under this
lease or not at all. B{The reads} in progress are known to the collectors of all nodes. B{The jobs}
(the store's own, the sweeper and the collector) run on one node each.
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
from storagegate.storage.cluster.blobs.remote import LATE_SECONDS, RemoteBlobs
from storagegate.storage.cluster.interfaces import REQUEST_LEASE, IClusterCatalog
from storagegate.storage.errors import NoStandby, StoreBusy
from storagegate.storage.interfaces import ICatalog
from storagegate.storage.node import BackgroundTask, BlobLease, HeldBlobs, IStoreNode
from storagegate.storage.records import ObjectChange

_IDLE_SECONDS = 0.1
"""Interval of checks for garbage in L{ClusterNode.idle}."""

_FULL_SECONDS = 10.0
"""Duration of the warning after a write was refused: a removal has freed space by then."""

_STANDBY_AWAY = "no synchronous standby of the catalog is connected"

# The lease of an object whose bytes are in its row.
_NOTHING = BlobLease((), lambda blobs: None)


@implementer(IStoreNode)
class ClusterNode:
    """
    The node of this process. Methods must run in the reactor thread unless stated otherwise.

    @ivar keeper: Keeps the lease.
    @ivar reads: The reads in progress.
    @ivar sweeper: Sweeps the leases of all nodes, if this node has claimed that job.
    @ivar collector: Collects garbage, if this node has claimed that job.
    @ivar watches: The buckets whose changes this process receives.
    """

    _log = Logger()

    publishes = False

    def __init__(self, context: BackEndContext, catalog: ICatalog, blobs: IBlobStore) -> None:
        """
        @param context: The context of the back ends. Its options have C{node}, the name of this
            node, and optionally C{leaseSeconds}, C{synchronous}, and C{lateSeconds} for the
            L{Sweeper}.
        @param catalog: An L{IClusterCatalog}.
        @param blobs: A blob store that all nodes can reach.
        """
        assert IClusterCatalog.providedBy(catalog)
        shared: Any = catalog
        self._catalog: IClusterCatalog = shared
        self._leases, self._cleanup = shared.leases, shared.cleanup
        self._clock: IReactorTime = context.reactor
        options = context.options
        self._seconds = float(options.get("leaseSeconds", LEASE_SECONDS))
        self._isSynchronous = options.get("synchronous", "off") == "required"
        if self._isSynchronous:
            self._catalog.requireStandby()
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
        Admit a request, and let it commit under the current lease.

        @raise StoreBusy: If this node has no lease.
        """
        number = self._leases.number
        if not number:
            raise StoreBusy(self.keeper.problem)
        REQUEST_LEASE.set(number)

    def hold(self, blobs: Iterable[str]) -> HeldBlobs:
        """
        Keep blobs until the lease is released; see L{OpenReads.hold}.

        @raise StoreBusy: If this node has no lease.
        """
        held = tuple(blobs)
        return self.reads.hold(held) if held else _NOTHING

    @property
    def backlog(self) -> int:
        """The number of blobs to remove, on the node that removes them."""
        return self.collector.backlog

    def start(self, observe: Callable[[ObjectChange], None]) -> None:
        """Keep the lease, and take part in the jobs of the cluster."""
        self.keeper.start()
        self.watches.start(observe)
        for job, task in self._own:
            job.start(task)

    def reclaim(self, blobs: Iterable[str]) -> None:
        """Do nothing: the catalog lists the garbage of all nodes."""

    def runInOne(self, name: str, task: BackgroundTask) -> None:
        """Run a task on the node that claims its row in the catalog."""
        self._newJob(name).start(task)

    def committed(self, change: ObjectChange) -> None:
        """Do nothing: the catalog's journal records the change, for this process too."""

    def corrupted(self, ids: Sequence[str]) -> None:
        """Do nothing: the catalog has the mark, and other nodes find the damage themselves."""

    def cleared(self, ids: Sequence[str]) -> None:
        """Do nothing: the catalog notifies all nodes."""

    def full(self) -> None:
        """Record that the blob storage is full. May be called in any thread."""
        self._fullAt = self._clock.seconds()

    def space(self) -> None:
        """Do nothing: no objects are on this machine."""
        return

    def health(self) -> Mapping[str, str | None]:
        """Return why this node has no lease."""
        return {"lease": self.keeper.problem}

    def warnings(self) -> Mapping[str, str | None]:
        """Return whether the blob storage is full, or garbage or uploads cannot be removed."""
        fullAt = self._fullAt
        isFull = fullAt is not None and self._clock.seconds() < fullAt + _FULL_SECONDS
        return {
            "space": "the blob store is full" if isFull else None,
            "garbage": self.collector.problem,
            "sweep": self.sweeper.problem,
        }

    async def idle(self) -> None:
        """Wait until all garbage of the store without readers is removed, by any node."""
        while True:
            backlog = await self._cleanup.backlog()
            if not backlog.freed and backlog.garbage <= backlog.holds:
                return
            await deferLater(self._clock, _IDLE_SECONDS)

    async def stop(self) -> None:
        """Stop the tasks; other nodes take over. Called once, before the blobs are closed."""
        stopping = [job.stop() for job in self._jobs]
        await gatherResults(
            [Deferred.fromCoroutine(each) for each in (*stopping, self.watches.stop())]
        )

    async def leave(self) -> None:
        """End the lease. Called once, after the blobs are closed."""
        await self.keeper.stop()

    def _newJob(self, name: str) -> Job:
        job = Job(name, self._leases, self._cleanup, self._clock, self._seconds)
        self._jobs.append(job)
        return job

    async def _check(self) -> None:
        """
        Check that commits wait for a standby, if required: without a standby this node takes no
        lease.

        @raise StoreBusy: If commits do not wait for a standby.
        """
        if self._isSynchronous:
            names, count = await self._cleanup.replication()
            if not names:
                raise NoStandby
            if not count:
                # A renewal would wait for a standby without reporting it.
                raise StoreBusy(_STANDBY_AWAY)
