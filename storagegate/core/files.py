"""
Files that are small by what they are: they are read whole, and seen to have changed.

The CRCs that contents are checked by, as the AWS library computes them: CRC32C at 59 GB/s.

The library is loaded by the first content that is checked. It tests itself then, which takes 45 ms
of CPU time, and keeps 4.4 MB: a start waits for neither, and a daemon that keeps no objects yet, or
is asked for none, never needs them.
"""

import os
from functools import cache
from typing import Any

# A key or a chain is a few kilobytes, the roots of a whole system 250.
_PEM_LIMIT = 1024 * 1024


class FileTooLong(ValueError):
    """A file is larger than any of its kind; the text says no name."""


class PEMFileError(ValueError):
    """A file of certificates or keys cannot be read; the text begins with its name."""


def readSmallFile(path: str | os.PathLike[str], limit: int) -> bytes:
    """
    Read a file, in any thread; no more than one byte beyond the limit is ever read.

    @raise OSError: If it cannot be read.
    @raise FileTooLong: If it is larger than the limit.
    """
    with open(path, "rb") as file:
        content = file.read(limit + 1)
    if len(content) > limit:
        raise FileTooLong(f"larger than {limit} bytes")
    return content


def readPEM(path: str | os.PathLike[str]) -> bytes:
    """
    Read a file of certificates or keys, in any thread.

    @raise PEMFileError: If it cannot be read, or is longer than any such file.
    """
    try:
        return readSmallFile(path, _PEM_LIMIT)
    except OSError as error:
        raise PEMFileError(f"{path}: {error.strerror}") from None
    except FileTooLong:
        raise PEMFileError(f"{path} is longer than 1 MiB") from None


def fileStamp(path: str | os.PathLike[str]) -> tuple[int, ...]:
    """Give what is another when a file has changed; nothing if it cannot be looked at."""
    try:
        found = os.stat(path)
    except OSError:
        return ()
    return (found.st_mtime_ns, found.st_ctime_ns, found.st_size, found.st_ino, found.st_dev)


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
