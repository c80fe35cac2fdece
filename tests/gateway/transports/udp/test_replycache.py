"""The caches of answers keep their contract, and know what is another process's."""

import os

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase, TestCase

from storagegate.core.sharedtable import SharedTable
from storagegate.gateway.transports.udp.replycache import (
    ReplyCache,
    SharedReplyCache,
    makeAnswerMemory,
)
from tests.contract.answercache import KEY, SECONDS, AnswerCacheContract


class MemoryContractTests(AnswerCacheContract, TestCase):
    """The contract, in memory."""

    def setUp(self) -> None:
        """Make a cache on a clock."""
        self.clock = Clock()
        self.clock.advance(1_700_000_000)
        self.cache = ReplyCache(self.clock.seconds)


class SharedCase(SynchronousTestCase):
    """What the cases of shared caches have in common."""

    def setUp(self) -> None:
        """Make a table on a clock, and a cache."""
        self.clock = Clock()
        self.clock.advance(1_700_000_000)
        self.fd = makeAnswerMemory(64)
        self.addCleanup(os.close, self.fd)
        self.cache = self.worker()
        self.addCleanup(self.cache.close)

    def worker(self) -> SharedReplyCache:
        """Make a cache as one more worker has it."""
        table = SharedTable(self.fd, self.clock.seconds)
        self.addCleanup(table.close)
        return SharedReplyCache(table)


class SharedContractTests(AnswerCacheContract, SharedCase, TestCase):
    """The contract, in shared memory."""


class SharedTests(SharedCase):
    """What several workers see."""

    def test_shared(self) -> None:
        """A request that one worker has answered has its answer at another."""
        other = self.worker()
        self.addCleanup(other.close)
        self.assertIsNone(self.cache.begin(KEY, 70))
        known = other.begin(KEY, 70)
        assert known is not None
        self.assertIsNone(known.reply)
        self.cache.end(KEY, b"answer", True)
        known = other.begin(KEY, 70)
        assert known is not None
        self.assertEqual((known.reply, known.size, known.isKnown), (b"answer", 70, True))
        self.assertEqual(known.until, self.clock.seconds() + SECONDS)

    def test_gone(self) -> None:
        """What a worker had under way that is gone is new again, once; what it answered stays."""
        gone = self.worker()
        gone.begin("under way")
        gone.begin("answered")
        gone.end("answered", b"x")
        gone.close()
        answered = self.cache.begin("answered")
        assert answered is not None
        self.assertEqual(answered.reply, b"x")
        self.assertIsNone(self.cache.begin("under way"))
        self.assertIsNotNone(self.cache.begin("under way"))

    def test_large(self) -> None:
        """An answer that is too large stays where it was given; the others know that it was."""
        other = self.worker()
        self.cache.begin(KEY)
        self.cache.end(KEY, b"x" * 1201)
        known = other.begin(KEY)
        assert known is not None
        self.assertIsNone(known.reply)
        other.close()

    def test_notMine(self) -> None:
        """Only who does a request may answer it."""
        other = self.worker()
        self.addCleanup(other.close)
        self.cache.begin(KEY)
        other.end(KEY, b"other")
        known = self.cache.begin(KEY)
        assert known is not None
        self.assertIsNone(known.reply)

    def test_refused(self) -> None:
        """A table with records too small is refused."""
        fd = SharedTable.make("test", 16, 13)
        self.addCleanup(os.close, fd)
        table = SharedTable(fd)
        self.addCleanup(table.close)
        self.assertRaises(ValueError, SharedReplyCache, table)
