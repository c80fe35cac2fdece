"""
The cases of h2spec, the conformance suite of the field, which no package registry has.

They are named by its ids, and end as it requires. It follows RFC 7540; where RFC 9113 has taken a
requirement back, the case has the end that the new one requires.
"""

from collections.abc import Sequence
from typing import NamedTuple

from twisted.internet.defer import Deferred
from twisted.trial.unittest import SynchronousTestCase

from storagegate.net.http.message import ChannelRequest
from storagegate.net.http2 import frames
from storagegate.net.http2.frames import (
    ACK,
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    GOAWAY,
    HEADERS,
    PADDED,
    PING,
    PREFACE,
    PRIORITY,
    PUSH_PROMISE,
    RST_STREAM,
    SETTINGS,
    WINDOW_UPDATE,
    frame,
)
from storagegate.net.http2.hpack import Pair, encodePairs
from storagegate.net.http2.interfaces import ErrorCode, HTTP2Limits
from tests.net.support import TestSite
from tests.support.http2 import ENDS, Frame, readFrames

BODY = b"hello, world"

PRIORITY_FLAG = 0x20

GREETING = PREFACE + frames.settings({}) + frame(SETTINGS, ACK, 0)

PONG = b"h2spec\0\0"

ASK = frame(PING, 0, 0, PONG)

INITIAL_WINDOW = 4

_LARGEST = 2**31 - 1


async def answer(request: ChannelRequest) -> None:
    """Respond when the body has been read, or not at all."""
    await request.body.read(1 << 20)
    if request.path == b"/wait":
        await Deferred()
    request.respond(200, [], b"" if request.method == b"HEAD" else BODY)


def block(
    method: bytes = b"GET",
    path: bytes = b"/",
    *fields: Pair,
    without: Sequence[bytes] = (),
    first: Sequence[Pair] = (),
) -> bytes:
    """Encode the fields of a request."""
    pseudo = [(b":method", method), (b":scheme", b"http"), (b":path", path), (b":authority", b"a")]
    kept = [each for each in pseudo if each[0] not in without]
    return encodePairs([*first, *kept, *fields])


GET = block()
POST = block(b"POST")
WAIT = block(path=b"/wait")
DUMMY = encodePairs([(b"x-dummy", b"a" * 100)])


def request(payload: bytes = GET, number: int = 1, flags: int = ENDS) -> bytes:
    """Encode HEADERS, whose request is complete."""
    return frame(HEADERS, flags, number, payload)


def upload(payload: bytes = POST, number: int = 1) -> bytes:
    """Encode HEADERS whose body follows."""
    return frame(HEADERS, END_HEADERS, number, payload)


def data(body: bytes = b"test", number: int = 1, flags: int = END_STREAM) -> bytes:
    """Encode DATA that ends a request."""
    return frame(DATA, flags, number, body)


def priority(number: int, dependency: int = 0, weight: int = 255) -> bytes:
    """Encode PRIORITY."""
    return frame(PRIORITY, 0, number, dependency.to_bytes(4, "big") + bytes([weight]))


def window(number: int, increment: int) -> bytes:
    """Encode WINDOW_UPDATE."""
    return frame(WINDOW_UPDATE, 0, number, increment.to_bytes(4, "big"))


def reset(number: int, code: int = ErrorCode.CANCEL) -> bytes:
    """Encode RST_STREAM."""
    return frame(RST_STREAM, 0, number, code.to_bytes(4, "big"))


def continued(payload: bytes = DUMMY, number: int = 1, flags: int = END_HEADERS) -> bytes:
    """Encode CONTINUATION."""
    return frame(CONTINUATION, flags, number, payload)


class Ending(NamedTuple):
    """
    How a case ends.

    @ivar kind: The type of the frame that has to come.
    @ivar stream: The stream of the frame.
    @ivar value: The code of RST_STREAM and GOAWAY, the length of DATA, and the flags of others.
    """

    kind: int
    stream: int = 0
    value: int = 0


RESPONSE = Ending(HEADERS, 1, END_HEADERS)
PINGED = Ending(PING, 0, ACK)
CONFIRMED = Ending(SETTINGS, 0, ACK)


