"""
C{storagegate fsck}: whether the catalog and the files agree, in a store that nobody has open.

What can be put right without losing anything is repaired on request: counts of references, files
that nothing names, leftovers of uploads, rows of blobs that nothing names. The rest is reported.

The checks of C{storagegate fsck}: whether the catalog agrees with itself.

Reads whole tables; for a catalog that nobody else has open.
"""

import os
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from sqlite3 import Connection

from attrs import frozen

from storagegate.storage.blobids import isBlobId
from storagegate.storage.blobs.fsync import SyncGroup, WriteFence
from storagegate.storage.blobs.layout import BlobLayout, Shards
from storagegate.storage.blobs.writer import checksumOf
from storagegate.storage.catalog import refcounts
from storagegate.storage.catalog.connections import Durability as CatalogDurability
from storagegate.storage.catalog.connections import Purpose, connect, prepare
from storagegate.storage.catalog.transactions import (
    Apply,
    Mutation,
    Transaction,
    asJSON,
    oneByOne,
    runAlone,
)
from storagegate.storage.files import DirectoryLock, Files, unlinkIfThere
from storagegate.storage.records import BlobRow
from storagegate.storage.recovery import sweepStaging
from storagegate.storage.scrub import checkBlob
from storagegate.storage.sqlite import CatalogUnusable

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


_PAGE = 500
"""Rows, or names, looked at together."""

Report = Callable[[str], object]


def check(
    directory: str, repair: bool, verify: bool, report: Report, files: Files | None = None
) -> int:
    """
    Check a store. Blocks, for as long as it takes to look at every file.

    @param repair: Put right what can be.
    @param verify: Read all bytes again and compare their checksums.
    @param report: Told of each problem, one line each.
    @return: How many problems are left.
    @raise StoreLocked: The store is open.
    @raise StoreError: There is no store, or its catalog cannot be opened.
    """
    layout = BlobLayout(directory)
    path = os.path.join(directory, "catalog.sqlite")
    if not os.path.exists(path):
        raise CatalogUnusable(f"there is no store in {directory}")
    lock = DirectoryLock.take(directory)
    try:
        prepare(path, CatalogDurability.FULL)
        connection = connect(path, CatalogDurability.FULL, Purpose.WRITER)
        try:
            return _Check(connection, layout, files or Files(), repair, report).run(verify)
        finally:
            connection.close()
    finally:
        lock.release()


_PIECE = 1024 * 1024
"""Bytes read at a time."""


