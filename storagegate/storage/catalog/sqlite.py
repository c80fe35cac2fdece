"""
The catalog in a SQLite file.

Three kinds of connection: the reactor thread's, for looking up one thing; one for each pool thread,
for lists; the writer's, in its own thread.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from sqlite3 import Connection
from types import MappingProxyType
from typing import Any

from twisted.internet.defer import Deferred
from zope.interface import implementer

from storagegate.storage.catalog import (
    accesskeys,
    buckets,
    ledger,
    listing,
    objects,
    reading,
    references,
    uploads,
)
from storagegate.storage.catalog.checkpoints import Looker, WALKeeper
from storagegate.storage.catalog.committer import Committer
from storagegate.storage.catalog.connections import Durability, Purpose, connect, prepare
from storagegate.storage.catalog.readers import PoolReaders
from storagegate.storage.catalog.references import Claim
from storagegate.storage.catalog.reserve import Reserve
from storagegate.storage.catalog.transactions import Mutation, oneByOne
from storagegate.storage.catalog.turns import Commons
from storagegate.storage.catalog.walfile import prewriteBetweenCommits
from storagegate.storage.catalog.walk import Range
from storagegate.storage.catalog.writer import Writer, WriterReactor
from storagegate.storage.interfaces import ICatalog
from storagegate.storage.records import (
    AccessKey,
    Bucket,
    Listing,
    ObjectRecord,
    Part,
    Upload,
    WriteCondition,
)

_NO_CRCS: Mapping[str, int] = MappingProxyType({})

# Bytes that a segment, and the summary of its part, take in a row.
_SEGMENT_WEIGHT = 200

_CREATE_BUCKET = oneByOne(buckets.createBucket)
_DELETE_BUCKET = oneByOne(buckets.deleteBucket)
_CREATE_UPLOAD = oneByOne(uploads.createUpload)
_PUT_PART = oneByOne(uploads.putPart)
_COMPLETE_UPLOAD = oneByOne(uploads.completeUpload)
_ABORT_UPLOAD = oneByOne(uploads.abortUpload)
_ADD_KEY = oneByOne(accesskeys.addAccessKey)
_REMOVE_KEY = oneByOne(accesskeys.removeAccessKey)


@implementer(ICatalog, ledger.IBlobLedger)
class SQLiteCatalog:
    """
    The embedded catalog. Methods: reactor thread.

    Each mutation's Deferred ignores C{cancel}: see
    L{Undertaken<storagegate.storage.catalog.writer.Undertaken>}.
    """

    def __init__(
        self,
        path: str,
        reactor: WriterReactor,
        run: Callable[..., Deferred[Any]],
        durability: str,
        onGarbage: Callable[[list[str]], object],
        commons: Commons | None = None,
    ) -> None:
        """
        Take note of a catalog; L{open} opens it.

        @param path: The file. A file C{reserve} beside it keeps room for deletes.
        @param run: C{run(function, *args)} calls in a thread and fires in the reactor thread.
        @param durability: C{"full"}, or C{"os"} for no fsyncs.
        @param onGarbage: Told of the blobs that have lost their last reference, after the commit.
        @param commons: What is shared with other processes that have the catalog open.
        """
        self._path = path
        self._durability = Durability(durability)
        self._reactor = reactor
        self._run = run
        self._onGarbage = onGarbage
        self._commons = commons or Commons()
        self._latch = self._commons.latch
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
        self._secret = reading.readSecret(self._connection)
        self._readers = PoolReaders(self._run, partial(self._connect, Purpose.POOL))
        directory = os.path.dirname(os.path.abspath(self._path))
        connection = self._connect(Purpose.WRITER)
        wal = WALKeeper(connection, directory, self._latch, growth=self._commons.growth)
        reserve = Reserve(os.path.join(directory, "reserve"), isShared)
        with turn:
            if self._durability is Durability.FULL:
                prewriteBetweenCommits(connection, f"{self._path}-wal")
            reserve.ensure()
        self._looker = Looker(
            self._readers.run, self._connect(Purpose.CHECKPOINT), wal, self._latch
        )
        self._writer = Writer(
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

    @property
    def waitedSeconds(self) -> float:
        """How long the writer has waited now for another process that writes."""
        return self._commons.turn.waitedSeconds

    def bucket(self, name: str) -> Bucket | None:
        """Look a bucket up."""
        bucket = self._hot.findBucket(name)
        if bucket is None:
            bucket = reading.readBucket(self._connection, name)
            if bucket is not None:
                self._hot.keepBucket(bucket)
        return bucket

    def object(
        self, bucket: str, key: bytes, versionId: str | None = None
    ) -> tuple[Bucket | None, ObjectRecord | None]:
        """Look up a bucket and an object in it."""
        hot = self._hot.find(bucket, key)
        if hot is not None and versionId in (None, hot[1].versionId):
            return hot
        home, record = reading.lookUp(self._connection, bucket, key, versionId)
        if home is not None and record is not None:
            self._hot.keep(home, record)
        return home, record

    def verified(
        self, bucket: str, key: bytes, versionId: str | None = None
    ) -> tuple[Bucket | None, ObjectRecord | None]:
        """Look up as L{object}, and compare the bytes."""
        self._hot.lookUp()
        return reading.lookUpVerified(self._connection, bucket, key, versionId)

    def upload(self, bucket: str, key: bytes, uploadId: str) -> Upload | None:
        """Look an upload up."""
        return reading.readUpload(self._connection, bucket, key, uploadId)

    def secret(self) -> bytes:
        """Give the store's own random bytes."""
        return self._secret

    def accessKeys(self) -> list[AccessKey]:
        """Read all issued keys."""
        return accesskeys.readAccessKeys(self._connection)

    def keysGeneration(self) -> int:
        """Read the number that changes with the keys."""
        return accesskeys.readKeysGeneration(self._connection)

    def knownBlobs(self, ids: Sequence[str]) -> frozenset[str]:
        """Say which of these have a row."""
        return ledger.knownBlobs(self._connection, ids)

    def damagedBlobs(self) -> frozenset[str]:
        """List the blobs that are marked."""
        return ledger.damagedBlobs(self._connection)

    def buckets(
        self, account: str | None, prefix: str, after: str, limit: int
    ) -> Deferred[list[Bucket]]:
        """List buckets."""
        return self._readers.read(listing.listBuckets, account, prefix, after, limit)

    def listObjects(
        self,
        bucket: str,
        prefix: bytes,
        delimiter: bytes,
        after: bytes,
        limit: int,
        contentTypes: bool = False,
    ) -> Deferred[Listing]:
        """List a page of objects."""
        where = Range(prefix, delimiter, after)
        return self._readers.read(listing.listObjects, bucket, where, limit, contentTypes)

    def parts(
        self, bucket: str, key: bytes, uploadId: str, after: int, limit: int
    ) -> Deferred[list[Part]]:
        """List parts of an upload."""
        return self._readers.read(listing.listParts, bucket, key, uploadId, after, limit)

    def uploads(
        self,
        bucket: str,
        prefix: bytes,
        delimiter: bytes,
        keyAfter: bytes,
        idAfter: str,
        limit: int,
    ) -> Deferred[tuple[list[Upload], list[str], tuple[str, str] | None]]:
        """List uploads in progress."""
        where = Range(prefix, delimiter, keyAfter)
        return self._readers.read(listing.listUploads, bucket, where, idAfter, limit)

    def referenced(self, ids: Sequence[str]) -> Deferred[frozenset[str]]:
        """Say which blobs are named."""
        return self._readers.read(ledger.referencedBlobs, ids)

    def garbage(self, after: str, limit: int) -> Deferred[list[str]]:
        """List blobs that nothing names."""
        return self._readers.read(ledger.garbageBlobs, after, limit)

    def blobRow(self, id: str) -> ledger.BlobRow | None:
        """Look a blob up."""
        return ledger.blobRow(self._connection, id)

    def blobRows(self, after: str, limit: int) -> Deferred[list[ledger.BlobRow]]:
        """List all blobs."""
        return self._readers.read(ledger.blobRows, after, limit)

    def checkInline(
        self, start: ledger.InlinePosition | None, limit: int
    ) -> Deferred[ledger.InlineCheck]:
        """Check the inline bytes of a page of objects."""
        return self._readers.read(ledger.checkInline, start, limit)

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
        put = objects.Put(record, condition, Claim(content.segments, crcs))
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

    def createUpload(self, upload: Upload) -> Deferred[None]:
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

    def forgetBlobs(self, ids: Sequence[str]) -> Deferred[None]:
        """Remove the rows of blobs whose files are gone."""
        return self._writer.submit(Mutation(references.forgetBlobs, ids, frees=True))

    def markDamaged(self, blob: str) -> Deferred[None]:
        """Note that a blob is damaged."""
        return self._writer.submit(Mutation(references.markDamaged, blob))

    def _connect(self, purpose: Purpose) -> Connection:
        return connect(self._path, self._durability, purpose)
