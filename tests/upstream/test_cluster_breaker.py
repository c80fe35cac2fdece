"""Breakers: closed, open, half open."""

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from storagegate.upstream.cluster import Breaker
from storagegate.upstream.options import DiscoveredService
from tests.support.balancing import LongestRandom


class BreakerTests(SynchronousTestCase):
    """One instance."""

    def setUp(self) -> None:
        """Make a breaker of three failures, one second, and five at most."""
        self.clock = Clock()
        limits = DiscoveredService(ejectAfter=3, ejectMs=1_000, maxEjectMs=5_000)
        self.breaker = Breaker(limits, self.clock.seconds, LongestRandom())

    def fail(self, times: int = 1) -> list[bool]:  # type: ignore[override]
        """Let calls fail; tell which of them have opened it."""
        return [self.breaker.ended(self.breaker.begin(), False) for _ in range(times)]

    def succeed(self) -> None:
        """Let a call succeed."""
        self.breaker.ended(self.breaker.begin(), True)

    def test_opens(self) -> None:
        """So many failures in a row open it, and not one less."""
        self.assertEqual(self.fail(2), [False, False])
        self.assertEqual((self.breaker.state, self.breaker.isReady), ("closed", True))
        self.assertEqual(self.fail(), [True])
        self.assertEqual((self.breaker.state, self.breaker.isReady), ("open", False))

    def test_inARow(self) -> None:
        """A success between them begins the count anew."""
        self.fail(2)
        self.succeed()
        self.assertEqual(self.fail(2), [False, False])
        self.assertEqual(self.breaker.state, "closed")

    def test_halfOpen(self) -> None:
        """After its time one call may try, and only one at a time."""
        self.fail(3)
        self.clock.advance(0.99)
        self.assertEqual(self.breaker.state, "open")
        self.clock.advance(0.01)
        self.assertEqual((self.breaker.state, self.breaker.isReady), ("half_open", True))
        epoch = self.breaker.begin()
        self.assertFalse(self.breaker.isReady)
        self.breaker.ended(epoch, True)
        self.assertEqual((self.breaker.state, self.breaker.isReady), ("closed", True))

    def test_triedInVain(self) -> None:
        """A try that fails opens it for twice as long, up to a limit; a success begins anew."""
        self.fail(3)
        for seconds in (2, 4, 5, 5):
            self.clock.advance(self.breaker.waitSeconds or 0)
            self.assertEqual(self.fail(), [True])
            self.assertEqual(self.breaker.waitSeconds, seconds)
        self.clock.advance(5)
        self.succeed()
        self.assertIsNone(self.breaker.waitSeconds)
        self.fail(3)
        self.assertEqual(self.breaker.waitSeconds, 1)

    def test_gaveUp(self) -> None:
        """A try that its caller ends lets another one try."""
        self.fail(3)
        self.clock.advance(1)
        self.breaker.ended(self.breaker.begin(), None)
        self.assertEqual((self.breaker.state, self.breaker.isReady), ("half_open", True))

    def test_late(self) -> None:
        """What becomes of calls that began before it opened says nothing of what is now."""
        early = [self.breaker.begin() for _ in range(2)]
        self.fail(3)
        self.breaker.ended(early[0], True)
        self.assertEqual(self.breaker.state, "open")
        self.clock.advance(1)
        trying = self.breaker.begin()
        self.assertFalse(self.breaker.ended(early[1], False))
        self.assertEqual(self.breaker.state, "half_open")
        self.breaker.ended(early[1], None)
        self.assertFalse(self.breaker.isReady)
        self.breaker.ended(trying, True)
        self.assertEqual(self.breaker.state, "closed")

    def test_revive(self) -> None:
        """Who is seen well by others may be tried at once."""
        self.fail(3)
        self.breaker.revive()
        self.assertEqual((self.breaker.state, self.breaker.isReady), ("half_open", True))

    def test_reviveClosed(self) -> None:
        """That changes nothing where it is closed."""
        self.fail(2)
        self.breaker.revive()
        self.assertEqual((self.breaker.state, self.fail()), ("closed", [True]))
