"""Scripts that serve until they are told to stop."""

from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred, fail, succeed
from twisted.trial.unittest import SynchronousTestCase

from storagegate.net.endpoints import runUntilStopped


class ScriptReactor:
    """
    A reactor that runs what it was given, and then stands still.

    @ivar events: What it was asked for.
    """

    def __init__(self, whileRunning: Callable[["ScriptReactor"], object]) -> None:
        self.events: list[str] = []
        self._calls: list[Callable[[], object]] = []
        self._whileRunning = whileRunning
        self._isRunning = False

    def callWhenRunning(self, function: Callable[[], object]) -> None:
        """Call something at once, or when it runs."""
        if self._isRunning:
            function()
        else:
            self._calls.append(function)

    def addSystemEventTrigger(self, phase: str, event: str, function: Callable[[], Any]) -> None:
        """Remember what is done before the end."""
        self.events.append(f"{phase} {event}")
        self._before = function

    def run(self) -> None:
        """Run."""
        self._isRunning = True
        self.events.append("run")
        for call in self._calls:
            call()
        self._whileRunning(self)

    def stop(self) -> None:
        """End."""
        self.events.append("stop")
        self._before()


class RunTests(SynchronousTestCase):
    """What happens to a script."""

    def assertEnds(self, reactor: ScriptReactor, opening: Deferred[Any] | None) -> str:
        """Have a script run, and stop in order; give its line."""
        stopped: list[bool] = []
        code = ""
        try:
            runUntilStopped(reactor, opening, lambda: stopped.append(True))
        except SystemExit as end:
            code = str(end.code)
        self.assertEqual(reactor.events, ["before shutdown", "run", "stop"])
        self.assertEqual(stopped, [True])
        return code

    def test_serves(self) -> None:
        """It serves until the process is told to stop."""
        self.assertEqual(self.assertEnds(ScriptReactor(ScriptReactor.stop), None), "")
        self.assertEqual(self.assertEnds(ScriptReactor(ScriptReactor.stop), succeed(None)), "")

    def test_fails(self) -> None:
        """What cannot be opened, be it at once or later, ends it with one line."""
        taken = ValueError("the port is taken")
        later: Deferred[Any] = Deferred()
        reactor = ScriptReactor(lambda reactor: later.errback(taken))
        self.assertEqual(self.assertEnds(reactor, later), "the port is taken")
        reactor = ScriptReactor(lambda reactor: None)
        self.assertEqual(self.assertEnds(reactor, fail(taken)), "the port is taken")
