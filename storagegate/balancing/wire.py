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
"""

from collections import deque
from collections.abc import Callable
from socket import MSG_DONTWAIT, MSG_PEEK
from typing import Any

import httptools
from attrs import frozen
from twisted.internet.defer import Deferred
from twisted.internet.protocol import Protocol, connectionDone
from twisted.python.failure import Failure

HEAD_BYTES = 64 * 1024
"""
The longest head of a response; ours have a few hundred bytes. Nor is there more between two pieces
of a body, or behind it: the parser puts a trailer together in time that is quadratic.
"""

UNREAD_BYTES = 64 * 1024
"""What is held of a body before the instance has to wait: what one read of a socket gives."""

_PEEK = MSG_PEEK | MSG_DONTWAIT


class ExchangeLost(ConnectionError):
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


class Exchange:
    """One request, and its response."""

    def __init__(self, connection: "HTTPConnection", hasBody: bool) -> None:
        self._connection = connection
        self._pieces: deque[bytes] = deque()
        self._held = 0
        self._head: ResponseHead | None = None
        self._error: ExchangeLost | None = None
        self._wanted: Deferred[None] | None = None
        self.isWritten = not hasBody
        self.isRead = False

    # The request

    async def write(self, data: bytes) -> None:
        """
        Send a piece of the body, and wait until there is room for another.

        @raise ExchangeLost: If there is nobody to send it to.
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

        @raise ExchangeLost: If none comes.
        """
        while self._head is None:
            self._check()
            await self._more()
        return self._head

    async def read(self) -> bytes:
        """
        Wait for a piece of the body.

        @return: Nothing at its end.
        @raise ExchangeLost: If it breaks off.
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

    def giveUp(self, error: ExchangeLost) -> None:
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

    def lost(self, error: ExchangeLost) -> None:
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


class HTTPConnection(Protocol):
    """
    A connection to an instance; one exchange at a time.

    @ivar whenFree: Told when another exchange may begin.
    @ivar whenLost: Told when there is no connection any more.
    """

    def __init__(self) -> None:
        self.whenFree: Callable[[HTTPConnection], None] = lambda connection: None
        self.whenLost: Callable[[HTTPConnection], None] = lambda connection: None
        self.isLost = False
        self._exchange: Exchange | None = None
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

    def begin(self, head: bytes, body: bytes | None = None) -> Exchange:
        """
        Send a request.

        @param head: Its head, with what says how its body is framed.
        @param body: The body, which C{Content-Length} has counted; C{None} for one in chunks, which
            C{Exchange.write} takes.
        """
        assert self._exchange is None, "an exchange is under way"
        self._fields = {}
        self._hasHead = False
        self._barren = 0
        self._parser = httptools.HttpResponseParser(self)
        self._exchange = exchange = Exchange(self, hasBody=body is None)
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

    def end(self, exchange: Exchange) -> None:
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
            exchange.lost(ExchangeLost(text, self.isUnread(reason)))
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
            self._exchange.lost(ExchangeLost(reason))
        self.abort()

    def _wake(self) -> None:
        room, self._room = self._room, None
        if room is not None:
            room.callback(None)

    def _forgetRoom(self, room: Deferred[None]) -> None:
        self._room = None
