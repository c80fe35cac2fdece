"""What processes of one store tell each other through memory."""

import os

from twisted.trial.unittest import SynchronousTestCase

from storagegate.storage.embedded.sharedmemory import (
    ENDED,
    HORIZON,
    SLOTS,
    STARTED,
    TAKEN,
    StoreMemory,
)
from storagegate.storage.errors import StoreError
from tests.support.sharedstores import joined, sharedDescriptor


class StoreMemoryTests(SynchronousTestCase):
    """L{StoreMemory}."""

    def setUp(self) -> None:
        """Make the memory."""
        self.descriptor = sharedDescriptor(self)

    def test_slotsDiffer(self) -> None:
        """Two processes have two slots, and see each other's words."""
        one, two = joined(self, self.descriptor), joined(self, self.descriptor)
        self.assertNotEqual(one.slot, two.slot)
        one.put(HORIZON, 7)
        two.add(HORIZON, 9)
        for memory in (one, two):
            self.assertEqual(memory.word(HORIZON, one.slot), 7)
            self.assertEqual(memory.values(HORIZON)[two.slot], 9)

    def test_leftByTheDead(self) -> None:
        """The slot of one who died is found by the next, by one at a time, and taken over."""
        dead = joined(self, self.descriptor)
        slot = dead.slot
        dead.add(STARTED)
        dead.put(HORIZON, 5)
        dead.count(3, 1)
        dead.close(isClean=False)
        heir, other = StoreMemory(self.descriptor), StoreMemory(self.descriptor)
        self.addCleanup(heir.close, isClean=True)
        self.addCleanup(other.close, isClean=True)
        self.assertEqual(heir.claim(), [slot])
        self.assertEqual(other.claim(), [])
        heir.clear(slot)
        self.assertEqual(heir.word(STARTED, slot), heir.word(ENDED, slot))
        self.assertEqual(heir.word(STARTED, slot), 2)
        self.assertEqual(heir.word(HORIZON, slot), 0)
        self.assertFalse(heir.isCounted(slot, 3))
        self.assertEqual(joined(self, self.descriptor).word(TAKEN, heir.slot), 1)

    def test_cleanEndLeavesNothing(self) -> None:
        """Nobody looks after one who has ended well."""
        joined(self, self.descriptor).close(isClean=True)
        memory = StoreMemory(self.descriptor)
        self.addCleanup(memory.close, isClean=True)
        self.assertEqual(memory.claim(), [])

    def test_cleanEndOfReader(self) -> None:
        """A lease that has not ended by then ends with its process, and the successor has none."""
        reader = joined(self, self.descriptor)
        reader.count(3, 1)
        reader.close(isClean=True)
        successor = joined(self, self.descriptor)
        self.assertEqual(successor.slot, reader.slot)
        self.assertFalse(successor.isCounted(successor.slot, 3))

    def test_alive(self) -> None:
        """A process is alive for as long as it has its slot."""
        one, two = joined(self, self.descriptor), joined(self, self.descriptor)
        self.assertTrue(one.isAlive(two.slot))
        two.close(isClean=False)
        self.assertFalse(one.isAlive(two.slot))

    def test_slotsEnd(self) -> None:
        """There are so many slots and no more."""
        for _ in range(SLOTS):
            joined(self, self.descriptor)
        memory = StoreMemory(self.descriptor)
        self.addCleanup(memory.close, isClean=True)
        with self.assertRaisesRegex(StoreError, "more than 64 processes"):
            memory.claim()

    def test_failureIsEverybodys(self) -> None:
        """What one says is wrong is wrong for all, also for those who come later."""
        one, two = joined(self, self.descriptor), joined(self, self.descriptor)
        self.assertIsNone(two.failure)
        one.fail("fsync: \N{EM DASH} " + "x" * 1000)
        two.fail("another")
        one.close(isClean=False)
        for memory in (two, joined(self, self.descriptor)):
            self.assertRegex(memory.failure or "", "^fsync: \N{EM DASH} x{400}")
        self.assertIsNone(one.failure)

    def test_locks(self) -> None:
        """A lock is one process's, until it gives it back or ends."""
        one, two = joined(self, self.descriptor), joined(self, self.descriptor)
        one.locks.lock(0)
        self.assertFalse(two.locks.tryLock(0))
        one.locks.unlock(0)
        self.assertTrue(two.locks.tryLock(0))
        two.close(isClean=True)
        self.assertTrue(one.locks.tryLock(0))

    def test_noMemory(self) -> None:
        """Memory of another size, or none, is refused in one line."""
        small = os.memfd_create("small")
        self.addCleanup(os.close, small)
        for descriptor in (small, 1_000_000):
            with self.assertRaisesRegex(StoreError, "cannot share the memory"):
                StoreMemory(descriptor)
