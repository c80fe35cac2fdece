"""
What SQLite's errors mean to the store.

Result codes: U{https://www.sqlite.org/rescode.html}.
"""

import sqlite3
from enum import Enum, auto

from storagegate.storage.errors import StoreError
from storagegate.storage.sqlitefile import isBusy

_PRIMARY = 0xFF

# A failed read says nothing about what the disk holds of our writes; neither does lack of memory.
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
    """The catalog file cannot be opened; the text says why in one line."""


class Fault(Enum):
    """The kinds of database error that the writer tells apart."""

    FULL = auto()
    """The disk has no room; nothing of the transaction is there."""

    BUSY = auto()
    """Another process has held the write lock for too long."""

    UNSAFE = auto()
    """What the disk holds is not known: no more writes until a restart."""

    OTHER = auto()
    """An error of one statement."""


def classify(error: Exception) -> Fault:
    """Tell what kind of fault an exception of a database call is."""
    code = getattr(error, "sqlite_errorcode", None)
    if not isinstance(error, sqlite3.Error) or code is None:
        return Fault.OTHER
    primary = code & _PRIMARY
    # The shared memory file could not grow: SQLite says I/O error, but it is the disk's room.
    if primary == sqlite3.SQLITE_FULL or code == sqlite3.SQLITE_IOERR_SHMSIZE:
        return Fault.FULL
    if isBusy(error):
        return Fault.BUSY
    if primary in _WRITES_UNSAFE and code not in _HARMLESS:
        return Fault.UNSAFE
    return Fault.OTHER


class Latch:
    """
    Remembers that writing has become unsafe. Never unset: after a failed fsync the kernel may
    have dropped what it could not write, and a second try would claim success.

    @ivar failure: Why, or L{None}. Set by whichever thread sees it first, read by all.
    """

    def __init__(self) -> None:
        self.failure: str | None = None

    def set(self, error: Exception) -> None:
        """Stop all writes."""
        if self.failure is None:
            self.failure = f"catalog: {error}"
