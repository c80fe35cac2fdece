"""
Asynchronous communication within a process: a bounded stream from one producer to one consumer,
publish-subscribe over such streams, a value that is set once, and a call's stream of requests,
whose first error ends the call.

All of it runs in the reactor thread.
"""

from collections import deque
from collections.abc import AsyncIterable, Awaitable, Callable, Generator, Iterable
from inspect import isasyncgen
from types import coroutine
from typing import Any, Generic, Protocol, Self, TypeVar, cast

from attrs import define, field, frozen
from twisted.internet.defer import CancelledError, Deferred, fail, succeed
from twisted.internet.interfaces import IPushProducer

from storagegate.core.errors import codedError, untraced

MAX_ITEMS = 1_024
"""
The number of items buffered for one consumer: seconds of a busy chat, and a few megabytes at most.
"""

LOW_ITEMS = 64
"""With this many items buffered, a producer that can wait should: see L{BoundedStream.drained}."""

T = TypeVar("T")


@define(eq=False)
class BoundedStream(Generic[T]):
    """
    A queue of bounded size between one producer and one consumer.

    A producer that can be paused is paused once C{capacity} is reached. Without one, an item beyond
    C{capacity} ends the stream with C{RATE_LIMITED}, so that a slow consumer never delays others.

    @ivar _capacity: The size at which the producer is paused, or the stream overflows.
    @ivar _producer: Paused at C{capacity}; resumed each time the consumer begins to wait, even if
        it was not paused, and below C{resumeBelow}. It may put items from C{resumeProducing}.
    @ivar _sizeOf: Returns the size of an item, in the unit of C{capacity}. By default each item
        counts as 1.
    @ivar _resumeBelow: A paused producer is resumed when less than this is held; with 0, only when
        the consumer waits.
    @ivar held: Size of the items that wait for the consumer.
    @ivar isEnded: Whether further items are dropped; held items may still wait for the consumer.
    @ivar error: The error at the end; C{None} for a regular end.
    """

    _capacity: int = MAX_ITEMS
    _producer: IPushProducer | None = None
    _sizeOf: Callable[[T], int] | None = field(default=None, kw_only=True)
    _resumeBelow: int = field(default=0, kw_only=True)
    held: int = field(default=0, init=False)
    isEnded: bool = field(default=False, init=False)
    error: BaseException | None = field(default=None, init=False)
    _items: deque[T] = field(factory=deque, init=False)
    _isPaused: bool = field(default=False, init=False)
    _consumer: Deferred[None] | None = field(default=None, init=False)
    _drained: Deferred[None] | None = field(default=None, init=False)
    _drainedBelow: int = field(default=0, init=False)

    # For the producer

    def put(self, item: T, last: bool = False) -> None:
        """
        Add an item. Does nothing after the end.

        @param last: Also end the stream; the consumer sees both at once.
        """
        if self.isEnded:
            return
        producer = self._producer
        if producer is None and self.held >= self._capacity:
            message = f"{self._capacity} messages were waiting to be read"
            self.fail(codedError("RATE_LIMITED", message))
            return
        self._items.append(item)
        self.held += 1 if self._sizeOf is None else self._sizeOf(item)
        if last:
            self.end()
            return
        waiting, self._consumer = self._consumer, None
        if waiting is not None:
            waiting.callback(None)
        if producer is not None and self.held >= self._capacity and not self._isPaused:
            self._isPaused = True
            producer.pauseProducing()

    def end(self, error: BaseException | None = None) -> None:
        """
        End the stream after the held items. Only the first end counts.

        @param error: Raised in the consumer, after the items.
        """
        if not self.isEnded:
            self.isEnded = True
            self.error = error
            # The producer often references the stream: this breaks the cycle.
            self._producer = None
            waiting, self._consumer = self._consumer, None
            if waiting is not None:
                waiting.callback(None)
            self._wakeDrained()

    def fail(self, error: BaseException) -> None:
        """
        End the stream with an error at once, and drop the held items.

        @param error: Raised in the consumer at its next read.
        """
        if not self.isEnded:
            self._items.clear()
            self.held = 0
            self.end(error)

    def abandon(self, error: BaseException) -> None:
        """
        Drop the held items, which are no longer needed.

        @param error: Raised in a consumer at each read from now on, unless the stream has ended and
            was read completely.
        """
        if self.isEnded and self._items:
            self._items.clear()
            self.held = 0
            self.error = error
        else:
            self.fail(error)

    async def drained(self, below: int = LOW_ITEMS) -> None:
        """
        Wait until less than C{below} is held, or the stream has ended. Only one caller may wait at
        a time.
        """
        while self.held >= below and not self.isEnded:
            self._drainedBelow = below
            self._drained = Deferred()
            await self._drained

    # For the consumer

    async def get(self) -> T | None:
        """
        Wait for the next item.

        @return: The item; C{None} at the end.
        @raise RuntimeError: If the stream is being read already.
        """
        while not self._items:
            if self.isEnded:
                if self.error is not None:
                    raise untraced(self.error)
                return None
            await self.readable()
        item = self._items.popleft()
        self.held -= 1 if self._sizeOf is None else self._sizeOf(item)
        if self._isPaused or self._drained is not None:
            self._released()
        return item

    async def getAll(self) -> list[T]:
        """
        Wait for an item.

        @return: All held items; an empty list at the end.
        @raise RuntimeError: If the stream is being read already.
        """
        while not self._items:
            if self.isEnded:
                if self.error is not None:
                    raise untraced(self.error)
                return []
            await self.readable()
        return self.takeAll()

    def takeAll(self) -> list[T]:
        """Return the held items without waiting."""
        items = list(self._items)
        self._items.clear()
        self.held = 0
        if self._isPaused or self._drained is not None:
            self._released()
        return items

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> T:
        item = await self.get()
        if item is None:
            raise StopAsyncIteration
        return item

    def readable(self) -> Deferred[None]:
        """
        Wait for an item or the end. Call it only while nothing is held.

        @raise RuntimeError: If the stream is being read already.
        """
        if self._consumer is not None:
            raise RuntimeError("a stream can have only one consumer")
        waiting = self._consumer = Deferred(self._forgetConsumer)
        if self._producer is not None:
            self._isPaused = False
            self._producer.resumeProducing()
        return waiting

    def _forgetConsumer(self, waiting: Deferred[None]) -> None:
        self._consumer = None

    def _released(self) -> None:
        """Resume the producer if enough has been taken."""
        if self._isPaused and self.held < self._resumeBelow and self._producer is not None:
            self._isPaused = False
            self._producer.resumeProducing()
        if self.held < self._drainedBelow:
            self._wakeDrained()

    def _wakeDrained(self) -> None:
        # A cancelled Deferred ignores its result.
        waiting, self._drained = self._drained, None
        if waiting is not None:
            waiting.callback(None)


