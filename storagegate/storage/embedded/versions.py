"""
The versions of a key except its current object: noncurrent versions and delete markers.

The rows of a key form a stack, ordered by write number. The top is either the current object, the
only row in C{objects}, or a delete marker, which is in C{versions} like all rows below it.
C{noncurrentMs} is the time at which a row ceased to be the top.

Rows move between the two tables with all columns. Inline bytes are keyed by write number and stay
in place, and so do references to blobs. As everywhere in the writer, one statement serves a run of
keys.
"""

from collections.abc import Sequence
from functools import cache
from itertools import chain

import msgspec

from storagegate.storage.embedded.groupcommit import Transaction
from storagegate.storage.records import NULL_VERSION
from storagegate.storage.sqlite import asBlob
from storagegate.storage.versionids import VersionIds

Key = tuple[int, bytes]
"""The number of a bucket and a key in it."""

VersionName = int | str | None
"""The write number of a version, or C{NULL_VERSION}; L{None} for the current object."""

NULL = "'null'"
"""NULL_VERSION as an SQL literal, which the partial index of such versions requires."""

COLUMNS = (
    "bucketId, key, sequence, versionId, deleteMarker, size, etag, modifiedMs, account,"
    " storageClass, checksumAlgorithm, checksumKind, storageChecksum, attributes, segments,"
    " tags, acl, retainMode, retainUntilMs, legalHold"
)
"""All columns of C{objects}, which C{versions} also has."""

_MOVED = ", ".join(f"o.{column}" for column in COLUMNS.split(", "))


class VersionRow(msgspec.Struct, frozen=True, array_like=True):
    """A row of C{versions}."""

    sequence: int
    versionId: str
    isDeleteMarker: int
    size: int
    etag: str
    modifiedMs: int
    segments: str | None
    noncurrentMs: int | None

    @property
    def isCurrent(self) -> bool:
        """Whether this is the newest version of its key, and so a delete marker."""
        return self.noncurrentMs is None


def versionOf(ids: VersionIds, versionId: str | None) -> VersionName:
    """
    Return the name of a version in the tables.

    @param versionId: The id as sent by a client; L{None} for the current object.
    @raise InvalidVersionId: This store has not issued the id.
    """
    if versionId is None or versionId == NULL_VERSION:
        return versionId
    return ids.read(versionId)


_ROW = (
    "json_array(v.sequence, v.versionId, v.deleteMarker, v.size, v.etag, v.modifiedMs, v.segments,"
    " v.noncurrentMs)"
)
_decodeRows = msgspec.json.Decoder(list[tuple[int, VersionRow]]).decode


@cache
def _values(count: int, columns: int) -> str:
    return ", ".join([f"({', '.join('?' * columns)})"] * count)


def _find(
    transaction: Transaction, names: Sequence[tuple[object, ...]], on: str
) -> dict[int, VersionRow]:
    """
    Look up rows.

    @param names: The values of each name. The first is its position, the key in the result; the
        condition refers to the others as C{column2} and so on.
    @param on: The condition on C{versions AS v}.
    """
    if not names:
        return {}
    text = transaction.value(
        f"SELECT json_group_array(json_array(name.column1, json({_ROW})))"
        f" FROM (VALUES {_values(len(names), len(names[0]))}) AS name"
        f" CROSS JOIN versions AS v ON {on}",
        list(chain.from_iterable(names)),
    )
    return dict(_decodeRows(text))


def findTops(transaction: Transaction, keys: Sequence[Key]) -> dict[int, VersionRow]:
    """Look up the newest row in C{versions} of each key, by position."""
    return _find(
        transaction,
        [(position, *key) for position, key in enumerate(keys)],
        "v.bucketId = name.column2 AND v.key = name.column3 AND v.sequence = (SELECT sequence"
        " FROM versions WHERE bucketId = name.column2 AND key = name.column3"
        " ORDER BY sequence DESC LIMIT 1)",
    )


def findNulls(transaction: Transaction, keys: Sequence[Key]) -> dict[int, VersionRow]:
    """Look up the C{null} version of each key that has one in C{versions}, by position."""
    return _find(
        transaction,
        [(position, *key) for position, key in enumerate(keys)],
        f"v.bucketId = name.column2 AND v.key = name.column3 AND v.versionId = {NULL}",
    )


def findNumbered(
    transaction: Transaction, names: Sequence[tuple[Key, int]]
) -> dict[int, VersionRow]:
    """Look up versions of keys by write number; return them by position."""
    return _find(
        transaction,
        [(position, *key, sequence) for position, (key, sequence) in enumerate(names)],
        "v.bucketId = name.column2 AND v.key = name.column3 AND v.sequence = name.column4",
    )


def moveAside(transaction: Transaction, moved: Sequence[tuple[Key, int]]) -> None:
    """
    Move current objects to C{versions}.

    @param moved: Keys, and when their objects became noncurrent, in milliseconds.
    """
    if not moved:
        return
    transaction.execute(
        f"INSERT INTO versions ({COLUMNS}, noncurrentMs) SELECT {_MOVED}, name.column3"
        f" FROM (VALUES {_values(len(moved), 3)}) AS name CROSS JOIN objects AS o"
        " ON o.bucketId = name.column1 AND o.key = name.column2",
        [each for key, atMs in moved for each in (*key, atMs)],
    )
    deleteObjectRows(transaction, [key for key, _ in moved])


