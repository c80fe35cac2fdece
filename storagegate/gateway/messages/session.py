"""
The calls of one peer on a message transport: WebSocket, TCP, and UDP by address.

A transport decodes its messages and passes them on (L{PeerSession.request}, L{PeerSession.item},
L{PeerSession.itemsEnd}, L{PeerSession.cancel}); the session runs each as a L{PeerCall} and writes
through the transport's L{Peer}. Calls with an C{id} run concurrently and are answered as they
complete. Calls without one are answered in order: each begins when the previous one has ended.
L{RoutedSession} first passes each request through the user's C{routeMessage}.

A call ends once: after its cancellation, nothing that its handler does is sent.
"""

from collections import deque
from collections.abc import AsyncIterable, Awaitable, Callable, Mapping
from functools import partial
from typing import Any, Self

from attrs import frozen
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.interfaces import IDelayedCall, IPushProducer
from twisted.internet.task import deferLater
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

from storagegate.core.codecs import JSON
from storagegate.core.context import MAX_DEADLINE_MS, RequestContext
from storagegate.core.errors import (
    UNKNOWN_MESSAGE,
    UNREADABLE,
    ServiceError,
    asServiceError,
    codedError,
    isExpected,
)
from storagegate.core.heldbytes import HeldBytes
from storagegate.core.invoker import CallCredentials
from storagegate.core.limitedlog import RateLimitedLog
from storagegate.core.options import Hook
from storagegate.core.shares import AddressShare
from storagegate.core.streams import BoundedStream, RequestsLost
from storagegate.core.task import IdleWaiters, Task, fromCoroutine, resolve
from storagegate.gateway.host import TransportContext
from storagegate.gateway.messages.interfaces import (
    NO_HEADERS,
    ListenerState,
    MessageId,
    Peer,
    StreamHooks,
)
from storagegate.telemetry.tracecontext import newTracing, receiveTracing


def readDeadline(value: Any) -> float:
    """
    Parse a deadline in milliseconds from now.

    @param value: The field C{deadlineMs} of a message, or an equivalent.
    @return: The deadline in seconds.
    @raise ServiceError: If it is invalid.
    """
    isNumber = isinstance(value, int | float) and not isinstance(value, bool)
    if not isNumber or not 0 < value <= MAX_DEADLINE_MS:
        raise codedError("INVALID_ARGUMENT", "A deadline is a number of milliseconds up to a day")
    return float(value) / 1000


MAX_ID_LENGTH = 128
"""The maximum length of an id, which is repeated in every item."""

_MAX_ID = 10**MAX_ID_LENGTH


def readId(value: Any) -> MessageId:
    """
    Parse an id: text or an integer.

    @param value: The field C{id} of a message; C{None} if it is absent.
    @raise ServiceError: If the value is anything else.
    """
    if isinstance(value, str):
        if len(value) <= MAX_ID_LENGTH:
            return value
    elif value is None or (type(value) is int and -_MAX_ID < value < _MAX_ID):
        return value
    raise codedError("INVALID_ARGUMENT", f"An id is a number or text of at most {MAX_ID_LENGTH}")


ITEMS_AHEAD = 8
"""How many items of a client's stream are buffered ahead of its handler."""

ITEMS_OF_A_TURN = 64
"""
Items of a stream that are sent in one reactor iteration, about 2 ms for small items. Without a
limit, a handler that never awaits would monopolise the reactor.
"""

_log = Logger()
_limited = RateLimitedLog(_log)


