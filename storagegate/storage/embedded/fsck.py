"""
C{storagegate fsck}: checks that the catalog of a closed store is consistent with itself and with
the blob files.

Problems that can be repaired without loss are repaired on request: reference counts, files and rows
of blobs without references, files of ended uploads. Other problems are only reported.
"""

import os
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from sqlite3 import Connection

from attrs import define, field, frozen

from storagegate.core.files import crc32c
from storagegate.storage.embedded import objects, refcounts
from storagegate.storage.embedded.connections import (
    Durability,
    buryUnseenCommits,
    opened,
    prepare,
    readSecret,
    replayLog,
)
from storagegate.storage.embedded.groupcommit import (
    Apply,
    QueuedMutation,
    Transaction,
    asJSON,
    oneByOne,
    runTogether,
)
from storagegate.storage.embedded.recovery import sweepStaging
from storagegate.storage.embedded.usage import recountUsage, setUsage
from storagegate.storage.files import DirectoryLock, FailStopLatch, Files, unlinkIfThere
from storagegate.storage.identity import (
    MARKER,
    findForeignBlobs,
    listShards,
    refuseLostCatalog,
)
from storagegate.storage.layout import BlobLayout, SyncGroup, isBlobId
from storagegate.storage.records import BlobRow
from storagegate.storage.scrub import checkBlob
from storagegate.storage.sqlite import CatalogUnusable

# The references to each blob, from the segments of objects, noncurrent versions and parts.
_NAMED = """
    SELECT segment.value ->> 0 AS id, count(*) AS n
    FROM (SELECT segments FROM objects WHERE segments IS NOT NULL
        UNION ALL SELECT segments FROM versions WHERE segments IS NOT NULL
        UNION ALL SELECT segments FROM parts WHERE segments IS NOT NULL) AS named,
        json_each(named.segments) AS segment
    GROUP BY 1
"""


@frozen
class Mismatch:
    """
    A blob whose row contradicts the segments.

    @ivar recorded: The references in its row; L{None} without a row.
    @ivar counted: The segments of the blob.
    """

    blob: str
    recorded: int | None
    counted: int


def recount(connection: Connection) -> list[Mismatch]:
    """Count all references; return the blobs whose rows differ."""
    rows = connection.execute(
        f"WITH named AS MATERIALIZED ({_NAMED})"
        " SELECT named.id, blobs.refs, named.n FROM named LEFT JOIN blobs USING (id)"
        " WHERE blobs.refs IS NOT named.n"
        " UNION ALL SELECT id, refs, 0 FROM blobs"
        " WHERE refs != 0 AND id NOT IN (SELECT id FROM named) ORDER BY 1"
    ).fetchall()
    return [Mismatch(*row) for row in rows]


def owners(connection: Connection, blob: str) -> list[tuple[str, bytes]]:
    """Return bucket and key of the objects and uploads that reference a blob."""
    rows = connection.execute(
        "SELECT b.name, o.key FROM (SELECT bucketId, key, segments FROM objects"
        " UNION ALL SELECT bucketId, key, segments FROM versions) AS o"
        " JOIN buckets AS b ON b.id = o.bucketId WHERE o.segments IS NOT NULL"
        " AND EXISTS (SELECT 1 FROM json_each(o.segments) WHERE value ->> 0 = :blob)"
        " UNION SELECT b.name, u.key FROM parts AS p JOIN uploads AS u USING (uploadId)"
        " JOIN buckets AS b ON b.id = u.bucketId WHERE p.segments IS NOT NULL"
        " AND EXISTS (SELECT 1 FROM json_each(p.segments) WHERE value ->> 0 = :blob)"
        " ORDER BY 1, 2",
        {"blob": blob},
    ).fetchall()
    return [(bucket, key) for bucket, key in rows]


@oneByOne
def setCounts(transaction: Transaction, mismatches: list[Mismatch]) -> None:
    """
    Write the counted references into the rows.

    A blob without a row does not get one: its checksum is unknown, and the operator must decide
    about the objects that reference it.

    @param mismatches: The result of L{recount}.
    """
    transaction.execute(
        "UPDATE blobs SET refs = truth.n"
        " FROM (SELECT value ->> 0 AS id, value ->> 1 AS n FROM json_each(?)) AS truth"
        " WHERE blobs.id = truth.id",
        (asJSON([(each.blob, each.counted) for each in mismatches]),),
    )


_PAGE = 500
"""Rows or names per batch."""

Report = Callable[[str], object]

