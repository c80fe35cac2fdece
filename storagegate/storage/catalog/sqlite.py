"""
The catalog in a SQLite file.

Three kinds of connection: the reactor thread's, for looking up one thing; one for each pool thread,
for lists; the writer's, in its own thread.

Looking up one thing, in the reactor thread.

Every answer is fetched to its end: a statement that is left half-way keeps its snapshot open, and
the WAL could not start again.

What the catalog does in the pool's threads, and the connections that it has there.
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
from storagegate.storage.blobids import BlobIds
from storagegate.storage.catalog import buckets, lists, objects, refcounts, uploads
from storagegate.storage.catalog.connections import Durability, Purpose, connect, prepare
from storagegate.storage.catalog.coordination import SharedCatalogState
from storagegate.storage.catalog.lists import KeyRange
from storagegate.storage.catalog.refcounts import ReferenceDelta
from storagegate.storage.catalog.rows import OBJECT_COLUMNS, isIntact, readAttributes, readObject
from storagegate.storage.catalog.transactions import Mutation, oneByOne
from storagegate.storage.catalog.wal import (
    CheckpointScheduler,
    Reserve,
    WALCheckpointer,
    prewriteBetweenCommits,
)
from storagegate.storage.catalog.writer import CatalogWriter, Committer, WriterReactor
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

_SEQUENCE = 10


def readBucket(connection: Connection, name: str) -> Bucket | None:
    """Look a bucket up."""
    rows = connection.execute(
        "SELECT name, account, createdMs, region FROM buckets WHERE name = ?", (name,)
    ).fetchall()
    return Bucket(*rows[0]) if rows else None


def lookUp(
    connection: Connection, bucket: str, key: bytes, versionId: str | None
) -> tuple[Bucket | None, ObjectRecord | None]:
    """Look up a bucket and an object in it."""
    rows = connection.execute(_PLAIN, (key, bucket)).fetchall()
    return _found(bucket, key, versionId, rows[0]) if rows else (None, None)


def lookUpVerified(
    connection: Connection, bucket: str, key: bytes, versionId: str | None
) -> tuple[Bucket | None, ObjectRecord | None]:
    """
    Look up a bucket and an object in it, whose inline bytes are compared.

    @raise CorruptObject: They are not those that were written.
    """
    rows = connection.execute(_WITH_CHECKSUM, (key, bucket)).fetchall()
    if not rows:
        return None, None
    *row, checksum = rows[0]
    found = _found(bucket, key, versionId, row)
    if found[1] is not None and not isIntact(found[1].content.inline, checksum):
        raise CorruptObject(f"object {bucket}/{key!r} is damaged")
    return found


def _found(
    bucket: str, key: bytes, versionId: str | None, row: Any
) -> tuple[Bucket | None, ObjectRecord | None]:
    home = Bucket(bucket, row[0], row[1], row[2])
    if row[_SEQUENCE] is None:
        return home, None
    record = readObject(bucket, key, row[3], row[4:])
    if versionId is not None and record.versionId != versionId:
        return home, None
    return home, record


def readUpload(
    connection: Connection, bucket: str, key: bytes, uploadId: str
) -> MultipartUpload | None:
    """Look an upload up."""
    rows = connection.execute(
        "SELECT u.account, u.startedMs, u.attributes, u.checksumAlgorithm, u.checksumKind"
        " FROM buckets AS b JOIN uploads AS u ON u.bucketId = b.id"
        " WHERE b.name = ? AND u.key = ? AND u.uploadId = ?",
        (bucket, key, uploadId),
    ).fetchall()
    if not rows:
        return None
    account, startedMs, attributes, *checksum = rows[0]
    return MultipartUpload(
        bucket, key, uploadId, account, startedMs, readAttributes(attributes), *checksum
    )


def readSecret(connection: Connection) -> bytes:
    """Read the store's own random bytes."""
    secret: bytes = connection.execute("SELECT value FROM meta WHERE name = 'secret'").fetchall()[
        0
    ][0]
    return secret


T = TypeVar("T")

READERS = 3
"""
Reads at a time: two lists, and one who checks or sweeps. A list is bound by the interpreter's lock:
sixteen at once were no faster than two, and each has some 3 MB in memory.
"""

WAITING = 2048
"""Reads that may wait: as many as the pool lets wait."""


@define(eq=False)
class _Read:
    """A read that waits or is under way."""

    function: Callable[..., Any]
    arguments: tuple[object, ...]
    answer: Deferred[Any] = field(factory=Deferred)


