"""The headers, requests and responses of the Fetch standard."""

from collections.abc import AsyncIterator
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from twisted.internet.defer import CancelledError, Deferred
from twisted.trial.unittest import SynchronousTestCase

import storagegate.http.fetch
from storagegate.http import Headers, HTTPError, Request, Response
from tests.http.fetching import AsyncCase, pieces


class HeadersTests(SynchronousTestCase):
    """Header fields."""

    def test_case(self) -> None:
        """Names know no case: they are found, replaced and removed in any, and kept in lower."""
        headers = Headers({"Content-Type": "a/b"})
        self.assertEqual(headers.get("CONTENT-TYPE"), "a/b")
        self.assertTrue(headers.has("content-type") and "Content-type" in headers)
        headers.set("cOntent-type", "c/d")
        self.assertEqual(list(headers), [("content-type", "c/d")])
        headers.delete("CONTENT-type")
        self.assertIsNone(headers.get("content-type"))
        self.assertRaises(KeyError, lambda: headers["content-type"])
        self.assertNotIn("content-type", headers)

    def test_repeated(self) -> None:
        """Values of one name are joined by commas; C{set} leaves one, where the first stood."""
        headers = Headers([("a", "1"), ("b", "2"), ("A", "3")])
        self.assertEqual(headers.get("a"), "1, 3")
        headers.set("a", "4")
        self.assertEqual(headers.encode(), [(b"a", b"4"), (b"b", b"2")])
        headers.append("A", 5)
        self.assertEqual(headers["a"], "4, 5")

    def test_setCookie(self) -> None:
        """Cookies are never joined in iteration, and can be had one by one."""
        headers = Headers({"Set-Cookie": ["a=1", "b=2"], "a": "x"})
        self.assertEqual(headers.getSetCookie(), ["a=1", "b=2"])
        self.assertEqual(list(headers), [("a", "x"), ("set-cookie", "a=1"), ("set-cookie", "b=2")])

    def test_iteration(self) -> None:
        """Iterating gives pairs, sorted by name, and so a mapping can be made of them."""
        headers = Headers([("b", "2"), ("a", "1")])
        self.assertEqual(list(headers), [("a", "1"), ("b", "2")])
        self.assertEqual(headers.items(), [("a", "1"), ("b", "2")])
        self.assertEqual(dict(headers), {"a": "1", "b": "2"})

    def test_copy(self) -> None:
        """Headers made of others are their own."""
        first = Headers({"a": "1"})
        second = Headers(first)
        second.set("a", "2")
        self.assertEqual(first.get("a"), "1")

    def test_normalized(self) -> None:
        """White space around a value is dropped, as the standard does."""
        self.assertEqual(Headers({"a": " \t x \r\n"}).get("a"), "x")

    def test_refused(self) -> None:
        """What is no name or no value never becomes a field."""
        for name in ("", "a b", "a:", "a\r\n", "\u00e9"):
            self.assertRaises(ValueError, Headers, {name: "x"})
            self.assertRaises(ValueError, Headers().get, name)
        for value in ("a\r\nb", "a\nb", "a\0", "\x7f", "\u20ac", None, b"x", True):
            self.assertRaises(ValueError, Headers, [("a", value)])

    @given(st.text())
    def test_neverOnTheWire(self, value: str) -> None:
        """Whatever text is accepted as a value has nothing in it that ends a line."""
        headers = Headers()
        try:
            headers.append("a", value)
        except ValueError:
            return
        [(_, wire)] = headers.encode()
        self.assertFalse(set(wire) & {*range(9), *range(10, 32), 127})


