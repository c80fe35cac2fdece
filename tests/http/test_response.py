"""The response as handlers see it: whole bodies."""

import base64
import hashlib
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from twisted.internet.defer import Deferred
from twisted.trial.unittest import SynchronousTestCase

from storagegate import server
from storagegate.http import HTTPError
from storagegate.http.fetchhandler import ResponseLost
from storagegate.http.testing import Client, TestResponse


class ResponseCase(SynchronousTestCase):
    """An application whose answer is given by a function."""

    def setUp(self) -> None:
        """Make it."""
        self.app = server.http()
        self.give: Any = None
        self.app.all("/", lambda req, res: self.give(res))
        self.client = Client(self.app)

    def answer(self, give: Any, method: str = "GET", **options: Any) -> TestResponse:
        """Give the response that a function of the response object makes."""
        self.give = give
        return self.client.request(method, "/", **options)


class BodyTests(ResponseCase):
    """What the ways to send a body make of it."""

    def test_types(self) -> None:
        """Text is HTML, bytes are bytes, everything else is JSON."""
        page, data = "text/html; charset=utf-8", "application/json; charset=utf-8"
        for give, contentType, body in [
            (lambda res: res.send("é"), page, "é".encode()),
            (lambda res: res.send(b"\x00"), "application/octet-stream", b"\x00"),
            (lambda res: res.send(bytearray(b"b")), "application/octet-stream", b"b"),
            (lambda res: res.send({"a": 1}), data, b'{"a":1}'),
            (lambda res: res.send([1]), data, b"[1]"),
            (lambda res: res.send(7), data, b"7"),
            (lambda res: res.send(True), data, b"true"),
            (lambda res: res.json(None), data, b"null"),
            (lambda res: res.json("text"), data, b'"text"'),
            (lambda res: res.json(float("nan")), data, b"null"),
            (lambda res: res.json(2**70), data, str(2**70).encode()),
            (lambda res: res.html("<p>"), page, b"<p>"),
            (lambda res: res.type("txt").html("<p>"), page, b"<p>"),
            (lambda res: res.type("txt").send("t"), "text/plain; charset=utf-8", b"t"),
            (lambda res: res.type("application/x-own").json(1), "application/x-own", b"1"),
        ]:
            response = self.answer(give)
            self.assertEqual((response.headers["content-type"], response.body), (contentType, body))
            self.assertEqual(response.headers["content-length"], str(len(body)))

    def test_etag(self) -> None:
        """A whole body has a weak ETag of its length and its SHA-1, unless it has one already."""
        digest = base64.b64encode(hashlib.sha1(b"Hello").digest()).decode()[:27]
        self.assertEqual(
            self.answer(lambda res: res.send("Hello")).headers["etag"], f'W/"5-{digest}"'
        )
        own = self.answer(lambda res: res.header("ETag", '"own"').send("Hello"))
        self.assertEqual(own.headers["etag"], '"own"')

    def test_nothing(self) -> None:
        """A body that is none has neither a type nor an ETag."""
        for give in (lambda res: res.end(), lambda res: res.send(), lambda res: res.send(None)):
            response = self.answer(give)
            self.assertEqual((response.status, response.body), (200, b""))
            self.assertEqual(response.headers["content-length"], "0")
            for name in ("etag", "content-type"):
                self.assertNotIn(name, response.headers)
        ended = self.answer(lambda res: res.end("text"))
        self.assertEqual(ended.body, b"text")
        self.assertNotIn("content-type", ended.headers)

    def test_fresh(self) -> None:
        """What the client has already is a 304 without a body, for GET and HEAD of a success."""
        etag = self.answer(lambda res: res.send("x")).headers["etag"]
        headers = {"If-None-Match": etag}
        for method in ("GET", "HEAD"):
            response = self.answer(lambda res: res.send("x"), method, headers=headers)
            self.assertEqual((response.status, response.body), (304, b""))
            self.assertEqual(response.headers["etag"], etag)
            for name in ("content-type", "content-length"):
                self.assertNotIn(name, response.headers)
        self.assertEqual(
            self.answer(lambda res: res.send("x"), "POST", headers=headers).status, 200
        )
        refused = self.answer(lambda res: res.status(404).send("x"), headers=headers)
        self.assertEqual(refused.status, 404)
        since = {"If-Modified-Since": "Sun, 06 Nov 1994 08:49:37 GMT"}

        def dated(res: Any) -> None:
            res.header("Last-Modified", "Sun, 06 Nov 1994 08:49:37 GMT").send("x")

        self.assertEqual(self.answer(dated, headers=since).status, 304)

    def test_bodiless(self) -> None:
        """Statuses that have no body get none, and 205 says so."""
        for status, length in ((204, None), (304, None), (205, "0")):
            response = self.answer(lambda res, status=status: res.status(status).send("text"))
            self.assertEqual((response.status, response.body), (status, b""))
            self.assertEqual(response.headers.get("content-length"), length)
            self.assertNotIn("content-type", response.headers)

    def test_head(self) -> None:
        """HEAD gets the fields of the body and no body."""
        response = self.answer(lambda res: res.send("Hello"), "HEAD")
        self.assertEqual((response.body, response.headers["content-length"]), (b"", "5"))
        self.assertIn("etag", response.headers)

    def test_wrong(self) -> None:
        """What cannot be written as JSON is an error of the handler."""
        self.assertEqual(self.answer(lambda res: res.json(object())).status, 500)
        self.assertEqual(len(self.flushLoggedErrors(TypeError)), 1)


