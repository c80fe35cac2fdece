"""Stock Twisted resources inside an application, over real sockets."""

import os
from typing import Any

from autobahn.twisted.resource import WebSocketResource
from autobahn.twisted.websocket import WebSocketServerFactory
from twisted.web.static import File
from twisted.web.wsgi import WSGIResource

from storagegate import server
from storagegate.http.options import reactorRuntime
from tests.net.support import statuses
from tests.wire.http.support import RawClient, Rendering, ServedCase, get, post
from tests.wire.http.test_websocket import EchoServer


class MountedTests(ServedCase):
    """Resources of all kinds, each at its own path of an application."""

    def setUp(self) -> None:
        """Make an application with a route of its own."""
        super().setUp()
        self.app = server.http()
        self.app.runtime = reactorRuntime(self.reactor)
        self.app.use(self.sign)
        self.app.get("/own", lambda req, res: res.end("own"))

    def sign(self, req: Any, res: Any, next: Any) -> Any:
        """Sign every response."""
        res.header("X-App", "yes")
        return next()

    async def connected(self) -> RawClient:
        """Serve the application, and connect to it."""
        return await self.connect(await self.serve(self.app.resource))

    async def ask(self, *requests: bytes) -> bytes:
        """Send requests in one go; return all that comes."""
        client = await self.connected()
        client.write(b"".join(requests[:-1]))
        client.write(requests[-1].replace(b"Host: x\r\n", b"Host: x\r\nConnection: close\r\n"))
        return await client.closed

    async def test_file(self) -> None:
        """C{static.File} serves files, ranges and redirections below its path."""
        directory = self.mktemp()
        os.makedirs(os.path.join(directory, "sub"))
        with open(os.path.join(directory, "f.txt"), "wb") as file:
            file.write(b"0123456789")
        self.app.use("/files/:version", File(directory))
        received = await self.ask(
            get(b"/files/1/f.txt"),
            get(b"/files/1/f.txt", b"Range: bytes=2-4"),
            get(b"/files/1/none"),
            get(b"/files/1/sub"),
            get(b"/own"),
        )
        self.assertEqual(statuses(received), [200, 206, 404, 302, 200])
        self.assertIn(b"\r\n\r\n0123456789HTTP/1.1 206", received)
        self.assertIn(b"\r\n\r\n234HTTP/1.1 404", received)
        self.assertIn(b"/files/1/sub/\r\n", received)
        self.assertEqual(received.count(b"\r\nX-App: yes\r\n"), 5)

    async def test_large(self) -> None:
        """A large file goes out at the pace of its reader."""
        path = self.mktemp()
        with open(path, "wb") as file:
            file.write(b"x" * 3_000_000)
        self.app.use("/f", File(path))
        client = await self.connected()
        client.write(get(b"/f", b"Connection: close"))
        await client.until(b"xxx")
        client.pause()
        received = len(client.received)
        self.assertLess(received, 3_000_000)
        client.resume()
        received = await client.closed
        self.assertEqual(len(received.partition(b"\r\n\r\n")[2]), 3_000_000)

    async def test_wsgi(self) -> None:
        """A WSGI application gets the path that it is mounted at, the rest, and the body."""

        def application(environ: Any, startResponse: Any) -> list[bytes]:
            startResponse("201 Made", [("X-Script", environ["SCRIPT_NAME"])])
            return [environ["PATH_INFO"].encode("ascii"), b" ", environ["wsgi.input"].read()]

        pool = self.reactor.getThreadPool()
        self.app.use("/a/w", WSGIResource(self.reactor, pool, application))
        received = await self.ask(post(b"/a/w/x/y", b"body"))
        self.assertEqual(statuses(received), [201])
        self.assertIn(b"\r\nX-Script: /a/w\r\n", received)
        body = b"".join(received.partition(b"\r\n\r\n")[2].split(b"\r\n")[1::2])
        self.assertEqual(body, b"/x/y body")

    async def test_webSocket(self) -> None:
        """Autobahn's resource takes the connection over, and with it what was sent already."""
        factory = WebSocketServerFactory()
        factory.protocol = EchoServer
        # Autobahn would start timers that outlive the test.
        factory.setProtocolOptions(openHandshakeTimeout=0, closeHandshakeTimeout=0)
        self.app.withRoutes({"/ws/:room": WebSocketResource(factory)})
        client = await self.connected()
        handshake = get(
            b"/ws/7",
            b"Connection: Upgrade",
            b"Upgrade: websocket",
            b"Sec-WebSocket-Version: 13",
            b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==",
        )
        client.write(handshake + b"\x82\x83\0\0\0\0abc")
        await client.until(b"\x82\x03abc")
        client.write(b"\x82\x83\0\0\0\0def")
        await client.until(b"\x82\x03def")

    async def test_session(self) -> None:
        """Sessions of resources work, and are called by where the resource is mounted."""

        def count(request: Any) -> bytes:
            session = request.getSession()
            if not hasattr(session, "visits"):
                self.addCleanup(session.expire)
                session.visits = 0
            session.visits += 1
            return b"visits=%d" % session.visits

        self.app.use("/s", Rendering(count))
        client = await self.connected()
        client.write(get(b"/s"))
        received = await client.until(b"visits=1")
        cookie = received.partition(b"Set-Cookie: ")[2].partition(b";")[0]
        self.assertTrue(cookie.startswith(b"TWISTED_SESSION_s="))
        client.write(get(b"/s", b"Cookie: " + cookie))
        await client.until(b"visits=2")
