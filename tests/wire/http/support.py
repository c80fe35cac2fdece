"""A listener and a client that says exactly what it is told to."""

from collections.abc import Callable, Sequence
from typing import Any

from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.endpoints import clientFromString, connectProtocol
from twisted.internet.error import ConnectionDone
from twisted.internet.interfaces import IListeningPort
from twisted.internet.protocol import Protocol, connectionDone
from twisted.internet.task import deferLater
from twisted.python.failure import Failure
from twisted.trial.unittest import TestCase
from twisted.web.resource import IResource, Resource

from storagegate.net.endpoints import listen
from storagegate.net.http.interfaces import HTTPLimits
from storagegate.net.http.message import ChannelRequest
from storagegate.net.http.site import CoroutineResource, Site
from tests.net.support import describeError, head

TCP = "tcp:0:interface=127.0.0.1"


def get(path: bytes, *fields: bytes, method: bytes = b"GET") -> bytes:
    """Write a request for a path."""
    return head(*fields, line=b"%b %b HTTP/1.1" % (method, path))


def post(path: bytes, body: bytes, *fields: bytes) -> bytes:
    """Write a request with a body."""
    return get(path, b"Content-Length: %d" % len(body), *fields, method=b"POST") + body


class Rendering(Resource):
    """A resource that renders by a function."""

    isLeaf = True

    def __init__(self, function: Any) -> None:
        super().__init__()
        self.function = function

    def render(self, request: Any) -> Any:
        """Render."""
        return self.function(request)


class RawClient(Protocol):
    """
    A client.

    @ivar closed: Fires with C{received} when the connection is over, however it ended.
    @ivar reset: Whether it ended by a reset, which may cost a client what it has not read yet.
    """

    def __init__(self) -> None:
        # Appended to in place: copies of a long body would take seconds.
        self._received = bytearray()
        self.reset = False
        self.closed: Deferred[bytes] = Deferred()
        self._waiting: list[tuple[Callable[[bytearray], bool], Deferred[bytes]]] = []

    @property
    def received(self) -> bytes:
        """Return everything that has come since it was last set."""
        return bytes(self._received)

    @received.setter
    def received(self, received: bytes) -> None:
        self._received = bytearray(received)

    def dataReceived(self, data: bytes) -> None:
        """Keep it."""
        self._received += data
        for waiting in self._waiting[:]:
            if waiting[0](self._received):
                self._waiting.remove(waiting)
                waiting[1].callback(self.received)

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """Say so."""
        self.reset = reason.check(ConnectionDone) is None
        for _, waiting in self._waiting:
            waiting.errback(Failure(EOFError(self.received)))
        self.closed.callback(self.received)

    def write(self, data: bytes) -> None:
        """Send bytes."""
        transport: Any = self.transport
        transport.write(data)

    def pause(self) -> None:
        """Look at nothing that comes."""
        transport: Any = self.transport
        transport.pauseProducing()

    def resume(self) -> None:
        """Look again."""
        transport: Any = self.transport
        transport.resumeProducing()

    def drop(self) -> None:
        """Go away without a word."""
        transport: Any = self.transport
        transport.abortConnection()

    def until(self, enough: bytes | Callable[[bytearray], bool]) -> Deferred[bytes]:
        """Wait until what has come holds some bytes, or is enough by some other measure."""
        isEnough = enough if callable(enough) else lambda received: enough in received
        waiting: Deferred[bytes] = Deferred()
        if isEnough(self._received):
            waiting.callback(self.received)
        elif self.closed.called:
            waiting.errback(EOFError(self.received))
        else:
            self._waiting.append((isEnough, waiting))
        return waiting


class ServedCase(TestCase):
    """A test with real listeners, which are gone when it ends."""

    timeout = 180

    def setUp(self) -> None:
        """Take the reactor that runs the tests."""
        from twisted.internet import reactor

        self.reactor: Any = reactor
        self.sites: list[Site] = []

    async def serve(
        self,
        resource: IResource | Callable[[ChannelRequest], Any],
        description: str = TCP,
        **limits: Any,
    ) -> IListeningPort:
        """
        Serve a resource, or a handler.

        @param limits: Where they say nothing else, idle connections stay: a busy machine may keep
            this process from its next request for longer than their usual time.
        """
        if not IResource.providedBy(resource):
            handler: Any = resource
            resource = CoroutineResource(handler, describeError)
        site = Site(
            resource, HTTPLimits(**{"keepAliveTimeout": self.timeout, **limits}), self.reactor
        )
        self.sites.append(site)
        port = await listen(self.reactor, description, site)
        self.addCleanup(site.drain, 0)
        self.addCleanup(lambda: maybeDeferred(port.stopListening))
        return port

    async def connect(self, port: IListeningPort | None, description: str = "") -> RawClient:
        """Connect a client, to a port or to an endpoint."""
        if not description:
            assert port is not None
            address: Any = port.getHost()
            description = f"tcp:127.0.0.1:{address.port}"
        client = RawClient()
        await connectProtocol(clientFromString(self.reactor, description), client)
        self.addCleanup(self._disconnect, client)
        return client

    def _disconnect(self, client: RawClient) -> Deferred[bytes]:
        if not client.closed.called:
            client.drop()
        return client.closed

    async def exchange(self, port: IListeningPort, *pieces: bytes) -> bytes:
        """Send pieces, one a turn of the reactor; return all that has come when it is over."""
        client = await self.connect(port)
        await self.sendSlowly(client, pieces)
        return await client.closed

    async def sendSlowly(self, client: RawClient, pieces: Sequence[bytes]) -> None:
        """Send pieces, one a turn of the reactor, as long as there is somebody to send to."""
        client.transport.setTcpNoDelay(True)  # type: ignore[union-attr]
        for piece in pieces:
            if client.closed.called:
                break
            client.write(piece)
            await deferLater(self.reactor, 0)

    async def turnUntil(self, condition: Callable[[], bool]) -> None:
        """Let the reactor turn until something is the case; the test's timeout ends it else."""
        while not condition():
            await deferLater(self.reactor, 0.001)