class StatusTests(ResponseCase):
    """The status."""

    def test_numbers(self) -> None:
        """Any number of three digits that can end a response is sent."""
        for code in (200, 299, 418, 600, 999):
            self.assertEqual(
                self.answer(lambda res, code=code: res.status(code).end()).status, code
            )
        self.assertEqual(self.answer(lambda res: res.send("x")).statusText, "OK")

    def test_wrong(self) -> None:
        """Everything else is refused at once."""

        def give(res: Any) -> None:
            for code in (99, 1000, -1):
                self.assertRaises(ValueError, res.status, code)
            for code in ("200", 200.0, True, None):
                self.assertRaises(TypeError, res.status, code)
            res.end()

        self.assertEqual(self.answer(give).status, 200)

    def test_interim(self) -> None:
        """An interim status cannot end a response: that is the handler's error."""
        self.assertEqual(self.answer(lambda res: res.status(100).end()).status, 500)
        self.assertEqual(len(self.flushLoggedErrors(ValueError)), 1)

    def test_sendStatus(self) -> None:
        """A status may be its own body."""
        response = self.answer(lambda res: res.sendStatus(404))
        self.assertEqual((response.status, response.text), (404, "Not Found"))
        self.assertEqual(self.answer(lambda res: res.sendStatus(299)).text, "299")


