"""Bodies of forms."""

import gzip
from typing import Any

from storagegate.http.middleware.bodyparser import INLINE_SIZE, urlencoded
from tests.http.middleware.parsing import Exchange, ParserCase

TYPE = b"Content-Type: application/x-www-form-urlencoded"


class FormTests(ParserCase):
    """What a form becomes."""

    def test_flat(self) -> None:
        """Names are flat unless nesting is wanted."""
        body = b"a=1&a=2&b[c]=x+y&d=%zz"
        self.assertEqual(
            self.parsed(urlencoded(), body, TYPE), {"a": ["1", "2"], "b[c]": "x y", "d": "%zz"}
        )

    def test_extended(self) -> None:
        """Where it is wanted, names nest."""
        body = b"a[b][c]=1&d[]=2&e[0]=3&f[101]=4&__proto__[x]=5"
        self.assertEqual(
            self.parsed(urlencoded(extended=True), body, TYPE),
            {
                "a": {"b": {"c": "1"}},
                "d": ["2"],
                "e": ["3"],
                "f": {"101": "4"},
                "__proto__": {"x": "5"},
            },
        )

    def test_empty(self) -> None:
        """An empty form is an empty dictionary."""
        for extended in (True, False):
            self.assertEqual(self.parsed(urlencoded(extended=extended), b"", TYPE), {})

    def test_type(self) -> None:
        """Only forms are parsed, or what else is wanted."""
        self.assertIsNone(self.parsed(urlencoded(), b"a=1", b"Content-Type: text/plain"))
        self.assertIsNone(self.parsed(urlencoded(), b"a=1"))
        parser = urlencoded(type="text/*")
        self.assertEqual(self.parsed(parser, b"a=1", b"Content-Type: text/x-form"), {"a": "1"})

    def test_charsets(self) -> None:
        """UTF-8 and ISO-8859-1 are read, others are 415."""
        for charset, body in (
            (b"utf-8", b"%C3%A9=\xe2\x82\xac"),
            (b'"UTF-8"', b"\xef\xbb\xbf%C3%A9=%e2%82%ac"),
        ):
            value = self.parsed(urlencoded(), body, TYPE + b"; charset=" + charset)
            self.assertEqual(value, {"é": "€"})
        field = TYPE + b";charset=ISO-8859-1"
        for extended in (True, False):
            self.assertEqual(
                self.parsed(urlencoded(extended=extended), b"%E9=\xbd", field), {"é": "½"}
            )
        for charset in (b"utf-16", b"latin1", b"utf-7", b"koi8-r"):
            field = TYPE + b"; charset=" + charset
            self.refused(urlencoded(), 415, "charset.unsupported", b"a=1", field)

    def test_tooMany(self) -> None:
        """A thousand parameters are taken, one more is 413."""
        for extended in (True, False):
            parser = urlencoded(extended=extended)
            body = b"&".join(b"k%d=1" % number for number in range(1000))
            self.assertEqual(len(self.parsed(parser, body, TYPE)), 1000)
            error = self.refused(parser, 413, "parameters.too.many", body + b"&a=1", TYPE)
            self.assertEqual(error.limit, 1000)
        self.refused(urlencoded(parameterLimit=1), 413, "parameters.too.many", b"a=1&b=2", TYPE)
        body = b"&".join(b"k%d=1" % number for number in range(10_000))
        self.assertEqual(Exchange(urlencoded(limit="1mb")).send(body, TYPE), 413)
        parser = urlencoded(limit="1mb", parameterLimit=10_000)
        self.assertEqual(len(self.parsed(parser, body, TYPE)), 10_000)

    def test_depth(self) -> None:
        """32 brackets nest, one more is 400; without nesting brackets are just text."""
        body = b"a" + b"[b]" * 32 + b"=1"
        deeper = b"a" + b"[b]" * 33 + b"=1"
        parser = urlencoded(extended=True)
        self.assertEqual(list(self.parsed(parser, body, TYPE)), ["a"])
        self.refused(parser, 400, "querystring.parse.rangeError", deeper, TYPE)
        parser = urlencoded(extended=True, depth=33)
        self.assertEqual(list(self.parsed(parser, deeper, TYPE)), ["a"])
        self.assertEqual(self.parsed(urlencoded(), deeper, TYPE), {"a" + "[b]" * 33: "1"})

    def test_shared(self) -> None:
        """Limit, coding and the hook are as with JSON."""

        def verify(req: Any, res: Any, body: bytes, charset: str | None) -> None:
            if (body, charset) != (b"a=1", "utf-8"):
                raise ValueError("refused")

        parser = urlencoded(verify=verify, limit=10)
        wire = gzip.compress(b"a=1")
        self.assertEqual(self.parsed(parser, wire, TYPE, b"Content-Encoding: gzip"), {"a": "1"})
        self.refused(parser, 403, "entity.verify.failed", b"a=2", TYPE)
        self.refused(parser, 413, "entity.too.large", b"a=123456789", TYPE)
        field = b"Content-Encoding: gzip"
        self.refused(urlencoded(inflate=False), 415, "encoding.unsupported", wire, TYPE, field)

    def test_large(self) -> None:
        """A large form is parsed in a thread."""
        exchange = Exchange(urlencoded())
        self.assertEqual(exchange.send(b"a=" + b"x" * INLINE_SIZE, TYPE), 200)
        self.assertEqual((len(exchange.jobs), len(exchange.bodies[0]["a"])), (1, INLINE_SIZE))

    def test_setUp(self) -> None:
        """Options that cannot be are refused at set-up."""
        for options in (
            {"parameterLimit": 0},
            {"parameterLimit": "10"},
            {"parameterLimit": True},
            {"depth": -1},
            {"depth": 101},
            {"depth": 1.5},
            {"limit": "much"},
        ):
            self.assertRaises(ValueError, urlencoded, **options)
