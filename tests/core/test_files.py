"""Files that are small by what they are."""

import os
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from storagegate.core.files import FileTooLong, PEMFileError, fileStamp, readPEM, readSmallFile


class SmallFileTests(SynchronousTestCase):
    """One file, read whole or not at all."""

    def setUp(self) -> None:
        """Name it."""
        self.path = Path(self.mktemp())

    def test_whole(self) -> None:
        """A file of at most the limit is read whole."""
        for content in (b"", b"\xff\r\n\x00", b"x" * 100):
            self.path.write_bytes(content)
            self.assertEqual(readSmallFile(self.path, 100), content)
            self.assertEqual(readSmallFile(str(self.path), len(content)), content)

    def test_long(self) -> None:
        """What is longer is refused, also where there is no end."""
        self.path.write_bytes(b"x" * 101)
        for path in (self.path, "/dev/zero"):
            error = self.assertRaises(FileTooLong, readSmallFile, path, 100)
            self.assertEqual(str(error), "larger than 100 bytes")

    def test_missing(self) -> None:
        """What cannot be read fails as files do."""
        self.assertRaises(FileNotFoundError, readSmallFile, self.path, 100)
        self.assertRaises(IsADirectoryError, readSmallFile, "/", 100)

    def test_pem(self) -> None:
        """What is wrong with a file of certificates begins with its name."""
        self.path.write_bytes(b"anything")
        self.assertEqual(readPEM(self.path), b"anything")
        for path, expected in (
            ("/nowhere/key", "/nowhere/key: No such file or directory"),
            ("/dev/zero", "/dev/zero is longer than 1 MiB"),
        ):
            self.assertEqual(str(self.assertRaises(PEMFileError, readPEM, path)), expected)

    def test_pemLimit(self) -> None:
        """A mebibyte is not longer than one."""
        self.path.write_bytes(b"x" * 1024 * 1024)
        self.assertEqual(len(readPEM(self.path)), 1024 * 1024)

    def test_stamp(self) -> None:
        """A file that is exchanged for one of the same length and age is another one."""
        self.assertEqual(fileStamp(self.path), ())
        self.path.write_bytes(b"a")
        first = fileStamp(self.path)
        self.assertEqual(fileStamp(self.path), first)
        other = Path(self.mktemp())
        other.write_bytes(b"b")
        os.utime(other, ns=(first[0], first[0]))
        other.replace(self.path)
        self.assertNotEqual(fileStamp(self.path), first)
