"""
WebSocket in memory, for tests.

MessagePack is written and read by the package C{msgpack}, and not by the server's codec, so that a
test compares two implementations.
"""

from collections.abc import Mapping
from typing import Any

import msgpack

from storagegate.core.codecs import JSON
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
        self._format = format
        client.watch(self._deliver)

    def write(self, type: int, message: dict[str, Any]) -> None:
        """Send a message."""
        if self._format == "binary":
            self.socket.send(encodeFrame(type, JSON.encode(message)))
        elif self._format == "msgpack":
            self.socket.send(msgpack.packb(makeMessage(type, message)))
        else:
            self.socket.send(JSON.encode(makeMessage(type, message)).decode())

    def _deliver(self) -> bool:
        found = self.socket.take()
        for each in found:
            data = each if isinstance(each, bytes) else each.encode()
            if self._format == "binary":
                decoder = FrameDecoder(_MAX_LENGTH)
                decoder.feed(data)
                frame = decoder.next()
                assert frame is not None, "a message has one frame"
                self.receiveFrame(frame.type, JSON.decode(frame.payload or b"{}"))
            elif self._format == "msgpack":
                self.receiveMessage(msgpack.unpackb(data))
            else:
                self.receiveMessage(JSON.decode(data))
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
