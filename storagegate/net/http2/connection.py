"""
HTTP/2 on one connection of a site (RFC 9113).

The connection counts as one of HTTP/1.1, and each of its streams as a request. It is in one of
these states::

    idle        no stream is open                http2KeepAliveTimeout; see _idleSeconds
    frame       a part of a frame has arrived    headersTimeout; requestTimeout if a stream is open
    busy        streams are open                 the timeouts of each
    draining    GOAWAY was sent                  closes when no stream is open
    closing     closed by us, discarding input   lingerTimeout; requestTimeout if unsent bytes

Draining takes two GOAWAY frames (section 6.8): the first asks the client to open no more streams
here, and the last, sent when a PING has returned, names the last stream that is served. Requests
that the client sent in between are answered.
"""

from collections import deque
from typing import Any

from twisted.internet.interfaces import (
    IDelayedCall,
    IProtocol,
    IPushProducer,
    ITCPTransport,
)
from twisted.internet.protocol import connectionDone
from twisted.python.failure import Failure
from zope.interface import implementer

from storagegate.core.shares import AddressShare
from storagegate.net.http.interfaces import IChannelOwner
from storagegate.net.http2 import frames
from storagegate.net.http2.core import HTTP2Core
from storagegate.net.http2.httpstream import HTTPStream
from storagegate.net.http2.interfaces import (
    ConnectionFailure,
    ErrorCode,
    HTTP2Error,
    HTTP2Limits,
)
from storagegate.net.lingering import LingeringClose

# Bytes per read: the window of a stream.
_READ_SIZE = 64 * 1024

# Bytes per read while several large bodies arrive: a part of each.
_MAX_READ = 1024 * 1024

# Bytes of DATA that are joined for one write: with the heads of five frames they fill four records
# of TLS. 64 KiB took a fifth record, and a system call, for the last 36 bytes.
_PIECE = 64 * 1024 - 45

# Bytes sent before other connections get a turn.
_TURN = 512 * 1024

# Frames other than DATA that may wait for a client that does not read, before we stop reading.
_MAX_UNSENT = 64 * 1024

_CODE_NAMES = {code: name for name, code in vars(ErrorCode).items() if name.isupper()}

# How long after the first GOAWAY the last one is sent if no PING returns, in seconds.
_DRAIN_SECONDS = 1.0

# From a response to the reset that stops the rest of the body of its request, in seconds.
_REFUSE_SECONDS = 0.2


