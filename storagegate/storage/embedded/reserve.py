"""
A file that reserves disk space for deletes on a full disk.

Even a delete writes before it frees space, because its pages pass through the WAL. If the disk is
full, the reserve is released for that, and allocated again when there is space. SQLite does not
return the pages of deleted rows to the disk but reuses them for new rows. After deletes there may
therefore be space in the database but none for the WAL, and the reserve is lent to the WAL.

SQLite removes the WAL and its index when the last connection closes, and creates them when the next
one opens. On a full disk, half of the reserve is given up for them.
"""

import errno
import os

_MOST = 16 * 1024 * 1024
"""
The WAL of a bulk delete of a thousand small objects in different pages: 6 to 13 MiB, measured with
keys of 24 and 900 bytes.
"""

_RESERVE_SHARE = 8
"""On a tiny file system the reserve takes at most one part in this many."""

_KEPT = 2
"""While the reserve is lent, one part in this many stays free for deletes."""

_DISK_FULL = (errno.ENOSPC, errno.EDQUOT)


class Reserve:
    """
    The reserve file. Blocks; any thread, one at a time.

    @param path: The file, on the catalog's file system.
    @param isShared: Whether other processes share the reserve, which the write lock then protects.
    @ivar isHeld: Whether the file is known to exist; always C{False} if other processes share it.
    """

    def __init__(self, path: str, isShared: bool = False) -> None:
        self._path = path
        self._isShared = isShared
        self._held = self.isHeld = False

    def ensure(self) -> bool:
        """Create the file unless it exists; return whether it exists afterwards."""
        if not self._held or (self._isShared and not os.path.exists(self._path)):
            self._held = self._make()
        self.isHeld = self._held and not self._isShared
        return self._held

    def release(self) -> bool:
        """Remove the file; return whether this freed its space."""
        self._held = self.isHeld = False
        try:
            os.unlink(self._path)
        except FileNotFoundError:
            # Another process has already released it, and the space may have been used.
            return False
        return True

    def lend(self, size: int) -> bool:
        """Release the space for a commit of C{size} bytes of WAL; return whether that fits."""
        self.release()
        return self.spares(size)

    def spares(self, size: int) -> bool:
        """
        Return whether a commit of C{size} bytes leaves enough space for deletes. The reserve must
        be released.
        """
        disk = os.statvfs(os.path.dirname(self._path))
        return size + _sizeOn(disk) // _KEPT <= disk.f_bavail * disk.f_frsize

    def halve(self) -> bool:
        """Release half of the space, which L{ensure} takes again. Return whether there was any."""
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
                # Undo the partial allocation.
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
