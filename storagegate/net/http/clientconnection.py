"""
HTTP/1.1 client connections that send and receive concurrently, and their pool.

Twisted's client returns the head of a response only after the whole request is sent, so a call
whose request items depend on its responses would deadlock. Here both directions run at the same
time, each with back pressure::

    request = connection.begin(head)        send the head
    await request.write(chunk)              a chunk of the body; finish() ends it
    await request.head()                    the head of the response
    await request.read()                    a piece of its body, b"" at its end
    request.close()                         release the connection, or close it
"""

from collections import deque
from collections.abc import Callable
from socket import MSG_DONTWAIT, MSG_PEEK
from typing import Any

import httptools
from attrs import frozen
from OpenSSL.SSL import Error as TLSError
from OpenSSL.SSL import WantReadError
from twisted.internet.defer import CancelledError, Deferred, succeed
from twisted.internet.endpoints import wrapClientTLS
from twisted.internet.error import ConnectingCancelledError, ConnectionDone
from twisted.internet.interfaces import IHandshakeListener, IReactorTime
from twisted.internet.protocol import Factory, Protocol, connectionDone
from twisted.python.failure import Failure
from zope.interface import implementer

from storagegate.core.errors import untraced
from storagegate.core.streams import SharedFuture
from storagegate.core.task import IdleWaiters
from storagegate.net.tls import ServerContext, refusesCertificate

HEAD_BYTES = 64 * 1024
"""Maximum number of bytes of a response head; our servers send a few hundred. The limit also
applies to the framing between two pieces of a body and to the trailer, as the parser joins its
parts in quadratic time."""

UNREAD_BYTES = 64 * 1024
"""Bytes of a body that are buffered before reading pauses: one read of a socket."""

IDLE_SECONDS = 3.0
"""Time an idle connection is kept: less than the 5 s after which a gateway closes it. A call sent
while the server closes is lost."""

MAX_IDLE = 32
"""Maximum number of idle connections of a pool: as many as a busy server uses at a time."""

_PEEK = MSG_PEEK | MSG_DONTWAIT

_FRAMING = frozenset({b"content-length", b"transfer-encoding"})


class HTTPClientError(Exception):
    """A request got no complete response, or an unexpected one; the text fits in a log line."""


class ConnectionLostError(ConnectionError):
    """
    A request ended before its response was complete; the text gives the reason.

    @ivar isUnread: Whether the server is known not to have read the request.
    """

    def __init__(self, reason: str, isUnread: bool = False) -> None:
        super().__init__(reason)
        self.isUnread = isUnread


@frozen
class ResponseHead:
    """
    The head of a response.

    @ivar fields: The header fields by name in lower case; the last one if a name is repeated.
    """

    status: int
    fields: dict[bytes, bytes]


class ClientRequest:
    """
    One request and its response, on a connection.

    @ivar received: The head of the response, once it has been received.
    @ivar isWritten: Whether the whole request has been sent.
    @ivar isRead: Whether the whole response has been received.
    """

    def __init__(self, connection: "HTTPClientConnection", hasBody: bool) -> None:
        self._connection = connection
        self._pieces: deque[bytes] = deque()
        self._buffered = 0
        self.received: ResponseHead | None = None
        self._error: ConnectionLostError | None = None
        self._waiter: Deferred[None] | None = None
        self.isWritten = not hasBody
        self.isRead = False

    # The request

    async def write(self, data: bytes) -> None:
        """
        Send a chunk of the body, and wait until the transport accepts another.

        @param data: At least one byte: an empty chunk would end the body.
        @raise ConnectionLostError: If the connection is lost.
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

        @raise ConnectionLostError: If the connection is lost before it.
        """
        while self.received is None:
            await self._more()
        return self.received

    async def read(self) -> bytes:
        """
        Wait for a piece of the body.

        @return: C{b""} at its end.
        @raise ConnectionLostError: If the connection is lost before its end.
        """
        while not self._pieces:
            if self.isRead:
                return b""
            await self._more()
        piece = self._pieces.popleft()
        self._buffered -= len(piece)
        if self._buffered <= UNREAD_BYTES:
            self._connection.setReading(True)
        return piece

    async def body(self, maxBytes: int) -> bytes:
        """
        Read the rest of the body.

        @param maxBytes: The limit in bytes, not counting pieces read before.
        @raise HTTPClientError: If it is longer than C{maxBytes}.
        @raise ConnectionLostError: If the connection is lost before its end.
        """
        pieces: list[bytes] = []
        size = 0
        while piece := await self.read():
            pieces.append(piece)
            size += len(piece)
            if size > maxBytes:
                raise HTTPClientError(f"answers with more than {maxBytes} bytes")
        return b"".join(pieces)

    def fail(self, error: ConnectionLostError) -> None:
        """End the request; reads of the response raise the error."""
        self.lost(error)
        self.notify()

    def close(self) -> None:
        """Release the connection if both directions are complete, otherwise close it."""
        self._connection.end(self)

    # Called by the connection

    def gotPiece(self, piece: bytes) -> None:
        """Receive a piece of the body."""
        self._pieces.append(piece)
        self._buffered += len(piece)
        if self._buffered > UNREAD_BYTES:
            self._connection.setReading(False)

    def lost(self, error: ConnectionLostError) -> None:
        """Record that nothing more is received; buffered bytes can still be read."""
        if not self.isRead and self._error is None:
            self._error = error

    def notify(self) -> None:
        """Resume the reader of the response."""
        waiter, self._waiter = self._waiter, None
        if waiter is not None:
            waiter.callback(None)

    def _check(self) -> None:
        if self._error is not None:
            raise untraced(self._error)

    def _more(self) -> Deferred[None]:
        self._check()
        self._waiter = Deferred()
        return self._waiter


