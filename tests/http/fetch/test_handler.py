"""Applications called with standard requests, without a listener."""

from collections.abc import AsyncIterator
from typing import Any

from twisted.internet.defer import Deferred

from storagegate.http import Request
from storagegate.net.http.interfaces import BodyLost
from tests.http.fetching import FetchCase, pieces


class AnswerTests(FetchCase):
    """Requests that are answered at once."""

    def test_answer(self) -> None:
        """A request gets the response of its route, with all that a listener would add."""
        self.app.get("/users/:id", lambda req, res: res.status(201).json({"id": req.params["id"]}))
        response = self.got(self.fetch(Request("http://x/users/7")))
        self.assertEqual(
            (response.status, response.statusText, response.ok), (201, "Created", True)
        )
        self.assertEqual(response.headers["content-type"], "application/json; charset=utf-8")
        self.assertEqual(response.headers["content-length"], "10")
        self.assertIn("date", response.headers)
        self.assertEqual(self.got(response.json()), {"id": "7"})

    def test_text(self) -> None:
        """A URL or path alone is a GET."""
        self.app.get("/a", lambda req, res: res.send(req.url))
        self.assertEqual(self.got(self.got(self.fetch("/a?b")).text()), "http://localhost/a?b")
        self.assertEqual(self.got(self.got(self.fetch("https://x:1/a")).text()), "https://x:1/a")

    def test_request(self) -> None:
        """The handler sees method, host, headers, body and address, as from a wire."""

        async def show(req: Any, res: Any) -> None:
            body = await req.read(100)
            res.json([req.method, req.get("host"), req.get("x-a"), body.decode(), req.ip])

        self.app.put("/p", show)
        request = Request("http://h:81/p", "PUT", {"X-A": "1"}, "hello")
        seen = self.got(self.got(self.fetch(request)).json())
        self.assertEqual(seen, ["PUT", "h:81", "1", "hello", "127.0.0.1"])

    def test_secure(self) -> None:
        """An https URL is a secure request."""
        self.app.get("/", lambda req, res: res.json([req.secure, req.protocol]))
        self.assertEqual(self.got(self.got(self.fetch("https://x/")).json()), [True, "https"])
        self.assertEqual(self.got(self.got(self.fetch("http://x/")).json()), [False, "http"])

    def test_host(self) -> None:
        """A Host field of the request's own takes the place of the URL's."""
        self.app.get("/", lambda req, res: res.send(req.hostname))
        response = self.got(self.fetch(Request("http://x/", headers={"Host": "y"})))
        self.assertEqual(self.got(response.text()), "y")

    def test_frameworkAnswers(self) -> None:
        """Unknown paths, methods and errors are answered as over the wire."""

        def broken(req: Any, res: Any) -> None:
            raise KeyError("boom")

        self.app.get("/a", broken)
        self.assertEqual(self.got(self.fetch("/b")).status, 404)
        refused = self.got(self.fetch(Request("/a", "POST")))
        self.assertEqual((refused.status, refused.headers["allow"]), (405, "GET, HEAD"))
        self.assertEqual(self.got(self.fetch("/a")).status, 500)
        self.assertEqual(len(self.flushLoggedErrors(KeyError)), 1)

    def test_head(self) -> None:
        """HEAD gives the length and no body; 204 and 304 have none either."""
        self.app.get("/a", lambda req, res: res.send("hello"))
        self.app.get("/n", lambda req, res: res.status(204).end())
        response = self.got(self.fetch(Request("/a", "HEAD")))
        self.assertEqual(response.headers["content-length"], "5")
        self.assertEqual(self.got(response.bytes()), b"")
        tag = response.headers["etag"]
        fresh = self.got(self.fetch(Request("/a", headers={"If-None-Match": tag})))
        self.assertEqual((fresh.status, self.got(fresh.bytes())), (304, b""))
        none = self.got(self.fetch("/n"))
        self.assertEqual((none.status, self.got(none.bytes())), (204, b""))

    def test_closing(self) -> None:
        """An application that closes each connection answers the same, also to HEAD."""
        self.app.withOptions(keepAlive=False)
        self.app.get("/a", lambda req, res: res.end("hello"))
        for method, body in (("GET", b"hello"), ("HEAD", b"")):
            response = self.got(self.fetch(Request("/a", method)))
            self.assertEqual((response.status, self.got(response.bytes())), (200, body))
            self.assertEqual(response.headers["connection"], "close")

    def test_cookies(self) -> None:
        """Cookies stay apart."""
        self.app.get("/", lambda req, res: res.cookie("a", "1").cookie("b", "2").end())
        response = self.got(self.fetch("/"))
        self.assertEqual(response.headers.getSetCookie(), ["a=1; Path=/", "b=2; Path=/"])

    def test_refusedByTheWire(self) -> None:
        """What a listener refuses is refused with the same answer."""
        reached: list[Any] = []
        self.app.all("/*", lambda req, res: reached.append(req) or res.end())
        for request, status in (
            (Request("/", "TRACE"), 405),
            (Request("/", "BREW"), 405),
            (Request("/" + "a" * 9000), 414),
            (Request("/", headers={"a": "b" * 20_000}), 431),
            (Request("/", headers=[("a", str(n)) for n in range(200)]), 431),
            (Request("/", headers={"Host": "a b"}), 400),
            (Request("/", "POST", {"Content-Length": "-1"}), 400),
            (Request("/", "POST", {"Content-Length": "1", "Transfer-Encoding": "chunked"}), 400),
            (Request("/", "POST", {"Transfer-Encoding": "gzip"}, b"x"), 400),
            (Request("/", headers={"Expect": "miracles"}), 417),
        ):
            response = self.got(self.fetch(request))
            self.assertEqual(response.status, status, request)
            self.assertIn("error", self.got(response.json()))
        self.assertEqual(reached, [])

    def test_limits(self) -> None:
        """The application's limits hold, and a declared length is refused before a byte is read."""
        self.app.withOptions(maxRequestBodySize=4)
        read: list[int] = []

        async def body() -> AsyncIterator[bytes]:
            read.append(1)
            yield b"12345"

        self.app.post("/", lambda req, res: res.end())
        request = Request("/", "POST", {"Content-Length": "5"}, body())
        self.assertEqual(self.got(self.fetch(request)).status, 413)
        self.assertEqual(read, [])

    def test_wrongLength(self) -> None:
        """A body that has another length than it says is the caller's error."""

        async def read(req: Any, res: Any) -> None:
            res.send(await req.read(100))

        self.app.post("/", read)
        for body, declared in ((b"abc", "2"), (b"abc", "4"), (b"", "1")):
            for each in (body, pieces(body)):
                request = Request("/", "POST", {"Content-Length": declared}, each)
                self.raised(ValueError, self.fetch(request))

    def test_usedBody(self) -> None:
        """A request whose body was read can be sent no more; so it is once it was sent."""
        self.app.post("/", lambda req, res: res.end())
        request = Request("/", "POST", body="x")
        self.got(self.fetch(request))
        self.raised(TypeError, self.fetch(request))

    def test_options(self) -> None:
        """Options may be set after the handler was made, until it is used."""
        self.app.withOptions(headersTimeout=1)
        self.app.get("/", lambda req, res: res.end())
        self.assertTrue(self.got(self.fetch("/")).ok)

    def test_nothingLeft(self) -> None:
        """A request that has been answered leaves nothing behind that waits."""
        self.app.get("/", lambda req, res: res.send("x"))
        self.got(self.fetch("/"))
        self.assertEqual(self.clock.getDelayedCalls(), [])


