"""
One source address of datagrams: its requests, its replies, and the order of its streams.

A request whose id is known begins no second call, see
L{storagegate.gateway.transports.udp.replycache}. The items of a stream may arrive in any order,
some twice, some never; L{ReorderBuffer} restores the order.

A source address may be forged, so a reply to a client without a valid token is at most three times
as large as its request: all datagrams of a unary call together, each one of a stream. A reply that
does not fit is replaced by an error; an error that does not fit is not sent.
"""

from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol

from attrs import define
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall
from twisted.internet.task import deferLater
from twisted.logger import Logger

from storagegate.core.codecs import JSON
from storagegate.core.context import ClientInfo
from storagegate.core.errors import ServiceError, codedError
from storagegate.core.invoker import Invoker
from storagegate.core.task import resolve
from storagegate.gateway.host import TransportContext
from storagegate.gateway.messages.frames import (
    ACK,
    CANCEL,
    CLIENT_END,
    CLIENT_ITEM,
    END,
    ERROR,
    ITEM,
    PONG,
    REQUEST,
    RESPONSE,
    encodeFrame,
    frameEnd,
    frameError,
    frameResult,
)
from storagegate.gateway.messages.interfaces import MessageId
from storagegate.gateway.messages.json import describedError, encodeError
from storagegate.gateway.messages.session import PeerSession, readId
from storagegate.gateway.transports.metrics import TransportMetrics
from storagegate.gateway.transports.udp.replycache import CachedReply, IReplyCache

WINDOW = 64
"""How far ahead of the next item one may be: what a network mixes up is much less."""


class ReorderBuffer:
    """
    Puts the items of a client's stream in order.

    The frames of a stream say by C{seq} which item they have, from 0 on; the end's C{seq} is how
    many there were.
    """

    def __init__(self) -> None:
        self._next = 0
        self._held: dict[int, Any] = {}
        self._count: int | None = None

    def put(self, seq: int, item: Any) -> bool:
        """
        Take an item.

        @param seq: The number of the item in its stream, from 0.
        @param item: The decoded item.
        @return: Whether it is a new one, and within the window.
        """
        if not self._next <= seq < self._next + WINDOW or seq in self._held:
            return False
        if self._count is not None and seq >= self._count:
            return False
        self._held[seq] = item
        return True

    def end(self, count: int | None) -> None:
        """
        Take the end.

        @param count: How many items there are; C{None} for those that have come.
        """
        if self._count is None:
            self._count = max(self._held, default=self._next - 1) + 1 if count is None else count

    def isKnown(self, seq: int) -> bool:
        """
        Return whether an item has come before.

        @param seq: The number of the item in its stream, from 0.
        """
        return 0 <= seq < self._next or seq in self._held

    @property
    def missing(self) -> int:
        """Count the items that have not come, though later ones or the end have."""
        last = max(self._held, default=self._next - 1)
        # An end far ahead counts no items as lost that would not have been accepted.
        count = min(max(last + 1, self._count or 0), self._next + WINDOW)
        return count - self._next - len(self._held)

    @property
    def hasNext(self) -> bool:
        """Return whether the next item is here."""
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


PROTOCOL = "udp"

AMPLIFICATION = 3
"""How many times larger than an unauthenticated datagram its reply may be (RFC 9000
section 8.1 has the same)."""

ACKNOWLEDGE_SECONDS = 1.0
"""Seconds until an ACK is sent, after which the client stops retransmitting the request."""

DATAGRAMS_OF_A_TURN = 32
"""Datagrams of a stream that are sent at once: more would overflow the receiver's buffer
without an error."""

TURN_SECONDS = 0.001
"""The pause after them: some 30,000 datagrams a second at most."""

_log = Logger()

_TYPES = {RESPONSE: "response", ERROR: "error", ITEM: "stream", END: "stream_end"}


