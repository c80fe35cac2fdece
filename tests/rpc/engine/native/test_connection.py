"""Connections of the native engine in memory: pings, ages, and clients that do not go on."""

from typing import Any

from hyperframe.frame import Frame, GoAwayFrame, PingFrame, RstStreamFrame
from twisted.internet.address import IPv4Address

from storagegate.net.http2 import frames
from storagegate.net.http2.hpack import encodePairs
from storagegate.rpc.engine.native.shared import SharedCalls
from storagegate.rpc.options import GRPCServerOptions
from tests.net.support import TestSite
from tests.rpc.engine.native.test_call import HEAD, CallCase, Transport
from tests.support.h2client import framed

CANCEL, ENHANCE_YOUR_CALM = 8, 11


def pings(found: list[Frame]) -> list[PingFrame]:
    """Return the pings of the server."""
    return [each for each in found if isinstance(each, PingFrame) and "ACK" not in each.flags]


class IdleTests(CallCase):
    """A client that does not go on."""

    def pass_(self, seconds: int) -> None:
        """Let time pass, in seconds."""
        self.clock.pump([1.0] * seconds)

    def test_hello(self) -> None:
        """A connection without a first frame is closed, and one with it is not."""
        silent = self.engine.buildProtocol(None)
        transport = Transport()
        silent.makeConnection(transport)
        self.pass_(25)
        self.assertTrue(transport.disconnected)
        self.assertFalse(self.transport.disconnected)

    def test_frame(self) -> None:
        """So is one whose frame is not completed, however slowly it goes on."""
        wire = frames.frame(frames.HEADERS, 4, 1, bytes(1000))
        for at in range(50):
            self.connection.dataReceived(wire[at : at + 1])
            self.pass_(1)
        self.assertFalse(self.transport.disconnected)
        self.pass_(20)
        self.assertTrue(self.transport.disconnected)

    def test_open(self) -> None:
        """A stream may be open for a long time without a message."""
        call = self.begin()
        self.pass_(3600)
        self.assertFalse(self.transport.disconnected)
        self.assertFalse(call.isOver)

    def test_full(self) -> None:
        """While the transport is full, a handler is paused; it goes on when there is room."""
        self.connection.dataReceived(
            frames.settings({frames.INITIAL_WINDOW_SIZE: 1 << 30}) + frames.windowUpdate(0, 1 << 30)
        )
        call = self.begin()
        self.connection.pauseProducing()
        sent = 0
        while call.send(bytes(10_000)):
            sent += 1
        self.assertLess(sent, 20)
        room: list[Any] = []
        call.drained().addCallback(room.append)
        self.frames()
        self.assertEqual(room, [])
        self.connection.resumeProducing()
        self.assertEqual(len(room), 1)

    def trickle(self, size: int, isFinished: bool = False) -> Any:
        """Let a client grant so many bytes a second of a stream; return the call."""
        self.connect()
        self.connection.dataReceived(frames.windowUpdate(0, 1 << 30))
        call = self.begin()
        call.send(bytes(500_000))
        if isFinished:
            call.finish(0)
        for _ in range(310):
            self.connection.dataReceived(frames.windowUpdate(1, size))
            self.pass_(1)
        return call

    def resets(self) -> list[int]:
        """Return the codes of the resets that were sent."""
        return [each.error_code for each in self.frames() if isinstance(each, RstStreamFrame)]

    def test_trickledWindow(self) -> None:
        """A client that grants a byte now and then loses its call, open or finished."""
        for isFinished, code in ((False, ENHANCE_YOUR_CALM), (True, CANCEL)):
            call = self.trickle(1, isFinished)
            self.assertEqual(self.resets(), [code])
            self.assertTrue(call.isOver)
            self.assertEqual(len(self.connection.core.streams), 0)

    def test_slowWindow(self) -> None:
        """One that takes some bytes keeps it, and so does one whose server has sent all."""
        call = self.trickle(100)
        self.assertEqual((self.resets(), call.isOver), ([], False))
        self.connection.dataReceived(frames.windowUpdate(1, 1 << 20))
        self.pass_(1000)
        self.assertEqual((self.resets(), call.isOver, call.queued), ([], False, 0))
        # The time begins with the next output.
        call.send(bytes(1 << 21))
        self.pass_(200)
        self.assertFalse(call.isOver)
        self.pass_(110)
        self.assertTrue(call.isOver)

    def test_sharedPort(self) -> None:
        """The rule holds for calls on a port of HTTP, with its timeout."""
        site = TestSite(requestTimeout=20.0)
        shared = SharedCalls(site.clock, GRPCServerOptions(), self.traffic, self.budget)
        shared.start(self.calls.append, lambda: None)
        site.site.openCall = shared.open
        channel = site.connect().channel
        channel.dataReceived(frames.PREFACE + frames.settings({}))
        http2: Any = channel.connection.transport.protocol
        http2.dataReceived(frames.frame(frames.HEADERS, 4, 1, encodePairs(HEAD)))
        [call] = self.calls
        call.send(bytes(100_000))
        for _ in range(19):
            http2.dataReceived(frames.windowUpdate(0, 1) + frames.windowUpdate(1, 1))
            site.letPass(1)
        self.assertFalse(call.isOver)
        site.letPass(4)
        self.assertTrue(call.isOver)
        self.assertEqual(list(http2.streams), [])


class PingTests(CallCase):
    """The pings of both sides."""

    def test_keepalive(self) -> None:
        """A client that has sent nothing is pinged; without an answer the connection is closed."""
        self.connect(
            keepaliveTimeMs=10_000, keepaliveTimeoutMs=5000, keepalivePermitWithoutCalls=True
        )
        self.clock.pump([1.0] * 10)
        self.frames()
        self.clock.pump([1.0] * 10)
        [ping] = pings(self.frames())
        answer = PingFrame(0, opaque_data=ping.opaque_data, flags=["ACK"])
        self.connection.dataReceived(answer.serialize())
        self.clock.pump([1.0] * 6)
        self.assertFalse(self.transport.disconnected)
        self.clock.pump([1.0] * 30)
        self.assertTrue(self.transport.disconnected)

    def test_strikes(self) -> None:
        """A client that pings too often loses its connection; work in between is a reason."""
        ping = frames.frame(frames.PING, 0, 0, bytes(8))
        for number in range(1, 21, 2):
            call = self.begin(number=number)
            self.connection.dataReceived(ping)
            call.finish(0)
            self.data(framed(b""), True, number)
        self.assertFalse([each for each in self.frames() if isinstance(each, GoAwayFrame)])
        for _ in range(5):
            self.connection.dataReceived(ping)
        [goodbye] = [each for each in self.frames() if isinstance(each, GoAwayFrame)]
        self.assertEqual(goodbye.error_code, ENHANCE_YOUR_CALM)
        self.assertEqual(goodbye.additional_data, b"too_many_pings")


class ShareTests(CallCase):
    """C{maxConnections}."""

    def open(self, host: str) -> bool:
        """Open a connection; return whether it stays."""
        connection = self.engine.buildProtocol(None)
        transport = Transport()
        transport.peerAddr = IPv4Address("TCP", host, 5000)
        connection.makeConnection(transport)
        return not transport.disconnecting

    def test_share(self) -> None:
        """One address has three quarters of the connections; others have the rest."""
        self.connect(maxConnections=8)
        self.assertEqual([self.open("10.0.0.1") for _ in range(7)], [True] * 6 + [False])
        self.assertEqual([self.open("10.0.0.2") for _ in range(2)], [True, False])
        self.assertEqual(self.engine.connections(), 8)
