"""Clients of HTTP/2 that do not take their responses fill no memory, and do not disturb others."""

import contextlib
import os
import socket
import subprocess
import sys

from twisted.trial.unittest import SynchronousTestCase

from storagegate.net.http2 import frames
from tests.support.daemon import daemonEnvironment
from tests.support.memory import forgetPeak, peakMemory
from tests.support.selection import long

MIB = 1 << 20

CLIENTS = 200
STREAMS = 100

RISE_LIMIT = 160 * MIB
"""The budget of 64 MiB, the buffers of the transports, and freed memory."""

# GET / and GET /index.html of http://x, from the static table.
HEADS = (b"\x82\x84\x86\x41\x01x", b"\x82\x85\x86\x41\x01x")

_SERVER = """
import sys
from storagegate import server

app = server.http()
app.get("/", lambda req, res: res.send(bytes(60_000)))
app.get("/index.html", lambda req, res: res.sendFile(sys.argv[1]))

from twisted.internet import reactor
app.listen(0).addCallback(lambda port: print(port.getHost().port, flush=True))
reactor.run()
"""


class UnreadTests(SynchronousTestCase):
    """A server process of its own."""

    def setUp(self) -> None:
        """Start it."""
        path = os.path.abspath(self.mktemp())
        with open(path, "wb") as file:
            file.write(os.urandom(4 * MIB))
        self.server = subprocess.Popen(
            [sys.executable, "-c", _SERVER, path],
            env=daemonEnvironment(),
            stdout=subprocess.PIPE,
        )
        self.addCleanup(self._stop)
        assert self.server.stdout is not None
        self.port = int(self.server.stdout.readline())

    def _stop(self) -> None:
        self.server.terminate()
        self.server.communicate()

    def ask(self, path: str) -> int:
        """Make a request from another address; return the size of its body."""
        place = f"http://127.0.0.1:{self.port}{path}"
        words = ["curl", "-sS", "--http2-prior-knowledge", "--interface", "127.0.0.2", "-m", "60"]
        return len(subprocess.run([*words, place], capture_output=True, check=True).stdout)

    def greedy(self, stack: contextlib.ExitStack, window: int) -> None:
        """Connect, make requests for both, and read nothing."""
        client = stack.enter_context(socket.create_connection(("127.0.0.1", self.port), 60))
        wire = [frames.PREFACE, frames.settings({frames.INITIAL_WINDOW_SIZE: window})]
        wire.append(frames.windowUpdate(0, 1 << 30))
        wire += [
            frames.frame(frames.HEADERS, 5, 2 * number + 1, HEADS[number % 2])
            for number in range(STREAMS)
        ]
        client.sendall(b"".join(wire))

    @long("fills the memory of a server")
    def test_bounded(self) -> None:
        """Their windows are closed, or open while the transport is full."""
        self.assertEqual((self.ask("/"), self.ask("/index.html")), (60_000, 4 * MIB))
        forgetPeak(self.server.pid)
        before = peakMemory(self.server.pid)
        with contextlib.ExitStack() as stack:
            for number in range(CLIENTS):
                self.greedy(stack, 0 if number % 2 else 1 << 30)
                if number % 20 == 19:
                    self.assertEqual(self.ask("/"), 60_000)
                    self.assertEqual(self.ask("/index.html"), 4 * MIB)
            rise = peakMemory(self.server.pid) - before
        self.assertLess(rise / MIB, RISE_LIMIT / MIB)
        self.assertGreater(rise, 32 * MIB)
        self.assertEqual(self.ask("/index.html"), 4 * MIB)
