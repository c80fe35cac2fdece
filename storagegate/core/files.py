"""
Small files, which are read whole, and CRCs computed by the AWS library (CRC32C at 59 GB/s).

The library is imported on first use, because its self-test takes 45 ms of CPU time and its code
4.4 MB of memory.
"""

import os
from collections.abc import Callable
from functools import cache

# A key or a chain takes a few kilobytes, and the roots of a whole system 250.
_PEM_LIMIT = 1024 * 1024


class FileTooLong(ValueError):
    """A file is too large; the message does not name it."""


class PEMFileError(ValueError):
    """A file of certificates or keys cannot be read; the message begins with its name."""


def readSmallFile(path: str | os.PathLike[str], limit: int) -> bytes:
    """
    Read a file, in any thread.

    @param path: The file; a link is followed.
    @param limit: The maximum number of bytes; at most one more byte is read.
    @raise OSError: If the file cannot be read.
    @raise FileTooLong: If the file is larger than the limit.
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
    @raise PEMFileError: If the file cannot be read, or is longer than 1 MiB.
    """
    try:
        return readSmallFile(path, _PEM_LIMIT)
    except OSError as error:
        raise PEMFileError(f"{path}: {error.strerror}") from None
    except FileTooLong:
        raise PEMFileError(f"{path} is longer than 1 MiB") from None


def fileStamp(path: str | os.PathLike[str]) -> tuple[int, ...]:
    """Return values that differ after a change of a file; empty if it cannot be read."""
    try:
        found = os.stat(path)
    except OSError:
        return ()
    return (found.st_mtime_ns, found.st_ctime_ns, found.st_size, found.st_ino, found.st_dev)


CRCFunction = Callable[..., int]
"""C{crc(buffer, previous)}; C{previous} is the CRC of the preceding bytes, 0 by default."""


@cache
def crcFunction(name: str) -> CRCFunction:
    """
    Return a CRC function of the library.

    @param name: C{crc32}, C{crc32c} or C{crc64nvme}; each also with the prefix C{combine_}.
    """
    # Imported late, see the head of this file.
    from awscrt import checksums

    function: CRCFunction = getattr(checksums, name)
    return function


def _late(name: str) -> CRCFunction:
    return lambda *arguments: crcFunction(name)(*arguments)


crc32 = _late("crc32")
crc32c = _late("crc32c")
crc64nvme = _late("crc64nvme")

combineCRC32 = _late("combine_crc32")
"""
Combines the CRCs of two runs of data; takes both CRCs and the length of the second run in bytes.
"""

combineCRC32C = _late("combine_crc32c")
combineCRC64NVME = _late("combine_crc64nvme")
