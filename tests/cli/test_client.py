"""What the command line takes from its environment, its arguments and a daemon elsewhere."""

import json
import os
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from http.server import BaseHTTPRequestHandler, HTTPServer
from io import StringIO
from pathlib import Path
from threading import Thread

from twisted.trial.unittest import SynchronousTestCase

from storagegate.cli.awssettings import S3Credentials
from storagegate.cli.client import ConsoleClient
from storagegate.cli.connect import checkedAddress
from storagegate.cli.invocation import MISUSED, UNREACHED, CommandError
from storagegate.cli.main import main
from storagegate.cli.unit import unitText
from tests.support.selection import long


class ClientTests(SynchronousTestCase):
    """The key pair."""

    def test_unsendable(self) -> None:
        """A pair that cannot be in a header is an error that does not show it."""
        for secretKey in ("hush-hush\r", "hush-hush\nx: y", "hush\u202e", "hüsh-hush"):
            for pair in (
                S3Credentials("AKIAX", secretKey),
                S3Credentials(secretKey, "hush-hush"),
                S3Credentials("AKIAX", "hush-hush", secretKey),
            ):
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

    def remote(self, url: str, *words: str) -> tuple[int, str]:
        """Run a command against a URL; return its exit code and what it prints as errors."""
        self.patchEnvironment("STORAGEGATE_ACCESS_KEY", "AKIAX")
        self.patchEnvironment("STORAGEGATE_SECRET_KEY", "hush-hush")
        errors = StringIO()
        with redirect_stderr(errors):
            code = main((*words, "--url", url))
        self.assertEqual(errors.getvalue().count("\n"), 1, errors.getvalue())
        return code, errors.getvalue()

    def test_wrongURL(self) -> None:
        """What is no URL, and one with a password, which is not repeated, are misuse."""
        for url in ("http://[::1", "http://:9001", "ftp://127.0.0.1", "http://127.0.0.1:99999"):
            self.assertIn("expected a URL", self.remote(url, "status")[1])
        for url in ("http://ops:hunter2@127.0.0.1:1", "http://hunter2@[::1]"):
            code, error = self.remote(url, "status")
            self.assertEqual(code, MISUSED)
            self.assertNotIn("hunter2", error)

    @long("takes seconds")
    def test_stranger(self) -> None:
        """A server that is no console is named as such, whatever it answers."""
        for content in (b"<p>welcome", b"[]", b'{"items": 3}', b"", b"\xff"):

            class Stranger(BaseHTTPRequestHandler):
                answer = content

                def greet(self) -> None:
                    self.send_response(200)
                    self.end_headers()
                    self.wfile.write(self.answer)

                def beSilent(self, *values: object) -> None:
                    """Log nothing."""

                do_GET, log_message = greet, beSilent

            with HTTPServer(("127.0.0.1", 0), Stranger) as server:
                Thread(target=server.serve_forever, daemon=True).start()
                self.addCleanup(server.server_close)
                for words in (("status",), ("keys", "list"), ("trace",), ("config", "show")):
                    code, error = self.remote(f"http://127.0.0.1:{server.server_port}", *words)
                    self.assertEqual(
                        (code, "not a storagegate console" in error), (UNREACHED, True), error
                    )
                server.shutdown()


class OutputTests(SynchronousTestCase):
    """What has no command, and a process without an output."""

    @long("takes seconds")
    def test_closed(self) -> None:
        """A process whose output is closed ends as with one."""
        for words in ("", "completion bash", "--json"):
            for closed in (">&-", ">&- 2>&-"):
                script = "import sys; from storagegate.cli.main import main; sys.exit(main())"
                done = subprocess.run(
                    f"{sys.executable} -c '{script}' {words} {closed}",
                    shell=True,
                    env={**os.environ, "STORAGEGATE_DATA": self.mktemp()},
                    stderr=subprocess.PIPE,
                    timeout=60,
                )
                self.assertEqual((done.returncode, done.stderr), (0, b""), (words, closed))

    def test_overviewAsJSON(self) -> None:
        """Without a command, the overview is one object, too; a flag before one is refused."""
        output = StringIO()
        with redirect_stdout(output):
            self.assertEqual(main(("--json",)), 0)
        found = json.loads(output.getvalue())
        self.assertIn("keys list", {each["command"] for each in found["commands"]})
        with redirect_stderr(StringIO()):
            self.assertRaises(SystemExit, main, ("--json", "keys", "list"))


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
        lines = unitText(Path("/etc/a$b%c.toml"), data, "nobody").splitlines()
        started = next(each for each in lines if each.startswith("ExecStart="))
        self.assertTrue(started.endswith('"/etc/a$$b%%c.toml"'), started)
        written = next(each for each in lines if each.startswith("ReadWritePaths="))
        self.assertTrue(written.endswith('/a$b%%c"'), written)
        self.assertRaises(CommandError, unitText, Path("/etc/a\nExecStartPre=b"), data, "a")