Progress = Callable[[int, int], object]


def rightAgain(blob: str) -> str:
    """Return the line for a marked blob that was read and found intact."""
    return f"blob {blob} was marked as damaged and is correct: it is served again"


def foundBefore(blob: str) -> str:
    """Return the line for a marked blob that was not read."""
    return f"blob {blob} is marked as damaged: use --verify to check it again"


def noProgress(done: int, total: int) -> None:
    """Report no progress."""


def check(
    directory: str,
    repair: bool,
    verify: bool,
    report: Report,
    files: Files | None = None,
    progress: Progress = noProgress,
) -> int:
    """
    Check a store. Blocks while it examines every file.

    @param repair: Whether to repair problems where possible.
    @param verify: Whether to read all bytes and compare them with their checksums.
    @param report: Called with one line for each problem.
    @param directory: The data directory of the store.
    @param files: The operating system's calls, or a replacement.
    @param progress: Called with the number of compared blobs and the total.
    @return: The number of remaining problems.
    @raise StoreLocked: The store is open.
    @raise StoreError: The store does not exist, or its catalog cannot be opened.
    """
    path = os.path.join(directory, "catalog.sqlite")
    files = files or Files()
    refuseLostCatalog(BlobLayout(directory), files)
    if not os.path.exists(path):
        raise CatalogUnusable(f"no store in {directory}")
    latch = FailStopLatch(directory)
    syncs = SyncGroup(files, latch, True)
    with ExitStack() as stack:
        stack.callback(DirectoryLock.take(directory).release)
        replayLog(directory, Durability.FULL)
        prepare(path, Durability.FULL)
        connection = stack.enter_context(opened(path, Durability.FULL, latch))
        layout = BlobLayout(directory)
        settle = partial(buryUnseenCommits, connection, latch)
        checking = _Check(connection, layout, files, syncs, settle, repair, report, progress)
        return checking.run(verify)


_PIECE = 1024 * 1024
"""Bytes per read."""


