"""
The calls of one peer on a wire of messages: WebSocket, TCP, and UDP by address.

A wire reads its messages and says what they are (L{Session.request}, L{Session.item},
L{Session.itemsEnd}, L{Session.cancel}); the session runs the calls and writes through the wire's
L{Peer}. Calls with an C{id} run side by side and are answered as they are ready. Those without one
are answered in order, so each begins when the one before it has ended.
"""

from collections import deque
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Mapping
from typing import Any

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.task import deferLater
from twisted.logger import Logger
from twisted.python.failure import Failure

from storagegate.core.calltask import endedEarly, runCall
from storagegate.core.context import RequestContext
from storagegate.core.errors import ServiceError, asServiceError, codedError
from storagegate.core.tracing import newTracing, parseTraceparent
from storagegate.gateway.messagefields import (
    MAX_DEADLINE_MS,
    readCredentials,
    readDeadline,
    readId,
)
from storagegate.gateway.peers import (
    CALLS_OF_A_LISTENER,
    NO_HEADERS,
    Listener,
    Peer,
    StreamHooks,
)
from storagegate.gateway.shapes import MessageId

__all__ = [
    "CALLS_OF_A_CONNECTION",
    "CALLS_OF_A_LISTENER",
    "ITEMS_AHEAD",
    "ITEMS_OF_A_TURN",
    "MAX_DEADLINE_MS",
    "Listener",
    "MessageId",
    "Peer",
    "Session",
    "StreamHooks",
    "readCredentials",
    "readDeadline",
    "readId",
]

CALLS_OF_A_CONNECTION = 128
"""Calls in flight of one peer: more than a busy client has, and few enough to hold in memory."""

ITEMS_AHEAD = 8
"""Items of a client's stream that are held before its handler asks for them."""

ITEMS_OF_A_TURN = 64
"""Items of a stream that are sent one after the other before anybody else has a turn: about two
milliseconds of small ones. A handler that never waits would keep the reactor for itself."""

_log = Logger()


