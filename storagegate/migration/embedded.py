"""
The embedded catalog as one side of a migration.

Triggers in the daemon's file note the keys of changed rows. No process needs to know about them,
because notes are committed with the changes. The daemon keeps serving: the migration is one more
process that reads, and occasionally holds the write lock for a few milliseconds.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from sqlite3 import Connection, OperationalError
from time import monotonic, sleep
from typing import Any, TypeVar

import msgspec
from attrs import frozen
from zope.interface import implementer

from storagegate.cluster.tables import (
    ACCESS_KEYS,
    BLOBS,
    BUCKETS,
    IDENTITIES,
    OBJECTS,
    SETTINGS,
    TABLES,
    UPLOADS,
    VERSIONS,
    Key,
    MigrationError,
    Row,
    Table,
)
from storagegate.migration.interfaces import Ending, IMigrationEnd
from storagegate.migration.marks import Mark
from storagegate.storage.embedded import refcounts
from storagegate.storage.embedded.buckets import readKeyUses
from storagegate.storage.embedded.connections import (
    Durability,
    Purpose,
    connect,
    migrate,
    migrateUnlocked,
    prepare,
    readSecret,
    replayLog,
)
from storagegate.storage.embedded.wal import checkpoint
from storagegate.storage.files import (
    DirectoryLock,
    FailStopLatch,
    Files,
    StoreLocked,
    checkFailStop,
)
from storagegate.storage.identity import MARKER, claimBlobs, refuseLostCatalog
from storagegate.storage.layout import BlobLayout, SyncGroup
from storagegate.storage.records import MIGRATION, NULL_VERSION
from storagegate.storage.sqlite import isBusy, leave, transact
from storagegate.storage.versionids import VersionIds

T = TypeVar("T")

_BUSY_SECONDS = 60.0
"""Limit of the time that another process may write without a pause."""

_NAP_SECONDS = 0.001
"""Interval of tries to take the write lock; SQLite's own pauses grow to a tenth of a second."""

_CHECKPOINT_ROWS = 20_000
"""Rows of a new catalog between two checkpoints, which bound its WAL."""


@frozen
class _FileTable:
    """
    The queries of a table. C{:number}, C{:key}, C{:sequence} and C{:name} are the parts of a key.

    @ivar select: The columns and the tables of a query.
    @ivar order: The columns that rows are sorted by.
    @ivar after: Conditions for rows after a key; rows of the first condition come first.
    @ivar at: The condition for the row of a key.
    """

    select: str
    order: str
    after: tuple[str, ...]
    at: str


_RECORD = (
    "o.bucketId, o.key, o.sequence, o.versionId, o.size, o.etag, o.modifiedMs, o.account,"
    " o.storageClass, o.checksumAlgorithm, o.checksumKind, o.storageChecksum, o.attributes,"
    " o.segments, o.tags, o.acl, o.retainMode, o.retainUntilMs, o.legalHold, i.bytes"
)
_AT = "o.bucketId = :number AND o.key = :key AND o.sequence = :sequence"
_ROWS = "FROM {} AS o LEFT JOIN inline AS i ON i.sequence = o.sequence"
_LATER = "(o.bucketId, o.key) > (:number, :key)"

_ENTITY = "account || char(10) || kind || char(10) || identities.name"
"""The name in the key of an entity; names have no line feed."""

