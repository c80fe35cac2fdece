"""
One connection of the gateway's TCP listener.

The first byte selects the peer of the session: L{FramePeer} or L{LinePeer} (lines of JSON).
Complete messages are handled one by one, and only while the session accepts calls and the transport
has space for replies. A client that floods, or does not read, thus delays only itself.

A connection is in one of these states::

    open        calls are accepted
    ended       the client has shut its writing side: calls in flight are completed, then we close
    closing     we have closed; further input is discarded
    gone        lost

Under TLS there is no C{ended}: TLS 1.2 has no half-closed connections. Once a second L{StallTimer}
and L{DeadPeerDetector} check whether each direction makes progress.
"""

import select
from collections import deque
from collections.abc import Callable, Hashable
from itertools import count
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IHalfCloseableProtocol, IPushProducer, ITCPTransport
from twisted.internet.protocol import Protocol, connectionDone
from twisted.python.failure import Failure
from zope.interface import implementer

from storagegate.core.codecs import JSON
from storagegate.core.context import ClientInfo
from storagegate.core.errors import ServiceError, codedError
from storagegate.core.shares import AddressShare
from storagegate.gateway.host import TransportContext
from storagegate.gateway.messages.frames import (
    GOING_AWAY,
    PING,
    FrameDecoder,
    FrameError,
    FrameWriter,
    LineDecoder,
    encodeFrame,
    handleFrame,
)
from storagegate.gateway.messages.json import MessageWriter, handleEncoded
from storagegate.gateway.messages.session import PeerSession
from storagegate.gateway.transports.metrics import TransportMetrics
from storagegate.gateway.transports.tcp import PROTOCOL, TCPLimits
from storagegate.net.http.channel import ChannelTransport
from storagegate.net.transport import MAX_UNSENT

# Only Linux reports that a peer has shut its writing side while input is still unread.
_SHUT: int = getattr(select, "POLLRDHUP", 0)
_GONE = select.POLLHUP | select.POLLERR | select.POLLNVAL


class StallTimer:
    """Measures how long something has not changed."""

    def __init__(self) -> None:
        self._mark: Hashable = None
        self._since = 0.0

    def seconds(self, mark: Hashable, now: float) -> float:
        """
        Return how long the mark has been the same, in seconds.

        @param mark: The state that should change; C{None} while nothing is expected.
        @param now: Seconds of a monotonic clock.
        """
        if mark is None or mark != self._mark:
            self._mark, self._since = mark, now
        return now - self._since


class DeadPeerDetector:
    """
    Detects a client that has gone while its connection is not being read.

    A client that has closed looks like one that has only shut its writing side. A probe tells them
    apart: the system of a closed client resets the connection.
    """

    def __init__(self, firstWait: float, lastWait: float) -> None:
        """
        @param firstWait: Seconds until the first probe; the next wait is twice as long.
        @param lastWait: The longest wait, in seconds.
        """
        self._firstWait, self._lastWait = firstWait, lastWait
        self._wait = 0.0
        self._since: float | None = None
        self.isGone = False

    def check(self, transport: Any, now: float) -> bool:
        """
        Poll the socket; C{isGone} says whether the client has closed or reset it.

        @param now: Seconds of a monotonic clock.
        @return: Whether to send a probe.
        """
        fileno = getattr(transport, "fileno", None)
        events = 0
        if fileno is not None:
            poll = select.poll()
            poll.register(fileno(), _SHUT)
            events = dict(poll.poll(0)).get(fileno(), 0)
        self.isGone = bool(events & _GONE)
        if not events & _SHUT:
            self._since = None
        elif self._since is None:
            self._since, self._wait = now, self._firstWait
        elif now - self._since >= self._wait:
            self._since, self._wait = now, min(2 * self._wait, self._lastWait)
            return True
        return False


class FramePeer(FrameWriter):
    """
    A client that uses frames.

    @cvar goingAway: The notice that no further calls are accepted.
    @cvar probe: A frame that clients ignore; the system of a closed client resets the connection.
    """

    goingAway = encodeFrame(GOING_AWAY, b"{}")
    probe = encodeFrame(PING, b"")

    def __init__(
        self, host: TransportContext, maxLength: int, write: Callable[[bytes], None]
    ) -> None:
        """
        @param maxLength: The maximum length of a payload in bytes.
        @param write: Sends a frame.
        """
        super().__init__(host, PROTOCOL, maxLength, write)
        self.decoder = FrameDecoder(maxLength)

    def handleNext(self, session: PeerSession) -> bool:
        """
        Handle the next frame.

        @param session: Runs the frame's call.
        @return: Whether there was a complete frame.
        @raise FrameError: If the input is not a valid frame.
        """
        frame = self.decoder.next()
        if frame is None:
            return False
        handleFrame(session, self, frame)
        return True


