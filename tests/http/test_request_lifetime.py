"""How long requests and responses live."""

import gc
from collections.abc import Callable
from typing import Any
from weakref import ref

from twisted.internet.defer import Deferred
from twisted.trial.unittest import SynchronousTestCase

from storagegate import server
from storagegate.http import compression, cors, json, rateLimit, requestLog
from storagegate.http.testing import Client


class LifetimeTests(SynchronousTestCase):
    """A request and its body are gone with the response, without a garbage collector."""

    def setUp(self) -> None:
        """Make an application, and keep the collector away."""
        self.app = server.http()
        self.client = Client(self.app)
        self.alive: list[Callable[[], Any]] = []
        self.app.use(self.watch)
        gc.collect()
        gc.disable()
        self.addCleanup(gc.enable)

    def watch(self, req: Any, res: Any, next: Any) -> Any:
        """See when they are gone."""
        self.alive += [ref(req), ref(res)]
        return next()

    def assertGone(self, path: str = "/", **options: Any) -> None:
        """See that what a request has made is gone when it has been answered."""
        self.client.post(path, **options)
        self.assertEqual([each() for each in self.alive], [None] * len(self.alive))
        self.assertGreater(len(self.alive), 0)

    def test_plain(self) -> None:
        """After a plain handler."""
        self.app.post("/", lambda req, res: res.send("x"))
        self.assertGone()
        self.assertGone("/unknown")

    def test_coroutine(self) -> None:
        """After a coroutine that waits and streams."""

        async def stream(req: Any, res: Any) -> None:
            await req.read()
            await res.write("x")
            res.end()

        self.app.post("/", stream)
        self.assertGone(body="text")

    def test_middleware(self) -> None:
        """After middleware that has taken part in the response."""
        self.app.use(requestLog(stream=_Nowhere()), cors(), compression(), rateLimit())
        self.app.use(json())
        self.app.post("/", lambda req, res: res.json({"big": ["x"] * 2000, "body": req.body}))
        self.assertGone(json={"a": 1}, headers={"Accept-Encoding": "gzip"})

    def test_typed(self) -> None:
        """After a route with types: a body that fits, one that does not, and a wrong result."""

        async def create(req: Any, res: Any) -> Any:
            return {"id": 1} if req.body["id"] else "wrong"

        schema = {"type": "object", "properties": {"id": {"type": "integer", "required": True}}}
        self.app.post("/", create, body=schema, response=schema)
        self.assertGone(json={"id": 1})
        self.assertGone(json={"id": "x"})
        self.assertGone(json={"id": 1, "more": "x" * 100_000})
        self.assertGone(body="text")

    def test_kept(self) -> None:
        """Until the response is complete, whoever holds it has the request too."""
        kept: list[Any] = []
        self.app.post("/", lambda req, res: kept.append(res))
        call = self.client.start("POST", "/")
        gc.collect()
        self.assertEqual(kept[0].req.method, "POST")
        kept[0].redirect("/")
        self.assertEqual(call.response.status, 302)
        self.assertIsNone(kept[0].req)

    def test_failsLater(self) -> None:
        """An error behind a response of which nobody holds the request is logged."""
        held: Deferred[None] = Deferred()

        def handler(req: Any, res: Any) -> None:
            res.holdEnd(lambda: held)
            res.send("x")

        self.app.post("/", handler)
        call = self.client.start("POST", "/")
        held.errback(ValueError("disk"))
        self.assertEqual(call.response.status, 500)
        self.assertEqual(len(self.flushLoggedErrors(ValueError)), 1)


class _Nowhere:
    """A stream that keeps nothing."""

    def write(self, text: str) -> None:
        """Take a line."""