_SOURCES = {
    BUCKETS: _FileTable(
        "id, name, account, createdMs, region, ownership, versioning, lockEnabled, generation"
        " FROM buckets",
        "id",
        ("id > :number",),
        "id = :number",
    ),
    SETTINGS: _FileTable(
        "bucketId, name, document FROM bucketSettings",
        "bucketId, name",
        ("(bucketId, name) > (:number, :name)",),
        "bucketId = :number AND name = :name",
    ),
    ACCESS_KEYS: _FileTable(
        "accessKey, secretKey, account, policy, bucketPattern, prefixPattern, email, createdMs,"
        " role, expiresMs, disabled, note, userName, parent, sessionPolicy FROM accessKeys",
        "accessKey",
        ("accessKey > :name",),
        "accessKey = :name",
    ),
    IDENTITIES: _FileTable(
        "account, kind, name, revision, document FROM identities",
        "account, kind, name",
        (f"{_ENTITY} > :name",),
        f"{_ENTITY} = :name",
    ),
    BLOBS: _FileTable(
        "id, size, crc, refs, damaged FROM blobs",
        "id",
        ("id > :name AND refs > 0",),
        "id = :name AND refs > 0",
    ),
    OBJECTS: _FileTable(
        f"{_RECORD} {_ROWS.format('objects')}",
        "o.bucketId, o.key, o.sequence DESC",
        (_LATER,),
        _AT,
    ),
    VERSIONS: _FileTable(
        f"{_RECORD}, o.deleteMarker, o.noncurrentMs {_ROWS.format('versions')}",
        "o.bucketId, o.key, o.sequence DESC",
        ("o.bucketId = :number AND o.key = :key AND o.sequence < :sequence", _LATER),
        _AT,
    ),
    UPLOADS: _FileTable(
        "bucketId, key, uploadId, account, startedMs, checksumAlgorithm, checksumKind, attributes"
        " FROM uploads",
        "bucketId, key, uploadId",
        ("(bucketId, key, uploadId) > (:number, :key, :name)",),
        "bucketId = :number AND key = :key AND uploadId = :name",
    ),
}

_PARTS = (
    "SELECT number, size, etag, modifiedMs, checksum, segments FROM parts WHERE uploadId = ?"
    " ORDER BY number"
)

_NOTES = "migrationNotes"
_INDEX = "migrationUploads"

_NOTED = {
    BUCKETS: ("buckets", "{0}.id, x'', 0, ''"),
    SETTINGS: ("bucketSettings", "{0}.bucketId, x'', 0, {0}.name"),
    ACCESS_KEYS: ("accessKeys", "0, x'', 0, {0}.accessKey"),
    IDENTITIES: (
        "identities",
        "0, x'', 0, {0}.account || char(10) || {0}.kind || char(10) || {0}.name",
    ),
    BLOBS: ("blobs", "0, x'', 0, {0}.id"),
    OBJECTS: ("objects", "{0}.bucketId, {0}.key, {0}.sequence, ''"),
    VERSIONS: ("versions", "{0}.bucketId, {0}.key, {0}.sequence, ''"),
    UPLOADS: ("uploads", "{0}.bucketId, {0}.key, 0, {0}.uploadId"),
}
"""The SQLite table of each table, and its key in a trigger."""

_ROW_OF = {"INSERT": "NEW", "UPDATE": "NEW", "DELETE": "OLD"}

_INSERTS = {
    BUCKETS: (
        "buckets (id, name, account, createdMs, region, ownership, versioning, lockEnabled,"
        " generation)",
        9,
    ),
    SETTINGS: ("bucketSettings", 3),
    ACCESS_KEYS: ("accessKeys", 15),
    IDENTITIES: ("identities", 5),
    BLOBS: ("blobs", 5),
    OBJECTS: (
        "objects (bucketId, key, sequence, versionId, size, etag, modifiedMs, account,"
        " storageClass, checksumAlgorithm, checksumKind, storageChecksum, attributes, segments,"
        " tags, acl, retainMode, retainUntilMs, legalHold)",
        19,
    ),
    VERSIONS: (
        "versions (bucketId, key, sequence, versionId, size, etag, modifiedMs, account,"
        " storageClass, checksumAlgorithm, checksumKind, storageChecksum, attributes, segments,"
        " tags, acl, retainMode, retainUntilMs, legalHold, deleteMarker, noncurrentMs)",
        21,
    ),
    UPLOADS: ("uploads", 8),
}

_INLINE = 19
"""The column of inline bytes in a row of a version."""


def _triggers() -> list[tuple[str, str]]:
    """Return the names and definitions of the triggers that note changes."""
    made = []
    for table, (name, key) in _NOTED.items():
        for event, row in _ROW_OF.items():
            made.append(
                (
                    f"migration{name}{event.title()}",
                    f"AFTER {event} ON {name} BEGIN INSERT INTO {_NOTES}"
                    f" VALUES (NULL, {table.number}, {key.format(row)}); END",
                )
            )
    for event, row in _ROW_OF.items():
        made.append(
            (
                f"migrationParts{event.title()}",
                f"AFTER {event} ON parts BEGIN INSERT INTO {_NOTES}"
                f" SELECT NULL, {UPLOADS.number}, bucketId, key, 0, uploadId FROM uploads"
                f" WHERE uploadId = {row}.uploadId; END",
            )
        )
    return made


