"""The completion of shells, in the shells themselves."""

import subprocess
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from storagegate.cli.commands import COMMANDS
from storagegate.cli.completion import bash, fish, levels, zsh
from tests.support.programs import needs

LINES = {
    "storagegate ke": {"keys"},
    "storagegate keys ": {"create", "list", "edit", "revoke", "judge"},
    "storagegate keys create --pol": {"--policy", "--policy-file"},
    "storagegate keys create --policy read": {"readwrite", "readonly"},
    "storagegate --version keys r": {"revoke"},
    "storagegate keys create --account keys --r": {"--role", "--reuse"},
    "storagegate completion ": {"bash", "zsh", "fish"},
    "storagegate call --wire t": {"tcp"},
    "storagegate serve --durability ": {"full", "os"},
    "storagegate keys list --url ": set(),
    "storagegate cluster migrate --ab": {"--abandon"},
}
"""Beginnings of command lines, and what completes their last words."""


class LevelTests(SynchronousTestCase):
    """What the scripts are made of."""

    def test_complete(self) -> None:
        """Each command and each group has its level, with all its flags."""
        found = {level.path: level for level in levels()}
        paths = {each.path for each in COMMANDS}
        groups = {path.rpartition(" ")[0] for path in paths}
        groups |= {path.rpartition(" ")[0] for path in groups}
        self.assertEqual(set(found), {*paths, *groups})
        self.assertIn("--json", {flag.name for flag in found["trace"].flags})
        kinds = {flag.name: flag.kind for flag in found["backup"].flags}
        self.assertEqual(
            {name: kinds[name] for name in ("--to", "--config", "--verify", "--data")},
            {"--to": "directory", "--config": "file", "--verify": "none", "--data": "directory"},
        )


class ShellCase(SynchronousTestCase):
    """Runs shells in a directory with a file and a directory."""

    def setUp(self) -> None:
        """Make them."""
        self.directory = Path(self.mktemp())
        (self.directory / "a directory").mkdir(parents=True)
        (self.directory / "a file").touch()

    def run_(self, *command: str) -> list[str]:
        """Run a shell; give the lines that it prints."""
        done = subprocess.run(
            command, cwd=self.directory, capture_output=True, text=True, timeout=60, check=False
        )
        self.assertEqual((done.returncode, done.stderr), (0, ""), command)
        return done.stdout.splitlines()


@needs("bash")
class BashTests(ShellCase):
    """bash."""

    def complete(self, line: str) -> set[str]:
        """Give what completes a line."""
        (self.directory / "script").write_text(bash())
        call = (
            'source ./script; read -ra COMP_WORDS <<< "$1"; [[ $1 == *" " ]] && COMP_WORDS+=("");'
            ' COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _storagegate; printf "%s\\n" "${COMPREPLY[@]}"'
        )
        return set(self.run_("bash", "--norc", "-c", call, "bash", line)) - {""}

    def test_words(self) -> None:
        """Commands, flags and values are offered where they belong."""
        for line, expected in LINES.items():
            self.assertEqual(self.complete(line), expected, line)

    def test_paths(self) -> None:
        """Files and directories are, with spaces in their names."""
        self.assertEqual(self.complete("storagegate backup --to a"), {"a directory"})
        found = self.complete("storagegate backup --config a")
        self.assertEqual(found, {"a directory", "a file"})


@needs("zsh")
class ZshTests(ShellCase):
    """zsh."""

    def test_words(self) -> None:
        """Commands, flags and values are offered; what does not begin so is left out by zsh."""
        (self.directory / "_storagegate").write_text(zsh())
        # Completion needs a terminal: what would be added is printed instead.
        call = (
            "compdef() { }; compadd() { shift; printf '%s\\n' \"$@\"; }; _files() { print files; };"
            ' source ./_storagegate; words=("${(@s: :)1}"); CURRENT=${#words}; _storagegate'
        )
        for line, expected in LINES.items():
            last = line.rpartition(" ")[2]
            printed = self.run_("zsh", "-f", "-c", call, "zsh", line)
            found = {each for each in printed if each.startswith(last)} - {""}
            self.assertEqual(found, expected, line)
        printed = self.run_("zsh", "-f", "-c", call, "zsh", "storagegate backup --to ")
        self.assertEqual(printed, ["files"])

    def test_loaded(self) -> None:
        """zsh's own system of completion loads the file."""
        (self.directory / "_storagegate").write_text(zsh())
        call = (
            "fpath=($PWD $fpath); autoload -U compinit; compinit -u -D; print $_comps[storagegate]"
        )
        self.assertEqual(self.run_("zsh", "-f", "-c", call), ["_storagegate"])


@needs("fish")
class FishTests(ShellCase):
    """fish."""

    def test_words(self) -> None:
        """Commands, flags and values are offered, with their meanings."""
        (self.directory / "script").write_text(fish())
        call = 'source ./script; complete -C "$argv[1]"'
        for line, expected in LINES.items():
            printed = self.run_("fish", "--no-config", "-c", call, line)
            found = {each.split("\t")[0] for each in printed}
            self.assertEqual(found, expected, line)
        [line] = self.run_("fish", "--no-config", "-c", call, "storagegate comp")
        self.assertEqual(line, "completion\tprint the completion script of a shell")
        printed = self.run_("fish", "--no-config", "-c", call, "storagegate backup --to ")
        self.assertEqual([each.split("\t")[0] for each in printed], ["a directory/"])
