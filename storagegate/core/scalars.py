"""
Strict readings of numbers and sizes.

Numbers that arrive from the wire, a flag or a file pass through here: Python's own C{int} takes
C{"1_0"}, C{"+1"}, C{" 1 "} and digits of any script, none of which is a length.
"""

import re

_DIGITS = re.compile(r"[0-9]+", re.ASCII)
_SIZE = re.compile(r"([0-9]{1,15})(?:\.([0-9]{1,3}))?\s*(b|kb|mb|gb|tb)?", re.ASCII | re.IGNORECASE)
_UNITS = {"b": 1, "kb": 1 << 10, "mb": 1 << 20, "gb": 1 << 30, "tb": 1 << 40}


def parseDecimal(text: str | bytes, maximum: int) -> int:
    """
    Read a non-negative whole number of ASCII digits.

    @param text: The digits and nothing else.
    @param maximum: The largest number that is allowed.
    @raise ValueError: If anything but digits is there, or the number is over C{maximum}.
    """
    if isinstance(text, bytes):
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
