"""
How the WAL is kept short.

A checkpoint copies pages from the WAL to the database. The pool makes one each time the WAL has
grown by L{LOOK_AT}: no commit waits for it, but while commits go on it never catches up, and the
WAL grows. Beyond L{RESTART_AT} the writer makes one itself, between two commits, and the WAL starts
again from its beginning. The file keeps its length then: to overwrite costs less than to append.

What the WAL holds must always find room in the database. On a full disk that took another page into
the WAL the one could not grow, so the other could not be shortened, and deletes would soon fail.

A WAL whose blocks are on the disk before they are needed.

An fsync after an append also commits the file system's journal, for the file has become longer;
after an overwrite it waits for the bytes alone: 2.7 ms and 0.8 ms here. SQLite never shortens the
file while it is open, so it is made long at the start, with zeros, which are no frames: SQLite
reads a WAL up to the first frame that is none (file format, section 4.4).

Room on the disk that is kept for deletes.

Even a delete writes before it frees: its pages go through the WAL. When the disk is full the
reserve is given up for that, and made again as soon as there is room.

SQLite never gives the pages of deleted rows back to the disk: it writes new rows there. So after
deletes there may be room in the database and none for the WAL that leads there. The reserve is lent
for that, and taken back when the WAL is short again.
"""

import errno
import os
import sqlite3
from collections.abc import Callable
from sqlite3 import Connection, Error
from time import monotonic
from typing import Any

from twisted.internet.defer import Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from storagegate.storage.catalog.connections import BUSY_MS, PAGE_SIZE
from storagegate.storage.catalog.coordination import WALSizeCounter
from storagegate.storage.errors import StoreBusy
from storagegate.storage.sqlite import FailStopLatch, Fault, classify

_log = Logger()

LOOK_AT = 8 * 1024 * 1024
"""Small enough that readers find pages in few hash tables, large enough that fsyncs are few."""

RESTART_AT = 64 * 1024 * 1024
"""The longest WAL; a start after a crash reads all of it, in about a tenth of a second."""

# What others could write to the disk in half a second, many times over.
_PLENTY = 4 * 1024 * 1024 * 1024
_TRUST_SECONDS = 0.5

# A list in the pool reads for some milliseconds; whoever reads longer makes the WAL grow a little.
_READERS_MS = 100


