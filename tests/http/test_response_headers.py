"""The header fields of a response."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from storagegate import server
from storagegate.http.fields import WIRES, checkFields
from storagegate.http.testing import Client
from tests.http.responding import ResponseCase


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
            self.assertRaises(TypeError, res.header, "X-A")
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

    def test_checkedOnce(self) -> None:
        """Fields that are checked once are sent as any others, and not all are kept."""
        fields = checkFields([("X-One", "\xe9 1"), ("X-Two", 2), ("X-More", ["a", "b"])])
        for _ in range(2):
            headers = self.answer(lambda res: res.setChecked(fields).end()).headers
            self.assertEqual(
                [headers.get(name) for name in fields], ["\xe9 1", "2", "a, b"], list(headers)
            )
        for number in range(2000):
            last = checkFields([("X-Number", number)])
        self.assertLessEqual(len(WIRES), 1024)
        self.assertEqual(
            self.answer(lambda res: res.setChecked(last).end()).headers.get("x-number"), "1999"
        )

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
        self.assertEqual(second, "b=; Path=/p; Expires=Thu, 01 Jan 1970 00:00:00 GMT")

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
            self.assertEqual(response.headers["x-a"].strip(" \t"), value.strip(" \t"))
        else:
            self.assertEqual(len(self.flushLoggedErrors(ValueError)), 1)
