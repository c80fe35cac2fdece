"""A client that takes all it can leaves another one half of its throughput."""

import atexit
import contextlib
import os
import subprocess
import sys
import threading
import time
from functools import cache
from http.client import HTTPConnection

from attrs import frozen
from twisted.trial.unittest import SynchronousTestCase

from tests.support.daemon import Daemon, daemonEnvironment
from tests.support.greedyclients import KINDS
from tests.support.modules import CHECKOUT
from tests.support.selection import long
from tests.wire.s3.fixture import ownDirectory

WINDOW = 0.5
"""Seconds in which calls are counted."""

SETTLE = 0.2
"""Seconds after which the effect of a change is complete."""

PACE = 150
"""
The calls a second of the measured client, which makes one at a time. It does not catch up: a late
answer costs the calls that were due meanwhile.
"""

ROUNDS = 6
"""How often the rates are compared: the machine may be busy, but not each time."""

SHARE = 0.5

_NICE = 10
"""A process with this niceness gets a tenth of a CPU that another one wants, too."""


def makeDaemon() -> Daemon:
    """Make a daemon with all transports."""
    stream, other = "tcp:0:interface=127.0.0.1", "127.0.0.1:0"
    places = ("--http", stream, "--tcp", stream, "--grpc", other, "--udp", other)
    service = ("--service", "tests.support.greedyclients:ECHO")
    expect = ("http", "grpc", "tcp", "udp")
    return Daemon(ownDirectory("fairness"), *places, *service, expect=expect)


@cache
def sharedDaemon() -> Daemon:
    """Start a daemon for the rest of the run."""
    daemon = makeDaemon().start()
    atexit.register(daemon.kill)
    return daemon


@frozen
class Window:
    """
    The measured calls of a window.

    @ivar rate: Calls a second.
    @ivar p99Ms: The 99th percentile of their time in milliseconds.
    """

    rate: float
    p99Ms: float

    def __str__(self) -> str:
        return f"{self.rate:.0f} calls a second (p99 {self.p99Ms:.0f} ms)"


class FairnessTests(SynchronousTestCase):
    """A daemon, a process that takes what it can get, and a client here with 150 calls a second."""

    def setUp(self) -> None:
        """Let a first call load what it needs."""
        self.use(sharedDaemon())

    def use(self, daemon: Daemon) -> None:
        """Connect to a daemon."""
        self.daemon = daemon
        self.client = HTTPConnection(*daemon.address("http"), timeout=60)
        self.addCleanup(self.client.close)
        self.measure(SETTLE)

    def measure(self, seconds: float = WINDOW) -> Window:
        """Call at the pace for a while."""
        taken: list[float] = []
        pause = threading.Event()
        begin = due = time.perf_counter()
        while (called := time.perf_counter()) - begin < seconds or not taken:
            if called < due:
                pause.wait(due - called)
                continue
            due = called + 1 / PACE
            self.client.request("POST", "/api/Echo/echo", b"{}")
            response = self.client.getresponse()
            response.read()
            self.assertEqual(response.status, 200)
            taken.append(time.perf_counter() - called)
        taken.sort()
        return Window(len(taken) / (called - begin), taken[len(taken) * 99 // 100] * 1000)

    def start(self, kind: str, core: int | None = None) -> "subprocess.Popen[bytes]":
        """
        Start a process that is gone when the test ends.

        @param core: The only CPU that it may use; C{None} for any.
        """
        port = self.daemon.address(KINDS[kind][0])[1]
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.greedyclients", kind, str(port)],
            cwd=CHECKOUT,
            env=daemonEnvironment(),
            stdout=subprocess.PIPE,
        )
        if core is not None:
            os.sched_setaffinity(process.pid, {core})
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        assert process.stdout is not None
        with process.stdout as output:
            self.assertEqual(output.readline(), b"begun\n")
        return process

    def assertFair(self, kind: str, core: int | None = None) -> None:
        """Beside such a client, calls keep half of the rate that they had before and after."""
        windows: list[str] = []
        before = self.measure()
        for _ in range(ROUNDS):
            greedy = self.start(kind, core)
            self.measure(SETTLE)
            beside = self.measure()
            greedy.kill()
            greedy.wait()
            self.measure(SETTLE)
            after = self.measure()
            share = 2 * beside.rate / (before.rate + after.rate)
            windows.append(f"{share:.2f}: {beside} between {before} and {after}")
            if share >= SHARE:
                return
            before = after
        self.fail(f"{kind}, paced at {PACE} calls a second: " + "; ".join(windows))

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
    def test_flood(self) -> None:
        """So beside as many datagrams as a process can send from five hundred addresses."""
        self.assertFair("flood")

    @long("takes seconds")
    def test_silentFrames(self) -> None:
        """So beside fifty connections of TCP that never read."""
        self.assertFair("silentFrames")

    @long("takes seconds")
    def test_sharedCPU(self) -> None:
        """So on a CPU of which such a process gets nine tenths."""
        # Its threads keep the lower priority.
        daemon = makeDaemon().start()
        self.addCleanup(daemon.kill)
        self.use(daemon)
        core, pid = min(os.sched_getaffinity(0)), self.daemon.pid
        for thread in os.listdir(f"/proc/{pid}/task"):
            # A thread of the start may have ended meanwhile.
            with contextlib.suppress(ProcessLookupError):
                os.sched_setaffinity(int(thread), {core})
                os.setpriority(os.PRIO_PROCESS, int(thread), _NICE)
        # With automatic groups the niceness of a process counts only within its session.
        with contextlib.suppress(FileNotFoundError), open(f"/proc/{pid}/autogroup", "w") as group:
            group.write(str(_NICE))
        for kind in ("flood", "silentFrames"):
            self.assertFair(kind, core)

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
