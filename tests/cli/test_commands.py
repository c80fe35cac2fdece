"""C{docs/commands.rst} is what the parser of the command line says."""

import argparse
import re
import runpy
from collections.abc import Iterator

from twisted.trial.unittest import SynchronousTestCase

from storagegate.cli.main import parser
from tests.support.documents import DOCS
from tests.support.modules import CHECKOUT

PAGE = DOCS / "commands.rst"


def leaves(command: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    """Give the commands that have no further commands below them."""
    inner = [each for each in command._actions if isinstance(each, argparse._SubParsersAction)]
    if not inner:
        yield command
    for group in inner:
        for each in group.choices.values():
            yield from leaves(each)


class PageTests(SynchronousTestCase):
    """The page."""

    def test_page(self) -> None:
        """It is what the program prints: python tools/commands.py > docs/commands.rst."""
        program = runpy.run_path(str(CHECKOUT / "tools" / "commands.py"))
        self.assertEqual(PAGE.read_text(), program["page"]())

    def test_everyFlag(self) -> None:
        """Below each command it has the flags that the command takes, each with its meaning."""
        _, *parts = re.split(r"^(storagegate .+)\n-+\n", PAGE.read_text(), flags=re.MULTILINE)
        found = dict(zip(parts[::2], parts[1::2], strict=True))
        commands = {each.prog: each for each in leaves(parser())}
        self.assertEqual({*found}, {*commands})
        for name, text in found.items():
            flags = re.findall(r"^``(--[\w-]+)[^`]*``\n    \S", text, flags=re.MULTILINE)
            taken = {flag for flag in commands[name]._option_string_actions if flag[:2] == "--"}
            self.assertEqual({*flags}, taken - {"--help"}, name)

    def test_linked(self) -> None:
        """The index names it, and it is the source of the man page."""
        self.assertIn("<commands.rst>`_", (DOCS / "index.rst").read_text())
        self.assertIn('("commands", "storagegate"', (DOCS / "conf.py").read_text())
