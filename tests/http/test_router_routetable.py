"""Route tables of standard handlers."""

import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from twisted.internet.defer import Deferred
from twisted.trial.unittest import SynchronousTestCase
from twisted.web.static import Data
from twisted.web.template import Element, TagLoader, renderer, tags

from storagegate import server
from storagegate.http import Request, Response, Router, json, text
from storagegate.http.testing import Client
from tests.http.fetching import pieces


class TableCase(SynchronousTestCase):
    """A test with an application and its client."""

    def setUp(self) -> None:
        """Make both."""
        self.app = server.http()
        self.client = Client(self.app)


class HandlerTests(TableCase):
    """Handlers of standard requests."""

    def test_handler(self) -> None:
        """A handler answers every method of its path with what it gives."""
        seen: list[Request] = []

        def handle(request: Request) -> Response:
            seen.append(request)
            return Response("hi", 201, {"X-One": "1"})

        self.assertIs(self.app.withRoutes({"/x/:id": handle}), self.app)
        response = self.client.post("/x/7?q=1", headers={"X-Two": "2"})
        self.assertEqual((response.status, response.text), (201, "hi"))
        self.assertEqual(response.headers["x-one"], "1")
        [request] = seen
        self.assertEqual((request.method, request.params), ("POST", {"id": "7"}))
        self.assertEqual(request.url, "http://localhost/x/7?q=1")
        self.assertEqual(request.headers.get("x-two"), "2")

    def test_awaited(self) -> None:
        """A handler may give its response later: as a coroutine or a Deferred."""
        coming: Deferred[Response] = Deferred()

        async def later(request: Request) -> Response:
            return Response(await request.text())

        self.app.withRoutes({"/c": later, "/d": lambda request: coming})
        self.assertEqual(self.client.post("/c", body="text").text, "text")
        call = self.client.start("GET", "/d")
        self.assertFalse(call.done)
        coming.callback(Response("d"))
        self.assertEqual(call.response.text, "d")

    def test_asItIs(self) -> None:
        """A response goes out as it is, without a type or a tag of ours."""
        self.app.withRoutes({"/": lambda request: Response(b"x")})
        headers = self.client.get("/").headers
        self.assertEqual(sorted(dict(headers)), ["content-length", "date"])

    def test_json(self) -> None:
        """JSON can be read and written."""

        async def handle(request: Request) -> Response:
            return Response.json({"got": await request.json()})

        self.app.withRoutes({"/": handle})
        response = self.client.post("/", json=[1])
        self.assertEqual(response.json(), {"got": [1]})
        self.assertTrue(response.headers["content-type"].startswith("application/json"))

    def test_parsedBefore(self) -> None:
        """A body that a middleware has read already can be read again."""

        async def echo(request: Request) -> Response:
            return Response(await request.bytes())

        async def stream(request: Request) -> Response:
            return Response(b"".join([chunk async for chunk in request.body]))

        self.app.use(json())
        self.app.use(text())
        self.app.withRoutes({"/e": echo, "/s": stream})
        for path in ("/e", "/s"):
            self.assertEqual(self.client.post(path, json={"a": [1]}).json(), {"a": [1]})
            self.assertEqual(self.client.post(path, body="caf\u00e9").text, "caf\u00e9")
            self.assertEqual(self.client.post(path, body=b"\xff").body, b"\xff")

    def test_badBody(self) -> None:
        """A body that is no JSON is a 400, one that is too long a 413."""
        self.app.withOptions(maxRequestBodySize=10)
        client = Client(self.app)

        async def handle(request: Request) -> Response:
            return Response.json(await request.json())

        async def stream() -> AsyncIterator[bytes]:
            yield b"[1, 2, 3, "
            yield b"4]"

        self.app.withRoutes({"/": handle})
        self.assertEqual(client.post("/", body=b"{").status, 400)
        self.assertEqual(client.post("/", body=b"[" + b" " * 10).status, 413)
        self.assertEqual(client.post("/", body=stream()).status, 413)

    def test_stream(self) -> None:
        """Bodies stream in both directions, and a response may be that of another application."""

        async def shout(request: Request) -> Response:
            async def body() -> AsyncIterator[bytes]:
                async for chunk in request.body:
                    yield chunk.upper()

            return Response(body())

        self.app.withRoutes({"/": shout})
        fetch = self.app.createFetchHandler()
        proxy = server.http().withRoutes(
            {"/p": lambda request: fetch(Request("/", "POST", body=request.body))}
        )
        client = Client(proxy, clock=self.client.clock)
        response = client.post("/p", body=pieces(b"a", b"b"))
        self.assertEqual((response.status, response.text), (200, "AB"))

    def test_length(self) -> None:
        """A stream of known length goes out with it; one that is not true to it is dropped."""
        self.app.withRoutes(
            {
                "/a": lambda request: Response(pieces(b"ab"), headers={"Content-Length": "2"}),
                "/b": lambda request: Response(pieces(b"ab"), headers={"Content-Length": "3"}),
            }
        )
        response = self.client.get("/a")
        self.assertEqual((response.headers["content-length"], response.body), ("2", b"ab"))
        self.assertNotIn("transfer-encoding", response.headers)
        call = self.client.start("GET", "/b")
        self.client.flush()
        self.assertRaises(ConnectionError, lambda: call.response)
        self.flushLoggedErrors(ValueError)

    def test_knownLength(self) -> None:
        """Middleware that encodes bodies learns the length of a stream, if it has one."""
        lengths: list[int | None] = []

        def middleware(req: Any, res: Any, next: Any) -> Any:
            res.encodeBody(lengths.append)
            return next()

        self.app.use(middleware)
        self.app.withRoutes(
            {
                "/a": lambda request: Response(pieces(b"ab"), headers={"Content-Length": "2"}),
                "/b": lambda request: Response(pieces(b"ab")),
                "/c": Data(b"abc", "text/plain"),
            }
        )
        for path in ("/a", "/b", "/c"):
            self.client.get(path)
        self.assertEqual(lengths, [2, None, 3])

    def test_clientGone(self) -> None:
        """A stream is closed when its client goes away, also while it waits."""
        closed: list[str] = []
        never: Deferred[None] = Deferred()

        async def body() -> AsyncIterator[bytes]:
            try:
                yield b"one"
                await never
            finally:
                closed.append("closed")

        self.app.withRoutes({"/": lambda request: Response(body())})
        call = self.client.start("GET", "/")
        self.assertEqual(call.received, b"one")
        call.disconnect()
        self.client.flush()
        self.assertEqual(closed, ["closed"])

    def test_clientGoneWhileWriting(self) -> None:
        """So it is when its client goes away while a piece waits to be sent."""
        closed: list[str] = []
        ready: Deferred[None] = Deferred()

        async def body() -> AsyncIterator[bytes]:
            try:
                while True:
                    yield b"x" * 10_000
            finally:
                await ready
                closed.append("closed")

        self.app.withRoutes({"/": lambda request: Response(body())})
        call = self.client.start("GET", "/", reading=False)
        call.disconnect()
        ready.callback(None)
        self.assertEqual(closed, ["closed"])

    def test_proxyGone(self) -> None:
        """A response of another application is cancelled there when the client goes away."""
        events: list[str] = []
        responses: list[Response] = []

        def forever(req: Any, res: Any) -> None:
            req.on("close", lambda: events.append("close"))
            res.write("x")

        async def proxy(request: Request) -> Response:
            responses.append(await fetch("/forever"))
            return responses[0]

        self.app.get("/forever", forever)
        fetch = self.app.createFetchHandler()
        client = Client(server.http().withRoutes({"/p": proxy}), clock=self.client.clock)
        call = client.start("GET", "/p")
        self.assertEqual(call.received, b"x")
        call.disconnect()
        self.assertEqual(events, ["close"])

    def test_brokenStream(self) -> None:
        """A stream that fails drops the connection, and is logged."""

        async def body() -> AsyncIterator[bytes]:
            yield b"one"
            raise KeyError("boom")

        self.app.withRoutes({"/": lambda request: Response(body())})
        self.assertRaises(ConnectionError, self.client.get, "/")
        self.assertEqual(len(self.flushLoggedErrors(KeyError)), 1)

    def test_notAResponse(self) -> None:
        """A handler that gives something else is a 500, and the log says which and what."""

        def plain(request: Request) -> Any:
            return {"a": 1}

        async def later(request: Request) -> Any:
            return None

        self.app.withRoutes({"/p": plain, "/l": later})
        for path, said in (("/p", "plain returned {'a': 1}"), ("/l", "later returned None")):
            self.assertEqual(self.client.get(path).status, 500)
            [failure] = self.flushLoggedErrors(TypeError)
            self.assertIn(said, str(failure.value))

    def test_error(self) -> None:
        """An exception goes the way of every handler's: to error handlers, or it is a 500."""

        def broken(request: Request) -> Response:
            raise KeyError("boom")

        self.app.withRoutes({"/": broken})
        self.assertEqual(self.client.get("/").status, 500)
        self.assertEqual(len(self.flushLoggedErrors(KeyError)), 1)
        self.app.use(lambda error, req, res, next: res.status(418).end())
        self.assertEqual(self.client.get("/").status, 418)

    def test_sharedResponse(self) -> None:
        """A response cannot be given twice: its body has gone out."""
        response = Response("x")
        self.app.withRoutes({"/": lambda request: response})
        self.assertEqual(self.client.get("/").status, 200)
        self.assertEqual(self.client.get("/").status, 500)
        self.assertEqual(len(self.flushLoggedErrors(TypeError)), 1)

    def test_middleware(self) -> None:
        """What middleware sets stays, unless the response says otherwise; Vary is joined."""

        def middleware(req: Any, res: Any, next: Any) -> Any:
            res.header({"X-A": "1", "X-B": "1"}).vary("Origin").cookie("m", "1")
            return next()

        fields = [("x-b", "2"), ("vary", "Accept"), ("set-cookie", "h=1"), ("set-cookie", "i=2")]
        self.app.use(middleware)
        self.app.withRoutes({"/": lambda request: Response(None, 204, fields)})
        headers = self.client.get("/").headers
        self.assertEqual((headers["x-a"], headers["x-b"]), ("1", "2"))
        self.assertEqual(headers["vary"], "Origin, Accept")
        self.assertEqual(headers.getSetCookie(), ["m=1; Path=/", "h=1", "i=2"])

    def test_injection(self) -> None:
        """A redirection to what a client has sent cannot add fields."""
        self.app.withRoutes({"/": lambda request: Response.redirect("/a\r\nX: y")})
        response = self.client.get("/")
        self.assertEqual(response.status, 302)
        self.assertNotIn("x", response.headers)


