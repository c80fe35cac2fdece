"""Calls of the native engine, on a connection in memory."""

import tracemalloc
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtensionOID, NameOID
from hpack import Decoder
from hyperframe.frame import (
    DataFrame,
    Frame,
    GoAwayFrame,
    HeadersFrame,
    RstStreamFrame,
    WindowUpdateFrame,
)
from OpenSSL.crypto import X509
from twisted.internet.defer import Deferred
from twisted.internet.error import ConnectionDone
from twisted.internet.task import Clock
from twisted.internet.testing import StringTransport
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase

from storagegate.core.heldbytes import HeldBytes
from storagegate.net.http2 import frames
from storagegate.net.http2.connection import HTTP2Connection
from storagegate.net.http2.hpack import encodePairs
from storagegate.rpc.dispatch import CallLimits, CallRouter
from storagegate.rpc.engine.native.messages import deflateMessage
from storagegate.rpc.engine.native.server import NativeServer
from storagegate.rpc.engine.native.service import CallPeer
from storagegate.rpc.engine.native.shared import SharedCalls
from storagegate.rpc.interfaces import NullByteCounter
from storagegate.rpc.options import GRPCServerOptions
from tests.net.support import TestSite
from tests.support.h2client import framed
from tests.support.rpcroutes import textRoute

DEADLINE_EXCEEDED, RESOURCE_EXHAUSTED, UNIMPLEMENTED, INTERNAL = 4, 8, 12, 13

WINDOW = 65_535

HEAD = (
    (b":method", b"POST"),
    (b":scheme", b"http"),
    (b":path", b"/a.B/C"),
    (b":authority", b"localhost"),
    (b"te", b"trailers"),
    (b"content-type", b"application/grpc"),
)


class Transport(StringTransport):
    """A transport in memory that nothing fills."""

    sentBytes = 0

    def hasUnsent(self) -> bool:
        """Return that everything was sent."""
        return False

    def loseWriteConnection(self) -> None:
        """Close the sending half."""


class ByteCount:
    """Counts the bytes of messages."""

    bytesIn = bytesOut = 0


class CallCase(SynchronousTestCase):
    """
    A case with one connection.

    @ivar calls: The accepted calls.
    """

    def setUp(self) -> None:
        """Connect."""
        self.connect()

    def connect(self, limit: int = 1 << 20, **options: Any) -> None:
        """Make a server with options, and a connection to it."""
        self.clock = Clock()
        self.calls: list[Any] = []
        self.traffic: Any = NullByteCounter()
        self.budget = HeldBytes(limit)
        settings = GRPCServerOptions(**options)
        self.engine = NativeServer(self.clock, settings, self.traffic, self.budget)
        self.engine.service.accepted = self.calls.append
        self.transport = Transport()
        self.connection = self.engine.buildProtocol(None)
        self.connection.makeConnection(self.transport)
        self.addCleanup(self.disconnect)
        self.decoder = Decoder()
        self.connection.dataReceived(frames.PREFACE + frames.settings({}))
        self.frames()

    def disconnect(self) -> None:
        """Lose the connection."""
        self.connection.connectionLost(Failure(ConnectionDone()))
        self.engine.service.deadlines.close()

    def frames(self) -> list[Frame]:
        """Take the frames that were sent."""
        self.clock.advance(0)
        wire, found = memoryview(self.transport.value()), []
        self.transport.clear()
        while wire:
            frame, length = Frame.parse_frame_header(wire[:9])
            frame.parse_body(wire[9 : 9 + length])
            found.append(frame)
            wire = wire[9 + length :]
        return found

    def begin(self, *fields: tuple[bytes, bytes], number: int = 1) -> Any:
        """Begin a call; return it if it was accepted."""
        before = len(self.calls)
        block = encodePairs([*HEAD, *fields])
        self.connection.dataReceived(frames.frame(frames.HEADERS, 4, number, block))
        return self.calls[-1] if len(self.calls) > before else None

    def data(self, data: bytes, isEnded: bool = False, number: int = 1) -> None:
        """Receive a part of the body."""
        for at in range(0, len(data) or 1, 16_384):
            isLast = isEnded and at + 16_384 >= len(data)
            piece = data[at : at + 16_384]
            self.connection.dataReceived(frames.frame(frames.DATA, isLast, number, piece))

    def status(self, found: list[Frame]) -> int:
        """Return the status in the frames of a response."""
        fields: dict[str, str] = {}
        for frame in found:
            if isinstance(frame, HeadersFrame):
                fields.update(self.decoder.decode(frame.data))
        return int(fields["grpc-status"])


