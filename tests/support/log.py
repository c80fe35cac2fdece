"""What a test needs to read the log."""

from twisted.logger import LogEvent, formatEvent, globalLogPublisher
from twisted.trial.unittest import SynchronousTestCase


class LogCase(SynchronousTestCase):
    """A case that can read what was logged while it ran."""

    def setUp(self) -> None:
        """Listen to the log."""
        self._logEvents: list[LogEvent] = []
        globalLogPublisher.addObserver(self._logEvents.append)
        self.addCleanup(globalLogPublisher.removeObserver, self._logEvents.append)

    def logged(self) -> list[str]:
        """Give the text of every event so far."""
        return [formatEvent(event) for event in self._logEvents]
