"""
C{storagegate backup} and C{storagegate restore} for a cluster: a snapshot of its catalog with the
list of its blobs, and the bytes of these blobs, taken while nodes serve.

::

    backup.json           written last: a directory with this file is complete
    catalog.json          the schema, the tables with their columns and checksums, the sequences
    catalog/TABLE.copy    the rows in the format of COPY
    blobs.list            the referenced blobs: id, size, CRC-32C, references, whether damaged
    blobs/ab/cd/ID        the bytes of a blob
    blobs.txt             or only the ids, if a command of the operator copies the blobs

B{Backup.} A dedicated lease prevents the collection of every blob that loses its last reference
after the lease was taken. One transaction then reads all tables; it ends before the first blob is
copied. The lease is renewed until the last blob is copied. If it ends earlier, blobs may be gone,
and the backup fails.

B{Restore.} The database must be empty, and the blob store must be empty or have blobs of the same
store. The blobs that it lacks are copied first, and each copy is read back; then the catalog is
written in one transaction. An interrupted restore leaves an empty database and can be repeated.
State of the old nodes and of the old server's transactions is not restored: leases, jobs, the
journal and sessions of the console. Freed references are subtracted immediately.
"""

import os
import signal
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from itertools import islice
from threading import Event, Thread
from time import time
from typing import Any, LiteralString

import msgspec
import psycopg
from attrs import define, field
from msgspec import Struct
from psycopg import sql
from twisted.internet.defer import Deferred, succeed
from twisted.internet.threads import blockingCallFromThread

from storagegate.cluster.blobcopier import BlobCopier, BlobEnd, FileEnd, PieceEnd
from storagegate.cluster.initialisation import openPieces
from storagegate.cluster.options import ClusterOptions
from storagegate.cluster.tables import MigrationError, Row
from storagegate.core.files import crc32c, readSmallFile
from storagegate.storage.blobids import SHARDS
from storagegate.storage.cluster.admin import openForTools
from storagegate.storage.cluster.blobs.pieces import UNLIMITED, IPieceStore, MissingPiece, findSize
from storagegate.storage.cluster.blobs.remote import checkPieces, claimPieces
from storagegate.storage.cluster.primary import findPrimary
from storagegate.storage.cluster.schema import (
    CONNECT_SECONDS,
    MIGRATIONS,
    finishEmpty,
    makeEmpty,
)
from storagegate.storage.embedded.backup import (
    BackupError,
    Manifest,
    emptyDirectory,
    makeEmptyTarget,
    readManifest,
    writeManifest,
)
from storagegate.storage.errors import StoreBusy
from storagegate.storage.files import createPrivate, replaceFile, syncFileSystem
from storagegate.storage.identity import storeId
from storagegate.storage.layout import BlobLayout
from storagegate.storage.records import MIGRATION
from storagegate.storage.threadpool import BoundedThreadPool
from storagegate.version import __version__

Report = Callable[[str], object]
Progress = Callable[[int, int], object]

HOLD_SECONDS = 60.0
"""The time for which nodes keep garbage for a backup that was killed."""

_RENEWALS = 4
"""Renewals of the lease within this time."""

_NODE = "backup"
"""The name of the lease, for operators."""

_INDEX = "catalog.json"
_TABLES = "catalog"
_LIST = "blobs.txt"
_ROWS = "blobs.list"
_INDEX_BYTES = 1 << 20

_PAGE = 512
"""Blobs in one page; some of them are copied concurrently."""

_LATER_LEASES = 4096 * SHARDS
"""Gap between the backup's lease numbers and new ones: blobs of later leases may still exist."""

_SESSIONS = "consolerecords"
"""The table of the console's sessions."""

# Only blobs that keep references when the freed references are subtracted.
_NEEDED: LiteralString = """
    SELECT id, size, crc, refs, damaged FROM blobs AS b
    WHERE refs > (SELECT count(*) FROM freed WHERE blob = b.id) ORDER BY id
"""

_ROW = ["id", "size", "crc", "refs", "damaged"]

