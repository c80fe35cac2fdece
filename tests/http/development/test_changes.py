"""Files that change, as the supervisor of a program and its live reload find out."""

import os
import time
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from storagegate.http.development import livereload
from storagegate.http.development.livereload import ChangeNotifier


class ChangeNotifierTests(SynchronousTestCase):
    """Checks of some files."""

    def setUp(self) -> None:
        """Make a few files."""
        self.root = Path(self.mktemp()).absolute()
        for name in ("a.py", "b.py", "sub/c.html", "node_modules/d.js", ".git/e.js"):
            path = self.root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("x")
        self.notifier = ChangeNotifier((".html", ".js", ".css"))

    def watch(self, files: str, directories: str = "") -> None:
        """Watch files, and what is below directories; names are separated by spaces."""
        for name in (*files.split(), *directories.split()):
            self.notifier.add(str(self.root / name))

    def check(self) -> set[str]:
        """Name what has changed."""
        return {os.path.relpath(path, self.root) for path in self.notifier.check()}

    def test_same(self) -> None:
        """Files that nothing was done to have not changed."""
        self.watch("a.py b.py", ".")
        self.assertEqual(self.check(), set())

    def test_content(self) -> None:
        """Another time, another length or another file under the name is a change, once."""
        path = self.root / "a.py"
        os.utime(path, (1, 1))
        self.watch("a.py")
        os.utime(path, (2, 2))
        self.assertEqual(self.check(), {"a.py"})
        path.write_text("xy")
        os.utime(path, (2, 2))
        self.assertEqual(self.check(), {"a.py"})
        new = self.root / "new"
        new.write_text("zz")
        os.utime(new, (2, 2))
        os.replace(new, path)
        self.assertEqual(self.check(), {"a.py"})
        self.assertEqual(self.check(), set())

    def test_gone(self) -> None:
        """A file that is gone has changed, and so it has when it comes again."""
        self.watch("a.py", "sub")
        (self.root / "b.py").unlink()
        self.assertEqual(self.check(), set())
        (self.root / "a.py").unlink()
        (self.root / "sub/c.html").unlink()
        self.assertEqual(self.check(), {"a.py", "sub/c.html"})
        (self.root / "a.py").write_text("x")
        self.assertEqual(self.check(), {"a.py"})

    def test_new(self) -> None:
        """A new file in a watched directory is a change; one that is new to the watch is none."""
        self.watch("a.py")
        self.watch("a.py b.py", "sub")
        self.assertEqual(self.check(), set())
        for name in ("sub/h.css", "sub/i.py", "sub/new/k.js", "other.css"):
            path = self.root / name
            path.parent.mkdir(exist_ok=True)
            path.write_text("x")
        self.assertEqual(self.check(), {"sub/h.css", "sub/new/k.js"})

    def test_kept(self) -> None:
        """A change before a file is watched is none; one before the watch changes is not lost."""
        (self.root / "b.py").write_text("changed before")
        self.watch("a.py")
        (self.root / "a.py").write_text("changed")
        self.watch("a.py b.py")
        self.assertEqual(self.check(), {"a.py"})

    def test_skipped(self) -> None:
        """Directories of tools are not searched."""
        self.watch("", ".")
        for name in ("node_modules/d.js", ".git/e.js"):
            (self.root / name).write_text("changed")
        self.assertEqual(self.check(), set())

    def test_missing(self) -> None:
        """A directory that does not exist is no error, and its files are seen when they come."""
        self.watch("none.py", "none")
        self.assertEqual(self.check(), set())
        (self.root / "none").mkdir()
        (self.root / "none/a.css").write_text("x")
        self.assertEqual(self.check(), {"none/a.css"})

    def test_bounded(self) -> None:
        """A tree without end is not searched whole."""
        self.patch(livereload, "_MAX_FILES", 10)
        for number in range(5):
            directory = self.root / f"many{number}"
            directory.mkdir()
            for name in range(10):
                (directory / f"{name}.css").write_text("x")
        self.watch("", ".")
        self.assertLess(sum(len(found) for found in self.notifier.roots.values()), 25)

    def settle(self, texts: list[str]) -> int:
        """
        Return how many rounds pass until a change is reported.

        @param texts: What is written into the file during each round.
        """
        rounds = []

        def sleep(seconds: float) -> None:
            rounds.append(seconds)
            if texts:
                (self.root / "a.py").write_text(texts.pop(0))

        self.watch("a.py")
        (self.root / "a.py").write_text("")
        self.patch(time, "sleep", sleep)
        self.assertEqual(self.notifier.settled(), {str(self.root / "a.py")})
        return len(rounds)

    def test_settles(self) -> None:
        """A file that is written in several steps is reported when it is complete."""
        self.assertEqual(self.settle(["de", "def f()", "def f(): pass"]), 4)
        self.assertEqual(self.notifier.settled(), set())

    def test_restless(self) -> None:
        """A file that is written to all the time is reported nevertheless."""
        self.assertLess(self.settle(["x" * length for length in range(1, 100)]), 20)
