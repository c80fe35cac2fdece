"""
Look-ups: one round trip each, on a separate connection. Records are not cached, so a look-up sees
all earlier commits of all nodes.

Buckets are cached only for writes, which name the revision that they were checked against.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from attrs import asdict, fields
from msgspec.structs import replace

from storagegate.core.files import crcFunction
from storagegate.storage.cluster.connection import Rows
from storagegate.storage.cluster.gathering import ObjectGatherer
from storagegate.storage.cluster.primary import PersistentConnection
from storagegate.storage.cluster.values import (
    TRUE,
    Value,
    int8,
    integer,
    isText,
    textArray,
)
from storagegate.storage.errors import CorruptObject, NoSuchBucket
from storagegate.storage.records import (
    NULL_VERSION,
    UNLOCKED,
    AccessKey,
    AccountDocuments,
    BlobRow,
    Bucket,
    Content,
    MultipartUpload,
    ObjectLock,
    ObjectRecord,
)
from storagegate.storage.rows import gatherIdentities, readAttributes, readSegments
from storagegate.storage.versionids import VersionIds

_RECENT = 1024
"""The most cached buckets, and the most cached decoded rows by their bytes."""

_KEY_FIELDS = {each.name.lower(): each.name for each in fields(AccessKey)}


def keyDocument(key: AccessKey) -> bytes:
    """Encode an access key as JSON, with the columns of the table as members."""
    return msgspec.json.encode({name.lower(): value for name, value in asdict(key).items()})


def keyDocuments(keys: Sequence[AccessKey]) -> bytes:
    """Encode access keys as a JSON array; see L{keyDocument}."""
    return b"[%s]" % b",".join(map(keyDocument, keys))


def readKey(document: str | bytes) -> AccessKey:
    """Decode a row of the table of access keys, as JSON."""
    found: dict[str, Any] = msgspec.json.decode(document)
    return AccessKey(**{_KEY_FIELDS[name]: value for name, value in found.items()})


_decodeBucket = msgspec.json.Decoder(tuple[str, str, int, str, str, str, bool, int, int]).decode


def readBucket(described: bytes) -> tuple[Bucket, int]:
    """Decode a bucket and its revision."""
    *columns, revision = _decodeBucket(described)
    values: Any = columns
    return Bucket(*values), revision


class Lookups:
    """
    Reads single records. Methods: reactor thread.

    @ivar recent: Recently read buckets with their revisions, by name.
    """

    def __init__(self, reactor: Any, connection: PersistentConnection, ids: VersionIds) -> None:
        self._connection = connection
        self._gatherer = ObjectGatherer(reactor, connection)
        self._ids = ids
        self.recent: dict[str, tuple[Bucket, int]] = {}
        self._decoded: dict[bytes, tuple[Bucket, int]] = {}

    async def bucket(self, name: str) -> Bucket | None:
        """Look up a bucket."""
        if not isText(name):
            return None
        rows = await self._read(b"bucket", name.encode())
        return self.bucketOf(rows.get_value(0, 0)) if rows.ntuples else None

    async def shard(self, bucket: str) -> int | None:
        """Look up the shard of a bucket."""
        if not isText(bucket):
            return None
        rows = await self._read(b"shard", bucket.encode())
        return integer(rows.get_value(0, 0)) if rows.ntuples else None

    async def object(
        self, bucket: str, key: bytes, versionId: str | None, verify: bool
    ) -> tuple[Bucket | None, ObjectRecord | None]:
        """Look up a bucket and an object or version in it."""
        if "\0" in bucket:
            return None, None
        if versionId is None:
            rows, n = await self._gatherer.find(bucket, key)
        else:
            rows, n = await self._version(bucket, key, self._ids.read(versionId)), 0
        described = rows.get_value(n, 0) if rows.ntuples else None
        if described is None:
            return None, None
        found = self.bucketOf(described)
        if rows.get_value(n, 1) is None:
            return found, None
        return found, self._recordOf(rows, bucket, key, verify, n)

    async def _version(self, bucket: str, key: bytes, sequence: int | None) -> Rows:
        if sequence is None:
            return await self._read(b"null", bucket.encode(), key)
        return await self._read(b"version", bucket.encode(), key, int8(sequence))

    async def deleteMarker(self, bucket: str, key: bytes) -> ObjectRecord | None:
        """Look up the newest version of a key if it is a delete marker."""
        if not isText(bucket):
            return None
        rows = await self._read(b"marker", bucket.encode(), key)
        return self._recordOf(rows, bucket, key, False) if rows.ntuples else None

    async def completed(self, bucket: str, key: bytes, uploadId: str) -> ObjectRecord | None:
        """
        Look up the version that an upload's completion created. Reads all versions of the key.
        """
        if not isText(bucket, uploadId):
            return None
        written = msgspec.json.encode({"uploadId": uploadId})[1:-1]
        rows = await self._read(b"completed", bucket.encode(), key, written)
        for n in range(rows.ntuples):
            # The match may be in user metadata.
            record = self._recordOf(rows, bucket, key, False, n)
            if record.attributes.uploadId == uploadId:
                return record
        return None

    async def settings(self, bucket: str) -> tuple[int, Mapping[str, bytes]]:
        """Read the settings of a bucket and their generation."""
        if not isText(bucket):
            raise NoSuchBucket
        rows = await self._read(b"settings", bucket.encode())
        if not rows.ntuples:
            raise NoSuchBucket
        documents = {
            rows.get_value(n, 1).decode(): rows.get_value(n, 2)
            for n in range(rows.ntuples)
            if rows.get_value(n, 1) is not None
        }
        return integer(rows.get_value(0, 0)), documents

    async def upload(self, bucket: str, key: bytes, uploadId: str) -> MultipartUpload | None:
        """Look up an upload."""
        if not isText(bucket, uploadId):
            return None
        rows = await self._read(b"upload", bucket.encode(), key, uploadId.encode())
        if not rows.ntuples:
            return None
        account, started, attributes, algorithm, kind = _row(rows, 0)
        return MultipartUpload(
            bucket,
            key,
            uploadId,
            account.decode(),
            integer(started),
            readAttributes(attributes),
            algorithm.decode(),
            kind.decode(),
        )

    async def accessKeys(self) -> tuple[int, list[AccessKey]]:
        """Read the issued keys and their generation."""
        rows = await self._read(b"accesskeys")
        documents = [rows.get_value(n, 1) for n in range(rows.ntuples)]
        keys = [readKey(document) for document in documents if document is not None]
        return integer(rows.get_value(0, 0)), keys

    async def keyUses(self) -> dict[str, int]:
        """Read when each key was last used, in ms."""
        rows = await self._read(b"keyuses")
        get = rows.get_value
        return {get(n, 0).decode(): integer(get(n, 1)) for n in range(rows.ntuples)}

    async def keysGeneration(self) -> int:
        """Read the generation of the keys."""
        return integer((await self._read(b"keysgeneration")).get_value(0, 0))

    async def identities(self, after: int) -> tuple[int, dict[str, AccountDocuments]]:
        """Read the documents of the accounts that have changed after a revision."""
        rows = await self._read(b"identities", int8(after))
        found = [
            (account.decode(), integer(revision), kind.decode(), name.decode(), document)
            for _, account, revision, kind, name, document in (
                _row(rows, n) for n in range(rows.ntuples)
            )
            if account is not None
        ]
        return integer(rows.get_value(0, 0)), gatherIdentities(found)

    async def knownBlobs(self, ids: Sequence[str]) -> frozenset[str]:
        """Find which of these blobs have a row."""
        rows = await self._read(b"knownblobs", textArray([each for each in ids if isText(each)]))
        return frozenset(rows.get_value(n, 0).decode() for n in range(rows.ntuples))

    async def blobRow(self, id: str) -> BlobRow | None:
        """Look up a blob."""
        if not isText(id):
            return None
        rows = await self._read(b"blobrow", id.encode())
        if not rows.ntuples:
            return None
        size, crc, refs, damaged = _row(rows, 0)
        return BlobRow(id, integer(size), integer(crc), integer(refs), damaged == TRUE)

    async def progress(self, task: str) -> bytes | None:
        """Read the progress of a background task."""
        rows = await self._read(b"progress", task.encode())
        found: bytes | None = rows.get_value(0, 0) if rows.ntuples else None
        return found

    def bucketOf(self, described: bytes) -> Bucket:
        """Decode a bucket, usually from a cache, and remember it."""
        found = self._decoded.get(described)
        if found is None:
            if len(self._decoded) >= _RECENT:
                self._decoded.clear()
            found = self._decoded[described] = readBucket(described)
        bucket = found[0]
        recent = self.recent.get(bucket.name)
        if recent is not found and (recent is None or recent[1] < found[1]):
            if len(self.recent) >= _RECENT:
                self.recent.clear()
            self.recent[bucket.name] = found
        return bucket

    def _recordOf(
        self, rows: Rows, bucket: str, key: bytes, verify: bool, n: int = 0
    ) -> ObjectRecord:
        _, sequence, numbered, size, etag, modified, account, attributes, *rest = _row(rows, n)
        segments, inline, checksum, tags, acl, mode, until, hold, marker, *_ = rest
        if verify and checksum is not None and not _isIntact(inline, integer(checksum)):
            raise CorruptObject(f"object {bucket}/{key!r} is damaged")
        number = int.from_bytes(sequence, "big")
        length = int.from_bytes(size, "big")
        described = readAttributes(attributes)
        # Most objects have none of these.
        if tags is not None or acl is not None or mode is not None or hold is not None:
            described = replace(
                described,
                tags=(tags or b"").decode(),
                acl=(acl or b"").decode(),
                lock=_lockOf(mode, until, hold),
            )
        return ObjectRecord(
            bucket,
            key,
            length,
            etag.decode(),
            int.from_bytes(modified, "big"),
            account.decode(),
            described,
            Content(length, inline, readSegments(None if segments is None else segments.decode())),
            self._ids.make(number) if numbered == TRUE else NULL_VERSION,
            number,
            marker == TRUE,
        )

    async def _read(self, statement: bytes, *values: bytes | None) -> Rows:
        return await self._connection.lookUp((statement, values))


def _row(rows: Rows, number: int) -> list[Any]:
    get = rows.get_value
    return [get(number, column) for column in range(rows.nfields)]


def _lockOf(mode: Value, until: Value, hold: Value) -> ObjectLock:
    if mode is None and hold is None:
        return UNLOCKED
    return ObjectLock(
        (mode or b"").decode(),
        0 if until is None else integer(until),
        None if hold is None else hold == TRUE,
    )


def _isIntact(inline: bytes | None, checksum: int) -> bool:
    return inline is not None and crcFunction("crc32c")(inline, 0) == checksum