_RESET = (
    "UPDATE leases SET alive = false",
    "SELECT dropwatches(id) FROM leases",
    # The journal and the transaction numbers belong to the old server.
    "DELETE FROM events",
    "DELETE FROM followers",
    "DELETE FROM watches",
    "UPDATE meta SET number = 0 WHERE name = 'eventshorizon'",
    "DELETE FROM jobs",
    "DELETE FROM holds",
    "DELETE FROM leases",
    """
    UPDATE blobs SET refs = refs - n
    FROM (SELECT blob, count(*) AS n FROM freed GROUP BY 1) AS each WHERE blobs.id = each.blob
    """,
    "DELETE FROM freed",
    "DELETE FROM blobs WHERE refs <= 0",
)


class TableDump(Struct):
    """
    A table in a backup.

    @ivar columns: The columns in the order of the file.
    @ivar bytes: The length of the file in bytes.
    @ivar crc: The CRC-32C of the file.
    """

    columns: list[str]
    bytes: int
    crc: int


class CatalogDump(Struct):
    """
    The catalog in a backup.

    @ivar schema: The version of the schema.
    @ivar blobs: The list of the blobs.
    @ivar count: The number of blobs.
    @ivar sequences: The last value of each sequence.
    @ivar hasBlobs: Whether the backup has the bytes of the blobs.
    """

    schema: int
    tables: dict[str, TableDump]
    blobs: TableDump
    count: int
    sequences: dict[str, int]
    hasBlobs: bool


@define(eq=False)
class _Hold:
    """
    The lease that keeps blobs; a separate thread renews it. Methods block.

    Its C{readsfrom} never changes.
    """

    _conninfo: str
    _seconds: float
    _number: int = field(default=0, init=False)
    _isEnding: Event = field(factory=Event, init=False)
    _isLost: bool = field(default=False, init=False)
    _thread: Thread | None = field(default=None, init=False)

    def take(self) -> None:
        """Take the lease."""
        with closing(_connect(self._conninfo)) as connection:
            [(self._number,)] = connection.execute(
                "INSERT INTO leases (node, expires, high, readsfrom) VALUES (%s,"
                " clock_timestamp() + %s * interval '1 s', 0,"
                " pg_snapshot_xmin(pg_current_snapshot())::text::bigint) RETURNING id",
                (_NODE, self._seconds),
            ).fetchall()
        self._thread = Thread(target=self._renewals, daemon=True)
        self._thread.start()

    def check(self) -> None:
        """
        Check that no blob was collected since the lease was taken.

        @raise BackupError: If the lease has ended meanwhile.
        """
        if self._isLost or not self._renew():
            raise BackupError(
                "the nodes have ended the lease of the backup, which could not be renewed in time:"
                " blobs may be missing, start again"
            )

    def end(self) -> None:
        """End the lease: nodes collect the blobs that it has kept."""
        self._isEnding.set()
        if self._thread is not None:
            self._thread.join()
        if self._number:
            # Otherwise the lease expires.
            with _quietly(), closing(_connect(self._conninfo)) as connection:
                connection.execute(
                    "UPDATE leases SET expires = clock_timestamp() WHERE id = %s", (self._number,)
                )

    def _renewals(self) -> None:
        while not self._isEnding.wait(self._seconds / _RENEWALS):
            with _quietly():
                self._isLost = self._isLost or not self._renew()

    def _renew(self) -> bool:
        """Renew the lease, even after its expiry; return false if a node has ended it."""
        with closing(_connect(self._conninfo)) as connection:
            found = connection.execute(
                "UPDATE leases SET expires = clock_timestamp() + %s * interval '1 s'"
                " WHERE id = %s AND alive RETURNING id",
                (self._seconds, self._number),
            ).fetchall()
        return bool(found)


@contextmanager
def _quietly() -> Iterator[None]:
    """Ignore catalog errors: the next renewal tries again."""
    try:
        yield
    except psycopg.Error:
        pass


def _connect(conninfo: str) -> "psycopg.Connection[tuple[Any, ...]]":
    return psycopg.connect(conninfo, autocommit=True, connect_timeout=CONNECT_SECONDS)


@contextmanager
def _errors() -> Iterator[None]:
    """
    Convert library errors to store errors of one line.

    @raise StoreBusy: If the catalog does not respond.
    @raise BackupError: If a copy differs from the written data.
    """
    try:
        yield
    except psycopg.Error as error:
        raise StoreBusy(f"the catalog: {' '.join(str(error).split())}") from error
    except MigrationError as error:
        raise BackupError(str(error)) from error


