"""The gateway bench's load client against servers that answer by script."""

import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
from autobahn.twisted.websocket import WebSocketServerFactory, WebSocketServerProtocol
from twisted.internet.protocol import DatagramProtocol, Factory, Protocol
from twisted.internet.task import deferLater
from twisted.internet.utils import getProcessOutputAndValue
from twisted.trial.unittest import SkipTest, TestCase

from bench import loads, peers
from bench.gateway.recipe import CALL, FRAME, MESSAGE
from tests.support.selection import long


class Frames(Protocol):
    """Answers frames as the factory's script says: one of its answers after the other."""

    def connectionMade(self) -> None:
        """Begin."""
        self.transport.setTcpNoDelay(True)
        self.held = b""
        self.asked = 0

    def dataReceived(self, data: bytes) -> None:
        """Answer each frame, in two pieces."""
        self.held += data
        while len(self.held) >= len(FRAME):
            self.factory.seen.append(self.held[: len(FRAME)])
            self.held = self.held[len(FRAME) :]
            answers = self.factory.answers
            answer = answers[min(self.asked, len(answers) - 1)]
            self.asked += 1
            self.factory.asked[self] += 1
            self.transport.write(answer[:3])
            self.factory.reactor.callLater(0, self.transport.write, answer[3:])


class Datagrams(DatagramProtocol):
    """Echoes datagrams, but those that are to be lost."""

    noisy = False

    def __init__(self, lost: int) -> None:
        self.lost = lost
        self.seen: list[bytes] = []

    def datagramReceived(self, datagram: bytes, addr: Any) -> None:
        """Answer, or lose it."""
        self.seen.append(datagram)
        if len(self.seen) > self.lost:
            self.transport.write(datagram, addr)


class Messages(WebSocketServerProtocol):
    """Echoes messages."""

    def onMessage(self, payload: bytes, isBinary: bool) -> None:
        """Answer."""
        self.factory.seen.append(payload)
        self.factory.asked[self] += 1
        self.sendMessage(payload, isBinary)


