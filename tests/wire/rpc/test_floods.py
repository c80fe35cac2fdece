"""Clients that flood a server do not keep it from others, and cost it little memory."""

import contextlib
import subprocess
import sys
import time

import grpc
from twisted.trial.unittest import SynchronousTestCase

from tests.support.daemon import daemonEnvironment
from tests.support.memory import forgetPeak, peakMemory, residentMemory
from tests.support.modules import CHECKOUT
from tests.support.selection import long

MEMORY_LIMIT = 50 << 20

CALLS = 500
"""Those of another client while the flood goes on."""

PATIENCE = 60.0
"""How long one of them may take, and a flood be felt: far above what any needs."""

_SERVER = """
import sys
from twisted.internet.defer import Deferred
from storagegate import server
from tests.support.rpcroutes import textService

begun = []

class Service:
    def unary(self, call):
        return str(app.activeCalls if call.request else len(begun))

    async def never(self, call):
        begun.append(call)
        await Deferred()

definition = textService(Unary="none", Never="none")
protected = {"maxConcurrentStreams": 200, "overloadProtection": True}
grpc = {"health": False, "engine": sys.argv[2]}
grpc.update(protected if sys.argv[1] == "protected" else {})
app = server.grpc().withOptions(grpc=grpc)
app.addService(definition=definition, implementation=Service())
app.run(0, "127.0.0.1", started=lambda port: print(port.getHost().port, flush=True))
"""


def said(process: "subprocess.Popen[bytes]") -> bytes:
    """Wait for a line that a process writes."""
    assert process.stdout is not None
    return process.stdout.readline()


class FloodCase(SynchronousTestCase):
    """
    A server process, a process that floods it, and a client here.

    @ivar mode: Whether the server is C{protected}.
    @ivar engine: The engine of the server.
    @ivar kind: What it is flooded with.
    """

    mode = ""
    engine = "grpcio"
    kind = "resets"

    def setUp(self) -> None:
        """Start the server, and let a first call load what it needs."""
        self.server = self.start("-c", _SERVER, self.mode, self.engine)
        self.port = int(said(self.server))
        channel = grpc.insecure_channel(f"127.0.0.1:{self.port}")
        self.addCleanup(channel.close)
        self.unary = channel.unary_unary("/test.Service/Unary")
        self.call()

    def start(self, *arguments: str) -> "subprocess.Popen[bytes]":
        """Start a process that is gone when the test ends."""
        process = subprocess.Popen(
            [sys.executable, *arguments],
            cwd=CHECKOUT,
            env=daemonEnvironment(),
            stdout=subprocess.PIPE,
        )
        self.addCleanup(process.communicate)
        self.addCleanup(process.kill)
        return process

    def call(self) -> None:
        """Make calls, one after the other; each is answered."""
        for _ in range(CALLS):
            self.unary(b"", timeout=PATIENCE)

    def flooded(self) -> None:
        """Do so from the beginning of a flood on."""
        flooding = self.start("-m", "tests.support.flooding", str(self.port), self.kind)
        self.assertEqual(said(flooding), b"begun\n")
        try:
            self.call()
        finally:
            flooding.kill()
            flooding.wait()

    def assertBorne(self, kind: str) -> None:
        """All calls of others are answered during a flood, and it takes little memory."""
        self.kind = kind
        forgetPeak(self.server.pid)
        before = residentMemory(self.server.pid)
        self.flooded()
        self.assertLess(peakMemory(self.server.pid) - before, MEMORY_LIMIT)
        self.assertIsNone(self.server.poll())


class ProtectedTests(FloodCase):
    """A server as it should be where strangers reach it."""

    mode = "protected"

    @long("takes seconds")
    def test_resets(self) -> None:
        """Calls that are begun and reset, 20,000 of them on each connection, run no handler."""
        self.assertBorne("resets")
        self.assertEqual(self.unary(b"", timeout=PATIENCE), b"0")

    @long("takes seconds")
    def test_cancelled(self) -> None:
        """So do calls whose request has come with them, but for the handler."""
        self.assertBorne("cancelled")

    @long("takes seconds")
    def test_continuations(self) -> None:
        """So does a block of headers without an end, in frames that are as long as may be."""
        self.assertBorne("continuations")

    @long("takes seconds")
    def test_pings(self) -> None:
        """So do pings."""
        self.assertBorne("pings")

    @long("takes a second or more")
    def test_settings(self) -> None:
        """So do settings, each of which wants an answer."""
        self.assertBorne("settings")


class OpenTests(FloodCase):
    """A server as it is where nothing is said."""

    def active(self) -> bytes:
        """Tell how many calls are at work, this one included; nothing if it was not answered."""
        with contextlib.suppress(grpc.RpcError):
            return bytes(self.unary(b"active", timeout=PATIENCE))
        return b""

    @long("takes seconds")
    def test_continuations(self) -> None:
        """A block of headers without an end takes little memory here, too."""
        self.assertBorne("continuations")

    @long("takes seconds")
    def test_after(self) -> None:
        """A flood of calls may keep it busy, but it comes back, and nothing of them is left."""
        for self.kind in ("resets", "cancelled"):
            with contextlib.suppress(grpc.RpcError):
                self.flooded()
        deadline = time.monotonic() + PATIENCE
        while self.active() != b"1":
            self.assertLess(time.monotonic(), deadline)
        self.call()
        self.assertIsNone(self.server.poll())


class NativeProtectedTests(ProtectedTests):
    """The same on the native engine."""

    engine = "native"


class NativeOpenTests(OpenTests):
    """The same on the native engine, which bounds resets in any case."""

    engine = "native"
