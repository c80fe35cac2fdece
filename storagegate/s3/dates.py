"""Dates in requests and policies."""

import re
from datetime import UTC, datetime

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
