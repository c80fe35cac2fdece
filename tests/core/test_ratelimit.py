"""The store of rate limits in memory keeps the contract, and bounds its memory."""

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase, TestCase

from storagegate.core.ratelimit import MemoryRateLimitStore
from tests.contract.ratelimitstore import WINDOW_MS, RateLimitStoreContract


class MemoryContractTests(RateLimitStoreContract, TestCase):
    """The contract."""

    def setUp(self) -> None:
        """Make a store on a clock."""
        self.clock = Clock()
        self.clock.advance(1_700_000_000)
        self.store = MemoryRateLimitStore(WINDOW_MS, now=self.clock.seconds)


class MemoryTests(SynchronousTestCase):
    """What is this store's own."""

    def setUp(self) -> None:
        """Make a small store."""
        self.clock = Clock()
        self.clock.advance(1_700_000_000)
        self.store = MemoryRateLimitStore(WINDOW_MS, maxKeys=3, now=self.clock.seconds)

    def test_full(self) -> None:
        """In a full store the window that began first leaves for a new one, also if it is busy."""
        for key in "abc":
            self.store.increment(key)
        self.store.increment("a")
        self.store.increment("d")
        self.assertEqual(len(self.store), 3)
        self.assertIsNone(self.store.get("a"))
        self.assertEqual([self.store.get(key)[0] for key in "bcd"], [1, 1, 1])  # type: ignore[index]

    def test_renewedIsYoung(self) -> None:
        """A key whose window begins anew counts as young: another one leaves."""
        self.store.increment("a")
        self.clock.advance(5)
        self.store.increment("b")
        self.clock.advance(5)
        for key in "acd":
            self.store.increment(key)
        self.assertIsNotNone(self.store.get("a"))
        self.assertIsNone(self.store.get("b"))

    def test_renewedAmongOld(self) -> None:
        """That holds too for a key among others that have ended, which are cleared before it."""
        store = MemoryRateLimitStore(WINDOW_MS, maxKeys=4, now=self.clock.seconds)
        for key in "xyaz":
            store.increment(key)
        self.clock.advance(10)
        for key in "abcd":
            store.increment(key)
        self.assertIsNotNone(store.get("a"))

    def test_clears(self) -> None:
        """Windows that have ended are cleared away by new ones, two by each, without a timer."""
        store = MemoryRateLimitStore(WINDOW_MS, now=self.clock.seconds)
        for number in range(100):
            store.increment(f"old {number}")
        self.clock.advance(10)
        store.increment("new")
        self.assertEqual(len(store), 99)
        for number in range(60):
            store.increment(f"new {number}")
        self.assertEqual(len(store), 61)
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_clockSetBack(self) -> None:
        """When the clock is set back, no client waits longer than a window."""
        clock = Clock()
        clock.advance(5000)
        store = MemoryRateLimitStore(WINDOW_MS, now=lambda: clock.seconds() - offset)
        offset = 0
        store.increment("a")
        offset = 3600
        self.assertEqual(store.increment("a"), (1, 5000 - 3600 + 10))

    def test_badOptions(self) -> None:
        """A window without a length, and a store without room, are refused."""
        for windowMs in (0, -1, float("inf"), float("nan"), True):
            self.assertRaises(ValueError, MemoryRateLimitStore, windowMs)
        self.assertRaises(ValueError, MemoryRateLimitStore, WINDOW_MS, maxKeys=0)
