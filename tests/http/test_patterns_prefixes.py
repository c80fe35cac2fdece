"""How much of a path a prefix takes."""

import re

from storagegate.http.patterns import compilePattern
from tests.http.patterncase import PatternCase


class PrefixTests(PatternCase):
    """Patterns that C{use} registers."""

    def test_text(self) -> None:
        """A prefix takes itself and leaves what is below, which a slash begins."""
        expected = {
            "/foo": 4,
            "/foo/": 4,
            "/foo/bar": 4,
            "/foo//": 4,
            "/FOO/bar": 4,
            "/f%6Fo/bar": 6,
            "/foobar": None,
            "/fo": None,
            "/": None,
            "//foo": None,
        }
        self.takes(compilePattern("/foo", prefix=True), expected)
        self.takes(compilePattern("/foo/", prefix=True), expected)
        self.takes(compilePattern("/foo/", prefix=True, strict=True), expected)

    def test_root(self) -> None:
        """The root takes nothing of any path."""
        self.takes(compilePattern("/", prefix=True), {"/": 0, "//": 0, "/a/b": 0, "/%zz": 0})

    def test_parameters(self) -> None:
        """A prefix may hold parameters; optional ones take what they can."""
        tenant = compilePattern("/t/:tenant", prefix=True)
        self.assertEqual(tenant.match("/t/a%20b/x"), ({"tenant": "a b"}, 8))
        self.takes(tenant, {"/t": None, "/t/": None, "/t//x": None, "/t/a": 4, "/t/a/": 4})
        optional = compilePattern("/a/:b?", prefix=True)
        self.assertEqual(optional.match("/a/x/y"), ({"b": "x"}, 4))
        self.assertEqual(optional.match("/a//y"), ({"b": None}, 2))
        self.takes(compilePattern("/:a-:b", prefix=True), {"/x-y/z": 4, "/x/y": None})

    def test_wildcards(self) -> None:
        """A wildcard takes as much as it can."""
        self.takes(compilePattern("/f/*", prefix=True), {"/f/a/b": 6, "/f/": 3, "/f": None})
        self.takes(compilePattern("*", prefix=True), {"/": 1, "/a/b": 4})
        middle = compilePattern("/a/*/u", prefix=True)
        self.assertEqual(middle.match("/a/x/u/y/u/z"), ({"*": "x/u/y"}, 10))
        self.assertEqual(middle.match("/a/x/u/y/ux"), ({"*": "x"}, 6))
        self.takes(middle, {"/a/x/u/": 6, "/a/u": None, "/a/x/ux": None})

    def test_regular(self) -> None:
        """What a regular expression takes must be whole segments from the beginning."""
        api = compilePattern(re.compile("/v([0-9])"), prefix=True)
        self.assertEqual(api.match("/v1/x"), ({0: "1"}, 3))
        self.takes(api, {"/v1": 3, "/v1/": 3, "/v12": None, "/x/v1": None, "/x": None})
        self.takes(
            compilePattern(re.compile("^/admin/"), prefix=True), {"/admin/x": 6, "/admin": None}
        )
        self.takes(compilePattern(re.compile("x?$"), prefix=True), {"/a": 0, "/ax": None})
        self.takes(compilePattern(re.compile("(?=.*x)"), prefix=True), {"/a/x": 0, "/a": None})
