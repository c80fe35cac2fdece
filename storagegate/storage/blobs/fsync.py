"""
What makes bytes durable, and what happens when it fails.

After a failed fsync the kernel may have dropped the pages and will report success the next time,
so a failure is never retried: the L{WriteFence} falls and nothing more is written until a restart.
"""

import errno
from collections.abc import Callable
from threading import Event, Lock

from twisted.logger import Logger

from storagegate.storage.errors import StoreBusy, StoreError, StoreFull, StoreReadOnly
from storagegate.storage.files import Files

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
_ANSWERS: dict[int, tuple[type[StoreError], str]] = {
    errno.ENOSPC: (StoreFull, "the disk is full"),
    errno.EDQUOT: (StoreFull, "the disk quota is used up"),
    errno.EROFS: (StoreReadOnly, "the file system is read-only"),
    errno.EMFILE: (StoreBusy, "too many files are open"),
    errno.ENFILE: (StoreBusy, "too many files are open"),
}


def storeError(error: OSError) -> Exception:
    """Say an error of the operating system in the store's words, where it has some."""
    kind, text = _ANSWERS.get(error.errno or 0, (None, ""))
    return error if kind is None else kind(text)


class WriteFence:
    """
    Falls once, and stays down until a restart.

    Both methods may run in any thread.

    @ivar reason: Why nothing may be written, or L{None}.
    """

    _log = Logger()

    def __init__(self) -> None:
        self.reason: str | None = None

    def trip(self, reason: str) -> None:
        """Fall. The first reason stays."""
        if self.reason is None:
            self.reason = reason
            self._log.critical("the store is read-only until a restart: {reason}", reason=reason)

    def check(self) -> None:
        """
        Let a write pass.

        @raise StoreReadOnly: The latch has fallen.
        """
        if self.reason is not None:
            raise StoreReadOnly(self.reason)


class _SyncBatch:
    """One sync of one directory, for everybody who asked before it began."""

    def __init__(self) -> None:
        self.ended = Event()
        self.error: StoreError | OSError | None = StoreReadOnly("an fsync did not end")


class _Directory:
    """A directory that is being synced: one sync runs, at most one more is wanted."""

    def __init__(self) -> None:
        self.turn = Lock()
        self.next: _SyncBatch | None = None
        self.users = 0


class SyncGroup:
    """
    Syncs files and directories, or does nothing where the operator wants the speed instead.

    All methods block and run in any thread.
    """

    def __init__(self, files: Files, latch: WriteFence, enabled: bool) -> None:
        self._files = files
        self._latch = latch
        self._enabled = enabled
        self._lock = Lock()
        self._directories: dict[str, _Directory] = {}

    def syncFile(self, fd: int) -> None:
        """
        Make a file's bytes durable.

        @raise StoreFull: There was no room for them after all; this file alone is lost.
        @raise StoreReadOnly: What the disk holds is not known.
        """
        if self._enabled:
            self._latch.check()
            self._sync(self._files.sync, fd, "a file")

    def syncDirectory(self, path: str) -> None:
        """
        Make a directory's entries durable. Those who ask while a sync runs share the next one.

        @raise StoreFull: There was no room for the entries.
        @raise StoreReadOnly: What the disk holds is not known.
        @raise OSError: The directory cannot be opened.
        """
        if not self._enabled:
            return
        with self._lock:
            directory = self._directories.setdefault(path, _Directory())
            directory.users += 1
            leads = directory.next is None
            if directory.next is None:
                directory.next = _SyncBatch()
            mine = directory.next
        try:
            if leads:
                self._lead(path, directory, mine)
            else:
                mine.ended.wait()
        finally:
            with self._lock:
                directory.users -= 1
                if not directory.users:
                    del self._directories[path]
        if mine.error is not None:
            raise mine.error

    def _lead(self, path: str, directory: _Directory, mine: _SyncBatch) -> None:
        with directory.turn:
            # From here on a change may come too late for this sync: it needs the next one.
            with self._lock:
                directory.next = None
            try:
                self._latch.check()
                fd = self._files.openDirectory(path)
                try:
                    self._sync(self._files.syncDirectory, fd, "a directory")
                finally:
                    self._files.close(fd)
                mine.error = None
            except (StoreError, OSError) as error:
                mine.error = error
            finally:
                mine.ended.set()

    def _sync(self, sync: Callable[[int], None], fd: int, what: str) -> None:
        try:
            sync(fd)
        except OSError as error:
            if error.errno in _FULL:
                raise StoreFull("the disk is full") from error
            self._latch.trip(f"fsync of {what} failed: {error.strerror or error}")
            raise StoreReadOnly(str(self._latch.reason)) from error
