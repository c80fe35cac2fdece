"""The daemon as the script starts it."""

import json
import subprocess
import sys
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from storagegate import __version__
from tests.support.daemon import Daemon, daemonEnvironment
from tests.support.http import getJSON
from tests.support.selection import long

FORMS = {
    "serve": "import sys; from storagegate.cli.main import main; sys.exit(main(['serve', {}]))",
    "module": "import sys, runpy; sys.argv[1:] = [{}];"
    " runpy.run_module('storagegate', run_name='__main__', alter_sys=True)",
}
"""Programs that start the daemon with given flags."""

FLAGS = "*sys.argv[sys.argv.index('storagegate') + 1:]"
"""What L{Daemon} gives to the daemon itself, behind the flags of C{twistd}."""


def runModule(*arguments: str, directory: Path | None = None) -> tuple[int, str, str]:
    """Run C{python -m storagegate} and give exit code, output and error output."""
    done = subprocess.run(
        [sys.executable, "-m", "storagegate", *arguments],
        env=daemonEnvironment(),
        cwd=directory,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


class ServeTests(SynchronousTestCase):
    """C{storagegate serve} and C{python -m storagegate}."""

    @long("takes a second or more")
    def test_serves(self) -> None:
        """Both serve in the foreground with the daemon's flags, log to stdout and end in order."""
        for name, program in FORMS.items():
            directory = Path(self.mktemp())
            directory.mkdir()
            with Daemon(
                directory / "data",
                "--tcp",
                "tcp:0:interface=127.0.0.1",
                environment={"STORAGEGATE_LOG_FORMAT": "json"},
                expect=("s3", "admin", "tcp"),
                directory=directory,
                program=program.format(FLAGS),
            ) as daemon:
                self.assertEqual(getJSON(daemon.address("admin"), "/readyz")[1]["status"], "ok")
                self.assertEqual(daemon.stop(), 0, name)
            lines = [line for line in daemon.log.splitlines() if "listening" in line]
            self.assertEqual(len([json.loads(line) for line in lines]), 3, daemon.log)
            # No pid file, which would keep the next one from a start in this directory.
            self.assertEqual([each.name for each in directory.iterdir()], ["data"])

    def test_services(self) -> None:
        """A flag that is given several times arrives as often."""
        directory = Path(self.mktemp())
        directory.mkdir()
        (directory / "first.py").write_text(
            'Here = {"name": "Here", "methods": {"a": {"handler": lambda request, context: {}}}}\n'
        )
        flags = ("--service", "first:Here", "--service", "nowhere:x", "--s3", "off")
        code, output, errors = runModule("serve", *flags, directory=directory)
        self.assertEqual(code, 1)
        self.assertIn("nowhere:x: cannot import nowhere", output + errors)

    def test_refused(self) -> None:
        """A value that is wrong is one line; no flag of that name is the script's own matter."""
        code, _output, errors = runModule("--s3", "off", "--workers", "none")
        self.assertEqual((code, len(errors.splitlines())), (1, 1), errors)
        self.assertIn("workers (flag --workers)", errors)
        self.assertEqual(runModule("serve", "--nothing")[0], 2)

    def test_commands(self) -> None:
        """The module has the commands of the script, too."""
        code, output, _errors = runModule("--version")
        self.assertEqual((code, output), (0, f"storagegate {__version__}\n"))
        code, output, _errors = runModule("keys", "--help")
        self.assertEqual((code, "revoke" in output), (0, True))
