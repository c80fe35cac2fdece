"""Bodies as they are."""

import gzip
from typing import Any

from storagegate.http.middleware.bodyparser import INLINE_SIZE, raw
from tests.http.middleware.parsing import Exchange, ParserCase

TYPE = b"Content-Type: application/octet-stream"


class RawTests(ParserCase):
    """What the parser leaves as it is."""

    def test_bytes(self) -> None:
        """A body of octets is given as bytes, an empty one as none."""
        self.assertEqual(self.parsed(raw(), b"\x00\xff", TYPE), b"\x00\xff")
        self.assertEqual(self.parsed(raw(), b"", TYPE), b"")
        self.assertIsInstance(self.parsed(raw(), b"", TYPE), bytes)

    def test_type(self) -> None:
        """Another type is left alone, unless it is the one that is wanted."""
        field = b"Content-Type: image/png"
        self.assertIsNone(self.parsed(raw(), b"x", field))
        self.assertIsNone(self.parsed(raw(), b"x"))
        self.assertEqual(self.parsed(raw(type="image/*"), b"x", field), b"x")
        self.assertEqual(self.parsed(raw(type=lambda req: True), b"x"), b"x")

    def test_charset(self) -> None:
        """The charset does not matter, known or not."""
        for charset in (b"utf-16", b"utf-7", b"nonsense"):
            body = self.parsed(raw(), b"\xff\xfe", TYPE + b"; charset=" + charset)
            self.assertEqual(body, b"\xff\xfe")

    def test_shared(self) -> None:
        """Limit, coding and the hook are as with JSON; the hook is told no charset."""
        calls: list[Any] = []

        def verify(req: Any, res: Any, body: bytes, charset: str | None) -> None:
            calls.append((body, charset))
            if body == b"wrong":
                raise ValueError("refused")

        parser = raw(verify=verify, limit=10)
        wire, field = gzip.compress(b"right"), b"Content-Encoding: gzip"
        self.assertEqual(self.parsed(parser, wire, TYPE, field), b"right")
        self.refused(parser, 403, "entity.verify.failed", b"wrong", TYPE)
        self.assertEqual(calls, [(b"right", None), (b"wrong", None)])
        self.refused(parser, 413, "entity.too.large", b"12345678901", TYPE)
        self.refused(parser, 413, "entity.too.large", gzip.compress(bytes(11)), TYPE, field)
        self.refused(raw(inflate=False), 415, "encoding.unsupported", wire, TYPE, field)

    def test_large(self) -> None:
        """A large body that needs no inflating needs no thread."""
        exchange = Exchange(raw())
        body = bytes(INLINE_SIZE + 1)
        self.assertEqual(exchange.send(body, TYPE), 200)
        self.assertEqual((exchange.jobs, exchange.bodies), ([], [body]))
