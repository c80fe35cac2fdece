"""An instance that sends answers provided by a test, and counts its requests."""

from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.protocol import Factory, Protocol, connectionDone
from twisted.python.failure import Failure

Answer = Callable[["RawConnection"], object]


class RawConnection(Protocol):
    """One connection; it calls C{answer} once for each received request head."""

    def __init__(self, upstream: "RawUpstream") -> None:
        self.upstream = upstream
        self.received = b""
        self.isLost = False

    def connectionMade(self) -> None:
        """Record the connection."""
        self.upstream.made += 1
        self.upstream.connections.append(self)

    def dataReceived(self, data: bytes) -> None:
        """Answer each head."""
        self.received += data
        for _ in range(data.count(b"POST /") + data.count(b"GET /")):
            self.upstream.requests += 1
            self.upstream.answer(self)

    def write(self, data: bytes) -> None:
        """Send bytes."""
        assert self.transport is not None
        self.transport.write(data)

    def close(self) -> None:
        """Close it when all data is sent."""
        assert self.transport is not None
        self.transport.loseConnection()

    def json(self, body: bytes, status: int = 200, type: bytes = b"application/json") -> None:
        """Send an answer of known length."""
        head = b"HTTP/1.1 %d X\r\nContent-Type: %b\r\nContent-Length: %d\r\n\r\n"
        self.write(head % (status, type, len(body)) + body)

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """Record the end."""
        self.isLost = True
        if self in self.upstream.connections:
            self.upstream.connections.remove(self)
        self.upstream.ended()


class RawUpstream:
    """
    The raw instance.

    @ivar requests: The number of received request heads.
    @ivar made: The number of connections so far.
    @ivar connections: The open connections.
    """

    def __init__(self, reactor: Any, answer: Answer, tls: Any = None) -> None:
        """@param tls: Makes the TLS of its connections; C{None} for clear text."""
        self.answer = answer
        self.requests = 0
        self.made = 0
        self.connections: list[RawConnection] = []
        self._waiting: list[Deferred[None]] = []
        factory = Factory()
        factory.buildProtocol = lambda address: RawConnection(self)  # type: ignore[method-assign]
        if tls is None:
            self._port = reactor.listenTCP(0, factory, interface="127.0.0.1")
        else:
            self._port = reactor.listenSSL(0, factory, tls, interface="127.0.0.1")
        self.port: int = self._port.getHost().port

    def ended(self) -> None:
        """Fire the Deferreds that wait for the end of a connection."""
        waiting, self._waiting = self._waiting, []
        for each in waiting:
            each.callback(None)

    def whenEnded(self) -> Deferred[None]:
        """Wait for the end of a connection."""
        ended: Deferred[None] = Deferred()
        self._waiting.append(ended)
        return ended

    async def stop(self) -> None:
        """Close the port and all connections."""
        await maybeDeferred(self._port.stopListening)
        for each in list(self.connections):
            if each.transport is not None:
                each.transport.abortConnection()  # type: ignore[attr-defined]
        while self.connections:
            await self.whenEnded()
