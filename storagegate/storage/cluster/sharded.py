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

from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from heapq import merge
from itertools import islice
from operator import attrgetter
from types import MappingProxyType
from typing import Any, NoReturn, TypeVar

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
from storagegate.storage.records import (
    AccessKey,
    BlobRow,
    Bucket,
    BucketUsage,
    Content,
    InlineCheck,
    InlinePosition,
    MultipartUpload,
    ObjectRecord,
    Part,
    StoreUsage,
    WriteCondition,
)
from storagegate.storage.sqlite import CatalogUnusable

T = TypeVar("T")

_NO_BLOBS: Mapping[str, int] = MappingProxyType({})

_PLACES = 100_000
"""The most buckets whose shards are cached (10 MB)."""

_BUCKET_BITS = 48
"""In positions of inline checks, the shard number is in the bits above the bucket number."""


def _reading(name: str) -> Any:
    """Return a method that reads from the shard of the bucket named by its first argument."""

    async def read(self: "ShardedCatalog", bucket: str, *args: Any, **named: Any) -> Any:
        shard: Any = self._known(await self.shard(bucket) or 0)
        return await getattr(shard, name)(bucket, *args, **named)

    return read


def _mutation(name: str) -> Any:
    """Return a method that mutates the bucket named by its first argument."""

    def mutate(self: "ShardedCatalog", bucket: str, *args: Any, **named: Any) -> Deferred[Any]:
        return self._mutate(bucket, lambda each: getattr(each, name)(bucket, *args, **named))

    return mutate


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
        self.progress = self._first.progress
        self.health = self._first.health

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
    parts = _reading("parts")
    listObjects = _reading("listObjects")
    listVersions = _reading("listVersions")
    uploads = _reading("uploads")
    expiryPage = _reading("expiryPage")

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

    def createBucket(self, bucket: Bucket) -> Deferred[None]:
        """Create a bucket, after its directory row."""

        async def create() -> None:
            shard = self._places.get(bucket.name)
            if shard is None:
                shard = await self._run(0, lambda first: first.placeBucket(bucket.name))
                self._remember(bucket.name, shard)
            await self._run(shard, lambda each: each.createBucket(bucket))

        return Deferred.fromCoroutine(create())

    deleteBucket = _mutation("deleteBucket")
    setVersioning = _mutation("setVersioning")
    setObjectLock = _mutation("setObjectLock")
    putSettings = _mutation("putSettings")
    deleteObjects = _mutation("deleteObjects")
    putTags = _mutation("putTags")
    putAcl = _mutation("putAcl")
    putRetention = _mutation("putRetention")
    putLegalHold = _mutation("putLegalHold")
    abortUpload = _mutation("abortUpload")

    def createUpload(self, upload: MultipartUpload) -> Deferred[None]:
        """Create an upload."""
        return self._mutate(upload.bucket, lambda each: each.createUpload(upload))

    def completeUpload(
        self, uploadId: str, record: ObjectRecord, *more: Any
    ) -> Deferred[ObjectRecord]:
        """Assemble an upload into an object."""
        return self._mutate(
            record.bucket, lambda each: each.completeUpload(uploadId, record, *more)
        )

    def putObject(
        self,
        record: ObjectRecord,
        condition: WriteCondition,
        newBlobs: Mapping[str, int] = _NO_BLOBS,
    ) -> Deferred[ObjectRecord]:
        """Store an object."""
        return self._mutate(
            record.bucket,
            lambda each: each.putObject(record, condition, newBlobs),
            _copied(record.content, newBlobs),
        )

    def putPart(
        self,
        bucket: str,
        key: bytes,
        uploadId: str,
        part: Part,
        newBlobs: Mapping[str, int] = _NO_BLOBS,
    ) -> Deferred[None]:
        """Store a part."""
        return self._mutate(
            bucket,
            lambda each: each.putPart(bucket, key, uploadId, part, newBlobs),
            _copied(part.content, newBlobs),
        )

    def putProgress(self, task: str, document: bytes) -> Deferred[None]:
        """Store the progress of a background task."""
        return self._run(0, lambda first: first.putProgress(task, document))

    def addAccessKey(self, key: AccessKey) -> Deferred[None]:
        """Issue a key."""
        return self._run(0, lambda first: first.addAccessKey(key))

    def changeAccessKey(self, key: AccessKey) -> Deferred[bool]:
        """Change an issued key."""
        return self._run(0, lambda first: first.changeAccessKey(key))

    def removeAccessKey(self, accessKey: str) -> Deferred[bool]:
        """Revoke a key."""
        return self._run(0, lambda first: first.removeAccessKey(accessKey))

    def noteKeyUses(self, uses: Mapping[str, int]) -> Deferred[None]:
        """Record when keys were last used."""
        return self._run(0, lambda first: first.noteKeyUses(uses))

    async def keyUses(self) -> Mapping[str, int]:
        """Return when each key was last used."""
        return await self._known(0).keyUses()

    def forgetBlobs(self, ids: Sequence[str]) -> Deferred[None]:
        """Remove the rows of blobs whose bytes are gone."""
        return self._mutateAll(lambda each: each.forgetBlobs(ids))

    def markCorrupt(self, blob: str) -> Deferred[None]:
        """Record that a blob is corrupt."""
        return self._mutateAll(lambda each: each.markCorrupt(blob))

    def clearCorrupt(self, blob: str) -> Deferred[None]:
        """Record that a blob is intact again."""
        return self._mutateAll(lambda each: each.clearCorrupt(blob))

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

    def _mutate(
        self,
        bucket: str,
        mutate: Callable[[PostgreSQLCatalog], Deferred[T]],
        copied: Iterable[str] = (),
    ) -> Deferred[T]:
        """
        Mutate a bucket.

        @param mutate: Queues the mutation in the bucket's shard.
        @param copied: Blobs that the shard must already have.
        """
        shard = self._places.get(bucket)
        if shard is not None:
            return self._mutateIn(shard, mutate, copied)

        async def run() -> T:
            return await self._mutateIn(await self.shard(bucket) or 0, mutate, copied)

        return Deferred.fromCoroutine(run())

    def _mutateIn(
        self,
        shard: int,
        mutate: Callable[[PostgreSQLCatalog], Deferred[T]],
        copied: Iterable[str],
    ) -> Deferred[T]:
        """Mutate a bucket of a shard; see L{_mutate}."""
        done = self._run(shard, mutate)
        if any(shardOf(blob) != shard for blob in copied):
            done.addErrback(_elsewhere, shard)
        return done

    def _mutateAll(self, mutate: Callable[[PostgreSQLCatalog], Deferred[None]]) -> Deferred[None]:
        """Mutate all shards independently."""
        done = _all([self._run(number, mutate) for number in self.shards])
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


def _copied(content: Content, newBlobs: Mapping[str, int]) -> list[str]:
    """Return the blobs of a content that are not new."""
    return [segment.blob for segment in content.segments if segment.blob not in newBlobs]


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