@define(eq=False)
class UDPCall:
    """
    A call of a peer.

    @ivar allowed: Bytes that may be sent in reply while the caller is not authenticated.
    @ivar sent: Bytes that were sent for it.
    @ivar seq: The number of the next item.
    @ivar stream: Puts the items of the client's stream in order, once there is one.
    @ivar acknowledging: Tells the client that its request is here.
    """

    allowed: int
    sent: int = 0
    seq: int = 0
    stream: ReorderBuffer | None = None
    acknowledging: IDelayedCall | None = None

    @property
    def requests(self) -> ReorderBuffer:
        """Return what puts the items of the client's stream in order. Most calls have no stream."""
        if self.stream is None:
            self.stream = ReorderBuffer()
        return self.stream


class UDPPeer:
    """
    What a session writes with.

    @ivar session: The peer's session; set once both exist.
    @ivar calls: The calls in flight by id.
    @ivar isReading: Whether the session takes more.
    """

    protocol = PROTOCOL
    session: PeerSession

    def __init__(
        self,
        host: TransportContext,
        client: ClientInfo,
        maxPacketSize: int,
        write: Callable[[bytes], None],
        ended: Callable[[MessageId, bytes, bool], None],
        formatResponse: Callable[..., Any] | None = None,
    ) -> None:
        """
        @param write: Sends a datagram.
        @param ended: Takes the last datagram of an answer with the id, and whether it was known
            who called.
        @param formatResponse: C{(result, type)} gives a datagram in place of a frame.
        """
        self.client = client
        self.calls: dict[MessageId, UDPCall] = {}
        self.isReading = True
        self._host = host
        self._meter = host.meter(PROTOCOL)
        self._maxPacketSize = maxPacketSize
        self._write = write
        self._ended = ended
        self._formatResponse = formatResponse
        self._sentOfTurn = 0

    # Calls

    def begin(self, id: MessageId, size: int) -> None:
        """
        Take note of a call that is about to begin, by a datagram of so many bytes.

        @param id: The id of the request; C{None} for calls answered in order.
        @param size: Bytes of the request, which bound the reply.
        """
        self.calls[id] = UDPCall(size * AMPLIFICATION)

    def begun(self, id: MessageId) -> None:
        """
        Watch a call that did not end at once.

        @param id: An id passed to L{begin}.
        """
        call = self.calls.get(id)
        if call is not None and id is not None:
            clock = self._host.clock
            call.acknowledging = clock.callLater(ACKNOWLEDGE_SECONDS, self._acknowledge, id)

    def forget(self, id: MessageId) -> None:
        """
        Let go of a call that has ended.

        @param id: An id passed to L{begin}; others are ignored.
        """
        call = self.calls.pop(id, None)
        if call is None:
            return
        if call.stream is not None:
            self._meter.lost += call.stream.missing
        timer = call.acknowledging
        if timer is not None and timer.active():
            timer.cancel()

    def _acknowledge(self, id: MessageId) -> None:
        payload = JSON.encode({"id": id})
        self._send(id, encodeFrame(ACK, payload), isPartOfReply=True)

    # What a session writes

    def respond(self, id: MessageId, method: str, result: Any) -> Awaitable[None] | None:
        """
        Send a result.

        @param id: The id of the request; C{None} for calls answered in order.
        @param method: The method's name, for the user's C{formatResponse}.
        @param result: The method's result, before encoding.
        """
        written = self._written(RESPONSE, result, frameResult(id, result))
        if isinstance(written, bytes):
            self._finish(id, written)
            return None
        return self._finishLater(id, written)

    async def _finishLater(self, id: MessageId, written: Awaitable[bytes]) -> None:
        self._finish(id, await written)

    def _finish(self, id: MessageId, datagram: bytes) -> None:
        self._checkSize(datagram)
        isKnown = self.session.isKnown(id)
        if not self._fits(id, len(datagram), True, isKnown):
            raise codedError("RESPONSE_TOO_LARGE", "The answer is too large for an unknown client")
        self._conclude(id, datagram, True, isKnown)

    def sendItem(self, id: MessageId, method: str, item: Any) -> None:
        """
        Send an item of a stream.

        @param id: The id of the request; C{None} for calls answered in order.
        @param method: The method's name, for the user's C{formatResponse}.
        @param item: Any value that the codec of the transport can encode.
        """
        call = self._call(id)
        seq = 0
        if call is not None:
            seq, call.seq = call.seq, call.seq + 1
        written = self._written(ITEM, item, {"id": id, "seq": seq, "data": item})
        datagram = self._immediate(written)
        self._checkSize(datagram)
        if not self._fits(id, len(datagram), False, self.session.isKnown(id)):
            raise codedError("RESPONSE_TOO_LARGE", "An item is too large for an unknown client")
        self._send(id, datagram, isPartOfReply=False)
        self._sentOfTurn += 1

    def sendEnd(self, id: MessageId, method: str) -> None:
        """
        Send the end of a stream.

        @param id: The id of the request; C{None} for calls answered in order.
        @param method: The method's name, for the user's C{formatResponse}.
        """
        call = self._call(id)
        seq = call.seq if call is not None else 0
        written = self._written(END, None, {**frameEnd(id), "seq": seq})
        datagram = self._immediate(written)
        isKnown = self.session.isKnown(id)
        fits = self._fits(id, len(datagram), False, isKnown)
        self._conclude(id, datagram, fits, isKnown)

    def sendError(self, id: MessageId, error: ServiceError) -> None:
        """
        Send an error, if it fits.

        @param id: The id of the request; C{None} for calls answered in order.
        @param error: The error, before C{transformError}.
        """
        datagram = self._error(id, error)
        if len(datagram) > self._maxPacketSize:
            short = codedError("RESPONSE_TOO_LARGE", "The error is too large")
            datagram = encodeFrame(ERROR, JSON.encode(frameError(id, short)))
        isKnown = self.session.isKnown(id)
        fits = self._fits(id, len(datagram), True, isKnown)
        self._conclude(id, datagram, fits, isKnown)

    def _error(self, id: MessageId, error: ServiceError) -> bytes:
        """Write an error, by the user's hook if there is one that does not fail."""
        if self._formatResponse is not None:
            shape = describedError(self._host, PROTOCOL, frameError, id, error)
            try:
                return self._immediate(self._written(ERROR, shape, shape))
            except Exception:
                _log.failure("formatResponse failed")
        payload = encodeError(self._host, PROTOCOL, JSON, frameError, id, error)
        return encodeFrame(ERROR, payload)

    def sendPong(self, payload: bytes) -> None:
        """
        Answer a ping: with as many bytes.

        @param payload: The payload of the ping.
        """
        self._write(encodeFrame(PONG, payload))

    def drained(self) -> Deferred[None] | None:
        """Wait after some datagrams: nothing else slows a sender down."""
        if self._sentOfTurn < DATAGRAMS_OF_A_TURN:
            return None
        self._sentOfTurn = 0
        return deferLater(self._host.clock, TURN_SECONDS)

    def setReading(self, wanted: bool) -> None:
        """
        Take what is held back, or hold back what comes.

        @param wanted: Whether the session accepts more items.
        """
        self.isReading = wanted
        if wanted:
            for id in list(self.calls):
                self.deliver(id)

    # Streams of the client

    def deliver(self, id: MessageId) -> None:
        """
        Pass the items that are in order to the session, as long as it accepts them.

        @param id: The call; one without a stream is ignored.
        """
        call = self.calls.get(id)
        if call is None or call.stream is None:
            return
        requests = call.stream
        while requests.hasNext and self.isReading:
            self.session.item(id, requests.take())
        if requests.isAtEnd:
            self.session.itemsEnd(id)

    # Within

    def _call(self, id: MessageId) -> UDPCall | None:
        """Return a call; one that had no id may have got one from the user's C{routeMessage}."""
        call = self.calls.get(id)
        if call is None and None in self.calls:
            call = self.calls[id] = self.calls.pop(None)
        return call

    def _written(self, type: int, result: Any, payload: Any) -> bytes | Awaitable[bytes]:
        if self._formatResponse is None:
            return encodeFrame(type, JSON.encode(payload))
        written: bytes | Awaitable[bytes] = self._formatResponse(result, _TYPES[type])
        if not isinstance(written, bytes) and not hasattr(written, "__await__"):
            raise TypeError(f"formatResponse gives bytes, not {written!r:.40}")
        return written

    def _immediate(self, written: bytes | Awaitable[bytes]) -> bytes:
        """Return what an C{async} hook returns at once: nothing can wait for it here."""
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
        if len(datagram) > self._maxPacketSize:
            limit = self._maxPacketSize
            raise codedError("RESPONSE_TOO_LARGE", f"A datagram has {limit} bytes at most")

    def _fits(self, id: MessageId, size: int, isPartOfReply: bool, isKnown: bool) -> bool:
        """
        Return whether a datagram may be sent to the caller.

        @param isKnown: Whether the caller is authenticated.
        """
        call = self._call(id)
        if call is None:
            return False
        sent = call.sent if isPartOfReply else 0
        return isKnown or sent + size <= call.allowed

    def _send(self, id: MessageId, datagram: bytes, isPartOfReply: bool) -> None:
        if self._fits(id, len(datagram), isPartOfReply, self.session.isKnown(id)):
            self.calls[id].sent += len(datagram)
            self._write(datagram)

    def _conclude(self, id: MessageId, datagram: bytes, fits: bool, isKnown: bool) -> None:
        """Send the last datagram of an answer, if it fits."""
        # Kept first: once the answer is out, no repetition may run the method again, not even in
        # another process when this one ends here.
        self._ended(id, datagram, isKnown)
        self.forget(id)
        if fits:
            self._write(datagram)


