"""The body of a response: whole or in parts, with what describes it."""

import base64
import hashlib
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from storagegate import server
from storagegate.http.errors import ResponseSent
from storagegate.http.testing import Client, TestResponse

_HTML = "text/html; charset=utf-8"
_JSON = "application/json; charset=utf-8"
_OCTETS = "application/octet-stream"


def etagOf(body: bytes) -> str:
    """Give the ETag that a body has."""
    digest = base64.b64encode(hashlib.sha1(body).digest()).decode()
    return f'W/"{len(body):x}-{digest[:27]}"'


class ResponseCase(SynchronousTestCase):
    """An application that answers by a function."""

    def setUp(self) -> None:
        """Make it."""
        self.app = server.http()
        self.client = Client(self.app)

    def answered(
        self, answer: Any, method: str = "GET", headers: dict[str, str] | None = None
    ) -> TestResponse:
        """Give the response that a function of it makes."""
        app = server.http()
        app.all("/", lambda req, res: answer(res))
        return Client(app).request(method, "/", headers=headers)

    def assertFields(self, response: TestResponse, **fields: str | None) -> None:
        """Check fields of a response; C{None} is for one that must not be there."""
        for name, value in fields.items():
            self.assertEqual(response.headers.get(name.replace("_", "-")), value, name)


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
            response = self.answered(lambda res, value=value: res.send(value))
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
            response = self.answered(lambda res, body=body: res.send(body))
            self.assertFields(response, etag=etag)
        own = self.answered(lambda res: res.header("ETag", '"own"').send("x"))
        self.assertFields(own, etag='"own"')
        posted = self.answered(lambda res: res.send("x"), "POST")
        self.assertFields(posted, etag=etagOf(b"x"))

    def test_nothing(self) -> None:
        """What ends without a body has neither type nor ETag."""
        for answer in (
            lambda res: res.send(),
            lambda res: res.send(None),
            lambda res: res.end(),
            lambda res: res.status(200).end(),
        ):
            response = self.answered(answer)
            self.assertEqual((response.status, response.body), (200, b""))
            self.assertFields(response, content_type=None, etag=None, content_length="0")

    def test_end(self) -> None:
        """C{end} may bring the body, which gets no type and no ETag either."""
        for body in ("hi", b"hi"):
            response = self.answered(lambda res, body=body: res.end(body))
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
            response = self.answered(
                lambda res, kind=contentType, body=body: res.header("content-type", kind).send(body)
            )
            self.assertFields(response, content_type=sent)

    def test_json(self) -> None:
        """C{json} writes any value, also text and nothing."""
        for value, body in [
            ("x", b'"x"'),
            (None, b"null"),
            ({"a": "\u00e9"}, '{"a":"\u00e9"}'.encode()),
            (float("nan"), b"null"),
            ({1: (2, 3)}, b'{"1":[2,3]}'),
        ]:
            response = self.answered(lambda res, value=value: res.json(value))
            self.assertEqual(response.body, body)
            self.assertFields(response, content_type=_JSON, etag=etagOf(body))

    def test_notJSON(self) -> None:
        """What has no form in JSON is the handler's error, and nothing of it is sent."""
        response = self.answered(lambda res: res.json({"a": object()}))
        self.assertEqual(response.json(), {"error": "Internal Server Error"})
        self.assertEqual(len(self.flushLoggedErrors(TypeError)), 1)

    def test_length(self) -> None:
        """The length is that of the bytes, whatever the handler has set."""
        for length in (1, 4, "99"):
            for method in ("GET", "HEAD"):
                response = self.answered(
                    lambda res, n=length: res.header("Content-Length", n).send("\u00e9a"), method
                )
                self.assertFields(response, content_length="3")

    def test_html(self) -> None:
        """C{html} is HTML, whatever type was set before."""
        response = self.answered(lambda res: res.type("json").html("<p>"))
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

        self.assertEqual(self.answered(answer).status, 201)
        for send in (
            lambda res: self.assertIs(res.send("x"), res),
            lambda res: self.assertIs(res.html("x"), res),
            lambda res: self.assertIs(res.end("x"), res),
            lambda res: self.assertIs(res.redirect("/x"), res),
            lambda res: self.assertIs(res.sendStatus(201), res),
        ):
            self.assertIn(self.answered(send).status, (200, 201, 302))


