"""
Byte ranges (RFC 9110 section 14.1.2)::

    Range         = "bytes=" range *( "," range )
    range         = first "-" [last] / "-" suffix
    Content-Range = "bytes " first "-" last "/" size / "bytes */" size

HTTP dates, parsed strictly (RFC 9110 section 5.6.7)::

    IMF-fixdate       Sun, 06 Nov 1994 08:49:37 GMT
    RFC 850           Sunday, 06-Nov-94 08:49:37 GMT
    asctime           Sun Nov  6 08:49:37 1994
"""

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from email.utils import formatdate
from functools import lru_cache

from msgspec import Struct

from storagegate.core.options import parseDecimal

_UNIT = re.compile(rb"bytes=", re.IGNORECASE)
_RANGE = re.compile(rb"[ \t]*([0-9]*)[ \t]*-[ \t]*([0-9]*)[ \t]*")

_FAR = 1 << 63
"""An offset past the end of any file; larger numbers are replaced by it."""


class ByteRange(Struct, frozen=True):
    """
    A range of a representation of known size.

    @ivar first: Offset of the first byte.
    @ivar last: Offset of the last byte, inclusive.
    """

    first: int
    last: int

    @property
    def length(self) -> int:
        """Return the number of bytes."""
        return self.last - self.first + 1

    def contentRange(self, size: int) -> bytes:
        """Format C{Content-Range} for a representation of C{size} bytes."""
        return b"bytes %d-%d/%d" % (self.first, self.last, size)


class RangeSpec(Struct, frozen=True):
    """
    A requested range, before the size is known.

    @ivar first: Offset of the first byte; C{None} for the last C{last} bytes.
    @ivar last: Offset of the last byte, or past the end of any file.
    """

    first: int | None
    last: int

    def within(self, size: int) -> ByteRange | None:
        """Return the range within C{size} bytes; C{None} if it is not satisfiable."""
        if self.first is None:
            first, last = max(0, size - self.last), size - 1
        else:
            first, last = self.first, min(self.last, size - 1)
        return ByteRange(first, last) if first < size else None


def parseRangeSpecs(value: bytes) -> Sequence[RangeSpec] | None:
    """
    Parse a C{Range}.

    @param value: The value of the field, such as C{bytes=0-99,-5}.
    @return: C{None} if the unit is not bytes or the field is malformed; such a field is ignored.
    """
    unit = _UNIT.match(value)
    if unit is None:
        return None
    specs = []
    for piece in value[unit.end() :].split(b","):
        match = _RANGE.fullmatch(piece)
        if match is None:
            return None
        first, last = match.groups()
        start = parsePosition(first) if first else None
        end = parsePosition(last) if last else _FAR
        if not (first or last) or (start is not None and start > end):
            return None
        specs.append(RangeSpec(start, end))
    return specs


def parsePosition(digits: bytes) -> int:
    """Parse an offset of any number of ASCII digits, capped at an offset past any file."""
    try:
        return parseDecimal(digits, _FAR)
    except ValueError:
        return _FAR


def parseRange(value: str | bytes | None, size: int) -> Sequence[ByteRange] | None:
    """
    Parse a C{Range}.

    @param value: The value of the field, or C{None}.
    @param size: The size of the representation in bytes.
    @return: The satisfiable ranges; C{None} if the field is absent or to be ignored.
    """
    if value is None:
        return None
    specs = parseRangeSpecs(value.encode("latin-1") if isinstance(value, str) else value)
    if specs is None:
        return None
    found = (spec.within(size) for spec in specs)
    return [one for one in found if one is not None]


def unsatisfiedRange(size: int) -> bytes:
    """Format the C{Content-Range} of a 416."""
    return b"bytes */%d" % size


_MONTHS = b"Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec".split()
_MONTH = rb"(?P<month>" + b"|".join(_MONTHS) + rb")"
_DAY = rb"(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)"
_LONG_DAY = rb"(?:Monday|Tuesday|Wednesday|Thursday|Friday|Saturday|Sunday)"
_TIME = rb"(?P<hour>[0-9]{2}):(?P<minute>[0-9]{2}):(?P<second>[0-9]{2})"