class Session:
    """The calls of one peer."""

    def __init__(
        self,
        listener: Listener,
        peer: Peer,
        maxCalls: int = CALLS_OF_A_CONNECTION,
        headers: Mapping[str, str] = NO_HEADERS,
        streamHooks: StreamHooks | None = None,
    ) -> None:
        """
        @param headers: What the peer said once for all its calls, names in lower case.
        """
        self._listener = listener
        self._peer = peer
        self._headers = headers
        self._streamHooks = streamHooks
        self._maxCalls = maxCalls
        self._calls: dict[MessageId, _Call] = {}
        # Calls without an id that wait for the one before them.
        self._waiting: deque[_Call] = deque()
        self._isReading = True
        self._isClosed = self._isStarting = False
        self._idle: list[Deferred[None]] = []

    @property
    def active(self) -> int:
        """Count the calls that have not ended."""
        return len(self._calls) + len(self._waiting)

    def request(self, message: Mapping[str, Any], id: MessageId, native: Any = None) -> None:
        """
        Begin a call.

        @param message: C{service}, C{method}, and perhaps C{data}, C{auth}, C{deadlineMs} and
            C{traceparent}.
        @param native: What the wire's own hooks get for the message.
        """
        if self._isClosed:
            return
        if id is not None and id in self._calls:
            self._peer.sendError(id, codedError("INVALID_ARGUMENT", "This id is in use"))
            return
        if self._listener.isDraining:
            self._peer.sendError(id, codedError("UNAVAILABLE", "No further calls are taken"))
            return
        if self._listener.calls >= self._listener.maxCalls:
            self._peer.sendError(id, codedError("UNAVAILABLE", "Too many calls at a time"))
            return
        try:
            call = _Call(self, message, id, native)
        except ServiceError as error:
            self._peer.sendError(id, error)
            return
        self._listener.calls += 1
        if id is None and None in self._calls:
            self._waiting.append(call)
        else:
            self._calls[id] = call
            call.begin()
        self._adjust()

    def item(self, id: MessageId, data: Any) -> None:
        """Take an item of a client's stream."""
        call = self._streaming(id)
        if call is not None:
            call.put(data)
            self._adjust()

    def itemsEnd(self, id: MessageId) -> None:
        """Take the end of a client's stream."""
        call = self._streaming(id)
        if call is not None:
            call.end()

    def cancel(self, id: MessageId) -> None:
        """Cancel a call. Nothing is sent for it any more."""
        call = self._calls.get(id)
        if call is not None:
            call.cancel()

    def inputLost(self) -> None:
        """Take note that nothing comes any more: a stream that has not ended never will."""
        for call in (*self._calls.values(), *self._waiting):
            call.cut()

    def close(self) -> None:
        """Cancel everything: the peer is gone."""
        self._isClosed = True
        waiting, self._waiting = self._waiting, deque()
        self._listener.calls -= len(waiting)
        for call in list(self._calls.values()):
            call.cancel()

    def whenIdle(self) -> Deferred[None]:
        """Wait until no call is in flight."""
        idle: Deferred[None] = Deferred()
        if self.active:
            self._idle.append(idle)
        else:
            idle.callback(None)
        return idle

    def _streaming(self, id: MessageId) -> "_Call | None":
        call = self._calls.get(id)
        if id is None and self._waiting:
            # A stream without an id is that of the last call without one.
            call = self._waiting[-1]
        if call is not None and call.streamsRequests:
            return call
        # What comes after a call has ended was on its way already: that is nobody's fault.
        return None

    def _adjust(self) -> None:
        """Read on or wait: for room among the calls, and in the streams of the client."""
        wanted = self.active < self._maxCalls and not any(
            call.isFull for call in self._calls.values()
        )
        if wanted != self._isReading and not self._isClosed:
            self._isReading = wanted
            self._peer.setReading(wanted)

    def _ended(self, call: "_Call") -> None:
        del self._calls[call.id]
        self._listener.calls -= 1
        if call.id is None and not self._isStarting:
            # Those that end at once are begun here one after the other, not each in the last.
            self._isStarting = True
            while self._waiting and None not in self._calls:
                following = self._calls[None] = self._waiting.popleft()
                following.begin()
            self._isStarting = False
        self._adjust()
        if not self.active:
            idle, self._idle = self._idle, []
            for each in idle:
                each.callback(None)