class BodilessTests(ResponseCase):
    """Responses that have no body."""

    def test_statuses(self) -> None:
        """204 and 304 drop what describes a body, 205 says that it has none."""
        for status, length in ((204, None), (304, None), (205, "0")):
            for answer in (
                lambda res: res.json({"a": 1}),
                lambda res: res.type("txt").end("x"),
                lambda res: res.header("Content-Length", 4).send("abcd"),
            ):
                response = self.answered(lambda res, a=answer, s=status: a(res.status(s)))
                self.assertEqual((response.status, response.body), (status, b""))
                self.assertFields(
                    response, content_type=None, content_length=length, transfer_encoding=None
                )

    def test_streams(self) -> None:
        """So they do where the handler writes the body in parts."""

        def answer(res: Any, status: int) -> None:
            res.status(status).type("txt").write("abc")
            res.end("def")

        for status in (204, 304):
            response = self.answered(lambda res, status=status: answer(res, status))
            self.assertEqual((response.status, response.body), (status, b""))
            self.assertFields(response, content_type=None, transfer_encoding=None)

    def test_head(self) -> None:
        """HEAD has the fields of GET and no body, whole or in parts."""
        whole = self.answered(lambda res: res.send("abc"), "HEAD")
        self.assertEqual((whole.status, whole.body), (200, b""))
        self.assertFields(whole, content_type=_HTML, content_length="3", etag=etagOf(b"abc"))

        def parts(res: Any) -> None:
            res.type("txt").write("abc")
            res.end()

        self.assertEqual(self.answered(parts, "HEAD").body, b"")


class FreshTests(ResponseCase):
    """Clients that have the response already."""

    def test_etag(self) -> None:
        """Who has the body gets a 304 with its ETag; who has another one gets the body."""
        etag = etagOf(b"abc")
        for condition in (etag, etag[2:], f'"x", {etag}', "*"):
            for method in ("GET", "HEAD"):
                headers = {"If-None-Match": condition}
                response = self.answered(lambda res: res.send("abc"), method, headers)
                self.assertEqual((response.status, response.body), (304, b""))
                self.assertFields(response, etag=etag, content_type=None, content_length=None)
        other = self.answered(lambda res: res.send("abc"), headers={"If-None-Match": '"x"'})
        self.assertEqual((other.status, other.text), (200, "abc"))

    def test_date(self) -> None:
        """Where there is no ETag to compare, the date counts."""
        date = "Tue, 14 Nov 2023 22:13:20 GMT"
        for since, status in ((date, 304), ("Tue, 14 Nov 2023 22:13:19 GMT", 200)):
            response = self.answered(
                lambda res: res.header("Last-Modified", date).send("abc"),
                headers={"If-Modified-Since": since},
            )
            self.assertEqual(response.status, status)

    def test_others(self) -> None:
        """Only what succeeded, by GET or HEAD, can be fresh; C{no-cache} wants it anew."""
        headers = {"If-None-Match": etagOf(b"abc")}
        post = self.answered(lambda res: res.send("abc"), "POST", headers)
        self.assertEqual((post.status, post.text), (200, "abc"))
        missing = self.answered(lambda res: res.status(404).send("abc"), headers=headers)
        self.assertEqual((missing.status, missing.text), (404, "abc"))
        headers["Cache-Control"] = "no-cache"
        self.assertEqual(self.answered(lambda res: res.send("abc"), headers=headers).status, 200)


class StreamTests(ResponseCase):
    """Bodies in parts."""

    def test_write(self) -> None:
        """Text and bytes follow each other, without type, length and ETag."""

        def answer(res: Any) -> None:
            self.assertFalse(res.headersSent)
            res.write("h\u00e9")
            self.assertEqual((res.headersSent, res.finished), (True, False))
            res.write(b"llo")
            res.end("!")
            self.assertTrue(res.finished)

        response = self.answered(answer)
        self.assertEqual(response.text, "h\u00e9llo!")
        self.assertFields(response, content_type=None, content_length=None, etag=None)

    def test_awaited(self) -> None:
        """Each write can be waited for."""

        async def answer(res: Any) -> None:
            for piece in ("a", "b"):
                await res.write(piece)
            res.end()

        self.assertEqual(self.answered(answer).text, "ab")

    def test_length(self) -> None:
        """A length that is known beforehand may be told."""

        def answer(res: Any) -> None:
            res.header("Content-Length", 4).write("ab")
            res.end("cd")

        response = self.answered(answer)
        self.assertEqual(response.text, "abcd")
        self.assertFields(response, content_length="4", transfer_encoding=None)

    def test_chunked(self) -> None:
        """That the body comes in chunks may be said, and changes nothing."""

        def answer(res: Any) -> None:
            res.header("Transfer-Encoding", "chunked").header("Connection", "keep-alive")
            res.write("a")
            res.end("b")

        response = self.answered(answer)
        self.assertEqual((response.status, response.text), (200, "ab"))
        self.assertFields(response, transfer_encoding="chunked")
        whole = self.answered(lambda res: res.set("Transfer-Encoding", "chunked").send("ab"))
        self.assertFields(whole, transfer_encoding=None, content_length="2")

    def test_afterwards(self) -> None:
        """What is written behind the end, or sent whole behind a part, is an error."""
        refused: list[str] = []

        def tries(res: Any, *calls: Any) -> None:
            for call in calls:
                try:
                    call()
                except ResponseSent as error:
                    refused.append(str(error))

        def answer(res: Any) -> None:
            res.write("a")
            tries(res, lambda: res.send("b"), lambda: res.json({}), lambda: res.html("c"))
            res.end()
            tries(res, lambda: res.write("d"), res.end, lambda: res.redirect("/"))

        self.assertEqual(self.answered(answer).text, "a")
        self.assertEqual(len(refused), 6)
