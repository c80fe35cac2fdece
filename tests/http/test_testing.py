"""The test client."""

import threading
from collections.abc import AsyncIterator
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock, deferLater
from twisted.internet.threads import deferToThread
from twisted.trial.unittest import SynchronousTestCase

from storagegate import server
from storagegate.http.fetch.handler import ResponseLost
from storagegate.http.testing import START_TIME, Client, StillWaiting


class ClientCase(SynchronousTestCase):
    """A test with an application and its client."""

    def setUp(self) -> None:
        """Make both."""
        self.app = server.http()
        self.client = Client(self.app)


class AtOnceTests(ClientCase):
    """Calls that are answered before they return."""

    def test_methods(self) -> None:
        """Every method has its call, which gives status, headers and body."""

        def show(req: Any, res: Any) -> None:
            res.status(202).header("X-Method", req.method).send(req.method.lower())

        self.app.all("/m", show)
        for method in ("get", "post", "put", "patch", "delete", "options"):
            response = getattr(self.client, method)("/m")
            self.assertEqual((response.status, response.text), (202, method))
            self.assertEqual(response.headers["x-method"], method.upper())
        self.assertEqual(self.client.head("/m").body, b"")
        self.assertEqual(self.client.request("PROPFIND", "/m").text, "propfind")

    def test_body(self) -> None:
        """A body is bytes, text, a stream, or a value in JSON; the answer can be read as JSON."""

        async def show(req: Any, res: Any) -> None:
            res.json([req.get("content-type"), (await req.read()).decode()])

        async def stream() -> AsyncIterator[bytes]:
            yield b"str"
            yield b"eam"

        self.app.post("/", show)
        for options, seen in (
            ({"body": b"bytes"}, [None, "bytes"]),
            ({"body": "text"}, ["text/plain;charset=UTF-8", "text"]),
            ({"body": stream()}, [None, "stream"]),
            ({"json": {"a": 1}}, ["application/json", '{"a": 1}']),
            ({"json": [], "headers": {"content-type": "a/b"}}, ["a/b", "[]"]),
            ({}, [None, ""]),
        ):
            self.assertEqual(self.client.post("/", **options).json(), seen)
        self.assertRaises(TypeError, self.client.post, "/", body=b"", json=1)

    def test_getWithBody(self) -> None:
        """A GET may have a body, as on the wire."""

        async def show(req: Any, res: Any) -> None:
            res.send(await req.read())

        self.app.get("/", show)
        self.assertEqual(self.client.get("/", body=b"x").body, b"x")

    def test_address(self) -> None:
        """The client seems to be where the test says, and so does the application."""
        client = Client(self.app, url="https://example.org:444", address="192.0.2.9")
        self.app.get("/a", lambda req, res: res.json([req.ip, req.url, req.secure]))
        self.assertEqual(
            client.get("/a?b").json(), ["192.0.2.9", "https://example.org:444/a?b", True]
        )
        self.assertEqual(client.get("http://x/a").json(), ["192.0.2.9", "http://x/a", False])

    def test_raw(self) -> None:
        """Paths go out as they are written, so that traversal can be tried."""
        self.app.get("/*", lambda req, res: res.send(req.originalUrl))
        for path in ("/a/../b", "/%2e%2e/%2F", "/a//b", "//x"):
            self.assertEqual(self.client.get(path).text, path)
        self.assertEqual(self.client.get("/%zz").status, 400)

    def test_lost(self) -> None:
        """A connection that the application drops is an error."""
        self.app.get("/", lambda req, res: req.raw.abort())
        self.assertRaises(ResponseLost, self.client.get, "/")

    def test_closing(self) -> None:
        """A connection that closes after a whole response is not a lost one, also after HEAD."""
        client = Client(self.app.withOptions(keepAlive=False))
        self.app.get("/", lambda req, res: res.end("x"))
        self.assertEqual(client.get("/").body, b"x")
        self.assertEqual(client.head("/").status, 200)

    def test_threads(self) -> None:
        """What belongs in a thread is done at once, in the test's own, errors and all."""

        async def handle(req: Any, res: Any) -> None:
            ident = await self.app.runtime.run(threading.get_ident)
            # As the runtime of a reactor, it takes keywords, whatever their names.
            run = self.app.runtime.run
            found = await run(dict, [("a", 1)], function=2, callable=3, reactor=4)
            self.assertEqual(found, {"a": 1, "function": 2, "callable": 3, "reactor": 4})
            try:
                await run(int, "x", base=16)
            except ValueError:
                res.json(ident == threading.get_ident())

        self.app.get("/", handle)
        self.assertIs(self.client.get("/").json(), True)

    def test_zeroDelay(self) -> None:
        """A handler that only lets a turn of the reactor pass is answered too."""

        async def handle(req: Any, res: Any) -> None:
            for _ in range(5):
                await deferLater(self.client.clock, 0)
            res.end("x")

        self.app.get("/", handle)
        self.assertEqual(self.client.get("/").text, "x")


