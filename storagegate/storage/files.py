"""
The file operations of the store, the lock of its directory, moved files, and the end of writing.

All that the store does to the disk, except to the catalog's own file, passes a L{Files} that is an
argument, so that a test can make the N-th operation fail.
"""

import ctypes
import errno
import fcntl
import os
from collections.abc import Callable, Sequence
from contextlib import suppress

from attrs import define, field
from twisted.logger import Logger

from storagegate.net.transport import Buffer
from storagegate.storage.errors import StoreError, StoreReadOnly

FAIL_STOP = "fail-stop"
"""
The name of the file in a data directory that says that writing has stopped there, and why.

It is for other processes: commands beside the daemon, and the next start.
"""

_REASON_BYTES = 512
"""The longest reason that is kept, as in the memory of several processes."""


def readFailStop(directory: str) -> str | None:
    """Return why the daemon of a data directory has stopped writing; L{None} if it has not."""
    try:
        with open(os.path.join(directory, FAIL_STOP), "rb") as file:
            reason = file.read(_REASON_BYTES).decode(errors="replace").strip()
    except OSError:
        return None
    return reason or "a sync of the disk failed"


def checkFailStop(directory: str) -> None:
    """
    Let a command write beside the daemon of a data directory.

    @raise StoreReadOnly: The daemon has stopped writing.
    """
    if (reason := readFailStop(directory)) is not None:
        raise StoreReadOnly(f"the daemon has stopped writing, restart it: {reason}")


class FailStopLatch:
    """
    Ends all writing until a restart.

    After a failed fsync the kernel may have dropped what it could not write, and would report
    success the next time: so a failure is not retried, and the latch is never reset. All methods
    may run in any thread.

    @ivar failure: Why nothing may be written; L{None} while writing is safe.
    """

    _log = Logger()

    def __init__(self, directory: str | None = None) -> None:
        """
        @param directory: The data directory, in which the file L{FAIL_STOP} tells other processes;
            L{None} if the store is not in one.
        """
        self.failure: str | None = None
        self._directory = directory

    def set(self, reason: str, isMarked: bool = True) -> None:
        """
        Stop all writes. The first reason stays.

        @param isMarked: Whether other processes are told. They are not where the files of the store
            were moved: the directory may be another store's by now.
        """
        if self.failure is None:
            self.failure = reason
            if isMarked:
                self._mark(reason)
            self._log.critical("the store is read-only until a restart: {reason}", reason=reason)

    def check(self) -> None:
        """
        Let a write pass.

        @raise StoreReadOnly: The latch is set.
        """
        if self.failure is not None:
            raise StoreReadOnly(self.failure)

    def _mark(self, reason: str) -> None:
        """Write the file. A disk that refuses even that is read-only for other processes, too."""
        if self._directory is not None:
            # It is not synced: after a power cut the page cache and the log's index are gone, and
            # the file is of no use.
            with suppress(OSError):
                path = os.path.join(self._directory, FAIL_STOP)
                descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
                try:
                    os.write(descriptor, reason.encode()[:_REASON_BYTES])
                finally:
                    os.close(descriptor)


class Files:
    """
    The operating system's calls, one method each.

    Every method blocks and may run in a pool thread. Each raises L{OSError}.
    """

    def create(self, path: str) -> int:
        """Make a new file, which must not exist, and return its descriptor for writing."""
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)

    def openForReading(self, path: str) -> int:
        """Open a file and return its descriptor for reading."""
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def openForAppending(self, path: str) -> int:
        """Open a file and return its descriptor for writing at the end."""
        return os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)

    def write(self, fd: int, buffers: Sequence[Buffer]) -> int:
        """
        Write some of the buffers; return how many bytes were written, which may be fewer.

        @param fd: The bytes go to its position.
        @param buffers: Written one after the other in one call of C{writev}.
        """
        return os.writev(fd, buffers)

    def read(self, fd: int, length: int, offset: int) -> bytes:
        """
        Read up to C{length} bytes from C{offset}; none at the end.

        @param fd: Its position stays.
        @param offset: From the beginning of the file.
        """
        return os.pread(fd, length, offset)

    def sync(self, fd: int) -> None:
        """Make a file's bytes, and its size, durable."""
        os.fdatasync(fd)

    def openDirectory(self, path: str) -> int:
        """Open a directory and return its descriptor for L{syncDirectory}."""
        return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)

    def syncDirectory(self, fd: int) -> None:
        """Make a directory's entries durable."""
        os.fsync(fd)

    def close(self, fd: int) -> None:
        """Close a descriptor."""
        os.close(fd)

    def link(self, source: str, target: str) -> None:
        """
        Link a file under a second name.

        @param target: A new name, on the same file system.
        """
        os.link(source, target)

    def copy(self, source: str, target: str) -> int:
        """
        Copy a file to a new one that only its owner may read; return its length.

        A file system that can share the bytes of two files does so.

        @param target: A new name, on any file system.
        """
        reader = os.open(source, os.O_RDONLY | os.O_CLOEXEC)
        try:
            writer = createPrivate(target)
            try:
                return _copyBytes(reader, writer)
            finally:
                os.close(writer)
        finally:
            os.close(reader)

    def unlink(self, path: str) -> None:
        """Remove a name."""
        os.unlink(path)

    def makeDirectory(self, path: str) -> None:
        """Make a directory that only its owner may enter; the one above it must exist."""
        os.mkdir(path, 0o700)

    def names(self, path: str) -> list[str]:
        """List a directory, in no order."""
        return os.listdir(path)

    def size(self, file: int | str) -> int:
        """
        Return the bytes in a file.

        @param file: A descriptor or a path.
        """
        return os.stat(file).st_size

    def dropCache(self, fd: int, offset: int, length: int) -> None:
        """
        Remove a range of a file from the page cache.

        @param length: Bytes in the range; 0 reaches to the end of the file.
        @param offset: From the beginning of the file.
        """
        os.posix_fadvise(fd, offset, length, os.POSIX_FADV_DONTNEED)

    def space(self, path: str) -> tuple[int, int]:
        """Return the bytes that are free to us on a path's file system, and all of its bytes."""
        figures = os.statvfs(path)
        return figures.f_bavail * figures.f_frsize, figures.f_blocks * figures.f_frsize

    def isReadOnly(self, path: str) -> bool:
        """Return whether a path's file system is mounted read-only."""
        return bool(os.statvfs(path).f_flag & os.ST_RDONLY)

    def inodes(self, path: str) -> tuple[int, int]:
        """
        Return the inodes that are free to us on a path's file system, and all of its inodes; none
        of either where it makes them as they are needed.
        """
        figures = os.statvfs(path)
        return figures.f_favail, figures.f_files


