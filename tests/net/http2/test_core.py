"""The core of HTTP/2 as a server: the rules of RFC 9113, in the order of its sections."""

from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from storagegate.net.http2 import frames
from storagegate.net.http2.frames import frame, resetStream, windowUpdate
from storagegate.net.http2.hpack import encodePairs
from storagegate.net.http2.interfaces import (
    ConnectionFailure,
    ErrorCode,
    HTTP2Limits,
    StreamFailure,
    StreamReset,
)
from tests.support.http2 import END, ENDS, GET, OK, POST, TRAILERS, Peer, data, headers

PRIORITY = frame(frames.PRIORITY, 0, 1, bytes(5))
OPEN = headers(1, POST, frames.END_HEADERS)


def _raise(stream: Any, event: tuple[Any, ...]) -> None:
    if event[0] == "data":
        raise ZeroDivisionError()


class _Case(SynchronousTestCase):
    def setUp(self) -> None:
        self.peer = Peer().greet()

    def assertFails(self, code: int, *wire: bytes) -> None:
        """Check that frames end a new connection with an error."""
        self.assertEqual(Peer().greet().failure(*wire), code)

    def assertResets(self, code: int, *wire: bytes, stream: int = 1) -> Peer:
        """Check that frames reset a stream of a new connection, and the connection goes on."""
        peer = Peer().greet()
        self.assertEqual(peer.resets(*wire), [(stream, code)])
        self.assertTrue(peer.feed(frame(frames.PING, 0, 0, bytes(8))))
        self.assertIsNone(peer.core.failure)
        return peer


class PrefaceTests(_Case):
    """Section 3.4"""

    def test_preface(self) -> None:
        """The preface and SETTINGS come first, in any pieces."""
        peer = Peer()
        wire = frames.PREFACE + frames.settings({}) + headers(1)
        for at in range(len(wire)):
            self.assertTrue(peer.core.isInFrame or at == 0 or not peer.core._isPrefaceDue)
            peer.core.receive(wire[at : at + 1])
        self.assertEqual(peer.opened[1].names(), ["head"])
        self.assertFalse(peer.core.isInFrame)

    def test_sent(self) -> None:
        """SETTINGS and the window of the connection are sent first."""
        sent = Peer(streams=7).sent()
        self.assertEqual([each.kind for each in sent], [frames.SETTINGS, frames.WINDOW_UPDATE])
        settings = dict(frames.readSettings(sent[0].payload))
        self.assertEqual(settings[frames.MAX_CONCURRENT_STREAMS], 7)
        self.assertEqual(sent[1].number, 4 * 1024 * 1024 - 65_535)

    def test_limitsAreSent(self) -> None:
        """Limits unlike the defaults are announced."""
        peer = Peer(streamWindow=2**20, frame=2**15, headerTable=8192, connectionWindow=65_535)
        (first,) = peer.sent()
        settings = dict(frames.readSettings(first.payload))
        self.assertEqual(settings[frames.INITIAL_WINDOW_SIZE], 2**20)
        self.assertEqual(settings[frames.MAX_FRAME_SIZE], 2**15)
        self.assertEqual(settings[frames.HEADER_TABLE_SIZE], 8192)

    def test_wrongPreface(self) -> None:
        """Anything else is refused at its first wrong byte."""
        for wire in (b"GET ", b"PRI * HTTP/2.0\r\n\r\nXX", b"\x16\x03\x01"):
            self.assertEqual(Peer().failure(wire), ErrorCode.PROTOCOL_ERROR)

    def test_settingsFirst(self) -> None:
        """Another first frame is refused, even an acknowledgement."""
        for first in (headers(1), frame(frames.SETTINGS, frames.ACK, 0), PRIORITY):
            self.assertEqual(Peer().failure(frames.PREFACE, first), ErrorCode.PROTOCOL_ERROR)

    def test_limitsTooSmall(self) -> None:
        """A client may use the first values until it has read smaller ones."""
        for limits in (
            {"streamWindow": 65_534},
            {"connectionWindow": 65_534},
            {"headerTable": 4095},
            {"frame": 16_383},
            {"frame": 2**24},
        ):
            self.assertRaises(ValueError, HTTP2Limits, **limits)


