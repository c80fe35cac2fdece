"""
The client's end of HTTP/1.1, as calls to instances need it: both directions at the same time.

Twisted's own client gives the head of a response when the request has gone out to its end, so that
a call whose requests depend on its responses would wait for ever. Here both run side by side, and
each waits for whoever is slower: C{write} while the instance does not read, the instance while
nobody calls C{read}.

::

    exchange = connection.begin(head)       the request's head goes out
    await exchange.write(chunk)             a piece of its body, chunked; finish() ends it
    await exchange.head()                   the response's head
    await exchange.read()                   a piece of its body, b"" at its end
    exchange.close()                        gives the connection back, or closes it

What goes wrong with a source.

Asks the HTTP API of a source: whole answers, and streams of lines that go on for long.

Every exchange has a connection of its own and ends with it, so that whoever stops asking leaves
nothing behind. What an answer may be large and how long it may take is bounded.
"""

from collections import deque
from collections.abc import Callable, Mapping
from socket import MSG_DONTWAIT, MSG_PEEK
from typing import Any

import httptools
from attrs import frozen
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.endpoints import HostnameEndpoint, wrapClientTLS
from twisted.internet.interfaces import IStreamClientEndpoint
from twisted.internet.protocol import Protocol, connectionDone
from twisted.protocols.policies import ProtocolWrapper, WrappingFactory
from twisted.python.failure import Failure
from twisted.web.client import URI, Agent, ResponseDone
from twisted.web.http import PotentialDataLoss
from twisted.web.http_headers import Headers
from twisted.web.iweb import IAgentEndpointFactory, IBodyProducer, IResponse
from zope.interface import implementer

from storagegate.net.tls import TLSOptions, clientContext

HEAD_BYTES = 64 * 1024
"""
The longest head of a response; ours have a few hundred bytes. Nor is there more between two pieces
of a body, or behind it: the parser puts a trailer together in time that is quadratic.
"""

UNREAD_BYTES = 64 * 1024
"""What is held of a body before the instance has to wait: what one read of a socket gives."""

_PEEK = MSG_PEEK | MSG_DONTWAIT


class ConnectionLostError(ConnectionError):
    """
    An exchange ended before it was complete; the text says why.

    @ivar isUnread: Whether it is known that nobody has read the request.
    """

    def __init__(self, reason: str, isUnread: bool = False) -> None:
        super().__init__(reason)
        self.isUnread = isUnread


@frozen
class ResponseHead:
    """
    The head of a response.

    @ivar fields: The header fields by name in lower case; of several of a name the last.
    """

    status: int
    fields: dict[bytes, bytes]


class ClientRequest:
    """One request, and its response."""

    def __init__(self, connection: "HTTPClientConnection", hasBody: bool) -> None:
        self._connection = connection
        self._pieces: deque[bytes] = deque()
        self._held = 0
        self._head: ResponseHead | None = None
        self._error: ConnectionLostError | None = None
        self._wanted: Deferred[None] | None = None
        self.isWritten = not hasBody
        self.isRead = False

    # The request

    async def write(self, data: bytes) -> None:
        """
        Send a piece of the body, and wait until there is room for another.

        @raise ConnectionLostError: If there is nobody to send it to.
        """
        self._check()
        await self._connection.write(b"%x\r\n%b\r\n" % (len(data), data))

    def finish(self) -> None:
        """Send the end of the body."""
        if self._error is None and not self.isWritten:
            self.isWritten = True
            self._connection.send(b"0\r\n\r\n")

    # The response

    async def head(self) -> ResponseHead:
        """
        Wait for the head.

        @raise ConnectionLostError: If none comes.
        """
        while self._head is None:
            self._check()
            await self._more()
        return self._head

    async def read(self) -> bytes:
        """
        Wait for a piece of the body.

        @return: Nothing at its end.
        @raise ConnectionLostError: If it breaks off.
        """
        while not self._pieces:
            if self.isRead:
                return b""
            self._check()
            await self._more()
        piece = self._pieces.popleft()
        self._held -= len(piece)
        if self._held <= UNREAD_BYTES:
            self._connection.setReading(True)
        return piece

    def giveUp(self, error: ConnectionLostError) -> None:
        """Have whoever waits for the response be told that none comes."""
        self.lost(error)
        self.tell()

    def close(self) -> None:
        """Give the connection back if all is said on both sides, else close it."""
        self._connection.end(self)

    # From the connection

    def tookHead(self, head: ResponseHead) -> None:
        """Take the head."""
        self._head = head

    def tookPiece(self, piece: bytes) -> None:
        """Take a piece of the body."""
        self._pieces.append(piece)
        self._held += len(piece)
        if self._held > UNREAD_BYTES:
            self._connection.setReading(False)

    def lost(self, error: ConnectionLostError) -> None:
        """Take note that nothing more comes; what has come can be read."""
        if not self.isRead and self._error is None:
            self._error = error

    def tell(self) -> None:
        """Go on with whoever waits for what has come."""
        wanted, self._wanted = self._wanted, None
        if wanted is not None:
            wanted.callback(None)

    def _check(self) -> None:
        if self._error is not None:
            raise self._error

    def _more(self) -> Deferred[None]:
        self._wanted = Deferred(self._forget)
        return self._wanted

    def _forget(self, wanted: Deferred[None]) -> None:
        self._wanted = None