@define(eq=False)
class _Check:
    """One check of one store."""

    _connection: Connection
    _layout: BlobLayout
    _files: Files
    _syncs: SyncGroup
    _settle: Callable[[], object]
    _repair: bool
    _report: Report
    _progress: Progress
    _left: int = field(default=0, init=False)

    def run(self, verify: bool) -> int:
        """Check everything; return the number of remaining problems."""
        try:
            self._all(verify)
        except sqlite3.DatabaseError as error:
            self._problem(f"catalog: {error}")
        return self._left

    def _all(self, verify: bool) -> None:
        rows = self._connection.execute("PRAGMA integrity_check(100)").fetchall()
        if rows != [("ok",)]:
            for (line,) in rows:
                self._problem(f"catalog: {line}")
            # Repairs must not rely on a damaged catalog.
            return
        if self._repair:
            # The next steps remove files that the catalog does not reference.
            self._settle()
        if (foreign := self._findForeignBlobs()) is not None:
            self._problem(foreign)
            # A repair would treat the blobs of another store as garbage.
            self._repair = False
        self._usage()
        unknown = self._references()
        self._staging(unknown)
        self._rows(verify)
        self._unknownFiles(unknown)
        if verify:
            self._inline()

    def _findForeignBlobs(self) -> str | None:
        secret = readSecret(self._connection)
        return findForeignBlobs(self._layout, self._files, secret, self._known)

    def _problem(self, text: str, repair: Callable[[], object] | None = None) -> None:
        """Report a problem, and repair it if requested and possible."""
        if repair is not None and self._repair:
            repair()
            self._report(f"{text}: repaired")
        else:
            self._left += 1
            self._report(text)

    def _usage(self) -> None:
        """Check the recorded usage of each bucket."""
        for each in recountUsage(self._connection):
            kinds = ("objects", "bytes", "uploads", "bytes of uploads")
            wrong = ", ".join(
                f"{recorded} {kind}, not {counted}"
                for kind, recorded, counted in zip(kinds, each.recorded, each.counted, strict=True)
                if recorded != counted
            )
            name = f"bucket {each.name}" if each.name else f"no bucket {each.bucketId}"
            self._problem(
                f"{name} has wrong totals: {wrong}", partial(self._mutate, setUsage, each)
            )

    def _references(self) -> frozenset[str]:
        """Check reference counts; return the referenced blobs that have no row."""
        mismatches = recount(self._connection)
        for each in mismatches:
            if each.recorded is None:
                self._problem(
                    f"blob {each.blob} has no row; referenced by {self._owners(each.blob)}"
                )
            else:
                self._problem(
                    f"blob {each.blob} has {each.recorded} references, not {each.counted}",
                    partial(self._mutate, setCounts, [each]),
                )
        return frozenset(each.blob for each in mismatches if each.recorded is None)

    def _staging(self, unknown: frozenset[str]) -> None:
        """Find uploads that have ended. A blob of C{unknown} stays: objects reference it."""

        def known(ids: Sequence[str]) -> frozenset[str]:
            return self._known(ids) | unknown

        names = self._files.names(self._layout.staging)
        left = [name for name in names if isBlobId(name)]
        for name in sorted(set(names) - set(left) - {MARKER}):
            self._problem(f"staging/{name} is not a file of the store")
        if left:
            syncs, settle = self._syncs, self._settle
            sweep = partial(sweepStaging, self._layout, self._files, syncs, known, settle)
            self._problem(f"{len(left)} uploads were left in staging", sweep)

    def _rows(self, verify: bool) -> None:
        """Compare each row with its file."""
        after = ""
        [(total,)] = self._connection.execute("SELECT count(*) FROM blobs").fetchall()
        done = 0
        while rows := refcounts.blobRows(self._connection, after, _PAGE):
            after = rows[-1].id
            for row in rows:
                done += 1
                self._progress(done, total)
                if not row.refs:
                    self._problem(f"blob {row.id} is garbage", partial(self._collect, row.id))
                elif (problem := self._compare(row, verify)) is not None:
                    self._problem(f"blob {row.id} {problem}; referenced by {self._owners(row.id)}")
                    if self._repair:
                        self._mutate(refcounts.markCorrupt, row.id)
                elif row.damaged and verify:
                    self._mutate(refcounts.clearCorrupt, row.id)
                    self._report(rightAgain(row.id))
                elif row.damaged:
                    self._problem(foundBefore(row.id))

    def _compare(self, row: BlobRow, verify: bool) -> str | None:
        """Return the problem with a blob that has references."""
        path = self._layout.path(row.id)
        try:
            if not verify:
                return checkBlob(row.size, None, self._files.size(path), 0)
            fd = self._files.openForReading(path)
            try:
                offset = crc = 0
                while piece := self._files.read(fd, _PIECE, offset):
                    # A check must not displace other pages in the page cache.
                    self._files.dropCache(fd, offset, len(piece))
                    crc = crc32c(piece, crc)
                    offset += len(piece)
            finally:
                self._files.close(fd)
            return checkBlob(row.size, row.crc, offset, crc)
        except FileNotFoundError:
            return "is missing"
        except OSError as error:
            return f"cannot be read: {error.strerror or error}"

    def _collect(self, blob: str) -> None:
        """Remove a blob without references, then its row."""
        self._remove(self._layout.path(blob))
        self._mutate(refcounts.forgetBlobs, [blob])

    def _unknownFiles(self, unknown: frozenset[str]) -> None:
        """Find files under C{blobs/} without a row."""
        for shard, names in listShards(self._layout, self._files):
            known = self._known(names) | unknown
            for name in names:
                path = os.path.join(shard, name)
                if path != self._layout.path(name) or not isBlobId(name):
                    self._problem(f"{path} is not a file of the store")
                elif name not in known:
                    self._problem(f"blob {name} is not referenced", partial(self._remove, path))

    def _inline(self) -> None:
        """Compare inline bytes with their checksums."""
        position = None
        while True:
            page = objects.checkInline(self._connection, position, _PAGE)
            for bucket, key in page.damaged:
                self._problem(
                    f"object {_name(bucket, key)} differs from the bytes that were written"
                )
            if page.next is None:
                return
            position = page.next

    def _remove(self, path: str) -> None:
        self._syncs.check()
        if unlinkIfThere(self._files, path):
            self._syncs.syncDirectory(os.path.dirname(path))

    def _known(self, ids: Sequence[str]) -> frozenset[str]:
        return refcounts.knownBlobs(self._connection, ids)

    def _owners(self, blob: str) -> str:
        return ", ".join(_name(*owner) for owner in owners(self._connection, blob))

    def _mutate(self, apply: Apply, argument: object) -> None:
        runTogether(self._connection, [QueuedMutation(apply, argument)])


def _name(bucket: str, key: bytes) -> str:
    """Format bucket and key on one line, with the key escaped."""
    return f"{bucket}/{key.decode('utf-8', 'backslashreplace')!r}"
