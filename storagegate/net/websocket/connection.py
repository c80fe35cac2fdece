"""
One WebSocket connection with its limits.

Autobahn reads frames, inflates, and checks the grammar. L{WebSocketConnection} adds bounds to what
is read and queued, and passes Autobahn small pieces, because it copies all unread bytes per frame.

L{readPlain} reads most messages without Autobahn: one frame, final, short and not compressed. RFC
6455 section 5.2, as far as it is read here::

    frame       = first length mask payload
    first       = %x81 / %x82               a complete message, text or bytes; no extension
    length      = %x80-FD                   1 byte: masked, and 0 to 125
                / %xFE 2OCTET               masked, and 126 to 4096
    mask        = 4OCTET
    payload     = *OCTET                    each byte XOR one of the mask; text is UTF-8

All other frames, and invalid ones, are left to Autobahn, so that one implementation reports errors.
"""

from collections import deque
from collections.abc import Callable
from struct import Struct
from types import SimpleNamespace
from typing import Any, cast

from autobahn.twisted.websocket import WebSocketServerFactory, WebSocketServerProtocol
from autobahn.websocket.compress import PerMessageDeflateOffer, PerMessageDeflateOfferAccept
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IPushProducer, IReactorTime
from twisted.internet.protocol import connectionDone
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

from storagegate.core.context import REQUEST_SECONDS
from storagegate.core.errors import ServiceError
from storagegate.core.heldbytes import PROCESS_BUDGET, HeldBuffer, HeldBytes
from storagegate.core.shares import AddressShare
from storagegate.net.scheduling import InputScheduler
from storagegate.net.transport import FastServer
from storagegate.net.websocket.handshake import Handshake
from storagegate.net.websocket.interfaces import Receiver, WebSocketLimits, WebSocketMeter

LONGEST = 4096
"""Bytes of a message that is read here: for longer ones Autobahn's C code is faster."""

_TEXT, _BINARY = 0x81, 0x82

_NO_CONTENT = HeldBuffer()
"""Stands for the content of a message where none has begun."""

_packShort = Struct("!BBH").pack
_packLong = Struct("!BBQ").pack

Plain = tuple[bytes, bool, int]
"""The payload of a message, whether it is bytes, and where the next frame begins."""


