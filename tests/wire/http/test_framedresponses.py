"""Where one answer ends and the next begins, and what goes from one request to the next."""

import os
from typing import Any

from storagegate.http import compression, json, session, staticFiles
from tests.net.support import statuses
from tests.wire.http.appcase import AppServedCase
from tests.wire.http.support import get, post

_NEXT = get(b"/second")


class FramingTests(AppServedCase):
    """Where one answer ends and the next begins."""

    def setUp(self) -> None:
        """Make all kinds of answers."""
        super().setUp()
        folder = self.mktemp()
        os.mkdir(folder)
        with open(os.path.join(folder, "file"), "wb") as file:
            file.write(b"x" * 200_000)

        async def stream(req: Any, res: Any) -> None:
            await res.write("abc")
            res.end("def")

        def fail(req: Any, res: Any) -> None:
            raise KeyError("a secret")

        self.app.get("/second", self.answer)
        self.app.get("/json", lambda req, res: res.json({"a": 1}))
        self.app.get("/stream", stream)
        self.app.get("/encoded", compression(), lambda req, res: res.type("txt").send("x" * 5000))
        self.app.get("/empty", lambda req, res: res.status(204).end())
        self.app.get("/fail", fail)
        self.app.use("/static", staticFiles(root=folder))
        self.paths = (
            b"/json",
            b"/stream",
            b"/encoded",
            b"/empty",
            b"/fail",
            b"/static/file",
            b"/missing",
            b"/%ff",
        )

    async def test_head(self) -> None:
        """No answer to HEAD has a body, whatever it is; the next answer follows at once."""
        port = await self.listen()
        client = await self.connect(port)
        for path in self.paths:
            client.received = b""
            client.write(get(path, b"Accept-Encoding: gzip", method=b"HEAD") + _NEXT)
            received = await client.until(b"\r\n\r\nserved")
            self.assertEqual(received.count(b"\r\n\r\n"), 2, received)
            self.assertTrue(received.partition(b"\r\n\r\n")[2].startswith(b"HTTP/1.1 200"))
        self.flushLoggedErrors(KeyError)

    async def test_oldClients(self) -> None:
        """A client of HTTP/1.0 gets no chunks: the end of the connection is the end of the body."""
        port = await self.listen()
        for path in self.paths:
            request = get(path).replace(b"HTTP/1.1", b"HTTP/1.0")
            received = await self.exchange(port, request)
            head, _, body = received.partition(b"\r\n\r\n")
            self.assertNotIn(b"Transfer-Encoding", head)
            self.assertIn(b"\r\nConnection: close", head)
            if path == b"/stream":
                self.assertEqual(body, b"abcdef")
        self.flushLoggedErrors(KeyError)

    async def test_upgrade(self) -> None:
        """Who asks for another protocol where there is none is answered in this one."""
        port = await self.listen()
        for fields in (
            (b"Connection: Upgrade", b"Upgrade: websocket", b"Sec-WebSocket-Version: 13"),
            (b"Connection: Upgrade, HTTP2-Settings", b"Upgrade: h2c", b"HTTP2-Settings: AAA"),
        ):
            client = await self.connect(port)
            client.write(get(b"/json", *fields) + _NEXT)
            received = await client.until(b"served")
            self.assertEqual(statuses(received), [200, 200])


class RefusedBodyTests(AppServedCase):
    """Bodies that nobody wants."""

    def setUp(self) -> None:
        """Answer."""
        super().setUp()
        self.app.get("/second", self.answer)
        self.app.post("/json", json(limit=1000), self.answer)
        self.app.post("/unread", lambda req, res: res.send("unread"))
        self.kind = b"Content-Type: application/json"

    async def test_expected(self) -> None:
        """A client that waits for a 100 gets its 413 instead, and the connection closes."""
        port = await self.listen()
        for path, code in ((b"/json", 413), (b"/unread", 200), (b"/missing", 404)):
            request = get(path, self.kind, b"Content-Length: 5000", b"Expect: 100-continue")
            received = await self.exchange(port, request.replace(b"GET", b"POST", 1))
            self.assertEqual(statuses(received), [code])
            self.assertIn(b"Connection: close", received)

    async def test_pipelined(self) -> None:
        """What looks like a request inside a body that nobody reads is a part of the body."""
        port = await self.listen()
        client = await self.connect(port)
        smuggled = get(b"/second?smuggled")
        for path in (b"/unread", b"/json", b"/missing"):
            client.received = b""
            client.write(post(path, smuggled * 100, self.kind) + _NEXT)
            await client.until(b"served")
            self.assertEqual(len(statuses(client.received)), 2)
        self.assertEqual(self.served, [("GET", "/second")] * 3)


class BetweenRequestsTests(AppServedCase):
    """Requests of one connection know nothing of one another."""

    async def test_nothingStays(self) -> None:
        """Fields, status, hooks, values and bodies of one request are not those of the next."""
        seen: list[Any] = []

        def first(req: Any, res: Any) -> None:
            req.user = req.mark = "first"
            res.locals["mark"] = res.mark = "first"
            res.status(418).header("X-Mark", "first").cookie("mark", "first")
            res.beforeHead(lambda: seen.append("hook"))
            res.on("finish", lambda: seen.append("finish"))
            res.send("first")

        def second(req: Any, res: Any) -> None:
            seen.append([req.user, hasattr(req, "mark"), req.body, hasattr(res, "mark")])
            res.json(res.locals)

        self.app.post("/first", json(), first)
        self.app.get("/second", second)
        port = await self.listen()
        client = await self.connect(port)
        client.write(post(b"/first", b'{"a": 1}', b"Content-Type: application/json") + _NEXT)
        received = await client.until(b"{}")
        self.assertEqual(statuses(received), [418, 200])
        self.assertEqual(received.count(b"first\r\n"), 1)
        self.assertEqual(received.lower().count(b"set-cookie"), 1)
        self.assertEqual(seen, ["hook", "finish", [None, False, None, False]])

    async def test_sessionFixed(self) -> None:
        """An id that was there before a login is not the one after, and the old one is nobody's."""

        async def login(req: Any, res: Any) -> None:
            await req.session.regenerate()
            req.session.user = "u"
            res.send("in")

        self.app.use(session(secret="s" * 32))
        self.app.get("/login", login)
        self.app.get("/who", lambda req, res: res.json(req.session.get("user")))
        port = await self.listen()

        async def ask(path: bytes, cookie: bytes) -> tuple[bytes, bytes]:
            received = await self.exchange(
                port, get(path, b"Cookie: " + cookie, b"Connection: close")
            )
            head, _, body = received.partition(b"\r\n\r\n")
            return body, head.partition(b"Set-Cookie: ")[2].partition(b";")[0]

        _, before = await ask(b"/who", b"a=b")
        _, after = await ask(b"/login", before)
        self.assertNotIn(b"", (before, after))
        self.assertNotEqual(before, after)
        self.assertEqual((await ask(b"/who", after))[0], b'"u"')
        self.assertEqual((await ask(b"/who", before))[0], b"null")
        self.assertEqual((await ask(b"/who", after[:-1] + b"x"))[0], b"null")
