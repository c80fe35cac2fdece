"""The body of a response and what describes it, in all its forms."""

import base64
import hashlib
from typing import Any

from tests.http.responding import ResponseCase

_HTML = "text/html; charset=utf-8"
_JSON = "application/json; charset=utf-8"
_OCTETS = "application/octet-stream"


def etagOf(body: bytes) -> str:
    """Give the ETag that a body has."""
    digest = base64.b64encode(hashlib.sha1(body).digest()).decode()
    return f'W/"{len(body):x}-{digest[:27]}"'


class SendTests(ResponseCase):
    """Whole bodies."""

    def test_types(self) -> None:
        """Text is HTML, bytes are octets, and everything else is JSON."""
        for value, contentType, body in [
            ("h\u00e9llo", _HTML, "h\u00e9llo".encode()),
            ("", _HTML, b""),
            (b"\x00\xff", _OCTETS, b"\x00\xff"),
            (bytearray(b"ab"), _OCTETS, b"ab"),
            (memoryview(b"ab"), _OCTETS, b"ab"),
            ({"a": [1, None]}, _JSON, b'{"a":[1,null]}'),
            ([1, "x"], _JSON, b'[1,"x"]'),
            (5, _JSON, b"5"),
            (1.5, _JSON, b"1.5"),
            (True, _JSON, b"true"),
            (False, _JSON, b"false"),
        ]:
            response = self.answer(lambda res, value=value: res.send(value))
            self.assertEqual((response.status, response.body), (200, body))
            self.assertFields(
                response,
                content_type=contentType,
                content_length=str(len(body)),
                etag=etagOf(body),
            )

    def test_etag(self) -> None:
        """The ETag is the length in hex and 27 characters of the SHA-1, as Express makes it."""
        for body, etag in [
            ("", 'W/"0-2jmj7l5rSw0yVb/vlWAYkK/YBwk"'),
            ("h\u00e9llo", 'W/"6-NbXqRcXkH3i0apN8x01B3+qSCJA"'),
        ]:
            response = self.answer(lambda res, body=body: res.send(body))
            self.assertFields(response, etag=etag)
        own = self.answer(lambda res: res.header("ETag", '"own"').send("x"))
        self.assertFields(own, etag='"own"')
        posted = self.answer(lambda res: res.send("x"), "POST")
        self.assertFields(posted, etag=etagOf(b"x"))

    def test_end(self) -> None:
        """C{end} may bring the body, which gets no type and no ETag either."""
        for body in ("hi", b"hi"):
            response = self.answer(lambda res, body=body: res.end(body))
            self.assertEqual(response.text, "hi")
            self.assertFields(response, content_type=None, etag=None, content_length="2")

    def test_ownType(self) -> None:
        """A type that is set stays, for text with the charset that the text goes out in."""
        for contentType, body, sent in [
            ("text/x", "x", "text/x; charset=utf-8"),
            ("application/xml", "<a/>", "application/xml; charset=utf-8"),
            ("application/vnd.api+json", {}, "application/vnd.api+json; charset=utf-8"),
            ("text/plain; charset=iso-8859-1", "\u00e9", "text/plain; charset=utf-8"),
            ("text/plain; a=b; charset=x", "\u00e9", "text/plain; a=b; charset=utf-8"),
            ('text/plain; a="b c"', "x", 'text/plain; a="b c"; charset=utf-8'),
            ('text/plain; charset=x; a="b\\"c"', "x", 'text/plain; a="b\\"c"; charset=utf-8'),
            ("image/png", b"x", "image/png"),
            ("text/plain; charset=iso-8859-1", b"\xe9", "text/plain; charset=iso-8859-1"),
        ]:
            response = self.answer(
                lambda res, kind=contentType, body=body: res.header("content-type", kind).send(body)
            )
            self.assertFields(response, content_type=sent)

    def test_length(self) -> None:
        """The length is that of the bytes, whatever the handler has set."""
        for length in (1, 4, "99"):
            for method in ("GET", "HEAD"):
                response = self.answer(
                    lambda res, n=length: res.header("Content-Length", n).send("\u00e9a"), method
                )
                self.assertFields(response, content_length="3")

    def test_html(self) -> None:
        """C{html} is HTML, whatever type was set before."""
        response = self.answer(lambda res: res.type("json").html("<p>"))
        self.assertEqual(response.text, "<p>")
        self.assertFields(response, content_type=_HTML, etag=etagOf(b"<p>"))

    def test_chained(self) -> None:
        """Every method that sets or sends gives the response, so that they can be chained."""

        def answer(res: Any) -> None:
            for call in (
                lambda: res.status(201),
                lambda: res.header("A", "1"),
                lambda: res.set({"B": "2"}),
                lambda: res.append("A", "3"),
                lambda: res.remove("B"),
                lambda: res.type("json"),
                lambda: res.vary("Accept"),
                lambda: res.links({"next": "/2"}),
                lambda: res.location("/x"),
                lambda: res.cookie("a", "b"),
                lambda: res.clearCookie("c"),
                lambda: res.attachment("x.json"),
                lambda: res.on("finish", list),
                lambda: res.json([]),
            ):
                self.assertIs(call(), res)

        self.assertEqual(self.answer(answer).status, 201)
        for send in (
            lambda res: self.assertIs(res.send("x"), res),
            lambda res: self.assertIs(res.html("x"), res),
            lambda res: self.assertIs(res.end("x"), res),
            lambda res: self.assertIs(res.redirect("/x"), res),
            lambda res: self.assertIs(res.sendStatus(201), res),
        ):
            self.assertIn(self.answer(send).status, (200, 201, 302))


