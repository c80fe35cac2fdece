"""Test cases with an in-memory TCP listener."""

from typing import Any

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from storagegate.gateway.transports.tcp import TCPLimits, TCPOptions
from storagegate.gateway.transports.tcp.listener import TCPTransport
from tests.support.gateway import makeHost
from tests.support.tcp import TCPClient, TCPStringTransport, connect


class TCPCase(SynchronousTestCase):
    """A test case with a listener."""

    def setUp(self) -> None:
        """Make a listener."""
        self.clock = Clock()
        self.host, self.probe = makeHost(self.clock)
        self.adapter = self.makeAdapter()

    def makeAdapter(self, limits: TCPLimits | None = None, **options: Any) -> TCPTransport:
        """Make a listener with options."""
        return TCPTransport(self.host, TCPOptions(**options), limits)

    def connect(self, transport: TCPStringTransport | None = None) -> TCPClient:
        """Connect to the listener."""
        client = connect(self.adapter, transport)
        self.addCleanup(self.lose, client)
        return client

    def lose(self, client: TCPClient) -> None:
        """Lose a connection, unless it is closed."""
        if client.connection in self.adapter._connections:
            client.lose()


BAD = "INVALID_ARGUMENT"


async def unwritable(request: Any, context: Any) -> Any:
    """Return a value that cannot be encoded."""
    return {"set"}


async def unwritableItems(request: Any, context: Any) -> Any:
    """Return a stream whose second item cannot be encoded."""
    yield 1
    yield {"set"}
    yield 2


async def large(request: Any, context: Any) -> Any:
    """Return 2 KiB."""
    return "x" * 2048


ODD = {
    "name": "Odd",
    "methods": {"unwritable": unwritable, "unwritableItems": unwritableItems, "large": large},
}


class FrameCase(SynchronousTestCase):
    """A listener with a client that uses frames, and payloads of at most 1 KiB."""

    def setUp(self) -> None:
        """Connect to a listener."""
        self.clock = Clock()
        host, self.probe = makeHost(self.clock, [ODD])
        self.adapter = TCPTransport(host, TCPOptions(maxFrameSize=1024))
        self.client = connect(self.adapter)
        self.addCleanup(self.client.lose)

    def assertReceived(self, *expected: tuple[int, Any]) -> None:
        """Check the received frames, and that the connection is open."""
        self.assertEqual(self.client.received(), list(expected))
        self.assertTrue(self.client.isOpen)

    def assertErrors(self, *expected: Any) -> None:
        """Check the codes and ids of received errors, and that the connection is open."""
        found = []
        for type, payload in self.client.received():
            self.assertEqual(type, 3)
            self.assertEqual(set(payload) - {"id", "details"}, {"error", "message"})
            found.append((payload["error"], payload.get("id")))
        self.assertEqual(found, list(expected))
        self.assertTrue(self.client.isOpen)
