"""
The catalog in a SQLite file.

There are three kinds of connection: the reactor thread's, for look-ups; up to L{READERS} in pool
threads, for lists; the writer's, in its own thread. All rows of a result are fetched at once: a
statement that is not finished keeps its snapshot open, so that the WAL could not be restarted.
"""

import os
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from sqlite3 import Connection
from types import MappingProxyType
from typing import Any, TypeVar

from attrs import define, field
from twisted.internet.defer import Deferred, fail, succeed
from zope.interface import implementer

from storagegate.storage.backends import BackEndContext, OpenCatalog
from storagegate.storage.blobs.layout import BlobIds
from storagegate.storage.catalog import buckets, lists, objects, refcounts, uploads
from storagegate.storage.catalog.connections import Durability, Purpose, connect, prepare
from storagegate.storage.catalog.lists import KeyRange
from storagegate.storage.catalog.transactions import (
    OBJECT_COLUMNS,
    Mutation,
    isIntact,
    oneByOne,
    readAttributes,
    readObject,
)
from storagegate.storage.catalog.wal import (
    CheckpointScheduler,
    Reserve,
    WALCheckpointer,
    prewriteBetweenCommits,
)
from storagegate.storage.catalog.writer import (
    CatalogWriter,
    Committer,
    SharedCatalogState,
    WriterReactor,
)
from storagegate.storage.errors import CorruptObject, StoreBusy
from storagegate.storage.interfaces import ICatalog
from storagegate.storage.records import (
    AccessKey,
    BlobRow,
    Bucket,
    InlineCheck,
    InlinePosition,
    MultipartUpload,
    ObjectListing,
    ObjectRecord,
    Part,
    WriteCondition,
)

_OBJECT = f"""
    SELECT b.account, b.createdMs, b.region, i.bytes, {OBJECT_COLUMNS}{{more}}
    FROM buckets AS b LEFT JOIN objects AS o ON o.bucketId = b.id AND o.key = ?
    LEFT JOIN inline AS i USING (sequence)
    WHERE b.name = ?
"""
_PLAIN = _OBJECT.format(more="")
_WITH_CHECKSUM = _OBJECT.format(more=", o.storageChecksum")
_UPLOAD = """
    SELECT u.account, u.startedMs, u.attributes, u.checksumAlgorithm, u.checksumKind
    FROM buckets AS b JOIN uploads AS u ON u.bucketId = b.id
    WHERE b.name = ? AND u.key = ? AND u.uploadId = ?
"""

_SEQUENCE = 6


T = TypeVar("T")


def lookUp(
    connection: Connection, bucket: str, key: bytes, versionId: str | None, verify: bool = False
) -> tuple[Bucket | None, ObjectRecord | None]:
    """See L{ICatalog.object}. Blocks."""
    rows = connection.execute(_WITH_CHECKSUM if verify else _PLAIN, (key, bucket)).fetchall()
    if not rows:
        return None, None
    ((account, createdMs, region, inline, *columns),) = rows
    found = Bucket(bucket, account, createdMs, region)
    checksum = columns.pop() if verify else None
    # Without a sequence there is no such object.
    if columns[_SEQUENCE] is None:
        return found, None
    record = readObject(bucket, key, inline, columns)
    if versionId is not None and record.versionId != versionId:
        return found, None
    if verify and not isIntact(inline, checksum):
        raise CorruptObject(f"object {bucket}/{key!r} is damaged")
    return found, record


READERS = 3
"""
Reads at a time: two lists, and a check or a collection. A list is bound by the interpreter's lock:
sixteen at once were no faster than two, and each has some 3 MB in memory.
"""

MAX_WAITING = 2048
"""Reads that may wait: as many as the pool lets wait."""


@define(eq=False)
class _Read:
    """A read that waits or runs."""

    function: Callable[..., Any]
    arguments: tuple[object, ...]
    result: Deferred[Any] = field(factory=Deferred)


@define(eq=False)
class ReaderSlot:
    """The right of one read to run; its connection is kept for the next."""

    connection: Connection | None = None


