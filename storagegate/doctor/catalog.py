"""
The catalog, as far as the head of its file tells: the daemon does not start without it.

The file is only read. Every page is C{storagegate fsck}'s business.
"""

import os
from collections.abc import Iterator
from struct import Struct

from storagegate.doctor.findings import Check, Finding

_check = Check("catalog")

_NAME = "catalog.sqlite"

# SQLite's file format, section 1.3: name, bytes of a page (1 stands for 65536), count of changes,
# pages, and the count of changes for which that number of pages holds.
_HEAD = Struct(">16sH6xII60xI")
_MAGIC = b"SQLite format 3\0"


def checkCatalog(directory: str, isInUse: bool) -> Iterator[Finding]:
    """
    Look at the file's head and size.

    @param isInUse: Whether a daemon runs on it, which knows it better and is writing it.
    """
    path = os.path.join(directory, _NAME)
    try:
        with open(path, "rb", opener=_open) as file:
            head = file.read(_HEAD.size)
            size = os.fstat(file.fileno()).st_size
    except FileNotFoundError:
        return
    except OSError as error:
        yield _check.problem(f"{path} cannot be read: {error.strerror}")
        return
    if isInUse:
        return
    if len(head) < _HEAD.size or not head.startswith(_MAGIC):
        yield _check.problem(f"{path} is no database: put a copy of the data in its place")
        return
    _, pageBytes, changes, pages, validFor = _HEAD.unpack(head)
    needed = pages * (65536 if pageBytes == 1 else pageBytes)
    if changes == validFor and size < needed:
        yield _check.problem(
            f"{path} is cut off, {size} of {needed} bytes are there: put a copy of the data in its"
            " place"
        )
    else:
        yield _check.ok(f"{path} begins and ends as a catalog does")


def _open(path: str, flags: int) -> int:
    # Whatever has its name, a pipe for one, must not keep anybody waiting.
    return os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC)
