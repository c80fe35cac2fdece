"""
A source address of datagrams: its requests, its replies, and the order of its streams.

A request with a known id does not start a second call, see
L{storagegate.gateway.transports.udp.replycache}. The items of a stream may arrive in any order,
some twice, some never; L{ReorderBuffer} restores the order.

A source address may be forged, so a reply to a client without a valid token is at most three times
as large as its request. The limit applies to all datagrams of a unary call together, and to each
datagram of a stream. A reply that does not fit is replaced by an error; an error that does not fit
is not sent.
"""

from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any

from msgspec import Struct
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall
from twisted.internet.task import deferLater
from twisted.logger import Logger

from storagegate.core.codecs import JSON
from storagegate.core.context import ClientInfo
from storagegate.core.errors import ServiceError, codedError
from storagegate.core.task import fromCoroutine, resolve
from storagegate.gateway.messages.frames import (
    ACK,
    CANCEL,
    CLIENT_END,
    CLIENT_ITEM,
    END,
    ERROR,
    ITEM,
    REQUEST,
    RESPONSE,
    FrameWriter,
    encodeFrame,
    frameEnd,
    frameError,
    frameResult,
)
from storagegate.gateway.messages.interfaces import MessageId
from storagegate.gateway.messages.session import PeerSession, RoutedSession, readId
from storagegate.gateway.transports.udp import PROTOCOL, Address
from storagegate.gateway.transports.udp.replycache import CachedReply, ReplyCacheUnavailable

WINDOW = 64
"""How far ahead of the next item an item may be; networks reorder far less."""


class ReorderBuffer:
    """
    Puts the items of a client's stream in order.

    C{seq} numbers the items of a stream, from 0; the end frame's C{seq} is their count.
    """

    def __init__(self) -> None:
        self._next = 0
        self._held: dict[int, Any] = {}
        self._count: int | None = None

    def put(self, seq: int, item: Any) -> bool:
        """
        Add an item.

        @param seq: The number of the item in its stream, from 0.
        @return: Whether it is new and within the window.
        @raise ServiceError: If it lies beyond the end.
        """
        if self._count is not None and seq >= self._count:
            raise _leftOut()
        if not self._next <= seq < self._next + WINDOW or seq in self._held:
            return False
        self._held[seq] = item
        return True

    def end(self, count: int | None) -> None:
        """
        End the stream.

        @param count: The number of items; C{None} for the items that have arrived.
        @raise ServiceError: If more items have arrived.
        """
        come = max(self._held, default=self._next - 1) + 1
        if self._count is None:
            self._count = come if count is None else count
        if self._count < come:
            raise _leftOut()

    def isKnown(self, seq: int) -> bool:
        """
        Return whether an item has already arrived.

        @param seq: The number of the item in its stream, from 0.
        """
        return 0 <= seq < self._next or seq in self._held

    @property
    def missing(self) -> int:
        """Count the items that have not arrived although later ones, or the end, have."""
        last = max(self._held, default=self._next - 1)
        # An end far ahead must not count items as lost that would not have been accepted.
        count = min(max(last + 1, self._count or 0), self._next + WINDOW)
        return count - self._next - len(self._held)

    @property
    def hasNext(self) -> bool:
        """Return whether the next item has arrived."""
        return self._next in self._held

    def take(self) -> Any:
        """Return the next item."""
        item = self._held.pop(self._next)
        self._next += 1
        return item

    @property
    def isAtEnd(self) -> bool:
        """Return whether all items have been taken."""
        return self._count is not None and self._next >= self._count


def _leftOut() -> ServiceError:
    return codedError("INVALID_ARGUMENT", "The end of the stream leaves out items")


AMPLIFICATION = 3
"""
How many times larger than an unauthenticated datagram its reply may be, as in RFC 9000 section 8.1.
"""

ACKNOWLEDGE_SECONDS = 1.0
"""The delay before an ACK, after which the client stops retransmitting the request."""

DATAGRAMS_OF_A_TURN = 32
"""
How many datagrams of a stream are sent at once: more would silently overflow the receiver's buffer.
"""

TURN_SECONDS = 0.001
"""The pause after them: about 30,000 datagrams a second at most."""

DATAGRAMS_A_SECOND = 20_000
"""The limit of one address: more than the daemon can serve."""

_log = Logger()

_TYPES = {RESPONSE: "response", ERROR: "error", ITEM: "stream", END: "stream_end"}


class UDPCall(Struct, eq=False):
    """
    A call of a peer.

    @ivar allowed: How many bytes may be sent in reply while the caller is not authenticated.
    @ivar sent: How many bytes have been sent in reply.
    @ivar seq: The number of the next item.
    @ivar stream: Puts the items of the client's stream in order; C{None} before the first one.
    @ivar acknowledging: Sends the ACK unless the call ends first.
    """

    allowed: int
    sent: int = 0
    seq: int = 0
    stream: ReorderBuffer | None = None
    acknowledging: IDelayedCall | None = None


