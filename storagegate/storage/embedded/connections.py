"""
Connections to the catalog file, and its schema.

B{Connections.} Each L{Purpose} has its own limits of waiting, writing and caching. The process must
open and close the file only through SQLite, because closing any descriptor of a file drops all
POSIX locks that the process holds on it. L{SQLiteFile<storagegate.storage.sqlite.SQLiteFile>} is
unsuitable here: it is one connection with its own waiting and checkpoint rules.

B{Closing.} When the last connection to a file closes, SQLite runs a checkpoint and removes the log.
After a failed sync this loses data: the kernel has marked the pages that it could not write as
clean, SQLite counts them as copied (C{nBackfill} in the WAL index), and the next sync succeeds.
Every connection is therefore closed by L{leave}, which runs no checkpoint. The only exception is
the writer of a store that closes in order, while its directory is locked. Readers open the file
read-only, so they cannot run a checkpoint.

B{Unseen commits.} A commit is written to the log, synced, and then published in the index. A
process that dies before the last step leaves a commit that readers do not see until the next
recovery of the log makes it visible. L{buryUnseenCommits} overwrites such a commit before the
removal of anything that the catalog does not reference.

B{Tables.} The schema is a list of migrations. C{PRAGMA user_version} counts the applied ones. A new
schema version adds an entry to L{MIGRATIONS} and never edits an old one.

Keys are BLOBs, so that they sort by byte, in S3 order. C{objects} holds only the current objects.
C{versions} holds noncurrent versions and all delete markers, including current ones. A look-up or
listing therefore never passes deleted rows (with 20,000 keys of 50 versions, one in a hundred of
them not deleted, a listing takes 0.25 ms, and 860 ms with a single table). In primary key order,
newer writes of a key come first.

The bytes of small objects are in a separate table, keyed by write number. Measured with 100,000
objects of 4 KiB, against bytes in the object's row: a random read takes 12 instead of 36
microseconds, a listing of a thousand 0.8 instead of 5 milliseconds, and a write of a row 54 instead
of 79 microseconds. With inline bytes, eight rows fill a page, even an inner one.
"""

import os
import sqlite3
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from enum import Enum
from sqlite3 import Connection
from typing import Any, TypeVar

from attrs import define, field
from twisted.internet.defer import Deferred, fail, succeed

from storagegate.storage.embedded.logbinding import checkLog
from storagegate.storage.embedded.reserve import Reserve
from storagegate.storage.errors import StoreBusy, StoreFull
from storagegate.storage.files import (
    FAIL_STOP,
    DirectoryLock,
    FailStopLatch,
    StoreLocked,
    readFailStop,
    syncDirectory,
)
from storagegate.storage.records import MIGRATION
from storagegate.storage.sqlite import (
    CatalogUnusable,
    Fault,
    abandon,
    classify,
    createFile,
    isBusy,
    leave,
    readOnlyURI,
    transact,
)

T = TypeVar("T")


def _countUsage(*tables: str) -> str:
    objects = " UNION ALL ".join(
        f"SELECT bucketId, count(*) AS n, sum(size) AS size, 0 AS uploads, 0 AS parts"
        f" FROM {table} WHERE NOT deleteMarker GROUP BY bucketId"
        for table in tables
    )
    return f"""
        SELECT bucketId, sum(n), sum(size), sum(uploads), sum(parts) FROM (
            {objects}
            UNION ALL SELECT bucketId, 0, 0, count(*), 0 FROM uploads GROUP BY bucketId
            UNION ALL SELECT bucketId, 0, 0, 0, sum(size)
                FROM uploads JOIN parts USING (uploadId) GROUP BY bucketId
        ) GROUP BY bucketId
    """


COUNT_USAGE = _countUsage("objects", "versions")
"""Computes the usage of the buckets row by row: all versions, but no delete markers."""