class HeadTests(CallCase):
    """The heads of calls."""

    def test_spaces(self) -> None:
        """Spaces around metadata, which other clients send, are stripped."""
        call = self.begin((b"x-a", b" b c "), (b"x-b", b" "))
        self.assertEqual(list(call.metadata), [("x-a", "b c"), ("x-b", "")])
        for number, field in ((3, (b"x-a", b" b\r")), (5, (b":path", b" ")), (7, (b"X-A", b" "))):
            self.assertIsNone(self.begin(field, number=number))
            self.assertIsInstance(self.frames()[-1], RstStreamFrame)


class PeerTests(SynchronousTestCase):
    """The certificates of clients."""

    def test_strangeNames(self) -> None:
        """Alternative names of a kind that the library refuses do not hide the other entries."""
        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "alice")])
        now = datetime.now(UTC)
        # An EDIPartyName, and none at all.
        for wire in (bytes.fromhex("3006a504a1020c00"), bytes.fromhex("0500")):
            names = x509.UnrecognizedExtension(ExtensionOID.SUBJECT_ALTERNATIVE_NAME, wire)
            certificate = (
                x509.CertificateBuilder(name, name, key.public_key(), 1, now, now)
                .add_extension(names, critical=False)
                .sign(key, hashes.SHA256())
            )
            transport = Transport()
            transport.getPeerCertificate = partial(  # type: ignore[attr-defined]
                X509.from_cryptography, certificate
            )
            found = CallPeer(transport).authContext()
            self.assertEqual(found["x509_common_name"], [b"alice"])
            self.assertNotIn("x509_subject_alternative_name", found)


class PriorityTests(CallCase):
    """The order of responses (RFC 9218)."""

    def update(self, number: int, value: bytes) -> bytes:
        """Encode a PRIORITY_UPDATE frame."""
        return frames.frame(frames.PRIORITY_UPDATE, 0, 0, number.to_bytes(4, "big") + value)

    def test_field(self) -> None:
        """The field Priority orders a call, and PRIORITY_UPDATE overrides it."""
        self.assertEqual(self.begin((b"priority", b"u=1")).level, 2)
        self.connection.dataReceived(self.update(3, b"u=5, i"))
        self.assertEqual(self.begin((b"priority", b"u=1"), number=3).level, 11)

    def test_sharedPort(self) -> None:
        """Calls on a port of HTTP keep the priority that came before them."""
        site = TestSite()
        shared = SharedCalls(site.clock, GRPCServerOptions(), self.traffic, self.budget)
        shared.start(self.calls.append, lambda: None)
        site.site.openCall = shared.open
        channel = site.connect().channel
        channel.dataReceived(frames.PREFACE + frames.settings({}))
        http2: Any = channel.connection.transport.protocol
        self.assertIsInstance(http2, HTTP2Connection)
        http2.dataReceived(self.update(1, b"u=6") + self.update(5, b"u=0"))
        block = encodePairs([*HEAD, (b"priority", b"u=1")])
        for number in (1, 3):
            http2.dataReceived(frames.frame(frames.HEADERS, 4, number, block))
        self.assertEqual([each.level for each in self.calls], [12, 2])
        # One that is answered at once.
        block = encodePairs([*HEAD, (b"grpc-timeout", b"0S")])
        http2.dataReceived(frames.frame(frames.HEADERS, 5, 5, block))
        self.assertIsNone(http2.failure)
        self.assertEqual(list(http2.streams), [1, 3])


