"""A connection of a client of gRPC."""

from typing import Any, Protocol

from msgspec import Struct
from twisted.internet.defer import Deferred
from twisted.internet.error import ConnectionLost
from twisted.internet.interfaces import IHandshakeListener, ITCPTransport
from twisted.internet.protocol import connectionDone
from twisted.python.failure import Failure
from zope.interface import implementer

from storagegate.core.streams import SharedFuture
from storagegate.net.http2.core import HTTP2Core
from storagegate.net.http2.hpack import Pair
from storagegate.net.http2.interfaces import ErrorCode
from storagegate.net.scheduling import InputScheduler
from storagegate.net.tls import ServerContext
from storagegate.rpc.engine.native.clientcall import ICallOwner, NativeClientCall
from storagegate.rpc.engine.native.messages import ENCODINGS
from storagegate.rpc.engine.native.response import RPCStatus
from storagegate.rpc.engine.native.rpcconnection import RPCConnection
from storagegate.version import __version__

_LINGER_SECONDS = 1.0
"""How long the server may take to read what was sent before a close."""

_TLS_SECONDS = 0.1
"""How long the server may take to answer the alert that ends TLS: grpc core does not answer it."""

_FORGIVE_SECONDS = 1.0
"""The least time from one forgiveness of frames without work to the next."""

_MOST_BLOCKS = 256
"""Heads that are kept encoded, by method and encoding."""

_ACCEPTS = b"identity," + ",".join(ENCODINGS).encode("ascii")
_AGENT = f"storagegate/{__version__}".encode("ascii")


class ChannelOptions(Struct, frozen=True):
    """
    The pings and the idle time of connections, in seconds; infinite for never.

    @ivar keepalive: The time without data after which the server is pinged.
    @ivar keepaliveTimeout: The time for the answer.
    @ivar pingsWithoutCalls: Whether the server is pinged without a call.
    @ivar idle: The time without calls after which a connection is closed.
    """

    keepalive: float
    keepaliveTimeout: float
    pingsWithoutCalls: bool
    idle: float


class IConnectionChannel(ICallOwner, Protocol):
    """
    The channel of a connection.

    @ivar options: The pings and the idle time of connections.
    @ivar scheduler: Divides time between the connections.
    @ivar context: The context of TLS; C{None} for plain text.
    @ivar authority: The value of C{:authority}.
    @ivar closed: The status of calls when the channel is closed.
    @ivar waiting: The calls that wait for a connection or a stream.
    """

    options: ChannelOptions
    scheduler: InputScheduler
    context: ServerContext | None
    authority: bytes
    closed: RPCStatus
    waiting: dict[NativeClientCall, None]

    def openWaiting(self) -> None:
        """Begin as many of the calls that wait as the connection accepts."""

    def retire(self, connection: Any) -> None:
        """Begin no more calls on a connection."""

    def lost(self, connection: Any) -> None:
        """Forget a connection, whose calls end."""