class LaterTests(FetchCase):
    """Requests that are answered in their own time."""

    def test_later(self) -> None:
        """The head is waited for, and comes in a turn of its own."""
        ready: Deferred[None] = Deferred()
        order: list[str] = []

        async def handle(req: Any, res: Any) -> None:
            await ready
            res.on("finish", lambda: order.append("finish"))
            res.send("x")

        self.app.get("/", handle)
        answered = self.started("/")
        answered.addCallback(lambda response: order.append("response") or response)
        self.assertNoResult(answered)
        ready.callback(None)
        self.turn()
        self.assertEqual(self.got(self.successResultOf(answered).text()), "x")
        self.assertEqual(order, ["finish", "response"])

    def test_stream(self) -> None:
        """The body of a response comes as it is written."""
        responses: list[Any] = []

        def handle(req: Any, res: Any) -> None:
            res.write("one")
            responses.append(res)

        self.app.get("/", handle)
        response = self.got(self.fetch("/"))
        body = aiter(response.body)
        self.assertEqual(self.got(anext(body)), b"one")
        second = Deferred.fromCoroutine(anext(body))
        self.assertNoResult(second)
        responses[0].write("two")
        self.turn()
        self.assertEqual(self.successResultOf(second), b"two")
        responses[0].end()
        self.failureResultOf(Deferred.fromCoroutine(anext(body)), StopAsyncIteration)

    def test_unread(self) -> None:
        """A handler waits for a client that does not read, after 64 KiB, and then goes on."""
        written: list[int] = []

        async def handle(req: Any, res: Any) -> None:
            for number in range(100):
                written.append(number)
                await res.write(b"x" * 16384)
            res.end()

        self.app.get("/", handle)
        response = self.got(self.fetch("/"))
        self.assertEqual(len(written), 4)
        body = aiter(response.body)
        self.assertEqual(len(self.got(anext(body))), 65536)
        self.assertEqual(len(written), 8)
        self.assertEqual(len(self.got(self.readAll(body))), 96 * 16384)

    async def readAll(self, body: Any) -> bytes:
        """Read the rest of a stream."""
        return b"".join([chunk async for chunk in body])

    def test_requestStream(self) -> None:
        """The body of a request is asked for a piece whenever the handler wants one."""
        asked: list[int] = []
        go: Deferred[None] = Deferred()

        async def body() -> AsyncIterator[bytes]:
            for number in range(3):
                asked.append(number)
                yield b"%d" % number

        async def handle(req: Any, res: Any) -> None:
            chunks = aiter(req)
            first = await anext(chunks)
            await go
            res.send(first + b"".join([chunk async for chunk in chunks]))

        self.app.post("/", handle)
        answered = self.started(Request("/", "POST", body=body()))
        self.assertEqual(asked, [0])
        go.callback(None)
        self.turn()
        self.assertEqual(self.got(self.successResultOf(answered).text()), "012")
        self.assertEqual(asked, [0, 1, 2])

    def test_unwantedStream(self) -> None:
        """A body that the handler does not read is not asked for, and closed."""
        closed: list[str] = []

        async def body() -> AsyncIterator[bytes]:
            try:
                yield b"a"
                yield b"b"
            finally:
                closed.append("closed")

        async def handle(req: Any, res: Any) -> None:
            async for _ in req:
                break
            res.end()

        self.app.post("/", handle)
        self.assertTrue(self.got(self.fetch(Request("/", "POST", body=body()))).ok)
        self.assertEqual(closed, ["closed"])

    def test_unwantedRest(self) -> None:
        """So it is if the handler answers as a piece arrives that took its time."""
        coming: Deferred[bytes] = Deferred()
        closed: list[str] = []

        async def body() -> AsyncIterator[bytes]:
            try:
                yield await coming
                yield b"b"
            finally:
                closed.append("closed")

        async def handle(req: Any, res: Any) -> None:
            res.send(await anext(aiter(req)))

        self.app.post("/", handle)
        answered = self.started(Request("/", "POST", body=body()))
        coming.callback(b"a")
        self.assertEqual(self.got(self.successResultOf(answered).text()), "a")
        self.assertEqual(closed, ["closed"])

    def test_emptyPieces(self) -> None:
        """An empty piece of a body does not end it."""

        async def handle(req: Any, res: Any) -> None:
            res.send(await req.read(100))

        self.app.post("/", handle)
        body = pieces(b"", b"a", b"", b"b", b"")
        response = self.got(self.fetch(Request("/", "POST", body=body)))
        self.assertEqual(self.got(response.text()), "ab")

    def test_largeBody(self) -> None:
        """A large body given whole arrives whole, and so does a large answer."""

        async def handle(req: Any, res: Any) -> None:
            res.send((await req.read())[::-1])

        self.app.post("/", handle)
        content = bytes(range(256)) * 8192
        response = self.got(self.fetch(Request("/", "POST", body=content)))
        self.assertEqual(self.got(response.bytes()), content[::-1])

    def test_expectation(self) -> None:
        """A request that expects a 100 Continue is answered by its final response alone."""

        async def handle(req: Any, res: Any) -> None:
            res.send(await req.read(100))

        self.app.post("/", handle)
        request = Request("/", "POST", {"Expect": "100-continue"}, pieces(b"a"))
        response = self.got(self.fetch(request))
        self.assertEqual((response.status, self.got(response.text())), (200, "a"))

    def test_interim(self) -> None:
        """An interim response is no head."""
        go: Deferred[None] = Deferred()

        async def handle(req: Any, res: Any) -> None:
            res.write(await req.read(100))
            await go
            res.end()

        async def body() -> AsyncIterator[bytes]:
            await go
            yield b"a"

        self.app.post("/", handle)
        answered = self.started(Request("/", "POST", {"Expect": "100-continue"}, body()))
        self.turn()
        self.assertNoResult(answered)
        go.callback(None)
        self.turn()
        self.assertEqual(self.successResultOf(answered).status, 200)

    def test_brokenBody(self) -> None:
        """What the body of a request raises goes to the caller; the handler sees it cut short."""
        errors: list[Exception] = []

        async def body() -> AsyncIterator[bytes]:
            yield b"a"
            raise KeyError("boom")

        async def handle(req: Any, res: Any) -> None:
            try:
                await req.read(100)
            except BodyLost as error:
                errors.append(error)

        self.app.post("/", handle)
        self.raised(KeyError, self.fetch(Request("/", "POST", body=body())))
        self.assertEqual(len(errors), 1)

    def test_timeout(self) -> None:
        """The application's timeouts hold: a request without progress is answered for it."""
        self.app.withOptions(requestTimeout=2000)
        self.app.get("/", lambda req, res: Deferred())
        answered = self.started("/")
        self.clock.pump([1.0] * 4)
        self.assertEqual(self.successResultOf(answered).status, 503)
