"""UDP in memory, for tests."""

from collections import deque
from itertools import count
from typing import Any

from storagegate.gateway.client.formats import FRAMES
from storagegate.gateway.messages.frames import ACK
from storagegate.gateway.testing import CallConnection, GatewayClient
from storagegate.gateway.transports.udp import MAX_DATAGRAM, Address
from storagegate.gateway.transports.udp.listener import UDPTransport

_ports = count(50_000)


class _MemorySocket:
    """
    The socket of the listener, and its transport.

    @ivar sent: The undelivered datagrams of each client.
    """

    def __init__(self) -> None:
        self.sent: dict[Address, deque[bytes]] = {}

    @property
    def socket(self) -> "_MemorySocket":
        """Return the object that sends datagrams."""
        return self

    def sendto(self, datagram: bytes, address: Address) -> None:
        """Keep a datagram for a client of the test."""
        if address in self.sent:
            self.sent[address].append(datagram)


class UDPTestConnection(CallConnection):
    """An address of a test that sends datagrams."""

    def __init__(self, client: GatewayClient, transport: UDPTransport) -> None:
        super().__init__(client)
        if not isinstance(transport.transport, _MemorySocket):
            transport.transport = _MemorySocket()  # type: ignore[assignment]
        socket: Any = transport.transport
        self._transport = transport
        self._source: Address = (client.address, next(_ports))
        self._received: deque[bytes] = deque()
        socket.sent[self._source] = self._received
        client.watch(self._deliver)

    def write(self, type: int, message: dict[str, Any]) -> None:
        """Send a frame."""
        self.send(FRAMES.encode(type, message))

    def send(self, datagram: bytes) -> None:
        """Send a raw datagram."""
        self._transport.datagramReceived(datagram, self._source)
        self._client.flush()

    def _deliver(self) -> bool:
        moved = False
        while self._received:
            moved = True
            reply = FRAMES.decode(self._received.popleft(), MAX_DATAGRAM)
            if reply.type != ACK:
                self.receive(reply)
        return moved


def connect(client: GatewayClient, transport: UDPTransport, carrier: Any) -> UDPTestConnection:
    """
    Make an address of a client.

    @param carrier: Not used: the transport has a listener of its own.
    """
    return UDPTestConnection(client, transport)
