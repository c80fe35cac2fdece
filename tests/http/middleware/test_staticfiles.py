"""C{staticFiles}."""

import os
import time
from typing import Any

from twisted.internet.defer import execute
from twisted.internet.task import Clock

from storagegate import server
from storagegate.http import openat2
from storagegate.http.middleware.staticfiles import staticFiles
from storagegate.http.runtime import Runtime
from storagegate.net.httplimits import HTTPLimits
from storagegate.net.site import Site
from tests.http.filesupport import MODIFIED, FileCase, tagOf
from tests.http.middleware.support import Answer, Client

NEXT = 299
"""The status of what comes after the files."""


class StaticCase(FileCase):
    """A test with a small site; requests go out as they are written."""

    def setUp(self) -> None:
        """Make the files."""
        super().setUp()
        for name, content in (
            ("index.html", b"<h1>top</h1>"),
            ("a.txt", b"0123456789"),
            ("a b.txt", b"space"),
            ("\u00e9.txt", b"accent"),
            ("sub/index.html", b"<h1>sub</h1>"),
            ("sub/page.html", b"<p>page</p>"),
            ("bare/file", b"no index here"),
            (".hidden/file", b"hidden"),
            (".dot", b"dot"),
        ):
            self.write(name, content)
        with open(os.path.join(self.top, "secret"), "wb") as file:
            file.write(b"secret")

    def serve(self, mount: str = "/", **options: Any) -> None:
        """Serve the files, and something after them."""
        app = server.http()
        app.runtime = Runtime(Clock(), execute, time.time)
        app.use(mount, staticFiles(self.root, **options))
        app.use(lambda req, res: res.status(NEXT).send("next"))
        self.site = Site(app.resource, HTTPLimits(), Clock())

    def ask(self, path: str, method: str = "GET", **fields: str) -> Answer:
        """Ask, with header fields: C{if_range} is C{If-Range}."""
        client = Client(self.site, "192.0.2.7")
        client.send(method, path, {name.replace("_", "-"): v for name, v in fields.items()})
        return client.answer()

    def gets(self, path: str, body: bytes, **fields: str) -> Answer:
        """Assert what a path leads to."""
        answer = self.ask(path, **fields)
        self.assertEqual((answer.status, answer.body), (200, body), path)
        return answer

    def assertStatus(self, status: int, *paths: str) -> None:
        """Assert how paths are answered."""
        for path in paths:
            self.assertEqual(self.ask(path).status, status, path)


class FileTests(StaticCase):
    """Files that are there."""

    def test_fields(self) -> None:
        """A file comes with all that lets it be kept and asked for again."""
        self.serve()
        answer = self.gets("/a.txt", b"0123456789")
        for name, value in (
            ("content-type", "text/plain; charset=utf-8"),
            ("content-length", "10"),
            ("cache-control", "public, max-age=0"),
            ("last-modified", MODIFIED),
            ("etag", tagOf(10)),
            ("accept-ranges", "bytes"),
            ("vary", None),
        ):
            self.assertEqual(answer.get(name), value, name)

    def test_names(self) -> None:
        """A path is decoded once; empty segments and single dots are nothing."""
        self.serve()
        self.gets("/a%20b.txt", b"space")
        self.gets("/%C3%A9.txt", b"accent")
        self.gets("/%61.txt?query", b"0123456789")
        self.gets("//sub//./page.html", b"<p>page</p>")
        self.gets("/sub%2Fpage.html", b"<p>page</p>")

    def test_conditionsAndRanges(self) -> None:
        """What the client has is not sent again, and what it lacks is."""
        self.serve()
        self.assertEqual(self.ask("/a.txt", if_none_match=tagOf(10)).status, 304)
        self.assertEqual(self.ask("/a.txt", if_modified_since=MODIFIED).status, 304)
        self.assertEqual(self.ask("/a.txt", if_match='"x"').status, 412)
        answer = self.ask("/a.txt", range="bytes=2-4")
        self.assertEqual((answer.status, answer.body), (206, b"234"))
        self.assertEqual(answer.get("content-range"), "bytes 2-4/10")
        answer = self.ask("/a.txt", range="bytes=10-")
        self.assertEqual((answer.status, answer.get("content-range")), (416, "bytes */10"))

    def test_head(self) -> None:
        """HEAD has the fields of GET and no body."""
        self.serve()
        answer = self.ask("/a.txt", "HEAD")
        self.assertEqual((answer.status, answer.body), (200, b""))
        self.assertEqual(answer.get("content-length"), "10")

    def test_large(self) -> None:
        """A large file comes whole."""
        content = os.urandom(1_000_000)
        self.write("large", content)
        self.serve()
        self.gets("/large", content)

    def test_maxAge(self) -> None:
        """C{maxAge} and C{immutable} say how long a file may be kept."""
        for options, value in (
            ({"maxAge": 5000}, "public, max-age=5"),
            ({"maxAge": "1d"}, "public, max-age=86400"),
            ({"maxAge": "2y", "immutable": True}, "public, max-age=31536000, immutable"),
            ({"cacheControl": False}, None),
        ):
            self.serve(**options)
            self.assertEqual(self.gets("/a.txt", b"0123456789").get("cache-control"), value)

    def test_setHeaders(self) -> None:
        """A function may set fields of its own, by the path and the state of the file."""
        seen = []

        def setHeaders(res: Any, path: str, stat: os.stat_result) -> None:
            seen.append((path, stat.st_size))
            res.header("Cache-Control", "no-store")

        self.serve(setHeaders=setHeaders)
        answer = self.gets("/sub/page.html", b"<p>page</p>")
        self.assertEqual(answer.get("cache-control"), "no-store")
        self.assertEqual(seen, [(os.path.join(self.root, "sub/page.html"), 11)])

    def test_failingSetHeaders(self) -> None:
        """If that function fails it is a 500, and the file is closed."""
        self.serve(setHeaders=lambda res, path, stat: 1 / 0)
        self.assertStatus(500, "/a.txt")
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)

    def test_changed(self) -> None:
        """A file that was changed or moved is another from then on."""
        self.serve()
        self.gets("/a.txt", b"0123456789")
        self.write("a.txt", b"new")
        self.assertEqual(self.gets("/a.txt", b"new").get("etag"), tagOf(3))
        os.unlink(os.path.join(self.root, "a.txt"))
        self.assertStatus(NEXT, "/a.txt")

    def test_threads(self) -> None:
        """Where the reactor cannot open a file a thread does, to the same end."""
        self.patch(openat2, "_SUPPORTED", False)
        self.serve(fallthrough=False, extensions=["html"])
        self.gets("/a.txt", b"0123456789")
        self.gets("/sub/page", b"<p>page</p>")
        self.gets("/sub/", b"<h1>sub</h1>")
        self.assertStatus(301, "/sub")
        self.assertStatus(404, "/nothing", "/bare/")
        os.symlink("../secret", os.path.join(self.root, "out"))
        self.assertStatus(403, "/out")
        self.serve()
        self.assertStatus(NEXT, "/nothing")


