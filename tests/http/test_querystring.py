"""Query strings and forms."""

from time import process_time
from typing import Any
from urllib.parse import urlencode

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from storagegate.http.querystring import (
    DEPTH_LIMIT,
    QUERY_PARAMETERS,
    TooDeep,
    TooManyParameters,
    parseForm,
    parseQuery,
)

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
PIECES = st.lists(
    st.sampled_from(
        [b"a", b"b", b"[", b"]", b"[]", b"[0]", b"[7]", b"[101]", b"=", b"&", b"%5B", b"%", b"+"]
    ),
    max_size=30,
).map(b"".join)

# What is read at worst in some 20 ms; a reading in quadratic time takes a minute and more.
LONG_SECONDS = 5.0


def flat(body: bytes, charset: str = "utf-8", limit: int = 1000) -> dict[str, Any]:
    """Read a flat form."""
    return parseForm(body, charset, False, limit, 32)


def nested(body: bytes, depth: int = 32, limit: int = 1000) -> dict[str, Any]:
    """Read a nested form."""
    return parseForm(body, "utf-8", True, limit, depth)


class QueryTests(SynchronousTestCase):
    """The query of a URL."""

    def test_pairs(self) -> None:
        """Values are decoded, names without one have an empty one, empty pairs are nothing."""
        for raw, expected in [
            ("", {}),
            ("a=1&b=2", {"a": "1", "b": "2"}),
            ("a", {"a": ""}),
            ("a=&b", {"a": "", "b": ""}),
            ("&&a=1&&", {"a": "1"}),
            ("a=b=c", {"a": "b=c"}),
            ("=x", {"": "x"}),
            ("a+b=c+d%2B", {"a b": "c d+"}),
            ("%61=%C3%A9", {"a": "é"}),
            ("a=é", {"a": "é"}),
            ("a;b=1", {"a;b": "1"}),
        ]:
            self.assertEqual(parseQuery(raw), expected, raw)
            self.assertEqual(parseQuery(raw.encode()), expected, raw)

    def test_repeated(self) -> None:
        """A name that comes again makes a list, also where the values are the same."""
        self.assertEqual(parseQuery("a=1&b=2&a=1&a=3"), {"a": ["1", "1", "3"], "b": "2"})
        self.assertEqual(parseQuery("a&a"), {"a": ["", ""]})
        self.assertEqual(parseQuery("a=1&%61=2"), {"a": ["1", "2"]})

    def test_flat(self) -> None:
        """Brackets are part of the name."""
        self.assertEqual(parseQuery("a[b]=1&a[]=2"), {"a[b]": "1", "a[]": "2"})

    def test_malformed(self) -> None:
        """A bad escape stays as it is, bytes that are not UTF-8 become U+FFFD."""
        self.assertEqual(
            parseQuery("a=%&b=%4&c=%zz%41&%=1"), {"a": "%", "b": "%4", "c": "%zzA", "%": "1"}
        )
        self.assertEqual(parseQuery("a=%ff%e9b"), {"a": "\ufffd\ufffdb"})
        self.assertEqual(parseQuery(b"a=\xff"), {"a": "\ufffd"})
        self.assertEqual(parseQuery("a=\ud800"), {"a": "\ufffd" * 3})

    def test_tooMany(self) -> None:
        """After a thousand parameters the rest is ignored; empty ones count."""
        raw = "&".join(f"p{number}=1" for number in range(QUERY_PARAMETERS + 5))
        query = parseQuery(raw)
        self.assertEqual((len(query), list(query)[-1]), (QUERY_PARAMETERS, "p999"))
        self.assertEqual(parseQuery("&" * QUERY_PARAMETERS + "a=1"), {})
        self.assertEqual(parseQuery("&" * (QUERY_PARAMETERS - 1) + "a=1"), {"a": "1"})

    def test_plainData(self) -> None:
        """Names that mean something elsewhere are keys like others."""
        self.assertEqual(
            parseQuery("__proto__=1&constructor=2&__class__=3"),
            {"__proto__": "1", "constructor": "2", "__class__": "3"},
        )

    @given(st.dictionaries(TEXT, TEXT | st.lists(TEXT, min_size=2, max_size=4), max_size=8))
    def test_roundTrip(self, values: dict[str, str | list[str]]) -> None:
        """What the standard library writes is read back."""
        self.assertEqual(parseQuery(urlencode(values, doseq=True)), values)

    @given(st.binary(max_size=60))
    def test_anything(self, raw: bytes) -> None:
        """Whatever comes can be read."""
        for name, value in parseQuery(raw).items():
            self.assertIsInstance(name, str)
            self.assertIsInstance(value, str | list)


