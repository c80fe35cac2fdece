"""
Percent escapes, strictly.

S3 signs what was sent and stores what was meant, so an escape is undone exactly once, and one that
is not C{%} and two hexadecimal digits is an error rather than text.
"""

import re
from urllib.parse import unquote_to_bytes

_MALFORMED = re.compile(rb"%(?![0-9A-Fa-f]{2})")


def decodePercent(raw: bytes) -> bytes:
    """
    Undo percent escapes, once.

    @raise ValueError: If an escape is malformed.
    """
    if b"%" not in raw:
        return raw
    if _MALFORMED.search(raw) is not None:
        raise ValueError("malformed percent escape")
    return unquote_to_bytes(raw)
