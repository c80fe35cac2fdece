"""Files that are small by what they are: they are read whole, and seen to have changed."""

import os

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
