"""
The files of blobs: ids, paths, directories and durability.

::

    DATA/blobs/ab/cd/abcd...    the blob, under its id: 32 hexadecimal digits
    DATA/staging/abcd...        its staging name, until the catalog has committed it
"""

import errno
import os
import re
from collections.abc import Callable
from threading import Event, Lock

from attrs import define, field
from msgspec import Struct

from storagegate.core.errors import untraced
from storagegate.storage.errors import StoreBusy, StoreError, StoreFull, StoreReadOnly
from storagegate.storage.files import FailStopLatch, Files

BLOBS_A_SHARD = 256
"""Successive blobs per directory; more would make directories large even in small stores."""

MASTER_KEYS = "master-keys"
"""The name of the file of the master keys of encryption in a data directory or a backup."""

SESSIONS = "sessions.sqlite"
"""The name of the file of the console's sessions in a data directory."""

_ID = re.compile(r"[0-9a-f]{32}", re.ASCII)


def isBlobId(name: str) -> bool:
    """Return whether a name is a valid blob id."""
    return _ID.fullmatch(name) is not None


class BlobIds:
    """
    Generates ids; L{BLOBS_A_SHARD} successive ids begin with the same four digits.

    The digits name the directory of the blob's file, which is created and synced once for all of
    them.

    @param random: C{os.urandom} or a replacement.
    @param owner: The suffix of all ids, which identifies the files of a process that died.
    """

    def __init__(self, random: Callable[[int], bytes] = os.urandom, owner: bytes = b"") -> None:
        self._random = random
        self._owner = owner.hex()
        self._own = 14 - len(owner)
        self._shard = ""
        self._left = 0

    def new(self, bucket: str = "") -> str:
        """Generate a new id, for any bucket. Reactor thread."""
        if not self._left:
            self._shard = self._random(2).hex()
            self._left = BLOBS_A_SHARD
        self._left -= 1
        return self._shard + self._random(self._own).hex() + self._owner


DISK_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
"""The errors of a disk without space or inodes."""

_STORE_ERRORS: dict[int, tuple[type[StoreError], str]] = {
    errno.ENOSPC: (StoreFull, "the disk is full"),
    errno.EDQUOT: (StoreFull, "the disk quota is exhausted"),
    errno.EROFS: (StoreReadOnly, "the file system is read-only"),
    errno.EMFILE: (StoreBusy, "too many files are open"),
    errno.ENFILE: (StoreBusy, "too many files are open"),
    # A directory was removed, moved or unmounted; it may come back.
    errno.ENOENT: (StoreBusy, "a directory of the store is missing"),
    errno.ENOTDIR: (StoreBusy, "a directory of the store is missing"),
}


def storeError(error: OSError) -> Exception:
    """Return the L{StoreError} for an operating system error, or the error itself."""
    kind, text = _STORE_ERRORS.get(error.errno or 0, (None, ""))
    return error if kind is None else kind(text)


class _SyncBatch:
    """One sync of one directory, shared by all calls made before it began."""

    def __init__(self) -> None:
        self.ended = Event()
        self.error: StoreError | OSError | None = StoreReadOnly("an fsync did not finish")


@define(eq=False)
class _Directory:
    """A directory being synced: one sync runs, and at most one more waits."""

    lock: Lock = field(factory=Lock, init=False)
    next: _SyncBatch | None = field(default=None, init=False)
    users: int = field(default=0, init=False)


