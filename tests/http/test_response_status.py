"""Redirects and the choice of a representation, by what the client accepts."""

from typing import Any

from storagegate import server
from storagegate.http.testing import Client, TestResponse
from tests.http.responding import ResponseCase


class RedirectTests(ResponseCase):
    """C{res.redirect}."""

    def test_default(self) -> None:
        """Without more it is a 302, with a text that says where to."""
        response = self.answer(lambda res: res.redirect("/new"))
        self.assertEqual((response.status, response.text), (302, "Found. Redirecting to /new"))
        self.assertFields(
            response, location="/new", vary="Accept", content_type="text/plain; charset=utf-8"
        )

    def test_html(self) -> None:
        """A browser gets a link, with nothing in it that could be markup."""
        response = self.answer(
            lambda res: res.redirect("/new?a='<b>\"&c"), headers={"Accept": "text/html"}
        )
        self.assertFields(
            response, location="/new?a='%3Cb%3E%22&c", content_type="text/html; charset=utf-8"
        )
        url = "/new?a=&#x27;%3Cb%3E%22&amp;c"
        self.assertEqual(response.text, f'<p>Found. Redirecting to <a href="{url}">{url}</a></p>')


class FormatTests(ResponseCase):
    """C{res.format}."""

    def formatted(self, accept: str | None, *names: str) -> TestResponse:
        """Choose between some types."""

        def answer(req: Any, res: Any) -> None:
            res.format({name: lambda name=name: res.send(name) for name in names})

        app = server.http()
        app.get("/", answer)
        return Client(app).get("/", headers={} if accept is None else {"Accept": accept})

    def test_choice(self) -> None:
        """The client's choice decides, the first if it has none."""
        for accept, chosen, contentType in [
            (None, "text", "text/plain"),
            ("*/*", "text", "text/plain"),
            ("application/json", "json", "application/json"),
            ("text/html;q=0.5, text/plain;q=0.4", "html", "text/html"),
        ]:
            response = self.formatted(accept, "text", "html", "json")
            self.assertEqual(response.text, chosen)
            self.assertFields(response, vary="Accept", content_type=f"{contentType}; charset=utf-8")

    def test_none(self) -> None:
        """Where nothing will do it is the default, or 406."""
        self.assertEqual(self.formatted("image/png", "text", "default").text, "default")
        response = self.formatted("image/png", "text")
        self.assertEqual((response.status, response.json()), (406, {"error": "Not Acceptable"}))
        self.assertFields(response, vary="Accept")