class LaterTests(ClientCase):
    """Calls that take time."""

    def test_stillWaiting(self) -> None:
        """A call that is not answered says so, and can be followed further."""
        ready: Deferred[str] = Deferred()

        async def handle(req: Any, res: Any) -> None:
            res.send(await ready)

        self.app.get("/slow", handle)
        error = self.assertRaises(StillWaiting, self.client.get, "/slow")
        self.assertIn("GET /slow", str(error))
        self.assertFalse(error.call.done)
        self.assertRaises(StillWaiting, lambda: error.call.response)
        ready.callback("x")
        self.assertTrue(error.call.done)
        self.assertEqual(error.call.response.text, "x")

    def test_advance(self) -> None:
        """Time passes when it is told to, and the time of day with it."""
        times: list[float] = []

        async def handle(req: Any, res: Any) -> None:
            times.append(self.app.runtime.now())
            await deferLater(self.client.clock, 2.5)
            times.append(self.app.runtime.now())
            res.end()

        self.app.get("/", handle)
        call = self.client.start("GET", "/")
        self.client.advance(2)
        self.assertFalse(call.done)
        self.client.advance(0.5)
        self.assertTrue(call.done)
        self.assertEqual(times, [START_TIME, START_TIME + 2.5])

    def test_clock(self) -> None:
        """A clock may be shared."""
        clock = Clock()
        client = Client(self.app, clock=clock)
        client.advance(90)
        self.assertEqual(clock.seconds(), 90)
        self.assertIs(self.app.runtime.clock, clock)

    def test_received(self) -> None:
        """What has come so far can be looked at, and the head."""
        responses: list[Any] = []
        self.app.get("/", lambda req, res: responses.append(res))
        call = self.client.start("GET", "/")
        self.assertIsNone(call.head)
        responses[0].write("one")
        assert call.head is not None
        self.assertEqual(call.head.status, 200)
        self.assertEqual(call.received, b"one")
        responses[0].write("two")
        self.assertEqual(call.received, b"onetwo")
        self.assertFalse(call.done)
        responses[0].end()
        self.assertEqual(call.response.body, b"onetwo")

    def test_disconnect(self) -> None:
        """A client may go away; the call is over with that."""
        events: list[str] = []
        self.app.get("/", lambda req, res: req.on("close", lambda: events.append("close")))
        call = self.client.start("GET", "/")
        call.disconnect()
        self.assertEqual(events, ["close"])
        self.assertTrue(call.done)
        self.assertRaises(ResponseLost, lambda: call.response)

    def test_cutShort(self) -> None:
        """A handler waits for a body that is announced and does not come, until the client goes."""
        errors: list[Any] = []

        async def handle(req: Any, res: Any) -> None:
            try:
                await req.read()
            except Exception as error:
                errors.append(error)

        self.app.post("/", handle)
        call = self.client.start("POST", "/", headers={"Content-Length": "10"})
        self.assertEqual(errors, [])
        call.disconnect()
        self.assertEqual(len(errors), 1)

    def test_notReading(self) -> None:
        """A client that does not read makes the application wait, until it does."""
        written: list[int] = []

        async def handle(req: Any, res: Any) -> None:
            for number in range(20):
                await res.write(b"x" * 10_000)
                written.append(number)
            res.end()

        self.app.get("/", handle)
        call = self.client.start("GET", "/", reading=False)
        self.client.flush()
        self.assertLess(len(written), 10)
        self.assertEqual(call.received, b"")
        call.reading = True
        self.assertEqual(len(call.response.body), 200_000)
        self.assertEqual(len(written), 20)

    def test_endless(self) -> None:
        """A response that never ends does not fill the memory."""

        async def handle(req: Any, res: Any) -> None:
            while True:
                await res.write(b"x" * 1_000_000)

        self.app.get("/", handle)
        error = self.assertRaises(AssertionError, self.client.get, "/")
        self.assertIn("does not end", str(error))

    def test_timeouts(self) -> None:
        """The application's own timeouts run on the client's clock."""
        self.app.withOptions(requestTimeout=3000)
        client = Client(self.app)
        self.app.get("/", lambda req, res: Deferred())
        call = client.start("GET", "/")
        client.advance(5)
        self.assertEqual(call.response.status, 503)


