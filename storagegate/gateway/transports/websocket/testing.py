"""
WebSocket in memory, for tests.

MessagePack is written and read by the package C{msgpack}, and not by the server's codec, so that a
test compares two implementations.
"""

from collections.abc import Mapping
from typing import Any

import msgpack

from storagegate.gateway.client.formats import WEBSOCKET_FORMATS, MessageFormat, ObjectFormat
from storagegate.gateway.testing import CallConnection, GatewayClient
from storagegate.gateway.transports.websocket import MESSAGE_FORMATS
from storagegate.gateway.transports.websocket.listener import WebSocketTransport
from storagegate.net.websocket.testing import TestWebSocket

_MAX_LENGTH = 1024 * 1024 * 1024


class _OtherMsgpack:
    """MessagePack of another package."""

    isBinary = True

    def encode(self, value: Any) -> bytes:
        """Encode a value."""
        data: bytes = msgpack.packb(value)
        return data

    def encodeAround(self, value: Any, message: Any) -> bytes:
        """Encode a message around a value."""
        return self.encode(message)

    def decode(self, data: bytes) -> Any:
        """Decode a value."""
        return msgpack.unpackb(data)


_FORMATS: Mapping[str, MessageFormat] = {
    **WEBSOCKET_FORMATS,
    "msgpack": ObjectFormat(_OtherMsgpack()),
}


class WebSocketTestConnection(CallConnection):
    """
    A WebSocket of a test.

    @ivar socket: The WebSocket: C{closeCode}, C{drop()}, C{send(bytes)} for raw messages.
    """

    def __init__(self, client: GatewayClient, socket: TestWebSocket, format: str) -> None:
        super().__init__(client)
        self.socket = socket
        self._format = _FORMATS[format]
        client.watch(self._deliver)

    def write(self, type: int, message: dict[str, Any]) -> None:
        """Send a message."""
        data = self._format.encode(type, message)
        self.socket.send(data if self._format.isBinary else data.decode())

    def _deliver(self) -> bool:
        found = self.socket.take()
        for each in found:
            data = each if isinstance(each, bytes) else each.encode()
            self.receive(self._format.decode(data, _MAX_LENGTH))
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
