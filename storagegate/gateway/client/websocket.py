"""Calls over WebSocket."""

from functools import partial
from types import SimpleNamespace
from typing import Any

from autobahn.twisted.websocket import WebSocketClientFactory, WebSocketClientProtocol
from autobahn.websocket.types import ConnectingRequest
from twisted.internet.defer import Deferred
from twisted.internet.error import ConnectionDone
from twisted.internet.interfaces import IHandshakeListener
from twisted.internet.protocol import connectionDone
from twisted.python.failure import Failure
from zope.interface import implementer

from storagegate.core.errors import codedError
from storagegate.core.streams import SharedFuture
from storagegate.gateway.client.connections import CallMultiplexer, ReconnectingTransport
from storagegate.gateway.client.formats import UNKNOWN, WEBSOCKET_FORMATS, Reply
from storagegate.gateway.client.transports import (
    CONNECT_SECONDS,
    ClientTarget,
    checkedFields,
    tooLarge,
)
from storagegate.net.http.clientconnection import openConnection
from storagegate.net.websocket.connection import AUTOBAHN_LOG

_TOO_BIG = 1009
"""The close code for a message that is too large (RFC 6455, section 7.4.1)."""

_PING_SECONDS = 20
"""Interval of pings on a silent connection: proxies close one after 30 s or more."""

_PONG_SECONDS = 20
"""A server that does not answer a ping in this time is gone."""


@implementer(IHandshakeListener)
class WebSocketClientConnection(WebSocketClientProtocol):
    """
    A WebSocket to a gateway.

    The handshake of WebSocket begins after the certificate of the server is verified.

    @ivar calls: The calls of the connection.
    @ivar opened: Whether messages may be sent, or the reason of a refusal.
    """

    log = AUTOBAHN_LOG

    def __init__(self, target: ClientTarget) -> None:
        super().__init__()
        # Autobahn sets it when the handshake begins.
        self.localCloseCode = None
        self._format = WEBSOCKET_FORMATS[target.format or "json"]
        self._limit = target.maxMessageBytes
        self._host = f"[{target.host}]" if ":" in target.host else target.host
        self._handshake: SharedFuture[None] = SharedFuture()
        self._isBegun = False
        self.opened: SharedFuture[None] = SharedFuture()
        self.calls = CallMultiplexer(self, self._format)

    def connectionMade(self) -> None:
        """Wait for L{begin}."""

    def onConnecting(self, details: Any) -> ConnectingRequest:
        """Return the request of the handshake; Autobahn knows no IPv6 address with brackets."""
        factory = self.factory
        return ConnectingRequest(
            host=self._host,
            port=factory.port,
            resource=factory.resource,
            headers=factory.headers,
            useragent=factory.useragent,
            protocols=factory.protocols,
        )

    def begin(self) -> Deferred[None]:
        """
        Begin the handshake of WebSocket.

        @return: Fires when messages may be sent. Cancelling it closes the connection.
        """
        self._isBegun = True
        super().connectionMade()
        transport: Any = self.transport
        transport.registerProducer(self.calls, True)
        return self.opened.wait(self.abort)

    def whenSecure(self) -> Deferred[None]:
        """Wait for the end of the handshake of TLS."""
        return self._handshake.wait(self.abort)

    def handshakeCompleted(self) -> None:
        """Record the end of the handshake of TLS."""
        self._handshake.set(None)

    def onOpen(self) -> None:
        """Allow messages to be sent."""
        self.opened.set(None)

    def onMessage(self, payload: bytes, isBinary: bool) -> None:
        """Handle a message."""
        try:
            reply = self._format.decode(payload, self._limit)
        except ValueError:
            # The application's formatResponse wrote it.
            text = payload.decode("utf-8", "replace")
            reply = Reply(UNKNOWN, None, text, len(payload))
        self.calls.receive(reply)

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """End the calls."""
        self._handshake.fail(reason.value or ConnectionDone())
        if self._isBegun:
            super().connectionLost(reason)
        self._end(reason.value, "the connection was lost")

    def onClose(self, wasClean: bool, code: int, reason: str) -> None:
        """End the calls."""
        self._end(None, str(reason or code))

    def _end(self, reason: BaseException | None, text: str) -> None:
        self.opened.fail(codedError("UNAVAILABLE", f"The handshake was refused: {text:.270}"))
        if self.localCloseCode == _TOO_BIG:
            self.calls.fail(tooLarge(self._limit))
        self.calls.lost(reason)

    # For the calls

    def write(self, data: bytes) -> None:
        """Send a message."""
        self.sendMessage(data, isBinary=self._format.isBinary)

    def setReading(self, wanted: bool) -> None:
        """Resume or pause reading."""
        transport: Any = self.transport
        transport.resumeProducing() if wanted else transport.pauseProducing()

    def leave(self) -> None:
        """Close the connection."""
        self.sendClose(1000)

    def abort(self) -> None:
        """Close the connection immediately."""
        transport: Any = self.transport
        transport.abortConnection()


def _factory(target: ClientTarget) -> WebSocketClientFactory:
    """
    Make the factory of connections.

    @raise ServiceError: C{INVALID_ARGUMENT}: a header field is invalid.
    """
    scheme = "ws" if target.tls is None else "wss"
    # For the port and the path; see onConnecting.
    url = f"{scheme}://localhost:{target.port or 80}{target.path}"
    factory = WebSocketClientFactory(
        url,
        headers={**checkedFields(target.headers)},
        protocols=[target.format or "json"],
        useragent=target.userAgent,
        reactor=target.reactor,
    )
    factory.log = AUTOBAHN_LOG
    # Autobahn's own timer would keep the reactor awake.
    factory._batched_timer = SimpleNamespace(call_later=target.reactor.callLater)
    factory.setProtocolOptions(
        maxMessagePayloadSize=target.maxMessageBytes,
        maxFramePayloadSize=target.maxMessageBytes,
        # Close with a code on a message that is too large.
        failByDrop=False,
        openHandshakeTimeout=CONNECT_SECONDS,
        closeHandshakeTimeout=1,
        autoPingInterval=_PING_SECONDS,
        autoPingTimeout=_PONG_SECONDS,
    )
    factory.noisy = False
    factory.protocol = partial(WebSocketClientConnection, target)  # type: ignore[assignment]
    return factory


def makeTransport(target: ClientTarget) -> ReconnectingTransport:
    """
    Make the transport.

    @raise ValueError: If there is no such format.
    """
    if target.format not in ("", *WEBSOCKET_FORMATS):
        names = ", ".join(WEBSOCKET_FORMATS)
        raise ValueError(f"WebSockets speak {names}, not {target.format!r}")

    async def connect() -> CallMultiplexer:
        connection: WebSocketClientConnection = await openConnection(
            target.endpoint,
            target.reactor,
            CONNECT_SECONDS,
            target.context,
            factory=_factory(target),
        )
        await connection.begin()
        return connection.calls

    return ReconnectingTransport(connect)
