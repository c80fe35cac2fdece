"""
The catalog in a SQLite file.

L{RecordCache} caches recently read records, both current objects and versions by id. A look-up in
SQLite takes 9 microseconds, a third of a whole S3 HEAD request, and a cache hit 0.3. Only this
process changes objects; the data directory's lock ensures that (for several processes see
L{storagegate.storage.embedded.processgroup}). The writer removes all changed names, and with each
name all versions of the key, from the cache before the mutations' Deferreds fire, so a read that
begins after a mutation's result never returns older data. Absent objects are not cached.

There are three kinds of connection: one in the reactor thread, for look-ups; a few in pool threads,
for listings (L{ReaderPool}); and the writer's, in its own thread. All rows of a result are fetched
at once, because an unfinished statement keeps its snapshot open and blocks a restart of the WAL.
"""

import os
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from sqlite3 import Connection
from typing import Any, TypeVar

from attrs import define, field
from twisted.internet.defer import Deferred, fail
from twisted.logger import Logger
from zope.interface import implementer

from storagegate.storage.backends import BackEndContext, OpenCatalog
from storagegate.storage.embedded import (
    buckets,
    deletions,
    expiry,
    lists,
    objectlocks,
    objects,
    refcounts,
    uploads,
)
from storagegate.storage.embedded.connections import (
    Durability,
    Purpose,
    ReaderPool,
    connect,
    prepare,
    readSecret,
)
from storagegate.storage.embedded.groupcommit import (
    Apply,
    CatalogWriter,
    Committer,
    QueuedMutation,
    SequenceBlock,
    WriteLock,
    settleUnseen,
)
from storagegate.storage.embedded.logbinding import renewIncarnation
from storagegate.storage.embedded.reserve import Reserve
from storagegate.storage.embedded.usage import countOlder, readUsage
from storagegate.storage.embedded.wal import (
    CheckpointLock,
    CheckpointScheduler,
    WALCheckpointer,
    WALSizeCounter,
    prewriteBetweenCommits,
)
from storagegate.storage.errors import BucketExists
from storagegate.storage.files import FailStopLatch, syncDirectory
from storagegate.storage.identity import refuseLostCatalog
from storagegate.storage.interfaces import ICatalog
from storagegate.storage.layout import BlobIds, BlobLayout
from storagegate.storage.mutations import (
    AbortUpload,
    AddAccessKey,
    AddBucket,
    BlobMutation,
    BucketMutation,
    ChangeAccessKey,
    ClearCorrupt,
    CompleteUpload,
    CreateUpload,
    ForgetBlobs,
    MarkCorrupt,
    Mutation,
    NoteKeyUses,
    PutAcl,
    PutIdentities,
    PutLegalHold,
    PutObject,
    PutPart,
    PutProgress,
    PutRetention,
    PutSettings,
    PutTags,
    RemoveAccessKey,
    RemoveBucket,
    RemoveObjects,
    SetObjectLock,
    SetVersioning,
    T,
    noteDamage,
)
from storagegate.storage.ranges import ObjectRange, PartRange, UploadRange, VersionRange
from storagegate.storage.records import (
    AccessKey,
    AccountDocuments,
    BlobRow,
    Bucket,
    ExpiryRow,
    InlineCheck,
    InlinePosition,
    MultipartUpload,
    ObjectListing,
    ObjectRecord,
    OlderVersions,
    Part,
    StoreUsage,
    UploadListing,
    VersionListing,
)
from storagegate.storage.rows import readAttributes
from storagegate.storage.sqlite import OpenFiles, leave
from storagegate.storage.versionids import VersionIds

_log = Logger()

_UPLOAD = """
    SELECT u.account, u.startedMs, u.attributes, u.checksumAlgorithm, u.checksumKind
    FROM buckets AS b JOIN uploads AS u ON u.bucketId = b.id
    WHERE b.name = ? AND u.key = ? AND u.uploadId = ?
"""


LIMIT = 6 * 1024 * 1024
"""
The cache size in bytes: 1,200 objects of 4 KiB. Further memory is more useful as SQLite's page
cache.
"""

_ADMITTED = 8
# A full cache admits one in this many new records. Otherwise a loop over more objects than fit
# would evict each just before its next read (Qureshi et al., ISCA 2007: bimodal insertion).

