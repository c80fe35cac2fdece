"""C{docs/commands.rst} is what the parser of the command line says."""

import argparse
import re
import runpy
import shlex
from collections.abc import Iterator

from twisted.trial.unittest import SynchronousTestCase

from storagegate.cli.commandline import parser
from storagegate.cli.commands import COMMANDS, EXAMPLES, SECTIONS
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

    def test_sections(self) -> None:
        """The help of the script lists every command once, by section, with its meaning."""
        listed = [name for names in SECTIONS.values() for name in names]
        self.assertEqual(sorted(listed), sorted({each.path.split()[0] for each in COMMANDS}))
        text = parser().format_help()
        for title, names in SECTIONS.items():
            self.assertIn(f"\n{title}:\n  {names[0]} ", text)
        self.assertRegex(text, r"\n  keys +issue, list, change and revoke access keys\n")

    def test_examples(self) -> None:
        """Each command has an example, which its parser accepts."""
        self.assertEqual(sorted(EXAMPLES), sorted(each.path for each in COMMANDS))
        commands = parser()
        for path, example in EXAMPLES.items():
            found = commands.parse_args(shlex.split(example))
            self.assertEqual(found.command.path, path)

    def test_linked(self) -> None:
        """The index names it, and it is the source of the man page."""
        self.assertIn("<commands.rst>`_", (DOCS / "index.rst").read_text())
        self.assertIn('("commands", "storagegate"', (DOCS / "conf.py").read_text())
