"""
Connections to the catalog file: who may wait, who may write, how much each may cache.

An opened catalog file must never be opened and closed again by this process behind SQLite's back:
closing any descriptor of a file drops all POSIX locks that the process holds on it.

It is not a L{SQLiteFile<storagegate.storage.sqlitefile.SQLiteFile>}, which is one connection that
waits and makes checkpoints as SQLite does: the catalog has many, some of which never wait, its
checkpoints follow a rule of their own, and it is opened for good before anything is served.
"""

import os
import sqlite3
from enum import Enum

from storagegate.storage.catalog.faults import CatalogUnusable
from storagegate.storage.catalog.schema import migrate
from storagegate.storage.directories import syncDirectory
from storagegate.storage.sqlitefile import createFile

_OLDEST = (3, 38, 0)

# Measured with 50,000 inline objects of 4 KiB: 201 MiB and 31 microseconds a row without its fsync,
# against 355 MiB and 40 microseconds with pages of 8 KiB.
PAGE_SIZE = 4096

# Another process (the keys command, fsck) holds the write lock for milliseconds; after this long
# something is wrong, and the callers are told that the store is busy.
BUSY_MS = 5_000


class Durability(Enum):
    """What a commit waits for."""

    FULL = "full"
    """The disk: what is acknowledged survives a loss of power."""

    OS = "os"
    """The operating system: what is acknowledged survives the end of the process."""


class Purpose(Enum):
    """
    What a connection is for.

    @ivar cacheKiB: The most memory that its page cache takes.
    @ivar writes: Whether it may change anything.
    @ivar busyMs: How long it may wait for a lock.
    """

    WRITER = (4_096, True, BUSY_MS)
    # The reactor thread never waits; a reader of a WAL has to only while another process starts.
    REACTOR = (2_048, False, 0)
    # Beside other processes, one of which may have died in a commit, it waits while the index of
    # the WAL is made again: some milliseconds.
    SHARED_REACTOR = (2_048, False, 500)
    # A list reads forty pages, mostly others than the last: with 2 MiB it took no less time.
    POOL = (512, False, BUSY_MS)
    # Copies pages from the WAL; caches nothing.
    CHECKPOINT = (64, True, 0)

    def __init__(self, cacheKiB: int, writes: bool, busyMs: int) -> None:
        self.cacheKiB = cacheKiB
        self.writes = writes
        self.busyMs = busyMs


def prepare(path: str, durability: Durability) -> None:
    """
    Make the catalog file if there is none, readable by its owner only, and migrate it. Blocks.

    @raise CatalogUnusable: The file is no catalog of ours, or this Python's SQLite is too old.
    """
    if sqlite3.sqlite_version_info < _OLDEST:
        raise CatalogUnusable(f"SQLite {sqlite3.sqlite_version} is too old: 3.38 is needed")
    created = createFile(path)
    try:
        connection = connect(path, durability, Purpose.WRITER)
        try:
            connection.execute("PRAGMA journal_mode = WAL").fetchall()
            migrate(connection, path)
        finally:
            connection.close()
    except sqlite3.DatabaseError as error:
        raise CatalogUnusable(f"{path} cannot be opened: {error}") from error
    if created and durability is Durability.FULL:
        syncDirectory(os.path.dirname(path) or ".")


def connect(path: str, durability: Durability, purpose: Purpose) -> sqlite3.Connection:
    """
    Open a connection. It may move between threads, but only one may use it at a time.

    Transactions are begun and ended by hand.
    """
    connection = sqlite3.connect(
        path, isolation_level=None, check_same_thread=False, cached_statements=256
    )
    connection.execute(f"PRAGMA busy_timeout = {purpose.busyMs}")
    connection.execute(f"PRAGMA page_size = {PAGE_SIZE}")
    connection.execute(f"PRAGMA cache_size = -{purpose.cacheKiB}")
    connection.execute("PRAGMA temp_store = MEMORY")
    connection.execute("PRAGMA trusted_schema = OFF")
    # Some builds zero what is deleted, which writes every freed page through the WAL.
    connection.execute("PRAGMA secure_delete = OFF")
    # Checkpoints are made by their own rule, away from the commits that would wait for them.
    connection.execute("PRAGMA wal_autocheckpoint = 0")
    synchronous = "FULL" if durability is Durability.FULL else "OFF"
    connection.execute(f"PRAGMA synchronous = {synchronous}")
    if not purpose.writes:
        connection.execute("PRAGMA query_only = ON")
    return connection
