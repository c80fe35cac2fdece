"""
The target bucket of a migration, in a catalog that serves other buckets meanwhile.

Its rows have a bucket number that is not in use until the switch. For comparison they are
translated to the source, where the bucket has another number and the blobs have other ids. The
bytes of a blob are written once, under the lease of the run, even if several rows reference it;
from then on C{arrivedblobs} has its id and a reference to it, until the migration ends.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import psycopg
from msgspec.structs import replace

from storagegate.cluster.tables import (
    BLOBS,
    BUCKETS,
    OBJECTS,
    PARTS,
    UPLOADS,
    VERSIONS,
    Key,
    MigrationError,
    Row,
    Table,
)
from storagegate.migration.bucketend import BucketEnd
from storagegate.migration.interfaces import Ending
from storagegate.migration.lease import MigrationLease
from storagegate.migration.marks import OPENED, Mark
from storagegate.storage.cluster.statements import LOCK_BLOBS, WRITES

_ARRIVING = "arriving"

_BLOB = re.compile(r'\["([^"]+)"')
"""The blob id at the start of each segment."""

_PINS = 10_000
"""References that are given back in one transaction."""

_NAMES = ", ".join(name for name, _ in BUCKETS.columns)


def _blobsOf(texts: Iterable[str | None]) -> list[str]:
    """Return the blob ids in segments, including duplicates."""
    return [blob for text in texts if text for blob in _BLOB.findall(text)]


class BucketTarget(BucketEnd):
    """The target of a bucket migration. All methods block, and must run in one thread."""

    def __init__(self, connection: psycopg.Connection[Any], bucket: str) -> None:
        """See L{BucketEnd}."""
        super().__init__(connection, bucket)
        self._source: BucketEnd = self
        self._lease: MigrationLease | None = None
        # The ids of the blobs that are being copied, by their ids in the source.
        self._ids: dict[str, str] = {}

    def fillFrom(self, source: BucketEnd, lease: MigrationLease) -> None:
        """
        Prepare for copying.

        @param source: The source, which has its own number of the bucket.
        @param lease: The lease for new blobs, which need not be taken yet.
        """
        self._source = source
        self._lease = lease

    def idOf(self, blob: str) -> str:
        """Return the target's id of a blob that is being copied. May be called in any thread."""
        return self._ids[blob]

    def isEmpty(self) -> bool:
        """See L{IMigrationEnd.isEmpty}. Returns whether no bucket has this name."""
        return not self._value(
            "SELECT EXISTS (SELECT FROM buckets WHERE name = %(name)s)"
            " OR EXISTS (SELECT FROM bucketmoves WHERE name = %(name)s)",
            {"name": self.bucket},
        )

    def page(self, table: Table, after: Key, limit: int) -> list[Row]:
        """See L{IMigrationEnd.page}."""
        return self._outward(table, super().page(table, self._inKey(after), limit))

    def read(self, table: Table, keys: Sequence[Key]) -> list[Row]:
        """See L{IMigrationEnd.read}."""
        return self._outward(table, super().read(table, list(map(self._inKey, keys))))

    def claim(self, mark: Mark, secret: bytes) -> None:
        """See L{IMigrationEnd.claim}. Reserves the name."""
        with self._connection.transaction():
            self._lockBucket()
            if not self.isEmpty():
                raise MigrationError(f"{self.name} exists already")
            self.number = self._value("SELECT nextval('buckets_id_seq')")
            self._setMark(mark)

    def append(self, table: Table, rows: Sequence[Row], mark: Mark) -> None:
        """See L{IMigrationEnd.append}."""
        super().append(table, self._inward(table, rows), mark)

    def replace(self, table: Table, keys: Sequence[Key], rows: Sequence[Row]) -> None:
        """See L{IMigrationEnd.replace}."""
        if table is not BLOBS:
            super().replace(table, list(map(self._inKey, keys)), self._inward(table, rows))
        elif all(row[3] for row in rows):
            self._nameBlobs(rows)
        else:
            assert self._lease is not None
            self._lease.take()
            ids = self._lease.makeIds(len(rows))
            self._ids = dict(zip((row[0] for row in rows), ids, strict=True))

    def missingBlobs(self, table: Table, rows: Sequence[Row]) -> list[str]:
        """See L{IMigrationEnd.missingBlobs}."""
        named = set(_blobsOf(_segmentsOf(table, rows)))
        return sorted(named - self._idsHere(named).keys()) if named else []

    def finish(self, ending: Ending) -> None:
        """See L{IMigrationEnd.finish}."""
        self._withLocks(lambda: self._raiseWrites(ending.sequence))
        with self._connection.transaction():
            for table in ("usage", "usagedeltas"):
                self._execute(f"DELETE FROM {table} WHERE bucketid = %s", (self.number,))
            self._execute(
                "INSERT INTO usage VALUES (%s, %s, %s, %s, %s)", (self.number, *ending.usage[0])
            )

    def open(self) -> None:
        """See L{IMigrationEnd.open}. Creates the bucket from the copied rows."""
        mark = self.mark()
        if mark is None or mark.state == OPENED:
            return
        with self._connection.transaction():
            self._lockBucket()
            # Done first, because a reserved name cannot be used.
            self._setMark(replace(mark, state=OPENED, refuses=""))
            # A previous bucket of this name may have left settings with another generation.
            values = _NAMES.replace("generation", "nextval('writes')")
            self._execute(
                f"INSERT INTO buckets ({_NAMES}, described) OVERRIDING SYSTEM VALUE"
                f" SELECT {values}, '' FROM {_ARRIVING} WHERE id = %s",
                (self.number,),
            )
            self._execute(f"DELETE FROM {_ARRIVING} WHERE id = %s", (self.number,))
            self._execute(
                "INSERT INTO directory VALUES (%s, 0) ON CONFLICT DO NOTHING", (self.bucket,)
            )
            self._execute("SELECT pg_notify('buckets', %s)", (self.bucket,))

    def clear(self) -> None:
        """See L{IMigrationEnd.clear}. Gives back the references of the run."""
        if self.mark() is None:
            return
        while self._unpin():
            pass
        self._forget()

    def undo(self) -> None:
        """Remove all copied data before the switch."""
        if self.mark() is not None:
            self._purge()
            self._execute(f"DELETE FROM {_ARRIVING} WHERE id = %s", (self.number,))
            for table in ("usage", "usagedeltas"):
                self._execute(f"DELETE FROM {table} WHERE bucketid = %s", (self.number,))
            self.clear()

    def _placeOf(self, table: Table) -> str:
        return _ARRIVING if table is BUCKETS else super()._placeOf(table)

    def _copy(self, table: Table, rows: Sequence[Row]) -> None:
        super()._copy(table, rows)
        blobs = _blobsOf(_segmentsOf(table, rows))
        if blobs:
            # In the order in which nodes lock the rows.
            lock = psycopg.RawCursor(self._connection)
            lock.execute(WRITES[LOCK_BLOBS].encode(), (sorted(set(blobs)),))
            self._execute("SELECT refer(NULL, %s::text[])", (blobs,))

    def _delete(self, place: str, which: str, values: Mapping[str, object]) -> None:
        if place in (OBJECTS.name, VERSIONS.name, "parts"):
            self._giveBack(
                self._rows(f"DELETE FROM {place} AS o {which} RETURNING o.segments", values)
            )
        else:
            super()._delete(place, which, values)

    def _nameBlobs(self, rows: Sequence[Row]) -> None:
        """Store the rows of copied blobs, each with a reference of this migration."""
        assert self._lease is not None
        sources = [row[0] for row in rows]
        ids = [self._ids[blob] for blob in sources]
        with self._connection.transaction():
            self._lease.fence(self._connection)
            super()._copy(
                BLOBS, [(id, *row[1:3], 1, row[4]) for id, row in zip(ids, rows, strict=True)]
            )
            self._execute(
                "INSERT INTO arrivedblobs SELECT %s, * FROM unnest(%s::text[], %s::text[])",
                (self.number, sources, ids),
            )
        self._lease.settle(ids)

    def _unpin(self) -> bool:
        with self._connection.transaction():
            rows = self._rows(
                "DELETE FROM arrivedblobs WHERE ctid = ANY (ARRAY(SELECT ctid FROM arrivedblobs"
                f" WHERE bucketid = %s LIMIT {_PINS})) RETURNING id",
                (self.number,),
            )
            self._execute(
                "INSERT INTO freed (blob) SELECT unnest(%s::text[])", ([id for (id,) in rows],)
            )
        return bool(rows)

    def _raiseWrites(self, least: int) -> None:
        """Make later writes get greater numbers than the writes from the source."""
        current = "SELECT last_value FROM writes"
        if self._value(current) < least:
            # Prevents a number that is drawn concurrently from being drawn twice.
            self._execute("ALTER SEQUENCE writes INCREMENT BY 1")
            self._execute("SELECT setval('writes', %s)", (max(least, self._value(current)),))

    def _idsHere(self, blobs: Iterable[str]) -> dict[str, str]:
        """Map ids of blobs in the source to ids in the target."""
        return dict(
            self._rows(
                "SELECT source, id FROM arrivedblobs WHERE bucketid = %s AND source = ANY (%s)",
                (self.number, list(blobs)),
            )
        )

    def _inKey(self, key: Key) -> Key:
        return (self.number if key[0] else 0, *key[1:])

    def _inward(self, table: Table, rows: Sequence[Row]) -> list[Row]:
        """Translate rows to the target, without rows whose blobs are gone: these have changed."""
        ids = self._idsHere(set(_blobsOf(_segmentsOf(table, rows))))
        return [
            _renamed(table, row, self.number, ids)
            for row in rows
            if all(blob in ids for blob in _blobsOf(_segmentsOf(table, [row])))
        ]

    def _outward(self, table: Table, rows: Sequence[Row]) -> list[Row]:
        """Translate rows to the source."""
        blobs = set(_blobsOf(_segmentsOf(table, rows)))
        sources: dict[str, str] = dict(
            self._rows("SELECT id, source FROM arrivedblobs WHERE id = ANY (%s)", (list(blobs),))
        )
        return [_renamed(table, row, self._source.number, sources) for row in rows]


_SEGMENTS = [name for name, _ in OBJECTS.columns].index("segments")
_PART_SEGMENTS = [name for name, _ in PARTS].index("segments")


def _segmentsOf(table: Table, rows: Sequence[Row]) -> list[str | None]:
    """Return the segments of rows as text."""
    if table in (OBJECTS, VERSIONS):
        return [row[_SEGMENTS] for row in rows]
    if table is UPLOADS:
        return [part[_PART_SEGMENTS] for row in rows for part in row[-1]]
    return []


def _renamed(table: Table, row: Row, number: int, ids: Mapping[str, str]) -> Row:
    """Return a row with another bucket number and other blob ids."""

    def rename(text: str | None) -> str | None:
        return text and _BLOB.sub(lambda found: f'["{ids.get(found[1], found[1])}"', text)

    if table in (OBJECTS, VERSIONS):
        return (number, *row[1:_SEGMENTS], rename(row[_SEGMENTS]), *row[_SEGMENTS + 1 :])
    if table is UPLOADS:
        parts = [(*part[:_PART_SEGMENTS], rename(part[_PART_SEGMENTS])) for part in row[-1]]
        return (number, *row[1:-1], tuple(parts))
    return (number, *row[1:])
