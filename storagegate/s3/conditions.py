"""
Conditional requests (RFC 9110 section 13) and byte ranges, as S3 interprets them::

    Range                   = "bytes=" (first "-" [last] / "-" suffix)      RFC 9110 section 14.1.2
    x-amz-copy-source-range = "bytes=" first "-" last

S3 follows the precedence of section 13.2.2: C{If-Unmodified-Since} counts only without C{If-Match},
and C{If-Modified-Since} only without C{If-None-Match}. An invalid date is ignored. The source of a
copy has the same conditions with a prefix; if any of them fails, the response is always an error.

S3 serves a single range. An invalid C{Range}, or one with several ranges, is ignored.
"""

import re
from collections.abc import Mapping
from datetime import datetime
from time import time

from msgspec.structs import replace

from storagegate.core.options import parseDecimal
from storagegate.net.http.ranges import (
    ByteRange,
    changedSince,
    parseHttpDate,
    parsePosition,
    parseRangeSpecs,
    rangeHolds,
    unsatisfiedRange,
)
from storagegate.objects.documents.fields import writeCondition
from storagegate.s3.errors import S3Error, invalidArgument
from storagegate.s3.locks import bypasses
from storagegate.storage.records import WriteCondition

_SOURCE_PREFIX = b"x-amz-copy-source-"

READ_FIELDS = frozenset(
    {b"if-match", b"if-none-match", b"if-modified-since", b"if-unmodified-since", b"range"}
)
"""The fields that L{evaluateRead} uses: without any of them, a read returns the whole object."""


class NotModified(Exception):
    """The client's copy is fresh: the response is a 304."""


def evaluateRead(
    headers: Mapping[bytes, bytes], etag: str, modifiedMs: int, size: int | None = None
) -> ByteRange | None:
    """
    Evaluate the conditions and the C{Range} of a GET or HEAD.

    @param headers: Values by lower-case name.
    @param etag: ETag of the object, without quotation marks.
    @param modifiedMs: Time of the last change, in milliseconds since the epoch.
    @param size: Size of the object, in bytes; L{None} to ignore C{Range}.
    @return: The bytes to send; L{None} for the whole object.
    @raise S3Error: C{PreconditionFailed}, C{InvalidRange}.
    @raise NotModified: The response is a 304.
    """
    if _evaluate(headers, b"", etag, modifiedMs) is not None:
        raise NotModified()
    wanted = headers.get(b"range")
    if wanted is None or size is None or not rangeApplies(headers, etag, modifiedMs):
        return None
    return parseRange(wanted, size)


