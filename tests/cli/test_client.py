"""What the command line takes from its environment, its arguments and a daemon elsewhere."""

import os
from contextlib import redirect_stderr
from io import StringIO
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from storagegate.cli.client import ConsoleClient
from storagegate.cli.connect import checkedAddress
from storagegate.cli.initialisation import unitText
from storagegate.cli.invocation import MISUSED, CommandError
from storagegate.cli.main import main
from storagegate.s3.issuedkeys import KeyPair


class ClientTests(SynchronousTestCase):
    """The key pair."""

    def test_unsendable(self) -> None:
        """A pair that cannot be in a header is an error that does not show it."""
        for secretKey in ("hush-hush\r", "hush-hush\nx: y", "hush\u202e", "hüsh-hush"):
            for pair in (KeyPair("AKIAX", secretKey), KeyPair(secretKey, "hush-hush")):
                error = self.assertRaises(CommandError, ConsoleClient, "http://[::1]:1", pair)
                self.assertEqual(error.code, MISUSED)
                self.assertNotIn("h-hush", f"{error}")

    def patchEnvironment(self, name: str, value: str) -> None:
        """Set a variable for a test."""
        before = os.environ.get(name)
        os.environ[name] = value
        if before is not None:
            self.addCleanup(os.environ.__setitem__, name, before)
        self.addCleanup(os.environ.pop, name)

    def test_unencodable(self) -> None:
        """An argument that is no UTF-8 is an error in one line."""
        variables = {"STORAGEGATE_ACCESS_KEY": "AKIAX", "STORAGEGATE_SECRET_KEY": "hush-hush"}
        for name, value in variables.items():
            self.patchEnvironment(name, value)
        errors = StringIO()
        with redirect_stderr(errors):
            code = main(("trace", "--prefix", "\udcff", "--url", "http://127.0.0.1:1"))
        self.assertEqual((code, errors.getvalue().count("\n")), (1, 1))


class TextTests(SynchronousTestCase):
    """What is printed or written for others to execute."""

    def test_address(self) -> None:
        """What a daemon elsewhere says of S3 is nothing that a shell or a terminal executes."""
        for good in ("http://[::1]:9000", "https://s3.example.com/a~b%20c", "us-east-1"):
            self.assertEqual(checkedAddress(good), good)
        for wrong in ("http://x';reboot;'", "http://x\x1b]0;y\x07", "http://x\ny", "http://$(id)"):
            self.assertRaises(CommandError, checkedAddress, wrong)

    def test_unit(self) -> None:
        """A dollar sign or a percent sign in a path names no variable of the unit."""
        data = Path(self.mktemp()).absolute() / "a$b%c"
        data.mkdir(parents=True)
        lines = unitText(Path("/etc/a$b%c.toml"), data).splitlines()
        started = next(each for each in lines if each.startswith("ExecStart="))
        self.assertTrue(started.endswith('"/etc/a$$b%%c.toml"'), started)
        written = next(each for each in lines if each.startswith("ReadWritePaths="))
        self.assertTrue(written.endswith('/a$b%%c"'), written)
        self.assertRaises(CommandError, unitText, Path("/etc/a\nExecStartPre=b"), data)
