"""A proxy between a client and a real server, which delays, cuts and refuses on demand."""

from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.endpoints import HostnameEndpoint
from twisted.internet.protocol import Factory, Protocol


class _Side(Protocol):
    """One of the two connections."""

    def __init__(self, proxy: "FaultyProxy", isServer: bool) -> None:
        self._proxy = proxy
        self._isServer = isServer
        self._kept: list[bytes] = []
        self._late = 0
        self._due = 0.0
        self.other: _Side | None = None
        self._isEnded = False

    def connectionMade(self) -> None:
        """Connect to the server, if this is the client's side."""
        self._proxy.sides.add(self)
        if not self._isServer:
            from twisted.internet import reactor

            self.transport.setTcpNoDelay(True)
            target = HostnameEndpoint(reactor, "127.0.0.1", self._proxy.target)
            side = _Side(self._proxy, True)
            self.other, side.other = side, self
            connecting = target.connect(Factory.forProtocol(lambda: side))
            connecting.addCallbacks(lambda _: self.flush(), lambda _: self.abort())
        elif self.other is not None:
            self.other.flush()

    def dataReceived(self, data: bytes) -> None:
        """Forward bytes, now or later."""
        if self._proxy.delaySeconds or self._late:
            from twisted.internet import reactor

            # Never before earlier bytes.
            now = reactor.seconds()
            self._due = max(self._due + 1e-6, now + self._proxy.delaySeconds)
            self._late += 1
            reactor.callLater(self._due - now, self._passOn, data)
        else:
            self._kept.append(data)
            self.flush()

    def _passOn(self, data: bytes) -> None:
        self._late -= 1
        self._kept.append(data)
        self.flush()

    def flush(self) -> None:
        """Forward held bytes, if the proxy allows it."""
        other = self.other
        if other is None or other.transport is None or not self._kept:
            return
        if self._proxy.holdsAnswers if self._isServer else self._proxy.holdsRequests:
            return
        data, self._kept = b"".join(self._kept), []
        if self._isServer and self._proxy.cutAfter is not None:
            data = data[: self._proxy.cutAfter]
            self._proxy.cutAfter -= len(data)
            if not self._proxy.cutAfter:
                self._proxy.cutAfter = None
                self._proxy.cuts += 1
                other.transport.write(data)
                other.transport.loseConnection()
                self.abort()
                return
        other.transport.write(data)
        if self._isEnded and not self._late:
            self.connectionLost()

    def abort(self) -> None:
        """Drop the connection and its held bytes."""
        self._kept.clear()
        if self._isEnded:
            self.connectionLost()
        elif self.transport is not None:
            self.transport.abortConnection()

    def connectionLost(self, reason: Any = None) -> None:
        """Close the other side too, unless bytes from this side are held for it."""
        self._isEnded = True
        if (self._kept or self._late) and self.other is not None:
            # The bytes reach the other side although this one is closed.
            return
        self._proxy.sides.discard(self)
        if not self._proxy.sides and self._proxy._empty is not None:
            empty, self._proxy._empty = self._proxy._empty, None
            empty.callback(None)
        if self.other is not None and self.other.transport is not None:
            self.other.transport.loseConnection()


class FaultyProxy:
    """
    Listens in place of a server.

    @ivar target: The port of the server.
    @ivar port: The port of the proxy.
    @ivar holdsRequests: Whether bytes from clients are held; L{release} forwards them.
    @ivar holdsAnswers: Whether bytes from the server are held.
    @ivar delaySeconds: The delay in both directions.
    @ivar cutAfter: The number of response bytes after which their connection is dropped, once.
    @ivar cuts: The number of dropped connections.
    """

    def __init__(self, target: int) -> None:
        self.target = target
        self.holdsRequests = self.holdsAnswers = False
        self.delaySeconds = 0.0
        self.cutAfter: int | None = None
        self.cuts = 0
        self.sides: set[_Side] = set()
        self._empty: Deferred[None] | None = None
        self._listening: Any = None
        self.port = 0
        self._factory = Factory.forProtocol(lambda: _Side(self, False))
        self.accept()

    def accept(self) -> None:
        """Listen."""
        from twisted.internet import reactor

        self._listening = reactor.listenTCP(self.port, self._factory, interface="127.0.0.1")
        self.port = self._listening.getHost().port

    def acceptAgain(self) -> None:
        """Listen, unless listening already."""
        if self._listening is None:
            self.accept()

    async def refuse(self) -> None:
        """Stop listening and drop all connections, as if the server's machine were down."""
        if self._listening is not None:
            await self._listening.stopListening()
            self._listening = None
        if self.sides:
            self._empty = Deferred()
            for side in tuple(self.sides):
                side.abort()
            await self._empty

    def release(self) -> None:
        """Forward all held bytes, and stop holding."""
        self.holdsRequests = self.holdsAnswers = False
        for side in tuple(self.sides):
            side.flush()
