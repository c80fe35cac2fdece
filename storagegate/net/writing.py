"""Writing to the end what the system takes piecemeal."""

from collections.abc import Callable, Sequence

Buffer = bytes | bytearray | memoryview

_VECTOR = 1024
"""Buffers a C{writev}: Linux takes no more (C{IOV_MAX})."""


def writeAll(write: Callable[[Sequence[Buffer]], int], buffers: Sequence[Buffer]) -> None:
    """
    Write every byte of the buffers. May run in a thread.

    @param write: Writes some of the buffers; gives how many bytes went.
    """
    waiting = [memoryview(buffer) for buffer in buffers if buffer]
    while waiting:
        written = write(waiting[:_VECTOR])
        whole = 0
        while whole < len(waiting) and written >= len(waiting[whole]):
            written -= len(waiting[whole])
            whole += 1
        del waiting[:whole]
        if written:
            waiting[0] = waiting[0][written:]