class FrameTests(_Case):
    """Sections 4.1 to 4.3"""

    def test_unknown(self) -> None:
        """4.1 and 5.5: unknown types and flags, and the reserved bit, are ignored."""
        peer = self.peer
        self.assertEqual(peer.feed(frame(0x16, 0xFF, 1, b"abc"), frame(0xFF, 0, 2**31 + 5)), [])
        peer.feed(frame(frames.HEADERS, ENDS | 0xC2 & ~0x2A, 2**31 + 1, GET))
        self.assertEqual(peer.opened[1].names(), ["head"])

    def test_tooLong(self) -> None:
        """4.2: a longer frame is refused when its header has come."""
        long = bytes([1, 0, 1, 0, 0, 0, 0, 0, 1])
        self.assertFails(ErrorCode.FRAME_SIZE_ERROR, OPEN, long)
        self.assertFails(ErrorCode.FRAME_SIZE_ERROR, long[:3] + b"\xff" + long[4:])
        # Less would do for a header block, and nothing else is as long.
        for kind in (frames.HEADERS, frames.SETTINGS, 0xFF):
            block = frames.packHeader((32 * 1024 + 262) << 8 | kind, 0, 3)
            self.assertFails(ErrorCode.ENHANCE_YOUR_CALM, block)
        self.assertIsNone(self.peer.failure(OPEN, data(1, bytes(32_768)), data(1, bytes(16_384))))

    def test_parts(self) -> None:
        """6.1: a long DATA frame is passed on as it arrives, without its padding."""
        body = bytes(range(256)) * 200
        padded = frame(frames.DATA, frames.PADDED | END, 1, b"\x09" + body[1:] + bytes(9))
        for wire, content in ((data(1, body, END), body), (padded, body[1:])):
            peer = Peer().greet()
            peer.feed(OPEN)
            stream = peer.opened[1]
            peer.core.receive(wire[:4000])
            self.assertEqual(stream.names(), ["head"])
            for at in range(4000, len(wire), 1000):
                self.assertTrue(peer.core.isInFrame)
                peer.core.receive(wire[at : at + 1000])
                self.assertEqual(stream.body(), content[: len(stream.body())])
                self.assertGreaterEqual(len(stream.body()), min(at - 10, len(content)))
                self.assertEqual(len(peer.core._input), 0)
            self.assertEqual(stream.body(), content)
            self.assertEqual([event[2] for event in stream.heard[1:]].count(True), 1)
            self.assertTrue(stream.heard[-1][2])
            self.assertFalse(peer.core.isInFrame)

    def test_partsOfEndedStream(self) -> None:
        """The rest of a DATA frame whose stream has ended is skipped, and what follows is read."""
        wire = data(1, bytes(20_000), END)
        for end in ("reset", "fault", "refused"):
            peer = Peer().greet()
            peer.feed(OPEN)
            stream = peer.opened[1]
            if end == "fault":
                stream.on = _raise
            elif end == "refused":
                stream.expected = 10
            peer.core.receive(wire[:9000])
            if end == "reset":
                stream.reset(ErrorCode.CANCEL)
            count = len(stream.heard)
            peer.feed(wire[9000:] + headers(3))
            self.assertEqual(peer.opened[3].names(), ["head"])
            self.assertEqual(len(stream.heard), count)
            self.assertIsNone(peer.core.failure)
            self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), end == "fault")

    def test_partsOfLostConnection(self) -> None:
        """A connection that ends within a DATA frame tells its stream."""
        self.peer.feed(OPEN)
        self.peer.core.receive(data(1, bytes(20_000))[:9000])
        self.peer.core.lose(StreamReset(0))
        self.assertEqual(self.peer.opened[1].names(), ["head", "data", "lost"])
        self.assertFalse(self.peer.core.isInFrame)

    def test_wrongSizes(self) -> None:
        """4.2 and section 6: frames of a fixed size."""
        for kind, number, size in (
            (frames.PRIORITY, 1, 4),
            (frames.PRIORITY, 1, 6),
            (frames.RST_STREAM, 1, 3),
            (frames.RST_STREAM, 1, 5),
            (frames.SETTINGS, 0, 5),
            (frames.SETTINGS, 0, 7),
            (frames.PING, 0, 7),
            (frames.PING, 0, 9),
            (frames.GOAWAY, 0, 7),
            (frames.WINDOW_UPDATE, 0, 3),
            (frames.WINDOW_UPDATE, 1, 5),
            (frames.PRIORITY_UPDATE, 0, 3),
        ):
            wire = frame(kind, 0, number, bytes(size))
            self.assertFails(ErrorCode.FRAME_SIZE_ERROR, OPEN, wire)
        ack = frame(frames.SETTINGS, frames.ACK, 0, bytes(6))
        self.assertFails(ErrorCode.FRAME_SIZE_ERROR, ack)

    def test_wrongStreams(self) -> None:
        """Section 6: frames of a stream on the connection, and the opposite."""
        for kind, number, size in (
            (frames.DATA, 0, 1),
            (frames.HEADERS, 0, 5),
            (frames.PRIORITY, 0, 5),
            (frames.RST_STREAM, 0, 4),
            (frames.SETTINGS, 1, 6),
            (frames.PUSH_PROMISE, 0, 8),
            (frames.PUSH_PROMISE, 1, 8),
            (frames.PING, 1, 8),
            (frames.GOAWAY, 1, 8),
            (frames.CONTINUATION, 0, 3),
            (frames.PRIORITY_UPDATE, 1, 8),
        ):
            wire = frame(kind, frames.END_HEADERS, number, bytes(size))
            self.assertFails(ErrorCode.PROTOCOL_ERROR, OPEN, wire)

    def test_compression(self) -> None:
        """4.3: a block that cannot be decoded ends the connection."""
        self.assertFails(ErrorCode.COMPRESSION_ERROR, headers(1, b"\xff\xff\xff\xff\xff\xff"))

    def test_interruptedBlock(self) -> None:
        """4.3: no other frame comes within a header block."""
        begin = headers(1, GET[:2], END)
        for wire in (
            PRIORITY,
            data(1, b"a"),
            headers(3),
            frame(frames.CONTINUATION, frames.END_HEADERS, 3, GET[2:]),
            frame(0x16, 0, 1),
            frame(frames.PING, 0, 0, bytes(8)),
        ):
            self.assertFails(ErrorCode.PROTOCOL_ERROR, begin, wire)

    def test_splitBlock(self) -> None:
        """6.10: a block in many frames, of which some are empty."""
        wire = headers(1, b"", END)
        for octet in GET:
            wire += frame(frames.CONTINUATION, 0, 1, bytes([octet]))
        self.peer.feed(wire)
        self.assertTrue(self.peer.core.isInBlock)
        self.peer.feed(frame(frames.CONTINUATION, frames.END_HEADERS, 1))
        self.assertFalse(self.peer.core.isInBlock)
        self.assertEqual(self.peer.opened[1].heard[0][0::2], ("head", True))

    def test_continuationAlone(self) -> None:
        """6.10: CONTINUATION follows HEADERS without END_HEADERS."""
        end = frame(frames.CONTINUATION, frames.END_HEADERS, 1, GET)
        self.assertFails(ErrorCode.PROTOCOL_ERROR, end)
        self.assertFails(ErrorCode.PROTOCOL_ERROR, headers(1), end)
        self.assertFails(ErrorCode.PROTOCOL_ERROR, OPEN, data(1, b"a"), end)

    def test_blockOfRefusedStream(self) -> None:
        """4.3: the block of a stream that is refused changes the table."""
        peer = Peer(streams=1).greet()
        peer.feed(OPEN)
        literal = b"\x40\x01a\x01b"
        self.assertEqual(peer.resets(headers(3, GET + literal)), [(3, ErrorCode.REFUSED_STREAM)])
        peer.feed(resetStream(1, 8), headers(5, GET + b"\xbe"))
        self.assertEqual(peer.opened[5].heard[0][1][-1], (b"a", b"b"))