@implementer(IHandshakeListener)
class NativeClientConnection(RPCConnection):
    """
    One connection of a client.

    @ivar greeted: Fires when the server has sent its settings; fails if the connection ends before.
    """

    def __init__(self, channel: IConnectionChannel) -> None:
        super().__init__(channel.resources.clock, channel.scheduler)
        self._channel = channel
        self.greeted: SharedFuture[None] = SharedFuture()
        self._secure: SharedFuture[None] = SharedFuture()
        self.core = HTTP2Core(channel.limits, None, self._wantFlush, self._isOver)
        # The heads without deadline and metadata, each with the version of the encoder's table.
        self._blocks: dict[tuple[str, str | None], tuple[int, bytes]] = {}
        # Since when no call is open.
        self._isQuiet = True
        self._quietSince = 0.0
        self._forgiven = self._clock.seconds()

    # For the transport

    def connectionMade(self) -> None:
        """Send small messages at once."""
        transport = self._transport
        if ITCPTransport.providedBy(transport) and not self._channel.target.path:
            transport.setTcpNoDelay(True)
            # Nothing else detects a machine that vanishes during a silent stream.
            transport.setTcpKeepAlive(True)

    def whenSecure(self) -> Deferred[None]:
        """
        Wait for the handshake of TLS; fails if the connection ends before. Cancelling it closes the
        connection.
        """
        return self._secure.wait(self.abort)

    def handshakeCompleted(self) -> None:
        """Note that the certificates are verified."""
        self._secure.set(None)

    def begin(self) -> None:
        """Send the preface; the server is verified."""
        self._transport.registerProducer(self, True)
        options = self._channel.options
        self._startKeepalive(options.keepalive, options.keepaliveTimeout, options.pingsWithoutCalls)
        self._quietSince = self._clock.seconds()
        self._later("idle", options.idle, self._checkIdle)
        self.core.start()

    def dataReceived(self, data: bytes) -> None:
        """Handle input for a slice of time."""
        now = self._clock.seconds()
        if now - self._forgiven >= _FORGIVE_SECONDS:
            self.core.forgive(now - self._forgiven)
            self._forgiven = now
        super().dataReceived(data)

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """End all calls."""
        self._end()
        error = self.core.failure or ConnectionLost(reason.getErrorMessage())
        self._secure.fail(error)
        self.greeted.fail(error)
        self._channel.lost(self)
        self.core.lose(error)

    def abort(self) -> None:
        """Drop the connection."""
        if self.transport is not None:
            self._transport.abortConnection()

    # For the channel

    @property
    def mayOpen(self) -> bool:
        """Return whether another call can begin on the connection now."""
        return self.core.mayOpen and not (self.isFull or self._isClosing)

    def open(self, call: NativeClientCall) -> None:
        """Begin a call; L{mayOpen} must be true."""
        core = self.core
        encoder = core.encoder
        assert encoder is not None
        key = call.path, call.encoding
        found = self._blocks.get(key)
        self._isQuiet = False
        core.open(call.attach)
        if found is None or found[0] != encoder.version:
            version = encoder.version
            block = encoder.encode(self._head(*key))
            if version == encoder.version:
                if len(self._blocks) >= _MOST_BLOCKS:
                    self._blocks.clear()
                self._blocks[key] = version, block
        else:
            block = found[1]
        call.start(block)

    def _head(self, path: str, encoding: str | None) -> list[Pair]:
        """Return the fields that are the same in all calls of a method."""
        channel = self._channel
        fields = [
            (b":method", b"POST"),
            (b":scheme", b"http" if channel.context is None else b"https"),
            (b":path", path.encode()),
            (b":authority", channel.authority),
            (b"te", b"trailers"),
            (b"content-type", b"application/grpc"),
            (b"user-agent", _AGENT),
            (b"grpc-accept-encoding", _ACCEPTS),
        ]
        if encoding is not None:
            fields.append((b"grpc-encoding", encoding.encode()))
        return fields

    def cancelCalls(self) -> None:
        """End all calls with C{CANCELLED}, and close."""
        for stream in list(self.core.streams.values()):
            stream.end(self._channel.closed)  # type: ignore[attr-defined]
        self.isFull = False
        self._leave()

    # For the base

    def _flush(self) -> None:
        core = self.core
        if core.hasGreeted and not self.greeted.isKnown:
            self.greeted.set(None)
        if core.isRetired:
            self._channel.retire(self)
        elif self._channel.waiting:
            self._channel.openWaiting()
        super()._flush()

    def _noCalls(self) -> None:
        if not self._isQuiet:
            self._isQuiet = True
            self._quietSince = self._clock.seconds()
        if self.core.isRetired or self._channel.isClosed:
            self._leave()

    def _checkIdle(self) -> None:
        """Close if no call was open for some time."""
        idle = self._channel.options.idle
        left = self._quietSince + idle - self._clock.seconds()
        if left > 0 or not self._isQuiet:
            self._later("idle", left if left > 0 else idle, self._checkIdle)
        else:
            self._leave()

    def _leave(self) -> None:
        """Announce the end, and close."""
        if not self._isClosing:
            self.core.goAway(ErrorCode.NO_ERROR)
            data = self.core.takeOutput(0)
            if data:
                self._transport.write(data)
            self._close()

    def _close(self) -> None:
        if self._isClosing:
            return
        self._isClosing = True
        self._channel.retire(self)
        self._stopTimers()
        transport: Any = self._transport
        transport.unregisterProducer()
        if self._isPaused:
            transport.resumeProducing()
        transport.loseConnection()
        if self._socket is not transport:
            self._later("tls", _TLS_SECONDS, self._socket.loseConnection)
        self._later("linger", _LINGER_SECONDS, transport.abortConnection)
