"""Bodies that the client does not get: HEAD, 204 and 304."""

from typing import Any

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.task import Clock, deferLater
from twisted.trial.unittest import SynchronousTestCase

from storagegate import server
from storagegate.http.errors import ResponseSent
from storagegate.http.fetch import Response
from storagegate.http.resource import AppResource
from storagegate.http.testing import Client
from storagegate.net.http.interfaces import HTTPLimits
from storagegate.net.http.site import Site
from tests.http.filesupport import FileCase
from tests.net.support import Connection, head, statuses

HEAD = head(line=b"HEAD / HTTP/1.1")


class UnseenTests(SynchronousTestCase):
    """The handler of a body that is not sent is cancelled when the head is out."""

    def setUp(self) -> None:
        """Make an application on a site without a socket."""
        self.app = server.http()
        self.clock = Client(self.app).clock
        self.ends: list[str] = []
        self.app.get("/next", lambda req, res: res.send("next"))
        self.connection = Connection(Site(AppResource(self.app), HTTPLimits(), self.clock))

    def assertServed(self) -> None:
        """Check that HEAD has its response, and that the next request has its own."""
        self.assertEqual(statuses(self.connection.send(HEAD)), [200])
        following = self.connection.send(head(line=b"GET /next HTTP/1.1"))
        self.assertEqual(statuses(following), [200])
        self.assertFalse(self.connection.closed)

    def ticking(self, waits: bool) -> Any:
        """Make a handler that writes for ever, and perhaps waits for each write."""

        async def handler(req: Any, res: Any) -> None:
            try:
                await deferLater(self.clock, 0)
                while True:
                    written = res.write("tick\n")
                    if waits:
                        await written
                    await Deferred()
            except CancelledError:
                self.ends.append("cancelled")
                raise

        return handler

    def test_stream(self) -> None:
        """A handler that waits for its writes gets the cancellation from the first."""
        self.app.get("/", self.ticking(True))
        self.connection.send(HEAD)
        self.clock.advance(0)
        self.assertEqual(self.ends, ["cancelled"])
        self.assertEqual(statuses(self.connection.received()), [200])
        self.assertEqual(statuses(self.connection.send(head(line=b"GET /next HTTP/1.1"))), [200])

    def test_firstWait(self) -> None:
        """A handler that waits for something else is cancelled there."""

        async def handler(req: Any, res: Any) -> None:
            res.write("tick\n")
            try:
                await Deferred()
            finally:
                self.ends.append("cancelled")

        self.app.get("/", handler)
        self.assertServed()
        self.assertEqual(self.ends, ["cancelled"])

    def test_byTimer(self) -> None:
        """So is one whose body another writes: a timer, or a subscription."""
        kept: list[Any] = []

        async def handler(req: Any, res: Any) -> None:
            kept.append(res)
            try:
                await Deferred()
            finally:
                self.ends.append("cancelled")

        self.app.get("/", handler)
        self.connection.send(HEAD)
        kept[0].write("tick\n")
        self.assertEqual(self.ends, ["cancelled"])
        self.assertEqual(statuses(self.connection.received()), [200])
        kept[0].write("tick\n")
        kept[0].end()

    def test_middleware(self) -> None:
        """Middleware around it goes on."""

        async def around(req: Any, res: Any, next: Any) -> None:
            await next()
            self.ends.append("around")

        self.app.use(around)
        self.app.get("/", self.ticking(True))
        self.connection.send(HEAD)
        self.clock.advance(0)
        self.assertEqual(self.ends, ["cancelled", "around"])

    def test_fetch(self) -> None:
        """The stream of a standard response is closed unread: for HEAD, 204 and 304."""

        async def pieces() -> Any:
            self.ends.append("produced")
            yield b"x"

        self.app.get("/", lambda req, res: Response(pieces()))
        self.assertServed()
        self.assertEqual(self.ends, [])

    def test_get(self) -> None:
        """GET has all of the body."""

        async def handler(req: Any, res: Any) -> None:
            await res.write("a")
            await res.write("b")
            res.end()

        self.app.get("/", handler)
        self.assertIn(b"1\r\na\r\n1\r\nb\r\n0\r\n", self.connection.send(head()))


class FileTests(FileCase):
    """A file that is being sent is the rest of its response."""

    def test_end(self) -> None:
        """C{write}, C{end} and C{send} are refused; the file arrives, and what follows it."""
        content = b"x" * 1_000_000
        path = self.write("file", content)
        app = server.http()
        refused: list[str] = []

        async def handler(req: Any, res: Any) -> None:
            connection.channel.pauseProducing()
            sending = res.sendFile(path)
            for act in (lambda: res.write("y"), res.end, lambda: res.send("y")):
                try:
                    act()
                except ResponseSent as error:
                    refused.append(str(error))
            await sending

        app.get("/", handler)
        app.get("/next", lambda req, res: res.send("next"))
        # It gives the application threads that are none.
        Client(app)
        connection = Connection(Site(AppResource(app), HTTPLimits(), Clock()))
        wire = connection.send(head(), head(line=b"GET /next HTTP/1.1"))
        self.assertNotIn(b"next", wire)
        connection.channel.resumeProducing()
        wire += connection.received()
        self.assertEqual(len(refused), 3)
        self.assertEqual(statuses(wire), [200, 200])
        self.assertIn(content, wire)
        self.assertFalse(connection.closed)
