"""The program of a process, as a worker runs it."""

import sys
from pathlib import Path
from types import ModuleType

from twisted.trial.unittest import SynchronousTestCase

from storagegate.serving import claimRun, importingProgram
from storagegate.serving.program import execute, findProgram


class ProgramTests(SynchronousTestCase):
    """Programs."""

    def test_installed(self) -> None:
        """An installed program can be run again, unlike in development."""
        script = ModuleType("__main__")
        script.__file__ = f"{sys.prefix}/bin/notes"
        found = findProgram(["python", "-u", script.__file__, "--port", "1"], script)
        target = ["script", script.__file__, [script.__file__, "--port", "1"]]
        self.assertEqual(found, (["-u"], tuple(target)))

    def test_function(self) -> None:
        """A function is called with its arguments; the rest of the path stays."""
        path, here = list(sys.path), str(Path.cwd())
        sys.path.insert(0, here)
        found: list[str] = []
        module = ModuleType("executed")
        module.take = found.append  # type: ignore[attr-defined]
        sys.modules["executed"] = module
        try:
            execute("function", "executed:take", ["a"])
            self.assertEqual(found, ["a"])
            self.assertEqual(sys.path, [*path, *([here] if here not in path else [])])
        finally:
            sys.path[:] = path
            del sys.modules["executed"]

    def test_importing(self) -> None:
        """While a module is imported to be run, its own run is refused; afterwards it is not."""
        with importingProgram("notes"):
            error = self.assertRaises(SystemExit, claimRun)
        self.assertIn("notes calls run() when it is imported", str(error))
        self.assertIsNone(claimRun())
