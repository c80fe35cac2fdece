"""The priorities of responses (RFC 9218)."""

import re

_MEMBER = re.compile(rb"(u|i)(?:=(?:([0-7])|\?([01])))?(?:;[^,]*)?")


def readPriority(value: bytes) -> tuple[int, bool]:
    """
    Read a C{Priority} field (section 4): a dictionary of which C{u} and C{i} count.

    @param value: Malformed members are ignored, as section 4 demands.
    @return: The urgency, 0 to 7, and whether the response is incremental.
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
    return urgency, isIncremental