class Bus(Protocol):
    """Connects the processes of one service. Delivery is not guaranteed."""

    def broadcast(self, topic: str, payload: Any) -> None:
        """
        Send to every other process.

        @param topic: Only subscribers of the same topic are called.
        @param payload: Any JSON value.
        """

    def subscribe(self, topic: str, callback: Callable[[Any], object]) -> None:
        """Call a function with each payload that another process broadcasts, in its order."""


class PubSub:
    """
    Publish-subscribe within a process, or between processes over a bus.

    Messages of one process arrive everywhere in the order of publication; concurrent messages of
    two processes arrive in either order. The stream of a subscriber that does not read ends with an
    error, see L{BoundedStream}.
    """

    def __init__(self, bus: Bus | None = None, name: str = "") -> None:
        """
        @param bus: Carries messages to the other processes; C{None} for this process alone.
        @param name: Distinguishes these topics from others on the bus.
        """
        self._bus = bus
        self._name = name
        if bus is not None:
            bus.subscribe(name, lambda payload: self._deliver(*payload))
        self._streams: dict[str, dict[BoundedStream[Any], Callable[[Any], bool] | None]] = {}

    def __len__(self) -> int:
        return sum(len(streams) for streams in self._streams.values())

    def subscribe(
        self, topic: str, wants: Callable[[Any], bool] | None = None
    ) -> BoundedStream[Any]:
        """
        Subscribe to a topic.

        @param topic: Any text; a topic exists while it has subscribers.
        @param wants: Whether a message is for this subscriber; C{None} for all messages.
        @return: The stream of messages. End it with L{unsubscribe}.
        """
        stream: BoundedStream[Any] = BoundedStream()
        self._streams.setdefault(topic, {})[stream] = wants
        return stream

    def unsubscribe(self, topic: str, stream: BoundedStream[Any]) -> None:
        """End a subscription."""
        streams = self._streams[topic]
        streams.pop(stream, None)
        if not streams:
            del self._streams[topic]
        stream.end()

    def publish(self, topic: str, items: Iterable[Any]) -> None:
        """Publish messages to a topic, in all processes."""
        messages = list(items)
        if messages:
            self._broadcast(topic, messages)
            self._deliver(topic, messages)

    def close(self, topic: str) -> None:
        """End every subscription to a topic, in all processes."""
        self._broadcast(topic, None)
        self._deliver(topic, None)

    def fail(self, makeError: Callable[[], BaseException]) -> None:
        """
        End every subscription of this process with an error.

        @param makeError: Makes an error for each subscriber.
        """
        for streams in tuple(self._streams.values()):
            for stream in tuple(streams):
                stream.fail(makeError())

    def _broadcast(self, topic: str, messages: list[Any] | None) -> None:
        # Before the local delivery: a subscriber may publish a reply at once, which must not
        # overtake the message on the bus.
        if self._bus is not None:
            self._bus.broadcast(self._name, [topic, messages])

    def _deliver(self, topic: str, messages: list[Any] | None) -> None:
        """Deliver messages to the local subscribers; C{None} ends their streams."""
        # A subscriber may unsubscribe during the loop.
        for stream, wants in tuple(self._streams.get(topic, {}).items()):
            if messages is None:
                stream.end()
                continue
            for message in messages:
                if wants is None or wants(message):
                    stream.put(message)


