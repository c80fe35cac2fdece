"""Parameter and result values in PostgreSQL's binary format."""

from collections.abc import Callable, Sequence
from struct import Struct, pack

Value = bytes | None
"""A parameter or column; L{None} is C{NULL}. Text is UTF-8."""

int8: Callable[[int], bytes] = Struct("!q").pack
int4: Callable[[int], bytes] = Struct("!i").pack
float8: Callable[[float], bytes] = Struct("!d").pack

TRUE = b"\x01"
FALSE = b"\x00"

# Type OIDs, which PostgreSQL never changes.
BYTEA = 17
_INT8 = 20
_INT4 = 23
TEXT = 25


def boolean(value: bool) -> bytes:
    """Encode a boolean."""
    return TRUE if value else FALSE


def optional(encode: Callable[[int], bytes], value: int | None) -> Value:
    """Encode a number that may be absent."""
    return None if value is None else encode(value)


def integer(value: Value) -> int:
    """Decode an integer of any length, which must not be C{NULL}."""
    assert value is not None
    return int.from_bytes(value, "big", signed=True)


def int8Array(values: Sequence[int]) -> bytes:
    """Encode 8-byte integers."""
    return _array(_INT8, [int8(value) for value in values])


def int4Array(values: Sequence[int]) -> bytes:
    """Encode 4-byte integers."""
    return _array(_INT4, [int4(value) for value in values])


def textArray(values: Sequence[str]) -> bytes:
    """Encode texts."""
    return _array(TEXT, [value.encode() for value in values])


def byteaArray(values: Sequence[Value]) -> bytes:
    """Encode byte strings, some of which may be absent."""
    return _array(BYTEA, values)


def _array(kind: int, values: Sequence[Value]) -> bytes:
    if not values:
        return pack("!iii", 0, 0, kind)
    parts = [pack("!iiiii", 1, 1 if None in values else 0, kind, len(values), 1)]
    for value in values:
        if value is None:
            parts.append(b"\xff\xff\xff\xff")
        else:
            parts += (int4(len(value)), value)
    return b"".join(parts)


def isText(*values: str) -> bool:
    """Return whether PostgreSQL can store texts. It cannot store NUL."""
    return not any("\0" in value for value in values)