class WALCheckpointer:
    """
    Watches the WAL's length. Lives in the writer thread, but for L{lookDue} and L{looked}.

    @param connection: The writer's.
    @param directory: Where the catalog is, for the room on its disk.
    @param restartAt: The longest WAL.
    @param growth: Counts what this process writes; tells what all do.
    """

    def __init__(
        self,
        connection: Connection,
        directory: str,
        latch: FailStopLatch,
        restartAt: int = RESTART_AT,
        growth: WALSizeCounter | None = None,
    ) -> None:
        self._connection = connection
        self._directory = directory
        self._latch = latch
        self._restartAt = restartAt
        self._changes = connection.total_changes
        self._room = 0
        self._askAt = 0.0
        self._length = 0
        self._pending = 0
        self._growth = growth or WALSizeCounter()
        self._start = self._growth.total

    @property
    def lookDue(self) -> bool:
        """Whether the pool should make a checkpoint. Any thread."""
        return self._grown >= LOOK_AT and self._latch.failure is None

    def note(self, bulk: int) -> None:
        """
        Count what a commit may have added: a page for each row that changed, and its bulk.

        @param bulk: Bytes that the mutations carried.
        """
        changes = self._connection.total_changes
        self._growth.add((changes - self._changes) * PAGE_SIZE + bulk)
        self._changes = changes

    def hasRoom(self, size: int) -> bool:
        """
        Say whether the disk can take a commit, in the WAL now and in the database later. Blocks.

        @param size: The most bytes that it may add.
        """
        return self._fits(size) or (self.shrink() and self._fits(size))

    def fitsFreed(self, size: int) -> bool:
        """
        Say whether the database has free pages for a commit, and for all that the WAL holds; the
        disk's room is not looked at. Blocks.

        @param size: The most bytes that it may add.
        """
        self.shrink()
        return self._pending + self._grown + size <= self._freed()

    def keep(self) -> None:
        """Restart the WAL if it is too long. Blocks."""
        if self._length + self._grown <= self._restartAt:
            return
        if self._checkpoint("RESTART"):
            self._length = self._pending = 0
        else:
            # Readers were in the way, or the disk is full: not again with the next commit.
            self._length = max(self._restartAt - LOOK_AT, 0)
            self._pending += self._grown
        self._startAgain()

    def shrink(self) -> bool:
        """Give the WAL's room back to the disk, if nobody is in the way. Blocks."""
        done = self._checkpoint("TRUNCATE")
        if done:
            self._length = self._pending = 0
            self._startAgain()
        return done

    def looked(self, frames: int, copied: int) -> None:
        """Take note of how many pages the WAL held, and how many the database. Reactor thread."""
        if frames < 0:
            # Another process was looking. It is over when as much more has been written.
            self._length += self._grown
            self._pending += self._grown
        else:
            self._length = frames * PAGE_SIZE
            self._pending = (frames - copied) * PAGE_SIZE
        self._startAgain()

    @property
    def _grown(self) -> int:
        """What has been written since the WAL's length was known."""
        return self._growth.total - self._start

    def _startAgain(self) -> None:
        self._start = self._growth.total

    def _fits(self, size: int) -> bool:
        needed = self._pending + self._grown + 2 * size
        # Asking the disk takes 60 microseconds, as long as a small commit: where there is plenty,
        # the last answer will do for a while.
        if needed + _PLENTY <= self._room and monotonic() < self._askAt:
            return True
        disk = os.statvfs(self._directory)
        self._room = room = disk.f_bavail * disk.f_frsize
        self._askAt = monotonic() + _TRUST_SECONDS
        if needed <= room:
            return True
        return size <= room and needed <= room + self._freed()

    def _freed(self) -> int:
        """Count the bytes of the database's pages that deleted rows have left."""
        pages: int = self._connection.execute("PRAGMA freelist_count").fetchall()[0][0]
        return pages * PAGE_SIZE

    def _checkpoint(self, mode: str) -> bool:
        if self._latch.failure is not None:
            return False
        self._connection.execute(f"PRAGMA busy_timeout = {_READERS_MS}")
        try:
            busy, _, _ = checkpoint(self._connection, mode)
        except Error as error:
            if classify(error) is Fault.UNSAFE:
                self._latch.set(error)
            return False
        finally:
            self._connection.execute(f"PRAGMA busy_timeout = {BUSY_MS}")
        return not busy


class CheckpointScheduler:
    """
    Has the pool make a checkpoint when one is due, one at a time. Methods: reactor thread.

    @param run: C{run(function, *args)} calls in a thread and fires in the reactor thread.
    @param connection: Used by nobody else.
    """

    def __init__(
        self,
        run: Callable[..., Deferred[Any]],
        connection: Connection,
        wal: WALCheckpointer,
        latch: FailStopLatch,
    ) -> None:
        self._run = run
        self._connection = connection
        self._wal = wal
        self._latch = latch
        self._looking = False

    def consider(self) -> None:
        """Look after the WAL if it has grown enough."""
        if not self._looking and self._wal.lookDue:
            self._looking = True
            looking = self._run(checkpoint, self._connection, "PASSIVE")
            looking.addCallbacks(self._done, self._failed)

    def close(self) -> None:
        """Look no more."""
        self._connection.close()

    def _done(self, result: tuple[bool, int, int]) -> None:
        self._looking = False
        self._wal.looked(*result[1:])

    def _failed(self, failure: Failure) -> None:
        self._looking = False
        error = failure.value
        if isinstance(error, Exception) and classify(error) is Fault.UNSAFE:
            self._latch.set(error)
        # A full disk and a busy pool are no news; the WAL is looked at again after some commits.
        elif failure.check(Error, StoreBusy) is None:
            _log.failure("the WAL was not looked after", failure)


