"""
Byte ranges (RFC 9110 section 14.1.2)::

    Range         = "bytes=" range *( "," range )
    range         = first "-" [last] / "-" suffix
    Content-Range = "bytes " first "-" last "/" size / "bytes */" size
"""

import re
from collections.abc import Sequence

from attrs import frozen

from storagegate.core.scalars import parseDecimal

_UNIT = re.compile(rb"bytes=", re.IGNORECASE)
_RANGE = re.compile(rb"[ \t]*([0-9]*)[ \t]*-[ \t]*([0-9]*)[ \t]*")

_FAR = 1 << 63
"""Past every file. A larger number means the same, so it is not read."""


@frozen
class ByteRange:
    """
    Bytes of something whose size is known.

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
        """Write the C{Content-Range} of an answer from something of some size."""
        return b"bytes %d-%d/%d" % (self.first, self.last, size)


@frozen
class RangeSpec:
    """
    What a client asks for, whatever the size is.

    @ivar first: Offset of the first byte; L{None} if the last C{last} bytes are meant.
    @ivar last: Offset of the last byte, past every file if there was none.
    """

    first: int | None
    last: int

    def within(self, size: int) -> ByteRange | None:
        """Find the bytes in something of some size; L{None} if none of them is in it."""
        if self.first is None:
            first, last = max(0, size - self.last), size - 1
        else:
            first, last = self.first, min(self.last, size - 1)
        return ByteRange(first, last) if first < size else None


def parseRangeSpecs(value: bytes) -> Sequence[RangeSpec] | None:
    """
    Read a C{Range}.

    @return: L{None} if it is not in bytes or cannot be read; such a field is ignored.
    """
    unit = _UNIT.match(value)
    if unit is None:
        return None
    specs = []
    for piece in value[unit.end() :].split(b","):
        match = _RANGE.fullmatch(piece)
        if match is None:
            return None
        spec = _readSpec(*match.groups())
        if spec is None:
            return None
        specs.append(spec)
    return specs


def _readSpec(first: bytes, last: bytes) -> RangeSpec | None:
    if not first:
        return RangeSpec(None, parsePosition(last)) if last else None
    start, end = parsePosition(first), parsePosition(last) if last else _FAR
    return RangeSpec(start, end) if start <= end else None


def parsePosition(digits: bytes) -> int:
    """Read an offset of ASCII digits; one that no file reaches is cut."""
    try:
        return parseDecimal(digits, _FAR)
    except ValueError:
        return _FAR


def parseRange(value: str | bytes | None, size: int) -> Sequence[ByteRange] | None:
    """
    Read a C{Range} of something of some size.

    @return: What of it there is; L{None} if there is no such field, or it is to be ignored.
    """
    if value is None:
        return None
    specs = parseRangeSpecs(value.encode("latin-1") if isinstance(value, str) else value)
    if specs is None:
        return None
    found = (spec.within(size) for spec in specs)
    return [one for one in found if one is not None]


def unsatisfiedRange(size: int) -> bytes:
    """Write the C{Content-Range} of a 416."""
    return b"bytes */%d" % size
