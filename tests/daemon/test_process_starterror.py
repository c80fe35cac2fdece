"""How a start is refused."""

import os
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from storagegate.daemon.process import startError


class RefusalTests(SynchronousTestCase):
    """The end of a start."""

    def test_line(self) -> None:
        """Whatever the reason's form, the operator reads one line."""
        self.assertEqual(startError("a\nb\r\n  c").code, "storagegate: a b c")

    def test_cleanedUp(self) -> None:
        """The pid file goes, and the command that waits in the foreground is told."""
        pidFile = Path(self.mktemp())
        pidFile.write_text("1")
        readEnd, writeEnd = os.pipe()
        self.addCleanup(os.close, readEnd)
        startError("ü" * 200, {"pidfile": str(pidFile), "statusPipe": writeEnd})
        os.close(writeEnd)
        status = os.read(readEnd, 4096)
        self.assertTrue(status.startswith(b"1 storagegate: \\xfc"))
        self.assertLessEqual(len(status), 100)
        self.assertFalse(pidFile.exists())

    def test_nothingToCleanUp(self) -> None:
        """In the foreground without a pid file there is nothing to do but to end."""
        self.assertEqual(startError("no", {"pidfile": ""}).code, "storagegate: no")
