"""
File operations of the store, its directory lock, and fail-stop.

All disk operations of the store, except on the catalog file, go through an injected L{Files}, so
that a test can make the Nth operation fail.
"""

import ctypes
import errno
import fcntl
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from threading import get_native_id

from attrs import define
from twisted.logger import Logger

from storagegate.net.transport import Buffer
from storagegate.storage.errors import StoreError, StoreReadOnly

FAIL_STOP = "fail-stop"
"""
The name of the file in a data directory that records that writing has stopped, and why.

Other processes read it: commands that run beside the daemon, and the next start.
"""

_REASON_BYTES = 512
"""The longest stored reason, the same as in shared memory."""


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
    Check that a command may write beside the daemon of a data directory.

    @raise StoreReadOnly: The daemon has stopped writing.
    """
    if (reason := readFailStop(directory)) is not None:
        raise StoreReadOnly(f"the daemon has stopped writing, restart it: {reason}")


class FailStopLatch:
    """
    Stops all writing until a restart.

    After a failed fsync the kernel may have dropped the unwritten pages and would report success
    the next time, so a failure is not retried and the latch is never reset. All methods may run in
    any thread.

    @ivar failure: Why nothing may be written; L{None} while writing is safe.
    """

    _log = Logger()

    def __init__(self, directory: str | None = None) -> None:
        """
        @param directory: The data directory, where the file L{FAIL_STOP} notifies other processes;
            L{None} for a store without one.
        """
        self.failure: str | None = None
        self._directory = directory

    def set(self, reason: str, isMarked: bool = True) -> None:
        """
        Stop all writes. Only the first reason is kept.

        @param isMarked: Whether to notify other processes. False if the files of the store were
            moved, because the directory may now belong to another store.
        """
        if self.failure is None:
            self.failure = reason
            if isMarked:
                self._mark(reason)
            self._log.critical("the store is read-only until a restart: {reason}", reason=reason)

    def check(self) -> None:
        """
        Check that writing is allowed.

        @raise StoreReadOnly: The latch is set.
        """
        if self.failure is not None:
            raise StoreReadOnly(self.failure)

    def _mark(self, reason: str) -> None:
        """
        Write the marker file. A disk that refuses even this is read-only for other processes, too.
        """
        if self._directory is not None:
            # The file is not synced: after a power cut the page cache and the WAL index are gone,
            # and the file is not needed.
            with suppress(OSError):
                path = os.path.join(self._directory, FAIL_STOP)
                descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
                try:
                    os.write(descriptor, reason.encode()[:_REASON_BYTES])
                finally:
                    os.close(descriptor)


class Files:
    """
    The operating system's calls, one per method.

    Every method blocks and may run in a pool thread. Each raises L{OSError}.
    """

    def create(self, path: str) -> int:
        """Create a file, which must not exist, and return its descriptor for writing."""
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

        @param fd: The descriptor; the bytes are written at its position.
        @param buffers: Written in order in one C{writev} call.
        """
        return os.writev(fd, buffers)

    def read(self, fd: int, length: int, offset: int) -> bytes:
        """
        Read up to C{length} bytes from C{offset}; none at the end.

        @param fd: The descriptor; its position does not change.
        @param offset: From the start of the file.
        """
        return os.pread(fd, length, offset)

    def readWarm(self, fd: int, length: int, offset: int) -> bytes | None:
        """
        Read bytes from the page cache, without waiting for the disk; see L{read}.

        @return: L{None} if they are not all there, or the file system cannot tell.
        """
        found = bytearray(length)
        try:
            count = os.preadv(fd, [found], offset, os.RWF_NOWAIT)
        except OSError:
            return None
        return bytes(found) if count == length else None

    def readInto(self, fd: int, buffer: memoryview, offset: int) -> int:
        """
        Read bytes from C{offset} into a buffer, at most its size; see L{read}.

        @return: The number of bytes; 0 at the end.
        """
        return os.preadv(fd, [buffer], offset)

    def sync(self, fd: int) -> None:
        """Make a file's bytes and size durable."""
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
        Copy a file to a new one that only its owner can read; return its length.

        The copy shares extents if the file system supports it.

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
        """Create a directory that only its owner can enter; its parent must exist."""
        os.mkdir(path, 0o700)

    def names(self, path: str) -> list[str]:
        """List a directory, in no particular order."""
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

        @param length: Bytes in the range; 0 extends to the end of the file.
        @param offset: From the start of the file.
        """
        os.posix_fadvise(fd, offset, length, os.POSIX_FADV_DONTNEED)

    def space(self, path: str) -> tuple[int, int]:
        """Return the available and total bytes of a path's file system."""
        figures = os.statvfs(path)
        return figures.f_bavail * figures.f_frsize, figures.f_blocks * figures.f_frsize

    def isReadOnly(self, path: str) -> bool:
        """Return whether a path's file system is mounted read-only."""
        return bool(os.statvfs(path).f_flag & os.ST_RDONLY)

    def inodes(self, path: str) -> tuple[int, int]:
        """
        Return the available and total inodes of a path's file system; both are 0 if it allocates
        inodes dynamically.
        """
        figures = os.statvfs(path)
        return figures.f_favail, figures.f_files


