"""Lines of a log made of values: an object of JSON, or C{name=value}."""

import re
import time
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from msgspec import json

from storagegate.core.logtext import escapeField

# No reader of name=value takes a part of this for the end of the value.
_PLAIN = re.compile(r'[^\s="\\]+')

_encode = json.Encoder().encode


def asJSON(values: Mapping[str, Any]) -> bytes:
    """
    Write values as an object in one line.

    Control characters are escaped as JSON has it; what no encoding has, such as bytes that were no
    UTF-8, stands there as the text C{\\udc80}.
    """
    try:
        line = _encode(values)
    except UnicodeEncodeError:
        line = _encode({name: _encodable(value) for name, value in values.items()})
    # Next to every line is plain ASCII, and both questions together take 0.1 microseconds.
    if line.isascii() and b"\x7f" not in line:
        return line
    return _unsafe().sub(lambda match: f"\\u{ord(match[0]):04x}", line.decode()).encode()


def asText(values: Mapping[str, Any]) -> bytes:
    """Write values as C{name=value}, in quotes where a value could be taken for more than one."""
    return " ".join([f"{name}={_quoted(str(value))}" for name, value in values.items()]).encode()


FORMATS: Mapping[str, Callable[[Mapping[str, Any]], bytes]] = {"json": asJSON, "text": asText}
"""How lines are written, by the word of the options."""


class TimeStamps:
    """Writes times as RFC 3339 has them, in UTC with milliseconds."""

    def __init__(self) -> None:
        # In one piece, for several threads may write.
        self._last = (-1, "", -1, "")

    def format(self, when: float) -> str:
        """
        Write a time.

        @param when: Seconds since 1970.
        """
        milliseconds = int(when * 1000)
        known, text, second, start = self._last
        if milliseconds == known:
            return text
        if milliseconds // 1000 != second:
            # Which takes 1.5 microseconds, as much as all else that a line costs.
            second = milliseconds // 1000
            start = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(second))
        text = f"{start}.{milliseconds % 1000:03d}Z"
        self._last = (milliseconds, text, second, start)
        return text


@cache
def _unsafe() -> re.Pattern[str]:
    """Find what JSON may carry, and terminals and readers of lines take for more than text."""
    return re.compile("[\x7f-\x9f\u2028\u2029]")


def _encodable(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    return value


def _quoted(text: str) -> str:
    isPlain = text.isprintable() and _PLAIN.fullmatch(text)
    return text if isPlain else f'"{escapeField(text)}"'