@define(eq=False)
class _Rows:
    """
    The blob rows of a backup, which are never all in memory.

    @ivar pages: Yields the rows in pages.
    @ivar count: The number of rows.
    @ivar bytes: The total size of the blobs.
    """

    pages: Callable[[], Iterator[list[Row]]]
    count: int
    bytes: int


class _Blobs:
    """The blobs of a cluster and of a backup. Methods block, outside of the reactor thread."""

    def __init__(self, options: ClusterOptions, directory: str, reactor: Any) -> None:
        self._reactor = reactor
        self.pieces: IPieceStore = blockingCallFromThread(reactor, openPieces, options, reactor)
        self._pool = blockingCallFromThread(reactor, BoundedThreadPool, reactor)
        self.shared = PieceEnd(self.pieces)
        self.files = FileEnd(BlobLayout(directory), self._pool)

    def close(self) -> None:
        """Close all connections."""
        close: Any
        for close in (self.pieces.close, self._pool.stop):
            blockingCallFromThread(self._reactor, close)

    def wait(self, act: Callable[..., Any], *values: object) -> Any:
        """Call a coroutine function and wait for its result."""
        return blockingCallFromThread(self._reactor, lambda: Deferred.fromCoroutine(act(*values)))

    def copy(self, rows: "_Rows", isBackup: bool, progress: Progress) -> list[str]:
        """
        Copy blobs and verify the copies.

        @param rows: The rows of the blobs.
        @param isBackup: Whether they are copied from the cluster.
        @param progress: Called with the number of copied blobs and the total.
        @return: The ids of blobs that are missing or do not match their rows.
        """
        source: BlobEnd = self.shared if isBackup else self.files
        target: BlobEnd = self.files if isBackup else self.shared
        # The cluster may still have the blobs, and the backup may be damaged.
        copier = BlobCopier(source, target, self._reactor, keepsIntact=not isBackup)
        failed: list[str] = []
        done = 0
        for page in rows.pages():
            failed += self.wait(copier.copy, page)
            done += len(page)
            progress(done, rows.count)
        return failed

    def runCommand(self, command: str) -> int:
        """Run a shell command; return its exit code. It is terminated when the reactor stops."""
        # A separate process group, so that the children are terminated too.
        process = subprocess.Popen(command, shell=True, start_new_session=True)

        def end() -> None:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)

        trigger = ("before", "shutdown", end)
        ending = blockingCallFromThread(
            self._reactor, lambda: succeed(self._reactor.addSystemEventTrigger(*trigger))
        )
        code = process.wait()
        remove = self._reactor.removeSystemEventTrigger
        blockingCallFromThread(self._reactor, lambda: succeed(remove(ending)))
        return code

    def missing(self, rows: "_Rows") -> list[str]:
        """Return the blobs that are missing in the cluster or have the wrong size."""
        return [
            row[0]
            for page in rows.pages()
            for row in page
            if self.wait(self._size, row) != row[1] and not row[4]
        ]

    async def _size(self, row: Row) -> int:
        try:
            return await self.pieces.size(row[0])
        except MissingPiece:
            if self.pieces.pieceSize == UNLIMITED:
                return -1
        try:
            return (await findSize(self.pieces, row[0], row[1])).size
        except MissingPiece:
            return -1


