"""
One address that sends datagrams, as a session's peer.

Whoever sends from an address may have forged it, so an answer to a datagram without a good token is
never larger than three times it: all datagrams of a unary call together, each one of a stream.
What does not fit is an error, and where not even that fits, silence.
"""

from collections.abc import Awaitable, Callable
from typing import Any

from attrs import define
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall
from twisted.internet.task import deferLater
from twisted.logger import Logger

from storagegate.core.context import Client
from storagegate.core.errors import ServiceError, codedError
from storagegate.gateway.codecs import JSON
from storagegate.gateway.frames import ACK, END, ERROR, ITEM, PONG, RESPONSE, encodeFrame
from storagegate.gateway.host import GatewayHost
from storagegate.gateway.session import Session
from storagegate.gateway.shapes import MessageId, frameEnd, frameError, frameResult
from storagegate.gateway.udpstreams import Reorder
from storagegate.gateway.wsmessages import describedError, encodeError

PROTOCOL = "udp"

AMPLIFICATION = 3
"""How many times larger than a datagram that anybody may have sent its answer may be (RFC 9000
section 8.1 has the same)."""

ACKNOWLEDGE_SECONDS = 1.0
"""After so long a client is told that its request is here, so that it stops repeating it."""

DATAGRAMS_OF_A_TURN = 32
"""Datagrams of a stream that are sent at once: more would overflow the receiver's buffer, and
nobody would tell."""

TURN_SECONDS = 0.001
"""The pause after them: some 30,000 datagrams a second at most."""

_log = Logger()

_TYPES = {RESPONSE: "response", ERROR: "error", ITEM: "stream", END: "stream_end"}


@define(eq=False)
class Exchange:
    """
    A call of a peer.

    @ivar allowed: Bytes that may answer it as long as nobody is known.
    @ivar sent: Bytes that were sent for it.
    @ivar seq: The number of the next item.
    @ivar stream: Puts the items of the client's stream in order, once there is one.
    @ivar acknowledging: Tells the client that its request is here.
    """

    allowed: int
    sent: int = 0
    seq: int = 0
    stream: Reorder | None = None
    acknowledging: IDelayedCall | None = None

    @property
    def requests(self) -> Reorder:
        """Give what puts the items of the client's stream in order. Most calls have no stream."""
        if self.stream is None:
            self.stream = Reorder()
        return self.stream


