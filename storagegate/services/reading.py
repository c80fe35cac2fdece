"""
Requests, read field by field: what is wrong with one is gathered, and told at once.

C{None} is as if it were not there.
"""

import re
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

from storagegate.core.errors import ServiceError, codedError
from storagegate.core.scalars import parseDecimal

LARGEST = (1 << 31) - 1
"""Numbers are C{int32} in the proto."""

# No more than nine digits after the point are a Timestamp's.
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,9})?(Z|[+-]\d\d:\d\d)", re.ASCII)
_ID = re.compile(r"[0-9a-fA-F]{32}")
_UNPRINTABLE = frozenset(("Cc", "Cs", "Zl", "Zp"))


def invalid(path: str, message: str) -> ServiceError:
    """Make the error of one mistake."""
    return _refusal([{"path": path, "message": message}])


class Reading:
    """One request, and what is wrong with it so far."""

    def __init__(self, request: Any) -> None:
        if not isinstance(request, Mapping):
            raise invalid("", "is an object")
        self._request = request
        self._violations: list[dict[str, str]] = []

    def __contains__(self, name: str) -> bool:
        return self.get(name) is not None

    def get(self, name: str) -> Any:
        """Give a value as it is."""
        return self._request.get(name)

    def wrong(self, path: str, message: str) -> None:
        """Take note of a mistake."""
        self._violations.append({"path": path, "message": message})

    def end(self) -> None:
        """Refuse the request if there was any."""
        if self._violations:
            raise _refusal(self._violations)

    def id(self, name: str) -> str:
        """Read the id of a user."""
        value = self.get(name)
        if isinstance(value, str) and _ID.fullmatch(value):
            return value.lower()
        self.wrong(name, "is required" if value in (None, "") else "is not 32 hexadecimal digits")
        return ""

    def text(self, name: str, maximum: int, required: bool = False) -> str | None:
        """Read text, C{None} where there is none; blank is not enough where it is required."""
        return self._checked(name, self.get(name), maximum, required, _hasSurrogate)

    def line(self, name: str, maximum: int, required: bool = False) -> str | None:
        """Read text without control characters, else as L{text}."""
        return self._checked(name, self.get(name), maximum, required, _hasControl)

    def lineAt(self, path: str, value: Any, maximum: int, required: bool = False) -> str | None:
        """Read a value that lies deeper as L{line} does."""
        return self._checked(path, value, maximum, required, _hasControl)

    def time(self, name: str) -> str | None:
        """Read a time of RFC 3339, as it is written."""
        value = self.get(name)
        if value in (None, ""):
            return None
        try:
            if isinstance(value, str) and _TIME.fullmatch(value) and datetime.fromisoformat(value):
                return value
        except ValueError:
            pass
        self.wrong(name, "is no time of RFC 3339")
        return None

    def number(self, name: str) -> int:
        """Read a number from 0 on; 0 where there is none."""
        value = self.get(name)
        # A query string's numbers are text.
        if isinstance(value, str):
            try:
                return parseDecimal(value, LARGEST)
            except ValueError:
                value = None
        elif value is None:
            return 0
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= LARGEST:
            self.wrong(name, f"is a whole number from 0 to {LARGEST}")
            return 0
        return value

    def choice(
        self, name: str, choices: Sequence[str], default: str, ignoreCase: bool = False
    ) -> str:
        """Read one of some words."""
        value = self.get(name)
        value = default if value in (None, "") else value
        if ignoreCase and isinstance(value, str):
            value = value.lower()
        if value not in choices:
            self.wrong(name, f"is one of {', '.join(choices)}")
            return default
        return str(value)

    def _checked(
        self, path: str, value: Any, maximum: int, required: bool, isBad: Callable[[str], bool]
    ) -> str | None:
        if required and (value in (None, "") or (isinstance(value, str) and value.isspace())):
            self.wrong(path, "is required")
        elif value is None:
            return None
        elif not isinstance(value, str):
            self.wrong(path, "is text")
        elif len(value) > maximum:
            self.wrong(path, f"has at most {maximum} characters")
        elif isBad(value):
            self.wrong(path, "has characters that are no text")
        else:
            return value
        return None


def _refusal(violations: list[dict[str, str]]) -> ServiceError:
    said = "; ".join(f"{each['path'] or 'the request'} {each['message']}" for each in violations)
    return codedError("INVALID_ARGUMENT", said, violations)


def _hasSurrogate(text: str) -> bool:
    # Not to be written as UTF-8.
    return not text.isascii() and any("\ud800" <= letter <= "\udfff" for letter in text)


def _hasControl(text: str) -> bool:
    if text.isprintable():
        return False
    return any(unicodedata.category(letter) in _UNPRINTABLE for letter in text)
