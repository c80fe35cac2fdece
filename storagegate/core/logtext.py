"""Text of others in lines of a log."""

import re

# What could end a line, speak to a terminal, or end a field in quotes; and what no encoding has.
_UNSAFE = re.compile('[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff"\\\\]')

# The same for a whole line, in which quotes and colours may be meant.
_UNSAFE_LINE = re.compile(
    "[\x00-\x1a\x1c-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]|\x1b(?!\\[[0-9;]*m)"
)
# The same for a message, in which quotes may be meant, and no colours.
_UNSAFE_MESSAGE = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
_ESCAPES = {
    "\\": r"\\",
    '"': r"\"",
    "\b": r"\b",
    "\f": r"\f",
    "\n": r"\n",
    "\r": r"\r",
    "\t": r"\t",
}


def escapeField(text: str) -> str:
    """Escape what does not belong in one field of one line."""
    return _UNSAFE.sub(_escape, text)


def escapeLine(text: str) -> str:
    """Escape what does not belong in one line; quotes and colours do."""
    return _UNSAFE_LINE.sub(_escape, text)


def escapeMessage(text: str) -> str:
    """Escape what does not belong in one line; quotes do."""
    return _UNSAFE_MESSAGE.sub(_escape, text)


def _escape(match: re.Match[str]) -> str:
    return _ESCAPES.get(match[0]) or f"\\u{ord(match[0]):04x}"