class HTTPClientConnection(Protocol):
    """
    A connection to an instance; one exchange at a time.

    @ivar whenFree: Told when another exchange may begin.
    @ivar whenLost: Told when there is no connection any more.
    """

    def __init__(self) -> None:
        self.whenFree: Callable[[HTTPClientConnection], None] = lambda connection: None
        self.whenLost: Callable[[HTTPClientConnection], None] = lambda connection: None
        self.isLost = False
        self._exchange: ClientRequest | None = None
        self._parser: Any = None
        self._room: Deferred[None] | None = None
        self._isFull = False
        self._isReading = True
        self._stays = True
        self._fields: dict[bytes, bytes] = {}
        self._hasHead = False
        self._barren = 0

    def connectionMade(self) -> None:
        """Have the transport say when it is full."""
        transport: Any = self.transport
        transport.setTcpNoDelay(True)
        # The only thing that ever tells of a machine that went away during a silent stream.
        transport.setTcpKeepAlive(True)
        transport.registerProducer(self, True)

    def begin(self, head: bytes, body: bytes | None = None) -> ClientRequest:
        """
        Send a request.

        @param head: Its head, with what says how its body is framed.
        @param body: The body, which C{Content-Length} has counted; C{None} for one in chunks, which
            C{ClientRequest.write} takes.
        """
        assert self._exchange is None, "an exchange is under way"
        self._fields = {}
        self._hasHead = False
        self._barren = 0
        self._parser = httptools.HttpResponseParser(self)
        self._exchange = exchange = ClientRequest(self, hasBody=body is None)
        self.send(head if body is None else head + body)
        return exchange

    def isAlive(self) -> bool:
        """
        Tell whether the instance has left the connection open, as far as this machine knows.

        The reactor learns of an end with its next turn, and a call that is sent before that would
        be lost though nobody has seen it.
        """
        if self.isLost:
            return False
        try:
            # Its end is as good a reason as bytes that nobody asked for.
            self.socket().recv(1, _PEEK)
        except BlockingIOError:
            return True
        except OSError:
            return False
        return False

    def socket(self) -> Any:
        """Give the socket."""
        return self.transport.getHandle()  # type: ignore[union-attr]

    def isUnread(self, reason: Failure) -> bool:
        """Tell whether an end says that nobody has read what was sent."""
        return False

    def send(self, data: bytes) -> None:
        """Send bytes."""
        if not self.isLost:
            self.transport.write(data)  # type: ignore[union-attr]

    async def write(self, data: bytes) -> None:
        """Send bytes, and wait until there is room for more."""
        self.send(data)
        if self._isFull:
            self._room = Deferred(self._forgetRoom)
            await self._room

    def setReading(self, wanted: bool) -> None:
        """Read on, or let the instance wait."""
        if wanted is not self._isReading and not self.isLost:
            self._isReading = wanted
            transport: Any = self.transport
            if wanted:
                transport.resumeProducing()
            else:
                transport.pauseProducing()

    def end(self, exchange: ClientRequest) -> None:
        """Take note that nobody wants more of an exchange."""
        if exchange is not self._exchange:
            return
        self._exchange = None
        self._wake()
        if self._stays and exchange.isRead and exchange.isWritten and not self.isLost:
            self.setReading(True)
            self.whenFree(self)
        else:
            self.abort()

    def abort(self) -> None:
        """Close the connection at once."""
        if not self.isLost:
            self.transport.abortConnection()  # type: ignore[union-attr]

    # The transport

    def dataReceived(self, data: bytes) -> None:
        """Take bytes of a response."""
        exchange = self._exchange
        if exchange is None or exchange.isRead:
            # Nobody asked for this: whose answer would it be?
            self._stays = False
            self.abort()
            return
        self._barren += len(data)
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self._fail(f"it does not speak HTTP: {error!s:.100}")
        if self._barren > HEAD_BYTES:
            self._fail(f"its {'trailer' if self._hasHead else 'head'} is too long")
        exchange.tell()

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """Take note of the end."""
        self.isLost = True
        exchange = self._exchange
        if exchange is not None:
            text = f"the connection was lost: {reason.value!s:.100}"
            exchange.lost(ConnectionLostError(text, self.isUnread(reason)))
            exchange.tell()
        self._wake()
        self.whenLost(self)

    def pauseProducing(self) -> None:
        """Wait with what is to be sent."""
        self._isFull = True

    def resumeProducing(self) -> None:
        """Send on."""
        self._isFull = False
        self._wake()

    def stopProducing(self) -> None:
        """Send nothing more: there is nobody."""
        self._wake()

    # The parser

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header field."""
        self._fields[name.lower()] = value

    def on_headers_complete(self) -> None:
        """Take the end of a head."""
        status = self._parser.get_status_code()
        if status < 200:
            # An interim response: another one follows.
            self._fields = {}
            return
        fields = self._fields
        isFramed = b"content-length" in fields or b"transfer-encoding" in fields
        if not isFramed and status not in (204, 304):
            # Its end could not be told from a cut.
            self._fail("its body has no length")
            return
        self._hasHead = True
        self._stays = self._parser.should_keep_alive()
        if self._exchange is not None:
            self._exchange.tookHead(ResponseHead(status, fields))

    def on_body(self, body: bytes) -> None:
        """Take a piece of the body."""
        self._barren = 0
        if self._exchange is not None and not self._exchange.isRead:
            self._exchange.tookPiece(body)

    def on_message_complete(self) -> None:
        """Take the end of a response."""
        if self._exchange is None or not self._hasHead:
            return
        if self._exchange.isRead:
            self._stays = False
        self._exchange.isRead = True

    def _fail(self, reason: str) -> None:
        """Give the exchange up: what came is no response."""
        self._stays = False
        if self._exchange is not None:
            self._exchange.lost(ConnectionLostError(reason))
        self.abort()

    def _wake(self) -> None:
        room, self._room = self._room, None
        if room is not None:
            room.callback(None)

    def _forgetRoom(self, room: Deferred[None]) -> None:
        self._room = None


class SourceError(Exception):
    """A source cannot be asked, or talks nonsense; the text says what, for a line of a log."""


class Refused(SourceError):
    """
    A source has answered, and not with what was asked for.

    @ivar status: What with.
    """

    def __init__(self, place: str, status: int, reason: str = "") -> None:
        super().__init__(f"{place} answers with {status}{reason and ': '}{reason[:200]}")
        self.status = status


MAX_MESSAGE_BYTES = 1024 * 1024
"""Of an answer, or of one line of a stream: a thousand instances have half of it."""

_MAX_HEAD_BYTES = 256 * 1024
"""Before an answer's body begins; with what was read together with its head."""

