"""Helpers for tests that read the log."""

from collections.abc import Callable, Sequence

from twisted.logger import ILogObserver, LogEvent, formatEvent, globalLogPublisher
from twisted.trial.unittest import SynchronousTestCase
from zope.interface import implementer


class LogCase(SynchronousTestCase):
    """A test case that can read the log events of its run."""

    def setUp(self) -> None:
        """Observe the log."""
        self._logEvents: list[LogEvent] = []

        @implementer(ILogObserver)
        def observe(event: LogEvent) -> None:
            self._logEvents.append(event)

        globalLogPublisher.addObserver(observe)
        self.addCleanup(globalLogPublisher.removeObserver, observe)

    def logged(self) -> list[str]:
        """Return the text of every event so far."""
        return [formatEvent(event) for event in self._logEvents]


class Sink:
    """Keeps lines."""

    def __init__(self) -> None:
        self.lowest = 1
        self.redact: Callable[[str], str] = str
        self.lines: list[bytes] = []

    def write(self, line: bytes, isUrgent: bool = False) -> None:
        """Keep a line."""
        self.lines.append(line)

    def writeLater(self, make: Callable[[], Sequence[bytes]], count: int = 1) -> None:
        """Keep lines immediately."""
        self.lines.extend(make())
