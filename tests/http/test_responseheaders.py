"""The status and the fields of a response."""

from typing import Any

from storagegate import server
from storagegate.http.testing import Client
from tests.http.test_response import ResponseCase


class StatusTests(ResponseCase):
    """Which statuses there are."""

    def test_numbers(self) -> None:
        """Whole numbers from 100 to 999 are statuses; unusual ones go out, too."""
        for status in (200, 201, 299, 418, 599, 799, 999):
            self.assertEqual(
                self.answered(lambda res, s=status: res.status(s).end()).status, status
            )

        def edges(res: Any) -> None:
            self.assertEqual(res.status(100).statusCode, 100)
            res.status(200).end()

        self.assertEqual(self.answered(edges).status, 200)

    def test_refused(self) -> None:
        """Anything else is an error of the handler: a 500."""
        for status, error in [
            (99, ValueError),
            (1000, ValueError),
            (0, ValueError),
            (-200, ValueError),
            ("200", TypeError),
            (200.0, TypeError),
            (True, TypeError),
            (None, TypeError),
        ]:
            response = self.answered(lambda res, s=status: res.status(s).end())
            self.assertEqual(response.status, 500, status)
            self.assertEqual(len(self.flushLoggedErrors(error)), 1, status)

    def test_assigned(self) -> None:
        """The status may be assigned, too."""

        def answer(res: Any) -> None:
            res.statusCode = 202
            res.end()

        self.assertEqual(self.answered(answer).status, 202)


