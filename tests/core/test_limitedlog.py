"""Log lines that a client can cause."""

from typing import Any

from twisted.internet.task import Clock
from twisted.logger import LogEvent, Logger, formatEvent
from twisted.trial.unittest import SynchronousTestCase

from storagegate.core.limitedlog import INTERVAL_SECONDS, RateLimitedLog


class RateLimitedLogTests(SynchronousTestCase):
    """At most one line of each kind in a while."""

    def setUp(self) -> None:
        """Collect the lines."""
        self.events: list[LogEvent] = []
        self.clock = Clock()
        observer: Any = self.events.append
        self.log = RateLimitedLog(Logger("test", observer=observer), self.clock.seconds)

    def lines(self) -> list[str]:
        """Give the lines so far."""
        return [formatEvent(each) for each in self.events]

    def test_limited(self) -> None:
        """The first event is logged at once, and those behind it as a number with the next line."""
        for number in range(1000):
            self.log.warn("frame", "frame {number}", number=number)
        self.assertEqual(self.lines(), ["frame 0"])
        self.clock.advance(INTERVAL_SECONDS)
        self.log.warn("frame", "frame {number}", number=7)
        self.log.warn("frame", "frame {number}", number=8)
        self.assertEqual(self.lines()[1:], ["frame 7 (999 more since the last line)"])
        self.clock.advance(2 * INTERVAL_SECONDS)
        self.log.warn("frame", "frame {number}", number=9)
        self.clock.advance(INTERVAL_SECONDS)
        self.log.warn("frame", "frame {number}", number=10)
        expected = ["frame 9 (1 more since the last line)", "frame 10"]
        self.assertEqual(self.lines()[2:], expected)

    def test_kinds(self) -> None:
        """One kind does not hold another back."""
        for kind in ("frame", "message", "frame"):
            self.log.warn(kind, kind)
        self.assertEqual(self.lines(), ["frame", "message"])
