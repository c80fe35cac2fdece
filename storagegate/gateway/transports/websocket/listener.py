"""
Services over WebSocket, on the port of HTTP.

L{WebSocketTransport} accepts handshakes and closes connections; L{WebSocketFactory} holds the
options of Autobahn. This module imports Autobahn, so it is imported with the first request, see
L{storagegate.gateway.transports.websocket.guest}.
"""

from collections.abc import Callable, Mapping
from functools import partial
from types import SimpleNamespace
from typing import Any

from autobahn.twisted.websocket import WebSocketServerFactory
from autobahn.websocket.compress import PerMessageDeflateOffer, PerMessageDeflateOfferAccept
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import LoopingCall, deferLater

from storagegate.core.context import ClientInfo
from storagegate.core.invoker import MethodEntry
from storagegate.gateway.asyncapi import ID, Channel, message, objectSchema
from storagegate.gateway.host import TransportContext
from storagegate.gateway.messages.interfaces import ListenerState
from storagegate.gateway.openapi import reference
from storagegate.gateway.transports.http.call import Clients, httpError
from storagegate.gateway.transports.websocket import OriginRule, WebSocketOptions
from storagegate.gateway.transports.websocket.connection import (
    CLOSE_SECONDS,
    PROTOCOL,
    BinaryPeer,
    MessagePeer,
    NullLogger,
    WebSocketConnection,
)
from storagegate.gateway.transports.websocket.handshake import (
    Handshake,
    HandshakeRefused,
    readHandshake,
)

# Memory of a compressor: 16 KiB instead of 256 KiB, for each of ten thousand connections.
_WINDOW_BITS = 11
_MEMORY_LEVEL = 4


class WebSocketFactory(WebSocketServerFactory):
    """Makes connections, all with the same options."""

    log = NullLogger()

    def __init__(
        self,
        clock: IReactorTime,
        maxMessageSize: int,
        compresses: bool,
        onLost: Callable[[WebSocketConnection], None],
    ) -> None:
        """
        @param compresses: Whether permessage-deflate is agreed to.
        @param onLost: Called when the connection is gone.
        """
        super().__init__(server="", reactor=clock)
        self.onLost = onLost
        self.clock = clock
        # Else it is the process's reactor that Autobahn asks for timers.
        self._batched_timer = SimpleNamespace(call_later=clock.callLater)
        self.setProtocolOptions(
            # Versions before the RFC have no clients any more.
            versions=[13],
            maxMessagePayloadSize=maxMessageSize,
            failByDrop=False,
            # The whole handshake is here when a connection is made.
            openHandshakeTimeout=0,
            closeHandshakeTimeout=CLOSE_SECONDS,
            perMessageCompressionAccept=_acceptDeflate if compresses else None,
        )

    def buildConnection(self, handshake: Handshake) -> WebSocketConnection:
        """Make a connection after a handshake."""
        connection = WebSocketConnection(handshake)
        connection.factory = self
        return connection


def _acceptDeflate(offers: list[Any]) -> Any:
    for offer in offers:
        if isinstance(offer, PerMessageDeflateOffer):
            bits = offer.request_max_window_bits
            return PerMessageDeflateOfferAccept(
                offer,
                window_bits=min(bits, _WINDOW_BITS) if bits else _WINDOW_BITS,
                mem_level=_MEMORY_LEVEL,
            )
    return None


