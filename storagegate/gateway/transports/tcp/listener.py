"""Services over TCP, as frames or lines of JSON, and their AsyncAPI channel."""

from typing import TYPE_CHECKING

from twisted.internet.defer import Deferred, gatherResults, maybeDeferred
from twisted.internet.interfaces import IAddress, IListeningPort
from twisted.internet.protocol import Factory
from twisted.internet.task import LoopingCall, deferLater

from storagegate.core.context import rateLimitKey
from storagegate.core.errors import ServiceError, codedError
from storagegate.gateway.host import TransportContext
from storagegate.gateway.messages.interfaces import ListenerState
from storagegate.gateway.options import GatewayOptions
from storagegate.gateway.transports.registry import InvokedTransport
from storagegate.gateway.transports.tcp import TCPOptions
from storagegate.gateway.transports.tcp.connection import PROTOCOL, TCPConnection, TCPLimits
from storagegate.net.endpoints import listen
from storagegate.net.http.channel import checkAllTimeouts

if TYPE_CHECKING:
    from storagegate.gateway.asyncapi import Channel


class TCPTransport(InvokedTransport, Factory):
    """
    The TCP listener of a gateway.

    @ivar listener: What the sessions of its connections share.
    @ivar meter: What it counts.
    @ivar heldBytes: How many bytes of incomplete frames it holds.
    @ivar isLeaving: Whether clients were notified to reconnect, while their calls are still served.
    @ivar now: The time, up to a second old: a connection asks no clock.
    """

    noisy = False
    protocol = TCPConnection

    def __init__(
        self, host: TransportContext, options: TCPOptions, limits: TCPLimits | None = None
    ) -> None:
        self.host = host
        self.options = options
        self.limits = limits or TCPLimits()
        self.listener = ListenerState(host.invoker, host.clock)
        self.heldBytes = 0
        self.isLeaving = False
        self.meter = host.meter(PROTOCOL)
        self.meter.connections = lambda: len(self._connections)
        self.meter.held = lambda: (self.heldBytes, self.limits.heldBytes)
        self.now = 0.0
        self._ports: list[IListeningPort] = []
        self._connections: set[TCPConnection] = set()
        # How many each client has.
        self._counts: dict[str, int] = {}
        self._gone: list[Deferred[None]] = []
        self._watch = LoopingCall(self._tick)
        self._watch.clock = host.clock

    @property
    def connections(self) -> int:
        """Count the connections."""
        return len(self._connections)

    def open(self, place: str) -> Deferred[IListeningPort]:
        """
        Begin to listen.

        @param place: An endpoint's description, see L{listen}.
        @return: The port. Fails with C{CannotListenError} if the address is taken.
        @raise ValueError: If it is no description.
        """

        def opened(port: IListeningPort) -> IListeningPort:
            self._ports.append(port)
            return port

        return listen(self.host.reactor, place, self).addCallback(opened)

    def close(self, graceSeconds: float, idleGraceSeconds: float = 0.0) -> Deferred[None]:
        """
        Accept nothing more, tell every client, and close when its calls are answered.

        @param idleGraceSeconds: How long further calls are taken from clients that have been told,
            where another process serves the same place: what they send crosses with what they are
            told.
        @param graceSeconds: After this, calls are cancelled and connections dropped.
        @return: Fires when all connections are gone; those that are not after C{graceSeconds} are
            dropped with their calls.
        """
        return Deferred.fromCoroutine(self._close(graceSeconds, idleGraceSeconds))

    async def _close(self, graceSeconds: float, idleGraceSeconds: float) -> None:
        ports, self._ports = self._ports, []
        await gatherResults([maybeDeferred(port.stopListening) for port in ports])
        clock = self.host.clock
        ending = clock.callLater(graceSeconds, self._abortAll)
        if idleGraceSeconds:
            self.isLeaving = True
            for connection in list(self._connections):
                connection.sendGoingAway()
            await self._whenGone(min(idleGraceSeconds, graceSeconds))
        # What clients have sent already counts as in flight. Two turns, for what is due is called
        # before sockets are read.
        for _ in range(2):
            await deferLater(clock, 0)
        self.listener.isDraining = True
        for connection in list(self._connections):
            connection.goAway()
        await self._whenGone()
        if ending.active():
            ending.cancel()

    async def _whenGone(self, seconds: float | None = None) -> None:
        """Wait until no connection is left, or so long."""
        if not self._connections:
            return
        gone: Deferred[None] = Deferred()
        self._gone.append(gone)
        if seconds is not None:
            gone.addTimeout(seconds, self.host.clock, lambda result, seconds: None)
        await gone

    def buildProtocol(self, addr: IAddress | None) -> TCPConnection:
        """Make the protocol of a new connection."""
        connection = TCPConnection(self)
        connection.factory = self
        return connection

    # For connections

    def connectionOpened(self, connection: TCPConnection) -> ServiceError | None:
        """
        Count a new connection.

        @return: Why it may not stay, if so.
        """
        key = rateLimitKey(connection.client.address)
        hers = self._counts.get(key, 0) + 1
        self._counts[key] = hers
        self._connections.add(connection)
        self.meter.accepted += 1
        if not self._watch.running:
            self.now = self.host.clock.seconds()
            self._watch.start(1.0, now=False)
        # All clients of a UNIX socket have one address.
        isOver = connection.client.port and hers > self.options.maxConnectionsPerAddress
        if isOver or len(self._connections) > self.options.maxConnections:
            return codedError("UNAVAILABLE", "Too many connections")
        if self.listener.isDraining:
            return codedError("UNAVAILABLE", "No further calls are taken")
        return None

    def connectionClosed(self, connection: TCPConnection) -> None:
        """Forget a connection."""
        key = rateLimitKey(connection.client.address)
        self._connections.discard(connection)
        self.meter.closed += 1
        self._counts[key] -= 1
        if not self._counts[key]:
            del self._counts[key]
        if not self._connections:
            if self._watch.running:
                self._watch.stop()
            gone, self._gone = self._gone, []
            for each in gone:
                if not each.called:
                    each.callback(None)

    def _abortAll(self) -> None:
        for connection in list(self._connections):
            connection.abort()

    def _tick(self) -> None:
        self.now = self.host.clock.seconds()
        checkAllTimeouts(self._connections, self.now)


def describeChannel(name: str, settings: GatewayOptions) -> "Channel":
    """
    Return the channel of TCP in AsyncAPI.

    @param settings: The options of the gateway.
    """
    from storagegate.gateway.asyncapi import Channel

    channel = Channel(name, settings)
    channel.description = "Framed JSON, and lines of the messages of WebSocket"
    return channel
