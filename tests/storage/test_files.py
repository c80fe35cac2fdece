"""Directories are made with all above them; small files are made whole."""

import errno
import stat
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from storagegate.storage.files import createFile, makeDirectory


class DirectoryTests(SynchronousTestCase):
    """The making."""

    def setUp(self) -> None:
        """Name a directory two levels below one that is not there."""
        self.top = Path(self.mktemp()).absolute()
        self.path = self.top / "middle" / "data"

    def test_made(self) -> None:
        """It is made with its mode, and what is above it with the usual one; twice is harmless."""
        makeDirectory(str(self.path), 0o700)
        makeDirectory(str(self.path), 0o700)
        self.assertEqual(stat.S_IMODE(self.path.stat().st_mode), 0o700)
        self.assertNotEqual(stat.S_IMODE(self.top.stat().st_mode), 0o700)

    def test_taken(self) -> None:
        """Where a file is, no directory can be; the error names the path."""
        self.top.write_text("")
        error = self.assertRaises(OSError, makeDirectory, str(self.top))
        self.assertIn(str(self.top), str(error))
        self.assertRaises(OSError, makeDirectory, str(self.path))


class FileTests(SynchronousTestCase):
    """Small files."""

    def test_refused(self) -> None:
        """The error of a directory where nothing can be made is that, not a missing file."""
        error = self.assertRaises(OSError, createFile, "/sys/file", b"content")
        self.assertIn(error.errno, (errno.EACCES, errno.EPERM, errno.EROFS))
        self.assertEqual(list(Path("/sys").glob("file*")), [])