class _Call:
    """A call of a session, and the stream of its requests if it has one."""

    def __init__(
        self, session: Session, message: Mapping[str, Any], id: MessageId, native: Any
    ) -> None:
        """
        @raise ServiceError: If the message is none.
        """
        listener, peer = session._listener, session._peer
        service, method = message.get("service"), message.get("method")
        if not isinstance(service, str) or not isinstance(method, str):
            raise codedError("INVALID_ARGUMENT", "A request names its service and its method")
        self.id = id
        self.method = method
        self.isFull = False
        self._session = session
        self._seconds = readDeadline(message.get("deadlineMs"))
        bound = listener.invoker.find(service, method)
        self.streamsRequests = bound.method.streamsRequests
        self._streamsResponses = bound.method.streamsResponses
        metadata = {}
        if self._seconds is not None:
            metadata["deadline"] = listener.invoker.now() + self._seconds
        traceparent = message.get("traceparent")
        tracing = parseTraceparent(traceparent) if isinstance(traceparent, str) else None
        self._context = RequestContext(
            peer.protocol,
            service,
            method,
            peer.client,
            tracing or newTracing(),
            session._headers,
            metadata,
        )
        self._credentials = readCredentials(message, native)
        self._data = message.get("data", {})
        self._items: deque[Any] = deque()
        if self.streamsRequests and "data" in message:
            self._items.append(self._data)
        self._isAtEnd = self._isCut = False
        self._wanted: Deferred[None] | None = None
        self._running: Deferred[Any] | None = None
        self._isCancelled = False

    def begin(self) -> None:
        """Call the method."""
        clock = self._session._listener.clock
        running = self._running = runCall(self._answer(), clock, self._seconds)
        running.addErrback(self._failed).addBoth(self._done)

    def cancel(self) -> None:
        """Give the call up."""
        self._isCancelled = True
        if self._running is not None:
            self._running.cancel()

    def put(self, data: Any) -> None:
        """Take an item of the client's stream."""
        if not self._isAtEnd:
            self._items.append(data)
            self.isFull = len(self._items) >= ITEMS_AHEAD
            self._wake()

    def end(self) -> None:
        """Take the end of the client's stream."""
        self._isAtEnd = True
        self._wake()

    def cut(self) -> None:
        """Take note that the client's stream breaks off, which is not its end."""
        if self.streamsRequests and not self._isAtEnd:
            self._isCut = True
            self._wake()

    def _wake(self) -> None:
        wanted, self._wanted = self._wanted, None
        if wanted is not None:
            wanted.callback(None)

    async def _requests(self) -> AsyncIterator[Any]:
        while True:
            while self._items:
                item = self._items.popleft()
                if self.isFull and len(self._items) < ITEMS_AHEAD:
                    self.isFull = False
                    self._session._adjust()
                yield item
            if self._isAtEnd:
                return
            if self._isCut:
                raise codedError("INVALID_ARGUMENT", "The stream of requests broke off")
            self._wanted = Deferred()
            await self._wanted

    async def _answer(self) -> None:
        session, peer = self._session, self._session._peer
        if self.streamsRequests:
            result = await self._callWithStream()
        else:
            invoker = session._listener.invoker
            result = await invoker.call(self._context, self._data, self._credentials)
        if not self._streamsResponses:
            if not self._isCancelled:
                sending = peer.respond(self.id, self.method, result)
                if sending is not None:
                    await sending
            return
        hooks = session._streamHooks
        try:
            if hooks is not None and hooks.server is not None:
                await _waited(hooks.server(result, self._sender(hooks.send), self.id))
            else:
                await self._sendStream(result)
        finally:
            await result.aclose()

    async def _callWithStream(self) -> Any:
        invoker, hooks = self._session._listener.invoker, self._session._streamHooks

        def call(requests: AsyncIterable[Any]) -> Awaitable[Any]:
            return invoker.call(self._context, requests, self._credentials)

        if hooks is None or hooks.client is None:
            return await call(self._requests())
        return await _waited(hooks.client(self._requests(), call, self.id))

    async def _sendStream(self, results: AsyncIterable[Any]) -> None:
        peer = self._session._peer
        sent = 0
        async for item in results:
            if self._isCancelled:
                raise CancelledError
            peer.sendItem(self.id, self.method, item)
            drained = peer.drained()
            if drained is not None:
                await drained
            sent += 1
            if sent % ITEMS_OF_A_TURN == 0:
                await deferLater(self._session._listener.clock, 0)
        peer.sendEnd(self.id, self.method)

    def _sender(self, send: Callable[[Any], Deferred[None]]) -> Callable[[Any], Deferred[None]]:
        def sendUnlessCancelled(message: Any) -> Deferred[None]:
            if self._isCancelled:
                raise CancelledError
            return send(message)

        return sendUnlessCancelled

    def _failed(self, failure: Failure) -> None:
        if self._isCancelled and endedEarly(failure):
            return
        error: Any = failure.value
        if not isinstance(error, ServiceError):
            _log.failure("a call was not answered", failure)
        self._session._peer.sendError(self.id, asServiceError(error))

    def _done(self, result: Any) -> None:
        self._isAtEnd = True
        self._items.clear()
        self.isFull = False
        self._session._ended(self)


async def _waited(value: Any) -> Any:
    return await value if hasattr(value, "__await__") else value
