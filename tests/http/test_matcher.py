"""Many patterns at once."""

import re
import time
from collections.abc import Sequence

from hypothesis import example, given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from storagegate.http.matcher import RouteIndex
from storagegate.http.patterns import NO_PARAMS, MalformedEscape, Params, Pattern, compilePattern

Plain = tuple[int, Params | str, int]

# Walking the tree takes a thousandth of it; trying 10,000 patterns a path takes more.
SECONDS = 0.25


def plain(found: Sequence[tuple[int, Params | MalformedEscape, int]]) -> list[Plain]:
    """Make what was found comparable."""
    return [
        (index, "malformed" if isinstance(params, MalformedEscape) else params, end)
        for index, params, end in found
    ]


def oneByOne(patterns: Sequence[Pattern], path: str) -> list[Plain]:
    """Try each pattern in turn."""
    found = []
    for index, pattern in enumerate(patterns):
        match = pattern.match(path)
        if match is not None:
            found.append((index, *match))
    return plain(found)


SEGMENTS = (
    "a",
    "b",
    "A",
    "é",
    "%C3%A9",
    "a%2Fb",
    "a b",
    "100%",
    "",
    ":x",
    ":y",
    ":x?",
    ":y?",
    ":z?",
    ":x-:y",
    "a:x",
    ":x.b",
    "*",
)

PIECES = (
    "/",
    "//",
    "/a",
    "/b",
    "/A",
    "/B",
    "/a/b",
    "a",
    "b",
    "-",
    ".",
    "x",
    "/x-y",
    "/ab",
    "/a.b",
    "/%C3%A9",
    "/%c3%a9",
    "%C3%89",
    "%61",
    "%2F",
    "%20",
    "/100%25",
    "%",
    "%z",
    "%ff",
    "%25",
)


@st.composite
def pathPatterns(draw: st.DrawFn) -> Pattern:
    """Make a pattern of the segments above."""
    options = {name: draw(st.booleans()) for name in ("caseSensitive", "strict", "prefix")}
    source = draw(
        st.one_of(
            st.lists(st.sampled_from(SEGMENTS), max_size=5).map(lambda s: "/" + "/".join(s)),
            st.just("*"),
        )
    )
    try:
        return compilePattern(source, **options)
    except ValueError:
        # One of those that cannot be used: two wildcards, a name twice.
        return compilePattern("/a", **options)


REGULAR = [
    compilePattern(re.compile(source), prefix=prefix)
    for source in ("a", "^/a", "/(b|x)?$", "(?P<n>%..)")
    for prefix in (False, True)
]

PATTERNS = st.lists(st.one_of(pathPatterns(), pathPatterns(), st.sampled_from(REGULAR)), max_size=8)
PATHS = st.lists(st.sampled_from(PIECES), max_size=6).map(lambda pieces: "/" + "".join(pieces))