_FIRST = (
    """
    CREATE TABLE meta (
        name TEXT PRIMARY KEY,
        value ANY NOT NULL
    ) STRICT, WITHOUT ROWID
    """,
    "INSERT INTO meta VALUES ('sequence', 0), ('keysGeneration', 0)",
    """
    CREATE TABLE buckets (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        name TEXT NOT NULL UNIQUE,
        account TEXT NOT NULL,
        createdMs INTEGER NOT NULL,
        region TEXT NOT NULL
    ) STRICT
    """,
    "CREATE INDEX bucketsByAccount ON buckets (account, name)",
    """
    CREATE TABLE objects (
        bucketId INTEGER NOT NULL,
        key BLOB NOT NULL,
        sequence INTEGER NOT NULL,
        versionId TEXT NOT NULL,
        deleteMarker INTEGER NOT NULL DEFAULT 0,
        size INTEGER NOT NULL,
        etag TEXT NOT NULL,
        modifiedMs INTEGER NOT NULL,
        account TEXT NOT NULL,
        storageClass TEXT NOT NULL,
        checksumAlgorithm TEXT NOT NULL,
        checksumKind TEXT NOT NULL,
        storageChecksum INTEGER,
        attributes TEXT NOT NULL,
        segments TEXT,
        PRIMARY KEY (bucketId, key, sequence DESC)
    ) STRICT, WITHOUT ROWID
    """,
    """
    CREATE TABLE inline (
        sequence INTEGER PRIMARY KEY,
        bytes BLOB NOT NULL
    ) STRICT
    """,
    """
    CREATE TABLE blobs (
        id TEXT PRIMARY KEY,
        size INTEGER NOT NULL,
        crc INTEGER NOT NULL,
        refs INTEGER NOT NULL,
        damaged INTEGER NOT NULL DEFAULT 0
    ) STRICT, WITHOUT ROWID
    """,
    "CREATE INDEX blobsUnnamed ON blobs (id) WHERE refs = 0",
    "CREATE INDEX blobsDamaged ON blobs (id) WHERE damaged",
    """
    CREATE TABLE uploads (
        bucketId INTEGER NOT NULL,
        key BLOB NOT NULL,
        uploadId TEXT NOT NULL,
        account TEXT NOT NULL,
        startedMs INTEGER NOT NULL,
        checksumAlgorithm TEXT NOT NULL,
        checksumKind TEXT NOT NULL,
        attributes TEXT NOT NULL,
        PRIMARY KEY (bucketId, key, uploadId)
    ) STRICT, WITHOUT ROWID
    """,
    """
    CREATE TABLE parts (
        uploadId TEXT NOT NULL,
        number INTEGER NOT NULL,
        size INTEGER NOT NULL,
        etag TEXT NOT NULL,
        modifiedMs INTEGER NOT NULL,
        checksum TEXT,
        segments TEXT,
        PRIMARY KEY (uploadId, number)
    ) STRICT, WITHOUT ROWID
    """,
    """
    CREATE TABLE accessKeys (
        accessKey TEXT PRIMARY KEY,
        secretKey TEXT NOT NULL,
        account TEXT NOT NULL,
        policy TEXT NOT NULL,
        bucketPattern TEXT NOT NULL,
        prefixPattern TEXT NOT NULL,
        email TEXT NOT NULL,
        createdMs INTEGER NOT NULL
    ) STRICT, WITHOUT ROWID
    """,
)

_SECOND = ("ALTER TABLE buckets ADD COLUMN ownership TEXT NOT NULL DEFAULT ''",)

# Updated by each commit; see L{storagegate.storage.embedded.usage}.
_THIRD = (
    """
    CREATE TABLE usage (
        bucketId INTEGER PRIMARY KEY,
        objects INTEGER NOT NULL,
        bytes INTEGER NOT NULL,
        uploads INTEGER NOT NULL,
        uploadBytes INTEGER NOT NULL
    ) STRICT
    """,
    f"INSERT INTO usage {_countUsage('objects')}",
)

