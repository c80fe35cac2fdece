"""
Gives the memory of a peak back to the system.

The allocator of C keeps freed blocks between blocks that are still in use: after bodies of 9 MiB
from 150 clients a process stayed at 1 GB. C{malloc_trim} gives the pages of such blocks back.
"""

import ctypes
import os
from collections.abc import Callable
from typing import Any

TRIM_SECONDS = 10.0
"""Between two looks at the memory, which take 20 microseconds."""

TRIM_BYTES = 32 * 1024 * 1024
"""Growth that is worth a trim: some milliseconds of a thread, in which others that allocate may
wait, and pages that have to be zeroed when they are used again."""

HASTE_SECONDS = 0.2
"""Between refusals for want of memory and the trim that follows: more refusals may come."""

_MAX_PAUSE = 32
"""Looks between two trims that give nothing back: five minutes."""

_PAGE = os.sysconf("SC_PAGESIZE")


def anonymousMemory() -> int:
    """Return the resident bytes of this process that are not of files; 0 if that is not known."""
    try:
        with open("/proc/self/statm", "rb") as file:
            _size, resident, shared = map(int, file.read().split()[:3])
    except OSError:
        return 0
    return (resident - shared) * _PAGE


def trimHeap() -> None:
    """Return freed pages to the system. May run in a thread; does nothing with some C libraries."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


class HeapTrimmer:
    """
    Trims the heap in a thread when the process has grown by L{TRIM_BYTES} since the last time.

    A trim in the middle of a peak gives nothing back, and what is freed later does not make the
    process grow. So it is repeated, after longer and longer pauses, while the process has so much
    more than it once had.
    """

    def __init__(
        self,
        reactor: Any,
        memory: Callable[[], int] = anonymousMemory,
        trim: Callable[[], object] = trimHeap,
    ) -> None:
        """
        @param reactor: Provides time and threads.
        @param memory: Returns the bytes that the process has.
        @param trim: Called in a thread.
        """
        self._reactor = reactor
        self._memory = memory
        self._trim = trim
        self._timer: Any = None
        self._isHasty = False
        self._least = self._left = 0
        self._waited = 0
        self._pause = 1

    def start(self) -> None:
        """Begin to look, until the reactor stops."""
        self._least = self._left = self._memory()
        self._wait()

    def hasten(self) -> None:
        """Trim soon: much memory was freed, and more is used at once."""
        if not self._isHasty:
            self._isHasty = True
            if self._timer is not None:
                self._timer.reset(
                    min(HASTE_SECONDS, self._timer.getTime() - self._reactor.seconds())
                )

    def _wait(self) -> None:
        seconds = HASTE_SECONDS if self._isHasty else TRIM_SECONDS
        self._timer = self._reactor.callLater(seconds, self._look)

    def _look(self) -> None:
        self._timer = None
        isHasty, self._isHasty = self._isHasty, False
        found = self._memory()
        self._least = min(self._least, found)
        self._left = min(self._left, found)
        self._waited += 1
        hasGrown = found - self._left >= TRIM_BYTES
        if (
            isHasty
            or hasGrown
            or (found - self._least >= TRIM_BYTES and self._waited >= self._pause)
        ):
            self._waited = 0
            self._reactor.callInThread(self._run, found)
        else:
            self._wait()

    def _run(self, before: int) -> None:
        self._trim()
        self._reactor.callFromThread(self._trimmed, before)

    def _trimmed(self, before: int) -> None:
        self._left = self._memory()
        isWorthIt = before - self._left >= TRIM_BYTES // 4
        self._pause = 1 if isWorthIt else min(2 * self._pause, _MAX_PAUSE)
        self._wait()