def failed(code: int) -> Ending:
    """End with a connection error."""
    return Ending(GOAWAY, 0, code)


def broken(code: int, stream: int = 1) -> Ending:
    """End with a stream error."""
    return Ending(RST_STREAM, stream, code)


def sent(length: int) -> Ending:
    """End with DATA of a length on the first stream."""
    return Ending(DATA, 1, length)


PROTOCOL = failed(ErrorCode.PROTOCOL_ERROR)
SIZE = failed(ErrorCode.FRAME_SIZE_ERROR)
COMPRESSION = failed(ErrorCode.COMPRESSION_ERROR)
MALFORMED = broken(ErrorCode.PROTOCOL_ERROR)


class Case(NamedTuple):
    """
    A case.

    @ivar id: The suite, the section and the number of h2spec.
    @ivar steps: What is sent, each after the answer to the one before.
    @ivar ending: What has to come in answer to the last step.
    """

    id: str
    steps: tuple[bytes, ...]
    ending: Ending


def case(id: str, ending: Ending, *steps: bytes) -> Case:
    """Make a case."""
    return Case(id, steps, ending)


def _field(representation: bytes) -> bytes:
    return request(GET + representation)


UNKNOWN = frame(0x16, 0, 0, bytes(8))
OPEN = frame(HEADERS, 0, 1, POST)
ENDED = frame(HEADERS, END_STREAM, 1, GET)

GENERIC = (
    case("generic/1/1", CONFIRMED, frames.settings({})),
    case("generic/2/1", PINGED, priority(1) + ASK),
    case("generic/2/2", sent(1), frames.settings({INITIAL_WINDOW: 0}) + request() + window(1, 1)),
    case(
        "generic/2/3",
        sent(1),
        frames.settings({INITIAL_WINDOW: 0}) + request() + priority(1) + window(1, 1),
    ),
    case("generic/2/4", PINGED, request(WAIT) + reset(1) + ASK),
    case("generic/2/5", PINGED, request(), priority(1) + ASK),
    case("generic/3.1/1", RESPONSE, upload() + data()),
    case("generic/3.1/2", RESPONSE, upload() + data(flags=0) + data()),
    case("generic/3.1/3", RESPONSE, upload() + data(b"\x06test" + bytes(6), 1, 0x9)),
    case("generic/3.2/1", RESPONSE, request()),
    case("generic/3.2/2", RESPONSE, request(b"\x06" + GET + bytes(6), flags=ENDS | PADDED)),
    case("generic/3.2/3", RESPONSE, request(bytes(4) + b"\xff" + GET, flags=ENDS | PRIORITY_FLAG)),
    case("generic/3.3/1", RESPONSE, priority(1, 0, 0) + request()),
    case("generic/3.3/2", RESPONSE, priority(1, 0, 255) + request()),
    case("generic/3.3/3", RESPONSE, priority(1, 5) + request()),
    case("generic/3.3/4", RESPONSE, priority(1, 5 | 1 << 31) + request()),
    case("generic/3.3/5", RESPONSE, priority(5) + request()),
    case("generic/3.4/1", PINGED, upload() + reset(1) + ASK),
    case("generic/3.5/1", CONFIRMED, frames.settings({3: 100})),
    case("generic/3.7/1", PINGED, ASK),
    case("generic/3.8/1", PINGED, frames.goAway(0, 0) + ASK),
    case(
        "generic/3.9/1",
        sent(len(BODY)),
        frames.settings({INITIAL_WINDOW: 0}) + window(0, 100) + request(),
        window(1, 100),
    ),
    case(
        "generic/3.9/2",
        sent(len(BODY)),
        frames.settings({INITIAL_WINDOW: 0}) + request(),
        window(1, 100),
    ),
    case("generic/3.10/1", RESPONSE, ENDED + continued()),
    case("generic/3.10/2", RESPONSE, ENDED + continued(flags=0) + continued()),
    case("generic/4/1", RESPONSE, request()),
    case("generic/4/2", RESPONSE, request(block(b"HEAD"))),
    case("generic/4/3", RESPONSE, upload() + data()),
    case(
        "generic/4/4",
        RESPONSE,
        upload(block(b"POST", b"/", (b"trailer", b"x-test")))
        + data(flags=0)
        + request(encodePairs([(b"x-test", b"ok")])),
    ),
    case("generic/5/1", RESPONSE, _field(b"\xba")),
    case("generic/5/2", RESPONSE, _field(b"\x7a\x06h2spec")),
    case("generic/5/3", RESPONSE, _field(b"\x7a\x84\x9c\x48\xac\xa4")),
    case("generic/5/4", RESPONSE, _field(b"\x40\x06x-test\x06h2spec")),
    case("generic/5/5", RESPONSE, _field(b"\x40\x85\xf2\xb2\x4a\x84\xff\x84\x9c\x48\xac\xa4")),
    case("generic/5/6", RESPONSE, _field(b"\x0f\x2b\x06h2spec")),
    case("generic/5/7", RESPONSE, _field(b"\x0f\x2b\x84\x9c\x48\xac\xa4")),
    case("generic/5/8", RESPONSE, _field(b"\x00\x06x-test\x06h2spec")),
    case("generic/5/9", RESPONSE, _field(b"\x00\x85\xf2\xb2\x4a\x84\xff\x84\x9c\x48\xac\xa4")),
    case("generic/5/10", RESPONSE, _field(b"\x1f\x2b\x06h2spec")),
    case("generic/5/11", RESPONSE, _field(b"\x1f\x2b\x84\x9c\x48\xac\xa4")),
    case("generic/5/12", RESPONSE, _field(b"\x10\x06x-test\x06h2spec")),
    case("generic/5/13", RESPONSE, _field(b"\x10\x85\xf2\xb2\x4a\x84\xff\x84\x9c\x48\xac\xa4")),
    case("generic/5/14", RESPONSE, request(b"\x20" + GET)),
    case("generic/5/15", RESPONSE, request(b"\x20\x3f\xe1\x1f" + GET)),
)

