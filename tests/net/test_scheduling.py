"""Connections with much input take turns."""

from twisted.internet.defer import CancelledError
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from storagegate.net.scheduling import SLICE_MESSAGES, SLICE_SECONDS, InputScheduler


class Greedy:
    """A connection that has more input than a slice, each message of which takes a while."""

    def __init__(
        self, name: str, scheduler: InputScheduler, log: list[str | None], count: int
    ) -> None:
        self.name, self.scheduler, self.log, self.count = name, scheduler, log, count

    def resume(self) -> None:
        """Handle a message, and wait where more follow."""
        self.log.append(self.name)
        self.count -= 1
        if self.count:
            self.scheduler.wait(self.resume)


class SchedulerTests(SynchronousTestCase):
    """The slices and the queue."""

    def setUp(self) -> None:
        """Make the scheduler of a listener."""
        self.clock = Clock()
        self.scheduler = InputScheduler(self.clock)
        self.log: list[str | None] = []

    def test_messages(self) -> None:
        """A slice has so many messages, however short they are."""
        self.scheduler.begin()
        self.assertFalse(self.scheduler.isOver(SLICE_MESSAGES - 1))
        self.assertTrue(self.scheduler.isOver(SLICE_MESSAGES))

    def test_seconds(self) -> None:
        """It takes so long, however few they are."""
        self.scheduler.begin()
        self.assertFalse(self.scheduler.isOver(1))
        self.clock.advance(SLICE_SECONDS)
        self.assertTrue(self.scheduler.isOver(1))

    def test_turn(self) -> None:
        """Other work waits in the same queue, and does no harm if it is cancelled meanwhile."""
        cancelled, other = self.scheduler.turn(), self.scheduler.turn()
        self.scheduler.wait(Greedy("a", self.scheduler, self.log, 1).resume)
        other.addCallback(self.log.append)
        cancelled.cancel()
        self.failureResultOf(cancelled, CancelledError)
        self.assertEqual(len(self.clock.getDelayedCalls()), 1)
        self.clock.advance(0)
        self.assertEqual(self.log, [None, "a"])

    def test_turns(self) -> None:
        """Those that wait go on in turn, one in an iteration of the reactor."""
        for name, count in (("a", 3), ("b", 1), ("c", 2)):
            self.scheduler.wait(Greedy(name, self.scheduler, self.log, count).resume)
        self.assertEqual(self.log, [])
        self.assertEqual(len(self.clock.getDelayedCalls()), 1)
        self.clock.advance(0)
        self.assertEqual("".join(self.log), "abcaca")
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_failure(self) -> None:
        """One that fails does not stop the others."""

        def fail() -> None:
            raise ValueError

        self.scheduler.wait(fail)
        self.scheduler.wait(Greedy("a", self.scheduler, self.log, 1).resume)
        self.assertRaises(ValueError, self.clock.advance, 0)
        self.clock.advance(0)
        self.assertEqual(self.log, ["a"])
