"""WebSocket in memory, for tests."""

from collections.abc import Mapping
from typing import Any

from storagegate.core.codecs import CODECS, JSON
from storagegate.gateway.messages.frames import FrameDecoder, encodeFrame
from storagegate.gateway.testing import CallConnection, GatewayClient, makeMessage
from storagegate.gateway.transports.websocket import MESSAGE_FORMATS
from storagegate.gateway.transports.websocket.listener import WebSocketTransport
from storagegate.net.websocket.testing import TestWebSocket

_MAX_LENGTH = 1024 * 1024 * 1024


class WebSocketTestConnection(CallConnection):
    """
    A WebSocket of a test.

    @ivar socket: The WebSocket: C{closeCode}, C{drop()}, C{send(bytes)} for raw messages.
    """

    def __init__(self, client: GatewayClient, socket: TestWebSocket, format: str) -> None:
        super().__init__(client)
        self.socket = socket
        self._codec = None if format == "binary" else CODECS[format]
        client.watch(self._deliver)

    def write(self, type: int, message: dict[str, Any]) -> None:
        """Send a message."""
        codec = self._codec
        if codec is None:
            self.socket.send(encodeFrame(type, JSON.encode(message)))
            return
        encoded = codec.encode(makeMessage(type, message))
        self.socket.send(encoded if codec.isBinary else encoded.decode())

    def _deliver(self) -> bool:
        found = self.socket.take()
        for each in found:
            data = each if isinstance(each, bytes) else each.encode()
            if self._codec is None:
                decoder = FrameDecoder(_MAX_LENGTH)
                decoder.feed(data)
                frame = decoder.next()
                assert frame is not None, "a message has one frame"
                self.receiveFrame(frame.type, JSON.decode(frame.payload or b"{}"))
            else:
                self.receiveMessage(self._codec.decode(data))
        return bool(found)


def connect(
    client: GatewayClient,
    transport: WebSocketTransport,
    carrier: Any,
    format: str = "json",
    headers: Mapping[str, str] | None = None,
) -> WebSocketTestConnection:
    """
    Connect a client.

    @param carrier: The HTTP transport.
    @param format: C{json}, C{binary} or C{msgpack}.
    @param headers: Further fields of the handshake.
    @raise WebSocketRefused: If the handshake is refused.
    """
    if format not in MESSAGE_FORMATS:
        raise ValueError(f"WebSockets speak {', '.join(MESSAGE_FORMATS)}, not {format!r}")
    # Imported late: the HTTP module does not depend on this transport.
    from storagegate.gateway.transports.http.testing import connect as connectHTTP

    http = connectHTTP(client, carrier, None, [transport])
    socket = http.webSocket(transport.options.path or "/", headers=headers, subprotocols=[format])
    return WebSocketTestConnection(client, socket, format)
