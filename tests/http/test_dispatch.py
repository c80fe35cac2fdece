"""The way of a request through handlers."""

from http import HTTPStatus
from typing import Any
from urllib.parse import quote

from twisted.internet.defer import CancelledError, Deferred, fail
from twisted.internet.task import deferLater
from twisted.trial.unittest import SynchronousTestCase

from storagegate import server
from storagegate.http import HTTPError, Router
from storagegate.http.fetch.handler import ResponseLost
from storagegate.http.testing import Client


class Boom(Exception):
    """Something that goes wrong."""


class PipelineCase(SynchronousTestCase):
    """An application, its client and a list of what happened."""

    def setUp(self) -> None:
        """Make them."""
        self.app = server.http()
        self.client = Client(self.app)
        self.seen: list[Any] = []

    def note(self, word: Any) -> Any:
        """Make a middleware that notes a word and goes on."""
        return lambda req, res, next: (self.seen.append(word), next())[1]

    def answer(self, req: Any, res: Any) -> None:
        """Answer with what happened."""
        res.json(self.seen)

    def boom(self, req: Any, res: Any) -> None:
        """Fail."""
        raise Boom("broken")

    def tell(self, error: Any, req: Any, res: Any, next: Any) -> None:
        """Answer with the error."""
        res.status(418).json({"told": str(error)})


class OrderTests(PipelineCase):
    """Who is called, and when."""

    def test_definition(self) -> None:
        """Handlers are called in the order of their registration, whatever kind they are."""
        self.app.use(self.note(1))
        self.app.get("/x", self.note(2), [self.note(3)])
        self.app.use("/x", self.note(4))
        self.app.all("/:any", self.note(5))
        self.app.get("/x", self.answer)
        self.app.get("/x", self.note("never"))
        self.assertEqual(self.client.get("/x").json(), [1, 2, 3, 4, 5])

    def test_nested(self) -> None:
        """C{next} runs the rest at once: what stands behind it runs after the rest."""

        def around(req: Any, res: Any, next: Any) -> None:
            self.seen.append("before")
            next()
            self.seen.append("after")

        self.app.use(around)
        self.app.get("/", lambda req, res: (self.seen.append("in"), res.end()))
        self.client.get("/")
        self.assertEqual(self.seen, ["before", "in", "after"])

    def test_awaited(self) -> None:
        """Awaiting C{next()} waits until the rest has ended, however long that takes."""

        async def around(req: Any, res: Any, next: Any) -> None:
            await next()
            self.seen.append("after")

        async def slow(req: Any, res: Any) -> None:
            await deferLater(self.client.clock, 3, lambda: None)
            self.seen.append("slow")
            res.end()

        self.app.use(around)
        self.app.get("/", slow)
        self.app.get("/fast", lambda req, res: res.end())
        call = self.client.start("GET", "/")
        self.client.advance(2)
        self.assertEqual((self.seen, call.done), ([], False))
        self.client.advance(1)
        self.assertEqual((self.seen, call.done), (["slow", "after"], True))
        self.assertEqual(self.client.get("/fast").status, 200)
        self.assertEqual(self.seen[2:], ["after"])

    def test_awaitedThroughPlain(self) -> None:
        """A plain function between two coroutines passes on what there is to wait for."""

        async def around(req: Any, res: Any, next: Any) -> None:
            await next()
            self.seen.append("after")

        def plain(req: Any, res: Any, next: Any) -> None:
            next()

        waiting: Deferred[None] = Deferred()

        async def slow(req: Any, res: Any) -> None:
            await waiting
            res.end()

        self.app.use(around, plain)
        self.app.get("/", slow)
        self.client.start("GET", "/")
        self.assertEqual(self.seen, [])
        waiting.callback(None)
        self.assertEqual(self.seen, ["after"])

    def test_laterNext(self) -> None:
        """C{next} may be called when the handler has long returned."""
        self.app.use(lambda req, res, next: self.client.clock.callLater(1, next) and None)
        self.app.get("/", self.answer)
        call = self.client.start("GET", "/")
        self.assertFalse(call.done)
        self.client.advance(1)
        self.assertEqual(call.response.json(), [])

    def test_many(self) -> None:
        """A thousand layers in a row do not overflow the stack, plain or not, and keep order."""

        async def asynchronous(req: Any, res: Any, next: Any) -> None:
            self.seen.append("in")
            await next()
            self.seen.append("out")

        for _ in range(1000):
            self.app.use(lambda req, res, next: next())
            self.app.use(asynchronous)
        self.app.get("/", lambda req, res: (self.seen.append("end"), res.end())[1])
        self.assertEqual(self.client.get("/").status, 200)
        self.assertEqual(self.seen, ["in"] * 1000 + ["end"] + ["out"] * 1000)

    def test_deferred(self) -> None:
        """A Deferred that a handler returns is waited for."""
        waiting: Deferred[None] = Deferred()
        self.app.get("/", lambda req, res: waiting.addCallback(lambda _: res.send("done")))
        self.app.get("/value", lambda req, res: [res.send("value")])
        call = self.client.start("GET", "/")
        self.assertFalse(call.done)
        waiting.callback(None)
        self.assertEqual(call.response.text, "done")
        self.assertEqual(self.client.get("/value").text, "value")

    def test_false(self) -> None:
        """What counts as false is no error: C{next(error)} may be called with what is none."""
        for value in (None, False, 0, ""):
            self.app.use(lambda req, res, next, value=value: next(value))
        self.app.get("/", self.answer)
        self.assertEqual(self.client.get("/").json(), [])

    def test_route(self) -> None:
        """C{next("route")} leaves the other handlers of the route."""
        self.app.get("/", lambda req, res, next: next("route"), self.note("never"))
        self.app.get("/", self.answer)
        self.assertEqual(self.client.get("/").json(), [])

    def test_router(self) -> None:
        """C{next("router")} leaves the router, and goes on behind it."""
        router = Router()
        router.use(lambda req, res, next: next("router"), self.note("never"))
        router.get("/", self.note("never"))
        self.app.use(router)
        self.app.get("/", self.answer)
        self.assertEqual(self.client.get("/").json(), [])

    def test_leaveAll(self) -> None:
        """C{next("router")} in the application itself leads to the 404."""
        self.app.get("/", lambda req, res, next: next("router"))
        self.app.get("/", self.answer)
        self.assertEqual(self.client.get("/").status, 404)