@implementer(IMigrationEnd)
class EmbeddedEnd:
    """
    The catalog of a data directory. All methods block, and must run in one thread.

    @ivar layout: The paths of its blobs.
    """

    def __init__(self, directory: str, connection: Connection, lock: DirectoryLock | None) -> None:
        """
        @param directory: The data directory as an absolute path.
        @param connection: A writer's connection.
        @param lock: The lock of the directory; C{None} while a daemon may hold it.
        """
        self.name = directory
        self.layout = BlobLayout(directory)
        self._connection = connection
        self._lock = lock
        self._ids = VersionIds(readSecret(connection))
        self._unsaved = 0

    @classmethod
    def openSource(cls, directory: str) -> "EmbeddedEnd":
        """
        Open the catalog of a store that a daemon may be serving.

        @raise MigrationError: If the directory contains no store.
        """
        path = os.path.join(directory, "catalog.sqlite")
        if not os.path.exists(path):
            raise MigrationError(f"{directory} contains no store")
        return cls(directory, _connect(path, migrateUnlocked), None)

    @classmethod
    def openTarget(cls, directory: str) -> "EmbeddedEnd":
        """
        Lock the data directory, and open its store, which is created if it is missing.

        @raise StoreLocked: If another process has the store open.
        """
        layout = BlobLayout(directory)
        for path in (layout.data, layout.blobs, layout.staging):
            os.makedirs(path, 0o700, exist_ok=True)
        lock = DirectoryLock.take(directory)
        replayLog(directory, Durability.FULL)
        refuseLostCatalog(layout, Files())
        path = os.path.join(directory, "catalog.sqlite")
        if not os.path.exists(path):
            prepare(path, Durability.FULL)
        return cls(directory, _connect(path, migrate), lock)

    def close(self) -> None:
        """See L{IMigrationEnd.close}."""
        leave(self._connection)
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def mark(self) -> Mark | None:
        """See L{IMigrationEnd.mark}."""
        rows = self._connection.execute(
            "SELECT value FROM meta WHERE name = ?", (MIGRATION,)
        ).fetchall()
        return msgspec.json.decode(rows[0][0], type=Mark) if rows else None

    def secret(self) -> bytes:
        """See L{IMigrationEnd.secret}."""
        return readSecret(self._connection)

    def isEmpty(self) -> bool:
        """See L{IMigrationEnd.isEmpty}."""
        tables = ("buckets", "accessKeys", "identities", "blobs", "uploads")
        exists = " OR ".join(f"EXISTS (SELECT 1 FROM {table})" for table in tables)
        return not self._value(f"SELECT {exists}")

    def page(self, table: Table, after: Key, limit: int) -> list[Row]:
        """See L{IMigrationEnd.page}."""
        source = _SOURCES[table]
        rows: list[Row] = []
        for condition in source.after:
            if len(rows) < limit:
                rows += self._rows(table, condition, after, limit - len(rows))
        return rows

    def read(self, table: Table, keys: Sequence[Key]) -> list[Row]:
        """See L{IMigrationEnd.read}."""
        at = _SOURCES[table].at
        return [row for key in keys for row in self._rows(table, at, key, 1)]

    def follow(self, mark: Mark) -> None:
        """See L{IMigrationEnd.follow}."""

        def act() -> None:
            self._unfollow()
            execute = self._connection.execute
            execute(
                f"CREATE TABLE {_NOTES} (id INTEGER PRIMARY KEY, kind INTEGER NOT NULL,"
                " number INTEGER NOT NULL, key BLOB NOT NULL, sequence INTEGER NOT NULL,"
                " name TEXT NOT NULL) STRICT"
            )
            # Parts reference their upload only by this id.
            execute(f"CREATE INDEX {_INDEX} ON uploads (uploadId)")
            for name, definition in _triggers():
                execute(f"CREATE TRIGGER {name} {definition}")
            self._setMark(mark)

        self._write(act)

    def notes(self, limit: int) -> tuple[list[int], Mapping[Table, set[Key]]]:
        """See L{IMigrationEnd.notes}."""
        ids: list[int] = []
        keys: dict[Table, set[Key]] = {}
        for id, kind, *key in self._connection.execute(
            f"SELECT id, kind, number, key, sequence, name FROM {_NOTES} ORDER BY id LIMIT ?",
            (limit,),
        ).fetchall():
            ids.append(id)
            keys.setdefault(TABLES[kind], set()).add(tuple(key))
        return ids, keys

    def dropNotes(self, ids: Sequence[int]) -> None:
        """See L{IMigrationEnd.dropNotes}."""
        # The notes between the first and the last id are exactly these.
        sql = f"DELETE FROM {_NOTES} WHERE id BETWEEN ? AND ?"
        self._write(lambda: self._connection.execute(sql, (ids[0], ids[-1])))

    def pending(self) -> int:
        """See L{IMigrationEnd.pending}."""
        found: int = self._value(f"SELECT count(*) FROM {_NOTES}")
        return found

    def seal(self) -> bool:
        """See L{IMigrationEnd.seal}. No daemon starts while the directory is locked."""
        if self._lock is None:
            try:
                self._lock = DirectoryLock.take(self.layout.data)
            except StoreLocked:
                return False
        return True

    def settle(self) -> None:
        """See L{IMigrationEnd.settle}. Does nothing: no work is deferred here."""

    def ending(self) -> Ending:
        """See L{IMigrationEnd.ending}."""
        execute = self._connection.execute
        sums = {
            table: (count, number or 0)
            for table in (OBJECTS, VERSIONS)
            for count, number in execute(f"SELECT count(*), sum(sequence) FROM {table.name}")
        }
        tasks = execute("SELECT name, value FROM meta WHERE name GLOB 'progress-*'").fetchall()
        return Ending(
            self._value("SELECT value FROM meta WHERE name = 'sequence'"),
            self._value("SELECT value FROM meta WHERE name = 'keysGeneration'"),
            self._value("SELECT max(seq) FROM sqlite_sequence WHERE name = 'buckets'") or 0,
            {id: tuple(counts) for id, *counts in execute("SELECT * FROM usage ORDER BY bucketId")},
            readKeyUses(self._connection),
            {name.removeprefix("progress-"): value for name, value in tasks},
            sums,
        )

    def retire(self, mark: Mark) -> bool:
        """See L{IMigrationEnd.retire}."""

        def act() -> bool:
            # Access keys are issued and revoked without the lock of the directory.
            if self.pending():
                return False
            self._unfollow()
            self._setMark(mark)
            return True

        return self._write(act)

    def abandon(self) -> None:
        """See L{IMigrationEnd.abandon}."""

        def act() -> None:
            self._unfollow()
            self._connection.execute("DELETE FROM meta WHERE name = ?", (MIGRATION,))

        self._write(act)

    def claim(self, mark: Mark, secret: bytes) -> None:
        """See L{IMigrationEnd.claim}."""
        marker = os.path.join(self.layout.blobs, MARKER)
        if os.path.exists(marker):
            os.unlink(marker)

        def act() -> None:
            self._connection.execute("UPDATE meta SET value = ? WHERE name = 'secret'", (secret,))
            self._setMark(mark)

        self._write(act)
        self._ids = VersionIds(secret)
        self.reopen()

    def reopen(self) -> None:
        """See L{IMigrationEnd.reopen}. Writes the id of the store beside its blobs."""
        files = Files()
        syncs = SyncGroup(files, FailStopLatch(), True)
        connection = self._connection

        def known(ids: Sequence[str]) -> frozenset[str]:
            return refcounts.knownBlobs(connection, ids)

        claimBlobs(self.layout, files, syncs, self.secret(), known)

    def append(self, table: Table, rows: Sequence[Row], mark: Mark) -> None:
        """See L{IMigrationEnd.append}."""

        def act() -> None:
            self._insert(table, rows)
            self._setMark(mark)

        self._write(act)
        self._unsaved += len(rows)
        if self._unsaved >= _CHECKPOINT_ROWS:
            self._unsaved = 0
            checkpoint(self._connection, "TRUNCATE")

    def replace(self, table: Table, keys: Sequence[Key], rows: Sequence[Row]) -> None:
        """See L{IMigrationEnd.replace}."""

        def act() -> None:
            self._delete(table, keys)
            self._deleteRivals(table, rows)
            self._insert(table, rows)

        self._write(act)

    def blobReferences(self, ids: Sequence[str]) -> Mapping[str, int]:
        """See L{IMigrationEnd.blobReferences}."""
        sql = "SELECT refs FROM blobs WHERE id = ?"
        return {
            id: refs for id in ids for (refs,) in self._connection.execute(sql, (id,)).fetchall()
        }

    def analyse(self) -> None:
        """See L{IMigrationEnd.analyse}. Does nothing."""

    def finish(self, ending: Ending) -> None:
        """See L{IMigrationEnd.finish}."""

        def act() -> None:
            execute = self._connection.execute
            for name, value in (
                ("sequence", ending.sequence),
                ("keysGeneration", ending.keysGeneration),
            ):
                execute("UPDATE meta SET value = ? WHERE name = ?", (value, name))
            execute("DELETE FROM sqlite_sequence WHERE name = 'buckets'")
            execute("INSERT INTO sqlite_sequence VALUES ('buckets', ?)", (ending.lastBucket,))
            execute("DELETE FROM usage")
            for id, counts in ending.usage.items():
                execute("INSERT INTO usage VALUES (?, ?, ?, ?, ?)", (id, *counts))
            execute("DELETE FROM keyUses")
            for use in ending.keyUses.items():
                execute("INSERT INTO keyUses VALUES (?, ?)", use)
            for task, document in ending.progress.items():
                execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (f"progress-{task}", document))

        self._write(act)
        checkpoint(self._connection, "TRUNCATE")

    def open(self) -> None:
        """See L{IMigrationEnd.open}."""
        self._write(
            lambda: self._connection.execute("DELETE FROM meta WHERE name = ?", (MIGRATION,))
        )

    def clear(self) -> None:
        """See L{IMigrationEnd.clear}. Does nothing."""

    def missingBlobs(self, table: Table, rows: Sequence[Row]) -> list[str]:
        """See L{IMigrationEnd.missingBlobs}."""
        return []

    def _rows(self, table: Table, condition: str, key: Key, limit: int) -> list[Row]:
        source = _SOURCES[table]
        number, name, sequence, text = key
        values = {"number": number, "key": name, "sequence": sequence, "name": text}
        sql = f"SELECT {source.select} WHERE {condition} ORDER BY {source.order} LIMIT {limit}"
        if table is not UPLOADS:
            return [self._decode(table, row) for row in self._connection.execute(sql, values)]

        def act() -> list[Row]:
            uploads = self._connection.execute(sql, values).fetchall()
            return [
                (*row, tuple(self._connection.execute(_PARTS, (row[2],)).fetchall()))
                for row in uploads
            ]

        return self._together(act)

    def _decode(self, table: Table, row: Row) -> Row:
        """Convert a row to the common form of both catalogs."""
        if table in (OBJECTS, VERSIONS):
            sequence, version, hold = row[2], row[3], row[18]
            if version != NULL_VERSION and version != self._ids.make(sequence):
                raise MigrationError(f"write {sequence} has a version id of another store")
            isOn = None if hold is None else bool(hold)
            decoded = (*row[:3], version != NULL_VERSION, *row[4:18], isOn, row[_INLINE])
            return (*decoded, bool(row[20]), row[21]) if table is VERSIONS else decoded
        if table is BUCKETS:
            return (*row[:7], bool(row[7]), row[8])
        if table is BLOBS:
            return (*row[:4], bool(row[4]))
        if table is ACCESS_KEYS:
            return (*row[:10], bool(row[10]), *row[11:])
        return row

    def _insert(self, table: Table, rows: Sequence[Row]) -> None:
        execute = self._connection.executemany
        into, count = _INSERTS[table]
        sql = f"INSERT OR REPLACE INTO {into} VALUES ({', '.join('?' * count)})"
        if table in (OBJECTS, VERSIONS):
            execute(sql, [self._encode(row) for row in rows])
            inline = [(row[2], row[_INLINE]) for row in rows if row[_INLINE] is not None]
            execute("INSERT OR REPLACE INTO inline VALUES (?, ?)", inline)
            return
        execute(sql, [row[:count] for row in rows])
        if table is UPLOADS:
            execute(
                "INSERT INTO parts VALUES (?, ?, ?, ?, ?, ?, ?)",
                [(row[2], *part) for row in rows for part in row[count]],
            )

    def _encode(self, row: Row) -> Row:
        """Convert a version to the columns of this catalog."""
        version = self._ids.make(row[2]) if row[3] else NULL_VERSION
        return (*row[:3], version, *row[4:_INLINE], *row[_INLINE + 1 :])

    def _delete(self, table: Table, keys: Sequence[Key]) -> None:
        name = _NOTED[table][0]
        at = _SOURCES[table].at.replace("o.", "").replace(" AND refs > 0", "")
        for number, key, sequence, text in keys:
            values = {"number": number, "key": key, "sequence": sequence, "name": text}
            self._connection.execute(f"DELETE FROM {name} WHERE {at}", values)
            if table is UPLOADS:
                self._connection.execute("DELETE FROM parts WHERE uploadId = ?", (text,))
            elif table in (OBJECTS, VERSIONS):
                # The bytes stay if the row has moved to the other table.
                other = (VERSIONS if table is OBJECTS else OBJECTS).name
                self._connection.execute(
                    "DELETE FROM inline WHERE sequence = :sequence AND NOT EXISTS"
                    f" (SELECT 1 FROM {other} WHERE {at})",
                    values,
                )

    def _deleteRivals(self, table: Table, rows: Sequence[Row]) -> None:
        """Delete rows that conflict with others; they have changed since, and are noted."""
        if table is OBJECTS:
            sql, columns = "objects WHERE bucketId = ? AND key = ?", slice(0, 2)
        elif table is VERSIONS:
            sql = "versions WHERE bucketId = ? AND key = ? AND versionId = 'null'"
            columns = slice(0, 2)
            rows = [row for row in rows if not row[3]]
        elif table is BUCKETS:
            sql, columns = "buckets WHERE name = ?", slice(1, 2)
        else:
            return
        self._connection.executemany(f"DELETE FROM {sql}", [row[columns] for row in rows])

    def _unfollow(self) -> None:
        execute = self._connection.execute
        for name, _ in _triggers():
            execute(f"DROP TRIGGER IF EXISTS {name}")
        execute(f"DROP INDEX IF EXISTS {_INDEX}")
        execute(f"DROP TABLE IF EXISTS {_NOTES}")

    def _setMark(self, mark: Mark) -> None:
        text = msgspec.json.encode(mark).decode()
        self._connection.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (MIGRATION, text))

    def _value(self, sql: str) -> Any:
        return self._connection.execute(sql).fetchall()[0][0]

    def _together(self, act: Callable[[], T]) -> T:
        """Run reads in one transaction, for a consistent snapshot."""
        self._connection.execute("BEGIN")
        try:
            return act()
        finally:
            self._connection.execute("COMMIT")

    def _write(self, act: Callable[[], T]) -> T:
        """Write in one transaction, as soon as other processes release the lock."""
        until = monotonic() + _BUSY_SECONDS
        while True:
            try:
                check = partial(checkFailStop, self.layout.data)
                return transact(self._connection, act, check)
            except OperationalError as error:
                if not isBusy(error) or monotonic() >= until:
                    raise
            sleep(_NAP_SECONDS)


def _connect(path: str, migrateFile: Callable[[Connection, str], None]) -> Connection:
    connection = connect(path, Durability.FULL, Purpose.WRITER)
    # _write retries by itself; see _NAP_SECONDS.
    connection.execute("PRAGMA busy_timeout = 0")
    migrateFile(connection, path)
    return connection