class WindowTests(CallCase):
    """What a client may send."""

    def granted(self) -> int:
        """Return the bytes that were granted on streams since the last look."""
        return sum(
            each.window_increment
            for each in self.frames()
            if isinstance(each, WindowUpdateFrame) and each.stream_id
        )

    def test_unread(self) -> None:
        """Nothing is granted again before a message was asked for."""
        call = self.begin()
        self.data(framed(bytes(60_000)))
        self.assertEqual(self.granted(), 0)
        taken: list[Any] = []
        call.read(taken.append)
        self.assertEqual(len(taken[0]), 60_000)
        self.data(framed(bytes(5000)))
        call.read(taken.append)
        self.assertEqual(self.granted(), 0)
        call.read(taken.append)
        self.assertEqual(self.granted(), 65_010)

    def test_longMessage(self) -> None:
        """A message longer than the window is granted while a reader waits for it."""
        call = self.begin()
        taken: list[Any] = []
        call.read(taken.append)
        wire, granted = framed(bytes(1 << 20)), WINDOW
        while wire:
            self.assertGreater(granted, 0)
            self.data(wire[:granted])
            wire = wire[granted:]
            granted = self.granted()
        self.assertEqual([len(each) for each in taken], [1 << 20])

    def test_ahead(self) -> None:
        """A reader that reads ahead has as many messages granted as it asks for, and one begun."""
        call = self.begin()
        taken: list[Any] = []
        call.read(taken.append, 2)
        for _ in range(4):
            self.data(framed(bytes(40_000)))
        # One was read, and three wait.
        self.assertEqual(len(taken), 1)
        self.assertGreater(self.granted(), 0)
        self.data(framed(bytes(40_000)))
        self.assertEqual(self.granted(), 0)
        while (message := call.takeMessage()) is not None:
            taken.append(message)
        self.assertEqual(len(taken), 5)
        self.assertGreater(self.granted(), 40_000)


