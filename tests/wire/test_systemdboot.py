"""The units under a systemd that has booted for them, as an administrator has them."""

import json
import os
import socket
from collections.abc import Callable
from pathlib import Path
from threading import Event, Thread

from twisted.trial.unittest import SkipTest, SynchronousTestCase

from storagegate.gateway.frames import PING, PONG, encodeFrame
from tests.support.daemon import ACCESS_KEY, SECRET_KEY
from tests.support.http import REQUEST_SECONDS, getJSON, request
from tests.support.machine import Machine
from tests.support.units import serviceValue

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
    "STORAGEGATE_WORKERS": "2",
    "STORAGEGATE_LOG_FORMAT": "json",
}


class BootTests(SynchronousTestCase):
    """A machine of its own, and the service on it."""

    timeout = 280

    def setUp(self) -> None:
        """Boot the machine and start the service on its sockets."""
        self.machine = Machine(Path(self.mktemp()).absolute())
        reason = self.machine.check()
        if reason:
            raise SkipTest(reason)
        self.addCleanup(self.machine.kill)
        self.machine.setVariables(VARIABLES)

    def start(self) -> None:
        """Boot and start."""
        self.machine.boot()
        self.machine.run("systemctl", "enable", "--now", *SOCKETS, "storagegate.service")

    def ask(self, method: str, path: str, body: bytes | None = None) -> tuple[int, bytes]:
        """Make a request of S3 on the machine."""
        with self.machine.network():
            return request(S3, method, path, body)

    def test_serves(self) -> None:
        """
        Every listener serves, three on systemd's sockets, as the unit's user and in its directory;
        workers are replaced by a reload; no connection is refused by a restart or while it is
        stopped; a stop is in order.
        """
        self.start()
        machine = self.machine
        self.assertEqual(machine.show("ActiveState"), "active")
        self.assertServes()
        user = serviceValue("User")
        directory = f"/var/lib/{serviceValue('StateDirectory')}"
        self.assertEqual(machine.run("stat", "-c%U %a", directory), f"{user} 700\n")
        members = machine.run("ps", "-o", "user=", "-u", user).split()
        self.assertEqual(members, [user] * 3)

        before = machine.show("MainPID")
        machine.run("systemctl", "reload", "storagegate")
        machine.waitForJournal("2 workers replaced")
        self.assertEqual(machine.show("MainPID"), before)
        self.assertEqual(self.ask("GET", "/bucket/key")[0], 200)

        refused = self.whileConnecting(lambda: machine.run("systemctl", "restart", "storagegate"))
        self.assertEqual(refused, [])
        self.assertEqual(self.ask("GET", "/bucket/key")[0], 200)

        machine.run("systemctl", "stop", "storagegate")
        self.assertStopped()
        # Nobody serves; whoever comes is let in by systemd, which starts the service for him.
        self.assertEqual(self.ask("GET", "/bucket/key")[0], 200)
        machine.run("systemctl", "stop", *SOCKETS, "storagegate.service")
        self.assertStopped()
        with machine.network(), self.assertRaises(ConnectionRefusedError):
            socket.create_connection(S3, REQUEST_SECONDS)

    def assertServes(self) -> None:
        """Ask at every listener."""
        self.assertEqual(self.ask("PUT", "/bucket")[0], 200)
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
                client.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0]))
                self.assertEqual(client.recv(4, socket.MSG_WAITALL)[3], 4)

    def assertStopped(self) -> None:
        """The service has ended by itself, with exit code 0, and has said so in JSON."""
        found = [self.machine.show(name) for name in ("ActiveState", "Result", "ExecMainStatus")]
        self.assertEqual(found, ["inactive", "success", "0"])
        lines = [line for line in self.machine.journal().splitlines() if line.startswith("{")]
        self.assertIn("stopped", [json.loads(line).get("message") for line in lines])
        self.assertNotIn("Traceback", self.machine.journal())

    def whileConnecting(self, act: Callable[[], object]) -> list[str]:
        """Do something while connections to S3 are opened, and give what was wrong with them."""
        done, wrong = Event(), list[str]()

        def connect() -> None:
            """Open one after the other."""
            with self.machine.network():
                while not done.is_set():
                    try:
                        socket.create_connection(S3, REQUEST_SECONDS).close()
                    except OSError as error:
                        wrong.append(repr(error))

        thread = Thread(target=connect)
        thread.start()
        try:
            act()
        finally:
            done.set()
            thread.join()
        return wrong