_CONNECT_SECONDS = 5.0


@frozen
class Answer:
    """What a source has answered."""

    status: int
    headers: Headers
    body: bytes

    def field(self, name: str) -> str:
        """Give the value of a header field; empty without one."""
        values = self.headers.getRawHeaders(name) or [""]
        return values[-1]


class HTTPSource:
    """One address of a source."""

    def __init__(self, reactor: Any, address: str, tls: TLSOptions) -> None:
        """
        @param address: C{http://host:port}, or C{https}, and perhaps a path.
        """
        self._reactor = reactor
        self._address = address
        self._tls = tls

    async def ask(
        self,
        method: str,
        path: str,
        headers: Mapping[str, str],
        body: bytes | None = None,
        seconds: float = 10.0,
    ) -> Answer:
        """
        Ask for something.

        @param path: With its query.
        @param seconds: For all of it.
        @raise SourceError: If there is no whole answer.
        """
        lines = _Whole()
        with _Connections(self._reactor, self._tls) as connections:
            asking = Deferred.fromCoroutine(
                self._talk(connections, method, path, headers, body, lines)
            )
            response = await self._within(seconds, asking)
        return Answer(response.code, response.headers, lines.taken())

    async def follow(
        self,
        method: str,
        path: str,
        headers: Mapping[str, str],
        taken: Callable[[bytes], None],
        body: bytes | None = None,
        seconds: float = 10.0,
        life: float = 60.0,
    ) -> None:
        """
        Take the lines of a stream until its end.

        @param taken: Takes a line; if it raises something, that is the end.
        @param seconds: Until the stream begins.
        @param life: How long it is followed at most: a peer that has silently gone away is noticed
            by whoever begins the next one.
        @raise SourceError: If it does not begin, or breaks off.
        """
        lines = _Lines(taken)
        with _Connections(self._reactor, self._tls) as connections:
            opening = Deferred.fromCoroutine(self._open(connections, method, path, headers, body))
            response = await self._within(seconds, opening)
            if response.code != 200:
                raise Refused(f"{self._address}{_bare(path)}", response.code)
            ending = self._reactor.callLater(life, lines.end)
            try:
                response.deliverBody(lines)
                await lines.done
            finally:
                if ending.active():
                    ending.cancel()

    async def _talk(
        self,
        connections: "_Connections",
        method: str,
        path: str,
        headers: Mapping[str, str],
        body: bytes | None,
        lines: "_Body",
    ) -> Any:
        response = await self._open(connections, method, path, headers, body)
        response.deliverBody(lines)
        await lines.done
        return response

    async def _open(
        self,
        connections: "_Connections",
        method: str,
        path: str,
        headers: Mapping[str, str],
        body: bytes | None,
    ) -> Any:
        fields = Headers({"User-Agent": ["storagegate"], "Accept": ["application/json"]})
        for name, value in headers.items():
            fields.setRawHeaders(name, [value])
        agent = Agent.usingEndpointFactory(self._reactor, connections)
        response: IResponse = await agent.request(
            method.encode("ascii"),
            (self._address + path).encode("ascii"),
            fields,
            None if body is None else _Bytes(body),
        )
        connections.headed()
        return response

    async def _within(self, seconds: float, asking: Deferred[Any]) -> Any:
        """Wait for an answer, but not for ever."""
        late: list[bool] = []

        def giveUp() -> None:
            late.append(True)
            asking.cancel()

        timer = self._reactor.callLater(seconds, giveUp)
        try:
            return await self._named(asking)
        except (SourceError, CancelledError):
            if late:
                raise SourceError(f"{self._address} does not answer in {seconds:g} s") from None
            raise
        finally:
            if timer.active():
                timer.cancel()

    async def _named(self, asking: Deferred[Any]) -> Any:
        """Wait for something; what goes wrong says where."""
        try:
            return await asking
        except (SourceError, CancelledError):
            raise
        except Exception as error:
            # Connections, names, certificates, files and HTTP each have errors of their own, and
            # whichever it is, there is no answer.
            raise SourceError(f"{self._address}: {_reason(error)}") from error