class StateTests(_Case):
    """Section 5.1"""

    def test_idle(self) -> None:
        """Frames of a stream that was never opened end the connection."""
        for wire in (
            data(1, b"a"),
            resetStream(1, 8),
            windowUpdate(1, 1),
            windowUpdate(2, 1),
            data(2, b"a"),
        ):
            self.assertFails(ErrorCode.PROTOCOL_ERROR, wire)
        self.assertIsNone(self.peer.failure(PRIORITY))

    def test_halfClosedRemote(self) -> None:
        """After END_STREAM, only WINDOW_UPDATE, PRIORITY and RST_STREAM may come."""
        for wire in (data(1, b"a"), data(1, b"", END), headers(1, TRAILERS)):
            peer = self.assertResets(ErrorCode.STREAM_CLOSED, headers(1), wire)
            self.assertEqual(peer.opened[1].names(), ["head", "lost"])
        self.assertEqual(self.peer.feed(headers(1), windowUpdate(1, 5), PRIORITY), [])
        self.peer.feed(resetStream(1, 8))
        self.assertEqual(self.peer.opened[1].names(), ["head", "lost"])

    def test_closed(self) -> None:
        """After both sides have ended, DATA resets the stream, and HEADERS end the connection."""
        for wire in (data(1, b"a"), data(1, b"", END)):
            peer = Peer().greet()
            peer.feed(headers(1))
            peer.opened[1].sendHead(OK, True)
            self.assertEqual(peer.core.streams, {})
            self.assertEqual(peer.resets(wire), [(1, ErrorCode.STREAM_CLOSED)])
            self.assertEqual(peer.feed(windowUpdate(1, 5), resetStream(1, 8), PRIORITY), [])
        peer.feed(headers(3))
        peer.opened[3].sendHead(OK, True)
        self.assertEqual(peer.failure(headers(3)), ErrorCode.STREAM_CLOSED)

    def test_closedByPeersReset(self) -> None:
        """The client sends nothing on a stream that it has reset."""
        for wire in (data(1, b"a"), data(1, b"", END)):
            peer = self.assertResets(ErrorCode.STREAM_CLOSED, OPEN, resetStream(1, 8), wire)
            self.assertEqual(peer.opened[1].names(), ["head", "lost"])
        reason = peer.opened[1].heard[1][1]
        self.assertIsInstance(reason, StreamReset)
        self.assertEqual((reason.code, reason.isUnprocessed), (8, False))
        self.assertFails(ErrorCode.STREAM_CLOSED, OPEN, resetStream(1, 8), headers(1))
        wire = OPEN, resetStream(1, 8), windowUpdate(1, 1), PRIORITY, resetStream(1, 8)
        self.assertEqual(self.peer.feed(*wire), [])

    def test_closedByOurReset(self) -> None:
        """Frames that crossed our reset are ignored; their DATA counts for the connection."""
        peer = self.peer
        peer.feed(OPEN)
        peer.opened[1].reset(ErrorCode.CANCEL)
        self.assertEqual(peer.sent()[-1][::2], (frames.RST_STREAM, 1))
        piece = data(1, bytes(65_536))
        sent = peer.feed(*[piece] * 32, windowUpdate(1, 7), headers(1, TRAILERS), resetStream(1, 8))
        self.assertEqual([(each.kind, each.stream) for each in sent], [(frames.WINDOW_UPDATE, 0)])
        self.assertEqual(sent[0].number, 2**21)
        self.assertEqual(peer.opened[1].names(), ["head"])
        self.assertIsNone(peer.core.failure)

    def test_numbers(self) -> None:
        """5.1.1: the numbers of a client are odd and rise."""
        self.assertFails(ErrorCode.PROTOCOL_ERROR, headers(2))
        self.assertFails(ErrorCode.PROTOCOL_ERROR, headers(5), headers(3))
        self.assertFails(ErrorCode.PROTOCOL_ERROR, headers(1), headers(5), headers(3))
        self.peer.feed(headers(7), headers(2**31 - 1))
        self.assertEqual(list(self.peer.opened), [7, 2**31 - 1])
        self.assertEqual(self.peer.core.lastStream, 2**31 - 1)

    def test_concurrency(self) -> None:
        """5.1.2: a stream over the limit is refused, until another one has ended."""
        peer = Peer(streams=2).greet()
        self.assertEqual(
            peer.resets(headers(1), headers(3), headers(5)),
            [(5, ErrorCode.REFUSED_STREAM)],
        )
        self.assertNotIn(5, peer.opened)
        self.assertEqual(peer.feed(data(5, b"late", END)), [])
        peer.opened[1].sendHead(OK, True)
        peer.feed(headers(7))
        self.assertEqual(list(peer.core.streams), [3, 7])
        self.assertEqual(peer.core.failures, {ErrorCode.REFUSED_STREAM: 1})

    def test_errorsAreCounted(self) -> None:
        """5.4: errors are counted by code; the last stream is named, with a text."""
        peer = self.peer
        (last,) = peer.feed(headers(3), frame(frames.PING, 0, 0, b"short"))
        self.assertEqual(last.kind, frames.GOAWAY)
        self.assertEqual(int.from_bytes(last.payload[:4], "big"), 3)
        self.assertEqual(last.payload[8:], b"a frame of the wrong size")
        self.assertEqual(peer.core.failures, {ErrorCode.FRAME_SIZE_ERROR: 1})
        self.assertIsInstance(peer.core.failure, ConnectionFailure)
        self.assertEqual(peer.opened[3].names(), ["head", "lost"])
        self.assertEqual(peer.feed(headers(5)), [])
        peer.core.fail(ConnectionFailure(ErrorCode.PROTOCOL_ERROR, "again"))
        peer.core.lose(Exception("the transport is lost"))
        self.assertEqual(peer.sent(), [])
        self.assertEqual(peer.opened[3].names(), ["head", "lost"])


