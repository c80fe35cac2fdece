"""
C{storagegate cluster fsck}: checks the consistency of the catalog and the blobs while nodes serve.

Unreferenced blobs are not a problem here: nodes remove them. Each new blob is made under a lease
and is swept after the lease has ended; until it is committed, no row references it. With
C{--verify} the blob store is listed, to find objects that belong to neither a row nor a lease.
"""

from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from contextlib import ExitStack, closing
from functools import partial
from typing import Any, TypeVar

from attrs import define, field
from twisted.internet.defer import Deferred, FirstError, gatherResults

from storagegate.cluster.initialisation import connectedPieces, waitFor
from storagegate.cluster.options import ClusterOptions
from storagegate.core.files import crc32c
from storagegate.storage.blobids import readBlobId
from storagegate.storage.cluster.admin import ClusterAdmin, Shard, openForTools
from storagegate.storage.cluster.blobs.pieces import (
    MARKER,
    UNLIMITED,
    IPieceStore,
    MissingPiece,
    PiecePlace,
    findSize,
)
from storagegate.storage.cluster.blobs.remote import checkPieces
from storagegate.storage.embedded.fsck import foundBefore, rightAgain
from storagegate.storage.identity import ForeignBlobs, storeId
from storagegate.storage.records import BlobRow
from storagegate.storage.scrub import checkBlob

T = TypeVar("T")

Report = Callable[[str], object]

_PAGE = 64
"""Blobs that are looked up concurrently."""

_INLINE_PAGE = 32
"""Rows of inline bytes in memory at a time; each has up to 1 MiB."""

_READ = 1 << 20
"""Size of one read in bytes."""

_ROWS = (
    "SELECT id, size, crc, refs, damaged FROM blobs WHERE id > %s AND refs > 0 ORDER BY id LIMIT %s"
)

# Finds a blob that is still referenced. Garbage may lack its bytes after a restore.
_IS_NEEDED = """
    SELECT FROM blobs WHERE id = %s AND refs > (SELECT count(*) FROM freed WHERE blob = blobs.id)
"""

_KNOWN = """
    SELECT id FROM blobs WHERE id = ANY (%s)
    UNION ALL SELECT id FROM arrivedblobs WHERE id = ANY (%s)
"""

# Notifies the nodes that serve.
_CLEAR = """
    WITH cleared AS (
        UPDATE blobs SET damaged = false WHERE damaged AND id = %s RETURNING id
    )
    SELECT pg_notify('blobs', id) FROM cleared
"""

_SEGMENTS = """
    SELECT bucketid, key, segments FROM objects WHERE segments IS NOT NULL
    UNION ALL SELECT bucketid, key, segments FROM versions WHERE segments IS NOT NULL
    UNION ALL SELECT bucketid, key, segments FROM parts WHERE segments IS NOT NULL
"""

# One statement, and so one snapshot, which contains both sides of each change or neither.
_MISMATCHES = f"""
    WITH named AS (
        SELECT id, count(*) AS n FROM (
            SELECT each ->> 0 AS id
            FROM ({_SEGMENTS}) AS o, json_array_elements(o.segments::json) AS each
            -- A bucket that is being migrated here holds a reference to each of its blobs.
            UNION ALL SELECT id FROM arrivedblobs
        ) AS each GROUP BY 1
    ), given AS (SELECT blob AS id, count(*) AS n FROM freed GROUP BY 1)
    SELECT coalesce(named.id, blobs.id), blobs.refs,
        coalesce(named.n, 0) + coalesce(given.n, 0)
    FROM named FULL JOIN blobs ON blobs.id = named.id LEFT JOIN given ON given.id = blobs.id
    WHERE blobs.refs IS DISTINCT FROM coalesce(named.n, 0) + coalesce(given.n, 0)
    ORDER BY 1
"""

# The difference is added, so that concurrent changes of nodes are kept.
_RECOUNT = f"""
    UPDATE blobs SET refs = blobs.refs + wrong.counted - wrong.recorded
    FROM ({_MISMATCHES}) AS wrong (id, recorded, counted)
    WHERE blobs.id = wrong.id AND wrong.recorded IS NOT NULL
"""

