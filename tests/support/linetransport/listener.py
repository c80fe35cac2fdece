"""The listener of lines, and its connections."""

from collections import deque
from itertools import count
from typing import Any

from twisted.internet.defer import Deferred, gatherResults, maybeDeferred
from twisted.internet.interfaces import IAddress, IListeningPort, IPushProducer
from twisted.internet.protocol import Factory, Protocol, connectionDone
from twisted.python.failure import Failure
from zope.interface import implementer

from storagegate.core.codecs import JSON
from storagegate.core.context import ClientInfo
from storagegate.core.errors import codedError
from storagegate.gateway.host import TransportContext
from storagegate.gateway.messages.frames import FrameError, LineDecoder
from storagegate.gateway.messages.interfaces import ListenerState
from storagegate.gateway.messages.json import MessageWriter, handleEncoded
from storagegate.gateway.messages.session import PeerSession
from storagegate.gateway.transports.registry import InvokedTransport
from storagegate.net.endpoints import listen
from tests.support.linetransport import NAME, LineOptions

_numbers = count(1)


class LineTransport(InvokedTransport, Factory):
    """
    The transport that the registry's row makes.

    @ivar listener: The state that the sessions of its connections share.
    @ivar meter: The metrics of the transport.
    """

    noisy = False

    def __init__(self, host: TransportContext, options: LineOptions) -> None:
        self.host = host
        self.options = options
        self.listener = ListenerState(host.invoker, host.clock)
        self.connections: set[LineConnection] = set()
        self.meter = host.meter(NAME)
        self.meter.connections = lambda: len(self.connections)
        self._ports: list[IListeningPort] = []

    def open(self, address: str) -> Deferred[Any]:
        """Listen."""

        def opened(port: IListeningPort) -> IListeningPort:
            self._ports.append(port)
            return port

        return listen(self.host.reactor, address, self).addCallback(opened)

    def buildProtocol(self, addr: IAddress | None) -> "LineConnection":
        """Make the protocol of a new connection."""
        return LineConnection(self)

    def close(self, graceSeconds: float, idleGraceSeconds: float = 0.0) -> Deferred[None]:
        """Stop accepting, and close each connection when its calls are answered."""
        self.listener.isDraining = True
        closing = [maybeDeferred(port.stopListening) for port in self._ports]
        self._ports.clear()
        ending = self.host.clock.callLater(graceSeconds, self._abort)
        closing += [connection.leave() for connection in self.connections]

        def closed(results: Any) -> None:
            if ending.active():
                ending.cancel()

        return gatherResults(closing).addCallback(closed)

    def _abort(self) -> None:
        for connection in list(self.connections):
            connection.transport.abortConnection()


@implementer(IPushProducer)
class LineConnection(Protocol):
    """
    A connection; it is the peer of its session.

    @ivar client: The client, for contexts.
    """

    transport: Any

    def __init__(self, owner: LineTransport) -> None:
        self.protocol = NAME
        self.client = ClientInfo(f"line-{next(_numbers)}", "unix", 0)
        self._owner = owner
        self._decoder = LineDecoder(owner.options.maxLineBytes)
        self._writer = MessageWriter(owner.host, NAME, JSON, self._write)
        self.respond = self._writer.respond
        self.sendItem = self._writer.sendItem
        self.sendEnd = self._writer.sendEnd
        self.sendError = self._writer.sendError
        self.session = PeerSession(owner.listener, self)
        self._isFull, self._isWanted = False, True
        self._drains: deque[Deferred[None]] = deque()
        self._gone: Deferred[None] = Deferred()

    def connectionMade(self) -> None:
        """Count the connection."""
        self._owner.connections.add(self)
        self._owner.meter.accepted += 1
        self.transport.registerProducer(self, True)

    def dataReceived(self, data: bytes) -> None:
        """Process received data."""
        self._owner.meter.bytesIn += len(data)
        self._decoder.feed(data)
        self._take()

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """Cancel the calls of the connection."""
        self._owner.connections.discard(self)
        self._owner.meter.ended(0)
        self.session.close()
        self._gone.callback(None)

    def leave(self) -> Deferred[None]:
        """Close when no call is in flight; the Deferred fires when the connection is closed."""
        self.session.whenIdle().addCallback(lambda idle: self.transport.loseConnection())
        return self._gone

    def _take(self) -> None:
        try:
            while self._isWanted and not self._isFull:
                line = self._decoder.next()
                if line is None:
                    return
                self._owner.meter.messagesIn += 1
                handleEncoded(self.session, self._writer, JSON, line)
        except FrameError as error:
            self.sendError(None, codedError(error.code, str(error)))
            self.transport.loseConnection()

    def _write(self, message: bytes) -> None:
        self._owner.meter.messagesOut += 1
        self._owner.meter.bytesOut += len(message) + 1
        self.transport.write(message + b"\n")

    def drained(self) -> Deferred[None] | None:
        """Wait until the client has read enough of the sent data; C{None} if it has."""
        if not self._isFull:
            return None
        drained: Deferred[None] = Deferred(self._drains.remove)
        self._drains.append(drained)
        return drained

    def setReading(self, wanted: bool) -> None:
        """Resume or pause reading."""
        self._isWanted = wanted
        self._adjust()

    def pauseProducing(self) -> None:
        """Pause until the client has read."""
        self._isFull = True
        self._adjust()

    def resumeProducing(self) -> None:
        """Resume, because the client has read."""
        self._isFull = False
        while self._drains and not self._isFull:
            self._drains.popleft().callback(None)
        self._adjust()

    def stopProducing(self) -> None:
        """Do nothing: C{connectionLost} follows."""

    def _adjust(self) -> None:
        if self._isWanted and not self._isFull:
            self.transport.resumeProducing()
            self._take()
        else:
            self.transport.pauseProducing()
