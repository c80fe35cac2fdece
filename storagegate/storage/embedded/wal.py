"""
The length of the WAL: checkpoints and preallocation.

B{Checkpoints.} A checkpoint copies pages from the WAL to the database. The pool runs one each time
the WAL has grown by L{CHECKPOINT_AT}. Commits do not wait for it, but under continuous commits it
never copies all pages, and the WAL grows. Beyond L{RESTART_AT} the writer runs one itself, between
two commits, and the WAL restarts from its beginning. The file keeps its length, because overwriting
is cheaper than appending. The database must always have space for the pages of the WAL: if WAL
pages filled the disk, the database could not grow, the WAL could not be truncated, and deletes
would soon fail.

B{Allocation.} An fsync after an append also commits the file system's journal, because the file has
grown; after an overwrite it waits only for the bytes: a measured 2.7 ms against 0.8 ms. SQLite
never truncates the file while it is open, so it is extended at startup with zeros. Zeros are not
frames: SQLite reads a WAL up to the first invalid frame (file format, section 4.4).
"""

import os
import sqlite3
from collections.abc import Callable
from sqlite3 import Connection, Error
from threading import Lock
from time import monotonic
from typing import Any

from attrs import define, field
from twisted.internet.defer import Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from storagegate.storage.embedded.connections import BUSY_MS, PAGE_SIZE
from storagegate.storage.errors import StoreBusy, StoreReadOnly
from storagegate.storage.files import FailStopLatch
from storagegate.storage.sqlite import Fault, classify, leave

_log = Logger()

CHECKPOINT_AT = 8 * 1024 * 1024
"""Small enough that readers search few hash tables, large enough that fsyncs are rare."""

RESTART_AT = 64 * 1024 * 1024
"""The longest WAL. A start after a crash reads all of it in about a tenth of a second."""

# Many times more than other programs could write in half a second.
_PLENTY = 4 * 1024 * 1024 * 1024
_VALID_SECONDS = 0.5

# A listing in the pool reads for some milliseconds; a longer one makes the WAL grow a little.
_READERS_MS = 100


class CheckpointLock:
    """
    Lets one thread at a time run a checkpoint, and set the latch if that fails.

    Without the lock, another checkpoint could begin between the failure and the latch, and its sync
    would report success. Any thread.
    """

    def __init__(self) -> None:
        self._lock = Lock()

    def tryAcquire(self) -> bool:
        """Acquire the lock unless another thread holds it; return whether it was acquired."""
        return self._lock.acquire(blocking=False)

    def release(self) -> None:
        """Release the lock."""
        self._lock.release()


class WALSizeCounter:
    """
    Counts the bytes written to the WAL. Any thread.

    @ivar total: Bytes written by all processes since an arbitrary start.
    """

    total = 0

    def add(self, size: int) -> None:
        """Count bytes that were written. Writer thread."""
        self.total += size