class RequestTests(AsyncCase):
    """Requests."""

    def test_plain(self) -> None:
        """A request has a method, a full URL, headers and parameters."""
        request = Request("http://Example.org:81/a?b=c#d", headers={"X": "1"})
        self.assertEqual(request.method, "GET")
        self.assertEqual(request.url, "http://example.org:81/a?b=c")
        self.assertEqual(request.headers.get("x"), "1")
        self.assertEqual(request.params, {})

    def test_path(self) -> None:
        """A path alone is one on localhost."""
        self.assertEqual(Request("/a#b").url, "http://localhost/a")
        self.assertEqual(Request("https://x?q").url, "https://x/?q")

    def test_encoding(self) -> None:
        """What no URL may hold is percent-encoded; escapes and dot segments stay as they are."""
        url = Request("/caf\u00e9/a b/%2e/../%C3%A9?\u20ac<").url
        self.assertEqual(url, "http://localhost/caf%C3%A9/a%20b/%2e/../%C3%A9?%E2%82%AC%3C")

    def test_method(self) -> None:
        """The usual methods are turned into upper case, others are kept."""
        self.assertEqual(Request("/", "post").method, "POST")
        self.assertEqual(Request("/", "Patch").method, "PATCH")
        self.assertEqual(Request("/", "propfind").method, "propfind")

    def test_refused(self) -> None:
        """A malformed request cannot be made."""
        for url in ("", "a", "ftp://x/", "http://", "http:///a", "http://u:p@x/", "/a\r\nb", "/\0"):
            self.assertRaises(ValueError, Request, url)
        for method in ("", "A B", "A\r\n", None):
            self.assertRaises(ValueError, Request, "/", method)
        self.assertRaises(ValueError, Request, "/", "GET", {"a": "b\nc"})
        for method in ("GET", "head"):
            self.assertRaises(TypeError, Request, "/", method, None, b"")
        for body in ({"a": 1}, 5, [b"x"]):
            error = self.assertRaises(TypeError, Request, "/", "POST", None, body)
            self.assertIn(type(body).__name__, str(error))

    @given(st.text())
    def test_fitForTheWire(self, path: str) -> None:
        """Whatever text is accepted as a path, a request line can be made of."""
        try:
            target = Request("/" + path).target.target
        except ValueError:
            return
        self.assertRegex(target, r"\A/[!-~]*\Z")

    def test_body(self) -> None:
        """A body is bytes, text or a stream of bytes; text says what it is."""
        self.assertEqual(self.got(Request("/", "POST", body=b"a").bytes()), b"a")
        self.assertEqual(self.got(Request("/", "POST", body=b"a").arrayBuffer()), b"a")
        text = Request("/", "POST", body="\u00e9")
        self.assertEqual(text.headers.get("content-type"), "text/plain;charset=UTF-8")
        self.assertEqual(self.got(text.text()), "\u00e9")
        stream = Request("/", "POST", body=pieces(b"a", bytearray(b"b")))
        self.assertEqual(self.got(stream.bytes()), b"ab")
        given = Request("/", "POST", {"content-type": "a/b"}, "x")
        self.assertEqual(given.headers.get("content-type"), "a/b")

    def test_wrongPiece(self) -> None:
        """A stream of anything but bytes fails where it is read."""
        self.raised(TypeError, Request("/", "POST", body=pieces("text")).bytes())

    def test_json(self) -> None:
        """A body can be read as JSON; what is none is a 400, also if it is nested beyond reason."""
        self.assertEqual(self.got(Request("/", "POST", body='\ufeff{"a": 1}').json()), {"a": 1})
        for bad in (b"", b"{", b"[" * 100_000):
            error = self.raised(HTTPError, Request("/", "POST", body=bad).json())
            self.assertEqual((error.statusCode, error.code), (400, "entity.parse.failed"))


class ResponseTests(AsyncCase):
    """Responses."""

    def test_plain(self) -> None:
        """A response has a status, its phrase, headers and a body."""
        response = Response("hi", 201, {"X": "1"})
        self.assertEqual((response.status, response.statusText), (201, "Created"))
        self.assertEqual(
            dict(response.headers), {"content-type": "text/plain;charset=UTF-8", "x": "1"}
        )
        self.assertEqual(self.got(response.text()), "hi")
        self.assertEqual(Response(statusText="Fine").statusText, "Fine")
        self.assertEqual(Response(status=299).statusText, "")

    def test_ok(self) -> None:
        """Only 200 to 299 is ok."""
        for status, ok in ((200, True), (299, True), (300, False), (404, False), (500, False)):
            self.assertEqual(Response(status=status).ok, ok)

    def test_refused(self) -> None:
        """A malformed response cannot be made."""
        for status in (199, 600, 0, "200", True, None, 200.0):
            self.assertRaises(ValueError, Response, None, status)
        for status in (204, 205, 304):
            self.assertRaises(TypeError, Response, b"", status)
        self.assertRaises(ValueError, Response, None, 200, None, "a\r\nb")
        self.assertRaises(ValueError, Response, None, 200, {"a": "b\r\nc"})

    def test_json(self) -> None:
        """C{json} of the class makes a response, C{json} of a response reads one."""
        response = Response.json({"a": [1, None]}, 202, {"X": "1"})
        self.assertEqual(response.status, 202)
        self.assertEqual(dict(response.headers), {"content-type": "application/json", "x": "1"})
        self.assertEqual(self.got(response.json()), {"a": [1, None]})
        typed = Response.json([], headers={"content-type": "application/problem+json"})
        self.assertEqual(typed.headers.get("content-type"), "application/problem+json")

    def test_badJSON(self) -> None:
        """What cannot be represented in JSON is a type error, what is none a value error."""
        self.assertRaises(TypeError, Response.json, object())
        self.raised(ValueError, Response("{").json())

    def test_redirect(self) -> None:
        """A redirection has a Location that is fit for the wire."""
        response = Response.redirect("/caf\u00e9?a b")
        self.assertEqual(response.status, 302)
        self.assertEqual(response.headers.get("location"), "/caf%C3%A9?a%20b")
        self.assertEqual(Response.redirect("https://x/", 308).status, 308)
        for status in (200, 300, 304, 400):
            self.assertRaises(ValueError, Response.redirect, "/", status)
        injected = Response.redirect("/a\r\nSet-Cookie: b").headers.get("location")
        self.assertEqual(injected, "/a%0D%0ASet-Cookie:%20b")

    def test_text(self) -> None:
        """Text loses its byte order mark, and what is no UTF-8 is replaced."""
        self.assertEqual(self.got(Response(b"\xef\xbb\xbfa\xff").text()), "a\ufffd")

    def test_once(self) -> None:
        """A body is read once, however it is read."""

        async def iterate(response: Response) -> list[bytes]:
            return [chunk async for chunk in response.body]

        readers: list[Any] = [Response.text, Response.bytes, iterate, Response.readJSON]
        for reader in readers:
            response = Response("1")
            self.assertFalse(response.bodyUsed)
            self.got(reader(response))
            self.assertTrue(response.bodyUsed)
            for second in readers:
                self.raised(TypeError, second(response))
            self.assertRaises(TypeError, response.clone)

    def test_body(self) -> None:
        """A body is a stream of bytes, also an empty one or one that was given whole."""

        async def iterate(response: Response) -> list[bytes]:
            return [chunk async for chunk in response.body]

        self.assertEqual(self.got(iterate(Response())), [])
        self.assertEqual(self.got(iterate(Response(b"ab"))), [b"ab"])
        self.assertEqual(self.got(iterate(Response(pieces(b"a", b"b")))), [b"a", b"b"])

    def test_cancel(self) -> None:
        """A body that is not wanted any more cannot be read."""
        response = Response("x")
        response.cancel()
        self.raised(TypeError, response.text())


