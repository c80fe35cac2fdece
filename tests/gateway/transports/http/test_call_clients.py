"""Who calls over HTTP."""

from types import SimpleNamespace
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from storagegate.core.context import ClientInfo
from storagegate.gateway.transports.http.call import Clients


def requestOf(port: int, agent: bytes | None = b"curl/8", ip: str = "192.0.2.1") -> Any:
    """Make as much of a request as tells who sent it, by a connection from 192.0.2.1."""
    headers = {} if agent is None else {b"user-agent": agent}
    raw = SimpleNamespace(clientHost="192.0.2.1", clientPort=port, headers=headers)
    return SimpleNamespace(raw=raw, ip=ip)


class ClientsTests(SynchronousTestCase):
    """What is told of a request's sender."""

    def setUp(self) -> None:
        """Make what makes them."""
        self.clients = Clients()

    def test_told(self) -> None:
        """A client has its address, its port and its user agent; behind a proxy, no port."""
        for request, client in (
            (requestOf(1), ClientInfo("192.0.2.1:1", "192.0.2.1", 1, "curl/8")),
            (requestOf(2, None), ClientInfo("192.0.2.1:2", "192.0.2.1", 2)),
            (requestOf(3, b"\xe9"), ClientInfo("192.0.2.1:3", "192.0.2.1", 3, "é")),
            (
                requestOf(4, ip="198.51.100.9"),
                ClientInfo("198.51.100.9", "198.51.100.9", 0, "curl/8"),
            ),
            (requestOf(1), ClientInfo("192.0.2.1:1", "192.0.2.1", 1, "curl/8")),
        ):
            self.assertEqual(self.clients.of(request), client)

    def test_remembered(self) -> None:
        """The client of a connection is made once, unless its user agent is very long."""
        one = self.clients.of(requestOf(1))
        self.assertIs(self.clients.of(requestOf(1)), one)
        self.assertIsNot(self.clients.of(requestOf(1, b"curl/9")), one)
        long = requestOf(1, b"x" * 5000)
        self.assertEqual(self.clients.of(long).userAgent, "x" * 5000)
        self.assertIsNot(self.clients.of(long), self.clients.of(long))

    def test_forgotten(self) -> None:
        """However many come, they do not fill the memory."""
        one = self.clients.of(requestOf(1))
        for port in range(2, 1100):
            self.clients.of(requestOf(port))
        self.assertEqual(self.clients.of(requestOf(1)), one)
        self.assertIsNot(self.clients.of(requestOf(1)), one)