class UDPPeer(FrameWriter):
    """
    A source address, which is the peer of its session.

    @ivar session: Its calls.
    @ivar lastSeen: When its last datagram arrived, in seconds of the reactor's clock.
    """

    def __init__(self, owner: Any, source: Address) -> None:
        """
        @param owner: The L{UDPTransport<storagegate.gateway.transports.udp.listener.UDPTransport>}.
        """
        options = owner.options
        super().__init__(owner.host, PROTOCOL, options.maxPacketSize, partial(owner.send, source))
        self.client = ClientInfo(f"{source[0]}:{source[1]}", source[0], source[1])
        self.lastSeen = 0.0
        self._owner = owner
        self._source = source
        self._formatResponse = options.formatResponse
        self._calls: dict[MessageId, UDPCall] = {}
        self._isReading = True
        self._sentOfTurn = 0
        self._secondEnds = 0.0
        self._hits = 0
        if options.routeMessage is None:
            self.session = PeerSession(owner.listener, self)
        else:
            self.session = RoutedSession(options.routeMessage, owner.listener, self)

    # Datagrams

    def isTooFast(self, now: float) -> bool:
        """
        Count a datagram; return whether there are too many.

        @param now: Seconds of the reactor's clock.
        """
        self.lastSeen = now
        if now >= self._secondEnds:
            self._secondEnds = now + 1
            self._hits = 0
        self._hits += 1
        return self._hits > DATAGRAMS_A_SECOND

    def handleFrame(self, type: int, payload: bytes, size: int) -> None:
        """
        Handle the frame of a datagram.

        @param type: The number of the frame's type.
        @param payload: JSON in UTF-8, not yet decoded.
        @param size: The size of the datagram in bytes, which bounds the reply.
        """
        try:
            message = JSON.decode(payload)
            if not isinstance(message, dict):
                raise codedError("INVALID_ARGUMENT", "The payload is no object")
            id = readId(message.get("id"))
        except ValueError as error:
            self._refuse(None, size, codedError("INVALID_ARGUMENT", f"Unreadable: {error}"))
            return
        except ServiceError as error:
            self._refuse(None, size, error)
            return
        if type == REQUEST:
            self.request(message, id, size)
        elif type in (CLIENT_ITEM, CLIENT_END):
            self._handleItem(type, message, id, size)
        elif type == CANCEL:
            self.session.cancel(id)
            self._forget(id)
        else:
            self._refuse(id, size, codedError("INVALID_ARGUMENT", f"Unknown type {type}"))

    def handleMessage(self, message: Any, size: int) -> None:
        """
        Handle a message that the user's hook has read.

        @param message: The value that C{parseMessage} returned.
        @param size: The size of the datagram in bytes, which bounds the reply.
        """
        id: MessageId = None
        if isinstance(message, Mapping):
            with suppress(ServiceError):
                id = readId(message.get("id"))
        self.request(message, id, size)

    def request(self, message: Any, id: MessageId, size: int) -> None:
        """
        Begin a call, unless it has already begun.

        @param size: The size of the datagram in bytes, which bounds the reply.
        """
        if id is not None:
            known: Any = self._owner.replies.begin((self._source, id), size)
            if known is not None and hasattr(known, "__await__"):
                later = self._beginLater(known, message, id, size)
                proceed(later, "a request was dropped", bool)
            else:
                self._begin(known, message, id, size)
        elif self._streams(message):
            self._refuse(id, size, codedError("INVALID_ARGUMENT", "A stream needs an id"))
        elif None in self._calls:
            # Without ids, calls run one at a time: a client that does not wait could not match the
            # replies, and must send ids.
            self._owner.dropped["busy"] += 1
        else:
            self._begin(None, message, id, size)

    async def _beginLater(
        self, known: Awaitable[CachedReply | None], message: Any, id: MessageId, size: int
    ) -> None:
        try:
            found = await known
        except ReplyCacheUnavailable:
            # A new call might run the method twice. The client will retransmit the request.
            self._owner.dropped["cache"] += 1
        else:
            self._begin(found, message, id, size)

    def _begin(self, known: CachedReply | None, message: Any, id: MessageId, size: int) -> None:
        owner = self._owner
        if known is not None:
            owner.meter.duplicates += 1
            # A small datagram with a guessed id must not get a large reply.
            isOwed = known.isKnown and size >= known.size
            reply = known.reply
            if reply is not None and (isOwed or len(reply) <= AMPLIFICATION * size):
                self._write(reply)
        elif id in self._calls:
            # The call is running, although the cache has evicted it.
            owner.meter.duplicates += 1
        elif not owner.isClosed:
            self._calls[id] = UDPCall(size * AMPLIFICATION)
            self.session.request(message, id)
            call = self._calls.get(id)
            # If the user's hook formats the replies, the client does not know frames.
            if call is not None and id is not None and self._formatResponse is None:
                clock = self.host.clock
                call.acknowledging = clock.callLater(ACKNOWLEDGE_SECONDS, self._acknowledge, id)

    def _streams(self, message: Any) -> bool:
        if not isinstance(message, Mapping):
            return False
        service, method = message.get("service"), message.get("method")
        if not isinstance(service, str) or not isinstance(method, str):
            return False
        try:
            bound = self.host.invoker.find(service, method)
        except ServiceError:
            return False
        return bound.streaming != "none"

    def _handleItem(self, type: int, message: Mapping[str, Any], id: MessageId, size: int) -> None:
        call = self._calls.get(id)
        if call is None or id is None:
            return
        call.allowed += AMPLIFICATION * size
        requests = call.stream = call.stream or ReorderBuffer()
        seq: Any = message.get("seq")
        isNumber = isinstance(seq, int) and not isinstance(seq, bool) and seq >= 0
        try:
            if type == CLIENT_END:
                requests.end(seq if isNumber else None)
            elif not isNumber:
                self._refuse(id, size, codedError("INVALID_ARGUMENT", "An item needs its seq"))
                return
            elif not requests.put(seq, message.get("data", {})):
                self._owner.meter.duplicates += requests.isKnown(seq)
                self._owner.dropped["item"] += 1
                return
        except ServiceError as error:
            self.session.itemsEnd(id, error)
        else:
            self._deliver(id)

    def _deliver(self, id: MessageId) -> None:
        """Pass the items that are in order to the session while it accepts them."""
        call = self._calls.get(id)
        if call is None or call.stream is None:
            return
        requests = call.stream
        while requests.hasNext and self._isReading:
            self.session.item(id, requests.take())
        if requests.isAtEnd:
            self.session.itemsEnd(id)

    def _refuse(self, id: MessageId, size: int, error: ServiceError) -> None:
        """
        Send an error for a datagram that starts no call, if it fits.

        If the datagram names a call in flight or a kept reply, neither is affected.
        """
        datagram = self._errorDatagram(id, error)
        isKnown = id in self._calls and self.session.isKnown(id)
        if isKnown or len(datagram) <= AMPLIFICATION * size:
            self._write(datagram)

    # Written by the session

    def respond(self, id: MessageId, method: str, result: Any) -> Awaitable[None] | None:
        """Send a result."""
        written = self._written(RESPONSE, result, frameResult(id, result))
        if not isinstance(written, bytes):
            return self._respondLater(id, written)
        self._respond(id, written)
        return None

    async def _respondLater(self, id: MessageId, written: Awaitable[bytes]) -> None:
        self._respond(id, await written)

    def _respond(self, id: MessageId, datagram: bytes) -> None:
        self._checkSize(datagram)
        if not self._fits(id, datagram):
            raise codedError("RESPONSE_TOO_LARGE", "The answer is too large for an unknown client")
        self._conclude(id, datagram, True)

    def sendItem(self, id: MessageId, method: str, item: Any) -> None:
        """Send an item of a stream."""
        call = self._call(id)
        seq = 0
        if call is not None:
            seq, call.seq = call.seq, call.seq + 1
        written = self._written(ITEM, item, {"id": id, "seq": seq, "data": item})
        datagram = self._immediate(written)
        self._checkSize(datagram)
        if not self._fits(id, datagram, isPartOfReply=False):
            raise codedError("RESPONSE_TOO_LARGE", "An item is too large for an unknown client")
        self._calls[id].sent += len(datagram)
        self._write(datagram)
        self._sentOfTurn += 1

    def sendEnd(self, id: MessageId, method: str) -> None:
        """Send the end of a stream."""
        call = self._call(id)
        seq = call.seq if call is not None else 0
        datagram = self._immediate(self._written(END, None, {**frameEnd(id), "seq": seq}))
        self._conclude(id, datagram, self._fits(id, datagram, isPartOfReply=False))

    def sendError(self, id: MessageId, error: ServiceError) -> None:
        """Send an error, if it fits."""
        datagram = self._errorDatagram(id, error)
        self._conclude(id, datagram, self._fits(id, datagram))

    def sendRefusal(self, id: MessageId, error: ServiceError) -> None:
        """Refuse a request if the user's hook gave it the id of a call in flight."""
        call = self._calls.pop(None, None)
        if call is not None:
            self._refuse(id, call.allowed // AMPLIFICATION, error)

    def _errorDatagram(self, id: MessageId, error: ServiceError) -> bytes:
        """Encode an error; replace an error that is too large for a datagram."""
        datagram = self._formattedError(id, error)
        if len(datagram) > self._maxLength:
            short = codedError("RESPONSE_TOO_LARGE", "The error is too large")
            datagram = encodeFrame(ERROR, JSON.encode(frameError(id, short)))
        return datagram

    def _formattedError(self, id: MessageId, error: ServiceError) -> bytes:
        """Encode an error, with the user's hook if it exists and does not fail."""
        if self._formatResponse is not None:
            shape = self.describeError(id, error)
            try:
                return self._immediate(self._written(ERROR, shape, shape))
            except Exception:
                _log.failure("formatResponse failed")
        return encodeFrame(ERROR, self.encodeError(id, error))

    def drained(self) -> Deferred[None] | None:
        """Pause after a number of datagrams: nothing else slows a sender down."""
        if self._sentOfTurn < DATAGRAMS_OF_A_TURN:
            return None
        self._sentOfTurn = 0
        return deferLater(self.host.clock, TURN_SECONDS)

    def setReading(self, wanted: bool) -> None:
        """Deliver held items, or hold items that arrive."""
        self._isReading = wanted
        if wanted:
            for id in list(self._calls):
                self._deliver(id)

    # Internals

    def _acknowledge(self, id: MessageId) -> None:
        datagram = encodeFrame(ACK, JSON.encode({"id": id}))
        if self._fits(id, datagram):
            self._calls[id].sent += len(datagram)
            self._write(datagram)

    def _call(self, id: MessageId) -> UDPCall | None:
        """Return a call; the user's C{routeMessage} may have given an id to a call without one."""
        calls = self._calls
        call = calls.get(id)
        if call is None and None in calls:
            call = calls[id] = calls.pop(None)
        return call

    def _written(self, type: int, result: Any, payload: Any) -> bytes | Awaitable[bytes]:
        if self._formatResponse is None:
            return encodeFrame(type, JSON.encodeAround(result, payload))
        written: bytes | Awaitable[bytes] = self._formatResponse(result, _TYPES[type])
        if not isinstance(written, bytes) and not hasattr(written, "__await__"):
            raise TypeError(f"formatResponse gives bytes, not {written!r:.40}")
        return written

    def _immediate(self, written: bytes | Awaitable[bytes]) -> bytes:
        """
        Return the result of an C{async} hook that does not suspend; waiting is impossible here.
        """
        if isinstance(written, bytes):
            return written
        steps = written.__await__()
        try:
            next(steps)
        except StopIteration as returned:
            value: bytes = returned.value
            return value
        steps.close()
        raise TypeError("formatResponse of a stream or an error gives its bytes at once")

    def _checkSize(self, datagram: bytes) -> None:
        if len(datagram) > self._maxLength:
            limit = self._maxLength
            raise codedError("RESPONSE_TOO_LARGE", f"A datagram has {limit} bytes at most")

    def _fits(self, id: MessageId, datagram: bytes, isPartOfReply: bool = True) -> bool:
        """
        Return whether a datagram may be sent to the caller; an authenticated caller may get any.
        """
        call = self._call(id)
        if call is None:
            return False
        sent = call.sent if isPartOfReply else 0
        return sent + len(datagram) <= call.allowed or self.session.isKnown(id)

    def _conclude(self, id: MessageId, datagram: bytes, fits: bool) -> None:
        """Send the last datagram of a reply if it fits, and forget the call."""
        # Keep the reply first: once it is sent, no retransmission may run the method again, not
        # even in another process if this one ends now.
        if id is not None:
            key = (self._source, id)
            kept: Any = self._owner.replies.end(key, datagram, self.session.isKnown(id))
            if kept is not None and hasattr(kept, "__await__"):
                proceed(kept, "a reply was not kept", bool)
        self._forget(id)
        if fits:
            self._write(datagram)

    def _forget(self, id: MessageId) -> None:
        call = self._calls.pop(id, None)
        if call is None:
            return
        if call.stream is not None:
            self._owner.meter.lost += call.stream.missing
        timer = call.acknowledging
        if timer is not None and timer.active():
            timer.cancel()


def proceed(value: Any, problem: str, act: Callable[..., object], *more: object) -> None:
    """
    Call a function with the result of an awaitable; log a failure.

    @param value: A value, or an awaitable of one.
    @param problem: The log message of a failure.
    @param act: Called with the value and C{more}.
    """
    waiting = fromCoroutine(resolve(value)).addCallback(act, *more)
    waiting.addErrback(lambda failure: _log.failure(problem, failure))
