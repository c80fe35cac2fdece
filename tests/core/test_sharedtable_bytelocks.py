"""Locks on bytes, between open files."""

import os

from twisted.trial.unittest import SynchronousTestCase

from storagegate.core.sharedtable import ByteLocks


class ByteLocksTests(SynchronousTestCase):
    """What one has, another has not."""

    def setUp(self) -> None:
        """Make something to share."""
        self.descriptor = os.memfd_create("bytes")
        self.addCleanup(os.close, self.descriptor)

    def locks(self) -> ByteLocks:
        """Open it as a process does."""
        return ByteLocks(self.descriptor)

    def test_one(self) -> None:
        """A byte is one's, until it is given back; its neighbours and its holder know no lock."""
        one, two = self.locks(), self.locks()
        self.addCleanup(one.close)
        self.addCleanup(two.close)
        for byte in (0, 5, 1 << 60):
            self.assertTrue(one.tryLock(byte))
            self.assertFalse(two.tryLock(byte))
            self.assertEqual((one.isFree(byte), two.isFree(byte)), (True, False))
            self.assertEqual((two.isFree(byte + 1), two.tryLock(byte + 1)), (True, True))
            two.unlock(byte + 1)
            one.unlock(byte)
            two.lock(byte)
            self.assertFalse(one.isFree(byte))
            two.unlock(byte)

    def test_end(self) -> None:
        """A lock goes with the file that has it, and not with another that is the same."""
        one, two, three = self.locks(), self.locks(), self.locks()
        self.addCleanup(three.close)
        one.lock(0)
        two.close()
        self.assertFalse(three.isFree(0))
        one.close()
        self.assertTrue(three.isFree(0))

    def test_none(self) -> None:
        """What is no descriptor has no locks."""
        self.assertRaises(OSError, ByteLocks, 1_000_000)
