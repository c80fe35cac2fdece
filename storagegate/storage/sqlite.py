"""
A SQLite file shared by several processes: creation, migration, locks, errors, and moved files.

A L{FileKind} describes a file whose tables serve one purpose, such as users or sessions. The object
catalog has its own rules (see L{storagegate.storage.embedded.connections}) and shares
L{createFile}, L{transact} and L{classify}. L{OpenFiles} serves only the catalog.

Result codes: U{https://www.sqlite.org/rescode.html}.
"""

import os
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from enum import Enum, auto
from time import monotonic, sleep
from typing import Any, TypeVar
from urllib.parse import quote

from attrs import define, field
from msgspec import Struct

from storagegate.storage.errors import StoreError

T = TypeVar("T")

MEMORY = ":memory:"
"""The path of an in-memory database."""

_NAP_SECONDS = 0.001
"""
Pause between attempts to get a lock: about the pause of a busy writer between transactions.
SQLite's own sleeps grow to a tenth of a second, with which one of three busy writers waited for
seconds.
"""

_CHECKPOINT_WRITES = 256
"""Writes between checkpoints: about the thousand pages after which SQLite would run one."""

_PRIMARY_CODE = 0xFF


class FileKind(Struct, frozen=True):
    """
    The purpose of a file.

    @ivar keeps: A word for its content in error messages, such as C{users}.
    @ivar migrations: The statements that migrate to each schema version from the previous one;
        C{PRAGMA user_version} counts the applied migrations.
    @ivar mark: The name of a table or index that identifies this kind of file in all versions.
    @ivar synchronous: C{FULL} if acknowledged writes survive a power loss, C{NORMAL} if they
        survive only the end of the process. Neither can corrupt the file.
    @ivar error: The exception for a file that cannot be used, raised with a one-line message.
    @ivar makesDirectory: Whether to create the directory, too.
    """

    keeps: str
    migrations: Sequence[Sequence[str]]
    mark: str
    synchronous: str
    error: type[Exception]
    makesDirectory: bool = False


