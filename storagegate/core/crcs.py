"""
The CRCs that contents are checked by, as the AWS library computes them: CRC32C at 59 GB/s.

The library is loaded by the first content that is checked. It tests itself then, which takes 45 ms
of CPU time, and keeps 4.4 MB: a start waits for neither, and a daemon that keeps no objects yet, or
is asked for none, never needs them.
"""

from functools import cache
from typing import Any


def crc32(data: Any, before: int = 0) -> int:
    """
    Compute a CRC32.

    @param data: Any buffer.
    @param before: The CRC of the bytes before these.
    """
    result: int = _library().crc32(data, before)
    return result


def crc32c(data: Any, before: int = 0) -> int:
    """Compute a CRC32C; see L{crc32}."""
    result: int = _library().crc32c(data, before)
    return result


def crc64nvme(data: Any, before: int = 0) -> int:
    """Compute a CRC64NVME; see L{crc32}."""
    result: int = _library().crc64nvme(data, before)
    return result


def combineCRC32(first: int, second: int, length: int) -> int:
    """
    Compute the CRC32 of two runs of data from those of each.

    @param length: Of the second run, in bytes.
    """
    result: int = _library().combine_crc32(first, second, length)
    return result


def combineCRC32C(first: int, second: int, length: int) -> int:
    """Compute the CRC32C of two runs of data; see L{combineCRC32}."""
    result: int = _library().combine_crc32c(first, second, length)
    return result


def combineCRC64NVME(first: int, second: int, length: int) -> int:
    """Compute the CRC64NVME of two runs of data; see L{combineCRC32}."""
    result: int = _library().combine_crc64nvme(first, second, length)
    return result


@cache
def _library() -> Any:
    # See the head of this file for what it saves that this is not at the top.
    from awscrt import checksums

    return checksums