class DataTests(_Case):
    """Sections 6.1 and 8.1.1"""

    def test_padding(self) -> None:
        """Padding is removed, and granted again with the data."""
        peer = self.peer
        padded = bytes([200]) + b"body" + bytes(200)
        peer.feed(OPEN, data(1, padded, frames.PADDED))
        self.assertEqual(peer.opened[1].body(), b"body")
        self.assertEqual(peer.opened[1].untaken, len(padded))
        peer.feed(data(1, b"\0", frames.PADDED | END))
        self.assertEqual(peer.opened[1].heard[-1], ("data", b"", True))

    def test_wrongPadding(self) -> None:
        """More padding than payload ends the connection; a pad length is due."""
        for payload, code in (
            (b"", ErrorCode.FRAME_SIZE_ERROR),
            (b"\x01", ErrorCode.PROTOCOL_ERROR),
            (b"\x05abcd", ErrorCode.PROTOCOL_ERROR),
        ):
            self.assertFails(code, OPEN, data(1, payload, frames.PADDED))
            self.assertFails(code, headers(1, payload, ENDS | frames.PADDED))
        flags = ENDS | frames.PADDED | frames.HAS_PRIORITY
        self.assertFails(ErrorCode.PROTOCOL_ERROR, headers(1, b"\x02" + bytes(6), flags))
        self.assertFails(
            ErrorCode.FRAME_SIZE_ERROR, headers(1, bytes(4), ENDS | frames.HAS_PRIORITY)
        )

    def test_paddedHeaders(self) -> None:
        """6.2: padding and the old priority of HEADERS are removed."""
        block = b"\x03" + bytes(5) + GET + bytes(3)
        self.peer.feed(headers(1, block, ENDS | frames.PADDED | frames.HAS_PRIORITY))
        self.assertEqual(len(self.peer.opened[1].heard[0][1]), 4)

    def test_length(self) -> None:
        """8.1.1: a body of another length than the declared one is malformed."""
        for wire in (
            [data(1, b"12345")],
            [data(1, b"123", END)],
            [data(1, b"", END)],
            [data(1, b"12"), data(1, b"345")],
            [data(1, b"12"), headers(1, TRAILERS)],
        ):
            peer = Peer().greet()
            peer.feed(OPEN)
            peer.opened[1].expected = 4
            self.assertEqual(peer.resets(*wire), [(1, ErrorCode.PROTOCOL_ERROR)])
            self.assertIsInstance(peer.opened[1].heard[-1][1], StreamFailure)
        peer = Peer().greet()
        peer.feed(OPEN)
        peer.opened[1].expected = 4
        self.assertEqual(peer.resets(data(1, b"12"), data(1, b"34"), headers(1, TRAILERS)), [])
        self.assertEqual(peer.opened[1].names(), ["head", "data", "data", "trailers"])


