"""C{staticFiles}."""

import os
import time
from typing import Any

from twisted.internet.defer import execute
from twisted.internet.task import Clock

from storagegate import server
from storagegate.http import files
from storagegate.http.middleware.staticfiles import staticFiles
from storagegate.http.options import Runtime
from storagegate.net.http.interfaces import HTTPLimits
from storagegate.net.http.site import Site
from tests.http.filesupport import MODIFIED, FileCase, tagOf
from tests.http.middleware.staticsupport import NEXT, StaticCase
from tests.http.middleware.support import Client


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
        self.patch(files, "_SUPPORTED", False)
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
