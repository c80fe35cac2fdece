"""
The catalog in PostgreSQL as one side of a migration.

A source has triggers that note the keys of changed rows, whichever node commits them. When all
nodes have stopped or lost their leases, the server itself refuses new leases, and nodes cannot
commit without one. A target refuses leases until the switch.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from secrets import token_bytes
from time import monotonic, sleep
from typing import Any

import msgspec
import psycopg
from attrs import frozen
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict
from psycopg.errors import DeadlockDetected, LockNotAvailable
from zope.interface import implementer

from storagegate.cluster.initialisation import AFFINITY_BYTES
from storagegate.cluster.tables import (
    ACCESS_KEYS,
    BLOBS,
    BUCKETS,
    IDENTITIES,
    OBJECTS,
    PARTS,
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
from storagegate.storage.cluster.admin import ROOT, ClusterAdmin
from storagegate.storage.cluster.databaselocks import LEASE_LOCKS
from storagegate.storage.cluster.garbage import FOLDED
from storagegate.storage.cluster.primary import findPrimary
from storagegate.storage.cluster.schema import CONNECT_SECONDS, migrate, readShards
from storagegate.storage.records import MIGRATION
from storagegate.storage.sqlite import CatalogUnusable

_SETTLE_SECONDS = 60.0
"""Limit of the duration of a foreign transaction that is older than the last freed references."""

_NAP_SECONDS = 0.05

_LOCK_MS = 300
"""
Timeout of a table lock in milliseconds; writes queue behind the request for the lock. The timeout
is below the server's C{deadlock_timeout}, after which PostgreSQL could abort such a write.
"""

_LOCK = 0x6D696772617465
"""The advisory lock of a migration whose source is sealed."""

_GUARD = "migrationguard"
_REFUSE = "migrationrefuse"
_NOTE = "migrationnote"
_NOTES = "migrationnotes"

# The indexes fit all statements here, and new tables have no statistics.
_SESSION = "SET enable_seqscan = off; SET enable_bitmapscan = off; SET jit = off"


@frozen
class _ServerTable:
    """
    The queries of a table. C{{number}}, C{{key}}, C{{sequence}} and C{{name}} are the parts of a
    key.

    @ivar order: The columns that rows are sorted by.
    @ivar after: Conditions for rows after a key; rows of the first condition come first.
    @ivar at: The condition for the row of a key.
    @ivar key: The key in a trigger.
    """

    order: str
    after: tuple[str, ...]
    at: str
    key: str


_AT = "bucketid = {number} AND o.key = {key} AND o.sequence = {sequence}"
_LATER = "(bucketid, o.key) > ({number}, {key})"
_VERSION = "NEW.bucketid, NEW.key, NEW.sequence, ''"

_ENTITY = "({0}.account || chr(10) || {0}.kind || chr(10) || {0}.name)"
"""The name in the key of an entity; names have no line feed."""

_SOURCES = {
    BUCKETS: _ServerTable("id", ("id > {number}",), "id = {number}", "NEW.id, '', 0, ''"),
    SETTINGS: _ServerTable(
        "bucketid, name",
        ("(bucketid, o.name) > ({number}, {name})",),
        "bucketid = {number} AND o.name = {name}",
        "NEW.bucketid, '', 0, NEW.name",
    ),
    ACCESS_KEYS: _ServerTable(
        "accesskey", ("accesskey > {name}",), "accesskey = {name}", "0, '', 0, NEW.accesskey"
    ),
    IDENTITIES: _ServerTable(
        "account, kind, o.name",
        (f"{_ENTITY.format('o')} > {{name}}",),
        f"{_ENTITY.format('o')} = {{name}}",
        f"0, '', 0, {_ENTITY.format('NEW')}",
    ),
    BLOBS: _ServerTable(
        "id", ("id > {name} AND refs > 0",), "id = {name} AND refs > 0", "0, '', 0, NEW.id"
    ),
    OBJECTS: _ServerTable("bucketid, key", (_LATER,), _AT, _VERSION),
    VERSIONS: _ServerTable(
        "bucketid, key, sequence DESC",
        ("bucketid = {number} AND o.key = {key} AND o.sequence < {sequence}", _LATER),
        _AT,
        _VERSION,
    ),
    UPLOADS: _ServerTable(
        "bucketid, key, uploadid",
        ("(bucketid, o.key, uploadid) > ({number}, {key}, {name})",),
        "bucketid = {number} AND o.key = {key} AND uploadid = {name}",
        "NEW.bucketid, NEW.key, 0, NEW.uploadid",
    ),
}

# Raises the sequence of lease numbers above the leases of all blob ids. The last 16 digits of an id
# are its lease in reverse order; see storagegate.storage.blobids. Only leases below 2**48 count,
# which excludes almost all random ids of embedded stores.
_RAISE_LEASES = """
    SELECT setval('leases_id_seq', greatest(last_value, (
        SELECT ('x' || max(reverse(right(id, 16))))::bit(64)::bigint FROM blobs
        WHERE id LIKE '%0000'))) FROM leases_id_seq
