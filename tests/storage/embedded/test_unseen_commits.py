"""
Commits that are in the log and that no process has published: what becomes of the blobs.

All processes are real ones, whose calls to the system end them, or fail.
"""

import errno

from twisted.trial.unittest import SynchronousTestCase

from storagegate.storage.errors import StoreFull, StoreFullUnknown, StoreReadOnly
from tests.support.commits import CommitProcesses, ProcessDied
from tests.support.faultycalls import (
    FAIL,
    INDEX,
    KILL_AFTER,
    LOG,
    SYNC,
    WRITE,
    CallFault,
)
from tests.support.selection import long

V1, V2 = "1" * 1000, "2" * 1000

LOG_FRAMES = 4062
"""Frames of the log in the first page of its index; a commit beyond makes the index longer."""


class UnseenCommitTests(SynchronousTestCase):
    """The four ways in which a commit is left unseen."""

    def setUp(self) -> None:
        """Start the program."""
        self.processes = CommitProcesses(self)
        self.do = self.processes.do

    def assertWhole(self, *allowed: str) -> str:
        """Kill all, start, and check that the object is one of these, and the store is sound."""
        self.processes.faults.disarm()
        self.processes.killAll()
        self.processes.open(5)
        self.do(5, "idle")
        body: str = self.do(5, "get", "k")
        self.assertIn(body, allowed)
        self.assertEqual(self.do(5, "files"), [1, 0])
        self.do(5, "close")
        self.assertEqual(self.do(5, "check", self.processes.directory), [])
        return body

    def test_replacedWorker(self) -> None:
        """
        A worker is killed after the sync of the log and replaced: the commit that others did not
        see is never seen.
        """
        self.processes.openGroup()
        self.do(0, "createBucket")
        self.do(0, "put", "k", V1)
        self.processes.arm(1, CallFault(1, KILL_AFTER, calls=SYNC, files=LOG))
        self.assertRaises(ProcessDied, self.do, 1, "put", "k", V2)
        self.processes.join(1)
        self.assertEqual(self.do(1, "get", "k"), V1)
        self.assertEqual(self.do(0, "get", "k"), V1)
        self.assertEqual(self.assertWhole(V1), V1)

    def test_catalogHeldOpen(self) -> None:
        """The same of a process that is alone, while another one has the catalog open."""
        self.processes.open(0)
        self.do(0, "createBucket")
        self.do(0, "put", "k", V1)
        self.processes.start(8)
        self.do(8, "look", self.processes.catalog)
        self.do(8, "lookAway")
        self.processes.arm(0, CallFault(1, KILL_AFTER, calls=SYNC, files=LOG))
        self.assertRaises(ProcessDied, self.do, 0, "put", "k", V2)
        for operation in ("open", "prepare", "check"):
            self.processes.start(0)
            arguments = (self.processes.directory, True)[: 2 if operation == "check" else 1]
            self.do(0, operation, *arguments)
            if operation == "open":
                self.assertEqual(self.do(0, "get", "k"), V1)
            self.processes.kill(0)
        self.assertEqual(self.assertWhole(V1), V1)

    @long("takes seconds")
    def test_fullIndex(self) -> None:
        """
        Where the index cannot grow on a full disk, the client hears so, and the blob stays until
        another commit has succeeded.
        """
        for isKilled in (True, False):
            self.processes.open(0)
            self.do(0, "createBucket")
            self.do(0, "put", "k", V1)
            self.processes.start(8)
            self.do(8, "look", self.processes.catalog)
            fault = CallFault(1, FAIL, errno.ENOSPC, WRITE, INDEX, sticky=True)
            self.processes.arm(0, fault)
            with self.assertRaises(StoreFull):
                self.do(0, "fill", 2 * LOG_FRAMES // 16)
            # A refused commit is overwritten by one of a few frames, as long as the index has space
            # for these.
            for _ in range(20):
                error = self.assertRaises(StoreFull, self.do, 0, "put", "k", V2)
                if isinstance(error, StoreFullUnknown):
                    break
            self.assertIsInstance(error, StoreFullUnknown)
            self.assertGreater(self.processes.faults.disarm(), 1)
            self.do(0, "idle")
            self.assertEqual(self.do(0, "get", "k"), V1)
            self.assertEqual(self.do(0, "files"), [2, 1])
            if isKilled:
                self.assertWhole(V1, V2)
                self.processes.clear()
            else:
                self.do(0, "put", "other", "x")
                for _ in range(20):
                    # The removal may begin after the answer.
                    self.do(0, "idle")
                    if self.do(0, "files") == [1, 0]:
                        break
                self.assertEqual(self.do(0, "files"), [1, 0])
                self.assertEqual(self.assertWhole(V1), V1)

    def test_stoppedWriting(self) -> None:
        """While writing has stopped, a worker that replaces another one removes nothing."""
        self.processes.openGroup()
        self.do(0, "createBucket")
        self.do(0, "put", "k", V1)
        self.processes.arm(1, CallFault(1, FAIL, calls=SYNC, files=LOG))
        with self.assertRaises(StoreReadOnly):
            self.do(1, "put", "k", V2)
        self.processes.faults.disarm()
        self.processes.kill(1)
        self.processes.join(1)
        for member in (0, 1):
            self.assertIn("disk I/O error", self.do(member, "health")["catalog"])
            with self.assertRaises(StoreReadOnly):
                self.do(member, "put", "k", V2)
        self.assertEqual(self.do(1, "get", "k"), V1)
        self.assertEqual(self.do(1, "files")[0], 2)
        self.assertWhole(V1, V2)