# The bytes of a record without its inline bytes, and of each of its segments and parts.
_RECORD = 1024
_PIECE = 256

_BUCKETS = 1024
# The most cached buckets.

CachedObject = tuple[Bucket, ObjectRecord]

_CachedName = objects.Name | tuple[str, bytes, str]
"""The name of a current object, or of a version with its id as the third item."""


@define(eq=False)
class RecordCache:
    """A cache of recently read records, up to a number of bytes. Reactor thread."""

    _limit: int = LIMIT
    _size: int = field(default=0, init=False)
    _offered: int = field(default=0, init=False)
    _records: OrderedDict[_CachedName, CachedObject] = field(factory=OrderedDict, init=False)
    _versions: dict[objects.Name, set[_CachedName]] = field(factory=dict, init=False)
    _buckets: dict[str, Bucket] = field(factory=dict, init=False)

    def startRead(self) -> None:
        """Publish to other processes that the catalog file is about to be read."""

    def find(self, bucket: str, key: bytes, versionId: str | None = None) -> CachedObject | None:
        """
        Return a cached object and its bucket.

        @param versionId: A version's id; L{None} for the current object, which is also found by its
            own id.
        """
        name: _CachedName = (bucket, key) if versionId is None else (bucket, key, versionId)
        found = self._records.get(name)
        if found is None and versionId is not None:
            name = (bucket, key)
            found = self._records.get(name)
            if found is not None and found[1].versionId != versionId:
                return None
        if found is not None:
            self._records.move_to_end(name)
        return found

    def findBucket(self, name: str) -> Bucket | None:
        """Return a cached bucket."""
        return self._buckets.get(name)

    def addBucket(self, bucket: Bucket) -> None:
        """Cache a bucket."""
        if len(self._buckets) >= _BUCKETS:
            self._buckets.clear()
        self._buckets[bucket.name] = bucket

    def add(self, bucket: Bucket, record: ObjectRecord, versionId: str | None = None) -> None:
        """
        Cache a record. A full cache admits only some, in place of the least recently used.

        @param versionId: The id by which it was looked up; L{None} for the current object.
        """
        weight = _weight(record)
        if self._size + weight > self._limit:
            self._offered += 1
            if self._offered % _ADMITTED:
                return
        key = (record.bucket, record.key)
        name: _CachedName = key if versionId is None else (*key, versionId)
        if versionId is not None:
            self._versions.setdefault(key, set()).add(name)
        replaced = self._records.pop(name, None)
        if replaced is not None:
            self._size -= _weight(replaced[1])
        self._records[name] = (bucket, record)
        self._size += weight
        while self._size > self._limit:
            self._remove(next(iter(self._records)))

    def forget(self, names: Iterable[objects.Name]) -> None:
        """
        Remove records that have changed or are about to change, and all versions of their keys.

        @param names: Buckets and keys. An empty key stands for the bucket itself and removes all
            its records, because each is cached with its bucket.
        """
        for name in names:
            if not name[1]:
                self._buckets.pop(name[0], None)
                for each in [each for each in self._records if each[0] == name[0]]:
                    self._remove(each)
                continue
            found = self._records.pop(name, None)
            if found is not None:
                self._size -= _weight(found[1])
            if name in self._versions:
                for each in tuple(self._versions[name]):
                    self._remove(each)

    def _remove(self, name: _CachedName) -> None:
        self._size -= _weight(self._records.pop(name)[1])
        if len(name) == 3:
            key = name[:2]
            versions = self._versions[key]
            versions.remove(name)
            if not versions:
                del self._versions[key]

    def clear(self) -> None:
        """Remove everything."""
        self._records.clear()
        self._versions.clear()
        self._buckets.clear()
        self._size = 0


def _weight(record: ObjectRecord) -> int:
    content, attributes = record.content, record.attributes
    pieces = len(content.segments) + len(attributes.parts)
    return _RECORD + len(content.inline or b"") + _PIECE * pieces