class BudgetTests(CallCase):
    """The bytes of incomplete messages."""

    def test_refused(self) -> None:
        """Calls that hold too much together are refused, the largest first; others go on."""
        self.connect(limit=150_000)
        ends: list[Any] = []
        for number in (1, 3, 5, 7):
            call = self.begin(number=number)
            call.watch(lambda number=number: ends.append(number))
            size = 60_000 if number < 7 else 100
            self.data(framed(bytes(100_000))[:size], number=number)
        self.assertEqual(len(ends), 1)
        self.assertEqual(self.status(self.frames()), RESOURCE_EXHAUSTED)
        self.assertLessEqual(self.budget.total, 150_000)
        self.assertTrue(self.calls[(ends[0] - 1) // 2].isRefused)
        self.disconnect()
        self.assertEqual(self.budget.total, 0)

    def test_complete(self) -> None:
        """A message that was read is not counted any more."""
        call = self.begin()
        taken: list[Any] = []
        call.read(taken.append)
        wire = framed(bytes(100_000))
        self.data(wire[:60_000])
        self.assertEqual(self.budget.total, 60_000)
        self.data(wire[60_000:])
        self.assertEqual((len(taken), self.budget.total), (1, 0))

    def test_withoutEnd(self) -> None:
        """A request counts until its end arrives, and the longest ones are refused first."""
        self.connect(limit=250_000)
        router = CallRouter(budget=self.budget)
        route = textRoute(lambda call: str(len(call.request)))
        router.routes["/a.B/C"] = route
        self.engine.service.accepted = partial(router.accept, CallLimits(10))
        for number, size in ((1, 90_000), (3, 100_000), (5, 1000)):
            self.begin(number=number)
            self.data(framed(bytes(size)), number=number)
        self.assertEqual(self.budget.total, 190_000)
        self.frames()
        self.begin(number=7)
        self.data(framed(bytes(80_000)), number=7)
        found = self.frames()
        self.assertEqual(self.status(found), RESOURCE_EXHAUSTED)
        ended = [each.stream_id for each in found if isinstance(each, HeadersFrame)]
        self.assertEqual(ended, [3])
        self.assertEqual(self.budget.total, 170_000)
        self.data(b"", True, number=1)
        self.assertEqual(self.status(self.frames()), 0)
        self.assertEqual(self.budget.total, 80_000)
        # A second message.
        self.data(framed(b"a"), number=7)
        self.assertEqual(self.status(self.frames()), UNIMPLEMENTED)
        self.begin(number=9)
        self.data(framed(bytes(90_000)), number=9)
        self.connection.dataReceived(frames.resetStream(9, 8))
        self.begin(number=11)
        self.data(framed(bytes(90_000)), number=11)
        router.checkRequests(1e6)
        self.assertEqual(self.status(self.frames()), DEADLINE_EXCEEDED)
        self.assertEqual((self.budget.total, router.activeCalls), (0, 0))

    def test_ahead(self) -> None:
        """Messages that wait for a slow reader count together, however short each is."""
        call = self.begin()
        call.read(lambda message: None, 8)
        for _ in range(9):
            self.data(framed(bytes(31 * 1024)))
        self.assertEqual(self.budget.total, 8 * 31 * 1024)
        for _ in range(8):
            self.assertIsNotNone(call.takeMessage())
        self.assertEqual(self.budget.total, 0)


class SmallMessageTests(CallCase):
    """Messages of a few bytes, of which a window holds thousands."""

    def messages(self, count: int) -> tuple[list[bytes], bytes]:
        """Return messages of two bytes, and their wire form."""
        made = [number.to_bytes(2, "big") for number in range(count)]
        return made, b"".join(map(framed, made))

    def test_memory(self) -> None:
        """Those that nobody reads take little more than the bytes that have arrived."""
        _, wire = self.messages(WINDOW // 7)
        tracemalloc.start()
        self.addCleanup(tracemalloc.stop)
        for number in range(1, 21, 2):
            self.begin(number=number)
            self.data(wire, number=number)
        size, _ = tracemalloc.get_traced_memory()
        self.assertLess(size / 10, 4 * WINDOW)

    def test_longFrame(self) -> None:
        """So do those of a frame as long as the window, and all of them are read."""
        made, wire = self.messages(WINDOW // 7)
        frame = frames.frame(frames.DATA, 0, 1, wire[:-1])
        call = self.begin()
        tracemalloc.start()
        self.addCleanup(tracemalloc.stop)
        self.connection.dataReceived(frame)
        size, _ = tracemalloc.get_traced_memory()
        self.assertLess(size, 4 * WINDOW)
        self.data(wire[-1:], True)
        taken: list[Any] = []
        while (message := call.takeMessage()) is not None:
            taken.append(message)
        self.assertEqual(taken, made)
        call.read(taken.append)
        self.assertIsNone(taken[-1])

    def test_order(self) -> None:
        """All arrive in their order, and then the end, however they are read and cut."""
        made, wire = self.messages(WINDOW // 7)
        for number, (size, isRead) in enumerate(((16_384, False), (999, True), (40_000, True))):
            call = self.begin(number=2 * number + 1)
            taken: list[Any] = []
            for at in range(0, len(wire), size):
                isLast = at + size >= len(wire)
                self.data(wire[at : at + size], isLast and isRead, 2 * number + 1)
            if not isRead:
                self.data(b"", True, 2 * number + 1)
            while not taken or taken[-1] is not None:
                if isRead and (message := call.takeMessage()) is not None:
                    taken.append(message)
                else:
                    call.read(taken.append, 8)
            self.assertEqual(taken, [*made, None])

    def test_granted(self) -> None:
        """A reader that has taken them all may get as many again."""
        made, wire = self.messages(WINDOW // 7)
        call = self.begin()
        taken: list[Any] = []
        self.data(wire)
        while len(taken) < len(made):
            call.read(taken.append)
        call.read(taken.append)
        granted = sum(
            each.window_increment
            for each in self.frames()
            if isinstance(each, WindowUpdateFrame) and each.stream_id
        )
        self.assertEqual(granted, len(wire))

    def test_mistake(self) -> None:
        """A mistake behind them ends the call, and a reader is told."""
        _, wire = self.messages(4000)
        call = self.begin()
        self.data(wire + b"\x07\0\0\0\0")
        taken: list[Any] = []
        for _ in range(4001):
            if call.isOver:
                break
            call.read(taken.append)
        self.assertTrue(call.isRefused)
        self.assertLess(len(taken), 4000)
        self.assertEqual(self.status(self.frames()), INTERNAL)

    def test_counted(self) -> None:
        """The budget follows them and the message that has begun, until they are read."""
        made, wire = self.messages(3000)
        call = self.begin()
        self.data(wire + framed(bytes(100_000))[:40_000])
        taken: list[Any] = []
        while len(taken) < len(made):
            call.read(taken.append)
        self.assertEqual((taken, self.budget.total), (made, 40_000))


class EndTests(CallCase):
    """The ends of calls."""

    def test_deadline(self) -> None:
        """A deadline ends a call with its status, and one that is far away is kept as well."""
        for seconds, number in ((5, 1), (1000, 3)):
            call = self.begin((b"grpc-timeout", b"%dS" % seconds), number=number)
            ends: list[str] = []
            call.watch(lambda ends=ends: ends.append("cancelled"))
            self.clock.pump([0.5] * int(2 * seconds - 1))
            self.assertEqual(ends, [])
            self.clock.pump([0.5] * 2)
            self.assertEqual((ends, call.isOver), (["cancelled"], True))
            self.assertEqual(self.status(self.frames()), DEADLINE_EXCEEDED)

    def test_endedBefore(self) -> None:
        """A call that has ended is not watched any more."""
        call = self.begin((b"grpc-timeout", b"5S"))
        call.finish(0)
        self.frames()
        self.clock.advance(10)
        self.assertEqual(self.frames(), [])

    def test_blocked(self) -> None:
        """A deadline ends a call whose client takes nothing: in the middle of a message."""
        call = self.begin((b"grpc-timeout", b"5S"))
        self.assertTrue(call.send(bytes(100_000)))
        self.assertFalse(call.send(b"more"))
        self.frames()
        self.clock.advance(6)
        [reset] = self.frames()
        self.assertIsInstance(reset, RstStreamFrame)
        self.assertFalse(call.send(b""))

    def test_unreadResponse(self) -> None:
        """A deadline also ends a call whose response the client does not take, and frees it."""
        for size, number in ((1 << 20, 1), (100, 3), (0, 5)):
            call = self.begin((b"grpc-timeout", b"5S"), number=number)
            self.data(framed(b""), True, number)
            call.reply(bytes(size))
            self.clock.advance(1)
        far = self.begin((b"grpc-timeout", b"90S"), number=7)
        self.data(framed(b""), True, 7)
        far.reply(b"far")
        self.frames()
        self.assertEqual(list(self.connection.core.streams), [1, 3, 5, 7])
        self.clock.advance(60)
        found = [each for each in self.frames() if isinstance(each, RstStreamFrame)]
        self.assertEqual([each.stream_id for each in found], [1, 3, 5])
        self.clock.advance(40)
        self.frames()
        self.assertEqual(self.connection.core.streams, {})

    def test_trailers(self) -> None:
        """Fields that a client sends last end its messages."""
        call = self.begin()
        taken: list[Any] = []
        call.read(taken.append)
        block = encodePairs([(b"x-a", b"b")])
        self.connection.dataReceived(frames.frame(frames.HEADERS, 5, 1, block))
        self.assertEqual(taken, [None])

    def test_garbage(self) -> None:
        """A mistake after the only message ends the call before it is handled."""
        call = self.begin()
        ends: list[bool] = []
        call.read(lambda message: call.readEnd(ends.append))
        self.data(framed(b"a"))
        self.data(b"\x07\0\0\0\0", True)
        self.assertEqual(ends, [False])
        self.assertEqual(self.status(self.frames()), INTERNAL)

    def test_readerOutlivesCall(self) -> None:
        """A reader that still waits when the handler ends the call is told."""
        call = self.begin()
        taken: list[Any] = []
        call.read(taken.append)
        call.finish(0)
        self.assertEqual(taken, [None])

    def watchLate(self, end: Callable[[], object]) -> None:
        """Watch a call that has ended before its client has ended its messages."""
        call = self.begin((b"grpc-timeout", b"1S"))
        events: list[str] = []
        call.read(lambda message: events.append("message"))
        self.data(framed(b"a"))
        call.readEnd(lambda isEnd: events.append("end"))
        end()
        self.assertEqual(events, ["message", "end"])
        call.watch(lambda: events.append("early"))
        call.watch(lambda: events.append("cancelled"))
        self.assertEqual(events, ["message", "end"])
        self.clock.advance(0)
        self.assertEqual(events, ["message", "end", "cancelled"])

    def test_watchedLate(self) -> None:
        """A call whose client has left is cancelled when it is watched, and only once."""
        self.watchLate(partial(self.connection.dataReceived, frames.resetStream(1, 8)))
        self.connect()
        self.watchLate(partial(self.clock.advance, 2))

    def test_shrunkWindow(self) -> None:
        """A call without unsent messages gets its status, though its window is below zero."""
        call = self.begin((b"grpc-timeout", b"1S"))
        call.send(bytes(1000))
        self.frames()
        self.connection.dataReceived(frames.settings({frames.INITIAL_WINDOW_SIZE: 10}))
        self.frames()
        self.clock.advance(2)
        self.assertEqual(self.status(self.frames()), DEADLINE_EXCEEDED)

    def test_unendedRequest(self) -> None:
        """An answered call whose client does not send the declared length is given up."""
        call = self.begin((b"content-length", b"5"))
        call.finish(12, "none")
        self.assertEqual([type(each) for each in self.frames()], [HeadersFrame])
        self.clock.advance(1)
        [reset] = self.frames()
        self.assertIsInstance(reset, RstStreamFrame)
        self.assertEqual(reset.error_code, 0)  # type: ignore[attr-defined]
        self.assertFalse(self.connection.core.streams)

    def test_onlyTrailers(self) -> None:
        """A status without a message goes in one frame, and the client is asked to stop."""
        call = self.begin()
        call.finish(5, "none")
        head, reset = self.frames()
        self.assertIn("END_STREAM", head.flags)
        self.assertEqual(reset.error_code, 0)
        self.assertEqual(self.status([head]), 5)

    def test_stopped(self) -> None:
        """A grace that ends cancels calls with UNAVAILABLE, and the connection says good-bye."""
        call = self.begin()
        ends: list[str] = []
        call.watch(lambda: ends.append("cancelled"))
        self.connection.cancelCalls()
        found = self.frames()
        self.assertEqual((ends, self.status(found)), (["cancelled"], 14))
        self.assertTrue(any(isinstance(each, GoAwayFrame) for each in found))

    def test_packed(self) -> None:
        """The messages of a turn share a frame."""
        call = self.begin()
        for number in range(100):
            call.send(b"%d" % number)
        call.finish(0)
        kinds = [type(each) for each in self.frames()]
        self.assertEqual(kinds[:3], [HeadersFrame, DataFrame, HeadersFrame])


class SlowClientTests(CallCase):
    """A client that sends, and has fallen behind with reading."""

    def test_answers(self) -> None:
        """It keeps its connection: no more is read while too many answers wait for it."""
        self.connect(maxConcurrentStreams=None)
        self.transport.producer.pauseProducing()
        number = sent = 0
        while self.transport.producerState == "producing" and number < 6000:
            call = self.begin(number=2 * number + 1)
            self.assertIsNotNone(call)
            self.data(framed(b""), True, 2 * number + 1)
            call.finish(5, "x" * 300)
            number += 1
            sent += len(self.transport.value())
            self.transport.clear()
        self.assertLess(sent, 1 << 20)
        self.assertIsNone(self.connection.core.failure)
        self.transport.producer.resumeProducing()
        self.clock.advance(0)
        self.assertEqual(self.transport.producerState, "producing")
        self.assertIsNotNone(self.begin(number=2 * number + 1))

    def test_turn(self) -> None:
        """Input that was received before waits until the client has read."""
        self.connect(maxConcurrentStreams=None)
        self.engine.service.accepted = lambda call: self.calls.append(call.finish(5, "x" * 300))
        self.transport.producer.pauseProducing()
        block = encodePairs(HEAD)
        wire = b"".join(
            frames.frame(frames.HEADERS, 5, 2 * number + 1, block) for number in range(5000)
        )
        self.connection.dataReceived(wire)
        for _ in range(200):
            self.clock.advance(0)
        self.assertIsNone(self.connection.core.failure)
        self.assertLess(len(self.calls), 5000)
        while len(self.calls) < 5000:
            before = len(self.calls)
            self.transport.producer.resumeProducing()
            for _ in range(200):
                self.clock.advance(0)
            self.assertGreater(len(self.calls), before)
        self.assertEqual(self.transport.producerState, "producing")

    def test_patience(self) -> None:
        """It may take its time while it reads; one that reads nothing loses its connection."""
        self.connect(maxConcurrentStreams=None)
        self.engine.service.accepted = lambda call: call.finish(5, "x" * 300)
        self.transport.producer.pauseProducing()
        block = encodePairs(HEAD)
        self.connection.dataReceived(
            b"".join(frames.frame(frames.HEADERS, 5, 2 * each + 1, block) for each in range(1000))
        )
        for _ in range(100):
            self.clock.advance(0)
        for _ in range(200):
            self.transport.sentBytes += 1000
            self.clock.advance(1)
        self.assertFalse(self.transport.disconnected)
        self.clock.pump([1] * 65)
        self.assertTrue(self.transport.disconnected)


class TrafficTests(CallCase):
    """The bytes of messages, which metrics count."""

    def test_mixed(self) -> None:
        """A call with an encoding counts its messages without compression, too."""
        counted = self.traffic = ByteCount()
        self.engine.service.traffic = counted
        call = self.begin((b"grpc-encoding", b"gzip"))
        self.data(framed(b"plain") + framed(deflateMessage("gzip", bytes(1000), 6), True), True)
        taken: list[Any] = []
        while None not in taken:
            call.read(taken.append)
        self.assertEqual(taken, [b"plain", bytes(1000), None])
        self.assertEqual(counted.bytesIn, 1005)


class LengthTests(CallCase):
    """The declared length of a body."""

    def test_repeated(self) -> None:
        """Two lengths, even of one value, are a mistake, as over HTTP/1.1."""
        for number, values in enumerate(((b"5", b"6"), (b"5", b"5"), (b"5",))):
            fields = [(b"content-length", each) for each in values]
            call = self.begin(*fields, number=2 * number + 1)
            found = self.frames()
            if len(values) == 1:
                self.assertEqual((call is None, found), (False, []))
            else:
                self.assertIsNone(call)
                self.assertEqual([each.error_code for each in found], [1])


class ClosingPort:
    """A port that closes later."""

    def __init__(self, closed: Deferred[None]) -> None:
        self._closed = closed

    def stopListening(self) -> Deferred[None]:
        """Return when it is closed."""
        return self._closed


class LateTests(CallCase):
    """A connection that the port accepts in its last iteration, after a grace of no time."""

    def test_stop(self) -> None:
        """It does not keep the server from its end."""
        closed: Deferred[None] = Deferred()
        self.engine._port = ClosingPort(closed)
        ended: list[None] = []
        self.engine.stop(0).addCallback(ended.append)
        self.clock.advance(0)
        self.disconnect()
        late = self.engine.buildProtocol(None)
        late.makeConnection(Transport())
        late.dataReceived(frames.PREFACE + frames.settings({}))
        closed.callback(None)
        late.dataReceived(frames.frame(frames.HEADERS, 4, 1, encodePairs(HEAD)))
        self.clock.advance(10)
        self.assertEqual(self.calls, [])
        late.connectionLost(Failure(ConnectionDone()))
        self.assertEqual(ended, [None])
