"""
Small files, which are read whole, and CRCs as the AWS library computes them: CRC32C at 59 GB/s.

The library is imported at its first use: it takes 45 ms of CPU time to test itself, and 4.4 MB,
which a start or a daemon without objects does not pay.
"""

import os
from collections.abc import Callable
from functools import cache
from typing import Any

# A key or a chain is a few kilobytes, the roots of a whole system 250.
_PEM_LIMIT = 1024 * 1024


class FileTooLong(ValueError):
    """A file is too large; the text does not have its name."""


class PEMFileError(ValueError):
    """A file of certificates or keys cannot be read; the text begins with its name."""


def readSmallFile(path: str | os.PathLike[str], limit: int) -> bytes:
    """
    Read a file, in any thread.

    @param path: The file; a link is followed.
    @param limit: The largest number of bytes; one byte more is read at most.
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

    @param path: The file, of at most 1 MiB.
    @raise PEMFileError: If it cannot be read, or is longer than any such file.
    """
    try:
        return readSmallFile(path, _PEM_LIMIT)
    except OSError as error:
        raise PEMFileError(f"{path}: {error.strerror}") from None
    except FileTooLong:
        raise PEMFileError(f"{path} is longer than 1 MiB") from None


def fileStamp(path: str | os.PathLike[str]) -> tuple[int, ...]:
    """Return values that differ after a change of a file; none if it cannot be read."""
    try:
        found = os.stat(path)
    except OSError:
        return ()
    return (found.st_mtime_ns, found.st_ctime_ns, found.st_size, found.st_ino, found.st_dev)


@cache
def crcFunction(name: str) -> Callable[[Any, int], int]:
    """
    Return the library's function of a CRC, which the wrappers below call.

    @param name: C{crc32}, C{crc32c} or C{crc64nvme}.
    """
    function: Callable[[Any, int], int] = getattr(_library(), name)
    return function


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

    @param first: The CRC32 of the first run.
    @param second: The CRC32 of the second run.
    @param length: Of the second run, in bytes.
    """
    result: int = _library().combine_crc32(first, second, length)
    return result


def combineCRC32C(first: int, second: int, length: int) -> int:
    """
    Compute the CRC32C of two runs of data; see L{combineCRC32}.

    @param first: The CRC32C of the first run.
    @param second: The CRC32C of the second run.
    @param length: Of the second run, in bytes.
    """
    result: int = _library().combine_crc32c(first, second, length)
    return result


def combineCRC64NVME(first: int, second: int, length: int) -> int:
    """
    Compute the CRC64NVME of two runs of data; see L{combineCRC32}.

    @param first: The CRC64NVME of the first run.
    @param second: The CRC64NVME of the second run.
    @param length: Of the second run, in bytes.
    """
    result: int = _library().combine_crc64nvme(first, second, length)
    return result


@cache
def _library() -> Any:
    # Imported late, see the head of this file.
    from awscrt import checksums

    return checksums
