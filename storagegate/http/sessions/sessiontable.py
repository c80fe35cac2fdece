"""
The table of sessions in a SQLite file. Blocks: everything here runs in a thread::

    sessions( id, content, cookie, expires )

C{content} and C{cookie} are JSON, C{expires} is in seconds since the epoch.
"""

import sqlite3
from collections.abc import Callable, Sequence
from typing import Any

from storagegate.storage.sqlitefile import FileKind, SQLiteFile

_BUSY_MS = 5_000
"""Another process holds the lock for a transaction of milliseconds; then something is wrong."""

_SWEEP_SECONDS = 60
_SWEEP_WRITES = 10_000
"""How often what has expired is taken out: by time, or sooner where much comes."""

_SWEPT_AT_ONCE = 1_000
"""Rows in one step: some milliseconds, during which others wait."""

_FIRST = (
    """
    CREATE TABLE sessions (
        id TEXT PRIMARY KEY NOT NULL,
        content BLOB NOT NULL,
        cookie BLOB NOT NULL,
        expires REAL NOT NULL
    )
    """,
    "CREATE INDEX sessionsByExpiry ON sessions (expires)",
)

_SWEEP = """
    DELETE FROM sessions WHERE rowid IN
        (SELECT rowid FROM sessions WHERE expires <= ? ORDER BY expires LIMIT ?)
"""


class SessionFileError(Exception):
    """The file cannot keep sessions."""


_KIND = FileKind(
    keeps="sessions",
    migrations=(_FIRST,),
    mark="sessionsByExpiry",
    # A sync for each would cost more than the last sessions before a loss of power are worth.
    synchronous="NORMAL",
    error=SessionFileError,
)


class SessionTable:
    """The table in its file. One thread at a time."""

    def __init__(self, path: str, maxSessions: int) -> None:
        self._file = SQLiteFile(path, _KIND, _BUSY_MS)
        self._execute = self._file.execute
        self._maxSessions = maxSessions
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
            results = self._file.perform(lambda: [act(self) for act in acts], writes)
            if writes:
                self._writes += len(acts)
                if now >= self._sweepAt or self._writes >= _SWEEP_WRITES:
                    self._file.perform(lambda: self._sweep(now), writes=True)
        except sqlite3.Error as error:
            raise SessionFileError(f"{self._file.path} cannot keep sessions: {error}") from error
        return results

    def close(self) -> None:
        """Close the file, if it is open."""
        self._file.close()

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

    def _sweep(self, now: float) -> None:
        """Take out what has expired, and what is too much; some of it, if there is much."""
        swept = self._execute(_SWEEP, now, _SWEPT_AT_ONCE).rowcount
        (count,) = self._execute("SELECT count(*) FROM sessions").fetchone()
        excess = min(count - self._maxSessions, _SWEPT_AT_ONCE)
        if excess > 0:
            self._execute(_SWEEP, float("inf"), excess)
        self._writes = 0
        # With more to do, the next batch goes on.
        more = swept == _SWEPT_AT_ONCE or excess == _SWEPT_AT_ONCE
        self._sweepAt = now if more else now + _SWEEP_SECONDS