_COPY_BYTES = 16 * 1024 * 1024
"""Bytes of one call: a signal waits for it."""

_CANNOT_SHARE = frozenset({errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP})


def _copyBytes(reader: int, writer: int) -> int:
    """Copy from the beginning of a file to its end; return how many bytes that were."""
    length = 0
    copy: Callable[[], int] = lambda: os.copy_file_range(reader, writer, _COPY_BYTES)  # noqa: E731
    while True:
        try:
            done = copy()
        except OSError as error:
            if error.errno not in _CANNOT_SHARE or length:
                raise
            copy = lambda: os.sendfile(writer, reader, None, _COPY_BYTES)  # noqa: E731
            continue
        if not done:
            return length
        length += done


def syncFileSystem(directory: str) -> None:
    """Make everything on a file system durable: one call where there may be a million files."""
    libc = ctypes.CDLL(None, use_errno=True)
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        if libc.syncfs(descriptor) != 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), directory)
    finally:
        os.close(descriptor)


def unlinkIfThere(files: Files, path: str) -> bool:
    """Remove a name; return whether it existed. Blocks; may run in a pool thread."""
    try:
        files.unlink(path)
    except FileNotFoundError:
        return False
    return True


def syncDirectory(path: str) -> None:
    """Make the names in a directory durable."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def createPrivate(path: str) -> int:
    """
    Make a new file that only its owner may read, whatever the umask; return its descriptor.

    @raise FileExistsError: The name is taken.
    """
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    os.fchmod(descriptor, 0o600)
    return descriptor


def replaceFile(path: str, content: bytes) -> None:
    """
    Write a small file that only its owner may read, whole and durable, in the place of the old one.

    @param path: A file of the data directory; C{PATH.new} is its draft.
    """
    draft = f"{path}.new"
    with suppress(FileNotFoundError):
        os.unlink(draft)
    with open(createPrivate(draft), "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    os.replace(draft, path)
    syncDirectory(os.path.dirname(path) or ".")


def makeDirectory(path: str, mode: int = 0o777) -> None:
    """
    Make a directory and those above it, durably, unless they exist.

    @param path: An absolute path.
    @param mode: For the last one; those above have the usual mode.
    @raise OSError: It cannot be made, or the path is another file's.
    """
    if os.path.isdir(path):
        return
    parent = os.path.dirname(path)
    makeDirectory(parent)
    try:
        os.mkdir(path, mode)
    except FileExistsError:
        if not os.path.isdir(path):
            raise
        syncDirectory(parent)
        return
    try:
        syncDirectory(parent)
    except OSError:
        # The next call would find it and take it for durable.
        os.rmdir(path)
        raise


@define(eq=False)
class OpenFiles:
    """
    Whether paths still name the files of a database that SQLite has open.

    Where they were removed, moved or mounted over, what is written can be found by no later start.
    Any thread; a check takes five microseconds for each path.

    @ivar _paths: Those that exist now.
    @ivar _onMoved: Called with the reason when they differ.
    """

    _paths: Sequence[str]
    _onMoved: Callable[[str], object]
    _opened: dict[str, tuple[int, int]] = field(factory=dict, init=False)
    isMoved: bool = field(default=False, init=False)

    def __attrs_post_init__(self) -> None:
        # An inode is not used again while its file is open.
        for path in self._paths:
            if (found := _inode(path)) is not None:
                self._opened[path] = found

    def check(self) -> bool:
        """Compare devices and inodes; return whether they are the same."""
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


class StoreLocked(StoreError):
    """Another process has the store open."""


@define(eq=False)
class DirectoryLock:
    """
    An exclusive lock on C{DATA/lock}, which the system releases when the process ends, and every
    process that has inherited the descriptor.

    @ivar descriptor: The locked file.
    """

    descriptor: int

    @classmethod
    def take(cls, directory: str) -> "DirectoryLock":
        """
        Lock a data directory.

        @param directory: An existing directory; the file C{lock} is made in it.
        @raise StoreLocked: Another process has it locked. The text is one line for an operator.
        """
        path = os.path.join(directory, "lock")
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(fd)
            raise StoreLocked(f"{directory} is in use by another process") from None
        return cls(fd)

    @staticmethod
    def isTaken(directory: str) -> bool:
        """Return whether a process has a data directory locked; lock it for an instant if not."""
        try:
            DirectoryLock.take(directory).release()
        except StoreLocked:
            return True
        return False

    def release(self) -> None:
        """Release the lock, unless another process has inherited it. Once."""
        os.close(self.descriptor)
