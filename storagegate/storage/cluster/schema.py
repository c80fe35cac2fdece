"""
The schema of the catalog and its migration. All functions block.

The schema is a list of migrations; C{schemaversion} counts the applied ones. A new schema version
adds an entry to L{MIGRATIONS} and never edits an old one. One node at a time migrates; the next
finds it done.

B{Shards.} A bucket lives in one database, whose shard number is in its C{meta}. C{directory} in
shard 0 maps each bucket name to a row of C{shards}. New buckets are spread over the shards with
C{takesbuckets}. Once there are two shards, rows of C{directory} are never changed or removed, so
that nodes can cache them: a name that was once used stays in its shard. A row alone does not make a
bucket. Shard 0 also has the keys, the secrets, the records of the console and the list of shards.

B{Tables.} C{objects} has only the current objects; C{versions} has noncurrent versions and all
delete markers. Keys are bytes, because PostgreSQL text cannot contain NUL. A version id is derived
from C{sequence}; a version that is not C{numbered} is the C{null} version.

C{buckets.revision} changes with C{described} and never repeats; a write names the revision that it
was checked against. C{described} is the row as nodes read it.

C{freed} has a row for each freed reference, and C{usagedeltas} a row for each change of a bucket's
usage, so that transactions do not wait for locks of shared rows. One node folds both into C{blobs}
and C{usage}. C{freed.xid} is the transaction that freed the reference, for comparison with the
snapshots of readers. The change journal is in
L{storagegate.storage.cluster.eventfunctions}, the move of a bucket in
L{storagegate.storage.cluster.movefunctions}.
"""

from collections.abc import Sequence
from contextlib import closing
from os import urandom

import psycopg
from psycopg import Cursor
from psycopg.rows import TupleRow

from storagegate.storage.blobids import SHARDS
from storagegate.storage.cluster.consolerecords import CONSOLE_RECORDS
from storagegate.storage.cluster.eventfunctions import EVENT_TABLES
from storagegate.storage.cluster.functions import ENCRYPTION, FUNCTIONS
from storagegate.storage.cluster.identityfunctions import IDENTITIES
from storagegate.storage.cluster.movefunctions import MOVE_TABLES
from storagegate.storage.records import MIGRATION
from storagegate.storage.sqlite import CatalogUnusable

CONNECT_SECONDS = 5

OLDEST = 14
"""The oldest supported PostgreSQL version."""

UNINITIALISED = "the catalog is not initialised: see storagegate cluster init"

_LOCK = 0x73746F7265
"""The advisory lock of migrations, which differs from all bucket and lease locks."""

_HAS_VERSION = """
    SELECT count(*) FROM pg_tables
    WHERE tablename = 'schemaversion' AND schemaname = ANY (current_schemas(false))
"""

_MOVED = f"""
    SELECT convert_from(value, 'UTF8')::json ->> 'refuses' FROM meta WHERE name = '{MIGRATION}'
"""

_SAFE = ("on", "remote_apply")
"""Values of C{synchronous_commit} with which acknowledged commits are durable."""

_COLUMNS = """
    bucketid bigint NOT NULL,
    key bytea NOT NULL,
    sequence bigint NOT NULL,
    numbered boolean NOT NULL,
    size bigint NOT NULL,
    etag text NOT NULL,
    modifiedms bigint NOT NULL,
    account text NOT NULL,
    storageclass text NOT NULL,
    checksumalgorithm text NOT NULL,
    checksumkind text NOT NULL,
    storagechecksum bigint,
    attributes text NOT NULL,
    segments text,
    tags text,
    acl text,
    retainmode text,
    retainuntilms bigint,
    legalhold boolean,
    inline bytea
"""