class RefusedTests(StaticCase):
    """What is not served."""

    REFUSED = (
        (404, "/nothing", "/sub/nothing", "/a.txt/", "/a.txt/x", "/" + "n" * 300),
        (404, "/" + "n/" * 3000, "/bare/", "/%252e%252e%252fsecret", "/..."),
        # Names with a meaning on Windows are names like others.
        (404, "/C:/a.txt", "/C:%5ca.txt", "/a.txt::$DATA", "/con", "/a.txt%20", "/a.txt.", "/%5ca"),
        (403, "/../secret", "/..%2fsecret", "/%2e%2e/secret", "/%2E%2E%2Fsecret", "/sub/../a.txt"),
        (403, "/..%5csecret", "/sub%5c..%5c..%5csecret", "/..", "/sub/..", "/sub/%2e%2e/"),
        (400, "/%00", "/a.txt%00", "/a.txt%00.png", "/%", "/%zz", "/%ff", "/%c0%ae%c0%ae/secret"),
    )

    def test_error(self) -> None:
        """Without C{fallthrough} each is an error of its own."""
        self.serve(fallthrough=False)
        for status, *paths in self.REFUSED:
            self.assertStatus(status, *paths)

    def test_fallthrough(self) -> None:
        """With it, what comes after the files answers."""
        self.serve()
        for _, *paths in self.REFUSED:
            self.assertStatus(NEXT, *paths)

    def test_methods(self) -> None:
        """Only GET and HEAD are for files."""
        for method in ("POST", "PUT", "DELETE", "OPTIONS", "PATCH"):
            self.serve()
            self.assertEqual(self.ask("/a.txt", method).status, NEXT, method)
            self.serve(fallthrough=False)
            answer = self.ask("/a.txt", method)
            self.assertEqual((answer.status, answer.get("allow")), (405, "GET, HEAD"), method)

    def test_errorsOfFiles(self) -> None:
        """Once the file is found, what fails is an error in any case."""
        self.serve()
        self.assertEqual(self.ask("/a.txt", if_match='"x"').status, 412)

    def test_dotfiles(self) -> None:
        """Names with a dot in front are ignored, refused or served, as told."""
        paths = ("/.dot", "/.hidden/file", "/%2edot")
        for dotfiles, status in (("ignore", 404), ("deny", 403), ("allow", 200)):
            self.serve(dotfiles=dotfiles, fallthrough=False)
            self.assertStatus(status, *paths)
        self.serve(dotfiles="deny")
        self.assertStatus(NEXT, *paths)
        self.serve(dotfiles="deny", fallthrough=False)
        self.assertStatus(200, "/./a.txt", "/a.txt")

    def test_links(self) -> None:
        """Links within are served, links out are not."""
        os.symlink("sub/page.html", os.path.join(self.root, "within"))
        os.symlink(os.path.join(self.root, "a.txt"), os.path.join(self.root, "absolute"))
        os.symlink("../secret", os.path.join(self.root, "out"))
        os.symlink("..", os.path.join(self.root, "up"))
        os.symlink("/", os.path.join(self.root, "disk"))
        self.serve(fallthrough=False)
        self.gets("/within", b"<p>page</p>")
        self.gets("/absolute", b"0123456789")
        self.assertStatus(403, "/out", "/up/secret", "/disk/etc/passwd")

    def test_special(self) -> None:
        """What is no regular file is not there, and nobody waits for it."""
        os.mkfifo(os.path.join(self.root, "fifo"))
        self.serve(fallthrough=False)
        self.assertStatus(404, "/fifo")


