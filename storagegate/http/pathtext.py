"""
The path of a request, as patterns look at it.

It is taken apart at its slashes before anything is decoded, so that an escaped slash splits
nothing.
"""

import re
from collections.abc import Sequence
from urllib.parse import unquote_to_bytes

_MALFORMED = re.compile(r"%(?![0-9A-Fa-f]{2})", re.ASCII)


class MalformedEscape(ValueError):
    """
    An escape in the path stands for nothing: it is cut short, or its bytes are not UTF-8.

    @cvar statusCode: The status of the answer.
    """

    statusCode = 400

    def __init__(self) -> None:
        super().__init__("A percent escape in the path is malformed")


class PathText:
    """
    A path, taken apart.

    @ivar segments: The raw text between the slashes; the first one is what stands before the
        leading slash, nothing.
    @ivar values: The same, decoded; C{None} where an escape is malformed.
    @ivar keys: The same, decoded and with its case folded if case is ignored; C{None} is no
        literal's.
    """

    __slots__ = ("keys", "path", "segments", "values")

    keys: Sequence[str | None]
    values: Sequence[str | None]

    def __init__(self, path: str, caseSensitive: bool, limit: int = -1) -> None:
        """
        Take a path apart.

        @param limit: How many slashes to look at; what comes after stays one piece. -1 is all.
        """
        self.path = path
        self.segments = segments = path.split("/", limit)
        if "%" in path or not path.isascii():
            self.values = values = [decodeEscapes(segment) for segment in segments]
            self.keys = values if caseSensitive else [text and foldCase(text) for text in values]
            return
        self.values = self.keys = segments
        # Once for the whole path; and most paths have nothing to fold.
        if not caseSensitive and (folded := path.lower()) != path:
            self.keys = folded.split("/", limit)

    def offset(self, at: int) -> int:
        """Give where in the path a segment begins."""
        return sum(map(len, self.segments[:at])) + at


def decodeEscapes(raw: str) -> str | None:
    """
    Undo percent escapes, once.

    @return: C{None} if one is not C{%} and two hexadecimal digits, or the text is not UTF-8.
    """
    if "%" not in raw:
        return raw
    if _MALFORMED.search(raw) is not None:
        return None
    try:
        return unquote_to_bytes(raw).decode("utf-8")
    except UnicodeError:
        return None


def foldCase(text: str) -> str:
    """Give what texts have in common that differ in case only."""
    folded = text.lower()
    # The Kelvin sign's lower case is a plain k: what a proxy in front of us let pass as a foreign
    # letter must not turn into a name that it guards.
    return folded if folded.isascii() == text.isascii() else text