class ErrorTests(PipelineCase):
    """Where errors go."""

    def test_kinds(self) -> None:
        """Raised, passed on, in a coroutine or a Deferred: an error goes to its next handler."""

        async def coroutine(req: Any, res: Any) -> None:
            raise Boom("broken")

        async def later(req: Any, res: Any) -> None:
            await deferLater(self.client.clock, 0, lambda: None)
            raise Boom("broken")

        self.app.get("/raised", self.boom)
        self.app.get("/next", lambda req, res, next: next(Boom("broken")))
        self.app.get("/coroutine", coroutine)
        self.app.get("/later", later)
        self.app.get("/deferred", lambda req, res: fail(Boom("broken")))
        self.app.get("/text", lambda req, res, next: next("broken"))
        self.app.use(self.note("never"))
        self.app.get("/:any", self.note("never"))
        self.app.use(self.tell)
        for path in ("/raised", "/next", "/coroutine", "/later", "/deferred", "/text"):
            response = self.client.get(path)
            self.assertEqual((response.status, response.json()), (418, {"told": "broken"}), path)
        self.assertEqual(self.seen, [])

    def test_onlyErrors(self) -> None:
        """A handler of errors is passed over while there is none."""
        self.app.use(self.tell)
        self.app.get("/", self.tell, self.answer)
        self.assertEqual(self.client.get("/").json(), [])

    def test_inErrorHandler(self) -> None:
        """An error in a handler of errors goes to the next of them."""

        def fails(error: Exception, req: Any, res: Any, next: Any) -> None:
            raise Boom(f"after {error}")

        self.app.get("/", self.boom)
        self.app.use(fails, self.tell)
        self.assertEqual(self.client.get("/").json(), {"told": "after broken"})

    def test_recovered(self) -> None:
        """A handler of errors that calls C{next()} has dealt with it."""
        self.app.get("/", self.boom)
        self.app.use(lambda error, req, res, next: next())
        self.app.get("/", self.answer)
        self.assertEqual(self.client.get("/").json(), [])

    def test_ofRouter(self) -> None:
        """An error in a router goes to its own handler of errors, then to the outer one."""
        router = Router()
        router.get("/inner", self.boom)
        router.use(lambda error, req, res, next: next(Boom(f"inner {error}")))
        self.app.use("/r", router)
        skipped = Router()
        skipped.use(self.note("never"))
        self.app.use(skipped)
        self.app.use(self.tell)
        self.assertEqual(self.client.get("/r/inner").json(), {"told": "inner broken"})
        self.assertEqual(self.seen, [])

    def test_unhandled(self) -> None:
        """What nobody handles is a 500 that says nothing, and logged with its traceback."""
        self.app.get("/", self.boom)
        response = self.client.get("/")
        self.assertEqual(response.status, 500)
        self.assertEqual(response.json(), {"error": "Internal Server Error"})
        self.assertEqual(len(self.flushLoggedErrors(Boom)), 1)

    def test_status(self) -> None:
        """
        An error that knows its status decides what is answered; below 500 it is not logged.

        Without a text of its own it has the usual words; what is no error's status counts for
        nothing, and the text with it is not told.
        """

        class Status(Exception):
            status = 422

        class Odd(Exception):
            statusCode = 200

        def raises(error: BaseException) -> Any:
            def handler(req: Any, res: Any) -> None:
                raise error

            return handler

        self.app.get("/a", raises(HTTPError(403, "not yours", headers={"X-Why": "rule"})))
        self.app.get("/b", raises(Status("cannot")))
        self.app.get("/c", raises(Odd("odd")))
        self.app.get("/d", raises(HTTPError(503, "later")))
        self.app.get("/e", raises(Status()))
        first = self.client.get("/a")
        self.assertEqual((first.status, first.json()), (403, {"error": "not yours"}))
        self.assertEqual(first.headers.get("x-why"), "rule")
        self.assertEqual(self.client.get("/b").json(), {"error": "cannot"})
        odd = self.client.get("/c")
        self.assertEqual((odd.status, odd.json()), (500, {"error": "Internal Server Error"}))
        self.assertEqual(len(self.flushLoggedErrors(Odd)), 1)
        silent = self.client.get("/e")
        self.assertEqual((silent.status, silent.json()), (422, {"error": HTTPStatus(422).phrase}))
        last = self.client.get("/d")
        self.assertEqual((last.status, last.json()), (503, {"error": "later"}))
        self.assertEqual(len(self.flushLoggedErrors(HTTPError)), 1)

    def test_fieldsOfTheBody(self) -> None:
        """What described the body that failed is gone from the error; the rest stays."""

        def fails(req: Any, res: Any) -> None:
            res.header({"Content-Type": "image/png", "ETag": '"x"', "X-Rest": "stays"})
            raise Boom()

        self.app.get("/", fails)
        response = self.client.get("/")
        self.assertEqual(response.headers.get("content-type"), "application/json; charset=utf-8")
        self.assertNotEqual(response.headers.get("etag"), '"x"')
        self.assertEqual(response.headers.get("x-rest"), "stays")
        self.flushLoggedErrors(Boom)

    def test_afterTheResponse(self) -> None:
        """An error behind a complete response is logged, and the response stands."""

        def fails(req: Any, res: Any) -> None:
            res.send("fine")
            raise Boom()

        self.app.get("/", fails)
        self.assertEqual(self.client.get("/").text, "fine")
        self.assertEqual(len(self.flushLoggedErrors(Boom)), 1)

    def test_inTheMiddle(self) -> None:
        """An error in the middle of a response drops the connection: half is not whole."""

        async def fails(req: Any, res: Any) -> None:
            await res.write("half")
            raise Boom()

        self.app.get("/", fails)
        call = self.client.start("GET", "/")
        self.assertTrue(call.done)
        self.assertRaises(ResponseLost, lambda: call.response)
        self.assertEqual(len(self.flushLoggedErrors(Boom)), 1)

    def test_twice(self) -> None:
        """A second answer is an error of the handler, and does not reach the client."""
        self.app.get("/", lambda req, res: res.send("one").send("two"))
        self.assertEqual(self.client.get("/").text, "one")
        self.assertEqual(len(self.flushLoggedErrors(RuntimeError)), 1)