# Existing rows of C{objects} are neither copied nor rewritten.
_FOURTH = (
    *(
        f"ALTER TABLE objects ADD COLUMN {column}"
        for column in (
            "tags TEXT",
            "acl TEXT",
            "retainMode TEXT",
            "retainUntilMs INTEGER",
            "legalHold INTEGER",
        )
    ),
    "ALTER TABLE buckets ADD COLUMN versioning TEXT NOT NULL DEFAULT ''",
    "ALTER TABLE buckets ADD COLUMN lockEnabled INTEGER NOT NULL DEFAULT 0",
    "ALTER TABLE buckets ADD COLUMN generation INTEGER NOT NULL DEFAULT 0",
    """
    CREATE TABLE versions (
        bucketId INTEGER NOT NULL,
        key BLOB NOT NULL,
        sequence INTEGER NOT NULL,
        versionId TEXT NOT NULL,
        deleteMarker INTEGER NOT NULL,
        size INTEGER NOT NULL,
        etag TEXT NOT NULL,
        modifiedMs INTEGER NOT NULL,
        account TEXT NOT NULL,
        storageClass TEXT NOT NULL,
        checksumAlgorithm TEXT NOT NULL,
        checksumKind TEXT NOT NULL,
        storageChecksum INTEGER,
        attributes TEXT NOT NULL,
        segments TEXT,
        tags TEXT,
        acl TEXT,
        retainMode TEXT,
        retainUntilMs INTEGER,
        legalHold INTEGER,
        noncurrentMs INTEGER,
        PRIMARY KEY (bucketId, key, sequence DESC)
    ) STRICT, WITHOUT ROWID
    """,
    "CREATE UNIQUE INDEX versionsNull ON versions (bucketId, key) WHERE versionId = 'null'",
    """
    CREATE TABLE bucketSettings (
        bucketId INTEGER NOT NULL,
        name TEXT NOT NULL,
        document BLOB NOT NULL,
        PRIMARY KEY (bucketId, name)
    ) STRICT, WITHOUT ROWID
    """,
)

_FIFTH = (
    "ALTER TABLE accessKeys ADD COLUMN role TEXT NOT NULL DEFAULT 'none'",
    "ALTER TABLE accessKeys ADD COLUMN expiresMs INTEGER NOT NULL DEFAULT 0",
    "ALTER TABLE accessKeys ADD COLUMN disabled INTEGER NOT NULL DEFAULT 0",
    "ALTER TABLE accessKeys ADD COLUMN note TEXT NOT NULL DEFAULT ''",
    # A separate table, because a use does not change the generation of the keys.
    """
    CREATE TABLE keyUses (
        accessKey TEXT PRIMARY KEY,
        lastUsedMs INTEGER NOT NULL
    ) STRICT, WITHOUT ROWID
    """,
)

_SIXTH = (
    "ALTER TABLE accessKeys ADD COLUMN userName TEXT NOT NULL DEFAULT ''",
    "ALTER TABLE accessKeys ADD COLUMN parent TEXT NOT NULL DEFAULT ''",
    "ALTER TABLE accessKeys ADD COLUMN sessionPolicy TEXT NOT NULL DEFAULT ''",
    # The row of the kind 'account' has the revision of the account.
    """
    CREATE TABLE identities (
        account TEXT NOT NULL,
        kind TEXT NOT NULL,
        name TEXT NOT NULL,
        revision INTEGER NOT NULL,
        document BLOB NOT NULL,
        PRIMARY KEY (account, kind, name)
    ) STRICT, WITHOUT ROWID
    """,
)

MIGRATIONS = (_FIRST, _SECOND, _THIRD, _FOURTH, _FIFTH, _SIXTH)