@define(eq=False)
class ReaderSlot:
    """A place for one reader; the connection stays for the next."""

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
        self._seats = [ReaderSlot() for _ in range(READERS)]
        # The last one to be free is the next to be taken: its page cache is the warmest.
        self._free = list(self._seats)
        self._waiting: deque[_Read] = deque()
        self._seating = False
        self._busy = 0
        self._closed: Deferred[None] | None = None

    def read(self, function: Callable[..., T], *arguments: object) -> Deferred[T]:
        """
        Call C{function(connection, *arguments)} in a thread.

        To cancel it is to hear no more of it; a read that is under way goes on to its end.
        """
        if self._closed is not None:
            return fail(StoreBusy("the catalog is closed"))
        if len(self._waiting) >= WAITING:
            return fail(StoreBusy("too many lists wait"))
        read = _Read(function, arguments)
        self._waiting.append(read)
        self._seat()
        return read.answer

    def run(self, function: Callable[..., T], *arguments: object) -> Deferred[T]:
        """Call a function in a thread; L{close} waits for it."""
        if self._closed is not None:
            return fail(StoreBusy("the catalog is closed"))
        self._busy += 1
        return self._run(function, *arguments).addBoth(self._ended)

    def close(self) -> Deferred[None]:
        """Wait for what is under way, then close the connections. Once."""
        self._closed = Deferred() if self._busy else succeed(None)
        while self._waiting:
            self._waiting.popleft().answer.errback(StoreBusy("the catalog is closed"))
        return self._closed.addCallback(self._closeAll)

    def _seat(self) -> None:
        """Let those who wait take the seats that are free."""
        if self._seating:
            # A busy pool refuses at once: the seat is free again, and the loop below goes on.
            return
        self._seating = True
        while self._waiting and self._free:
            read = self._waiting.popleft()
            # Else nobody wants it any more.
            if not read.answer.called:
                seat = self._free.pop()
                self.run(self._readHere, seat, read).addBoth(self._leave, seat, read)
        self._seating = False

    def _readHere(self, seat: ReaderSlot, read: _Read) -> Any:
        """Read with the seat's connection. Pool thread."""
        if seat.connection is None:
            seat.connection = self._connect()
        return read.function(seat.connection, *read.arguments)

    def _leave(self, result: Any, seat: ReaderSlot, read: _Read) -> None:
        self._free.append(seat)
        self._seat()
        read.answer.callback(result)

    def _ended(self, result: T) -> T:
        self._busy -= 1
        if not self._busy and self._closed is not None:
            self._closed.callback(None)
        return result

    def _closeAll(self, _: None) -> None:
        for seat in self._seats:
            if seat.connection is not None:
                seat.connection.close()
                seat.connection = None


_IDLE_GRACE_SECONDS = 5.0
"""A commit takes milliseconds: longer than this for another process's is worth a report."""

_NO_CRCS: Mapping[str, int] = MappingProxyType({})

# Bytes that a segment, and the summary of its part, take in a row.
_SEGMENT_WEIGHT = 200

_CREATE_BUCKET = oneByOne(buckets.createBucket)
_DELETE_BUCKET = oneByOne(buckets.deleteBucket)
_CREATE_UPLOAD = oneByOne(uploads.createUpload)
_PUT_PART = oneByOne(uploads.putPart)
_COMPLETE_UPLOAD = oneByOne(uploads.completeUpload)
_ABORT_UPLOAD = oneByOne(uploads.abortUpload)
_ADD_KEY = oneByOne(buckets.addAccessKey)
_REMOVE_KEY = oneByOne(buckets.removeAccessKey)