_USAGE = """
    WITH told AS (
        SELECT bucketid, sum(objects) AS o, sum(bytes) AS b, sum(uploads) AS u,
            sum(uploadbytes) AS p
        FROM (SELECT * FROM usage UNION ALL SELECT * FROM usagedeltas) AS each
        -- Excludes the changes of removed buckets, which the next fold deletes.
        WHERE bucketid IN (SELECT id FROM buckets) GROUP BY 1
    ), counted AS (
        SELECT bucketid, sum(o) AS o, sum(b) AS b, sum(u) AS u, sum(p) AS p FROM (
            SELECT bucketid, 1 AS o, size AS b, 0 AS u, 0 AS p FROM objects
            UNION ALL SELECT bucketid, 1, size, 0, 0 FROM versions WHERE NOT deletemarker
            UNION ALL SELECT bucketid, 0, 0, 1, 0 FROM uploads
            UNION ALL SELECT bucketid, 0, 0, 0, size FROM parts) AS each
        -- Excludes buckets that are being migrated here: they are counted when they serve.
        WHERE bucketid NOT IN (SELECT bucketid FROM bucketmoves WHERE isreserved) GROUP BY 1
    )
    SELECT bucketid, coalesce(t.o, 0)::bigint, coalesce(t.b, 0)::bigint, coalesce(t.u, 0)::bigint,
        coalesce(t.p, 0)::bigint, coalesce(c.o, 0)::bigint, coalesce(c.b, 0)::bigint,
        coalesce(c.u, 0)::bigint, coalesce(c.p, 0)::bigint
    FROM told AS t FULL JOIN counted AS c USING (bucketid)
    WHERE (coalesce(t.o, 0), coalesce(t.b, 0), coalesce(t.u, 0), coalesce(t.p, 0))
        <> (coalesce(c.o, 0), coalesce(c.b, 0), coalesce(c.u, 0), coalesce(c.p, 0))
    ORDER BY 1
"""

_SET_USAGE = f"""
    INSERT INTO usagedeltas SELECT id, co - o, cb - b, cu - u, cp - p
    FROM ({_USAGE}) AS wrong (id, o, b, u, p, co, cb, cu, cp)
"""

_OWNERS = f"""
    SELECT DISTINCT b.name, o.key FROM ({_SEGMENTS}) AS o JOIN buckets AS b ON b.id = o.bucketid
    WHERE EXISTS (SELECT FROM json_array_elements(o.segments::json) AS each WHERE each ->> 0 = %s)
    ORDER BY 1, 2 LIMIT 20
"""

_INLINE = """
    SELECT o.bucketid, o.key, o.sequence, b.name, o.storagechecksum, o.inline
    FROM {table} AS o JOIN buckets AS b ON b.id = o.bucketid
    WHERE (o.bucketid, o.key, o.sequence) > (%s, %s, %s)
        AND o.inline IS NOT NULL AND o.storagechecksum IS NOT NULL
    ORDER BY 1, 2, 3 LIMIT %s
"""


def check(options: ClusterOptions, repair: bool, verify: bool, report: Report, reactor: Any) -> int:
    """
    Check a cluster. Blocks until every blob is checked.

    @param repair: Whether to repair problems if no data are lost.
    @param verify: Whether to read all bytes and compare them with their checksums.
    @param report: Called with one line for each problem.
    @param reactor: The reactor, which need not run.
    @return: The number of remaining problems.
    @raise StoreError: If the catalog or the blobs cannot be used; the text gives the reason in one
        line.
    """
    with (
        closing(openForTools(options.catalog)) as admin,
        connectedPieces(options, reactor) as pieces,
        ExitStack() as stack,
    ):
        problems = 0
        opened = []
        isForeign = False
        for shard in admin.shards():
            each = stack.enter_context(admin.opened(shard))
            opened.append(each)
            check = ClusterCheck(each, pieces, repair, report)
            if shard.number:
                check.directory(admin, shard)
            problems += check.run(verify)
            isForeign = isForeign or check.isForeign
        if verify and not isForeign:
            for line in unnamed(opened, pieces):
                report(line)
                problems += 1
        return problems