class DirectoryTests(StaticCase):
    """Directories."""

    def test_index(self) -> None:
        """A path with a slash at its end is the first index that is there."""
        self.serve()
        self.gets("/", b"<h1>top</h1>")
        self.gets("/sub/", b"<h1>sub</h1>")
        self.write("sub/home.htm", b"home")
        self.serve(index=["default.html", "home.htm", "index.html"])
        self.gets("/", b"<h1>top</h1>")
        self.gets("/sub/", b"home")
        self.serve(index="home.htm")
        self.gets("/sub/", b"home")
        self.assertStatus(NEXT, "/")

    def test_noIndex(self) -> None:
        """Without an index a directory is not there."""
        os.makedirs(os.path.join(self.root, "odd/index.html"))
        self.serve(fallthrough=False)
        self.assertStatus(404, "/bare/", "/odd/")
        for index in (False, []):
            self.serve(index=index, fallthrough=False)
            self.assertStatus(404, "/", "/sub/")

    def test_redirect(self) -> None:
        """A directory's name without its slash leads there, with the query."""
        self.serve()
        for path, location in (
            ("/sub", "/sub/"),
            ("/bare", "/bare/"),
            ("/sub?a=1&b=%20", "/sub/?a=1&b=%20"),
            ("/./sub", "/./sub/"),
        ):
            answer = self.ask(path)
            self.assertEqual((answer.status, answer.get("location")), (301, location))

    def test_otherHost(self) -> None:
        """It never leads to another host."""
        os.makedirs(os.path.join(self.root, "evil.example"))
        self.serve()
        for path in ("//evil.example", "///evil.example", "//./evil.example"):
            answer = self.ask(path)
            self.assertEqual(answer.status, 301)
            location = answer.get("location") or ""
            self.assertEqual(location.lstrip("/."), "evil.example/")
            self.assertFalse(location.startswith(("//", "/\\")), location)
        os.makedirs(os.path.join(self.root, "\\evil.example"))
        for path in ("/\\evil.example", "/%5cevil.example"):
            location = self.ask(path).get("location") or ""
            self.assertIn(location, ("/evil.example/", "/%5cevil.example/"))

    def test_noRedirect(self) -> None:
        """It can be switched off; then it is not there."""
        self.serve(redirect=False, fallthrough=False)
        self.assertStatus(404, "/sub")

    def test_mounted(self) -> None:
        """Below a path, that path stands for the root."""
        self.serve("/static")
        self.gets("/static/a.txt", b"0123456789")
        self.gets("/static/", b"<h1>top</h1>")
        self.assertStatus(NEXT, "/a.txt", "/staticfile", "/static/nothing")
        for path, location in (
            ("/static", "/static/"),
            ("/static?x", "/static/?x"),
            ("/static/sub", "/static/sub/"),
        ):
            answer = self.ask(path)
            self.assertEqual((answer.status, answer.get("location")), (301, location))
        self.serve("/static", fallthrough=False)
        self.assertStatus(403, "/static/../secret", "/static/..%2f..%2fsecret")


class ExtensionTests(StaticCase):
    """Names without their extension."""

    def test_extensions(self) -> None:
        """They are tried in order, where a name has none and is not there."""
        self.write("sub/page.htm", b"htm")
        self.write("sub.html", b"beside the directory")
        self.serve(extensions=["htm", "html"])
        self.gets("/sub/page", b"htm")
        self.gets("/index", b"<h1>top</h1>")
        self.serve(extensions=".html")
        self.gets("/sub/page", b"<p>page</p>")
        self.assertStatus(301, "/sub")
        self.assertStatus(NEXT, "/a", "/nothing", "/sub/page.x", "/sub/page/")
        self.serve()
        self.assertStatus(NEXT, "/sub/page")

    def test_nameWithExtension(self) -> None:
        """A name that has an extension is what it is."""
        self.write("data.json.html", b"x")
        self.serve(extensions=["html"])
        self.assertStatus(NEXT, "/data.json")


