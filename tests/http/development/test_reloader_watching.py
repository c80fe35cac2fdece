"""When changes are found, and who hears of them."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from twisted.internet.defer import Deferred, execute, succeed
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from storagegate.http.application import Runtime
from storagegate.http.development.reloader import Watched, Watcher


class Bell:
    """An alarm that rings when it is told to."""

    def __init__(self, wake: Callable[[], object]) -> None:
        self.wake = wake
        self.running = False
        self.directories: set[str] = set()

    def start(self) -> None:
        """Begin."""
        self.running = True

    def watch(self, directories: Any) -> None:
        """Remember them."""
        self.directories.update(directories)

    def stop(self) -> None:
        """End."""
        self.running = False


class WatcherTests(SynchronousTestCase):
    """A watcher on a clock."""

    def setUp(self) -> None:
        """Watch a file."""
        self.clock = Clock()
        self.root = Path(self.mktemp()).absolute()
        self.root.mkdir()
        self.file = self.root / "a.py"
        self.file.write_text("1")
        self.files = [str(self.file)]
        self.heard: list[set[str]] = []
        self.acting: Deferred[None] = succeed(None)
        self.bells: list[Bell] = []
        self.delayed: Deferred[None] = succeed(None)
        # What happens to the file between two looks.
        self.between: list[str] = []
        self.watcher = Watcher(
            Runtime(self.clock, self.run_),
            lambda: Watched(files=frozenset(self.files)),
            self.hear,
            self.makeBell,
        )
        self.watcher.start()
        self.bell = self.bells[0]

    def run_(self, function: Any, *arguments: Any) -> Deferred[Any]:
        """Look, and let the file change afterwards."""
        result = execute(function, *arguments)
        if self.between:
            self.file.write_text(self.between.pop(0))
        waiting: Deferred[Any] = Deferred()
        self.delayed.addCallback(lambda _: result.chainDeferred(waiting))
        return waiting

    def makeBell(self, wake: Callable[[], object]) -> Bell:
        """Make the alarm."""
        self.bells.append(Bell(wake))
        return self.bells[-1]

    def hear(self, changes: set[str]) -> Deferred[None]:
        """Hear of changes."""
        self.heard.append({Path(path).read_text() for path in changes})
        return self.acting

    def settle(self) -> None:
        """Let enough time pass."""
        self.clock.pump([0.05] * 20)

    def test_change(self) -> None:
        """A change is told once, when the alarm has rung and the file has settled."""
        self.bell.wake()
        self.settle()
        self.assertEqual(self.heard, [])
        self.file.write_text("two")
        self.assertEqual(self.heard, [])
        for _ in range(3):
            self.bell.wake()
            self.settle()
        self.assertEqual(self.heard, [{"two"}])
        self.assertEqual(self.bell.directories, {str(self.root)})

    def test_settles(self) -> None:
        """A file that is written in several steps is told of when it is complete."""
        self.file.write_text("")
        self.between = ["de", "def f()", "def f(): pass"]
        self.bell.wake()
        self.settle()
        self.assertEqual(self.heard, [{"def f(): pass"}])

    def test_restless(self) -> None:
        """A file that is written to all the time is told of nevertheless."""
        self.file.write_text("")
        self.between = ["x" * length for length in range(1, 100)]
        self.bell.wake()
        self.settle()
        self.assertEqual(len(self.heard), 1)

    def test_oneAtATime(self) -> None:
        """While one change is acted upon, the next waits, and is not lost."""
        self.acting = Deferred()
        self.file.write_text("two")
        self.bell.wake()
        self.settle()
        self.file.write_text("three")
        self.bell.wake()
        self.settle()
        self.assertEqual(self.heard, [{"two"}])
        self.acting.callback(None)
        self.settle()
        self.assertEqual(self.heard, [{"two"}, {"three"}])

    def test_fails(self) -> None:
        """What goes wrong is logged, and the watch goes on."""
        self.acting = execute(lambda: 1 / 0)
        self.file.write_text("two")
        self.bell.wake()
        self.settle()
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)
        self.acting = succeed(None)
        self.file.write_text("three")
        self.bell.wake()
        self.settle()
        self.assertEqual(self.heard, [{"two"}, {"three"}])

    def test_extend(self) -> None:
        """A file that is new to the watch is told of when it changes, whenever it became one."""
        for name, looking in (("b.py", False), ("c.py", True)):
            other = self.root / name
            other.write_text("old")
            if looking:
                self.delayed = Deferred()
                self.bell.wake()
            self.files.append(str(other))
            self.watcher.extend()
            if looking:
                self.delayed.callback(None)
                self.delayed = succeed(None)
            other.write_text(name)
            self.bell.wake()
            self.settle()
            self.assertEqual(self.heard.pop(), {name})

    def test_stop(self) -> None:
        """Nothing is told after the end."""
        self.assertTrue(self.bell.running)
        self.watcher.stop()
        self.assertFalse(self.bell.running)
        self.file.write_text("two")
        self.bell.wake()
        self.settle()
        self.assertEqual(self.heard, [])