class FlatFormTests(SynchronousTestCase):
    """Forms whose names are names."""

    def test_pairs(self) -> None:
        """Repeated names make a list, brackets are literal."""
        for body, expected in [
            (b"", {}),
            (b"&&", {}),
            (b"a=1&b=x+y", {"a": "1", "b": "x y"}),
            (b"a=1&a=2", {"a": ["1", "2"]}),
            (b"a[b]=1&a[]=2&a%5B%5D=3", {"a[b]": "1", "a[]": ["2", "3"]}),
            (b"a=%zz", {"a": "%zz"}),
            (b"__proto__=1", {"__proto__": "1"}),
        ]:
            self.assertEqual(flat(body), expected, body)

    def test_charset(self) -> None:
        """The charset holds for escapes and for what is sent bare."""
        self.assertEqual(flat(b"%a2=%BD&\xe9=1", "latin-1"), {"¢": "½", "é": "1"})
        self.assertEqual(flat(b"a=%E2%82%AC\xc3\xa9"), {"a": "€é"})

    def test_tooMany(self) -> None:
        """As many parameters as are allowed are read, one more is refused; empty ones count."""
        self.assertEqual(flat(b"a&b&c", limit=3), {"a": "", "b": "", "c": ""})
        self.assertRaises(TooManyParameters, flat, b"a&b&c&d", limit=3)
        self.assertRaises(TooManyParameters, flat, b"&&&", limit=3)
        self.assertRaises(TooManyParameters, nested, b"&&&", limit=3)


