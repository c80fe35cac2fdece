"""
The memory that the processes of one store share, and the claim of a slot in it.

::

    0       nonzero after an fsync has failed in any process
    8       the reason: 512 bytes of UTF-8, padded with zeros
    4096    eight fields, each with an 8-byte word per slot
    8192    per slot 8192 2-byte counters of the blobs that its readers have leased

Each process has a slot, and only it writes the words of that slot. It locks the slot until it
exits, so a slot that is marked as taken but can be locked was left by a dead process. The parent of
the processes creates the memory, and they inherit its descriptor.
"""

import mmap
from collections.abc import Callable
from typing import Any

from attrs import frozen

from storagegate.core.sharedtable import ByteLocks
from storagegate.storage.errors import StoreError

MEMORY_SIZE = 8192 + 64 * 16384
"""Size in bytes: a common page, a page of fields, and 16 KiB of counters per process."""


@frozen
class ProcessGroupConfig:
    """
    The connection of one process to the other processes that serve the same store.

    @ivar index: The index of this worker. The first worker scrubs and collects earlier garbage.
    @ivar count: The number of workers.
    @ivar memory: The descriptor of L{memorySize} shared bytes, initially zero.
    @ivar broadcast: Sends plain values under a topic to all other processes. Messages may be lost.
    @ivar subscribe: Calls a function with the values that other processes send under a topic.
    """

    index: int
    count: int
    memory: int
    broadcast: Callable[[str, Any], object]
    subscribe: Callable[[str, Callable[[Any], object]], object]

    @staticmethod
    def memorySize() -> int:
        """Return the size of a store's shared memory, in bytes."""
        return MEMORY_SIZE


SLOTS = 64
"""The most concurrent processes: enough for any machine, even while each is being replaced."""

COUNTERS = 8192
"""Counters of leased blobs. Blobs rarely share one."""

_REASON = slice(8, 520)
_FIELDS = 4096 // 8
_HELD = 8192

# Numbers of the fields.
TAKEN, STARTED, ENDED, HORIZON, WAITING, ACQUIRED, WRITTEN, OBSERVERS = range(8)

# The locked bytes of the file: the current writer, the next writer, a checkpoint, and one per slot.
WRITE_LOCK, NEXT_LOCK, CHECKPOINT_LOCK, _FIRST_SLOT = 0, 1, 2, 16


class StoreMemory:
    """
    The shared memory and the slot of this process.

    Methods may run in any thread, but two threads of a process must not write the same field
    concurrently.

    @ivar locks: The byte locks of the slots and the writers.
    @ivar slot: The slot of this process, after L{claim}.
    @ivar isOpen: Whether the memory is open.
    """

    def __init__(self, descriptor: int) -> None:
        """
        Map the memory.

        @param descriptor: The descriptor of the L{MEMORY_SIZE} bytes that all processes map.
        @raise StoreError: The descriptor cannot be mapped.
        """
        try:
            self.locks = ByteLocks(descriptor)
            self._map = mmap.mmap(self.locks.fd, MEMORY_SIZE)
        except (OSError, ValueError) as error:
            raise StoreError(f"cannot share the memory of the store: {error}") from error
        self._bytes = memoryview(self._map)
        self._words = self._bytes.cast("Q")
        self._counters = self._bytes[_HELD:].cast("H")
        self.slot = -1
        self.isOpen = True

    def claim(self) -> list[int]:
        """
        Claim L{slot}; return the slots left by dead processes.

        Those slots stay locked until L{clear}; L{slot} may be one of them.

        @raise StoreError: All slots are taken.
        """
        left = []
        for slot in range(SLOTS):
            if not self.locks.tryLock(_FIRST_SLOT + slot):
                continue
            if self.word(TAKEN, slot):
                left.append(slot)
            elif self.slot < 0:
                self.slot = slot
            else:
                self.locks.unlock(_FIRST_SLOT + slot)
        if self.slot < 0 and left:
            self.slot = left[0]
        if self.slot < 0:
            raise StoreError(f"more than {SLOTS} processes have the store open")
        self.put(TAKEN, 1)
        return left

    def clear(self, slot: int) -> None:
        """Free a slot that L{claim} returned, after all files of its process are removed."""
        # Its last commit may have changed the catalog, so other processes must clear their caches.
        self._words[_at(STARTED, slot)] += 1
        self._words[_at(ENDED, slot)] = self._words[_at(STARTED, slot)]
        for field in (HORIZON, WAITING, ACQUIRED, OBSERVERS):
            self._words[_at(field, slot)] = 0
        self._clearCounters(slot)
        if slot != self.slot:
            self._words[_at(TAKEN, slot)] = 0
            self.locks.unlock(_FIRST_SLOT + slot)

    def close(self, isClean: bool) -> None:
        """
        Free the slot and close the memory.

        @param isClean: Whether nothing is left for a successor to remove.
        """
        if self.slot >= 0:
            for field in (HORIZON, OBSERVERS):
                self.put(field, 0)
            if isClean:
                # A reader may hold its lease until the process exits; a successor would inherit it.
                self._clearCounters(self.slot)
                self.put(TAKEN, 0)
        self.isOpen = False
        for view in (self._counters, self._words, self._bytes):
            view.release()
        self._map.close()
        self.locks.close()

    def _clearCounters(self, slot: int) -> None:
        start, size = _HELD + slot * 2 * COUNTERS, 2 * COUNTERS
        self._map[start : start + size] = bytes(size)

    def word(self, field: int, slot: int) -> int:
        """Read a word of a slot."""
        value: int = self._words[_at(field, slot)]
        return value

    def put(self, field: int, value: int) -> None:
        """Write a word of this process's slot."""
        self._words[_at(field, self.slot)] = value

    def add(self, field: int, value: int = 1) -> None:
        """Add to a word of this process's slot."""
        self._words[_at(field, self.slot)] += value

    def field(self, field: int) -> bytes:
        """Read a field of all slots, as bytes to compare."""
        start = 8 * _at(field, 0)
        return self._map[start : start + 8 * SLOTS]

    def values(self, field: int) -> list[int]:
        """Read a field of all slots."""
        start = _at(field, 0)
        return self._words[start : start + SLOTS].tolist()

    def count(self, counter: int, value: int) -> None:
        """Add to a counter of this process's slot."""
        self._counters[self.slot * COUNTERS + counter] += value

    def isCounted(self, slot: int, counter: int) -> bool:
        """Return whether a counter of a slot is not zero."""
        return self._counters[slot * COUNTERS + counter] != 0

    def isAlive(self, slot: int) -> bool:
        """Return whether a process has this slot, which must not be this process's own."""
        return not self.locks.isFree(_FIRST_SLOT + slot)

    @property
    def failure(self) -> str | None:
        """Why no process may write, or L{None}; L{None} after L{close}."""
        if not self.isOpen or not self._words[0]:
            return None
        return self._map[_REASON].rstrip(b"\0").decode(errors="replace")

    def fail(self, reason: str) -> None:
        """Stop the writes of all processes. Only the first reason is kept."""
        if not self._words[0]:
            size = _REASON.stop - _REASON.start
            self._map[_REASON] = reason.encode()[:size].ljust(size, b"\0")
            self._words[0] = 1


def _at(field: int, slot: int) -> int:
    return _FIELDS + field * SLOTS + slot
