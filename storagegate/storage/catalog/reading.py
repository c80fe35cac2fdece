"""
Looking up one thing, in the reactor thread.

Every answer is fetched to its end: a statement that is left half-way keeps its snapshot open, and
the WAL could not start again.
"""

from sqlite3 import Connection
from typing import Any

from storagegate.storage.catalog.rows import (
    OBJECT_COLUMNS,
    isIntact,
    readAttributes,
    readObject,
)
from storagegate.storage.errors import DamagedObject
from storagegate.storage.records import Bucket, ObjectRecord, Upload

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

    @raise DamagedObject: They are not those that were written.
    """
    rows = connection.execute(_WITH_CHECKSUM, (key, bucket)).fetchall()
    if not rows:
        return None, None
    *row, checksum = rows[0]
    found = _found(bucket, key, versionId, row)
    if found[1] is not None and not isIntact(found[1].content.inline, checksum):
        raise DamagedObject(f"object {bucket}/{key!r} is damaged")
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


def readUpload(connection: Connection, bucket: str, key: bytes, uploadId: str) -> Upload | None:
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
    return Upload(bucket, key, uploadId, account, startedMs, readAttributes(attributes), *checksum)


def readSecret(connection: Connection) -> bytes:
    """Read the store's own random bytes."""
    secret: bytes = connection.execute("SELECT value FROM meta WHERE name = 'secret'").fetchall()[
        0
    ][0]
    return secret