def rangeApplies(headers: Mapping[bytes, bytes], etag: str, modifiedMs: int) -> bool:
    """
    Return whether a C{Range} applies. A client that resumes a download names its copy in
    C{If-Range}, and needs the whole object if the copy is outdated.

    @param headers: Values by lower-case name.
    @param etag: ETag of the object, without quotation marks.
    @param modifiedMs: Time of the last change, in milliseconds since the epoch.
    """
    value = headers.get(b"if-range")
    if value is None:
        return True
    tag = b'"%b"' % etag.encode("ascii")
    # S3 also accepts a tag without quotes.
    isBare = value.strip(b" \t") == tag[1:-1]
    return isBare or rangeHolds(value, tag, modifiedMs // 1000, time())


_SIZE = b"x-amz-if-match-size"
_MODIFIED = b"x-amz-if-match-last-modified-time"
_CONDITIONS = (b"if-none-match", b"if-match", _SIZE, _MODIFIED)
DELETE_FIELDS = frozenset({_SIZE, _MODIFIED})
"""The conditions that only deletions support."""


def deleteCondition(headers: Mapping[bytes, bytes]) -> WriteCondition:
    """
    Parse the conditions of a deletion.

    @param headers: Values by lower-case name.
    @raise S3Error: C{InvalidArgument} for an invalid size or time.
    """
    condition = writeCondition(headers)
    if bypasses(headers):
        condition = replace(condition, bypass=True)
    if DELETE_FIELDS.isdisjoint(headers):
        return condition
    named = {name: headers[name].decode("latin-1") for name in DELETE_FIELDS if name in headers}
    size, modified = named.get(_SIZE), named.get(_MODIFIED)
    return narrowed(condition, _SIZE.decode(), size, _MODIFIED.decode(), modified)


def narrowed(
    condition: WriteCondition,
    sizeName: str,
    size: str | None,
    modifiedName: str,
    modified: str | None,
) -> WriteCondition:
    """
    Add a required size and time of an existing object to a condition.

    @param sizeName: The client's name of the size, for errors.
    @param size: The raw text; L{None} for any size.
    @param modifiedName: The client's name of the time, for errors.
    @param modified: An HTTP or ISO 8601 date; L{None} for any time.
    @raise S3Error: C{InvalidArgument}.
    """
    if size is not None:
        try:
            condition = replace(condition, size=parseDecimal(size.strip(), 1 << 62))
        except ValueError:
            raise invalidArgument(sizeName, size) from None
    if modified is not None:
        seconds = parseHttpDate(modified.strip().encode("latin-1", "replace"))
        if seconds is None:
            seconds = _isoSeconds(modified.strip())
        if seconds is None:
            raise invalidArgument(modifiedName, modified)
        condition = replace(condition, modifiedSeconds=seconds)
    return condition


def _isoSeconds(text: str) -> int | None:
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return None
    return None if found.tzinfo is None else int(found.timestamp())


def evaluateCopySource(headers: Mapping[bytes, bytes], etag: str, modifiedMs: int) -> None:
    """
    Evaluate the conditions on the source of a copy.

    @param headers: Values by lower-case name.
    @param etag: ETag of the source, without quotation marks.
    @param modifiedMs: Time of the last change, in milliseconds since the epoch.
    @raise S3Error: C{PreconditionFailed}.
    """
    failed = _evaluate(headers, _SOURCE_PREFIX, etag, modifiedMs)
    if failed is not None:
        raise _preconditionFailed(failed)


def _evaluate(
    headers: Mapping[bytes, bytes], prefix: bytes, etag: str, modifiedMs: int
) -> bytes | None:
    """
    Evaluate all conditions; return the name of a condition that proves the copy fresh, if any.
    """
    name = prefix + b"if-match"
    value = headers.get(name)
    if value is not None:
        if not _matches(value, etag, weak=False):
            raise _preconditionFailed(name)
    else:
        name = prefix + b"if-unmodified-since"
        if name in headers and changedSince(headers[name], modifiedMs // 1000) is True:
            raise _preconditionFailed(name)
    name = prefix + b"if-none-match"
    value = headers.get(name)
    if value is not None:
        return name if _matches(value, etag, weak=True) else None
    name = prefix + b"if-modified-since"
    if name in headers and changedSince(headers[name], modifiedMs // 1000) is False:
        return name
    return None


def _preconditionFailed(name: bytes) -> S3Error:
    # The names of HTTP have title case, and Amazon's prefixes lower case.
    prefix = _SOURCE_PREFIX if name.startswith(_SOURCE_PREFIX) else b""
    text = name.removeprefix(prefix).decode()
    condition = prefix.decode() + (text if text.startswith("x-amz-") else text.title())
    return S3Error("PreconditionFailed", fields={"Condition": condition})


def writeFailed(headers: Mapping[bytes, bytes]) -> S3Error:
    """
    Make the error for a write whose condition did not hold.

    The catalog does not report which condition failed. Clients send one; of several, this is the
    first that the catalog evaluates and that may have failed.

    @param headers: Values by lower-case name.
    """
    # Any object passes this one.
    passed = (b"if-match", b"*")
    names = [name for name in _CONDITIONS if name in headers and (name, headers[name]) != passed]
    return _preconditionFailed(names[0] if names else b"if-match")


def _matches(value: bytes, etag: str, *, weak: bool) -> bool:
    """Return whether a list contains an ETag; C{weak} includes C{W/} tags. Quotes are optional."""
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


def parseRange(value: bytes, size: int) -> ByteRange | None:
    """
    Parse a C{Range}.

    @param value: The value of the header.
    @param size: Size of the object, in bytes.
    @return: L{None} for the whole object.
    @raise S3Error: C{InvalidRange} if the range contains no byte of the object.
    """
    specs = parseRangeSpecs(value)
    if specs is None or len(specs) != 1:
        return None
    found = specs[0].within(size)
    if found is None:
        raise S3Error(
            "InvalidRange",
            fields={"RangeRequested": value.decode("latin-1"), "ActualObjectSize": str(size)},
            headers=[(b"Content-Range", unsatisfiedRange(size))],
        )
    return found


def parseCopyRange(value: bytes, size: int) -> ByteRange:
    """
    Parse C{x-amz-copy-source-range}: unlike in a C{Range}, both ends are required and must lie in
    the object.

    @param value: The value of the header.
    @param size: Size of the source, in bytes.
    @raise S3Error: C{InvalidArgument}.
    """
    name = "x-amz-copy-source-range"
    text = value.decode("latin-1")
    match = re.fullmatch(rb"bytes=([0-9]+)-([0-9]+)", value)
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