"""

_PARAMETERS = {name: f"%({name})s" for name in ("number", "key", "sequence", "name")}
_COLUMNS_OF_KEYS = {name: f"k.{name}" for name in _PARAMETERS}
_EVENTS = (("INSERT", "NEW"), ("UPDATE", "NEW"), ("DELETE", "OLD"))
"""The events of triggers, each with a row that is available in it."""

_KEYS = (
    "unnest(%(numbers)s::bigint[], %(keys)s::bytea[], %(sequences)s::bigint[], %(names)s::text[])"
    " AS k (number, key, sequence, name)"
)


@implementer(IMigrationEnd)
class SharedEnd:
    """
    The catalog of a cluster. All methods block, and must run in one thread.

    @ivar _followed: The PostgreSQL tables whose changes are noted.
    """

    _followed = (*(table.name for table in TABLES), "parts")

    def __init__(
        self, connection: psycopg.Connection[Any], root: tuple[str, str] | None = None
    ) -> None:
        """
        @param connection: A connection to the primary, in autocommit mode.
        @param root: The root key pair of the store, for a target.
        """
        values = conninfo_to_dict(connection.info.dsn)
        self.name = f"the cluster in {values.get('dbname')} at {connection.info.host}"
        self._connection = connection
        self._root = root
        connection.execute(_SESSION)

    @classmethod
    def connect(cls, conninfos: Sequence[str], root: tuple[str, str] | None = None) -> "SharedEnd":
        """
        Connect, and migrate the database to the current schema.

        @param conninfos: One conninfo per server.
        @param root: See L{SharedEnd}.
        @raise CatalogUnusable: If the catalog cannot be used; the text gives the reason in one
            line.
        """
        conninfo, _ = findPrimary(conninfos)
        migrate(conninfo, evenMoved=True)
        connection = psycopg.connect(conninfo, autocommit=True, connect_timeout=CONNECT_SECONDS)
        if readShards(connection):
            connection.close()
            raise CatalogUnusable("cluster migrate does not support catalogs with several shards")
        return cls(connection, root)

    @property
    def _suffix(self) -> str:
        """The suffix of functions and tables that a migration creates here."""
        return ""

    def close(self) -> None:
        """See L{IMigrationEnd.close}."""
        self._connection.close()

    def mark(self) -> Mark | None:
        """See L{IMigrationEnd.mark}."""
        rows = self._rows("SELECT value FROM meta WHERE name = %s", (MIGRATION,))
        return msgspec.json.decode(rows[0][0], type=Mark) if rows else None

    def secret(self) -> bytes:
        """See L{IMigrationEnd.secret}."""
        found: bytes = self._value("SELECT value FROM meta WHERE name = 'secret'")
        return found

    def isEmpty(self) -> bool:
        """See L{IMigrationEnd.isEmpty}."""
        tables = (
            "buckets",
            "issuedkeys",
            "identities",
            "blobs",
            "uploads",
            "objects",
            "versions",
            "bucketmoves",
        )
        exists = " OR ".join(f"EXISTS (SELECT FROM {table})" for table in tables)
        return not self._value(f"SELECT {exists} OR EXISTS (SELECT FROM leases WHERE alive)")

    def page(self, table: Table, after: Key, limit: int) -> list[Row]:
        """See L{IMigrationEnd.page}."""
        source = _SOURCES[table]
        rows: list[Row] = []
        for condition in source.after:
            if len(rows) < limit:
                rows += self._rows(
                    f"SELECT {_names(table)} FROM {self._placeOf(table)} AS o"
                    f" WHERE {condition.format(**_PARAMETERS)} {self._scopeOf(table)}"
                    f" ORDER BY {source.order} LIMIT {limit - len(rows)}",
                    dict(zip(_PARAMETERS, after, strict=True)),
                )
        return self._withParts(rows) if table is UPLOADS else rows

    def read(self, table: Table, keys: Sequence[Key]) -> list[Row]:
        """See L{IMigrationEnd.read}."""
        at = _SOURCES[table].at.format(**_COLUMNS_OF_KEYS)
        rows = self._rows(
            f"SELECT {_names(table)} FROM {_KEYS} JOIN {self._placeOf(table)} AS o ON {at}",
            _keyValues(keys),
        )
        return self._withParts(rows) if table is UPLOADS else rows

    def follow(self, mark: Mark) -> None:
        """See L{IMigrationEnd.follow}. Each attempt delays writes by at most L{_LOCK_MS}."""
        self._withLocks(lambda: self._follow(mark))

    def _withLocks(self, act: Callable[[], object]) -> None:
        """Call a function in a transaction; retry it while a table lock times out."""
        until = monotonic() + _SETTLE_SECONDS
        while True:
            try:
                with self._connection.transaction():
                    self._execute(f"SET LOCAL lock_timeout = {_LOCK_MS}")
                    act()
                return
            except (LockNotAvailable, DeadlockDetected):
                if monotonic() >= until:
                    raise
            sleep(_NAP_SECONDS)

    def _follow(self, mark: Mark) -> None:
        if not self._suffix and self._value("SELECT EXISTS (SELECT FROM bucketmoves)"):
            raise MigrationError(f"a bucket of {self.name} is being migrated")
        self._execute(f"LOCK TABLE {', '.join(self._followed)} IN SHARE ROW EXCLUSIVE MODE")
        self._unfollow()
        self._execute(
            f"CREATE TABLE {_NOTES}{self._suffix} (id bigint GENERATED ALWAYS AS IDENTITY"
            " PRIMARY KEY, kind int NOT NULL, number bigint NOT NULL, key bytea NOT NULL,"
            " sequence bigint NOT NULL, name text NOT NULL)"
        )
        for table, source in _SOURCES.items():
            if table.name in self._followed:
                self._note(table.name, table, source.key)
        self._note("parts", UPLOADS, _SOURCES[UPLOADS].key)
        self._setMark(mark)

    def _placeOf(self, table: Table) -> str:
        """Return the PostgreSQL table with the rows."""
        return table.name

    def _scopeOf(self, table: Table) -> str:
        """Return an additional condition for the rows of a table that belong to this end."""
        return ""

    def _when(self, row: str, table: str) -> str:
        """Return a trigger condition for C{NEW} or C{OLD}."""
        return ""

    def _note(self, name: str, table: Table, key: str) -> None:
        """Create the triggers that note the changes of one PostgreSQL table."""
        insert = f"INSERT INTO {_NOTES}{self._suffix} (kind, number, key, sequence, name) VALUES"
        old = key.replace("NEW.", "OLD.")
        self._execute(f"""
            CREATE FUNCTION {_NOTE}{name}{self._suffix}() RETURNS trigger LANGUAGE plpgsql AS $$
            BEGIN
                IF TG_OP <> 'DELETE' THEN
                    {insert} ({table.number}, {key});
                END IF;
                -- An overwritten object gets a new number, so the old key is noted, too.
                IF TG_OP = 'DELETE' OR (TG_OP = 'UPDATE' AND ({old}) <> ({key})) THEN
                    {insert} ({table.number}, {old});
                END IF;
                RETURN NULL;
            END $$
        """)
        for event, row in _EVENTS:
            self._execute(
                f"CREATE TRIGGER {_NOTE}{event}{self._suffix} AFTER {event} ON {name}"
                f" FOR EACH ROW {self._when(row, name)}"
                f" EXECUTE FUNCTION {_NOTE}{name}{self._suffix}()"
            )

    def notes(self, limit: int) -> tuple[list[int], Mapping[Table, set[Key]]]:
        """See L{IMigrationEnd.notes}."""
        ids: list[int] = []
        keys: dict[Table, set[Key]] = {}
        for id, kind, *key in self._rows(
            f"SELECT id, kind, number, key, sequence, name FROM {_NOTES}{self._suffix}"
            " ORDER BY id LIMIT %s",
            (limit,),
        ):
            ids.append(id)
            keys.setdefault(TABLES[kind], set()).add((key[0], key[1], key[2], key[3]))
        return ids, keys

    def dropNotes(self, ids: Sequence[int]) -> None:
        """See L{IMigrationEnd.dropNotes}."""
        # Exactly these: a note with a smaller number may have been committed since.
        self._execute(f"DELETE FROM {_NOTES}{self._suffix} WHERE id = ANY (%s)", (list(ids),))

    def pending(self) -> int:
        """See L{IMigrationEnd.pending}."""
        found: int = self._value(f"SELECT count(*) FROM {_NOTES}{self._suffix}")
        return found

    def seal(self) -> bool:
        """See L{IMigrationEnd.seal}. Ends expired leases, and refuses new ones."""
        used = "SELECT count(*) FROM leases WHERE alive AND expires >= clock_timestamp()"
        if self._value(used):
            return False
        # Held until this connection ends: if the run is interrupted, nodes may start again.
        self._execute("SELECT pg_advisory_lock(%s)", (_LOCK,))
        with self._connection.transaction() as transaction:
            self._execute("LOCK TABLE leases IN EXCLUSIVE MODE")
            if self._value(used):
                raise psycopg.Rollback(transaction)
            self._refuse("leases", "the store is being migrated", _LOCK)
            # Ending a lease needs its exclusive lock: no transaction is committing under it then.
            for (number,) in self._rows("SELECT id FROM leases WHERE alive"):
                self._execute("SELECT pg_advisory_xact_lock(%s)", (LEASE_LOCKS + number,))
            self._execute("UPDATE leases SET alive = false WHERE alive")
            return True
        self._execute("SELECT pg_advisory_unlock(%s)", (_LOCK,))
        return False

    def settle(self) -> None:
        """See L{IMigrationEnd.settle}. Subtracts the freed references."""
        until = monotonic() + _SETTLE_SECONDS
        while self._value("SELECT count(*) FROM freed"):
            if not self._rows("SELECT rfreed FROM fold(%s)", (FOLDED,))[0][0]:
                if monotonic() >= until:
                    raise MigrationError(
                        f"{self.name}: a transaction that has not ended still holds references"
                    )
                sleep(_NAP_SECONDS)
        self._execute("SELECT foldusage()")

    def ending(self) -> Ending:
        """See L{IMigrationEnd.ending}."""
        usage = self._rows(
            "SELECT bucketid, objects, bytes, uploads, uploadbytes FROM usage ORDER BY bucketid"
        )
        return Ending(
            self._value("SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM writes"),
            self._value("SELECT number FROM meta WHERE name = 'keysgeneration'"),
            self._value(
                "SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM buckets_id_seq"
            ),
            {id: tuple(counts) for id, *counts in usage},
            dict(self._rows("SELECT accesskey, lastusedms FROM keyuses")),
            dict(self._rows("SELECT task, document FROM progress")),
            {
                table: (count, int(number or 0))
                for table in (OBJECTS, VERSIONS)
                for count, number in self._rows(f"SELECT count(*), sum(sequence) FROM {table.name}")
            },
        )

    def retire(self, mark: Mark) -> bool:
        """See L{IMigrationEnd.retire}."""
        with self._connection.transaction() as transaction:
            # Access keys are issued and revoked without a lease.
            self._execute("LOCK TABLE issuedkeys, identities IN EXCLUSIVE MODE")
            if self.pending():
                raise psycopg.Rollback(transaction)
            self._unfollow()
            self._refuse("leases", mark.refuses)
            self._refuse("issuedkeys", mark.refuses)
            self._refuse("identities", mark.refuses)
            self._setMark(mark)
            return True
        return False

    def abandon(self) -> None:
        """See L{IMigrationEnd.abandon}."""
        with self._connection.transaction():
            self._unfollow()
            self._admit()

    def claim(self, mark: Mark, secret: bytes) -> None:
        """See L{IMigrationEnd.claim}."""
        with self._connection.transaction():
            self._refuse("leases", mark.refuses)
            self._execute("UPDATE meta SET value = %s WHERE name = 'secret'", (secret,))
            # Greater than the leases of a former cluster on this blob store: no id is reused.
            self._execute(
                "SELECT setval('leases_id_seq', (extract(epoch FROM now()) * 1000)::bigint)"
            )
            if self._root is not None:
                self._execute("DELETE FROM meta WHERE name = %s", (ROOT,))
                ClusterAdmin("", 0, self._connection).makeSecrets(
                    *self._root, token_bytes(AFFINITY_BYTES)
                )
            self._setMark(mark)

    def reopen(self) -> None:
        """See L{IMigrationEnd.reopen}. Does nothing."""

    def append(self, table: Table, rows: Sequence[Row], mark: Mark) -> None:
        """See L{IMigrationEnd.append}."""
        with self._connection.transaction():
            self._copy(table, rows)
            self._setMark(mark)

    def replace(self, table: Table, keys: Sequence[Key], rows: Sequence[Row]) -> None:
        """See L{IMigrationEnd.replace}."""
        with self._connection.transaction():
            at = _SOURCES[table].at.replace(" AND refs > 0", "").format(**_COLUMNS_OF_KEYS)
            values = _keyValues(keys)
            self._delete(self._placeOf(table), f"USING {_KEYS} WHERE {at}", values)
            if table is UPLOADS:
                self._delete("parts", f"USING {_KEYS} WHERE {at}", values)
            self._deleteRivals(table, rows)
            self._copy(table, rows)

    def blobReferences(self, ids: Sequence[str]) -> Mapping[str, int]:
        """See L{IMigrationEnd.blobReferences}."""
        return dict(self._rows("SELECT id, refs FROM blobs WHERE id = ANY (%s)", (list(ids),)))

    def finish(self, ending: Ending) -> None:
        """See L{IMigrationEnd.finish}."""
        with self._connection.transaction():
            for sequence, last in (
                ("writes", ending.sequence),
                ("buckets_id_seq", ending.lastBucket),
            ):
                self._execute("SELECT setval(%s, %s, %s)", (sequence, max(last, 1), last > 0))
            self._execute(
                "UPDATE meta SET number = %s WHERE name = 'keysgeneration'",
                (ending.keysGeneration,),
            )
            for table in ("usage", "usagedeltas", "freed", "keyuses", "progress"):
                self._execute(f"DELETE FROM {table}")
            with self._copying("COPY usage FROM STDIN") as copy:
                for id, counts in ending.usage.items():
                    copy.write_row((id, *counts))
            self._execute("DELETE FROM directory")
            self._execute("INSERT INTO directory SELECT name, 0 FROM buckets")
            for use in ending.keyUses.items():
                self._execute("INSERT INTO keyuses VALUES (%s, %s)", use)
            for item in ending.progress.items():
                self._execute("INSERT INTO progress VALUES (%s, %s)", item)

    def analyse(self) -> None:
        """
        See L{IMigrationEnd.analyse}. Computes statistics, so that nodes need not wait for them, and
        raises the lease numbers above the leases of all blobs, which may come from another cluster.
        """
        self._execute("ANALYZE")
        self._execute(_RAISE_LEASES)

    def open(self) -> None:
        """See L{IMigrationEnd.open}."""
        with self._connection.transaction():
            self._admit()

    def clear(self) -> None:
        """See L{IMigrationEnd.clear}. Does nothing."""

    def missingBlobs(self, table: Table, rows: Sequence[Row]) -> list[str]:
        """See L{IMigrationEnd.missingBlobs}."""
        return []

    def _admit(self) -> None:
        """Forget the migration, and accept leases again."""
        self._admitAll()
        self._execute("DELETE FROM meta WHERE name = %s", (MIGRATION,))

    def _refuse(self, table: str, reason: str, lock: int = 0) -> None:
        """
        Make the server refuse new rows of a table.

        @param lock: If given, rows are refused only while another session holds this advisory lock.
        """
        function = f"{_REFUSE}{self._suffix}"
        self._execute(f"""
            CREATE OR REPLACE FUNCTION {function}() RETURNS trigger LANGUAGE plpgsql AS $$
            DECLARE
                lock bigint := TG_ARGV[1]::bigint;
            BEGIN
                IF lock <> 0 AND pg_try_advisory_xact_lock_shared(lock) THEN
                    RETURN coalesce(NEW, OLD);
                END IF;
                RAISE EXCEPTION '%', TG_ARGV[0] USING ERRCODE = '55000';
            END $$
        """)
        for event, row in _EVENTS if self._suffix else _EVENTS[:1]:
            guard = f"{_GUARD}{event}{self._suffix}".lower()
            each = f"ROW {self._when(row, table)}" if self._suffix else "STATEMENT"
            self._execute(f"DROP TRIGGER IF EXISTS {guard} ON {table}")
            self._connection.execute(
                sql.SQL(
                    f"CREATE TRIGGER {guard} BEFORE {event} ON {table} FOR EACH {each}"
                    f" EXECUTE FUNCTION {function}({{}}, {{}})"
                ).format(sql.Literal(reason), sql.Literal(str(lock)))
            )

    def _admitAll(self) -> None:
        """Remove all refusals."""
        self._execute(f"DROP FUNCTION IF EXISTS {_REFUSE}{self._suffix} CASCADE")

    def _unfollow(self) -> None:
        for name in self._followed:
            self._execute(f"DROP FUNCTION IF EXISTS {_NOTE}{name}{self._suffix} CASCADE")
        self._execute(f"DROP TABLE IF EXISTS {_NOTES}{self._suffix}")

    def _deleteRivals(self, table: Table, rows: Sequence[Row]) -> None:
        """Delete rows that conflict with others; they have changed since, and are noted."""
        if table is BUCKETS:
            names = [row[1] for row in rows]
            self._delete(self._placeOf(table), "WHERE name = ANY (%(names)s)", {"names": names})
            return
        condition = ""
        if table is VERSIONS:
            rows, condition = [row for row in rows if not row[3]], "AND NOT numbered"
        elif table is not OBJECTS:
            return
        self._delete(
            table.name,
            f"USING {_KEYS} WHERE bucketid = k.number AND o.key = k.key {condition}",
            _keyValues([table.keyOf(row) for row in rows]),
        )

    def _delete(self, place: str, which: str, values: Mapping[str, object]) -> None:
        """Delete rows of a PostgreSQL table, which the condition refers to as C{o}."""
        self._execute(f"DELETE FROM {place} AS o {which}", values)

    def _copy(self, table: Table, rows: Sequence[Row]) -> None:
        """Add rows."""
        if not rows:
            return
        count = len(table.columns)
        names = ", ".join(name for name, _ in table.columns)
        into = f"COPY {self._placeOf(table)} ({names}) FROM STDIN (FORMAT BINARY)"
        with self._copying(into, [kind for _, kind in table.columns]) as copy:
            for row in rows:
                copy.write_row(row[:count])
        if table is UPLOADS:
            parts = [(*row[:3], *part) for row in rows for part in row[count]]
            kinds = ["int8", "bytea", "text", *(kind for _, kind in PARTS)]
            with self._copying("COPY parts FROM STDIN (FORMAT BINARY)", kinds) as copy:
                for part in parts:
                    copy.write_row(part)

    @contextmanager
    def _copying(self, into: str, kinds: Sequence[str] | None = None) -> Iterator[psycopg.Copy]:
        with self._connection.cursor().copy(into.encode()) as copy:
            if kinds is not None:
                copy.set_types(kinds)
            yield copy

    def _withParts(self, rows: Sequence[Row]) -> list[Row]:
        """Return uploads with their parts."""
        found: dict[Key, list[Row]] = {UPLOADS.keyOf(row): [] for row in rows}
        at = _SOURCES[UPLOADS].at.format(**_COLUMNS_OF_KEYS)
        names = ", ".join(name for name, _ in PARTS)
        for number, key, name, *part in self._rows(
            f"SELECT bucketid, o.key, uploadid, o.number, {names.partition(', ')[2]}"
            f" FROM {_KEYS} JOIN parts AS o ON {at} ORDER BY o.number",
            _keyValues(list(found)),
        ):
            found[number, key, 0, name].append(tuple(part))
        return [(*row, tuple(found[UPLOADS.keyOf(row)])) for row in rows]

    def _setMark(self, mark: Mark) -> None:
        self._execute(
            "INSERT INTO meta (name, value) VALUES (%s, %s)"
            " ON CONFLICT (name) DO UPDATE SET value = excluded.value",
            (MIGRATION, msgspec.json.encode(mark)),
        )

    def _execute(self, text: str, values: Any = ()) -> None:
        self._connection.execute(text.encode(), values or None)

    def _rows(self, text: str, values: Any = ()) -> list[Row]:
        cursor = self._connection.cursor(binary=True)
        return cursor.execute(text.encode(), values or None).fetchall()

    def _value(self, text: str, values: Any = ()) -> Any:
        return self._rows(text, values)[0][0]


def _names(table: Table) -> str:
    return ", ".join(f"o.{name}" for name, _ in table.columns)


def _keyValues(keys: Sequence[Key]) -> dict[str, list[Any]]:
    numbers, names, sequences, texts = ([key[n] for key in keys] for n in range(4))
    return {"numbers": numbers, "keys": names, "sequences": sequences, "names": texts}
