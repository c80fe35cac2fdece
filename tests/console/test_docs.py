"""C{docs/consoleapi.rst} is the table that routes the API."""

import runpy

from twisted.trial.unittest import SynchronousTestCase

from storagegate.console.operations import OPERATIONS
from tests.support.documents import DOCS
from tests.support.modules import CHECKOUT


class ConsoleAPIPageTests(SynchronousTestCase):
    """The page."""

    def test_page(self) -> None:
        """It is what the program prints: python tools/consoleapi.py > docs/consoleapi.rst."""
        program = runpy.run_path(str(CHECKOUT / "tools" / "consoleapi.py"))
        self.assertEqual((DOCS / "consoleapi.rst").read_text(), program["page"]())

    def test_everyOperation(self) -> None:
        """It has each call of the table."""
        text = (DOCS / "consoleapi.rst").read_text()
        for each in OPERATIONS:
            self.assertEqual(text.count(f"    ``{each.method} {each.path}``,"), 1, each)
