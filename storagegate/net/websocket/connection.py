"""
One WebSocket connection with its limits.

Autobahn parses frames, inflates, and checks the grammar. L{WebSocketConnection} bounds its input
and output, and passes Autobahn small pieces, because it copies all unread bytes for each frame.

L{readPlain} parses most messages without Autobahn: a single short, uncompressed frame. The
supported part of RFC 6455 section 5.2::

    frame       = first length mask payload
    first       = %x81 / %x82               a complete message, text or bytes; no extension
    length      = %x80-FD                   1 byte: masked, and 0 to 125
                / %xFE 2OCTET               masked, and 126 to 4096
    mask        = 4OCTET
    payload     = *OCTET                    each byte XOR one of the mask; text is UTF-8

All other frames, including invalid ones, are left to Autobahn, so that one implementation reports
errors.
"""

from collections import deque
from collections.abc import Callable
from struct import Struct
from types import SimpleNamespace
from typing import Any, cast

import txaio
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
from storagegate.net.transport import MAX_UNSENT, FastServer
from storagegate.net.websocket.handshake import Handshake
from storagegate.net.websocket.interfaces import Receiver, WebSocketLimits, WebSocketMeter

LONGEST = 4096
"""Maximum number of bytes of a message parsed here: for longer ones Autobahn's C code is faster."""

_TEXT, _BINARY = 0x81, 0x82

_NO_CONTENT = HeldBuffer()
"""The content of a message that has not begun."""

_packShort = Struct("!BBH").pack
_packLong = Struct("!BBQ").pack

Plain = tuple[bytes, bool, int]
"""The payload of a message, whether it is binary, and the offset of the next frame."""


def readPlain(data: bytes, at: int, limit: int) -> Plain | None:
    """
    Parse a message, in a tenth of Autobahn's time.

    @param data: The unread bytes of the connection.
    @param at: The offset of the message's frame.
    @param limit: Maximum number of bytes of the message.
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
    # As large integers: Python has no faster XOR of bytes.
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
    Encode the head of an unmasked frame with an extended length.

    @param first: The first byte of the frame.
    @param length: The length of the payload, at least 126.
    """
    if length < 0x10000:
        return _packShort(first, 126, length)
    return _packLong(first, 127, length)


_OPEN = WebSocketServerProtocol.STATE_OPEN

GOING_AWAY = 1001
NO_CODE = 1005
LOST = 1006
INVALID = 1007
POLICY = 1008
TOO_BIG = 1009
INTERNAL = 1011
TRY_LATER = 1013

CUT = b"calls were cut"
"""The reason of a close that cancelled calls; without it, no call was cancelled."""

MAX_AFTER_FINAL = 1
"""Maximum number of bytes of a message after a final block of deflate: RFC 7692 section 7.2.3.4 has
an empty one."""

MAX_EMPTY_FRAMES = 4096
"""Maximum number of empty frames of a message, as many are an attack. Non-empty frames are limited
to one per byte."""


CLOSE_SECONDS = 5
"""Time for a peer to send its close."""


txaio.use_twisted()

# The function above sets it.
AUTOBAHN_LOG = txaio.make_logger(level="error")  # type: ignore[attr-defined]
"""
The log of Autobahn's classes, which txaio passes to Twisted's. It has only Autobahn's errors, which
are mistakes of the program. Warnings and notes are about mistakes of peers, who could fill a disk,
and debug lines contain the credentials of handshakes. So txaio's global level does not change it.
"""

# Autobahn copies all unread input for each frame, so it gets at most this much.
_PIECE = 4096

# Messages are joined up to this size before they are sent.
_JOINED = 64 * 1024

# Below this size, deflate makes messages larger, or not much smaller.
_COMPRESSED = 256

_log = Logger()


