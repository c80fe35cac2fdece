"""Commands where a package of an extra is absent: one line that says how to install it."""

import json
import os
import subprocess
import sys
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from storagegate.cli.commands import COMMANDS
from tests.support.daemon import daemonEnvironment
from tests.support.selection import long

_PROGRAM = """
import io, json, sys
from contextlib import redirect_stderr, redirect_stdout
for name in json.loads(sys.argv[1]):
    sys.modules[name] = None
from storagegate.cli.main import main
results = []
for words in json.loads(sys.argv[2]):
    out, errors = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(errors):
        try:
            code = main(words)
        except SystemExit as error:
            code = error.code
        except BaseException as error:
            code = repr(error)
    results.append([code, out.getvalue(), errors.getvalue()])
print(json.dumps(results))
"""

_WORDS = {
    "cluster migrate": ["--to", "nowhere"],
    "cluster shard add": ["host=127.0.0.1"],
    "cluster shard open": ["1"],
    "cluster shard close": ["1"],
}
"""What the commands need besides."""


class ExtraTests(SynchronousTestCase):
    """Each case runs commands in a process without some packages."""

    def runCommands(
        self, blocked: list[str], commands: list[list[str]], **environment: str
    ) -> list[tuple[int, str, str]]:
        """Run commands; return the exit code, the output and the errors of each."""
        done = subprocess.run(
            [sys.executable, "-c", _PROGRAM, json.dumps(blocked), json.dumps(commands)],
            env=daemonEnvironment(environment),
            capture_output=True,
            text=True,
            timeout=120,
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        return [tuple(each) for each in json.loads(done.stdout)]

    def configuration(self, *lines: str) -> str:
        """Write a configuration."""
        path = Path(self.mktemp())
        path.write_text("\n".join(lines))
        return os.path.abspath(path)

    def cluster(self, *lines: str) -> str:
        """Write a configuration with the table of a cluster."""
        catalog = 'catalog = ["host=127.0.0.1 port=1"]'
        return self.configuration("[cluster]", catalog, 'blobs = "files:/nowhere"', *lines)

    def test_cluster(self) -> None:
        """All commands of a cluster, with a configuration of one and without."""
        rows = [row.path for row in COMMANDS if row.path.startswith("cluster ")]
        self.assertGreater(len(rows), 7)
        commands = [
            [*path.split(), *_WORDS.get(path, []), "--config", config]
            for config in (self.cluster(), self.configuration(""))
            for path in rows
        ]
        for words, (code, out, errors) in zip(
            commands, self.runCommands(["psycopg"], commands), strict=True
        ):
            self.assertEqual((code, out), (1, ""), words)
            self.assertRegex(
                errors,
                r"\Astoragegate: .*psycopg is missing: pip install '\.\[cluster\]' in a checkout of"
                r" storagegate\n\Z",
            )

    @long("takes a second or more")
    def test_others(self) -> None:
        """Other commands that read the table, and the doctor."""
        config = self.cluster()
        commands = [
            [*words, "--config", config]
            for words in (["keys", "list"], ["fsck"], ["status"], ["config", "check"])
        ]
        for words, (code, out, errors) in zip(
            commands, self.runCommands(["psycopg"], commands), strict=True
        ):
            self.assertNotEqual(code, 0, words)
            text = out + errors
            self.assertEqual(text.count("psycopg is missing"), 1, (words, text))
            self.assertNotIn("Traceback", text)
        [(code, out, errors)] = self.runCommands(["psycopg"], [["doctor", "--config", config]])
        self.assertEqual(code, 1)
        self.assertIn(
            "psycopg is missing: pip install '.[cluster]' in a checkout of storagegate",
            out + errors,
        )

    def test_valkey(self) -> None:
        """Counts in Valkey need a package of the same extra."""
        config = self.cluster('counts = "valkey://127.0.0.1:1"')
        [(code, _, errors)] = self.runCommands(
            ["hiredis"], [["cluster", "status", "--config", config]]
        )
        self.assertEqual(code, 1)
        self.assertRegex(errors, r"\A[^\n]*hiredis is missing: pip install [^\n]*\n\Z")

    def test_library(self) -> None:
        """A package that is there and finds no library of its own is told as well."""
        for config in (self.cluster(), self.configuration("")):
            [(code, _, errors)] = self.runCommands(
                ["psycopg_c"], [["cluster", "status", "--config", config]], PSYCOPG_IMPL="c"
            )
            self.assertEqual(code, 1)
            self.assertRegex(
                errors,
                r"\A[^\n]*psycopg cannot be used: [^\n]*'\.\[cluster\]' in a checkout [a-z ]*\n\Z",
            )
