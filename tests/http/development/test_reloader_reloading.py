"""Modules that are executed again, all or none."""

import os
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from storagegate.http.development.reloader import (
    SCRIPT,
    Scope,
    ScriptEnded,
    ScriptServes,
    execute,
    makePlan,
)


class ReloadCase(SynchronousTestCase):
    """A directory of modules, of which none is left when the test ends."""

    def setUp(self) -> None:
        """Make it."""
        self.directory = Path(self.mktemp()).absolute()
        self.directory.mkdir()
        self.scope = Scope(frozenset([str(self.directory)]))
        self.tried: set[str] = set()
        # As Python does it, unless the environment says something else.
        self.patch(sys, "dont_write_bytecode", False)
        before = dict(sys.modules)
        sys.path.insert(0, str(self.directory))
        self.addCleanup(self.clean, before)

    def clean(self, before: dict[str, ModuleType]) -> None:
        """Make the process as it was."""
        sys.path.remove(str(self.directory))
        for name in sys.modules.keys() - before.keys():
            del sys.modules[name]
        sys.modules.update(before)

    def write(self, name: str, text: str) -> str:
        """Write a file, which seems to have been written at one moment for ever."""
        path = self.directory / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        os.utime(path, (1_700_000_000, 1_700_000_000))
        return str(path)

    def load(self, name: str) -> Any:
        """Import a module, as the reactor's thread does at the beginning."""
        __import__(name)
        return sys.modules[name]

    def change(self, name: str, text: str, hasScript: bool = False, finish: Any = int) -> None:
        """Change a file and load what it affects."""
        path = self.write(name, text)
        execute(makePlan(self.scope, {path}, hasScript), finish, self.tried)


class ModuleTests(ReloadCase):
    """Modules without a script."""

    def test_change(self) -> None:
        """
        A module that changed is another object with the new code, so are its importers; old
        functions keep their globals, and what was not affected is not touched.
        """
        self.write("data1.py", "WORD = 'old'\n")
        self.write("views1.py", "import other1\nfrom data1 import WORD\ndef show(): return WORD\n")
        self.write("other1.py", "state = []\n")
        old = self.load("views1")
        sys.modules["other1"].state.append("kept")
        self.change("data1.py", "WORD = 'new'\n")
        self.assertEqual((old.show(), sys.modules["views1"].show()), ("old", "new"))
        self.assertEqual(sys.modules["other1"].state, ["kept"])

    def test_sameSecond(self) -> None:
        """A change that leaves length and time as they were is loaded, compiled files or not."""
        self.write("twice.py", "WORD = 'one'\n")
        self.load("twice")
        for word in ("two", "six"):
            self.change("twice.py", f"WORD = '{word}'\n")
            self.assertEqual(sys.modules["twice"].WORD, word)
        self.assertFalse(list(self.directory.glob("__pycache__/twice*")))

    def test_failure(self) -> None:
        """
        If a module raises, the old ones are back: objects, globals that the new code has changed in
        others, and the parents' references.
        """
        self.write("pack/__init__.py", "")
        self.write("pack/part.py", "WORD = 'old'\n")
        self.write("config2.py", "value = 1\n")
        self.write("app2.py", "import config2\nfrom pack.part import WORD\nimport pack\n")
        app = self.load("app2")
        before = {name: sys.modules[name] for name in ("app2", "pack", "pack.part", "config2")}
        broken = "import config2, fresh2\nconfig2.value = 2\nconfig2.more = 3\n1 / 0\n"
        self.write("fresh2.py", "")
        self.assertRaises(ZeroDivisionError, self.change, "pack/part.py", broken)
        self.assertEqual({name: sys.modules[name] for name in before}, before)
        self.assertIs(app.pack.part, before["pack.part"])
        self.assertEqual(before["config2"].value, 1)
        self.assertFalse(hasattr(before["config2"], "more"))
        self.assertNotIn("fresh2", sys.modules)
        self.assertIn(str(self.directory / "fresh2.py"), self.tried)

    def test_unfinished(self) -> None:
        """Neither is anything changed if what has to follow fails."""
        self.write("last.py", "WORD = 'old'\n")
        old = self.load("last")

        def fail() -> None:
            self.assertEqual(sys.modules["last"].WORD, "new")
            raise RuntimeError("no port")

        self.assertRaises(RuntimeError, self.change, "last.py", "WORD = 'new'\n", finish=fail)
        self.assertIs(sys.modules["last"], old)

    def test_syntax(self) -> None:
        """What cannot be compiled is found before anything is executed."""
        self.write("syntax.py", "")
        self.load("syntax")
        for text in ("x = = 1\n", "x = '\0'\n", "# coding: utf-9\n"):
            path = self.write("syntax.py", text)
            error = self.assertRaises(SyntaxError, makePlan, self.scope, {path}, False)
            self.assertEqual(error.filename, path)

    def test_deleted(self) -> None:
        """A module that is gone is forgotten; if it is wanted, that is an error."""
        self.write("gone.py", "")
        self.write("wants.py", "import gone\n")
        path = str(self.directory / "gone.py")
        self.load("wants")
        os.unlink(path)
        plan = makePlan(self.scope, {path}, False)
        self.assertRaises(ModuleNotFoundError, execute, plan, int, self.tried)
        self.assertIn("gone", sys.modules)
        self.change("wants.py", "")
        execute(makePlan(self.scope, {path}, False), int, self.tried)
        self.assertNotIn("gone", sys.modules)

    def test_exit(self) -> None:
        """A module that ends the process does not: that is an error like others."""
        self.write("leaves.py", "")
        self.load("leaves")
        error = self.assertRaises(ScriptEnded, self.change, "leaves.py", "raise SystemExit(3)\n")
        self.assertIn("3", str(error))

    def test_others(self) -> None:
        """A change of a file that is no module of the application affects nothing."""
        path = self.write("unused.py", "1 / 0\n")
        self.assertEqual(makePlan(self.scope, {path}, False).modules, ())


