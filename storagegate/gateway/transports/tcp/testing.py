"""TCP in memory, for tests."""

from typing import Any

from twisted.internet.protocol import Protocol

from storagegate.gateway.client.formats import TCP_FORMATS
from storagegate.gateway.testing import CallConnection, GatewayClient
from storagegate.gateway.transports.tcp.listener import TCPTransport
from storagegate.net.testing import MemoryConnection

_MAX_LENGTH = 1024 * 1024 * 1024
"""The server enforces its own limits; the test client accepts any length."""


class _Receiver(Protocol):
    """Passes received bytes to the test connection."""

    def __init__(self, connection: "TCPTestConnection") -> None:
        self._connection = connection

    def dataReceived(self, data: bytes) -> None:
        """Pass the bytes on for decoding."""
        self._connection.dataReceived(data)


class TCPTestConnection(CallConnection):
    """
    A TCP connection of a test.

    @ivar connection: The connection in memory: C{isOver}, C{drop()}, C{setReading(False)}.
    """

    def __init__(self, client: GatewayClient, transport: TCPTransport, format: str) -> None:
        super().__init__(client)
        self._format = TCP_FORMATS[format]
        self._decoder: Any = self._format.makeDecoder(_MAX_LENGTH)
        self._receiver = _Receiver(self)
        self.connection = MemoryConnection(
            transport.buildProtocol(None), self._receiver, client.address
        )
        client.watch(self.connection.deliver)

    def write(self, type: int, message: dict[str, Any]) -> None:
        """Send a frame, or a line."""
        self.send(self._format.encode(type, message))

    def send(self, data: bytes) -> None:
        """Send raw bytes, and have the server read them."""
        transport: Any = self._receiver.transport
        transport.write(data)
        self._client.flush()

    def dataReceived(self, data: bytes) -> None:
        """
        Receive bytes of the server.

        @param data: The next bytes, in pieces of any size.
        """
        self._decoder.feed(data)
        while (found := self._decoder.next()) is not None:
            self.receive(self._format.read(found))


def connect(
    client: GatewayClient, transport: TCPTransport, carrier: Any, format: str = "frames"
) -> TCPTestConnection:
    """
    Connect a client.

    @param carrier: Not used: the transport has a listener of its own.
    @param format: C{frames}, or C{lines} of JSON.
    """
    if format not in TCP_FORMATS:
        raise ValueError(f"TCP speaks frames or lines, not {format!r}")
    return TCPTestConnection(client, transport, format)