def migrate(connection: Connection, name: str) -> None:
    """
    Migrate a file to the newest schema, in one transaction.

    Two processes may do so concurrently; the second finds it done.

    @param name: The file's name, for the error.
    @param connection: A write connection without an open transaction.
    @raise CatalogUnusable: A newer program has written the file.
    """
    if _version(connection, name) == len(MIGRATIONS):
        return

    def act() -> None:
        for migration in MIGRATIONS[_version(connection, name) :]:
            for statement in migration:
                connection.execute(statement)
        connection.execute(
            "INSERT INTO meta VALUES ('secret', ?) ON CONFLICT DO NOTHING", (os.urandom(32),)
        )
        connection.execute(f"PRAGMA user_version = {len(MIGRATIONS)}")

    transact(connection, act)


def _version(connection: Connection, name: str) -> int:
    found: int = connection.execute("PRAGMA user_version").fetchone()[0]
    if found > len(MIGRATIONS):
        raise CatalogUnusable(
            f"{name} has schema {found}, this program supports up to {len(MIGRATIONS)}: "
            "it was written by a newer version"
        )
    return found


def readSecret(connection: Connection) -> bytes:
    """Read the store's secret."""
    rows = connection.execute("SELECT value FROM meta WHERE name = 'secret'").fetchall()
    secret: bytes = rows[0][0]
    return secret


_OLDEST = (3, 38, 0)

# Measured with 50,000 inline objects of 4 KiB: 201 MiB and 31 microseconds per row without fsync,
# against 355 MiB and 40 microseconds with 8 KiB pages.
PAGE_SIZE = 4096

# Another process (the keys command, fsck) holds the write lock for milliseconds. After this time
# mutations fail with StoreBusy.
BUSY_MS = 5_000


class Durability(Enum):
    """The level at which a commit is durable."""

    FULL = "full"
    """On disk: an acknowledged write survives a power loss."""

    OS = "os"
    """In the operating system: an acknowledged write survives the end of the process."""


class Purpose(Enum):
    """
    The use of a connection.

    @ivar cacheKiB: The size limit of its page cache.
    @ivar writes: Whether it may write.
    @ivar busyMs: How long it may wait for a lock, in milliseconds.
    """

    WRITER = (4_096, True, BUSY_MS)
    # The reactor thread never waits; a WAL reader must wait only while another process starts.
    REACTOR = (2_048, False, 0)
    # Another process may have died in a commit; the reader then waits some milliseconds while the
    # WAL index is rebuilt.
    SHARED_REACTOR = (2_048, False, 500)
    # A listing reads forty pages, mostly different from the last listing's; 2 MiB made it no
    # faster.
    POOL = (512, False, BUSY_MS)
    # A checkpoint copies pages from the WAL and needs no cache.
    CHECKPOINT = (64, True, 0)

    def __init__(self, cacheKiB: int, writes: bool, busyMs: int) -> None:
        self.cacheKiB = cacheKiB
        self.writes = writes
        self.busyMs = busyMs


def prepare(path: str, durability: Durability, isLocked: bool = True) -> None:
    """
    Create the catalog file if it does not exist, readable only by its owner, and migrate it.
    Blocks.

    If the disk has no space for SQLite's files, space from the reserve is used.

    @param durability: With C{FULL}, the name of a new file is made durable, too.
    @param isLocked: Whether the caller holds the lock of the data directory. Without it, a file is
        migrated only if no daemon has it open.
    @raise CatalogUnusable: The file is not a catalog, its log belongs to another catalog, Python's
        SQLite is too old, or the store has moved to a cluster.
    """
    if sqlite3.sqlite_version_info < _OLDEST:
        raise CatalogUnusable(f"SQLite {sqlite3.sqlite_version} is too old: 3.38 is required")
    created = createFile(path)
    try:
        _migrateFile(path, durability, isLocked)
    except CatalogUnusable as error:
        cause = error.__cause__
        if not isinstance(cause, sqlite3.Error) or classify(cause) is not Fault.FULL:
            raise
        if not Reserve(os.path.join(os.path.dirname(path), "reserve")).halve():
            raise
        _migrateFile(path, durability, isLocked)
    if created and durability is Durability.FULL:
        syncDirectory(os.path.dirname(path) or ".")


