"""The units under a systemd that has booted for them, as an administrator has them."""

import json
import re
import socket
from collections.abc import Callable
from pathlib import Path
from threading import Event, Thread

from hyperframe.frame import SettingsFrame
from twisted.trial.unittest import SynchronousTestCase

from storagegate.gateway.messages.frames import PING, PONG, encodeFrame
from tests.support.daemon import ACCESS_KEY, SECRET_KEY
from tests.support.h2client import HEAD_LENGTH, PREFACE
from tests.support.http import REQUEST_SECONDS, getJSON, request
from tests.support.machine import Machine
from tests.support.selection import long, soak
from tests.support.units import serviceValue
from tests.test_deploy import MOST_EXPOSURE

# Half of the backlog of the socket units.
MOST_WAITING = 500

SOCKETS = ("storagegate-s3.socket", "storagegate-http.socket", "storagegate-tcp.socket")
S3 = ("127.0.0.1", 9000)
ADMIN = ("127.0.0.1", 9001)
HTTP = ("127.0.0.1", 8080)
GRPC = ("127.0.0.1", 50051)
TCP = ("127.0.0.1", 9102)
UDP = ("127.0.0.1", 9103)

VARIABLES = {
    "STORAGEGATE_ACCESS_KEY": ACCESS_KEY,
    "STORAGEGATE_SECRET_KEY": SECRET_KEY,
    "STORAGEGATE_LOG_FORMAT": "json",
}