@implementer(IPushProducer)
class WebSocketConnection(WebSocketServerProtocol):
    """
    One WebSocket.

    @ivar handshake: The accepted handshake.
    @ivar receiver: The receiver of messages.
    @ivar share: The server's counts for the client's address.
    @ivar hasReceived: Whether input has arrived since this was last set to C{False}.
    @ivar isFull: Whether the peer has fallen behind with reading.
    @ivar isPaused: Whether reading from the peer is paused.
    @ivar openedAt: The time of creation, in seconds of the reactor's clock.
    @ivar held: Bytes of an incomplete message.
    """

    log = AUTOBAHN_LOG
    transport: Any
    message_data: Any
    inside_message = False
    _isMessageCompressed: bool
    _perMessageCompress: Any
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
        # Autobahn has it on the class, where the lookup takes ten times as long.
        self.inside_message = False
        self._isPinged = False
        # The time since which an incomplete message has been seen, in seconds of the reactor's
        # clock.
        self._partSince: float | None = None
        self._seenSent = -1
        self.isFull = self.isPaused = self._isReading = self._isOver = self._isDiscarding = False
        self._isLeaving = self._isSettling = self._isGone = False
        self._isWanted = True
        # Whether other connections are served first; see InputScheduler.
        self._isWaiting = False
        # Input received while reading was paused, and output held until the input has been read.
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
        """Select the subprotocol, and add fields to the response."""
        return self.handshake.subprotocol, self.handshake.fields

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """End the connection."""
        self._isGone = True
        # Autobahn's own method logs each broken TLS connection as an error.
        self._connectionLost(reason)  # type: ignore[arg-type]
        if self.closeHandshakeTimeoutCall is not None:
            self.closeHandshakeTimeoutCall.cancel()
            self.closeHandshakeTimeoutCall = None
        self._end()
        self.factory.onLost(self)
        # Leave no cycles, and no partial message in them, to the garbage collector.
        del self.receiver
        self.is_open = self.is_closed = self.message_data = None
        self._content.clear()
        self.current_frame = cast(Any, None)
        self.data = self._pending = b""

    def leave(self) -> None:
        """
        Close after the next reply that leaves no call in flight.

        The reply and the close are sent in one piece, so that a waiting client receives both or
        neither.
        """
        self._isLeaving = True

    def _settle(self) -> None:
        """Send held-back output, and close if no call is in flight."""
        self._isSettling = False
        if self.isOpen and self.receiver.isIdle and not (self._pending or self._isMidway):
            self.goAway()
        else:
            self._flush()

    def goAway(self) -> None:
        """
        Close, because the server stops; drop a peer that was already sent a close.

        A close without a reason means that every call was answered.
        """
        if not self.isOpen:
            self.abort()
        elif not self._isOver:
            reason = b"" if self.receiver.isIdle and not self._pending else CUT
            self.close(GOING_AWAY, reason)

    def close(self, code: int, reason: bytes = b"") -> None:
        """
        Send a close, and ignore further messages until the peer's close.

        @param code: One that an endpoint may send.
        @param reason: At most 123 bytes of UTF-8.
        """
        if not self.isOpen or self._isOver:
            return
        self.localCloseCode, self.localCloseReason = code, reason
        # Ending the cancelled calls closes the connections that wait for them.
        self._end()
        self.sendCloseFrame(code, reason)
        self._flush()
        # The peer's close may follow messages that are no longer wanted.
        self._updateReading()

    def abort(self) -> None:
        """Drop the connection without a close."""
        self.dropConnection(abort=True)
        # dropConnection does nothing if the connection was already dropped but still exists.
        if self.transport is not None:
            self.transport.abortConnection()

    def checkAlive(self) -> None:
        """
        Check whether the peer is alive and its message complete. Called every C{pingSeconds}.

        A silent peer is pinged. A peer is dropped if it sends no pong by the next check, reads none
        of its output, or does not disconnect after the close. The pong of a peer that is paused
        because of its calls is not read: the ping then only makes its system report a lost
        connection.
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
        """Return whether a message is incomplete."""
        return bool(self.data or self.inside_message or self.current_frame is not None)

    @property
    def isOpen(self) -> bool:
        """Return whether messages may be sent."""
        return bool(self.state == _OPEN)

    @property
    def closing(self) -> tuple[int, str]:
        """
        Return the code and the reason of the close: the peer's, if it has sent a valid one.
        """
        code, reason = self.remoteCloseCode, self.remoteCloseReason
        # Autobahn gives 1000 to a peer whose close is invalid.
        if code is None or self.failedByMe:
            code, reason = self.localCloseCode, (self.localCloseReason or b"").decode()
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
        """Process received bytes, until the receiver pauses."""
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
        """Close, as no reply could name the incomplete message; see L{IByteHolder}."""
        self._fail_connection(TRY_LATER, error.message)
        # The client may take seconds to disconnect.
        self._content.clear()

    def _readPlain(self) -> None:
        """Parse plain messages without Autobahn, which saves 14 microseconds each."""
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
            # Input may have arrived in the meantime; a peer that was sent a close has to send its
            # own.
            self._pending = data[at:] + self._pending

    def processData(self) -> bool:
        """Process the next part of a frame, if wanted; return whether there may be more."""
        if self.isPaused or self._isDiscarding or not super().processData():
            return False
        self._checkSlice(0)
        return True

    def _checkSlice(self, messages: int) -> None:
        """
        Wait if other connections come first.

        @param messages: The number of messages handled since the last call.
        """
        scheduler = self.factory.scheduler
        if not self._handled:
            scheduler.begin()
            self._handled = 1
        else:
            self._handled += messages
        if scheduler.isOver(self._handled):
            self._isWaiting = True
            self._updateReading()
            scheduler.wait(self._endWaiting)

    def _endWaiting(self) -> None:
        """Resume reading, now that it is this connection's turn."""
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
        # Compressed frames may also inflate to nothing.
        isEndless = self._fragments - self._emptyFragments > self.maxMessagePayloadSize
        if isEndless or self._emptyFragments > MAX_EMPTY_FRAMES:
            self._fail_connection(TOO_BIG, "A message has too many frames")

    def onMessageFrameData(self, payload: bytes) -> None:
        """Keep a part of a message."""
        if self._isMessageCompressed:
            inflater = self._perMessageCompress._decompressor
            if len(inflater.unused_data) > MAX_AFTER_FINAL:
                self._fail_connection(INVALID, "Data follow the final block of a message")
        if not self.failedByMe:
            self._content.append(payload)

    def onMessageFrameEnd(self) -> None:
        """End a frame of a message."""

    def onMessageEnd(self) -> None:
        """Deliver a message."""
        if self._isMessageCompressed and self._perMessageCompress._decompressor.eof:
            # It would keep all further input instead of inflating it.
            self._perMessageCompress._decompressor = None
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
            # No client can cause this; it is a bug in this package.
            _log.failure("a message was not taken")
            self._fail_connection(INTERNAL, "Internal error")

    def setReading(self, wanted: bool) -> None:
        """
        Resume or pause reading.

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
        Send a text message in one frame.

        Autobahn's C{sendMessage} applies the limit of input to output, and takes as long as the
        rest of a small call.

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
        """Send a binary message."""
        self.sendText(payload, _BINARY)

    def sendData(self, data: bytes, sync: bool = False, chopsize: int | None = None) -> None:
        """Send bytes; output written while input is processed is sent together."""
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
            # Two iterations, as delayed calls run before sockets are read: calls already sent by
            # the peer are still answered.
            self._isSettling = True
            clock = self.factory.clock
            clock.callLater(0, clock.callLater, 0, self._settle)

    def _flush(self) -> None:
        outgoing, self._outgoing = self._outgoing, []
        self._outgoingSize = 0
        if outgoing and self.transport is not None:
            self.transport.write(outgoing[0] if len(outgoing) == 1 else b"".join(outgoing))

    def drained(self) -> Deferred[None] | None:
        """
        Return a Deferred that fires when the peer has caught up with reading; C{None} if it has.
        """
        if not self.isFull or self._isOver:
            return None
        waiting: Deferred[None] = Deferred()
        self._drained.append(waiting)
        return waiting

    def pauseProducing(self) -> None:
        """Pause writers, and reading from the peer, as the peer has fallen behind with reading."""
        # Transports call this at each write while their buffer is full.
        self.isFull = True
        self._updateReading()

    def resumeProducing(self) -> None:
        """Resume waiting writers, then reading from the peer."""
        self.isFull = False
        self._unsent = 0
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

        RFC 6455 section 7.1.7: further input is ignored, including the peer's close. Only the
        sending half is closed, so that the close frame is not lost.
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
        """Close the connection, without a reset after a complete closing handshake."""
        self._flush()
        super()._closeConnection(abort and not self.wasClean)


# These settings take 16 KiB instead of 256 KiB per compressor, for ten thousand connections.
_WINDOW_BITS = 11
_MEMORY_LEVEL = 4


class WebSocketFactory(WebSocketServerFactory):
    """Makes connections, all with the same limits."""

    log = AUTOBAHN_LOG

    def __init__(
        self,
        clock: IReactorTime,
        limits: WebSocketLimits,
        onLost: Callable[[WebSocketConnection], None],
        budget: HeldBytes = PROCESS_BUDGET,
    ) -> None:
        """
        @param onLost: Called when a connection has ended.
        @param budget: Counts the bytes of incomplete messages.
        """
        super().__init__(server="", reactor=clock)
        self.onLost = onLost
        self.budget = budget
        self.clock = clock
        self.scheduler = InputScheduler(clock)
        # Otherwise Autobahn takes its timers from the process's reactor.
        self._batched_timer = SimpleNamespace(call_later=clock.callLater)
        self.setProtocolOptions(
            # No clients use versions before the RFC.
            versions=[13],
            maxMessagePayloadSize=limits.maxMessageSize,
            failByDrop=False,
            # As RFC 6455 section 5.5.1 suggests; otherwise each close is answered with 1000.
            echoCloseCodeReason=True,
            # The handshake is complete when a connection is made.
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