def _bare(path: str) -> str:
    return path.partition("?")[0]


def _reason(error: Any) -> str:
    """Say what is wrong, as the innermost of wrapped failures says it."""
    while getattr(error, "reasons", None):
        # Of a list of failures the first one was the cause of the others.
        error = error.reasons[0].value
    text = str(error)
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


class _Body(Protocol):
    """Takes a body, as long as it is wanted."""

    def __init__(self) -> None:
        self.done: Deferred[None] = Deferred()
        self.ended = False

    def end(self, reason: Any = None) -> None:
        """End it, well or with an error."""
        if not self.ended:
            self.ended = True
            self.done.callback(None) if reason is None else self.done.errback(reason)

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """Tell a body's end from a connection's."""
        isWhole = reason.check(ResponseDone, PotentialDataLoss)
        self.end(None if isWhole else SourceError(f"breaks off: {_reason(reason.value)}"))


class _Whole(_Body):
    """Keeps a body."""

    def __init__(self) -> None:
        super().__init__()
        self._pieces: list[bytes] = []
        self._left = MAX_MESSAGE_BYTES

    def dataReceived(self, data: bytes) -> None:
        """Keep a piece."""
        self._left -= len(data)
        if self._left < 0:
            self._pieces.clear()
            self.end(SourceError(f"answers with more than {MAX_MESSAGE_BYTES} bytes"))
        elif not self.ended:
            self._pieces.append(data)

    def taken(self) -> bytes:
        """Give all of it."""
        return b"".join(self._pieces)