def unnamed(shards: Sequence[ClusterAdmin], pieces: IPieceStore) -> Iterator[str]:
    """
    Find objects in the blob store that no row of the catalog references. Blocks.

    Blobs under leases that are not swept yet are excluded: nodes remove them.

    @param shards: All shards of the catalog, open.
    @return: A line for each object.
    """
    names = pieces.names()
    while (page := waitFor(pieces, _nextPage(names))) is not None:
        blobs = sorted({name.partition(".")[0] for name in page if name != MARKER})
        # The leases are read first: a node that ends commits before its lease is removed.
        leases = {id for shard in shards for (id,) in shard.rows("SELECT id FROM leases")}
        known = {id for shard in shards for (id,) in shard.rows(_KNOWN, blobs, blobs)}
        for name in page:
            blob = name.partition(".")[0]
            lease, _ = readBlobId(blob) or (0, 0)
            if name == MARKER or blob in known or lease in leases:
                continue
            # A node may have removed the object since it was listed.
            size = waitFor(pieces, _sizeOf(pieces, name))
            if size is not None:
                yield f"object {name} of {size} bytes is not referenced by any row"


async def _nextPage(names: AsyncIterator[Sequence[str]]) -> Sequence[str] | None:
    return await anext(names, None)


async def _sizeOf(pieces: IPieceStore, name: str) -> int | None:
    try:
        return await pieces.size(name)
    except MissingPiece:
        return None


