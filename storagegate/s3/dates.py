"""
Dates as requests carry them, read strictly::

    basic ISO 8601    20130524T000000Z                    x-amz-date, X-Amz-Date
    IMF-fixdate       Sun, 06 Nov 1994 08:49:37 GMT       RFC 9110 section 5.6.7
    RFC 850           Sunday, 06-Nov-94 08:49:37 GMT
    asctime           Sun Nov  6 08:49:37 1994
"""

import re
from datetime import UTC, datetime
from functools import lru_cache

_MONTHS = b"Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec".split()
_MONTH = rb"(?P<month>" + b"|".join(_MONTHS) + rb")"
_DAY = rb"(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)"
_LONG_DAY = rb"(?:Monday|Tuesday|Wednesday|Thursday|Friday|Saturday|Sunday)"
_TIME = rb"(?P<hour>[0-9]{2}):(?P<minute>[0-9]{2}):(?P<second>[0-9]{2})"

_HTTP_DATES = (
    re.compile(
        _DAY + rb", (?P<day>[0-9]{2}) " + _MONTH + rb" (?P<year>[0-9]{4}) " + _TIME + b" GMT"
    ),
    re.compile(
        _LONG_DAY + rb", (?P<day>[0-9]{2})-" + _MONTH + rb"-(?P<year>[0-9]{2}) " + _TIME + b" GMT"
    ),
    re.compile(_DAY + b" " + _MONTH + rb" (?P<day>[ 0-9][0-9]) " + _TIME + rb" (?P<year>[0-9]{4})"),
)
_AMZ_DATE = re.compile(r"([0-9]{4})([0-9]{2})([0-9]{2})T([0-9]{2})([0-9]{2})([0-9]{2})Z", re.ASCII)

_AMZ_DATE_LENGTH = len("20130524T000000Z")
_CENTURY_TURN = 70
"""Two-digit years from here on are of the last century: RFC 850 dates ended with it."""


def parseAmzDate(text: str) -> int | None:
    """
    Read C{20130524T000000Z}.

    @return: Seconds since the epoch; L{None} if it is not such a date.
    """
    # Checked here too, so that no long text stays in the cache.
    if len(text) != _AMZ_DATE_LENGTH:
        return None
    return _amzSeconds(text)


# Requests of one second carry the same text; 0.1 microseconds instead of 1.5.
@lru_cache(maxsize=256)
def _amzSeconds(text: str) -> int | None:
    match = _AMZ_DATE.fullmatch(text)
    if match is None:
        return None
    return _seconds(*map(int, match.groups()))


def formatAmzDate(seconds: int) -> str:
    """Write C{20130524T000000Z} for seconds since the epoch."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y%m%dT%H%M%SZ")


def parseHttpDate(value: bytes) -> int | None:
    """
    Read an HTTP date in any of its three forms (RFC 9110 section 5.6.7).

    @return: Seconds since the epoch; L{None} if it is not such a date.
    """
    value = value.strip(b" \t")
    for pattern in _HTTP_DATES:
        match = pattern.fullmatch(value)
        if match is not None:
            part = match.groupdict()
            year = int(part["year"])
            if len(part["year"]) == 2:
                year += 1900 if year >= _CENTURY_TURN else 2000
            month = _MONTHS.index(part["month"]) + 1
            clock = (int(part["hour"]), int(part["minute"]), int(part["second"]))
            return _seconds(year, month, int(part["day"]), *clock)
    return None


def _seconds(year: int, month: int, day: int, hour: int, minute: int, second: int) -> int | None:
    try:
        return int(datetime(year, month, day, hour, minute, second, tzinfo=UTC).timestamp())
    except ValueError:
        return None