class HeadersTests(_Case):
    """Sections 6.2 and 8.1"""

    def test_trailers(self) -> None:
        """Trailers end the stream."""
        self.peer.feed(OPEN, data(1, b"a"), headers(1, TRAILERS))
        stream = self.peer.opened[1]
        self.assertEqual(stream.heard[-1], ("trailers", [(b"grpc-status", b"0")]))
        self.assertTrue(stream.isRemoteClosed)

    def test_trailersThatGoOn(self) -> None:
        """8.1: a second block without END_STREAM is malformed."""
        self.assertResets(ErrorCode.PROTOCOL_ERROR, OPEN, headers(1, TRAILERS, frames.END_HEADERS))

    def test_malformed(self) -> None:
        """A stream that refuses its head is reset, and hears of it."""
        peer = self.peer

        def refuse(stream: Any, event: Any) -> None:
            if event[0] == "head":
                raise StreamFailure(ErrorCode.PROTOCOL_ERROR, "malformed")

        peer.on = refuse
        self.assertEqual(peer.resets(headers(1)), [(1, ErrorCode.PROTOCOL_ERROR)])
        self.assertEqual(peer.opened[1].names(), ["head", "lost"])

    def test_longBlock(self) -> None:
        """6.10: a long head is sent in HEADERS and CONTINUATION frames."""
        self.peer.feed(headers(1), headers(3))
        block = encodePairs([(b":status", b"200"), (b"a", b"x" * 40_000)])
        self.peer.opened[1].sendHead(block)
        self.peer.opened[3].sendHead(block, True)
        sent = self.peer.sent()
        self.assertEqual(
            [(each.kind, each.flags, each.stream, len(each.payload)) for each in sent],
            [
                (frames.HEADERS, 0, 1, 16_384),
                (frames.CONTINUATION, 0, 1, 16_384),
                (frames.CONTINUATION, frames.END_HEADERS, 1, len(block) - 32_768),
                (frames.HEADERS, END, 3, 16_384),
                (frames.CONTINUATION, 0, 3, 16_384),
                (frames.CONTINUATION, frames.END_HEADERS, 3, len(block) - 32_768),
            ],
        )
        self.assertEqual(b"".join([each.payload for each in sent[:3]]), block)