class MethodTests(TableCase):
    """Mappings of methods to handlers."""

    def test_methods(self) -> None:
        """Each method has its handler; HEAD, OPTIONS and 405 are as for every route."""
        self.app.withRoutes(
            {"/x": {"GET": lambda request: Response("g"), "post": lambda request: Response("p")}}
        )
        self.assertEqual(self.client.get("/x").text, "g")
        self.assertEqual(self.client.post("/x").text, "p")
        self.assertEqual(self.client.head("/x").headers["content-length"], "1")
        refused = self.client.delete("/x")
        self.assertEqual((refused.status, refused.headers["allow"]), (405, "GET, HEAD, POST"))
        self.assertEqual(self.client.options("/x").headers["allow"], "GET, HEAD, POST")
        self.assertTrue(self.app.hasRoute("GET", "/x"))
        self.assertFalse(self.app.hasRoute("PUT", "/x"))

    def test_router(self) -> None:
        """A router takes a table, too, and its parameters."""
        router = Router(mergeParams=True)
        router.withRoutes({"/:b": lambda request: Response.json(request.params)})
        self.app.use("/:a", router)
        self.assertEqual(self.client.get("/1/2").json(), {"a": "1", "b": "2"})

    def test_refused(self) -> None:
        """What a table cannot have is an error that names the path, at once."""
        for value in (5, None, b"x", "page.txt", {"GET": 5}, ["x"]):
            error = self.assertRaises(TypeError, self.app.withRoutes, {"/bad": value})
            self.assertIn("/bad", str(error))
        error = self.assertRaises(ValueError, self.app.withRoutes, {"/bad": {"BREW": print}})
        self.assertIn("/bad", str(error))