class HeaderTests(ResponseCase):
    """The header fields."""

    def test_set(self) -> None:
        """Fields are set by name, by mapping, as a list, and read in any case."""

        def give(res: Any) -> None:
            self.assertIs(res.header("X-A", "1"), res)
            res.set({"X-B": 2, "X-C": ["c", "d"]})
            self.assertEqual(
                (res.get("x-a"), res.get("X-b"), res.get("x-c")), ("1", "2", ["c", "d"])
            )
            self.assertIsNone(res.get("x-none"))
            res.header("X-Gone", "1").remove("x-gone")
            self.assertFalse(res.headersSent)
            res.end()
            self.assertTrue(res.headersSent)

        headers = self.answer(give).headers
        self.assertEqual([headers.get(name) for name in ("x-a", "x-b")], ["1", "2"])
        self.assertEqual([value for name, value in headers if name == "x-c"], ["c, d"])
        self.assertNotIn("x-gone", headers)

    def test_charset(self) -> None:
        """A type that is text gains its charset, and keeps one that it has."""
        for given_, sent in [
            ("text/x", "text/x; charset=utf-8"),
            ("text/x; charset=latin-1", "text/x; charset=latin-1"),
            ("image/png", "image/png"),
        ]:
            give = lambda res, value=given_: res.header("content-type", value).end()  # noqa: E731
            self.assertEqual(self.answer(give).headers["content-type"], sent)

    def test_append(self) -> None:
        """Values are added to a field; cookies stay fields of their own."""

        def give(res: Any) -> None:
            res.append("X-A", "1").append("x-a", ["2", "3"])
            res.cookie("a", "1").cookie("b", 2)
            res.end()

        headers = self.answer(give).headers
        self.assertEqual(headers.get("x-a"), "1, 2, 3")
        self.assertEqual(headers.getSetCookie(), ["a=1; Path=/", "b=2; Path=/"])

    def test_vary(self) -> None:
        """Vary lists each name once; a star swallows the rest."""
        give = lambda res: res.vary("A", "B").vary("a").end()  # noqa: E731
        self.assertEqual(self.answer(give).headers["vary"], "A, B")
        give = lambda res: res.vary("A").vary("*").vary("C").end()  # noqa: E731
        self.assertEqual(self.answer(give).headers["vary"], "*")

    def test_links(self) -> None:
        """Links are added up."""
        give = lambda res: res.links({"next": "/2"}).links({"last": "/9"}).end()  # noqa: E731
        self.assertEqual(self.answer(give).headers["link"], '</2>; rel="next", </9>; rel="last"')

    def test_attachment(self) -> None:
        """An attachment has a name, which sets the type too."""
        headers = self.answer(lambda res: res.attachment("a b.png").end()).headers
        self.assertEqual(headers["content-disposition"], 'attachment; filename="a b.png"')
        self.assertEqual(headers["content-type"], "image/png")
        bare = self.answer(lambda res: res.attachment().end()).headers
        self.assertEqual(bare["content-disposition"], "attachment")

    def test_cookies(self) -> None:
        """A cookie's age is told twice, and a cleared one lies in the past."""

        def give(res: Any) -> None:
            res.cookie("a", "x y", maxAge=90_000, httpOnly=True, sameSite="lax")
            res.clearCookie("b", path="/p", maxAge=5)
            res.end()

        first, second = self.answer(give).headers.getSetCookie()
        self.assertEqual(
            first,
            "a=x%20y; Max-Age=90; Path=/; Expires=Tue, 14 Nov 2023 22:14:50 GMT; "
            "HttpOnly; SameSite=Lax",
        )
        self.assertEqual(second, "b=; Path=/p; Expires=Thu, 01 Jan 1970 00:00:01 GMT")

    def test_injection(self) -> None:
        """A line end, a NUL or what is not Latin-1 never becomes a header; the handler fails."""
        for bad in (
            "a\r\nSet-Cookie: b",
            "a\nb",
            "a\rb",
            "a\0b",
            "a\x1bb",
            "snow\u2603",
            None,
            1.5,
        ):
            for give in (
                lambda res, bad=bad: res.header("X-A", bad).end(),
                lambda res, bad=bad: res.header("X-A", ["fine", bad]).end(),
                lambda res, bad=bad: res.append("X-A", bad).end(),
                lambda res, bad=bad: res.cookie("a", "1", domain=bad or "\n").end(),
            ):
                self.assertEqual(self.answer(give).status, 500)
        for bad in ("", "a b", "a:", "ä", "a\n"):
            give = lambda res, bad=bad: res.header(bad, "x").end()  # noqa: E731
            self.assertEqual(self.answer(give).status, 500)
        self.assertTrue(self.flushLoggedErrors(ValueError, TypeError))

    @given(st.text(max_size=20))
    def test_anyValue(self, value: str) -> None:
        """Whatever text is given as a value is sent as it is, or refused."""
        app = server.http()
        app.get("/", lambda req, res: res.header("X-A", value).end())
        response = Client(app).get("/")
        if response.status == 200:
            self.assertEqual(response.headers["x-a"], value.strip(" \t"))
        else:
            self.assertEqual(len(self.flushLoggedErrors(ValueError)), 1)


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
