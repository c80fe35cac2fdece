"""JSON that is decoded in pieces."""

import json
import threading
from typing import Any

import msgspec
from hypothesis import example, given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from storagegate.core.codecs import JSON, MAX_CONTAINERS, MAX_DEPTH
from storagegate.core.jsonpieces import JSONReader
from tests.support.selection import long

decode = msgspec.json.Decoder().decode

TEXT = st.text(alphabet='a"\\,[]{}:\n\u00e9', max_size=8)
SCALARS = st.none() | st.booleans() | st.integers() | TEXT
VALUES = st.recursive(
    SCALARS, lambda parts: st.lists(parts) | st.dictionaries(TEXT, parts), max_leaves=40
)


def read(data: bytes, size: int = 16) -> Any:
    """Decode in pieces."""
    return JSONReader(data, decode, size=size).readAll()


class ReaderTests(SynchronousTestCase):
    """The reader gives what the whole text gives."""

    @given(VALUES, st.integers(1, 60) | st.just(300), st.sampled_from([None, 0, 1]))
    def test_values(self, value: Any, size: int, indent: int | None) -> None:
        """Each value."""
        for isASCII in (True, False):
            data = json.dumps(value, indent=indent, ensure_ascii=isASCII).encode()
            self.assertEqual(read(data, size), value)

    @given(VALUES, st.integers(1, 60) | st.just(300), st.data())
    @example([[], {}], 3, None)
    def test_malformed(self, value: Any, size: int, more: Any) -> None:
        """No other text is taken, and none is refused that is JSON."""
        data = json.dumps(value).encode()
        if more is not None:
            at = more.draw(st.integers(0, len(data)))
            cut = more.draw(st.integers(0, 3))
            data = data[:at] + more.draw(st.sampled_from(_INSERTED)) + data[at + cut :]
        try:
            expected: Any = decode(data)
        except ValueError:
            self.assertRaises(ValueError, read, data, size)
        else:
            self.assertEqual(read(data, size), expected)

    def test_plain(self) -> None:
        """Some texts that are none, each at the place of a cut."""
        for data in (
            b"",
            b"[",
            b"[1",
            b"[1,",
            b"[1,]",
            b"[,1]",
            b"[1,,2]",
            b"[1 2]",
            b"[1}",
            b'{"a":1]',
            b'{"a"}',
            b'{"a":[1],}',
            b'{"a":1,,"b":2}',
            b"{[1]:2}",
            b'["a":[1]]',
            b"[1],[2],",
            b"[1][2]",
            b"[[1],[2]]]",
            b'["a',
            b"[\xff]",
            b"tru",
        ):
            for size in range(1, 12):
                self.assertRaises(ValueError, read, data, size)

    def test_attempts(self) -> None:
        """The attempts to decode a piece take as long as the text, not as the longest piece."""
        text = b'"' + b"},],," * 1640 + b'",'
        for parts in (
            b"[[[[[[1]]]]]]," * 300 + text,
            b'{"a":{"a":{"a":{"a":{"a":{"a":1}}}}}},' * 200 + text,
            b"1,[[[[[[1]]]]]]," * 300 + text,
            b'"a,",' * 1500 + text,
        ):
            data = b"[" + parts * 8 + b"1]"
            sizes: list[int] = []

            def counting(piece: bytes, sizes: list[int] = sizes) -> Any:
                sizes.append(len(piece))
                return decode(piece)

            self.assertEqual(JSONReader(data, counting).readAll(), decode(data))
            self.assertLess(sum(sizes), 20 * len(data))

    def test_last(self) -> None:
        """Of a key that comes twice the last one counts."""
        for size in range(1, 40):
            self.assertEqual(read(b'{"a":1,"b":[2],"a":3,"b":4}', size), {"a": 3, "b": 4})


_INSERTED = [b"", b",", b"[", b"]", b"{", b"}", b'"', b"\\", b":", b"1", b" ", b"],[", b"},{"]


class LargeTests(SynchronousTestCase):
    """The codec's own limits, and how long others wait."""

    @long("takes a second or more")
    def test_limits(self) -> None:
        """Depth and count are limited as in short texts; brackets in text do not count."""
        deepest = b"[" * MAX_DEPTH + b"]" * MAX_DEPTH
        self.assertEqual(JSON.decodeLarge(deepest), JSON.decode(deepest))
        for levels in (MAX_DEPTH + 1, 100_000):
            deep = b"[" * levels + b"1," * 20_000 + b"1" + b"]" * levels
            error = self.assertRaises(ValueError, JSON.decodeLarge, deep)
            self.assertEqual(str(error), f"it is nested more than {MAX_DEPTH} levels deep")
        most = b"[" + b",".join([b"[]"] * (MAX_CONTAINERS - 1)) + b"]"
        self.assertEqual(len(JSON.decodeLarge(most)), MAX_CONTAINERS - 1)
        more = b"[[]," + most[1:]
        for data in (more, b'["' + b"[" * 1000 + b'",' + more[1:]):
            error = self.assertRaises(ValueError, JSON.decodeLarge, data)
            self.assertIn(f"more than {MAX_CONTAINERS} lists", str(error))
        text = [["[" * 100] * 10] * 1000
        self.assertEqual(JSON.decodeLarge(json.dumps(text).encode()), text)

    def test_others(self) -> None:
        """Another thread runs while a large object is decoded."""
        data = b"{" + b",".join(b'"k%d":1' % number for number in range(300_000)) + b"}"
        ended = threading.Event()
        turns = 0

        def count() -> None:
            nonlocal turns
            while not ended.wait(0.001):
                turns += 1

        other = threading.Thread(target=count)
        other.start()
        try:
            self.assertEqual(len(JSON.decodeLarge(data)), 300_000)
        finally:
            ended.set()
            other.join()
        # In one go it would be one.
        self.assertGreater(turns, 3)
