"""
A file of the store that only occupies disk space, for deletes on a full disk.

Even a delete writes before it frees: its pages pass through the WAL. When the disk is full the
reserve is released for that, and allocated again as soon as there is space. SQLite does not return
the pages of deleted rows to the disk: it writes new rows there. So after deletes there may be space
in the database and none for the WAL. The reserve is lent for that.

SQLite removes WAL and index when the last connection closes, and makes them when the next one
opens: on a full disk half of the reserve is given up for that.
"""

import errno
import os

_MOST = 16 * 1024 * 1024
"""
The WAL of a bulk delete of a thousand small objects in different pages: 6 to 13 MiB, measured with
keys of 24 and of 900 bytes.
"""

_RESERVE_SHARE = 8
"""On a tiny file system the reserve takes no more than this part of it."""

_KEPT = 2
"""While the reserve is lent, one part in so many stays free, for deletes."""

_DISK_FULL = (errno.ENOSPC, errno.EDQUOT)


class Reserve:
    """
    A file that only occupies space. May run in any thread, one at a time; blocks.

    @param path: The file; its directory is on the catalog's file system.
    @param isShared: Other processes have the same reserve; the write lock protects it.
    @ivar isHeld: Whether L{ensure} would find it; always C{False} if other processes have it, too.
    """

    def __init__(self, path: str, isShared: bool = False) -> None:
        self._path = path
        self._isShared = isShared
        self._held = self.isHeld = False

    def ensure(self) -> bool:
        """Create the file unless it exists; return whether it exists then."""
        if not self._held or (self._isShared and not os.path.exists(self._path)):
            self._held = self._make()
        self.isHeld = self._held and not self._isShared
        return self._held

    def release(self) -> bool:
        """Remove the file; return whether this has freed its space."""
        self._held = self.isHeld = False
        try:
            os.unlink(self._path)
        except FileNotFoundError:
            # Another process has released it already, and the space may be used by now.
            return False
        return True

    def lend(self, size: int) -> bool:
        """Release the space for a commit of C{size} bytes of WAL; return whether that fits."""
        self.release()
        return self.spares(size)

    def spares(self, size: int) -> bool:
        """Return whether a commit of C{size} bytes leaves what deletes take; it is released."""
        disk = os.statvfs(os.path.dirname(self._path))
        return size + _sizeOn(disk) // _KEPT <= disk.f_bavail * disk.f_frsize

    def halve(self) -> bool:
        """Give up half of the space; L{ensure} takes it again. Return whether there was some."""
        self._held = self.isHeld = False
        try:
            size = os.stat(self._path).st_size
            os.truncate(self._path, size // 2)
        except FileNotFoundError:
            return False
        return size > 0

    def _make(self) -> bool:
        disk = os.statvfs(os.path.dirname(self._path))
        size = _sizeOn(disk)
        try:
            held = os.stat(self._path).st_size
        except FileNotFoundError:
            held = 0
        # A reserve that takes the last byte would only be released again.
        if held != size and disk.f_bavail * disk.f_frsize <= size - held:
            return False
        if held == size:
            return True
        try:
            descriptor = os.open(self._path, os.O_CREAT | os.O_WRONLY, 0o600)
            try:
                os.ftruncate(descriptor, min(held, size))
                os.posix_fallocate(descriptor, 0, size)
            except OSError:
                # Without what was allocated before the disk was full.
                os.ftruncate(descriptor, min(held, size))
                raise
            finally:
                os.close(descriptor)
        except OSError as error:
            if error.errno not in _DISK_FULL:
                raise
            return False
        return True


def _sizeOn(disk: os.statvfs_result) -> int:
    return min(_MOST, disk.f_blocks * disk.f_frsize // _RESERVE_SHARE)
