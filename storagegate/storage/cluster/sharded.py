"""
A catalog of several shards. Each bucket lives in one PostgreSQL database.

The directory in shard 0 maps buckets to shards. Its rows never change, so nodes cache them.
Creating a bucket writes its directory row first and then the bucket. A crash in between leaves a
row without a bucket, which is used when the bucket is created again. Removing a bucket leaves its
row.

A request has a lease in each shard (L{REQUEST_LEASES}) and commits under the lease in its bucket's
shard. A shard in which this node has no lease refuses all operations; the other shards serve.

A blob belongs to the shard whose lease its id names. It is counted, swept and collected there, so a
copy to another shard cannot reference it: L{BlobsElsewhere}.
"""

from collections.abc import Callable, Coroutine, Mapping, Sequence
from heapq import merge
from itertools import islice
from operator import attrgetter
from typing import Any, NoReturn

from twisted.internet.defer import Deferred, DeferredList, fail, gatherResults
from twisted.python.failure import Failure
from zope.interface import implementer

from storagegate.storage.backends import BackEndContext, OpenCatalog
from storagegate.storage.blobids import shardOf
from storagegate.storage.cluster.catalog import PostgreSQLCatalog, openPostgreSQL
from storagegate.storage.cluster.interfaces import (
    REQUEST_LEASE,
    REQUEST_LEASES,
    IShardedCatalog,
)
from storagegate.storage.errors import BlobsElsewhere, BucketChanged, ConcurrentChange, StoreBusy
from storagegate.storage.interfaces import ICatalog
from storagegate.storage.mutations import (
    AddBucket,
    BlobMutation,
    BucketMutation,
    Mutation,
    T,
    copiedBlobsOf,
)
from storagegate.storage.ranges import ObjectRange, PartRange, UploadRange, VersionRange
from storagegate.storage.records import (
    BlobRow,
    Bucket,
    BucketUsage,
    InlineCheck,
    InlinePosition,
    ObjectListing,
    Part,
    StoreUsage,
    UploadListing,
    VersionListing,
)
from storagegate.storage.sqlite import CatalogUnusable

_PLACES = 100_000
"""The most buckets whose shards are cached (10 MB)."""

_BUCKET_BITS = 48
"""In positions of inline checks, the shard number is in the bits above the bucket number."""


def _reading(name: str) -> Any:
    """Return a method that reads from the shard of the bucket named by its first argument."""

    async def read(self: "ShardedCatalog", bucket: str, *args: Any, **named: Any) -> Any:
        shard: Any = await self._home(bucket)
        return await getattr(shard, name)(bucket, *args, **named)

    return read