class CookieTests(ClientCase):
    """What the client remembers."""

    def setUp(self) -> None:
        """Add a route that sets cookies, and one that shows them."""
        super().setUp()
        self.cookie: dict[str, Any] = {}
        self.app.get("/set", self.set)
        self.app.get("/dir/set", self.set)
        self.app.get("/*", lambda req, res: res.send(req.get("cookie") or ""))

    def set(self, req: Any, res: Any) -> None:
        """Set a cookie."""
        for line in self.cookie["lines"]:
            res.append("Set-Cookie", line)
        res.end()

    def give(self, *lines: str, path: str = "/set", client: Client | None = None) -> None:
        """Let the application set cookies."""
        self.cookie["lines"] = lines
        (client or self.client).get(path)

    def test_kept(self) -> None:
        """Cookies are sent again, and can be looked at; a new value takes the old one's place."""
        self.give("a=1; Path=/", "b=2; Path=/; HttpOnly")
        self.assertEqual(self.client.get("/").text, "a=1; b=2")
        self.give("a=3; Path=/")
        self.assertEqual(self.client.get("/").text, "b=2; a=3")
        self.assertEqual(self.client.cookies["a"], "3")
        self.assertEqual(sorted(self.client.cookies), ["a", "b"])
        self.assertIn("a", self.client.cookies)
        self.assertRaises(KeyError, lambda: self.client.cookies["c"])

    def test_own(self) -> None:
        """A Cookie field of the test's own is sent in their place."""
        self.give("a=1; Path=/")
        self.assertEqual(self.client.get("/", headers={"Cookie": "x=y"}).text, "x=y")

    def test_path(self) -> None:
        """A cookie is for its path and what is below; without one, for where it was set."""
        self.give("a=1; Path=/p", "b=2")
        self.assertEqual(self.client.get("/p").text, "a=1; b=2")
        self.assertEqual(self.client.get("/p/q").text, "a=1; b=2")
        self.assertEqual(self.client.get("/pq").text, "b=2")
        self.give("c=3", path="/dir/set")
        self.assertEqual(self.client.get("/dir/x").text, "c=3; b=2")
        self.assertEqual(self.client.get("/x").text, "b=2")

    def test_removed(self) -> None:
        """A cookie goes when it is told to, or when its time is over."""
        self.give("a=1; Path=/; Max-Age=10", "b=2; Path=/")
        self.client.advance(9)
        self.assertEqual(self.client.get("/").text, "a=1; b=2")
        self.client.advance(1)
        self.assertEqual(self.client.get("/").text, "b=2")
        self.give("b=; Path=/; Expires=Thu, 01 Jan 1970 00:00:00 GMT")
        self.assertEqual(len(self.client.cookies), 0)
        self.give("c=1; Path=/; Expires=Fri, 31 Dec 2100 00:00:00 GMT", "d=1; Path=/; Max-Age=x")
        self.assertEqual(self.client.get("/").text, "c=1; d=1")
        self.client.cookies.clear()
        self.assertEqual(self.client.get("/").text, "")

    def test_secure(self) -> None:
        """A secure cookie is sent over https alone."""
        client = Client(self.app, url="https://localhost")
        self.give("a=1; Path=/; Secure", client=client)
        self.assertEqual(client.get("/").text, "a=1")
        self.assertEqual(client.get("http://localhost/").text, "")

    def test_set(self) -> None:
        """A test may add a cookie of its own."""
        self.client.cookies.set("a", "1")
        self.assertEqual(self.client.get("/x").text, "a=1")

    def test_stream(self) -> None:
        """Cookies are kept as soon as the head is there."""

        def handle(req: Any, res: Any) -> None:
            res.header("Set-Cookie", "early=1; Path=/")
            res.write("x")

        app = server.http()
        app.get("/", handle)
        client = Client(app)
        client.start("GET", "/")
        self.assertIn("early", client.cookies)


