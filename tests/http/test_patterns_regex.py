"""Regular expressions as patterns."""

import re

from storagegate.http.patterns import compilePattern
from tests.http.patterncase import PatternCase, lookAt


class RegularTests(PatternCase):
    """Regular expressions."""

    def test_search(self) -> None:
        """The expression is searched in the raw path with its own flags."""
        self.matches(re.compile("/a.*z"), {"/abcz": {}, "/x/az/y": {}, "/A/z": None, "/%61z": None})
        self.matches(re.compile("^/a$", re.IGNORECASE), {"/A": {}, "/a/": None})

    def test_captures(self) -> None:
        """Captures are decoded, under their numbers from 0 and their names."""
        found = lookAt(re.compile(r"^/(\d+)(?:/(?P<rest>.*))?$"), "/12/a%20b/%2F")
        self.assertEqual(found, {0: "12", 1: "a b//", "rest": "a b//"})
        found = lookAt(re.compile(r"^/(\d*)(?:/(?P<rest>.*))?$"), "/")
        self.assertEqual(found, {0: "", 1: None, "rest": None})

    def test_members(self) -> None:
        """The source is the expression; the names of its captures are text."""
        source = re.compile("/(a)/(?P<b>b)")
        pattern = compilePattern(source)
        self.assertIs(pattern.source, source)
        self.assertIs(pattern.regexp, source)
        self.assertEqual(pattern.names, ["0", "1", "b"])

    def test_refused(self) -> None:
        """Expressions for bytes, and what is no pattern at all, are refused."""
        for bad in (re.compile(b"/a"), b"/a", None, 5):
            self.assertRaises(ValueError, compilePattern, bad)