class Page(Element):
    """A page with a title."""

    loader = TagLoader(tags.html(tags.title(render="title")))

    @renderer
    def title(self, request: Any, tag: Any) -> Any:
        """Show the path."""
        return tag(f"<{request.path}>")


class PageTests(TableCase):
    """HTML pages."""

    def test_file(self) -> None:
        """The path of a file is a page, read anew for each request."""
        path = Path(self.mktemp() + ".html").absolute()
        path.write_text("<p>one")
        self.app.withRoutes({"/": path, "/s": os.path.relpath(path)})
        response = self.client.get("/")
        self.assertEqual((response.status, response.text), (200, "<p>one"))
        self.assertEqual(response.headers["content-type"], "text/html; charset=utf-8")
        path.write_text("<p>three")
        self.assertEqual(self.client.get("/s").text, "<p>three")
        self.assertEqual(self.client.post("/").status, 405)
        path.unlink()
        self.assertEqual(self.client.get("/").status, 404)

    def test_element(self) -> None:
        """A template element is rendered for the request, as HTML."""
        self.app.withRoutes({"/p": Page(), "/m": {"GET": Page()}})
        response = self.client.get("/p")
        self.assertEqual(response.text, "<!DOCTYPE html>\n<html><title>&lt;/p&gt;</title></html>")
        self.assertEqual(response.headers["content-type"], "text/html; charset=utf-8")
        self.assertEqual(self.client.get("/m").status, 200)
        self.assertEqual(self.client.post("/p").status, 405)

    def test_brokenElement(self) -> None:
        """An element that fails is a 500."""

        class Broken(Element):
            loader = TagLoader(tags.html(render="nothing"))

        self.app.withRoutes({"/": Broken()})
        self.assertEqual(self.client.get("/").status, 500)
        self.assertEqual(len(self.flushLoggedErrors()), 1)
