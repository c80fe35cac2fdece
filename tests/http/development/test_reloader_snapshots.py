"""What has changed on the disk."""

import os
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from storagegate.http.development import reloader
from storagegate.http.development.reloader import (
    Snapshot,
    Watched,
    changesBetween,
    takeSnapshot,
    widened,
)


class SnapshotTests(SynchronousTestCase):
    """Two looks at some files."""

    def setUp(self) -> None:
        """Make a few files."""
        self.root = Path(self.mktemp()).absolute()
        for name in ("a.py", "b.py", "sub/c.html", "node_modules/d.js", ".git/e.js"):
            path = self.root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("x")

    def path(self, name: str) -> str:
        """Give the path of a file."""
        return str(self.root / name)

    def look(self, files: str = "", sources: bool = False, tree: bool = False) -> Snapshot:
        """Look at files, at the Python files of the directory, at what is below it."""
        root = frozenset([str(self.root)])
        none: frozenset[str] = frozenset()
        names = frozenset(self.path(name) for name in files.split())
        return takeSnapshot(Watched(names, root if sources else none, root if tree else none))

    def changes(self, before: Snapshot, after: Snapshot) -> set[str]:
        """Name what is different."""
        return {os.path.relpath(path, self.root) for path in changesBetween(before, after)}

    def test_same(self) -> None:
        """Nothing has changed where nobody did anything."""
        look = lambda: self.look("a.py", True, True)  # noqa: E731
        self.assertEqual(self.changes(look(), look()), set())

    def test_content(self) -> None:
        """Another time, another length or another file under the name is a change."""
        os.utime(self.path("a.py"), (1, 1))
        before = self.look("a.py")
        os.utime(self.path("a.py"), (2, 2))
        second = self.look("a.py")
        self.assertEqual(self.changes(before, second), {"a.py"})
        (self.root / "a.py").write_text("xy")
        os.utime(self.path("a.py"), (2, 2))
        third = self.look("a.py")
        self.assertEqual(self.changes(second, third), {"a.py"})
        (self.root / "new").write_text("zz")
        os.utime(self.path("new"), (2, 2))
        os.replace(self.path("new"), self.path("a.py"))
        self.assertEqual(self.changes(third, self.look("a.py")), {"a.py"})

    def test_gone(self) -> None:
        """A file that has gone is a change, one that nobody looks at any more is none."""
        before = self.look("a.py b.py")
        self.assertEqual(self.changes(before, self.look("a.py")), set())
        os.unlink(self.path("b.py"))
        self.assertEqual(self.changes(before, self.look("a.py b.py")), {"b.py"})

    def test_new(self) -> None:
        """A new file is a change where it would have been seen; one that is new to us is none."""
        self.assertEqual(self.changes(self.look("a.py"), self.look("a.py b.py")), set())
        self.assertEqual(self.changes(self.look("a.py"), self.look(tree=True)), set())
        before = self.look("f.py", sources=True, tree=True)
        for name in ("f.py", "g.py", "sub/h.css", "sub/i.py", "sub/j.txt"):
            (self.root / name).write_text("x")
        (self.root / "new").mkdir()
        (self.root / "new/k.js").write_text("x")
        after = self.look("f.py", sources=True, tree=True)
        self.assertEqual(self.changes(before, after), {"f.py", "g.py", "sub/h.css", "new/k.js"})

    def test_widened(self) -> None:
        """What was not looked at before is known from then on, and no change is lost."""
        before = self.look("a.py")
        for name in ("a.py", "b.py"):
            (self.root / name).write_text("changed")
        known = widened(before, self.look("a.py b.py"))
        self.assertEqual(self.changes(known, self.look("a.py b.py")), {"a.py"})
        (self.root / "b.py").write_text("again")
        self.assertEqual(self.changes(known, self.look("a.py b.py")), {"a.py", "b.py"})

    def test_passedOver(self) -> None:
        """Directories of tools are no parts of pages, and are not looked into."""
        look = self.look(tree=True)
        self.assertEqual(set(look.states), {self.path("sub/c.html")})
        self.assertEqual(look.directories, {str(self.root), self.path("sub")})

    def test_bounded(self) -> None:
        """A tree without end is not looked through."""
        self.patch(reloader, "_MAX_FILES", 10)
        for number in range(5):
            directory = self.root / f"many{number}"
            directory.mkdir()
            for name in range(10):
                (directory / f"{name}.css").write_text("x")
        self.assertLess(len(self.look(tree=True).states), 25)
