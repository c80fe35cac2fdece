"""The store of rate limits in shared memory keeps the contract, beside other users of the table."""

import os

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase, TestCase

from storagegate.core import ratelimit
from storagegate.core.ratelimit import (
    MemoryRateLimitStore,
    SharedRateLimitStore,
    makeRateMemory,
    makeRateStore,
    nextRateName,
    sharedRateStores,
    shareRates,
)
from storagegate.core.sharedtable import SharedTable
from tests.contract.ratelimitstore import WINDOW_MS, RateLimitStoreContract


class SharedCase(SynchronousTestCase):
    """What the cases of this file share."""

    def setUp(self) -> None:
        """Make a table on a clock, and a store."""
        self.clock = Clock()
        self.clock.advance(1_700_000_000)
        self.fd = makeRateMemory(64)
        self.addCleanup(os.close, self.fd)
        self.table = SharedTable(self.fd, self.clock.seconds)
        self.addCleanup(self.table.close)
        self.store = SharedRateLimitStore(self.table, WINDOW_MS, "Probe.echo")


class SharedContractTests(RateLimitStoreContract, SharedCase, TestCase):
    """The contract."""


class SharedTests(SharedCase):
    """What is this store's own."""

    def test_prefixes(self) -> None:
        """Stores of one prefix and window count together, all others apart."""
        same = SharedRateLimitStore(self.table, float(WINDOW_MS), "Probe.echo")
        others = [
            SharedRateLimitStore(self.table, WINDOW_MS, "Probe.other"),
            SharedRateLimitStore(self.table, WINDOW_MS + 1, "Probe.echo"),
        ]
        self.store.increment("a")
        self.assertEqual(same.increment("a")[0], 2)
        self.assertEqual([other.increment("a")[0] for other in others], [1, 1])

    def test_clockSetBack(self) -> None:
        """When the clock is set back, no client waits longer than a window."""
        self.store.increment("a")
        self.clock.rightNow -= 3600
        self.assertEqual(self.store.increment("a"), (1, self.clock.seconds() + 10))

    def test_anyKey(self) -> None:
        """A key is any text, however long, and of half a character."""
        for key in ("", "x" * 1_000_000, "\ud800", "\udcff", "\0"):
            self.assertEqual(self.store.increment(key)[0], 1, repr(key[:5]))

    def test_makes(self) -> None:
        """Stores are made by name and window, as an invoker asks for them."""
        one, other = sharedRateStores(self.fd), sharedRateStores(self.fd)
        one("Probe.echo", 60_000).increment("a")
        self.assertEqual(other("Probe.echo", 60_000).increment("a")[0], 2)

    def test_refused(self) -> None:
        """A window without a length, and a table with records too small, are refused."""
        self.assertRaises(ValueError, SharedRateLimitStore, self.table, 0)
        fd = SharedTable.make("test", 16, 7)
        self.addCleanup(os.close, fd)
        table = SharedTable(fd)
        self.addCleanup(table.close)
        self.assertRaises(ValueError, SharedRateLimitStore, table, WINDOW_MS)


class DefaultTests(SharedCase):
    """The store of a limit that has no store of its own."""

    def test_alone(self) -> None:
        """Without workers it counts in memory, by the given clock."""
        store = makeRateStore("HTTP 1", WINDOW_MS, self.clock.seconds)
        self.assertIsInstance(store, MemoryRateLimitStore)
        self.assertEqual(store.increment("a"), (1, self.clock.seconds() + WINDOW_MS / 1000))

    def test_workers(self) -> None:
        """In a worker, limits of one name count together, and others do not."""
        self.patch(ratelimit, "_workers", None)
        shareRates(self.fd)
        first, second = (makeRateStore("HTTP 1", WINDOW_MS) for _ in range(2))
        other = makeRateStore("HTTP 2", WINDOW_MS)
        counts = [store.increment("a")[0] for store in (first, second, other)]  # type: ignore[index]
        self.assertEqual(counts, [1, 2, 1])

    def test_names(self) -> None:
        """Each limit has a name of its own, in the order of the program."""
        first, second = nextRateName("HTTP"), nextRateName("RPC")
        self.assertEqual(int(second.removeprefix("RPC ")), int(first.removeprefix("HTTP ")) + 1)