class FieldTests(ResponseCase):
    """Setting, reading and removing fields."""

    def test_values(self) -> None:
        """Text, numbers and lists of texts are values; C{set} is C{header}."""

        def answer(res: Any) -> None:
            res.header("X-Text", "a b").header("X-Number", 5).set("X-Time", 1.5)
            res.header({"X-One": "1", "X-List": ["a", "b"]}).end()

        response = self.answered(answer)
        self.assertFields(
            response, x_text="a b", x_number="5", x_time="1.5", x_one="1", x_list="a, b"
        )

    def test_case(self) -> None:
        """Names know no case, the last value of one counts, and it can be read and removed."""

        def answer(res: Any) -> None:
            res.header("X-A", "1").header("x-a", "2")
            self.assertEqual((res.get("X-a"), res.get("X-B")), ("2", None))
            res.header("X-B", "3").remove("x-b").remove("x-c").end()

        self.assertFields(self.answered(answer), x_a="2", x_b=None)

    def test_append(self) -> None:
        """Values can be added to those that are there."""

        def answer(res: Any) -> None:
            res.append("X-A", "1").append("x-a", ["2", "3"]).append("X-A", 4)
            self.assertEqual(res.get("X-A"), ["1", "2", "3", "4"])
            res.end()

        self.assertFields(self.answered(answer), x_a="1, 2, 3, 4")

    def test_refused(self) -> None:
        """A value or name that could end a line never reaches the wire: it is a 500."""
        for name, value in [
            ("X-A", "a\r\nSet-Cookie: b=c"),
            ("X-A", "a\nb"),
            ("X-A", "a\rb"),
            ("X-A", "a\x00b"),
            ("X-A", "a\x1bb"),
            ("X-A", "a\x7fb"),
            ("X-A", "\u20ac"),
            ("X-A", ["ok", "a\nb"]),
            ("X-A\r\nX-B", "a"),
            ("X A", "a"),
            ("", "a"),
            ("X-A", None),
            ("X-A", True),
        ]:
            response = self.answered(lambda res, n=name, v=value: res.header(n, v).end())
            self.assertEqual(response.status, 500, (name, value))
            self.assertFields(response, x_a=None, x_b=None, set_cookie=None)
            self.assertEqual(len(self.flushLoggedErrors(ValueError)), 1, (name, value))

    def test_everyWay(self) -> None:
        """So it is whatever method the value comes by."""
        bad = "a\r\nX-Evil: 1"
        for answer in (
            lambda res: res.append("X-A", bad),
            lambda res: res.set({"X-A": bad}),
            lambda res: res.type(f"text/{bad}"),
            lambda res: res.vary(bad),
            lambda res: res.links({"next": bad}),
            lambda res: res.cookie("a", "b", path=bad),
            lambda res: res.cookie(bad, "b"),
            lambda res: res.attachment(bad),
        ):
            response = self.answered(lambda res, a=answer: a(res).end())
            self.assertEqual(response.status, 500)
            self.assertFields(response, x_evil=None)
            self.assertEqual(len(self.flushLoggedErrors(ValueError)), 1)
        escaped = self.answered(lambda res: res.redirect(bad))
        self.assertFields(escaped, location="a%0D%0AX-Evil:%201", x_evil=None)

    def test_contentType(self) -> None:
        """A type of text gains its charset, whichever way it is set; others stay."""
        for value, sent in [
            ("text/x", "text/x; charset=utf-8"),
            ("application/json", "application/json; charset=utf-8"),
            ("text/html; charset=latin1", "text/html; charset=latin1"),
            ("text/plain; x=1", "text/plain; x=1; charset=utf-8"),
            ("image/png", "image/png"),
        ]:
            for name in ("content-type", "Content-Type"):
                one = self.answered(lambda res, n=name, v=value: res.header(n, v).end())
                self.assertFields(one, content_type=sent)
            mapped = self.answered(lambda res, v=value: res.set({"Content-Type": v}).end())
            self.assertFields(mapped, content_type=sent)
            self.assertFields(
                self.answered(lambda res, v=value: res.type(v).end()), content_type=sent
            )

    def test_type(self) -> None:
        """C{type} takes extensions, with their dot or without, and whole types."""
        for name, sent in [
            ("json", "application/json; charset=utf-8"),
            ("html", "text/html; charset=utf-8"),
            (".html", "text/html; charset=utf-8"),
            ("txt", "text/plain; charset=utf-8"),
            ("text", "text/plain; charset=utf-8"),
            ("xml", "application/xml"),
            ("png", "image/png"),
            ("js", "text/javascript; charset=utf-8"),
            ("nosuch", "application/octet-stream"),
            ("application/x-own", "application/x-own"),
        ]:
            response = self.answered(lambda res, n=name: res.type(n).end())
            self.assertFields(response, content_type=sent)

    def test_vary(self) -> None:
        """Names are added once, also several at a time; a star is all."""
        for calls, sent in [
            (["Accept", "accept", "Origin"], "Accept, Origin"),
            (["Accept, Origin", "origin,X-A"], "Accept, Origin, X-A"),
            (["Accept", "*", "Origin"], "*"),
        ]:

            def answer(res: Any, calls: list[str] = calls) -> None:
                for names in calls:
                    res.vary(names)
                res.end()

            self.assertFields(self.answered(answer), vary=sent)

    def test_links(self) -> None:
        """Links are listed by their relation, those of a second call too."""
        response = self.answered(
            lambda res: res.links({"next": "/2", "last": "/9"}).links({"prev": "/0"}).end()
        )
        self.assertFields(response, link='</2>; rel="next", </9>; rel="last", </0>; rel="prev"')

    def test_cookies(self) -> None:
        """Each cookie has its own field; clearing one is expiring it in 1970."""

        def answer(res: Any) -> None:
            res.cookie("a", "b c", maxAge=1000, httpOnly=True, sameSite="lax")
            res.cookie("n", 5).clearCookie("z", path="/p").end()

        app = server.http()
        app.get("/", lambda req, res: answer(res))
        self.assertEqual(
            Client(app).get("/").headers.getSetCookie(),
            [
                "a=b%20c; Max-Age=1; Path=/; Expires=Tue, 14 Nov 2023 22:13:21 GMT; HttpOnly; "
                "SameSite=Lax",
                "n=5; Path=/",
                "z=; Path=/p; Expires=Thu, 01 Jan 1970 00:00:00 GMT",
            ],
        )

    def test_attachment(self) -> None:
        """An attachment's name is told in both forms, and sets the type."""
        named = self.answered(lambda res: res.attachment("\u00e9.pdf").end())
        self.assertFields(
            named,
            content_disposition="attachment; filename=\"?.pdf\"; filename*=UTF-8''%C3%A9.pdf",
            content_type="application/pdf",
        )
        bare = self.answered(lambda res: res.attachment().end())
        self.assertFields(bare, content_disposition="attachment", content_type=None)