@define(eq=False)
class WALCheckpointer:
    """
    Tracks the WAL's length. Methods: writer thread, unless they say otherwise.

    @ivar _connection: The writer's connection.
    @ivar _directory: The catalog's directory, for the free space of its file system.
    @ivar _latch: Set when a failed checkpoint leaves the content of the disk unknown.
    @ivar _restartAt: The longest WAL, in bytes.
    @ivar _written: Counts the bytes of all processes.
    @ivar lock: Held during each checkpoint.
    """

    _connection: Connection
    _directory: str
    _latch: FailStopLatch
    _restartAt: int = RESTART_AT
    _written: WALSizeCounter = field(factory=WALSizeCounter, alias="size")
    lock: CheckpointLock = field(factory=CheckpointLock)
    _space: int = field(default=0, init=False)
    _validUntil: float = field(default=0.0, init=False)
    _length: int = field(default=0, init=False)
    _pending: int = field(default=0, init=False)
    _changes: int = field(init=False)
    _start: int = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._changes = self._connection.total_changes
        self._start = self._written.total

    @property
    def isCheckpointDue(self) -> bool:
        """Whether the pool should run a checkpoint. Any thread."""
        return self._grown >= CHECKPOINT_AT and self._latch.failure is None

    def committed(self, weight: int) -> None:
        """
        Count the most bytes that a commit may have added: a page for each changed row, and its
        weight.

        @param weight: The sum of the weights of the mutations.
        """
        changes = self._connection.total_changes
        self._written.add((changes - self._changes) * PAGE_SIZE + weight)
        self._changes = changes

    def hasSpace(self, size: int) -> bool:
        """
        Return whether a commit fits on the disk: in the WAL now and in the database later. Blocks.

        @param size: The most bytes that the commit may add.
        """
        return self._fits(size) or (self.shrink() and self._fits(size))

    def fitsFreePages(self, size: int) -> bool:
        """
        Return whether the database has free pages for a commit and the whole WAL, regardless of the
        disk's free space. Blocks.

        @param size: The most bytes that the commit may add.
        """
        self.shrink()
        return self._pending + self._grown + size <= self._freed()

    def restartIfLong(self) -> None:
        """Restart the WAL if it is too long. Blocks."""
        if self._length + self._grown <= self._restartAt:
            return
        if self._checkpoint("RESTART"):
            self._length = self._pending = 0
        else:
            # Readers blocked it, or the disk is full; do not retry with the next commit.
            self._length = max(self._restartAt - CHECKPOINT_AT, 0)
            self._pending += self._grown
        self._resetWritten()

    def shrink(self) -> bool:
        """Truncate the WAL unless readers block that; return whether it was truncated. Blocks."""
        done = self._checkpoint("TRUNCATE")
        if done:
            self._length = self._pending = 0
            self._resetWritten()
        return done

    def checkpointed(self, frames: int, copied: int) -> None:
        """
        Update the lengths after a checkpoint. Reactor thread.

        @param frames: Pages in the WAL; negative if another process was running a checkpoint.
        @param copied: The number of these pages that are in the database.
        """
        if frames < 0:
            self._length += self._grown
            self._pending += self._grown
        else:
            self._length = frames * PAGE_SIZE
            self._pending = (frames - copied) * PAGE_SIZE
        self._resetWritten()

    @property
    def _grown(self) -> int:
        """Bytes written since the WAL's length was last known."""
        return self._written.total - self._start

    def _resetWritten(self) -> None:
        self._start = self._written.total

    def _fits(self, size: int) -> bool:
        needed = self._pending + self._grown + 2 * size
        # statvfs takes 60 microseconds, as long as a small commit, so with plenty of space the last
        # result is reused for a while.
        if needed + _PLENTY <= self._space and monotonic() < self._validUntil:
            return True
        disk = os.statvfs(self._directory)
        self._space = space = disk.f_bavail * disk.f_frsize
        self._validUntil = monotonic() + _VALID_SECONDS
        if needed <= space:
            return True
        return size <= space and needed <= space + self._freed()

    def _freed(self) -> int:
        """Return the bytes in free pages of the database."""
        pages: int = self._connection.execute("PRAGMA freelist_count").fetchall()[0][0]
        return pages * PAGE_SIZE

    def checkpoint(self, connection: Connection, mode: str) -> tuple[bool, int, int]:
        """
        Run L{checkpoint}, and set the latch if a sync fails. Any thread.

        @param connection: A write connection without an open transaction.
        @param mode: See L{checkpoint}.
        @raise StoreReadOnly: The latch is set.
        @raise sqlite3.Error: The checkpoint failed.
        """
        if not self.lock.tryAcquire():
            return True, -1, -1
        try:
            self._latch.check()
            return checkpoint(connection, mode)
        except Error as error:
            if classify(error) is Fault.UNSAFE:
                self._latch.set(f"a write of the catalog failed: {error}")
            raise
        finally:
            self.lock.release()

    def _checkpoint(self, mode: str) -> bool:
        if self._latch.failure is not None:
            return False
        self._connection.execute(f"PRAGMA busy_timeout = {_READERS_MS}")
        try:
            busy, _, _ = self.checkpoint(self._connection, mode)
        except (Error, StoreReadOnly):
            return False
        finally:
            self._connection.execute(f"PRAGMA busy_timeout = {BUSY_MS}")
        return not busy


