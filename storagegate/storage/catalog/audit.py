"""
The checks of C{storagegate fsck}: whether the catalog agrees with itself.

Reads whole tables; for a catalog that nobody else has open.
"""

from sqlite3 import Connection

from attrs import frozen

from storagegate.storage.catalog.transactions import Transaction, asJSON

# Where segments are kept.
_NAMED = """
    SELECT segment.value ->> 0 AS id, count(*) AS n
    FROM (SELECT segments FROM objects WHERE segments IS NOT NULL
        UNION ALL SELECT segments FROM parts WHERE segments IS NOT NULL) AS named,
        json_each(named.segments) AS segment
    GROUP BY 1
"""


@frozen
class Mismatch:
    """
    A blob whose row is not what the segments say.

    @ivar recorded: References by its row; L{None} without a row.
    @ivar counted: Segments that name it.
    """

    blob: str
    recorded: int | None
    counted: int


def integrity(connection: Connection) -> list[str]:
    """Let SQLite check the file's structure; give what it found, one line each."""
    lines = [str(row[0]) for row in connection.execute("PRAGMA integrity_check(100)")]
    return [] if lines == ["ok"] else lines


def recount(connection: Connection) -> list[Mismatch]:
    """Count all references anew and give the blobs where the rows say otherwise."""
    rows = connection.execute(
        f"WITH named AS MATERIALIZED ({_NAMED})"
        " SELECT named.id, blobs.refs, named.n FROM named LEFT JOIN blobs USING (id)"
        " WHERE blobs.refs IS NOT named.n"
        " UNION ALL SELECT id, refs, 0 FROM blobs"
        " WHERE refs != 0 AND id NOT IN (SELECT id FROM named) ORDER BY 1"
    ).fetchall()
    return [Mismatch(*row) for row in rows]


def owners(connection: Connection, blob: str) -> list[tuple[str, bytes]]:
    """Give bucket and key of the objects and the uploads that name a blob."""
    rows = connection.execute(
        "SELECT b.name, o.key FROM objects AS o JOIN buckets AS b ON b.id = o.bucketId"
        " WHERE o.segments IS NOT NULL"
        " AND EXISTS (SELECT 1 FROM json_each(o.segments) WHERE value ->> 0 = :blob)"
        " UNION SELECT b.name, u.key FROM parts AS p JOIN uploads AS u USING (uploadId)"
        " JOIN buckets AS b ON b.id = u.bucketId WHERE p.segments IS NOT NULL"
        " AND EXISTS (SELECT 1 FROM json_each(p.segments) WHERE value ->> 0 = :blob)"
        " ORDER BY 1, 2",
        {"blob": blob},
    ).fetchall()
    return [(bucket, key) for bucket, key in rows]


def setCounts(transaction: Transaction, mismatches: list[Mismatch]) -> None:
    """
    Write the counted references into the rows.

    A blob without a row gets none: its bytes were never vouched for, and the objects that name it
    are for the operator to judge.
    """
    transaction.execute(
        "UPDATE blobs SET refs = truth.n"
        " FROM (SELECT value ->> 0 AS id, value ->> 1 AS n FROM json_each(?)) AS truth"
        " WHERE blobs.id = truth.id",
        (asJSON([(each.blob, each.counted) for each in mismatches]),),
    )
