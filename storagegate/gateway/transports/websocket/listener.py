"""Services over WebSocket, on the port of HTTP."""

from functools import partial
from typing import TYPE_CHECKING, Any

from twisted.internet.defer import Deferred
from zope.interface import implementer

from storagegate.core.context import ClientInfo
from storagegate.gateway.host import TransportContext
from storagegate.gateway.messages.interfaces import ListenerState
from storagegate.gateway.transports.http.call import Clients, httpError
from storagegate.gateway.transports.registry import IGuest, InvokedTransport
from storagegate.gateway.transports.websocket import MESSAGE_FORMATS, PROTOCOL, WebSocketOptions
from storagegate.net.websocket.handshake import HandshakeRefused
from storagegate.net.websocket.server import WebSocketServer

if TYPE_CHECKING:
    from storagegate.gateway.transports.websocket.peer import Peer
    from storagegate.net.websocket.connection import WebSocketConnection


@implementer(IGuest)
class WebSocketTransport(InvokedTransport):
    """The WebSockets of a gateway."""

    def __init__(self, host: TransportContext, options: WebSocketOptions) -> None:
        self.host = host
        self.options = options
        self.listener = ListenerState(
            host.invoker, host.clock, maxCallsPerAddress=options.maxCallsPerAddress
        )
        meter = host.meter(PROTOCOL)
        meter.connections = lambda: self.connections
        self._server = WebSocketServer(host.clock, options, meter, self._refuseCalls, host.budget)
        self._clients = Clients()

    @property
    def connections(self) -> int:
        """Count the WebSockets."""
        return self._server.connections

    def install(self, application: Any) -> None:
        """
        Serve the path of the options.

        @param application: The application of the listener, or a router.
        """
        application.all(self.options.path or "/", self.answer)

    def answer(self, req: Any, res: Any) -> None:
        """
        Upgrade a request to a WebSocket, or respond with an error.

        @param req: The request of the application.
        @param res: Its response, before its headers are sent.
        """
        raw = req.raw
        if raw.disconnected:
            # The connection would no longer report the disconnect.
            return
        client = self._clients.of(req)
        address = client.address
        try:
            host = raw.headers.get(b"host", b"").decode("latin-1")
            handshake = self._server.readHandshake(raw, address, host, raw.secure, MESSAGE_FORMATS)
        except HandshakeRefused as error:
            status, body = httpError(error)
            self.host.nameTrace(raw.headers, res)
            res.status(status).header(error.headers).json(body)
            return
        headers = {
            name.decode("latin-1"): value.decode("latin-1") for name, value in raw.headers.items()
        }
        makePeer = partial(self._makePeer, client=client, headers=headers)
        self._server.accept(raw, address, handshake, makePeer)

    def _makePeer(
        self, connection: "WebSocketConnection", client: ClientInfo, headers: dict[str, str]
    ) -> "Peer":
        from storagegate.gateway.transports.websocket.peer import makePeer

        return makePeer(self, connection, client, headers)

    def _refuseCalls(self) -> None:
        self.listener.isDraining = True

    def close(self, graceSeconds: float, idleGraceSeconds: float = 0.0) -> Deferred[None]:
        """
        Accept no further calls, and close, see
        L{WebSocketServer.close<storagegate.net.websocket.server.WebSocketServer.close>}.
        """
        return self._server.close(graceSeconds, idleGraceSeconds)

    def closeLate(self) -> Deferred[None]:
        """Wait for the first WebSocket if it was requested while HTTP closed."""
        return self._server.closeLate()
