"""What handlers return, and handlers that end without a response."""

import dataclasses
from collections import ChainMap
from collections.abc import AsyncIterator
from typing import Any

import attrs
import msgspec
from twisted.internet.defer import Deferred, succeed
from twisted.internet.task import deferLater

from storagegate.http import HTTPError, Response, Router
from storagegate.http.errors import MissingResponse
from tests.http.test_dispatch import PipelineCase


@attrs.frozen
class Point:
    """A model of attrs."""

    x: int


@dataclasses.dataclass
class Line:
    """A dataclass."""

    start: Point


class Area(msgspec.Struct):
    """A structure of msgspec."""

    size: int


# What pydantic's models have.
Model = type("Model", (), {"model_dump": lambda self, mode: {"mode": mode}})


class ResultTests(PipelineCase):
    """What a handler returns is its response."""

    def returned(self, value: Any) -> tuple[int, str | None, str]:
        """Return status, type and text of the response to one of each kind of handler."""

        async def coroutine(req: Any, res: Any) -> Any:
            return value

        async def slow(req: Any, res: Any) -> Any:
            return await deferLater(self.client.clock, 1, lambda: value)

        self.setUp()
        self.app.get("/plain", lambda req, res: value)
        self.app.get("/next", lambda req, res, next: value)
        self.app.get("/coroutine", coroutine)
        self.app.get("/slow", slow)
        self.app.get("/deferred", lambda req, res: succeed(value))
        found = set()
        for path in ("/plain", "/next", "/coroutine", "/slow", "/deferred"):
            call = self.client.start("GET", path)
            self.client.advance(2)
            response = call.response
            found.add((response.status, response.headers.get("content-type"), response.text))
        (one,) = found
        return one

    def test_kinds(self) -> None:
        """Mappings, lists and models are JSON, text is HTML, bytes are bytes."""
        json = "application/json; charset=utf-8"
        for value, kind, text in [
            ({"a": 1}, json, '{"a":1}'),
            (ChainMap({"a": 1}), json, '{"a":1}'),
            ([1, 2], json, "[1,2]"),
            ({}, json, "{}"),
            (0, json, "0"),
            (False, json, "false"),
            (Line(Point(3)), json, '{"start":{"x":3}}'),
            (Area(4), json, '{"size":4}'),
            ([Model()], json, '[{"mode":"json"}]'),
            ("<p>", "text/html; charset=utf-8", "<p>"),
            ("", "text/html; charset=utf-8", ""),
            (b"ab", "application/octet-stream", "ab"),
            (bytearray(b"ab"), "application/octet-stream", "ab"),
        ]:
            self.assertEqual(self.returned(value), (200, kind, text), value)

    def test_standard(self) -> None:
        """So is a standard response, also one whose body is a stream."""

        async def pieces() -> AsyncIterator[bytes]:
            yield b"a"
            await deferLater(self.client.clock, 1, lambda: None)
            yield b"b"

        async def coroutine(req: Any, res: Any) -> Response:
            await deferLater(self.client.clock, 1, lambda: None)
            return Response(pieces(), 202)

        async def around(req: Any, res: Any, next: Any) -> None:
            await next()
            self.seen.append(res.finished)

        self.app.use(around)
        self.app.get("/whole", lambda req, res: Response("a", 201))
        self.app.get("/stream", lambda req, res: Response(pieces()))
        self.app.get("/coroutine", coroutine)
        self.assertEqual(self.client.get("/whole").status, 201)
        for path, status in (("/stream", 200), ("/coroutine", 202)):
            call = self.client.start("GET", path)
            self.client.advance(3)
            self.assertEqual((call.response.status, call.response.text), (status, "ab"))
        self.assertEqual(self.seen, [True] * 3)

    def test_settings(self) -> None:
        """Status, type and fields that the handler has set hold."""

        def handler(req: Any, res: Any) -> Any:
            res.status(201).type("txt").header("X-A", "b")
            return "text"

        self.app.get("/", handler)
        response = self.client.get("/")
        self.assertEqual(response.status, 201)
        self.assertEqual(response.headers["content-type"], "text/plain; charset=utf-8")
        self.assertEqual(response.headers["x-a"], "b")

    def test_responded(self) -> None:
        """What a handler returns that has responded, or called C{next}, means nothing."""

        async def later(req: Any, res: Any, next: Any) -> Any:
            await next()
            return "ignored"

        async def slow(req: Any, res: Any) -> Any:
            await deferLater(self.client.clock, 1, lambda: None)
            return "slow"

        self.app.get("/sent", lambda req, res: [res.send("sent")])
        self.app.get("/begun", lambda req, res: (res.write("be"), res.end("gun")))
        self.app.use(lambda req, res, next: [next()], later)
        self.app.get("/slow", slow)
        self.assertEqual(self.client.get("/sent").text, "sent")
        self.assertEqual(self.client.get("/begun").text, "begun")
        call = self.client.start("GET", "/slow")
        self.client.advance(2)
        self.assertEqual(call.response.text, "slow")
        self.assertEqual(self.client.get("/missing").status, 404)

    def test_errorHandler(self) -> None:
        """What an error handler returns has the status of the error, unless it sets another."""
        router = Router()
        self.app.get("/coded", lambda req, res: (_ for _ in ()).throw(HTTPError(409)))
        self.app.get("/plain", self.boom)
        router.get("/own", self.boom)
        router.use(lambda error, req, res, next: [res.status(418), {"own": True}][1])
        self.app.use(router)

        async def handle(error: Any, req: Any, res: Any, next: Any) -> Any:
            return {"error": str(error)}

        self.app.use(handle)
        self.assertEqual(self.client.get("/coded").status, 409)
        response = self.client.get("/plain")
        self.assertEqual((response.status, response.json()), (500, {"error": "broken"}))
        self.assertEqual(self.client.get("/own").status, 418)

    def test_noResponse(self) -> None:
        """What cannot be written is an error that names the handler."""

        def odd(req: Any, res: Any) -> Any:
            return object()

        self.app.get("/", odd)
        self.app.get("/inside", lambda req, res: {"a": object()})
        for path, name in (("/", "odd"), ("/inside", "<lambda>")):
            self.assertEqual(self.client.get(path).status, 500)
            (failure,) = self.flushLoggedErrors(TypeError)
            self.assertIn(f"{name} did not return a response: object", failure.getErrorMessage())

    def test_schedules(self) -> None:
        """A plain function may return what it has scheduled, which is no response."""
        later = self.client.clock.callLater
        self.app.get("/", lambda req, res: later(1, res.send, "later"))
        call = self.client.start("GET", "/")
        self.client.advance(1)
        self.assertEqual(call.response.text, "later")


