"""What every L{IRateLimitStore} must keep; mixed into a case for each implementation."""

from typing import Any

from twisted.internet.task import Clock
from zope.interface.verify import verifyObject

from storagegate.core.ratelimit import IRateLimitStore

WINDOW_MS = 10_000
"""The window of the stores under test."""


async def settled(answer: Any) -> Any:
    """Wait for an answer, if it is one to wait for."""
    return await answer if hasattr(answer, "__await__") else answer


class RateLimitStoreContract:
    """
    The promises of L{IRateLimitStore}.

    Mix into a trial C{TestCase} whose C{setUp} sets C{self.clock} and C{self.store}, a store with
    windows of L{WINDOW_MS} whose time is the clock's.

    @ivar moment: Seconds, within which the clock goes on by itself.
    """

    clock: Clock
    store: Any
    moment = 0.0

    def assertCount(self: Any, found: Any, hits: int, end: float) -> None:
        """Assert that a count is what it should be, and ends when it should."""
        self.assertEqual(found[0], hits)
        self.assertTrue(end - self.moment <= found[1] <= end + self.moment, (found, end))

    def test_provides(self: Any) -> None:
        """The store provides its interface."""
        self.assertTrue(verifyObject(IRateLimitStore, self.store))

    async def test_counts(self: Any) -> None:
        """Requests of a window are counted, and its end does not move with them."""
        end = self.clock.seconds() + 10
        self.assertCount(await settled(self.store.increment("a")), 1, end)
        self.clock.advance(3)
        self.assertCount(await settled(self.store.increment("a")), 2, end)

    async def test_keysApart(self: Any) -> None:
        """Keys know nothing of each other."""
        await settled(self.store.increment("a"))
        self.clock.advance(3)
        self.assertCount(await settled(self.store.increment("b")), 1, self.clock.seconds() + 10)

    async def test_windowEnds(self: Any) -> None:
        """At its end a window is over; the next begins with the next request."""
        await settled(self.store.increment("a"))
        self.clock.advance(10)
        self.assertIsNone(await settled(self.store.get("a")))
        self.clock.advance(5)
        self.assertCount(await settled(self.store.increment("a")), 1, self.clock.seconds() + 10)

    async def test_lastMoment(self: Any) -> None:
        """Until its end a window is open."""
        first = await settled(self.store.increment("a"))
        self.clock.advance(9.75 - self.moment)
        self.assertCount(await settled(self.store.increment("a")), 2, first[1])

    async def test_decrement(self: Any) -> None:
        """A request can be taken back; the window stays."""
        _, end = await settled(self.store.increment("a"))
        await settled(self.store.increment("a"))
        await settled(self.store.decrement("a"))
        self.assertCount(await settled(self.store.get("a")), 1, end)

    async def test_decrementNothing(self: Any) -> None:
        """No more is taken back than was counted, of no key and of no window that is over."""
        await settled(self.store.decrement("a"))
        self.assertIsNone(await settled(self.store.get("a")))
        await settled(self.store.increment("a"))
        await settled(self.store.decrement("a"))
        await settled(self.store.decrement("a"))
        self.assertEqual((await settled(self.store.increment("a")))[0], 1)
        self.clock.advance(10)
        await settled(self.store.decrement("a"))
        self.assertEqual((await settled(self.store.increment("a")))[0], 1)

    async def test_takenBackWhole(self: Any) -> None:
        """A window of which everything was taken back ends when it would have."""
        _, end = await settled(self.store.increment("a"))
        await settled(self.store.decrement("a"))
        self.clock.advance(5)
        self.assertCount(await settled(self.store.increment("a")), 1, end)

    async def test_anyKey(self: Any) -> None:
        """A key is any text."""
        for key in ("", "\0", "\ud800", "'; DROP TABLE countrates; --", "x" * 100_000):
            self.assertEqual((await settled(self.store.increment(key)))[0], 1)
            self.assertEqual((await settled(self.store.increment(key)))[0], 2)

    async def test_resetKey(self: Any) -> None:
        """A key that is reset starts afresh; the others, and unknown ones, are not touched."""
        await settled(self.store.increment("a"))
        await settled(self.store.increment("b"))
        await settled(self.store.resetKey("a"))
        await settled(self.store.resetKey("c"))
        self.assertIsNone(await settled(self.store.get("a")))
        self.assertEqual((await settled(self.store.get("b")))[0], 1)

    async def test_getDoesNotCount(self: Any) -> None:
        """Looking is not asking."""
        self.assertIsNone(await settled(self.store.get("a")))
        counted = await settled(self.store.increment("a"))
        self.assertCount(await settled(self.store.get("a")), *counted)
        self.assertCount(await settled(self.store.get("a")), *counted)