class BodilessTests(ResponseCase):
    """Responses that have no body."""

    def test_statuses(self) -> None:
        """204 and 304 drop what describes a body, 205 says that it has none, of which type."""
        for status, length in ((204, None), (304, None), (205, "0")):
            for answer in (
                lambda res: res.json({"a": 1}),
                lambda res: res.type("txt").end("x"),
                lambda res: res.header("Content-Length", 4).send("abcd"),
            ):
                response = self.answer(lambda res, a=answer, s=status: a(res.status(s)))
                self.assertEqual((response.status, response.body), (status, b""))
                self.assertFields(response, content_length=length, transfer_encoding=None)
                self.assertEqual("content-type" in response.headers, status == 205)

    def test_streams(self) -> None:
        """So they do where the handler writes the body in parts."""

        def answer(res: Any, status: int) -> None:
            res.status(status).type("txt").write("abc")
            res.end("def")

        for status in (204, 304):
            response = self.answer(lambda res, status=status: answer(res, status))
            self.assertEqual((response.status, response.body), (status, b""))
            self.assertFields(response, content_type=None, transfer_encoding=None)


class FreshTests(ResponseCase):
    """Clients that have the response already."""

    def test_etag(self) -> None:
        """Who has the body gets a 304 with its ETag; who has another one gets the body."""
        etag = etagOf(b"abc")
        for condition in (etag, etag[2:], f'"x", {etag}', "*"):
            for method in ("GET", "HEAD"):
                headers = {"If-None-Match": condition}
                response = self.answer(lambda res: res.send("abc"), method, headers=headers)
                self.assertEqual((response.status, response.body), (304, b""))
                self.assertFields(response, etag=etag, content_type=None, content_length=None)
        other = self.answer(lambda res: res.send("abc"), headers={"If-None-Match": '"x"'})
        self.assertEqual((other.status, other.text), (200, "abc"))

    def test_date(self) -> None:
        """Where there is no ETag to compare, the date counts."""
        date = "Tue, 14 Nov 2023 22:13:20 GMT"
        for since, status in ((date, 304), ("Tue, 14 Nov 2023 22:13:19 GMT", 200)):
            response = self.answer(
                lambda res: res.header("Last-Modified", date).send("abc"),
                headers={"If-Modified-Since": since},
            )
            self.assertEqual(response.status, status)

    def test_others(self) -> None:
        """Only what succeeded, by GET or HEAD, can be fresh; C{no-cache} wants it anew."""
        headers = {"If-None-Match": etagOf(b"abc")}
        post = self.answer(lambda res: res.send("abc"), "POST", headers=headers)
        self.assertEqual((post.status, post.text), (200, "abc"))
        missing = self.answer(lambda res: res.status(404).send("abc"), headers=headers)
        self.assertEqual((missing.status, missing.text), (404, "abc"))
        headers["Cache-Control"] = "no-cache"
        self.assertEqual(self.answer(lambda res: res.send("abc"), headers=headers).status, 200)


class StreamTests(ResponseCase):
    """Bodies in parts."""

    def test_length(self) -> None:
        """A length that is known beforehand may be told."""

        def answer(res: Any) -> None:
            res.header("Content-Length", 4).write("ab")
            res.end("cd")

        response = self.answer(answer)
        self.assertEqual(response.text, "abcd")
        self.assertFields(response, content_length="4", transfer_encoding=None)

    def test_chunked(self) -> None:
        """That the body comes in chunks may be said, and changes nothing."""

        def answer(res: Any) -> None:
            res.header("Transfer-Encoding", "chunked").header("Connection", "keep-alive")
            res.write("a")
            res.end("b")

        response = self.answer(answer)
        self.assertEqual((response.status, response.text), (200, "ab"))
        self.assertFields(response, transfer_encoding="chunked")
        whole = self.answer(lambda res: res.set("Transfer-Encoding", "chunked").send("ab"))
        self.assertFields(whole, transfer_encoding=None, content_length="2")