_MOVED = f"""
    SELECT value ->> 'refuses' FROM meta
    WHERE name = '{MIGRATION}' AND value ->> 'refuses' <> ''
"""


def _migrateFile(path: str, durability: Durability, isLocked: bool) -> None:
    with opened(path, durability) as connection:
        connection.execute("PRAGMA journal_mode = WAL").fetchall()
        (migrate if isLocked else migrateUnlocked)(connection, path)
        reason = _refusal(connection)
    if reason:
        raise CatalogUnusable(f"{path}: {reason}")


def migrateUnlocked(connection: Connection, path: str) -> None:
    """
    Migrate a catalog without holding its directory lock, unless a daemon has it open.

    @param connection: A write connection without an open transaction.
    @raise CatalogUnusable: A newer program has written the file, or a process that knows only the
        present schema has locked the directory.
    """
    if _version(connection, path) == len(MIGRATIONS):
        return
    try:
        lock = DirectoryLock.take(os.path.dirname(os.path.abspath(path)))
    except StoreLocked as error:
        raise CatalogUnusable(
            f"{path} has the schema of an earlier version, and a daemon of that version has it"
            " open: restart the daemon with this version first"
        ) from error
    try:
        migrate(connection, path)
    finally:
        lock.release()


def _refusal(connection: Connection) -> str:
    """Return why a store that has moved must not be served; empty if it has not moved."""
    try:
        rows = connection.execute(_MOVED).fetchall()
    except sqlite3.DatabaseError as error:
        if classify(error) in (Fault.FULL, Fault.BUSY):
            raise
        # C{fsck} reports the damage, and a daemon fails when it reads the secret.
        return ""
    return rows[0][0] if rows else ""


@contextmanager
def opened(
    path: str, durability: Durability, latch: FailStopLatch | None = None
) -> Iterator[Connection]:
    """
    Connect as the writer, and close the connection with L{leave} at the end. Blocks.

    @param path: The file, which must exist.
    @param durability: Whether to sync commits.
    @param latch: The latch of a caller that holds the directory lock. Unless it is set or the block
        fails, the connection is closed normally, with a checkpoint.
    @raise CatalogUnusable: The database fails within the block.
    """
    try:
        connection = connect(path, durability, Purpose.WRITER)
        try:
            yield connection
        except BaseException:
            leave(connection)
            raise
        if latch is not None and latch.failure is None:
            connection.close()
        else:
            leave(connection)
    except sqlite3.DatabaseError as error:
        raise CatalogUnusable(f"{path} cannot be opened: {error}") from error


def connect(path: str, durability: Durability, purpose: Purpose) -> Connection:
    """
    Open a connection. It may move between threads, but only one thread may use it at a time.

    Transactions are explicit. L{leave} closes the connection.

    @param durability: Whether to sync commits.
    @param purpose: Determines the limits of memory and waiting, and whether it may write.
    @raise CatalogUnusable: The log beside the file belongs to another catalog and would be
        replayed.
    """
    checkLog(path)
    connection = sqlite3.connect(
        path if purpose.writes else readOnlyURI(path),
        uri=not purpose.writes,
        isolation_level=None,
        check_same_thread=False,
        cached_statements=256,
    )
    connection.execute(f"PRAGMA busy_timeout = {purpose.busyMs}")
    connection.execute(f"PRAGMA page_size = {PAGE_SIZE}")
    connection.execute(f"PRAGMA cache_size = -{purpose.cacheKiB}")
    connection.execute("PRAGMA temp_store = MEMORY")
    connection.execute("PRAGMA trusted_schema = OFF")
    # Some builds zero deleted rows, which writes each freed page through the WAL.
    connection.execute("PRAGMA secure_delete = OFF")
    # Checkpoints run separately, so that commits do not wait for them.
    connection.execute("PRAGMA wal_autocheckpoint = 0")
    synchronous = "FULL" if durability is Durability.FULL else "OFF"
    connection.execute(f"PRAGMA synchronous = {synchronous}")
    if not purpose.writes:
        connection.execute("PRAGMA query_only = ON")
    return connection


