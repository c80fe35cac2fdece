"""The cache whose entries expire."""

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from storagegate.core.cache import TTLCache


class TTLCacheTests(SynchronousTestCase):
    """TTLCache."""

    def setUp(self) -> None:
        """Make a small one."""
        self.clock = Clock()
        self.cache: TTLCache[str, int] = TTLCache(3, self.clock.seconds, 10.0)

    def test_expires(self) -> None:
        """A value is there until its end."""
        self.cache.put("a", 1, 10.0)
        self.clock.advance(9.9)
        self.assertEqual(self.cache.get("a"), 1)
        self.clock.advance(0.1)
        self.assertIsNone(self.cache.get("a"))
        self.assertIsNone(self.cache.get("b"))

    def test_full(self) -> None:
        """The oldest entry leaves for a new one; an entry that is put in again is young."""
        for key in "abcad":
            self.cache.put(key, ord(key), 10.0)
        self.assertEqual([self.cache.get(key) for key in "abcd"], [97, None, 99, 100])
        self.cache.pop("a")
        self.cache.pop("a")
        self.assertIsNone(self.cache.get("a"))

    def test_removed(self) -> None:
        """Each new entry removes two that have expired."""
        cache: TTLCache[int, int] = TTLCache(100, self.clock.seconds)
        for key in range(10):
            cache.put(key, key, 10.0)
        self.clock.advance(10)
        cache.put(10, 10, 20.0)
        self.assertEqual(len(cache), 9)

    def test_clockSetBack(self) -> None:
        """An entry that would live longer than it may is expired."""
        self.clock.advance(100)
        self.cache.put("a", 1, 110.0)
        self.clock.rightNow = 50.0
        self.assertIsNone(self.cache.get("a"))