class ReaderPool:
    """
    Reads in the pool, a few at a time. Methods: reactor thread, unless they say otherwise.

    @param run: C{run(function, *args)} calls in a thread and fires in the reactor thread.
    @param connect: Opens a connection.
    """

    def __init__(
        self, run: Callable[..., Deferred[Any]], connect: Callable[[], Connection]
    ) -> None:
        self._run = run
        self._connect = connect
        self._slots = [ReaderSlot() for _ in range(READERS)]
        # The last one to be free is the next to be taken: its page cache is the warmest.
        self._free = list(self._slots)
        self._waiting: deque[_Read] = deque()
        self._isAssigning = False
        self._busy = 0
        self._closed: Deferred[None] | None = None

    def read(self, function: Callable[..., T], *arguments: object) -> Deferred[T]:
        """
        Call C{function(connection, *arguments)} in a thread.

        A read that is cancelled while it runs continues to its end; its result is dropped.
        """
        if self._closed is not None:
            return fail(StoreBusy("the catalog is closed"))
        if len(self._waiting) >= MAX_WAITING:
            return fail(StoreBusy("too many lists wait"))
        read = _Read(function, arguments)
        self._waiting.append(read)
        self._assign()
        return read.result

    def run(self, function: Callable[..., T], *arguments: object) -> Deferred[T]:
        """Call a function in a thread; L{close} waits for it."""
        if self._closed is not None:
            return fail(StoreBusy("the catalog is closed"))
        self._busy += 1
        return self._run(function, *arguments).addBoth(self._ended)

    def close(self) -> Deferred[None]:
        """Wait for what runs, then close the connections. Once."""
        self._closed = Deferred() if self._busy else succeed(None)
        while self._waiting:
            self._waiting.popleft().result.errback(StoreBusy("the catalog is closed"))
        return self._closed.addCallback(self._closeAll)

    def _assign(self) -> None:
        """Assign free slots to reads that wait."""
        if self._isAssigning:
            # A busy pool refuses synchronously: the slot is free again, and the loop below runs.
            return
        self._isAssigning = True
        while self._waiting and self._free:
            read = self._waiting.popleft()
            # Else it was cancelled.
            if not read.result.called:
                slot = self._free.pop()
                self.run(self._readHere, slot, read).addBoth(self._leave, slot, read)
        self._isAssigning = False

    def _readHere(self, slot: ReaderSlot, read: _Read) -> Any:
        """Read with the slot's connection. Pool thread."""
        if slot.connection is None:
            slot.connection = self._connect()
        return read.function(slot.connection, *read.arguments)

    def _leave(self, result: Any, slot: ReaderSlot, read: _Read) -> None:
        self._free.append(slot)
        self._assign()
        read.result.callback(result)

    def _ended(self, result: T) -> T:
        self._busy -= 1
        if not self._busy and self._closed is not None:
            self._closed.callback(None)
        return result

    def _closeAll(self, _: None) -> None:
        for slot in self._slots:
            if slot.connection is not None:
                slot.connection.close()
                slot.connection = None


_STUCK_SECONDS = 5.0
"""A commit takes milliseconds: to wait longer for that of another process is a problem."""

_NO_BLOBS: Mapping[str, int] = MappingProxyType({})

# Bytes that a segment, and the summary of its part, take in a row.
_SEGMENT_WEIGHT = 200

_CREATE_BUCKET = oneByOne(buckets.createBucket)
_DELETE_BUCKET = oneByOne(buckets.deleteBucket)
_CREATE_UPLOAD = oneByOne(uploads.createUpload)
_PUT_PART = oneByOne(uploads.putPart)
_COMPLETE_UPLOAD = oneByOne(uploads.completeUpload)
_ABORT_UPLOAD = oneByOne(uploads.abortUpload)


