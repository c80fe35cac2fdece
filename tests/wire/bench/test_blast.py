"""The bench's load client against a server that answers by script."""

import shutil
import struct
from pathlib import Path

import msgspec
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorProcess
from twisted.internet.protocol import Factory, Protocol
from twisted.internet.utils import getProcessOutputAndValue
from twisted.trial.unittest import SkipTest, TestCase

from bench import loads, peers
from bench.s3 import signing
from bench.s3.recipe import writeRequests
from tests.support.selection import long

REPLIES = {
    b"/length": b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
    b"/empty": b"HTTP/1.1 204 No Content\r\n\r\n",
    b"/chunked": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    b"3\r\nabc\r\nA;x=y\r\n0123456789\r\n0\r\nTrailer: 1\r\n\r\n",
    b"/head": b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n",
    b"/continue": b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
    b"/close": b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok",
    b"/refused": b"HTTP/1.1 503 Slow Down\r\nContent-Length: 0\r\n\r\n",
    b"/surplus": b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nab",
    b"/unframed": b"HTTP/1.1 200 OK\r\n\r\n",
}


class Script(Protocol):
    """
    Answers each request with the reply to its path, in two pieces or byte by byte.

    @ivar piece: Bytes of each write.
    """

    piece = 1 << 20

    def connectionMade(self) -> None:
        """Begin with nothing received."""
        self.received = b""
        self.transport.setTcpNoDelay(True)

    def dataReceived(self, data: bytes) -> None:
        """Answer once head and body of a request are there."""
        self.received += data
        head, found, rest = self.received.partition(b"\r\n\r\n")
        if not found:
            return
        _, _, length = head.partition(b"Content-Length: ")
        if len(rest) < int(length.split(b"\r\n")[0] or 0):
            return
        self.received = b""
        path = head.split(b" ")[1]
        if path == b"/gone":
            self.transport.abortConnection()
            return
        self.factory.bodies.append(rest)
        self.answer(REPLIES[path])

    def answer(self, wire: bytes) -> None:
        """Write a reply piece by piece, each in a turn of the reactor of its own."""
        self.transport.write(wire[: self.piece])
        if rest := wire[self.piece :]:
            self.factory.reactor.callLater(0, self.answer, rest)


@long("measures programs of the bench")
class BlastTests(TestCase):
    """The client counts what happened, whatever form the answers take."""

    timeout = 120

    def setUp(self) -> None:
        """Build the client and start the scripted server."""
        if shutil.which("gcc") is None:
            raise SkipTest("no gcc to build the load client with")
        from twisted.internet import reactor

        self.folder = Path(self.mktemp())
        self.folder.mkdir()
        self.patch(peers, "peersFolder", lambda: self.folder)
        self.factory = Factory.forProtocol(type("Scripted", (Script,), {}))
        self.factory.bodies = []
        self.factory.reactor = reactor
        port = reactor.listenTCP(0, self.factory, interface="127.0.0.1")
        self.addCleanup(port.stopListening)
        self.port = port.getHost().port
        self.reactor: IReactorProcess = reactor

    async def blast(self, *requests: signing.Request, connections: int = 1) -> loads.Outcome:
        """Send each request once, and read the client's report."""
        path = writeRequests(self.folder / "requests", requests, "127.0.0.1", signing.anonymous)
        body = loads.bodyFile(self.folder, 100_000)
        program, *words = loads.blastWords(self.port, path, body, connections)
        out, err, code = await getProcessOutputAndValue(program, words, reactor=self.reactor)
        self.assertEqual((code, err), (0, b""))
        return msgspec.json.decode(out, type=loads.Outcome)

    def get(self, path: str, method: str = "GET") -> signing.Request:
        """Make a request without a body."""
        return signing.Request(method, path)

    async def test_framing(self) -> None:
        """Length, no content, chunks, a HEAD and a 100 before the answer are all understood."""
        paths = ("/length", "/empty", "/chunked", "/continue", "/length")
        outcome = await self.blast(self.get("/head", "HEAD"), *map(self.get, paths))
        self.assertEqual((outcome.done, outcome.bad, outcome.reconnects), (6, 0, 0))
        sizes = [len(REPLIES[path.encode()]) for path in ("/head", *paths)]
        self.assertEqual(outcome.received, sum(sizes))
        self.assertEqual(outcome.tags["0"].n, 6)

    async def test_byteByByte(self) -> None:
        """The same holds when every byte arrives alone."""
        self.factory.protocol.piece = 1
        paths = ("/length", "/empty", "/chunked", "/continue", "/close", "/length")
        outcome = await self.blast(self.get("/head", "HEAD"), *map(self.get, paths))
        self.assertEqual((outcome.done, outcome.bad, outcome.reconnects), (7, 0, 1))

    async def test_refusal(self) -> None:
        """An answer that is no success is counted as bad and named."""
        outcome = await self.blast(self.get("/refused"), self.get("/length"))
        self.assertEqual((outcome.done, outcome.bad, outcome.lastBadStatus), (2, 1, 503))

    async def test_brokenAnswers(self) -> None:
        """More than was asked for, an answer without an end, and none at all are bad."""
        for path in ("/surplus", "/unframed", "/gone"):
            outcome = await self.blast(self.get(path), self.get("/length"))
            self.assertEqual((outcome.done, outcome.bad, outcome.reconnects), (2, 1, 1), path)

    async def test_bodies(self) -> None:
        """A PUT carries the first bytes of the body file, and counts for its tag."""
        body = loads.bodyFile(self.folder, 100_000).read_bytes()
        requests = [signing.Request("PUT", "/length", length=n, tag=1) for n in (0, 9, 100_000)]
        outcome = await self.blast(*requests)
        self.assertEqual(self.factory.bodies, [b"", body[:9], body])
        self.assertEqual((outcome.bad, outcome.tags["1"].n), (0, 3))

    async def test_manyConnections(self) -> None:
        """Requests are dealt out over connections, each sent once."""
        requests = [signing.Request("PUT", "/length", length=n) for n in range(500)]
        outcome = await self.blast(*requests, connections=16)
        self.assertEqual((outcome.issued, outcome.done, outcome.bad), (500, 500, 0))
        self.assertEqual(sorted(map(len, self.factory.bodies)), list(range(500)))

    def test_cutRecord(self) -> Deferred[None]:
        """A request file that ends within a record stops the client with a line."""
        path = self.folder / "requests"
        path.write_bytes(struct.pack("<IIQ", 0, 100, 0) + b"short")
        body = loads.bodyFile(self.folder, 1)
        program, *words = loads.blastWords(self.port, path, body, 1)
        ended = getProcessOutputAndValue(program, words, reactor=self.reactor)

        def check(result: tuple[bytes, bytes, int]) -> None:
            out, err, code = result
            self.assertEqual((out, code), (b"", 2))
            self.assertIn(b"past the end", err)

        return ended.addCallback(check)
