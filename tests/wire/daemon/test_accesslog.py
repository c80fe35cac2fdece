"""The access log of real daemons in a file of its own: rotation, workers, a full disk."""

import json
import os
import re
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from tests.support.daemon import SECRET_KEY, Daemon
from tests.support.http import ROOT_HEADERS, request
from tests.support.modules import CHECKOUT
from tests.support.programs import findProgram, needs
from tests.support.selection import long

LOGROTATE = findProgram("logrotate")

SECONDS = 30.0


class AccessLogTests(SynchronousTestCase):
    """C{accessLog}."""

    timeout = 120

    def setUp(self) -> None:
        """Name the file."""
        self.directory = Path(self.mktemp()).absolute()
        self.directory.mkdir()
        self.path = self.directory / "access.log"

    def daemon(self, *arguments: str, path: str = "") -> Daemon:
        """Make a daemon that does not outlive the test."""
        daemon = Daemon(
            self.directory / "data",
            "--accessLog",
            path or str(self.path),
            "--http",
            "tcp:0:interface=127.0.0.1",
            *arguments,
            expect=("s3", "admin", "http"),
        )
        self.addCleanup(daemon.kill)
        return daemon

    def ask(self, daemon: Daemon, path: str = "/none") -> int:
        """Send a request of S3, which is refused; give its status."""
        return request(daemon.address("s3"), "HEAD", path, headers=ROOT_HEADERS)[0]

    def lines(self, *paths: Path) -> list[dict[str, Any]]:
        """Read lines, every one of which is whole."""
        text = b"".join(path.read_bytes() for path in paths or (self.path,) if path.exists())
        self.assertTrue(not text or text.endswith(b"\n"))
        return [json.loads(line) for line in text.splitlines()]

    def until(self, isSo: Callable[[], object]) -> None:
        """Wait for something."""
        end = time.monotonic() + SECONDS
        while not isSo():
            self.assertLess(time.monotonic(), end)
            threading.Event().wait(0.02)

    def test_file(self) -> None:
        """Requests and calls are lines of the file alone, which needs no other option."""
        with self.daemon() as daemon:
            self.assertEqual(self.ask(daemon), 404)
            connection = HTTPConnection(*daemon.address("http"), timeout=SECONDS)
            headers = {"X-API-Key": SECRET_KEY, "User-Agent": "audited/1"}
            connection.request("POST", "/api/UserService/GetUser", "{}", headers)
            self.assertEqual(connection.getresponse().status, 400)
            connection.close()
            daemon.stop()
        found = [(line["protocol"], line["method"]) for line in self.lines()]
        self.assertEqual(sorted(found), [("http", "GetUser"), ("s3", "HeadBucket")])
        [call] = [line for line in self.lines() if line["protocol"] == "http"]
        self.assertEqual(
            [call[name] for name in ("status_code", "error_code", "user", "address", "user_agent")],
            [400, "INVALID_ARGUMENT", "", "127.0.0.1", "audited/1"],
        )
        self.assertNotIn("HeadBucket", daemon.log)
        self.assertNotIn(SECRET_KEY, self.path.read_text())
        self.assertEqual(self.path.stat().st_mode & 0o777, 0o640)

    def test_moved(self) -> None:
        """A file that is moved away is begun anew with the next line, and at once by SIGHUP."""
        with self.daemon() as daemon:
            moved = [self.directory / f"moved.{number}" for number in range(2)]
            for path in moved:
                self.ask(daemon)
                self.until(self.lines)
                self.path.rename(path)
            daemon.signal(signal.SIGHUP)
            self.until(self.path.exists)
            self.ask(daemon)
            daemon.stop()
        self.assertEqual([len(self.lines(path)) for path in (*moved, self.path)], [1, 1, 1])

    @long("takes seconds")
    def test_workers(self) -> None:
        """Lines of several workers are whole and complete, also while the file is moved."""
        with self.daemon("--workers", "2") as daemon, ThreadPoolExecutor(8) as pool:
            moved = self.directory / "moved"
            asked = [pool.submit(self.ask, daemon, f"/bucket-{n}/{n}") for n in range(400)]
            self.until(self.lines)
            self.path.rename(moved)
            self.assertEqual({each.result() for each in asked}, {404})
            daemon.signal(signal.SIGHUP)
            daemon.waitForLog("workers replaced")
            self.assertEqual(self.ask(daemon, "/bucket-400/400"), 404)
            daemon.stop()
        keys = [line["key"] for line in self.lines(moved, self.path)]
        self.assertEqual(sorted(map(int, keys)), list(range(401)))

    @long("takes seconds")
    @needs("logrotate")
    def test_logrotate(self) -> None:
        """The documented configuration of logrotate keeps every line."""
        text = (CHECKOUT / "docs" / "operations.rst").read_text()
        match = re.search(
            r"\n    (/var/log/storagegate/access\.log \{\n.*?\n    \})", text, re.DOTALL
        )
        assert match is not None
        configuration = match[1].replace("/var/log/storagegate", str(self.directory))
        owner = f"su {os.getuid()} {os.getgid()}"
        configuration = re.sub(r"su storagegate storagegate", owner, configuration)
        file = self.directory / "logrotate.conf"
        file.write_text(configuration)
        file.chmod(0o644)
        self.directory.chmod(0o755)
        with self.daemon("--workers", "2") as daemon:
            for number in range(3):
                for _ in range(5):
                    self.ask(daemon)
                self.until(lambda: len(self.lines()) == 5)
                state = str(self.directory / "state")
                rotated = subprocess.run(
                    [LOGROTATE or "", "--force", "--state", state, str(file)],
                    capture_output=True,
                    text=True,
                    check=False,
                    timeout=SECONDS,
                )
                self.assertEqual((rotated.returncode, rotated.stderr), (0, ""), number)
            self.ask(daemon)
            daemon.stop()
        self.assertEqual(len(self.lines()), 1)
        self.assertEqual(len(self.lines(self.directory / "access.log.1")), 5)
        older = sorted(path.name for path in self.directory.glob("access.log.*.gz"))
        self.assertEqual(older, ["access.log.2.gz", "access.log.3.gz"])

    def test_fullDisk(self) -> None:
        """A log that cannot be written harms no request; one line says so."""
        with self.daemon(path="/dev/full") as daemon:
            for _ in range(3):
                self.assertEqual(self.ask(daemon), 404)
                daemon.waitForLog("cannot write the access log /dev/full: No space left on device")
        self.assertEqual(daemon.log.count("the access log"), 1)

    def test_refused(self) -> None:
        """A file that cannot be opened stops the start with one line."""
        daemon = self.daemon(path=str(self.directory / "none" / "access.log"))
        daemon.launch()
        self.assertEqual(daemon.wait(), 1)
        self.assertIn("cannot open the access log: ", daemon.log)
        self.assertNotIn("Traceback", daemon.log)
