"""
Which of the processes that share some memory are there.

Each takes a number that nobody had before, and a lock on the byte of the shared descriptor that has
this number, which the kernel takes back when the process ends, however it ends. So a number that
was written down tells for all times whether its process is still there, which an id of a process
does not: those are used again, and a worker's place among the others is, too.
"""

from secrets import randbits

from storagegate.core.bytelocks import ByteLocks

# After the bytes that stand for buckets of a table, see storagegate.core.sharedtable.
_FIRST = 1 << 60


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
        self._locks = ByteLocks(fd)
        self.number = 0
        while not self.number:
            number = randbits(56) or 1
            if self._locks.tryLock(_FIRST + number):
                self.number = number

    def isThere(self, number: int) -> bool:
        """Tell whether the process of a number, perhaps this one, is there."""
        return number == self.number or not self._locks.isFree(_FIRST + number)

    def close(self) -> None:
        """Be gone."""
        self._locks.close()
