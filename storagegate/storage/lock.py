"""One process a data directory."""

import fcntl
import os

from storagegate.storage.errors import StoreError


class StoreLocked(StoreError):
    """Another process has the store open."""


class DirectoryLock:
    """An exclusive lock on C{DATA/lock}, which the system takes back when the process ends."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

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

    def release(self) -> None:
        """Give the lock back. Once."""
        os.close(self._fd)
