"""
Looking up one thing, in the reactor thread.

Every answer is fetched to its end: a statement that is left half-way keeps its snapshot open, and
the WAL could not start again.
"""

from sqlite3 import Connection

from storagegate.storage.catalog.rows import OBJECT_COLUMNS, readAttributes, readObject
from storagegate.storage.records import Bucket, ObjectRecord, Upload

_OBJECT = f"""
    SELECT b.account, b.createdMs, b.region, {{bytes}}, {OBJECT_COLUMNS}
    FROM buckets AS b LEFT JOIN objects AS o ON o.bucketId = b.id AND o.key = ? {{join}}
    WHERE b.name = ?
"""
_WITH_BYTES = _OBJECT.format(bytes="i.bytes", join="LEFT JOIN inline AS i USING (sequence)")
_WITHOUT_BYTES = _OBJECT.format(bytes="NULL", join="")

_SEQUENCE = 10


def readBucket(connection: Connection, name: str) -> Bucket | None:
    """Look a bucket up."""
    rows = connection.execute(
        "SELECT name, account, createdMs, region FROM buckets WHERE name = ?", (name,)
    ).fetchall()
    return Bucket(*rows[0]) if rows else None


def lookUp(
    connection: Connection, bucket: str, key: bytes, versionId: str | None, withBytes: bool
) -> tuple[Bucket | None, ObjectRecord | None]:
    """
    Look up a bucket and an object in it.

    @param withBytes: Whether the content's C{inline} is wanted; else it is L{None}.
    """
    sql = _WITH_BYTES if withBytes else _WITHOUT_BYTES
    rows = connection.execute(sql, (key, bucket)).fetchall()
    if not rows:
        return None, None
    row = rows[0]
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
