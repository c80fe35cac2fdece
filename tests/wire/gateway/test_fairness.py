"""A client that takes all it can leaves another one half of its throughput."""

import subprocess
import sys
import threading
import time
from http.client import HTTPConnection

from twisted.trial.unittest import SynchronousTestCase

from tests.support.daemon import Daemon, daemonEnvironment
from tests.support.greedyclients import KINDS
from tests.support.modules import CHECKOUT
from tests.support.selection import long

WINDOW = 0.5
"""Seconds in which calls are counted."""

THINKING = 0.005
"""Seconds between its calls: a client that is not on the same machine needs longer."""

ROUNDS = 6
"""How often the two rates are compared: the machine may be busy, but not each time."""

SHARE = 0.5


class FairnessTests(SynchronousTestCase):
    """A daemon, a process that takes what it can get, and a client here."""

    def setUp(self) -> None:
        """Start the daemon, and let a first call load what it needs."""
        stream, other = "tcp:0:interface=127.0.0.1", "127.0.0.1:0"
        places = ("--http", stream, "--tcp", stream, "--grpc", other, "--udp", other)
        service = ("--service", "tests.support.greedyclients:ECHO")
        expect = ("http", "grpc", "tcp", "udp")
        self.daemon = Daemon(self.mktemp(), *places, *service, expect=expect).start()
        self.addCleanup(self.daemon.kill)
        self.client = HTTPConnection(*self.daemon.address("http"), timeout=60)
        self.addCleanup(self.client.close)
        self.rate()

    def rate(self) -> float:
        """Call again and again for a while, and return the calls per second."""
        calls, begin, pause = 0, time.perf_counter(), threading.Event()
        while (taken := time.perf_counter() - begin) < WINDOW:
            self.client.request("POST", "/api/Echo/echo", b"{}")
            response = self.client.getresponse()
            response.read()
            self.assertEqual(response.status, 200)
            calls += 1
            pause.wait(THINKING)
        return calls / taken

    def start(self, kind: str) -> "subprocess.Popen[bytes]":
        """Start a process that is gone when the test ends."""
        port = self.daemon.address(KINDS[kind][0])[1]
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.greedyclients", kind, str(port)],
            cwd=CHECKOUT,
            env=daemonEnvironment(),
            stdout=subprocess.PIPE,
        )
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        assert process.stdout is not None
        with process.stdout as output:
            self.assertEqual(output.readline(), b"begun\n")
        return process

    def assertFair(self, kind: str) -> None:
        """Beside such a client, calls keep half of the rate that they had just before."""
        shares = []
        for _ in range(ROUNDS):
            alone = self.rate()
            greedy = self.start(kind)
            self.rate()
            shares.append(self.rate() / alone)
            greedy.kill()
            greedy.wait()
            if shares[-1] >= SHARE:
                return
        self.fail(f"{kind} left {', '.join(f'{share:.2f}' for share in shares)} of the calls")

    @long("takes seconds")
    def test_fragments(self) -> None:
        """So beside a WebSocket whose messages come in fragments of a byte."""
        self.assertFair("fragments")

    @long("takes seconds")
    def test_emptyFragments(self) -> None:
        """So beside one whose fragments are empty."""
        self.assertFair("emptyFragments")

    @long("takes seconds")
    def test_junk(self) -> None:
        """So beside one whose messages are unreadable."""
        self.assertFair("junk")

    @long("takes seconds")
    def test_calls(self) -> None:
        """So beside one that sends valid calls and does not wait."""
        self.assertFair("calls")

    @long("takes seconds")
    def test_silent(self) -> None:
        """So beside twenty that never read."""
        self.assertFair("silent")

    @long("takes seconds")
    def test_frames(self) -> None:
        """So beside a connection of TCP that sends calls as frames."""
        self.assertFair("frames")

    @long("takes seconds")
    def test_lines(self) -> None:
        """So beside one that sends them as lines."""
        self.assertFair("lines")

    @long("takes seconds")
    def test_datagrams(self) -> None:
        """So beside datagrams from five hundred addresses."""
        self.assertFair("datagrams")

    @long("takes seconds")
    def test_announced(self) -> None:
        """So beside calls of gRPC that announce messages of 4 GiB."""
        self.assertFair("announced")

    @long("takes seconds")
    def test_keys(self) -> None:
        """So beside a connection whose calls have objects of 600,000 keys."""
        self.assertFair("keys")

    @long("takes seconds")
    def test_messageKeys(self) -> None:
        """So beside messages of a WebSocket with objects of 80,000 keys."""
        self.assertFair("messageKeys")

    @long("takes seconds")
    def test_frameKeys(self) -> None:
        """So beside such frames of TCP."""
        self.assertFair("frameKeys")

    @long("takes seconds")
    def test_lineKeys(self) -> None:
        """So beside such lines."""
        self.assertFair("lineKeys")

    @long("takes seconds")
    def test_structs(self) -> None:
        """So beside such messages of gRPC."""
        self.assertFair("structs")
