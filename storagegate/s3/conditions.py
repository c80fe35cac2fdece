"""
Conditions of reads: C{If-Match} and its kin (RFC 9110 section 13).

S3 follows the precedence of section 13.2.2: C{If-Unmodified-Since} counts only where there is no
C{If-Match}, and C{If-Modified-Since} only where there is no C{If-None-Match}. A date that cannot
be read is no condition. The source of a copy has the same conditions with a prefix, and there a
condition that does not hold is always an error.

Byte ranges as S3 reads them::

    Range                   = "bytes=" (first "-" [last] / "-" suffix)      RFC 9110 section 14.1.2
    x-amz-copy-source-range = "bytes=" first "-" last

S3 serves one range. A C{Range} that it cannot read, several ranges among them, it ignores.
"""

import re
from collections.abc import Mapping

from storagegate.net.http.ranges import (
    ByteRange,
    changedSince,
    parseHttpDate,
    parsePosition,
    parseRangeSpecs,
    unsatisfiedRange,
)
from storagegate.s3.errors import S3Error, invalidArgument

_COPY_PREFIX = b"x-amz-copy-source-"


class NotModified(Exception):
    """The client has what it asks for: the answer is a 304."""


def evaluateRead(headers: Mapping[bytes, bytes], etag: str, modifiedMs: int) -> None:
    """
    Check the conditions of a GET or HEAD.

    @param headers: Values by lower-case name.
    @param etag: Of the object, without quotation marks.
    @param modifiedMs: When it was written, in milliseconds since the epoch.
    @raise S3Error: C{PreconditionFailed}.
    @raise NotModified: For a 304.
    """
    if _evaluate(headers, b"", etag, modifiedMs) is not None:
        raise NotModified()


def rangeHolds(headers: Mapping[bytes, bytes], etag: str, modifiedMs: int) -> bool:
    """
    Say whether a C{Range} counts: a client that goes on with what it has names in C{If-Range} what
    that is, and of anything else needs the whole (RFC 9110 section 13.1.5).
    """
    value = headers.get(b"if-range")
    if value is None:
        return True
    since = parseHttpDate(value)
    if since is not None:
        return modifiedMs // 1000 == since
    return value.strip() != b"*" and _matches(value, etag, weak=False)


def evaluateCopySource(headers: Mapping[bytes, bytes], etag: str, modifiedMs: int) -> None:
    """
    Check the conditions on the source of a copy.

    @raise S3Error: C{PreconditionFailed}.
    """
    failed = _evaluate(headers, _COPY_PREFIX, etag, modifiedMs)
    if failed is not None:
        raise _preconditionFailed(failed)


def _evaluate(
    headers: Mapping[bytes, bytes], prefix: bytes, etag: str, modifiedMs: int
) -> bytes | None:
    """Check all conditions; give the name of that which says that nothing has changed."""
    name = prefix + b"if-match"
    value = headers.get(name)
    if value is not None:
        if not _matches(value, etag, weak=False):
            raise _preconditionFailed(name)
    else:
        name = prefix + b"if-unmodified-since"
        if changedSince(headers.get(name), modifiedMs // 1000) is True:
            raise _preconditionFailed(name)
    name = prefix + b"if-none-match"
    value = headers.get(name)
    if value is not None:
        return name if _matches(value, etag, weak=True) else None
    name = prefix + b"if-modified-since"
    return name if changedSince(headers.get(name), modifiedMs // 1000) is False else None


def _preconditionFailed(name: bytes) -> S3Error:
    # The names of these headers are titled words: If-None-Match.
    return S3Error("PreconditionFailed", fields={"Condition": name.decode().title()})


def _matches(value: bytes, etag: str, *, weak: bool) -> bool:
    """
    Look for an ETag in a list, whose members may lack their quotation marks as S3 allows.

    @param weak: Whether C{W/} tags count (RFC 9110 section 8.8.3.2).
    """
    wanted = etag.encode()
    for member in value.split(b","):
        tag = member.strip()
        if tag == b"*":
            return True
        if tag.startswith(b"W/"):
            if not weak:
                continue
            tag = tag[2:]
        if tag.strip(b'"') == wanted:
            return True
    return False


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