class WebSocketTransport:
    """The WebSockets of a gateway."""

    def __init__(self, host: TransportContext, options: WebSocketOptions) -> None:
        """
        @raise ValueError: If an allowed origin is none.
        """
        self._host = host
        self._options = options
        self._origins = OriginRule(options.allowedOrigins)
        self._listener = ListenerState(host.invoker, host.clock)
        self._meter = host.meter(PROTOCOL)
        self._meter.connections = lambda: len(self._peers)
        self._factory = WebSocketFactory(
            host.clock, options.maxMessageSize, options.enableCompression, self._forget
        )
        self._clients = Clients()
        self._peers: dict[WebSocketConnection, MessagePeer | BinaryPeer] = {}
        self._gone: list[Deferred[None]] = []
        self._isLeaving = False
        self._watch = LoopingCall(self._checkPeers)
        self._watch.clock = host.clock

    @property
    def connections(self) -> int:
        """Count the WebSockets."""
        return len(self._peers)

    def answer(self, req: Any, res: Any) -> None:
        """Make a WebSocket of a request, or say why not."""
        raw, options = req.raw, self._options
        if raw.disconnected:
            # Its connection would not report the disconnect any more.
            return
        try:
            handshake = readHandshake(
                raw.method,
                raw.version,
                raw.headers,
                raw.secure,
                self._origins,
                options,
            )
            self._checkLimit()
        except HandshakeRefused as error:
            status, body = httpError(error)
            self._host.nameTrace(raw.headers, res)
            res.status(status).header(error.fields).json(body)
            return
        connection = self._factory.buildConnection(handshake)
        connection.meter = self._meter
        connection.openedAt = self._host.clock.seconds()
        self._meter.accepted += 1
        headers = {
            name.decode("latin-1"): value.decode("latin-1") for name, value in raw.headers.items()
        }
        client = self._clients.of(req)
        self._peers[connection] = connection.receiver = self._makePeer(
            handshake, connection, client, headers
        )
        if not self._watch.running:
            self._watch.start(options.pingSeconds, now=False)
        raw.upgrade(connection)
        if self._isLeaving:
            connection.leave()

    def _checkLimit(self) -> None:
        if self._listener.isDraining or len(self._peers) >= self._options.maxConnections:
            raise HandshakeRefused("UNAVAILABLE", "No further connections are taken", 503)

    def _makePeer(
        self,
        handshake: Handshake,
        connection: WebSocketConnection,
        client: ClientInfo,
        headers: dict[str, str],
    ) -> MessagePeer | BinaryPeer:
        host, options, listener = self._host, self._options, self._listener
        if handshake.format == "binary":
            return BinaryPeer(host, options, connection, listener, client, headers)
        return MessagePeer(host, options, handshake.format, connection, listener, client, headers)

    def close(self, graceSeconds: float, idleGraceSeconds: float = 0.0) -> Deferred[None]:
        """
        Take no further calls, and close each WebSocket when its calls are answered.

        @param idleGraceSeconds: How long further calls, and WebSockets, are taken before, where
            another process serves the same address. A WebSocket on which nothing is in flight is
            closed meanwhile behind an answer, so that no call crosses with the close.
        @return: Fires when all connections are gone. Calls that are not answered after
            C{graceSeconds} are cancelled, and clients that do not go then are dropped soon.
        """
        return Deferred.fromCoroutine(self._close(graceSeconds, idleGraceSeconds))

    async def _close(self, graceSeconds: float, idleGraceSeconds: float) -> None:
        clock = self._host.clock
        ending = clock.callLater(graceSeconds, self._end)
        if idleGraceSeconds:
            self._isLeaving = True
            for connection in list(self._peers):
                connection.leave()
            # And two turns, for what is due is called before sockets are read.
            for seconds in (min(idleGraceSeconds, graceSeconds), 0, 0):
                await deferLater(clock, seconds)
        self._listener.isDraining = True
        for connection, peer in list(self._peers.items()):
            peer.session.whenIdle().addCallback(partial(_goAway, connection))
        if self._peers:
            gone: Deferred[None] = Deferred()
            self._gone.append(gone)
            await gone
        if ending.active():
            ending.cancel()

    def _end(self) -> None:
        for connection in list(self._peers):
            connection.goAway()

    def _checkPeers(self) -> None:
        for connection in list(self._peers):
            connection.checkAlive()

    def _forget(self, connection: WebSocketConnection) -> None:
        del self._peers[connection]
        self._meter.ended(self._host.clock.seconds() - connection.openedAt)
        if not self._peers:
            if self._watch.running:
                self._watch.stop()
            gone, self._gone = self._gone, []
            for each in gone:
                each.callback(None)


def _goAway(connection: WebSocketConnection, result: Any) -> None:
    connection.goAway()


class WebSocketChannel(Channel):
    """The channel of WebSocket, whose messages have a type."""

    protocol = "ws"

    @property
    def address(self) -> str:
        """Return the path."""
        path: str = self.options.path
        return path

    def server(self) -> dict[str, Any]:
        """Describe the server, which is that of HTTP."""
        return {**super().server(), "pathname": self.options.path}

    def answer(self, bound: MethodEntry, data: Mapping[str, Any]) -> dict[str, Any]:
        """Describe a response or an item."""
        streams = bound.method.streamsResponses
        kind = {"const": "stream" if streams else "response"}
        answer: dict[str, Any] = {"id": ID, "type": kind, "data": data}
        if not streams:
            answer.update(method={"const": bound.name}, timestamp={"type": "integer"})
        return objectSchema(answer, "type", "data")

    def messages(self) -> dict[str, dict[str, Any]]:
        """Describe the messages that belong to no method."""
        detailed = {"allOf": [reference("Error"), {"properties": {"code": reference("ErrorCode")}}]}
        return {
            "clientItem": _typed("stream", {"data": {}}),
            "clientEnd": _typed("stream_end"),
            "cancel": _typed("cancel"),
            "end": _typed("stream_end"),
            "error": _typed("error", {"error": detailed}),
        }


def _typed(kind: str, more: Mapping[str, Any] | None = None) -> dict[str, Any]:
    return message(objectSchema({"id": ID, "type": {"const": kind}, **(more or {})}, "type"))
