"""Requests of the framework are gone when they have ended, without a garbage collector."""

import json
from collections.abc import Awaitable, Callable
from typing import Any
from weakref import ref

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IListeningPort
from twisted.internet.task import deferLater

from storagegate import server
from storagegate.http import compression, cors, raw, requestLog, session, text, urlencoded
from storagegate.http import json as jsonBody
from tests.support.garbage import findCycles, withoutCollector
from tests.support.selection import long
from tests.wire.http.support import RawClient, ServedCase, get, post

LARGE = json.dumps({"rows": ["x" * 100] * 2000}).encode()
"""Longer than what is parsed in the reactor thread."""

JSON = b"Content-Type: application/json"


class Boom(Exception):
    """What a handler raises."""


class LifetimeTests(ServedCase):
    """No request, no response and no body is part of a reference cycle when it has ended."""

    timeout = 60

    async def setUp(self) -> None:  # type: ignore[override]
        """Serve an application with the parsers of bodies."""
        super().setUp()
        self.alive: list[Callable[[], Any]] = []
        self.hanging: list[Any] = []
        app = server.http().withOptions(keepAliveTimeout=self.timeout * 1000)
        app.use(self.watch, cors(), compression(), requestLog(stream=_Nowhere()))
        app.use(jsonBody(limit="1mb"), urlencoded(), raw(limit="1mb"), text())
        app.post("/echo", lambda req, res: res.json({"body": req.body}))
        app.post("/wait", self.wait)
        app.post("/read", self.read)
        app.post("/hang", self.hang)
        app.post("/cancelled", self.hang, cancelOnDisconnect=True)
        app.post("/fail", self.raise_)
        app.post("/failLater", self.failLater)
        app.post("/listen", self.listen)
        app.post("/handled", self.failLater)
        app.use("/handled", self.handleError)
        app.post("/session", session(secret="a secret of the tests, long enough"), self.wait)
        self.port: IListeningPort = await app.listen(0, reactor=self.reactor)
        self.addCleanup(app.close, 0)

    def watch(self, req: Any, res: Any, next: Any) -> Any:
        """See when they are gone."""
        self.alive += [ref(req), ref(res)]
        return next()

    async def wait(self, req: Any, res: Any) -> None:
        """Respond later."""
        await deferLater(self.reactor, 0)
        res.json({"body": req.body})

    async def read(self, req: Any, res: Any) -> None:
        """Read the raw body."""
        res.send(await req.read())

    async def hang(self, req: Any, res: Any) -> None:
        """Wait until the client goes, or the test ends it."""
        waiting: Deferred[None] = Deferred()
        self.hanging.append(waiting)
        await waiting

    def raise_(self, req: Any, res: Any) -> None:
        """Raise at once."""
        raise Boom("now")

    async def failLater(self, req: Any, res: Any) -> None:
        """Raise later."""
        await deferLater(self.reactor, 0)
        raise Boom("later")

    def listen(self, req: Any, res: Any) -> None:
        """Listen to the ends, with functions that know the request."""
        req.on("close", lambda: req.method)
        res.on("finish", lambda: req.method)
        res.on("close", lambda: res.statusCode)
        res.send("x")

    def handleError(self, error: Any, req: Any, res: Any, next: Any) -> None:
        """Respond to an error."""
        res.status(400).json({"error": str(error)})

    async def assertFreed(self, act: Callable[[], Awaitable[None]], times: int = 1) -> None:
        """Do something; what of requests is left is freed, by its last reference."""
        # What is made once only: caches, imported modules.
        await act()
        await deferLater(self.reactor, 0.01)
        self.alive.clear()
        with withoutCollector(self):
            for _ in range(times):
                await act()
            await deferLater(self.reactor, 0.01)
            left = sum(each() is not None for each in self.alive)
            cycles = findCycles()
        self.assertEqual(cycles, [])
        self.assertEqual(left, 0)
        self.assertGreater(len(self.alive), 0)

    async def ask(self, path: bytes, body: bytes, *fields: bytes) -> bytes:
        """Send a request on a connection of its own; give the response."""
        client = await self.connect(self.port)
        client.write(post(path, body, b"Connection: close", *fields))
        return await client.closed

    async def asked(self, status: int, path: bytes, body: bytes, *fields: bytes) -> None:
        """Send a request, and see its status; nothing is freed by that of another."""

        async def act() -> None:
            received = await self.ask(path, body, *fields)
            self.assertTrue(received.startswith(b"HTTP/1.1 %d " % status), received[:200])
            self.flushLoggedErrors(Boom)

        await self.assertFreed(act)

    @long("takes seconds")
    async def test_success(self) -> None:
        """After a response, whoever gave it and when."""
        for path in (b"/echo", b"/wait", b"/listen"):
            for body in (b'{"a": 1}', LARGE):
                await self.asked(200, path, body, JSON)
        await self.asked(
            200, b"/echo", b"a=1&b=2", b"Content-Type: application/x-www-form-urlencoded"
        )
        await self.asked(200, b"/echo", b"some text", b"Content-Type: text/plain")
        await self.asked(200, b"/read", LARGE, b"Content-Type: a/b")

    async def test_keepAlive(self) -> None:
        """On a connection that stays, while it stays."""

        async def act() -> None:
            for path in (b"/echo", b"/wait"):
                client.received = b""
                client.write(post(path, LARGE, JSON))
                await client.until(b"HTTP/1.1 200")
                await deferLater(self.reactor, 0.05)

        client = await self.connect(self.port)
        await self.assertFreed(act)

    async def test_session(self) -> None:
        """After a request with a session, which refers to its own state only."""
        await self.ask(b"/session", LARGE, JSON)
        self.alive.clear()
        with withoutCollector(self):
            await self.ask(b"/session", LARGE, JSON)
            await deferLater(self.reactor, 0.01)
            self.assertEqual([each() for each in self.alive], [None, None])

    @long("takes seconds")
    async def test_refused(self) -> None:
        """After a body that is too large, no JSON, or of a coding that is not known."""
        for path in (b"/echo", b"/wait"):
            await self.asked(413, path, b"x" * 1_100_000, JSON)
            await self.asked(400, path, b"{", JSON)
            await self.asked(400, path, LARGE[:-1], JSON)
            await self.asked(415, path, b"{}", JSON, b"Content-Encoding: x")
        await self.asked(404, b"/nowhere", LARGE, JSON)

    @long("takes seconds")
    async def test_failures(self) -> None:
        """After an error of a handler, with a handler of errors and without."""
        for body in (b"{}", LARGE):
            await self.asked(500, b"/fail", body, JSON)
            await self.asked(500, b"/failLater", body, JSON)
            await self.asked(400, b"/handled", body, JSON)

    async def begin(self, path: bytes, *fields: bytes) -> RawClient:
        """Send most of a body."""
        client = await self.connect(self.port)
        client.write(get(path, b"Content-Length: 900000", *fields, method=b"POST") + b"[" * 500_000)
        before = len(self.alive)
        await self.turnUntil(lambda: len(self.alive) > before)
        return client

    @long("takes a second or more")
    async def test_abortedBodies(self) -> None:
        """After a client that hangs up in mid-body."""
        for path, kind in ((b"/echo", JSON), (b"/read", b"Content-Type: a/b")):

            async def act(path: bytes = path, kind: bytes = kind) -> None:
                client = await self.begin(path, kind)
                await deferLater(self.reactor, 0.02)
                client.drop()
                await client.closed
                await deferLater(self.reactor, 0.02)

            await self.assertFreed(act, 3)

    async def test_abortedHandlers(self) -> None:
        """After a client that goes while a handler waits, and the handler after it."""
        for path in (b"/hang", b"/cancelled"):

            async def act(path: bytes = path) -> None:
                client = await self.connect(self.port)
                client.write(post(path, LARGE, JSON))
                await self.turnUntil(lambda: bool(self.hanging))
                client.drop()
                await client.closed
                await deferLater(self.reactor, 0.02)
                waiting = self.hanging.pop()
                if not waiting.called:
                    waiting.callback(None)
                del waiting

            await self.assertFreed(act)

    async def test_malformed(self) -> None:
        """After a body whose framing breaks."""

        async def act() -> None:
            client = await self.connect(self.port)
            client.write(
                get(b"/echo", JSON, b"Transfer-Encoding: chunked", method=b"POST") + b"3\r\n[1,\r\n"
            )
            await deferLater(self.reactor, 0.02)
            client.write(b"zz\r\n")
            await client.closed

        await self.assertFreed(act)


class _Nowhere:
    """A stream that keeps nothing."""

    def write(self, text: str) -> None:
        """Take a line."""
