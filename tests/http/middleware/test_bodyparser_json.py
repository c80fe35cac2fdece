"""Bodies in JSON."""

import json as standardJSON
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from storagegate.http.errors import HTTPError
from storagegate.http.middleware.bodyparser import json, parseJSON
from tests.http.middleware.parsing import Exchange, ParserCase

TYPE = b"Content-Type: application/json"

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=10,
)


class ValueTests(ParserCase):
    """What a body in JSON becomes."""

    @given(VALUES.map(lambda value: [value]))
    def test_roundTrip(self, value: Any) -> None:
        """What the standard library writes is read back."""
        body = standardJSON.dumps(value).encode()
        self.assertEqual(parseJSON(body, "utf-8", strict=True), value)

    @given(st.binary(max_size=30), st.sampled_from(["utf-8", "utf-16", "utf-32"]))
    def test_anything(self, body: bytes, codec: str) -> None:
        """Whatever comes is a value or malformed."""
        try:
            parseJSON(body, codec, strict=False)
        except HTTPError as error:
            self.assertEqual((error.statusCode, error.code), (400, "entity.parse.failed"))

    def test_numbers(self) -> None:
        """Integers keep all their digits; what is no number is malformed."""
        big = 2**200
        self.assertEqual(self.parsed(json(), b"[%d]" % big, TYPE), [big])
        for number in (
            b"NaN",
            b"Infinity",
            b"-Infinity",
            b"1e999",
            b"01",
            b"+1",
            b"1_0",
            b"9" * 5000,
        ):
            self.refused(json(), 400, "entity.parse.failed", b"[" + number + b"]", TYPE)

    def test_keys(self) -> None:
        """Of keys that come twice the last one counts; none of them becomes an attribute."""
        body = b'{"a":1,"__proto__":{"x":1},"constructor":2,"__class__":3,"a":4}'
        self.assertEqual(
            self.parsed(json(), body, TYPE),
            {"a": 4, "__proto__": {"x": 1}, "constructor": 2, "__class__": 3},
        )

    def test_surrogates(self) -> None:
        """A pair of surrogates is one character, half a pair is malformed."""
        self.assertEqual(self.parsed(json(), rb'["\ud83d\ude00"]', TYPE), ["😀"])
        for half in (rb'"\ud83d"', rb'"\ude00"', rb'"\ud83dx"', b'"\xed\xa0\xbd"'):
            self.refused(json(), 400, "entity.parse.failed", b"[" + half + b"]", TYPE)

    def test_deep(self) -> None:
        """A hundred thousand brackets are malformed, not the end of the server."""
        exchange = Exchange(json(limit="1mb"))
        for body in (
            b"[" * 30_000,
            b"[" * 100_000,
            b'{"a":' * 100_000,
            b"[" * 10**5 + b"]" * 10**5,
        ):
            self.assertEqual(exchange.send(body, TYPE), 400)
        self.assertEqual({error.code for error in exchange.errors}, {"entity.parse.failed"})
        self.assertEqual(exchange.send(b"[1]", TYPE), 200)

    def test_strict(self) -> None:
        """Only objects and arrays are taken, unless others are wanted, too."""
        for body in (b"1", b'"a"', b"null", b"true", b"  1", b" ", b"\r\n\t "):
            self.refused(json(), 400, "entity.parse.failed", body, TYPE)
        for body, value in ((b"1", 1), (b' "a"', "a"), (b"null", None), (b" true ", True)):
            self.assertEqual(self.parsed(json(strict=False), body, TYPE), value)
        self.refused(json(strict=False), 400, "entity.parse.failed", b"  ", TYPE)
        self.assertEqual(self.parsed(json(), b" \t\r\n[1] \n", TYPE), [1])

    def test_malformed(self) -> None:
        """The error has the text of the body, and a message that does not repeat it."""
        for body in (
            b'{"secret":',
            b"{'secret':1}",
            b"[1,]",
            b"[] secret",
            b'["\x01"]',
            b'{"\xff":1}',
        ):
            error = self.refused(json(), 400, "entity.parse.failed", body, TYPE)
            self.assertEqual(error.body, body.decode("utf-8", "replace"))
            self.assertNotIn("secret", error.message)


class CharsetTests(ParserCase):
    """The charsets of JSON."""

    def test_charsets(self) -> None:
        """UTF-8, UTF-16 and UTF-32 are read, with a byte order mark or without."""
        value = {"ü": "€😀"}
        content = standardJSON.dumps(value, ensure_ascii=False)
        for charset, wire in [
            ("utf-8", content.encode()),
            ("UTF-8", content.encode("utf-8-sig")),
            ("utf-16", content.encode("utf-16")),
            ("utf-16", b"\xfe\xff" + content.encode("utf-16-be")),
            ("utf-16", content.encode("utf-16-le")),
            ("utf-16", content.encode("utf-16-be")),
            ("utf-16le", content.encode("utf-16-le")),
            ("utf-16be", "\ufeff".encode("utf-16-be") + content.encode("utf-16-be")),
            ("utf-32", content.encode("utf-32")),
            ("utf-32", content.encode("utf-32-be")),
            ("utf-32", content.encode("utf-32-le")),
            ("utf-32", b"\0\0\xfe\xff" + content.encode("utf-32-be")),
            ("utf-32LE", content.encode("utf-32-le")),
        ]:
            field = f"Content-Type: application/json; charset={charset}".encode()
            self.assertEqual(self.parsed(json(), wire, field), value, (charset, wire))

    def test_unsupported(self) -> None:
        """Other charsets are 415, also for an empty body."""
        for charset in (b"utf-7", b"iso-8859-1", b"us-ascii", b"nonsense", b'"utf-8;"', b"rot13"):
            field = b"Content-Type: application/json; charset=" + charset
            for body in (b"{}", b""):
                error = self.refused(json(), 415, "charset.unsupported", body, field)
            self.assertEqual(error.charset, charset.strip(b'"').decode())

    def test_lies(self) -> None:
        """A body that is not in its charset is malformed."""
        for charset, body in (
            (b"utf-8", '{"a":1}'.encode("utf-16")),
            (b"utf-16", b'{"a":1}'),
            (b"utf-16le", "[1]".encode("utf-16-be")),
            (b"utf-32", b"[1]"),
            (b"utf-16", '["'.encode("utf-16") + b"\x00\xd8" + '"]'.encode("utf-16-le")),
        ):
            field = b"Content-Type: application/json; charset=" + charset
            self.refused(json(), 400, "entity.parse.failed", body, field)
