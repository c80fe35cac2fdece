"""Text of others in lines of a log."""

import re
from functools import cache

_ESCAPES = {
    "\\": r"\\",
    '"': r"\"",
    "\b": r"\b",
    "\f": r"\f",
    "\n": r"\n",
    "\r": r"\r",
    "\t": r"\t",
}


@cache
def _unsafe() -> re.Pattern[str]:
    """
    Find what could end a line or speak to a terminal, and what no encoding has.

    These patterns take a quarter of a megabyte to compile, and hardly any text needs them.
    """
    return re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")


@cache
def _unsafeInField() -> re.Pattern[str]:
    """Find also what could end a field in quotes."""
    return re.compile('[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff"\\\\]')


@cache
def _unsafeInLine() -> re.Pattern[str]:
    """Find the same in a whole line, in which quotes and colours may be meant."""
    return re.compile("[\x00-\x1a\x1c-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]|\x1b(?!\\[[0-9;]*m)")


def escapeField(text: str) -> str:
    """Escape what does not belong in one field of one line."""
    if text.isprintable() and '"' not in text and "\\" not in text:
        return text
    return _unsafeInField().sub(_escape, text)


def escapeLine(text: str) -> str:
    """Escape what does not belong in one line; quotes and colours do."""
    return text if text.isprintable() else _unsafeInLine().sub(_escape, text)


def escapeMessage(text: str) -> str:
    """Escape what does not belong in one line; quotes do, and colours do not."""
    return text if text.isprintable() else _unsafe().sub(_escape, text)


def _escape(match: re.Match[str]) -> str:
    return _ESCAPES.get(match[0]) or f"\\u{ord(match[0]):04x}"
