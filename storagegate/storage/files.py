"""
The file operations of the store.

Everything that the store does to the disk, the catalog's own file apart, goes through a L{Files}
that is handed in, so that a test can make the N-th operation fail.

Directories that survive a power cut.

One process a data directory.
"""

import fcntl
import os
from collections.abc import Sequence

from storagegate.net.transport import Buffer
from storagegate.storage.errors import StoreError


class Files:
    """
    The operating system's calls, one method each.

    Every method blocks and may run in a pool thread. Each raises L{OSError}.
    """

    def create(self, path: str) -> int:
        """Make a new file and return its descriptor for writing."""
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)

    def openForReading(self, path: str) -> int:
        """Open a file and return its descriptor for reading."""
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def write(self, fd: int, buffers: Sequence[Buffer]) -> int:
        """Write some of the buffers; return how many bytes went, which may be fewer than given."""
        return os.writev(fd, buffers)

    def read(self, fd: int, length: int, offset: int) -> bytes:
        """Read up to C{length} bytes from C{offset}; nothing is the end."""
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
        """Give a file a second name, which must be new."""
        os.link(source, target)

    def unlink(self, path: str) -> None:
        """Take a name away."""
        os.unlink(path)

    def makeDirectory(self, path: str) -> None:
        """Make a directory that only its owner may enter."""
        os.mkdir(path, 0o700)

    def names(self, path: str) -> list[str]:
        """List a directory, in no order."""
        return os.listdir(path)

    def size(self, fd: int) -> int:
        """Return the bytes in an open file."""
        return os.fstat(fd).st_size

    def sizeOf(self, path: str) -> int:
        """Return the bytes in a file."""
        return os.stat(path).st_size

    def dropCache(self, fd: int, offset: int, length: int) -> None:
        """Tell the kernel that these bytes will not be read again soon."""
        os.posix_fadvise(fd, offset, length, os.POSIX_FADV_DONTNEED)

    def space(self, path: str) -> tuple[int, int]:
        """Return the bytes that are free to us on a path's file system, and all of its bytes."""
        figures = os.statvfs(path)
        return figures.f_bavail * figures.f_frsize, figures.f_blocks * figures.f_frsize


def unlinkIfThere(files: Files, path: str) -> bool:
    """
    Take a name away, or say that it was not there. Blocks; may run in a pool thread.
    """
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


def makeDirectory(path: str, mode: int = 0o777) -> None:
    """
    Make a directory where there is none, and those above it, durably.

    @param path: An absolute path.
    @param mode: For the last one; those above have the usual mode.
    @raise OSError: If it cannot be made, or something else is there.
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


class StoreLocked(StoreError):
    """Another process has the store open."""


class DirectoryLock:
    """
    An exclusive lock on C{DATA/lock}, which the system takes back when the process ends, and every
    process that has inherited the descriptor.

    @ivar descriptor: What holds it.
    """

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor

    @classmethod
    def take(cls, directory: str) -> "DirectoryLock":
        """
        Lock a data directory.

        @raise StoreLocked: Somebody else has. One line that an operator can read.
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
        """Say whether somebody has a data directory locked."""
        try:
            DirectoryLock.take(directory).release()
        except StoreLocked:
            return True
        return False

    def release(self) -> None:
        """Give the lock back, unless another process has inherited it. Once."""
        os.close(self.descriptor)