class RouteIndexTests(SynchronousTestCase):
    """What the index finds."""

    @given(PATTERNS, st.lists(PATHS, min_size=1, max_size=8))
    def test_sameAsOneByOne(self, patterns: list[Pattern], paths: list[str]) -> None:
        """It finds what trying each pattern in turn finds, for a path seen before, too."""
        index = RouteIndex(patterns)
        registered = [str(pattern.source) for pattern in patterns]
        for path in (*paths, *paths, *(p for p in registered if p.startswith("/"))):
            self.assertEqual(plain(index.match(path)), oneByOne(patterns, path))

    @given(st.lists(st.text("/aA%é-c39", max_size=8), max_size=4).map(lambda p: "/" + "/".join(p)))
    @example("/é/É")
    def test_anyText(self, path: str) -> None:
        """Any text after the slash is held against the patterns, and nothing is raised."""
        sources = ("/a/:x", "/é/:x", "/:x-:y", "/a/*", "/*/a", "/", "/a:x", "/:x?/a", "*")
        patterns = [
            compilePattern(source, prefix=prefix, caseSensitive=exact)
            for source in sources
            for prefix in (False, True)
            for exact in (False, True)
        ]
        self.assertEqual(plain(RouteIndex(patterns).match(path)), oneByOne(patterns, path))

    def test_order(self) -> None:
        """Whatever matches comes in the order of its definition."""
        sources = ("*", "/:a/:b", "/x/*", "/x/:b", "/*/y", "/x/y", "/:a-:b", "/:a?/:b?", "/X/Y")
        patterns = [compilePattern(source) for source in (*sources, *reversed(sources))]
        found = [index for index, _, _ in RouteIndex(patterns).match("/x/y")]
        self.assertEqual(found, [0, 1, 2, 3, 4, 5, 7, 8, 9, 10, 12, 13, 14, 15, 16, 17])

    def test_severalWays(self) -> None:
        """A pattern that can be read in several ways is found once, read as it reads itself."""
        patterns = [compilePattern("/a/:b?/c/:d?"), compilePattern("/:a?", prefix=True)]
        self.assertEqual(
            RouteIndex(patterns).match("/a/c/c"),
            [(0, {"b": "c", "d": None}, 6), (1, {"a": "a"}, 2)],
        )

    def test_options(self) -> None:
        """Patterns with different options stand side by side."""
        patterns = [
            compilePattern("/a"),
            compilePattern("/A", caseSensitive=True),
            compilePattern("/a", strict=True),
            compilePattern("/a", prefix=True),
            compilePattern("/a/", strict=True),
        ]
        index = RouteIndex(patterns)
        for path, expected in (
            ("/a", [0, 2, 3]),
            ("/A", [0, 1, 2, 3]),
            ("/a/", [0, 3, 4]),
            ("/A/", [0, 1, 3, 4]),
            ("/a/b", [3]),
        ):
            self.assertEqual([found[0] for found in index.match(path)], expected, path)

    def test_params(self) -> None:
        """What has parameters gets a mapping of its own each time; what has none shares one."""
        index = RouteIndex([compilePattern("/:a"), compilePattern("/x"), compilePattern("/y")])
        one, other = index.match("/x"), index.match("/x")
        self.assertIsNot(one[0][1], other[0][1])
        self.assertIs(one[1][1], NO_PARAMS)
        self.assertEqual(index.match("/y"), [(0, {"a": "y"}, 2), (2, NO_PARAMS, 2)])

    def test_remembered(self) -> None:
        """What a path matches without parameters is remembered, unless the path is long."""
        patterns = [compilePattern("/", prefix=True), compilePattern("/x"), compilePattern("/u/:v")]
        index = RouteIndex(patterns)
        for path in ("/x", "/x/", "/X", "/y/z"):
            self.assertIs(index.match(path), index.match(path))
        for path in ("/u/w", "/y" * 100):
            self.assertIsNot(index.match(path), index.match(path))
        self.assertEqual(plain(index.match("/x")), [(0, NO_PARAMS, 0), (1, NO_PARAMS, 2)])

    def test_forgotten(self) -> None:
        """Whoever makes paths up does not fill the memory: they push the others out."""
        index = RouteIndex([compilePattern("/", prefix=True), compilePattern("/x")])
        first = index.match("/x")
        for number in range(1100):
            index.match(f"/{number}")
        self.assertIsNot(index.match("/x"), first)
        self.assertEqual(index.match("/x"), first)

    def test_malformed(self) -> None:
        """An escape that cannot be decoded is told of by each pattern that would have to."""
        sources = ("/u/:id", "/u/*", "/u/x", "/:a-:b/*", "/:a/:b")
        index = RouteIndex(
            [compilePattern("/", prefix=True), *(compilePattern(source) for source in sources)]
        )
        self.assertEqual(
            plain(index.match("/u/%zz")),
            [(0, NO_PARAMS, 0), (1, "malformed", 6), (2, "malformed", 6), (5, "malformed", 6)],
        )

    def test_empty(self) -> None:
        """No patterns match nothing."""
        self.assertEqual(list(RouteIndex([]).match("/")), [])


class SizeTests(SynchronousTestCase):
    """Many patterns and long paths."""

    def quickly(self, index: RouteIndex, path: str) -> None:
        """Match a path, which must not take long."""
        began = time.process_time()
        index.match(path)
        self.assertLess(time.process_time() - began, SECONDS, path[:40])

    def test_manyRoutes(self) -> None:
        """Among 10,000 routes a thousand searches take less than one try of each."""
        sources = ("/r{}/items/:id", "/s{}", "/:tenant/t{}", "/u/u{}/*", "/v{}-:n/x")
        counts = (4000, 3000, 2000, 990, 10)
        patterns = [
            compilePattern(source.format(at))
            for source, count in zip(sources, counts, strict=True)
            for at in range(count)
        ]
        index = RouteIndex(patterns)
        paths = ("/r3999/items/7", "/s2999", "/x/t1999", "/u/u989/a/b", "/v9-7/x", "/none/of/them")
        for path in paths:
            self.assertEqual(plain(index.match(path)), oneByOne(patterns, path))
        began = time.process_time()
        for path in paths:
            for _ in range(1000):
                index.match(path)
        each = (time.process_time() - began) / len(paths) / 1000
        began = time.process_time()
        oneByOne(patterns, paths[-1])
        self.assertLess(each * 100, time.process_time() - began)

    def test_longPaths(self) -> None:
        """No path of 50,000 characters takes long, whatever it is made of."""
        sources = (
            "/",
            "/a",
            "/a/:b",
            "/:a/a/:b?",
            "/:a-:b",
            "/:a--:b.:c",
            "/a/*",
            "*",
            "/*/a",
            "/a/*/:b-:c/d",
            "".join(f"/:p{at}" for at in range(40)),
            "/a" * 40,
        )
        index = RouteIndex(
            [
                compilePattern(source, prefix=prefix, caseSensitive=exact)
                for source in sources
                for prefix in (False, True)
                for exact in (False, True)
            ]
        )
        for piece in (
            "a",
            "A",
            "/",
            "/a",
            "-",
            "--",
            "a-",
            ".-",
            "a/-",
            "%41",
            "%",
            "%2F/",
            "/a%20",
        ):
            for end in ("", "/", "/x"):
                self.quickly(index, "/" + (piece * 50_000)[:50_000] + end)

    def test_deep(self) -> None:
        """Both ways are walked at every segment of a deep path without looking anywhere twice."""
        depth = 2000
        patterns = [
            compilePattern("/a" * at + "/:x" + "/a" * (depth - at - 1))
            for at in range(0, depth, 50)
        ]
        index = RouteIndex(patterns)
        found = index.match("/a" * depth)
        self.assertEqual([each[0] for each in found], list(range(len(patterns))))
        self.quickly(index, "/a" * depth)
