"""
Queries of the lifecycle scanner: pages of versions, the check in the removal's transaction that the
removal is still due, and the scanner's progress.
"""

from collections.abc import Sequence
from functools import cache
from itertools import chain
from sqlite3 import Connection

import msgspec

from storagegate.storage.embedded.buckets import bucketId
from storagegate.storage.embedded.groupcommit import Transaction, oneByOne
from storagegate.storage.embedded.versions import Key
from storagegate.storage.mutations import PutProgress
from storagegate.storage.records import NEWER_LIMIT, Expiry, ExpiryRow

_ROW = (
    "json_array(CAST(key AS TEXT), sequence, versionId, deleteMarker, size, modifiedMs,"
    " noncurrentMs, tags, retainUntilMs, legalHold)"
)


def _pageSQL(where: str) -> str:
    """Return a statement that reads rows of both tables and merges them in order."""
    selects = [
        "SELECT key, sequence, versionId, deleteMarker, size, modifiedMs,"
        f" {noncurrent} AS noncurrentMs, ifnull(tags, '') AS tags, retainUntilMs, legalHold"
        f" FROM {table} WHERE bucketId = :bucket AND {where}"
        for table, noncurrent in (("objects", "NULL"), ("versions", "noncurrentMs"))
    ]
    return (
        f"SELECT json_group_array(json({_ROW})) FROM ({' UNION ALL '.join(selects)}"
        " ORDER BY key, sequence DESC LIMIT :most)"
    )


_OLDER = _pageSQL("key = :key AND sequence < :sequence")
_FROM = _pageSQL("key > :key AND key >= :prefix AND key < :end")

_decodeRows = msgspec.json.Decoder(list[ExpiryRow]).decode
_decodeTexts = msgspec.json.Decoder(list[str]).decode
_decodeNumbers = msgspec.json.Decoder(list[int]).decode


def readPage(
    connection: Connection, bucket: str, prefix: bytes, after: tuple[bytes, int] | None, limit: int
) -> list[ExpiryRow]:
    """
    See L{ICatalog.expiryPage<storagegate.storage.interfaces.ICatalog.expiryPage>}.

    @param connection: A read connection, used in the calling thread.
    @param bucket: The bucket's name.
    @param prefix: The prefix of all keys.
    @param after: Key and write number after which the page begins; L{None} for the first page.
    @param limit: The most rows in the result.
    """
    key, sequence = (b"", 0) if after is None else after
    values: dict[str, object] = {
        "bucket": bucketId(connection, bucket),
        "key": key,
        "sequence": sequence,
        "prefix": prefix,
        "end": prefix + b"\xff",
        "most": limit,
    }
    rows: list[ExpiryRow] = []
    if after is not None:
        rows = _decodeRows(connection.execute(_OLDER, values).fetchall()[0][0])
    if len(rows) < limit:
        values["most"] = limit - len(rows)
        rows += _decodeRows(connection.execute(_FROM, values).fetchall()[0][0])
    return rows


def bucketsWith(connection: Connection, setting: str, after: str, limit: int) -> list[str]:
    """List the names of buckets that have a setting; see L{ICatalog.bucketsWith}."""
    rows = connection.execute(
        "SELECT json_group_array(name) FROM (SELECT name FROM buckets WHERE name > ? AND id IN"
        " (SELECT bucketId FROM bucketSettings WHERE name = ?) ORDER BY name LIMIT ?)",
        (after, setting, limit),
    ).fetchall()
    return _decodeTexts(rows[0][0])


@cache
def _stillSQL(count: int) -> str:
    values = ", ".join([f"({', '.join('?' * 9)})"] * count)
    same = (
        "bucketId = e.column2 AND key = e.column3 AND sequence = e.column4"
        " AND ifnull(tags, '') = e.column7"
    )
    ofKey = "bucketId = e.column2 AND key = e.column3"
    return (
        f"SELECT json_group_array(e.column1) FROM (VALUES {values}) AS e"
        " CROSS JOIN buckets AS b ON b.id = e.column2 AND b.generation = e.column5"
        f" WHERE (e.column6 IS NULL AND EXISTS (SELECT 1 FROM objects WHERE {same})"
        f" OR EXISTS (SELECT 1 FROM versions WHERE {same} AND noncurrentMs IS e.column6))"
        # Rows are counted from the newest, up to the most that a rule can name.
        " AND (e.column8 = 0 OR (SELECT count(*) FROM (SELECT 1 FROM versions"
        f" WHERE {ofKey} AND sequence > e.column4 AND noncurrentMs IS NOT NULL"
        f" LIMIT {NEWER_LIMIT})) >= e.column8)"
        " AND (NOT e.column9 OR NOT EXISTS"
        f" (SELECT 1 FROM versions WHERE {ofKey} AND sequence <> e.column4))"
    )


def stillDue(transaction: Transaction, rows: Sequence[tuple[Key, Expiry]]) -> set[int]:
    """
    Return the positions of rows that are unchanged since their removal was decided.

    @param rows: At most as many rows as one statement takes.
    """
    if not rows:
        return set()
    values = [
        (
            position,
            *key,
            expiry.sequence,
            expiry.generation,
            expiry.noncurrentMs,
            expiry.tags,
            expiry.newer,
            expiry.isOnly,
        )
        for position, (key, expiry) in enumerate(rows)
    ]
    text = transaction.value(_stillSQL(len(rows)), list(chain.from_iterable(values)))
    return set(_decodeNumbers(text))


def hasGeneration(transaction: Transaction, bucketId: int, generation: int) -> bool:
    """Return whether the settings of a bucket have a generation."""
    found = transaction.value("SELECT generation FROM buckets WHERE id = ?", (bucketId,))
    return bool(found == generation)


@oneByOne
def putProgress(transaction: Transaction, progress: PutProgress) -> None:
    """Store the progress of a background task."""
    transaction.execute(
        "INSERT OR REPLACE INTO meta VALUES (?, ?)",
        (f"progress-{progress.task}", progress.document),
    )


def readProgress(connection: Connection, task: str) -> bytes | None:
    """Read the progress of a background task; L{None} if it has never stored any."""
    rows = connection.execute(
        "SELECT value FROM meta WHERE name = ?", (f"progress-{task}",)
    ).fetchall()
    return rows[0][0] if rows else None
