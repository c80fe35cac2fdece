"""What development does to answers."""

import gzip
import os
from pathlib import Path
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from storagegate import server
from storagegate.http import compression, securityHeaders, staticFiles
from storagegate.http.development.livereload import LiveReloadHub, developmentPages
from storagegate.http.testing import Client, TestResponse

PAGE = "<html><body>" + "x" * 2000 + "</body></html>"
BROWSER = {"Accept": "text/html,application/xhtml+xml,*/*;q=0.8", "Sec-Fetch-Dest": "document"}


class PageCase(SynchronousTestCase):
    """An application with the middleware."""

    def setUp(self) -> None:
        """Make it."""
        self.hub = LiveReloadHub()
        self.app = server.http()
        self.app.use(developmentPages(self.hub))
        self.client = Client(self.app)

    def tag(self) -> str:
        """Give what is put into pages."""
        return f'<script src="/__storagegate/hmr.js?v={self.hub.version}"></script>'

    def get(self, path: str = "/", **fields: str) -> TestResponse:
        """Ask as a browser that opens a page; C{_} in names of fields is C{-}."""
        more = {name.replace("_", "-"): value for name, value in fields.items()}
        return self.client.get(path, headers={**BROWSER, **more})


class ScriptTests(PageCase):
    """The script of pages, and which get it."""

    def test_page(self) -> None:
        """A page gets the script, of the version that it was made by, and the right length."""
        self.app.get("/", lambda req, res: res.html(PAGE))
        expected = PAGE.replace("</body>", self.tag() + "</body>")
        response = self.get()
        self.assertEqual(response.text, expected)
        self.assertEqual(response.headers["content-length"], str(len(expected)))
        head = self.client.head("/", headers=BROWSER)
        self.assertEqual(head.headers["content-length"], str(len(expected)))
        self.hub.reload([], isRepaired=True)
        self.assertIn(self.tag(), self.get().text)
        self.assertNotEqual(self.get().text, expected)

    def test_versionOfRequest(self) -> None:
        """A page that old code was making while new code was loaded is of the old version."""
        self.app.get("/", lambda req, res: self.hub.reload([], True) or res.html("x"))
        before = self.tag()
        self.assertEqual(self.get().text, "x" + before)

    def test_stream(self) -> None:
        """So does a page that is written in pieces."""

        async def write(req: Any, res: Any) -> None:
            res.type("html")
            for piece in ("<body>a</b", "ody></html>"):
                await res.write(piece)
            res.end()

        self.app.get("/", write)
        self.assertEqual(self.get().text, f"<body>a{self.tag()}</body></html>")

    def test_file(self) -> None:
        """So does a file, small or large; other files are as they are."""
        root = Path(self.mktemp())
        root.mkdir()
        large = "<body>" + "x" * 300_000 + "</body>"
        for name, text in (("a.html", PAGE), ("b.html", large), ("c.txt", PAGE)):
            (root / name).write_text(text)
        self.app.use(staticFiles(root))
        for name, text in (("a.html", PAGE), ("b.html", large)):
            self.assertEqual(
                self.get("/" + name).text, text.replace("</body>", self.tag() + "</body>")
            )
        self.assertEqual(self.get("/c.txt").text, PAGE)
        self.assertEqual(self.get("/a.html", Range="bytes=0-4").text, "<html")

    def test_compressed(self) -> None:
        """The script is put in before the page is compressed, once, whole or streamed."""
        self.app.use(compression())

        def stream(req: Any, res: Any) -> None:
            res.type("html").write(PAGE[:100])
            res.end(PAGE[100:])

        self.app.get("/", lambda req, res: res.html(PAGE))
        self.app.get("/stream", stream)
        for path in ("/", "/stream"):
            response = self.get(path, Accept_Encoding="gzip")
            self.assertEqual(response.headers["content-encoding"], "gzip")
            self.assertEqual(
                gzip.decompress(response.body).decode(),
                PAGE.replace("</body>", self.tag() + "</body>"),
            )

    def test_others(self) -> None:
        """What is no page, cannot take the tag or was asked for by a script is left alone."""
        self.app.get("/json", lambda req, res: res.json({"a": "</body>"}))
        self.app.get("/none", lambda req, res: res.status(204).type("html").end())
        self.app.post("/", lambda req, res: res.html(PAGE))
        self.app.get("/", lambda req, res: res.html(PAGE))
        wide = PAGE.encode("utf-16")
        self.app.get(
            "/wide",
            lambda req, res: res.header("Content-Type", "text/html; charset=utf-16").send(wide),
        )
        packed = gzip.compress(PAGE.encode())
        self.app.get(
            "/packed",
            lambda req, res: res.header("Content-Encoding", "gzip").type("html").send(packed),
        )
        self.assertEqual(self.get("/json").text, '{"a":"</body>"}')
        self.assertEqual(self.get("/none").body, b"")
        self.assertEqual(self.client.post("/").text, PAGE)
        self.assertEqual(self.get("/wide").body, wide)
        self.assertEqual(self.get("/packed").body, packed)
        self.assertEqual(self.get(Sec_Fetch_Dest="empty").text, PAGE)
        partial = {"Accept": "*/*", "X-Requested-With": "XMLHttpRequest"}
        self.assertEqual(self.client.get("/", headers=partial).text, PAGE)

    def test_mounted(self) -> None:
        """A page of an application that is mounted in another has the script once."""
        inner = server.http()
        inner.use(developmentPages(self.hub))
        inner.get("/", lambda req, res: res.html("x"))
        self.app.use("/inner", inner)
        self.assertEqual(self.get("/inner").text, "x" + self.tag())

    def test_served(self) -> None:
        """The script is a file of the same origin, as content policies want it; it is no route."""
        self.app.use(securityHeaders())
        response = self.client.get("/__storagegate/hmr.js?v=1")
        self.assertEqual(response.headers["content-type"], "text/javascript; charset=utf-8")
        self.assertIn('new EventSource("/__storagegate/hmr")', response.text)
        self.assertEqual(self.app.getRoutes(), [])
        self.assertEqual(self.client.get("/__storagegate/other").status, 404)


