"""
What the catalog knows of blobs: for those who sweep, scrub and check the files.

All functions may run in a pool thread.
"""

from collections.abc import Sequence
from sqlite3 import Connection

import msgspec
from attrs import frozen
from twisted.internet.defer import Deferred
from zope.interface import Interface

from storagegate.storage.catalog.rows import isIntact
from storagegate.storage.catalog.transactions import asJSON


@frozen
class BlobRow:
    """
    A blob that the catalog knows.

    @ivar crc: CRC-32C of all its bytes.
    @ivar refs: Segments that name it.
    """

    id: str
    size: int
    crc: int
    refs: int
    damaged: bool


@frozen
class InlinePosition:
    """Where in the catalog a check of inline bytes has come to."""

    bucketId: int
    key: bytes


@frozen
class InlineCheck:
    """
    What a page of such a check found.

    @ivar damaged: Bucket and key of objects whose bytes are not those that were written.
    @ivar bytesRead: How much was read.
    @ivar next: Where to go on; L{None} at the end.
    """

    damaged: tuple[tuple[str, bytes], ...]
    bytesRead: int
    next: InlinePosition | None


class IBlobLedger(Interface):
    """The catalog's side of blobs, besides L{storagegate.storage.interfaces.ICatalog}."""

    def knownBlobs(ids: Sequence[str]) -> frozenset[str]:
        """Say which of these have a row. Reactor thread, at once; for start-up and tests."""

    def referenced(ids: Sequence[str]) -> Deferred[frozenset[str]]:
        """Say which of these are named by an object or a part."""

    def garbage(after: str, limit: int) -> Deferred[list[str]]:
        """List blobs that nothing names, by id, after this one."""

    def blobRow(id: str) -> BlobRow | None:
        """Look a blob up. Reactor thread, at once."""

    def blobRows(after: str, limit: int) -> Deferred[list[BlobRow]]:
        """List all blobs by id, after this one."""

    def forgetBlobs(ids: Sequence[str]) -> Deferred[None]:
        """Remove the rows of blobs whose files are gone. Those that are named stay."""

    def markDamaged(blob: str) -> Deferred[None]:
        """Note that the bytes of a blob are not those that were written."""

    def damagedBlobs() -> frozenset[str]:
        """List the blobs that are marked; they are few. Reactor thread; for the start."""

    def checkInline(start: InlinePosition | None, limit: int) -> Deferred[InlineCheck]:
        """
        Compare the inline bytes of a page of objects with their checksums.

        @param start: The C{next} of the page before; L{None} begins.
        @param limit: Objects in the page.
        """


_decodeNames = msgspec.json.Decoder(list[str]).decode
_decodeRows = msgspec.json.Decoder(list[BlobRow]).decode


def knownBlobs(connection: Connection, ids: Sequence[str]) -> frozenset[str]:
    """Say which of these have a row."""
    return _among(connection, ids, "TRUE")


def referencedBlobs(connection: Connection, ids: Sequence[str]) -> frozenset[str]:
    """Say which of these are named."""
    return _among(connection, ids, "refs > 0")


def damagedBlobs(connection: Connection) -> frozenset[str]:
    """List what was marked; it is few."""
    return _names(connection, "SELECT id FROM blobs WHERE damaged", ())


def garbageBlobs(connection: Connection, after: str, limit: int) -> list[str]:
    """List a page of what nothing names."""
    return _page(connection, after, limit, "refs = 0")


def namedBlobs(connection: Connection, after: str, limit: int) -> list[str]:
    """List a page of what is named, by id."""
    return _page(connection, after, limit, "refs > 0")


def blobRow(connection: Connection, id: str) -> BlobRow | None:
    """Look a blob up."""
    rows = connection.execute(
        "SELECT size, crc, refs, damaged FROM blobs WHERE id = ?", (id,)
    ).fetchall()
    if not rows:
        return None
    size, crc, refs, damaged = rows[0]
    return BlobRow(id, size, crc, refs, bool(damaged))


def blobRows(connection: Connection, after: str, limit: int) -> list[BlobRow]:
    """List a page of all blobs."""
    rows = connection.execute(
        "SELECT json_group_array(json_object('id', id, 'size', size, 'crc', crc, 'refs', refs,"
        " 'damaged', json(iif(damaged, 'true', 'false'))))"
        " FROM (SELECT * FROM blobs WHERE id > ? ORDER BY id LIMIT ?)",
        (after, limit),
    ).fetchall()
    return _decodeRows(rows[0][0])


def checkInline(connection: Connection, start: InlinePosition | None, limit: int) -> InlineCheck:
    """Read a page of inline objects and compare their checksums."""
    begin = InlinePosition(-1, b"") if start is None else start
    damaged: list[tuple[str, bytes]] = []
    read = bytesRead = 0
    last = begin
    # Row by row, for a page of them may hold many megabytes.
    for bucketId, key, bucket, checksum, inline in connection.execute(
        "SELECT bucketId, key, (SELECT name FROM buckets WHERE id = bucketId),"
        " storageChecksum, bytes FROM objects LEFT JOIN inline USING (sequence)"
        " WHERE (bucketId, key) > (?, ?)"
        " ORDER BY bucketId, key, sequence DESC LIMIT ?",
        (begin.bucketId, begin.key, limit),
    ):
        read += 1
        last = InlinePosition(bucketId, key)
        bytesRead += len(inline or b"")
        if not isIntact(inline, checksum):
            damaged.append((bucket, key))
    return InlineCheck(tuple(damaged), bytesRead, last if read == limit else None)


def _among(connection: Connection, ids: Sequence[str], condition: str) -> frozenset[str]:
    return _names(
        connection,
        f"SELECT id FROM blobs WHERE {condition} AND id IN (SELECT value FROM json_each(?))",
        (asJSON(list(ids)),),
    )


def _page(connection: Connection, after: str, limit: int, condition: str) -> list[str]:
    select = f"SELECT id FROM blobs WHERE {condition} AND id > ? ORDER BY id LIMIT ?"
    return sorted(_names(connection, select, (after, limit)))


def _names(connection: Connection, select: str, values: tuple[object, ...]) -> frozenset[str]:
    rows = connection.execute(f"SELECT json_group_array(id) FROM ({select})", values).fetchall()
    return frozenset(_decodeNames(rows[0][0]))
