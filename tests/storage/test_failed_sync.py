"""
What a failed sync leaves: nothing that was acknowledged is lost, however the processes end.

All processes are real ones. When a sync of the database fails, it gets the bytes back that it had
before: the disk has written none of the pages that the kernel counts as clean.
"""

import os

from twisted.trial.unittest import SynchronousTestCase

from storagegate.storage.errors import StoreReadOnly
from storagegate.storage.files import FAIL_STOP
from storagegate.storage.sqlite import CatalogUnusable
from tests.support.commits import CommitProcesses
from tests.support.faultycalls import (
    BLOB,
    DATABASE,
    FAIL,
    FAIL_AND_LOSE,
    LOG,
    STAGING,
    SYNC,
    CallFault,
)
from tests.support.selection import long

CHECKPOINT_BYTES = 256 * 1024
BODY = "b" * 30_000


class FailedSyncTests(SynchronousTestCase):
    """A sync of the database fails at the end of a checkpoint, after a partial one."""

    def setUp(self) -> None:
        """Start the program."""
        self.processes = CommitProcesses(self)
        self.do = self.processes.do
        self.acknowledged: list[str] = []

    def write(self, member: int, count: int) -> None:
        """Store objects until one is refused."""
        for _ in range(count):
            key = f"key-{len(self.acknowledged)}"
            self.do(member, "put", key, BODY, 65_536)
            self.acknowledged.append(key)

    def lose(self, *members: int) -> None:
        """Store objects, make a checkpoint partial, and let the sync of the next one fail."""
        for member in members:
            self.do(member, "checkpointAt", CHECKPOINT_BYTES)
        self.do(members[0], "createBucket")
        self.processes.faults.keepImage(self.processes.catalog)
        self.processes.start(8)
        self.write(members[-1], 3)
        self.do(8, "look", self.processes.catalog)
        self.write(members[-1], 20)
        # Once it is complete, and synced, the log may be overwritten, and the image is too old.
        self.do(members[-1], "endCheckpoint")
        self.do(8, "lookAway")
        self.processes.arm(members[-1], CallFault(1, FAIL_AND_LOSE, calls=SYNC, files=DATABASE))
        with self.assertRaises(StoreReadOnly):
            # A checkpoint that a commit overtakes syncs nothing. When the log is long enough, the
            # writer makes one itself.
            self.write(members[-1], 3_000)
        self.assertEqual(self.processes.faults.disarm(), 1)
        self.assertGreater(len(self.acknowledged), 23)

    def assertNothingLost(self) -> None:
        """Start again and read all that was acknowledged."""
        self.processes.open(5)
        found = self.do(5, "getAll", self.acknowledged)
        self.assertEqual({body == BODY for body in found}, {True})
        self.do(5, "put", "after", BODY)
        self.do(5, "close")
        self.processes.kill(5)
        self.assertEqual(self.check(), [])

    def check(self) -> list[str]:
        """Check the store in a process of its own."""
        self.processes.start(6)
        problems: list[str] = self.do(6, "check", self.processes.directory)
        self.processes.kill(6)
        return problems

    def test_stopped(self) -> None:
        """An ordinary stop makes no checkpoint, and the next start replays the log."""
        self.processes.open(0)
        self.lose(0)
        self.processes.kill(8)
        self.do(0, "close")
        self.processes.kill(0)
        self.assertGreater(os.path.getsize(f"{self.processes.catalog}-wal"), 0)
        self.assertNothingLost()

    def test_stoppedWorkers(self) -> None:
        """So it is with two workers, whichever stops last, and a third one that replaces one."""
        self.processes.openGroup()
        self.lose(0, 1)
        self.processes.kill(8)
        self.do(1, "close")
        self.processes.kill(1)
        self.processes.join(1)
        with self.assertRaises(StoreReadOnly):
            self.write(1, 1)
        for member in (0, 1):
            self.do(member, "close")
            self.processes.kill(member)
        self.processes.kill(9)
        self.assertNothingLost()

    def test_killed(self) -> None:
        """A process that is killed leaves as much."""
        self.processes.open(0)
        self.lose(0)
        self.processes.killAll()
        self.assertNothingLost()

    @long("takes seconds")
    def test_openElsewhere(self) -> None:
        """
        While another process has the catalog open, no start trusts what was copied: it is refused
        with one line, and nothing is lost when that process ends either.
        """
        self.processes.open(0)
        self.lose(0)
        self.do(0, "close")
        self.processes.kill(0)
        for operation in ("open", "prepare", "check"):
            self.processes.start(1)
            error = self.assertRaises(
                CatalogUnusable, self.do, 1, operation, self.processes.directory
            )
            self.assertIn("is open in another process", str(error))
            self.assertNotIn("\n", str(error))
            self.processes.kill(1)
        self.processes.kill(8)
        self.assertNothingLost()
        self.assertFalse(os.path.exists(os.path.join(self.processes.directory, FAIL_STOP)))

    def test_commandBeside(self) -> None:
        """A command beside a daemon that has stopped writing is refused and copies nothing."""
        self.processes.open(0)
        self.lose(0)
        self.processes.start(1)
        error = self.assertRaises(
            StoreReadOnly, self.do, 1, "addKey", self.processes.catalog, "KEY"
        )
        self.assertIn("the daemon has stopped writing, restart it: ", str(error))
        self.processes.kill(0)
        for member in (8, 1):
            with self.assertRaises(StoreReadOnly):
                self.do(member, "addKey", self.processes.catalog, "KEY")
            self.processes.kill(member)
        self.assertNothingLost()

    @long("takes seconds")
    def test_everySync(self) -> None:
        """
        After a failed sync of any file no write is acknowledged, the command beside is refused, and
        the next start serves all that was.
        """
        for files in (LOG, BLOB, STAGING):
            self.processes.open(0)
            self.do(0, "createBucket")
            self.do(0, "put", "k", BODY)
            self.processes.arm(0, CallFault(1, FAIL, calls=SYNC, files=files))
            for _ in range(2):
                with self.assertRaises(StoreReadOnly):
                    self.do(0, "put", "new", BODY)
            self.assertEqual(self.processes.faults.disarm(), 1)
            self.processes.start(1)
            with self.assertRaises(StoreReadOnly):
                self.do(1, "addKey", self.processes.catalog, "KEY")
            self.assertEqual(self.do(0, "get", "k"), BODY)
            self.do(0, "close")
            self.processes.kill(0, 1)
            self.acknowledged = ["k"]
            self.assertNothingLost()
            self.processes.clear()