FRAMES = (
    case("http2/4.1/1", PINGED, UNKNOWN + ASK),
    case("http2/4.1/2", PINGED, frame(PING, 0x16, 0, PONG)),
    case("http2/4.1/3", PINGED, frame(PING, 0, 1 << 31, PONG)),
    case("http2/4.2/1", RESPONSE, upload() + data(bytes(16_384))),
    # Any frame that is too long ends the connection.
    case("http2/4.2/2", SIZE, upload() + data(bytes(65_537))),
    case("http2/4.2/3", SIZE, request(GET + DUMMY * 600)),
    case("http2/4.3/1", COMPRESSION, request(b"\x40")),
    case("http2/4.3/2", PROTOCOL, OPEN + priority(1) + continued()),
    case("http2/4.3/3", PROTOCOL, OPEN + request(number=3) + continued()),
)

STREAMS = (
    case("http2/5.1/1", PROTOCOL, data()),
    case("http2/5.1/2", PROTOCOL, reset(1)),
    case("http2/5.1/3", PROTOCOL, window(1, 100)),
    case("http2/5.1/4", PROTOCOL, continued(GET)),
    case("http2/5.1/5", broken(ErrorCode.STREAM_CLOSED), request(WAIT) + data()),
    case("http2/5.1/6", broken(ErrorCode.STREAM_CLOSED), request(WAIT) + request()),
    case("http2/5.1/7", PROTOCOL, request(WAIT) + continued(GET)),
    case("http2/5.1/8", broken(ErrorCode.STREAM_CLOSED), upload() + reset(1) + data()),
    # A stream error may be treated as one of the connection (RFC 9113 section 5.4.1).
    case("http2/5.1/9", failed(ErrorCode.STREAM_CLOSED), upload() + reset(1) + request()),
    case("http2/5.1/10", PROTOCOL, upload() + reset(1) + continued()),
    # Section 6.1 of RFC 9113 wants an error of the stream, RFC 7540 one of the connection.
    case("http2/5.1/11", broken(ErrorCode.STREAM_CLOSED), request(), data()),
    case("http2/5.1/12", failed(ErrorCode.STREAM_CLOSED), request(), request()),
    case("http2/5.1/13", PROTOCOL, request(), continued()),
    case("http2/5.1.1/1", PROTOCOL, request(number=2)),
    case("http2/5.1.1/2", PROTOCOL, request(WAIT, 5) + request(number=3)),
    Case(
        "http2/5.1.2/1",
        tuple(request(WAIT, 2 * number + 1) for number in range(HTTP2Limits().streams + 1)),
        broken(ErrorCode.REFUSED_STREAM, 2 * HTTP2Limits().streams + 1),
    ),
    # Priorities of RFC 7540 have no meaning any more (RFC 9113 section 5.3.2).
    case(
        "http2/5.3.1/1",
        RESPONSE,
        request(b"\0\0\0\x01\xff" + GET, flags=ENDS | PRIORITY_FLAG),
    ),
    case("http2/5.3.1/2", PINGED, priority(1, 1) + ASK),
    case("http2/5.4.1/1", SIZE, frame(PING, 0, 0, bytes(6))),
    case("http2/5.4.1/2", SIZE, request(WAIT) + frame(PING, 0, 0, bytes(6))),
    case("http2/5.5/1", PINGED, UNKNOWN + ASK),
    case("http2/5.5/2", PROTOCOL, ENDED + UNKNOWN),
)