class UDPPeer:
    """
    What a session writes with.

    @ivar session: The peer's session, which whoever makes both sets.
    @ivar exchanges: The calls under way by id.
    @ivar isReading: Whether the session takes more.
    """

    protocol = PROTOCOL
    session: Session

    def __init__(
        self,
        host: GatewayHost,
        client: Client,
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
        self.exchanges: dict[MessageId, Exchange] = {}
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
        """Take note of a call that is about to begin, by a datagram of so many bytes."""
        self.exchanges[id] = Exchange(size * AMPLIFICATION)

    def begun(self, id: MessageId) -> None:
        """Watch a call that did not end at once."""
        exchange = self.exchanges.get(id)
        if exchange is not None and id is not None:
            clock = self._host.clock
            exchange.acknowledging = clock.callLater(ACKNOWLEDGE_SECONDS, self._acknowledge, id)

    def forget(self, id: MessageId) -> None:
        """Let go of a call that has ended."""
        exchange = self.exchanges.pop(id, None)
        if exchange is None:
            return
        if exchange.stream is not None:
            self._meter.lost += exchange.stream.missing
        timer = exchange.acknowledging
        if timer is not None and timer.active():
            timer.cancel()

    def _acknowledge(self, id: MessageId) -> None:
        payload = JSON.encode({"id": id})
        self._send(id, encodeFrame(ACK, payload), isPartOfAnswer=True)

    # What a session writes

    def respond(self, id: MessageId, method: str, result: Any) -> Awaitable[None] | None:
        """Send a result."""
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
        """Send an item of a stream."""
        exchange = self._exchange(id)
        seq = 0
        if exchange is not None:
            seq, exchange.seq = exchange.seq, exchange.seq + 1
        written = self._written(ITEM, item, {"id": id, "seq": seq, "data": item})
        datagram = self._immediate(written)
        self._checkSize(datagram)
        if not self._fits(id, len(datagram), False, self.session.isKnown(id)):
            raise codedError("RESPONSE_TOO_LARGE", "An item is too large for an unknown client")
        self._send(id, datagram, isPartOfAnswer=False)
        self._sentOfTurn += 1

    def sendEnd(self, id: MessageId, method: str) -> None:
        """Send the end of a stream."""
        exchange = self._exchange(id)
        seq = exchange.seq if exchange is not None else 0
        written = self._written(END, None, {**frameEnd(id), "seq": seq})
        datagram = self._immediate(written)
        isKnown = self.session.isKnown(id)
        fits = self._fits(id, len(datagram), False, isKnown)
        self._conclude(id, datagram, fits, isKnown)

    def sendError(self, id: MessageId, error: ServiceError) -> None:
        """Send an error, if it fits."""
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
        """Answer a ping: with as many bytes."""
        self._write(encodeFrame(PONG, payload))

    def drained(self) -> Deferred[None] | None:
        """Wait after some datagrams: nothing else slows a sender down."""
        if self._sentOfTurn < DATAGRAMS_OF_A_TURN:
            return None
        self._sentOfTurn = 0
        return deferLater(self._host.clock, TURN_SECONDS)

    def setReading(self, wanted: bool) -> None:
        """Take what is held back, or hold back what comes."""
        self.isReading = wanted
        if wanted:
            for id in list(self.exchanges):
                self.deliver(id)

    # Streams of the client

    def deliver(self, id: MessageId) -> None:
        """Give the session the items that are in order, as long as it takes them."""
        exchange = self.exchanges.get(id)
        if exchange is None or exchange.stream is None:
            return
        requests = exchange.stream
        while requests.hasNext and self.isReading:
            self.session.item(id, requests.take())
        if requests.isAtEnd:
            self.session.itemsEnd(id)

    # Within

    def _exchange(self, id: MessageId) -> Exchange | None:
        """Give a call; one that had no id may have got one from the user's C{routeMessage}."""
        exchange = self.exchanges.get(id)
        if exchange is None and None in self.exchanges:
            exchange = self.exchanges[id] = self.exchanges.pop(None)
        return exchange

    def _written(self, type: int, result: Any, payload: Any) -> bytes | Awaitable[bytes]:
        if self._formatResponse is None:
            return encodeFrame(type, JSON.encode(payload))
        written: bytes | Awaitable[bytes] = self._formatResponse(result, _TYPES[type])
        if not isinstance(written, bytes) and not hasattr(written, "__await__"):
            raise TypeError(f"formatResponse gives bytes, not {written!r:.40}")
        return written

    def _immediate(self, written: bytes | Awaitable[bytes]) -> bytes:
        """Give what an C{async} hook returns at once: there is nobody who could wait."""
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

    def _fits(self, id: MessageId, size: int, isPartOfAnswer: bool, isKnown: bool) -> bool:
        """
        Tell whether a datagram may be sent to whoever calls.

        @param isKnown: Whether it is known who that is.
        """
        exchange = self._exchange(id)
        if exchange is None:
            return False
        sent = exchange.sent if isPartOfAnswer else 0
        return isKnown or sent + size <= exchange.allowed

    def _send(self, id: MessageId, datagram: bytes, isPartOfAnswer: bool) -> None:
        if self._fits(id, len(datagram), isPartOfAnswer, self.session.isKnown(id)):
            self.exchanges[id].sent += len(datagram)
            self._write(datagram)

    def _conclude(self, id: MessageId, datagram: bytes, fits: bool, isKnown: bool) -> None:
        """Send the last datagram of an answer, if it fits."""
        # Kept first: once the answer is out, no repetition may run the method again, not even in
        # another process when this one ends here.
        self._ended(id, datagram, isKnown)
        self.forget(id)
        if fits:
            self._write(datagram)
