"""WebSocket below the HTTP application: its AsyncAPI channel, and its transport, imported late."""

from collections.abc import Mapping
from typing import Any

from twisted.internet.defer import Deferred, gatherResults, succeed
from zope.interface import implementer

from storagegate.core.invoker import MethodEntry
from storagegate.gateway.asyncapi import ID, Channel, message, objectSchema
from storagegate.gateway.host import TransportContext
from storagegate.gateway.openapi import reference
from storagegate.gateway.transports.registry import IGuest, InvokedTransport, loadReference
from storagegate.gateway.transports.websocket import OriginRule, WebSocketOptions


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
