"""Messages that never end: their bytes are bounded for all transports together."""

import json
import socket
import subprocess
import sys
import time
from contextlib import closing
from http.client import HTTPConnection

from hyperframe.frame import DataFrame
from twisted.trial.unittest import SynchronousTestCase

from tests.support.daemon import Daemon, daemonEnvironment
from tests.support.h2client import H2Client
from tests.support.memory import forgetPeak, peakMemory, residentMemory
from tests.support.modules import CHECKOUT
from tests.support.selection import long

MIB = 1 << 20

MEMORY = 256 * MIB
"""
How much the daemon may grow meanwhile with the default budget of 64 MiB. The rest is for reads of
the kernel, freed memory that has not returned yet, and messages of gRPC that come between two
looks. The 1,160 connections of all kinds want to send 5.4 GiB.
"""

PATIENCE = 10.0
"""Seconds for a call of another client meanwhile: that machine has two processors for all."""


class HeldBytesCase(SynchronousTestCase):
    """A daemon with the default budget, processes that fill it, and a client here."""

    def setUp(self) -> None:
        """Start the daemon, and let a first call load what it needs."""
        stream, other = "tcp:0:interface=127.0.0.1", "127.0.0.1:0"
        places = ("--http", stream, "--tcp", stream, "--grpc", other)
        names = ("tests.support.greedyclients:ECHO", "tests.support.heldclients:GUARDED")
        service = [each for name in names for each in ("--service", name)]
        self.daemon = Daemon(
            self.mktemp(),
            *places,
            *service,
            expect=("http", "grpc", "tcp"),
        ).start()
        self.addCleanup(self.daemon.kill)
        self.call()
        forgetPeak(self.daemon.pid)
        self.before = residentMemory(self.daemon.pid)

    def call(self) -> float:
        """Make a call; return how many seconds it took."""
        begin = time.perf_counter()
        client = HTTPConnection(*self.daemon.address("http"), timeout=60)
        with closing(client):
            client.request("POST", "/api/Echo/echo", b"{}")
            self.assertEqual(client.getresponse().status, 200)
        return time.perf_counter() - begin

    def start(self, kind: str, listener: str) -> "subprocess.Popen[bytes]":
        """Start a process that is gone when the test ends."""
        port = self.daemon.address(listener)[1]
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.heldclients", kind, str(port)],
            cwd=CHECKOUT,
            env=daemonEnvironment(),
            stdout=subprocess.PIPE,
        )
        assert process.stdout is not None
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        self.assertEqual(process.stdout.readline(), b"begun\n")
        return process

    def refusals(self, process: "subprocess.Popen[bytes]") -> dict[str, int]:
        """Wait until nothing moves; return how often each refusal came."""
        assert process.stdout is not None
        found: dict[str, int] = json.loads(process.stdout.readline())
        return found

    def assertBounded(self) -> None:
        """Check the memory, and that others are served."""
        grown = peakMemory(self.daemon.pid) - self.before
        self.assertLess(grown / MIB, MEMORY / MIB)
        for _ in range(5):
            self.assertLess(self.call(), PATIENCE)

    def assertRefused(self, kind: str, listener: str, code: str) -> None:
        """Check that some of such clients are refused so, and none in another way."""
        found = self.refusals(self.start(kind, listener))
        self.assertEqual(set(found), {code, "open"}, found)
        self.assertBounded()


class RefusedFirstTests(HeldBytesCase):
    """A method that needs a token, and clients that have none."""

    def test_http(self) -> None:
        """The response comes before the body, and the connection closes."""
        with closing(socket.create_connection(self.daemon.address("http"), 60)) as client:
            client.sendall(
                b"POST /api/Guarded/echo HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
                b"Content-Length: 1000000\r\n\r\n{"
            )
            with client.makefile("rb") as response:
                self.assertEqual(response.readline().split()[1], b"401")

    def test_grpc(self) -> None:
        """The status comes before the message."""
        with H2Client(self.daemon.address("grpc")[1]) as client:
            stream = client.begin("/Guarded/echo")
            client.send(DataFrame(stream.number, data=b"\0\0\1\0\0"))
            client.finish(stream)
            self.assertEqual(stream.status, 16)


class OneKindTests(HeldBytesCase):
    """Each transport alone."""

    @long("takes seconds")
    def test_frames(self) -> None:
        """Frames of TCP are refused with an error."""
        self.assertRefused("frames", "tcp", "RESOURCE_EXHAUSTED")

    @long("takes seconds")
    def test_messages(self) -> None:
        """Messages of WebSocket are refused by a close that says to try later."""
        self.assertRefused("messages", "http", "1013")

    @long("takes seconds")
    def test_bodies(self) -> None:
        """Bodies of HTTP are refused with 429."""
        self.assertRefused("bodies", "http", "429")

    @long("takes seconds")
    def test_calls(self) -> None:
        """Calls of gRPC are refused with RESOURCE_EXHAUSTED."""
        self.assertRefused("calls", "grpc", "8")


class TogetherTests(HeldBytesCase):
    """All transports at once."""

    @long("takes seconds")
    def test_together(self) -> None:
        """The budget is one."""
        kinds = {"frames": "tcp", "messages": "http", "bodies": "http", "calls": "grpc"}
        started = [self.start(kind, listener) for kind, listener in kinds.items()]
        found = [self.refusals(each) for each in started]
        self.assertBounded()
        refused = sum(sum(each.values()) - each.get("open", 0) for each in found)
        self.assertGreater(refused, 100, found)