class SharedFuture(Generic[T]):
    """
    A value or error that is set once and can be awaited any number of times.

    Unlike a Deferred, it does not log an error that is never awaited.

    @ivar isKnown: Whether the value or the error is set.
    """

    __slots__ = ("_error", "_value", "_waiting", "isKnown")

    def __init__(self) -> None:
        self.isKnown = False
        self._value: T | None = None
        self._error: BaseException | None = None
        self._waiting: list[Deferred[T]] = []

    def set(self, value: T) -> None:
        """Set the value. Only the first call of this or L{fail} counts."""
        if not self.isKnown:
            self.isKnown, self._value = True, value
            waiting, self._waiting = self._waiting, []
            for each in waiting:
                each.callback(value)

    def fail(self, error: BaseException) -> None:
        """Set the error. Only the first call of this or L{set} counts."""
        if not self.isKnown:
            self.isKnown, self._error = True, error
            waiting, self._waiting = self._waiting, []
            for each in waiting:
                each.errback(untraced(error))

    def wait(self, cancel: Callable[[], object] | None = None) -> Deferred[T]:
        """
        Wait for the value.

        @param cancel: Called if the Deferred is cancelled.
        """
        if self._error is not None:
            return fail(untraced(self._error))
        if self.isKnown:
            return succeed(cast(T, self._value))

        def cancelled(deferred: Deferred[Any]) -> None:
            if deferred in self._waiting:
                self._waiting.remove(deferred)
            if cancel is not None:
                cancel()

        waiting: Deferred[T] = Deferred(cancelled)
        self._waiting.append(waiting)
        return waiting


