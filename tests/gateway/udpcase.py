"""A test case with a UDP adapter, datagrams in memory and a clock of the test."""

import json
from typing import Any

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from storagegate.gateway.host import GatewayResources
from storagegate.gateway.messages.frames import REQUEST, decodeFrame, encodeFrame
from storagegate.gateway.transports.udp import UDPOptions
from storagegate.gateway.transports.udp.listener import UDPTransport
from tests.support.gateway import TOKEN, makeHost

SOURCE = ("127.0.0.1", 40_000)
KNOWN = {"token": TOKEN}


class FakeTransport:
    """Keeps what is sent by its socket, which it is itself, or refuses it."""

    def __init__(self) -> None:
        self.sent: list[tuple[bytes, tuple[str, int]]] = []
        self.error: OSError | None = None

    @property
    def socket(self) -> "FakeTransport":
        """Give what sends."""
        return self

    def sendto(self, datagram: bytes, address: tuple[str, int]) -> None:
        """Send."""
        if self.error is not None:
            raise self.error
        self.sent.append((datagram, address))


class UDPCase(SynchronousTestCase):
    """What the cases of this file share."""

    def setUp(self) -> None:
        """Make an adapter."""
        self.make()

    def make(self, answers: Any = None, **options: Any) -> None:
        """Make an adapter with options, and perhaps a cache of its own."""
        self.clock = Clock()
        resources = GatewayResources(makeReplies=None if answers is None else lambda: answers)
        host, self.probe = makeHost(self.clock, resources=resources)
        self.adapter = UDPTransport(host, UDPOptions(**options))
        self.transport = FakeTransport()
        self.adapter.transport = self.transport  # type: ignore[assignment]

    def send(self, type: int, payload: Any, source: tuple[str, int] = SOURCE) -> bytes:
        """Send a frame; give the datagram."""
        datagram = encodeFrame(type, json.dumps(payload).encode())
        self.adapter.datagramReceived(datagram, source)
        return datagram

    def call(self, method: str, id: Any = "1", **more: Any) -> bytes:
        """Begin a call of the fixture, padded so that its answers fit."""
        padding = "x" * 200
        request = {"service": "Probe", "method": method, "padding": padding, **more}
        return self.send(REQUEST, request if id is None else {"id": id, **request})

    @property
    def answers(self) -> list[tuple[int, Any]]:
        """Give the frames that were sent, and forget them."""
        frames = [decodeFrame(datagram, 70_000) for datagram, _ in self.transport.sent]
        self.transport.sent.clear()
        return [(frame.type, json.loads(frame.payload or b"null")) for frame in frames]
