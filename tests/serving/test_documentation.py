"""The page about running applications, held against the code."""

import inspect
import re
import shlex
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from storagegate.cli.commandline import parser
from storagegate.serving.group import ServerGroup
from tests.support.documents import DOCS, codeBlocks, runBlocks, table
from tests.support.signatures import firstWords, publicNames

PAGE = DOCS / "running.rst"

PARTS = {"fronts", "relocate", "supervise"}
"""The members of a group that C{storagegate run} uses."""


class PageTests(SynchronousTestCase):
    """The page."""

    def test_programs(self) -> None:
        """Its programs can be imported."""
        names = runBlocks(PAGE)
        self.assertIsInstance(names["notes"], ServerGroup)

    def test_members(self) -> None:
        """It has the members of a value of serve, with their parameters and defaults."""
        rows = table(PAGE, "A value of serve")
        members = publicNames(ServerGroup([])) - PARTS
        self.assertEqual(sorted(firstWords(rows)), sorted(members))
        for cell, _ in rows:
            name, isCall, arguments = cell.strip("`").partition("(")
            if isCall:
                given = dict(re.findall(r"(\w+)=([^,)]+)", arguments))
                method: Any = getattr(ServerGroup, name)
                parameters = inspect.signature(method).parameters
                defaults = {each: str(parameters[each].default) for each in given}
                self.assertEqual(defaults, given)
                self.assertEqual(set(parameters) - {"self"}, set(given))

    def test_commands(self) -> None:
        """The command line understands its commands."""
        lines = [line for block in codeBlocks(PAGE, "sh") for line in block.code.splitlines()]
        found = [line for line in lines if line.startswith("storagegate run ")]
        [unit] = re.findall(r"ExecStart=\S+/(storagegate run .*)", PAGE.read_text())
        for line in (*found, unit):
            options = parser().parse_args(shlex.split(line)[1:])
            self.assertEqual(options.command.path, "run")
        self.assertEqual(len(found), 3)