@implementer(IPushProducer)
class PeerCall(Task):
    """
    A call, and the producer of its client's stream.

    @ivar streamsRequests: Whether the method takes a stream of items.
    """

    __slots__ = (
        "_bound",
        "_called",
        "_credentials",
        "_data",
        "_deadline",
        "_isOver",
        "_isSending",
        "_items",
        "_owner",
        "_timer",
        "id",
        "method",
        "streamsRequests",
    )

    def __init__(
        self, owner: "PeerSession", message: Mapping[str, Any], id: MessageId, native: Any
    ) -> None:
        """
        @param message: C{service}, C{method} and the optional keys of L{PeerSession.request}.
        @param native: The object for the user's hooks; C{None} for the message itself.
        @raise ServiceError: If the message is not a valid request.
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
        deadlineMs = message.get("deadlineMs")
        if deadlineMs is not None:
            seconds = readDeadline(deadlineMs)
            metadata["deadline"] = listener.invoker.now() + seconds
            self._deadline = listener.clock.seconds() + seconds
        parent = message.get("traceparent")
        self._called = RequestContext(
            peer.protocol,
            service,
            method,
            peer.client,
            newTracing() if parent is None else receiveTracing(parent, message.get("tracestate")),
            owner.headers,
            metadata,
        )
        token = None
        auth = message.get("auth")
        # The check for a mapping takes 0.2 microseconds; most messages have no credentials.
        if auth is not None and isinstance(auth, Mapping) and isinstance(auth.get("token"), str):
            token = auth["token"]
        self._credentials = CallCredentials(token, None, native or message)
        self._data = message.get("data", {})
        self._isOver = self._isSending = False
        self._timer: IDelayedCall | None = None
        if self.streamsRequests:
            # Each item is wrapped in a tuple: a stream takes None for its end.
            self._items: BoundedStream[tuple[Any]] = BoundedStream(
                ITEMS_AHEAD, self, resumeBelow=ITEMS_AHEAD
            )
            if "data" in message:
                self._items.put((self._data,))

    @property
    def isKnown(self) -> bool:
        """Return whether the caller is authenticated."""
        return self._called.authentication is not None

    @property
    def isFed(self) -> bool:
        """Return whether the client's stream is still open."""
        return self.streamsRequests and not self._items.isEnded

    def begin(self) -> None:
        """Call the method."""
        bound = self._bound
        if bound.streamsRequests or bound.streamsResponses:
            self._isSending = True
            Task.__init__(self, self._stream())
        else:
            # Run without a wrapping coroutine.
            call = self._owner.listener.invoker.call
            Task.__init__(self, call(self._called, self._data, self._credentials, bound))
        self.step()

    def cancel(self) -> None:
        """Cancel the call; nothing more is sent for it."""
        if not self._isOver:
            self._end()

    def put(self, data: Any) -> None:
        """
        Receive an item of the client's stream.

        @param data: The decoded item; dropped once the call or its stream has ended.
        """
        self._items.put((data,))

    def end(self, error: ServiceError | None = None) -> None:
        """
        End the client's stream, if it has one.

        @param error: Why the stream breaks off; C{None} for a regular end.
        """
        if self.isFed:
            self._items.end(error)

    # The producer of the client's items

    def pauseProducing(self) -> None:
        """Make the client wait: the stream is full."""
        self._owner.fullStreams.add(self)

    def resumeProducing(self) -> None:
        """Resume reading if the stream was full."""
        if self in self._owner.fullStreams:
            self._owner.fullStreams.discard(self)
            self._owner.adjust()

    def stopProducing(self) -> None:
        """Do nothing; the stream ends with the call."""

    # The ends of the coroutine

    def onSuspend(self) -> None:
        """Start the deadline timer, which calls that never wait do not need."""
        if self._deadline is not None and self._timer is None and not self._isOver:
            clock = self._owner.listener.clock
            self._timer = clock.callLater(max(0.0, self._deadline - clock.seconds()), self._expire)

    def onResult(self, value: Any) -> None:
        """Send the result of a call without streams; end a call whose reply was sent."""
        if self._isOver:
            return
        if not self._isSending:
            self._isSending = True
            try:
                # The user's hooks see the context variables that the handler has set.
                sending = self._context.run(self._owner.peer.respond, self.id, self.method, value)
            except BaseException as error:
                self.onError(error)
                return
            if self._isOver:
                # The peer has disconnected.
                return
            if sending is not None:
                self._context.run(Task.__init__, self, resolve(sending))
                self.step()
                return
        self._end()

    def onError(self, error: BaseException) -> None:
        """Send the error."""
        if self._isOver:
            return
        if not isinstance(error, ServiceError):
            _log.failure("a call was not answered", Failure(error))
        self._owner.peer.sendError(self.id, asServiceError(error))
        # A peer that has too much unread drops its calls.
        self.cancel()

    def _expire(self) -> None:
        error = codedError("DEADLINE_EXCEEDED", "The deadline has passed")
        self._owner.peer.sendError(self.id, error)
        self.cancel()

    def _end(self) -> None:
        self._isOver = True
        timer = self._timer
        if timer is not None:
            self._timer = None
            if timer.active():
                timer.cancel()
        if self._waiting is not None:
            super().cancel()
        if self.streamsRequests:
            self._items.abandon(RequestsLost("the call is over"))
            self._owner.fullStreams.discard(self)
        self._owner.ended(self)

    async def _stream(self) -> None:
        """Call a method that has a stream of requests or of results, and send the results."""
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
            return await call(_Requests(self._items))
        return await resolve(hooks.client(_Requests(self._items), call, self.id))

    async def _sendBy(self, hooks: StreamHooks, items: Any) -> None:
        """Have the user's hook send the items of a stream."""

        def send(message: Any) -> Deferred[None]:
            self._checkWanted()
            return hooks.send(message)

        try:
            assert hooks.server is not None
            await resolve(hooks.server(items, send, self.id))
        finally:
            await items.aclose()

    async def _send(self, items: Any) -> None:
        """Send the items of a stream and its end, as fast as the peer reads them."""
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