class _Check:
    """One run over one store."""

    def __init__(
        self,
        connection: sqlite3.Connection,
        layout: BlobLayout,
        files: Files,
        repair: bool,
        report: Report,
    ) -> None:
        self._connection = connection
        self._layout = layout
        self._files = files
        self._repair = repair
        self._report = report
        self._durability = SyncGroup(files, WriteFence(), True)
        self._left = 0

    def run(self, verify: bool) -> int:
        """Look at everything; return how many problems are left."""
        try:
            self._all(verify)
        except sqlite3.DatabaseError as error:
            self._problem(f"catalog: {error}")
        return self._left

    def _all(self, verify: bool) -> None:
        damage = integrity(self._connection)
        for line in damage:
            self._problem(f"catalog: {line}")
        if damage:
            # Nothing that such a catalog says may be acted on.
            return
        unknown = self._references()
        self._staging()
        self._rows(verify)
        self._strangers(unknown)
        if verify:
            self._inline()

    def _problem(self, text: str, mend: Callable[[], object] | None = None) -> None:
        """Tell a problem; put it right if that is wanted and possible."""
        if mend is not None and self._repair:
            mend()
            self._report(f"{text}: repaired")
        else:
            self._left += 1
            self._report(text)

    def _references(self) -> frozenset[str]:
        """Count references again; return the blobs that are named and have no row."""
        mismatches = recount(self._connection)
        for each in mismatches:
            if each.recorded is None:
                self._problem(f"blob {each.blob} has no row; named by {self._owners(each.blob)}")
            else:
                self._problem(
                    f"blob {each.blob} has {each.recorded} references, not {each.counted}",
                    partial(self._mutate, oneByOne(setCounts), [each]),
                )
        return frozenset(each.blob for each in mismatches if each.recorded is None)

    def _staging(self) -> None:
        names = self._files.names(self._layout.staging)
        left = [name for name in names if isBlobId(name)]
        for name in sorted(set(names) - set(left)):
            self._problem(f"staging/{name} is no file of the store")
        if left:
            self._problem(f"{len(left)} uploads were left in staging", self._sweep)

    def _sweep(self) -> None:
        shards = Shards(self._layout, self._files, self._durability)
        sweepStaging(self._layout, self._files, shards, self._durability, self._known)

    def _rows(self, verify: bool) -> None:
        """Compare each row with its file."""
        after = ""
        while rows := refcounts.blobRows(self._connection, after, _PAGE):
            after = rows[-1].id
            for row in rows:
                if not row.refs:
                    self._problem(f"blob {row.id} is garbage", partial(self._collect, row.id))
                elif (problem := self._compare(row, verify)) is not None:
                    self._problem(f"blob {row.id} {problem}; named by {self._owners(row.id)}")
                    if self._repair:
                        self._mutate(refcounts.markDamaged, row.id)
                elif row.damaged:
                    self._problem(f"blob {row.id} was found damaged before")

    def _compare(self, row: BlobRow, verify: bool) -> str | None:
        """Say what is wrong with a blob that is named."""
        path = self._layout.path(row.id)
        try:
            if not verify:
                return checkBlob(row.size, None, self._files.sizeOf(path), 0)
            fd = self._files.openForReading(path)
            try:
                offset = crc = 0
                while piece := self._files.read(fd, _PIECE, offset):
                    # What is hot for readers of other files stays in memory.
                    self._files.dropCache(fd, offset, len(piece))
                    crc = checksumOf(piece, crc)
                    offset += len(piece)
            finally:
                self._files.close(fd)
            return checkBlob(row.size, row.crc, offset, crc)
        except FileNotFoundError:
            return "is missing"
        except OSError as error:
            return f"cannot be read: {error.strerror or error}"

    def _collect(self, blob: str) -> None:
        """Remove a blob that nothing names, and then its row."""
        self._remove(self._layout.path(blob))
        self._mutate(refcounts.forgetBlobs, [blob])

    def _strangers(self, unknown: frozenset[str]) -> None:
        """Find files under C{blobs/} that no row speaks of."""
        for shard, names in self._shards():
            known = self._known(names) | unknown
            for name in names:
                path = os.path.join(shard, name)
                if path != self._layout.path(name) or not isBlobId(name):
                    self._problem(f"{path} is no file of the store")
                elif name not in known:
                    self._problem(f"blob {name} is named by nothing", partial(self._remove, path))

    def _shards(self) -> Iterator[tuple[str, list[str]]]:
        """Give each directory of blobs and what is in it; files above count as its content."""
        for first in sorted(self._files.names(self._layout.blobs)):
            path = os.path.join(self._layout.blobs, first)
            if not os.path.isdir(path):
                yield self._layout.blobs, [first]
                continue
            for second in sorted(self._files.names(path)):
                shard = os.path.join(path, second)
                if not os.path.isdir(shard):
                    yield path, [second]
                    continue
                yield shard, sorted(self._files.names(shard))

    def _inline(self) -> None:
        """Compare the bytes that are kept in the catalog with their checksums."""
        position = None
        while True:
            page = refcounts.checkInline(self._connection, position, _PAGE)
            for bucket, key in page.damaged:
                self._problem(f"object {_name(bucket, key)} does not hold the bytes written")
            if page.next is None:
                return
            position = page.next

    def _remove(self, path: str) -> None:
        if unlinkIfThere(self._files, path):
            self._durability.syncDirectory(os.path.dirname(path))

    def _known(self, ids: Sequence[str]) -> frozenset[str]:
        return refcounts.knownBlobs(self._connection, ids)

    def _owners(self, blob: str) -> str:
        return ", ".join(_name(*owner) for owner in owners(self._connection, blob))

    def _mutate(self, apply: Apply, argument: object) -> None:
        runAlone(self._connection, Mutation(apply, argument))


def _name(bucket: str, key: bytes) -> str:
    """Write a key so that it stays on its line."""
    return f"{bucket}/{key.decode('utf-8', 'backslashreplace')!r}"
