"""In-memory connections of the gateway's TCP listener, and their frames."""

import json
from typing import Any

from attrs import define
from twisted.internet.address import IPv4Address
from twisted.internet.interfaces import ITCPTransport
from twisted.internet.task import Clock
from twisted.internet.testing import StringTransport
from zope.interface import directlyProvides

from storagegate.gateway.messages.frames import FrameDecoder, encodeFrame
from storagegate.gateway.transports.tcp.listener import TCPTransport

MAXIMUM = 1024 * 1024


def frame(type: int, payload: Any) -> bytes:
    """Encode a frame; a payload that is not bytes is encoded as JSON."""
    body = payload if isinstance(payload, bytes) else json.dumps(payload).encode()
    return encodeFrame(type, body)


def readFrames(wire: bytes) -> list[tuple[int, Any]]:
    """Decode frames with JSON payloads, except pings and pongs."""
    decoder = FrameDecoder(16 * MAXIMUM)
    decoder.feed(wire)
    found = []
    while (each := decoder.next()) is not None:
        isJSON = each.type not in (6, 7)
        found.append((each.type, json.loads(each.payload) if isJSON else each.payload))
    if decoder.held:
        raise AssertionError(f"a frame is not complete: {wire[-decoder.held :]!r}")
    return found


class TCPStringTransport(StringTransport):
    """
    An in-memory connection.

    @ivar isStuck: Whether the client does not read.
    @ivar sentBytes: The number of bytes read since it was stuck.
    @ivar writes: The number of writes.
    @ivar options: The socket options.
    """

    def __init__(self, host: str = "192.0.2.1", port: int = 5000) -> None:
        super().__init__(peerAddress=IPv4Address("TCP", host, port))
        directlyProvides(self, ITCPTransport)
        self.isStuck = False
        self.sentBytes = 0
        self.writes = 0
        self.options: dict[str, bool] = {}

    def write(self, data: bytes) -> None:
        """Keep written data; pause the producer at 64 KiB if the client does not read."""
        self.writes += 1
        super().write(data)
        if self.producer and self.isStuck and len(self.value()) > 64 * 1024:
            self.producer.pauseProducing()

    def hasUnsent(self) -> bool:
        """Return whether data waits to be sent."""
        return self.isStuck

    def readAgain(self) -> None:
        """Read all data."""
        self.isStuck = False
        self.producer.resumeProducing()

    def setTcpNoDelay(self, enabled: bool) -> None:
        """Record the option."""
        self.options["noDelay"] = enabled

    def setTcpKeepAlive(self, enabled: bool) -> None:
        """Record the option."""
        self.options["keepAlive"] = enabled


@define
class TCPClient:
    """
    A client of an in-memory listener.

    @ivar connection: Its connection.
    @ivar transport: The transport of the connection.
    """

    connection: Any
    transport: TCPStringTransport

    def send(self, type: int, payload: Any) -> None:
        """Send a frame."""
        self.connection.dataReceived(frame(type, payload))

    def call(self, method: str, id: Any = None, **more: Any) -> None:
        """Send a request for a method of C{Probe}."""
        payload = {"service": "Probe", "method": method, **more}
        self.send(1, payload if id is None else {"id": id, **payload})

    def received(self) -> list[tuple[int, Any]]:
        """Return the received frames, each only once."""
        wire = self.transport.value()
        self.transport.clear()
        return readFrames(wire)

    def lines(self) -> list[Any]:
        """Return the received lines, each only once."""
        wire = self.transport.value()
        self.transport.clear()
        return [json.loads(line) for line in wire.splitlines()]

    @property
    def isOpen(self) -> bool:
        """Return whether the connection is open."""
        return not self.transport.disconnecting and not self.transport.disconnected

    def lose(self) -> None:
        """Lose the connection."""
        from twisted.internet.error import ConnectionDone
        from twisted.python.failure import Failure

        self.connection.connectionLost(Failure(ConnectionDone()))


def connect(adapter: TCPTransport, transport: TCPStringTransport | None = None) -> TCPClient:
    """Connect to a listener."""
    transport = transport or TCPStringTransport()
    connection = adapter.buildProtocol(None)
    connection.makeConnection(transport)
    return TCPClient(connection, transport)


def seconds(clock: Clock, count: int) -> None:
    """Advance the clock by seconds, one at a time."""
    clock.pump([1] * count)
