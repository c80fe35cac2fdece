"""The fields of a response, by each method that sets them."""

from typing import Any

from tests.http.responding import ResponseCase


class FieldTests(ResponseCase):
    """Setting, reading and removing fields."""

    def test_values(self) -> None:
        """Text, numbers and lists of texts are values; C{set} is C{header}."""

        def answer(res: Any) -> None:
            res.header("X-Text", "a b").set("X-Number", 5)
            res.header({"X-One": "1", "X-List": ["a", "b"]}).end()

        response = self.answer(answer)
        self.assertFields(response, x_text="a b", x_number="5", x_one="1", x_list="a, b")

    def test_case(self) -> None:
        """Names know no case, the last value of one counts, and it can be read and removed."""

        def answer(res: Any) -> None:
            res.header("X-A", "1").header("x-a", "2")
            self.assertEqual((res.get("X-a"), res.get("X-B")), ("2", None))
            res.header("X-B", "3").remove("x-b").remove("x-c").end()

        self.assertFields(self.answer(answer), x_a="2", x_b=None)

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
            response = self.answer(lambda res, a=answer: a(res).end())
            self.assertEqual(response.status, 500)
            self.assertFields(response, x_evil=None)
            self.assertEqual(len(self.flushLoggedErrors(ValueError)), 1)
        escaped = self.answer(lambda res: res.redirect(bad))
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
                one = self.answer(lambda res, n=name, v=value: res.header(n, v).end())
                self.assertFields(one, content_type=sent)
            mapped = self.answer(lambda res, v=value: res.set({"Content-Type": v}).end())
            self.assertFields(mapped, content_type=sent)
            self.assertFields(
                self.answer(lambda res, v=value: res.type(v).end()), content_type=sent
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
            response = self.answer(lambda res, n=name: res.type(n).end())
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

            self.assertFields(self.answer(answer), vary=sent)

    def test_cookies(self) -> None:
        """Each cookie has its own field; clearing one is expiring it in 1970."""

        def answer(res: Any) -> None:
            res.cookie("a", "b c", maxAge=1000, httpOnly=True, sameSite="lax")
            res.cookie("n", 5).clearCookie("z", path="/p").end()

        self.assertEqual(
            self.answer(answer).headers.getSetCookie(),
            [
                "a=b%20c; Max-Age=1; Path=/; Expires=Tue, 14 Nov 2023 22:13:21 GMT; HttpOnly; "
                "SameSite=Lax",
                "n=5; Path=/",
                "z=; Path=/p; Expires=Thu, 01 Jan 1970 00:00:00 GMT",
            ],
        )
