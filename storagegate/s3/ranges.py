"""
Byte ranges::

    Range                   = "bytes=" (first "-" [last] / "-" suffix)      RFC 9110 section 14.1.2
    x-amz-copy-source-range = "bytes=" first "-" last

S3 serves one range. A C{Range} that it cannot read, several ranges among them, it ignores.
"""

import re

from attrs import frozen

from storagegate.core.scalars import parseDecimal
from storagegate.s3.errors import S3Error, invalidArgument

_RANGE = re.compile(rb"bytes=[ \t]*([0-9]*)[ \t]*-[ \t]*([0-9]*)[ \t]*", re.IGNORECASE)
_COPY_RANGE = re.compile(rb"bytes=([0-9]+)-([0-9]+)")

_FAR = 1 << 63
"""Past every object. A larger number means the same, so it is not read."""


@frozen
class ByteRange:
    """
    Bytes of an object.

    @ivar first: Offset of the first byte.
    @ivar last: Offset of the last byte, which belongs to it.
    """

    first: int
    last: int

    @property
    def length(self) -> int:
        """Count the bytes."""
        return self.last - self.first + 1

    def contentRange(self, size: int) -> bytes:
        """Write the C{Content-Range} of an answer from an object of some size."""
        return b"bytes %d-%d/%d" % (self.first, self.last, size)


def parseRange(value: bytes | None, size: int) -> ByteRange | None:
    """
    Read a C{Range}.

    @param size: Of the object.
    @return: L{None} if the whole object is to be sent.
    @raise S3Error: C{InvalidRange} if no byte of the object is asked for.
    """
    if value is None:
        return None
    match = _RANGE.fullmatch(value)
    if match is None:
        return None
    first, last = match.groups()
    if first:
        start, stop = _position(first), _position(last) if last else _FAR
        if last and stop < start:
            return None
    elif last:
        start, stop = max(0, size - _position(last)), _FAR
    else:
        return None
    if start >= size:
        raise _unsatisfiable(value, size)
    return ByteRange(start, min(stop, size - 1))


def _position(digits: bytes) -> int:
    try:
        return parseDecimal(digits, _FAR)
    except ValueError:
        return _FAR


def _unsatisfiable(value: bytes, size: int) -> S3Error:
    return S3Error(
        "InvalidRange",
        fields={"RangeRequested": value.decode("latin-1"), "ActualObjectSize": str(size)},
        headers=[(b"Content-Range", b"bytes */%d" % size)],
    )


def parseCopyRange(value: bytes, size: int) -> ByteRange:
    """
    Read C{x-amz-copy-source-range}: unlike a C{Range} it has both ends, and both in the object.

    @param size: Of the source.
    @raise S3Error: C{InvalidArgument}.
    """
    name = "x-amz-copy-source-range"
    text = value.decode("latin-1")
    match = _COPY_RANGE.fullmatch(value)
    if match is None:
        message = (
            f"The {name} value must be of the form bytes=first-last where first and last are the "
            "zero-based offsets of the first and last bytes to copy"
        )
        raise invalidArgument(name, text, message)
    first, last = _position(match[1]), _position(match[2])
    if not first <= last < size:
        message = f"Range specified is not valid for source object of size: {size}"
        raise invalidArgument(name, text, message)
    return ByteRange(first, last)