class DisconnectTests(PipelineCase):
    """Clients that go away."""

    def wait(self, cancels: bool) -> Deferred[None]:
        """Have a handler wait, let its client go away, and give what it waited for."""
        waiting: Deferred[None] = Deferred(lambda _: self.seen.append("cancelled"))

        async def waits(req: Any, res: Any) -> None:
            req.on("close", lambda: self.seen.append("close"))
            try:
                await waiting
            except CancelledError:
                self.seen.append("torn out")
                raise
            res.send("done")
            self.seen.append("went on")

        self.app.get("/", waits, cancelOnDisconnect=cancels)
        self.client.start("GET", "/").disconnect()
        return waiting

    def test_goesOn(self) -> None:
        """A handler goes on when its client has gone: its work may matter to others."""
        waiting = self.wait(False)
        self.assertEqual(self.seen, ["close"])
        waiting.callback(None)
        self.assertEqual(self.seen, ["close", "went on"])

    def test_cancelled(self) -> None:
        """A route that asks for it has its handler cancelled, and that is not logged."""
        self.wait(True)
        self.assertEqual(sorted(self.seen), ["cancelled", "close", "torn out"])

    def test_decorated(self) -> None:
        """The option works with decorators and chains too."""
        waiting: Deferred[None] = Deferred(lambda _: self.seen.append("cancelled"))

        @self.app.get("/a", cancelOnDisconnect=True)
        async def first(req: Any, res: Any) -> None:
            await waiting

        @self.app.route("/b").get(cancelOnDisconnect=True)
        async def second(req: Any, res: Any) -> None:
            await Deferred(lambda _: self.seen.append("cancelled too"))

        self.client.start("GET", "/a").disconnect()
        self.client.start("GET", "/b").disconnect()
        self.assertEqual(self.seen, ["cancelled", "cancelled too"])

    def test_failsAfterwards(self) -> None:
        """What goes wrong in a handler whose client has gone is logged nevertheless."""
        waiting: Deferred[None] = Deferred()

        async def waits(req: Any, res: Any) -> None:
            await waiting
            raise Boom()

        self.app.get("/", waits)
        self.client.start("GET", "/").disconnect()
        waiting.callback(None)
        self.assertEqual(len(self.flushLoggedErrors(Boom)), 1)


