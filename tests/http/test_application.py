"""Applications that are served: real sockets, and what is answered when nobody answers."""

from typing import Any

from twisted.internet import reactor
from twisted.internet.defer import Deferred
from twisted.internet.error import CannotListenError
from twisted.internet.interfaces import IListeningPort
from twisted.internet.task import deferLater
from twisted.trial.unittest import SynchronousTestCase

from storagegate import server
from storagegate.core.options import OptionError
from storagegate.http import Router
from storagegate.http.testing import Client
from tests.wire.http.support import ServedCase, get


class AutomaticTests(SynchronousTestCase):
    """What the framework answers by itself."""

    def setUp(self) -> None:
        """Make an application with a few routes."""
        self.app = server.http()
        self.app.get("/both", lambda req, res: res.end())
        self.app.post("/both", lambda req, res: res.end())
        router = Router()
        router.put("/:id", lambda req, res: res.end())
        self.app.use("/sub", router)
        self.client = Client(self.app)

    def test_unknown(self) -> None:
        """An unknown route is a 404 that names the original path and the method."""
        response = self.client.patch("/sub/a/b?q=1")
        self.assertEqual(response.status, 404)
        self.assertEqual(
            response.json(), {"error": "Not Found", "path": "/sub/a/b", "method": "PATCH"}
        )
        self.assertEqual(response.headers["content-type"], "application/json; charset=utf-8")

    def test_otherMethod(self) -> None:
        """A path that has other methods is a 405 that lists them; GET implies HEAD."""
        response = self.client.delete("/both")
        self.assertEqual(response.status, 405)
        self.assertEqual(response.json(), {"error": "Method Not Allowed"})
        self.assertEqual(response.headers["allow"], "GET, HEAD, POST")
        self.assertEqual(self.client.get("/sub/1").headers["allow"], "PUT")

    def test_options(self) -> None:
        """OPTIONS is answered with the same list, in a field and as text."""
        response = self.client.options("/both")
        self.assertEqual((response.status, response.text), (200, "GET, HEAD, POST"))
        self.assertEqual(response.headers["allow"], "GET, HEAD, POST")
        self.assertEqual(response.headers["content-type"], "text/plain; charset=utf-8")
        self.assertEqual(self.client.options("/none").status, 404)

    def test_all(self) -> None:
        """A route for all methods is not counted where one for some did not match."""
        self.app.all("/both", lambda req, res, next: next())
        self.assertEqual(self.client.options("/both").text, "GET, HEAD, POST")

    def test_last(self) -> None:
        """405 comes last: middleware behind the routes runs, and a catch-all wins."""
        seen: list[str] = []
        self.app.use(lambda req, res, next: seen.append(req.method) or next())
        self.assertEqual(self.client.delete("/both").status, 405)
        self.assertEqual(seen, ["DELETE"])
        self.app.use(lambda req, res: res.status(404).json({"error": "mine"}))
        for method, path in (("DELETE", "/both"), ("GET", "/none")):
            self.assertEqual(self.client.request(method, path).json(), {"error": "mine"})

    def test_fallenThrough(self) -> None:
        """A route that was for the request and went on leads to a 404, not to a 405."""
        self.app.get("/through", lambda req, res, next: next())
        self.app.post("/through", lambda req, res: res.end())
        self.assertEqual(self.client.get("/through").status, 404)

    def test_malformed(self) -> None:
        """A percent escape that a pattern has to decode and cannot is a 400, for any method."""
        for method in ("PUT", "GET"):
            response = self.client.request(method, "/sub/%zz")
            self.assertEqual(response.status, 400)
            self.assertIn("error", response.json())
        self.assertEqual(self.client.get("/%zz").status, 404)