class CacheTests(PageCase):
    """What browsers have kept must not be shown after a change."""

    def test_conditions(self) -> None:
        """A page that was kept has no script, perhaps: it is sent again, with no validator."""
        self.app.get("/", lambda req, res: res.html(PAGE))
        plain = self.client.get("/", headers={"Sec-Fetch-Dest": "empty"})
        etag = plain.headers["etag"]
        response = self.get(If_None_Match=etag)
        self.assertEqual(response.status, 200)
        self.assertNotIn("etag", response.headers)
        again = self.client.get("/", headers={"If-None-Match": etag, "Sec-Fetch-Dest": "empty"})
        self.assertEqual(again.status, 304)

    def test_ages(self) -> None:
        """Styles and scripts are asked for each time, images are kept as they say."""
        root = Path(self.mktemp())
        root.mkdir()
        for name in ("a.css", "a.js", "a.html", "a.png"):
            (root / name).write_text("x")
        self.app.use(staticFiles(root, maxAge="1d"))
        ages = {name: self.get("/" + name).headers["cache-control"] for name in os.listdir(root)}
        image = ages.pop("a.png")
        self.assertEqual(image, "public, max-age=86400")
        self.assertEqual(set(ages.values()), {"no-cache"})

    def test_noStore(self) -> None:
        """What must not be kept at all still says so."""
        self.app.get("/", lambda req, res: res.header("Cache-Control", "no-store").html("x"))
        self.assertEqual(self.get().headers["cache-control"], "no-store")

    def test_noteFiles(self) -> None:
        """Files that pages were made of are noted, so that their changes are seen."""
        root = Path(self.mktemp()).absolute()
        root.mkdir()
        for name in ("a.html", "b.txt"):
            (root / name).write_text("x")
        self.app.get("/a", lambda req, res: res.sendFile("a.html", root))
        self.app.get("/b", lambda req, res: res.sendFile(str(root / "b.txt")))
        self.get("/a")
        self.get("/b")
        self.assertEqual(list(self.hub.files), [str(root / "a.html")])


class ErrorPageTests(SynchronousTestCase):
    """What is shown in place of an answer."""

    def setUp(self) -> None:
        """Make an application with all of it."""
        self.app = server.http().withOptions(development={"hmr": True})
        self.client = Client(self.app)

    def test_browser(self) -> None:
        """A browser gets a page that can be reloaded, with the traceback, and all of it escaped."""

        def fail(req: Any, res: Any) -> None:
            raise ValueError("<b>")

        self.app.get("/", fail)
        response = self.client.get("/", headers=BROWSER)
        self.assertEqual(response.status, 500)
        self.assertEqual(response.headers["content-type"], "text/html; charset=utf-8")
        self.assertIn("ValueError: &lt;b&gt;", response.text)
        self.assertNotIn("<b>", response.text)
        self.assertIn("/__storagegate/hmr.js", response.text)
        self.assertEqual(len(self.flushLoggedErrors(ValueError)), 1)
        missing = self.client.get("/<i>", headers=BROWSER)
        self.assertEqual(missing.status, 404)
        self.assertIn("GET /&lt;i&gt;", missing.text.replace("%3Ci%3E", "&lt;i&gt;"))
        self.assertIn("/__storagegate/hmr.js", missing.text)

    def test_others(self) -> None:
        """Everybody else gets JSON as ever, and so does a browser of an application in service."""
        for accept in ("*/*", "application/json"):
            response = self.client.get("/none", headers={"Accept": accept})
            self.assertEqual(response.json()["error"], "Not Found")
        served = Client(server.http()).get("/none", headers=BROWSER)
        self.assertEqual(served.json()["error"], "Not Found")
