"""What patterns may be written, and what they are as expressions."""

from hypothesis import given
from hypothesis import strategies as st

from storagegate.http.patterns import compilePattern
from tests.http.patterncase import PatternCase
from tests.support.selection import long


class RefusalTests(PatternCase):
    """Patterns that cannot be used."""

    def test_refused(self) -> None:
        """The error names the pattern and says what to write instead."""
        for source, advice in (
            ("", "begins with a slash"),
            ("about", "begins with a slash"),
            ("*/a", "begins with a slash"),
            ("/:", "%3A"),
            ("/a:b:", "%3A"),
            ("/::a", "%3A"),
            ("/:1", "%3A"),
            ("/:a²", "not a valid parameter name"),
            ("/:a/:a", "the parameter a occurs twice in it"),
            ("/:a-:a", "the parameter a occurs twice in it"),
            ("/:a:b", "text between"),
            ("/x{/:id}", "/:id?"),
            ("/x}", "/:id?"),
            ("/files/*path", "params['*']"),
            ("/files/a*", "params['*']"),
            ("/*.js", "params['*']"),
            ("/:a*", "params['*']"),
            ("/*/a/*", "only one *"),
            ("/*/:b?", "register two routes"),
            (r"/:id(\d+)", "regular expression"),
            ("/(a|b)", "regular expression"),
            ("/ab?cd", "/:id?"),
            ("/:a-:b?", "/:id?"),
            ("/v:a?", "/:id?"),
            ("/x?y=1", "/:id?"),
            ("/a+b", "%2B"),
            ("/:a+", "%2B"),
            ("/[ab]", "%5B"),
            ("/a]", "%5D"),
            (r"/a\:b", "%5C"),
            ("".join(f"/x/:p{at}?" for at in range(7)), "too many"),
        ):
            error = self.assertRaises(ValueError, compilePattern, source)
            self.assertIn(repr(source), str(error))
            self.assertIn(advice, str(error), source)

    def test_manyOptional(self) -> None:
        """Neighbouring optional parameters, however many, are few ways to read a pattern."""
        pattern = compilePattern("".join(f"/:p{at}?" for at in range(30)))
        found = pattern.match("/a/b")
        assert found is not None and isinstance(found[0], dict)
        self.assertEqual(list(found[0].values()), ["a", "b", *[None] * 28])


class RegexpTests(PatternCase):
    """The expression that stands for a pattern in the list of routes."""

    SOURCES = (
        "/",
        "/about",
        "/a/:b",
        "/:b?",
        "/a/:b?/:c?/d",
        "/:a-:b",
        "/v:a--:b.x/c",
        "/a/*",
        "*",
        "/*",
        "/a/*/b",
        "/:a/*/:b/c",
        "/é/:a",
    )

    @given(
        st.sampled_from(SOURCES),
        st.booleans(),
        st.booleans(),
        st.booleans(),
        st.lists(st.sampled_from([*"/abcv-.x", "--", "/a", "/b", "%C3%A9"])).map("".join),
    )
    def test_same(
        self, source: str, caseSensitive: bool, strict: bool, prefix: bool, path: str
    ) -> None:
        """It matches what the pattern matches, and captures the same."""
        path = "/" + path
        pattern = compilePattern(source, caseSensitive=caseSensitive, strict=strict, prefix=prefix)
        expected = pattern.match(path)
        found = pattern.regexp.match(path)
        self.assertIs(pattern.regexp, pattern.regexp)
        self.assertEqual(found is None, expected is None)
        if found is not None and expected is not None and isinstance(expected[0], dict):
            self.assertEqual(
                [group and group.replace("%C3%A9", "é") for group in found.groups()],
                list(expected[0].values()),
            )

    def test_names(self) -> None:
        """The names are those of the parameters, a wildcard's is a star."""
        pattern = compilePattern("/:a/:b?/v:c-:d/*")
        self.assertEqual(pattern.names, ["a", "b", "c", "d", "*"])
        self.assertEqual(pattern.source, "/:a/:b?/v:c-:d/*")
        self.assertEqual(compilePattern("/x").names, [])


class TimeTests(PatternCase):
    """Long paths that are made to be hard."""

    SOURCES = (
        "/about",
        "/",
        "/:a",
        "/:a?/:b?/c",
        "/:a-:b",
        "/:a--:b--:c",
        "/:a-:b.:c-:d",
        "/:a-:b--:c---:d",
        "/v:a.x",
        "/files/*",
        "*",
        "/*/x",
        "/a/*/:b-:c/d",
        "/*/a/a/:x/b",
    )
    PIECES = (
        "a",
        "/",
        "/a",
        "-",
        "--",
        "a-",
        ".-",
        "-.",
        "a/-",
        "%41",
        "%",
        "%2F/",
        "é",
        "-a--a---",
    )

    def hardPaths(self) -> list[str]:
        """Give paths of 50,000 characters."""
        return [
            "/" + (piece * 50_000)[:50_000] + end
            for piece in self.PIECES
            for end in ("", "/", "/x")
        ]

    @long("takes seconds")
    def test_linear(self) -> None:
        """No kind of pattern takes long for any, and neither does its expression."""
        for source in self.SOURCES:
            for prefix in (False, True):
                pattern = compilePattern(source, prefix=prefix)
                for path in self.hardPaths():
                    self.quickly(pattern.match, path)
                    self.quickly(pattern.regexp.match, path)
