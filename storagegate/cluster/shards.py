"""
One process of a store whose catalog has several shards: one L{ClusterNode} per shard.

Each shard has its own leases, reads, sweeper and collector. A missing lease in one shard does not
affect the buckets of the others. The directory and the access keys are in the first shard: without
a lease there, this process serves no requests. Jobs for the whole store, such as the scrub, also
belong to the first shard.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from twisted.internet.defer import Deferred, gatherResults
from zope.interface import implementer

from storagegate.cluster.node import ClusterNode
from storagegate.storage.backends import BackEndContext
from storagegate.storage.blobids import shardOf
from storagegate.storage.blobinterfaces import IBlobStore
from storagegate.storage.cluster.blobs.remote import RemoteBlobs
from storagegate.storage.cluster.interfaces import REQUEST_LEASE, REQUEST_LEASES, IShardedCatalog
from storagegate.storage.errors import NoSuchBucket
from storagegate.storage.interfaces import ICatalog
from storagegate.storage.node import BackgroundTask, HeldBlobs, IBucketWatches, IStoreNode
from storagegate.storage.records import ObjectChange


@implementer(IBucketWatches)
class ShardedWatches:
    """
    The watched buckets of all shards. Methods must run in the reactor thread.

    @ivar missedObservers: Called when changes were missed in a shard.
    """

    def __init__(self, catalog: IShardedCatalog, nodes: Mapping[int, ClusterNode]) -> None:
        """@param nodes: The nodes by the number of their shard."""
        self._catalog = catalog
        self._nodes = nodes
        self.missedObservers: list[Callable[[], object]] = []
        # The shard and the number of watchers of each bucket; the shard of a bucket never changes.
        self._places: dict[str, tuple[int, int]] = {}
        # The number of watchers of each bucket whose shard was not found.
        self._failed: dict[str, int] = {}
        for each in nodes.values():
            each.watches.missedObservers = self.missedObservers

    async def watch(self, bucket: str) -> None:
        """See L{IBucketWatches.watch}."""
        try:
            number = await self._catalog.shard(bucket)
            if number is None or number not in self._nodes:
                raise NoSuchBucket
        except BaseException:
            self._failed[bucket] = self._failed.get(bucket, 0) + 1
            raise
        _, count = self._places.get(bucket, (number, 0))
        self._places[bucket] = number, count + 1
        # Runs in its own context.
        await Deferred.fromCoroutine(self._watchIn(number, bucket))

    async def _watchIn(self, number: int, bucket: str) -> None:
        # The lease of the request belongs to the first shard.
        REQUEST_LEASE.set(0)
        await self._nodes[number].watches.watch(bucket)

    def unwatch(self, bucket: str) -> None:
        """See L{IBucketWatches.unwatch}."""
        failed = self._failed.pop(bucket, 0)
        if failed:
            if failed > 1:
                self._failed[bucket] = failed - 1
            return
        number, count = self._places.pop(bucket)
        if count > 1:
            self._places[bucket] = number, count - 1
        self._nodes[number].watches.unwatch(bucket)


@implementer(IStoreNode)
class ShardedNode:
    """
    The node of this process. Methods must run in the reactor thread unless stated otherwise.

    @ivar nodes: The nodes by the number of their shard.
    @ivar watches: The buckets whose changes this process receives.
    """

    publishes = False

    def __init__(self, context: BackEndContext, catalog: ICatalog, blobs: IBlobStore) -> None:
        """
        @param context: See L{ClusterNode}.
        @param catalog: An L{IShardedCatalog}.
        @param blobs: A blob store that all nodes can reach.
        """
        assert IShardedCatalog.providedBy(catalog)
        shared: Any = catalog
        self._shards = shared.shards
        self.nodes = {
            number: ClusterNode(context, shard, blobs) for number, shard in shared.shards.items()
        }
        self._first = self.nodes[0]
        self.watches = ShardedWatches(shared, self.nodes)
        if isinstance(blobs, RemoteBlobs):
            blobs.onRemoved = self._settle

    def admit(self) -> None:
        """
        Admit a request, and let it commit in each shard under the shard's current lease.

        @raise StoreBusy: If this node has no lease in the first shard.
        """
        self._first.admit()
        REQUEST_LEASES.set({number: each.leases.number for number, each in self._shards.items()})

    def hold(self, blobs: Iterable[str]) -> HeldBlobs:
        """
        Keep the blobs of an object until the lease is released.

        @raise StoreBusy: If this node has no lease in their shard.
        """
        held = tuple(blobs)
        # The blobs of an object are in the shard of its bucket.
        node = self.nodes.get(shardOf(held[0])) if held else None
        return (node or self._first).hold(held)

    @property
    def backlog(self) -> int:
        """The number of blobs to remove, on the node that removes them."""
        return sum(each.backlog for each in self.nodes.values())

    def start(self, observe: Callable[[ObjectChange], None]) -> None:
        """Keep the leases, and take part in the jobs of the cluster."""
        for each in self.nodes.values():
            each.start(observe)

    def reclaim(self, blobs: Iterable[str]) -> None:
        """Do nothing: the catalog lists the garbage of all nodes."""

    def runInOne(self, name: str, task: BackgroundTask) -> None:
        """Run a task on the node that claims its row in the first shard."""
        self._first.runInOne(name, task)

    def committed(self, change: ObjectChange) -> None:
        """Do nothing: the catalog's journal records the change, for this process too."""

    def cleared(self, ids: Sequence[str]) -> None:
        """Do nothing: the catalogs notify all nodes."""

    def corrupted(self, ids: Sequence[str]) -> None:
        """Do nothing: the catalog has the mark, and other nodes find the damage themselves."""

    def full(self) -> None:
        """Record that the blob storage is full. May be called in any thread."""
        self._first.full()

    def space(self) -> None:
        """Do nothing: no objects are on this machine."""
        return

    def health(self) -> Mapping[str, str | None]:
        """Return why this node has no lease in the first shard; other leases are not required."""
        return self._first.health()

    def warnings(self) -> Mapping[str, str | None]:
        """Return the warnings of the first shard, and one problem of each other shard."""
        found = dict(self._first.warnings())
        for number, each in self.nodes.items():
            if number:
                problems = [each.keeper.problem, *each.warnings().values()]
                found[f"shard {number}"] = next(filter(None, problems), None)
        return found

    async def idle(self) -> None:
        """Wait until all garbage of the store without readers is removed, by any node."""
        for each in self.nodes.values():
            await each.idle()

    async def stop(self) -> None:
        """Stop the tasks; other nodes take over. Called once, before the blobs are closed."""
        await gatherResults([Deferred.fromCoroutine(each.stop()) for each in self.nodes.values()])

    async def leave(self) -> None:
        """End the leases. Called once, after the blobs are closed."""
        await gatherResults([Deferred.fromCoroutine(each.leave()) for each in self.nodes.values()])

    def _settle(self, blob: str) -> None:
        for each in self._shards.values():
            each.leases.settle(blob)