class SilentTests(PipelineCase):
    """A handler that ends with nothing sent, nothing returned and no C{next}."""

    def assertSilent(self, path: str, name: str) -> None:
        """Check that the response is a 500, and that the log says which handler was silent."""
        call = self.client.start("GET", path)
        self.client.advance(3)
        self.assertEqual(call.response.status, 500)
        (failure,) = self.flushLoggedErrors(MissingResponse)
        self.assertEqual(
            failure.getErrorMessage(),
            f"GET {path}: SilentTests.{name} sent nothing, returned nothing and did not call "
            "next()",
        )

    def plain(self, req: Any, res: Any) -> None:
        """Do nothing."""

    def returning(self, req: Any, res: Any) -> Any:
        """Set a status only."""
        return res.status(201)

    def middleware(self, req: Any, res: Any, next: Any) -> None:
        """Forget to go on."""

    def error(self, error: Any, req: Any, res: Any, next: Any) -> None:
        """Forget the error."""

    async def coroutine(self, req: Any, res: Any) -> None:
        """Do nothing."""

    async def slow(self, req: Any, res: Any) -> None:
        """Wait, and do nothing."""
        await deferLater(self.client.clock, 1, lambda: None)

    def deferred(self, req: Any, res: Any) -> Any:
        """Return a Deferred of nothing."""
        return deferLater(self.client.clock, 1, lambda: None)

    async def caught(self, req: Any, res: Any) -> None:
        """Catch that a file cannot be sent."""
        try:
            await res.sendFile("/absent")
        except HTTPError:
            pass

    def test_kinds(self) -> None:
        """It is a 500 for each kind of handler, with other handlers around it and without."""

        async def around(req: Any, res: Any, next: Any) -> None:
            res.on("finish", lambda: self.seen.append(res.statusCode))
            await next()

        names = ["plain", "returning", "middleware", "coroutine", "slow", "deferred", "caught"]
        for name in names:
            self.app.get(f"/{name}", getattr(self, name))
        self.app.use(around, lambda req, res, next: next())
        for name in names:
            self.app.get(f"/around/{name}", getattr(self, name))
        for name in names:
            self.assertSilent(f"/{name}", name)
            self.assertSilent(f"/around/{name}", name)
        self.assertEqual(self.seen, [500] * len(names))

    def test_query(self) -> None:
        """The log has no query, which may hold a secret."""
        self.app.get("/plain", self.plain)
        self.client.get("/plain?token=mine")
        (failure,) = self.flushLoggedErrors(MissingResponse)
        self.assertTrue(failure.getErrorMessage().startswith("GET /plain: "))

    def test_development(self) -> None:
        """In development the response says so too."""
        self.app.withOptions(development=True)
        self.app.get("/", self.plain)
        self.assertIn("sent nothing", self.client.get("/").json()["traceback"][-1])
        self.flushLoggedErrors(MissingResponse)

    def test_errorHandler(self) -> None:
        """It goes to the error handlers, and from one that is silent to the next."""
        router = Router()
        router.get("/slow", self.slow)
        router.use(self.error)
        self.app.use(router)
        self.app.get("/plain", self.plain)
        self.app.use(self.tell)
        for path in ("/plain", "/slow"):
            call = self.client.start("GET", path)
            self.client.advance(3)
            self.assertEqual(call.response.status, 418)

    def test_wrapper(self) -> None:
        """A handler that goes on after C{await next()} may still respond."""

        async def around(req: Any, res: Any, next: Any) -> None:
            await next()
            res.json(res.locals)

        def before(req: Any, res: Any, next: Any) -> None:
            next()
            res.json("before")

        def value(req: Any, res: Any) -> None:
            res.locals["value"] = 7

        async def slowValue(req: Any, res: Any) -> None:
            await self.slow(req, res)
            value(req, res)

        self.app.get("/plain", around, value)
        self.app.get("/slow", around, slowValue)
        self.app.get("/before", before, value)
        for path in ("/plain", "/slow"):
            call = self.client.start("GET", path)
            self.client.advance(3)
            self.assertEqual(call.response.json(), {"value": 7})
        self.assertEqual(self.client.get("/before").json(), "before")

    def test_later(self) -> None:
        """A plain function that keeps C{req}, C{res} or C{next} may respond later."""
        later = self.client.clock.callLater
        self.app.get("/res", lambda req, res: later(1, res.json, "later") and None)
        self.app.get("/req", lambda req, res: later(1, lambda: req.res.json("later")) and None)
        self.app.get("/next", lambda req, res, next: later(1, next) and None)
        self.app.use(lambda req, res: res.json("later"))
        for path in ("/res", "/req", "/next"):
            call = self.client.start("GET", path)
            self.assertFalse(call.done)
            self.client.advance(1)
            self.assertEqual(call.response.json(), "later")

    def test_file(self) -> None:
        """A file that is being sent is a response, and one that is absent a 404."""

        async def handler(req: Any, res: Any) -> None:
            res.sendFile(__file__ if req.path == "/there" else "/absent")

        self.app.use(handler)
        self.assertIn("test_file", self.client.get("/there").text)
        self.assertEqual(self.client.get("/absent").status, 404)

    def test_begun(self) -> None:
        """A body that has begun may go on by other means."""
        ending: list[Any] = []

        async def handler(req: Any, res: Any) -> None:
            await res.flush()
            ending.append(res.end)

        self.app.get("/", handler)
        call = self.client.start("GET", "/")
        ending[0]("end")
        self.client.flush()
        self.assertEqual(call.response.text, "end")

    def test_lost(self) -> None:
        """There is nothing to be said where the client has gone, or was dropped."""
        waiting: Deferred[None] = Deferred()
        self.app.get("/abort", lambda req, res: req.raw.abort())
        self.app.get("/gone", lambda req, res: waiting)
        self.client.start("GET", "/abort")
        call = self.client.start("GET", "/gone")
        call.disconnect()
        waiting.callback(None)
        self.client.advance(1)