_BURY = "UPDATE meta SET value = value + 1 WHERE name = 'sequence'"


def bury(connection: Connection) -> None:
    """
    Change a page in an open transaction, so that its commit overwrites every unseen commit in the
    log.

    SQLite does not write unchanged pages, so the last write number is incremented.
    """
    connection.execute(_BURY)


def buryUnseenCommits(connection: Connection, latch: FailStopLatch) -> None:
    """
    Make a commit that overwrites every unseen commit in the log. Blocks.

    Must precede any removal of files that the catalog does not reference.

    @param connection: A write connection without an open transaction.
    @param latch: Checked first, and set if the commit fails on the disk.
    @raise StoreFull: The disk has no space for a commit, so an unseen commit may remain.
    @raise StoreReadOnly: The latch is set, so nothing may be removed.
    @raise sqlite3.Error: The commit failed for another reason, so an unseen commit may remain.
    """
    latch.check()
    try:
        transact(connection, lambda: bury(connection))
    except sqlite3.DatabaseError as error:
        fault = classify(error)
        if fault is Fault.FULL:
            raise StoreFull("the disk has no space for a commit") from error
        if fault is Fault.UNSAFE:
            latch.set(f"a write of the catalog failed: {error}")
            latch.check()
        raise


def replayLog(directory: str, durability: Durability) -> None:
    """
    Copy a log left by a crash into the database, before the store is opened. Blocks.

    The WAL index is rebuilt, so that pages which an earlier process tried to copy do not count as
    copied. This needs exclusive use of the file. If another process has it open, the log stays as
    it is, unless writing had stopped: then the index cannot be trusted.

    @param directory: A data directory that this process has locked.
    @param durability: Whether to sync the database.
    @raise CatalogUnusable: Writing had stopped, and another process has the catalog open or the
        disk fails again; or the log belongs to another catalog.
    """
    path = os.path.join(directory, "catalog.sqlite")
    reason = readFailStop(directory)
    if os.path.exists(path) and (reason is not None or _hasLog(path)):
        checkLog(path)
        try:
            _replay(path, durability, reason is not None)
        except sqlite3.DatabaseError as error:
            if isBusy(error) and reason is not None:
                raise CatalogUnusable(
                    f"{path} is open in another process, such as a backup or a shell: end it, then"
                    f" start again (the daemon had stopped writing: {reason})"
                ) from error
            if reason is not None or _isIOError(error):
                raise CatalogUnusable(f"{path} cannot be recovered: {error}") from error
            # The disk is full, or the file is in use or damaged; opening the file reports this.
    if reason is not None:
        with suppress(FileNotFoundError):
            os.unlink(os.path.join(directory, FAIL_STOP))


def _hasLog(path: str) -> bool:
    try:
        return os.path.getsize(f"{path}-wal") > 0
    except OSError:
        return False


def _isIOError(error: sqlite3.Error) -> bool:
    return (error.sqlite_errorcode or 0) & 0xFF == sqlite3.SQLITE_IOERR


def _replay(path: str, durability: Durability, mustSucceed: bool) -> None:
    """Run a checkpoint of the whole log, with the WAL index in process memory."""
    reserve = Reserve(os.path.join(os.path.dirname(path), "reserve"))
    while True:
        connection = sqlite3.connect(
            path, timeout=BUSY_MS / 1000 if mustSucceed else 0, isolation_level=None
        )
        try:
            # Set before the first read, and so before any other pragma, so that SQLite uses no
            # shared index.
            connection.execute("PRAGMA locking_mode = EXCLUSIVE").fetchall()
            synchronous = "FULL" if durability is Durability.FULL else "OFF"
            connection.execute(f"PRAGMA synchronous = {synchronous}")
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        except sqlite3.DatabaseError as error:
            if _isIOError(error):
                # Closing would sync once more, and might succeed.
                abandon(connection)
            else:
                connection.close()
            if not mustSucceed or classify(error) is not Fault.FULL or not reserve.halve():
                raise
        else:
            connection.close()
            return


