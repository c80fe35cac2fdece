"""
Byte ranges as S3 reads them::

    Range                   = "bytes=" (first "-" [last] / "-" suffix)      RFC 9110 section 14.1.2
    x-amz-copy-source-range = "bytes=" first "-" last

S3 serves one range. A C{Range} that it cannot read, several ranges among them, it ignores.
"""

import re

from storagegate.net.httpranges import (
    ByteRange,
    parsePosition,
    parseRangeSpecs,
    unsatisfiedRange,
)
from storagegate.s3.errors import S3Error, invalidArgument

_COPY_RANGE = re.compile(rb"bytes=([0-9]+)-([0-9]+)")


def parseRange(value: bytes | None, size: int) -> ByteRange | None:
    """
    Read a C{Range}.

    @param size: Of the object.
    @return: L{None} if the whole object is to be sent.
    @raise S3Error: C{InvalidRange} if no byte of the object is asked for.
    """
    specs = None if value is None else parseRangeSpecs(value)
    if value is None or specs is None or len(specs) != 1:
        return None
    found = specs[0].within(size)
    if found is None:
        raise _unsatisfiable(value, size)
    return found


def _unsatisfiable(value: bytes, size: int) -> S3Error:
    return S3Error(
        "InvalidRange",
        fields={"RangeRequested": value.decode("latin-1"), "ActualObjectSize": str(size)},
        headers=[(b"Content-Range", unsatisfiedRange(size))],
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
    first, last = parsePosition(match[1]), parsePosition(match[2])
    if not first <= last < size:
        message = f"Range specified is not valid for source object of size: {size}"
        raise invalidArgument(name, text, message)
    return ByteRange(first, last)
