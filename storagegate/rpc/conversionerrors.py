"""What is wrong with a value, and where in a message it is, in words that may be logged."""

from typing import Any

DEPTH_LIMIT = 100
"""
As deep as a message may nest below the outermost one: protobuf's parsers read no deeper. As on the
wire, the entry of a map is a level too.
"""

_QUOTED = 60
"""Characters that are shown of a value: enough to know it by, not a copy of it."""

_PATH = 240
"""Characters of a path: it may have to travel in a status message, keys of the client's in it."""


class ConversionError(ValueError):
    """
    A value that does not fit its message.

    @ivar path: The field, such as C{users[2].address.zipCode}; empty for the message itself.
    @ivar reason: What is wrong with it, such as C{is a string, not 5}.
    """

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(path, reason)
        self.path = path
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.path}: {self.reason}" if self.path else self.reason

    def within(self, step: str) -> "ConversionError":
        """
        Give the same error as seen from one level further out.

        @param step: The field's name, or an index or a key in brackets.
        """
        dot = "." if self.path and self.path[0] != "[" else ""
        path = f"{step}{dot}{self.path}"
        if len(path) > _PATH:
            path = "..." + path[3 - _PATH :]
        return ConversionError(path, self.reason)


def tooDeep() -> ConversionError:
    """Make the error for what is below L{DEPTH_LIMIT}."""
    return ConversionError("", f"is nested deeper than {DEPTH_LIMIT} levels")


def wrongType(expected: str, value: Any) -> ConversionError:
    """Make the error for a value of another kind than its field."""
    return ConversionError("", f"is {expected}, not {quoted(value)}")


def quoted(value: Any) -> str:
    """Show a value in at most 60 characters, whatever it is."""
    if isinstance(value, str):
        text = repr(value[:_QUOTED])
    elif isinstance(value, bytes | bytearray):
        text = repr(bytes(value[:_QUOTED]))
    elif value is None or isinstance(value, bool | float):
        text = repr(value)
    elif isinstance(value, int):
        bits = value.bit_length()
        # Python itself refuses to write very long numbers.
        text = f"{value:d}" if bits < 4 * _QUOTED else f"a number of {bits} bits"
    else:
        text = f"a {type(value).__name__}"
    return text if len(text) <= _QUOTED else text[: _QUOTED - 3] + "..."


def asStep(key: Any) -> str:
    """Give a key of a dictionary as a step of a path."""
    if isinstance(key, str) and key.isprintable() and 0 < len(key) <= _QUOTED:
        return key
    return quoted(key)
