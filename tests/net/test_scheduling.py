"""Connections with much input take turns."""

import time
from threading import Thread

from twisted.internet.defer import CancelledError
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from storagegate.net.scheduling import (
    PAUSE_SECONDS,
    SLICE_MESSAGES,
    SLICE_SECONDS,
    CPUContention,
    InputScheduler,
    readCPUWait,
    readOtherThreads,
)


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

    def test_waiting(self) -> None:
        """While connections wait, input of another one has no slice, however many there are."""
        over: list[bool] = []

        def resume() -> None:
            self.scheduler.begin()
            over.append(self.scheduler.isOver(1))

        self.scheduler.wait(resume)
        self.scheduler.begin()
        self.assertTrue(self.scheduler.isOver(1))
        self.clock.advance(0)
        self.assertEqual(over, [False])
        self.scheduler.begin()
        self.assertFalse(self.scheduler.isOver(1))

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


class ContentionTests(SynchronousTestCase):
    """The pauses of a process that waits for a CPU."""

    def setUp(self) -> None:
        """Make a scheduler, and the time that the process has waited for a CPU."""
        self.clock = Clock()
        self.waited = self.othersRan = 0.0
        contention = CPUContention(lambda: self.waited, self.clock.seconds, lambda: self.othersRan)
        self.scheduler = InputScheduler(self.clock, contention)

    def passTime(self, seconds: float, share: float) -> float:
        """Let time pass, a share of which the process waits; return the pause after it."""
        self.clock.advance(seconds)
        self.waited += seconds * share
        return self.scheduler.pauseSeconds()

    def test_idle(self) -> None:
        """A process that gets a CPU almost at once does not pause."""
        self.assertEqual(self.passTime(0.1, 0.05), 0)
        self.assertEqual(self.passTime(0.1, 0.1), 0)

    def test_contended(self) -> None:
        """A process that waits for a fifth of the time pauses until it waits less."""
        self.assertEqual(self.passTime(0.1, 0.21), PAUSE_SECONDS)
        self.assertEqual(self.passTime(0.01, 0), PAUSE_SECONDS)
        self.assertEqual(self.passTime(0.1, 0), 0)

    def test_ownThreads(self) -> None:
        """The time for which it waits while other threads of the process run does not count."""
        for others, expected in ((0.04, 0), (0.02, PAUSE_SECONDS), (0.1, 0), (0.0, PAUSE_SECONDS)):
            self.othersRan += others
            self.assertEqual(self.passTime(0.1, 0.5), expected, others)

    def test_slices(self) -> None:
        """It pauses before each slice of the queue."""
        log: list[str | None] = []
        self.passTime(0.1, 0.5)
        self.scheduler.wait(Greedy("a", self.scheduler, log, 2).resume)
        for expected in ([], ["a"], ["a"], ["a", "a"]):
            self.clock.advance(PAUSE_SECONDS * 0.6)
            self.assertEqual(log, expected)

    def test_uncounted(self) -> None:
        """A system that does not count the waiting has no pauses."""

        def fail() -> float:
            raise FileNotFoundError

        scheduler = InputScheduler(self.clock, CPUContention(fail, self.clock.seconds))
        self.clock.advance(1)
        self.assertEqual(scheduler.pauseSeconds(), 0)

    def test_clock(self) -> None:
        """A clock without threads, as here, has no pauses."""
        self.assertIsNone(InputScheduler(self.clock)._contention)

    def test_kernel(self) -> None:
        """The kernel counts the waiting of a thread, which never falls."""
        first = readCPUWait()
        self.assertGreaterEqual(first, 0)
        self.assertGreaterEqual(readCPUWait(), first)

    def test_otherThreads(self) -> None:
        """The time of other threads is counted, and that of this one is not."""

        def spend() -> None:
            end = time.thread_time() + 0.1
            while time.thread_time() < end:
                pass

        first = readOtherThreads()
        spend()
        own = readOtherThreads() - first
        thread = Thread(target=spend)
        thread.start()
        thread.join()
        others = readOtherThreads() - first - own
        self.assertLess(own, 0.05)
        self.assertGreater(others, 0.05)
