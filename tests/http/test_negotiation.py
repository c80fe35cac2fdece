"""What the Accept headers mean."""

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from storagegate.http.negotiation import (
    preferredCharsets,
    preferredEncodings,
    preferredLanguages,
    preferredTypes,
)
from tests.support.selection import long

Case = tuple[str | None, list[str], list[str]]

# Header, what is offered, what comes out: as npm's negotiator answers.
TYPES: list[Case] = [
    ("*/*", ["text/html", "application/json"], ["text/html", "application/json"]),
    ("text/html, application/json", ["application/json", "text/html"],
     ["text/html", "application/json"]),
    ("application/json;q=0.2, text/html", ["application/json", "text/html"],
     ["text/html", "application/json"]),
    ("application/json, */*;q=0.8", ["text/html", "application/json"],
     ["application/json", "text/html"]),
    ("text/*", ["application/json"], []),
    ("text/html;q=0", ["text/html"], []),
    ("*/*, text/html;q=0", ["text/html", "text/plain"], ["text/plain"]),
    ("text/*;q=0.5, text/plain;q=0.9", ["text/html", "text/plain"], ["text/plain", "text/html"]),
    ("*/json", ["text/html", "application/json"], ["application/json"]),
    ("TEXT/Html", ["text/HTML"], ["text/HTML"]),
    ("text/html;level=1", ["text/html"], []),
    ("text/html;level=1", ["text/html;level=1", "text/html;level=2"], ["text/html;level=1"]),
    ("text/html;LEVEL=*", ["text/html;level=3"], ["text/html;level=3"]),
    ("text/html;q=0.3, text/html;level=1", ["text/html", "text/html;level=1"],
     ["text/html;level=1", "text/html"]),
    ('text/html;title="a, b;c", text/plain;q=0.1', ["text/plain", 'text/html;title="A, B;c"'],
     ['text/html;title="A, B;c"', "text/plain"]),
    ("text/html;q=0.4;ext=1", ["text/html"], ["text/html"]),
    ("text/html;q=0.2, text/html;q=0.9, text/plain;q=0.5", ["text/plain", "text/html"],
     ["text/html", "text/plain"]),
    ("text/plain, text/html", ["text/html", "text/html", "text/plain"],
     ["text/plain", "text/html", "text/html"]),
    ("text/html", ["html", "text/html"], ["text/html"]),
    ("text/html;q=0.5, */*, text/plain;q=0.9", [], ["*/*", "text/plain", "text/html"]),
    ('text/html;a="x;q=0"', ['text/html;a="x;q=0"'], ['text/html;a="x;q=0"']),
    (None, [], ["*/*"]),
    ("", [], []),
]  # fmt: skip

ENCODINGS: list[tuple[str | None, list[str], list[str], list[str]]] = [
    (None, ["gzip", "identity"], [], ["identity"]),
    ("", ["gzip", "identity"], [], ["identity"]),
    ("*", ["gzip", "identity"], [], ["gzip", "identity"]),
    ("*;q=0", ["gzip", "identity"], [], []),
    ("*;q=0, gzip", ["gzip", "identity"], [], ["gzip"]),
    ("*, gzip;q=0", ["gzip", "br"], [], ["br"]),
    ("identity;q=0", ["gzip", "identity"], [], []),
    ("identity;q=0, gzip", ["identity", "gzip"], [], ["gzip"]),
    ("gzip", ["identity", "gzip"], [], ["gzip", "identity"]),
    ("gzip;q=0.5", ["identity", "gzip"], [], ["gzip", "identity"]),
    ("gzip;q=0.2, br;q=0.8", ["gzip", "br", "identity"], [], ["br", "gzip", "identity"]),
    ("gzip;q=0.5, identity", ["gzip", "identity"], [], ["identity", "gzip"]),
    ("gzip, br", ["br", "gzip"], [], ["gzip", "br"]),
    ("gzip, br", ["br", "gzip"], ["br", "gzip"], ["br", "gzip"]),
    ("gzip, br;q=0.9", ["br", "gzip"], ["br", "gzip"], ["gzip", "br"]),
    ("deflate, gzip", ["deflate", "gzip"], ["br", "gzip"], ["gzip", "deflate"]),
    ("gzip", ["gzip", "identity"], ["identity"], ["identity", "gzip"]),
    ("*", ["deflate", "identity", "gzip"], ["gzip"], ["gzip", "deflate", "identity"]),
    ("GZIP", ["gzip"], [], ["gzip"]),
    ("compress", ["gzip", "br"], [], []),
    ("gzip;q=0.8, br", [], [], ["br", "gzip", "identity"]),
    ("br;q=0, zstd;q=0.4, , x y", [], [], ["zstd", "identity"]),
    ("deflate, br", [], ["br"], ["br", "deflate", "identity"]),
]