DATAGRAMS_A_SECOND = 20_000
"""Of one address: more than one can sensibly have answered."""


Address = tuple[str, int]


class UDPListener(Protocol):
    """
    What an address needs of the listener that it sends to.

    @ivar replies: The replies that were sent.
    @ivar dropped: How many datagrams were dropped, by reason.
    @ivar meter: What else is counted.
    @ivar invoker: Knows the methods.
    @ivar isClosed: Whether nothing can be sent any more.
    """

    replies: IReplyCache
    dropped: Counter[str]
    meter: TransportMetrics
    invoker: Invoker
    isClosed: bool

    def send(self, source: Address, datagram: bytes) -> None:
        """Send a datagram."""

    def makeWriter(self, source: Address) -> UDPPeer:
        """Make what writes to an address."""

    def makeSession(self, writer: UDPPeer) -> PeerSession:
        """Make the session of an address."""


class UDPSource:
    """
    An address.

    @ivar writer: Sends to it.
    @ivar session: Its calls.
    @ivar lastSeen: When it last sent something.
    """

    def __init__(self, listener: UDPListener, source: Address) -> None:
        self.lastSeen = 0.0
        self._secondEnds = 0.0
        self._hits = 0
        self._listener = listener
        self._source = source
        self.writer = listener.makeWriter(source)
        self.session = self.writer.session = listener.makeSession(self.writer)

    def isTooFast(self, now: float) -> bool:
        """
        Count a datagram, and tell whether there are too many.

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
        Take a frame of a datagram of so many bytes.

        @param type: The number of the frame's type.
        @param payload: JSON in UTF-8, not yet decoded.
        @param size: Bytes of the datagram, which bound the reply.
        """
        try:
            message = JSON.decode(payload)
        except ValueError as error:
            self._refuse(None, size, codedError("INVALID_ARGUMENT", f"Unreadable: {error}"))
            return
        if not isinstance(message, dict):
            self._refuse(None, size, codedError("INVALID_ARGUMENT", "The payload is no object"))
            return
        try:
            id = readId(message.get("id"))
        except ServiceError as error:
            self._refuse(None, size, error)
            return
        if type == REQUEST:
            self.request(message, id, size)
        elif type in (CLIENT_ITEM, CLIENT_END):
            self._handleItem(type, message, id, size)
        elif type == CANCEL:
            self.session.cancel(id)
            self.writer.forget(id)
        else:
            self._refuse(id, size, codedError("INVALID_ARGUMENT", f"Unknown type {type}"))

    def handleMessage(self, message: Any, size: int) -> None:
        """
        Take a message that the user's hook has read.

        @param message: The value that C{parseMessage} returned.
        @param size: Bytes of the datagram, which bound the reply.
        """
        id: MessageId = None
        if isinstance(message, Mapping):
            try:
                id = readId(message.get("id"))
            except ServiceError:
                id = None
        self.request(message, id, size)

    def request(self, message: Any, id: MessageId, size: int) -> None:
        """
        Begin a call, unless it was begun already.

        @param message: The decoded request.
        @param id: The id of the request; C{None} for calls answered in order.
        @param size: Bytes of the datagram, which bound the reply.
        """
        if id is not None:
            known: Any = self._listener.replies.begin((self._source, id), size)
            if known is not None and hasattr(known, "__await__"):
                proceed(known, "a request was dropped", self._begin, message, id, size)
            else:
                self._begin(known, message, id, size)
        elif self._streams(message):
            self._refuse(id, size, codedError("INVALID_ARGUMENT", "A stream needs an id"))
        elif None in self.writer.calls:
            # In order means one at a time, and a client that does not wait cannot tell answers
            # apart: what it wants is an id.
            self._listener.dropped["busy"] += 1
        else:
            self._begin(None, message, id, size)

    def _begin(self, known: CachedReply | None, message: Any, id: MessageId, size: int) -> None:
        if known is not None:
            self._listener.meter.duplicates += 1
            self._repeat(known, size)
        elif not self._listener.isClosed:
            self.writer.begin(id, size)
            self.session.request(message, id)
            self.writer.begun(id)

    def _repeat(self, known: CachedReply, size: int) -> None:
        """Send a reply again; a small datagram with a guessed id gets no large reply."""
        isOwed = known.isKnown and size >= known.size
        answer = known.answer
        if answer is not None and (isOwed or len(answer) <= AMPLIFICATION * size):
            self._listener.send(self._source, answer)

    def _streams(self, message: Any) -> bool:
        if not isinstance(message, Mapping):
            return False
        service, method = message.get("service"), message.get("method")
        if not isinstance(service, str) or not isinstance(method, str):
            return False
        try:
            bound = self._listener.invoker.find(service, method)
        except ServiceError:
            return False
        return bound.streaming != "none"

    def _handleItem(self, type: int, message: Mapping[str, Any], id: MessageId, size: int) -> None:
        call = self.writer.calls.get(id)
        if call is None or id is None:
            return
        call.allowed += 3 * size
        seq: Any = message.get("seq")
        isNumber = isinstance(seq, int) and not isinstance(seq, bool) and seq >= 0
        if type == CLIENT_END:
            call.requests.end(seq if isNumber else None)
        elif not isNumber:
            self._refuse(id, size, codedError("INVALID_ARGUMENT", "An item needs its seq"))
            return
        elif not call.requests.put(seq, message.get("data", {})):
            self._listener.meter.duplicates += call.requests.isKnown(seq)
            self._listener.dropped["item"] += 1
            return
        self.writer.deliver(id)

    def _refuse(self, id: MessageId, size: int, error: ServiceError) -> None:
        """Send an error for a datagram that begins nothing, if it fits."""
        if id not in self.writer.calls:
            self.writer.begin(id, size)
        self.writer.sendError(id, error)


def proceed(value: Any, problem: str, act: Callable[..., object], *more: object) -> None:
    """
    Call a function with a value once it is there; log a failure.

    @param value: A value, or an awaitable of one.
    @param problem: The log message of a failure.
    """
    waiting = Deferred.fromCoroutine(resolve(value)).addCallback(act, *more)
    waiting.addErrback(lambda failure: _log.failure(problem, failure))
