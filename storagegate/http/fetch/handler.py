"""
An application as a function from a standard request to a standard response, without a socket.

The server side of the connection is the HTTP channel of real listeners, with the same parsing,
refusals, responses and timeouts. The client side and the transport are a L{MemoryClientConnection},
which runs in the caller's stack while nothing waits. Later output of the server reaches a waiting
client in a separate reactor iteration, as over a socket, so that the server's handler never runs
the client's code.
"""

from collections.abc import AsyncIterator, Callable, Coroutine, Iterable
from contextlib import suppress
from typing import Any

import httptools
from attrs import frozen
from twisted.internet.address import IPv4Address
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.error import ConnectionAborted, ConnectionDone
from twisted.internet.interfaces import IConsumer, IPushProducer, ISSLTransport, ITransport
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import alsoProvides, implementer

from storagegate.core.options import parseDecimal
from storagegate.core.task import fromCoroutine, portable
from storagegate.http.fetch import (
    ByteSource,
    Headers,
    Request,
    Response,
    TargetURL,
    WholeSource,
    decodeFields,
    receivedResponse,
)
from storagegate.http.resource import describeRejection
from storagegate.net.http.channel import HTTPChannel
from storagegate.net.http.interfaces import IChannelOwner
from storagegate.net.http.site import Site

LOCALHOST = "127.0.0.1"


class NoTransport(RuntimeError):
    """A handler requires the connection of a request that has none."""


class FetchChannel(HTTPChannel):
    """The channel of one request."""

    def __init__(self, owner: IChannelOwner, client: "MemoryClientConnection") -> None:
        super().__init__(owner)
        self._client = client

    def resumeBody(self) -> None:
        """Request a piece of the body from the client."""
        super().resumeBody()
        self._client.request.want()

    def respond(self, code: int, head: bytes, body: bytes, closes: bool) -> None:
        """Send a whole response, and notify the client, which has only this request."""
        super().respond(code, head, body, closes)
        self._client.responseDone()

    def _continue(self) -> None:
        self._client.responseDone()
        super()._continue()

    def takeTransport(self) -> tuple[Any, bytes]:
        """
        Refuse.

        @raise NoTransport: Always.
        """
        raise NoTransport(
            "this takes over the connection of its request, as WebSockets do; it needs a listener, "
            "because a request of a fetch handler has no connection"
        )


# Methods whose requests declare even an empty body.
_BODY_METHODS = frozenset(["POST", "PUT", "PATCH"])

# Bodies up to this size are joined with the head; copying a larger one costs more than it saves.
_JOINED = 64 * 1024


@frozen
class MemoryResponseHead:
    """The head of a response."""

    status: int
    phrase: str
    headers: Headers


