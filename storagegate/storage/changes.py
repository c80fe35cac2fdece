"""What observers of the store are told of the commits of other processes."""

from collections.abc import Callable
from typing import Any

import msgspec
from attrs import evolve
from twisted.internet.interfaces import IDelayedCall, IReactorTime

from storagegate.storage.records import Content, ObjectChange
from storagegate.storage.sharedmemory import WATCHES, StoreMemory
from storagegate.storage.sharing import Sharing

_TOPIC = "store.changes"

_AT_ONCE = 100
"""Changes in one message: half a megabyte where all the metadata of all is as long as it may be."""

Observer = Callable[[ObjectChange], None]


class Observers(list[Observer]):
    """The observers of one process, whose number the others know. Reactor thread."""

    def __init__(self, memory: StoreMemory) -> None:
        super().__init__()
        self._memory = memory

    def append(self, observer: Observer) -> None:
        """Tell one more."""
        super().append(observer)
        self._memory.put(WATCHES, len(self))

    def remove(self, observer: Observer) -> None:
        """Tell one no more."""
        super().remove(observer)
        self._memory.put(WATCHES, len(self))


class ChangeRelay:
    """
    Takes changes to other processes, in order, and theirs to ours. Reactor thread.

    @param tell: Tells the observers of this process.
    """

    def __init__(
        self,
        sharing: Sharing,
        memory: StoreMemory,
        clock: IReactorTime,
        tell: Callable[[ObjectChange], None],
    ) -> None:
        self._broadcast = sharing.broadcast
        self._memory = memory
        self._clock = clock
        self._tell = tell
        self._gathered: list[Any] = []
        self._sending: IDelayedCall | None = None
        sharing.subscribe(_TOPIC, self._receive)

    @property
    def isWanted(self) -> bool:
        """Whether anybody in another process wants to know of changes."""
        return sum(self._memory.values(WATCHES)) > self._memory.word(WATCHES, self._memory.slot)

    def send(self, change: ObjectChange) -> None:
        """Tell the others of a change, with those of the same turn. They get no bytes of it."""
        if change.record is not None:
            record = evolve(change.record, content=Content(change.record.size))
            change = evolve(change, record=record)
        self._gathered.append(msgspec.to_builtins(change))
        if self._sending is None:
            self._sending = self._clock.callLater(0, self._flush)

    def close(self) -> None:
        """Send what waits."""
        if self._sending is not None:
            self._sending.cancel()
            self._flush()

    def _flush(self) -> None:
        self._sending = None
        gathered, self._gathered = self._gathered, []
        for start in range(0, len(gathered), _AT_ONCE):
            self._broadcast(_TOPIC, gathered[start : start + _AT_ONCE])

    def _receive(self, payload: Any) -> None:
        for change in msgspec.convert(payload, list[ObjectChange]):
            self._tell(change)
