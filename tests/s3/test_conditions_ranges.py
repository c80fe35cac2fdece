"""Byte ranges."""

from hypothesis import given
from hypothesis import strategies as st

from storagegate.net.http.ranges import ByteRange
from storagegate.s3.conditions import parseCopyRange, parseRange
from tests.s3.examples import S3Case


class RangeTests(S3Case):
    """The C{Range} of a read."""

    def test_satisfiable(self) -> None:
        """Both ends, one end, or a number of last bytes; what is past the object is cut off."""
        for value, first, last in (
            (b"bytes=0-0", 0, 0),
            (b"bytes=0-9", 0, 9),
            (b"bytes=2-", 2, 9),
            (b"bytes=-3", 7, 9),
            (b"bytes=-10", 0, 9),
            (b"bytes=-11", 0, 9),
            (b"bytes=5-99", 5, 9),
            (b"bytes=0-" + b"9" * 5000, 0, 9),
            (b"bytes=-" + b"9" * 5000, 0, 9),
            (b"Bytes= 1 - 2 ", 1, 2),
            (b"bytes=01-002", 1, 2),
        ):
            self.assertEqual(parseRange(value, 10), ByteRange(first, last), value)

    def test_ignored(self) -> None:
        """What cannot be read, and several ranges, are the whole object."""
        for value in (
            b"",
            b"bytes",
            b"bytes=",
            b"bytes=-",
            b"bytes=5-4",
            b"bytes=a-b",
            b"bytes=0-1,3-4",
            b"bytes=" + b"0-1," * 1000,
            b"bytes=+1-2",
            b"bytes=1_0-",
            b"bytes=--1",
            b"items=0-1",
            "bytes=٣-".encode(),
        ):
            self.assertIsNone(parseRange(value, 10), value)

    def test_unsatisfiable(self) -> None:
        """A range without a byte of the object is a 416 that says how large the object is."""
        for value, size in (
            (b"bytes=10-", 10),
            (b"bytes=10-11", 10),
            (b"bytes=-0", 10),
            (b"bytes=0-", 0),
            (b"bytes=-1", 0),
            (b"bytes=" + b"9" * 5000 + b"-", 10),
        ):
            error = self.refused("InvalidRange", 416, parseRange, value, size)
            self.assertEqual(error.headers, ((b"Content-Range", b"bytes */%d" % size),))
            self.assertEqual(
                error.fields, {"RangeRequested": value.decode(), "ActualObjectSize": str(size)}
            )

    @given(st.integers(0, 100), st.integers(0, 100), st.integers(1, 100))
    def test_asSlices(self, first: int, last: int, size: int) -> None:
        """A range is the slice of the object that it says."""
        data = bytes(range(size))
        if first >= size or first > last:
            return
        found = parseRange(b"bytes=%d-%d" % (first, last), size)
        assert found is not None
        expected = data[first : last + 1]
        self.assertEqual(data[found.first : found.last + 1], expected)
        self.assertEqual(found.length, len(expected))
        text = b"bytes %d-%d/%d" % (first, min(last, size - 1), size)
        self.assertEqual(found.contentRange(size), text)


class CopyRangeTests(S3Case):
    """The range of a part that is copied."""

    def test_read(self) -> None:
        """Both ends, within the source."""
        self.assertEqual(parseCopyRange(b"bytes=0-9", 10), ByteRange(0, 9))

    def test_refused(self) -> None:
        """Anything else is a bad argument."""
        for value in (b"", b"bytes=0-", b"bytes=-1", b"bytes=0-10", b"bytes=5-4", b"0-1"):
            error = self.refused("InvalidArgument", 400, parseCopyRange, value, 10)
            self.assertEqual(error.fields["ArgumentName"], "x-amz-copy-source-range")
        self.refused("InvalidArgument", 400, parseCopyRange, b"bytes=0-" + b"9" * 5000, 10)