class FormTests(ClientCase):
    """Forms, files, cookies, redirects and threads."""

    def setUp(self) -> None:
        """Show what arrives."""
        super().setUp()

        async def show(req: Any, res: Any) -> None:
            res.json([req.get("content-type"), (await req.read()).decode(), req.get("cookie")])

        self.app.all("/show", show)

    def test_form(self) -> None:
        """A form is URL-encoded, or multipart with its files."""
        kind, body, _ = self.client.post("/show", form={"a": "x y", "n": 1, "l": ["1", "2"]}).json()
        self.assertEqual((kind, body), ("application/x-www-form-urlencoded", "a=x+y&n=1&l=1&l=2"))
        files: Any = {'f"': [b"1", ("b.txt", "2")], "g": ("c", b"3", "a/b")}
        kind, body, _ = self.client.post("/show", form={"a": "ä"}, files=files).json()
        boundary = kind.removeprefix("multipart/form-data; boundary=")
        head = f"--{boundary}\r\nContent-Disposition: form-data; name="
        self.assertEqual(
            body,
            f'{head}"a"\r\n\r\nä\r\n'
            f'{head}"f%22"; filename="f%22"\r\nContent-Type: application/octet-stream\r\n\r\n1\r\n'
            f'{head}"f%22"; filename="b.txt"\r\nContent-Type: text/plain\r\n\r\n2\r\n'
            f'{head}"g"; filename="c"\r\nContent-Type: a/b\r\n\r\n3\r\n--{boundary}--\r\n',
        )
        self.assertRaises(TypeError, self.client.post, "/show", form={}, json={})

    def test_cookies(self) -> None:
        """Cookies of one request are sent beside those of the client, and before them."""
        self.client.cookies.set("a", "1")
        self.client.cookies.set("b", "2")
        seen = self.client.get("/show", cookies={"b": "3", "c": "4"}).json()[2]
        self.assertEqual(seen, "a=1; b=3; c=4")
        self.assertEqual(self.client.get("/show").json()[2], "a=1; b=2")
        self.app.ws("/ws", lambda socket: socket.send(socket.request.get("cookie")))
        self.assertEqual(
            self.client.websocket("/ws", cookies={"c": "5"}).receive(), "a=1; b=2; c=5"
        )

    def test_follow(self) -> None:
        """Redirects are followed as by a browser: with GET after 303, unchanged after 307."""
        self.app.post("/303", lambda req, res: res.redirect(303, "next"))
        self.app.post("/307", lambda req, res: res.redirect(307, "/next"))
        self.app.all("/next", lambda req, res: res.redirect(302, "/show?a=b"))
        self.app.get("/ever", lambda req, res: res.redirect("/ever"))
        response = self.client.post("/303", body="x", follow=True)
        self.assertEqual(response.json()[:2], [None, ""])
        self.assertEqual(response.url, "http://localhost/show?a=b")
        self.assertEqual([each.status for each in response.history], [303, 302])
        self.assertEqual(self.client.post("/303", body="x").status, 303)
        self.assertEqual(self.client.put("/next", body="x", follow=True).json()[1], "x")
        self.assertRaises(AssertionError, self.client.get, "/ever", follow=True)
        self.assertRaises(TypeError, self.client.start, "GET", "/ever", follow=True)

    def test_threads(self) -> None:
        """A handler that works in a thread of the reactor is waited for, also one that fails."""
        main = threading.main_thread()

        async def work(req: Any, res: Any) -> Any:
            first = await deferToThread(lambda: threading.current_thread() is main)
            return [first, await deferToThread(int, req.query["n"])]

        self.app.get("/work", work)
        self.assertEqual(self.client.get("/work?n=7").json(), [False, 7])
        self.assertEqual(self.client.get("/work?n=x").status, 500)
        self.assertEqual(len(self.flushLoggedErrors(ValueError)), 1)
        self.app.get("/wait", lambda req, res: Deferred())
        self.assertRaises(StillWaiting, self.client.get, "/wait")
