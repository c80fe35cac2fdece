"""Which ranges of a file a request gets (RFC 9110 section 14.2)."""

from collections.abc import Sequence

from storagegate.http.errors import HTTPError
from storagegate.net.httpranges import ByteRange, parseRange, unsatisfiedRange

MAX_RANGES = 100
"""
What a reader of a long document asks for at once, and some more. A thousand ranges cost a client
one header, and the server a thousand heads of parts.
"""


def findRanges(value: bytes, size: int) -> Sequence[ByteRange] | None:
    """
    Find the bytes that a C{Range} asks for; ranges that touch or overlap become one.

    @return: In the order of the request; L{None} if the field is to be ignored.
    @raise HTTPError: 416 if there are none of these bytes, or too many ranges.
    """
    if value.count(b",") < MAX_RANGES:
        found = parseRange(value, size)
        if found is None:
            return None
        if found:
            return found if len(found) == 1 else _combined(found)
    contentRange = unsatisfiedRange(size).decode()
    raise HTTPError(416, "Range Not Satisfiable", headers={"Content-Range": contentRange})


def _combined(ranges: Sequence[ByteRange]) -> Sequence[ByteRange]:
    """Join ranges; each run stands where the first of its ranges was."""
    # First offset, last offset, place in the request.
    runs: list[tuple[int, int, int]] = []
    ordered = sorted((one.first, one.last, place) for place, one in enumerate(ranges))
    for first, last, place in ordered:
        if runs and first <= runs[-1][1] + 1:
            before = runs.pop()
            runs.append((before[0], max(before[1], last), min(before[2], place)))
        else:
            runs.append((first, last, place))
    runs.sort(key=lambda run: run[2])
    return [ByteRange(first, last) for first, last, _ in runs]
