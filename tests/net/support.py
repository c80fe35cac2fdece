"""An HTTP site without a socket."""

import re
from collections.abc import Awaitable, Callable
from typing import Any

from twisted.internet.address import IPv4Address
from twisted.internet.main import CONNECTION_DONE
from twisted.internet.task import Clock
from twisted.internet.testing import StringTransport
from twisted.python.failure import Failure

from storagegate.net.http.channel import HTTPChannel
from storagegate.net.http.interfaces import HTTPLimits
from storagegate.net.http.message import ChannelRequest
from storagegate.net.http.site import CoroutineResource, Site

Handler = Callable[[ChannelRequest], Any]


class Boom(Exception):
    """A bug in a handler."""


def describeError(request: ChannelRequest, error: Exception) -> tuple[int, list[Any], bytes]:
    """Answer any exception with its name."""
    return 500, [(b"X-Error", type(error).__name__.encode("ascii"))], b"broken\n"


class Connection:
    """
    One client's connection to a site.

    @ivar transport: What the server writes to.
    @ivar channel: The server's side.
    """

    def __init__(self, site: Site, host: str = "192.0.2.7") -> None:
        self.transport = StringTransport(peerAddress=IPv4Address("TCP", host, 4711), lenient=True)
        self.channel: HTTPChannel = site.buildProtocol(None)
        self.channel.makeConnection(self.transport)

    def send(self, *pieces: bytes) -> bytes:
        """Let the client send, and return what has been answered since the last call."""
        for piece in pieces:
            self.channel.dataReceived(piece)
        return self.received()

    def received(self) -> bytes:
        """Return what has been answered since the last call."""
        wire: bytes = self.transport.value()
        self.transport.clear()
        return wire

    def lose(self) -> None:
        """Let the client go away."""
        self.channel.connectionLost(Failure(CONNECTION_DONE))

    @property
    def closed(self) -> bool:
        """Say whether the server has closed, in whatever way."""
        return bool(self.transport.disconnecting or self.transport.disconnected)

    @property
    def aborted(self) -> bool:
        """Say whether the server has dropped the connection."""
        return bool(self.transport.disconnected)

    @property
    def reading(self) -> bool:
        """Say whether the server reads."""
        state: str = self.transport.producerState
        return state == "producing"


class TestSite:
    """
    A site that runs on a clock.

    @ivar requests: Every request that reached the handler.
    """

    __test__ = False

    def __init__(self, handle: Handler | None = None, **limits: Any) -> None:
        self.clock = Clock()
        self.requests: list[ChannelRequest] = []
        self._handle = handle
        self.site = Site(
            CoroutineResource(self._record, describeError), HTTPLimits(**limits), self.clock
        )

    async def _record(self, request: ChannelRequest) -> None:
        self.requests.append(request)
        if self._handle is not None:
            answered: Awaitable[None] = self._handle(request)
            await answered

    def connect(self, host: str = "192.0.2.7") -> Connection:
        """Open a connection from an address."""
        return Connection(self.site, host)

    def letPass(self, seconds: int) -> None:
        """Let time pass, in the steps that the site looks at it in."""
        self.clock.pump([1.0] * seconds)


async def hello(request: ChannelRequest) -> None:
    """Answer at once."""
    request.respond(200, [(b"Content-Type", b"text/plain")], b"hello")


def head(*fields: bytes, line: bytes = b"GET / HTTP/1.1", host: bytes = b"Host: x") -> bytes:
    """Write a request's head."""
    return b"\r\n".join([line, host, *fields, b"", b""])


def undated(wire: bytes) -> bytes:
    """Take the Date out of a response: a test cannot know it."""
    lines = wire.split(b"\r\n")
    return b"\r\n".join(line for line in lines if not line.startswith(b"Date: "))


def statuses(wire: bytes) -> list[int]:
    """Find the status of every response, also where one follows a body without a line end."""
    return [int(code) for code in re.findall(rb"HTTP/1\.1 ([0-9]{3}) ", wire)]