@implementer(IHandshakeListener)
class HTTPClientConnection(Protocol):
    """
    A connection to a server, over TCP or TLS, with one request at a time.

    @ivar onFree: Called when another request may begin.
    @ivar onLost: Called when the connection is lost.
    """

    def __init__(self) -> None:
        self.onFree: Callable[[HTTPClientConnection], None] = lambda connection: None
        self.onLost: Callable[[HTTPClientConnection], None] = lambda connection: None
        self.isLost = False
        self._request: ClientRequest | None = None
        self._parser: Any = None
        self._fields: dict[bytes, bytes] = {}
        self._drained: Deferred[None] | None = None
        self._isFull = False
        self._isReading = self._staysOpen = True
        self._endsByClosing = self._hasReceived = self._hasHead = self._isFramed = False
        self._sincePiece = 0
        self._handshake: SharedFuture[None] = SharedFuture()

    def connectionMade(self) -> None:
        """Register for back pressure."""
        transport: Any = self.transport
        transport.setTcpNoDelay(True)
        # Nothing else detects a machine that vanishes during a silent stream.
        transport.setTcpKeepAlive(True)
        transport.registerProducer(self, True)

    def begin(
        self, head: bytes, body: bytes | None = None, endsByClosing: bool = False
    ) -> ClientRequest:
        """
        Send a request.

        @param head: The head, including the fields that frame the body.
        @param body: The body, whose C{Content-Length} is in the head; C{None} for a chunked one;
            see L{ClientRequest.write}.
        @param endsByClosing: Whether the body of the response may end with the connection (RFC
            9112, section 6.3): such an end is indistinguishable from a crash of the server.
        """
        assert self._request is None, "a request is in flight"
        self._fields = {}
        self._hasHead = False
        self._sincePiece = 0
        self._endsByClosing = endsByClosing
        self._parser = httptools.HttpResponseParser(self)
        self._request = request = ClientRequest(self, hasBody=body is None)
        self.send(head if body is None else head + body)
        return request

    def isAlive(self) -> bool:
        """
        Return whether the connection is open, as far as this machine knows.

        The reactor notices a close only in its next iteration; a call sent before that would be
        lost although the server has not read it.
        """
        if self.isLost:
            return False
        transport: Any = self.transport
        isSecure = self._handshake.isKnown
        socket = (transport.transport if isSecure else transport).getHandle()
        try:
            # Unsolicited bytes are as bad as a close.
            socket.recv(1, _PEEK)
            return False
        except BlockingIOError:
            if not isSecure:
                return True
        except OSError:
            return False
        try:
            # The TLS close_notify may have been read from the socket with the last response.
            transport.getHandle().recv(1, MSG_PEEK)
        except WantReadError:
            return True
        except TLSError:
            pass
        return False

    def send(self, data: bytes) -> None:
        """Send bytes."""
        if not self.isLost:
            self.transport.write(data)  # type: ignore[union-attr]

    async def write(self, data: bytes) -> None:
        """Send bytes, and wait until the transport accepts more."""
        self.send(data)
        if self._isFull:
            self._drained = Deferred()
            await self._drained

    def setReading(self, wanted: bool) -> None:
        """Resume or pause reading."""
        if wanted is not self._isReading and not self.isLost:
            self._isReading = wanted
            transport: Any = self.transport
            if wanted:
                transport.resumeProducing()
            else:
                transport.pauseProducing()

    def end(self, request: ClientRequest) -> None:
        """
        End a request: the connection becomes free, or is closed if either direction is incomplete.
        """
        if request is not self._request:
            return
        self._request = None
        self._wakeWriter()
        if self._staysOpen and request.isRead and request.isWritten and not self.isLost:
            self.setReading(True)
            self.onFree(self)
        else:
            self.abort()

    def abort(self) -> None:
        """Close the connection immediately."""
        if not self.isLost:
            self.transport.abortConnection()  # type: ignore[union-attr]

    # TLS

    def whenSecure(self) -> Deferred[None]:
        """
        Wait for the end of the handshake.

        @return: Fails with the reason if the connection is lost. Cancelling it closes the
            connection.
        """
        return self._handshake.wait(self.abort)

    def handshakeCompleted(self) -> None:
        """Record the end of the handshake."""
        self._handshake.set(None)

    # The transport

    def dataReceived(self, data: bytes) -> None:
        """Receive bytes of a response."""
        self._hasReceived = True
        request = self._request
        if request is None or request.isRead:
            # Unsolicited bytes could be taken for the next response.
            self._staysOpen = False
            self.abort()
            return
        self._sincePiece += len(data)
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self._fail(f"it does not speak HTTP: {error!s:.100}")
        if self._sincePiece > HEAD_BYTES:
            self._fail(f"its {'trailer' if self._hasHead else 'head'} is too long")
        request.notify()

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """End the request, as the connection is lost."""
        self.isLost = True
        # It refers to this connection.
        self._parser = None
        request = self._request
        if request is not None:
            if self._hasHead and not self._isFramed and reason.check(ConnectionDone):
                request.isRead = True
            isUnread = not self._hasReceived and refusesCertificate(reason.value)
            text = f"the connection was lost: {reason.value!s:.100}"
            request.lost(ConnectionLostError(text, isUnread))
            request.notify()
        self._wakeWriter()
        self._handshake.fail(reason.value or ConnectionDone())
        self.onLost(self)

    def pauseProducing(self) -> None:
        """Stop sending: the transport is full."""
        self._isFull = True

    def resumeProducing(self) -> None:
        """Resume sending; a lost connection then raises in the writer."""
        self._isFull = False
        self._wakeWriter()

    stopProducing = resumeProducing

    def _wakeWriter(self) -> None:
        drained, self._drained = self._drained, None
        if drained is not None:
            drained.callback(None)

    # The parser

    def on_message_begin(self) -> None:
        """Receive the first byte of a response."""
        if self._request is None or self._request.isRead:
            # Some servers announce the end of an idle connection by a response to no request.
            self._staysOpen = False

    def on_header(self, name: bytes, value: bytes) -> None:
        """Receive a header field."""
        self._fields[name.lower()] = value

    def on_headers_complete(self) -> None:
        """Receive the end of a head."""
        # Later fields are those of another response, or trailers.
        fields, self._fields = self._fields, {}
        request = self._request
        if request is None or request.isRead:
            return
        status = self._parser.get_status_code()
        if status < 200:
            # An interim response: another one follows.
            return
        self._isFramed = not _FRAMING.isdisjoint(fields) or status in (204, 304)
        if not self._isFramed and not self._endsByClosing:
            # Its end would be indistinguishable from a lost connection.
            self._fail("its body has no length")
            return
        self._hasHead = True
        self._staysOpen = self._parser.should_keep_alive()
        request.received = ResponseHead(status, fields)

    def on_body(self, body: bytes) -> None:
        """Receive a piece of the body."""
        self._sincePiece = 0
        if self._request is not None and not self._request.isRead:
            self._request.gotPiece(body)

    def on_message_complete(self) -> None:
        """Receive the end of a response."""
        if self._request is not None and self._hasHead:
            self._request.isRead = True

    def _fail(self, reason: str) -> None:
        """End the request and the connection, as the received bytes are not a valid response."""
        self._staysOpen = False
        if self._request is not None:
            self._request.lost(ConnectionLostError(reason))
        self.abort()


