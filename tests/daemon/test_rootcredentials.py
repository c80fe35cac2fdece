"""The root key pair and its file."""

import errno
import os
import stat
from pathlib import Path
from unittest import skipIf

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from storagegate.daemon.rootcredentials import CredentialsError, loadOrCreate
from storagegate.objects.issuedkeys import KeyPair, generateKeyPair, readCredential
from storagegate.storage import files


class CredentialTests(SynchronousTestCase):
    """What a key may look like."""

    def test_generated(self) -> None:
        """A generated pair has the lengths that S3 users know, needs no quoting, never repeats."""
        pair, other = generateKeyPair(), generateKeyPair()
        self.assertRegex(pair.accessKey, r"\A[A-Z0-9]{20}\Z")
        self.assertRegex(pair.secretKey, r"\A[A-Za-z0-9]{40}\Z")
        self.assertNotEqual(pair, other)
        self.assertNotIn(pair.secretKey, repr(pair))

    def test_bounds(self) -> None:
        """3 to 128 printable ASCII characters, no space at the ends."""
        for good in ("abc", "x" * 128, "a b", "!~/+="):
            self.assertEqual(readCredential(good), good)
        for bad in ("", "ab", "x" * 129, " abc", "abc ", "a\nb", "a\x00b", "äöü", "a\x7fb"):
            self.assertRaises(ValueError, readCredential, bad)

    @given(st.text(max_size=200))
    def test_anyText(self, text: str) -> None:
        """What is accepted survives a header field and a line of the file."""
        try:
            accepted = readCredential(text)
        except ValueError:
            return
        self.assertEqual(accepted.encode("ascii").strip().decode(), text)
        self.assertEqual(text.splitlines(), [text])


class FileTests(SynchronousTestCase):
    """The file of the generated pair."""

    def setUp(self) -> None:
        """Make a directory."""
        self.directory = Path(self.mktemp())
        self.directory.mkdir()
        self.path = str(self.directory / "root-credentials")

    def test_made(self) -> None:
        """The first start makes the file for its owner only, and leaves nothing beside it."""
        pair, made = loadOrCreate(self.path)
        self.assertTrue(made)
        self.assertEqual(stat.S_IMODE(os.stat(self.path).st_mode), 0o600)
        self.assertEqual(os.listdir(self.directory), ["root-credentials"])
        self.assertEqual(
            Path(self.path).read_text(),
            f"AWS_ACCESS_KEY_ID={pair.accessKey}\nAWS_SECRET_ACCESS_KEY={pair.secretKey}\n",
        )

    def test_notDurable(self) -> None:
        """A pair whose name was not synced is gone again: the next start makes another."""

        def syncDirectory(path: str) -> None:
            raise OSError(errno.EIO, "Input/output error")

        patched = self.patch(files, "syncDirectory", syncDirectory)
        self.assertRaises(CredentialsError, loadOrCreate, self.path)
        self.assertEqual(os.listdir(self.directory), [])
        patched.restore()
        self.assertTrue(loadOrCreate(self.path)[1])

    def test_kept(self) -> None:
        """Later starts find the same pair."""
        pair, _made = loadOrCreate(self.path)
        self.assertEqual(loadOrCreate(self.path), (pair, False))

    def test_writtenByHand(self) -> None:
        """An operator may write the file; a secret may hold the sign of assignment."""
        Path(self.path).write_text("AWS_ACCESS_KEY_ID=me\x21\nAWS_SECRET_ACCESS_KEY=a=b=\n")
        self.assertEqual(loadOrCreate(self.path), (KeyPair("me!", "a=b="), False))

    def test_damaged(self) -> None:
        """A file without a whole pair is refused with its name, and not replaced."""
        for text in (
            "",
            "AWS_ACCESS_KEY_ID=abc\n",
            "AWS_ACCESS_KEY_ID=abc\nAWS_SECRET_ACCESS_KEY=\n",
            "\xff" * 10_000,
            "AWS_ACCESS_KEY_ID=abc\nAWS_SECRET_ACCESS_KEY=abcd\n" + "#" * 4096,
        ):
            Path(self.path).write_text(text, encoding="latin-1")
            error = self.assertRaises(CredentialsError, loadOrCreate, self.path)
            self.assertIn(self.path, str(error))
            self.assertEqual(Path(self.path).read_text(encoding="latin-1"), text)

    def test_neverReplaced(self) -> None:
        """What is made between the look and the writing is never overwritten."""
        # A link to nowhere cannot be read, yet it is there: as a file that appears in between.
        os.symlink(self.directory / "nowhere", self.path)
        error = self.assertRaises(CredentialsError, loadOrCreate, self.path)
        self.assertIn(self.path, str(error))
        self.assertTrue(os.path.islink(self.path))
        self.assertEqual(os.listdir(self.directory), ["root-credentials"])

    @skipIf(os.geteuid() == 0, "root may read everything")
    def test_unreadable(self) -> None:
        """A file of another owner is refused with its name."""
        loadOrCreate(self.path)
        os.chmod(self.path, 0)
        error = self.assertRaises(CredentialsError, loadOrCreate, self.path)
        self.assertIn(self.path, str(error))