class RequestsLost(CancelledError):
    """
    A stream of requests broke off: the call was cancelled, its client disconnected, or its deadline
    passed.
    """


class ReadAfterLoss(BaseException):
    """
    A stream of requests is read again after it was lost.

    Not an C{Exception}: a loop that catches exceptions around each item would never end, or take
    the loss for a regular end. Error conversion treats it as a C{CancelledError}.
    """

    name = "CancelledError"


class GuardedRequests:
    """
    Validates the requests of a call, and ends the call with the first error in them.

    The error may be a schema violation or an error of the transport. A handler that catches it is
    cancelled at its next await; its later results are dropped. Later reads, in the handler or
    elsewhere, raise L{ReadAfterLoss}, never a regular end.
    """

    __slots__ = ("_check", "_error", "_isLost", "_isReading", "_requests")

    def __init__(
        self, requests: AsyncIterable[Any], check: Callable[[Any], Any] | None = None
    ) -> None:
        """
        @param check: Returns the request that the handler reads, or raises; C{None} for any.
        """
        self._requests: Any = aiter(requests)
        self._check = check
        self._error: Exception | None = None
        self._isLost = self._isReading = False

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Any:
        if self._isLost:
            raise ReadAfterLoss("the stream of requests broke off")
        if self._isReading:
            raise RuntimeError("a stream can have only one consumer")
        self._isReading = True
        try:
            request = await self._requests.__anext__()
            return request if self._check is None else self._check(request)
        except StopAsyncIteration:
            raise
        except CancelledError as error:
            # Otherwise the handler stopped waiting for this request, perhaps after a timeout. It
            # may read on, unless the cancellation has ended a generator.
            self._isLost = isinstance(error, RequestsLost) or isasyncgen(self._requests)
            raise
        except Exception as error:
            self._isLost = True
            self._error = error
            raise
        finally:
            self._isReading = False

    async def aclose(self) -> None:
        """Close the stream of requests."""
        close = getattr(self._requests, "aclose", None)
        if close is not None:
            await close()

    @coroutine
    def guard(self, step: Awaitable[Any]) -> Generator[Any, Any, Any]:
        """
        Await a step of the handler.

        @param step: An awaitable that awaits only Deferreds, as everything in a call does.
        @raise Exception: The error of the requests, if one was read.
        """
        steps = step.__await__()
        isCancelled = False
        thrown: BaseException | None = None
        result = None
        try:
            while True:
                try:
                    awaited = steps.send(None) if thrown is None else steps.throw(thrown)
                finally:
                    thrown = None
                if self._error is not None and not isCancelled:
                    isCancelled = True
                    awaited.cancel()
                try:
                    yield awaited
                except BaseException as error:
                    thrown = error
        except StopIteration as end:
            result = end.value
        except GeneratorExit:
            raise
        except BaseException:
            if self._error is None:
                raise
        # Not kept, because its traceback references this object.
        found, self._error = self._error, None
        if found is None:
            return result
        try:
            raise found
        finally:
            del found

    def guardResults(self, results: Any) -> "_GuardedResults":
        """
        Return the handler's results, guarded by this stream.

        @param results: An asynchronous generator.
        """
        return _GuardedResults(self, results)


@frozen
class _GuardedResults:
    """
    An asynchronous iterator whose steps are guarded.

    It is not a generator, which would take another microsecond an item.
    """

    _stream: GuardedRequests
    _results: Any

    def __aiter__(self) -> Self:
        return self

    def __anext__(self) -> Awaitable[Any]:
        return self._stream.guard(anext(self._results))

    def aclose(self) -> Awaitable[None]:
        """Close the results."""
        closing: Awaitable[None] = self._results.aclose()
        return closing
