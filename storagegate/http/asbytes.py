"""The pieces of a body that handlers give."""

from typing import Any


def asBytes(chunk: Any) -> bytes:
    """
    Give a piece of a body as bytes; text is UTF-8.

    @raise TypeError: If it is neither text nor bytes: C{bytes(7)} would be seven NULs.
    """
    if isinstance(chunk, str):
        return chunk.encode()
    if isinstance(chunk, bytes | bytearray | memoryview):
        return bytes(chunk)
    raise TypeError(f"a piece of a body is text or bytes, not {type(chunk).__name__}")