_COPY_BYTES = 16 * 1024 * 1024
"""Bytes per call, which delays the handling of signals."""

_CANNOT_SHARE = frozenset({errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP})


def _copyBytes(reader: int, writer: int) -> int:
    """Copy a whole file; return the number of bytes."""
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
    """Make everything on a file system durable, in one call instead of one for each file."""
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
    """Make a directory's entries durable."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def createPrivate(path: str) -> int:
    """
    Create a file that only its owner can read, regardless of the umask; return its descriptor.

    @raise FileExistsError: The name is taken.
    """
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    os.fchmod(descriptor, 0o600)
    return descriptor


def replaceFile(path: str, content: bytes) -> None:
    """
    Atomically and durably replace a small file that only its owner can read. The owner stays: a
    command of root must not take the file from the user of the daemon.

    @param path: A file in the data directory; C{PATH.new} is used as the draft.
    """
    draft = f"{path}.new"
    with suppress(FileNotFoundError):
        os.unlink(draft)
    with open(createPrivate(draft), "wb") as file:
        # There may be no file yet, and only root can give files away.
        with suppress(OSError):
            before = os.stat(path)
            os.fchown(file.fileno(), before.st_uid, before.st_gid)
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    os.replace(draft, path)
    syncDirectory(os.path.dirname(path) or ".")


def createFile(path: str, content: bytes) -> None:
    """
    Atomically and durably create a small file that only its owner can read.

    @param path: A file in a directory that exists; C{PATH.THREAD} is used as the draft.
    @raise FileExistsError: The file exists, such as by another process or thread at the same time.
    """
    draft = f"{path}.{get_native_id()}"
    with suppress(FileNotFoundError):
        os.unlink(draft)
    try:
        with open(createPrivate(draft), "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        # A link fails if the file exists; a rename would replace a faster process's file.
        os.link(draft, path)
    finally:
        # There is none if the directory is not writable, which is the error to raise then.
        with suppress(FileNotFoundError):
            os.unlink(draft)
    try:
        syncDirectory(os.path.dirname(path) or ".")
    except OSError:
        # Otherwise the next start would consider the file durable.
        os.unlink(path)
        raise


def makeDirectory(path: str, mode: int = 0o777) -> None:
    """
    Durably create a directory and its parents, unless they exist.

    @param path: An absolute path.
    @param mode: The mode of the directory; parents have the default mode.
    @raise OSError: The directory cannot be created, or the path is not a directory.
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
        # The next call would find the directory and assume it is durable.
        os.rmdir(path)
        raise


class StoreLocked(StoreError):
    """Another process has the store open."""


@define(eq=False)
class DirectoryLock:
    """
    An exclusive lock on C{DATA/lock}. The system releases it when this process and all processes
    that have inherited the descriptor have exited.

    @ivar descriptor: The locked file.
    """

    descriptor: int

    @classmethod
    def take(cls, directory: str) -> "DirectoryLock":
        """
        Lock a data directory.

        @param directory: An existing directory, in which the file C{lock} is created.
        @raise StoreLocked: Another process has it locked. The message is one line for an operator.
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
        """Return whether a process has locked a data directory. If not, this locks it briefly."""
        try:
            DirectoryLock.take(directory).release()
        except StoreLocked:
            return True
        return False

    def release(self) -> None:
        """Release the lock, unless another process has inherited it. Call once."""
        os.close(self.descriptor)