def readPlain(data: bytes, at: int, limit: int) -> Plain | None:
    """
    Read a message, in a tenth of the time that Autobahn takes.

    @param data: The unread bytes of the connection.
    @param at: Where the frame of the message begins.
    @param limit: Bytes of the message at most.
    @return: C{None} if it is incomplete, or left to Autobahn.
    """
    if len(data) - at < 6:
        return None
    first, size = data[at], data[at + 1] - 0x80
    if size == 126:
        size = data[at + 2] << 8 | data[at + 3]
        if not 126 <= size <= LONGEST:
            return None
        key = at + 4
    elif 0 <= size < 126:
        key = at + 2
    else:
        return None
    begin = key + 4
    end = begin + size
    if size > limit or end > len(data) or first not in (_TEXT, _BINARY):
        return None
    # As large numbers: Python has no faster XOR of all bytes.
    mask = int.from_bytes((data[key:begin] * (size // 4 + 1))[:size], "little")
    payload = (int.from_bytes(data[begin:end], "little") ^ mask).to_bytes(size, "little")
    if first == _TEXT and not payload.isascii():
        try:
            payload.decode()
        except UnicodeDecodeError:
            return None
    return payload, first == _BINARY, end


def _longHead(first: int, length: int) -> bytes:
    """
    Write the head of a frame to a client, without a mask, whose length does not fit in its byte.

    @param first: Its first byte.
    @param length: Bytes of the payload, from 126.
    """
    if length < 0x10000:
        return _packShort(first, 126, length)
    return _packLong(first, 127, length)


_OPEN = WebSocketServerProtocol.STATE_OPEN

GOING_AWAY = 1001
NO_CODE = 1005
LOST = 1006
POLICY = 1008
TOO_BIG = 1009
INTERNAL = 1011
TRY_LATER = 1013

CUT = b"calls were cut"
"""The reason of a close for which calls were cancelled; without it, none were."""

MAX_EMPTY_FRAMES = 4096
"""Empty frames of a message: they are an attack. Of others it may have one for each byte."""


CLOSE_SECONDS = 5
"""How long a peer has to send its own close."""


class NullLogger:
    """A log that drops the errors of clients, which could fill a disk with them."""

    def __getattr__(self, level: str) -> Callable[..., None]:
        return self._ignore

    def _ignore(self, *arguments: Any, **keywords: Any) -> None:
        pass


MAX_UNSENT = 64 * 1024 * 1024
"""Bytes that wait for a peer which reads slowly. Streams pause and it is not read either, so only
the results of calls in flight can be so many."""

# Autobahn copies all unread input for each frame that it reads: this much at most.
_PIECE = 4096

# Messages are joined up to this size before they go out.
_JOINED = 64 * 1024

# Below this deflate makes messages larger, or not much smaller.
_COMPRESSED = 256

_log = Logger()


@implementer(IPushProducer)
class WebSocketConnection(WebSocketServerProtocol):
    """
    One WebSocket.

    @ivar handshake: The request that was accepted.
    @ivar receiver: Takes its messages.
    @ivar share: What the client's address has of the server.
    @ivar hasReceived: Whether input has come since this was last set to C{False}.
    @ivar isFull: Whether the peer is behind with reading.
    @ivar isPaused: Whether the peer is not read.
    @ivar openedAt: When it was made, in seconds of the reactor's clock.
    @ivar held: Bytes of an incomplete message.
    """

    log = NullLogger()
    transport: Any
    message_data: Any
    inside_message = False
    localCloseCode: Any
    localCloseReason: Any
    maxMessagePayloadSize: int

    def __init__(self, handshake: Handshake, meter: WebSocketMeter) -> None:
        """
        @param meter: Counts bytes and messages.
        """
        super().__init__()
        self.handshake = handshake
        self.receiver: Receiver
        self.share: AddressShare
        self.meter = meter
        self.openedAt = 0.0
        self.held = 0
        self.hasReceived = True
        # Autobahn has it in the class, which takes ten times as long to look up.
        self.inside_message = False
        self._isPinged = False
        # Since when a part of a message is known to be here, in seconds of the reactor's clock.
        self._partSince: float | None = None
        self._seenSent = -1
        self.isFull = self.isPaused = self._isReading = self._isOver = self._isDiscarding = False
        self._isLeaving = self._isSettling = self._isGone = False
        self._isWanted = True
        # Whether other connections come first, see InputScheduler.
        self._isWaiting = False
        # Input that came while the peer was held, and output until the input has been read.
        self._pending = b""
        self._outgoing: list[bytes] = []
        self._outgoingSize = self._unsent = self._handled = 0
        self._fragments = self._emptyFragments = 0
        self._content = _NO_CONTENT
        self._drained: deque[Deferred[None]] = deque()

    # Connection

    def connectionMade(self) -> None:
        """Send the response to the handshake."""
        super().connectionMade()
        self.transport.registerProducer(self, True)
        self.dataReceived(self.handshake.head)

    def onConnect(self, request: Any) -> Any:
        """Agree on the subprotocol, and add fields to the response."""
        return self.handshake.subprotocol, self.handshake.fields

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """End everything."""
        self._isGone = True
        # Autobahn's own method logs each broken TLS connection as an error.
        self._connectionLost(reason)  # type: ignore[arg-type]
        if self.closeHandshakeTimeoutCall is not None:
            self.closeHandshakeTimeoutCall.cancel()
            self.closeHandshakeTimeoutCall = None
        self._end()
        self.factory.onLost(self)
        # No cycle is left to the garbage collector, nor half a message in it.
        del self.receiver
        self.is_open = self.is_closed = self.message_data = None
        self._content.clear()
        self.current_frame = cast(Any, None)
        self.data = self._pending = b""

    def leave(self) -> None:
        """
        Close behind the next reply after which no call is in flight.

        The reply and the close go out in one piece: a client that waits for it receives both, or
        none.
        """
        self._isLeaving = True

    def _settle(self) -> None:
        """Send the output that was held back, and close if no call is in flight."""
        self._isSettling = False
        if self.isOpen and self.receiver.isIdle and not (self._pending or self._isMidway):
            self.goAway()
        else:
            self._flush()

    def goAway(self) -> None:
        """
        Close, because this end stops; drop a peer that was sent a close before.

        A close without a reason says that every call that was begun is answered.
        """
        if not self.isOpen:
            self.abort()
        elif not self._isOver:
            reason = b"" if self.receiver.isIdle and not self._pending else CUT
            self.close(GOING_AWAY, reason)

    def close(self, code: int, reason: bytes = b"") -> None:
        """
        Send a close, and ignore what the peer sends until its own.

        @param code: One that an endpoint may send.
        @param reason: UTF-8, 123 bytes at most.
        """
        if not self.isOpen or self._isOver:
            return
        self.localCloseCode, self.localCloseReason = code, reason.decode()
        # Ending the cancelled calls closes the connections that wait for them.
        self._end()
        self.sendCloseFrame(code, reason)
        self._flush()
        # The peer's own close may be behind messages that are not wanted any more.
        self._updateReading()

    def abort(self) -> None:
        """Drop the connection without a close."""
        self.dropConnection(abort=True)
        # That does nothing where the connection was dropped before, but is still there.
        if self.transport is not None:
            self.transport.abortConnection()

    def checkAlive(self) -> None:
        """
        Check whether the peer is alive and its message complete. Called every C{pingSeconds}.

        A silent one is pinged; one that sends no pong by the next time, reads nothing of its
        output, or does not go after the close is dropped. The pong of one that is paused because of
        its calls is not read: the ping is for its system, which reports that it has gone.
        """
        if not self._isMidway or self.isPaused or not self.isOpen:
            self._partSince = None
        elif self._partSince is None:
            self._partSince = self.factory.clock.seconds()
        elif self.factory.clock.seconds() - self._partSince >= REQUEST_SECONDS:
            self._fail_connection(POLICY, "A message was not complete in time")
            return
        sent = getattr(self.transport, "sentBytes", 0)
        isMoving = sent != self._seenSent
        self._seenSent = sent
        if self.hasReceived:
            self.hasReceived = self._isPinged = False
            return
        isExcused = isMoving if self.isFull else self.isPaused
        if self._isPinged and not isExcused:
            self.abort()
        else:
            self._isPinged = True
            self.sendPing()

    @property
    def _isMidway(self) -> bool:
        """Return whether a part of a message is here."""
        return bool(self.data or self.inside_message or self.current_frame is not None)

    @property
    def isOpen(self) -> bool:
        """Return whether messages may be sent."""
        return bool(self.state == _OPEN)

    @property
    def closing(self) -> tuple[int, str]:
        """Return the code and the reason of the close: the peer's, if it has sent one."""
        code, reason = self.remoteCloseCode, self.remoteCloseReason
        if code is None:
            code, reason = self.localCloseCode, self.localCloseReason
        if code is None:
            code = NO_CODE if self.wasClean else LOST
        return code, reason or ""

    def _end(self) -> None:
        """Cancel the calls of the peer, once."""
        if self._isOver:
            return
        self._isOver = True
        self._hold()
        self.receiver.lost()
        while self._drained:
            waiting = self._drained.popleft()
            if not waiting.called:
                waiting.callback(None)

    # Reading

    def dataReceived(self, data: bytes) -> None:
        """Read the bytes received, until the receiver pauses."""
        self.hasReceived = True
        self.meter.bytesIn += len(data)
        if not self._isDiscarding:
            self._pending = self._pending + data if self._pending else data
            self._read()

    def _read(self) -> None:
        if self._isReading:
            return
        self._isReading = True
        self._handled = 0
        try:
            while not (self.isPaused or self._isDiscarding):
                if self.state == _OPEN and not (
                    self.data or self.current_frame or self.inside_message
                ):
                    self._readPlain()
                    if self.isPaused or not self._pending:
                        return
                piece, self._pending = self._pending[:_PIECE], self._pending[_PIECE:]
                self._dataReceived(piece)
                if self._outgoing and not self._isLeaving:
                    self._flush()
                if not self._pending:
                    return
        finally:
            self._isReading = False
            if self._outgoing and not self._isLeaving:
                self._flush()
            if self.inside_message or self.held:
                self._hold()

    def _hold(self) -> None:
        """Account for the bytes of an incomplete message."""
        held = 0
        if self.inside_message and not self._isOver:
            held = self._content.size
        if held != self.held:
            self.held = held
            self.factory.budget.update(self, held)

    def refuseHeld(self, error: ServiceError) -> None:
        """Close: no reply could name the incomplete message, see L{IByteHolder}."""
        self._fail_connection(TRY_LATER, error.message)
        # The client may take seconds to go.
        self._content.clear()

    def _readPlain(self) -> None:
        """Read plain messages without Autobahn, which saves 14 microseconds each."""
        data, self._pending = self._pending, b""
        at, size = 0, len(data)
        while at < size and self.state == _OPEN and not self.isPaused:
            plain = readPlain(data, at, self.maxMessagePayloadSize)
            if plain is None:
                break
            payload, isBinary, at = plain
            self._deliver(payload, isBinary)
            if at < size:
                self._checkSlice(1)
        if not self._isDiscarding and (at < size or self._pending):
            # Input may have come meanwhile; a peer that was sent a close has to send its own.
            self._pending = data[at:] + self._pending

    def processData(self) -> bool:
        """Read the next part of a frame, if it is wanted; return whether there may be more."""
        if self.isPaused or self._isDiscarding or not super().processData():
            return False
        self._checkSlice(0)
        return True

    def _checkSlice(self, messages: int) -> None:
        """
        Wait if other connections come first.

        @param messages: How many were handled since the last time.
        """
        scheduler = self.factory.scheduler
        if not self._handled:
            scheduler.begin()
            self._handled = 1
            return
        self._handled += messages
        if scheduler.isOver(self._handled):
            self._isWaiting = True
            self._updateReading()
            scheduler.wait(self._endWaiting)

    def _endWaiting(self) -> None:
        """Read on: it is the turn of this connection."""
        self._isWaiting = False
        self._updateReading()

    def onMessageBegin(self, isBinary: bool) -> None:
        """Begin a message."""
        super().onMessageBegin(isBinary)
        self._fragments = self._emptyFragments = 0
        # Replaces Autobahn's lists of pieces.
        self._content = HeldBuffer()

    def onMessageFrameBegin(self, length: int) -> None:
        """Begin a frame of a message."""
        super().onMessageFrameBegin(length)
        self._fragments += 1
        self._emptyFragments += not length
        # Compressed frames may bring nothing, too.
        isEndless = self._fragments - self._emptyFragments > self.maxMessagePayloadSize
        if isEndless or self._emptyFragments > MAX_EMPTY_FRAMES:
            self._fail_connection(TOO_BIG, "A message has too many frames")

    def onMessageFrameData(self, payload: bytes) -> None:
        """Keep a part of a message."""
        if not self.failedByMe:
            self._content.append(payload)

    def onMessageFrameEnd(self) -> None:
        """End a frame of a message."""

    def onMessageEnd(self) -> None:
        """Hand a message over."""
        if self.isOpen:
            self._deliver(self._content.take(), self.message_is_binary)
        self._content.clear()
        self._content = _NO_CONTENT
        self.message_data = None

    def _deliver(self, payload: bytes, isBinary: bool) -> None:
        self.meter.messagesIn += 1
        self._partSince = None
        try:
            self.receiver.received(payload, isBinary)
        except Exception:
            # No client can cause this: it is a mistake of this package.
            _log.failure("a message was not taken")
            self._fail_connection(INTERNAL, "Internal error")

    def setReading(self, wanted: bool) -> None:
        """
        Read on, or let the peer wait.

        @param wanted: Whether the session accepts more.
        """
        self._isWanted = wanted
        self._updateReading()

    def _updateReading(self) -> None:
        held = self.isFull or self._isWaiting or not (self._isWanted or self._isOver)
        if held == self.isPaused or self._isDiscarding or self._isGone:
            return
        self.isPaused = held
        if held:
            self.transport.pauseProducing()
        else:
            self.transport.resumeProducing()
            self._read()

    # Writing

    def sendText(self, payload: bytes, first: int = _TEXT) -> None:
        """
        Send a message of text, in one frame.

        Autobahn's C{sendMessage} applies the limit of input to output, too, and takes as long as
        the rest of a small call.

        @param payload: UTF-8, not checked here.
        @param first: The first byte of the frame.
        """
        if self.state != _OPEN:
            return
        size = len(payload)
        if size >= _COMPRESSED and self._perMessageCompress is not None:
            deflate = self._perMessageCompress
            deflate.start_compress_message()
            payload = deflate.compress_message_data(payload) + deflate.end_compress_message()
            first |= 0x40
            size = len(payload)
        self.meter.messagesOut += 1
        head = bytes((first, size)) if size < 126 else _longHead(first, size)
        self.sendData(head + payload)

    def sendBinary(self, payload: bytes) -> None:
        """Send a message of bytes."""
        self.sendText(payload, _BINARY)

    def sendData(self, data: bytes, sync: bool = False, chopsize: int | None = None) -> None:
        """Send bytes; those that are sent while input is read go out together."""
        size = len(data)
        self.meter.bytesOut += size
        if self.isFull:
            self._unsent += size
            if self._unsent > MAX_UNSENT:
                self._unsent = -MAX_UNSENT
                self._fail_connection(TRY_LATER, "Too much is unread")
                return
        if not (self._isReading or self._isLeaving):
            self.transport.write(data)
            return
        self._outgoing.append(data)
        self._outgoingSize += size
        if self._outgoingSize >= _JOINED:
            self._flush()
        elif self._isLeaving and not self._isSettling:
            # Two turns, for delayed calls run before sockets are read: calls that the peer has sent
            # already are still answered.
            self._isSettling = True
            clock = self.factory.clock
            clock.callLater(0, clock.callLater, 0, self._settle)

    def _flush(self) -> None:
        outgoing, self._outgoing = self._outgoing, []
        self._outgoingSize = 0
        if outgoing and self.transport is not None:
            self.transport.write(outgoing[0] if len(outgoing) == 1 else b"".join(outgoing))

    def drained(self) -> Deferred[None] | None:
        """Wait until the peer has read enough of what was sent; C{None} if it has."""
        if not self.isFull or self._isOver:
            return None
        waiting: Deferred[None] = Deferred()
        self._drained.append(waiting)
        return waiting

    def pauseProducing(self) -> None:
        """Wait for a peer that is behind with reading; its input waits, too."""
        self.isFull = True
        self._unsent = 0
        self._updateReading()

    def resumeProducing(self) -> None:
        """Resume the writers that wait, then the peer's messages."""
        self.isFull = False
        while self._drained and not self.isFull:
            waiting = self._drained.popleft()
            if not waiting.called:
                waiting.callback(None)
        self._updateReading()

    def stopProducing(self) -> None:
        """Do nothing: C{connectionLost} follows."""

    # Ends

    def _fail_connection(self, code: int = GOING_AWAY, reason: str = "") -> None:
        """
        Close because of an error of the peer.

        RFC 6455 section 7.1.7: its further input is ignored, its own close, too. The connection is
        closed in one direction, so that the close of this end is not lost.
        """
        isNew = not self._isDiscarding
        super()._fail_connection(code, reason)
        self._isDiscarding = True
        self._pending = b""
        self._end()
        if isNew and self.transport is not None:
            self._flush()
            self.unregisterProducer()
            if self.isPaused:
                self.transport.resumeProducing()
            self.isFull = self.isPaused = False
            if isinstance(self.transport, FastServer):
                self.transport.loseWriteConnection()
            else:
                self.transport.loseConnection()

    def _closeConnection(self, abort: bool = False) -> None:
        """Close the connection; after a complete closing handshake without a reset."""
        self._flush()
        super()._closeConnection(abort and not self.wasClean)


# Memory of a compressor: 16 KiB instead of 256 KiB, for each of ten thousand connections.
_WINDOW_BITS = 11
_MEMORY_LEVEL = 4


class WebSocketFactory(WebSocketServerFactory):
    """Makes connections, all with the same limits."""

    log = NullLogger()

    def __init__(
        self,
        clock: IReactorTime,
        limits: WebSocketLimits,
        onLost: Callable[[WebSocketConnection], None],
        budget: HeldBytes = PROCESS_BUDGET,
    ) -> None:
        """
        @param onLost: Called when the connection is gone.
        @param budget: Counts the bytes of incomplete messages.
        """
        super().__init__(server="", reactor=clock)
        self.onLost = onLost
        self.budget = budget
        self.clock = clock
        self.scheduler = InputScheduler(clock)
        # Else Autobahn takes its timers from the process's reactor.
        self._batched_timer = SimpleNamespace(call_later=clock.callLater)
        self.setProtocolOptions(
            # Versions before the RFC have no clients any more.
            versions=[13],
            maxMessagePayloadSize=limits.maxMessageSize,
            failByDrop=False,
            # The whole handshake is here when a connection is made.
            openHandshakeTimeout=0,
            closeHandshakeTimeout=CLOSE_SECONDS,
            perMessageCompressionAccept=_acceptDeflate if limits.enableCompression else None,
        )

    def buildConnection(self, handshake: Handshake, meter: WebSocketMeter) -> WebSocketConnection:
        """
        Make a connection after a handshake.

        @param meter: Counts bytes and messages.
        """
        connection = WebSocketConnection(handshake, meter)
        connection.factory = self
        return connection


def _acceptDeflate(offers: list[Any]) -> Any:
    for offer in offers:
        if isinstance(offer, PerMessageDeflateOffer):
            bits = offer.request_max_window_bits
            return PerMessageDeflateOfferAccept(
                offer,
                window_bits=min(bits, _WINDOW_BITS) if bits else _WINDOW_BITS,
                mem_level=_MEMORY_LEVEL,
            )
    return None