def backup(
    options: ClusterOptions,
    to: str,
    report: Report,
    reactor: Any,
    *,
    command: str | None = None,
    holdSeconds: float = HOLD_SECONDS,
    progress: Progress = lambda done, total: None,
) -> int:
    """
    Back up a cluster while its nodes serve. Blocks; must run outside of the reactor thread, while
    the reactor runs.

    Each copied blob is read back and compared with its checksum.

    @param options: The cluster.
    @param to: A directory that is empty or does not exist; it is emptied if the backup fails.
    @param report: Called with one line for each step and each problem.
    @param command: A shell command that copies the blobs with the ids in C{blobs.txt}.
    @param holdSeconds: The time for which nodes keep garbage after the last renewal.
    @param progress: Called with the number of copied blobs and the total.
    @return: The number of problems in the backup.
    @raise StoreError: If the backup fails; the text gives the reason in one line.
    """
    with _errors(), closing(openForTools(options.catalog)) as admin:
        if len(admin.shards()) > 1:
            raise BackupError(
                "the cluster has several shards: back up each PostgreSQL with its own tools, and"
                " shard 0 last"
            )
        if admin.rows("SELECT FROM bucketmoves LIMIT 1"):
            raise BackupError(
                "a bucket is being migrated: wait until it has finished, or abandon it"
            )
        if admin.rows("SELECT FROM meta WHERE name = %s", MIGRATION):
            raise BackupError(
                "the store is being migrated: wait until it has finished, or abandon it"
            )
        store = storeId(admin.secrets().store)
        makeEmptyTarget(to)
        target = os.path.realpath(to)
        blobs = _Blobs(options, target, reactor)
        hold = _Hold(admin.conninfo, holdSeconds)
        try:
            blobs.wait(checkPieces, blobs.pieces, store)
            hold.take()
            dump, rows = _dumpCatalog(admin.conninfo, target, command is None)
            report(f"catalog copied, {rows.count} blobs referenced")
            failed = _copyBlobs(blobs, rows, target, command, progress)
            hold.check()
            replaceFile(
                os.path.join(target, _INDEX), msgspec.json.format(msgspec.json.encode(dump))
            )
            syncFileSystem(target)
            writeManifest(
                target,
                Manifest(
                    version=__version__,
                    madeMs=int(time() * 1000),
                    store=store,
                    blobs=rows.count,
                    bytes=rows.bytes,
                    isCluster=True,
                ),
            )
        except BaseException:
            emptyDirectory(target)
            raise
        finally:
            hold.end()
            blobs.close()
    for blob in failed:
        report(f"blob {blob} is missing or damaged")
    if command is None:
        report(f"{rows.count - len(failed)} blobs copied and verified")
    return len(failed)


def _copyBlobs(
    blobs: _Blobs, rows: _Rows, target: str, command: str | None, progress: Progress
) -> list[str]:
    """
    Copy the blobs of a backup, or run the command that copies them.

    @return: The ids of missing or damaged blobs.
    @raise BackupError: If the command fails.
    """
    if command is None:
        for name in ("blobs", "staging"):
            os.mkdir(os.path.join(target, name), 0o700)
        failed = blobs.copy(rows, True, progress)
        emptyDirectory(os.path.join(target, "staging"))
        os.rmdir(os.path.join(target, "staging"))
        return failed
    with open(createPrivate(os.path.join(target, _LIST)), "w", encoding="ascii") as file:
        for page in rows.pages():
            file.writelines(f"{row[0]}\n" for row in page)
    code = blobs.runCommand(command)
    if code:
        raise BackupError(f"the command of --blobs-with ended with code {code}")
    return []


def _dumpCatalog(conninfo: str, target: str, hasBlobs: bool) -> tuple[CatalogDump, _Rows]:
    """
    Dump a snapshot of all tables.

    @return: The description of the dump, and the rows of the required blobs.
    """
    os.mkdir(os.path.join(target, _TABLES), 0o700)
    with closing(_connect(conninfo)) as connection:
        connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
        [(schema,)] = connection.execute("SELECT version FROM schemaversion").fetchall()
        [(count, size)] = connection.execute(
            f"SELECT count(*), coalesce(sum(size), 0)::bigint FROM ({_NEEDED}) AS each".encode()
        ).fetchall()
        path = os.path.join(target, _ROWS)
        query = sql.SQL("COPY ({}) TO STDOUT").format(sql.SQL(_NEEDED))
        blobs = TableDump(_ROW, *_dump(connection, query, path))
        tables = {
            name: _dumpTable(connection, name, columns, target)
            for name, columns in _columns(connection).items()
        }
        connection.execute("COMMIT")
        # Sequences are not transactional: read later, so that none is below a number in a row.
        sequences = _sequences(connection)
    rows = _Rows(lambda: _readRows(path), count, size)
    return CatalogDump(schema, tables, blobs, count, sequences, hasBlobs), rows


def _readRows(path: str) -> Iterator[list[Row]]:
    """Yield the rows of blobs from the output of COPY."""
    with open(path, encoding="ascii") as file:
        while lines := list(islice(file, _PAGE)):
            fields = [line.rstrip("\n").split("\t") for line in lines]
            yield [
                (id, int(size), int(crc), int(refs), end == "t")
                for id, size, crc, refs, end in fields
            ]