@long("measures programs of the bench")
class EcholoadTests(TestCase):
    """The client counts what happened."""

    timeout = 120

    def setUp(self) -> None:
        """Build the client."""
        if shutil.which("gcc") is None:
            raise SkipTest("no gcc to build the load client with")
        from twisted.internet import reactor

        self.reactor: Any = reactor
        self.folder = Path(self.mktemp())
        self.folder.mkdir()
        self.patch(peers, "peersFolder", lambda: self.folder)
        self.asked: Counter[Any] = Counter()

    async def load(self, mode: str, port: Any, message: bytes, seconds: float = 0.2) -> Any:
        """Run the client, three connections; give what it printed and wrote."""
        self.addCleanup(port.stopListening)
        path = self.folder / "message"
        path.write_bytes(message)
        number = port.getHost().port
        program, *words = loads.echoWords(number, mode, 3, seconds, path, "/ws")
        return await getProcessOutputAndValue(program, words, reactor=self.reactor)

    async def report(self, *arguments: Any) -> loads.EchoReport:
        """Run the client, and read its report."""
        out, err, code = await self.load(*arguments)
        self.assertEqual((code, err), (0, b""))
        return msgspec.json.decode(out, type=loads.EchoReport)

    async def unhurried(
        self, mode: str, serve: Callable[[], Any], message: bytes
    ) -> loads.EchoReport:
        """
        Run the client as long as it takes until each connection has asked three times, and no
        answer was late because this process had no turn.
        """
        for seconds in (0.2, 1.0, 5.0, 20.0):
            report = await self.report(mode, serve(), message, seconds)
            if not report.lost and len(self.asked) == 3 and min(self.asked.values()) >= 3:
                break
        return report

    def serveFrames(self, *answers: bytes) -> Any:
        """Answer frames over TCP."""
        self.factory: Any = Factory.forProtocol(Frames)
        self.factory.noisy = False
        self.factory.answers, self.factory.seen = answers, []
        self.asked = self.factory.asked = Counter()
        self.factory.reactor = self.reactor
        return self.reactor.listenTCP(0, self.factory, interface="127.0.0.1")

    async def test_frames(self) -> None:
        """Every frame that is answered counts, and nothing else goes out."""
        report = await self.unhurried("tcp", lambda: self.serveFrames(FRAME), FRAME)
        self.assertGreater(report.calls, 3)
        self.assertEqual((report.calls, report.wrong, report.lost), (len(self.factory.seen), 0, 0))
        self.assertEqual(set(self.factory.seen), {FRAME})
        self.assertEqual(report.received, report.calls * len(FRAME))
        self.assertGreaterEqual(report.seconds, 0.2)
        self.assertGreaterEqual(report.p99Ms, report.p50Ms)

    async def test_wrongFrames(self) -> None:
        """An error, and an answer of another length, are wrong."""
        error = b"\x01\x03" + FRAME[2:]
        short = b"\x01\x02\x00\x00\x00\x01x"
        answers = (FRAME, error, short, FRAME)
        report = await self.unhurried("tcp", lambda: self.serveFrames(*answers), FRAME)
        self.assertEqual(report.wrong, 6)
        self.assertGreater(report.calls, 6)

    async def test_datagrams(self) -> None:
        """Each datagram has a number of its own; one that is lost is asked again."""
        protocol = Datagrams(lost=1)
        port = self.reactor.listenUDP(0, protocol, interface="127.0.0.1")
        report = await self.report("udp", port, FRAME, 1.5)
        self.assertEqual(report.wrong, 0)
        # Others are lost, too, if this process has no turn for a second.
        self.assertGreaterEqual(report.lost, 1)
        while len(protocol.seen) < report.calls + report.lost:
            await deferLater(self.reactor, 0.01)
        self.assertEqual(report.calls + report.lost, len(protocol.seen))
        self.assertEqual(len(set(protocol.seen)), len(protocol.seen))
        self.assertIn(FRAME.replace(b"0000000000", b"0000000001"), protocol.seen)

    async def test_messages(self) -> None:
        """A WebSocket is opened, and its messages are understood."""

        def serve() -> Any:
            self.factory = WebSocketServerFactory()
            self.factory.protocol, self.factory.noisy = Messages, False
            self.factory.seen, self.asked = [], Counter()
            self.factory.asked = self.asked
            return self.reactor.listenTCP(0, self.factory, interface="127.0.0.1")

        report = await self.unhurried("ws", serve, MESSAGE)
        self.assertGreater(report.calls, 3)
        self.assertEqual((report.calls, report.wrong), (len(self.factory.seen), 0))
        self.assertEqual(set(self.factory.seen), {CALL})

    async def test_noWebSocket(self) -> None:
        """Who answers something else to the handshake is named."""
        answer = b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"

        class Refusal(Protocol):
            """Refuses."""

            def dataReceived(self, data: bytes) -> None:
                """Refuse."""
                self.transport.write(answer)

        port = self.reactor.listenTCP(0, Factory.forProtocol(Refusal), interface="127.0.0.1")
        _, err, code = await self.load("ws", port, MESSAGE)
        self.assertEqual(code, 2)
        self.assertIn(b"no WebSocket: HTTP/1.1 404", err)

    async def test_closed(self) -> None:
        """A connection that is closed ends the run: its figures would mean nothing."""

        class Closing(Protocol):
            """Closes."""

            def dataReceived(self, data: bytes) -> None:
                """Close."""
                self.transport.loseConnection()

        port = self.reactor.listenTCP(0, Factory.forProtocol(Closing), interface="127.0.0.1")
        _, err, code = await self.load("tcp", port, FRAME)
        self.assertEqual((code, err), (2, b"a connection was closed\n"))
