"""
A connection of a port of gRPC: L{HTTP2Core} on a transport, with the pings and ages of gRPC.

Output is taken at the end of each turn of input, or in the next iteration of the reactor, so that
the messages of a turn share frames and writes. While the transport is full none is taken: the
messages wait in their streams, whose handlers are paused. Heads, trailers and acknowledgements are
still sent, but no more input is read once many of them wait.
"""

import random
from collections.abc import Callable
from typing import Any
from typing import Protocol as TypingProtocol

from msgspec import Struct
from twisted.internet.error import ConnectionLost
from twisted.internet.interfaces import IPushProducer
from twisted.internet.protocol import Protocol
from twisted.python.failure import Failure
from zope.interface import implementer

from storagegate.core.shares import AddressShare
from storagegate.net.http.channel import ChannelTransport
from storagegate.net.http2.core import HTTP2Core
from storagegate.net.http2.interfaces import ConnectionFailure, ErrorCode, HTTP2Limits
from storagegate.net.lingering import LingeringClose
from storagegate.net.scheduling import InputScheduler
from storagegate.rpc.engine.native.call import NativeCall
from storagegate.rpc.engine.native.service import CallPeer, CallService

_OUTPUT_BYTES = 256 * 1024
"""DATA of a turn, about: as much as the buffer of a socket takes at once."""

_UNSENT_BYTES = 64 * 1024
"""Frames other than DATA that may wait for a client that does not read, before we stop reading."""

_TIMED_FRAMES = 32
"""The number of frames between two checks of the clock."""

_HELLO_SECONDS = 20.0
"""The time for the handshake of TLS and the first frame."""

_FRAME_SECONDS = 60.0
"""
The time in which a frame or a header block that has begun must be complete, and for which a client
may read nothing of what was sent before the connection is closed.
"""

_DRAIN_SECONDS = 5.0
"""The time for the answer of the ping after which no more calls are accepted."""

_LINGER_SECONDS = 1.0
"""How long the client may take to close."""

_DISCARDED_BYTES = 64 * 1024
"""What it may still send meanwhile."""

_PING_SECONDS_WITHOUT_CALLS = 7200.0
"""The least time between pings without a call, as in grpc core."""

_JITTER = 0.1


class ConnectionOptions(Struct, frozen=True):
    """
    The pings and ages of connections, in seconds; infinite for never.

    @ivar keepalive: The time without data after which the client is pinged.
    @ivar keepaliveTimeout: The time for the answer.
    @ivar pingsWithoutCalls: Whether the client is pinged, and may ping, without a call.
    @ivar leastPing: The least time between pings of the client.
    @ivar pingStrikes: How many pings at shorter intervals are borne; 0 for any number.
    @ivar idle: The time without calls after which a connection is closed.
    @ivar age: The time after which a connection accepts no more calls.
    @ivar ageGrace: The time that its calls then have.
    """

    keepalive: float
    keepaliveTimeout: float
    pingsWithoutCalls: bool
    leastPing: float
    pingStrikes: int
    idle: float
    age: float
    ageGrace: float


class IConnectionOwner(TypingProtocol):
    """
    The server of a connection.

    @ivar service: What the calls share.
    @ivar options: The pings and ages of connections.
    @ivar scheduler: Divides time between the connections.
    @ivar isStopping: Whether connections accept no more calls.
    """

    service: CallService
    options: ConnectionOptions
    scheduler: InputScheduler
    isStopping: bool

    def opened(self, connection: Any) -> bool:
        """Count a new connection, and return whether it may stay."""

    def closed(self, connection: Any) -> None:
        """Forget a connection."""