def _columns(connection: "psycopg.Connection[Any]") -> dict[str, list[str]]:
    """Return the tables with their columns, sorted so that referenced tables come first."""
    found = connection.execute(
        "SELECT c.relname, array_agg(a.attname::text ORDER BY a.attnum) FROM pg_class AS c"
        " JOIN pg_attribute AS a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped"
        # Cluster-wide counts are in unlogged tables, which a crash truncates too.
        " WHERE c.relkind = 'r' AND c.relpersistence = 'p'"
        " AND c.relnamespace = current_schema()::regnamespace"
        " AND c.relname <> 'schemaversion' GROUP BY 1 ORDER BY c.relname <> 'shards', 1"
    ).fetchall()
    return dict(found)


def _sequences(connection: "psycopg.Connection[Any]") -> dict[str, int]:
    names = [
        name
        for (name,) in connection.execute(
            "SELECT relname FROM pg_class WHERE relkind = 'S'"
            " AND relnamespace = current_schema()::regnamespace ORDER BY 1"
        ).fetchall()
    ]
    found = {}
    for name in names:
        query = sql.SQL("SELECT last_value FROM {}").format(sql.Identifier(name))
        [(found[name],)] = connection.execute(query).fetchall()
    return found


def _dumpTable(
    connection: "psycopg.Connection[Any]", name: str, columns: list[str], target: str
) -> TableDump:
    query = _copying("COPY {} ({}) TO STDOUT", name, columns)
    if name == _SESSIONS:
        # The columns without rows: a restored session would be one that was signed out.
        table = sql.Identifier(name)
        query = sql.SQL("COPY (SELECT * FROM {} WHERE false) TO STDOUT").format(table)
    return TableDump(columns, *_dump(connection, query, _tablePath(target, name)))


def _dump(connection: "psycopg.Connection[Any]", query: sql.Composed, path: str) -> tuple[int, int]:
    """Write the output of COPY to a file; return its length and its CRC-32C."""
    size = crc = 0
    with (
        open(createPrivate(path), "wb") as file,
        connection.cursor() as cursor,
        cursor.copy(query) as copy,
    ):
        for chunk in copy:
            file.write(chunk)
            size += len(chunk)
            crc = crc32c(chunk, crc)
    return size, crc


def _copying(text: LiteralString, name: str, columns: Sequence[str]) -> sql.Composed:
    names = sql.SQL(", ").join(map(sql.Identifier, columns))
    return sql.SQL(text).format(sql.Identifier(name), names)


def _tablePath(directory: str, name: str) -> str:
    return os.path.join(directory, _TABLES, f"{name}.copy")


def restore(
    options: ClusterOptions,
    source: str,
    report: Report,
    reactor: Any,
    *,
    isPartial: bool = False,
    progress: Progress = lambda done, total: None,
) -> int:
    """
    Restore a cluster from a backup. Blocks; must run outside of the reactor thread, while the
    reactor runs.

    @param options: The cluster, whose database is empty.
    @param source: The directory of the backup, which is not changed.
    @param report: Called with one line for each problem, and with the result.
    @param isPartial: Whether to restore a backup with missing or damaged blobs.
    @param progress: Called with the number of copied blobs and the total.
    @return: The number of missing or damaged blobs; always 0 unless C{isPartial}.
    @raise StoreError: If the catalog was not restored; the text gives the reason in one line.
    """
    directory = os.path.realpath(source)
    manifest, dump = _readIndex(source, directory)
    path = os.path.join(directory, _ROWS)
    rows = _Rows(lambda: _readRows(path), dump.count, manifest.bytes)
    with _errors():
        conninfo, _ = findPrimary(options.catalog)
        with closing(_connect(conninfo)) as connection, connection.transaction(force_rollback=True):
            # The schema is created only to check that it can be.
            makeEmpty(connection, dump.schema)
        blobs = _Blobs(options, directory, reactor)
        try:
            blobs.wait(claimPieces, blobs.pieces, manifest.store)
            failed = _restoreBlobs(blobs, dump, rows, directory, isPartial, progress, report)
        finally:
            blobs.close()
        with closing(_connect(conninfo)) as connection, connection.transaction():
            makeEmpty(connection, dump.schema)
            _fillCatalog(connection, directory, dump)
            finishEmpty(connection)
            # A backup of an earlier version has sessions.
            connection.execute(sql.SQL("DELETE FROM {}").format(sql.Identifier(_SESSIONS)))
    report(f"restored the catalog, and {rows.count - len(failed)} of {rows.count} blobs")
    return len(failed)