@long("boots a machine")
class BootTests(SynchronousTestCase):
    """The service on a machine of its own."""

    timeout = 280

    def setUp(self) -> None:
        """Make the machine."""
        self.machine = Machine(Path(self.mktemp()).absolute())
        self.addCleanup(self.machine.kill)

    def start(self, **variables: str) -> None:
        """Boot, and start the service on systemd's sockets."""
        self.machine.setVariables({**VARIABLES, **variables})
        self.machine.boot()
        self.machine.run("systemctl", "enable", "--now", *SOCKETS, "storagegate.service")

    def ask(self, method: str, path: str, body: bytes | None = None) -> tuple[int, bytes]:
        """Make a request of S3 on the machine."""
        with self.machine.network():
            return request(S3, method, path, body)

    def test_serves(self) -> None:
        """
        Every listener serves, three of them on systemd's sockets, as the unit's user and in its
        directory, shut in as far as the unit says; a stop is in order.
        """
        self.start()
        machine = self.machine
        (machine.root / "srv").chmod(0o777)
        self.assertEqual(machine.show("ActiveState"), "active")
        # Said together with being ready, which systemctl has waited for.
        self.assertIn("serving s3 127.0.0.1:9000", machine.show("StatusText"))
        self.assertServes()
        user = serviceValue("User")
        directory = f"/var/lib/{serviceValue('StateDirectory')}"
        self.assertEqual(machine.run("stat", "--format=%U %a", directory), f"{user} 700\n")
        self.assertShutIn(user, directory)
        strict = ("security", "--no-pager", f"--threshold={MOST_EXPOSURE}")
        machine.run("systemd-analyze", *strict, "storagegate.service")
        machine.run("systemctl", "stop", *SOCKETS, "storagegate.service")
        self.assertStopped()
        with machine.network(), self.assertRaises(ConnectionRefusedError):
            socket.create_connection(S3, REQUEST_SECONDS)

    @soak("boots a machine and operates it for a minute")
    def test_operated(self) -> None:
        """
        A reload replaces the workers; no connection is refused by a restart or while the service is
        stopped; one that stands still is started again.
        """
        self.start(STORAGEGATE_WORKERS="2")
        machine = self.machine
        self.assertServes()
        before = machine.show("MainPID")
        machine.run("systemctl", "reload", "storagegate")
        machine.waitForJournal("2 workers replaced")
        self.assertEqual(machine.show("MainPID"), before)
        self.assertServes()

        restart = ("systemctl", "restart", "storagegate")
        self.assertEqual(self.whileConnecting(lambda: machine.run(*restart)), [])
        self.assertNotEqual(machine.show("MainPID"), before)
        self.assertServes()

        machine.run("systemctl", "stop", "storagegate")
        self.assertStopped()
        # systemd accepts the connection, and starts the service for it.
        self.assertEqual(self.ask("GET", "/bucket/key")[0], 200)

        dropIn = machine.root / "etc/systemd/system/storagegate.service.d/watchdog.conf"
        dropIn.write_text("[Service]\nWatchdogSec=5\n")
        machine.run("systemctl", "daemon-reload")
        machine.run(*restart)
        before, here = machine.show("MainPID"), machine.cursor()
        machine.run("systemctl", "kill", "--kill-whom=main", "--signal=STOP", "storagegate")
        machine.waitForJournal("Watchdog timeout", here)
        machine.waitForJournal("Started storagegate", here)
        self.assertNotEqual(machine.show("MainPID"), before)
        self.assertServes()

    def assertServes(self) -> None:
        """Ask at every listener."""
        self.assertIn(self.ask("PUT", "/bucket")[0], (200, 409))
        self.assertEqual(self.ask("PUT", "/bucket/key", b"x" * 70_000)[0], 200)
        self.assertEqual(self.ask("GET", "/bucket/key"), (200, b"x" * 70_000))
        ping, pong = encodeFrame(PING, b"there?"), encodeFrame(PONG, b"there?")
        with self.machine.network():
            self.assertEqual(getJSON(HTTP, "/api/openapi.json")[0], 200)
            self.assertEqual(getJSON(ADMIN, "/readyz")[0], 200)
            with socket.create_connection(TCP, REQUEST_SECONDS) as client:
                client.sendall(ping)
                self.assertEqual(client.recv(len(pong), socket.MSG_WAITALL), pong)
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
                client.settimeout(REQUEST_SECONDS)
                client.sendto(ping, UDP)
                self.assertEqual(client.recv(2048), pong)
            with socket.create_connection(GRPC, REQUEST_SECONDS) as client:
                client.sendall(PREFACE + SettingsFrame().serialize())
                head = client.recv(HEAD_LENGTH, socket.MSG_WAITALL)
                self.assertEqual(head[3], SettingsFrame.type)

    def assertShutIn(self, user: str, directory: str) -> None:
        """The main process is the user's, has no capability, and writes where it has to alone."""
        pid = self.machine.show("MainPID")
        self.assertEqual(self.machine.run("ps", "-o", "user=", pid), f"{user}\n")
        status = self.machine.run("cat", f"/proc/{pid}/status")
        self.assertEqual(set(re.findall(r"Cap\w+:\s(\w+)", status)), {"0" * 16})
        asUser = ("setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups")
        script = 'for each; do test ! -w "$each" || echo "$each"; done'
        places = (directory, "/tmp", "/srv", "/etc/storagegate")
        self.assertEqual(
            self.machine.run(
                "nsenter", f"--target={pid}", "--mount", *asUser, "sh", "-c", script, "sh", *places
            ).split(),
            [directory, "/tmp"],
        )

    def assertStopped(self) -> None:
        """The service has ended by itself, with exit code 0, and has said so in JSON."""
        found = [self.machine.show(name) for name in ("ActiveState", "Result", "ExecMainStatus")]
        self.assertEqual(found, ["inactive", "success", "0"])
        journal = self.machine.journal()
        lines = [json.loads(line) for line in journal.splitlines() if line.startswith("{")]
        self.assertIn("stopped", [line["message"] for line in lines])
        self.assertNotIn("Traceback", journal)

    def whileConnecting(self, act: Callable[[], object]) -> list[str]:
        """Do something while connections to S3 are opened, and give what was wrong with them."""
        first, done, wrong = Event(), Event(), list[str]()

        def connect() -> None:
            """Open one after the other, fewer than may wait on the socket."""
            with self.machine.network():
                for _ in range(MOST_WAITING):
                    try:
                        socket.create_connection(S3, REQUEST_SECONDS).close()
                    except OSError as error:
                        wrong.append(repr(error))
                    first.set()
                    if done.wait(0.02):
                        return

        thread = Thread(target=connect)
        thread.start()
        try:
            first.wait(REQUEST_SECONDS)
            act()
        finally:
            done.set()
            thread.join()
        return wrong
