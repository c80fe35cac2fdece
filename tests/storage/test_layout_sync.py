"""What makes bytes durable, and how threads share it."""

import errno
import os
from collections.abc import Callable
from threading import Event, Semaphore, Thread

from twisted.trial.unittest import SynchronousTestCase

from storagegate.storage.errors import StoreError, StoreReadOnly
from storagegate.storage.files import FailStopLatch, Files
from storagegate.storage.layout import BlobIds, BlobLayout, Shards, SyncGroup
from tests.support.delayed import PATIENCE
from tests.support.faultyfiles import Fault, FaultyFiles


class SlowDirectory(Files):
    """
    Syncs of directories wait for the test.

    @ivar started: Released once for each sync that starts.
    @ivar allowed: Acquired once by each before it ends.
    """

    def __init__(self) -> None:
        self.started = Semaphore(0)
        self.allowed = Semaphore(0)
        self.count = 0
        self.code = 0

    def syncDirectory(self, fd: int) -> None:
        """Wait, then succeed or fail."""
        self.count += 1
        self.started.release()
        self.allowed.acquire(timeout=PATIENCE)
        if self.code:
            raise OSError(self.code, os.strerror(self.code))


class SharedSyncTests(SynchronousTestCase):
    """L{SyncGroup.syncDirectory} from many threads."""

    def setUp(self) -> None:
        self.directory = self.mktemp()
        os.mkdir(self.directory)
        self.files = SlowDirectory()
        self.latch = FailStopLatch()
        self.durability = SyncGroup(self.files, self.latch, True)
        self.results: list[object] = []

    def start(self) -> Thread:
        """Sync in a thread."""
        asked = Event()

        def sync() -> None:
            asked.set()
            try:
                self.durability.syncDirectory(self.directory)
                self.results.append(None)
            except StoreError as error:
                self.results.append(error)

        thread = Thread(target=sync, daemon=True)
        thread.start()
        self.assertTrue(asked.wait(PATIENCE))
        return thread

    def waitUntil(self, condition: Callable[[], bool]) -> None:
        """Give the threads time until something holds."""
        pause = Event()
        for _ in range(round(PATIENCE * 200)):
            if condition():
                return
            pause.wait(0.005)
        self.fail("it never came true")

    def users(self) -> int:
        """How many threads are inside."""
        directories = list(self.durability._directories.values())
        return directories[0].users if directories else 0

    def test_shared(self) -> None:
        """Whoever asks while a sync runs waits for the next one, and all those share it."""
        threads = [self.start()]
        self.assertTrue(self.files.started.acquire(timeout=PATIENCE))
        threads += [self.start() for _ in range(7)]
        self.waitUntil(lambda: self.users() == 8)
        self.files.allowed.release()
        threads[0].join(PATIENCE)
        self.assertTrue(self.files.started.acquire(timeout=PATIENCE))
        self.assertEqual(self.results, [None])
        self.files.allowed.release()
        for thread in threads:
            thread.join(PATIENCE)
        self.assertEqual((self.results, self.files.count), ([None] * 8, 2))
        self.assertEqual(self.durability._directories, {})

    def test_failureIsShared(self) -> None:
        """A sync that fails fails for all who share it, and no later one claims success."""
        threads = [self.start()]
        self.assertTrue(self.files.started.acquire(timeout=PATIENCE))
        threads += [self.start() for _ in range(3)]
        self.waitUntil(lambda: self.users() == 4)
        self.files.code = errno.EIO
        self.files.allowed.release()
        for thread in threads:
            thread.join(PATIENCE)
        self.assertEqual([type(r) for r in self.results], [StoreReadOnly] * 4)
        self.assertEqual(self.files.count, 1)
        self.files.code = 0
        self.assertRaises(StoreReadOnly, self.durability.syncDirectory, self.directory)

    def test_missingDirectory(self) -> None:
        """A directory that is not there is no failed fsync: the latch stays up."""
        self.assertRaises(OSError, self.durability.syncDirectory, self.directory + "-not")
        self.assertIsNone(self.latch.failure)


class LatchTests(SynchronousTestCase):
    """L{FailStopLatch}."""

    def test_firstReasonStays(self) -> None:
        """The latch falls once, and tells the first reason for ever."""
        latch = FailStopLatch()
        latch.check()
        latch.set("first")
        latch.set("second")
        with self.assertRaisesRegex(StoreReadOnly, "first"):
            latch.check()


class ShardsTests(SynchronousTestCase):
    """L{Shards.ensure}."""

    def test_existingDirectory(self) -> None:
        """A directory that an earlier process made is synced again, for it may have crashed."""
        files = FaultyFiles()
        layout = BlobLayout(self.mktemp())
        os.makedirs(layout.blobs)
        durability = SyncGroup(files, FailStopLatch(), True)
        blob = BlobIds().new()
        for _ in range(2):
            files.calls.clear()
            shards = Shards(layout, files, durability)
            shards.ensure(blob)
            self.assertEqual(files.namesCalled().count("syncDirectory"), 2)
        files.calls.clear()
        shards.ensure(blob)
        self.assertEqual(files.calls, [])

    def test_failedSync(self) -> None:
        """After a failed sync of a directory no other one is made, also on a full disk."""
        files = FaultyFiles()
        layout = BlobLayout(self.mktemp())
        os.makedirs(layout.blobs)
        latch = FailStopLatch()
        shards = Shards(layout, files, SyncGroup(files, latch, True))
        files.arm(Fault(1, errno.ENOSPC, only=frozenset({"syncDirectory"}), sticky=True))
        self.assertRaises(StoreReadOnly, shards.ensure, "0" * 32)
        files.arm(None)
        self.assertRaises(StoreReadOnly, shards.ensure, "0" * 32)
        self.assertEqual(files.namesCalled().count("syncDirectory"), 1)
        self.assertIn("No space", latch.failure or "")
