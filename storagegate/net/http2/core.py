"""
A connection of HTTP/2 without I/O (RFC 9113): bytes in, calls of streams, bytes out.

The owner passes received bytes to L{HTTP2Core.receive} and sends what L{HTTP2Core.takeOutput}
returns. In between the core calls the methods of L{Stream<storagegate.net.http2.stream.Stream>},
whose subclasses carry requests. They may send, reset their stream or lose the connection in any of
these calls.

A stream is known to the core from its first HEADERS until both sides have ended it, or one has
reset it. A server resets it with NO_ERROR after its response if the rest of the request exceeds the
window (section 8.1).

Frames that do no work are charged to a L{FrameAllowance
<storagegate.net.http2.allowances.FrameAllowance>}, as are streams that end early because of the
peer: one that sends more of them than L{HTTP2Limits
<storagegate.net.http2.interfaces.HTTP2Limits>} forgives loses the connection with
ENHANCE_YOUR_CALM.
"""

from collections.abc import Callable
from typing import Any

from twisted.logger import Logger

from storagegate.core.heldbytes import HeldBytes
from storagegate.net.http2 import frames
from storagegate.net.http2.allowances import FrameAllowance
from storagegate.net.http2.frames import (
    ACK,
    CONTINUATION,
    DATA,
    END_STREAM,
    GOAWAY,
    HEADER_SIZE,
    HEADERS,
    PADDED,
    PING,
    PREFACE,
    PRIORITY_UPDATE,
    PUSH_PROMISE,
    RST_STREAM,
    SETTINGS,
    WINDOW_UPDATE,
    checkFrame,
    readHeader,
)
from storagegate.net.http2.headerblocks import HeaderBlockAssembler, sizeWithoutPadding
from storagegate.net.http2.hpack import (
    HeaderDecoder,
    HeaderEncoder,
    ReceivedFields,
    tableSizeUpdate,
)
from storagegate.net.http2.interfaces import (
    ConnectionFailure,
    ErrorCode,
    HTTP2Error,
    HTTP2Limits,
    StreamFailure,
    StreamReset,
)
from storagegate.net.http2.output import OutputQueue
from storagegate.net.http2.priorities import WaitingPriorities, readPriority
from storagegate.net.http2.settings import (
    HEADER_TABLE,
    INITIAL_WINDOW,
    MAX_WINDOW,
    announce,
    readSettings,
)
from storagegate.net.http2.stream import QueuedOutput, Stream

_MAX_STREAM = 2**31 - 1

# A DATA frame is passed on in parts as it arrives, so that none is kept or copied for the rest. A
# shorter part waits, which keeps small messages whole.
_PART = 4096

# What a stream with output takes in memory besides, about.
_STREAM_BYTES = 2048

# Streams that were reset: frames of the peer that crossed the reset are ignored. At least so many
# are remembered, and two for each stream that may be open.
_REMEMBERED = 256

# Debug data of a GOAWAY that is kept: a sentence.
_MOST_DEBUG_DATA = 200

_log = Logger()


class _Part:
    """
    The rest of a DATA frame whose beginning was passed on.

    @ivar left: The number of bytes to come.
    @ivar data: How many of them come before the padding.
    """

    __slots__ = ("data", "flags", "left", "number")

    def __init__(self, number: int, left: int, data: int, flags: int) -> None:
        self.number = number
        self.left = left
        self.data = data
        self.flags = flags