def _readIndex(source: str, directory: str) -> tuple[Manifest, CatalogDump]:
    """
    Read and check all files of a backup except its blobs.

    @raise BackupError: If the backup is incomplete or damaged, or a newer program made it.
    """
    manifest = readManifest(directory)
    if manifest is None:
        raise BackupError(f"{source} is not a complete backup: it has no backup.json")
    if not manifest.isCluster:
        raise BackupError(f"{source} is the backup of a data directory: restore it with --to DIR")
    try:
        text = readSmallFile(os.path.join(directory, _INDEX), _INDEX_BYTES)
        dump = msgspec.json.decode(text, type=CatalogDump)
    except (OSError, ValueError) as error:
        raise BackupError(f"{source} is not a complete backup: {error}") from error
    if dump.schema > len(MIGRATIONS):
        raise BackupError(
            f"the backup has schema {dump.schema}, this program supports up to {len(MIGRATIONS)}: a"
            " newer storagegate made it"
        )
    files = {_tablePath(directory, name): table for name, table in dump.tables.items()}
    for path, table in {**files, os.path.join(directory, _ROWS): dump.blobs}.items():
        name = os.path.basename(path)
        size = crc = 0
        try:
            with open(path, "rb") as file:
                while chunk := file.read(1 << 20):
                    size += len(chunk)
                    crc = crc32c(chunk, crc)
        except OSError as error:
            raise BackupError(f"{source} is damaged: {name}: {error.strerror}") from error
        if (size, crc) != (table.bytes, table.crc):
            raise BackupError(f"{source} is damaged: {name} has changed since it was written")
    return manifest, dump


def _fillCatalog(connection: "psycopg.Connection[Any]", directory: str, dump: CatalogDump) -> None:
    """
    Write all rows, in the transaction of the connection.

    @raise BackupError: If the tables of the backup differ from its schema.
    """
    known = _columns(connection)
    if {name: table.columns for name, table in dump.tables.items()} != known:
        raise BackupError("the tables of the backup do not match its schema")
    for name in reversed(known):
        connection.execute(sql.SQL("DELETE FROM {}").format(sql.Identifier(name)))
    for name, columns in known.items():
        with (
            open(_tablePath(directory, name), "rb") as file,
            connection.cursor() as cursor,
            cursor.copy(_copying("COPY {} ({}) FROM STDIN", name, columns)) as copy,
        ):
            while chunk := file.read(1 << 20):
                copy.write(chunk)
    for statement in _RESET:
        connection.execute(statement.encode())
    for name in _sequences(connection):
        last = dump.sequences[name]
        later = _LATER_LEASES if name == "leases_id_seq" else 0
        # The last value of an unused sequence is its first number.
        connection.execute("SELECT setval(%s::regclass, %s)", (name, last + later))


def _restoreBlobs(
    blobs: _Blobs,
    dump: CatalogDump,
    rows: _Rows,
    directory: str,
    isPartial: bool,
    progress: Progress,
    report: Report,
) -> list[str]:
    """
    Copy the blobs to the cluster, or check the blobs that the operator has copied.

    @return: The ids of missing or damaged blobs.
    @raise BackupError: If blobs are missing or damaged, unless C{isPartial}.
    """
    if dump.hasBlobs:
        lacking = [] if isPartial else _lacking(directory, rows)
        failed = lacking or blobs.copy(rows, False, progress)
    else:
        failed = blobs.missing(rows)
    for blob in failed[:_PAGE]:
        report(f"blob {blob} is missing or damaged")
    if failed and not isPartial:
        raise BackupError(
            f"nothing was restored, for {len(failed)} blobs are missing or damaged; --partial"
            " restores what there is"
        )
    return failed


def _lacking(directory: str, rows: _Rows) -> list[str]:
    """Return the blobs that are missing in a backup or have the wrong size."""
    layout = BlobLayout(directory)

    def size(blob: str) -> int:
        try:
            return os.stat(layout.path(blob)).st_size
        except OSError:
            return -1

    return [
        row[0] for page in rows.pages() for row in page if size(row[0]) != row[1] and not row[4]
    ]
