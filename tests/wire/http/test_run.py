"""Applications as scripts: C{app.run}."""

import os
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

import storagegate
from tests.support.ports import heldPort
from tests.support.selection import long

_SCRIPT = """
from storagegate import server
app = server.http().withOptions(port={port})
app.get("/", lambda req, res: res.send("hi"))
{listen}
print("ready", flush=True)
app.run({arguments})
"""

# Longer than a start takes on a busy machine.
_SECONDS = 100.0


class RunTests(SynchronousTestCase):
    """A script that serves until it is told to stop."""

    def setUp(self) -> None:
        """Have a port for the script."""
        self.port = heldPort(self)

    def start(self, listen: str = "", arguments: str = "") -> subprocess.Popen[bytes]:
        """Start a script, and wait until it is about to run."""
        script = _SCRIPT.format(port=self.port, listen=listen, arguments=arguments)
        checkout = str(Path(storagegate.__file__).parent.parent)
        process = subprocess.Popen(
            [sys.executable, "-c", script],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": checkout},
        )
        self.addCleanup(process.communicate)
        self.addCleanup(process.kill)
        assert process.stdout is not None
        self.assertEqual(process.stdout.readline(), b"ready\n")
        return process

    def get(self, process: subprocess.Popen[bytes]) -> bytes:
        """Ask for the page, as soon as somebody listens."""
        while process.poll() is None:
            try:
                with urllib.request.urlopen(
                    f"http://127.0.0.1:{self.port}/", timeout=_SECONDS
                ) as answer:
                    body: bytes = answer.read()
                    return body
            except ConnectionRefusedError:
                continue
            except urllib.error.URLError as error:
                if not isinstance(error.reason, ConnectionRefusedError):
                    raise
        raise AssertionError("the script has ended")

    @long("takes a second or more")
    def test_run(self) -> None:
        """It serves on its port, whoever says which, and ends by a signal without an error."""
        for listen, arguments in (
            ("", ""),
            ("app.withOptions(port=0)", str(self.port)),
            ("app.listen()", ""),
        ):
            process = self.start(listen, arguments)
            self.assertEqual(self.get(process), b"hi")
            process.send_signal(signal.SIGTERM)
            _, told = process.communicate(timeout=_SECONDS)
            line = f"listening name=http address=127.0.0.1:{self.port}\n"
            self.assertEqual((process.returncode, told), (0, line.encode()))

    def test_quiet(self) -> None:
        """With C{quiet} it says nothing."""
        process = self.start("app.withOptions(port=0)", f"{self.port}, quiet=True")
        self.get(process)
        process.send_signal(signal.SIGTERM)
        _, told = process.communicate(timeout=_SECONDS)
        self.assertEqual((process.returncode, told), (0, b""))

    def test_taken(self) -> None:
        """Where the port is taken it ends with one line that says so."""
        with socket.create_server(("127.0.0.1", self.port)):
            process = self.start()
            _, told = process.communicate(timeout=_SECONDS)
        self.assertEqual(process.returncode, 1)
        self.assertEqual(told.count(b"\n"), 1)
        self.assertIn(str(self.port).encode(), told)

    def test_takenBefore(self) -> None:
        """A script whose own listen() has failed does not go on to serve somewhere else."""
        with socket.create_server(("127.0.0.1", self.port)):
            process = self.start(listen=f"app.listen({self.port}).addErrback(lambda reason: None)")
            _, told = process.communicate(timeout=_SECONDS)
        self.assertEqual(process.returncode, 1)
        self.assertIn(str(self.port).encode(), told)

    def test_started(self) -> None:
        """Whoever wants to know hears of the listening port."""
        process = self.start(arguments="0, started=lambda port: print(port.getHost(), flush=True)")
        assert process.stdout is not None
        self.assertIn(b"127.0.0.1", process.stdout.readline())

    def test_stopped(self) -> None:
        """An endless stream does not keep a script from ending, but for a moment."""
        process = self.start(
            listen='app.get("/endless", lambda req, res: res.write("x") and None)',
            arguments="graceMs=200",
        )
        self.get(process)
        with urllib.request.urlopen(
            f"http://127.0.0.1:{self.port}/endless", timeout=_SECONDS
        ) as endless:
            self.assertEqual(endless.read(1), b"x")
            # Shells start what runs in the background with SIGINT ignored, so that is no test.
            process.send_signal(signal.SIGTERM)
            self.assertEqual(process.wait(timeout=_SECONDS), 0)