DEFINITIONS = (
    case("http2/6.1/1", PROTOCOL, upload() + data(number=0)),
    case("http2/6.1/2", broken(ErrorCode.STREAM_CLOSED), request(), data()),
    case("http2/6.1/3", PROTOCOL, upload() + data(b"\x06test", 1, END_STREAM | PADDED)),
    case("http2/6.2/1", PROTOCOL, OPEN + priority(1) + continued()),
    case("http2/6.2/2", PROTOCOL, OPEN + request(number=3) + continued()),
    case("http2/6.2/3", PROTOCOL, request(number=0)),
    case(
        "http2/6.2/4",
        PROTOCOL,
        request(bytes([len(GET) + 2]) + GET, flags=ENDS | PADDED),
    ),
    case("http2/6.3/1", PROTOCOL, priority(0)),
    # A stream error may be treated as one of the connection (RFC 9113 section 5.4.1).
    case("http2/6.3/2", SIZE, request(WAIT) + frame(PRIORITY, 0, 1, b"\x80\0\0\1")),
    case("http2/6.3/3", RESPONSE, priority(3) + request()),
    case("http2/6.4/1", PROTOCOL, reset(0)),
    case("http2/6.4/2", PROTOCOL, reset(1)),
    case("http2/6.4/3", SIZE, upload() + frame(RST_STREAM, 0, 1, bytes(3))),
    case("http2/6.5/1", SIZE, frame(SETTINGS, ACK, 0, b"\0")),
    case("http2/6.5/2", PROTOCOL, frame(SETTINGS, 0, 1, b"\0\3\0\0\0\x64")),
    case("http2/6.5/3", SIZE, frame(SETTINGS, 0, 0, b"\0\3\0")),
    case("http2/6.5.2/1", PROTOCOL, frames.settings({2: 2})),
    case("http2/6.5.2/2", failed(ErrorCode.FLOW_CONTROL_ERROR), frames.settings({4: 2**31})),
    case("http2/6.5.2/3", PROTOCOL, frames.settings({5: 16_383})),
    case("http2/6.5.2/4", PROTOCOL, frames.settings({5: 2**24})),
    case("http2/6.5.2/5", PINGED, frames.settings({0xFF: 1}) + ASK),
    case(
        "http2/6.5.3/1",
        sent(1),
        frame(SETTINGS, 0, 0, b"\0\4\0\0\0\x64\0\4\0\0\0\1") + request(),
    ),
    case("http2/6.5.3/2", CONFIRMED, frames.settings({2: 0})),
    case("http2/6.7/1", PINGED, ASK),
    case("http2/6.7/2", PINGED, frame(PING, ACK, 0, b"invalid\0") + ASK),
    case("http2/6.7/3", PROTOCOL, frame(PING, 0, 1, bytes(8))),
    case("http2/6.7/4", SIZE, frame(PING, 0, 0, bytes(6))),
    case("http2/6.8/1", PROTOCOL, frame(GOAWAY, 0, 1, bytes(8))),
    case("http2/6.9/1", PROTOCOL, window(0, 0)),
    case("http2/6.9/2", MALFORMED, request(WAIT) + window(1, 0)),
    case("http2/6.9/3", SIZE, frame(WINDOW_UPDATE, 0, 0, bytes(3))),
    case("http2/6.9.1/1", sent(1), frames.settings({4: 1}), request()),
    case(
        "http2/6.9.1/2",
        failed(ErrorCode.FLOW_CONTROL_ERROR),
        window(0, _LARGEST) + window(0, _LARGEST),
    ),
    case(
        "http2/6.9.1/3",
        broken(ErrorCode.FLOW_CONTROL_ERROR),
        request(WAIT) + window(1, _LARGEST) + window(1, _LARGEST),
    ),
    case("http2/6.9.2/1", sent(1), frames.settings({4: 0}), request(), frames.settings({4: 1})),
    case(
        "http2/6.9.2/2",
        sent(1),
        frames.settings({4: 3}),
        request(),
        frames.settings({4: 2}),
        window(1, 2),
    ),
    case("http2/6.9.2/3", failed(ErrorCode.FLOW_CONTROL_ERROR), frames.settings({4: 2**31})),
    case("http2/6.10/1", RESPONSE, ENDED + continued(flags=0) + continued()),
    case("http2/6.10/2", PROTOCOL, OPEN + continued(flags=0) + data()),
    case("http2/6.10/3", PROTOCOL, ENDED + continued(number=0)),
    case("http2/6.10/4", PROTOCOL, request(WAIT) + continued()),
    case("http2/6.10/5", PROTOCOL, ENDED + continued() + continued()),
    case("http2/6.10/6", PROTOCOL, upload() + data(flags=0) + continued(flags=0) + continued()),
    case("http2/7/1", PINGED, frames.goAway(0, 0xFF) + ASK),
    case("http2/7/2", PINGED, upload() + reset(1, 0xFF) + ASK),
)

