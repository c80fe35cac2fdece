"""Media types."""

from time import process_time

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from storagegate.http.contenttypes import (
    contentTypeOf,
    lookupType,
    matchesType,
    parseContentType,
    withCharset,
)

# These are read in half a second; with a pattern that backtracks one of them takes that long.
LONG_SECONDS = 4.0


class ParseTests(SynchronousTestCase):
    """Reading a Content-Type."""

    def test_parts(self) -> None:
        """Type and names are in lower case, values as they came, quotes undone."""
        for value, kind, parameters in [
            ("text/html", "text/html", {}),
            (" Text/HTML ;\tCharset=UTF-8 ", "text/html", {"charset": "UTF-8"}),
            ('a/b; charset="utf-8"; x=1', "a/b", {"charset": "utf-8", "x": "1"}),
            ('a/b;x="a;charset=utf-7";y="\\"q\\\\"', "a/b", {"x": "a;charset=utf-7", "y": '"q\\'}),
            ("a/b; charset = utf-8", "a/b", {"charset": "utf-8"}),
            ("a/b;charset=utf-8;charset=utf-7", "a/b", {"charset": "utf-8"}),
            ('a/b; boundary="--=x, y"', "a/b", {"boundary": "--=x, y"}),
            ("", "", {}),
            ("nonsense", "nonsense", {}),
            ("a/b; charset", "a/b", {}),
            ("a/b;;x=1;", "a/b", {"x": "1"}),
        ]:
            parsed = parseContentType(value)
            self.assertEqual((parsed.type, dict(parsed.parameters)), (kind, parameters), value)

    def test_charset(self) -> None:
        """The charset is in lower case; an empty one is none."""
        for value, charset in [
            ("a/b", None),
            ("a/b;charset=", None),
            ('a/b;charset=""', None),
            ('a/b;CHARSET="ISO-8859-1"', "iso-8859-1"),
        ]:
            self.assertEqual(parseContentType(value).charset, charset, value)

    @given(st.text(st.sampled_from('a/;="\\ \t,') | st.characters(max_codepoint=255)))
    def test_anything(self, value: str) -> None:
        """Whatever comes can be read."""
        parsed = parseContentType(value)
        self.assertEqual(parsed.type, parsed.type.strip(" \t").lower())
        matchesType(value, ["json", "*/*", "+json"])

    def test_long(self) -> None:
        """A field as long as a head can be takes time in proportion."""
        before = process_time()
        for piece in (';a="\\"', ";", ';a="', "; \t", ";a=", " ", " \t", "x"):
            for end in ("", "x", '"'):
                for _ in range(10):
                    parseContentType("a/b;" + piece * (16_000 // len(piece)) + end)
        self.assertLess(process_time() - before, LONG_SECONDS)


class MatchTests(SynchronousTestCase):
    """Comparing a Content-Type with what is wanted."""

    def test_matches(self) -> None:
        """A type matches itself, its extension, wildcards and suffixes, whatever its parameters."""
        for value, wanted, expected in [
            ("application/json", "application/json", "application/json"),
            ("application/json; charset=utf-8", "json", "json"),
            (" APPLICATION/Json ;x", "application/json", "application/json"),
            ("application/json", "Application/JSON", "Application/JSON"),
            ("application/json", "application/*", "application/json"),
            ("text/x-own", "text/*", "text/x-own"),
            ("image/png", "*/*", "image/png"),
            ("image/png", "*/png", "image/png"),
            ("application/vnd.api+json", "+json", "application/vnd.api+json"),
            ("application/vnd.api+json", "application/*+json", "application/vnd.api+json"),
            ("application/vnd.api+json", "*/*+JSON", "application/vnd.api+json"),
            ("application/x-www-form-urlencoded", "urlencoded", "urlencoded"),
            ("multipart/form-data; boundary=x", "multipart", "multipart"),
            ("text/html", ["json", "html"], "html"),
            ("text/html", [], "text/html"),
        ]:
            self.assertEqual(matchesType(value, wanted), expected, (value, wanted))

    def test_differs(self) -> None:
        """Nothing else matches, and what is no type matches nothing."""
        for value, wanted in [
            ("application/json-patch", "application/json"),
            ("application/json-patch+json", "application/json"),
            ("application/jsonp", "json"),
            ("xapplication/json", "application/json"),
            ("application/json", "+json"),
            ("application/vnd.api+json", "json"),
            ("application/json, text/plain", "application/json"),
            ("application/json/x", "application/json"),
            ("application", "*/*"),
            ("text /html", "*/*"),
            ("", "*/*"),
            (None, "*/*"),
            (None, []),
            ("text/html", "text"),
            ("text/html", ["json", "nosuchextension"]),
        ]:
            self.assertIsNone(matchesType(value, wanted), (value, wanted))


class FileTests(SynchronousTestCase):
    """The types of files."""

    def test_lookup(self) -> None:
        """An extension, a name or a path is known by what follows its last dot."""
        for name, expected in [
            ("html", "text/html"),
            (".html", "text/html"),
            ("HTML", "text/html"),
            ("a/b.c/photo.JPG", "image/jpeg"),
            ("archive.tar.gz", "application/gzip"),
            ("C:\\temp\\a.png", "image/png"),
            ("mjs", "text/javascript"),
            ("woff2", "font/woff2"),
            ("ico", "image/vnd.microsoft.icon"),
            ("/home/.html", None),
            ("a.b/README", None),
            ("x.nosuchextension", None),
            ("", None),
            (".", None),
        ]:
            self.assertEqual(lookupType(name), expected, name)

    def test_charset(self) -> None:
        """Text gains its charset, once; other types have none."""
        for name, expected in [
            ("html", "text/html; charset=utf-8"),
            ("app.js", "text/javascript; charset=utf-8"),
            ("json", "application/json; charset=utf-8"),
            ("webmanifest", "application/manifest+json; charset=utf-8"),
            ("svg", "image/svg+xml"),
            ("xml", "application/xml"),
            ("wasm", "application/wasm"),
            ("nosuchextension", "application/octet-stream"),
        ]:
            self.assertEqual(contentTypeOf(name), expected, name)
        for value, expected in [
            ("text/x", "text/x; charset=utf-8"),
            ("Text/HTML", "Text/HTML; charset=utf-8"),
            ("text/html;charset=latin1", "text/html;charset=latin1"),
            ('text/html; Charset="utf-8"', 'text/html; Charset="utf-8"'),
            ("text/html; x=1", "text/html; x=1; charset=utf-8"),
            ("image/png", "image/png"),
        ]:
            self.assertEqual(withCharset(value), expected, value)
