"""
Services over WebSocket, on the port of HTTP.

L{WebSocketTransport} accepts handshakes and closes connections. The module of connections imports
Autobahn, which takes 6 MB and 60 ms: it is imported with the first handshake.
"""

from functools import partial
from typing import TYPE_CHECKING, Any

from twisted.internet.defer import Deferred, succeed
from twisted.internet.task import LoopingCall, deferLater
from zope.interface import implementer

from storagegate.core.context import ClientInfo
from storagegate.core.task import IdleWaiters
from storagegate.gateway.host import TransportContext
from storagegate.gateway.messages.interfaces import ListenerState
from storagegate.gateway.transports.http.call import Clients, httpError
from storagegate.gateway.transports.registry import IGuest, InvokedTransport
from storagegate.gateway.transports.websocket import PROTOCOL, OriginRule, WebSocketOptions
from storagegate.gateway.transports.websocket.handshake import (
    Handshake,
    HandshakeRefused,
    readHandshake,
)

if TYPE_CHECKING:
    from storagegate.gateway.transports.websocket.connection import (
        Peer,
        WebSocketConnection,
        WebSocketFactory,
    )


@implementer(IGuest)
class WebSocketTransport(InvokedTransport):
    """The WebSockets of a gateway."""

    def __init__(self, host: TransportContext, options: WebSocketOptions) -> None:
        self.host = host
        self.options = options
        self._origins = OriginRule(options.allowedOrigins)
        self.listener = ListenerState(host.invoker, host.clock)
        self._meter = host.meter(PROTOCOL)
        self._meter.connections = lambda: self.connections
        self._factory: WebSocketFactory | None = None
        self._clients = Clients()
        self._peers: dict[WebSocketConnection, Peer] = {}
        self._gone = IdleWaiters()
        self._isLeaving = False
        self._graces: tuple[float, float] | None = None
        self._closedLate: Deferred[None] = succeed(None)
        self._watch = LoopingCall(self._checkPeers)
        self._watch.clock = host.clock

    @property
    def connections(self) -> int:
        """Count the WebSockets."""
        return len(self._peers)

    def install(self, application: Any) -> None:
        """
        Answer requests for the path of the options.

        @param application: The application of the listener, or a router.
        """
        application.all(self.options.path or "/", self.answer)

    def answer(self, req: Any, res: Any) -> None:
        """
        Make a WebSocket of a request, or respond with an error.

        @param req: The request of the application.
        @param res: Its response, not yet begun.
        """
        raw, options = req.raw, self.options
        if raw.disconnected:
            # Its connection would not report the disconnect any more.
            return
        if self._factory is None:
            from storagegate.gateway.transports.websocket.connection import WebSocketFactory

            self._factory = WebSocketFactory(self.host.clock, options, self._forget)
            if self._graces is not None:
                self._closedLate = self.close(*self._graces)
        try:
            handshake = readHandshake(
                raw.method, raw.version, raw.headers, raw.secure, self._origins, options
            )
            if self.listener.isDraining or len(self._peers) >= options.maxConnections:
                raise HandshakeRefused("UNAVAILABLE", "No further connections are taken", 503)
        except HandshakeRefused as error:
            status, body = httpError(error)
            self.host.nameTrace(raw.headers, res)
            res.status(status).header(error.fields).json(body)
            return
        connection = self._factory.buildConnection(handshake)
        connection.meter = self._meter
        connection.openedAt = self.host.clock.seconds()
        self._meter.accepted += 1
        headers = {
            name.decode("latin-1"): value.decode("latin-1") for name, value in raw.headers.items()
        }
        client = self._clients.of(req)
        peer = self._makePeer(handshake, connection, client, headers)
        self._peers[connection] = connection.receiver = peer
        if not self._watch.running:
            self._watch.start(options.pingSeconds, now=False)
        raw.upgrade(connection)
        if self._isLeaving:
            connection.leave()

    def _makePeer(
        self,
        handshake: Handshake,
        connection: "WebSocketConnection",
        client: ClientInfo,
        headers: dict[str, str],
    ) -> "Peer":
        from storagegate.gateway.transports.websocket.connection import BinaryPeer, MessagePeer

        make = BinaryPeer if handshake.format == "binary" else MessagePeer
        return make(self, connection, client, headers)

    def close(self, graceSeconds: float, idleGraceSeconds: float = 0.0) -> Deferred[None]:
        """
        Take no further calls, and close each WebSocket when its calls are answered.

        @param graceSeconds: After this, calls are cancelled, and clients that do not go then are
            dropped soon.
        @param idleGraceSeconds: How long further calls, and WebSockets, are taken before, where
            another process serves the same address. A WebSocket on which nothing is in flight is
            closed meanwhile behind a reply, so that no call crosses with the close.
        @return: Fires when all connections are gone.
        """
        self._graces = graceSeconds, idleGraceSeconds
        if self._factory is None:
            return succeed(None)
        return Deferred.fromCoroutine(self._close(graceSeconds, idleGraceSeconds))

    def closeLate(self) -> Deferred[None]:
        """Wait for the first WebSocket, if it was requested while HTTP closed."""
        return self._closedLate

    async def _close(self, graceSeconds: float, idleGraceSeconds: float) -> None:
        clock = self.host.clock
        ending = clock.callLater(graceSeconds, self._end)
        if idleGraceSeconds:
            self._isLeaving = True
            for connection in list(self._peers):
                connection.leave()
            # And two turns, for delayed calls run before sockets are read.
            for seconds in (min(idleGraceSeconds, graceSeconds), 0, 0):
                await deferLater(clock, seconds)
        self.listener.isDraining = True
        for connection, peer in list(self._peers.items()):
            peer.session.whenIdle().addCallback(partial(_goAway, connection))
        await self._gone.wait(bool(self._peers))
        if ending.active():
            ending.cancel()

    def _end(self) -> None:
        for connection in list(self._peers):
            connection.goAway()

    def _checkPeers(self) -> None:
        for connection in list(self._peers):
            connection.checkAlive()

    def _forget(self, connection: "WebSocketConnection") -> None:
        peer = self._peers.pop(connection)
        # Each refers to the other; the session may have calls that go on.
        vars(peer).pop("session", None)
        self._meter.ended(self.host.clock.seconds() - connection.openedAt)
        if not self._peers:
            if self._watch.running:
                self._watch.stop()
            self._gone.notify()


def _goAway(connection: "WebSocketConnection", result: Any) -> None:
    connection.goAway()
