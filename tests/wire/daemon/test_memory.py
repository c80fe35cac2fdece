"""What a daemon holds during and after a peak of large requests."""

import contextlib
import json
import socket
import threading
import time
from http.client import HTTPConnection, HTTPException
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from tests.support.daemon import Daemon
from tests.support.memory import forgetPeak, peakMemory, residentMemory
from tests.support.selection import long

MIB = 1 << 20
HTTP = ("--http", "tcp:0:interface=127.0.0.1")

ROW = {"a": 1, "b": "text", "c": [1, 2, 3]}
BODY = json.dumps({"id": "x", "rows": [ROW] * (9 * MIB // (len(json.dumps(ROW)) + 2))}).encode()
PATH = "/api/UserService/GetUser"
HEAD = (
    f"POST {PATH} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    f"Content-Length: {len(BODY)}\r\n\r\n"
).encode()

LEFT = 64 * MIB
"""What a peak may leave behind: less than what is worth a trim, and pages of which a part is in
use."""

SECONDS = 60.0
"""A trim comes within ten."""


class MemoryTests(SynchronousTestCase):
    """A daemon, or a supervisor and its workers, and clients with bodies of 9 MiB."""

    def start(self, *arguments: str) -> None:
        """Start the daemon, and let a first call load what it needs."""
        # The default would refuse most of the bodies.
        environment = {"STORAGEGATE_HELD_BYTES": "256mb"}
        self.daemon = Daemon(
            self.mktemp(), *HTTP, *arguments, environment=environment, expect=("http",)
        ).start()
        self.addCleanup(self.daemon.kill)
        for _ in range(4):
            self.call(b"{}")
        self.before = self.resident()

    def processes(self) -> list[int]:
        """Return the daemon's processes."""
        pid = self.daemon.pid
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        return [pid, *map(int, children)]

    def resident(self) -> int:
        """Return what they have in memory."""
        return sum(map(residentMemory, self.processes()))

    def call(self, body: bytes) -> None:
        """Call with a body."""
        client = HTTPConnection(*self.daemon.address("http"), timeout=60)
        client.request("POST", PATH, body, {"Content-Type": "application/json"})
        self.assertEqual(client.getresponse().status, 400)
        client.close()

    def hangUp(self, clients: int) -> int:
        """Send most of a body over each of many connections, then close them; return the peak."""
        sent = memoryview(HEAD + BODY[: -100 * 1000])
        with contextlib.ExitStack() as stack:
            address = self.daemon.address("http")
            for _ in range(clients):
                client = stack.enter_context(socket.create_connection(address))
                # Some may be refused, because the others hold so much.
                with contextlib.suppress(OSError):
                    client.sendall(sent)
            return self.resident()

    def assertGivenBack(self) -> None:
        """See the memory fall to what it was before, or nearly so."""
        end = time.monotonic() + SECONDS
        pause = threading.Event()
        while time.monotonic() < end and self.resident() - self.before > LEFT:
            pause.wait(0.2)
        self.assertLess((self.resident() - self.before) / MIB, LEFT / MIB)

    @long("takes seconds")
    def test_hangUps(self) -> None:
        """150 clients that hang up in the middle of a body, three times, leave nothing behind."""
        self.start()
        peaks = [self.hangUp(150) for _ in range(3)]
        self.assertGreater(peaks[0] - self.before, 100 * MIB)
        self.assertGivenBack()

    @long("takes seconds")
    def test_workers(self) -> None:
        """Nor do they in workers."""
        self.start("--workers", "2")
        peaks = [self.hangUp(60) for _ in range(3)]
        self.assertGreater(peaks[0] - self.before, 100 * MIB)
        self.assertGivenBack()

    @long("takes seconds")
    def test_calls(self) -> None:
        """One connection with a call of 9 MiB after another takes what one of them needs."""
        self.start()
        forgetPeak(self.daemon.pid)
        client = HTTPConnection(*self.daemon.address("http"), timeout=60)
        self.addCleanup(client.close)
        for _ in range(12):
            with contextlib.suppress(HTTPException, OSError):
                client.request("POST", PATH, BODY, {"Content-Type": "application/json"})
                client.getresponse().read()
        self.assertLess((peakMemory(self.daemon.pid) - self.before) / MIB, 320)
        self.assertGivenBack()