class NestedFormTests(SynchronousTestCase):
    """Forms whose names nest, as C{qs} reads them."""

    def test_dictionaries(self) -> None:
        """Brackets with names make dictionaries in dictionaries."""
        for body, expected in [
            (b"", {}),
            (b"a=1", {"a": "1"}),
            (b"a[b]=1", {"a": {"b": "1"}}),
            (b"a%5Bb%5d=1", {"a": {"b": "1"}}),
            (b"a[b][c]=1&a[b][d]=2&a[e]=3", {"a": {"b": {"c": "1", "d": "2"}, "e": "3"}}),
            (b"a[b]=1&a[b]=2", {"a": {"b": ["1", "2"]}}),
            (b"a[b]", {"a": {"b": ""}}),
            (b"a[b=c]=d", {"a": {"b=c": "d"}}),
            (b"[a]=1", {"a": "1"}),
            (b"a[ ]=1", {"a": {" ": "1"}}),
            (b"a.b=1", {"a.b": "1"}),
            (b"=x", {}),
            (b"a=b]=c", {"a": "b]=c"}),
        ]:
            self.assertEqual(nested(body), expected, body)

    def test_lists(self) -> None:
        """Empty brackets and indexes make lists; gaps close, in the order of the indexes."""
        for body, expected in [
            (b"a[]=1", {"a": ["1"]}),
            (b"a[]=1&a[]=2", {"a": ["1", "2"]}),
            (b"a[0]=1&a[1]=2", {"a": ["1", "2"]}),
            (b"a[5]=x&a[2]=y", {"a": ["y", "x"]}),
            (b"a[]=1&a[0]=2", {"a": ["1", "2"]}),
            (b"a=1&a[]=2", {"a": ["1", "2"]}),
            (b"a[]=1&a=2", {"a": ["1", "2"]}),
            (b"a[0][x]=1&a[0][y]=2&a[1][x]=3", {"a": [{"x": "1", "y": "2"}, {"x": "3"}]}),
            (b"a[][x]=1&a[][y]=2", {"a": [{"x": "1", "y": "2"}]}),
            (b"a[0][0]=1&a[0][1]=2", {"a": [["1", "2"]]}),
            (b"a[b][]=1&a[b][]=2", {"a": {"b": ["1", "2"]}}),
            (b"a[0]=1&a[0]=2", {"a": [["1", "2"]]}),
            (b"[]=1&[]=2", {"0": "1", "1": "2"}),
        ]:
            self.assertEqual(nested(body), expected, body)

    def test_indexes(self) -> None:
        """An index over 100 is a key, as is one that is not written as numbers are."""
        self.assertEqual(nested(b"a[100]=1"), {"a": ["1"]})
        self.assertEqual(nested(b"a[101]=1"), {"a": {"101": "1"}})
        self.assertEqual(nested(b"a[0]=1&a[101]=2"), {"a": {"0": "1", "101": "2"}})
        self.assertEqual(nested(b"a[" + b"9" * 5000 + b"]=1"), {"a": {"9" * 5000: "1"}})
        for key in ("01", "-1", "+1", "1.0", "1 ", "\uff11"):
            self.assertEqual(nested(f"a[{key}]=1".replace("+", "%2B").encode()), {"a": {key: "1"}})

    def test_longList(self) -> None:
        """A list that is all there may be longer."""
        body = b"&".join(b"a[%d]=%d" % (index, index) for index in range(300))
        self.assertEqual(nested(body), {"a": [str(index) for index in range(300)]})

    def test_mixed(self) -> None:
        """Where one name means two things, no value is lost."""
        for body, expected in [
            (b"a[0]=1&a[b]=2", {"a": {"0": "1", "b": "2"}}),
            (b"a[b]=1&a[]=2", {"a": {"b": "1", "0": "2"}}),
            (b"a=1&a[b]=2", {"a": ["1", {"b": "2"}]}),
            (b"a[b]=1&a=2", {"a": [{"b": "1"}, "2"]}),
            (b"a[b]=1&a[b][c]=2", {"a": {"b": ["1", {"c": "2"}]}}),
            (b"a[1]=1&a[1][x]=2", {"a": ["1", {"x": "2"}]}),
            (b"a[1][x]=2&a[1]=1", {"a": [{"x": "2"}, "1"]}),
            (b"a[b]=1&a=2&a=3", {"a": {"b": "1", "0": "2", "1": "3"}}),
        ]:
            self.assertEqual(nested(body), expected, body)

    def test_brackets(self) -> None:
        """Brackets that do not pair are text; those within others belong to the name."""
        for body, expected in [
            (b"a]=1", {"a]": "1"}),
            (b"a[b=1", {"a": {"[b": "1"}}),
            (b"a[[]=1", {"a": {"[[]": "1"}}),
            (b"a[b[c]]=1", {"a": {"b[c]": "1"}}),
            (b"a[b]c=1", {"a": {"b": "1"}}),
            (b"a[b]c[d]=1", {"a": {"b": {"d": "1"}}}),
            (b"a%255Bb=1", {"a%5Bb": "1"}),
        ]:
            self.assertEqual(nested(body), expected, body)

    def test_depth(self) -> None:
        """As many brackets as are allowed nest, one more is refused; without any names are flat."""
        value: Any = nested(b"a" + b"[b]" * 32 + b"=1")
        for key in ("a", *"b" * 32):
            value = value[key]
        self.assertEqual(value, "1")
        self.assertRaises(TooDeep, nested, b"a" + b"[b]" * 33 + b"=1")
        self.assertRaises(TooDeep, nested, b"a[b][", depth=1)
        self.assertEqual(nested(b"a[b]=1", depth=0), {"a[b]": "1"})

    def test_deepest(self) -> None:
        """The deepest nesting that may be allowed can be read, list or not."""
        for bracket in (b"[b]", b"[0]", b"[1]"):
            name = b"a" + bracket * DEPTH_LIMIT
            body = name + b"=1&" + name + b"=2&" + name[:-3] + b"=3"
            self.assertEqual(list(nested(body, depth=DEPTH_LIMIT)), ["a"])

    def test_plainData(self) -> None:
        """Names that mean something elsewhere are keys like others."""
        self.assertEqual(
            nested(b"a[__proto__][x]=1&constructor[prototype]=2&__class__=3&a[__class__]=4"),
            {
                "a": {"__proto__": {"x": "1"}, "__class__": "4"},
                "constructor": {"prototype": "2"},
                "__class__": "3",
            },
        )

    @given(PIECES)
    def test_anything(self, body: bytes) -> None:
        """Whatever comes is read or nested too deeply."""
        try:
            value = nested(body, depth=4)
        except TooDeep:
            return
        self.assertIsInstance(value, dict)

    @given(
        st.recursive(
            TEXT,
            lambda inner: st.dictionaries(TEXT.filter(str.isalpha), inner, min_size=1, max_size=3),
            max_leaves=10,
        )
    )
    def test_roundTrip(self, value: object) -> None:
        """Dictionaries that are written out in brackets are read back."""
        pairs: list[tuple[str, str]] = []

        def write(name: str, value: object) -> None:
            if isinstance(value, dict):
                for key, inner in value.items():
                    write(f"{name}[{key}]", inner)
            else:
                pairs.append((name, str(value)))

        write("root", value)
        self.assertEqual(nested(urlencode(pairs).encode()), {"root": value})


class HostileTests(SynchronousTestCase):
    """What is sent to make a reader slow."""

    def test_long(self) -> None:
        """A hundred kilobytes of anything take time in proportion."""
        before = process_time()
        for piece in (b"a[b]", b"&", b"[", b"]", b"a[b=]=", b"%", b"+", b"[]", b"=", b"%5B"):
            body = piece * (100_000 // len(piece))
            parseQuery(body)
            for extended in (False, True):
                try:
                    parseForm(body, "utf-8", extended, 1000, 32)
                except (TooDeep, TooManyParameters):
                    pass
        for name in (b"a", b"a[]", b"a[b]", b"a[0]", b"a[999]", b"a[b][]"):
            nested(b"&".join([name + b"=" + b"x" * 90] * 1000))
        self.assertLess(process_time() - before, LONG_SECONDS)
