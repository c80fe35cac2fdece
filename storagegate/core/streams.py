"""
Messages from some calls to others, none of which waits for another.

A L{BoundedStream} belongs to one call that gives out what comes. Nobody who sends waits for
whoever reads
slowly: when a mailbox is full, its own call ends with C{RATE_LIMITED}, and what waited is let go.

Where several processes serve, L{PubSub} pass on to the others what they are told. What one process
says arrives everywhere in the order in which it was said; what two say at one time, in either.

A value that comes later, for any number of those who want it.
"""

from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, Generic, Protocol, TypeVar, cast

from twisted.internet.defer import Deferred, fail, succeed

from storagegate.core.errors import codedError

ROOM = 1_024
"""Messages that wait for one reader: some seconds of a lively chat, and at most a few megabytes."""

_EAGER = 64
"""Where so many wait, the owner should rather read than say more."""


class BoundedStream:
    """
    Messages on their way to one reader. Reactor thread.

    @ivar isOver: Whether nothing is added any more.
    """

    def __init__(self, room: int = ROOM) -> None:
        self._limit = room
        self._items: deque[Any] = deque()
        self._reader: Deferred[None] | None = None
        self._sender: Deferred[None] | None = None
        self.isOver = False
        self._error: BaseException | None = None

    def put(self, item: Any) -> None:
        """Add a message; where there is no room, end instead. Nothing happens after an end."""
        if self.isOver:
            return
        if len(self._items) >= self._limit:
            self._items.clear()
            message = f"{self._limit} messages were waiting to be read"
            self.end(codedError("RATE_LIMITED", message))
            return
        self._items.append(item)
        self._wake()

    def end(self, error: BaseException | None = None) -> None:
        """
        Let nothing follow what waits.

        @param error: What the reader gets in the end.
        """
        if not self.isOver:
            self.isOver = True
            self._error = error
            self._wake()
            self._makeRoom()

    async def get(self) -> Any:
        """
        Wait for the next message; one reader at a time.

        @return: It, or C{None} at the end.
        """
        while not self._items and not self.isOver:
            self._reader = Deferred()
            await self._reader
        if self._items:
            item = self._items.popleft()
            if len(self._items) < _EAGER:
                self._makeRoom()
            return item
        if self._error is not None:
            raise self._error
        return None

    async def untilRead(self) -> None:
        """Wait until few messages wait, or none follow; one waits at a time."""
        while len(self._items) >= _EAGER and not self.isOver:
            self._sender = Deferred()
            await self._sender

    def _wake(self) -> None:
        # One that was cancelled takes its result and drops it.
        reader, self._reader = self._reader, None
        if reader is not None:
            reader.callback(None)

    def _makeRoom(self) -> None:
        sender, self._sender = self._sender, None
        if sender is not None:
            sender.callback(None)


class Bus(Protocol):
    """What connects the processes that serve together. What is said may not reach everybody."""

    def broadcast(self, topic: str, payload: Any) -> None:
        """Tell every other process something that JSON can carry."""

    def subscribe(self, topic: str, callback: Callable[[Any], object]) -> None:
        """Have a function called with what the others say of a topic, in their order."""


class PubSub:
    """Who is told of what. Reactor thread."""

    def __init__(self, bus: Bus | None = None, name: str = "") -> None:
        """
        @param bus: What brings it to the other processes; C{None} for this process alone.
        @param name: Tells these topics from others on the bus.
        """
        self._bus = bus
        self._name = name
        if bus is not None:
            bus.subscribe(name, self._heard)
        self._boxes: dict[str, dict[BoundedStream, Callable[[Any], bool] | None]] = {}

    def __len__(self) -> int:
        return sum(len(boxes) for boxes in self._boxes.values())

    def join(self, topic: str, wants: Callable[[Any], bool] | None = None) -> BoundedStream:
        """
        Give a mailbox for what is said of a topic from now on; it has to L{leave} again.

        @param wants: Tells whether a message is for it; C{None} for all that there are.
        """
        box = BoundedStream()
        self._boxes.setdefault(topic, {})[box] = wants
        return box

    def leave(self, topic: str, box: BoundedStream) -> None:
        """Take a mailbox out."""
        boxes = self._boxes[topic]
        boxes.pop(box, None)
        if not boxes:
            del self._boxes[topic]
        box.end()

    def tell(self, topic: str, items: Iterable[Any]) -> None:
        """Tell everybody who has joined."""
        told = list(items)
        if told:
            self._pass(topic, told)
            self._deliver(topic, told)

    def close(self, topic: str) -> None:
        """End a topic: whoever has joined is told nothing more of it."""
        self._pass(topic, None)
        self._end(topic)

    def _pass(self, topic: str, told: list[Any] | None) -> None:
        # Before anybody here hears of it: who answers at once must not be heard first elsewhere.
        if self._bus is not None:
            self._bus.broadcast(self._name, [topic, told])

    def _heard(self, payload: Any) -> None:
        topic, told = payload
        if told is None:
            self._end(topic)
        else:
            self._deliver(topic, told)

    def _deliver(self, topic: str, told: list[Any]) -> None:
        for box, wants in tuple(self._boxes.get(topic, {}).items()):
            for item in told:
                if wants is None or wants(item):
                    box.put(item)

    def _end(self, topic: str) -> None:
        # Whoever hears of it leaves at once.
        for box in tuple(self._boxes.get(topic, ())):
            box.end()


T = TypeVar("T")


class SharedFuture(Generic[T]):
    """
    Something that is known at some time, and stays so.

    In contrast to a Deferred it can be waited for again and again, and nobody has to take its
    error.
    """

    __slots__ = ("_error", "_isKnown", "_value", "_waiting")

    def __init__(self) -> None:
        self._isKnown = False
        self._value: T | None = None
        self._error: BaseException | None = None
        self._waiting: list[Deferred[T]] = []

    @property
    def isKnown(self) -> bool:
        """Tell whether it is there, or has failed."""
        return self._isKnown

    def set(self, value: T) -> None:
        """Give the value; only the first one counts."""
        if not self._isKnown:
            self._isKnown, self._value = True, value
            for waiting in self._release():
                waiting.callback(value)

    def fail(self, error: BaseException) -> None:
        """Give the error in place of a value; only the first one counts."""
        if not self._isKnown:
            self._isKnown, self._error = True, error
            for waiting in self._release():
                waiting.errback(error)

    def _release(self) -> list[Deferred[T]]:
        waiting, self._waiting = self._waiting, []
        return waiting

    def wait(self, cancel: Callable[[], object] | None = None) -> Deferred[T]:
        """
        Wait for it.

        @param cancel: Called if whoever waits cancels that.
        """
        if self._error is not None:
            return fail(self._error)
        if self._isKnown:
            return succeed(cast(T, self._value))

        def cancelled(deferred: Deferred[Any]) -> None:
            if deferred in self._waiting:
                self._waiting.remove(deferred)
            if cancel is not None:
                cancel()

        waiting: Deferred[T] = Deferred(cancelled)
        self._waiting.append(waiting)
        return waiting
