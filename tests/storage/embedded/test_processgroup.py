"""The catalog's part in a store that several processes serve."""

from threading import Event, Thread
from time import monotonic

from msgspec.structs import replace
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from storagegate.storage.embedded.processgroup import (
    ReaderEpoch,
    SharedCheckpointLock,
    SharedLatch,
    SharedRecordCache,
    SharedWALSizeCounter,
    SharedWriteLock,
)
from storagegate.storage.embedded.sharedmemory import HORIZON, NEXT_LOCK
from storagegate.storage.records import Attributes, Bucket, Content, ObjectRecord
from tests.support.delayed import PATIENCE
from tests.support.sharedstores import joined, sharedDescriptor

HOME = Bucket("b", "account", 1, "us-east-1")
RECORD = ObjectRecord("b", b"k", 1, "etag", 1, "account", Attributes(), Content(1, b"x"))


class SharedHotRecordsTests(SynchronousTestCase):
    """L{SharedRecordCache}: what is kept is never older than what was committed."""

    def setUp(self) -> None:
        """Two processes; one has kept a record."""
        descriptor = sharedDescriptor(self)
        self.memory, other = joined(self, descriptor), joined(self, descriptor)
        self.epoch = ReaderEpoch(self.memory, Clock())
        self.cache = SharedRecordCache(self.memory, self.epoch)
        self.turn, self.other = SharedWriteLock(self.memory), SharedWriteLock(other)
        self.keep()

    def keep(self) -> None:
        """Look up, and keep what was found."""
        self.assertIsNone(self.cache.find("b", b"k"))
        self.cache.add(HOME, RECORD)
        self.assertIsNone(self.cache.find("b", b"k", "old"))
        self.cache.add(HOME, RECORD, "old")
        self.cache.findBucket("b")
        self.cache.addBucket(HOME)

    def isKept(self) -> bool:
        """Say whether it is given again, and a version of it."""
        found = self.cache.find("b", b"k")
        self.assertEqual(found is None, self.cache.findBucket("b") is None)
        self.assertEqual(found is None, self.cache.find("b", b"k", "old") is None)
        return found is not None

    def test_kept(self) -> None:
        """While nobody commits, it is kept."""
        self.assertTrue(self.isKept())
        self.assertTrue(self.isKept())

    def test_otherCommits(self) -> None:
        """From before another's commit on nothing kept is used; after it things are kept again."""
        self.other.commitStarted()
        self.assertFalse(self.isKept())
        self.cache.add(HOME, RECORD)
        self.other.commitEnded()
        self.assertFalse(self.isKept())
        self.keep()
        self.assertTrue(self.isKept())

    def test_ownCommit(self) -> None:
        """What this process commits is not shown before it is forgotten here; the rest stays."""
        self.turn.commitStarted()
        self.assertFalse(self.isKept())
        self.turn.commitEnded()
        self.assertTrue(self.isKept())

    def test_commitDuringRead(self) -> None:
        """What was read while another began to commit is not kept."""
        self.cache.forget([("b", b"k")])
        self.assertIsNone(self.cache.find("b", b"k"))
        self.other.commitStarted()
        self.cache.add(HOME, replace(RECORD, etag="old"))
        self.cache.add(HOME, replace(RECORD, etag="old"), "older")
        self.other.commitEnded()
        self.assertIsNone(self.cache.find("b", b"k"))
        self.assertIsNone(self.cache.find("b", b"k", "older"))

    def test_lookUpsAreTold(self) -> None:
        """A look-up is told of before it is made, past the records too."""
        for isPast in (False, True):
            self.memory.put(HORIZON, 0)
            cache = SharedRecordCache(self.memory, ReaderEpoch(self.memory, Clock()))
            if isPast:
                cache.startRead()
            else:
                cache.find("b", b"k")
            self.assertNotEqual(self.memory.word(HORIZON, self.memory.slot), 0)


class SharedTurnTests(SynchronousTestCase):
    """L{SharedWriteLock}."""

    def setUp(self) -> None:
        """Two processes."""
        descriptor = sharedDescriptor(self)
        self.one = SharedWriteLock(joined(self, descriptor))
        self.two = SharedWriteLock(joined(self, descriptor))

    def test_inTurn(self) -> None:
        """Whoever waits is next, even where the other wants to write again at once."""
        order = []
        waits, written = Event(), Event()

        def write() -> None:
            waits.set()
            with self.two:
                order.append("two")
            written.set()

        thread = Thread(target=write)
        self.one.__enter__()
        thread.start()
        self.assertTrue(waits.wait(PATIENCE))
        # It has said that it waits; the kernel has it in the queue once nobody can be next.
        memory = self.one._memory
        until = monotonic() + PATIENCE
        while memory.locks.tryLock(NEXT_LOCK):
            memory.locks.unlock(NEXT_LOCK)
            self.assertLess(monotonic(), until, "no process is next")
        self.assertGreater(self.two.waitedSeconds, 0.0)
        self.assertEqual(self.one.waitedSeconds, 0.0)
        self.one.__exit__(None, None, None)
        with self.one:
            order.append("one")
        thread.join(PATIENCE)
        self.assertEqual(order, ["two", "one"])
        self.assertTrue(written.is_set())
        self.assertEqual(self.two.waitedSeconds, 0.0)

    def test_deadHoldNothing(self) -> None:
        """A process that dies while it writes lets the next one write."""
        self.one.__enter__()
        self.one._memory.close(isClean=False)
        with self.two:
            self.assertEqual(self.two.waitedSeconds, 0.0)


class SharedCatalogStateTests(SynchronousTestCase):
    """L{SharedWALSizeCounter} and L{SharedLatch}."""

    def test_checkpoints(self) -> None:
        """One checkpoint is made at a time, and a process that dies lets the next one begin."""
        descriptor = sharedDescriptor(self)
        memory = joined(self, descriptor)
        one, two = SharedCheckpointLock(memory), SharedCheckpointLock(joined(self, descriptor))
        self.assertTrue(one.tryAcquire())
        self.assertFalse(one.tryAcquire())
        self.assertFalse(two.tryAcquire())
        one.release()
        self.assertTrue(two.tryAcquire())
        two.release()
        self.assertTrue(one.tryAcquire())
        memory.close(isClean=False)
        self.assertTrue(two.tryAcquire())

    def test_sizeAndLatch(self) -> None:
        """Each process has the sum of the bytes that all have written, and the latch of all."""
        descriptor = sharedDescriptor(self)
        one, two = (joined(self, descriptor) for _ in range(2))
        SharedWALSizeCounter(one).add(5)
        SharedWALSizeCounter(two).add(7)
        self.assertEqual([SharedWALSizeCounter(each).total for each in (one, two)], [12, 12])
        self.assertIsNone(SharedLatch(two).failure)
        SharedLatch(one).set("catalog: disk I/O error")
        self.assertEqual(SharedLatch(two).failure, "catalog: disk I/O error")
