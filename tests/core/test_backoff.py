"""Exponential back-off."""

from twisted.trial.unittest import SynchronousTestCase

from storagegate.core.backoff import Backoff


def longest(low: float, high: float) -> float:
    """Return the longest delay."""
    return high


def shortest(low: float, high: float) -> float:
    """Return the shortest delay."""
    return low


class BackoffTests(SynchronousTestCase):
    """Backoff."""

    def test_doubles(self) -> None:
        """The longest delay doubles up to the limit, however many failures there are."""
        backoff = Backoff(firstSeconds=1.0, maxSeconds=10.0)
        delays = [backoff.seconds(at, longest) for at in (0, 1, 2, 3, 4, 10**9)]
        self.assertEqual(delays, [1, 2, 4, 8, 10, 10])
        self.assertEqual(backoff.seconds(4, shortest), 0)

    def test_factor(self) -> None:
        """The factor between delays may be smaller."""
        backoff = Backoff(firstSeconds=1.0, maxSeconds=120.0, factor=1.6)
        delays = [round(backoff.seconds(at, longest), 3) for at in (0, 1, 2, 10, 11, 10**9)]
        self.assertEqual(delays, [1, 1.6, 2.56, 109.951, 120, 120])

    def test_jitter(self) -> None:
        """A part of the delay is random, or none; no delay is below the shortest."""
        part = Backoff(firstSeconds=10.0, maxSeconds=100.0, jitter=0.2)
        self.assertEqual(part.seconds(1, shortest), 16)
        none = Backoff(firstSeconds=10.0, maxSeconds=100.0, jitter=0.0)
        self.assertEqual((none.seconds(1, shortest), none.seconds(1, longest)), (20, 20))
        least = Backoff(firstSeconds=1.0, maxSeconds=30.0, minSeconds=1.0)
        self.assertEqual(least.seconds(5, shortest), 1)
