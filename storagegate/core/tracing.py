"""
Which trace a call belongs to: the C{traceparent} of W3C Trace Context.

U{https://www.w3.org/TR/trace-context/#traceparent-header}: C{version-traceid-parentid-flags}, all
in lower-case hexadecimal digits.
"""

import re
from random import Random

from storagegate.core.context import Tracing

_TRACEPARENT = re.compile(
    r"(?P<version>[0-9a-f]{2})-(?P<trace>[0-9a-f]{32})-(?P<span>[0-9a-f]{16})-"
    r"(?P<flags>[0-9a-f]{2})(?P<more>-.*)?"
)

# Section 3.2.2.3 asks for randomness, not for secrecy, which costs a system call a call. Its own
# generator: a user may seed Python's.
_randomBits = Random().getrandbits


def parseTraceparent(text: str) -> Tracing | None:
    """Read a caller's trace; C{None} if the text is none (section 3.2.2)."""
    match = _TRACEPARENT.fullmatch(text)
    if match is None or match["version"] == "ff" or (match["version"] == "00" and match["more"]):
        return None
    if not int(match["trace"], 16) or not int(match["span"], 16):
        return None
    return Tracing(match["trace"], match["span"], bool(int(match["flags"], 16) & 1))


def newTracing() -> Tracing:
    """Begin a trace of our own."""
    return Tracing(f"{_randomBits(128):032x}")