@implementer(IShardedCatalog)
class ShardedCatalog:
    """
    The catalog. Methods: reactor thread.

    @ivar shards: The shards by number.
    """

    isRemote = True

    keysStaleSeconds = PostgreSQLCatalog.keysStaleSeconds
    graceSeconds = PostgreSQLCatalog.graceSeconds
    failure: str | None = None

    def __init__(self, shards: Mapping[int, PostgreSQLCatalog]) -> None:
        """
        @param shards: All shards by number.
        """
        self.shards = dict(sorted(shards.items()))
        self._first = self.shards[0]
        self._places: dict[str, int] = {}
        self.secret = self._first.secret
        self.checkVersionId = self._first.checkVersionId
        self.accessKeys = self._first.accessKeys
        self.keysGeneration = self._first.keysGeneration
        self.identities = self._first.identities
        self.progress = self._first.progress
        self.health = self._first.health
        self.consoleRecords = self._first.consoleRecords

    @property
    def onKeysChanged(self) -> Callable[[], object] | None:
        """Called when any node has, or may have, changed the access keys."""
        return self._first.onKeysChanged

    @onKeysChanged.setter
    def onKeysChanged(self, changed: Callable[[], object] | None) -> None:
        self._first.onKeysChanged = changed

    @property
    def waiting(self) -> int:
        """How many mutations wait for a commit."""
        return sum(each.waiting for each in self.shards.values())

    def measure(
        self, mutations: Callable[[int], object], seconds: Callable[[float], object]
    ) -> None:
        """See L{ICatalog.measure}."""
        for each in self.shards.values():
            each.measure(mutations, seconds)

    def close(self) -> Deferred[None]:
        """Commit waiting mutations, then close. Call once."""
        closing = gatherResults([each.close() for each in self.shards.values()])
        return closing.addCallback(lambda _: None)

    def newBlobId(self, bucket: str = "") -> str:
        """Generate a blob id under the lease in the shard of a bucket that was looked up before."""
        # If the bucket's shard is not cached, the id may be from another shard, and the commit is
        # refused.
        return self._known(self._places.get(bucket, 0)).newBlobId()

    def corruptBlobs(self) -> frozenset[str]:
        """Return the blobs that were marked before opening, or by this process."""
        return _union(*(each.corruptBlobs() for each in self.shards.values()))

    async def objectsOf(
        self, blobs: Sequence[str], limit: int
    ) -> list[tuple[str, bytes, str, str]]:
        """Find no objects: that would read all rows."""
        return []

    def recentBucket(self, name: str) -> tuple[Bucket, int] | None:
        """Return a bucket as it was last read."""
        shard = self._places.get(name)
        return None if shard is None else self._known(shard).recentBucket(name)

    async def shard(self, bucket: str) -> int | None:
        """Find the shard of a bucket, from the cache if it was found before."""
        found = self._places.get(bucket)
        if found is None:
            found = await self._known(0).shard(bucket)
            if found is not None:
                self._remember(bucket, found)
        return found

    bucket = _reading("bucket")
    object = _reading("object")
    deleteMarker = _reading("deleteMarker")
    completed = _reading("completed")
    settings = _reading("settings")
    upload = _reading("upload")
    olderVersions = _reading("olderVersions")
    expiryPage = _reading("expiryPage")

    async def listObjects(self, page: ObjectRange) -> ObjectListing:
        """List a page of objects."""
        return await (await self._home(page.bucket)).listObjects(page)

    async def listVersions(self, page: VersionRange) -> VersionListing:
        """List a page of versions."""
        return await (await self._home(page.bucket)).listVersions(page)

    async def parts(self, page: PartRange) -> list[Part]:
        """List a page of the parts of an upload."""
        return await (await self._home(page.bucket)).parts(page)

    async def uploads(self, page: UploadRange) -> UploadListing:
        """List a page of uploads in progress."""
        return await (await self._home(page.bucket)).uploads(page)

    async def buckets(
        self, account: str | None, prefix: str, after: str, limit: int
    ) -> list[Bucket]:
        """List buckets."""
        pages = await self._each(lambda each: each.buckets(account, prefix, after, limit))
        return list(islice(merge(*pages, key=attrgetter("name")), limit))

    async def bucketsWith(self, setting: str, after: str, limit: int) -> list[str]:
        """List the names of buckets that have a setting."""
        pages = await self._each(lambda each: each.bucketsWith(setting, after, limit))
        return list(islice(merge(*pages), limit))

    async def usage(self, limit: int) -> StoreUsage:
        """Read the usage of the buckets, the oldest ones of each shard."""
        found = await self._each(lambda each: each.usage(limit))
        buckets = [bucket for each in found for bucket in each.buckets]
        rest = [*buckets[limit:], *(each.others for each in found)]
        others = BucketUsage(
            "",
            sum(each.objects for each in rest),
            sum(each.bytes for each in rest),
            sum(each.uploads for each in rest),
            sum(each.uploadBytes for each in rest),
        )
        return StoreUsage(tuple(buckets[:limit]), others, found[0].accessKeys)

    async def knownBlobs(self, ids: Sequence[str]) -> frozenset[str]:
        """Find which of these blobs have a row."""
        return _union(*await self._each(lambda each: each.knownBlobs(ids)))

    async def referenced(self, ids: Sequence[str]) -> frozenset[str]:
        """
        Find which of these blobs have references, counting freed ones that are not yet folded.
        """
        return _union(*await self._each(lambda each: each.referenced(ids)))

    async def blobRow(self, id: str) -> BlobRow | None:
        """
        Look up a blob, first in the shard that its id names, so that the other shards need not
        answer.
        """
        home = self.shards.get(shardOf(id))
        row = None if home is None else await home.blobRow(id)
        if row is not None:
            return row
        found = await self._each(lambda each: each.blobRow(id))
        return next((row for row in found if row is not None), None)

    async def garbage(self, after: str, limit: int) -> list[str]:
        """List blobs without references that no reader can still have found."""
        pages = await self._each(lambda each: each.garbage(after, limit))
        return list(islice(merge(*pages), limit))

    async def blobRows(self, after: str, limit: int) -> list[BlobRow]:
        """List all blobs."""
        pages = await self._each(lambda each: each.blobRows(after, limit))
        return list(islice(merge(*pages, key=attrgetter("id")), limit))

    async def checkInline(self, start: InlinePosition | None, limit: int) -> InlineCheck:
        """Check the inline bytes of a page of objects of one shard."""
        isOld, place, key, sequence = start or (False, -1, b"", 0)
        # Bucket -1 begins a shard.
        number = (place + 1) >> _BUCKET_BITS
        base = number << _BUCKET_BITS
        inner = (isOld, place - base, key, sequence)
        found = await self._known(number).checkInline(inner, limit)
        position = found.next
        if position is not None:
            position = (position[0], position[1] + base, position[2], position[3])
        else:
            following = next((each for each in self.shards if each > number), None)
            if following is not None:
                position = (False, (following << _BUCKET_BITS) - 1, b"", 0)
        return InlineCheck(found.damaged, found.bytesRead, position)

    def commit(self, mutation: Mutation[T]) -> Deferred[T]:
        """
        Commit a mutation in the shard of its bucket; one of blobs in all shards, and one of the
        store itself in the first.
        """
        # Mypy does not narrow the result type with the mutation.
        special: Deferred[Any]
        if isinstance(mutation, BlobMutation):
            special = self._commitInAll(mutation)
            return special
        if isinstance(mutation, AddBucket):
            special = Deferred.fromCoroutine(self._createBucket(mutation))
            return special
        if not isinstance(mutation, BucketMutation):
            return self._commitIn(0, mutation)
        shard = self._places.get(mutation.bucketName)
        if shard is not None:
            return self._commitIn(shard, mutation)

        async def find() -> T:
            return await self._commitIn(await self.shard(mutation.bucketName) or 0, mutation)

        return Deferred.fromCoroutine(find())

    async def _createBucket(self, mutation: AddBucket) -> None:
        """Create a bucket, after its directory row."""
        name = mutation.bucketName
        shard = self._places.get(name)
        if shard is None:
            shard = await self._run(0, lambda first: first.placeBucket(name))
            self._remember(name, shard)
        await self._commitIn(shard, mutation)

    async def keyUses(self) -> Mapping[str, int]:
        """Return when each key was last used."""
        return await self._known(0).keyUses()

    async def _home(self, bucket: str) -> PostgreSQLCatalog:
        """
        Return the shard of a bucket, in which this node has a lease.

        @raise StoreBusy: This node has no lease there.
        """
        return self._known(await self.shard(bucket) or 0)

    def _known(self, shard: int) -> PostgreSQLCatalog:
        """
        Return a shard in which this node has a lease.

        @raise StoreBusy: This node has no lease there.
        """
        found = self.shards.get(shard)
        if found is None:
            raise StoreBusy(f"shard {shard} was added after this node was started")
        if not found.leases.number:
            raise StoreBusy(f"this node holds no lease in shard {shard}")
        return found

    def _remember(self, bucket: str, shard: int) -> None:
        if len(self._places) >= _PLACES:
            self._places.clear()
        self._places[bucket] = shard

    async def _each(self, read: Callable[[PostgreSQLCatalog], Coroutine[Any, Any, T]]) -> list[T]:
        """Read from all shards concurrently."""
        shards = [self._known(number) for number in self.shards]
        return await _all([Deferred.fromCoroutine(read(each)) for each in shards])

    def _commitIn(self, shard: int, mutation: Mutation[T]) -> Deferred[T]:
        """Commit a mutation in a shard."""
        done = self._run(shard, lambda catalog: catalog.commit(mutation))
        if any(shardOf(blob) != shard for blob in copiedBlobsOf(mutation)):
            done.addErrback(_elsewhere, shard)
        return done

    def _commitInAll(self, mutation: BlobMutation) -> Deferred[Any]:
        """Commit a mutation in all shards independently."""
        done = _all([self._commitIn(number, mutation) for number in self.shards])
        return Deferred.fromCoroutine(done).addCallback(lambda _: None)

    def _run(self, shard: int, mutate: Callable[[PostgreSQLCatalog], Deferred[T]]) -> Deferred[T]:
        """Queue a mutation under the current request's lease in a shard."""
        try:
            catalog = self._known(shard)
        except StoreBusy as error:
            return fail(error)
        leases = REQUEST_LEASES.get()
        if leases is None:
            return mutate(catalog)
        lease = leases.get(shard, 0)
        if not lease:
            return fail(StoreBusy(f"this node held no lease in shard {shard}"))
        token = REQUEST_LEASE.set(lease)
        try:
            return mutate(catalog)
        finally:
            REQUEST_LEASE.reset(token)