class SettingsTests(_Case):
    """Section 6.5"""

    def test_acknowledged(self) -> None:
        """Each frame is acknowledged, after it was applied."""
        sent = self.peer.feed(frames.settings({frames.INITIAL_WINDOW_SIZE: 5, 0x99: 7}))
        self.assertEqual(sent, [(frames.SETTINGS, frames.ACK, 0, b"")])
        self.assertEqual(self.peer.core.initialSendWindow, 5)
        self.assertEqual(self.peer.feed(frame(frames.SETTINGS, frames.ACK, 0)), [])

    def test_invalid(self) -> None:
        """6.5.2, RFC 8441 and RFC 9218: values out of their ranges."""
        for name, value, code in (
            (frames.ENABLE_PUSH, 2, ErrorCode.PROTOCOL_ERROR),
            (frames.INITIAL_WINDOW_SIZE, 2**31, ErrorCode.FLOW_CONTROL_ERROR),
            (frames.MAX_FRAME_SIZE, 16_383, ErrorCode.PROTOCOL_ERROR),
            (frames.MAX_FRAME_SIZE, 2**24, ErrorCode.PROTOCOL_ERROR),
            (frames.ENABLE_CONNECT_PROTOCOL, 2, ErrorCode.PROTOCOL_ERROR),
            (frames.NO_RFC7540_PRIORITIES, 2, ErrorCode.PROTOCOL_ERROR),
        ):
            self.assertFails(code, frames.settings({name: value}))

    def test_order(self) -> None:
        """6.5.3: the last of repeated values counts."""
        one = frames.settings({frames.INITIAL_WINDOW_SIZE: 1})
        two = frames.settings({frames.INITIAL_WINDOW_SIZE: 2})
        self.peer.feed(frame(frames.SETTINGS, 0, 0, two[9:] + one[9:] + two[9:]))
        self.assertEqual(self.peer.core.initialSendWindow, 2)

    def test_headerTable(self) -> None:
        """RFC 7541 section 4.2: a smaller table is acknowledged in the next block, once."""
        peer = self.peer
        small = frames.settings({frames.HEADER_TABLE_SIZE: 0})
        peer.feed(frame(frames.SETTINGS, 0, 0, small[9:] + bytes([0, 1, 0, 0, 0x10, 0])))
        peer.feed(small, headers(1), headers(3))
        peer.opened[1].sendHead(OK, True)
        peer.opened[3].sendHead(OK, True)
        self.assertEqual([each.payload for each in peer.sent()], [b"\x20" + OK, OK])