class RewriteTests(PipelineCase):
    """Middleware that changes the method or the URL before the routes."""

    def where(self, req: Any, res: Any) -> Any:
        """Respond with where the request is."""
        return [req.method, req.path, req.baseUrl, req.url, req.originalUrl, req.query]

    def override(self, req: Any, res: Any, next: Any) -> Any:
        """Change what the query names."""
        if "method" in req.query:
            req.method = req.query["method"]
        if "url" in req.query:
            req.url = req.query["url"]
        return next()

    def test_method(self) -> None:
        """The routes are chosen by the method that was set, in any case."""
        self.app.use(self.override)
        self.app.post("/x", lambda req, res: "post")
        self.app.delete("/x", self.where)
        for method in ("DELETE", "delete"):
            self.assertEqual(self.client.post(f"/x?method={method}").json()[0], method)
        self.assertEqual(self.client.post("/x").text, "post")
        self.assertEqual(self.client.post("/x?method=put").status, 405)
        for number in range(50):
            self.client.post(f"/x?method=odd{number}")
        for layer in self.app.layers:
            self.assertLess(len(layer.route.chosen) if layer.route else 0, 20)

    def test_url(self) -> None:
        """The layers after it match the path that was set; the original stays."""
        self.app.use(self.override)
        router = Router()
        router.get("/:id", self.where)
        self.app.get("/old", lambda req, res: "old")
        self.app.use("/new", router)
        self.app.get("/", self.where)
        for url in ("/new/7?a=1", "http://localhost/new/7?a=1"):
            original = f"/old?url={quote(url, safe='')}"
            self.assertEqual(
                self.client.get(original).json(),
                ["GET", "/7", "/new", "http://localhost/new/7?a=1", original, {"a": "1"}],
            )
        self.assertEqual(self.client.get("/old?url=/").json()[1], "/")
        self.assertEqual(self.client.get("/old").text, "old")
        self.assertEqual(self.client.get("/old?url=/none").status, 404)

    def test_inRouter(self) -> None:
        """In a mounted router it is the full URL, too; elsewhere the router is left."""
        router = Router()
        router.use(self.override)
        router.get("/a", lambda req, res: "a")
        router.get("/b", self.where)
        self.app.use("/r", router)
        self.app.get("/r/a", lambda req, res: "own")
        self.app.get("/c", self.where)
        self.assertEqual(self.client.get("/r/a?url=/r/b").json()[1:3], ["/b", "/r"])
        self.assertEqual(self.client.get("/r/a?url=/c").json()[1:3], ["/c", ""])
        self.assertEqual(self.client.get("/r/a").text, "a")

    def test_refused(self) -> None:
        """What is no URL and no path is refused."""
        self.app.use(self.override)
        for wrong in ("", "x", "/a%0Ab"):
            self.assertEqual(self.client.get(f"/?url={wrong}").status, 500, wrong)
            self.assertEqual(len(self.flushLoggedErrors(ValueError)), 1)