LANGUAGES: list[Case] = [
    (None, ["en", "de"], ["en", "de"]),
    ("", ["en", "de"], []),
    ("*", ["en", "de"], ["en", "de"]),
    ("de, en;q=0.8", ["en", "de"], ["de", "en"]),
    ("en", ["en-GB", "en-US"], ["en-GB", "en-US"]),
    ("en-US", ["en"], ["en"]),
    ("en-US", ["en-GB"], []),
    ("en-US, en;q=0.8", ["en", "en-US", "en-GB"], ["en-US", "en", "en-GB"]),
    ("en-US, en", ["en-GB", "en", "en-US"], ["en-US", "en", "en-GB"]),
    ("en;q=0, *", ["en-GB", "de"], ["de"]),
    ("EN-us", ["en-US"], ["en-US"]),
    ("zh-Hant-TW", ["zh", "zh-Hant"], ["zh"]),
    ("fr-CH, fr;q=0.9, *;q=0.5", ["de", "fr", "fr-CH"], ["fr-CH", "fr", "de"]),
    ("en;q=0.8, es, -x, pt", [], ["es", "pt", "en"]),
]

CHARSETS: list[Case] = [
    (None, ["utf-8", "iso-8859-1"], ["utf-8", "iso-8859-1"]),
    ("", ["utf-8"], []),
    ("utf-8, iso-8859-1;q=0.2, utf-7;q=0.5", ["iso-8859-1", "utf-7", "utf-8"],
     ["utf-8", "utf-7", "iso-8859-1"]),
    ("*, utf-8;q=0", ["utf-8", "utf-7"], ["utf-7"]),
    ("UTF-8", ["utf-8"], ["utf-8"]),
    ("utf-8, iso-8859-1;q=0.2, utf-7;q=0.5", [], ["utf-8", "utf-7", "iso-8859-1"]),
]  # fmt: skip

# Longer than any header that the server lets in, twice over.
LONG = 32 * 1024


