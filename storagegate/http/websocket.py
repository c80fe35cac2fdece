"""
WebSocket routes: C{app.ws(path, handler)}.

The handshake is a request that passes through the preceding middleware, which may refuse it. Then
the handler runs while the WebSocket is open::

    async def chat(socket):
        async for message in socket:
            await socket.send(message)

Messages that the handler has not read are buffered up to a limit; then reading pauses. A handler
waits in C{send} for a client that does not read.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from inspect import isasyncgenfunction, isgeneratorfunction, signature
from typing import TYPE_CHECKING, Any, Self

from attrs import evolve
from msgspec import json
from twisted.internet.defer import CancelledError, Deferred, succeed
from twisted.internet.interfaces import IPushProducer
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

from storagegate.core.limitedlog import RateLimitedLog
from storagegate.core.streams import BoundedStream
from storagegate.core.task import IdleWaiters, Task, resolve
from storagegate.http.dispatch import nameOf
from storagegate.http.encoding import waitForAll
from storagegate.http.fields import dropContent
from storagegate.http.request import HTTPRequest
from storagegate.http.response import FRAMING, WRITE_COST, YIELD_SIZE, HTTPResponse
from storagegate.net.http.interfaces import ClientLost
from storagegate.net.websocket.handshake import HandshakeRefused

if TYPE_CHECKING:
    from storagegate.net.websocket.connection import WebSocketConnection

WebSocketHandler = Callable[["WebSocket"], Any]
"""A coroutine function."""

HELD_BYTES = 64 * 1024
"""Bytes of buffered messages at which reading pauses. One more message, of any allowed length, may
still arrive."""

_MESSAGE_COST = 256
"""The overhead in bytes that each message counts for."""

_OWN_FIELDS = FRAMING | {"upgrade", "sec-websocket-accept", "sec-websocket-extensions"}
"""Fields that the response to a handshake sets itself."""

_NORMAL, _INVALID, _INTERNAL = 1000, 1007, 1011

_LONGEST_REASON = 123
"""RFC 6455 section 5.5: a control frame has 125 bytes, two of which are the code."""

_log = Logger()
_limited = RateLimitedLog(_log)


class WebSocketClosed(ClientLost):
    """
    The WebSocket is closed, so no message can be sent or received.

    @ivar code: The close code; see L{WebSocket.closeCode}.
    @ivar reason: The text of the close.
    """

    def __init__(self, code: int | None, reason: str) -> None:
        super().__init__(f"the WebSocket is closed: {code} {reason}".rstrip())
        self.code = code
        self.reason = reason


class MalformedMessage(ValueError):
    """A message is not JSON. If the handler does not catch this, its WebSocket closes with 1007."""


class WebSocket:
    """
    The WebSocket of a handler. Iteration yields messages until it is closed.

    @ivar request: The request of the handshake: C{params}, C{query}, C{session}, fields, cookies.
    @ivar subprotocol: The negotiated subprotocol, or C{None}.
    """

    def __init__(self, request: HTTPRequest, connection: "WebSocketConnection") -> None:
        self.request = request
        self.subprotocol = connection.handshake.subprotocol
        self._connection: WebSocketConnection | None = connection
        self._closing: tuple[int | None, str] = None, ""
        self._messages: BoundedStream[tuple[bytes, bool]] = BoundedStream(
            HELD_BYTES,
            _InputProducer(connection),
            sizeOf=lambda message: len(message[0]) + _MESSAGE_COST,
            resumeBelow=HELD_BYTES // 2,
        )
        self._gone = IdleWaiters()
        self._unwaited = 0

    @property
    def isOpen(self) -> bool:
        """Return whether messages can be sent."""
        return self._connection is not None and self._connection.isOpen

    @property
    def closeCode(self) -> int | None:
        """
        Return the close code, or C{None} before the close.

        1005 is a close without a code, 1006 a connection lost without a close.
        """
        return self._closing[0]

    @property
    def closeReason(self) -> str:
        """Return the text of the close, or an empty string."""
        return self._closing[1]

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> str | bytes:
        message = await self._messages.get()
        if message is None:
            raise StopAsyncIteration
        payload, isBinary = message
        return payload if isBinary else payload.decode()

    async def receive(self) -> str | bytes:
        """
        Wait for a message.

        @raise WebSocketClosed: If the WebSocket is closed.
        @raise RuntimeError: If another task is already waiting for a message.
        """
        try:
            return await anext(self)
        except StopAsyncIteration:
            raise WebSocketClosed(*self._closing) from None

    async def receiveJSON(self) -> Any:
        """
        Wait for a message, decoded as JSON.

        @raise MalformedMessage: If it is not JSON; a subclass of L{ValueError}.
        @raise WebSocketClosed: If the WebSocket is closed.
        """
        message = await self.receive()
        try:
            return json.decode(message)
        except (ValueError, RecursionError) as error:
            raise MalformedMessage(f"the message is not JSON: {error}") from None

    async def send(self, message: str | bytes | bytearray | memoryview) -> None:
        """
        Send a message, and wait until the client can receive more.

        @param message: Text, or bytes.
        @raise WebSocketClosed: If the WebSocket is closed.
        @raise TypeError: If the message is neither text nor bytes.
        """
        connection = self._connection
        if connection is None or not connection.isOpen:
            raise WebSocketClosed(*self._closing)
        if isinstance(message, str):
            payload = message.encode()
            connection.sendText(payload)
        elif isinstance(message, bytes | bytearray | memoryview):
            payload = bytes(message)
            connection.sendBinary(payload)
        else:
            raise TypeError(f"a message is text or bytes, not {message!r}; sendJSON sends values")
        waiting = connection.drained()
        self._unwaited += len(payload) + WRITE_COST
        if waiting is None and self._unwaited >= YIELD_SIZE:
            # This client keeps up: let other connections be served.
            waiting = Deferred()
            connection.factory.clock.callLater(0, waiting.callback, None)
        if waiting is not None:
            self._unwaited = 0
            await waiting

    async def sendJSON(self, value: Any) -> None:
        """
        Send a value as JSON, in a text message.

        @raise WebSocketClosed: If the WebSocket is closed.
        @raise TypeError: If a part of it cannot be encoded.
        """
        await self.send(json.encode(value).decode())

    async def close(self, code: int = _NORMAL, reason: str = "") -> None:
        """
        Close, and wait at most 5 seconds for the client's close.

        @param code: 1000, another code of RFC 6455 section 7.4 that may be sent, or 3000 to 4999.
        @param reason: At most 123 bytes in UTF-8.
        @raise ValueError: If the code may not be sent, or the reason is too long.
        """
        encoded = reason.encode()
        if len(encoded) > _LONGEST_REASON:
            raise ValueError(f"a close reason has at most {_LONGEST_REASON} bytes")
        if not (1000 <= code <= 1003 or 1007 <= code <= 1014 or 3000 <= code <= 4999):
            raise ValueError(f"{code} is not a valid close code")
        connection = self._connection
        if connection is not None:
            connection.close(code, encoded)
            await self._gone.wait(self._connection is not None)


@implementer(IPushProducer)
class _InputProducer:
    """The producer of the stream of messages."""

    def __init__(self, connection: "WebSocketConnection") -> None:
        self._connection = connection

    def pauseProducing(self) -> None:
        """Pause reading."""
        self._connection.setReading(False)

    def resumeProducing(self) -> None:
        """Resume reading."""
        self._connection.setReading(True)

    def stopProducing(self) -> None:
        """Do nothing: the end of the stream follows."""


class _HandlerReceiver:
    """
    Passes messages from a connection to its handler.

    @ivar isIdle: Always true, as a handler owes no replies.
    """

    isIdle = True

    def __init__(self, socket: WebSocket) -> None:
        self.socket = socket
        self.task: _SocketTask | None = None

    def received(self, payload: bytes, isBinary: bool) -> None:
        """Buffer a message for the handler."""
        self.socket._messages.put((payload, isBinary))

    def whenIdle(self) -> Deferred[None]:
        """Return a Deferred that has fired."""
        return succeed(None)

    def lost(self) -> None:
        """End the stream of messages, and cancel the handler if its route asks for it."""
        socket = self.socket
        assert socket._connection is not None
        socket._closing = socket._connection.closing
        socket._messages.end()
        if self.task is not None:
            self.task.cancel()

    def forget(self) -> None:
        """Forget the connection."""
        socket = self.socket
        socket._connection = self.task = None
        socket._gone.notify()


class _SocketTask(Task):
    """Runs the handler of a WebSocket."""

    __slots__ = ("_name", "_socket")

    def __init__(self, handler: WebSocketHandler, socket: WebSocket, name: str) -> None:
        super().__init__(_run(handler, socket))
        self._socket = socket
        self._name = name

    def onResult(self, value: Any) -> None:
        """Close, as the handler has ended."""
        self._close(_NORMAL)

    def onError(self, error: BaseException) -> None:
        """Log the error, unless it results from the close, and close."""
        # A close of ours ends the handler before its frame is sent.
        isClosed = self._socket.closeCode is not None or not self._socket.isOpen
        if isClosed and isinstance(error, WebSocketClosed | CancelledError):
            return
        request = self._socket.request
        if isinstance(error, MalformedMessage):
            _limited.warn(
                "malformed",
                "the handler {name} of the WebSocket {url} got a message that is not JSON",
                name=self._name,
                url=request.path,
            )
            self._close(_INVALID)
            return
        _log.failure(
            "the handler {name} of the WebSocket {url} failed",
            Failure(error),
            name=self._name,
            # Without the query, which may contain secrets.
            url=request.originalUrl.partition("?")[0],
        )
        self._close(_INTERNAL)

    def _close(self, code: int) -> None:
        connection = self._socket._connection
        if connection is not None:
            connection.close(code)


async def _run(handler: WebSocketHandler, socket: WebSocket) -> None:
    await resolve(handler(socket))


async def _prepareUpgrade(res: HTTPResponse) -> Mapping[str, str | Sequence[str]]:
    """Run the hooks of middleware, and return the fields to add to the response."""
    res._checkUnanswered()
    res.statusCode = 101
    if res._hooks is not None:
        res._hooks.runBeforeHead()
        await waitForAll(res._hooks.startHolds())
    dropContent(res._fields, res.statusCode)
    return {name: value for key, (name, value) in res._fields.items() if key not in _OWN_FIELDS}


def webSocketHandler(
    handler: WebSocketHandler,
    subprotocols: Sequence[str],
    cancelOnDisconnect: bool,
    typed: Any = None,
) -> Callable[[HTTPRequest, HTTPResponse], Any]:
    """
    Make a request handler that upgrades requests to WebSockets.

    @param subprotocols: The subprotocols that the handler supports.
    @param cancelOnDisconnect: Whether the handler is cancelled when its WebSocket closes.
    @param typed: Reads the parameters of a handler that has others than the WebSocket, see
        C{TypedSocket}; C{None} for a handler of the WebSocket alone.
    @raise TypeError: If the handler is invalid.
    """
    if isinstance(subprotocols, str):
        raise TypeError("subprotocols are a list of names")
    if not callable(handler):
        raise TypeError(f"a handler is a function, not {handler!r}")
    if isgeneratorfunction(handler) or isasyncgenfunction(handler):
        raise TypeError(f"{nameOf(handler)} is a generator, which would not run; use socket.send")
    try:
        if typed is None:
            signature(handler).bind(None)
    except TypeError:
        raise TypeError(
            f"{nameOf(handler)} does not take (socket); the request is socket.request"
        ) from None
    known = tuple(subprotocols)

    def refuse(res: HTTPResponse, refused: HandshakeRefused) -> None:
        # A response and not an error, as a full server would fill its log.
        res.status(refused.statusCode).header(refused.headers)
        res.json({"error": refused.message})

    @wraps(handler)
    async def upgrade(req: HTTPRequest, res: HTTPResponse) -> None:
        webSockets = req.app.webSockets
        try:
            handshake = webSockets.readHandshake(req.raw, req.ip, req.host, req.secure, known)
        except HandshakeRefused as error:
            refuse(res, error)
            return
        prepared = None if typed is None else await typed.prepare(req)
        run: WebSocketHandler = handler if prepared is None else prepared
        receivers: list[_HandlerReceiver] = []

        def makeReceiver(connection: "WebSocketConnection") -> _HandlerReceiver:
            receivers.append(_HandlerReceiver(WebSocket(req, connection)))
            return receivers[0]

        try:
            fields = await _prepareUpgrade(res)
            if req.raw.disconnected:
                if prepared is not None:
                    prepared.discard()
                return
            webSockets.accept(req.raw, req.ip, evolve(handshake, fields=fields), makeReceiver)
        except HandshakeRefused as error:
            # The server became full, or began draining, while the session was saved.
            if prepared is not None:
                prepared.discard()
            refuse(res, error)
            return
        except BaseException as error:
            if prepared is not None:
                prepared.discard(error)
            raise
        res._ended = True
        res._emitFinish()
        receiver = receivers[0]
        task = _SocketTask(run, receiver.socket, nameOf(handler))
        if cancelOnDisconnect and receiver.socket.isOpen:
            receiver.task = task
        task.step()

    return upgrade