_factory = Factory.forProtocol(HTTPClientConnection)
_factory.noisy = False


async def openConnection(
    endpoint: Any,
    clock: IReactorTime,
    seconds: float,
    context: ServerContext | None = None,
    handshakeFailed: Callable[[Exception], None] = lambda error: None,
    factory: Any = None,
) -> Any:
    """
    Connect and complete the TLS handshake, so that no request is sent before it.

    @param endpoint: The TCP endpoint.
    @param clock: The clock for the handshake's timeout.
    @param seconds: The time for both together; the endpoint itself limits the time to connect.
    @param context: The TLS context, which verifies the server's name; C{None} without TLS.
    @param handshakeFailed: Called with the error of a failed handshake, which is also raised.
    @param factory: Builds a protocol with C{whenSecure} and C{abort}; L{HTTPClientConnection} by
        default.
    @return: The protocol.
    @raise CancelledError: If the call is cancelled.
    """
    deadline = clock.seconds() + seconds
    if context is not None:
        endpoint = wrapClientTLS(context, endpoint, clock)
    try:
        connection = await endpoint.connect(factory or _factory)
    except ConnectingCancelledError:
        raise CancelledError from None
    if context is not None:
        left = max(0.0, deadline - clock.seconds())
        try:
            await connection.whenSecure().addTimeout(left, clock)
            context.verifyName(connection.transport.getHandle())
        except CancelledError:
            raise
        except Exception as error:
            connection.abort()
            handshakeFailed(error)
            raise
    return connection


