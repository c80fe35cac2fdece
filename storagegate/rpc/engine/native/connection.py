"""A connection of a port of gRPC, with the pings and ages of gRPC."""

import random
from typing import Any
from typing import Protocol as TypingProtocol

from msgspec import Struct
from twisted.internet.error import ConnectionLost
from twisted.python.failure import Failure

from storagegate.core.shares import AddressShare
from storagegate.net.http.channel import ChannelTransport
from storagegate.net.http2.core import HTTP2Core
from storagegate.net.http2.interfaces import ConnectionFailure, ErrorCode, HTTP2Limits
from storagegate.net.lingering import LingeringClose
from storagegate.net.scheduling import InputScheduler
from storagegate.rpc.engine.native.call import NativeCall
from storagegate.rpc.engine.native.rpcconnection import UNSENT_BYTES, RPCConnection
from storagegate.rpc.engine.native.service import CallPeer, CallService

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
"""The bytes that a client may send while its connection closes."""

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

    @ivar service: The state that all calls share.
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


class NativeConnection(RPCConnection):
    """One connection of a server."""

    def __init__(self, server: IConnectionOwner, limits: HTTP2Limits) -> None:
        super().__init__(server.service.clock, server.scheduler)
        self._server = server
        self._limits = limits
        self.share: AddressShare | None = None
        self._isDraining = False
        self._closing: LingeringClose | None = None
        self._strikes = 0
        self._lastPing: float | None = None
        self._progress = self._pingProgress = 0
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
        core.share = self.share
        self._transport.registerProducer(self, True)
        self._later("hello", _HELLO_SECONDS, self._transport.abortConnection)
        options = self._server.options
        self._startKeepalive(options.keepalive, options.keepaliveTimeout, options.pingsWithoutCalls)
        # So that clients do not all connect again together.
        age = options.age * random.uniform(1 - _JITTER, 1 + _JITTER)
        self._later("age", age, self._agedOut)
        self._later("idle", options.idle, self._idled)
        core.start()
        if self._server.isStopping:
            # It was established before the port was closed.
            self.drain()

    def _openStream(self, core: HTTP2Core, number: int) -> NativeCall:
        if len(core.streams) == 0 and self._server.options.idle != float("inf"):
            self._later("idle", float("inf"), self._idled)
        return NativeCall(core, number, self._server.service, self.peer)

    def dataReceived(self, data: bytes) -> None:
        """Handle input for a slice of time, or discard it after the end."""
        if self._closing is not None:
            self._closing.discard(len(data))
        super().dataReceived(data)

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
        self.isFull = False
        self._flush()
        self._close()

    def _close(self) -> None:
        """Close once everything is sent, and the client has closed or some time has passed."""
        if self._isClosing:
            return
        self._isClosing = True
        self._stopTimers()
        self.core.lose(ConnectionFailure(ErrorCode.NO_ERROR, "the connection is closed"))
        if self._isPaused:
            self._transport.resumeProducing()
        self._closing = LingeringClose(
            self._client,
            self._clock.seconds(),
            _LINGER_SECONDS,
            _FRAME_SECONDS,
            _DISCARDED_BYTES,
        )
        # A stop waits for this, so not until the next check.
        self._later("linger", _LINGER_SECONDS, self._checkClosing)

    def _checkClosing(self) -> None:
        if self._closing is not None:
            self._closing.check(self._clock.seconds())

    def connectionLost(self, reason: Failure = None) -> None:  # type: ignore[assignment]
        """End all calls."""
        self._end()
        self.core.lose(ConnectionLost(reason.getErrorMessage()))
        self._server.closed(self)

    def checkTimeouts(self, now: float, passed: float) -> None:
        """
        Look for a client that does not go on.

        @param passed: Seconds since the last call.
        """
        if self._closing is not None:
            self._checkClosing()
            return
        core = self.core
        core.forgive(passed)
        for stream in list(core.streams.values()):
            stream.checkTimeouts(now)
        if "hello" in self._timers and core.hasGreeted:
            self._later("hello", float("inf"), self._close)
        isHeld = self._unsent > UNSENT_BYTES
        progress = self._client.sentBytes() if isHeld else core.progress
        if not (isHeld or core.isInFrame) or progress != self._progress:
            self._progress = progress
            self._stalledSince = None
        elif self._stalledSince is None:
            self._stalledSince = now
        elif now - self._stalledSince > _FRAME_SECONDS:
            self._transport.abortConnection()

    # Pings

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
