"""What C{staticFiles} finds where there is no file of the very name."""

import os

from tests.http.filesupport import tagOf
from tests.http.middleware.staticsupport import NEXT, StaticCase


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