@define(eq=False)
class CheckpointScheduler:
    """
    Runs due checkpoints in the pool, one at a time. Methods: reactor thread.

    @ivar _run: C{run(function, *args)} calls in a thread and fires in the reactor thread.
    @ivar _connection: The scheduler's own connection, which L{close} closes.
    @ivar problem: Why the last checkpoint failed; L{None} if it succeeded or only found no space.
    """

    _run: Callable[..., Deferred[Any]]
    _connection: Connection
    _wal: WALCheckpointer
    problem: str | None = field(default=None, init=False)
    _isRunning: bool = field(default=False, init=False)

    def schedule(self) -> None:
        """Start a checkpoint if one is due."""
        if not self._isRunning and self._wal.isCheckpointDue:
            self._isRunning = True
            running = self._run(self._wal.checkpoint, self._connection, "PASSIVE")
            running.addCallbacks(self._done, self._failed)

    def close(self) -> None:
        """Close the connection. No checkpoint may be running."""
        leave(self._connection)

    def _done(self, result: tuple[bool, int, int]) -> None:
        self._isRunning = False
        self.problem = None
        self._wal.checkpointed(*result[1:])

    def _failed(self, failure: Failure) -> None:
        self._isRunning = False
        # An SQLite error has set the latch, or means a full disk, which is reported elsewhere. The
        # checkpoint is due again some commits later.
        if failure.check(Error, StoreBusy, StoreReadOnly) is None:
            _log.failure("the checkpoint failed", failure)
            self.problem = f"the checkpoint failed: {failure.getErrorMessage()}"


def checkpoint(connection: Connection, mode: str) -> tuple[bool, int, int]:
    """
    Copy pages from the WAL to the database. Blocks.

    @param mode: C{"PASSIVE"}, C{"RESTART"} or C{"TRUNCATE"}.
    @param connection: A write connection without an open transaction.
    @return: Whether readers or a writer blocked it, the number of pages in the WAL, and the number
        of these that are in the database.
    """
    (row,) = connection.execute(f"PRAGMA wal_checkpoint({mode})").fetchall()
    busy, frames, copied = row
    return bool(busy), frames, copied


PREWRITTEN = 16 * 1024 * 1024
"""Twice the length at which a checkpoint runs, so that a quiet daemon never appends."""

_SHARE = 64
"""The disk must have this many times as much free space."""

_AT_ONCE = 1024 * 1024
"""Bytes per write."""


def prewriteBetweenCommits(connection: sqlite3.Connection, path: str) -> bool:
    """
    Extend a WAL while no other process appends to it, because the zeros follow its frames.

    Like L{prewrite}, but does nothing while another process is writing.

    @param connection: A write connection.
    @param path: The WAL.
    @raise OSError: The zeros could not be synced, so the content of the file is unknown.
    """
    try:
        connection.execute("BEGIN IMMEDIATE")
    except sqlite3.OperationalError:
        return False
    try:
        return prewrite(path)
    finally:
        connection.execute("ROLLBACK")


def prewrite(path: str, size: int = PREWRITTEN) -> bool:
    """
    Extend a WAL to at least C{size} bytes. Blocks. A connection must be open; otherwise SQLite
    would remove the file with the next one.

    @param size: The length of frames and zeros in bytes.
    @return: Whether it is that long now. Little disk space is not an error.
    @raise OSError: The zeros could not be synced, so the content of the file is unknown.
    """
    try:
        disk = os.statvfs(os.path.dirname(os.path.abspath(path)))
        if disk.f_bavail * disk.f_frsize < size * _SHARE:
            return False
        descriptor = os.open(path, os.O_WRONLY)
    except OSError:
        return False
    try:
        length = os.fstat(descriptor).st_size
        zeros = bytes(_AT_ONCE)
        while length < size:
            length += os.pwrite(descriptor, zeros[: size - length], length)
    except OSError:
        os.close(descriptor)
        return False
    try:
        os.fdatasync(descriptor)
    finally:
        os.close(descriptor)
    return True
