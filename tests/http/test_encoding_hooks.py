"""Ready answers, and where middleware takes part in a response."""

from typing import Any

from twisted.internet.defer import Deferred, fail
from zope.interface import implementer

from storagegate import server
from storagegate.http import HTTPError
from storagegate.http.encoding import IBodyEncoder
from storagegate.http.fetch.handler import ResponseLost
from storagegate.http.testing import Client
from tests.http.responding import ResponseCase


@implementer(IBodyEncoder)
class Marking:
    """Marks the pieces, flushes and the end that it sees."""

    flushes = False

    def __init__(self, mark: bytes) -> None:
        self.mark = mark

    def feed(self, chunk: bytes) -> bytes:
        """Mark a piece."""
        return chunk and b"(%b %b)" % (self.mark, chunk)

    def flush(self) -> bytes:
        """Mark a flush."""
        return b"%b!" % self.mark

    def finish(self) -> bytes:
        """Mark the end."""
        return b"%b." % self.mark


class ReadyTests(ResponseCase):
    """Answers with a name of their own."""

    def test_redirect(self) -> None:
        """A redirect has its place, its status, and a body of the kind that is wanted."""
        for give, status in [
            (lambda res: res.redirect("/new"), 302),
            (lambda res: res.redirect(301, "/new"), 301),
            (lambda res: res.redirect("/new", 308), 308),
        ]:
            response = self.answer(give, headers={"Accept": "text/plain"})
            self.assertEqual((response.status, response.headers["location"]), (status, "/new"))
            self.assertIn("Redirecting to /new", response.text)
        page = self.answer(lambda res: res.redirect('/"<x>'), headers={"Accept": "text/html"})
        self.assertNotIn("<x>", page.text)
        self.assertEqual(page.headers["location"], "/%22%3Cx%3E")

    def test_redirectBack(self) -> None:
        """The client can be sent where it came from; without that, to the root."""
        back = lambda res: res.redirect("back")  # noqa: E731
        self.assertEqual(self.answer(back).headers["location"], "/")
        response = self.answer(back, headers={"Referer": "/before"})
        self.assertEqual(response.headers["location"], "/before")

    def test_redirectInjection(self) -> None:
        """A line end in a URL is percent-encoded."""
        response = self.answer(lambda res: res.redirect("/a\r\nSet-Cookie: b=1"))
        self.assertEqual(response.headers["location"], "/a%0D%0ASet-Cookie:%20b=1")
        self.assertNotIn("set-cookie", response.headers)

    def test_format(self) -> None:
        """The client's taste chooses between representations."""

        def give(res: Any) -> Any:
            return res.format({"json": lambda: res.json([1]), "text/html": lambda: res.send("<p>")})

        for accept, contentType in [
            ("text/html", "text/html; charset=utf-8"),
            ("application/json", "application/json; charset=utf-8"),
            ("*/*", "application/json; charset=utf-8"),
        ]:
            headers = self.answer(give, headers={"Accept": accept}).headers
            self.assertEqual((headers["content-type"], headers["vary"]), (contentType, "Accept"))
        refused = self.answer(give, headers={"Accept": "image/png"})
        self.assertEqual((refused.status, refused.json()), (406, {"error": "Not Acceptable"}))
        other = lambda res: res.format({"default": lambda: res.send("d")})  # noqa: E731
        self.assertEqual(self.answer(other, headers={"Accept": "image/png"}).text, "d")

    def test_locals(self) -> None:
        """Handlers of one request tell one another through locals."""
        app = server.http()
        app.use(lambda req, res, next: res.locals.update(a=1) or next())
        app.get("/", lambda req, res: res.json(res.locals))
        client = Client(app)
        self.assertEqual(client.get("/").json(), {"a": 1})


