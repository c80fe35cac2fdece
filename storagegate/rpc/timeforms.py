"""
Moments and lengths of time, as protobuf's JSON has them.

C{google.protobuf.Timestamp} is C{"2026-01-02T03:04:05.678Z"} (RFC 3339 section 5.6, in capitals),
C{google.protobuf.Duration} is C{"-1.500s"}; a fraction has three, six or nine digits.
"""

import math
import re
from datetime import UTC, datetime, timedelta
from typing import Any

from storagegate.rpc.conversionerrors import ConversionError, wrongType
from storagegate.rpc.forms import Form

_NANOS = 1_000_000_000
_DAY = 24 * 60 * 60
_EPOCH = datetime(1970, 1, 1)
_EPOCH_UTC = datetime(1970, 1, 1, tzinfo=UTC)
_FIRST = -62_135_596_800
"""The first second of the year 1."""
_LAST = 253_402_300_799
"""The last one of the year 9999."""
_LONGEST = 315_576_000_000
"""Seconds in 10,000 years, the longest C{Duration}."""

_MOMENT = re.compile(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2}T(?:[01][0-9]|2[0-3]):[0-9]{2}:[0-9]{2})(?:\.([0-9]{1,9}))?"
    r"(?:Z|([+-])([01][0-9]|2[0-3]):([0-5][0-9]))"
)
_LENGTH = re.compile(r"(-?)([0-9]{1,12})(?:\.([0-9]{1,9}))?s")


def _fraction(nanos: int) -> str:
    if not nanos:
        return ""
    if nanos % 1_000_000 == 0:
        return f".{nanos // 1_000_000:03d}"
    if nanos % 1_000 == 0:
        return f".{nanos // 1_000:06d}"
    return f".{nanos:09d}"


def _nanosOf(digits: str | None) -> int:
    return int(digits.ljust(9, "0")) if digits else 0


def _readTimestamp(message: Any, depth: int) -> str:
    seconds, nanos = message.seconds, message.nanos
    if not (_FIRST <= seconds <= _LAST and 0 <= nanos < _NANOS):
        raise ConversionError("", "is no moment of the years 1 to 9999")
    return f"{(_EPOCH + timedelta(0, seconds)).isoformat()}{_fraction(nanos)}Z"


def _fillTimestamp(message: Any, value: Any, depth: int) -> None:
    if isinstance(value, str):
        since, nanos = _parseMoment(value)
    elif isinstance(value, datetime):
        since = value - (_EPOCH if value.utcoffset() is None else _EPOCH_UTC)
        nanos = since.microseconds * 1_000
    else:
        raise wrongType("a moment such as 2026-01-02T03:04:05Z", value)
    seconds = since.days * _DAY + since.seconds
    if not _FIRST <= seconds <= _LAST:
        raise wrongType("a moment of the years 1 to 9999", value)
    message.seconds = seconds
    message.nanos = nanos


def _parseMoment(text: str) -> tuple[timedelta, int]:
    match = _MOMENT.fullmatch(text)
    if match is None:
        raise wrongType("a moment such as 2026-01-02T03:04:05Z", text)
    moment, fraction, sign, hours, minutes = match.groups()
    try:
        since = datetime.fromisoformat(moment) - _EPOCH
    except ValueError:
        raise wrongType("a day and a time that there are", text) from None
    if sign is not None:
        offset = timedelta(hours=int(hours), minutes=int(minutes))
        since += offset if sign == "-" else -offset
    return since, _nanosOf(fraction)


def _readDuration(message: Any, depth: int) -> str:
    seconds, nanos = message.seconds, message.nanos
    if not (-_LONGEST <= seconds <= _LONGEST and -_NANOS < nanos < _NANOS) or seconds * nanos < 0:
        raise ConversionError("", "is no length of time up to 10,000 years")
    sign = "-" if seconds < 0 or nanos < 0 else ""
    return f"{sign}{abs(seconds)}{_fraction(abs(nanos))}s"


def _fillDuration(message: Any, value: Any, depth: int) -> None:
    nanos = _nanosOfLength(value)
    seconds, rest = divmod(abs(nanos), _NANOS)
    if seconds > _LONGEST:
        raise wrongType("a length of time up to 10,000 years", value)
    sign = -1 if nanos < 0 else 1
    message.seconds = sign * seconds
    message.nanos = sign * rest


def _nanosOfLength(value: Any) -> int:
    if isinstance(value, str):
        match = _LENGTH.fullmatch(value)
        if match is not None:
            sign, seconds, fraction = match.groups()
            nanos = int(seconds) * _NANOS + _nanosOf(fraction)
            return -nanos if sign else nanos
    elif isinstance(value, timedelta):
        return value // timedelta(microseconds=1) * 1_000
    elif isinstance(value, int) and not isinstance(value, bool):
        return value * _NANOS
    elif isinstance(value, float) and math.isfinite(value):
        # In two parts: the product of the whole would lose digits.
        whole = int(value)
        return whole * _NANOS + round((value - whole) * _NANOS)
    raise wrongType("a length of time such as 1.5s", value)


TIME_FORMS = {
    "google.protobuf.Timestamp": Form(_readTimestamp, _fillTimestamp),
    "google.protobuf.Duration": Form(_readDuration, _fillDuration),
}
"""The forms by the message's full name."""
