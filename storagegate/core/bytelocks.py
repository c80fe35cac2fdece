"""
Locks on the bytes of a file, or of memory with a descriptor, that processes share.

They are locks of an open file (fcntl(2), C{F_OFD_SETLK}) and not of a process: they do not go when
somebody closes another descriptor of the file, and the kernel takes them back at any death of those
who have it open. A byte needs not exist to be locked.
"""

import fcntl
import os
from struct import Struct

# struct flock of Linux on machines with 64 bits: type, whence, start, length, process.
_FLOCK = Struct("@hhqqi4x")


class ByteLocks:
    """
    The locks of one process, which an inherited descriptor would share with whoever else has it.

    @ivar fd: The same file, opened anew: it has the locks.
    """

    def __init__(self, fd: int) -> None:
        """
        Open the file once more, until L{close}.

        @param fd: The shared descriptor.
        @raise OSError: There is none.
        """
        self.fd = os.open(f"/proc/self/fd/{fd}", os.O_RDWR | os.O_CLOEXEC)

    def tryLock(self, byte: int) -> bool:
        """Lock a byte, if nobody else has it locked."""
        try:
            self._control(fcntl.F_OFD_SETLK, fcntl.F_WRLCK, byte)
        except BlockingIOError:
            return False
        return True

    def lock(self, byte: int) -> None:
        """Lock a byte. Blocks."""
        self._control(fcntl.F_OFD_SETLKW, fcntl.F_WRLCK, byte)

    def unlock(self, byte: int) -> None:
        """Give a lock back."""
        self._control(fcntl.F_OFD_SETLK, fcntl.F_UNLCK, byte)

    def isFree(self, byte: int) -> bool:
        """Tell whether nobody else has a byte locked."""
        found = self._control(fcntl.F_OFD_GETLK, fcntl.F_WRLCK, byte)
        kind: int = _FLOCK.unpack(found)[0]
        return kind == fcntl.F_UNLCK

    def close(self) -> None:
        """Give all locks back."""
        os.close(self.fd)

    def _control(self, command: int, kind: int, byte: int) -> bytes:
        return fcntl.fcntl(self.fd, command, _FLOCK.pack(kind, os.SEEK_SET, byte, 1, 0))
