"""Calls over HTTP: C{POST {basePath}/{Service}/{method}}, streams as JSON lines."""

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from twisted.internet.defer import CancelledError, Deferred

from storagegate.core.codecs import INLINE_SIZE, JSON
from storagegate.core.errors import ServiceError
from storagegate.core.streams import BoundedStream
from storagegate.gateway.client.formats import Reply, readError
from storagegate.gateway.client.transports import (
    BUFFERED_BYTES,
    CONNECT_SECONDS,
    CallHead,
    ClientTarget,
    checkedFields,
    connectionLost,
    tooLarge,
    unreachable,
)
from storagegate.gateway.messages.frames import END, ERROR, ITEM, RESPONSE
from storagegate.net.http.clientconnection import (
    ClientRequest,
    ConnectionLostError,
    ConnectionPool,
    HTTPClientConnection,
    HTTPClientError,
    openConnection,
)
from storagegate.net.http.lines import NDJSON, LineTooLong, NDJSONDecoder


class HTTPGatewayCall:
    """
    A call over HTTP.

    @ivar replies: The replies; the connection is not read while they are full.
    """

    def __init__(self, request: ClientRequest, maxBytes: int) -> None:
        """@param maxBytes: Limit of a response, or of a line of a stream."""
        self._request = request
        self._limit = maxBytes
        self.replies: BoundedStream[Reply] = BoundedStream(
            BUFFERED_BYTES, sizeOf=lambda reply: reply.size
        )
        self._isClosed = self._hasSent = False
        self._reading = Deferred.fromCoroutine(self._read())

    async def send(self, data: Any) -> None:
        """Send a line."""
        self._hasSent = True
        line = JSON.encode(data) + b"\n"
        try:
            await self._request.write(line)
        except ConnectionLostError:
            # Reading the response raises the same error.
            return

    def sendEnd(self) -> None:
        """Send the end of the body."""
        self._request.finish()

    def close(self) -> None:
        """Release the connection, or close it if the call has not ended."""
        if not self._isClosed:
            self._isClosed = True
            self._reading.cancel()
            self._request.close()
            self.replies.end()

    async def _read(self) -> None:
        """Read the response."""
        try:
            head = await self._request.head()
            kind = head.fields.get(b"content-type", b"").decode("latin-1")
            if head.status == 200 and kind.startswith(NDJSON):
                await self._readLines()
            else:
                body = await self._request.body(self._limit)
                self.replies.put(readWhole(head.status, body), last=True)
        except (LineTooLong, HTTPClientError):
            self.replies.put(Reply(ERROR, None, tooLarge(self._limit)), last=True)
        except ConnectionLostError as error:
            isUnsent = error.isUnread and not self._hasSent
            self.replies.end(connectionLost(error, isUnsent))
        except CancelledError:
            return

    async def _readLines(self) -> None:
        decoder = NDJSONDecoder(self._limit)
        isOver = False
        while not isOver:
            piece = await self._request.read()
            isOver = not piece
            for line in decoder.end() if isOver else decoder.feed(piece):
                await self.replies.drained(BUFFERED_BYTES)
                reply = readLine(line)
                isOver = isOver or reply.type == ERROR
                self.replies.put(reply)
        self.replies.put(Reply(END, None, None), last=True)


def readLine(line: bytes) -> Reply:
    """Read a line of a stream: an item or an error."""
    shape = _decoded(line)
    if isinstance(shape, Mapping) and "data" in shape:
        shape = shape["data"]
    elif isinstance(shape, Mapping) and "error" in shape:
        return Reply(ERROR, None, readError(shape, "error"), len(line))
    # Otherwise the application's transformResponse has changed the shape.
    return Reply(ITEM, None, shape, len(line))


def readWhole(status: int, body: bytes) -> Reply:
    """Read the response of a method without a stream of results."""
    shape = _decoded(body)
    if status >= 400:
        error = readError(shape, "error", status)
        if not error.message:
            error = ServiceError(error.code, f"HTTP status {status}", status, error.details)
        return Reply(ERROR, None, error, len(body))
    isUsual = isinstance(shape, Mapping) and set(shape) == {"data"}
    return Reply(RESPONSE, None, shape["data"] if isUsual else shape, len(body))


def _decoded(data: bytes) -> Any:
    """Decode JSON; return malformed JSON as text."""
    try:
        return JSON.decode(data) if len(data) <= INLINE_SIZE else JSON.decodeLarge(data)
    except ValueError:
        return data.decode("utf-8", "replace")


class HTTPClientTransport:
    """Calls over HTTP, each on a connection of a pool while it runs."""

    def __init__(self, target: ClientTarget) -> None:
        self._target = target
        self._pool = ConnectionPool(self._connect, target.reactor)

    def _connect(self) -> Deferred[HTTPClientConnection]:
        target = self._target
        return Deferred.fromCoroutine(
            openConnection(target.endpoint, target.reactor, CONNECT_SECONDS, target.context)
        )

    async def begin(self, head: CallHead) -> HTTPGatewayCall:
        """Begin a call."""
        body = None
        if not head.streamsRequests:
            body = JSON.encode({} if head.data is None else head.data)
        encoded = self._encodeHead(head, body)
        try:
            connection = await self._pool.acquire()
        except CancelledError:
            raise
        except Exception as error:
            raise unreachable(error) from error
        return HTTPGatewayCall(connection.begin(encoded, body), self._target.maxMessageBytes)

    def _encodeHead(self, head: CallHead, body: bytes | None) -> bytes:
        """
        Encode the head of a request.

        @raise ServiceError: C{INVALID_ARGUMENT}: a header field is invalid.
        """
        target = self._target
        service, method = quote(head.service, safe=""), quote(head.method, safe="")
        lines = [
            f"POST {target.path}/{service}/{method} HTTP/1.1",
            f"Host: {target.authority}",
            f"Accept: {NDJSON}, application/json",
        ]
        if head.deadlineMs is not None:
            lines.append(f"X-Deadline-Ms: {head.deadlineMs}")
        if body is None:
            lines += [f"Content-Type: {NDJSON}", "Transfer-Encoding: chunked"]
        else:
            lines += ["Content-Type: application/json", f"Content-Length: {len(body)}"]
        fields = checkedFields({**target.headers, **head.fields()})
        fields.setdefault("user-agent", target.userAgent)
        lines += [f"{name}: {value}" for name, value in fields.items()]
        return "\r\n".join([*lines, "\r\n"]).encode("latin-1")

    def close(self) -> Deferred[None]:
        """Close all connections."""
        return self._pool.abort()


makeTransport = HTTPClientTransport
