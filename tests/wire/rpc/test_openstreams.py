"""Many open streams cost little memory, and leave other calls alone."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import grpc
from twisted.trial.unittest import SynchronousTestCase

from tests.support.daemon import daemonEnvironment
from tests.support.h2client import H2Client, H2Stream
from tests.support.memory import residentMemory
from tests.support.modules import CHECKOUT

MIB = 1 << 20

CONNECTIONS = 4
STREAMS = 75
"""On each connection: 300 in all, and fewer than a connection may have."""

MEMORY_LIMIT = 40 * MIB
THREADS = 50
CALLS = 100
PATIENCE = 60.0

_SERVER = """
import sys
from twisted.internet.defer import Deferred
from storagegate import server
from tests.support.rpcroutes import textService

class Service:
    def unary(self, call):
        return call.request

    async def download(self, call):
        yield "first"
        await Deferred()

    async def chat(self, call):
        async for request in call:
            yield request

    async def upload(self, call):
        async for request in call:
            call.sendMetadata({"x-got": request})
        return ""

definition = textService(Unary="none", Download="server", Chat="bidirectional", Upload="client")
app = server.grpc().withOptions(grpc={"health": False, "engine": sys.argv[1]})
app.addService(definition=definition, implementation=Service())
app.run(0, "127.0.0.1", started=lambda port: print(port.getHost().port, flush=True))
"""


class OpenStreamTests(SynchronousTestCase):
    """
    A server process of its own.

    @ivar engine: Its engine.
    """

    engine = "grpcio"

    def setUp(self) -> None:
        """Start it, and let a first call load what it needs."""
        self.server = subprocess.Popen(
            [sys.executable, "-c", _SERVER, self.engine],
            cwd=CHECKOUT,
            env=daemonEnvironment(),
            stdout=subprocess.PIPE,
        )
        self.addCleanup(self._stop)
        assert self.server.stdout is not None
        self.port = int(self.server.stdout.readline())
        self.channel = grpc.insecure_channel(f"127.0.0.1:{self.port}")
        self.addCleanup(self.channel.close)
        self.unary = self.channel.unary_unary("/test.Service/Unary")
        self.unary(b"first", timeout=PATIENCE)

    def _stop(self) -> None:
        self.server.terminate()
        self.server.communicate()

    def open(self, method: str, isAnswered: Callable[[H2Stream], object]) -> None:
        """Open 300 streams, and wait until the handler of each was heard of."""
        for _ in range(CONNECTIONS):
            client = H2Client(self.port)
            self.addCleanup(client.close)
            streams = [client.begin(f"/test.Service/{method}") for _ in range(STREAMS)]
            for stream in streams:
                client.sendMessage(stream, b"ping", isLast=method == "Download")
            client.readUntil(lambda streams=streams: all(map(isAnswered, streams)))  # type: ignore[misc]
            self.assertFalse(any(stream.isEnded for stream in streams))

    def assertCheap(self, method: str, isAnswered: Callable[[H2Stream], object]) -> None:
        """Streams of a method cost little memory and no threads; calls beside them are answered."""
        threads = self.threads()
        before = residentMemory(self.server.pid)
        self.open(method, isAnswered)
        for _ in range(CALLS):
            self.assertEqual(self.unary(b"beside", timeout=PATIENCE), b"beside")
        self.assertLess(residentMemory(self.server.pid) - before, MEMORY_LIMIT)
        # The library has as many as it takes to read from its connections.
        self.assertLess(self.threads() - threads, THREADS)

    def threads(self) -> int:
        """Count the server's threads."""
        return len(list(Path(f"/proc/{self.server.pid}/task").iterdir()))

    def test_serverStreaming(self) -> None:
        """300 generators that wait cost under 40 MB, and leave unary calls beside them alone."""
        self.assertCheap("Download", lambda stream: stream.messages)

    def test_bidirectional(self) -> None:
        """So do 300 open chats."""
        self.assertCheap("Chat", lambda stream: stream.messages)

    def test_clientStreaming(self) -> None:
        """So do 300 uploads that wait for their next message."""
        self.assertCheap("Upload", lambda stream: "x-got" in stream.headers)


class NativeOpenStreamTests(OpenStreamTests):
    """The same on the native engine."""

    engine = "native"