@frozen
class _Requests:
    """The items of a client's stream; it holds no reference to the call, which would be a cycle."""

    _items: BoundedStream[tuple[Any]]

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Any:
        item = await self._items.get()
        if item is None:
            raise StopAsyncIteration
        return item[0]


Decoded = Callable[[], Any]
"""Returns the decoded message, or raises C{ValueError}."""


def _raise(message: str) -> None:
    raise ValueError(message)


class LargeMessage:
    """
    A JSON message that a thread decodes; its bytes count towards the budget until it is handled.

    @ivar refusal: The error that refuses the message.
    """

    __slots__ = ("_budget", "_data", "refusal")

    def __init__(self, data: bytes, budget: HeldBytes) -> None:
        self._data, self._budget = data, budget
        self.refusal: ServiceError | None = None
        budget.update(self, len(data))

    def decode(self) -> Decoded:
        """
        Decode the message, in a thread. Errors are returned, because frames would hold a raised
        one.
        """
        try:
            value = JSON.decodeLarge(self._data)
        except ValueError as error:
            return partial(_raise, str(error))
        return lambda: value

    def refuseHeld(self, error: ServiceError) -> None:
        """
        Refuse the message and drop its bytes, see
        L{IByteHolder<storagegate.core.heldbytes.IByteHolder>}.
        """
        self.refusal = error
        self.drop()

    def drop(self) -> None:
        """Drop its bytes: the message is decoded or no longer needed."""
        self._data = b""
        self._budget.update(self, 0)


CALLS_OF_A_CONNECTION = 128
"""
The limit of calls in flight of one peer: more than a busy client makes, and few enough to hold in
memory.
"""