READERS = 3
"""
Concurrent reads: two listings, and a check or a collection. Listings are bound by the GIL: sixteen
were no faster than two, and each takes some 3 MB of memory.
"""

MAX_WAITING = 2048
"""The most waiting reads: the same as the pool's limit."""


@define(eq=False)
class _Read:
    """A waiting or running read."""

    function: Callable[..., Any]
    arguments: tuple[object, ...]
    result: Deferred[Any] = field(factory=Deferred)


@define(eq=False)
class ReaderPool:
    """
    Runs reads in the pool, a few at a time. Methods: reactor thread, unless they say otherwise.

    @ivar _run: C{run(function, *args)} calls in a thread and fires in the reactor thread.
    @ivar _connect: Opens a connection.
    """

    _run: Callable[..., Deferred[Any]]
    _connect: Callable[[], Connection]
    # The most recently idle connection is used next, because its page cache is the warmest.
    _idle: list[Connection] = field(factory=list, init=False)
    _reading: int = field(default=0, init=False)
    _waiting: deque[_Read] = field(factory=deque, init=False)
    _isAssigning: bool = field(default=False, init=False)
    _busy: int = field(default=0, init=False)
    _closed: Deferred[None] | None = field(default=None, init=False)

    def read(self, function: Callable[..., T], *arguments: object) -> Deferred[T]:
        """
        Call C{function(connection, *arguments)} in a thread.

        A read cancelled while it runs continues to its end, and its result is dropped.

        @param function: The function, which must fetch all rows before it returns.
        """
        if self._closed is not None:
            return fail(StoreBusy("the catalog is closed"))
        if len(self._waiting) >= MAX_WAITING:
            return fail(StoreBusy("too many list requests are waiting"))
        read = _Read(function, arguments)
        self._waiting.append(read)
        self._assign()
        return read.result

    def run(self, function: Callable[..., T], *arguments: object) -> Deferred[T]:
        """Call a function in a thread; L{close} waits for it."""
        if self._closed is not None:
            return fail(StoreBusy("the catalog is closed"))
        self._busy += 1
        return self._run(function, *arguments).addBoth(self._ended)

    def close(self) -> Deferred[None]:
        """Wait for running reads, then close the connections. Call once."""
        self._closed = Deferred() if self._busy else succeed(None)
        while self._waiting:
            self._waiting.popleft().result.errback(StoreBusy("the catalog is closed"))

        def closeIdle(_: None) -> None:
            while self._idle:
                # Idle connections are read-only, so closing them runs no checkpoint.
                self._idle.pop().close()

        return self._closed.addCallback(closeIdle)

    def _assign(self) -> None:
        """Start waiting reads."""
        if self._isAssigning:
            # A busy pool refuses synchronously; the loop below handles the ended read.
            return
        self._isAssigning = True
        while self._waiting and self._reading < READERS:
            read = self._waiting.popleft()
            # Skip cancelled reads.
            if not read.result.called:
                self._reading += 1
                self.run(self._perform, read).addBoth(self._performed, read)
        self._isAssigning = False

    def _perform(self, read: _Read) -> Any:
        """Read with an idle connection, or a new one. Pool thread."""
        try:
            connection = self._idle.pop()
        except IndexError:
            connection = self._connect()
        try:
            return read.function(connection, *read.arguments)
        finally:
            self._idle.append(connection)

    def _performed(self, result: Any, read: _Read) -> None:
        self._reading -= 1
        self._assign()
        read.result.callback(result)

    def _ended(self, result: T) -> T:
        self._busy -= 1
        if not self._busy and self._closed is not None:
            self._closed.callback(None)
        return result
