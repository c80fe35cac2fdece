"""
The table of sessions in a SQLite file. Blocks: everything here runs in a thread::

    sessions( id, content, cookie, expires )

C{content} and C{cookie} are JSON, C{expires} is in seconds since the epoch. The version of the
table is in C{user_version}.
"""

import os
import sqlite3
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

_VERSION = 1

_BUSY_MS = 5_000
"""Another process holds the lock for a transaction of milliseconds; then something is wrong."""

_SWEEP_SECONDS = 60
_SWEEP_WRITES = 10_000
"""How often what has expired is taken out: by time, or sooner where much comes."""

_SWEPT_AT_ONCE = 1_000
"""Rows in one step: some milliseconds, during which others wait."""

_SCHEMA = (
    """
    CREATE TABLE sessions (
        id TEXT PRIMARY KEY NOT NULL,
        content BLOB NOT NULL,
        cookie BLOB NOT NULL,
        expires REAL NOT NULL
    )
    """,
    "CREATE INDEX sessionsByExpiry ON sessions (expires)",
    f"PRAGMA user_version = {_VERSION}",
)

_IS_OURS = "SELECT 1 FROM sqlite_schema WHERE name = 'sessionsByExpiry'"

_SWEEP = """
    DELETE FROM sessions WHERE rowid IN
        (SELECT rowid FROM sessions WHERE expires <= ? ORDER BY expires LIMIT ?)
"""

T = TypeVar("T")


class SessionFileError(Exception):
    """The file cannot keep sessions."""


class SessionTable:
    """One connection to the file. One thread at a time."""

    def __init__(self, path: str, maxSessions: int) -> None:
        self._path = path
        self._maxSessions = maxSessions
        self._connection: sqlite3.Connection | None = None
        self._sweepAt = 0.0
        self._writes = 0

    def perform(
        self, acts: Sequence[Callable[["SessionTable"], Any]], writes: bool, now: float
    ) -> list[Any]:
        """
        Do several things, all of them or none.

        @param writes: Whether any of them changes something.
        @raise SessionFileError: The file cannot be used.
        """
        try:
            connection = self._open()
            if not writes:
                return [act(self) for act in acts]
            results = self._transact(connection, lambda: [act(self) for act in acts])
            self._writes += len(acts)
            if now >= self._sweepAt or self._writes >= _SWEEP_WRITES:
                self._sweep(connection, now)
        except sqlite3.Error as error:
            raise SessionFileError(f"{self._path} cannot keep sessions: {error}") from error
        return results

    def close(self) -> None:
        """Close the file, if it is open."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    # What may be done in perform()

    def get(self, id: str, now: float) -> tuple[bytes, bytes] | None:
        """Give content and cookie of a session that has not expired."""
        row: tuple[bytes, bytes] | None = self._execute(
            "SELECT content, cookie FROM sessions WHERE id = ? AND expires > ?", id, now
        ).fetchone()
        return row

    def set(self, id: str, content: bytes, cookie: bytes, expires: float) -> None:
        """Put a session in."""
        self._execute(
            "INSERT OR REPLACE INTO sessions VALUES (?, ?, ?, ?)", id, content, cookie, expires
        )

    def replace(self, id: str, content: bytes, cookie: bytes, expires: float, now: float) -> None:
        """Change a session that has not expired."""
        self._execute(
            "UPDATE sessions SET content = ?, cookie = ?, expires = ? WHERE id = ? AND expires > ?",
            *(content, cookie, expires, id, now),
        )

    def touch(self, id: str, cookie: bytes, expires: float, now: float) -> None:
        """Change the cookie of a session that has not expired."""
        self._execute(
            "UPDATE sessions SET cookie = ?, expires = ? WHERE id = ? AND expires > ?",
            *(cookie, expires, id, now),
        )

    def destroy(self, id: str) -> None:
        """Take a session out."""
        self._execute("DELETE FROM sessions WHERE id = ?", id)

    # The file

    def _execute(self, statement: str, *values: Any) -> sqlite3.Cursor:
        assert self._connection is not None
        return self._connection.execute(statement, values)

    def _open(self) -> sqlite3.Connection:
        if self._connection is None:
            _create(self._path)
            connection = sqlite3.connect(self._path, isolation_level=None, check_same_thread=False)
            try:
                self._prepare(connection)
            except BaseException:
                connection.close()
                raise
            self._connection = connection
        return self._connection

    def _prepare(self, connection: sqlite3.Connection) -> None:
        connection.execute(f"PRAGMA busy_timeout = {_BUSY_MS}")
        connection.execute("PRAGMA trusted_schema = OFF")
        (mode,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
        if mode != "wal":
            raise SessionFileError(f"{self._path} is on a file system that processes cannot share")
        connection.execute("PRAGMA synchronous = NORMAL")
        self._transact(connection, lambda: self._migrate(connection))

    def _migrate(self, connection: sqlite3.Connection) -> None:
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        (tables,) = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
        if version == 0 and tables == 0:
            for statement in _SCHEMA:
                connection.execute(statement)
        elif version != _VERSION or not connection.execute(_IS_OURS).fetchone():
            raise SessionFileError(f"{self._path} is a database of something else")

    def _transact(self, connection: sqlite3.Connection, act: Callable[[], T]) -> T:
        # At once for writing: a reader that turns writer while others write is refused.
        connection.execute("BEGIN IMMEDIATE")
        try:
            result = act()
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise
        return result

    def _sweep(self, connection: sqlite3.Connection, now: float) -> None:
        """Take out what has expired, and what is too much; some of it, if there is much."""
        swept = connection.execute(_SWEEP, (now, _SWEPT_AT_ONCE)).rowcount
        (count,) = connection.execute("SELECT count(*) FROM sessions").fetchone()
        excess = min(count - self._maxSessions, _SWEPT_AT_ONCE)
        if excess > 0:
            connection.execute(_SWEEP, (float("inf"), excess))
        self._writes = 0
        # With more to do, the next batch goes on.
        more = swept == _SWEPT_AT_ONCE or excess == _SWEPT_AT_ONCE
        self._sweepAt = now if more else now + _SWEEP_SECONDS


def _create(path: str) -> None:
    """Make the file if there is none, for its owner alone: SQLite's own files follow it."""
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
    except FileExistsError:
        pass
    except OSError as error:
        raise SessionFileError(f"{path} cannot keep sessions: {error.strerror}") from error