@implementer(ICatalog)
class SQLiteCatalog:
    """
    The embedded catalog. Methods: reactor thread.

    A look-up does not suspend, so its caller takes leases on blobs in the same reactor iteration.
    Mutations return
    L{UncancellableDeferred<storagegate.storage.catalog.writer.UncancellableDeferred>}s.
    """

    bucketStaleSeconds = 0.0
    graceSeconds = 0.0

    def __init__(
        self,
        path: str,
        reactor: WriterReactor,
        run: Callable[..., Deferred[Any]],
        durability: str,
        onGarbage: Callable[[list[str]], object],
        state: SharedCatalogState | None = None,
        newBlobId: Callable[[], str] | None = None,
    ) -> None:
        """
        Configure a catalog; L{open} opens it.

        @param path: The file. A file C{reserve} beside it reserves disk space for deletes.
        @param run: C{run(function, *args)} calls in a thread and fires in the reactor thread.
        @param durability: C{"full"}, or C{"os"} for no fsyncs.
        @param onGarbage: Called with blobs that have lost their last reference, after the commit.
        @param state: The state that is shared with other processes that have the catalog open.
        @param newBlobId: Makes ids of blobs; by default random ones.
        """
        self._path = path
        self._durability = Durability(durability)
        self._reactor = reactor
        self._run = run
        self._onGarbage = onGarbage
        self._state = state or SharedCatalogState()
        self._latch = self._state.latch
        self.newBlobId = newBlobId or BlobIds().new
        self._cache = self._state.cache

    def open(self) -> None:
        """
        Make the file if there is none, migrate it, and connect. Blocks. Once.

        Call it in the process that uses the catalog: connections do not survive a fork.

        @raise CatalogUnusable: The file is no catalog, or a newer program wrote it.
        """
        prepare(self._path, self._durability)
        isShared, writeLock = self._state.isShared, self._state.writeLock
        self._connection = self._connect(Purpose.SHARED_REACTOR if isShared else Purpose.REACTOR)
        rows = self._connection.execute("SELECT value FROM meta WHERE name = 'secret'").fetchall()
        self._secret: bytes = rows[0][0]
        self._corrupt = set(refcounts.corruptBlobs(self._connection))
        self._readers = ReaderPool(self._run, partial(self._connect, Purpose.POOL))
        directory = os.path.dirname(os.path.abspath(self._path))
        connection = self._connect(Purpose.WRITER)
        wal = WALCheckpointer(connection, directory, self._latch, size=self._state.walSize)
        reserve = Reserve(os.path.join(directory, "reserve"), isShared)
        with writeLock:
            if self._durability is Durability.FULL:
                prewriteBetweenCommits(connection, f"{self._path}-wal")
            reserve.ensure()
        self._checkpoints = CheckpointScheduler(
            self._readers.run, self._connect(Purpose.CHECKPOINT), wal, self._latch
        )
        self._writer = CatalogWriter(
            self._reactor,
            Committer(connection, reserve, self._latch, wal),
            self._cache.forget,
            self._onGarbage,
            self._checkpoints.schedule,
            writeLock,
        )

    def close(self) -> Deferred[None]:
        """Commit what waits, copy all to the one file, and close. Once."""
        return Deferred.fromCoroutine(self._close())

    async def _close(self) -> None:
        closing = self._writer.stop()
        await self._readers.close()
        self._checkpoints.close()
        self._connection.close()
        await closing

    @property
    def waiting(self) -> int:
        """How many mutations wait for a commit."""
        return self._writer.waiting

    def measure(self, onBatch: Callable[[int, float], object]) -> None:
        """
        See L{ICatalog.measure}.

        @param onBatch: Called with the number of its mutations and the seconds that it took.
        """
        self._writer.onBatch = onBatch

    @property
    def failure(self) -> str | None:
        """Why nothing more is written until a restart; L{None} while writes are possible."""
        return self._latch.failure

    def health(self) -> Mapping[str, str | None]:
        """See L{ICatalog.health}."""
        waited = self._state.writeLock.waitedSeconds
        stuck = f"another process has been writing for {waited:.0f} s"
        return {"catalog": self.failure or (stuck if waited > _STUCK_SECONDS else None)}

    async def bucket(self, name: str) -> Bucket | None:
        """
        Look a bucket up.

        @param name: The bucket's name as in the request; it is compared byte for byte.
        """
        bucket = self._cache.findBucket(name)
        if bucket is None:
            rows = self._connection.execute(
                "SELECT name, account, createdMs, region FROM buckets WHERE name = ?", (name,)
            ).fetchall()
            if rows:
                bucket = Bucket(*rows[0])
                self._cache.addBucket(bucket)
        return bucket

    async def object(
        self, bucket: str, key: bytes, versionId: str | None = None, *, verify: bool = False
    ) -> tuple[Bucket | None, ObjectRecord | None]:
        """
        Look up a bucket and an object in it; with C{verify} in the file, not in the cache.

        @param bucket: The bucket's name; the result has no record if the bucket does not exist.
        @param key: The object's key in UTF-8.
        @param versionId: An object with another version id is not found; L{None} accepts any.
        @param verify: Whether the content's C{inline} is compared with its storage checksum.
        """
        if verify:
            self._cache.startRead()
        else:
            cached = self._cache.find(bucket, key)
            if cached is not None and versionId in (None, cached[1].versionId):
                return cached
        found, record = lookUp(self._connection, bucket, key, versionId, verify)
        if found is not None and record is not None and not verify:
            self._cache.add(found, record)
        return found, record

    async def upload(self, bucket: str, key: bytes, uploadId: str) -> MultipartUpload | None:
        """
        Look an upload up.

        @param bucket: The bucket's name; an upload of another bucket is not found.
        @param key: The key in UTF-8 that the upload was created for; with another key it is not
            found.
        @param uploadId: The id that the upload was created with.
        """
        rows = self._connection.execute(_UPLOAD, (bucket, key, uploadId)).fetchall()
        if not rows:
            return None
        account, startedMs, attributes, *checksum = rows[0]
        return MultipartUpload(
            bucket, key, uploadId, account, startedMs, readAttributes(attributes), *checksum
        )

    def secret(self) -> bytes:
        """Return the store's own random bytes."""
        return self._secret

    async def accessKeys(self) -> tuple[int, list[AccessKey]]:
        """Read the issued keys and their generation."""
        return buckets.readSnapshot(self._connection)

    async def keysGeneration(self) -> int:
        """Read the number that changes with the keys."""
        return buckets.readKeysGeneration(self._connection)

    def findBlobs(self, ids: Sequence[str]) -> frozenset[str]:
        """Find which of these blobs have a row."""
        return refcounts.knownBlobs(self._connection, ids)

    async def knownBlobs(self, ids: Sequence[str]) -> frozenset[str]:
        """
        Find which of these blobs have a row.

        @param ids: Blob ids; those without a row are absent from the result.
        """
        return self.findBlobs(ids)

    def corruptBlobs(self) -> frozenset[str]:
        """Return the blobs that were marked before, or by this process."""
        return frozenset(self._corrupt)

    async def buckets(
        self, account: str | None, prefix: str, after: str, limit: int
    ) -> list[Bucket]:
        """
        List buckets.

        @param account: Only those of this account; L{None} lists all.
        @param prefix: Only names that begin with it; empty lists all.
        @param after: Names strictly after this one; empty begins.
        @param limit: The most buckets in the result.
        """
        return await self._readers.read(lists.listBuckets, account, prefix, after, limit)

    async def listObjects(
        self,
        bucket: str,
        prefix: bytes,
        delimiter: bytes,
        after: bytes,
        limit: int,
        contentTypes: bool = False,
    ) -> ObjectListing:
        """
        List a page of objects.

        @param bucket: The bucket's name.
        @param prefix: Only keys that begin with it.
        @param delimiter: Empty, or the text that ends a common prefix (searched behind C{prefix}).
        @param after: Start strictly after this. If it equals a common prefix of this query (starts
            with C{prefix}, ends with C{delimiter}), the whole group is skipped.
        @param limit: Objects and common prefixes together; 0 gives an empty page with no C{last}.
        @param contentTypes: Whether the rows have their content types, which are parsed from the
            attributes of each.
        """
        where = KeyRange(prefix, delimiter, after)
        return await self._readers.read(lists.listObjects, bucket, where, limit, contentTypes)

    async def parts(
        self, bucket: str, key: bytes, uploadId: str, after: int, limit: int
    ) -> list[Part]:
        """
        List parts of an upload.

        @param bucket: The bucket's name.
        @param key: The key in UTF-8 that the upload was created for.
        @param uploadId: The id of the upload whose parts are listed.
        @param after: Numbers strictly after this one; 0 begins.
        @param limit: The most parts in the result.
        """
        return await self._readers.read(lists.listParts, bucket, key, uploadId, after, limit)

    async def uploads(
        self,
        bucket: str,
        prefix: bytes,
        delimiter: bytes,
        keyAfter: bytes,
        idAfter: str,
        limit: int,
    ) -> tuple[list[MultipartUpload], list[str], tuple[str, str] | None]:
        """
        List uploads in progress.

        @param bucket: The bucket's name.
        @param prefix: Only keys that begin with it.
        @param delimiter: As for L{listObjects}.
        @param keyAfter: Keys strictly after this one; empty begins.
        @param idAfter: With C{keyAfter}: uploads of that very key with a greater id are included;
            empty: only keys strictly after C{keyAfter}.
        @param limit: Uploads and common prefixes together.
        """
        where = KeyRange(prefix, delimiter, keyAfter)
        return await self._readers.read(lists.listUploads, bucket, where, idAfter, limit)

    async def referenced(self, ids: Sequence[str]) -> frozenset[str]:
        """
        Find which of these blobs have references.

        @param ids: Blob ids; those without a row count as not referenced.
        """
        return await self._readers.read(refcounts.referencedBlobs, ids)

    async def garbage(self, after: str, limit: int) -> list[str]:
        """
        List blobs without references.

        @param after: Ids strictly after this one; empty begins.
        @param limit: The most ids in the result.
        """
        return await self._readers.read(refcounts.garbageBlobs, after, limit)

    async def blobRow(self, id: str) -> BlobRow | None:
        """
        Look a blob up.

        @param id: The blob's id; the result is L{None} if it has no row.
        """
        return refcounts.blobRow(self._connection, id)

    async def blobRows(self, after: str, limit: int) -> list[BlobRow]:
        """
        List all blobs.

        @param after: Ids strictly after this one; empty begins.
        @param limit: The most rows in the result.
        """
        return await self._readers.read(refcounts.blobRows, after, limit)

    async def checkInline(self, start: InlinePosition | None, limit: int) -> InlineCheck:
        """
        Check the inline bytes of a page of objects.

        @param start: The C{next} of the page before; L{None} begins.
        @param limit: Objects in the page.
        """
        return await self._readers.read(refcounts.checkInline, start, limit)

    def createBucket(self, bucket: Bucket) -> Deferred[None]:
        """
        Create a bucket.

        @param bucket: The new bucket; its name is unique among all accounts.
        """
        return self._writer.submit(Mutation(_CREATE_BUCKET, bucket))

    def deleteBucket(self, name: str) -> Deferred[None]:
        """
        Remove an empty bucket.

        @param name: The bucket's name.
        """
        return self._writer.submit(Mutation(_DELETE_BUCKET, name, frees=True, names=((name, b""),)))

    def putObject(
        self,
        record: ObjectRecord,
        condition: WriteCondition,
        newBlobs: Mapping[str, int] = _NO_BLOBS,
    ) -> Deferred[ObjectRecord]:
        """
        Store an object.

        @param record: The object as it is stored; its C{sequence} is ignored, the catalog assigns
            one.
        @param condition: Evaluated against the current object of the key.
        @param newBlobs: The new blobs of the segments, with their CRC-32C; they get a row. All
            others must have one already (a copy).
        """
        content = record.content
        weight = len(content.inline or b"") + _SEGMENT_WEIGHT * len(content.segments)
        put = objects.preparePut(record, condition, newBlobs)
        return self._writer.submit(
            Mutation(objects.putObjects, put, weight=weight, names=(put.name,))
        )

    def deleteObjects(
        self, bucket: str, entries: Sequence[tuple[bytes, str | None, WriteCondition]]
    ) -> Deferred[list[bool | Exception]]:
        """
        Remove objects.

        @param bucket: The bucket of all entries.
        @param entries: Key, version id or L{None}, condition.
        """
        deletion = objects.Deletion(bucket, tuple(entries))
        names = [(bucket, key) for key, _, _ in deletion.entries]
        return self._writer.submit(
            Mutation(objects.deleteObjects, deletion, frees=True, names=names)
        )

    def createUpload(self, upload: MultipartUpload) -> Deferred[None]:
        """
        Create a multipart upload.

        @param upload: The upload with its id; its key is UTF-8.
        """
        upload.key.decode()
        return self._writer.submit(Mutation(_CREATE_UPLOAD, upload))

    def putPart(
        self,
        bucket: str,
        key: bytes,
        uploadId: str,
        part: Part,
        newBlobs: Mapping[str, int] = _NO_BLOBS,
    ) -> Deferred[None]:
        """
        Store a part.

        @param bucket: The bucket's name.
        @param key: The key in UTF-8 that the upload was created for.
        @param uploadId: The id of the upload that the part belongs to.
        @param part: The part with its number, ETag and content.
        @param newBlobs: As for L{putObject}.
        """
        name = uploads.UploadName(bucket, key, uploadId)
        return self._writer.submit(Mutation(_PUT_PART, uploads.PartPut(name, part, newBlobs)))

    def completeUpload(
        self,
        uploadId: str,
        record: ObjectRecord,
        parts: Sequence[tuple[int, str]],
        condition: WriteCondition,
    ) -> Deferred[ObjectRecord]:
        """
        Make an object of an upload.

        @param uploadId: The id of the upload; its bucket and key are those of C{record}.
        @param record: The new object; its content is replaced by the segments of the parts, in this
            order.
        @param parts: Part number and ETag.
        @param condition: Evaluated against the current object of the key.
        """
        completion = uploads.Completion(uploadId, record, tuple(parts), condition)
        weight = _SEGMENT_WEIGHT * len(parts)
        return self._writer.submit(
            Mutation(
                _COMPLETE_UPLOAD, completion, weight=weight, names=((record.bucket, record.key),)
            )
        )

    def abortUpload(self, bucket: str, key: bytes, uploadId: str) -> Deferred[None]:
        """
        End an upload.

        @param bucket: The bucket's name.
        @param key: The key in UTF-8 that the upload was created for.
        @param uploadId: The id of the upload that ends.
        """
        name = uploads.UploadName(bucket, key, uploadId)
        return self._writer.submit(Mutation(_ABORT_UPLOAD, name, frees=True))

    def addAccessKey(self, key: AccessKey) -> Deferred[None]:
        """
        Issue a key.

        @param key: The access key with its secret and account.
        """
        return self._writer.submit(Mutation(buckets.ADD_KEY, key))

    def removeAccessKey(self, accessKey: str) -> Deferred[bool]:
        """
        Revoke a key.

        @param accessKey: The public half of the key, as clients send it.
        """
        return self._writer.submit(Mutation(buckets.REMOVE_KEY, accessKey, frees=True))

    def forgetBlobs(self, ids: Sequence[str]) -> Deferred[None]:
        """
        Remove the rows of blobs whose files are gone.

        @param ids: Blob ids; those without a row are ignored.
        """
        self._corrupt.difference_update(ids)
        return self._writer.submit(Mutation(refcounts.forgetBlobs, ids, frees=True))

    def markCorrupt(self, blob: str) -> Deferred[None]:
        """
        Record that a blob is corrupt.

        @param blob: The blob's id; without a row nothing is recorded in the file.
        """
        self._corrupt.add(blob)
        return self._writer.submit(Mutation(refcounts.markCorrupt, blob))

    def _connect(self, purpose: Purpose) -> Connection:
        return connect(self._path, self._durability, purpose)


def openCatalog(context: BackEndContext) -> OpenCatalog:
    """
    Open C{catalog.sqlite} in the data directory. Blocks.

    @raise CatalogUnusable: The file is no catalog, or a newer program wrote it.
    """
    catalog = SQLiteCatalog(
        os.path.join(context.directory, "catalog.sqlite"),
        context.reactor,
        context.pool.run,
        context.durability,
        context.onGarbage,
        context.catalogState,
        BlobIds(context.random, context.owner).new,
    )
    catalog.open()
    return OpenCatalog(catalog, catalog.findBlobs)
