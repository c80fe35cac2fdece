"""When memory is given back to the system."""

from collections.abc import Callable
from typing import Any

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from storagegate.net.heap import (
    HASTE_SECONDS,
    TRIM_BYTES,
    TRIM_SECONDS,
    HeapTrimmer,
    anonymousMemory,
)


class ThreadClock(Clock):
    """A clock whose threads run when the test says so."""

    def __init__(self) -> None:
        super().__init__()
        self.threads: list[Callable[[], Any]] = []

    def callInThread(self, function: Callable[..., Any], *args: Any) -> None:
        """Keep it for the test."""
        self.threads.append(lambda: function(*args))

    def callFromThread(self, function: Callable[..., Any], *args: Any) -> None:
        """Call it at once."""
        function(*args)


class HeapTrimmerTests(SynchronousTestCase):
    """The trimmer and a process of the test."""

    def setUp(self) -> None:
        """Begin with a process of 50 MB."""
        self.clock = ThreadClock()
        self.memory = self.begin = 50_000_000
        self.freed = 0
        self.trims = 0
        self.trimmer = HeapTrimmer(self.clock, lambda: self.memory, self.trim)
        self.trimmer.start()

    def trim(self) -> None:
        """Give back what is freed."""
        self.trims += 1
        self.memory -= self.freed
        self.freed = 0

    def passTime(self, looks: int = 1) -> int:
        """Let time pass, and the threads run; return how many trims that were."""
        before = self.trims
        for _ in range(looks):
            self.clock.advance(TRIM_SECONDS)
            while self.clock.threads:
                self.clock.threads.pop(0)()
        return self.trims - before

    def test_small(self) -> None:
        """Growth by less is left alone."""
        self.memory += TRIM_BYTES - 1
        self.assertEqual(self.passTime(100), 0)

    def test_peak(self) -> None:
        """What a peak has left is given back once, in a thread."""
        self.memory += TRIM_BYTES
        self.freed = TRIM_BYTES
        self.clock.advance(TRIM_SECONDS)
        self.assertEqual((self.trims, len(self.clock.threads)), (0, 1))
        self.clock.threads.pop()()
        self.assertEqual(self.memory, self.begin)
        self.assertEqual(self.passTime(100), 0)

    def test_later(self) -> None:
        """What is freed after a trim in the middle of a peak is given back within minutes."""
        self.memory += 10 * TRIM_BYTES
        self.assertEqual(self.passTime(1), 1)
        self.freed = 10 * TRIM_BYTES
        self.assertEqual(self.passTime(2), 1)
        self.assertEqual(self.memory, self.begin)

    def test_inUse(self) -> None:
        """Trims of memory that stays in use become rare, until the process grows again."""
        self.memory += 10 * TRIM_BYTES
        self.passTime(64)
        self.assertEqual(self.passTime(320), 10)
        self.memory += TRIM_BYTES
        self.assertEqual(self.passTime(), 1)

    def test_hasten(self) -> None:
        """After refusals a trim comes soon, one for all of them, then at the usual pace."""
        for _ in range(3):
            self.trimmer.hasten()
        self.clock.advance(HASTE_SECONDS)
        self.assertEqual(len(self.clock.threads), 1)
        # While a trim runs, too.
        self.trimmer.hasten()
        self.clock.threads.pop()()
        self.clock.advance(HASTE_SECONDS)
        self.clock.threads.pop()()
        self.assertEqual(self.trims, 2)
        self.assertEqual(self.passTime(100), 0)

    def test_figure(self) -> None:
        """A process has more than ten megabytes besides its files."""
        self.assertGreater(anonymousMemory(), 10_000_000)