@define(eq=False)
class ClusterCheck:
    """
    One check of one shard of a cluster.

    @ivar isForeign: Whether the blobs belong to another catalog.
    """

    _admin: ClusterAdmin
    _pieces: IPieceStore
    _repair: bool
    _report: Report
    _left: int = field(default=0, init=False)
    isForeign: bool = field(default=False, init=False)

    def run(self, verify: bool) -> int:
        """Run all checks; return the number of remaining problems."""
        try:
            self._wait(partial(checkPieces, self._pieces, storeId(self._admin.storeSecret())))
        except ForeignBlobs as error:
            self.isForeign = True
            self._problem(str(error))
            return self._left
        self._usage()
        self._references()
        for rows in self._pages():
            for row, found in zip(rows, self._wait(partial(self._locateAll, rows)), strict=True):
                self._blob(row, found, verify)
        if verify:
            self._inline("objects")
            self._inline("versions")
        return self._left

    def directory(self, first: ClusterAdmin, shard: Shard) -> None:
        """
        Compare the buckets of this shard with the directory.

        @param first: The first shard, which has the directory.
        @param shard: This shard.
        """
        # In this order, because a bucket is created after its row in the directory, which stays.
        names = [name for (name,) in self._admin.rows("SELECT name FROM buckets ORDER BY 1")]
        places = dict(first.rows("SELECT * FROM directory WHERE bucket = ANY (%s)", names))
        for name in names:
            place = places.get(name)
            if place is None and self._repair:
                insert = "INSERT INTO directory VALUES (%s, %s)"
                first.execute(insert, name, shard.number)
            if place != shard.number:
                where = "nowhere" if place is None else f"in shard {place}"
                text = f"bucket {name} is in shard {shard.number}, the directory has it {where}"
                self._problem(text, isRepaired=self._repair and place is None)

    def _wait(self, begin: Callable[[], Coroutine[Any, Any, T]]) -> T:
        try:
            return waitFor(self._pieces, begin())
        except FirstError as error:
            error.subFailure.raiseException()

    def _problem(self, text: str, isRepaired: bool = False) -> None:
        """Report a problem, and count it unless it was repaired."""
        self._left += not isRepaired
        self._report(f"{text}: repaired" if isRepaired else text)

    def _usage(self) -> None:
        """Compare the recorded usage of each bucket with its content."""
        found = self._admin.rows(_USAGE)
        if found and self._repair:
            self._admin.execute(_SET_USAGE)
        names = dict(self._admin.rows("SELECT id, name FROM buckets")) if found else {}
        kinds = ("objects", "bytes", "uploads", "bytes of uploads")
        for id, *counts in found:
            wrong = ", ".join(
                f"{recorded} {kind}, not {counted}"
                for kind, recorded, counted in zip(kinds, counts[:4], counts[4:], strict=True)
                if recorded != counted
            )
            name = f"bucket {names[id]}" if id in names else f"no bucket {id}"
            self._problem(f"{name} has wrong totals: {wrong}", isRepaired=self._repair)

    def _references(self) -> None:
        """Compare the reference counts with the references."""
        found = self._admin.rows(_MISMATCHES)
        if found and self._repair:
            self._admin.execute(_RECOUNT)
        for blob, recorded, counted in found:
            if recorded is None:
                self._problem(f"blob {blob} has no row; referenced by {self._owners(blob)}")
            else:
                text = f"blob {blob} has {recorded} references, not {counted}"
                self._problem(text, isRepaired=self._repair)

    def _pages(self) -> Iterator[list[BlobRow]]:
        """Yield the rows of referenced blobs, in pages."""
        after = ""
        while rows := self._admin.rows(_ROWS, after, _PAGE):
            yield [BlobRow(*row) for row in rows]
            after = rows[-1][0]

    def _blob(self, row: BlobRow, found: PiecePlace | Exception, verify: bool) -> None:
        """
        Compare a row with its blob.

        @param found: The location of the blob, or the error of its look-up.
        """
        problem = self._compare(row, found, verify)
        if problem is not None:
            # A single wrong network response is not damage.
            [found] = self._wait(partial(self._locateAll, [row]))
            problem = self._compare(row, found, verify)
        if problem is None:
            if row.damaged and verify:
                self._admin.execute(_CLEAR, row.id)
                self._report(rightAgain(row.id))
            elif row.damaged:
                self._problem(foundBefore(row.id))
        # A node may have removed the blob meanwhile.
        elif self._admin.rows(_IS_NEEDED, row.id):
            self._problem(f"blob {row.id} {problem}; referenced by {self._owners(row.id)}")
            if self._repair:
                self._admin.execute("UPDATE blobs SET damaged = true WHERE id = %s", row.id)

    def _compare(self, row: BlobRow, place: PiecePlace | Exception, verify: bool) -> str | None:
        """Return the problem with a blob; C{None} if it is correct."""
        try:
            if isinstance(place, Exception):
                raise place
            if not verify or place.size != row.size:
                return checkBlob(row.size, None, place.size, 0)
            offset = crc = 0
            while offset < place.size:
                name, within, length = place.piece(offset, min(_READ, place.size - offset))
                body, _, _ = self._pieces.wait(self._pieces.get(name, within, length))
                if not body:
                    break
                crc = crc32c(body, crc)
                offset += len(body)
            return checkBlob(row.size, row.crc, offset, crc)
        except MissingPiece:
            return "is missing"
        except OSError as error:
            return f"cannot be read: {error.strerror or error}"

    async def _locateAll(self, rows: Sequence[BlobRow]) -> list[PiecePlace | Exception]:
        """Look up blobs concurrently; return the location of each, or the error of its look-up."""

        async def find(row: BlobRow) -> PiecePlace | Exception:
            try:
                return await self._locate(row)
            except (MissingPiece, OSError) as error:
                return error

        found: list[PiecePlace | Exception] = await gatherResults(
            [Deferred.fromCoroutine(find(row)) for row in rows], consumeErrors=True
        )
        return found

    async def _locate(self, row: BlobRow) -> PiecePlace:
        """
        Look up a blob.

        @raise MissingPiece: If the blob is missing.
        """
        pieces = self._pieces
        try:
            return PiecePlace(row.id, await pieces.size(row.id))
        except MissingPiece:
            if pieces.pieceSize == UNLIMITED:
                raise
            return await findSize(pieces, row.id, row.size)

    def _inline(self, table: str) -> None:
        """Compare the inline bytes in a table with their checksums."""
        after: tuple[object, ...] = (0, b"", 0)
        while rows := self._admin.rows(_INLINE.format(table=table), *after, _INLINE_PAGE):
            for _, key, _, bucket, checksum, inline in rows:
                if crc32c(inline, 0) != checksum:
                    name = _name(bucket, bytes(key))
                    self._problem(f"object {name} differs from the bytes that were written")
            after = rows[-1][:3]

    def _owners(self, blob: str) -> str:
        rows = self._admin.rows(_OWNERS, blob)
        return ", ".join(_name(bucket, bytes(key)) for bucket, key in rows) or "nothing"


def _name(bucket: str, key: bytes) -> str:
    """Format a key so that it stays on one line."""
    return f"{bucket}/{key.decode('utf-8', 'backslashreplace')!r}"