_FIRST = (
    "CREATE SEQUENCE writes",
    """
    CREATE TABLE meta (
        name text COLLATE "C" PRIMARY KEY,
        number bigint NOT NULL DEFAULT 0,
        value bytea NOT NULL DEFAULT ''
    )
    """,
    "INSERT INTO meta (name) VALUES ('keysgeneration'), ('shard')",
    f"""
    CREATE TABLE leases (
        id bigint GENERATED ALWAYS AS IDENTITY (START WITH {SHARDS} INCREMENT BY {SHARDS})
            PRIMARY KEY,
        node text NOT NULL,
        expires timestamptz NOT NULL,
        alive boolean NOT NULL DEFAULT true,
        low bigint NOT NULL DEFAULT 0,
        high bigint NOT NULL,
        readsfrom bigint NOT NULL
    )
    """,
    """
    CREATE TABLE jobs (
        name text COLLATE "C" PRIMARY KEY,
        lease bigint NOT NULL,
        until timestamptz NOT NULL
    )
    """,
    """
    CREATE TABLE buckets (
        id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        name text COLLATE "C" NOT NULL UNIQUE,
        account text COLLATE "C" NOT NULL,
        createdms bigint NOT NULL,
        region text NOT NULL,
        ownership text NOT NULL,
        versioning text NOT NULL,
        lockenabled boolean NOT NULL,
        generation bigint NOT NULL,
        revision bigint NOT NULL,
        watched boolean NOT NULL DEFAULT false,
        described text NOT NULL
    )
    """,
    "CREATE INDEX bucketsbyaccount ON buckets (account, name)",
    """
    CREATE TABLE shards (
        number int PRIMARY KEY,
        servers text[] NOT NULL DEFAULT '{}',
        takesbuckets boolean NOT NULL DEFAULT true
    )
    """,
    "INSERT INTO shards (number) VALUES (0)",
    """
    CREATE TABLE directory (
        bucket text COLLATE "C" PRIMARY KEY,
        shard int NOT NULL REFERENCES shards
    )
    """,
    """
    CREATE TABLE bucketsettings (
        bucketid bigint NOT NULL,
        name text COLLATE "C" NOT NULL,
        document bytea NOT NULL,
        PRIMARY KEY (bucketid, name)
    )
    """,
    # Leaves space for the next version of a row in its page, so that updates change no index.
    f"CREATE TABLE objects ({_COLUMNS}, PRIMARY KEY (bucketid, key)) WITH (fillfactor = 90)",
    f"""
    CREATE TABLE versions (
        {_COLUMNS},
        deletemarker boolean NOT NULL DEFAULT false,
        noncurrentms bigint
    )
    """,
    "CREATE UNIQUE INDEX versionsbykey ON versions (bucketid, key, sequence DESC)",
    "CREATE UNIQUE INDEX versionsnull ON versions (bucketid, key) WHERE NOT numbered",
    *(
        f"ALTER TABLE {table} ALTER key SET STORAGE PLAIN, ALTER inline SET STORAGE EXTERNAL"
        for table in ("objects", "versions")
    ),
    """
    CREATE TABLE blobs (
        id text COLLATE "C" PRIMARY KEY,
        size bigint NOT NULL,
        crc bigint NOT NULL,
        refs bigint NOT NULL,
        damaged boolean NOT NULL DEFAULT false
    )
    """,
    "CREATE INDEX blobsunnamed ON blobs (id) WHERE refs <= 0",
    "CREATE INDEX blobsdamaged ON blobs (id) WHERE damaged",
    """
    CREATE TABLE freed (
        blob text COLLATE "C" NOT NULL,
        xid bigint NOT NULL DEFAULT pg_current_xact_id()::text::bigint
    )
    """,
    """
    CREATE TABLE holds (
        blob text COLLATE "C" NOT NULL,
        lease bigint NOT NULL,
        PRIMARY KEY (blob, lease)
    )
    """,
    """
    CREATE TABLE uploads (
        bucketid bigint NOT NULL,
        key bytea NOT NULL,
        uploadid text COLLATE "C" NOT NULL,
        account text NOT NULL,
        startedms bigint NOT NULL,
        checksumalgorithm text NOT NULL,
        checksumkind text NOT NULL,
        attributes text NOT NULL,
        PRIMARY KEY (bucketid, key, uploadid)
    )
    """,
    "CREATE INDEX uploadsbyid ON uploads (uploadid)",
    """
    CREATE TABLE parts (
        bucketid bigint NOT NULL,
        key bytea NOT NULL,
        uploadid text COLLATE "C" NOT NULL,
        number int NOT NULL,
        size bigint NOT NULL,
        etag text NOT NULL,
        modifiedms bigint NOT NULL,
        checksum text,
        segments text,
        PRIMARY KEY (bucketid, key, uploadid, number)
    )
    """,
    """
    CREATE TABLE usage (
        bucketid bigint PRIMARY KEY,
        objects bigint NOT NULL,
        bytes bigint NOT NULL,
        uploads bigint NOT NULL,
        uploadbytes bigint NOT NULL
    )
    """,
    """
    CREATE TABLE usagedeltas (
        bucketid bigint NOT NULL,
        objects bigint NOT NULL,
        bytes bigint NOT NULL,
        uploads bigint NOT NULL,
        uploadbytes bigint NOT NULL
    )
    """,
    *EVENT_TABLES,
    *MOVE_TABLES,
    # Rows of these tables die soon, so the vacuum threshold is independent of the table size.
    *(
        f"ALTER TABLE {table} SET"
        " (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000)"
        for table in ("freed", "usagedeltas", "events")
    ),
    """
    CREATE TABLE accesskeys (
        accesskey text COLLATE "C" PRIMARY KEY,
        secretkey text NOT NULL,
        account text NOT NULL,
        policy text NOT NULL,
        bucketpattern text NOT NULL,
        prefixpattern text NOT NULL,
        email text NOT NULL,
        createdms bigint NOT NULL,
        role text NOT NULL,
        expiresms bigint NOT NULL,
        disabled boolean NOT NULL,
        note text NOT NULL
    )
    """,
    """
    CREATE TABLE keyuses (
        accesskey text COLLATE "C" PRIMARY KEY,
        lastusedms bigint NOT NULL
    )
    """,
    """
    CREATE TABLE progress (
        task text COLLATE "C" PRIMARY KEY,
        document bytea NOT NULL
    )
    """,
    *FUNCTIONS,
)

