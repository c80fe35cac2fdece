"""The documentation says what the code does."""

import csv
import re
import shlex

from twisted.trial.unittest import SynchronousTestCase

from storagegate.cli import parser as scriptParser
from storagegate.configkeys import KEYS
from tests.support.modules import CHECKOUT

README = (CHECKOUT / "README.rst").read_text()
DOCS = CHECKOUT / "docs"

RUN = "python3 -m venv .venv && .venv/bin/pip install . && .venv/bin/twistd -n storagegate"
TEST = (
    "python3 -m venv .venv && .venv/bin/pip install '.[test]' &&"
    " .venv/bin/python -m twisted.trial tests"
)


class ConfigurationTests(SynchronousTestCase):
    """C{docs/configuration.rst} against the table of keys."""

    def test_everyKey(self) -> None:
        """The table has exactly the keys of the code, with flag, variable, default and reload."""
        text = (DOCS / "configuration.rst").read_text()
        table = text.split(":header: key, flag, variable, default, reload, meaning\n\n")[1]
        table = table.split("\n\n")[0]
        rows = list(csv.reader(line.strip() for line in table.splitlines()))
        expected = [
            [
                f"``{key.name}``",
                f"``--{key.name} {key.argument}``" if key.argument else "",
                f"``{key.variable}``",
                f"``{key.default}``" if key.default else "",
                "yes" if key.reloads else "no",
            ]
            for key in KEYS
        ]
        self.assertEqual([row[:5] for row in rows], expected)
        self.assertTrue(all(len(row) == 6 and row[5] for row in rows))


class ReadmeTests(SynchronousTestCase):
    """The README's promises that need no daemon."""

    def test_twoCommands(self) -> None:
        """One command sets up and runs, one passes the tests; each stands alone on its line."""
        lines = [line.strip() for line in README.splitlines()]
        self.assertIn(RUN, lines)
        self.assertIn(TEST, lines)

    def test_ciRunsTheCommand(self) -> None:
        """What the CI runs is the README's own command, word for word."""
        self.assertIn(TEST, (CHECKOUT / ".ci" / "run").read_text())

    def test_keyCommands(self) -> None:
        """The commands for keys are ones that the script understands."""
        lines = re.findall(r"storagegate (keys (?:create|list|revoke) [^`\n]*)", README)
        self.assertEqual(len(lines), 4)
        for line in lines:
            scriptParser().parse_args(shlex.split(line))

    def test_links(self) -> None:
        """Every file that the README and the index name is there."""
        for text, base in ((README, CHECKOUT), ((DOCS / "index.rst").read_text(), DOCS)):
            targets = re.findall(r"<([\w/]+\.rst)>`_", text)
            self.assertTrue(targets)
            for target in targets:
                self.assertTrue((base / target).is_file(), target)