@define(eq=False)
class SQLiteFile:
    """
    One connection to a file, opened on first use. Blocks. One thread at a time.

    After a failed sync nothing is written until the process restarts: the next sync would report
    success for lost pages.

    @ivar path: The file, or L{MEMORY}.
    @ivar _busyMs: How long to wait for another process's lock, in milliseconds.
    """

    path: str
    _kind: FileKind
    _busyMs: int
    _nap: Callable[[float], object] = sleep
    _connection: sqlite3.Connection | None = field(default=None, init=False)
    _failure: str | None = field(default=None, init=False)
    _writes: int = field(default=0, init=False)

    def perform(self, act: Callable[[], T], writes: bool) -> T:
        """
        Call a function, in one transaction if it writes.

        @param act: Calls L{execute}. It may be called again after a call that changed nothing.
        @param writes: Whether the function runs in a transaction.
        @raise Exception: The error type of the L{FileKind}, if the file cannot be used.
        @raise sqlite3.Error: The statement failed, and nothing was changed.
        """
        connection = self._patiently(self._open)
        if not writes:
            return self._patiently(act)
        if self._failure is not None:
            raise self._kind.error(self._failure)
        try:
            result = self._patiently(lambda: transact(connection, act))
        except sqlite3.DatabaseError as error:
            if self._hasFailed(error):
                raise self._kind.error(str(self._failure)) from error
            raise
        self._writes += 1
        if self._writes % _CHECKPOINT_WRITES == 0:
            self._checkpoint(connection)
        return result

    def _checkpoint(self, connection: sqlite3.Connection) -> None:
        """Run a checkpoint. Errors surface in the next write, because this one is committed."""
        try:
            connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
        except sqlite3.DatabaseError as error:
            # A full disk or a busy file is not a failure: the log stays.
            self._hasFailed(error)

    def _hasFailed(self, error: sqlite3.DatabaseError) -> bool:
        """Return whether an error forbids all further writes."""
        if classify(error) is not Fault.UNSAFE:
            return False
        self._failure = f"{self.path} cannot be written until a restart: {error}"
        return True

    def execute(self, statement: str, *values: Any) -> sqlite3.Cursor:
        """Execute a statement, within an act of L{perform}."""
        assert self._connection is not None
        return self._connection.execute(statement, values)

    def close(self) -> None:
        """Close the file, if it is open."""
        connection, self._connection = self._connection, None
        if connection is not None:
            if self._failure is None:
                connection.close()
            else:
                leave(connection)

    def _patiently(self, act: Callable[[], T]) -> T:
        """
        Call a function, retrying while another process holds a lock. A busy attempt changes
        nothing.

        SQLite's own timeout does not cover every lock, such as the switch of a new file to WAL
        mode.
        """
        until = monotonic() + self._busyMs / 1000
        while True:
            try:
                return act()
            except sqlite3.OperationalError as error:
                if not isBusy(error) or monotonic() >= until:
                    raise
            self._nap(_NAP_SECONDS)

    def _open(self) -> sqlite3.Connection:
        if self._connection is None:
            if self.path != MEMORY:
                self._create()
            connection = sqlite3.connect(
                self.path, timeout=0, isolation_level=None, check_same_thread=False
            )
            try:
                self._prepare(connection)
            except BaseException:
                connection.close()
                raise
            self._connection = connection
        return self._connection

    def _create(self) -> None:
        try:
            if self._kind.makesDirectory:
                directory = os.path.dirname(os.path.abspath(self.path))
                os.makedirs(directory, mode=0o700, exist_ok=True)
            createFile(self.path)
        except OSError as error:
            text = f"{self.path} cannot store {self._kind.keeps}: {error.strerror}"
            raise self._kind.error(text) from error

    def _prepare(self, connection: sqlite3.Connection) -> None:
        connection.execute("PRAGMA trusted_schema = OFF")
        try:
            (mode,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
        except sqlite3.DatabaseError as error:
            if error.sqlite_errorcode == sqlite3.SQLITE_NOTADB:
                raise self._kind.error(f"{self.path} is not a database") from error
            raise
        if mode != "wal" and self.path != MEMORY:
            text = f"{self.path} is on a file system that processes cannot share"
            raise self._kind.error(text)
        connection.execute(f"PRAGMA synchronous = {self._kind.synchronous}")
        # SQLite's automatic checkpoint hides errors: its failed sync would be followed by another
        # one.
        connection.execute("PRAGMA wal_autocheckpoint = 0")
        transact(connection, lambda: self._migrate(connection))

    def _migrate(self, connection: sqlite3.Connection) -> None:
        kind = self._kind
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        names = {row[0] for row in connection.execute("SELECT name FROM sqlite_schema")}
        if bool(version) != bool(names) or (names and kind.mark not in names):
            raise kind.error(f"{self.path} is a database of another program")
        if version > len(kind.migrations):
            raise kind.error(f"{self.path} was written by a newer version of storagegate")
        for migration in kind.migrations[version:]:
            for statement in migration:
                connection.execute(statement)
        connection.execute(f"PRAGMA user_version = {len(kind.migrations)}")


asBlob = bytearray
"""
Copies bytes for a statement parameter. For C{bytes}, C{sqlite3} looks up an adapter, which takes
3,300 instructions: more than copying an inline object.
"""


def createFile(path: str) -> bool:
    """
    Create a file that only its owner can read; return C{False} if it exists.

    SQLite gives the log and the shared memory file the mode of this file. An existing file is not
    opened, because closing it would drop the locks that SQLite holds on it in this process.

    @raise OSError: The file cannot be created.
    """
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
    except FileExistsError:
        return False
    return True


def readOnlyURI(path: str) -> str:
    """
    Return the URI by which C{sqlite3.connect} opens a file read-only.

    Closing such a connection runs no checkpoint.
    """
    return f"file:{quote(os.fsencode(os.path.abspath(path)))}?mode=ro"


def leave(connection: sqlite3.Connection) -> None:
    """
    Close a connection without the checkpoint that SQLite runs when the last one closes. Blocks.

    SQLite runs this checkpoint under an exclusive lock of the file, which a second connection of
    the same process prevents. The second connection is read-only, so closing it runs no checkpoint.

    @param connection: A connection to a file in WAL mode, which may have been moved.
    """
    if connection.in_transaction:
        with suppress(sqlite3.Error):
            connection.execute("ROLLBACK")
    if connection.execute("PRAGMA query_only").fetchall() == [(1,)]:
        connection.close()
        return
    try:
        # The first database is the file; the second holds temporary tables.
        path = connection.execute("PRAGMA database_list").fetchall()[0][2]
        with closing(sqlite3.connect(readOnlyURI(path), uri=True, timeout=1)) as guard:
            # A read opens the log, which locks the file until the guard is closed.
            guard.execute("SELECT 1 FROM sqlite_schema LIMIT 1").fetchall()
            connection.close()
    except sqlite3.Error:
        abandon(connection)


def abandon(connection: sqlite3.Connection) -> None:
    """Keep a connection open until the process exits, which closes it without SQLite."""
    import ctypes

    ctypes.pythonapi.Py_IncRef(ctypes.py_object(connection))


def transact(
    connection: sqlite3.Connection,
    act: Callable[[], T],
    onCommit: Callable[[], object] = lambda: None,
) -> T:
    """
    Call a function in one transaction.

    @param act: Executes statements; its result is returned.
    @param onCommit: Called when the commit begins. An error after that leaves the outcome unknown:
        the whole commit may be in the log although no reader sees it. The next recovery of the log
        then makes it visible, unless another commit overwrites it first.
    @raise Exception: Any error of the function or the commit. Readers see no change.
    """
    # IMMEDIATE: SQLite refuses to upgrade a read transaction while others write.
    connection.execute("BEGIN IMMEDIATE")
    try:
        result = act()
        onCommit()
        connection.execute("COMMIT")
    except BaseException:
        # SQLite rolls back by itself after some errors, such as a full disk.
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
    return result


def isBusy(error: sqlite3.Error) -> bool:
    """
    Return whether another process holds a lock, so that nothing was done and a retry may succeed.
    """
    code = getattr(error, "sqlite_errorcode", None) or 0
    return code & _PRIMARY_CODE in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


# After a failed read or allocation, the content of the disk is still known.
_HARMLESS = frozenset(
    {sqlite3.SQLITE_IOERR_READ, sqlite3.SQLITE_IOERR_SHORT_READ, sqlite3.SQLITE_IOERR_NOMEM}
)
_WRITES_UNSAFE = frozenset(
    {
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_CORRUPT,
        sqlite3.SQLITE_NOTADB,
        sqlite3.SQLITE_READONLY,
    }
)


class CatalogUnusable(StoreError):
    """The catalog file cannot be opened; the message is one line with the reason."""


class Fault(Enum):
    """The classes of database errors, by consequence."""

    FULL = auto()
    """The disk is full. A failed statement changed nothing; for a commit see L{transact}."""

    BUSY = auto()
    """Another process held the write lock for too long."""

    UNSAFE = auto()
    """The content of the disk is unknown: no more writes until a restart."""

    OTHER = auto()
    """An error of one statement."""


def classify(error: Exception) -> Fault:
    """Classify an exception raised by a database call."""
    code = getattr(error, "sqlite_errorcode", None)
    if not isinstance(error, sqlite3.Error) or code is None:
        return Fault.OTHER
    primary = code & _PRIMARY_CODE
    # If the shared memory file cannot grow, SQLite reports an I/O error, but the disk is full.
    if primary == sqlite3.SQLITE_FULL or code == sqlite3.SQLITE_IOERR_SHMSIZE:
        return Fault.FULL
    if isBusy(error):
        return Fault.BUSY
    if primary in _WRITES_UNSAFE and code not in _HARMLESS:
        return Fault.UNSAFE
    return Fault.OTHER


@define(eq=False)
class OpenFiles:
    """
    Checks that paths still name the database files that SQLite has open.

    If they were removed, moved or mounted over, a later start cannot find what is written. Any
    thread; a check takes five microseconds per path.

    @ivar _paths: The files; missing ones are ignored.
    @ivar _onMoved: Called with the reason when a file has moved.
    """

    _paths: Sequence[str]
    _onMoved: Callable[[str], object]
    _opened: dict[str, tuple[int, int]] = field(factory=dict, init=False)
    isMoved: bool = field(default=False, init=False)

    def __attrs_post_init__(self) -> None:
        # An inode is not reused while its file is open.
        for path in self._paths:
            if (found := _inode(path)) is not None:
                self._opened[path] = found

    def check(self) -> bool:
        """Compare devices and inodes; return whether they are unchanged."""
        if not self.isMoved:
            for path, opened in self._opened.items():
                if _inode(path) != opened:
                    self.isMoved = True
                    name = os.path.basename(path)
                    self._onMoved(f"{name} was removed, moved or replaced: {path}")
                    break
        return not self.isMoved


def _inode(path: str) -> tuple[int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino
