"""The priorities of responses (RFC 9218)."""

import re

_MEMBER = re.compile(rb"(u|i)(?:=(?:([0-7])|\?([01])))?(?:;[^,]*)?")


def readPriority(value: bytes) -> int:
    """
    Read a C{Priority} field (section 4): a dictionary of which C{u} and C{i} count.

    @param value: Malformed members are ignored, as section 4 demands.
    @return: The L{Stream.level<storagegate.net.http2.stream.Stream>}: twice the urgency, 0 to 7,
        and 1 more if the response is incremental.
    """
    urgency, isIncremental = 3, False
    for part in value.split(b",", 16)[:16]:
        found = _MEMBER.fullmatch(part.strip(b" \t"))
        if found is None:
            continue
        name, number, flag = found.groups()
        if name == b"u" and number is not None:
            urgency = int(number)
        elif name == b"i" and number is None:
            isIncremental = flag != b"0"
    return 2 * urgency + isIncremental


class WaitingPriorities:
    """
    Priorities of requests that have not come yet (section 7.1).

    Requests come in the order of their numbers, so the ones below the highest never come.
    """

    __slots__ = ("_levels", "_most")

    def __init__(self, most: int) -> None:
        """
        @param most: How many are kept; others are ignored, as they are only hints.
        """
        self._levels: dict[int, int] = {}
        self._most = most

    def add(self, number: int, level: int, highest: int) -> None:
        """
        Keep a level.

        @param highest: The highest number of a request that came.
        """
        levels = self._levels
        if number not in levels and len(levels) >= self._most:
            for each in [each for each in levels if each <= highest]:
                del levels[each]
            if len(levels) >= self._most:
                return
        levels[number] = level

    def pop(self, number: int) -> int | None:
        """Return the level of a request that comes now; C{None} if it has none."""
        return self._levels.pop(number, None) if self._levels else None
