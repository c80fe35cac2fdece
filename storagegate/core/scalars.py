"""
Strict readings of numbers and sizes.

Numbers that arrive from the wire, a flag or a file pass through here: Python's own C{int} takes
C{"1_0"}, C{"+1"}, C{" 1 "} and digits of any script, none of which is a length.
"""

import re

_DIGITS = re.compile(r"[0-9]+", re.ASCII)
_SHORT = 16
_SIZE = re.compile(r"([0-9]{1,15})(?:\.([0-9]{1,3}))?\s*(b|kb|mb|gb|tb)?", re.ASCII | re.IGNORECASE)
_AGE = re.compile(r"([0-9]{1,15})(?:\.([0-9]{1,3}))?\s*([a-z]*)", re.ASCII | re.IGNORECASE)
_SECOND = 1000
_DAY = 24 * 60 * 60 * _SECOND
_AGES = {
    name: ms
    for names, ms in (
        ("|ms|msec|msecs|millisecond|milliseconds", 1),
        ("s|sec|secs|second|seconds", _SECOND),
        ("m|min|mins|minute|minutes", 60 * _SECOND),
        ("h|hr|hrs|hour|hours", 60 * 60 * _SECOND),
        ("d|day|days", _DAY),
        ("w|week|weeks", 7 * _DAY),
        # A year as it is on average, as Express's users know it.
        ("y|yr|yrs|year|years", _DAY * 1461 // 4),
    )
    for name in names.split("|")
}
_UNITS = {"b": 1, "kb": 1 << 10, "mb": 1 << 20, "gb": 1 << 30, "tb": 1 << 40}


def parseDecimal(text: str | bytes, maximum: int) -> int:
    """
    Read a non-negative whole number of ASCII digits.

    @param text: The digits and nothing else.
    @param maximum: The largest number that is allowed.
    @raise ValueError: If anything but digits is there, or the number is over C{maximum}.
    """
    if isinstance(text, bytes):
        if len(text) < _SHORT and text.isdigit():
            # Nearly all lengths, in a quarter of the time: of bytes, only 0 to 9 are digits.
            number = int(text)
            if number <= maximum:
                return number
        text = text.decode("latin-1")
    # The digits are counted first: converting a very long string takes quadratic time.
    if not _DIGITS.fullmatch(text) or len(text.lstrip("0")) > len(str(maximum)):
        raise ValueError(f"not a whole number from 0 to {maximum}")
    number = int(text)
    if number > maximum:
        raise ValueError(f"not a whole number from 0 to {maximum}")
    return number


def parseSize(value: int | str) -> int:
    """
    Read a size: bytes as a number, or text with a 1024-based unit (C{"10mb"}, C{"1.5gb"}).

    @return: The size in bytes.
    @raise ValueError: If the text is no size or the number is negative.
    """
    if isinstance(value, bool):
        raise ValueError("a size is a number of bytes or text such as 10mb")
    if isinstance(value, int):
        if value < 0:
            raise ValueError("a size cannot be negative")
        return value
    match = _SIZE.fullmatch(value.strip())
    if match is None:
        raise ValueError("a size is a number of bytes or text such as 10mb")
    whole, fraction, unit = match.groups()
    factor = _UNITS[(unit or "b").lower()]
    size = int(whole) * factor
    if fraction:
        size += int(fraction) * factor // 10 ** len(fraction)
    return size


def parseAge(value: float | str) -> int:
    """
    Read an age: milliseconds as a number, or text with a unit (C{"1d"}, C{"2 hours"}, C{"1.5h"}).

    @return: The age in milliseconds.
    @raise ValueError: If the text is no age or the number is negative.
    """
    problem = "an age is a number of milliseconds or text such as 1d"
    if isinstance(value, int | float) and not isinstance(value, bool):
        # Not a number, too, is not from 0 on.
        if not 0 <= value < float("inf"):
            raise ValueError("an age cannot be negative or without end")
        return int(value)
    match = _AGE.fullmatch(value.strip()) if isinstance(value, str) else None
    if match is None:
        raise ValueError(problem)
    whole, fraction, unit = match.groups()
    factor = _AGES.get(unit.lower())
    if factor is None:
        raise ValueError(problem)
    age = int(whole) * factor
    if fraction:
        age += int(fraction) * factor // 10 ** len(fraction)
    return age
