"""
A connection of HTTP/2 without I/O (RFC 9113): bytes in, calls of streams, bytes out.

The owner passes received bytes to L{HTTP2Core.receive} and sends what L{HTTP2Core.takeOutput}
returns. In between the core calls the methods of L{Stream<storagegate.net.http2.stream.Stream>},
whose subclasses carry requests. What a stream sends is queued, and cut into DATA frames by the
windows when output is taken; so the messages of a turn share frames, and answers are ordered by
their priorities (RFC 9218).

Frames that do no work are charged to an account, as are streams that the peer resets: a peer that
sends more of them than L{HTTP2Limits<storagegate.net.http2.interfaces.HTTP2Limits>} forgives loses
the connection with ENHANCE_YOUR_CALM.
"""

from collections import deque
from collections.abc import Callable
from typing import Any

from twisted.logger import Logger

from storagegate.net.http2 import frames
from storagegate.net.http2.frames import (
    ACK,
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    GOAWAY,
    HAS_PRIORITY,
    HEADER_SIZE,
    HEADERS,
    PADDED,
    PING,
    PREFACE,
    PRIORITY,
    PRIORITY_UPDATE,
    PUSH_PROMISE,
    RST_STREAM,
    SETTINGS,
    WINDOW_UPDATE,
    packHeader,
)
from storagegate.net.http2.hpack import HeaderDecoder, tableSizeUpdate
from storagegate.net.http2.interfaces import (
    ConnectionFailure,
    ErrorCode,
    HTTP2Error,
    HTTP2Limits,
    StreamFailure,
    StreamReset,
)
from storagegate.net.http2.priorities import readPriority
from storagegate.net.http2.stream import Stream

_INITIAL_WINDOW = 65_535

_MAX_WINDOW = 2**31 - 1

_MAX_STREAM = 2**31 - 1

_DEFAULT_FRAME = 16_384

_MAX_FRAME = 2**24 - 1

# The values of settings (section 6.5.2; RFC 8441, RFC 9218), and the error for others.
_SETTING_RANGES = {
    frames.ENABLE_PUSH: (0, 1, ErrorCode.PROTOCOL_ERROR),
    frames.INITIAL_WINDOW_SIZE: (0, _MAX_WINDOW, ErrorCode.FLOW_CONTROL_ERROR),
    frames.MAX_FRAME_SIZE: (_DEFAULT_FRAME, _MAX_FRAME, ErrorCode.PROTOCOL_ERROR),
    frames.ENABLE_CONNECT_PROTOCOL: (0, 1, ErrorCode.PROTOCOL_ERROR),
    frames.NO_RFC7540_PRIORITIES: (0, 1, ErrorCode.PROTOCOL_ERROR),
}
_ANY_SETTING = (0, 2**32 - 1, ErrorCode.PROTOCOL_ERROR)

# The frames that belong to a stream, to the connection, and those of a fixed size.
_OF_STREAM = frozenset([DATA, HEADERS, PRIORITY, RST_STREAM, PUSH_PROMISE, CONTINUATION])
_OF_CONNECTION = frozenset([SETTINGS, PING, GOAWAY, PRIORITY_UPDATE])
_SIZES = {PRIORITY: 5, RST_STREAM: 4, PING: 8, WINDOW_UPDATE: 4}

# Streams that were reset: frames of the peer that crossed the reset are ignored.
_REMEMBERED = 256

# WINDOW_UPDATE and PING frames that cost nothing: these, and two for each DATA frame that was sent,
# because its receiver grants it again and measures the delay. A client of gRPC grants each message,
# of which a frame may have hundreds.
_FREE_FRAMES = 200
_MOST_FREE_FRAMES = 8192
_BYTES_OF_FREE_FRAME = 16

_log = Logger()


