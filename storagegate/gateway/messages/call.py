"""
One call of a peer on a wire of messages, and the stream of its requests.

A L{session<storagegate.gateway.messages.session>} begins it, gives it the items that come for it,
and hears
of its end. However it ends, that is once: what a handler makes of being cancelled is no answer.
"""

from collections import deque
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Mapping
from typing import Any, Protocol

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.interfaces import IDelayedCall
from twisted.internet.task import deferLater
from twisted.logger import Logger
from twisted.python.failure import Failure

from storagegate.core.context import RequestContext
from storagegate.core.errors import ServiceError, asServiceError, codedError
from storagegate.core.task import Task
from storagegate.gateway.messages.interfaces import (
    ListenerState,
    MessageId,
    Peer,
    StreamHooks,
    readCredentials,
    readDeadline,
)
from storagegate.telemetry.tracecontext import receiveTracing

ITEMS_AHEAD = 8
"""Items of a client's stream that are held before its handler asks for them."""

ITEMS_OF_A_TURN = 64
"""Items of a stream that are sent one after the other before anybody else has a turn: about two
milliseconds of small ones. A handler that never waits would keep the reactor for itself."""

_log = Logger()


class CallOwner(Protocol):
    """
    Whose call it is.

    @ivar listener: The listener of the peer.
    @ivar peer: Takes the answers.
    @ivar fullStreams: Counts the streams that are to wait.
    @ivar headers: What the peer said once for all its calls.
    @ivar streamHooks: What a user does with streams, C{None} for what is done here.
    """

    listener: ListenerState
    peer: Peer
    fullStreams: int
    headers: Mapping[str, str]
    streamHooks: StreamHooks | None

    def adjust(self) -> None:
        """Read on, or wait."""

    def ended(self, call: "PeerCall") -> None:
        """Forget a call: nothing more is sent for it."""


