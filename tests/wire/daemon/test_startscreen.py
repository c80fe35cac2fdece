"""The start of the daemon on a terminal, and off one."""

import os
import pty
import re
import signal
import subprocess
import sys
from pathlib import Path
from threading import Event

from twisted.trial.unittest import SynchronousTestCase

from storagegate.daemon.startscreen import MOST_LINES
from tests.support.daemon import START_SECONDS, daemonEnvironment

LISTENERS = (
    "--s3",
    "tcp:0:interface=127.0.0.1",
    "--admin",
    "tcp:0:interface=127.0.0.1",
    "--http",
    "off",
    "--grpc",
    "off",
    "--tcp",
    "off",
    "--udp",
    "off",
)

# The start generates the root key pair.
ENVIRONMENT = {"STORAGEGATE_ACCESS_KEY": "", "STORAGEGATE_SECRET_KEY": ""}

TWISTD = "from twisted.scripts.twistd import run; run()"


class ScreenTests(SynchronousTestCase):
    """C{twistd -n storagegate}."""

    def setUp(self) -> None:
        """Have a directory."""
        self.directory = Path(self.mktemp()).absolute()
        self.directory.mkdir()

    def onTerminal(self, **variables: str) -> str:
        """Start the daemon on a terminal, stop it when the screen is there, return the output."""
        main, other = pty.openpty()
        process = subprocess.Popen(
            [sys.executable, "-c", TWISTD, "-n", "storagegate", *LISTENERS],
            cwd=self.directory,
            env={**daemonEnvironment(), **ENVIRONMENT, "TERM": "xterm", **variables},
            stdin=other,
            stdout=other,
            stderr=other,
        )
        os.close(other)
        self.addCleanup(os.close, main)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        text = ""
        while "Press Ctrl-C to stop" not in text:
            text += os.read(main, 1 << 16).decode()
        process.send_signal(signal.SIGTERM)
        self.assertEqual(process.wait(START_SECONDS), 0)
        return text.replace("\r\n", "\n")

    def test_terminal(self) -> None:
        """The start ends in one screen, which has the new pair once; a later start has none."""
        text = self.onTerminal()
        self.assertLessEqual(text.count("\n"), MOST_LINES)
        self.assertRegex(text, r"\A\x1b\[1mstoragegate \S+\x1b\[0m\n\n  S3 +http://127.0.0.1:\d+\n")
        secrets = dict(line.split("=") for line in self.credentials().read_text().splitlines())
        secret = secrets["AWS_SECRET_ACCESS_KEY"]
        # As a variable for aws-cli, and as a header for curl.
        self.assertEqual(text.count(secret), 2)
        self.assertNotIn(secret, self.onTerminal())

    def test_noColour(self) -> None:
        """C{NO_COLOR} takes the colours away."""
        self.assertNotIn("\x1b", self.onTerminal(NO_COLOR="1"))

    def test_pipe(self) -> None:
        """Off a terminal the log has its lines, without those of Twisted itself."""
        log = self.directory / "log"
        with log.open("wb") as output:
            process = subprocess.Popen(
                [sys.executable, "-c", TWISTD, "-n", "storagegate", *LISTENERS],
                cwd=self.directory,
                env={**daemonEnvironment(), **ENVIRONMENT},
                stdout=output,
                stderr=output,
            )
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        never = Event()
        while not re.search("listening name=admin", log.read_text()):
            self.assertIsNone(process.poll(), log.read_text())
            never.wait(0.02)
        process.send_signal(signal.SIGTERM)
        self.assertEqual(process.wait(START_SECONDS), 0)
        text = log.read_text()
        self.assertIn("aws configure set aws_secret_access_key", text)
        for line in ("starting on", "reactor class", "starting up", "Ctrl-C", "Server Shut Down"):
            self.assertNotIn(line, text)

    def credentials(self) -> Path:
        """Return the path of the root key pair."""
        return self.directory / "storagegate-data" / "root-credentials"