class PingTests(_Case):
    """Section 6.7"""

    def test_answered(self) -> None:
        """A PING is answered with its payload."""
        sent = self.peer.feed(frame(frames.PING, 0, 0, b"12345678"))
        self.assertEqual(sent, [(frames.PING, frames.ACK, 0, b"12345678")])

    def test_pong(self) -> None:
        """The answer of a PING of ours calls its function, once; other answers are ignored."""
        heard: list[int] = []
        for number in range(2):
            self.peer.core.ping(lambda number=number: heard.append(number))
        first, second = self.peer.sent()
        ack = frame(frames.PING, frames.ACK, 0, second.payload)
        self.peer.feed(frame(frames.PING, frames.ACK, 0, b"unasked."), ack, ack)
        self.assertEqual(heard, [1])
        self.peer.feed(frame(frames.PING, frames.ACK, 0, first.payload))
        self.assertEqual(heard, [1, 0])

    def test_pinged(self) -> None:
        """The owner hears of each PING, and may end the connection."""
        failure = ConnectionFailure(ErrorCode.ENHANCE_YOUR_CALM, "too_many_pings")

        def pinged() -> None:
            raise failure

        self.peer.core.pinged = pinged
        ping = frame(frames.PING, 0, 0, bytes(8))
        self.assertEqual(self.peer.failure(ping), ErrorCode.ENHANCE_YOUR_CALM)
        self.assertIs(self.peer.core.failure, failure)

    def test_faultyPong(self) -> None:
        """An exception of the function ends nothing."""
        self.peer.core.ping(lambda: 1 // 0)
        (ping,) = self.peer.sent()
        self.assertEqual(self.peer.feed(frame(frames.PING, frames.ACK, 0, ping.payload)), [])
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)
        self.peer.feed(headers(1))
        self.assertEqual(list(self.peer.core.streams), [1])


class GoAwayTests(_Case):
    """Section 6.8"""

    def test_twice(self) -> None:
        """The first GOAWAY refuses nothing; the last one names the last stream."""
        peer = self.peer
        peer.core.goAway(isFinal=False)
        (first,) = peer.feed(headers(1))
        self.assertEqual(first.number, 2**31 - 1)
        peer.feed(OPEN.replace(b"\0\0\0\x01", b"\0\0\0\x03"))
        peer.core.goAway(text=b"max_age")
        (last,) = peer.feed(headers(5), data(5, b"a", END))
        self.assertEqual((last.number, last.payload[8:]), (3, b"max_age"))
        self.assertEqual(list(peer.core.streams), [1, 3])
        peer.feed(data(3, b"body", END))
        for number in (1, 3):
            self.assertNotIn("lost", peer.opened[number].names())
            peer.opened[number].sendWhole(OK, b"late")
        self.assertEqual(len(peer.sent()), 4)
        self.assertEqual(peer.core.streams, {})

    def test_tableAfterGoAway(self) -> None:
        """6.8: the blocks of streams that are ignored change the table."""
        peer = self.peer
        peer.feed(OPEN)
        peer.core.goAway()
        peer.sent()
        self.assertEqual(peer.feed(headers(3, GET + b"\x40\x01a\x01b")), [])
        peer.feed(headers(1, b"\xbe"))
        self.assertEqual(peer.opened[1].heard[-1], ("trailers", [(b"a", b"b")]))

    def test_received(self) -> None:
        """A GOAWAY of the client leaves its requests alone; its last stream cannot rise."""
        peer = self.peer
        peer.feed(headers(1), frames.goAway(4, 0), frames.goAway(2, 0), headers(3))
        self.assertEqual(list(peer.core.streams), [1, 3])
        self.assertEqual(peer.core.peerLastStream, 2)
        self.assertEqual(peer.failure(frames.goAway(4, 0)), ErrorCode.PROTOCOL_ERROR)


