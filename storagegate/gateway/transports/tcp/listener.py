"""Services over TCP, as frames or lines of JSON."""

from typing import TYPE_CHECKING

from twisted.internet.defer import Deferred, gatherResults, maybeDeferred
from twisted.internet.interfaces import IAddress, IListeningPort
from twisted.internet.protocol import Factory
from twisted.internet.task import LoopingCall, deferLater

from storagegate.core.errors import ServiceError, codedError
from storagegate.core.shares import shareOf
from storagegate.core.task import IdleWaiters
from storagegate.gateway.host import TransportContext
from storagegate.gateway.messages.interfaces import ListenerState
from storagegate.gateway.transports.registry import InvokedTransport
from storagegate.gateway.transports.tcp import PROTOCOL, TCPLimits, TCPOptions
from storagegate.net.endpoints import listen
from storagegate.net.http.channel import checkAllTimeouts

if TYPE_CHECKING:
    from storagegate.gateway.transports.tcp.connection import TCPConnection


class TCPTransport(InvokedTransport, Factory):
    """
    The TCP listener of a gateway.

    @ivar listener: The state that the sessions of its connections share.
    @ivar isLeaving: Whether clients were told to reconnect while their calls are still served.
    @ivar now: The current time for connections, at most one second old.
    """

    noisy = False

    def __init__(
        self, host: TransportContext, options: TCPOptions, limits: TCPLimits | None = None
    ) -> None:
        self.host = host
        self.options = options
        self.limits = limits or TCPLimits()
        self.listener = ListenerState(
            host.invoker, host.clock, maxCallsPerAddress=options.maxCallsPerAddress
        )
        self.isLeaving = False
        self.meter = host.meter(PROTOCOL)
        self.meter.connections = lambda: self.connections
        self.meter.held = lambda: (self.heldBytes, host.budget.limit)
        self.now = 0.0
        self._ports: list[IListeningPort] = []
        self._connections: set[TCPConnection] = set()
        self._gone = IdleWaiters()
        self._watch = LoopingCall(self._tick)
        self._watch.clock = host.clock

    @property
    def connections(self) -> int:
        """Count the connections."""
        return len(self._connections)

    @property
    def heldBytes(self) -> int:
        """Count the bytes of incomplete messages."""
        return sum(each.held for each in self._connections)

    def open(self, address: str) -> Deferred[IListeningPort]:
        """
        Start listening.

        @param address: An endpoint description, see L{listen<storagegate.net.endpoints.listen>}.
        @return: The port. Fails with C{CannotListenError} if the address is taken.
        @raise ValueError: If it is not an endpoint description.
        """

        def opened(port: IListeningPort) -> IListeningPort:
            self._ports.append(port)
            return port

        return listen(self.host.reactor, address, self, self.options.tls).addCallback(opened)

    def close(self, graceSeconds: float, idleGraceSeconds: float = 0.0) -> Deferred[None]:
        """
        Accept nothing more, notify every client, and close each connection when its calls are
        answered.

        @param graceSeconds: After this, calls are cancelled and connections dropped.
        @param idleGraceSeconds: How long further calls are accepted from notified clients, if
            another process serves the same address: calls may cross with the notice.
        @return: Fires when all connections have closed.
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
            gone = self._gone.wait(bool(self._connections))
            seconds = min(idleGraceSeconds, graceSeconds)
            await gone.addTimeout(seconds, clock, lambda result, seconds: None)
        # Calls that clients have already sent count as in flight. Wait two iterations, because
        # delayed calls run before sockets are read.
        for _ in range(2):
            await deferLater(clock, 0)
        self.listener.isDraining = True
        for connection in list(self._connections):
            connection.goAway()
        await self._gone.wait(bool(self._connections))
        if ending.active():
            ending.cancel()

    def buildProtocol(self, addr: IAddress | None) -> "TCPConnection":
        """Make the protocol of a new connection."""
        # Imported with the first connection: an idle daemon stays small.
        from storagegate.gateway.transports.tcp.connection import TCPConnection

        connection = TCPConnection(self)
        connection.factory = self
        return connection

    # For connections

    def connectionOpened(self, connection: "TCPConnection") -> ServiceError | None:
        """
        Count a new connection.

        @return: The error if the connection is refused; otherwise C{None}.
        """
        options, share = self.options, connection.share
        share.connections += 1
        self._connections.add(connection)
        self.meter.accepted += 1
        if not self._watch.running:
            self.now = self.host.clock.seconds()
            self._watch.start(1.0, now=False)
        limit = options.maxConnections
        isOver = share.connections > shareOf(limit, options.maxConnectionsPerAddress)
        if isOver or len(self._connections) > limit:
            return codedError("UNAVAILABLE", "Too many connections")
        if self.listener.isDraining:
            return codedError("UNAVAILABLE", "No further calls are accepted")
        return None

    def connectionClosed(self, connection: "TCPConnection") -> None:
        """Forget a lost connection."""
        self._connections.discard(connection)
        self.meter.closed += 1
        connection.share.connections -= 1
        if not self._connections:
            if self._watch.running:
                self._watch.stop()
            self._gone.notify()

    def _abortAll(self) -> None:
        for connection in list(self._connections):
            connection.abort()

    def _tick(self) -> None:
        self.now = self.host.clock.seconds()
        checkAllTimeouts(self._connections, self.now)
