"""Which ranges a request gets."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from storagegate.http.errors import HTTPError
from storagegate.http.sendfile import MAX_RANGES, findRanges


def found(value: bytes, size: int = 100) -> list[tuple[int, int]] | None:
    """Find ranges."""
    ranges = findRanges(value, size)
    return None if ranges is None else [(one.first, one.last) for one in ranges]


class RangesTests(SynchronousTestCase):
    """Ranges of a file."""

    def assertUnsatisfied(self, value: bytes, size: int = 100) -> None:
        """Assert a 416 that tells the size."""
        error: Any = self.assertRaises(HTTPError, findRanges, value, size)
        self.assertEqual(error.statusCode, 416)
        self.assertEqual(error.headers, {"Content-Range": f"bytes */{size}"})

    def test_one(self) -> None:
        """One range is what it says."""
        self.assertEqual(found(b"bytes=10-19"), [(10, 19)])
        self.assertEqual(found(b"bytes=-200"), [(0, 99)])

    def test_ignored(self) -> None:
        """What cannot be read is ignored."""
        for value in (b"", b"bytes=x", b"bytes=5-4", b"lines=0-1", b"bytes=0-1,x"):
            self.assertIsNone(found(value))

    def test_unsatisfied(self) -> None:
        """Ranges past the end are a 416 if there is no other."""
        for value in (b"bytes=100-", b"bytes=-0", b"bytes=100-,200-300"):
            self.assertUnsatisfied(value)
        self.assertUnsatisfied(b"bytes=0-", 0)
        self.assertEqual(found(b"bytes=100-,1-2"), [(1, 2)])

    def test_order(self) -> None:
        """Ranges come in the order of the request."""
        self.assertEqual(found(b"bytes=50-59,-1,0-9"), [(50, 59), (99, 99), (0, 9)])

    def test_combined(self) -> None:
        """Ranges that overlap or touch become one, where the first of them was."""
        self.assertEqual(found(b"bytes=0-9,5-14"), [(0, 14)])
        self.assertEqual(found(b"bytes=0-9,10-14"), [(0, 14)])
        self.assertEqual(found(b"bytes=0-9,11-14"), [(0, 9), (11, 14)])
        self.assertEqual(found(b"bytes=20-29,0-9,25-34"), [(20, 34), (0, 9)])
        self.assertEqual(found(b"bytes=0-9,20-29,5-24"), [(0, 29)])
        self.assertEqual(found(b"bytes=" + b",".join([b"0-"] * 20)), [(0, 99)])

    def test_tooMany(self) -> None:
        """More ranges than a reader needs are refused, however they look."""
        many = b",".join(b"%d-%d" % (n * 2, n * 2) for n in range(MAX_RANGES))
        ranges = found(b"bytes=" + many, 1000)
        assert ranges is not None
        self.assertEqual(len(ranges), MAX_RANGES)
        self.assertUnsatisfied(b"bytes=" + many + b",900-", 1000)
        self.assertUnsatisfied(b"bytes=" + b"0-," * 1000, 1000)

    @given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)), min_size=1, max_size=8))
    def test_sameBytes(self, pairs: list[tuple[int, int]]) -> None:
        """Joining changes neither which bytes come, nor does any come twice."""
        pairs = [(first, max(first, last)) for first, last in pairs]
        value = b"bytes=" + b",".join(b"%d-%d" % pair for pair in pairs)
        wanted = {n for first, last in pairs for n in range(first, min(last, 24) + 1)}
        if not wanted:
            self.assertUnsatisfied(value, 25)
            return
        got = [n for first, last in found(value, 25) or () for n in range(first, last + 1)]
        self.assertEqual(sorted(got), sorted(wanted))
