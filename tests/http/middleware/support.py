"""An application without a socket, on a clock that tests turn."""

from typing import Any

from attrs import frozen
from twisted.internet.address import IPv4Address, IPv6Address
from twisted.internet.defer import maybeDeferred
from twisted.internet.main import CONNECTION_DONE
from twisted.internet.task import Clock
from twisted.internet.testing import StringTransport
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase

from storagegate import server
from storagegate.http.middleware.ratelimit import rateLimit
from storagegate.http.options import Runtime
from storagegate.net.http.interfaces import HTTPLimits
from storagegate.net.http.site import Site

NOON = 1_700_000_000
"""When tests begin: 14 November 2023, 22:13:20 in Greenwich."""


@frozen
class Answer:
    """
    A response, as it came over the wire.

    @ivar headers: The fields by their names in lower case; the values of repeated ones in a row.
    """

    status: int
    headers: dict[str, list[str]]
    body: bytes

    def all(self, name: str) -> list[str]:
        """Give the values of a field, none if it is not there."""
        return self.headers.get(name, [])

    def get(self, name: str) -> str | None:
        """Give the value of a field that is there once at most."""
        values = self.all(name)
        assert len(values) < 2, values
        return values[0] if values else None


class Client:
    """
    One connection to an application.

    @ivar transport: What the server writes to.
    """

    def __init__(self, site: Site, host: str) -> None:
        kind: Any = IPv6Address if ":" in host else IPv4Address
        self.transport = StringTransport(peerAddress=kind("TCP", host, 4711), lenient=True)
        self._channel = site.buildProtocol(None)
        self._channel.makeConnection(self.transport)

    def send(self, method: str, path: str, fields: dict[str, str]) -> None:
        """Send a request without a body."""
        lines = [f"{method} {path} HTTP/1.1", "Host: x"]
        lines += [f"{name}: {value}" for name, value in fields.items()]
        self._channel.dataReceived(("\r\n".join(lines) + "\r\n\r\n").encode("latin-1"))

    def lose(self) -> None:
        """Go away."""
        self._channel.connectionLost(Failure(CONNECTION_DONE))

    def answer(self) -> Answer:
        """Read the answer that has come."""
        wire: bytes = self.transport.value()
        self.transport.clear()
        head, _, body = wire.partition(b"\r\n\r\n")
        lines = head.decode("latin-1").split("\r\n")
        headers: dict[str, list[str]] = {}
        for line in lines[1:]:
            name, _, value = line.partition(": ")
            headers.setdefault(name.lower(), []).append(value)
        return Answer(int(lines[0].split(" ")[1]), headers, body)


class AppCase(SynchronousTestCase):
    """A test with an application."""

    def setUp(self) -> None:
        """Make an application, and a clock for it."""
        self.clock = Clock()
        self.clock.advance(NOON)
        self.app = self.makeApp()

    def makeApp(self) -> Any:
        """Make an application that lives by the clock."""
        app = server.http()
        app.runtime = Runtime(self.clock, maybeDeferred, self.clock.seconds)
        return app

    def connect(self, host: str = "192.0.2.7") -> Client:
        """Open a connection from an address."""
        return Client(Site(self.app.resource, HTTPLimits(), self.clock), host)

    def ask(
        self, method: str = "GET", path: str = "/", host: str = "192.0.2.7", **fields: str
    ) -> Answer:
        """
        Make a request on a connection of its own.

        @param fields: Header fields, with C{_} for C{-}.
        """
        client = self.connect(host)
        client.send(method, path, {name.replace("_", "-"): v for name, v in fields.items()})
        return client.answer()

    def hello(self, req: Any, res: Any) -> None:
        """Answer."""
        res.send("hello")


class LimitCase(AppCase):
    """An application that answers on C{/}, but not too often."""

    def limit(self, **options: Any) -> None:
        """Install the middleware."""
        self.app.use(rateLimit(**options))
        self.app.get("/", self.hello)
        self.app.get("/broken", lambda req, res: res.status(500).send("broken"))

    def statuses(self, count: int, **request: Any) -> list[int]:
        """Make requests."""
        return [self.ask(**request).status for _ in range(count)]
