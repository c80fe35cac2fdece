"""Bodies of text."""

import gzip
from typing import Any

from storagegate.http.middleware.bodyparser import charsets, text
from tests.http.middleware.parsing import ParserCase

TYPE = b"Content-Type: text/plain"


class TextTests(ParserCase):
    """What text becomes."""

    def test_string(self) -> None:
        """Text is decoded; an empty body is an empty string."""
        self.assertEqual(self.parsed(text(), "é€".encode(), TYPE), "é€")
        self.assertEqual(self.parsed(text(), b"", TYPE), "")

    def test_type(self) -> None:
        """Another type is left alone, unless it is the one that is wanted."""
        field = b"Content-Type: text/html"
        self.assertIsNone(self.parsed(text(), b"x", field))
        self.assertEqual(self.parsed(text(type="text/*"), b"x", field), "x")
        self.assertEqual(self.parsed(text(type=["json", "html"]), b"x", field), "x")

    def test_charsets(self) -> None:
        """The charset that the body names holds, in any case, with its usual names."""
        for charset, codec, value in [
            ("utf-8", "utf-8", "é€"),
            ("UTF8", "utf-8-sig", "é€"),
            ("iso-8859-1", "latin-1", "é"),
            ("latin1", "latin-1", "é"),
            ("ISO-8859-15", "iso8859-15", "€"),
            ("windows-1252", "cp1252", "€"),
            ("windows-1251", "cp1251", "Ж"),
            ("koi8-r", "koi8-r", "Ж"),
            ("shift_jis", "shift_jis", "日本"),
            ("euc-jp", "euc-jp", "日本"),
            ("iso-2022-jp", "iso2022_jp", "日本"),
            ("gbk", "gbk", "中文"),
            ("big5", "big5", "中文"),
            ("utf-16", "utf-16", "é€😀"),
            ("utf-16le", "utf-16-le", "é€"),
            ("us-ascii", "ascii", "abc"),
        ]:
            field = TYPE + f'; charset="{charset}"'.encode()
            self.assertEqual(self.parsed(text(), value.encode(codec), field), value, charset)

    def test_unsupported(self) -> None:
        """What is no charset of text, or a dangerous one, is 415."""
        for charset in ("utf-7", "nonsense", "rot13", "hex", "idna", "punycode", "unicode_escape"):
            field = TYPE + b"; charset=" + charset.encode()
            self.refused(text(), 415, "charset.unsupported", b"x", field)
            self.assertNotIn(charset, charsets())

    def test_default(self) -> None:
        """The default charset may be another; one that does not exist is refused at set-up."""
        parser = text(defaultCharset="ISO-8859-1")
        self.assertEqual(self.parsed(parser, b"\xe9", TYPE), "é")
        self.assertEqual(self.parsed(parser, "é".encode(), TYPE + b"; charset=utf-8"), "é")
        self.assertRaises(ValueError, text, defaultCharset="utf-7")

    def test_malformed(self) -> None:
        """What is malformed in its charset becomes U+FFFD."""
        self.assertEqual(self.parsed(text(), b"a\xffb", TYPE), "a\ufffdb")
        field = TYPE + b"; charset=us-ascii"
        self.assertEqual(self.parsed(text(), b"a\xe9", field), "a\ufffd")

    def test_shared(self) -> None:
        """Limit, coding and the hook are as with JSON; the limit counts bytes."""
        calls: list[Any] = []

        def verify(req: Any, res: Any, body: bytes, charset: str | None) -> None:
            calls.append((body, charset))
            if body == b"wrong":
                raise ValueError("refused")

        parser = text(verify=verify, limit=5)
        wire, field = gzip.compress(b"right"), b"Content-Encoding: gzip"
        self.assertEqual(self.parsed(parser, wire, TYPE, field), "right")
        self.refused(parser, 403, "entity.verify.failed", b"wrong", TYPE)
        self.assertEqual(calls, [(b"right", "utf-8"), (b"wrong", "utf-8")])
        self.refused(parser, 413, "entity.too.large", "ééé".encode(), TYPE)
        self.refused(text(inflate=False), 415, "encoding.unsupported", wire, TYPE, field)
