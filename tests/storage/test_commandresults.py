"""The notes of what commands have done last."""

import os
import stat

from twisted.trial.unittest import SynchronousTestCase

from storagegate.storage.commandresults import noting, readResult


class NotingTests(SynchronousTestCase):
    """L{noting}."""

    def test_private(self) -> None:
        """Only the owner reads a note, whatever the umask and whatever an earlier one had."""
        directory = self.mktemp()
        os.mkdir(directory)
        path = os.path.join(directory, "last-backup.json")
        for mask in (0o000, 0o777):
            with self.subTest(mask=oct(mask)):
                before = os.umask(mask)
                try:
                    noting(directory, "backup", lambda: 3, verify=True, to="/copy")
                finally:
                    os.umask(before)
                self.assertEqual(stat.S_IMODE(os.stat(path).st_mode), 0o600)
                found = readResult(directory, "backup")
                assert found is not None
                self.assertEqual((found.problems, found.to), (3, "/copy"))
                os.chmod(path, 0o666)
        self.assertEqual(os.listdir(directory), ["last-backup.json"])