class HTTP2Core:
    """
    One connection.

    @ivar limits: The limits.
    @ivar streams: The open streams by number.
    @ivar lastStream: The highest stream of the peer that was processed.
    @ivar initialSendWindow: The peer's SETTINGS_INITIAL_WINDOW_SIZE.
    @ivar peerStreams: The number of streams that the peer lets us open.
    @ivar failure: The error that ended the connection.
    @ivar isGoingAway: Whether no further stream of the peer is accepted.
    @ivar peerLastStream: The last stream of a GOAWAY of the peer; C{None} before one.
    @ivar peerFailure: The code and the start of the debug data of that GOAWAY.
    @ivar encoder: The encoder of a client's requests; C{None} for a server.
    @ivar failures: The number of errors by L{ErrorCode}.
    @ivar budget: Counts the queued output; C{None} for no limit.
    @ivar share: The client's address, whose queued output counts together.
    @ivar waiting: The number of queued bytes of all streams.
    @ivar sentBytes: Returns the count of sent bytes that had waited for the transport.
    @ivar pinged: Called with each PING of the peer; may raise L{ConnectionFailure}.
    """

    share: object = None

    def __init__(
        self,
        limits: HTTP2Limits,
        openStream: Callable[["HTTP2Core", int], Stream] | None,
        wantFlush: Callable[[], object],
        isOver: Callable[[int], bool] = lambda handled: False,
        offers: dict[int, int] | None = None,
    ) -> None:
        """
        @param openStream: Makes the stream of a request from the connection and the number; C{None}
            in the role of a client.
        @param wantFlush: Called when there is output outside of L{receive}.
        @param isOver: Returns whether input has taken enough time, given the number of frames
            handled.
        @param offers: Further settings to send.
        """
        self.limits = limits
        self.isClient = openStream is None
        self.encoder = HeaderEncoder() if self.isClient else None
        self.streams: dict[int, Stream] = {}
        self.lastStream = 0
        self.initialSendWindow = INITIAL_WINDOW
        self.peerStreams = _MAX_STREAM
        self.failure: Exception | None = None
        self.isGoingAway = False
        self.peerLastStream: int | None = None
        self.peerFailure: tuple[int, bytes] = (ErrorCode.NO_ERROR, b"")
        self.failures: dict[int, int] = {}
        self.budget: HeldBytes | None = None
        self.waiting = 0
        self.sentBytes: Callable[[], int] = int
        self.pinged: Callable[[], object] = _ignore
        self._openStream = openStream
        self._wantFlush = wantFlush
        self._isOver = isOver
        self._offers = offers or {}
        self._decoder = HeaderDecoder(limits.headerTable, limits.headerList)
        self._input = b""
        self._isReceiving = False
        self._isPrefaceDue = not self.isClient
        self._isSettingsDue = True
        self._output = OutputQueue()
        self._allowance = FrameAllowance(limits)
        self._progress = 0
        self._nextStream = 1
        # The highest number that the peer has used, also of streams that were not accepted.
        self._highest = 0
        # The stream before which the peer has left out numbers.
        self._skipped = 0
        self._block = HeaderBlockAssembler(limits.headerBlock)
        # The limit of the peer's decoder.
        self._tableSize = HEADER_TABLE
        # Bytes of DATA whose window was not granted again.
        self._received = 0
        # Bytes of output since the transport became full.
        self._unread = 0
        # Streams with output that may wait for the client, and does not count in the budget.
        self._fresh: dict[Stream, None] = {}
        self._part: _Part | None = None
        # The longest frame without DATA: a header block with its padding and priority.
        self._otherFrame = min(limits.frame, limits.headerBlock + 261)
        self._resets: dict[int, None] = {}
        self._maxResets = max(_REMEMBERED, 2 * limits.streams)
        self._waitingPriorities = WaitingPriorities(limits.streams)
        self._pings = 0
        self._pongs: dict[bytes, Callable[[], object]] = {}

    @property
    def progress(self) -> int:
        """Return a count that changes with each frame that does work."""
        return self._progress + self._output.sentFrames

    @property
    def sendWindow(self) -> int:
        """Return the number of bytes that the peer accepts on all streams."""
        return self._output.sendWindow

    @property
    def sentData(self) -> int:
        """Return the number of bytes of DATA that were sent on all streams."""
        return self._output.sentBytes

    # Input

    def start(self) -> None:
        """Send the preface of the connection."""
        output = self._output.frames
        if self.isClient:
            output.append(PREFACE)
        output.append(frames.settings(announce(self.limits, self.isClient) | self._offers))
        if self.limits.connectionWindow > INITIAL_WINDOW:
            increment = self.limits.connectionWindow - INITIAL_WINDOW
            output.append(frames.windowUpdate(0, increment))
        self._wantFlush()

    def receive(self, data: bytes) -> None:
        """
        Handle received bytes.

        @param data: May be empty, to continue with input that was left: see L{hasInput}.
        """
        if self.failure is not None:
            return
        if self._input:
            data = self._input + data
            self._input = b""
        self._isReceiving = True
        try:
            at = self._readFrames(data)
        except ConnectionFailure as error:
            self.fail(error)
            return
        finally:
            self._isReceiving = False
        if self.failure is None:
            self._input = data[at:] if at else data

    def _readFrames(self, data: bytes) -> int:
        """Handle the frames in C{data}; return the number of bytes taken."""
        at, end = 0, len(data)
        if self._isPrefaceDue:
            if not data.startswith(PREFACE[:end]):
                raise ConnectionFailure(ErrorCode.PROTOCOL_ERROR, "no preface of HTTP/2")
            if end < len(PREFACE):
                return 0
            self._isPrefaceDue = False
            at = len(PREFACE)
        handled = 0
        output, most = self._output, self.limits.output
        while len(output.frames) <= most:
            part = self._part
            if part is not None:
                if at == end:
                    break
                number, begin = part.number, at
                at = min(at + part.left, end)
            elif end - at < HEADER_SIZE:
                break
            else:
                word, flags, number = readHeader(data, at)
                size, kind = word >> 8, word & 0xFF
                number &= _MAX_STREAM
                begin = at + HEADER_SIZE
                if kind != DATA:
                    if size > self._otherFrame:
                        raise self._tooLong(size)
                    if end - begin < size:
                        break
                elif size > self.limits.frame:
                    raise self._tooLong(size)
                elif end - begin < min(size, _PART):
                    break
                at = min(begin + size, end)
                block = self._block.stream
                if block and (kind != CONTINUATION or number != block):
                    raise ConnectionFailure(
                        ErrorCode.PROTOCOL_ERROR, "a header block was interrupted by another frame"
                    )
                if self._isSettingsDue:
                    if kind != SETTINGS or flags & ACK:
                        raise ConnectionFailure(
                            ErrorCode.PROTOCOL_ERROR, "the first frame is not SETTINGS"
                        )
                    self._isSettingsDue = False
            try:
                if part is not None:
                    self._partReceived(part, data[begin:at])
                elif kind == DATA and number:
                    self._dataReceived(number, flags, size, data[begin:at])
                else:
                    self._frameReceived(kind, flags, number, data[begin:at])
            except StreamFailure as error:
                self._failStream(number, error)
            except ConnectionFailure:
                raise
            except Exception:
                self._fault(number)
            handled += 1
            if self.failure is not None or self._isOver(handled):
                break
        return at

    def _tooLong(self, size: int) -> ConnectionFailure:
        """Return the error for a frame that is refused by its header."""
        if size > self.limits.frame:
            return ConnectionFailure(ErrorCode.FRAME_SIZE_ERROR, "a frame is too long")
        return ConnectionFailure(ErrorCode.ENHANCE_YOUR_CALM, "a header block is too long")

    @property
    def hasInput(self) -> bool:
        """
        Return whether a frame is left that can be handled: the turn was over, or output has to be
        sent. One that is too long is refused by its header.
        """
        data = self._input
        if self.failure is not None or self._isPrefaceDue:
            return False
        if self._part is not None:
            return bool(data)
        if len(data) < HEADER_SIZE:
            return False
        size = int.from_bytes(data[:3], "big")
        most = self.limits.frame if data[3] == DATA else self._otherFrame
        return size > most or len(data) - HEADER_SIZE >= size

    @property
    def hasOutput(self) -> bool:
        """Return whether L{takeOutput} would return something, given a budget."""
        return self._output.canSend

    @property
    def hasFrames(self) -> bool:
        """Return whether L{takeOutput} would return something, without a budget."""
        return bool(self._output.frames)

    @property
    def hasGreeted(self) -> bool:
        """Return whether the preface of the peer has arrived, with its SETTINGS."""
        return not (self._isPrefaceDue or self._isSettingsDue)

    @property
    def isInFrame(self) -> bool:
        """Return whether a frame, a header block or the preface is incomplete."""
        return bool(self._input or self._block.stream or self._isPrefaceDue or self._part)

    @property
    def isInBlock(self) -> bool:
        """Return whether a header block is incomplete."""
        return bool(self._block.stream)

    def _frameReceived(self, kind: int, flags: int, number: int, payload: bytes) -> None:
        checkFrame(kind, number, len(payload))
        if kind == HEADERS:
            self._headersReceived(number, flags, payload)
        elif kind == WINDOW_UPDATE:
            self._windowUpdateReceived(number, int.from_bytes(payload, "big") & MAX_WINDOW)
        elif kind == CONTINUATION:
            if not self._block.stream:
                raise ConnectionFailure(
                    ErrorCode.PROTOCOL_ERROR, "CONTINUATION without a header block"
                )
            self._allowance.chargeControl()
            block = self._block.add(flags, payload)
            if block is not None:
                self._blockReceived(number, block)
        elif kind == SETTINGS:
            self._allowance.chargeControl()
            self._settingsReceived(flags, payload)
        elif kind == PING:
            self._pingReceived(flags, payload)
        elif kind == RST_STREAM:
            self._resetReceived(number, int.from_bytes(payload, "big"))
        elif kind == GOAWAY:
            self._goAwayReceived(payload)
        elif kind == PUSH_PROMISE:
            raise ConnectionFailure(ErrorCode.PROTOCOL_ERROR, "a push that is not allowed")
        elif kind == PRIORITY_UPDATE:
            self._allowance.chargeControl()
            self._priorityReceived(payload)
        else:
            # PRIORITY is deprecated (section 5.3), frames of unknown types are ignored (5.5).
            self._allowance.chargeControl()

    # Section 6.1

    def _dataReceived(self, number: int, flags: int, size: int, data: bytes) -> None:
        """
        Handle a DATA frame.

        @param size: The length of its payload, of which C{data} may be only the beginning.
        """
        self._received += size
        if self._received > self.limits.connectionWindow:
            raise ConnectionFailure(
                ErrorCode.FLOW_CONTROL_ERROR, "more DATA than the window of the connection"
            )
        if self._received * 2 >= self.limits.connectionWindow:
            self._output.frames.append(frames.windowUpdate(0, self._received))
            self._received = 0
        missing = size - len(data)
        count = size
        if flags & PADDED:
            count = sizeWithoutPadding(data, size)
            data = data[1 : count + 1]
        if missing:
            self._part = _Part(number, missing, count - len(data), flags)
        isEnded = bool(flags & END_STREAM)
        if not count and not isEnded:
            self._allowance.chargeControl()
        stream = self.streams.get(number)
        if stream is None or stream.isRemoteClosed:
            self._refuseData(number, stream, bool(count))
            return
        if not stream.isHeadReceived:
            raise StreamFailure(ErrorCode.PROTOCOL_ERROR, "DATA before the head")
        self._progress += 1
        stream.receiveWindow -= size
        if stream.receiveWindow < 0:
            raise StreamFailure(
                ErrorCode.FLOW_CONTROL_ERROR, "more DATA than the window of the stream"
            )
        if size != count:
            stream.take(size - count)
        stream.received += count
        expected = stream.expected
        if expected is not None and (
            stream.received > expected or (isEnded and stream.received != expected)
        ):
            # Section 8.1.1
            raise StreamFailure(ErrorCode.PROTOCOL_ERROR, "the body is not of the declared length")
        if data or not missing:
            self._passOn(stream, data, isEnded and not missing)

    def _partReceived(self, part: "_Part", payload: bytes) -> None:
        """Handle more of a DATA frame."""
        part.left -= len(payload)
        data = payload[: part.data]
        part.data -= len(data)
        isEnded = False
        if not part.left:
            self._part = None
            isEnded = bool(part.flags & END_STREAM)
        stream = self.streams.get(part.number)
        # It may have ended meanwhile.
        if stream is not None and (data or isEnded):
            self._progress += 1
            self._passOn(stream, data, isEnded)

    def _passOn(self, stream: Stream, data: bytes, isEnded: bool) -> None:
        """Pass a part of a body to its stream."""
        if isEnded:
            stream.isRemoteClosed = True
        if stream.isLocalClosed and not self.isClient:
            self._discarded(stream)
        else:
            try:
                stream.dataReceived(data, isEnded)
            except Exception:
                self._refuseEnd(stream)
                raise
            if isEnded and stream.isLocalClosed:
                self._forget(stream)

    def _refuseEnd(self, stream: Stream) -> None:
        """Let a stream that did not accept its end hear of its loss."""
        if stream.id in self.streams:
            stream.isRemoteClosed = False

    def _refuseData(self, number: int, stream: Stream | None, hasData: bool) -> None:
        """Handle DATA of a stream whose peer may send nothing more (section 5.1)."""
        if stream is not None:
            raise StreamFailure(ErrorCode.STREAM_CLOSED, "DATA after the end of its stream")
        if self._isIdle(number):
            raise ConnectionFailure(ErrorCode.PROTOCOL_ERROR, "DATA of a stream never opened")
        if not self._isIgnored(number):
            raise StreamFailure(ErrorCode.STREAM_CLOSED, "DATA of a closed stream")
        if not hasData:
            self._allowance.chargeCrossing()

    def _isIgnored(self, number: int) -> bool:
        """
        Return whether a frame may have crossed our reset of its stream, or our GOAWAY.

        A client has made all its streams itself: any that is closed may have been reset.
        """
        return (
            self.isClient
            or number in self._resets
            or (self.isGoingAway and number > self.lastStream)
        )

    def _isIdle(self, number: int) -> bool:
        isOurs = bool(number % 2) is self.isClient
        return number >= self._nextStream if isOurs else number > self._highest

    def _discarded(self, stream: Stream) -> None:
        """
        Count what arrives after our end of a stream.

        Its window is not granted again. If it may not suffice for the rest, the peer is asked to
        stop (section 8.1).
        """
        expected = stream.expected
        if stream.isRemoteClosed:
            self._forget(stream)
        elif expected is None or expected - stream.received > stream.receiveWindow:
            stream.refuseRest()

    # Sections 6.2 and 6.10

    def _headersReceived(self, number: int, flags: int, payload: bytes) -> None:
        if not number % 2:
            # Even ones would be pushed by a server (section 5.1.1), which no client of ours allows.
            raise ConnectionFailure(ErrorCode.PROTOCOL_ERROR, "a stream of the wrong parity")
        block = self._block.begin(number, flags, payload)
        if block is not None:
            self._blockReceived(number, block)

    def _blockReceived(self, number: int, block: bytes) -> None:
        isEnded = self._block.endsStream
        # Even of a stream that is refused, or the tables would differ.
        fields = self._decoder.decode(block)
        stream = self.streams.get(number)
        self._progress += 1
        if stream is None:
            stream = self._newStream(number)
            if stream is None:
                return
        elif stream.isRemoteClosed:
            raise StreamFailure(ErrorCode.STREAM_CLOSED, "HEADERS after the end of their stream")
        elif stream.isHeadReceived and not isEnded:
            raise StreamFailure(ErrorCode.PROTOCOL_ERROR, "trailers that do not end their stream")
        if isEnded:
            if stream.isHeadReceived and stream.expected not in (None, stream.received):
                raise StreamFailure(
                    ErrorCode.PROTOCOL_ERROR, "the body is not of the declared length"
                )
            stream.isRemoteClosed = True
        if stream.isLocalClosed and not self.isClient:
            self._discarded(stream)
            return
        try:
            if stream.isHeadReceived:
                stream.trailersReceived(fields)
            else:
                self._deliverHead(stream, fields, isEnded)
        except Exception:
            self._refuseEnd(stream)
            raise
        if isEnded and stream.isLocalClosed:
            self._forget(stream)

    def _deliverHead(self, stream: Stream, fields: ReceivedFields, isEnded: bool) -> None:
        stream.isHeadReceived = not self.isClient
        stream.headReceived(fields, isEnded)
        if not stream.isHeadReceived:
            self._allowance.chargeControl()
            if isEnded:
                # Section 8.1
                raise StreamFailure(ErrorCode.PROTOCOL_ERROR, "an interim response at the end")
        level = self._waitingPriorities.pop(stream.id)
        # Another stream may handle the request now, or it may be answered already.
        current = self.streams.get(stream.id)
        if level is not None and current is not None:
            # It overrides the field (RFC 9218 section 7).
            self._setLevel(current, level)

    def _newStream(self, number: int) -> Stream | None:
        """Open the stream of a request; return C{None} if it is not accepted."""
        allowance = self._allowance
        if self._openStream is None or number <= self._highest:
            if self._isIdle(number):
                raise ConnectionFailure(
                    ErrorCode.PROTOCOL_ERROR, "a response on a stream never opened"
                )
            allowance.chargeCrossing()
            if self._isIgnored(number):
                return None
            if number < self._skipped:
                # Section 5.1.1: it was never opened, and the later ones have closed it.
                raise ConnectionFailure(ErrorCode.PROTOCOL_ERROR, "the streams are out of order")
            raise ConnectionFailure(ErrorCode.STREAM_CLOSED, "HEADERS of a closed stream")
        if number != self._highest + 2 and number != 1:
            self._skipped = number
        self._highest = number
        if self.isGoingAway:
            allowance.chargeControl()
            return None
        if len(self.streams) >= self.limits.streams:
            raise StreamFailure(ErrorCode.REFUSED_STREAM, "too many open streams")
        self.lastStream = number
        try:
            stream = self._openStream(self, number)
        except Exception:
            self._fault(number)
            self._sendReset(number, ErrorCode.INTERNAL_ERROR)
            return None
        self.streams[number] = stream
        return stream

    def replaceStream(self, stream: Stream, successor: Stream) -> None:
        """
        Let another stream handle a request, whose head the first one has just received.

        @param successor: A new stream of the same number.
        """
        successor.isHeadReceived = stream.isHeadReceived
        successor.isRemoteClosed = stream.isRemoteClosed
        self.streams[stream.id] = successor

    # Section 6.4

    def _resetReceived(self, number: int, code: int) -> None:
        stream = self.streams.get(number)
        if stream is None:
            if self._isIdle(number):
                raise ConnectionFailure(
                    ErrorCode.PROTOCOL_ERROR, "a reset of a stream never opened"
                )
            self._allowance.chargeCrossing()
            return
        isEarly = not (stream.isLocalClosed or self.isClient)
        self._abandon(stream, StreamReset(code))
        if isEarly:
            self._allowance.chargeReset()

    # Section 6.5

    def _settingsReceived(self, flags: int, payload: bytes) -> None:
        if flags & ACK:
            if payload:
                raise ConnectionFailure(ErrorCode.FRAME_SIZE_ERROR, "a frame of the wrong size")
            return
        values = readSettings(payload, self.isClient)
        for name, value in values.items():
            if name == frames.HEADER_TABLE_SIZE and self.encoder is not None:
                self._output.prefix = self.encoder.resize(value)
            elif name == frames.HEADER_TABLE_SIZE and value < self._tableSize:
                # RFC 7541 section 4.2: our encoder uses no table, and has to say so once.
                self._tableSize = 0
                self._output.prefix = tableSizeUpdate(0)
            elif name == frames.MAX_CONCURRENT_STREAMS:
                self.peerStreams = value
            elif name == frames.INITIAL_WINDOW_SIZE:
                self._changeWindows(value)
        self._output.frames.append(frames.frame(SETTINGS, ACK, 0))

    def _changeWindows(self, size: int) -> None:
        """Section 6.9.2"""
        change = size - self.initialSendWindow
        self.initialSendWindow = size
        for stream in list(self.streams.values()):
            stream.sendWindow += change
            if stream.sendWindow > MAX_WINDOW:
                raise ConnectionFailure(ErrorCode.FLOW_CONTROL_ERROR, "a window over 2**31 - 1")
            if change > 0:
                self._output.add(stream)

    # Section 6.7

    def _pingReceived(self, flags: int, payload: bytes) -> None:
        if flags & ACK:
            pong = self._pongs.pop(payload, None)
            if pong is None:
                self._allowance.chargeControl()
            else:
                pong()
        else:
            self._allowance.chargeReaction(self._output.sentFrames, self._output.sentBytes)
            self.pinged()
            self._output.frames.append(frames.frame(PING, ACK, 0, payload))

    # Section 6.8

    def _goAwayReceived(self, payload: bytes) -> None:
        self._allowance.chargeControl()
        last = int.from_bytes(payload[:4], "big") & _MAX_STREAM
        code = int.from_bytes(payload[4:8], "big")
        if self.peerLastStream is not None and last > self.peerLastStream:
            raise ConnectionFailure(ErrorCode.PROTOCOL_ERROR, "GOAWAY with a higher stream")
        self.peerLastStream = last
        self.peerFailure = code, payload[8 : 8 + _MOST_DEBUG_DATA]
        if self.isClient:
            for stream in [each for number, each in self.streams.items() if number > last]:
                self._abandon(stream, StreamReset(code, isUnprocessed=True))

    # Section 6.9

    def _windowUpdateReceived(self, number: int, increment: int) -> None:
        self._allowance.chargeReaction(self._output.sentFrames, self._output.sentBytes)
        if not number:
            if not increment:
                raise ConnectionFailure(ErrorCode.PROTOCOL_ERROR, "WINDOW_UPDATE of 0")
            self._output.sendWindow += increment
            if self._output.sendWindow > MAX_WINDOW:
                raise ConnectionFailure(ErrorCode.FLOW_CONTROL_ERROR, "a window over 2**31 - 1")
            return
        stream = self.streams.get(number)
        if stream is None:
            if self._isIdle(number):
                raise ConnectionFailure(
                    ErrorCode.PROTOCOL_ERROR, "a window of a stream never opened"
                )
            return
        if not increment:
            raise StreamFailure(ErrorCode.PROTOCOL_ERROR, "WINDOW_UPDATE of 0")
        stream.sendWindow += increment
        if stream.sendWindow > MAX_WINDOW:
            raise StreamFailure(ErrorCode.FLOW_CONTROL_ERROR, "a window over 2**31 - 1")
        self._output.add(stream)

    # RFC 9218

    def _priorityReceived(self, payload: bytes) -> None:
        """Section 7.1"""
        if self.isClient:
            raise ConnectionFailure(ErrorCode.PROTOCOL_ERROR, "a priority of a server")
        number = int.from_bytes(payload[:4], "big") & _MAX_STREAM
        if not number % 2:
            raise ConnectionFailure(ErrorCode.PROTOCOL_ERROR, "a priority of no request")
        level = readPriority(payload[4:])
        stream = self.streams.get(number)
        if stream is not None:
            self._setLevel(stream, level)
        elif number > self._highest:
            self._waitingPriorities.add(number, level, self._highest)

    def prioritise(self, stream: Stream, value: bytes) -> None:
        """
        Order the output of a stream.

        @param value: The value of a C{Priority} field.
        """
        self._setLevel(stream, readPriority(value))

    def _setLevel(self, stream: Stream, level: int) -> None:
        self._output.remove(stream)
        stream.level = level
        self._output.add(stream)

    # Output

    def makeReady(self, stream: Stream) -> None:
        """Queue the output of a stream."""
        self._fresh[stream] = None
        self._output.add(stream)
        if not self._isReceiving:
            self._wantFlush()

    def sendBlock(self, stream: Stream, block: bytes, isEnd: bool) -> None:
        """Send a header block. Does nothing once the stream is closed."""
        if stream.isLocalClosed:
            return
        self._output.writeBlock(stream.id, block, isEnd)
        if isEnd:
            self.localEnded(stream)
        if not self._isReceiving:
            self._wantFlush()

    def sendWhole(
        self, stream: Stream, block: bytes, body: bytes, trailers: bytes | None = None
    ) -> None:
        """
        Send a header block, all the DATA of a stream and its trailers. Does nothing once it is
        closed.
        """
        if stream.isLocalClosed or stream.isEnding:
            return
        output = self._output
        hasTrailers = trailers is not None
        output.writeBlock(stream.id, block, not (body or hasTrailers))
        if not body or output.writeBody(stream, body, not hasTrailers):
            if trailers is not None:
                output.writeBlock(stream.id, trailers, True)
            self.localEnded(stream)
            if not self._isReceiving:
                self._wantFlush()
        else:
            stream.sendData(body, not hasTrailers)
            if trailers is not None:
                stream.sendTrailers(trailers)

    def sendEnd(self, stream: Stream) -> None:
        """Send the end of a stream without queued DATA."""
        self._output.writeEnd(stream.id)
        self.localEnded(stream)
        if not self._isReceiving:
            self._wantFlush()

    def takeOutput(self, budget: int) -> bytes:
        """
        Return the next bytes to send.

        @param budget: About how many bytes of DATA to add; 0 while the transport is full. A peer
            that causes too many other frames meanwhile loses the connection.
        @return: Empty if there is nothing to send now.
        """
        served: list[Stream] = []
        data = self._output.take(budget, served)
        least = self.limits.queued // 2
        for stream in served:
            if stream.counted is not None:
                self.countOutput(stream)
            if stream.isPaused and stream.queued <= least:
                stream.isPaused = False
                try:
                    stream.setPaused(False)
                except Exception:
                    self._fault(stream.id)
        if budget > 0:
            self._unread = 0
        else:
            self._unread += len(data)
            if self._unread > self.limits.unread:
                text = "too much output that is not read"
                self.fail(ConnectionFailure(ErrorCode.ENHANCE_YOUR_CALM, text))
        return data

    def countWaiting(self) -> None:
        """
        Count output that waits for the client in the budget, which may end streams.

        The owner calls this when it has sent everything that can be sent now. The first few bytes
        do not count, as those in the buffer of a transport.
        """
        if not self._fresh or self.budget is None:
            return
        blocked = {stream: None for stream in self._fresh if stream.queued}
        self._fresh = blocked
        if self.waiting + len(blocked) * _STREAM_BYTES > self.limits.queued:
            self._fresh = {}
            for stream in blocked:
                if stream.queued:
                    stream.counted = QueuedOutput(stream)
                    self.countOutput(stream)

    def countOutput(self, stream: Stream) -> None:
        """
        Count the queued bytes of a stream that counts.

        A handler may send a long response as a whole. It counts for an eighth of the budget at
        most, so that a client that reads it gets all of it, whatever its length.
        """
        holder, budget = stream.counted, self.budget
        if holder is None or budget is None:
            return
        progress = stream.sent // self.limits.progress
        if progress != holder.progress:
            # Its age in the budget begins anew: it is not the output of a client that has stalled.
            holder.progress = progress
            budget.update(holder, 0)
        size = 0
        if stream.queued:
            size = min(stream.queued + _STREAM_BYTES, budget.limit // 8)
        else:
            stream.counted = None
        budget.update(holder, size, stream.share)

    def localEnded(self, stream: Stream) -> None:
        """Note that the end of a stream was sent."""
        stream.isLocalClosed = True
        if stream.isRemoteClosed:
            self._forget(stream)
        elif not self.isClient:
            self._discarded(stream)

    def grant(self, stream: Stream) -> None:
        """Grant the peer the bytes of a stream that were taken."""
        increment = stream.untaken
        if increment <= 0 or stream.isRemoteClosed or (stream.isLocalClosed and not self.isClient):
            return
        stream.untaken = 0
        stream.receiveWindow += increment
        self._output.frames.append(frames.windowUpdate(stream.id, increment))
        if not self._isReceiving:
            self._wantFlush()

    def ping(self, pong: Callable[[], object]) -> None:
        """Send a PING, and call C{pong} when it is answered."""
        self._pings += 1
        payload = self._pings.to_bytes(8, "big")
        self._pongs[payload] = pong
        self._output.frames.append(frames.frame(PING, 0, 0, payload))
        self._wantFlush()

    # Ends

    def _forget(self, stream: Stream) -> None:
        """Forget a stream that both sides have ended."""
        self.streams.pop(stream.id, None)
        if self._fresh:
            self._fresh.pop(stream, None)
            if not self.streams:
                # A table for many streams would stay.
                self._fresh = {}

    def _end(self, stream: Stream) -> bool:
        """End a stream early; return whether its subclass does not know of its end."""
        self.streams.pop(stream.id, None)
        self._output.remove(stream)
        wasOpen = not (stream.isRemoteClosed if self.isClient else stream.isLocalClosed)
        stream.isLocalClosed = stream.isRemoteClosed = True
        stream.queue.clear()
        self.waiting -= stream.queued
        stream.queued = 0
        self._fresh.pop(stream, None)
        if stream.counted is not None:
            self.countOutput(stream)
        return wasOpen

    def _abandon(self, stream: Stream, reason: Exception) -> None:
        """End a stream early, and notify it."""
        if self._end(stream):
            try:
                stream.lost(reason)
            except Exception:
                # The other streams go on, or must still hear of the end of the connection.
                _log.failure("a stream failed on its end")

    def _sendReset(self, number: int, code: int) -> None:
        resets = self._resets
        resets[number] = None
        if len(resets) > self._maxResets:
            del resets[next(iter(resets))]
        self._output.frames.append(frames.resetStream(number, code))
        if not self._isReceiving:
            self._wantFlush()

    def resetStream(self, stream: Stream, code: int) -> None:
        """End a stream at once with RST_STREAM. Does nothing once it is closed."""
        if stream.id in self.streams:
            self._end(stream)
            self._sendReset(stream.id, code)
            if self.isClient:
                self._allowance.expectCrossing()

    def _failStream(self, number: int, error: StreamFailure) -> None:
        """Reset a stream on which the peer made a mistake."""
        self._count(error)
        stream = self.streams.get(number)
        if stream is None:
            self._allowance.chargeControl()
            if number not in self._resets:
                self._sendReset(number, error.code)
            return
        self._sendReset(number, error.code)
        isEarly = not (stream.isLocalClosed or self.isClient)
        self._abandon(stream, error)
        if isEarly:
            # A reset that the peer provokes costs as much as one that it sends.
            self._allowance.chargeReset()

    def _fault(self, number: int) -> None:
        """Log an exception of ours; it ends its stream, not the others."""
        _log.failure("a stream failed")
        error = StreamFailure(ErrorCode.INTERNAL_ERROR, "internal error")
        self._count(error)
        stream = self.streams.get(number)
        if stream is not None:
            self._sendReset(number, error.code)
            self._abandon(stream, error)

    def _count(self, error: HTTP2Error) -> None:
        self.failures[error.code] = self.failures.get(error.code, 0) + 1

    def goAway(
        self, code: int = ErrorCode.NO_ERROR, isFinal: bool = True, text: bytes = b""
    ) -> None:
        """
        Announce the end of the connection.

        @param isFinal: Whether further streams of the peer are refused from now on; otherwise those
            that it has opened before it hears of the end are still accepted.
        """
        if isFinal:
            self.isGoingAway = True
        last = self.lastStream if isFinal else _MAX_STREAM
        self._output.frames.append(frames.goAway(last, code, text))
        self._wantFlush()

    def fail(self, error: ConnectionFailure) -> None:
        """End the connection because the peer broke the protocol, unless it has ended."""
        if self.failure is not None:
            return
        self._count(error)
        last = frames.goAway(self.lastStream, error.code, error.text.encode())
        self._output.frames.append(last)
        self.lose(error)
        self._wantFlush()

    def lose(self, reason: Exception) -> None:
        """End all streams, because the connection is lost."""
        if self.failure is None:
            self.failure = reason
        self._input = b""
        self._part = None
        self._block.clear()
        self._pongs.clear()
        for stream in list(self.streams.values()):
            self._abandon(stream, reason)

    def forgive(self, seconds: float) -> None:
        """
        Forgive frames that did no work, and resets.

        @param seconds: The time since the last call.
        """
        self._allowance.forgive(seconds)

    # For clients

    @property
    def mayOpen(self) -> bool:
        """Return whether the peer accepts another stream now."""
        return (
            self.failure is None
            and self.peerLastStream is None
            and len(self.streams) < self.peerStreams
            and self._nextStream <= _MAX_STREAM
        )

    @property
    def isRetired(self) -> bool:
        """
        Return whether no further stream can ever be opened: the peer has sent GOAWAY, or all
        numbers are used (section 5.1.1).
        """
        return self.peerLastStream is not None or self._nextStream > _MAX_STREAM

    def open(self, make: Callable[["HTTP2Core", int], Stream]) -> Any:
        """
        Open a stream in the role of a client.

        Its head has to be sent before the next stream is opened, as the peer expects the numbers in
        order (section 5.1.1).

        @param make: Makes the stream from the connection and its number.
        @return: The stream.
        @raise RuntimeError: If L{mayOpen} is false.
        """
        if not self.mayOpen:
            raise RuntimeError("the peer accepts no further stream")
        number = self._nextStream
        self._nextStream += 2
        stream = self.streams[number] = make(self, number)
        return stream


def _ignore() -> None:
    """Ignore a PING, which is answered anyway."""
