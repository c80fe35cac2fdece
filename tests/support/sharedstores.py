"""Shared memory of a store for tests in one process; each worker is an object."""

import os
from typing import Any

from storagegate.storage.embedded.sharedmemory import ProcessGroupConfig, StoreMemory


def sharedDescriptor(case: Any) -> int:
    """Create the shared memory, as the parent of workers does."""
    descriptor = os.memfd_create("store")
    case.addCleanup(os.close, descriptor)
    os.ftruncate(descriptor, ProcessGroupConfig.memorySize())
    return descriptor


def joined(case: Any, descriptor: int) -> StoreMemory:
    """Join the memory with a slot, until the test ends."""
    memory = StoreMemory(descriptor)
    memory.claim()
    case.addCleanup(lambda: memory.isOpen and memory.close(isClean=True))
    return memory


class Post:
    """
    Delivers messages between workers immediately.

    @ivar sent: The sent topics and payloads, in order.
    """

    def __init__(self) -> None:
        self.sent: list[tuple[str, Any]] = []
        self._listeners: list[tuple[int, str, Any]] = []

    def sharing(self, index: int, descriptor: int) -> ProcessGroupConfig:
        """Make the end of one worker."""

        def broadcast(topic: str, payload: Any) -> None:
            self.sent.append((topic, payload))
            for owner, wanted, listener in list(self._listeners):
                if owner != index and wanted == topic:
                    listener(payload)

        return ProcessGroupConfig(
            index,
            2,
            descriptor,
            broadcast,
            lambda topic, listener: self._listeners.append((index, topic, listener)),
        )