def _elsewhere(failure: Failure, shard: int) -> NoReturn:
    """Distinguish a copy whose bytes are in another shard from a copy to retry."""
    failure.trap(ConcurrentChange)
    if failure.check(BucketChanged):
        failure.raiseException()
    raise BlobsElsewhere(f"the bucket is in shard {shard}") from failure.value


async def _all(waiting: Sequence[Deferred[T]]) -> list[T]:
    """Wait for all; raise the first failure."""
    results: Any = await DeferredList(waiting, consumeErrors=True)
    for isDone, result in results:
        if not isDone:
            result.raiseException()
    return [result for _, result in results]


def _union(*blobs: frozenset[str]) -> frozenset[str]:
    return frozenset[str]().union(*blobs)


def openShards(
    reactor: Any, first: PostgreSQLCatalog, node: str, leaseSeconds: float
) -> ShardedCatalog:
    """
    Open the additional shards of a catalog. Blocks.

    @param reactor: See L{PostgreSQLCatalog}.
    @param first: The shard with the directory.
    @param node: A name of this node, for operators.
    @param leaseSeconds: How long a lease is valid before it is renewed.
    @raise CatalogUnusable: A shard cannot be opened; the message names it.
    """
    shards = {0: first}
    for number, conninfos in first.others.items():
        try:
            shards[number] = openPostgreSQL(
                reactor,
                conninfos,
                node,
                leaseSeconds,
                False,
                shard=number,
                secret=first.secret(),
            )
        except CatalogUnusable as error:
            raise CatalogUnusable(f"shard {number}: {error}") from error
    return ShardedCatalog(shards)


def openCatalog(context: BackEndContext) -> OpenCatalog:
    """
    Open the catalog of a cluster, with all its shards. Blocks.

    @param context: The context; its options are C{catalog}, the conninfos, one per server; C{node},
        a name of this node; and C{leaseSeconds}.
    @raise CatalogUnusable: See L{openPostgreSQL}.
    """
    options = context.options
    catalog = openPostgreSQL(
        context.reactor, options["catalog"], options["node"], options["leaseSeconds"], False
    )
    opened: ICatalog = catalog
    if catalog.others:
        opened = openShards(context.reactor, catalog, options["node"], options["leaseSeconds"])
    # There are no files to recover: the sweeper finds the blobs of ended leases.
    return OpenCatalog(opened, lambda ids: ids)