class PeerSession:
    """
    The calls of one peer.

    @ivar fullStreams: The calls whose client's stream is full.
    @ivar headers: Header fields of the connection, names in lower case.
    @ivar share: The share of the listener that the peer's address uses.
    """

    def __init__(
        self,
        listener: ListenerState,
        peer: Peer,
        maxCalls: int = CALLS_OF_A_CONNECTION,
        headers: Mapping[str, str] = NO_HEADERS,
        streamHooks: StreamHooks | None = None,
        share: AddressShare | None = None,
    ) -> None:
        """
        @param maxCalls: How many calls may be in flight before reading from the peer pauses.
        @param share: The share to use; C{None} for the share of the client's address.
        """
        self.share = listener.shares.of(peer.client.address) if share is None else share
        self.listener = listener
        self.peer = peer
        self.headers = headers
        self.streamHooks = streamHooks
        self._maxCalls = maxCalls
        self.fullStreams: set[PeerCall] = set()
        self._calls: dict[MessageId, PeerCall] = {}
        # Calls without an id that wait for the previous one.
        self._waiting: deque[PeerCall] = deque()
        self._decoding: LargeMessage | None = None
        self._isReading = True
        self._isClosed = self._isStarting = self._isHeld = False
        self._idle: IdleWaiters | None = None

    @property
    def active(self) -> int:
        """Count the calls that have not ended, and a message that is being decoded."""
        return len(self._calls) + len(self._waiting) + (self._decoding is not None)

    @property
    def isIdle(self) -> bool:
        """Return whether all received messages are answered."""
        return not self.active

    @property
    def isFed(self) -> bool:
        """Return whether a stream of the client is open."""
        return any(call.isFed for call in (*self._calls.values(), *self._waiting))

    def request(self, message: Mapping[str, Any], id: MessageId, native: Any = None) -> None:
        """
        Begin a call.

        @param message: C{service}, C{method}, and perhaps C{data}, C{auth}, C{deadlineMs},
            C{traceparent} and C{tracestate}.
        @param native: The object for the user's hooks; C{None} for the message itself.
        """
        if self._isClosed:
            return
        listener, share, calls = self.listener, self.share, self._calls
        isAfter = id in calls
        if isAfter and id is not None:
            self.peer.sendRefusal(id, codedError("INVALID_ARGUMENT", "This id is in use"))
            return
        try:
            if listener.isDraining:
                raise codedError("UNAVAILABLE", "No further calls are accepted")
            if share.calls >= listener.callsPerAddress or listener.calls >= listener.maxCalls:
                raise codedError("UNAVAILABLE", "Too many calls at a time")
            call = PeerCall(self, message, id, native)
        except ServiceError as error:
            self.peer.sendError(id, error)
            return
        listener.calls += 1
        share.calls += 1
        if isAfter:
            self._waiting.append(call)
        else:
            calls[id] = call
            call.begin()
        if calls:
            self.adjust()

    def decodeLarge(
        self, host: TransportContext, data: bytes, take: Callable[[Decoded], None]
    ) -> None:
        """
        Decode a large JSON message in a thread. Reading from the peer pauses meanwhile, which keeps
        messages in order.

        @param take: Receives the message, unless the session has closed.
        """
        message = self._decoding = LargeMessage(data, host.budget)
        self.hold(True)
        host.run(message.decode).addBoth(self._takeLarge, message, take)

    def _takeLarge(
        self, result: Decoded | Failure, message: LargeMessage, take: Callable[[Decoded], None]
    ) -> None:
        self._decoding = None
        message.drop()
        # Reading resumes once this message is handled.
        self._isHeld = False
        try:
            if self._isClosed:
                return
            if message.refusal is not None:
                self.peer.sendError(None, message.refusal)
            elif isinstance(result, Failure):
                _log.failure("a message was not decoded", result)
                self.peer.sendError(None, codedError("INTERNAL_ERROR", UNKNOWN_MESSAGE))
            else:
                take(result)
        finally:
            self.adjust()
            if self._idle is not None and not self.active:
                self._idle.notify()

    def item(self, id: MessageId, data: Any) -> None:
        """
        Receive an item of a client's stream.

        @param id: The id of its call; C{None} for the last call without an id.
        @param data: The decoded item.
        """
        call = self._streaming(id)
        if call is not None:
            call.put(data)
            self.adjust()

    def itemsEnd(self, id: MessageId, error: ServiceError | None = None) -> None:
        """
        End a client's stream.

        @param id: The id of its call; C{None} for the last call without an id.
        @param error: Why the stream breaks off; C{None} for a regular end.
        """
        call = self._streaming(id)
        if call is not None:
            call.end(error)

    def cancel(self, id: MessageId) -> None:
        """
        Cancel a call. Nothing more is sent for it.

        @param id: The id of the call. An unknown id is ignored: the call may have just ended.
        """
        call = self._calls.get(id)
        if call is not None:
            call.cancel()

    def isKnown(self, id: MessageId) -> bool:
        """
        Return whether the caller of a call is authenticated.

        @param id: The id of a call; the result is C{False} if it is unknown.
        """
        call = self._calls.get(id)
        return call is not None and call.isKnown

    def inputLost(self) -> None:
        """Break off the client's streams: no more input will arrive."""
        for call in (*self._calls.values(), *self._waiting):
            call.end(codedError("INVALID_ARGUMENT", "The stream of requests broke off"))

    def hold(self, held: bool) -> None:
        """
        Pause or resume reading from the peer.

        @param held: Whether to pause reading, regardless of the limits.
        """
        self._isHeld = held
        self.adjust()

    def close(self) -> None:
        """Cancel all calls: the peer has disconnected."""
        self._isClosed = True
        if self._decoding is not None:
            self._decoding.drop()
        waiting, self._waiting = self._waiting, deque()
        self.listener.calls -= len(waiting)
        self.share.calls -= len(waiting)
        for call in list(self._calls.values()):
            call.cancel()

    def whenIdle(self) -> Deferred[None]:
        """Return a Deferred that fires when no call is in flight."""
        if self._idle is None:
            self._idle = IdleWaiters()
        return self._idle.wait(bool(self.active))

    def adjust(self) -> None:
        """Pause or resume reading, by the limits of calls and of the client's streams."""
        inFlight = len(self._calls) + len(self._waiting)
        hasCapacity = inFlight < self._maxCalls and not self.fullStreams
        wanted = hasCapacity and not self._isHeld
        if wanted != self._isReading and not self._isClosed:
            self._isReading = wanted
            self.peer.setReading(wanted)

    def ended(self, call: PeerCall) -> None:
        """
        Remove a call, and begin the calls that waited for it.

        @param call: A call that has begun.
        """
        id = call.id
        del self._calls[id]
        self.listener.calls -= 1
        self.share.calls -= 1
        if id is None and not self._isStarting:
            # A loop, because calls that end at once would otherwise recurse.
            self._isStarting = True
            while self._waiting and None not in self._calls:
                following = self._calls[None] = self._waiting.popleft()
                following.begin()
            self._isStarting = False
        if not self._isReading:
            self.adjust()
        if self._idle is not None and not self.active:
            self._idle.notify()

    def _streaming(self, id: MessageId) -> PeerCall | None:
        """Return the call of an item; C{None} if the call ended while the item was under way."""
        call = self._calls.get(id)
        if id is None and self._waiting:
            # A stream without an id belongs to the last call without one.
            call = self._waiting[-1]
        return call if call is not None and call.streamsRequests else None


