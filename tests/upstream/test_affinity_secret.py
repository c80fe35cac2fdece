"""The secret of sticky cookies."""

import os
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from storagegate.upstream.affinity import AFFINITY_FILE, loadSecret


class AffinitySecretTests(SynchronousTestCase):
    """A file of the data directory."""

    def setUp(self) -> None:
        """Have a directory."""
        self.directory = Path(self.mktemp())
        self.directory.mkdir()
        self.path = self.directory / AFFINITY_FILE

    def test_kept(self) -> None:
        """It is made once, and then it is the same; only its owner reads it."""
        made = loadSecret(str(self.directory))
        self.assertEqual((len(made), loadSecret(str(self.directory))), (32, made))
        self.assertEqual(os.stat(self.path).st_mode & 0o777, 0o600)
        self.assertEqual(os.listdir(self.directory), [AFFINITY_FILE])

    def test_other(self) -> None:
        """That of another process that was faster is taken."""
        self.path.write_bytes(b"x" * 32)
        self.assertEqual(loadSecret(str(self.directory)), b"x" * 32)

    def test_short(self) -> None:
        """What is no secret is not taken for one."""
        self.path.write_bytes(b"x")
        self.assertRaisesRegex(OSError, "too short", loadSecret, str(self.directory))