@define(eq=False)
class SyncGroup:
    """
    Syncs files and directories, or does nothing with durability C{os}.

    All methods block and may run in any thread.

    A failed sync sets the latch. The only exception is a file on a full disk, because the file is
    new and its upload removes it. A directory also holds entries of other uploads, so its failure
    always sets the latch.

    @ivar _latch: Set when a sync fails.
    @ivar _enabled: Whether to sync at all.
    """

    _files: Files
    _latch: FailStopLatch
    _enabled: bool
    _lock: Lock = field(factory=Lock, init=False)
    _directories: dict[str, _Directory] = field(factory=dict, init=False)

    def check(self) -> None:
        """
        Check that changes are allowed.

        @raise StoreReadOnly: A sync has failed.
        """
        self._latch.check()

    def syncFile(self, fd: int) -> None:
        """
        Make a file's bytes durable.

        @param fd: The descriptor to which all bytes were written.
        @raise StoreFull: The disk had no space for the bytes; only this file is lost.
        @raise StoreReadOnly: The content of the disk is unknown.
        """
        if self._enabled:
            self._latch.check()
            try:
                self._files.sync(fd)
            except OSError as error:
                if error.errno in DISK_FULL:
                    raise StoreFull("the disk is full") from error
                raise self._failed("a file", error) from error

    def syncDirectory(self, path: str) -> None:
        """
        Make a directory's entries durable. Calls made while a sync runs share the next one.

        @param path: The directory, whose entries have already changed.
        @raise StoreReadOnly: The content of the disk is unknown.
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
            raise untraced(mine.error)

    def _lead(self, path: str, directory: _Directory, mine: _SyncBatch) -> None:
        with directory.lock:
            # A change made from here on may be too late for this sync and needs the next one.
            with self._lock:
                directory.next = None
            try:
                self._latch.check()
                fd = self._files.openDirectory(path)
                try:
                    self._files.syncDirectory(fd)
                except OSError as error:
                    raise self._failed("a directory", error) from error
                finally:
                    self._files.close(fd)
                mine.error = None
            except (StoreError, OSError) as error:
                mine.error = untraced(error)
                # The message names the cause, whose traceback would keep this frame alive.
                mine.error.__cause__ = None
            finally:
                mine.ended.set()

    def _failed(self, what: str, error: OSError) -> StoreError:
        reason = f"fsync of {what} failed: {error.strerror or error}"
        self._latch.set(reason)
        if self._latch.failure is None and error.errno in DISK_FULL:
            # On a network file system the failure affects one upload, and the latch is never set.
            return StoreFull("the disk is full")
        return StoreReadOnly(self._latch.failure or reason)


class BlobLayout(Struct, frozen=True):
    """
    The paths below one data directory.

    @ivar data: The data directory.
    """

    data: str

    @property
    def blobs(self) -> str:
        """The directory of the shards."""
        return os.path.join(self.data, "blobs")

    @property
    def staging(self) -> str:
        """The directory of staging names."""
        return os.path.join(self.data, "staging")

    def shard(self, blob: str) -> str:
        """Return the directory that holds a blob."""
        return os.path.join(self.data, "blobs", blob[:2], blob[2:4])

    def path(self, blob: str) -> str:
        """Return the path of a blob."""
        return os.path.join(self.data, "blobs", blob[:2], blob[2:4], blob)

    def stagingPath(self, blob: str) -> str:
        """Return the path of a blob's staging name."""
        return os.path.join(self.data, "staging", blob)


_KNOWN_LIMIT = 4096
"""The most directories remembered as existing; forgetting one costs a C{mkdir} and an fsync."""


@define(eq=False)
class Shards:
    """Creates the directories of blobs."""

    _layout: BlobLayout
    _files: Files
    _durability: SyncGroup
    # Any thread may add an entry or clear the set; a lost entry costs a second mkdir.
    _known: set[str] = field(factory=set, init=False)

    def forget(self, blob: str) -> None:
        """Forget a blob's directory, which turned out not to exist. May run in a pool thread."""
        shard = self._layout.shard(blob)
        self._known.difference_update((shard, os.path.dirname(shard)))

    def ensure(self, blob: str) -> None:
        """
        Durably create a blob's directory, unless it is known to exist.

        An existing directory may not be durable: a crash or another thread may have left it
        unsynced. So its parent is synced here, too. Blocks; may run in a pool thread.

        @param blob: The id of a blob that is about to be linked.
        """
        shard = self._layout.shard(blob)
        parent = os.path.dirname(shard)
        for path in (parent, shard):
            if path not in self._known:
                try:
                    self._files.makeDirectory(path)
                except FileExistsError:
                    pass
                self._durability.syncDirectory(os.path.dirname(path))
                if len(self._known) >= _KNOWN_LIMIT:
                    self._known.clear()
                self._known.add(path)
