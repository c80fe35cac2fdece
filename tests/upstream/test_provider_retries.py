"""The loop that never ends by itself, and what is said of its troubles."""

from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.logger import globalLogPublisher
from twisted.trial.unittest import SynchronousTestCase

from storagegate.upstream.provider import (
    BACKOFF,
    CALM_SECONDS,
    FIRST_SECONDS,
    LOG_SECONDS,
    MAX_SECONDS,
    MIN_SECONDS,
    ProblemReporter,
    RetryLoop,
    SourceError,
)


def longest(low: float, high: float) -> float:
    """Return the longest delay."""
    return high


class BackOffTests(SynchronousTestCase):
    """How long it waits."""

    def test_grows(self) -> None:
        """The longest wait doubles up to half a minute; the shortest stays a second."""
        delays = [BACKOFF.seconds(each, longest) for each in (1, 2, 5)]
        self.assertEqual(delays, [2, 4, MAX_SECONDS])
        for failures in (1, 5, 10_000):
            self.assertEqual(BACKOFF.seconds(failures, lambda low, high: low), FIRST_SECONDS)
            self.assertLessEqual(BACKOFF.seconds(failures, longest), MAX_SECONDS)


class FollowerTests(SynchronousTestCase):
    """One loop."""

    def setUp(self) -> None:
        """Make a loop whose steps are given by the case."""
        self.clock = Clock()
        self.steps = 0
        self.told: list[str | None] = []
        self.answer: Any = 5.0
        self.follower = RetryLoop(
            self.clock,
            self.step,
            self.told.append,
            lambda: self.told.append(None),
            lambda low, high: high,
        )

    async def step(self) -> float:
        """Do what the case wants."""
        self.steps += 1
        if isinstance(self.answer, Exception):
            raise self.answer
        if isinstance(self.answer, Deferred):
            await self.answer
            return 0.0
        return float(self.answer)

    def test_goesOn(self) -> None:
        """After a step it waits as long as that says, and never not at all."""
        self.follower.start()
        self.clock.advance(4.9)
        self.assertEqual(self.steps, 1)
        self.answer = 0
        self.clock.advance(0.1)
        self.assertEqual(self.steps, 2)
        self.clock.advance(MIN_SECONDS / 2)
        self.assertEqual(self.steps, 2)
        self.clock.advance(MIN_SECONDS / 2)
        self.assertEqual(self.steps, 3)
        self.assertEqual(self.told, [None] * 3)

    def test_stoppedByStep(self) -> None:
        """A step that has the loop stopped is cancelled when it waits again."""
        news: Deferred[None] = Deferred()
        stopped: list[Deferred[None]] = []

        async def step() -> float:
            await news
            stopped.append(follower.stop())
            await Deferred()
            return 0.0

        follower = RetryLoop(self.clock, step, self.told.append, lambda: None)
        follower.start()
        news.callback(None)
        self.assertNoResult(stopped[0])
        self.clock.advance(0)
        self.successResultOf(stopped[0])
        self.assertEqual((self.told, self.clock.getDelayedCalls()), ([], []))

    def test_fails(self) -> None:
        """It waits the longer the more often it fails, also because of a fault of ours."""
        self.answer = SourceError("away")
        self.follower.start()
        self.clock.advance(2)
        self.answer = ZeroDivisionError("oh")
        self.clock.advance(4)
        self.clock.advance(7.9)
        self.assertEqual((self.steps, self.told), (3, ["away", "away", "ZeroDivisionError: oh"]))
        self.clock.advance(0.1)
        self.assertEqual(self.steps, 4)
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 2)

    def test_calm(self) -> None:
        """A failure long after the last one is the first again."""
        self.answer = SourceError("away")
        self.follower.start()
        self.clock.advance(2)
        self.answer = CALM_SECONDS + 1
        self.clock.advance(4)
        self.answer = SourceError("away")
        self.clock.advance(CALM_SECONDS + 1)
        self.assertEqual(self.steps, 4)
        self.clock.advance(2)
        self.assertEqual(self.steps, 5)

    def test_stop(self) -> None:
        """A stop cancels the step or the wait, and reports no failure."""
        self.answer = waiting = Deferred[None]()
        self.follower.start()
        self.successResultOf(self.follower.stop())
        self.assertTrue(waiting.called)
        self.answer = 5
        other = RetryLoop(self.clock, self.step, self.told.append, lambda: None)
        other.start()
        self.successResultOf(other.stop())
        self.assertEqual(self.clock.getDelayedCalls(), [])
        self.assertEqual(self.told, [])

    def test_notStarted(self) -> None:
        """What never began ends at once."""
        self.successResultOf(self.follower.stop())
        self.follower.start()
        self.assertEqual(self.steps, 0)


class TroubleTests(SynchronousTestCase):
    """What an operator hears."""

    def setUp(self) -> None:
        """Listen to the log."""
        self.seconds = 0.0
        self.logged: list[str] = []
        self.trouble = ProblemReporter("discovery by x", lambda: self.seconds)
        globalLogPublisher.addObserver(self.log)
        self.addCleanup(globalLogPublisher.removeObserver, self.log)

    def log(self, event: Any) -> None:
        """Keep a line of ours."""
        if event.get("name") == "discovery by x":
            self.logged.append(event["log_format"].format(**event))

    def test_once(self) -> None:
        """There is one line a minute, however often and for however many something is wrong."""
        for second in range(120):
            self.seconds = second * LOG_SECONDS / 60
            self.trouble.begin("A" if second % 2 else "B", f"failed {second}")
        self.assertEqual(
            self.logged, ["discovery by x: B: failed 0", "discovery by x: B: failed 60"]
        )

    def test_over(self) -> None:
        """The problem is there until it is over for all, which the log says where it said so."""
        self.assertIsNone(self.trouble.problem)
        self.trouble.begin("A", "one")
        self.trouble.begin("B", "two")
        self.trouble.end("A")
        self.assertEqual(self.trouble.problem, "B: two")
        self.trouble.end("B")
        self.trouble.end("B")
        self.assertIsNone(self.trouble.problem)
        self.trouble.begin("A", "again")
        self.trouble.end("A")
        self.assertEqual(self.logged, ["discovery by x: A: one", "discovery by x: works again"])

    def test_oneLine(self) -> None:
        """What a source says stays within its line."""
        self.trouble.begin("A", "x\ny" + "z" * 1000)
        self.assertTrue((self.trouble.problem or "").startswith(r"A: x\nyz"))
        self.assertLess(len(self.trouble.problem or ""), 310)
