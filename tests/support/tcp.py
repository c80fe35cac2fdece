"""Connections of the gateway's TCP listener, in memory, and what goes over them."""

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
    """Write a frame; what is not bytes is JSON."""
    body = payload if isinstance(payload, bytes) else json.dumps(payload).encode()
    return encodeFrame(type, body)


def readFrames(wire: bytes) -> list[tuple[int, Any]]:
    """Read frames whose payloads are JSON, bar those of pings and pongs."""
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
    A connection in memory.

    @ivar isStuck: Whether the client reads nothing.
    @ivar sentBytes: What it has read since it was stuck.
    @ivar writes: How often was written.
    @ivar options: The socket's.
    """

    def __init__(self, host: str = "192.0.2.1", port: int = 5000) -> None:
        super().__init__(peerAddress=IPv4Address("TCP", host, port))
        directlyProvides(self, ITCPTransport)
        self.isStuck = False
        self.sentBytes = 0
        self.writes = 0
        self.options: dict[str, bool] = {}

    def write(self, data: bytes) -> None:
        """Keep what is written; fill up at 64 KiB if nobody reads."""
        self.writes += 1
        super().write(data)
        if self.producer and self.isStuck and len(self.value()) > 64 * 1024:
            self.producer.pauseProducing()

    def hasUnsent(self) -> bool:
        """Tell whether something waits to be read."""
        return self.isStuck

    def readAgain(self) -> None:
        """Read all."""
        self.isStuck = False
        self.producer.resumeProducing()

    def setTcpNoDelay(self, enabled: bool) -> None:
        """Keep the option."""
        self.options["noDelay"] = enabled

    def setTcpKeepAlive(self, enabled: bool) -> None:
        """Keep the option."""
        self.options["keepAlive"] = enabled


@define
class TCPClient:
    """
    A client of a listener in memory.

    @ivar connection: Its connection.
    @ivar transport: What that writes to.
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
        """Give the frames that have come, each once."""
        wire = self.transport.value()
        self.transport.clear()
        return readFrames(wire)

    def lines(self) -> list[Any]:
        """Give the lines that have come, each once."""
        wire = self.transport.value()
        self.transport.clear()
        return [json.loads(line) for line in wire.splitlines()]

    @property
    def isOpen(self) -> bool:
        """Tell whether it has not been closed."""
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
    """Let seconds pass, one by one."""
    clock.pump([1] * count)
