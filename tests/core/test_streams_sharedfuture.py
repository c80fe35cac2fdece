"""Values that come later."""

from twisted.internet.defer import CancelledError
from twisted.trial.unittest import SynchronousTestCase

from storagegate.core.streams import SharedFuture


class LaterTests(SynchronousTestCase):
    """Something that is known at some time, and stays so."""

    def test_value(self) -> None:
        """Everybody gets the value, whether they waited before or ask after it."""
        later: SharedFuture[int] = SharedFuture()
        before = [later.wait(), later.wait()]
        self.assertNoResult(before[0])
        self.assertFalse(later.isKnown)
        later.set(1)
        later.set(2)
        later.fail(ZeroDivisionError())
        self.assertTrue(later.isKnown)
        for each in (*before, later.wait(), later.wait()):
            self.assertEqual(self.successResultOf(each), 1)

    def test_error(self) -> None:
        """Everybody who asks gets the error; where nobody asks, nothing is logged."""
        later: SharedFuture[int] = SharedFuture()
        before = later.wait()
        later.fail(ZeroDivisionError())
        later.set(1)
        for each in (before, later.wait()):
            self.failureResultOf(each, ZeroDivisionError)

    def test_cancelled(self) -> None:
        """Who stops waiting is told nothing more, the others are; and what it cancels is told."""
        later: SharedFuture[int] = SharedFuture()
        told: list[str] = []
        one, other = later.wait(lambda: told.append("one")), later.wait()
        one.cancel()
        self.failureResultOf(one, CancelledError)
        self.assertEqual(told, ["one"])
        later.set(1)
        self.assertEqual(self.successResultOf(other), 1)

    def test_waitsAgain(self) -> None:
        """Whoever is told may ask again at once."""
        later: SharedFuture[int] = SharedFuture()
        seen: list[int] = []
        later.wait().addCallback(lambda value: later.wait().addCallback(seen.append))
        later.set(1)
        self.assertEqual(seen, [1])
