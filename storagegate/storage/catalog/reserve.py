"""
Room on the disk that is kept for deletes.

Even a delete writes before it frees: its pages go through the WAL. When the disk is full the
reserve is given up for that, and made again as soon as there is room.

SQLite never gives the pages of deleted rows back to the disk: it writes new rows there. So after
deletes there may be room in the database and none for the WAL that leads there. The reserve is lent
for that, and taken back when the WAL is short again.
"""

import errno
import os

_MOST = 16 * 1024 * 1024
"""
Room in the WAL for a bulk delete of a thousand small objects that lie apart: 6 to 13 MiB, measured
with keys of 24 and of 900 bytes.
"""

_SHARE = 8
"""On a tiny file system the reserve takes no more than this part of it."""

_KEPT = 2
"""While the reserve is lent, one part in so many stays free: deletes must be possible then, too."""

_NO_ROOM = (errno.ENOSPC, errno.EDQUOT)


class Reserve:
    """
    A file that only takes room. May run in any thread, one at a time; blocks.

    @param path: The file; its directory is on the catalog's file system.
    @param isShared: Other processes have the same reserve; one at a time looks after it.
    """

    def __init__(self, path: str, isShared: bool = False) -> None:
        self._path = path
        self._isShared = isShared
        self._held = False

    def ensure(self) -> bool:
        """Make the reserve if it is not there; say whether it is."""
        if not self._held or (self._isShared and not os.path.exists(self._path)):
            self._held = self._make()
        return self._held

    def release(self) -> bool:
        """Give the room up; say whether there was any."""
        held, self._held = self._held, False
        if not held:
            return False
        try:
            os.unlink(self._path)
        except FileNotFoundError:
            # Another process has given it up already, and whoever is next may have taken the room.
            return False
        return True

    def lend(self, size: int) -> bool:
        """Give the room up for a commit that writes C{size} bytes of WAL; say whether it fits."""
        self.release()
        disk = os.statvfs(os.path.dirname(self._path))
        return size + _sizeOn(disk) // _KEPT <= disk.f_bavail * disk.f_frsize

    def _make(self) -> bool:
        disk = os.statvfs(os.path.dirname(self._path))
        size = _sizeOn(disk)
        try:
            if os.stat(self._path).st_size == size:
                return True
            os.unlink(self._path)
        except FileNotFoundError:
            pass
        # A reserve that takes the last byte would only be given up again.
        if disk.f_bavail * disk.f_frsize <= size:
            return False
        try:
            _fill(self._path, size)
        except OSError as error:
            if error.errno not in _NO_ROOM:
                raise
            return False
        return True


def _sizeOn(disk: os.statvfs_result) -> int:
    return min(_MOST, disk.f_blocks * disk.f_frsize // _SHARE)


def _fill(path: str, size: int) -> None:
    descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
    try:
        os.posix_fallocate(descriptor, 0, size)
    except OSError:
        os.unlink(path)
        raise
    finally:
        os.close(descriptor)
