"""
How one of several processes that serve one store is told of the others.

The memory is made once, by whoever starts the processes, and each of them has it by an inherited
descriptor; see L{storagegate.storage.sharedmemory} for what is in it.
"""

from collections.abc import Callable
from typing import Any

from attrs import frozen

MEMORY_SIZE = 8192 + 64 * 16384
"""Bytes: a page of what concerns all, a page of fields, and 16 KiB of counters for each process."""


@frozen
class Sharing:
    """
    One process's connection to the others that serve the same store.

    @ivar index: Which worker this is. The first one scrubs and catches up with garbage.
    @ivar count: How many workers there are.
    @ivar memory: Descriptor of L{memorySize} bytes, zeros when they were made, that all share.
    @ivar broadcast: Sends plain values under a topic to all the others. Some may not get them.
    @ivar subscribe: Calls a function with what the others send under a topic.
    """

    index: int
    count: int
    memory: int
    broadcast: Callable[[str, Any], object]
    subscribe: Callable[[str, Callable[[Any], object]], object]

    @staticmethod
    def memorySize() -> int:
        """Say how many bytes the shared memory of a store has."""
        return MEMORY_SIZE