class ListenTests(ServedCase):
    """C{listen}, C{close}, and the options whose effect only a listener shows."""

    def setUp(self) -> None:
        """Make an application."""
        super().setUp()
        self.app = server.http()
        self.addCleanup(self.app.close, 0)

    async def ask(self, port: IListeningPort, path: bytes = b"/") -> bytes:
        """Give the response to a GET of a connection that the server closes."""
        return await self.exchange(port, get(path, b"Connection: close"))

    async def test_port(self) -> None:
        """Port 0 takes a free one on the loopback interface, and the application answers there."""
        self.app.get("/", lambda req, res: res.send(f"hello {req.ip}"))
        port = await self.app.listen(0)
        self.assertEqual(port.getHost().host, "127.0.0.1")
        self.assertTrue((await self.ask(port)).endswith(b"\r\n\r\nhello 127.0.0.1"))

    async def test_options(self) -> None:
        """Without arguments the options say where."""
        self.app.withOptions(port=0, hostname="127.0.0.2")
        port = await self.app.listen()
        self.assertEqual(port.getHost().host, "127.0.0.2")

    async def test_callback(self) -> None:
        """A function is called when it listens, with the port if it takes that."""
        called: list[Any] = []
        port = await self.app.listen(0, called.append)
        other = await self.app.listen(0, "127.0.0.1", lambda: called.append("other"))
        self.assertEqual(called, [port, "other"])
        self.assertNotEqual(other.getHost().port, port.getHost().port)
        await self.assertFailure(
            server.http().listen(port.getHost().port, called.append), CannotListenError
        )
        self.assertEqual(len(called), 2)
        self.assertRaises(TypeError, self.app.listen, 0, lambda one, two: None)

    async def test_endpoint(self) -> None:
        """An endpoint string is taken as Twisted has it."""
        port = await self.app.listen("tcp:0:interface=127.0.0.1")
        self.assertIn(b" 404 ", await self.ask(port))

    async def test_taken(self) -> None:
        """A place that is taken is an error of the Deferred, and the first goes on."""
        port = await self.app.listen(0)
        number = port.getHost().port
        error = await self.assertFailure(server.http().listen(number), CannotListenError)
        self.assertIn(str(number), str(error))
        self.assertIn(b" 404 ", await self.ask(port))

    async def test_noPort(self) -> None:
        """What is no port is refused at once."""
        for wrong in (70_000, -1, 1.5, True):
            self.assertRaises(OptionError, self.app.listen, wrong)
        self.assertRaises(ValueError, self.app.listen, "nonsense:1")

    async def test_close(self) -> None:
        """Closing lets what is being answered end, and takes no more."""
        gate: Deferred[None] = Deferred()
        entered: Deferred[None] = Deferred()

        @self.app.get("/")
        async def slow(req: Any, res: Any) -> None:
            entered.callback(None)
            await gate
            res.send("done")

        client = await self.connect(await self.app.listen(0))
        client.write(get(b"/"))
        await entered
        closing = self.app.close(graceMs=100_000)
        await deferLater(reactor, 0.05, lambda: None)
        self.assertFalse(closing.called)
        gate.callback(None)
        received = await client.closed
        self.assertIn(b"\r\nConnection: close\r\n", received)
        self.assertTrue(received.endswith(b"done"))
        await closing

    async def test_closeAtLast(self) -> None:
        """What does not end in the time it is given is cut off."""
        entered: Deferred[None] = Deferred()

        @self.app.get("/")
        async def never(req: Any, res: Any) -> None:
            entered.callback(None)
            await Deferred()

        client = await self.connect(await self.app.listen(0))
        client.write(get(b"/"))
        await entered
        await self.app.close(graceMs=50)
        self.assertEqual(await client.closed, b"")

    async def test_keepAlive(self) -> None:
        """Without keep-alive each response closes its connection."""
        self.app.get("/", lambda req, res: res.end())
        self.app.withOptions(keepAlive=False)
        received = await self.exchange(await self.app.listen(0), get(b"/"))
        self.assertIn(b"\r\nConnection: close\r\n", received)

    async def test_errorsOfTheWire(self) -> None:
        """What is refused before it reaches the application has the application's error shape."""
        received = await self.exchange(await self.app.listen(0), get(b"/" + b"x" * 9000))
        self.assertIn(b" 414 ", received)
        self.assertTrue(received.endswith(b'{"error":"The path is too long"}'))

    async def test_server(self) -> None:
        """OPTIONS * asks about the server, and is answered with what it takes."""
        request = b"OPTIONS * HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
        received = await self.exchange(await self.app.listen(0), request)
        self.assertIn(b" 200 ", received)
        self.assertIn(b"\r\nAllow: GET, HEAD,", received)