def promote(transaction: Transaction, keys: Sequence[Key]) -> list[int]:
    """
    Make the newest remaining version of each key current.

    @param keys: Keys whose current version was removed.
    @return: The positions of keys that now have a current object.
    """
    tops = findTops(transaction, keys)
    found = [position for position, row in tops.items() if not row.isDeleteMarker]
    names = [(*keys[position], tops[position].sequence) for position in found]
    if names:
        transaction.execute(
            f"INSERT INTO objects ({COLUMNS}) SELECT {_MOVED}"
            f" FROM (VALUES {_values(len(names), 3)}) AS name CROSS JOIN versions AS o"
            " ON o.bucketId = name.column1 AND o.key = name.column2"
            " AND o.sequence = name.column3",
            list(chain.from_iterable(names)),
        )
        _deleteVersionRows(transaction, [((id, key), sequence) for id, key, sequence in names])
    setNoncurrent(
        transaction,
        [
            (keys[position], row.sequence, None)
            for position, row in tops.items()
            if row.isDeleteMarker
        ],
    )
    return found


def setNoncurrent(transaction: Transaction, rows: Sequence[tuple[Key, int, int | None]]) -> None:
    """
    Write when rows of C{versions} became noncurrent.

    @param rows: Key, write number and time in milliseconds; L{None} marks the row as current.
    """
    if rows:
        transaction.execute(
            "UPDATE versions SET noncurrentMs = name.column4"
            f" FROM (VALUES {_values(len(rows), 4)}) AS name WHERE bucketId = name.column1"
            " AND key = name.column2 AND sequence = name.column3",
            [each for key, sequence, atMs in rows for each in (*key, sequence, atMs)],
        )


def removeVersions(transaction: Transaction, rows: Sequence[tuple[Key, VersionRow]]) -> list[str]:
    """
    Remove rows of C{versions}, with their inline bytes.

    @return: The encoded segments of the removed rows, whose references must be released.
    """
    if not rows:
        return []
    for (bucketId, _), row in rows:
        if not row.isDeleteMarker:
            transaction.count(bucketId, -1, -row.size)
    _deleteVersionRows(transaction, [(key, row.sequence) for key, row in rows])
    deleteInline(transaction, [row.sequence for _, row in rows])
    return [row.segments for _, row in rows if row.segments is not None]


class Marker(msgspec.Struct, frozen=True):
    """A delete marker to insert."""

    key: Key
    sequence: int
    versionId: str
    account: str
    modifiedMs: int


def insertMarkers(transaction: Transaction, markers: Sequence[Marker]) -> None:
    """Insert delete markers above all other versions of their keys."""
    if markers:
        row = "(?, ?, ?, ?, 1, 0, '', ?, ?, '', '', '', '{}')"
        transaction.execute(
            "INSERT INTO versions (bucketId, key, sequence, versionId, deleteMarker, size, etag,"
            " modifiedMs, account, storageClass, checksumAlgorithm, checksumKind, attributes)"
            f" VALUES {', '.join([row] * len(markers))}",
            [
                value
                for each in markers
                for value in (
                    *each.key,
                    each.sequence,
                    each.versionId,
                    each.modifiedMs,
                    each.account,
                )
            ],
        )


def deleteObjectRows(transaction: Transaction, keys: Sequence[Key]) -> None:
    """Delete existing rows of C{objects}, but not their inline bytes or references."""
    byBucket: dict[int, list[bytearray]] = {}
    for bucketId, key in keys:
        byBucket.setdefault(bucketId, []).append(asBlob(key))
    for bucketId, names in byBucket.items():
        for start, end in cuts(len(names)):
            sql = _deleteSQL("objects WHERE bucketId = ? AND key", end - start)
            transaction.execute(sql, [bucketId, *names[start:end]])


def deleteInline(transaction: Transaction, sequences: Sequence[int]) -> None:
    """
    Delete inline bytes.

    @param sequences: Write numbers, some of which may have no inline bytes.
    """
    for start, end in cuts(len(sequences)):
        sql = _deleteSQL("inline WHERE sequence", end - start)
        transaction.execute(sql, sequences[start:end])


@cache
def _deleteSQL(column: str, count: int) -> str:
    return f"DELETE FROM {column} IN ({', '.join('?' * count)})"


def _deleteVersionRows(transaction: Transaction, names: Sequence[tuple[Key, int]]) -> None:
    byBucket: dict[int, list[tuple[bytes, int]]] = {}
    for (bucketId, key), sequence in names:
        byBucket.setdefault(bucketId, []).append((key, sequence))
    for bucketId, rows in byBucket.items():
        # SQLite uses the index for a list of row values only if they come from one SELECT.
        transaction.execute(
            "DELETE FROM versions WHERE bucketId = ? AND (key, sequence) IN"
            f" (SELECT column1, column2 FROM (VALUES {_values(len(rows), 2)}))",
            [bucketId, *chain.from_iterable(rows)],
        )


CHUNK = 64
"""The most rows in one statement: beyond this, a further statement costs less than it saves."""


@cache
def cuts(count: int) -> tuple[tuple[int, int], ...]:
    """
    Split a range into multiples of eight up to L{CHUNK}, and a remainder, so that few different
    statements are prepared.

    @param count: The length of the range.
    """
    found: list[tuple[int, int]] = []
    start = 0
    while start < count:
        end = start + (min(CHUNK, (count - start) // 8 * 8) or count - start)
        found.append((start, end))
        start = end
    return tuple(found)
