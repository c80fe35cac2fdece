"""Byte ranges of HTTP."""

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from storagegate.net.http.ranges import ByteRange, parseRange, parseRangeSpecs, unsatisfiedRange


def found(value: bytes, size: int) -> list[tuple[int, int] | None] | None:
    """Read ranges and find them in something of a size."""
    specs = parseRangeSpecs(value)
    if specs is None:
        return None
    ranges = [spec.within(size) for spec in specs]
    return [None if one is None else (one.first, one.last) for one in ranges]


class RangeTests(SynchronousTestCase):
    """C{Range}, read."""

    def test_forms(self) -> None:
        """Both ends, one end, or a number of last bytes; what is past the end is cut off."""
        for value, expected in (
            (b"bytes=0-0", [(0, 0)]),
            (b"bytes=2-", [(2, 9)]),
            (b"bytes=-3", [(7, 9)]),
            (b"bytes=-20", [(0, 9)]),
            (b"bytes=5-99", [(5, 9)]),
            (b"bytes=0-" + b"9" * 5000, [(0, 9)]),
            (b"BYTES=0-1, 4-5 ,-1", [(0, 1), (4, 5), (9, 9)]),
            (b"bytes=0-1,10-,3-3", [(0, 1), None, (3, 3)]),
            (b"bytes=-0", [None]),
        ):
            self.assertEqual(found(value, 10), expected, value)
        self.assertEqual(found(b"bytes=0-,-1", 0), [None, None])

    def test_badSyntax(self) -> None:
        """One piece that cannot be read spoils the whole."""
        for value in (
            b"",
            b"bytes",
            b"bytes=",
            b"bytes=-",
            b"bytes=0-1,",
            b"bytes=5-4",
            b"bytes=0-1,a-b",
            b"bytes=+1-2",
            b"bytes=1_0-",
            b"bytes=--1",
            b"items=0-1",
            "bytes=٣-".encode(),
        ):
            self.assertIsNone(parseRangeSpecs(value), value)

    def test_found(self) -> None:
        """Of several ranges those count that have bytes; none may be left."""
        found = [ByteRange(0, 1), ByteRange(3, 3)]
        self.assertEqual(parseRange("bytes=0-1,10-,3-3", 10), found)
        self.assertEqual(parseRange(b"bytes=0-1,10-,3-3", 10), found)
        self.assertEqual(parseRange("bytes=10-", 10), [])
        for value in (None, "", "bytes=x"):
            self.assertIsNone(parseRange(value, 10))

    @given(st.binary(max_size=200))
    def test_anything(self, junk: bytes) -> None:
        """Whatever comes, it is read or it is not."""
        for value in (junk, b"bytes=" + junk):
            for one in found(value, 10) or ():
                if one is not None:
                    self.assertTrue(0 <= one[0] <= one[1] <= 9)

    def test_written(self) -> None:
        """Answers say which bytes of how many they are, or how many there would be."""
        self.assertEqual(ByteRange(2, 5).contentRange(10), b"bytes 2-5/10")
        self.assertEqual(ByteRange(2, 5).length, 4)
        self.assertEqual(unsatisfiedRange(10), b"bytes */10")