@implementer(ICatalog)
class SQLiteCatalog:
    """
    The embedded catalog. Methods: reactor thread.

    A look-up of one thing does not suspend: a caller that takes a lease on what it found does so
    in the same iteration of the reactor.

    Each mutation's Deferred ignores C{cancel}: see
    L{Undertaken<storagegate.storage.catalog.writer.UncancellableDeferred>}.
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
        commons: SharedCatalogState | None = None,
        newBlobId: Callable[[], str] | None = None,
    ) -> None:
        """
        Take note of a catalog; L{open} opens it.

        @param path: The file. A file C{reserve} beside it keeps room for deletes.
        @param run: C{run(function, *args)} calls in a thread and fires in the reactor thread.
        @param durability: C{"full"}, or C{"os"} for no fsyncs.
        @param onGarbage: Told of the blobs that have lost their last reference, after the commit.
        @param newBlobId: Makes ids of blobs; by default such as only this process makes.
        @param commons: What is shared with other processes that have the catalog open.
        """
        self._path = path
        self._durability = Durability(durability)
        self._reactor = reactor
        self._run = run
        self._onGarbage = onGarbage
        self._commons = commons or SharedCatalogState()
        self._latch = self._commons.latch
        self._newBlobId = newBlobId or BlobIds().new
        self._hot = self._commons.hot

    def open(self) -> None:
        """
        Make the file if there is none, migrate it, and connect. Blocks. Once.

        Call it in the process that uses the catalog: connections do not survive a fork.

        @raise CatalogUnusable: It is no catalog of ours, or a newer program wrote it.
        """
        prepare(self._path, self._durability)
        isShared, turn = self._commons.isShared, self._commons.turn
        self._connection = self._connect(Purpose.SHARED_REACTOR if isShared else Purpose.REACTOR)
        self._secret = readSecret(self._connection)
        self._damaged = set(refcounts.damagedBlobs(self._connection))
        self._readers = ReaderPool(self._run, partial(self._connect, Purpose.POOL))
        directory = os.path.dirname(os.path.abspath(self._path))
        connection = self._connect(Purpose.WRITER)
        wal = WALCheckpointer(connection, directory, self._latch, growth=self._commons.growth)
        reserve = Reserve(os.path.join(directory, "reserve"), isShared)
        with turn:
            if self._durability is Durability.FULL:
                prewriteBetweenCommits(connection, f"{self._path}-wal")
            reserve.ensure()
        self._looker = CheckpointScheduler(
            self._readers.run, self._connect(Purpose.CHECKPOINT), wal, self._latch
        )
        self._writer = CatalogWriter(
            self._reactor,
            Committer(connection, reserve, self._latch, wal),
            self._hot.forget,
            self._onGarbage,
            self._looker.consider,
            turn,
        )

    def close(self) -> Deferred[None]:
        """Commit what waits, then leave everything in the one file. Once."""
        return Deferred.fromCoroutine(self._close())

    async def _close(self) -> None:
        closing = self._writer.stop()
        await self._readers.close()
        self._looker.close()
        self._connection.close()
        await closing

    @property
    def waiting(self) -> int:
        """How many mutations wait for a commit."""
        return self._writer.waiting

    def measure(self, onBatch: Callable[[int, float], object]) -> None:
        """Have each commit told: its mutations and the seconds that it took."""
        self._writer.onBatch = onBatch

    @property
    def failure(self) -> str | None:
        """Why nothing more is written until a restart; L{None} while all is well."""
        return self._latch.failure

    def health(self) -> Mapping[str, str | None]:
        """See L{ICatalog.health}."""
        waited = self._commons.turn.waitedSeconds
        stuck = f"another process has been writing for {waited:.0f} s"
        return {"catalog": self.failure or (stuck if waited > _IDLE_GRACE_SECONDS else None)}

    async def bucket(self, name: str) -> Bucket | None:
        """Look a bucket up."""
        bucket = self._hot.findBucket(name)
        if bucket is None:
            bucket = readBucket(self._connection, name)
            if bucket is not None:
                self._hot.keepBucket(bucket)
        return bucket

    async def object(
        self, bucket: str, key: bytes, versionId: str | None = None, *, verify: bool = False
    ) -> tuple[Bucket | None, ObjectRecord | None]:
        """Look up a bucket and an object in it; to compare its bytes, past the cache."""
        if verify:
            self._hot.lookUp()
            return lookUpVerified(self._connection, bucket, key, versionId)
        hot = self._hot.find(bucket, key)
        if hot is not None and versionId in (None, hot[1].versionId):
            return hot
        home, record = lookUp(self._connection, bucket, key, versionId)
        if home is not None and record is not None:
            self._hot.keep(home, record)
        return home, record

    async def upload(self, bucket: str, key: bytes, uploadId: str) -> MultipartUpload | None:
        """Look an upload up."""
        return readUpload(self._connection, bucket, key, uploadId)

    def secret(self) -> bytes:
        """Give the store's own random bytes."""
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
        """Find which of these blobs have a row."""
        return self.findBlobs(ids)

    def damagedBlobs(self) -> frozenset[str]:
        """Return the blobs that were marked before, or by this process."""
        return frozenset(self._damaged)

    async def buckets(
        self, account: str | None, prefix: str, after: str, limit: int
    ) -> list[Bucket]:
        """List buckets."""
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
        """List a page of objects."""
        where = KeyRange(prefix, delimiter, after)
        return await self._readers.read(lists.listObjects, bucket, where, limit, contentTypes)

    async def parts(
        self, bucket: str, key: bytes, uploadId: str, after: int, limit: int
    ) -> list[Part]:
        """List parts of an upload."""
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
        """List uploads in progress."""
        where = KeyRange(prefix, delimiter, keyAfter)
        return await self._readers.read(lists.listUploads, bucket, where, idAfter, limit)

    async def referenced(self, ids: Sequence[str]) -> frozenset[str]:
        """Find which blobs are named."""
        return await self._readers.read(refcounts.referencedBlobs, ids)

    async def garbage(self, after: str, limit: int) -> list[str]:
        """List blobs that nothing names."""
        return await self._readers.read(refcounts.garbageBlobs, after, limit)

    async def blobRow(self, id: str) -> BlobRow | None:
        """Look a blob up."""
        return refcounts.blobRow(self._connection, id)

    async def blobRows(self, after: str, limit: int) -> list[BlobRow]:
        """List all blobs."""
        return await self._readers.read(refcounts.blobRows, after, limit)

    async def checkInline(self, start: InlinePosition | None, limit: int) -> InlineCheck:
        """Check the inline bytes of a page of objects."""
        return await self._readers.read(refcounts.checkInline, start, limit)

    def createBucket(self, bucket: Bucket) -> Deferred[None]:
        """Create a bucket."""
        return self._writer.submit(Mutation(_CREATE_BUCKET, bucket))

    def deleteBucket(self, name: str) -> Deferred[None]:
        """Remove an empty bucket."""
        return self._writer.submit(Mutation(_DELETE_BUCKET, name, frees=True, names=((name, b""),)))

    def putObject(
        self,
        record: ObjectRecord,
        condition: WriteCondition,
        crcs: Mapping[str, int] = _NO_CRCS,
    ) -> Deferred[ObjectRecord]:
        """Store an object."""
        content = record.content
        weight = len(content.inline or b"") + _SEGMENT_WEIGHT * len(content.segments)
        put = objects.Put(record, condition, ReferenceDelta(content.segments, crcs))
        return self._writer.submit(
            Mutation(objects.putObjects, put, weight=weight, names=(put.name,))
        )

    def deleteObjects(
        self, bucket: str, entries: Sequence[tuple[bytes, str | None, WriteCondition]]
    ) -> Deferred[list[bool | Exception]]:
        """Remove objects."""
        deletion = objects.Deletion(bucket, tuple(entries))
        names = [(bucket, key) for key, _, _ in deletion.entries]
        return self._writer.submit(
            Mutation(objects.deleteObjects, deletion, frees=True, names=names)
        )

    def createUpload(self, upload: MultipartUpload) -> Deferred[None]:
        """Begin a multipart upload."""
        upload.key.decode()
        return self._writer.submit(Mutation(_CREATE_UPLOAD, upload))

    def putPart(
        self,
        bucket: str,
        key: bytes,
        uploadId: str,
        part: Part,
        crcs: Mapping[str, int] = _NO_CRCS,
    ) -> Deferred[None]:
        """Store a part."""
        name = uploads.UploadName(bucket, key, uploadId)
        return self._writer.submit(Mutation(_PUT_PART, uploads.PartPut(name, part, crcs)))

    def completeUpload(
        self,
        uploadId: str,
        record: ObjectRecord,
        parts: Sequence[tuple[int, str]],
        condition: WriteCondition,
    ) -> Deferred[ObjectRecord]:
        """Make an object of an upload."""
        completion = uploads.Completion(uploadId, record, tuple(parts), condition)
        weight = _SEGMENT_WEIGHT * len(parts)
        return self._writer.submit(
            Mutation(
                _COMPLETE_UPLOAD, completion, weight=weight, names=((record.bucket, record.key),)
            )
        )

    def abortUpload(self, bucket: str, key: bytes, uploadId: str) -> Deferred[None]:
        """End an upload."""
        name = uploads.UploadName(bucket, key, uploadId)
        return self._writer.submit(Mutation(_ABORT_UPLOAD, name, frees=True))

    def addAccessKey(self, key: AccessKey) -> Deferred[None]:
        """Issue a key."""
        return self._writer.submit(Mutation(_ADD_KEY, key))

    def removeAccessKey(self, accessKey: str) -> Deferred[bool]:
        """Revoke a key."""
        return self._writer.submit(Mutation(_REMOVE_KEY, accessKey, frees=True))

    def newBlobId(self) -> str:
        """Make an id that no blob has had."""
        return self._newBlobId()

    def forgetBlobs(self, ids: Sequence[str]) -> Deferred[None]:
        """Remove the rows of blobs whose files are gone."""
        self._damaged.difference_update(ids)
        return self._writer.submit(Mutation(refcounts.forgetBlobs, ids, frees=True))

    def markDamaged(self, blob: str) -> Deferred[None]:
        """Note that a blob is damaged."""
        self._damaged.add(blob)
        return self._writer.submit(Mutation(refcounts.markDamaged, blob))

    def _connect(self, purpose: Purpose) -> Connection:
        return connect(self._path, self._durability, purpose)


def openCatalog(context: BackEndContext) -> OpenCatalog:
    """
    Open C{catalog.sqlite} in the data directory. Blocks.

    @raise CatalogUnusable: It is no catalog of ours, or a newer program wrote it.
    """
    catalog = SQLiteCatalog(
        os.path.join(context.directory, "catalog.sqlite"),
        context.reactor,
        context.pool.run,
        context.durability,
        context.onGarbage,
        context.commons,
        BlobIds(context.random, context.owner).new,
    )
    catalog.open()
    return OpenCatalog(catalog, catalog.findBlobs)
