"""How often calls are repeated."""

from random import Random

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from storagegate.upstream.retry import BACKOFF, RESERVE, RetryBudget


class RetryBudgetTests(SynchronousTestCase):
    """A part of all calls."""

    def setUp(self) -> None:
        """Have a clock."""
        self.clock = Clock()

    def taken(self, budget: RetryBudget, most: int = 1000) -> int:
        """Take until nothing is left."""
        for count in range(most):
            if not budget.take():
                return count
        raise AssertionError("there is no end")

    def test_share(self) -> None:
        """When the reserve is gone, a fifth of the calls may be repetitions."""
        budget = RetryBudget(20, self.clock.seconds)
        self.assertEqual(self.taken(budget), RESERVE)
        for _ in range(100):
            budget.called()
        self.assertIn(self.taken(budget), (19, 20))

    def test_bounded(self) -> None:
        """Calls that go well fill the reserve, and no more."""
        budget = RetryBudget(20, self.clock.seconds)
        for _ in range(10_000):
            budget.called()
        self.assertEqual(self.taken(budget), RESERVE)

    def test_time(self) -> None:
        """A service of few calls has its reserve back after a time."""
        budget = RetryBudget(20, self.clock.seconds)
        self.taken(budget)
        self.clock.advance(10)
        self.assertEqual(self.taken(budget), 10)

    def test_none(self) -> None:
        """Of nothing comes nothing."""
        budget = RetryBudget(0, self.clock.seconds)
        self.clock.advance(1000)
        budget.called()
        self.assertFalse(budget.take())


class PauseTests(SynchronousTestCase):
    """What is waited."""

    def test_doubles(self) -> None:
        """The longest pause doubles, up to a quarter of a second; any shorter one may come."""
        random = Random(4)
        for attempt, longest in ((0, 0.025), (1, 0.05), (3, 0.2), (4, 0.25), (50, 0.25)):
            pauses = [BACKOFF.seconds(attempt, random.uniform) for _ in range(200)]
            self.assertTrue(all(0 <= pause <= longest for pause in pauses))
            self.assertGreater(max(pauses), longest * 0.9)
            self.assertLess(min(pauses), longest * 0.1)