_FORMS = (
    re.compile(
        _DAY + rb", (?P<day>[0-9]{2}) " + _MONTH + rb" (?P<year>[0-9]{4}) " + _TIME + b" GMT"
    ),
    re.compile(
        _LONG_DAY + rb", (?P<day>[0-9]{2})-" + _MONTH + rb"-(?P<year>[0-9]{2}) " + _TIME + b" GMT"
    ),
    re.compile(_DAY + b" " + _MONTH + rb" (?P<day>[ 0-9][0-9]) " + _TIME + rb" (?P<year>[0-9]{4})"),
)

_LONGEST = len("Wednesday, 06-Nov-94 08:49:37 GMT")

_CENTURY_TURN = 70
"""Two-digit years from this one on belong to the last century, when RFC 850 dates were used."""


def parseHttpDate(value: bytes) -> int | None:
    """
    Parse an HTTP date in any of its three forms.

    @param value: A date as in RFC 9110, section 5.6.7; white space around it is ignored.
    @return: Seconds since the epoch; C{None} if the date is invalid.
    """
    value = value.strip(b" \t")
    # Checked first, so that no long text stays in the cache.
    return _parse(value) if len(value) <= _LONGEST else None


# A thousand clients that revalidate a file send the same text: 0.1 microseconds instead of 3.
@lru_cache(maxsize=256)
def _parse(value: bytes) -> int | None:
    for pattern in _FORMS:
        match = pattern.fullmatch(value)
        if match is not None:
            part = match.groupdict()
            year = int(part["year"])
            if len(part["year"]) == 2:
                year += 1900 if year >= _CENTURY_TURN else 2000
            month = _MONTHS.index(part["month"]) + 1
            clock = (int(part["hour"]), int(part["minute"]), int(part["second"]))
            return utcSeconds(year, month, int(part["day"]), *clock)
    return None


@lru_cache(maxsize=4096)
def formatHttpDate(seconds: int) -> bytes:
    """Format seconds since the epoch as C{Thu, 01 Jan 2026 00:00:00 GMT}."""
    return formatdate(seconds, usegmt=True).encode()


def changedSince(value: bytes | None, modified: int) -> bool | None:
    """
    Return whether a representation has changed since the date of a conditional request.

    @param value: The date in C{If-Modified-Since} or C{If-Unmodified-Since}, or C{None}.
    @param modified: The time of the last modification, in whole seconds as in C{Last-Modified}.
    @return: C{None} without a valid date, in which case there is no condition.
    """
    since = None if value is None else parseHttpDate(value)
    return None if since is None else modified > since


CLEARLY_OLDER_SECONDS = 60
"""Minimum age of a modification for its date to distinguish two versions: dates have whole seconds,
and the clocks of machines differ. Apache httpd uses the same value."""


def rangeHolds(value: bytes, etag: bytes | None, modified: int | None, now: float) -> bool:
    """
    Return whether C{If-Range} matches the current representation, so that the range applies.

    The comparison is strong (RFC 9110 section 13.1.5). A weak tag, a list, or a date that is not
    clearly older than the request could join two versions.

    @param value: The value of the field.
    @param etag: The C{ETag} as sent, or C{None}.
    @param modified: C{Last-Modified} in seconds since the epoch, or C{None}.
    @param now: The time in seconds since the epoch.
    """
    value = value.strip(b" \t")
    if value[:1] == b'"':
        return value == etag
    if modified is None or parseHttpDate(value) != modified:
        return False
    return now - modified >= CLEARLY_OLDER_SECONDS


def utcSeconds(year: int, month: int, day: int, hour: int, minute: int, second: int) -> int | None:
    """Return seconds since the epoch; C{None} for an invalid date or a leap second."""
    try:
        return int(datetime(year, month, day, hour, minute, second, tzinfo=UTC).timestamp())
    except ValueError:
        return None
