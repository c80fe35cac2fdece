"""No module takes the reactor by itself: it is handed in."""

import ast
import subprocess
import sys

from twisted.trial.unittest import SynchronousTestCase

from tests.support.modules import CHECKOUT, importedNames, moduleFiles, parse
from tests.support.selection import long

# The one place that may reach for the process's reactor, and only in a function.
LATE = {"storagegate.net.endpoints"}


def takesReactor(name: str) -> bool:
    """Tell whether an imported name is the reactor."""
    return name in ("twisted.internet.reactor", "reactor") or name.startswith(
        "twisted.internet.reactor."
    )


class ReactorlessTests(SynchronousTestCase):
    """What the sources import, and what happens when they are imported."""

    @long("takes seconds")
    def test_onlyInOnePlace(self) -> None:
        """No module but the wiring imports the reactor, not even in a function."""
        found = {
            module
            for module, path in moduleFiles().items()
            if any(takesReactor(name) for name in importedNames(module, path))
        }
        self.assertEqual(found, LATE)

    def test_neverAtImport(self) -> None:
        """Not even the wiring imports it when it is imported itself."""
        files = moduleFiles()
        for module in LATE:
            for node in parse(files[module]).body:
                if isinstance(node, ast.ImportFrom):
                    names = [f"{node.module}.{alias.name}" for alias in node.names]
                    self.assertFalse(any(takesReactor(name) for name in names))

    @long("takes seconds")
    def test_noneIsInstalled(self) -> None:
        """A process that has imported every module has no reactor yet."""
        script = (
            "import importlib, sys\n"
            f"for name in {sorted(moduleFiles())!r}:\n"
            "    importlib.import_module(name)\n"
            "sys.exit('twisted.internet.reactor' in sys.modules)\n"
        )
        result = subprocess.run(
            [sys.executable, "-c", script], cwd=CHECKOUT, capture_output=True, check=False
        )
        self.assertEqual((result.returncode, result.stderr), (0, b""))