class ReceiveWindowTests(_Case):
    """Section 6.9: what the client may send"""

    def test_stream(self) -> None:
        """DATA over the window of its stream resets the stream."""
        peer = self.peer
        peer.feed(OPEN)
        peer.opened[1].takes = False
        piece = data(1, bytes(13_107))
        self.assertEqual(peer.feed(*[piece] * 5), [])
        self.assertEqual(peer.resets(data(1, b"a")), [(1, ErrorCode.FLOW_CONTROL_ERROR)])

    def test_padding(self) -> None:
        """6.1: padding counts for the window."""
        peer = self.peer
        peer.feed(OPEN)
        peer.opened[1].takes = False
        peer.feed(*[data(1, bytes(13_107))] * 5)
        padded = data(1, b"\0", frames.PADDED)
        self.assertEqual(peer.resets(padded), [(1, ErrorCode.FLOW_CONTROL_ERROR)])

    def test_taken(self) -> None:
        """Half a window is granted again at once."""
        peer = self.peer
        peer.feed(OPEN)
        stream = peer.opened[1]
        stream.takes = False
        peer.feed(*[data(1, bytes(13_107))] * 5)
        stream.take(32_767)
        self.assertEqual(peer.sent(), [])
        stream.take(1)
        (update,) = peer.sent()
        self.assertEqual((update.stream, update.number), (1, 32_768))
        self.assertEqual(stream.receiveWindow, 32_768)
        peer.feed(data(1, b"", END))
        stream.take(32_767)
        self.assertEqual(peer.sent(), [])

    def test_connection(self) -> None:
        """6.9.1: DATA over the window of the connection ends it."""
        peer = Peer(connectionWindow=65_535, streams=10).greet()
        peer.feed(OPEN, budget=0)
        # The window is granted again at its half.
        sent = peer.feed(data(1, bytes(16_384)), data(1, bytes(16_383)))
        self.assertEqual([each for each in sent if not each.stream], [])
        sent = peer.feed(data(1, b"a"))
        self.assertEqual([each.number for each in sent if not each.stream], [32_768])

    def test_largerWindow(self) -> None:
        """A larger window of a stream is granted at once."""
        peer = self.peer
        peer.feed(OPEN)
        stream = peer.opened[1]
        stream.takes = False
        stream.setWindow(2**20)
        (update,) = peer.sent()
        self.assertEqual(update.number, 2**20 - 65_535)
        self.assertEqual(stream.receiveWindow, 2**20)

    def test_smallerWindow(self) -> None:
        """A smaller window of a stream holds as the client uses up the former."""
        peer = self.peer
        peer.feed(OPEN)
        stream = peer.opened[1]
        stream.setWindow(10_000)
        self.assertEqual(peer.feed(*[data(1, bytes(11_000))] * 5), [])
        (update,) = [each for each in peer.feed(data(1, bytes(6000))) if each.stream]
        self.assertEqual(stream.receiveWindow, 10_000)
        self.assertEqual(update.number, 10_000 - (65_535 - 61_000))


class EarlyEndTests(_Case):
    """Section 8.1: a response before the end of its request"""

    def test_unknownLength(self) -> None:
        """A request of unknown length is stopped without an error, after the response."""
        peer = self.peer
        peer.feed(OPEN)
        peer.opened[1].sendWhole(OK, b"no")
        kinds = [(each.kind, each.flags) for each in peer.sent()]
        self.assertEqual(kinds, [(frames.HEADERS, 4), (frames.DATA, END), (frames.RST_STREAM, 0)])
        self.assertEqual(peer.core.streams, {})
        self.assertEqual(peer.opened[1].names(), ["head"])

    def test_shortRest(self) -> None:
        """A rest that fits into the window is awaited, and not heard."""
        peer = self.peer
        peer.feed(OPEN)
        stream = peer.opened[1]
        stream.expected = 10
        stream.sendWhole(OK, b"no")
        self.assertEqual(peer.resets(data(1, b"12345")), [])
        self.assertEqual(list(peer.core.streams), [1])
        self.assertEqual(peer.resets(data(1, b"12345", END)), [])
        self.assertEqual(peer.core.streams, {})
        self.assertEqual(stream.names(), ["head"])

    def test_longRest(self) -> None:
        """A rest over the window is stopped."""
        peer = self.peer
        peer.feed(OPEN)
        peer.opened[1].expected = 65_536
        peer.opened[1].sendHead(OK, True)
        self.assertEqual(peer.sent()[-1][::3], (frames.RST_STREAM, bytes(4)))

    def test_restWithPadding(self) -> None:
        """A rest whose padding uses up the window is stopped, too."""
        peer = self.peer
        peer.feed(OPEN)
        peer.opened[1].expected = 65_535
        peer.opened[1].sendHead(OK, True)
        self.assertEqual(peer.resets(data(1, b"\x01ab", frames.PADDED)), [(1, 0)])

    def test_trailersOfRest(self) -> None:
        """Trailers end the rest."""
        peer = self.peer
        peer.feed(OPEN)
        peer.opened[1].expected = 0
        peer.opened[1].sendHead(OK, True)
        self.assertEqual(peer.resets(headers(1, TRAILERS)), [])
        self.assertEqual(peer.core.streams, {})