class EncodedRequest:
    """
    An encoded request, which also sends its body.

    @ivar secure: Whether the connection counts as encrypted.
    @ivar port: The port of the URL.
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
            # The server refuses a malformed length.
            with suppress(ValueError):
                self._remaining = parseDecimal(declared.encode("latin-1"), 2**63 - 1)
        if not headers.has("host"):
            fields.insert(0, (b"host", url.authority.encode("ascii")))
        head = b"%b %b HTTP/1.1\r\n" % (method.encode("ascii"), url.target.encode("ascii"))
        head += b"".join(b"%b: %b\r\n" % field for field in fields) + b"\r\n"
        # The bytes that can be sent synchronously, and the source of the rest.
        self._pieces = [head]
        self._source: AsyncIterator[bytes] | None = None
        self._wanted = False
        self._stopped = False
        # Whether the awaited Deferred may be cancelled: not while the server is on the stack, nor
        # while the source closes.
        self._cancellable = False
        self._waiter: Deferred[None] | None = None
        self._running: Deferred[None] | None = None
        if content is None:
            self._source = aiter(source)
        elif hasBody or self._chunked:
            body = self._encodePiece(content) + self._encodeEnd()
            self._pieces = [head + body] if len(body) < _JOINED else [head, body]

    def _encodePiece(self, piece: bytes) -> bytes:
        """
        Encode a piece of the body.

        @param piece: The next bytes of the body; an empty piece is skipped.
        @raise ValueError: If the body is longer than the request declares.
        """
        if self._chunked:
            return b"%x\r\n%b\r\n" % (len(piece), piece) if piece else b""
        if self._remaining is not None:
            self._remaining -= len(piece)
            if self._remaining < 0:
                raise ValueError("the body is longer than its Content-Length")
        return piece

    def _encodeEnd(self) -> bytes:
        """
        Encode the end of the body.

        @raise ValueError: If the body is shorter than the request declares.
        """
        if self._remaining:
            raise ValueError("the body is shorter than its Content-Length")
        return b"0\r\n\r\n" if self._chunked else b""

    def start(self, send: Callable[[bytes], None], failed: Callable[[Failure], None]) -> None:
        """
        Send head and body; a body that is not in memory is sent piece by piece on demand.

        @param failed: Called with the failure of the body's source.
        """
        for piece in self._pieces:
            send(piece)
        if self._source is not None:
            self._running = fromCoroutine(self._run(self._source, send))
            self._running.addErrback(failed)

    def want(self) -> None:
        """Send another piece of the body, for which the handler waits."""
        self._wanted = True
        waiter, self._waiter = self._waiter, None
        if waiter is not None:
            waiter.callback(None)

    def stop(self) -> None:
        """Stop sending the body, and close its source."""
        self._stopped = True
        if self._running is not None and self._cancellable:
            self._running.cancel()

    async def _run(self, source: AsyncIterator[bytes], send: Callable[[bytes], None]) -> None:
        try:
            while not self._stopped:
                self._cancellable = True
                while not self._wanted:
                    self._waiter = Deferred()
                    await self._waiter
                piece = await anext(source, None)
                self._cancellable = False
                if piece is None:
                    send(self._encodeEnd())
                    break
                # Set before sending, because the handler may request another piece in the meantime.
                self._wanted = not piece
                send(self._encodePiece(piece))
        finally:
            self._cancellable = False
            close = getattr(source, "aclose", None)
            if close is not None:
                await close()


_log = Logger()

# Unread bytes of a response at which the server pauses.
_UNREAD = 64 * 1024


class ResponseLost(ConnectionError):
    """The connection ended before its response was complete."""


@implementer(ITransport, IConsumer, IPushProducer)
class MemoryClientConnection:
    """
    The client side of an in-memory connection: one request and its response.

    It is also the transport of the server's channel, and parses the channel's output.

    @ivar request: The request to send.
    @ivar head: The head of the response, once received. Interim responses are ignored.
    @ivar held: Unread bytes of the body.
    @ivar ended: Whether the response is complete; parts of it may be unread.
    @ivar error: The reason if the response was truncated.
    @ivar onHead: Called with the head of the response.
    """

    def __init__(
        self, owner: IChannelOwner, request: EncodedRequest, peer: str = LOCALHOST
    ) -> None:
        """
        @param peer: The IP address of the client; its port is 0.
        """
        self.onHead: Callable[[MemoryResponseHead], None] | None = None
        self.head: MemoryResponseHead | None = None
        self.held = 0
        self.ended = False
        self.error: BaseException | None = None
        self.disconnecting = False
        self._clock = owner.reactor
        self.request = request
        self._peer = IPv4Address("TCP", peer, 0)
        self._host = IPv4Address("TCP", LOCALHOST, request.port)
        if request.secure:
            alsoProvides(self, ISSLTransport)
        self._parser = httptools.HttpResponseParser(self)
        self._phrase = b""
        self._fields: list[tuple[bytes, bytes]] = []
        self._chunks: list[bytes] = []
        # The server's producer, paused while the client lags behind with reading.
        self._producer: Any = None
        self._isPaused = False
        self._closed = False
        self._lost = False
        # The depth of calls into the server; actions of the server outside of such calls are
        # processed in a separate reactor iteration.
        self._depth = 0
        self._settling: Any = None
        self._waiter: Deferred[None] | None = None
        self._channel = FetchChannel(owner, self)

    # For the client

    def start(self) -> None:
        """Send the request."""
        self._depth += 1
        self._channel.makeConnection(self)
        self.request.start(self._send, self._sendingFailed)
        self._leave()

    async def waitForHead(self) -> MemoryResponseHead:
        """
        Wait for the head of the response. Cancelling disconnects.

        @raise ResponseLost: If the server closes the connection first.
        @raise Exception: An error of the source of the request body.
        """
        try:
            while self.head is None:
                await self._wait()
        except BaseException:
            # Cancelled, by Twisted or asyncio; a no-op if the connection has ended.
            self.disconnect()
            raise
        return self.head

    async def readPiece(self) -> bytes:
        """
        Wait for more of the body.

        @return: All unread bytes; C{b""} at the end.
        @raise ResponseLost: If the response was truncated.
        """
        while not self._chunks and not self.ended:
            await self._wait()
        return self.readAvailable()

    def readAvailable(self) -> bytes:
        """Return the unread bytes of the body, and resume the server if it has paused."""
        content = b"".join(self._chunks)
        self._chunks.clear()
        self.held = 0
        if self._isPaused:
            self._isPaused = False
            if self._producer is not None:
                self._depth += 1
                self._producer.resumeProducing()
                self._leave()
        return content

    def disconnect(self) -> None:
        """Disconnect."""
        if not self.ended and self.error is None:
            self.error = ResponseLost("the client disconnected")
        self._chunks.clear()
        self.held = 0
        self._lose(ConnectionDone())

    def disconnectSoon(self) -> None:
        """Disconnect in another reactor iteration. May be called in any thread, by a finalizer."""
        callFromThread = getattr(self._clock, "callFromThread", None)
        if callFromThread is not None:
            callFromThread(self.disconnect)
        else:
            self._clock.callLater(0, self.disconnect)

    # The transport of the channel

    def write(self, data: bytes) -> None:
        """Receive bytes of the response."""
        if self._closed:
            return
        isHeadless = self.head is None
        self._parser.feed_data(data)
        if isHeadless and self.head is not None and self.onHead is not None:
            self.onHead(self.head)
        if self.held >= _UNREAD and not self._isPaused and self._producer is not None:
            self._isPaused = True
            self._producer.pauseProducing()
        self._followUp()

    def writeSequence(self, pieces: Iterable[bytes]) -> None:
        """Receive bytes of the response."""
        for piece in pieces:
            self.write(piece)

    def loseConnection(self) -> None:
        """Receive the end of the connection."""
        self.disconnecting = True
        if not self.ended and self.error is None:
            self.error = ResponseLost("the server dropped the connection during the response")
        self._closed = True
        self._followUp()

    # These also determine whether the response is complete.
    abortConnection = stopProducing = loseConnection

    def registerProducer(self, producer: Any, streaming: bool) -> None:
        """Set the producer, which is paused while the client lags behind."""
        self._producer = producer

    def unregisterProducer(self) -> None:
        """Remove the producer."""
        self._producer = None

    def pauseProducing(self) -> None:
        """Do nothing: pieces of the request are sent on demand."""

    def resumeProducing(self) -> None:
        """Do nothing; see L{pauseProducing}."""

    def getPeer(self) -> IPv4Address:
        """Return the address of the client."""
        return self._peer

    def getHost(self) -> IPv4Address:
        """Return the address of the server."""
        return self._host

    # For httptools

    def on_status(self, phrase: bytes) -> None:
        self._phrase += phrase

    def on_header(self, name: bytes, value: bytes) -> None:
        self._fields.append((name, value))

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        if status >= 200:
            phrase = self._phrase.decode("latin-1")
            self.head = MemoryResponseHead(status, phrase, decodeFields(self._fields))
        self._phrase, self._fields = b"", []

    def on_body(self, body: bytes) -> None:
        self._chunks.append(body)
        self.held += len(body)

    def on_message_complete(self) -> None:
        # Not called for the response to HEAD.
        self.ended = self.head is not None

    # For the channel

    def responseDone(self) -> None:
        """Handle the end of the response."""
        self.ended = self._closed = True
        self._followUp()

    def _send(self, data: bytes) -> None:
        if data and not self._closed:
            self._depth += 1
            self._channel.dataReceived(data)
            self._leave()

    def _leave(self) -> None:
        self._depth -= 1
        if not self._depth:
            self._settle()

    def _followUp(self) -> None:
        if not self._depth and self._settling is None:
            self._settling = self._clock.callLater(0, self._settle)

    def _settle(self) -> None:
        """Close the connection if it has ended, and resume the reader."""
        settling, self._settling = self._settling, None
        if settling is not None and settling.active():
            settling.cancel()
        if self._closed:
            self._lose(ConnectionDone() if self.error is None else ConnectionAborted())
        waiter = self._waiter
        if waiter is not None and (self.head or self.error):
            self._waiter = None
            waiter.callback(None)

    def _lose(self, reason: Exception) -> None:
        self._closed = True
        if self._lost:
            return
        self._lost = True
        self._depth += 1
        self._channel.connectionLost(Failure(reason))
        self.request.stop()
        self._leave()

    def _wait(self) -> Deferred[None]:
        if self.error is not None:
            raise self.error
        if self._waiter is not None:
            raise RuntimeError("a response has one reader")
        self._waiter = Deferred(self._forgetWaiter)
        return portable(self._waiter)

    def _forgetWaiter(self, waiter: Deferred[None]) -> None:
        self._waiter = None

    def _sendingFailed(self, reason: Failure) -> None:
        if self._lost and reason.check(CancelledError):
            return
        if self.ended or self.error is not None:
            _log.failure("the body of a request failed after its response had ended", reason)
            return
        self.error = reason.value
        self.disconnect()


FetchHandler = Callable[[Request | str], Coroutine[Any, Any, Response]]
"""Responds to a request; a URL or path alone is a GET."""


def makeFetchHandler(app: Any) -> FetchHandler:
    """
    Make a function that serves requests without a listener.

    It responds as a listener would: the same requests are refused, the same limits and timeouts
    apply, and bodies have back pressure in both directions. The function waits for the head of the
    response, not for the body. Cancelling the call, calling C{response.cancel()} or dropping the
    response disconnects the client.

    The function raises L{ResponseLost} if the application drops the connection before the head, and
    any error of the request body. Reading the body of a truncated response raises L{ResponseLost}.

    @param app: The application; its settings are read on the first request.
    """
    site: Site | None = None

    async def fetch(request: Request | str) -> Response:
        nonlocal site
        if isinstance(request, str):
            request = Request(request)
        if site is None:
            # Created late, as the options of the application may change.
            site = makeSite(app)
        # This marks the body as read.
        encoded = EncodedRequest(
            request.method, request.target, request.headers, request._use(), request.hasBody
        )
        connection = MemoryClientConnection(site, encoded)
        connection.start()
        head = await connection.waitForHead()
        source: ByteSource
        if connection.ended:
            source = WholeSource(connection.readAvailable())
        else:
            source = FetchedBody(connection)
        return receivedResponse(head.status, head.phrase, head.headers, source)

    return fetch


def makeSite(app: Any) -> Site:
    """Make the site that owns in-memory connections."""
    return Site(app.resource, app.settings.limits(), app.runtime.clock, describeRejection)


class FetchedBody(ByteSource):
    """
    The body of a response that is still being received.

    Only the response refers to this object, so that dropping the response disconnects.
    """

    def __init__(self, connection: MemoryClientConnection) -> None:
        self._connection = connection

    def __aiter__(self) -> "FetchedBody":
        return self

    async def __anext__(self) -> bytes:
        piece = await self._connection.readPiece()
        if not piece:
            raise StopAsyncIteration
        return piece

    def cancel(self) -> None:
        """Disconnect."""
        self._connection.disconnect()

    def __del__(self) -> None:
        if not self._connection.ended and self._connection.error is None:
            self._connection.disconnectSoon()
