"""The catalog on a file system that is really full: a small tmpfs."""

import os
import subprocess
from typing import Any

from twisted.trial.unittest import SkipTest, SynchronousTestCase

from storagegate.storage.embedded.connections import Durability, Purpose, connect, prepare
from storagegate.storage.embedded.groupcommit import Committer, QueuedMutation
from storagegate.storage.embedded.reserve import Reserve
from storagegate.storage.embedded.wal import WALCheckpointer
from storagegate.storage.errors import StoreFull
from storagegate.storage.files import FailStopLatch
from tests.contract.catalogcase import bucketNamed, inlineRecord
from tests.storage.embedded.memory import CREATE_BUCKET, REMOVED, deletionOf, putOf
from tests.support.selection import long


class FullDiskTests(SynchronousTestCase):
    """Writing until there is no room."""

    def setUp(self) -> None:
        """Mount a file system of 1 MiB with a catalog on it."""
        if os.geteuid() != 0:
            raise SkipTest("only root may mount a file system")
        self.directory = os.path.abspath(self.mktemp())
        os.makedirs(self.directory)
        mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", self.directory]
        mounted = subprocess.run(mount, capture_output=True, text=True, check=False)
        if mounted.returncode:
            raise SkipTest(f"no file system can be mounted here: {mounted.stderr.strip()}")
        self.addCleanup(subprocess.run, ["umount", self.directory], check=True)
        path = os.path.join(self.directory, "catalog.sqlite")
        prepare(path, Durability.FULL)
        connection = connect(path, Durability.FULL, Purpose.WRITER)
        self.latch = FailStopLatch()
        self.reserve = os.path.join(self.directory, "reserve")
        wal = WALCheckpointer(connection, self.directory, self.latch)
        self.committer = Committer(connection, Reserve(self.reserve), self.latch, wal)
        self.addCleanup(self.committer.close)
        self.commit(QueuedMutation(CREATE_BUCKET, bucketNamed("b")))

    def commit(self, mutation: QueuedMutation) -> Any:
        """Commit one mutation and do what is due then; give the outcome."""
        (outcome,), _ = self.committer.commit([mutation])
        self.committer.afterwards()
        return outcome

    def fill(self, size: int = 10_000) -> list[bytes]:
        """Store objects until one is refused; give the keys of those that were stored."""
        keys: list[bytes] = []
        while True:
            key = b"%d" % len(keys)
            outcome = self.commit(putOf(inlineRecord(key, os.urandom(size))))
            if isinstance(outcome, StoreFull):
                return keys
            self.assertEqual(outcome.key, key)
            keys.append(key)

    def fillDisk(self) -> str:
        """Take all the room that is left; give the file that does."""
        other = os.path.join(self.directory, "other")
        with open(other, "wb", buffering=0) as file:
            try:
                while file.write(bytes(4096)):
                    pass
            except OSError:
                pass
        return other

    def test_deletesGoOn(self) -> None:
        """A store that has filled the disk itself can be emptied, one object at a time."""
        keys = self.fill()
        self.assertGreater(len(keys), 20)
        for key in keys:
            self.assertEqual(self.commit(deletionOf(key)), [REMOVED])
        self.assertIsNone(self.latch.failure)

    @long("takes seconds")
    def test_roomReturns(self) -> None:
        """What was deleted makes room for as much again, of any size, and for the reserve."""
        for size in (10_000, 1_000, 4_000, 20_000):
            keys = self.fill(size)
            for _ in range(2):
                for key in keys:
                    self.commit(deletionOf(key))
                self.assertGreaterEqual(len(self.fill(size)), len(keys) * 95 // 100)
                self.assertTrue(os.path.exists(self.reserve))
            for key in keys:
                self.commit(deletionOf(key))

    def test_freedRowsAreRoom(self) -> None:
        """Deleted rows make room for others also where the disk itself stays full."""
        keys = first = self.fill()
        self.fillDisk()
        for _ in range(3):
            for key in keys:
                self.assertEqual(self.commit(deletionOf(key)), [REMOVED])
            keys = self.fill()
            self.assertGreaterEqual(len(keys), len(first) * 9 // 10)

    def test_deletesTogether(self) -> None:
        """Deletes that together need more of the WAL than there is are made in smaller groups."""
        keys = self.fill(1_000)
        self.assertGreater(len(keys), 512)
        deletions = [deletionOf(key) for key in keys]
        outcomes, _ = self.committer.commit(deletions)
        self.assertEqual(outcomes, [[REMOVED]] * len(keys))

    def test_othersFillTheDisk(self) -> None:
        """Where somebody else has filled the disk, deletes have the reserve's room."""
        keys = [b"%d" % n for n in range(20)]
        for key in keys:
            self.commit(putOf(inlineRecord(key, os.urandom(10_000))))
        other = self.fillDisk()
        self.assertEqual(self.fill(60_000), [])
        for key in keys:
            self.assertEqual(self.commit(deletionOf(key)), [REMOVED])
        os.unlink(other)
        self.assertGreater(len(self.fill()), 20)
        self.assertTrue(os.path.exists(self.reserve))