class LinePeer(MessageWriter):
    """A client that uses lines of JSON, see L{FramePeer}."""

    goingAway = JSON.encode({"type": "going_away"}) + b"\n"
    probe = JSON.encode({"type": "ping"}) + b"\n"

    def __init__(
        self, host: TransportContext, maxLength: int, write: Callable[[bytes], None]
    ) -> None:
        """
        @param maxLength: The maximum length of a line in bytes.
        @param write: Sends a line.
        """
        super().__init__(host, PROTOCOL, JSON, lambda message: write(message + b"\n"))
        self.decoder = LineDecoder(maxLength)

    def handleNext(self, session: PeerSession) -> bool:
        """
        Handle the next line; empty lines are ignored.

        @return: Whether there was a complete line.
        @raise FrameError: If the line is too long.
        """
        line = self.decoder.next()
        if line is None:
            return False
        if line and not line.isspace():
            handleEncoded(session, self, JSON, line)
        return True


_numbers = count(1)


@implementer(IPushProducer, IHalfCloseableProtocol)
class TCPConnection(Protocol):
    """
    One connection.

    @ivar held: Bytes of incomplete messages.
    """

    client: ClientInfo
    share: AddressShare
    transport: Any

    def __init__(self, owner: Any) -> None:
        """
        @param owner: The L{TCPTransport<storagegate.gateway.transports.tcp.listener.TCPTransport>}.
        """
        self._owner = owner
        self._meter: TransportMetrics = owner.meter
        self._limits: TCPLimits = owner.limits
        self._channel: ChannelTransport
        self._peer: FramePeer | LinePeer | None = None
        self._session: PeerSession | None = None
        self._isClosed = self._isEnded = self._isHandling = self._isNotified = False
        # Whether the session accepts more calls, whether the output buffer is full, and whether the
        # client is being read.
        self._isWanted, self._isFull, self._isReading = True, False, True
        # Whether other connections come first, see InputScheduler; and whether this connection is
        # about to close.
        self._isWaiting = self._isLeaving = False
        self._batch: list[bytes] = []
        self._batched = 0
        # The bytes sent since the output buffer is full.
        self._unread = 0
        self._drains: deque[Deferred[None]] = deque()
        self.held = 0
        self._discardable = self._limits.lingerBytes
        # When a closed connection is dropped.
        self._deadline: float | None = None
        self._taken = 0
        self._intake, self._message, self._outflow = StallTimer(), StallTimer(), StallTimer()
        self._detector = DeadPeerDetector(self._limits.probeSeconds, self._limits.lastProbeSeconds)

    # The transport's side

    def connectionMade(self) -> None:
        """Initialise the connection; the client sends first."""
        transport = self.transport
        self._channel = ChannelTransport(transport)
        self.client = client = _clientOf(transport)
        # All clients of a UNIX socket have the same address and no port.
        self.share = self._owner.listener.shares.of(client.address if client.port else "")
        refusal = self._owner.connectionOpened(self)
        transport.registerProducer(self, True)
        options = self._owner.options
        if ITCPTransport.providedBy(transport):
            transport.setTcpNoDelay(options.noDelay)
            transport.setTcpKeepAlive(options.keepAlive)
        if refusal is not None:
            # Do not linger: a flood of connections would leave lingering ones behind.
            self._begin(b"").sendError(None, refusal)
            self._close()

    def dataReceived(self, data: bytes) -> None:
        """Handle complete messages."""
        self._meter.bytesIn += len(data)
        if self._isClosed:
            self._discardable -= len(data)
            if self._discardable < 0:
                self._channel.closeNow()
            return
        peer = self._peer or self._begin(data)
        peer.decoder.feed(data)
        self._handleReceived()

    def readConnectionLost(self) -> None:
        """Complete the calls in flight: the client sends nothing more."""
        if self._isClosed:
            self.transport.loseConnection()
            return
        if self._session is None:
            self._close()
            return
        self._isEnded = True
        self._session.inputLost()
        self.closeWhenIdle()

    def writeConnectionLost(self) -> None:
        """Do nothing: this side has closed its writing side."""

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """Cancel every call."""
        self._isClosed = True
        self._forget()
        self._owner.connectionClosed(self)

    def pauseProducing(self) -> None:
        """Stop reading until the client has read its output."""
        # Transports call this at each write while their buffer is full.
        self._isFull = True
        self._readOrWait()

    def resumeProducing(self) -> None:
        """Resume the waiting writers, then the client's messages."""
        self._isFull = False
        self._unread = 0
        while self._drains and not self._isFull:
            self._drains.popleft().callback(None)
        self._handleReceived()

    def stopProducing(self) -> None:
        """Do nothing: C{connectionLost} follows."""

    # The session's side

    def send(self, data: bytes) -> None:
        """
        Send bytes; replies that are ready together are sent together.

        @param data: One or more complete messages.
        """
        if self._isClosed:
            return
        if self._isFull:
            self._unread += len(data)
            if self._unread > MAX_UNSENT:
                # An error would wait behind the results.
                self._isClosed = True
                self.transport.abortConnection()
                return
        peer, batch = self._peer, self._batch
        if self._isHandling and (batch or (peer is not None and peer.decoder.held)):
            batch.append(data)
            self._batched += len(data)
            if self._batched >= self._limits.batchBytes:
                self._flush()
        else:
            # No message follows: most reads contain one message.
            self._meter.bytesOut += len(data)
            self.transport.write(data)

    def drained(self) -> Deferred[None] | None:
        """Wait until the client has read enough of the output; C{None} if it already has."""
        if not self._isFull or self._isClosed:
            return None
        drained: Deferred[None] = Deferred(self._drains.remove)
        self._drains.append(drained)
        return drained

    def setReading(self, wanted: bool) -> None:
        """
        Resume or pause reading.

        @param wanted: Whether the session accepts more calls and items.
        """
        self._isWanted = wanted
        if wanted:
            self._handleReceived()
        else:
            self._readOrWait()

    # The listener's side

    def sendGoingAway(self) -> None:
        """Notify the client once; a client that has sent nothing yet is notified when it does."""
        if self._peer is not None and not self._isNotified:
            self._isNotified = True
            self.send(self._peer.goingAway)

    def goAway(self) -> None:
        """Notify the client, and close once no call is in flight."""
        if self._peer is None:
            self._close()
        else:
            self.sendGoingAway()
            self.closeWhenIdle()

    def closeWhenIdle(self) -> None:
        """Close once no call is in flight."""
        self._isLeaving = True
        if self._session is not None and not self._isWaiting:
            # A client that still sends calls after the notice gets a FIN, not a reset.
            linger = self._owner.isLeaving
            self._session.whenIdle().addCallback(lambda _: self._close(linger))

    def abort(self) -> None:
        """Drop the connection; output that the client can read at once is still sent."""
        if self._isClosed or self._channel.secure or self._channel.hasUnsent():
            self.transport.abortConnection()
        else:
            self._close()

    def checkTimeouts(self, now: float) -> None:
        """
        Close or refuse the connection if something takes too long.

        @param now: Seconds of the reactor's clock.
        """
        limits, channel = self._limits, self._channel
        unsent = channel.sentBytes() if channel.hasUnsent() else None
        if self._isClosed and self._deadline is None and unsent is None:
            # All output is sent; TLS waits for the client's close_notify.
            self._deadline = now + limits.lingerSeconds
        isLate = self._deadline is not None and now >= self._deadline
        if isLate or self._outflow.seconds(unsent, now) >= limits.stallSeconds:
            self.transport.abortConnection()
        elif self._peer is not None:
            self._watch(self._peer, now, unsent is None)

    def _watch(self, peer: FramePeer | LinePeer, now: float, isAllSent: bool) -> None:
        """Refuse a message that arrives too slowly; drop a client that is gone."""
        limits = self._limits
        isWaiting = not self._isWanted or self._isFull
        isPart = self.held and not isWaiting
        intake = (self._taken, self.held // limits.frameProgress) if isPart else None
        isStalled = self._intake.seconds(intake, now) >= limits.frameSeconds
        passed = self._message.seconds(self._taken if isPart else None, now)
        if isStalled or passed >= limits.messageSeconds:
            message = f"The message was not complete after {passed:.0f} seconds"
            self._refuse(codedError("DEADLINE_EXCEEDED", message))
        elif isWaiting or self._isEnded:
            isProbe = self._detector.check(self.transport, now)
            if self._detector.isGone:
                self.transport.abortConnection()
            elif isProbe and isAllSent:
                self.send(peer.probe)

    # Internals

    def _begin(self, data: bytes) -> FramePeer | LinePeer:
        """Create the peer and the session that the first bytes select."""
        owner = self._owner
        kind = LinePeer if data.startswith(b"{") else FramePeer
        peer = self._peer = kind(owner.host, owner.options.maxFrameSize, self.send)
        peer.client, peer.drained, peer.setReading = self.client, self.drained, self.setReading
        self._session = PeerSession(owner.listener, peer, share=self.share)
        if owner.isLeaving:
            self.sendGoingAway()
        return peer

    def _handleReceived(self) -> None:
        """Handle complete messages, as far as the limits allow."""
        peer, session = self._peer, self._session
        if self._isHandling or self._isWaiting or peer is None or session is None:
            return
        self._isHandling = True
        handled, decoder = 0, peer.decoder
        try:
            while self._isWanted and not self._isFull and peer.handleNext(session):
                self._taken += 1
                if not decoder.held:
                    break
                handled += 1
                scheduler = self._owner.listener.scheduler
                if handled == 1:
                    scheduler.begin()
                if scheduler.isOver(handled):
                    self._isWaiting = True
                    scheduler.wait(self._endWaiting)
                    break
        except FrameError as error:
            self._refuse(codedError(error.code, str(error)))
        finally:
            if self._batch:
                self._flush()
            self._isHandling = False
        if self.held or decoder.held:
            self._hold()
        if self._isFull or self._isWaiting or not (self._isWanted and self._isReading):
            self._readOrWait()

    def _endWaiting(self) -> None:
        """Handle more messages: it is this connection's turn."""
        self._isWaiting = False
        self._handleReceived()
        if self._isLeaving and not self._isWaiting:
            self.closeWhenIdle()

    def _hold(self) -> None:
        """Report the bytes of incomplete messages to the budget."""
        held = 0 if self._peer is None else self._peer.decoder.held
        if held != self.held:
            self.held = held
            self._owner.host.budget.update(self, held)

    def refuseHeld(self, error: ServiceError) -> None:
        """
        Refuse the incomplete message, see L{IByteHolder<storagegate.core.heldbytes.IByteHolder>}.
        """
        self._refuse(error)

    def _flush(self) -> None:
        batch = self._batch
        if batch:
            data = batch[0] if len(batch) == 1 else b"".join(batch)
            batch.clear()
            self._batched = 0
            self._meter.bytesOut += len(data)
            self.transport.write(data)

    def _readOrWait(self) -> None:
        if not self._isHandling and not self._isEnded and not self._isClosed:
            isHeld = self._isFull or self._isWaiting
            self._isReading = self._isWanted and not isHeld
            self._channel.setReading(self._isReading)

    def _refuse(self, error: ServiceError) -> None:
        """Send the error, and close."""
        if self._peer is not None:
            self._peer.sendError(None, error)
            self._close(linger=True)

    def _close(self, linger: bool = False) -> None:
        """
        Close when all output is sent.

        @param linger: See L{ChannelTransport.close}.
        """
        if self._isClosed:
            return
        self._flush()
        self._isClosed = True
        if linger:
            self._deadline = self._owner.now + self._limits.lingerSeconds
        self._channel.close(linger)
        self._forget()

    def _forget(self) -> None:
        """Cancel every call, and drop any incomplete message."""
        self._peer = None
        self._hold()
        session, self._session = self._session, None
        if session is not None:
            session.close()


def _clientOf(transport: Any) -> ClientInfo:
    address = transport.getPeer()
    host = getattr(address, "host", None)
    if host is None:
        path = getattr(address, "name", None) or getattr(transport.getHost(), "name", None)
        host = path.decode(errors="replace") if isinstance(path, bytes) else ""
    return ClientInfo(f"tcp-{next(_numbers)}", host, getattr(address, "port", 0))