class _Lines(_Body):
    """Gives away the lines of a body."""

    def __init__(self, taken: Callable[[bytes], None]) -> None:
        super().__init__()
        self._taken = taken
        self._rest = bytearray()

    def dataReceived(self, data: bytes) -> None:
        """Give away what is whole."""
        if self.ended:
            return
        self._rest += data
        if b"\n" in data:
            *lines, rest = self._rest.split(b"\n")
            self._rest = rest
            for line in lines:
                self._give(bytes(line))
        if len(self._rest) > MAX_MESSAGE_BYTES:
            self.end(SourceError(f"sends a line of more than {MAX_MESSAGE_BYTES} bytes"))

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """Give away the last line, which may have no end."""
        if reason.check(ResponseDone, PotentialDataLoss):
            self._give(bytes(self._rest))
        super().connectionLost(reason)

    def _give(self, line: bytes) -> None:
        if self.ended or not line.strip():
            return
        try:
            self._taken(line)
        except Exception:
            # Whoever follows hears of it; the HTTP client has no use for it.
            self.end(Failure())


@implementer(IBodyProducer)
class _Bytes:
    """The body of a request."""

    def __init__(self, body: bytes) -> None:
        self._body = body
        self.length = len(body)

    def startProducing(self, consumer: Any) -> Deferred[None]:
        consumer.write(self._body)
        written: Deferred[None] = Deferred()
        written.callback(None)
        return written

    def pauseProducing(self) -> None:
        pass

    def resumeProducing(self) -> None:
        pass

    def stopProducing(self) -> None:
        pass


class _Guarded(ProtocolWrapper):
    """Drops a connection that brings more than a head before there is a body."""

    left = _MAX_HEAD_BYTES
    headed = False

    def dataReceived(self, data: bytes) -> None:
        self.left -= len(data)
        if self.left < 0 and not self.headed:
            self.transport.abortConnection()  # type: ignore[union-attr]
        else:
            super().dataReceived(data)


@implementer(IAgentEndpointFactory, IStreamClientEndpoint)
class _Connections:
    """Makes the connection of one exchange, and ends it with that."""

    def __init__(self, reactor: Any, tls: TLSOptions) -> None:
        self._reactor = reactor
        self._tls = tls
        self._endpoint: Any = None
        self._made: list[_Guarded] = []

    def __enter__(self) -> "_Connections":
        return self

    def __exit__(self, *error: object) -> None:
        for connection in self._made:
            if connection.transport is not None:
                connection.abortConnection()

    def headed(self) -> None:
        """From now on there is a body, which others bound."""
        for connection in self._made:
            connection.headed = True

    def endpointForURI(self, uri: URI) -> Any:
        """Give what connects to the source."""
        self._endpoint = HostnameEndpoint(self._reactor, uri.host, uri.port, _CONNECT_SECONDS)
        if uri.scheme == b"https":
            context = clientContext(self._tls, uri.host.decode("ascii"))
            self._endpoint = wrapClientTLS(context, self._endpoint)
        return self

    def connect(self, protocolFactory: Any) -> Deferred[Any]:
        """Connect, and remember the connection."""
        factory = WrappingFactory(protocolFactory)
        # Of every poll the log would have two lines.
        factory.noisy = protocolFactory.noisy = False
        factory.protocol = _Guarded
        connected: Deferred[Any] = self._endpoint.connect(factory)
        return connected.addCallback(self._connected)

    def _connected(self, wrapper: _Guarded) -> Any:
        self._made.append(wrapper)
        return wrapper.wrappedProtocol
