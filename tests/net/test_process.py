"""Signals are handed to the reactor; what they do to a whole process is a wire test."""

import signal

from twisted.trial.unittest import SynchronousTestCase

from storagegate.net.process import SignalHandlers
from tests.support.parts import FakeReactor


class SignalTests(SynchronousTestCase):
    """The handlers, called by hand."""

    def setUp(self) -> None:
        """Make handlers that note what they ask for."""
        self.asked: list[str] = []
        self.reactor = FakeReactor()
        self.handlers = SignalHandlers(
            self.reactor,
            lambda: self.asked.append("stop"),
            lambda: self.asked.append("reload"),
        )

    def test_onlyAsks(self) -> None:
        """A handler does nothing itself: it may have interrupted any line of the program."""
        self.handlers.stopReceived(signal.SIGTERM, None)
        self.handlers.reloadReceived(signal.SIGHUP, None)
        self.assertEqual(self.asked, [])
        for function in self.reactor.fromThread:
            function()
        self.assertEqual(self.asked, ["stop", "reload"])

    def test_reloadRepeats(self) -> None:
        """Every SIGHUP asks again."""
        for _ in range(3):
            self.handlers.reloadReceived(signal.SIGHUP, None)
        self.assertEqual(len(self.reactor.fromThread), 3)
