"""C{res.render} and signed cookies."""

from pathlib import Path
from typing import Any

from twisted.internet.task import deferLater
from twisted.trial.unittest import SynchronousTestCase

from storagegate import server
from storagegate.core.options import OptionError
from storagegate.http.testing import Client


class RenderTests(SynchronousTestCase):
    """Templates."""

    def test_jinja(self) -> None:
        """A directory has templates of Jinja2, whose values are escaped."""
        root = Path(self.mktemp())
        root.mkdir()
        (root / "base.html").write_text("<h1>{% block title %}{% endblock %}</h1>")
        (root / "hello.html").write_text(
            "{% extends 'base.html' %}{% block title %}{{ user }}: {{ name }}{% endblock %}"
        )
        (root / "hello.txt").write_text("{{ name }}")
        app = server.http().withOptions(views=root)

        @app.use
        def user(req: Any, res: Any, next: Any) -> None:
            res.locals["user"] = "Ada"
            next()

        app.get("/", lambda req, res: res.render("hello", {"name": "<b>"}))
        app.get("/text", lambda req, res: res.type("txt").render("hello.txt", name="Alan"))
        app.get("/absent", lambda req, res: res.render("absent"))
        client = Client(app)
        response = client.get("/")
        self.assertEqual(response.text, "<h1>Ada: &lt;b&gt;</h1>")
        self.assertEqual(response.headers["content-type"], "text/html; charset=utf-8")
        response = client.get("/text")
        self.assertEqual(response.text, "Alan")
        self.assertEqual(response.headers["content-type"], "text/plain; charset=utf-8")
        self.assertEqual(client.get("/absent").status, 500)
        self.assertEqual(len(self.flushLoggedErrors()), 1)

    def test_function(self) -> None:
        """So does any function of a name and values, also one that takes time."""

        async def slow(name: str, values: Any) -> str:
            await deferLater(client.clock, 1, lambda: None)
            if name == "broken":
                raise ValueError(name)
            return f"{name} {values}"

        async def forgetful(req: Any, res: Any) -> None:
            res.render(req.params["name"], a=1)

        app = server.http()
        client = Client(app)
        app.get("/async/:name", forgetful)
        app.get("/:name", lambda req, res: res.render(req.params["name"], {"a": 1}))
        app.withOptions(views=lambda name, values: f"{name} {values}")
        self.assertEqual(client.get("/x").text, "x {'a': 1}")
        app.withOptions(views=slow)
        for path in ("/x", "/async/x"):
            call = client.start("GET", path)
            client.advance(1)
            self.assertEqual(call.response.text, "x {'a': 1}")
        for path in ("/broken", "/async/broken"):
            call = client.start("GET", path)
            client.advance(2)
            self.assertEqual(call.response.status, 500)
            self.assertEqual(len(self.flushLoggedErrors(ValueError)), 1)

    def test_refused(self) -> None:
        """Without the option the error names it; a directory that is absent is none."""
        app = server.http()
        app.get("/", lambda req, res: res.render("x"))
        self.assertEqual(Client(app).get("/").status, 500)
        (failure,) = self.flushLoggedErrors(RuntimeError)
        self.assertIn("views", failure.getErrorMessage())
        error = self.assertRaises(OptionError, app.withOptions, views=self.mktemp())
        self.assertIn("views", str(error))


class SignedCookieTests(SynchronousTestCase):
    """Cookies that only the application can write."""

    def setUp(self) -> None:
        """Make an application that sets one and shows it."""
        self.app = server.http().withOptions(cookieSecret="first")
        self.app.get("/set", lambda req, res: res.cookie("user", "a=b.c", signed=True).end())
        self.app.get("/", lambda req, res: res.json(req.signedCookies))
        self.client = Client(self.app)

    def test_round(self) -> None:
        """What was signed comes back, also under the former one of two secrets."""
        self.client.get("/set")
        self.assertNotEqual(self.client.cookies["user"], "a=b.c")
        self.assertEqual(self.client.get("/").json(), {"user": "a=b.c"})
        self.app.withOptions(cookieSecret=["second", "first"])
        self.assertEqual(self.client.get("/").json(), {"user": "a=b.c"})
        self.app.withOptions(cookieSecret="second")
        self.assertEqual(self.client.get("/").json(), {})

    def test_forged(self) -> None:
        """A value that was changed, unsigned, or signed for another name is not there."""
        self.client.get("/set")
        signed = self.client.cookies["user"]
        for name, value in (("user", f"x{signed}"), ("user", "admin"), ("role", signed)):
            self.client.cookies.clear()
            self.client.cookies.set(name, value)
            self.assertEqual(self.client.get("/").json(), {})

    def test_secret(self) -> None:
        """Without a secret the error names the option; the options do not show it."""
        self.assertNotIn("first", repr(self.app.settings))
        app = server.http()
        app.get("/set", lambda req, res: res.cookie("user", "1", signed=True).end())
        app.get("/get", lambda req, res: res.json(req.signedCookies))
        for path in ("/set", "/get"):
            self.assertEqual(Client(app).get(path).status, 500)
            (failure,) = self.flushLoggedErrors(RuntimeError)
            self.assertIn("cookieSecret", failure.getErrorMessage())
        for wrong in ("", [], [""], 7):
            self.assertRaises(OptionError, app.withOptions, cookieSecret=wrong)