def checkpoint(connection: Connection, mode: str) -> tuple[bool, int, int]:
    """
    Copy pages from the WAL to the database. Blocks.

    @param mode: C{"PASSIVE"}, C{"RESTART"} or C{"TRUNCATE"}.
    @return: Whether somebody was in the way, how many pages the WAL holds, and how many of those
        the database has.
    """
    (row,) = connection.execute(f"PRAGMA wal_checkpoint({mode})").fetchall()
    busy, frames, copied = row
    return bool(busy), frames, copied


PREWRITTEN = 16 * 1024 * 1024
"""Twice the length at which a checkpoint is made: a quiet daemon never appends."""

_SHARE = 64
"""A disk with less than this many times as much room has better uses for it."""

_AT_ONCE = 1024 * 1024
"""Bytes of one write; the zeros are let go of with the last one."""


def prewriteBetweenCommits(connection: sqlite3.Connection, path: str) -> bool:
    """
    Make a WAL long while no other process appends to it, for the zeros go behind what is there.

    As L{prewrite}; a catalog that others keep busy stays as it is.

    @param connection: One that may write.
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
    Make a WAL at least C{size} bytes long. Blocks; a connection must be open, or SQLite would
    remove the file with the next.

    @return: Whether it is that long now. A disk that is short of room, or fails, is no error here.
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
        os.fdatasync(descriptor)
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return True


_MOST = 16 * 1024 * 1024
"""
Room in the WAL for a bulk delete of a thousand small objects that lie apart: 6 to 13 MiB, measured
with keys of 24 and of 900 bytes.
"""

_RESERVE_SHARE = 8
"""On a tiny file system the reserve takes no more than this part of it."""

_KEPT = 2
"""While the reserve is lent, one part in so many stays free: deletes must be possible then, too."""

_NO_ROOM = (errno.ENOSPC, errno.EDQUOT)


class Reserve:
    """
    A file that only takes room. May run in any thread, one at a time; blocks.

    @param path: The file; its directory is on the catalog's file system.
    @param isShared: Other processes have the same reserve; one at a time looks after it.
    """

    def __init__(self, path: str, isShared: bool = False) -> None:
        self._path = path
        self._isShared = isShared
        self._held = False

    def ensure(self) -> bool:
        """Make the reserve if it is not there; say whether it is."""
        if not self._held or (self._isShared and not os.path.exists(self._path)):
            self._held = self._make()
        return self._held

    def release(self) -> bool:
        """Give the room up; say whether there was any."""
        held, self._held = self._held, False
        if not held:
            return False
        try:
            os.unlink(self._path)
        except FileNotFoundError:
            # Another process has given it up already, and whoever is next may have taken the room.
            return False
        return True

    def lend(self, size: int) -> bool:
        """Give the room up for a commit that writes C{size} bytes of WAL; say whether it fits."""
        self.release()
        disk = os.statvfs(os.path.dirname(self._path))
        return size + _sizeOn(disk) // _KEPT <= disk.f_bavail * disk.f_frsize

    def _make(self) -> bool:
        disk = os.statvfs(os.path.dirname(self._path))
        size = _sizeOn(disk)
        try:
            if os.stat(self._path).st_size == size:
                return True
            os.unlink(self._path)
        except FileNotFoundError:
            pass
        # A reserve that takes the last byte would only be given up again.
        if disk.f_bavail * disk.f_frsize <= size:
            return False
        try:
            _fill(self._path, size)
        except OSError as error:
            if error.errno not in _NO_ROOM:
                raise
            return False
        return True


def _sizeOn(disk: os.statvfs_result) -> int:
    return min(_MOST, disk.f_blocks * disk.f_frsize // _RESERVE_SHARE)


def _fill(path: str, size: int) -> None:
    descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
    try:
        os.posix_fallocate(descriptor, 0, size)
    except OSError:
        os.unlink(path)
        raise
    finally:
        os.close(descriptor)