@define
class SharedCatalogState:
    """
    The state that the catalogs of several processes share; by default, the state of a single
    process.

    @ivar isShared: Whether there may be other processes.
    """

    cache: RecordCache = field(factory=RecordCache)
    latch: FailStopLatch = field(factory=FailStopLatch)
    writeLock: WriteLock = field(factory=WriteLock)
    walSize: WALSizeCounter = field(factory=WALSizeCounter)
    checkpointLock: CheckpointLock = field(factory=CheckpointLock)
    isShared: bool = False


_STUCK_SECONDS = 5.0
"""A commit takes milliseconds; a longer wait for another process is reported as a problem."""


M = TypeVar("M", bound=Mutation[Any])
B = TypeVar("B", bound=BucketMutation[Any])
Prepare = Callable[[VersionIds, M], QueuedMutation]


def _row(kind: type[M], prepare: Prepare[M]) -> tuple[type[Mutation[Any]], Prepare[Any]]:
    return kind, prepare


def _inBucket(kind: type[B], apply: Apply) -> tuple[type[Mutation[Any]], Prepare[Any]]:
    """Change a bucket: all records cached with it are removed before the result fires."""

    def prepare(ids: VersionIds, change: B) -> QueuedMutation:
        return QueuedMutation(apply, change, names=((change.bucketName, b""),))

    return kind, prepare


MUTATIONS = dict(
    (
        _row(PutObject, objects.storing),
        _row(RemoveObjects, deletions.deletion),
        _row(PutTags, objects.tagging),
        _row(PutAcl, objects.aclChange),
        _row(PutRetention, objectlocks.retention),
        _row(PutLegalHold, objectlocks.legalHold),
        _row(CreateUpload, uploads.creation),
        _row(PutPart, lambda ids, change: QueuedMutation(uploads.putPart, change)),
        _row(CompleteUpload, uploads.completion),
        _row(AbortUpload, lambda ids, change: QueuedMutation(uploads.abortUpload, change, True)),
        _row(AddBucket, lambda ids, change: QueuedMutation(buckets.createBucket, change.created)),
        _row(RemoveBucket, buckets.deletion),
        _inBucket(SetVersioning, buckets.setVersioning),
        _inBucket(SetObjectLock, objectlocks.setObjectLock),
        _inBucket(PutSettings, buckets.putSettings),
        _row(PutProgress, lambda ids, change: QueuedMutation(expiry.putProgress, change)),
        _row(AddAccessKey, lambda ids, change: QueuedMutation(buckets.addAccessKey, change.key)),
        _row(
            ChangeAccessKey,
            lambda ids, change: QueuedMutation(buckets.changeAccessKey, change.key),
        ),
        _row(
            RemoveAccessKey,
            lambda ids, change: QueuedMutation(buckets.removeAccessKey, change.accessKey, True),
        ),
        _row(PutIdentities, lambda ids, change: QueuedMutation(buckets.putIdentities, change)),
        _row(NoteKeyUses, lambda ids, change: QueuedMutation(buckets.noteKeyUses, change.uses)),
        _row(
            ForgetBlobs,
            lambda ids, change: QueuedMutation(refcounts.forgetBlobs, change.ids, True),
        ),
        _row(MarkCorrupt, lambda ids, change: QueuedMutation(refcounts.markCorrupt, change.blob)),
        _row(ClearCorrupt, lambda ids, change: QueuedMutation(refcounts.clearCorrupt, change.blob)),
    )
)
"""Prepares each mutation for the writer."""


