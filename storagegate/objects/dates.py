"""Dates in ISO 8601: of retentions, lifecycle rules, policies and listings."""

import re
from datetime import UTC, datetime
from functools import lru_cache
from math import ceil
from time import gmtime

# A listing formats 1,000 of these: strftime takes 0.67 microseconds each, these texts 0.1.
_SECONDS = tuple(f"{second:02}.000Z" for second in range(60))


@lru_cache(maxsize=4096)
def _minute(minutes: int) -> str:
    """Format a minute since the epoch. The objects of a listing share some minutes."""
    date = gmtime(minutes * 60)
    day = f"{date.tm_year:04}-{date.tm_mon:02}-{date.tm_mday:02}"
    return f"{day}T{date.tm_hour:02}:{date.tm_min:02}:"


def isoTimestamp(ms: int) -> str:
    """Format milliseconds since the epoch as C{2026-01-01T00:00:00.000Z}."""
    minutes, second = divmod(ms // 1000, 60)
    return _minute(minutes) + _SECONDS[second]


def isoSeconds(seconds: int) -> str:
    """Format seconds since the epoch as C{2026-01-01T00:00:00Z}, as in S3's errors."""
    return isoTimestamp(seconds * 1000).removesuffix(".000Z") + "Z"


_DATE = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}"
    r"(T[0-9]{2}:[0-9]{2}(:[0-9]{2}(\.[0-9]{1,6})?)?(Z|[+-][0-9]{2}:?[0-9]{2})?)?",
    re.ASCII,
)

LAST_SECOND = 253402300799
"""9999-12-31T23:59:59Z, in seconds since the epoch: the last date that can be written."""


def parseDate(text: str) -> float:
    """
    Parse an ISO 8601 date, or seconds since the epoch.

    @return: Seconds since the epoch.
    @raise ValueError: The text is not a date.
    """
    if text.isascii() and text.isdigit() and len(text) <= 12:
        return float(text)
    if _DATE.fullmatch(text) is None:
        raise ValueError(f"{text!a:.80} is no date")
    try:
        found = datetime.fromisoformat(text)
        return (found if found.tzinfo is not None else found.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        raise ValueError(f"{text!a:.80} is no date") from None


def parseUntil(text: str) -> int:
    """
    Parse the date of a retention; return milliseconds since the epoch, rounded up to seconds.

    @raise ValueError: The text is not an ISO 8601 date.
    """
    seconds = ceil(parseDate(text))
    if text.isdigit() or seconds > LAST_SECOND:
        raise ValueError(f"{text!a:.80} is no date of a retention")
    return seconds * 1000
