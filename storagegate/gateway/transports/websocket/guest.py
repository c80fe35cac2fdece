"""WebSocket below the HTTP application: its AsyncAPI channel, and its transport, imported late."""

from typing import Any

from twisted.internet.defer import Deferred, gatherResults, succeed
from zope.interface import implementer

from storagegate.gateway.host import TransportContext
from storagegate.gateway.transports.registry import IGuest, InvokedTransport, loadReference
from storagegate.gateway.transports.websocket import OriginRule, WebSocketOptions

_TRANSPORT = "storagegate.gateway.transports.websocket.listener:WebSocketTransport"


@implementer(IGuest)
class WebSocketGuest(InvokedTransport):
    """The WebSockets of a gateway, as requests of an application ask for them."""

    def __init__(self, host: TransportContext, options: WebSocketOptions) -> None:
        self._host = host
        self._options = options
        self._transport: Any = None
        self._times: tuple[float, float] | None = None
        self._late: list[Deferred[None]] = []

    def install(self, application: Any) -> None:
        """
        Answer requests for the path of the options.

        @raise ValueError: If an allowed origin is none.
        """
        OriginRule(self._options.allowedOrigins)
        application.all(self._options.path or "/", self.answer)

    def answer(self, req: Any, res: Any) -> None:
        """Make a WebSocket of a request, or say why not."""
        if self._transport is None:
            # Autobahn takes 6 MB and 60 ms, which a gateway without WebSockets does not need.
            self._transport = loadReference(_TRANSPORT)(self._host, self._options)
            if self._times is not None:
                self._late.append(self._transport.close(*self._times))
        self._transport.answer(req, res)

    def close(self, graceSeconds: float, idleGraceSeconds: float = 0.0) -> Deferred[None]:
        """Close, see
        L{WebSocketTransport.close<storagegate.gateway.transports.websocket.listener.WebSocketTransport>}."""
        self._times = graceSeconds, idleGraceSeconds
        if self._transport is None:
            return succeed(None)
        closing: Deferred[None] = self._transport.close(graceSeconds, idleGraceSeconds)
        return closing

    def closeLate(self) -> Deferred[None]:
        """Wait for the first WebSocket, if it was requested while HTTP closed."""
        late, self._late = self._late, []
        return gatherResults(late).addCallback(lambda results: None)