class ConnectionPool:
    """
    The connections to one server.

    The most recently used free connection is reused first, so that the others expire under lower
    load.
    """

    def __init__(
        self, connect: Callable[[], Deferred[HTTPClientConnection]], clock: IReactorTime
    ) -> None:
        """@param connect: Makes a connection or fails, within a limited time."""
        self._connect = connect
        self._clock = clock
        # Free connections, each with the timer that closes it.
        self._idle: dict[HTTPClientConnection, Any] = {}
        self._all: set[HTTPClientConnection] = set()
        self._isClosed = False
        self._closed = IdleWaiters()

    @property
    def count(self) -> int:
        """Return the number of connections."""
        return len(self._all)

    def acquire(self) -> Deferred[HTTPClientConnection]:
        """
        Return a free connection or make one. It returns to the pool when its request is closed.

        @return: Fails if the connection cannot be made; nothing was sent.
        """
        while self._idle:
            connection, timer = self._idle.popitem()
            timer.cancel()
            if connection.isAlive():
                return succeed(connection)
            connection.abort()
        return self._connect().addCallback(self._made)

    def close(self) -> Deferred[None]:
        """Close free connections now, and the others when their requests end."""
        return self._close(list(self._idle))

    def abort(self) -> Deferred[None]:
        """Close all connections now."""
        return self._close(list(self._all))

    def _close(self, closed: list[HTTPClientConnection]) -> Deferred[None]:
        self._isClosed = True
        for connection in closed:
            self._forgetIdle(connection)
            connection.abort()
        return self._closed.wait(bool(self._all))

    def _made(self, connection: HTTPClientConnection) -> HTTPClientConnection:
        self._all.add(connection)
        connection.onFree = self._free
        connection.onLost = self._lost
        return connection

    def _free(self, connection: HTTPClientConnection) -> None:
        if self._isClosed or len(self._idle) >= MAX_IDLE:
            connection.abort()
            return
        self._idle[connection] = self._clock.callLater(IDLE_SECONDS, connection.abort)

    def _lost(self, connection: HTTPClientConnection) -> None:
        self._all.discard(connection)
        self._forgetIdle(connection)
        if not self._all:
            self._closed.notify()

    def _forgetIdle(self, connection: HTTPClientConnection) -> None:
        timer = self._idle.pop(connection, None)
        if timer is not None and timer.active():
            timer.cancel()