class CloneTests(AsyncCase):
    """Clones."""

    def test_whole(self) -> None:
        """A clone has status, headers and body, and its headers are its own."""
        response = Response("a", 201, {"x": "1"})
        clone = response.clone()
        clone.headers.set("x", "2")
        self.assertEqual(response.headers.get("x"), "1")
        self.assertEqual(clone.status, 201)
        self.assertEqual([self.got(clone.text()), self.got(response.text())], ["a", "a"])

    def test_stream(self) -> None:
        """Both have the whole of a stream, whoever reads first, and a clone of a clone too."""
        response = Response(pieces(b"a", b"b"))
        clone = response.clone()
        third = clone.clone()
        for each in (clone, response, third):
            self.assertEqual(self.got(each.text()), "ab")

    def test_together(self) -> None:
        """Two that read at one time wait for the same piece."""
        coming: Deferred[bytes] = Deferred()

        async def later() -> AsyncIterator[bytes]:
            yield await coming
            yield b"b"

        response = Response(later())
        clone = response.clone()
        texts = [Deferred.fromCoroutine(each.text()) for each in (response, clone)]
        coming.callback(b"a")
        self.assertEqual([self.successResultOf(text) for text in texts], ["ab", "ab"])

    def test_error(self) -> None:
        """Both get the error of a stream that fails."""

        async def broken() -> AsyncIterator[bytes]:
            yield b"a"
            raise KeyError("boom")

        response = Response(broken())
        clone = response.clone()
        self.raised(KeyError, response.text())
        self.raised(KeyError, clone.text())

    def test_cloneGivenUp(self) -> None:
        """A reader of one clone that gives up takes nothing from the other one."""
        for first in (0, 1):
            waiting: Deferred[bytes] = Deferred()
            ended: list[bool] = []

            async def source(waiting: Any = waiting, ended: Any = ended) -> AsyncIterator[bytes]:
                try:
                    yield await waiting
                finally:
                    ended.append(True)

            response = Response(source())
            clone = response.clone()
            texts = [Deferred.fromCoroutine(each.text()) for each in (response, clone)]
            texts[first].cancel()
            self.failureResultOf(texts[first], CancelledError)
            self.assertEqual(ended, [])
            waiting.callback(b"a")
            self.assertEqual(self.successResultOf(texts[1 - first]), "a")
            # The last reader that gives up ends the source.
            response = Response(source(Deferred(), ended))
            reading = Deferred.fromCoroutine(response.clone().text())
            ended.clear()
            reading.cancel()
            self.failureResultOf(reading, CancelledError)
            self.assertEqual(ended, [True])

    def test_backlog(self) -> None:
        """What waits for a clone that nobody reads is bounded, unless it has been cancelled."""
        self.patch(storagegate.http.fetch, "_BACKLOG", 10)
        response = Response(pieces(*[b"abc"] * 9))
        response.clone()
        self.raised(ValueError, response.text())
        response = Response(pieces(*[b"abc"] * 9))
        response.clone().cancel()
        self.assertEqual(self.got(response.text()), "abc" * 9)