MIGRATIONS: tuple[Sequence[str], ...] = (
    _FIRST,
    (*IDENTITIES, *ENCRYPTION),
    CONSOLE_RECORDS,
)


def migrate(conninfo: str, mayCreate: bool = True, evenMoved: bool = False) -> None:
    """
    Migrate a database to the newest schema, in one transaction.

    @param conninfo: The primary's conninfo.
    @param mayCreate: Whether to create the schema if it does not exist.
    @param evenMoved: Whether to accept a store that has moved away or is being filled.
    @raise CatalogUnusable: The database cannot be reached or is unsuitable; the message is one line
        with the reason.
    """
    try:
        with closing(
            psycopg.connect(conninfo, autocommit=True, connect_timeout=CONNECT_SECONDS)
        ) as connection:
            cursor = connection.cursor()
            _check(cursor)
            version = _version(cursor)
            if not version and not mayCreate:
                raise CatalogUnusable(UNINITIALISED)
            if version < len(MIGRATIONS):
                with connection.transaction():
                    cursor.execute("SELECT pg_advisory_xact_lock(%s)", (_LOCK,))
                    _apply(cursor, _version(cursor))
            reason = _value(cursor, _MOVED)
            if reason and not evenMoved:
                raise CatalogUnusable(f"the catalog cannot be used: {reason}")
    except psycopg.Error as error:
        raise CatalogUnusable(f"the catalog cannot be used: {' '.join(str(error).split())}") from (
            error
        )