class NegotiationTests(SynchronousTestCase):
    """Headers and the answers to them."""

    def test_types(self) -> None:
        """Accept: numbers, exactness, order, wildcards and parameters."""
        for header, offered, expected in TYPES:
            self.assertEqual(preferredTypes(header, offered), expected, header)

    def test_typesWithoutHeader(self) -> None:
        """Without an Accept header, or with an empty one, everything is welcome in its order."""
        offered = ["text/plain", "application/json", "text/html"]
        self.assertEqual(preferredTypes(None, offered), offered)
        self.assertEqual(preferredTypes("", offered), offered)

    def test_encodings(self) -> None:
        """Accept-Encoding: identity is welcome unless it is refused, the preference decides."""
        for header, offered, preference, expected in ENCODINGS:
            self.assertEqual(preferredEncodings(header, offered, preference), expected, header)

    def test_languages(self) -> None:
        """Accept-Language: a language allows its regions, a region its language."""
        for header, offered, expected in LANGUAGES:
            self.assertEqual(preferredLanguages(header, offered), expected, header)

    def test_charsets(self) -> None:
        """Accept-Charset: numbers, order, wildcards."""
        for header, offered, expected in CHARSETS:
            self.assertEqual(preferredCharsets(header, offered), expected, header)

    def test_spaces(self) -> None:
        """White space and tabs may stand around every delimiter."""
        header = "\tgzip ;\tq = 0.5 , br\t;q= 0.9 "
        self.assertEqual(preferredEncodings(header, ["gzip", "br"]), ["br", "gzip"])
        self.assertEqual(preferredLanguages("en ; q=0.1,de", ["en", "de"]), ["de", "en"])

    def test_numbers(self) -> None:
        """A number may begin or end with its point; C{Q} is as good as C{q}."""
        self.assertEqual(preferredEncodings("gzip;q=.5, br;q=1.", ["gzip", "br"]), ["br", "gzip"])
        self.assertEqual(preferredEncodings("gzip;Q=0", ["gzip"]), [])

    def test_malformed(self) -> None:
        """A piece that cannot be read is left out, the others count."""
        numbers = ("x", "", "-1", "1e9", "inf", "nan", "0.\u0661", "1" * 400)
        named = [f"gzip;q={number}" for number in numbers]
        for piece in (*named, "g zip", ";q=1", "\x00 \x00"):
            self.assertEqual(preferredEncodings(f"{piece}, br", ["gzip", "br"]), ["br"], piece)
        for piece in ("html", "text/", "/html", "text html", "te xt/html", "text/html;q=x", "/"):
            header = f"{piece}, text/plain"
            self.assertEqual(preferredTypes(header, ["text/html", "text/plain"]), ["text/plain"])
        self.assertEqual(preferredTypes("*/*", ["nonsense", "text/plain"]), ["text/plain"])
        self.assertEqual(preferredLanguages("-x, e n, de", ["en", "de"]), ["de"])
        self.assertEqual(preferredLanguages("*", ["e n", "de"]), ["de"])

    def test_openQuote(self) -> None:
        """A quote that never closes takes the rest of the header, and no more."""
        header = 'text/plain, text/html;a="b, application/json\\'
        offered = ["application/json", "text/plain"]
        self.assertEqual(preferredTypes(header, offered), ["text/plain"])

    def test_remembered(self) -> None:
        """What is remembered of a header is not mixed up with another kind of header."""
        for _ in range(2):
            self.assertEqual(preferredCharsets("-a, a"), ["-a", "a"])
            self.assertEqual(preferredTypes("-a, a"), [])
            self.assertEqual(preferredLanguages("-a, a"), ["a"])
            self.assertEqual(preferredEncodings("-a, a"), ["-a", "a", "identity"])

    def test_longHeaders(self) -> None:
        """A long header is read whole: its last piece counts as well as its first."""
        header = "x/y;a=b;q=0.1," * (LONG // 14) + "text/html"
        self.assertEqual(preferredTypes(header, ["x/y", "text/html"]), ["text/html"])
        header = "aa;q=0.1," * (LONG // 9) + "gzip"
        self.assertEqual(preferredEncodings(header, ["aa", "gzip"]), ["gzip", "aa"])

    @given(
        st.sampled_from(
            ['"', '\\"', '"\\', ',"', ';"', "a;", ";q=", "=", "a/b,", ",", " ", "*/*;"]
        ),
        st.sampled_from(["", '"', "\\", ",", ";", "a"]),
    )
    @long("takes seconds")
    def test_repetitions(self, piece: str, end: str) -> None:
        """No header takes more than linear time: the test ends."""
        header = piece * (LONG // len(piece)) + end
        preferredTypes(header, ["text/html", "a/b"])
        preferredEncodings(header, ["gzip", "br"], ["br"])
        preferredLanguages(header, ["en"])
        preferredCharsets(header, ["utf-8"])

    @given(
        st.text(st.sampled_from('ab*/-;,q=01. "\\\t\u0661\x00\u2028'), max_size=60)
        | st.text(max_size=60),
        st.lists(st.sampled_from(["a", "a/b", "a-b", "*", "*/*", "b", "identity", ";", ""])),
    )
    def test_anyHeader(self, header: str, offered: list[str]) -> None:
        """Whatever the header: the answer is made of what is offered, each at most once."""
        for prefer in (preferredTypes, preferredEncodings, preferredLanguages, preferredCharsets):
            answer = prefer(header, offered)
            if offered:
                remaining = list(offered)
                for one in answer:
                    remaining.remove(one)

    @given(st.permutations(["gzip;q=0.1", "br;q=0.2", "zstd;q=0.3", "deflate;q=0.4"]))
    def test_order(self, pieces: list[str]) -> None:
        """Different numbers decide, whatever the order of header, offer and preference."""
        offered = [piece.partition(";")[0] for piece in pieces]
        answer = preferredEncodings(",".join(pieces), offered, ["gzip", "br", "zstd"])
        self.assertEqual(answer, ["deflate", "zstd", "br", "gzip"])
