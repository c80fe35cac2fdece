"""One process a data directory."""

import fcntl
import os

from storagegate.storage.errors import StoreError


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