class PeerCall(Task):
    """
    A call.

    @ivar streamsRequests: Whether items may come for it.
    """

    __slots__ = (
        "_bound",
        "_called",
        "_credentials",
        "_data",
        "_deadline",
        "_isAtEnd",
        "_isCut",
        "_isFull",
        "_isOver",
        "_items",
        "_owner",
        "_timer",
        "_wanted",
        "id",
        "method",
        "streamsRequests",
    )

    def __init__(
        self, owner: CallOwner, message: Mapping[str, Any], id: MessageId, native: Any
    ) -> None:
        """
        @raise ServiceError: If the message is none.
        """
        listener, peer = owner.listener, owner.peer
        service, method = message.get("service"), message.get("method")
        if not isinstance(service, str) or not isinstance(method, str):
            raise codedError("INVALID_ARGUMENT", "A request names its service and its method")
        self.id = id
        self.method = method
        self._owner = owner
        self._bound = listener.invoker.find(service, method, peer.protocol)
        self.streamsRequests = self._bound.streamsRequests
        metadata = {}
        self._deadline = None
        if "deadlineMs" in message:
            seconds = readDeadline(message["deadlineMs"])
            if seconds is not None:
                metadata["deadline"] = listener.invoker.now() + seconds
                self._deadline = listener.clock.seconds() + seconds
        self._called = RequestContext(
            peer.protocol,
            service,
            method,
            peer.client,
            receiveTracing(message.get("traceparent"), message.get("tracestate")),
            owner.headers,
            metadata,
        )
        self._credentials = readCredentials(message, native)
        self._data = message.get("data", {})
        self._isAtEnd = self._isCut = self._isFull = self._isOver = False
        self._timer: IDelayedCall | None = None
        self._wanted: Deferred[None] | None = None
        if self.streamsRequests:
            self._items: deque[Any] = deque()
            if "data" in message:
                self._items.append(self._data)

    @property
    def isKnown(self) -> bool:
        """Tell whether it is known who calls."""
        return self._called.authentication is not None

    @property
    def isFed(self) -> bool:
        """Tell whether items may come for it still."""
        return self.streamsRequests and not self._isAtEnd

    def begin(self) -> None:
        """Call the method."""
        super().__init__(self._answer())
        self.step()

    def cancel(self) -> None:
        """Give the call up. Nothing is sent for it any more."""
        if not self._isOver:
            self._end()
            super().cancel()

    def put(self, data: Any) -> None:
        """Take an item of the client's stream."""
        if not self._isAtEnd and not self._isOver:
            self._items.append(data)
            if len(self._items) >= ITEMS_AHEAD:
                self._setFull(True)
            self._wake()

    def end(self) -> None:
        """Take the end of the client's stream."""
        self._isAtEnd = True
        self._wake()

    def cut(self) -> None:
        """Take note that the client's stream breaks off, which is not its end."""
        if self.isFed:
            self._isCut = True
            self._wake()

    # The coroutine's ends

    def waits(self) -> None:
        """Begin to watch the deadline: most calls do not wait for anything."""
        if self._deadline is not None and not self._isOver:
            clock = self._owner.listener.clock
            self._timer = clock.callLater(max(0.0, self._deadline - clock.seconds()), self._late)

    def returned(self, value: Any) -> None:
        """Take note of the answer, which has been sent."""
        if not self._isOver:
            self._end()

    def failed(self, error: BaseException) -> None:
        """Send what went wrong."""
        if self._isOver:
            return
        if not isinstance(error, ServiceError):
            _log.failure("a call was not answered", Failure(error))
        self._owner.peer.sendError(self.id, asServiceError(error))
        self._end()

    # Within

    def _late(self) -> None:
        error = codedError("DEADLINE_EXCEEDED", "The deadline has passed")
        self._owner.peer.sendError(self.id, error)
        self.cancel()

    def _end(self) -> None:
        self._isOver = True
        if self._timer is not None and self._timer.active():
            self._timer.cancel()
        if self.streamsRequests:
            self._items.clear()
            self._setFull(False)
        self._owner.ended(self)

    def _setFull(self, isFull: bool) -> None:
        if isFull is not self._isFull:
            self._isFull = isFull
            self._owner.fullStreams += 1 if isFull else -1

    def _wake(self) -> None:
        wanted, self._wanted = self._wanted, None
        if wanted is not None:
            wanted.callback(None)

    async def _requests(self) -> AsyncIterator[Any]:
        while True:
            while self._items:
                item = self._items.popleft()
                if self._isFull:
                    self._setFull(False)
                    self._owner.adjust()
                yield item
            if self._isAtEnd:
                return
            if self._isCut:
                raise codedError("INVALID_ARGUMENT", "The stream of requests broke off")
            self._wanted = Deferred()
            await self._wanted

    async def _answer(self) -> None:
        owner = self._owner
        if self.streamsRequests:
            result = await self._callWithStream()
        else:
            invoker = owner.listener.invoker
            result = await invoker.call(self._called, self._data, self._credentials, self._bound)
        if self._bound.streamsResponses:
            hooks = owner.streamHooks
            if hooks is None or hooks.server is None:
                await self._send(result)
            else:
                await self._sendBy(hooks, result)
        elif not self._isOver:
            sending = owner.peer.respond(self.id, self.method, result)
            if sending is not None:
                await sending

    async def _callWithStream(self) -> Any:
        invoker, hooks = self._owner.listener.invoker, self._owner.streamHooks

        def call(requests: AsyncIterable[Any]) -> Awaitable[Any]:
            return invoker.call(self._called, requests, self._credentials, self._bound)

        if hooks is None or hooks.client is None:
            return await call(self._requests())
        return await _waited(hooks.client(self._requests(), call, self.id))

    async def _sendBy(self, hooks: StreamHooks, items: Any) -> None:
        """Let the user's hook send the items of a stream."""

        def send(message: Any) -> Deferred[None]:
            self._checkWanted()
            return hooks.send(message)

        try:
            assert hooks.server is not None
            await _waited(hooks.server(items, send, self.id))
        finally:
            await items.aclose()

    async def _send(self, items: Any) -> None:
        """Send the items of a stream and its end, as fast as they are read."""
        peer = self._owner.peer
        sent = 0
        try:
            async for item in items:
                self._checkWanted()
                peer.sendItem(self.id, self.method, item)
                drained = peer.drained()
                if drained is not None:
                    await drained
                sent += 1
                if sent % ITEMS_OF_A_TURN == 0:
                    await deferLater(self._owner.listener.clock, 0)
        finally:
            await items.aclose()
        self._checkWanted()
        peer.sendEnd(self.id, self.method)

    def _checkWanted(self) -> None:
        if self._isOver:
            raise CancelledError


async def _waited(value: Any) -> Any:
    return await value if hasattr(value, "__await__") else value
