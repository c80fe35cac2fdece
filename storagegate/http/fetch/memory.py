"""
The server's end of a connection that has no socket.

It is the HTTP channel of the real listeners, so that a request is read, refused, answered and
timed as it would be there.

Standard requests as bytes on a wire, and responses read from one.
"""

from collections.abc import AsyncIterator, Iterable
from typing import Any, Protocol

import httptools
from attrs import frozen
from twisted.internet.address import IPv4Address
from twisted.internet.interfaces import IConsumer, IPushProducer, ISSLTransport, ITransport
from zope.interface import alsoProvides, implementer

from storagegate.core.options import parseDecimal
from storagegate.http.fetch.body import ByteSource, WholeSource
from storagegate.http.fetch.headers import Headers, decodeFields
from storagegate.http.fetch.messages import TargetURL
from storagegate.net.http.channel import HTTPChannel
from storagegate.net.http.interfaces import IChannelOwner

LOCALHOST = "127.0.0.1"


class NoTransport(RuntimeError):
    """A connection was asked for where there is none."""


class IMemoryClient(Protocol):
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

    def __init__(self, owner: IChannelOwner, client: IMemoryClient) -> None:
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

    def __init__(self, client: IMemoryClient, peer: str, port: int, secure: bool) -> None:
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


# Methods whose requests say that they have no body, where they have none.
_BODY_METHODS = frozenset(["POST", "PUT", "PATCH"])

# What goes in one piece with the head: a copy of more costs more than it saves.
_JOINED = 64 * 1024


@frozen
class MemoryResponseHead:
    """The head of a response."""

    status: int
    phrase: str
    headers: Headers


class ResponseReader:
    """
    Reads one response; C{feed} takes bytes as they came and returns those of the body.

    @ivar head: The head, once it is there. That of an interim response is passed over.
    @ivar complete: Whether the end has come. The response to a HEAD has its end elsewhere.
    """

    def __init__(self) -> None:
        self.head: MemoryResponseHead | None = None
        self.complete = False
        self._parser = httptools.HttpResponseParser(self)
        self._phrase = b""
        self._fields: list[tuple[bytes, bytes]] = []
        self._body: list[bytes] = []

    def feed(self, wire: bytes) -> bytes:
        """Take bytes."""
        self._parser.feed_data(wire)
        body, self._body = self._body, []
        return body[0] if len(body) == 1 else b"".join(body)

    # For httptools

    def on_status(self, phrase: bytes) -> None:
        self._phrase += phrase

    def on_header(self, name: bytes, value: bytes) -> None:
        self._fields.append((name, value))

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        if status >= 200:
            self.head = MemoryResponseHead(
                status, self._phrase.decode("latin-1"), decodeFields(self._fields)
            )
        self._phrase, self._fields = b"", []

    def on_body(self, body: bytes) -> None:
        self._body.append(body)

    def on_message_complete(self) -> None:
        self.complete = self.head is not None


class RequestWire:
    """
    A request as it goes over the wire.

    @ivar pieces: What can be sent at once.
    @ivar source: Where the rest of the body comes from, if there is more.
    @ivar secure: Whether it goes over an encrypted connection.
    @ivar port: The port that it asks for.
    """

    def __init__(
        self, method: str, url: TargetURL, headers: Headers, source: ByteSource, hasBody: bool
    ) -> None:
        self.secure = url.secure
        port = url.authority.rpartition("]")[2].partition(":")[2]
        self.port = int(port or (443 if url.secure else 80))
        fields = headers.encode()
        declared = headers.get("content-length")
        content = source.content if isinstance(source, WholeSource) else None
        self._chunked = headers.has("transfer-encoding")
        self._remaining: int | None = None
        if declared is None and not self._chunked:
            if content is None:
                self._chunked = True
                fields.append((b"transfer-encoding", b"chunked"))
            elif hasBody or method in _BODY_METHODS:
                fields.append((b"content-length", b"%d" % len(content)))
        elif declared is not None and not self._chunked:
            self._remaining = _readLength(declared)
        if not headers.has("host"):
            fields.insert(0, (b"host", url.authority.encode("ascii")))
        head = b"%b %b HTTP/1.1\r\n" % (method.encode("ascii"), url.target.encode("ascii"))
        head += b"".join(b"%b: %b\r\n" % field for field in fields) + b"\r\n"
        self.source: AsyncIterator[bytes] | None = None
        self.pieces = [head]
        if content is None:
            self.source = aiter(source)
        elif hasBody or self._chunked:
            body = self.encodePiece(content) + self.encodeEnd()
            self.pieces = [head + body] if len(body) < _JOINED else [head, body]

    def encodePiece(self, piece: bytes) -> bytes:
        """
        Write a piece of the body.

        @raise ValueError: If there is more of it than the request says.
        """
        if self._chunked:
            return b"%x\r\n%b\r\n" % (len(piece), piece) if piece else b""
        if self._remaining is not None:
            self._remaining -= len(piece)
            if self._remaining < 0:
                raise ValueError("the body is longer than its Content-Length")
        return piece

    def encodeEnd(self) -> bytes:
        """
        Write the end of the body.

        @raise ValueError: If there is less of it than the request says.
        """
        if self._remaining:
            raise ValueError("the body is shorter than its Content-Length")
        return b"0\r\n\r\n" if self._chunked else b""


def _readLength(declared: str) -> int | None:
    """Read what was declared; what is no length is for the server to refuse."""
    try:
        return parseDecimal(declared.encode("latin-1"), 2**63 - 1)
    except ValueError:
        return None


def encodeRequest(request: Any) -> RequestWire:
    """
    Write a standard request, whose body counts as read by that.

    @raise TypeError: If its body was read before.
    @raise ValueError: If its body has another length than it says.
    """
    return RequestWire(
        request.method, request.target, request.headers, request._use(), request.hasBody
    )
