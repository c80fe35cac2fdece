"""
The rows of blobs and their reference counts.

Each segment of an object or part is one reference. A blob without references keeps its row until
its file is removed (L{forgetBlobs}), so that a crash cannot lose track of a file.

All functions may run in a pool thread.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from sqlite3 import Connection

import msgspec

from storagegate.storage.embedded.groupcommit import Transaction, asJSON
from storagegate.storage.records import BlobRow, Segment

_decodeCounts = msgspec.json.Decoder(list[tuple[str, int]]).decode
_decodeNames = msgspec.json.Decoder(list[str]).decode


class ReferenceDelta(msgspec.Struct, frozen=True):
    """
    The references that a write adds.

    @ivar segments: The segments, each of which is one reference.
    @ivar newBlobs: The new blobs of the segments with their CRC-32C.
    """

    segments: tuple[Segment, ...]
    newBlobs: Mapping[str, int]


class ReferenceBatch:
    """
    The reference counts that a run of writes sees, where each write sees the changes before it.

    One statement reads the counts for all of them.

    @param transaction: The open transaction, in which the counts are read immediately.
    @param deltas: All changes that L{allows} and L{add} will receive.
    """

    def __init__(self, transaction: Transaction, deltas: Iterable[ReferenceDelta]) -> None:
        ids = {segment.blob for delta in deltas for segment in delta.segments}
        self._refs: dict[str, int] = {}
        if ids:
            counts = transaction.value(
                "SELECT json_group_array(json_array(id, refs)) FROM blobs"
                " WHERE id IN (SELECT value FROM json_each(?))",
                (asJSON(list(ids)),),
            )
            self._refs.update(_decodeCounts(counts))

    def allows(self, delta: ReferenceDelta) -> bool:
        """
        Return whether a write may add its references.

        A blob that is not new must have a reference: a blob without references or without a row is
        being removed.

        @param delta: One of the changes given to the constructor.
        """
        return all(
            self._refs[segment.blob] > 0
            if segment.blob in self._refs
            else segment.blob in delta.newBlobs
            for segment in delta.segments
        )

    def add(self, delta: ReferenceDelta, released: Iterable[Segment]) -> None:
        """
        Add the references of an allowed write.

        @param delta: A change that L{allows} accepted; later writes see its segments.
        @param released: The references of the replaced row.
        """
        for segment in delta.segments:
            self._refs[segment.blob] = self._refs.get(segment.blob, 0) + 1
        for segment in released:
            if segment.blob in self._refs:
                self._refs[segment.blob] -= 1


def applyDeltas(
    transaction: Transaction, deltas: Sequence[ReferenceDelta], released: Iterable[Segment]
) -> None:
    """
    Add references that a L{ReferenceBatch} has allowed, and subtract released ones.

    Only the difference is written: an object assembled from its parts changes no count. New blobs
    get a row. A blob that loses its last reference becomes garbage.

    @param transaction: The open transaction; blobs that lose their last reference are added to its
        C{garbage}.
    @param deltas: The added references, with the checksums of new blobs.
    @param released: The released references.
    """
    counts = Counter(segment.blob for delta in deltas for segment in delta.segments)
    counts.subtract(segment.blob for segment in released)
    gains = {blob: n for blob, n in counts.items() if n > 0}
    losses = {blob: n for blob, n in counts.items() if n < 0}
    if gains:
        sizes: dict[str, int] = {}
        crcs: dict[str, int] = {}
        for delta in deltas:
            crcs.update(delta.newBlobs)
            for segment in delta.segments:
                end = segment.offset + segment.length
                sizes[segment.blob] = max(end, sizes.get(segment.blob, 0))
        rows = [(blob, sizes[blob], crcs.get(blob, 0), n) for blob, n in gains.items()]
        transaction.execute(
            "INSERT INTO blobs (id, size, crc, refs)"
            " SELECT value ->> 0, value ->> 1, value ->> 2, value ->> 3 FROM json_each(?)"
            " WHERE TRUE ON CONFLICT DO UPDATE SET refs = refs + excluded.refs",
            (asJSON(rows),),
        )
    if losses:
        transaction.execute(
            "UPDATE blobs SET refs = refs + change.n"
            " FROM (SELECT value ->> 0 AS id, value ->> 1 AS n FROM json_each(?)) AS change"
            " WHERE blobs.id = change.id",
            (asJSON(list(losses.items())),),
        )
        transaction.garbage += _decodeNames(
            transaction.value(
                "SELECT json_group_array(id) FROM blobs"
                " WHERE refs = 0 AND id IN (SELECT value FROM json_each(?))",
                (asJSON(list(losses)),),
            )
        )


def forgetBlobs(transaction: Transaction, arguments: Sequence[Sequence[str]]) -> list[None]:
    """
    Remove the rows of blobs whose files are gone.

    @param arguments: The ids of the blobs of each mutation; rows with references stay.
    """
    names = [blob for blobs in arguments for blob in blobs]
    transaction.execute(
        "DELETE FROM blobs WHERE refs = 0 AND id IN (SELECT value FROM json_each(?))",
        (asJSON(names),),
    )
    return [None] * len(arguments)


def markCorrupt(transaction: Transaction, arguments: Sequence[str]) -> list[None]:
    """Record that blobs are corrupt."""
    transaction.execute(
        "UPDATE blobs SET damaged = 1 WHERE id IN (SELECT value FROM json_each(?))",
        (asJSON(list(arguments)),),
    )
    return [None] * len(arguments)


def clearCorrupt(transaction: Transaction, arguments: Sequence[str]) -> list[None]:
    """Record that blobs are intact again."""
    transaction.execute(
        "UPDATE blobs SET damaged = 0 WHERE id IN (SELECT value FROM json_each(?))",
        (asJSON(list(arguments)),),
    )
    return [None] * len(arguments)


_decodeRows = msgspec.json.Decoder(list[BlobRow]).decode


def knownBlobs(
    connection: Connection, ids: Sequence[str], onlyReferenced: bool = False
) -> frozenset[str]:
    """
    Return the subset of blobs that have a row.

    @param connection: A read connection, used in the calling thread.
    @param ids: The blobs' ids.
    @param onlyReferenced: Whether to omit blobs without references.
    """
    condition = "refs > 0" if onlyReferenced else "TRUE"
    rows = connection.execute(
        "SELECT json_group_array(id) FROM blobs"
        f" WHERE {condition} AND id IN (SELECT value FROM json_each(?))",
        (asJSON(list(ids)),),
    ).fetchall()
    return frozenset(_decodeNames(rows[0][0]))


def corruptBlobs(connection: Connection) -> set[str]:
    """List the blobs marked as corrupt. There are few."""
    return {row[0] for row in connection.execute("SELECT id FROM blobs WHERE damaged")}


def objectsOf(
    connection: Connection, blobs: Sequence[str], limit: int
) -> list[tuple[str, bytes, str, str]]:
    """
    Find the objects, including all versions, that have bytes in given blobs.

    This reads all objects, so it is used only for corrupt blobs.

    @return: The blob, key, bucket and version of each.
    """
    columns = "bucketId, key, versionId, segments"
    return connection.execute(
        "SELECT DISTINCT s.value ->> 0, o.key, b.name, o.versionId FROM"
        f" (SELECT {columns} FROM objects UNION ALL SELECT {columns} FROM versions) AS o"
        " JOIN buckets AS b ON b.id = o.bucketId, json_each(o.segments) AS s"
        " WHERE o.segments IS NOT NULL"
        " AND s.value ->> 0 IN (SELECT value FROM json_each(?)) LIMIT ?",
        (asJSON(list(blobs)), limit),
    ).fetchall()


def listBlobs(connection: Connection, after: str, limit: int, isReferenced: bool) -> list[str]:
    """
    List a page of the blobs with or without references, by id.

    @param connection: A read connection, used in the calling thread.
    @param after: Ids strictly after this one; empty starts at the beginning.
    @param limit: The most ids in the result.
    @param isReferenced: Whether to list blobs with references or blobs without.
    """
    # A literal, so that the partial index of blobs without references applies.
    condition = "refs > 0" if isReferenced else "refs = 0"
    rows = connection.execute(
        "SELECT json_group_array(id) FROM"
        f" (SELECT id FROM blobs WHERE {condition} AND id > ? ORDER BY id LIMIT ?)",
        (after, limit),
    ).fetchall()
    return _decodeNames(rows[0][0])


def blobRow(connection: Connection, id: str) -> BlobRow | None:
    """Look up a blob; L{None} if it has no row."""
    rows = connection.execute(
        "SELECT size, crc, refs, damaged FROM blobs WHERE id = ?", (id,)
    ).fetchall()
    if not rows:
        return None
    size, crc, refs, damaged = rows[0]
    return BlobRow(id, size, crc, refs, bool(damaged))


def blobRows(connection: Connection, after: str, limit: int) -> list[BlobRow]:
    """List a page of all blobs by id, like L{listBlobs}."""
    rows = connection.execute(
        "SELECT json_group_array(json_object('id', id, 'size', size, 'crc', crc, 'refs', refs,"
        " 'damaged', json(iif(damaged, 'true', 'false'))))"
        " FROM (SELECT * FROM blobs WHERE id > ? ORDER BY id LIMIT ?)",
        (after, limit),
    ).fetchall()
    return _decodeRows(rows[0][0])
