"""
The server's end of a connection that has no socket.

It is the HTTP channel of the real listeners, so that a request is read, refused, answered and
timed as it would be there.
"""

from collections.abc import Iterable
from typing import Any, Protocol

from twisted.internet.address import IPv4Address
from twisted.internet.interfaces import IConsumer, IPushProducer, ISSLTransport, ITransport
from zope.interface import alsoProvides, implementer

from storagegate.net.httpchannel import HTTPChannel
from storagegate.net.interfaces import IChannelOwner

LOCALHOST = "127.0.0.1"


class NoTransport(RuntimeError):
    """A connection was asked for where there is none."""


class ClientEnd(Protocol):
    """What the server's end tells the client's."""

    def receive(self, data: bytes) -> None:
        """Take bytes of the response."""
        ...

    def responseDone(self) -> None:
        """Take note that the response is complete."""
        ...

    def serverClosed(self) -> None:
        """Take note that the server has closed."""
        ...

    def pieceWanted(self) -> None:
        """Take note that the handler waits for a piece of the request's body."""
        ...


class FetchChannel(HTTPChannel):
    """The channel of one request."""

    def __init__(self, owner: IChannelOwner, client: ClientEnd) -> None:
        super().__init__(owner)
        self._client = client

    def bodyWanted(self) -> None:
        """Ask the client for a piece."""
        super().bodyWanted()
        self._client.pieceWanted()

    def requestDone(self) -> None:
        """Tell the client, which has only this request."""
        self._client.responseDone()
        super().requestDone()

    def takeTransport(self) -> tuple[Any, bytes]:
        """
        Refuse.

        @raise NoTransport: Always.
        """
        raise NoTransport(
            "this takes over the connection of its request, as WebSockets do; a request of a "
            "fetch handler has none, so it needs a real listener"
        )


@implementer(ITransport, IConsumer, IPushProducer)
class MemoryTransport:
    """
    What the channel takes for its socket.

    @ivar producer: Whoever is to be told when the client is behind with reading.
    """

    def __init__(self, client: ClientEnd, peer: str, port: int, secure: bool) -> None:
        self._client = client
        self._peer = IPv4Address("TCP", peer, 0)
        self._host = IPv4Address("TCP", LOCALHOST, port)
        self.disconnecting = False
        self.producer: Any = None
        if secure:
            alsoProvides(self, ISSLTransport)

    def write(self, data: bytes) -> None:
        """Let the client have bytes."""
        self._client.receive(data)

    def writeSequence(self, pieces: Iterable[bytes]) -> None:
        """Let the client have bytes."""
        for piece in pieces:
            self._client.receive(piece)

    def loseConnection(self) -> None:
        """Close."""
        self.disconnecting = True
        self._client.serverClosed()

    # The client knows by itself whether it has got a whole response.
    abortConnection = stopProducing = loseConnection

    def registerProducer(self, producer: Any, streaming: bool) -> None:
        """Take whoever is to be told when the client is behind."""
        self.producer = producer

    def unregisterProducer(self) -> None:
        """Forget it."""
        self.producer = None

    def pauseProducing(self) -> None:
        """Do nothing: the client sends a piece when one is wanted."""

    def resumeProducing(self) -> None:
        """Do nothing, see L{pauseProducing}."""

    def getPeer(self) -> IPv4Address:
        """Give the client's address."""
        return self._peer

    def getHost(self) -> IPv4Address:
        """Give the address that the client has asked for."""
        return self._host
