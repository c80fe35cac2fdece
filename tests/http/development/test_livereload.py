"""Pages that reload themselves: the script in them, and the events that they get."""

import gzip
import json
import os
from itertools import pairwise
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase
from zope.interface.verify import verifyObject

from storagegate import server
from storagegate.http import Router, compression, securityHeaders, staticFiles
from storagegate.http.development import livereload
from storagegate.http.development.livereload import (
    LiveReloadHub,
    TagInserter,
    liveReload,
    staticRoots,
)
from storagegate.http.encoding import IBodyEncoder
from storagegate.http.fetch.handler import ResponseLost
from storagegate.http.testing import Client, TestCall, TestResponse

PAGE = "<html><body>" + "x" * 2000 + "</body></html>"
BROWSER = {"Accept": "text/html,application/xhtml+xml,*/*;q=0.8", "Sec-Fetch-Dest": "document"}


class PageCase(SynchronousTestCase):
    """An application with the middleware."""

    def setUp(self) -> None:
        """Make it."""
        self.hub = LiveReloadHub()
        self.app = server.http()
        self.app.use(liveReload(self.hub))
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
        self.hub.reload([])
        self.assertIn(self.tag(), self.get().text)
        self.assertNotEqual(self.get().text, expected)

    def test_versionOfRequest(self) -> None:
        """A page that old code was making while new code was loaded is of the old version."""

        def answer(req: Any, res: Any) -> None:
            self.hub.reload([])
            res.html("x")

        self.app.get("/", answer)
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
        inner.use(liveReload(self.hub))
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
        path = str(root / "a.html")
        self.assertEqual([*self.hub.files.roots], [path])
        self.assertEqual(self.hub.files.check(), set())
        (root / "a.html").write_text("changed")
        self.assertEqual(self.hub.files.check(), {path})

    def test_staticRoots(self) -> None:
        """Directories that C{staticFiles} serves are found, in routers too, and once."""
        root = Path(self.mktemp()).absolute()
        for name in ("a", "b"):
            (root / name).mkdir(parents=True)
        router = Router()
        router.use(staticFiles(root / "b"))
        self.app.use(staticFiles(root / "a"))
        self.app.use("/more", router)
        self.app.use("/again", router)
        self.assertEqual(staticRoots(self.app), {str(root / "a"), str(root / "b")})


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


ERROR = {"title": "E: x", "file": "a.py", "line": 3, "text": "..."}


def events(call: TestCall) -> list[tuple[str, Any]]:
    """Read the events of a stream."""
    found = []
    for block in call.received.decode().split("\n\n"):
        fields = dict(line.split(": ", 1) for line in block.split("\n") if ": " in line)
        if "event" in fields:
            found.append((fields["event"], json.loads(fields["data"])))
    return found


class HubTests(SynchronousTestCase):
    """Pages that listen."""

    def setUp(self) -> None:
        """Make an application with open pages."""
        self.hub = LiveReloadHub()
        app = server.http()
        app.use(liveReload(self.hub))
        self.client = Client(app)

    def open(self, **options: Any) -> TestCall:
        """Let a page connect."""
        return self.client.start("GET", "/__storagegate/hmr", **options)

    def test_stream(self) -> None:
        """A page hears the version first, then of each reload, and is asked to come again soon."""
        page = self.open()
        self.assertEqual(events(page), [("hello", {"version": self.hub.version})])
        self.assertIn(b"retry: 500\n", page.received)
        self.hub.reload(["a.py"])
        told = {"version": self.hub.version, "files": ["a.py"]}
        self.assertEqual(events(page)[1:], [("reload", told)])
        self.assertEqual(events(self.open()), [("hello", {"version": self.hub.version})])

    def test_processes(self) -> None:
        """Another process has another version, so that pages see that it was restarted."""
        self.assertNotEqual(LiveReloadHub().version, LiveReloadHub().version)

    def test_error(self) -> None:
        """An error is sent to all pages, also to those that open later, until the process ends."""
        page = self.open()
        self.hub.fail(ERROR)
        self.assertEqual(events(page)[1:], [("error", ERROR)])
        self.assertEqual(events(self.open())[1:], [("error", ERROR)])
        self.hub.reload(["a.css"])
        self.assertEqual(events(self.open())[1:], [("error", ERROR)])

    def test_beat(self) -> None:
        """A beat is a comment: it keeps connections alive and says nothing."""
        page = self.open()
        before = page.received
        self.hub.beat()
        self.assertEqual(page.received, before + b":\n\n")

    def test_gone(self) -> None:
        """A page that goes away makes room, and nothing is written to it."""
        for _ in range(livereload._MAX_STREAMS):
            page = self.open()
        self.assertEqual(self.open().response.status, 503)
        page.disconnect()
        self.client.flush()
        self.assertFalse(self.open().done)
        self.hub.reload([])

    def test_behind(self) -> None:
        """A page that reads nothing is dropped, and others are told."""
        slow = self.open(reading=False)
        page = self.open()
        for _ in range(100):
            self.hub.fail({"text": "x" * 10_000})
            page.collect()
        self.assertEqual(len(events(page)), 101)
        slow.reading = True
        self.client.flush()
        self.assertRaises(ResponseLost, lambda: slow.response)

    def test_endAll(self) -> None:
        """All streams can be ended in order."""
        page = self.open()
        self.hub.endAll()
        self.assertEqual(page.response.status, 200)
        self.hub.reload([])


TAG = b"<tag>"


def insert(*pieces: bytes) -> bytes:
    """Put the tag into a page that comes in pieces."""
    inserter = TagInserter(TAG)
    return b"".join([*map(inserter.feed, pieces), inserter.finish()])


class InserterTests(SynchronousTestCase):
    """Where the tag goes."""

    def test_encoder(self) -> None:
        """It is an encoder as responses want it."""
        self.assertTrue(verifyObject(IBodyEncoder, TagInserter(TAG)))

    def test_places(self) -> None:
        """The tag comes before the end of the body, else at the end of the page."""
        for page, result in [
            (b"<body>x</body></html>", b"<body>x<tag></body></html>"),
            (b"<BODY>x</BODY >", b"<BODY>x<tag></BODY >"),
            (b"x</bodyguard>", b"x</bodyguard><tag>"),
            (b"x</body></body>", b"x<tag></body></body>"),
            (b"x</bod", b"x</bod<tag>"),
            (b"", b"<tag>"),
        ]:
            self.assertEqual(insert(page), result)

    @given(
        st.lists(st.sampled_from([b"</body", b"<", b"/", b"</BO", b"dy", b">", b" ", b"x"])),
        st.lists(st.integers(0, 60)),
    )
    def test_pieces(self, parts: list[bytes], cuts: list[int]) -> None:
        """However a page is cut, the result is the same, and nothing but the tag is added."""
        page = b"".join(parts)
        places = sorted({min(cut, len(page)) for cut in cuts} | {0, len(page)})
        pieces = [page[a:b] for a, b in pairwise(places)]
        result = insert(*pieces)
        self.assertEqual(result, insert(page))
        self.assertEqual(result.replace(TAG, b"", 1), page)

    def test_prompt(self) -> None:
        """What cannot be the mark is passed on at once, and a flush holds nothing back."""
        inserter = TagInserter(TAG)
        self.assertEqual(inserter.feed(b"<p>Hi</"), b"<p>Hi")
        self.assertEqual(inserter.flush(), b"</")
        self.assertEqual(inserter.feed(b"p>"), b"p>")
        self.assertEqual(inserter.finish(), TAG)
