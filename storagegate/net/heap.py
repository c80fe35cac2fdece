"""
Returns the memory of a peak to the system.

The C allocator keeps freed blocks between blocks in use: after bodies of 9 MiB from 150 clients, a
process stayed at 1 GB. C{malloc_trim} releases the pages of such blocks.
"""

import ctypes
import os
from collections.abc import Callable
from typing import Any

TRIM_SECONDS = 10.0
"""Time between checks of the memory, each of which takes 20 microseconds."""

TRIM_BYTES = 32 * 1024 * 1024
"""Growth that justifies a trim, which takes a few milliseconds in a thread, may block other threads
that allocate, and makes the kernel zero pages on reuse."""

HASTE_SECONDS = 0.2
"""Between refusals for want of memory and the trim that follows: more refusals may come."""

_MAX_PAUSE = 32
"""Maximum number of checks between two trims that release nothing: five minutes."""

_PAGE = os.sysconf("SC_PAGESIZE")


def anonymousMemory() -> int:
    """Return the resident bytes of this process not backed by files; 0 if unknown."""
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

    A trim during a peak releases nothing, and memory freed later does not make the process grow. So
    the trim is repeated, after increasing pauses, while the process is that much larger than its
    minimum.
    """

    def __init__(
        self,
        reactor: Any,
        memory: Callable[[], int] = anonymousMemory,
        trim: Callable[[], object] = trimHeap,
    ) -> None:
        """
        @param reactor: Provides time and threads.
        @param memory: Returns the size of the process in bytes.
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
        """Check the memory periodically until the reactor stops."""
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
