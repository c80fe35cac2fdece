"""
Which of the processes that share some memory are there.

Each takes a number that nobody had before, and a lock on the byte of the shared descriptor that has
this number, which the kernel takes back when the process ends, however it ends. So a number that
was written down tells for all times whether its process is still there, which an id of a process
does not: those are used again, and a worker's place among the others is, too.
"""

import fcntl
import os
from secrets import randbits
from struct import Struct

# After the bytes that stand for buckets of a table, see storagegate.core.sharedtable.
_FIRST = 1 << 60

# struct flock of Linux on machines with 64 bits: type, whence, start, length, process.
_FLOCK = Struct("@hhqqi4x")


class Presence:
    """
    One process, as the others see it.

    @ivar number: Its own number, never 0.
    """

    def __init__(self, fd: int) -> None:
        """
        Be there until L{close}, or the end of the process.

        @param fd: The shared descriptor.
        """
        # A lock of an open file rather than of the process, so that it does not go when somebody
        # closes another descriptor of it; hence an open file of our own.
        self._fd = os.open(f"/proc/self/fd/{fd}", os.O_RDWR | os.O_CLOEXEC)
        self.number = 0
        while not self.number:
            number = randbits(56) or 1
            if self._isFree(number):
                fcntl.fcntl(self._fd, fcntl.F_OFD_SETLK, _lock(number))
                self.number = number

    def isThere(self, number: int) -> bool:
        """Tell whether the process of a number, perhaps this one, is there."""
        return number == self.number or not self._isFree(number)

    def close(self) -> None:
        """Be gone."""
        os.close(self._fd)

    def _isFree(self, number: int) -> bool:
        found = fcntl.fcntl(self._fd, fcntl.F_OFD_GETLK, _lock(number))
        kind: int = _FLOCK.unpack(found)[0]
        return kind == fcntl.F_UNLCK


def _lock(number: int) -> bytes:
    return _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, _FIRST + number, 1, 0)