@implementer(IPushProducer)
class NativeConnection(Protocol):
    """
    One connection.

    @ivar core: The streams.
    """

    core: HTTP2Core

    def __init__(self, server: IConnectionOwner, limits: HTTP2Limits) -> None:
        self._server = server
        self._limits = limits
        self._clock = server.service.clock
        self.share: AddressShare | None = None
        self._isFull = self._isReceiving = self._isWaiting = self._isHeld = False
        self._unsent = 0
        self._scheduled: Any = None
        self._isDraining = self._isClosing = False
        self._timers: dict[str, Any] = {}
        self._closing: LingeringClose | None = None
        self._strikes = 0
        self._lastPing: float | None = None
        self._progress = self._pingProgress = self._received = 0
        self._stalledSince: float | None = None

    def connectionMade(self) -> None:
        """Begin, or close the connection if there are too many."""
        self.peer = CallPeer(self.transport)
        self._client = ChannelTransport(self.transport)
        self.core = core = HTTP2Core(self._limits, self._openStream, self._wantFlush, self._isOver)
        core.pinged = self._pinged
        core.budget = self._server.service.budget
        core.sentBytes = self._client.sentBytes
        if not self._server.opened(self):
            self._isClosing = True
            self._transport.loseConnection()
            return
        self._transport.registerProducer(self, True)
        self._later("hello", _HELLO_SECONDS, self._transport.abortConnection)
        options = self._server.options
        self._later("keepalive", options.keepalive, self._keepAlive)
        # So that clients do not all connect again together.
        age = options.age * random.uniform(1 - _JITTER, 1 + _JITTER)
        self._later("age", age, self._agedOut)
        self._later("idle", options.idle, self._idled)
        core.start()
        if self._server.isStopping:
            # It was established before the port was closed.
            self.drain()

    @property
    def _transport(self) -> Any:
        return self.transport

    def _later(self, name: str, seconds: float, function: Callable[[], object]) -> None:
        """Set a timer; infinite seconds stop it."""
        timer = self._timers.pop(name, None)
        if timer is not None and timer.active():
            timer.cancel()
        if seconds != float("inf"):
            self._timers[name] = self._clock.callLater(seconds, function)

    def _openStream(self, core: HTTP2Core, number: int) -> NativeCall:
        if len(core.streams) == 0 and self._server.options.idle != float("inf"):
            self._later("idle", float("inf"), self._idled)
        return NativeCall(core, number, self._server.service, self.peer)

    # Input

    def dataReceived(self, data: bytes) -> None:
        """Handle input for a slice of time."""
        self._received += 1
        if self._closing is not None:
            self._closing.discard(len(data))
        if self._isClosing:
            return
        self._handle(data)

    def _handle(self, data: bytes) -> None:
        core = self.core
        self._server.scheduler.begin()
        self._isReceiving = True
        try:
            core.receive(data)
        finally:
            self._isReceiving = False
        if core.hasInput and not self._isWaiting:
            self._isWaiting = True
            self._server.scheduler.wait(self._resumeInput)
        self._flush()
        self._updateReading()

    def _isOver(self, handled: int) -> bool:
        return handled % _TIMED_FRAMES == 0 and self._server.scheduler.isOver()

    def _resumeInput(self) -> None:
        if self._unsent > _UNSENT_BYTES:
            # Its input would cause more output; continued when the client has read some.
            self._isHeld = True
            return
        self._isWaiting = False
        if self._isClosing or self.core.failure is not None:
            return
        self._handle(b"")

    def _updateReading(self) -> None:
        """Read on, or pause."""
        if not self._isClosing:
            self._client.setReading(not self._isWaiting and self._unsent <= _UNSENT_BYTES)

    # Output

    def _wantFlush(self) -> None:
        if self._scheduled is None and not (self._isReceiving or self._isFull or self._isClosing):
            self._scheduled = self._clock.callLater(0, self._flushLater)

    def _flushLater(self) -> None:
        self._scheduled = None
        self._flush()

    def _flush(self) -> None:
        """Send output until there is none, or the transport is full."""
        core = self.core
        if self._isClosing:
            return
        data = core.takeOutput(0 if self._isFull else _OUTPUT_BYTES)
        if data:
            if self._isFull:
                self._unsent += len(data)
            self._transport.write(data)
        if core.failure is not None:
            self._close()
        elif not core.streams:
            self._noCalls()
        elif data and core.hasOutput and not self._isFull:
            self._wantFlush()
        else:
            core.countWaiting()

    def pauseProducing(self) -> None:
        """The transport is full."""
        self._isFull = True

    def resumeProducing(self) -> None:
        """The transport is empty again."""
        self._isFull = False
        self._unsent = 0
        self._flush()
        if self._isHeld:
            self._isHeld = False
            self._server.scheduler.wait(self._resumeInput)
        self._updateReading()

    def stopProducing(self) -> None:
        """The connection is lost."""

    # Ages

    def _noCalls(self) -> None:
        """Note that no call is open."""
        if self._isDraining and self.core.isGoingAway:
            self._close()
        elif self._server.options.idle != float("inf") and "idle" not in self._timers:
            self._later("idle", self._server.options.idle, self._idled)

    def _idled(self) -> None:
        if not self.core.streams:
            self.core.goAway(ErrorCode.NO_ERROR, text=b"max_idle")
            self._flush()
            self._close()

    def _agedOut(self) -> None:
        self.drain()
        self._later("grace", self._server.options.ageGrace, self.cancelCalls)

    def drain(self) -> None:
        """Accept the calls that the client makes before it hears of the end, and no more."""
        if self._isDraining or self._isClosing:
            return
        self._isDraining = True
        self.core.goAway(isFinal=False)
        # The answer comes after all calls that were made before the client heard of the end.
        self.core.ping(self._refuseCalls)
        self._later("drain", _DRAIN_SECONDS, self._refuseCalls)
        self._flush()

    def _refuseCalls(self) -> None:
        if not self.core.isGoingAway:
            self._later("drain", float("inf"), self._refuseCalls)
            self.core.goAway()
            self._wantFlush()

    def cancelCalls(self) -> None:
        """Cancel the calls, and close."""
        if self._isClosing:
            return
        self._isDraining = True
        for stream in list(self.core.streams.values()):
            stream.cancel()  # type: ignore[attr-defined]
        if not self.core.isGoingAway:
            self.core.goAway()
        self._isFull = False
        self._flush()
        self._close()

    def _close(self) -> None:
        """Close once everything is sent, and the client has closed or some time has passed."""
        if self._isClosing:
            return
        self._isClosing = True
        for name in list(self._timers):
            self._later(name, float("inf"), self._close)
        self.core.lose(ConnectionFailure(ErrorCode.NO_ERROR, "the connection is closed"))
        self._closing = LingeringClose(
            self._client,
            self._clock.seconds(),
            True,
            _LINGER_SECONDS,
            _FRAME_SECONDS,
            _DISCARDED_BYTES,
        )

    def connectionLost(self, reason: Failure = None) -> None:  # type: ignore[assignment]
        """End all calls."""
        self._isClosing = True
        if self._scheduled is not None:
            self._scheduled.cancel()
            self._scheduled = None
        for name in list(self._timers):
            self._later(name, float("inf"), self._close)
        self.core.lose(ConnectionLost(reason.getErrorMessage()))
        self._server.closed(self)

    def checkTimeouts(self, now: float, passed: float) -> None:
        """
        Look for a client that does not go on.

        @param passed: Seconds since the last call.
        """
        if self._closing is not None:
            self._closing.check(now)
            return
        core = self.core
        core.forgive(passed)
        for stream in list(core.streams.values()):
            stream.checkTimeouts(now)
        if "hello" in self._timers and core.hasGreeted:
            self._later("hello", float("inf"), self._close)
        isHeld = self._unsent > _UNSENT_BYTES
        progress = self._client.sentBytes() if isHeld else core.progress
        if not (isHeld or core.isInFrame) or progress != self._progress:
            self._progress = progress
            self._stalledSince = None
        elif self._stalledSince is None:
            self._stalledSince = now
        elif now - self._stalledSince > _FRAME_SECONDS:
            self._transport.abortConnection()

    # Pings

    def _keepAlive(self) -> None:
        """Ping the client if it has sent nothing."""
        options = self._server.options
        if self._received or not (self.core.streams or options.pingsWithoutCalls):
            self._received = 0
            self._later("keepalive", options.keepalive, self._keepAlive)
            return
        self.core.ping(self._answered)
        self._flush()
        self._later("keepalive", options.keepaliveTimeout, self._unanswered)

    def _answered(self) -> None:
        self._received = 0
        self._later("keepalive", self._server.options.keepalive, self._keepAlive)

    def _unanswered(self) -> None:
        if self._received:
            # Any data shows that the client is there.
            self._answered()
        else:
            self._transport.abortConnection()

    def _pinged(self) -> None:
        """Count a ping of the client that comes too soon."""
        options = self._server.options
        now: float = self._clock.seconds()
        last, self._lastPing = self._lastPing, now
        if self.core.progress != self._pingProgress:
            # A client that works may measure the delay.
            self._pingProgress = self.core.progress
            self._strikes = 0
        least = options.leastPing
        if not (self.core.streams or options.pingsWithoutCalls):
            least = _PING_SECONDS_WITHOUT_CALLS
        if not options.pingStrikes or last is None or now - last >= least:
            return
        self._strikes += 1
        if self._strikes > options.pingStrikes:
            raise ConnectionFailure(ErrorCode.ENHANCE_YOUR_CALM, "too_many_pings")