class ScriptTests(ReloadCase):
    """Modules of a script."""

    def start(self, text: str) -> Any:
        """Begin with a script, as if Python had been started with it."""
        path = self.write("script.py", text)
        script: Any = ModuleType(SCRIPT)
        script.__file__ = path
        sys.modules[SCRIPT] = script
        exec(compile(text, path, "exec"), vars(script))
        return script

    def test_script(self) -> None:
        """The script is executed again as itself, and decides what is imported."""
        self.write("lib3.py", "WORD = 'old'\n")
        text = "import lib3\nif __name__ == '__main__':\n    seen = lib3.WORD, __file__\n"
        self.start(text)
        self.change("lib3.py", "WORD = 'new'\n", True)
        self.assertEqual(sys.modules[SCRIPT].seen, ("new", str(self.directory / "script.py")))

    def test_fromPackage(self) -> None:
        """A module that is imported from its package is the new one, not what the package has."""
        self.write("bag/__init__.py", "")
        self.write("bag/thing.py", "WORD = 'old'\n")
        self.start("from bag import thing\n")
        self.change("bag/thing.py", "WORD = 'new'\n", True)
        self.assertEqual(sys.modules[SCRIPT].thing.WORD, "new")
        self.assertIs(sys.modules["bag"].thing, sys.modules["bag.thing"])
        old = sys.modules["bag.thing"]
        self.assertRaises(ZeroDivisionError, self.change, "bag/thing.py", "1 / 0\n", True)
        self.assertIs(sys.modules["bag"].thing, old)

    def test_notWanted(self) -> None:
        """A module that nobody imports any more may be broken; one in a function may not."""
        self.write("lib4.py", "")
        self.start("import lib4\n")
        self.write("lib4.py", "1 / 0\n")
        self.change("script.py", "pass\n", True)
        path = str(self.directory / "lib4.py")
        execute(makePlan(self.scope, {path}, True), int, self.tried)
        self.write("lib4.py", "")
        self.load("lib4")
        self.change("script.py", "def later():\n    import lib4\n", True)
        self.assertRaises(ZeroDivisionError, self.change, "lib4.py", "1 / 0\n", True)

    def test_serves(self) -> None:
        """A script ends where it would run the reactor, without an error; what is before holds."""
        self.start("when = 1\n")
        text = (
            "from storagegate.http.development.reloader import ScriptServes\n"
            "when = 2\n"
            "try:\n    raise ScriptServes()\nexcept Exception:\n    when = 3\n"
        )
        self.change("script.py", text, True)
        self.assertEqual(sys.modules[SCRIPT].when, 2)
        self.change(
            "script.py",
            "from twisted.internet.error import ReactorAlreadyRunning\n"
            "when = 4\nraise ReactorAlreadyRunning()\n",
            True,
        )
        self.assertEqual(sys.modules[SCRIPT].when, 4)
        self.assertFalse(issubclass(ScriptServes, Exception))

    def test_failure(self) -> None:
        """A script that fails is as it was."""
        old = self.start("when = 1\n")
        self.assertRaises(ZeroDivisionError, self.change, "script.py", "when = 1 / 0\n", True)
        self.assertIs(sys.modules[SCRIPT], old)
        self.assertRaises(ScriptEnded, self.change, "script.py", "exit(2)\n", True)
        self.assertIs(sys.modules[SCRIPT], old)