@implementer(ICatalog)
class SQLiteCatalog:
    """
    The embedded catalog. Methods: reactor thread.

    Look-ups do not suspend, so callers lease blobs in the same reactor iteration. Mutations return
    L{UncancellableDeferred<storagegate.storage.mutations.UncancellableDeferred>}s.
    """

    isRemote = False

    recentBucket = None
    keysStaleSeconds = None
    onKeysChanged: Callable[[], object] | None = None
    graceSeconds = 0.0

    def __init__(
        self,
        path: str,
        reactor: Any,
        run: Callable[..., Deferred[Any]],
        durability: str,
        onGarbage: Callable[[list[str]], object],
        state: SharedCatalogState | None = None,
        newBlobId: Callable[..., str] | None = None,
    ) -> None:
        """
        Create the file if it does not exist, migrate it, and connect. Blocks.

        Call this in the process that uses the catalog, because connections do not survive a fork.

        @param path: The file. A file C{reserve} beside it reserves disk space for deletes.
        @param reactor: Provides C{IReactorFromThreads} and C{IReactorTime}.
        @param run: C{run(function, *args)} calls in a thread and fires in the reactor thread.
        @param durability: C{"full"}, or C{"os"} for no fsyncs.
        @param onGarbage: Called after a commit with the blobs that have lost their last reference.
        @param state: The state shared with other processes that have the catalog open.
        @param newBlobId: Generates blob ids; random by default.
        @raise CatalogUnusable: The file is not a catalog, or a newer program wrote it.
        """
        self._state = state = state or SharedCatalogState()
        self._latch = latch = state.latch
        self._cache = state.cache
        self.newBlobId = newBlobId or BlobIds().new
        kind = Durability(durability)
        prepare(path, kind)
        openFor = partial(connect, path, kind)
        self._connection = openFor(Purpose.SHARED_REACTOR if state.isShared else Purpose.REACTOR)
        self._secret = readSecret(self._connection)
        self._versionIds = VersionIds(self._secret)
        self._corrupt = refcounts.corruptBlobs(self._connection)
        self._readers = ReaderPool(run, partial(openFor, Purpose.POOL))
        directory = os.path.dirname(os.path.abspath(path))
        connection = openFor(Purpose.WRITER)
        if not state.isShared and latch.failure is None:
            renewIncarnation(connection, path, kind is Durability.FULL)
        wal = WALCheckpointer(
            connection, directory, latch, size=state.walSize, lock=state.checkpointLock
        )
        reserve = Reserve(os.path.join(directory, "reserve"), state.isShared)
        if latch.failure is None:
            with state.writeLock:
                self._makeFiles(connection, path, reserve, kind)
        self._checkpoints = CheckpointScheduler(self._readers.run, openFor(Purpose.CHECKPOINT), wal)
        onMoved = partial(latch.set, isMarked=False)
        self._openFiles = OpenFiles([path, f"{path}-wal"], onMoved)
        sequences = None if state.isShared else SequenceBlock()
        self._committer = Committer(
            connection, reserve, latch, wal, OpenFiles([path], onMoved), sequences
        )
        self._writer = CatalogWriter(
            reactor,
            self._committer,
            self._cache.forget,
            onGarbage,
            self._checkpoints.schedule,
            state.writeLock,
        )

    def close(self) -> Deferred[None]:
        """Commit waiting mutations, checkpoint the WAL, and close. Call once."""
        return Deferred.fromCoroutine(self._close())

    async def _close(self) -> None:
        stopping = self._writer.stop()
        await self._readers.close()
        await stopping
        self._checkpoints.close()
        leave(self._connection)
        await self._writer.close()

    def _makeFiles(
        self, connection: Connection, path: str, reserve: Reserve, durability: Durability
    ) -> None:
        """Preallocate the WAL and create the reserve. The caller holds the write lock."""
        try:
            if durability is Durability.FULL:
                prewriteBetweenCommits(connection, f"{path}-wal")
                # SQLite syncs the name of a new log, but hides errors.
                syncDirectory(os.path.dirname(os.path.abspath(path)))
        except OSError as error:
            self._latch.set(f"fsync of the log failed: {error.strerror or error}")
            return
        try:
            reserve.ensure()
        except OSError as error:
            # The first commit retries.
            _log.error("cannot create the reserve: {error}", error=str(error))

    @property
    def waiting(self) -> int:
        """How many mutations wait for a commit."""
        return self._writer.waiting

    def measure(
        self, mutations: Callable[[int], object], seconds: Callable[[float], object]
    ) -> None:
        """See L{ICatalog.measure}."""
        self._writer.meters = (mutations, seconds)

    @property
    def failure(self) -> str | None:
        """Why nothing more is written until a restart; L{None} while writes are possible."""
        return self._latch.failure

    def health(self) -> Mapping[str, str | None]:
        """See L{ICatalog.health}."""
        self._openFiles.check()
        waited = self._state.writeLock.waitedSeconds
        stuck = f"another process has been writing for {waited:.0f} s"
        return {
            "catalog": self.failure
            or self._writer.problem
            or self._checkpoints.problem
            or (stuck if waited > _STUCK_SECONDS else None)
        }

    async def bucket(self, name: str) -> Bucket | None:
        """Look up a bucket."""
        bucket = self._cache.findBucket(name)
        if bucket is None:
            bucket = buckets.readBucket(self._connection, name)
            if bucket is not None:
                self._cache.addBucket(bucket)
        return bucket

    async def object(
        self, bucket: str, key: bytes, versionId: str | None = None, *, verify: bool = False
    ) -> tuple[Bucket | None, ObjectRecord | None]:
        """Look up a bucket and an object in it. C{verify} bypasses the cache."""
        if verify:
            self._cache.startRead()
        else:
            cached = self._cache.find(bucket, key, versionId)
            if cached is not None:
                return cached
        if versionId is None:
            found, record = objects.lookUp(self._connection, bucket, key, verify)
        else:
            sequence = self._versionIds.read(versionId)
            found, record = objects.lookUpVersion(self._connection, bucket, key, sequence, verify)
        if found is not None and record is not None and not verify:
            self._cache.add(found, record, versionId)
        return found, record

    async def deleteMarker(self, bucket: str, key: bytes) -> ObjectRecord | None:
        """Look up the newest version of a key if it is a delete marker."""
        return objects.lookUpMarker(self._connection, bucket, key)

    async def completed(self, bucket: str, key: bytes, uploadId: str) -> ObjectRecord | None:
        """Look up the version that an upload's completion created."""
        return await self._readers.read(objects.lookUpCompleted, bucket, key, uploadId)

    async def settings(self, bucket: str) -> tuple[int, Mapping[str, bytes]]:
        """Read the settings of a bucket and their generation."""
        return buckets.readSettings(self._connection, bucket)

    async def upload(self, bucket: str, key: bytes, uploadId: str) -> MultipartUpload | None:
        """Look up an upload."""
        rows = self._connection.execute(_UPLOAD, (bucket, key, uploadId)).fetchall()
        if not rows:
            return None
        account, startedMs, attributes, *checksum = rows[0]
        return MultipartUpload(
            bucket, key, uploadId, account, startedMs, readAttributes(attributes), *checksum
        )

    def checkVersionId(self, versionId: str) -> None:
        """Check that this catalog may have issued a version id."""
        self._versionIds.read(versionId)

    def secret(self) -> bytes:
        """Return the store's secret."""
        return self._secret

    async def usage(self, limit: int) -> StoreUsage:
        """Read the usage of the buckets: a thousand take a millisecond."""
        return readUsage(self._connection, limit)

    async def olderVersions(self, bucket: str, limit: int) -> OlderVersions | None:
        """Count the older versions in a bucket."""
        return await self._readers.read(countOlder, bucket, limit)

    async def accessKeys(self) -> tuple[int, list[AccessKey]]:
        """Read the issued keys and their generation."""
        return buckets.readAccessKeys(self._connection)

    async def keysGeneration(self) -> int:
        """Read the generation of the keys."""
        return buckets.readKeysGeneration(self._connection)

    async def identities(self, after: int) -> tuple[int, dict[str, AccountDocuments]]:
        """Read the documents of the accounts that have changed after a revision."""
        return buckets.readIdentities(self._connection, after)

    def findBlobs(self, ids: Sequence[str]) -> frozenset[str]:
        """Find which of these blobs have a row."""
        return refcounts.knownBlobs(self._connection, ids)

    def settle(self) -> None:
        """
        Overwrite an unseen commit, so that blobs unknown to L{findBlobs} may be removed. Blocks;
        call before the first mutation.

        @raise StoreError: An unseen commit may remain.
        """
        self._committer.settle()

    async def knownBlobs(self, ids: Sequence[str]) -> frozenset[str]:
        """Find which of these blobs have a row, after a commit that overwrites an unseen one."""
        await self._writer.submit(QueuedMutation(settleUnseen, None, frees=True))
        return self.findBlobs(ids)

    def corruptBlobs(self) -> frozenset[str]:
        """Return the blobs that were marked before opening, or by this process."""
        return frozenset(self._corrupt)

    async def objectsOf(
        self, blobs: Sequence[str], limit: int
    ) -> list[tuple[str, bytes, str, str]]:
        """Find blob, key, bucket and version of the objects that have bytes in given blobs."""
        return await self._readers.read(refcounts.objectsOf, blobs, limit)

    def commit(self, mutation: Mutation[T]) -> Deferred[T]:
        """See L{ICatalog.commit}."""
        if isinstance(mutation, BlobMutation):
            noteDamage(self._corrupt, mutation)
        if isinstance(mutation, AddBucket):
            existing = self._shownBucket(mutation.created.name)
            if existing is not None and existing.account != mutation.created.account:
                return fail(BucketExists(existing))
        return self._writer.submit(MUTATIONS[type(mutation)](self._versionIds, mutation))

    def _shownBucket(self, name: str) -> Bucket | None:
        """
        Return the bucket by which requests are decided on now.

        If a new bucket could follow the removal of this one in the queue, a write of the previous
        account that was already decided on would be applied to the bucket of another account.
        """
        cached = self._cache.findBucket(name) if self._writer.waiting else None
        return cached or buckets.readBucket(self._connection, name)

    async def buckets(
        self, account: str | None, prefix: str, after: str, limit: int
    ) -> list[Bucket]:
        """List buckets."""
        return await self._readers.read(lists.listBuckets, account, prefix, after, limit)

    async def listObjects(self, page: ObjectRange) -> ObjectListing:
        """List a page of objects."""
        return await self._readers.read(lists.listObjects, page)

    async def listVersions(self, page: VersionRange) -> VersionListing:
        """List a page of versions."""
        return await self._readers.read(lists.listVersions, self._versionIds, page)

    async def parts(self, page: PartRange) -> list[Part]:
        """List a page of the parts of an upload."""
        return await self._readers.read(lists.listParts, page)

    async def uploads(self, page: UploadRange) -> UploadListing:
        """List a page of uploads in progress."""
        return await self._readers.read(lists.listUploads, page)

    async def referenced(self, ids: Sequence[str]) -> frozenset[str]:
        """Find which of these blobs have references."""
        return await self._readers.read(refcounts.knownBlobs, ids, True)

    async def garbage(self, after: str, limit: int) -> list[str]:
        """List blobs without references."""
        return await self._readers.read(refcounts.listBlobs, after, limit, False)

    async def blobRow(self, id: str) -> BlobRow | None:
        """Look up a blob."""
        return refcounts.blobRow(self._connection, id)

    async def blobRows(self, after: str, limit: int) -> list[BlobRow]:
        """List all blobs."""
        return await self._readers.read(refcounts.blobRows, after, limit)

    async def checkInline(self, start: InlinePosition | None, limit: int) -> InlineCheck:
        """Check the inline bytes of a page of objects."""
        return await self._readers.read(objects.checkInline, start, limit)

    async def expiryPage(
        self, bucket: str, prefix: bytes, after: tuple[bytes, int] | None, limit: int
    ) -> list[ExpiryRow]:
        """Read a page of versions to find expired ones."""
        return await self._readers.read(expiry.readPage, bucket, prefix, after, limit)

    async def bucketsWith(self, setting: str, after: str, limit: int) -> list[str]:
        """List the names of buckets that have a setting."""
        return await self._readers.read(expiry.bucketsWith, setting, after, limit)

    async def progress(self, task: str) -> bytes | None:
        """Read the progress of a background task."""
        return expiry.readProgress(self._connection, task)

    async def keyUses(self) -> Mapping[str, int]:
        """Read when each key was last used."""
        return buckets.readKeyUses(self._connection)


def openCatalog(context: BackEndContext) -> OpenCatalog:
    """
    Open C{catalog.sqlite} in the data directory. Blocks.

    @param context: The context; its C{catalogState} is shared with the other processes, if any.
    @raise CatalogUnusable: The file is not a catalog, a newer program wrote it, or it is lost.
    """
    refuseLostCatalog(BlobLayout(context.directory), context.files)
    catalog = SQLiteCatalog(
        os.path.join(context.directory, "catalog.sqlite"),
        context.reactor,
        context.pool.run,
        context.durability,
        context.onGarbage,
        context.catalogState or SharedCatalogState(latch=context.latch),
        BlobIds(context.random, context.owner).new,
    )
    return OpenCatalog(catalog, catalog.findBlobs, catalog.settle)