class PrecompressedTests(StaticCase):
    """Files that were compressed before."""

    def setUp(self) -> None:
        """Make some."""
        super().setUp()
        self.write("app.js", b"plain")
        self.write("app.js.br", b"in brotli")
        self.write("app.js.gz", b"in gzip")

    def test_negotiated(self) -> None:
        """The client's own order decides, then the smallest; the type is that of the file."""
        self.serve(precompressed=True)
        for accepted, body, coding in (
            ("gzip, deflate, br, zstd", b"in brotli", "br"),
            ("gzip", b"in gzip", "gzip"),
            ("gzip;q=1, br;q=0.5", b"in gzip", "gzip"),
            ("br;q=0, gzip;q=0.1", b"in gzip", "gzip"),
            ("zstd", b"plain", None),
            ("identity, gzip;q=0.5", b"plain", None),
            ("br;q=0, gzip;q=0", b"plain", None),
            ("*", b"in brotli", "br"),
            ("", b"plain", None),
        ):
            answer = self.gets("/app.js", body, accept_encoding=accepted)
            self.assertEqual(answer.get("content-encoding"), coding, accepted)
            self.assertEqual(answer.get("vary"), "Accept-Encoding")
            self.assertEqual(answer.get("content-type"), "text/javascript; charset=utf-8")
            self.assertEqual(answer.get("etag"), tagOf(len(body)))
        self.assertEqual(self.gets("/app.js", b"plain").get("vary"), "Accept-Encoding")

    def test_off(self) -> None:
        """Unless it is switched on, nobody looks for them."""
        self.serve()
        answer = self.gets("/app.js", b"plain", accept_encoding="br")
        self.assertEqual((answer.get("vary"), answer.get("content-encoding")), (None, None))

    def test_parts(self) -> None:
        """A range is one of the encoded bytes; what the client has is not sent again."""
        self.serve(precompressed=True)
        answer = self.ask("/app.js", accept_encoding="br", range="bytes=3-")
        self.assertEqual((answer.status, answer.body), (206, b"brotli"))
        self.assertEqual(answer.get("content-encoding"), "br")
        answer = self.ask("/app.js", accept_encoding="br", if_none_match=tagOf(9))
        self.assertEqual(answer.status, 304)
        self.assertEqual(answer.get("content-encoding"), None)
        self.assertEqual(answer.get("vary"), "Accept-Encoding")

    def test_index(self) -> None:
        """An index may be compressed, too."""
        self.write("sub/index.html.gz", b"in gzip")
        self.serve(precompressed=True)
        answer = self.gets("/sub/", b"in gzip", accept_encoding="gzip")
        self.assertEqual(answer.get("content-type"), "text/html; charset=utf-8")

    def test_alone(self) -> None:
        """It stands for a file that is there; a directory or a link out does not count."""
        self.write("gone.js.gz", b"in gzip")
        self.write("out.js", b"plain")
        os.makedirs(os.path.join(self.root, "a.txt.gz"))
        os.symlink("../secret", os.path.join(self.root, "out.js.gz"))
        self.serve(precompressed=True)
        self.assertEqual(self.ask("/gone.js", accept_encoding="gzip").status, NEXT)
        self.gets("/a.txt", b"0123456789", accept_encoding="gzip")
        self.gets("/out.js", b"plain", accept_encoding="gzip")


class OptionTests(FileCase):
    """What C{staticFiles} is told."""

    def test_refused(self) -> None:
        """An option that is none is an error at set-up."""
        for options in (
            {"root": ""},
            {"dotfiles": "maybe"},
            {"maxAge": "soon"},
            {"maxAge": -1},
            {"index": True},
            {"index": [1]},
            {"extensions": 5},
            {"setHeaders": "no"},
        ):
            self.assertRaises(ValueError, staticFiles, **{"root": self.root, **options})
        self.assertRaises(TypeError, staticFiles)
        self.assertRaises(TypeError, staticFiles, self.root, maxage=1)

    def test_root(self) -> None:
        """The root may be a path object, relative, or missing until it is made."""
        self.write("a.txt", b"content")
        relative = os.path.relpath(self.root)
        app = server.http().use(staticFiles(relative))
        app.runtime = Runtime(Clock(), execute, time.time)
        os.rename(self.root, self.root + "-away")
        client = Client(Site(app.resource, HTTPLimits(), Clock()), "192.0.2.7")
        client.send("GET", "/a.txt", {})
        self.assertEqual(client.answer().status, 404)
        os.rename(self.root + "-away", self.root)
        client.send("GET", "/a.txt", {})
        self.assertEqual(client.answer().body, b"content")