class HTTP2Core:
    """
    One connection.

    @ivar limits: The limits.
    @ivar streams: The open streams by number.
    @ivar lastStream: The highest stream of the peer that was processed.
    @ivar initialSendWindow: The peer's SETTINGS_INITIAL_WINDOW_SIZE.
    @ivar sendWindow: The number of bytes that the peer accepts on all streams.
    @ivar peerStreams: The number of streams that the peer lets us open.
    @ivar failure: The error that ended the connection.
    @ivar isGoingAway: Whether no further stream of the peer is accepted.
    @ivar peerLastStream: The last stream of a GOAWAY of the peer; C{None} before one.
    @ivar failures: The number of errors by L{ErrorCode}.
    @ivar progress: A count that changes with each frame that does work.
    @ivar pinged: Called with each PING of the peer; may raise L{ConnectionFailure}.
    """

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
        self.streams: dict[int, Stream] = {}
        self.lastStream = 0
        self.initialSendWindow = self.sendWindow = _INITIAL_WINDOW
        self.peerStreams = _MAX_STREAM
        self.failure: Exception | None = None
        self.isGoingAway = False
        self.peerLastStream: int | None = None
        self.failures: dict[int, int] = {}
        self.progress = 0
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
        self._output: list[bytes | memoryview] = []
        self._ready: dict[Stream, None] = {}
        self._nextStream = 1
        # The highest number that the peer has used, also of streams that were not accepted.
        self._highest = 0
        # A header block that arrives in several frames.
        self._block: list[bytes] = []
        self._blockSize = 0
        self._blockStream = 0
        self._blockEnds = False
        # The limit of the peer's decoder.
        self._tableSize = 4096
        self._prefix = b""
        self._received = 0
        self._resets: deque[int] = deque(maxlen=_REMEMBERED)
        self._hasPriorities = False
        self._waitingPriorities: dict[int, bytes] = {}
        self._control = self._peerResets = 0
        self._freeFrames = _FREE_FRAMES
        self._pongs: list[Callable[[], object]] = []

    # Input

    def start(self) -> None:
        """Send the preface of the connection."""
        limits = self.limits
        values = {
            frames.MAX_CONCURRENT_STREAMS: limits.streams,
            frames.MAX_HEADER_LIST_SIZE: limits.headerList,
            frames.NO_RFC7540_PRIORITIES: 1,
        }
        if self.isClient:
            self._output.append(PREFACE)
            values = {frames.ENABLE_PUSH: 0, frames.MAX_HEADER_LIST_SIZE: limits.headerList}
        if limits.streamWindow != _INITIAL_WINDOW:
            values[frames.INITIAL_WINDOW_SIZE] = limits.streamWindow
        if limits.frame != _DEFAULT_FRAME:
            values[frames.MAX_FRAME_SIZE] = limits.frame
        if limits.headerTable != 4096:
            values[frames.HEADER_TABLE_SIZE] = limits.headerTable
        self._output.append(frames.settings(values | self._offers))
        if limits.connectionWindow > _INITIAL_WINDOW:
            increment = limits.connectionWindow - _INITIAL_WINDOW
            self._output.append(frames.windowUpdate(0, increment))
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
        while end - at >= HEADER_SIZE:
            word = int.from_bytes(data[at : at + 4], "big")
            size, kind = word >> 8, word & 0xFF
            if size > self.limits.frame:
                raise ConnectionFailure(ErrorCode.FRAME_SIZE_ERROR, "a frame is too long")
            begin = at + HEADER_SIZE
            if end - begin < size:
                break
            flags = data[at + 4]
            number = int.from_bytes(data[at + 5 : begin], "big") & _MAX_STREAM
            at = begin + size
            if self._blockStream and (kind != CONTINUATION or number != self._blockStream):
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
                if kind == DATA:
                    self._dataReceived(number, flags, data[begin:at])
                else:
                    self._frameReceived(kind, flags, number, data[begin:at])
            except StreamFailure as error:
                self._failStream(number, error)
            except ConnectionFailure:
                raise
            except Exception:
                # A fault of ours ends one stream, not the others.
                _log.failure("a stream failed on a frame")
                self._failStream(number, StreamFailure(ErrorCode.INTERNAL_ERROR, "internal error"))
            handled += 1
            if self.failure is not None or self._isOver(handled):
                break
        return at

    @property
    def hasInput(self) -> bool:
        """Return whether a complete frame is left, because the turn was over."""
        data = self._input
        return (
            self.failure is None
            and not self._isPrefaceDue
            and len(data) >= HEADER_SIZE
            and len(data) - HEADER_SIZE >= int.from_bytes(data[:3], "big")
        )

    @property
    def hasOutput(self) -> bool:
        """Return whether L{takeOutput} may have something to send."""
        return bool(self._ready or self._output)

    @property
    def isInFrame(self) -> bool:
        """Return whether a frame, a header block or the preface is incomplete."""
        return bool(self._input or self._blockStream or self._isPrefaceDue)

    def _frameReceived(self, kind: int, flags: int, number: int, payload: bytes) -> None:
        size = _SIZES.get(kind)
        if (kind in _OF_STREAM and not number) or (kind in _OF_CONNECTION and number):
            raise ConnectionFailure(ErrorCode.PROTOCOL_ERROR, "a frame of the wrong stream")
        if size is not None and len(payload) != size:
            raise ConnectionFailure(ErrorCode.FRAME_SIZE_ERROR, "a frame of the wrong size")
        if kind == HEADERS:
            self._headersReceived(number, flags, payload)
        elif kind == WINDOW_UPDATE:
            self._windowUpdateReceived(number, int.from_bytes(payload, "big") & _MAX_WINDOW)
        elif kind == CONTINUATION:
            if not self._blockStream:
                raise ConnectionFailure(
                    ErrorCode.PROTOCOL_ERROR, "CONTINUATION without a header block"
                )
            self._charge()
            self._addBlock(flags, payload)
        elif kind == SETTINGS:
            self._charge()
            self._settingsReceived(flags, payload)
        elif kind == PING:
            if flags & ACK:
                for pong in self._pongs[:1]:
                    del self._pongs[0]
                    pong()
            else:
                self._chargeReaction()
                self.pinged()
                self._output.append(frames.frame(PING, ACK, 0, payload))
        elif kind == RST_STREAM:
            self._resetReceived(number, int.from_bytes(payload, "big"))
        elif kind == GOAWAY:
            self._goAwayReceived(payload)
        elif kind == PUSH_PROMISE:
            raise ConnectionFailure(ErrorCode.PROTOCOL_ERROR, "a push that is not allowed")
        elif kind == PRIORITY_UPDATE:
            self._charge()
            self._priorityReceived(payload)
        else:
            # PRIORITY is deprecated (section 5.3), frames of unknown types are ignored (5.5).
            self._charge()

    def _charge(self) -> None:
        self._control += 1
        if self._control > self.limits.control:
            raise ConnectionFailure(ErrorCode.ENHANCE_YOUR_CALM, "too many frames that do no work")

    def _chargeReaction(self) -> None:
        """Charge a frame that is expected in reaction to DATA."""
        if self._freeFrames > 0:
            self._freeFrames -= 1
        else:
            self._charge()

    # Section 6.1

    def _dataReceived(self, number: int, flags: int, data: bytes) -> None:
        if not number:
            raise ConnectionFailure(ErrorCode.PROTOCOL_ERROR, "DATA without a stream")
        size = len(data)
        self._received += size
        if self._received > self.limits.connectionWindow:
            raise ConnectionFailure(
                ErrorCode.FLOW_CONTROL_ERROR, "more DATA than the window of the connection"
            )
        if self._received * 2 >= self.limits.connectionWindow:
            self._output.append(frames.windowUpdate(0, self._received))
            self._received = 0
        if flags & PADDED:
            data = _unpadded(data)
        isEnded = bool(flags & END_STREAM)
        if not data and not isEnded:
            self._charge()
        stream = self.streams.get(number)
        if stream is None or stream.isRemoteClosed:
            self._refuseData(number, stream)
            return
        self.progress += 1
        stream.receiveWindow -= size
        if stream.receiveWindow < 0:
            raise StreamFailure(
                ErrorCode.FLOW_CONTROL_ERROR, "more DATA than the window of the stream"
            )
        if size != len(data):
            stream.take(size - len(data))
        stream.received += len(data)
        expected = stream.expected
        if expected is not None and (
            stream.received > expected or (isEnded and stream.received != expected)
        ):
            # Section 8.1.1
            raise StreamFailure(ErrorCode.PROTOCOL_ERROR, "the body is not of the declared length")
        if isEnded:
            stream.isRemoteClosed = True
        if stream.isLocalClosed:
            self._discarded(stream)
        else:
            stream.dataReceived(data, isEnded)
            if isEnded and stream.isLocalClosed:
                self._forget(stream)

    def _refuseData(self, number: int, stream: Stream | None) -> None:
        """Handle DATA of a stream whose peer may send nothing more (section 5.1)."""
        if stream is not None:
            raise StreamFailure(ErrorCode.STREAM_CLOSED, "DATA after the end of its stream")
        if self._isIdle(number):
            raise ConnectionFailure(ErrorCode.PROTOCOL_ERROR, "DATA of a stream never opened")
        self._charge()
        if not self._isIgnored(number):
            raise StreamFailure(ErrorCode.STREAM_CLOSED, "DATA of a closed stream")

    def _isIgnored(self, number: int) -> bool:
        """Return whether a frame may have crossed our reset of its stream, or our GOAWAY."""
        return number in self._resets or (self.isGoingAway and number > self.lastStream)

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
            self.resetStream(stream, ErrorCode.NO_ERROR)

    # Sections 6.2 and 6.10

    def _headersReceived(self, number: int, flags: int, payload: bytes) -> None:
        if flags & PADDED:
            payload = _unpadded(payload)
        if flags & HAS_PRIORITY:
            if len(payload) < 5:
                raise ConnectionFailure(ErrorCode.FRAME_SIZE_ERROR, "a frame of the wrong size")
            payload = payload[5:]
        if bool(number % 2) is self.isClient and not self.isClient:
            raise ConnectionFailure(ErrorCode.PROTOCOL_ERROR, "a stream of the wrong parity")
        self._blockStream = number
        self._blockEnds = bool(flags & END_STREAM)
        if flags & END_HEADERS and len(payload) <= self.limits.headerBlock:
            self._blockReceived(payload)
        else:
            self._addBlock(flags, payload)

    def _addBlock(self, flags: int, payload: bytes) -> None:
        self._block.append(payload)
        self._blockSize += len(payload)
        if self._blockSize > self.limits.headerBlock:
            raise ConnectionFailure(ErrorCode.ENHANCE_YOUR_CALM, "a header block is too long")
        if flags & END_HEADERS:
            block = b"".join(self._block)
            self._block.clear()
            self._blockSize = 0
            self._blockReceived(block)

    def _blockReceived(self, block: bytes) -> None:
        number, isEnded = self._blockStream, self._blockEnds
        self._blockStream = 0
        # Even of a stream that is refused, or the tables would differ.
        fields = self._decoder.decode(block)
        stream = self.streams.get(number)
        self.progress += 1
        if stream is None:
            stream = self._newStream(number)
            if stream is None:
                return
        elif stream.isRemoteClosed:
            raise StreamFailure(ErrorCode.STREAM_CLOSED, "HEADERS after the end of their stream")
        elif stream.isHeadReceived and not isEnded:
            raise StreamFailure(ErrorCode.PROTOCOL_ERROR, "trailers that do not end their stream")
        if isEnded:
            stream.isRemoteClosed = True
            if stream.isHeadReceived and stream.expected not in (None, stream.received):
                raise StreamFailure(
                    ErrorCode.PROTOCOL_ERROR, "the body is not of the declared length"
                )
        if stream.isLocalClosed and not self.isClient:
            self._discarded(stream)
            return
        if stream.isHeadReceived:
            stream.trailersReceived(fields)
        else:
            stream.isHeadReceived = not self.isClient
            stream.headReceived(fields, isEnded)
        if isEnded and stream.isLocalClosed:
            self._forget(stream)

    def _newStream(self, number: int) -> Stream | None:
        """Open the stream of a request; return C{None} if it is not accepted."""
        if self._openStream is None or number <= self._highest:
            self._charge()
            if self._isIgnored(number):
                return None
            raise ConnectionFailure(ErrorCode.STREAM_CLOSED, "HEADERS of a closed stream")
        self._highest = number
        if self.isGoingAway:
            return None
        if len(self.streams) >= self.limits.streams:
            self._resets.append(number)
            raise StreamFailure(ErrorCode.REFUSED_STREAM, "too many open streams")
        self.lastStream = number
        stream = self.streams[number] = self._openStream(self, number)
        if self._waitingPriorities:
            value = self._waitingPriorities.pop(number, None)
            if value is not None:
                self.prioritise(stream, value)
        return stream

    # Section 6.4

    def _resetReceived(self, number: int, code: int) -> None:
        stream = self.streams.get(number)
        if stream is None:
            if self._isIdle(number):
                raise ConnectionFailure(
                    ErrorCode.PROTOCOL_ERROR, "a reset of a stream never opened"
                )
            self._charge()
            return
        self._resets.append(number)
        isEarly = not (stream.isLocalClosed or self.isClient)
        if self._end(stream):
            stream.lost(StreamReset(code))
        if isEarly:
            self._peerResets += 1
            if self._peerResets > self.limits.resets:
                raise ConnectionFailure(ErrorCode.ENHANCE_YOUR_CALM, "too many resets")

    # Section 6.5

    def _settingsReceived(self, flags: int, payload: bytes) -> None:
        if flags & ACK:
            if payload:
                raise ConnectionFailure(ErrorCode.FRAME_SIZE_ERROR, "a frame of the wrong size")
            return
        if len(payload) % 6:
            raise ConnectionFailure(ErrorCode.FRAME_SIZE_ERROR, "a frame of the wrong size")
        for name, value in frames.readSettings(payload):
            least, most, code = _SETTING_RANGES.get(name, _ANY_SETTING)
            if not least <= value <= most:
                raise ConnectionFailure(code, "an invalid setting")
            if name == frames.HEADER_TABLE_SIZE and value < self._tableSize:
                # RFC 7541 section 4.2: our encoder uses no table, and has to say so once.
                self._tableSize = 0
                self._prefix = tableSizeUpdate(0)
            elif name == frames.MAX_CONCURRENT_STREAMS:
                self.peerStreams = value
            elif name == frames.INITIAL_WINDOW_SIZE:
                self._changeWindows(value)
            # Our frames are never longer than the least maximum, so that streams take turns.
        self._output.append(frames.frame(SETTINGS, ACK, 0))

    def _changeWindows(self, size: int) -> None:
        """Section 6.9.2"""
        change = size - self.initialSendWindow
        self.initialSendWindow = size
        for stream in self.streams.values():
            stream.sendWindow += change
            if stream.sendWindow > _MAX_WINDOW:
                raise ConnectionFailure(ErrorCode.FLOW_CONTROL_ERROR, "a window over 2**31 - 1")
            if change > 0 and stream.queued:
                self._ready[stream] = None

    # Section 6.8

    def _goAwayReceived(self, payload: bytes) -> None:
        if len(payload) < 8:
            raise ConnectionFailure(ErrorCode.FRAME_SIZE_ERROR, "a frame of the wrong size")
        self._charge()
        last = int.from_bytes(payload[:4], "big") & _MAX_STREAM
        code = int.from_bytes(payload[4:8], "big")
        if self.peerLastStream is not None and last > self.peerLastStream:
            raise ConnectionFailure(ErrorCode.PROTOCOL_ERROR, "GOAWAY with a higher stream")
        self.peerLastStream = last
        if self.isClient:
            for stream in [each for number, each in self.streams.items() if number > last]:
                if self._end(stream):
                    stream.lost(StreamReset(code, isUnprocessed=True))

    # Section 6.9

    def _windowUpdateReceived(self, number: int, increment: int) -> None:
        self._chargeReaction()
        if not number:
            if not increment:
                raise ConnectionFailure(ErrorCode.PROTOCOL_ERROR, "WINDOW_UPDATE of 0")
            self.sendWindow += increment
            if self.sendWindow > _MAX_WINDOW:
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
        if stream.sendWindow > _MAX_WINDOW:
            raise StreamFailure(ErrorCode.FLOW_CONTROL_ERROR, "a window over 2**31 - 1")
        if stream.queued:
            self._ready[stream] = None

    # RFC 9218

    def _priorityReceived(self, payload: bytes) -> None:
        """Section 7.1"""
        if self.isClient or len(payload) < 4:
            raise ConnectionFailure(ErrorCode.PROTOCOL_ERROR, "an invalid PRIORITY_UPDATE")
        number = int.from_bytes(payload[:4], "big") & _MAX_STREAM
        if not number or not number % 2:
            raise ConnectionFailure(ErrorCode.PROTOCOL_ERROR, "a priority of no request")
        stream = self.streams.get(number)
        if stream is not None:
            self.prioritise(stream, payload[4:])
        elif number > self._highest and len(self._waitingPriorities) < self.limits.streams:
            self._waitingPriorities[number] = payload[4:]

    def prioritise(self, stream: Stream, value: bytes) -> None:
        """
        Order the output of a stream.

        @param value: The value of a C{Priority} field.
        """
        stream.urgency, stream.isIncremental = readPriority(value)
        self._hasPriorities = True

    # Output

    def makeReady(self, stream: Stream) -> None:
        """Queue the output of a stream."""
        self._ready[stream] = None
        if not self._isReceiving:
            self._wantFlush()

    def sendBlock(self, stream: Stream, block: bytes, isEnd: bool) -> None:
        """Send a header block. Does nothing once the stream is closed."""
        if stream.isLocalClosed:
            return
        if self._prefix:
            block = self._prefix + block
            self._prefix = b""
        output, size = self._output, len(block)
        flags = END_STREAM if isEnd else 0
        if size <= _DEFAULT_FRAME:
            header = packHeader(size << 8 | HEADERS, flags | END_HEADERS, stream.id)
            output.append(header + block)
        else:
            output.append(frames.frame(HEADERS, flags, stream.id, block[:_DEFAULT_FRAME]))
            for at in range(_DEFAULT_FRAME, size, _DEFAULT_FRAME):
                isLast = at + _DEFAULT_FRAME >= size
                piece = block[at : at + _DEFAULT_FRAME]
                kind = END_HEADERS if isLast else 0
                output.append(frames.frame(CONTINUATION, kind, stream.id, piece))
        if isEnd:
            self._closeLocal(stream)
        if not self._isReceiving:
            self._wantFlush()

    def takeOutput(self, budget: int) -> bytes:
        """
        Return the next bytes to send.

        @param budget: About how many bytes of DATA to add; 0 while the transport is full.
        @return: Empty if there is nothing to send now.
        """
        ready = self._ready
        resumed: list[Stream] = []
        while ready:
            before = budget
            if len(ready) == 1:
                for stream in list(ready):
                    budget -= self._sendQueued(stream, budget, resumed)
            else:
                budget = self._sendRound(budget, resumed)
            if budget == before or budget <= 0:
                break
        if resumed:
            high = self.limits.queued // 2
            for stream in resumed:
                if stream.isPaused and stream.queued <= high:
                    stream.isPaused = False
                    stream.setPaused(False)
        output, self._output = self._output, []
        return output[0] if len(output) == 1 and type(output[0]) is bytes else b"".join(output)

    def _sendRound(self, budget: int, resumed: list[Stream]) -> int:
        """Let the streams of the lowest urgency that can send take turns; return what is left."""
        order = list(self._ready)
        if self._hasPriorities:
            order.sort(key=_order)
        urgency = -1
        for stream in order:
            if urgency >= 0 and stream.urgency > urgency:
                break
            share = min(budget, _DEFAULT_FRAME) if stream.isIncremental else budget
            sent = self._sendQueued(stream, share, resumed)
            budget -= sent
            if sent and self._hasPriorities:
                urgency = stream.urgency
                if not stream.isIncremental and stream in self._ready:
                    break
        return budget

    def _sendQueued(self, stream: Stream, most: int, resumed: list[Stream]) -> int:
        """Send up to C{most} bytes of a stream; return how many."""
        queued = stream.queued
        count = min(queued, stream.sendWindow, self.sendWindow, most)
        isEnd = stream.isEnding and count == queued
        if count > 0:
            stream.sendWindow -= count
            self.sendWindow -= count
            stream.queued = queued - count
            stream.sent += count
            self.progress += 1
            self._writeData(stream, count, isEnd and stream.trailers is None)
            if stream.isPaused:
                resumed.append(stream)
        elif not isEnd:
            if stream.sendWindow <= 0 or not queued:
                # A window, or more data, makes it ready again.
                self._ready.pop(stream, None)
            return 0
        elif stream.trailers is None:
            self._output.append(packHeader(DATA, END_STREAM, stream.id))
        self._ready.pop(stream, None)
        if isEnd:
            if stream.trailers is not None:
                self.sendBlock(stream, stream.trailers, True)
            else:
                self._closeLocal(stream)
        elif stream.queued and stream.sendWindow > 0:
            # At the end of the order, so that the streams take turns.
            self._ready[stream] = None
        return max(count, 0)

    def _writeData(self, stream: Stream, count: int, isEnd: bool) -> None:
        """Write queued bytes as DATA frames."""
        output, queue, number = self._output, stream.queue, stream.id
        flags = END_STREAM if isEnd else 0
        size = _DEFAULT_FRAME
        if self._freeFrames < _MOST_FREE_FRAMES:
            self._freeFrames += 2 + count // _BYTES_OF_FREE_FRAME
        while count > size:
            output.append(packHeader(size << 8 | DATA, 0, number))
            _move(queue, size, output)
            count -= size
        output.append(packHeader(count << 8 | DATA, flags, number))
        if stream.queued:
            _move(queue, count, output)
        elif len(queue) == 1:
            output.append(queue.pop())
        else:
            output.extend(queue)
            queue.clear()

    def _closeLocal(self, stream: Stream) -> None:
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
        self._output.append(frames.windowUpdate(stream.id, increment))
        if not self._isReceiving:
            self._wantFlush()

    def ping(self, pong: Callable[[], object]) -> None:
        """Send a PING, and call C{pong} when it is answered."""
        self._pongs.append(pong)
        self._output.append(frames.frame(PING, 0, 0, bytes(8)))
        self._wantFlush()

    # Ends

    def _forget(self, stream: Stream) -> None:
        """Forget a stream that both sides have ended."""
        self.streams.pop(stream.id, None)
        self._ready.pop(stream, None)

    def _end(self, stream: Stream) -> bool:
        """End a stream early; return whether its subclass has not ended it itself."""
        self.streams.pop(stream.id, None)
        self._ready.pop(stream, None)
        wasOpen = not (stream.isLocalClosed and (stream.isRemoteClosed or not self.isClient))
        stream.isLocalClosed = stream.isRemoteClosed = True
        stream.queue.clear()
        stream.queued = 0
        return wasOpen

    def resetStream(self, stream: Stream, code: int) -> None:
        """End a stream at once with RST_STREAM. Does nothing once it is closed."""
        if stream.id not in self.streams:
            return
        self._end(stream)
        self._resets.append(stream.id)
        self._output.append(frames.resetStream(stream.id, code))
        if not self._isReceiving:
            self._wantFlush()

    def _failStream(self, number: int, error: StreamFailure) -> None:
        """Reset a stream on which the peer made a mistake."""
        self._count(error)
        stream = self.streams.get(number)
        if stream is None:
            # The reset of a stream that is not open is charged, as it costs the peer nothing.
            self._control += 1
            if error.code != ErrorCode.REFUSED_STREAM and number in self._resets:
                return
            self._resets.append(number)
            self._output.append(frames.resetStream(number, error.code))
            return
        wasOpen = self._end(stream)
        self._resets.append(number)
        self._output.append(frames.resetStream(number, error.code))
        if wasOpen:
            stream.lost(error)

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
        self._output.append(frames.goAway(last, code, text))
        self._wantFlush()

    def fail(self, error: ConnectionFailure) -> None:
        """End the connection because the peer broke the protocol."""
        self._count(error)
        self._output.append(frames.goAway(self.lastStream, error.code, error.text.encode()))
        self.lose(error)
        self._wantFlush()

    def lose(self, reason: Exception) -> None:
        """End all streams, because the connection is lost."""
        if self.failure is None:
            self.failure = reason
        self._input = b""
        self._block.clear()
        for stream in list(self.streams.values()):
            if self._end(stream):
                try:
                    stream.lost(reason)
                except Exception:
                    # The other streams must still hear of it.
                    _log.failure("a stream failed on the loss of its connection")

    def forgive(self, seconds: float) -> None:
        """
        Forgive frames that did no work, and resets.

        @param seconds: The time since the last call.
        """
        limits = self.limits
        self._control = max(0, self._control - int(limits.controlRate * seconds))
        self._peerResets = max(0, self._peerResets - int(limits.resetRate * seconds))

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

    def open(self, make: Callable[["HTTP2Core", int], Stream]) -> Any:
        """
        Open a stream in the role of a client.

        @param make: Makes the stream from the connection and its number.
        @return: The stream.
        """
        number = self._nextStream
        self._nextStream += 2
        stream = self.streams[number] = make(self, number)
        return stream


def _ignore() -> None:
    """Ignore a PING, which is answered anyway."""


def _unpadded(payload: bytes) -> bytes:
    """Remove the padding (section 6.1)."""
    if not payload:
        raise ConnectionFailure(ErrorCode.FRAME_SIZE_ERROR, "a frame of the wrong size")
    padding = payload[0]
    if padding >= len(payload):
        raise ConnectionFailure(ErrorCode.PROTOCOL_ERROR, "more padding than payload")
    return payload[1 : len(payload) - padding]


def _order(stream: Stream) -> tuple[int, bool, int]:
    """Order streams by urgency; those that are not incremental come first, in turn."""
    isIncremental = stream.isIncremental
    return stream.urgency, isIncremental, 0 if isIncremental else stream.id


def _move(queue: deque[bytes | memoryview], count: int, output: list[bytes | memoryview]) -> None:
    """Move bytes from a queue to the output without copying them."""
    while count:
        piece = queue.popleft()
        size = len(piece)
        if size > count:
            view = memoryview(piece)
            output.append(view[:count])
            queue.appendleft(view[count:])
            return
        output.append(piece)
        count -= size