def makeEmpty(connection: psycopg.Connection[TupleRow], version: int) -> None:
    """
    Create a version of the schema in an empty database, in the connection's transaction.

    @param version: The schema version, at most the length of L{MIGRATIONS}.
    @raise CatalogUnusable: The database is not empty or is unsuitable; the message is one line with
        the reason.
    """
    cursor = connection.cursor()
    _check(cursor)
    cursor.execute("SELECT pg_advisory_xact_lock(%s)", (_LOCK,))
    if _value(cursor, _HAS_VERSION):
        raise CatalogUnusable("the catalog is not empty: a restore needs a new database")
    _apply(cursor, 0, version)


def finishEmpty(connection: psycopg.Connection[TupleRow]) -> None:
    """Migrate a schema created by L{makeEmpty} to the newest version, in the same transaction."""
    cursor = connection.cursor()
    _apply(cursor, _version(cursor))


def _apply(cursor: Cursor[TupleRow], version: int, newest: int | None = None) -> None:
    if newest is None:
        newest = len(MIGRATIONS)
    if not version:
        cursor.execute("CREATE TABLE schemaversion (version int NOT NULL)")
        cursor.execute("INSERT INTO schemaversion VALUES (0)")
    for migration in MIGRATIONS[version:newest]:
        for statement in migration:
            cursor.execute(statement.encode())
    cursor.execute("UPDATE schemaversion SET version = %s", (newest,))
    if not version:
        cursor.execute("INSERT INTO meta (name, value) VALUES ('secret', %s)", (urandom(32),))


def checkShard(connection: psycopg.Connection[TupleRow], shard: int, secret: bytes | None) -> None:
    """
    Check that a database belongs to a shard.

    @param shard: The shard's number.
    @param secret: The store's secret, if known.
    @raise CatalogUnusable: The database belongs to another shard or store.
    """
    [(number, found)] = connection.execute(
        "SELECT s.number, (SELECT value FROM meta WHERE name = 'secret') FROM meta AS s"
        " WHERE s.name = 'shard'"
    ).fetchall()
    if secret is not None and found != secret:
        raise CatalogUnusable("the database belongs to another store")
    if number != shard:
        raise CatalogUnusable(f"the database is shard {number}, not {shard}")


def readShards(connection: psycopg.Connection[TupleRow]) -> dict[int, list[str]]:
    """Read the conninfos of the additional shards by number."""
    rows = connection.execute("SELECT number, servers FROM shards WHERE number > 0 ORDER BY 1")
    return dict(rows.fetchall())


def _version(cursor: Cursor[TupleRow]) -> int:
    """
    Return the number of migrations applied to a database.

    @raise CatalogUnusable: The number is higher than this program knows.
    """
    # Not with to_regclass, which may have cached before the lock that the table does not exist.
    if not _value(cursor, _HAS_VERSION):
        return 0
    version = _value(cursor, "SELECT version FROM schemaversion")
    assert isinstance(version, int)
    if version > len(MIGRATIONS):
        raise CatalogUnusable(
            f"the catalog has schema {version}, this program supports up to {len(MIGRATIONS)}: "
            "it was written by a newer version"
        )
    return version


def _check(cursor: Cursor[TupleRow]) -> None:
    """
    Check the settings of server and database.

    @raise CatalogUnusable: One of them is unsuitable.
    """
    version = cursor.connection.info.server_version
    if version < OLDEST * 10_000:
        text = f"PostgreSQL {version // 10_000} is too old: {OLDEST} is required"
        raise CatalogUnusable(text)
    encoding = _value(cursor, "SHOW server_encoding")
    if encoding != "UTF8":
        raise CatalogUnusable(f"the encoding of the catalog's database is {encoding}, not UTF8")
    commit = _value(cursor, "SHOW synchronous_commit")
    if commit not in _SAFE:
        raise CatalogUnusable(
            f"synchronous_commit of the catalog is {commit}: acknowledged writes could be lost"
        )
    if _value(cursor, "SELECT pg_is_in_recovery()"):
        raise CatalogUnusable("the catalog's server is a standby")


def _value(cursor: Cursor[TupleRow], sql: str) -> object:
    rows = cursor.execute(sql.encode()).fetchall()
    return rows[0][0] if rows else None
