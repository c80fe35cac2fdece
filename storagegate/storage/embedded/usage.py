"""
The number of objects and bytes in each bucket.

A L{Transaction<storagegate.storage.embedded.groupcommit.Transaction>} sums the changes of its
mutations and writes one row per bucket before its commit, so that usage is never counted by reading
objects. A bucket without a row is empty.
"""

from collections.abc import Sequence
from sqlite3 import Connection

from msgspec import Struct

from storagegate.storage.embedded.connections import COUNT_USAGE
from storagegate.storage.embedded.groupcommit import Transaction, oneByOne
from storagegate.storage.records import BucketUsage, OlderVersions, StoreUsage

_SUMS = "sum(objects), sum(bytes), sum(uploads), sum(uploadBytes)"

_OLDER = """
    SELECT count(*), ifnull(sum(NOT deleteMarker), 0), ifnull(sum(size), 0) FROM (
        SELECT deleteMarker, size FROM versions
        WHERE bucketId = (SELECT id FROM buckets WHERE name = ?) LIMIT ?)
"""


def readUsage(connection: Connection, limit: int) -> StoreUsage:
    """See L{ICatalog.usage<storagegate.storage.interfaces.ICatalog.usage>}. Blocks."""
    rows = connection.execute(
        "SELECT b.id, b.name, u.objects, u.bytes, u.uploads, u.uploadBytes"
        " FROM buckets AS b LEFT JOIN usage AS u ON u.bucketId = b.id ORDER BY b.id LIMIT ?",
        (limit,),
    ).fetchall()
    others = None
    if len(rows) == limit:
        [others] = connection.execute(
            f"SELECT {_SUMS} FROM usage WHERE bucketId > ?", (rows[-1][0] if rows else 0,)
        ).fetchall()
    [(keys,)] = connection.execute("SELECT count(*) FROM accessKeys").fetchall()
    return StoreUsage(
        tuple(_usage(name, counts) for _, name, *counts in rows),
        _usage("", others or ()),
        keys,
    )


def countOlder(connection: Connection, bucket: str, limit: int) -> OlderVersions | None:
    """
    See L{ICatalog.olderVersions<storagegate.storage.interfaces.ICatalog.olderVersions>}. Blocks:
    10,000 rows take some milliseconds.
    """
    [(rows, count, size)] = connection.execute(_OLDER, (bucket, limit + 1)).fetchall()
    return None if rows > limit else OlderVersions(count, size)


def _usage(bucket: str, counts: Sequence[int | None]) -> BucketUsage:
    return BucketUsage(bucket, *(count or 0 for count in counts or (0, 0, 0, 0)))


class UsageMismatch(Struct, frozen=True):
    """
    A bucket whose row differs from its actual usage.

    @ivar bucketId: The bucket's number; the bucket no longer exists if C{name} is L{None}.
    @ivar recorded: Objects, bytes, uploads and upload bytes in its row.
    @ivar counted: The same figures, counted.
    """

    bucketId: int
    name: str | None
    recorded: tuple[int, ...]
    counted: tuple[int, ...]


def recountUsage(connection: Connection) -> list[UsageMismatch]:
    """Count everything; return the buckets whose rows differ."""
    empty = (0, 0, 0, 0)
    recorded = {id: tuple(counts) for id, *counts in connection.execute("SELECT * FROM usage")}
    counted = {id: tuple(counts) for id, *counts in connection.execute(COUNT_USAGE)}
    names = dict(connection.execute("SELECT id, name FROM buckets").fetchall())
    return [
        UsageMismatch(id, names.get(id), recorded.get(id, empty), counted.get(id, empty))
        for id in sorted(recorded.keys() | counted.keys())
        if recorded.get(id, empty) != counted.get(id, empty)
    ]


@oneByOne
def setUsage(transaction: Transaction, mismatch: UsageMismatch) -> None:
    """Write the counted figures to the row of a bucket; remove the row if they are all zero."""
    if not any(mismatch.counted):
        transaction.forgetUsage(mismatch.bucketId)
        return
    transaction.execute(
        "INSERT OR REPLACE INTO usage VALUES (?, ?, ?, ?, ?)",
        (mismatch.bucketId, *mismatch.counted),
    )
