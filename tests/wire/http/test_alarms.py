"""What wakes the watch over files: the kernel and the clock."""

from pathlib import Path
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.task import deferLater
from twisted.trial.unittest import TestCase

from storagegate.http.development import reloader
from storagegate.http.development.reloader import ChangeNotifier


class AlarmTests(TestCase):
    """Alarms on the real reactor."""

    timeout = 60

    def setUp(self) -> None:
        """Make a directory and an alarm."""
        from twisted.internet import reactor

        self.reactor: Any = reactor
        self.root = Path(self.mktemp()).absolute()
        self.root.mkdir()
        self.rung: Deferred[None] = Deferred()
        self.count = 0

    def begin(self) -> ChangeNotifier:
        """Begin to watch."""
        alarm = ChangeNotifier(self.reactor, self.ring)
        alarm.start()
        self.addCleanup(deferLater, self.reactor, 0)
        self.addCleanup(alarm.stop)
        alarm.watch([str(self.root)])
        return alarm

    def ring(self) -> None:
        """Hear the alarm."""
        self.count += 1
        rung, self.rung = self.rung, Deferred()
        rung.callback(None)

    async def test_kernel(self) -> None:
        """The kernel tells of a file that is written, renamed or removed, before the clock does."""
        self.patch(reloader, "_SLOW_POLL_SECONDS", 1000.0)
        self.begin()
        path = self.root / "a.py"
        for change in (
            lambda: path.write_text("x"),
            lambda: path.rename(self.root / "b.html"),
            lambda: (self.root / "b.html").unlink(),
        ):
            rung = self.rung
            change()
            await rung

    async def test_others(self) -> None:
        """Other files may change as they like."""
        self.patch(reloader, "_SLOW_POLL_SECONDS", 1000.0)
        self.begin()
        rung = self.rung
        (self.root / "data.sqlite-wal").write_text("x")
        (self.root / "log.txt").write_text("x")
        await deferLater(self.reactor, 0.05)
        self.assertEqual(self.count, 0)
        (self.root / "a.py").write_text("x")
        await rung

    async def test_made(self) -> None:
        """A directory that goes and comes again is watched again."""
        self.patch(reloader, "_SLOW_POLL_SECONDS", 1000.0)
        inner, marker = self.root / "inner", self.root / "marker.py"
        inner.mkdir()
        marker.write_text("x")
        alarm = self.begin()
        alarm.watch([str(inner)])
        inner.rmdir()
        # The kernel tells in order: when this is heard of, so was the end of the directory.
        rung = self.rung
        marker.unlink()
        await rung
        inner.mkdir()
        alarm.watch([str(inner)])
        rung = self.rung
        (inner / "a.py").write_text("x")
        await rung

    async def test_clock(self) -> None:
        """Where the kernel does not tell, the clock does, four times a second."""
        self.patch(reloader, "_watchByKernel", lambda reactor, changed: None)
        began = self.reactor.seconds()
        self.begin()
        await self.rung
        await self.rung
        self.assertGreater(self.reactor.seconds() - began, 0.4)

    async def test_missing(self) -> None:
        """A directory that has gone already is no error."""
        alarm = self.begin()
        alarm.watch([str(self.root / "none")])
        rung = self.rung
        (self.root / "a.py").write_text("x")
        await rung
