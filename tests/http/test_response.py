"""The response as handlers see it: whole bodies and statuses."""

import base64
import hashlib
from typing import Any

from tests.http.responding import ResponseCase


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
            (
                lambda res: res.type("application/x-own").json(1),
                "application/x-own; charset=utf-8",
                b"1",
            ),
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
            self.assertEqual("content-type" in response.headers, status == 205)

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