@implementer(IProtocol, IPushProducer)
class HTTP2Connection(HTTP2Core):
    """
    One connection.

    Streams use it as the L{IRequestChannel.connection
    <storagegate.net.http.interfaces.IRequestChannel>} of their requests, without a C{fileSender}:
    sendfile would bypass the frames.

    @ivar owner: The site.
    @ivar client: The transport, as HTTP/1.1 had it: a L{ChannelTransport
        <storagegate.net.http.channel.ChannelTransport>}.
    @ivar share: The listener's counts for the client's address.
    @ivar isFull: Whether the client has fallen behind with reading.
    """

    fileSender = None
    factory: Any = None

    def __init__(self, owner: IChannelOwner, client: Any, share: AddressShare) -> None:
        self.owner = owner
        self.client = client
        self.share = share
        self.transport: Any = None
        self.isFull = False
        limits = owner.limits
        offers = {frames.ENABLE_CONNECT_PROTOCOL: 1} if owner.servesWebSockets else None
        super().__init__(
            HTTP2Limits(
                headerList=limits.headSize,
                streams=limits.http2MaxStreams,
                progress=limits.progressSize,
                stallTimeout=limits.requestTimeout,
            ),
            self._makeStream,
            self.flush,
            self._isTurnOver,
            offers,
        )
        self.secure = client.secure
        self.clientHost = client.clientHost
        self.clientPort = client.clientPort
        self.tlsVersion = client.tlsVersion
        self.sentBytes = client.sentBytes
        self.budget = owner.budget
        # Input that waits for a turn; see InputScheduler.
        self._pending: list[bytes] = []
        self._isWaiting = self._isHeld = self._isFlushing = self._isFlushDue = False
        # Streams with bytes that arrived in this turn, and the number of large bodies.
        self._arriving: list[HTTPStream] = []
        self._uploads = 0
        self._unsent = 0
        self._isClosing = self._isDraining = False
        self._closing: LingeringClose | None = None
        # Streams that are soon reset, with the time of each.
        self._refused: deque[tuple[float, HTTPStream]] = deque()
        self._refusal: IDelayedCall | None = None
        self._idleSince = owner.now
        self._lastGoAway: float | None = None
        self._checkedAt = owner.now
        self._seen = -1
        # When a frame or a header block that is incomplete was first seen.
        self._partSince: float | None = None

    # For the transport

    def makeConnection(self, transport: Any) -> None:
        """Take over a connection."""
        self.transport = transport
        self.connectionMade()

    def connectionMade(self) -> None:
        """Send the preface of the server."""
        self.transport.registerProducer(self, True)
        if self.clientHost and ITCPTransport.providedBy(self.transport):
            # Nothing else detects a machine that vanishes during a silent call of gRPC.
            self.transport.setTcpKeepAlive(True)
        self.client.setReadSize(_READ_SIZE)
        self.start()
        if self.owner.draining:
            self.willDrain()

    def dataReceived(self, data: bytes) -> None:
        """Process received bytes."""
        if self._closing is not None:
            self._closing.discard(len(data))
        elif self._isClosing:
            pass
        elif self._isWaiting:
            self._pending.append(data)
        else:
            self._receive(data)

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """Notify the requests."""
        self._isClosing = True
        self.owner.channelClosed(self)
        if self._refusal is not None:
            self._refusal.cancel()
            self._refusal = None
        # They refer to the connection.
        self._refused.clear()
        self.lose(reason.value if isinstance(reason.value, Exception) else Exception(str(reason)))
        self.transport = None
        # They refer to the connection.
        self._wantFlush = self._isOver = _nothing
        self._openStream = None

    def refuseLater(self, stream: HTTPStream) -> None:
        """
        Ask the client to send no more of a body, a little later: haproxy 2.6 drops its own client
        if the reset comes in one read with the response.
        """
        reactor = self.owner.reactor
        self._refused.append((reactor.seconds() + _REFUSE_SECONDS, stream))
        if self._refusal is None:
            self._refusal = reactor.callLater(_REFUSE_SECONDS, self._refuse)

    def _refuse(self) -> None:
        """Reset the streams whose time has come."""
        refused, reactor = self._refused, self.owner.reactor
        self._refusal = None
        while refused and refused[0][0] <= reactor.seconds():
            refused.popleft()[1].reset(ErrorCode.NO_ERROR)
        if refused and not self._isClosing:
            delay = max(0.0, refused[0][0] - reactor.seconds())
            self._refusal = reactor.callLater(delay, self._refuse)

    def pauseProducing(self) -> None:
        """Send no DATA, because the client has fallen behind with reading."""
        self.isFull = True

    def resumeProducing(self) -> None:
        """Send what has been queued."""
        self.isFull = False
        self._unsent = 0
        self._updateReading()
        self.flush()
        if self._isHeld and not self.isFull:
            self._isHeld = False
            self.owner.scheduler.wait(self._endWaiting)

    def stopProducing(self) -> None:
        """Do nothing: C{connectionLost} follows."""

    # Input

    def _makeStream(self, core: HTTP2Core, number: int) -> HTTPStream:
        return HTTPStream(self, number)

    def deliverLater(self, stream: HTTPStream) -> None:
        """Call L{HTTPStream.deliver} at the end of the turn."""
        self._arriving.append(stream)

    def _receive(self, data: bytes) -> None:
        self.receive(data)
        arriving = self._arriving
        if arriving:
            self._arriving = []
            self._isReceiving = True
            try:
                for stream in arriving:
                    try:
                        stream.deliver()
                    except Exception:
                        self._fault(stream.id)
            finally:
                self._isReceiving = False
        self.flush()
        if self.hasInput and not self._isClosing:
            self._isWaiting = True
            self._updateReading()
            self.owner.scheduler.wait(self._endWaiting)

    def _count(self, error: HTTP2Error) -> None:
        super()._count(error)
        name = _CODE_NAMES.get(error.code, "UNKNOWN")
        counts = self.owner.http2Errors
        counts[name] = counts.get(name, 0) + 1

    def _isTurnOver(self, handled: int) -> bool:
        """Return whether other connections come first, after a number of frames."""
        scheduler = self.owner.scheduler
        if handled == 1:
            scheduler.begin()
        isOver: bool = scheduler.isOver(handled)
        return isOver

    def _endWaiting(self) -> None:
        """Continue with the input, now that it is this connection's turn."""
        if self._unsent > _MAX_UNSENT:
            # Its input would cause more output; continued when the client has read some.
            self._isHeld = True
            return
        self._isWaiting = False
        if self._isClosing:
            return
        self._updateReading()
        data = b"".join(self._pending)
        self._pending.clear()
        self._receive(data)

    def _updateReading(self) -> None:
        if not self._isClosing:
            self.client.setReading(not self._isWaiting and self._unsent <= _MAX_UNSENT)

    def countUpload(self, change: int) -> None:
        """
        Count a large body that is being read, so that a read has room for a part of each.

        @param change: 1 or -1.
        """
        self._uploads += change
        size = min(_MAX_READ, self._uploads * self.owner.pieceSize())
        self.client.setReadSize(max(_READ_SIZE, size))

    # Output

    def flush(self) -> None:
        """Send what the windows and the transport allow."""
        if self._isFlushing or self._isReceiving or self.transport is None:
            return
        self._isFlushing = True
        try:
            self._sendTurn()
        finally:
            self._isFlushing = False
        isOver = self.failure is not None or (self.isGoingAway and not self.streams)
        if isOver and not self._isClosing:
            self._close()

    def _sendTurn(self) -> None:
        sent = 0
        while sent < _TURN:
            isFull = self.isFull
            data = self.takeOutput(0 if isFull else _PIECE)
            if not data:
                self.countWaiting()
                if self.hasFrames:
                    # Streams over the budget were reset.
                    continue
                return
            sent += len(data)
            self.transport.write(data)
            if isFull:
                self._unsent += len(data)
                self._updateReading()
        if not self._isFlushDue:
            self._isFlushDue = True
            self.owner.reactor.callLater(0, self._flushDue)

    def _flushDue(self) -> None:
        self._isFlushDue = False
        self.flush()

    # For the owner

    @property
    def isBusy(self) -> bool:
        """Return whether a request is in flight."""
        return bool(self.streams)

    def willDrain(self) -> None:
        """Ask the client to open no more streams here."""
        if not (self._isDraining or self._isClosing):
            self._isDraining = True
            # The owner's time may be a second old.
            self._lastGoAway = self.owner.reactor.seconds() + _DRAIN_SECONDS
            self.goAway(isFinal=False)
            self.ping(self._endDraining)

    def drain(self) -> None:
        """Close once the streams that the client has opened are complete."""
        self.willDrain()

    def _endDraining(self) -> None:
        """Name the last stream that is served."""
        self._lastGoAway = None
        if not (self.isGoingAway or self._isClosing):
            self.goAway()

    def abort(self) -> None:
        """Drop the connection."""
        self._isClosing = True
        if self.transport is not None:
            self.transport.abortConnection()

    def checkTimeouts(self, now: float) -> None:
        """Enforce the timeouts. Called about once a second."""
        if self._closing is not None:
            self._closing.check(now)
            return
        self.forgive(now - self._checkedAt)
        self._checkedAt = now
        if self._lastGoAway is not None and now >= self._lastGoAway:
            self._endDraining()
        for stream in list(self.streams.values()):
            stream.checkTimeouts(now)
        self._checkFrame(now)
        if self.streams or self.progress != self._seen:
            self._seen = self.progress
            self._idleSince = now
        elif now - self._idleSince >= self._idleSeconds and not self._isClosing:
            self.goAway()
        # The end of a stream may have left nothing to send.
        self.flush()

    @property
    def _idleSeconds(self) -> float:
        """Return how long the connection may have no stream."""
        owner = self.owner
        limits = owner.limits
        seconds: float = limits.http2KeepAliveTimeout
        if owner.isCrowded:
            seconds = min(seconds, limits.keepAliveTimeout)
        if not self.lastStream:
            seconds = min(seconds, limits.headersTimeout)
        return seconds

    def _checkFrame(self, now: float) -> None:
        """Fail if a frame or a header block has been incomplete for too long."""
        if not self.isInFrame or self._isWaiting:
            self._partSince = None
            return
        if self._partSince is None or self.progress != self._seen:
            self._partSince = now
            return
        limits = self.owner.limits
        # The frame may be DATA of a slow upload, which the stream watches.
        isHead = self.isInBlock or not self.streams
        if now - self._partSince >= (limits.headersTimeout if isHead else limits.requestTimeout):
            text = "a frame or a header block took too long"
            self.fail(ConnectionFailure(ErrorCode.PROTOCOL_ERROR, text))

    def _close(self) -> None:
        """
        Close once everything is sent; bytes still received are discarded for a while.

        The client may still be sending, also on streams that were reset.
        """
        self._isClosing = True
        self._pending.clear()
        limits = self.owner.limits
        self._closing = LingeringClose(
            self.client,
            self.owner.now,
            limits.lingerTimeout,
            limits.requestTimeout,
            limits.drainedBody,
        )


def _nothing(*arguments: Any) -> bool:
    return False