class HookTests(ResponseCase):
    """Where middleware takes part."""

    def test_beforeHead(self) -> None:
        """Callbacks come just before the head, the last first, and may change it."""

        def give(res: Any) -> None:
            res.beforeHead(lambda: res.header("X-Order", f"{res.get('x-order')} first"))
            res.beforeHead(lambda: res.header("X-Order", "last").status(203))
            res.send("x")

        response = self.answer(give)
        self.assertEqual((response.status, response.headers["x-order"]), (203, "last first"))

    def test_beforeHeadFails(self) -> None:
        """A callback that fails makes an error of the response, once."""

        def fail() -> None:
            raise HTTPError(503, "not now")

        def give(res: Any) -> None:
            res.beforeHead(fail)
            res.send("x")

        response = self.answer(give)
        self.assertEqual((response.status, response.json()), (503, {"error": "not now"}))
        self.assertEqual(len(self.flushLoggedErrors(HTTPError)), 1)

    def test_encoders(self) -> None:
        """Several encoders work one after the other, the last that was added first."""
        lengths: list[int | None] = []

        def choose(mark: bytes) -> Any:
            return lambda length: lengths.append(length) or Marking(mark)

        def give(res: Any) -> None:
            res.encodeBody(choose(b"b"))
            res.encodeBody(lambda length: None)
            res.encodeBody(choose(b"a"))
            res.send("x")

        self.assertEqual(self.answer(give).body, b"(b (a x))(b a.)b.")
        self.assertEqual(lengths, [1, None])

        def stream(res: Any) -> None:
            res.encodeBody(choose(b"b"))
            res.encodeBody(choose(b"a"))
            res.write("x")
            res.flush()
            res.end()

        self.assertEqual(self.answer(stream).body, b"(b (a x))(b a!)b!(b a.)b.")

    def test_holdEnd(self) -> None:
        """The end of a response waits for those who hold it, whole or streamed."""
        for stream in (False, True):
            held: Deferred[None] = Deferred()

            def give(res: Any, held: Any = held, stream: bool = stream) -> None:
                res.holdEnd(lambda: None)
                res.holdEnd(lambda: held)
                if stream:
                    res.write("x")
                    res.end()
                else:
                    res.send("x")

            self.give = give
            call = self.client.start("GET", "/")
            self.assertFalse(call.done)
            self.assertEqual(call.received, b"x" if stream else b"")
            held.callback(None)
            self.assertEqual(call.response.text, "x")

    def test_holdEndFails(self) -> None:
        """A hold that fails is a 500 while that can be said, and a lost connection later."""
        held: Deferred[None] = Deferred()

        def whole(res: Any) -> None:
            res.holdEnd(lambda: held)
            res.send("x")

        self.give = whole
        call = self.client.start("GET", "/")
        held.errback(RuntimeError("disk"))
        self.assertEqual(call.response.status, 500)
        self.assertEqual(len(self.flushLoggedErrors(RuntimeError)), 1)
        held = Deferred()

        def streamed(res: Any) -> None:
            res.holdEnd(lambda: held)
            res.write("x")
            res.end()

        self.give = streamed
        call = self.client.start("GET", "/")
        held.errback(RuntimeError("disk"))
        self.assertRaises(ResponseLost, lambda: call.response)
        self.assertEqual(len(self.flushLoggedErrors(RuntimeError)), 1)

    def test_errorHandler(self) -> None:
        """An error handler may respond in place of a response that was not sent."""

        def hook(res: Any) -> None:
            res.beforeHead(lambda: [][0])

        def hold(res: Any) -> None:
            res.holdEnd(lambda: fail(IndexError()))

        def handle(error: Any, req: Any, res: Any, next: Any) -> None:
            res.status(503).json(type(error).__name__)

        def handleLater(error: Any, req: Any, res: Any, next: Any) -> Any:
            return {"a": type(error).__name__}

        for handler, status in ((handle, 503), (handleLater, 500)):
            for prepare, send, name in (
                (hook, lambda res: res.send("x"), "IndexError"),
                (hook, lambda res: res.end("x"), "IndexError"),
                (hold, lambda res: res.send("x"), "IndexError"),
                (hold, lambda res: res.end("x"), "IndexError"),
                (lambda res: None, lambda res: res.status(100).send("x"), "ValueError"),
                (
                    lambda res: None,
                    lambda res: res.header("Content-Length", "3").end("x"),
                    "ValueError",
                ),
            ):
                with self.subTest(handler=handler.__name__, name=name):
                    self.setUp()
                    self.app.use(handler)

                    def give(res: Any, prepare: Any = prepare, send: Any = send) -> None:
                        prepare(res)
                        send(res)

                    tag = {"if-none-match": 'W/"1-EfatjsUqKYSrqv18O1FlA3hcIHI"'}
                    response = self.answer(give, headers=tag)
                    self.assertEqual((response.status, response.text.count(name)), (status, 1))
                    self.assertFields(response, content_type="application/json; charset=utf-8")
                    self.assertNotIn("EfatjsUq", response.headers.get("etag") or "")