MESSAGES_AHEAD = 128
"""
Messages that may queue while one is routed, on a transport that cannot pause its peer: as many
calls as a connection may have in flight. Other transports pause after the first.
"""

_BESIDE = ("auth", "deadlineMs", "traceparent", "tracestate")
"""Keys of a message that are read even if C{routeMessage} reads its request."""


class RoutedSession(PeerSession):
    """
    A session whose requests are read by the user's C{routeMessage}.

    Messages that arrive while the hook awaits are queued, so that a call begins before its items.
    """

    def __init__(
        self,
        route: Hook,
        listener: ListenerState,
        peer: Peer,
        headers: Mapping[str, str] = NO_HEADERS,
        streamHooks: StreamHooks | None = None,
    ) -> None:
        """
        @param route: The user's C{routeMessage}.
        """
        super().__init__(listener, peer, headers=headers, streamHooks=streamHooks)
        self._route = route
        self._routing: Deferred[None] | None = None
        self._later: deque[Callable[[], None]] = deque()

    @property
    def isIdle(self) -> bool:
        """Return whether all messages are answered, including messages that wait to be routed."""
        return self._routing is None and super().isIdle

    def request(self, message: Any, id: MessageId, native: Any = None) -> None:
        """
        Find the method of a message, and begin a call.

        @param message: Any decoded value, passed to C{routeMessage}.
        """
        if len(self._later) < MESSAGES_AHEAD:
            self._enqueue(partial(self._begin, message, id))
        else:
            self.peer.sendError(id, codedError("UNAVAILABLE", "Too many calls at a time"))

    def item(self, id: MessageId, data: Any) -> None:
        """Receive an item of a client's stream."""
        self._enqueue(partial(super().item, id, data))

    def itemsEnd(self, id: MessageId, error: ServiceError | None = None) -> None:
        """End a client's stream."""
        self._enqueue(partial(super().itemsEnd, id, error))

    def cancel(self, id: MessageId) -> None:
        """Cancel a call."""
        self._enqueue(partial(super().cancel, id))

    def close(self) -> None:
        """Cancel all calls: the peer has disconnected."""
        super().close()
        self._later.clear()
        if self._routing is not None:
            self._routing.cancel()

    def _enqueue(self, step: Callable[[], None]) -> None:
        if self._routing is None:
            step()
        elif len(self._later) < MESSAGES_AHEAD:
            self._later.append(step)

    def _begin(self, message: Any, id: MessageId) -> None:
        routing = fromCoroutine(self._routed(message, id))
        if not routing.called:
            self._routing = routing
            self.hold(True)
            routing.addBoth(self._resumeQueue)

    async def _routed(self, message: Any, id: MessageId) -> None:
        try:
            request, own = readRoute(await resolve(self._route(message)), message, id)
        except UNREADABLE as error:
            _limited.warn(
                "route",
                "routeMessage could not read a message: {error!a:.200}",
                error=error,
            )
            self.peer.sendError(id, codedError("INVALID_ARGUMENT", "The message cannot be read"))
        except Exception as error:
            if not isExpected(error):
                _log.failure("routeMessage failed")
            self.peer.sendError(id, asServiceError(error))
        else:
            super().request(request, own, message)

    def _resumeQueue(self, result: Any) -> None:
        self._routing = None
        while self._later and self._routing is None:
            self._later.popleft()()
        if self._routing is None:
            self.hold(False)


def readRoute(routed: Any, message: Any, id: MessageId) -> tuple[dict[str, Any], MessageId]:
    """
    Read the result of C{routeMessage}: C{service}, C{method}, C{request} and C{messageId}.

    @param routed: The result of the hook; only mappings are valid.
    @param message: The message passed to the hook, with the credentials and the deadline.
    @param id: The message's own id, used if the hook returns no id.
    @return: The message of a call, and its id.
    @raise ServiceError: If the result is invalid.
    """
    if not isinstance(routed, Mapping):
        raise codedError("INVALID_ARGUMENT", "The message names no method")
    given = message if isinstance(message, Mapping) else {}
    request = {key: given[key] for key in _BESIDE if key in given}
    request["service"], request["method"] = routed.get("service"), routed.get("method")
    if "request" in routed:
        request["data"] = routed["request"]
    return request, readId(routed.get("messageId", id))