MESSAGES = (
    case("http2/8.1/1", MALFORMED, upload() + data(flags=0) + upload()),
    case("http2/8.1.2/1", MALFORMED, request(block(b"GET", b"/", (b"X-TEST", b"ok")))),
    case("http2/8.1.2.1/1", MALFORMED, request(block(b"GET", b"/", (b":test", b"ok")))),
    case("http2/8.1.2.1/2", MALFORMED, request(block(b"GET", b"/", (b":status", b"200")))),
    case(
        "http2/8.1.2.1/3",
        MALFORMED,
        upload() + data(flags=0) + request(encodePairs([(b":method", b"POST")])),
    ),
    case("http2/8.1.2.1/4", MALFORMED, request(block(first=[(b"x-test", b"ok")]))),
    case("http2/8.1.2.2/1", MALFORMED, request(block(b"GET", b"/", (b"connection", b"close")))),
    case("http2/8.1.2.2/2", MALFORMED, request(block(b"GET", b"/", (b"te", b"trailers, deflate")))),
    case("http2/8.1.2.3/1", MALFORMED, request(block(path=b""))),
    case("http2/8.1.2.3/2", MALFORMED, request(block(without=[b":method"]))),
    case("http2/8.1.2.3/3", MALFORMED, request(block(without=[b":scheme"]))),
    case("http2/8.1.2.3/4", MALFORMED, request(block(without=[b":path"]))),
    case("http2/8.1.2.3/5", MALFORMED, request(block(first=[(b":method", b"GET")]))),
    case("http2/8.1.2.3/6", MALFORMED, request(block(first=[(b":scheme", b"http")]))),
    case("http2/8.1.2.3/7", MALFORMED, request(block(first=[(b":path", b"/")]))),
    case(
        "http2/8.1.2.6/1",
        MALFORMED,
        upload(block(b"POST", b"/", (b"content-length", b"1"))) + data(),
    ),
    case(
        "http2/8.1.2.6/2",
        MALFORMED,
        upload(block(b"POST", b"/", (b"content-length", b"6"))) + data(flags=0) + data(),
    ),
    case("http2/8.2/1", PROTOCOL, frame(PUSH_PROMISE, END_HEADERS, 1, b"\0\0\0\2" + GET)),
)

COMPRESSIONS = (
    case("hpack/2.3.3/1", COMPRESSION, _field(b"\xfe")),
    case("hpack/2.3.3/2", COMPRESSION, _field(b"\x7e\x02ok")),
    case("hpack/4.2/1", COMPRESSION, _field(b"\x3f\xe1\x1f")),
    case(
        "hpack/5.2/1", COMPRESSION, _field(b"\x00\x85\xf2\xb2\x4a\x84\xff\x85\x9c\x48\xac\xa4\xff")
    ),
    case(
        "hpack/5.2/2", COMPRESSION, _field(b"\x00\x85\xf2\xb2\x4a\x87\xff\xff\xff\xfd\x25\x42\x7f")
    ),
    case("hpack/5.2/3", COMPRESSION, _field(b"\x00\x85\xf2\xb2\x4a\x84\xff\x84\xff\xff\xff\xff")),
    case("hpack/6.1/1", COMPRESSION, _field(b"\x80")),
    case("hpack/6.3/1", COMPRESSION, request(b"\x3f\xe2\x1f" + GET)),
)


class H2specTests(SynchronousTestCase):
    """The cases, on a site."""

    def answered(self, wire: bytes) -> list[Frame]:
        """Send bytes; return the frames that came back."""
        self.transport.protocol.dataReceived(wire)
        found = self.transport.value()
        self.transport.clear()
        return readFrames(found)

    def connect(self) -> None:
        """Open a connection."""
        self.site = TestSite(answer)
        connection = self.site.connect()
        self.transport = connection.transport
        self.transport.protocol = connection.channel  # type: ignore[attr-defined]

    def check(self, *cases: Case) -> None:
        """Run cases, each on a connection of its own."""
        for each in cases:
            self.connect()
            self.answered(GREETING)
            found: list[Frame] = []
            for step in each.steps:
                found = self.answered(step)
            endings = [_asEnding(one) for one in found]
            self.assertIn(each.ending, endings, f"{each.id} {endings}")
            isOver = each.ending.kind == GOAWAY
            self.assertEqual(self.transport.disconnecting, isOver, each.id)
            if not isOver:
                self.assertIn(PINGED, map(_asEnding, self.answered(ASK)), each.id)

    def test_generic(self) -> None:
        """The frames, requests and forms of fields that every server accepts."""
        self.check(*GENERIC)

    def test_prefaces(self) -> None:
        """Section 3.5: a preface is answered, and a wrong one is no HTTP/2."""
        self.connect()
        self.assertEqual(self.answered(PREFACE + frames.settings({}))[0].kind, SETTINGS)
        self.connect()
        self.transport.protocol.dataReceived(b"INVALID CONNECTION PREFACE\r\n\r\n")
        self.assertTrue(self.transport.disconnecting)
        self.assertEqual(self.site.requests, [])

    def test_frames(self) -> None:
        """Section 4."""
        self.check(*FRAMES)

    def test_streams(self) -> None:
        """Section 5."""
        self.check(*STREAMS)

    def test_definitions(self) -> None:
        """Sections 6 and 7."""
        self.check(*DEFINITIONS)

    def test_messages(self) -> None:
        """Section 8."""
        self.check(*MESSAGES)

    def test_compression(self) -> None:
        """RFC 7541."""
        self.check(*COMPRESSIONS)

    def test_ids(self) -> None:
        """Each case is here once, and the cases of a section have no gap."""
        tables = (GENERIC, FRAMES, STREAMS, DEFINITIONS, MESSAGES, COMPRESSIONS)
        sections: dict[str, list[int]] = {}
        for table in tables:
            for each in table:
                section, _, number = each.id.rpartition("/")
                sections.setdefault(section, []).append(int(number))
        for section, numbers in sections.items():
            self.assertEqual(numbers, list(range(1, len(numbers) + 1)), section)


def _asEnding(found: Frame) -> Ending:
    """Return the part of a frame that a case names."""
    if found.kind == GOAWAY:
        return Ending(GOAWAY, 0, int.from_bytes(found.payload[4:8], "big"))
    if found.kind == RST_STREAM:
        return Ending(RST_STREAM, found.stream, found.number)
    if found.kind == DATA:
        return Ending(DATA, found.stream, len(found.payload))
    flags = found.flags & ~END_STREAM if found.kind == HEADERS else found.flags
    return Ending(found.kind, found.stream, flags)
