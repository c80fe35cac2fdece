"""The output of HTTP/2: windows, frames and their order."""

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from storagegate.net.http2 import frames
from storagegate.net.http2.frames import frame, windowUpdate
from storagegate.net.http2.interfaces import ErrorCode
from storagegate.net.http2.priorities import WaitingPriorities, readPriority
from tests.support.http2 import END, ENDS, OK, TRAILERS, Frame, Peer, RecordingStream, headers

MAX_WINDOW = 2**31 - 1


def priority(number: int, value: bytes) -> bytes:
    """Encode a PRIORITY_UPDATE frame."""
    return frame(frames.PRIORITY_UPDATE, 0, 0, number.to_bytes(4, "big") + value)


class _Case(SynchronousTestCase):
    def begin(self, window: int = 65_535, connection: int = MAX_WINDOW, count: int = 1) -> None:
        """Open streams, whose head was sent, with a window each."""
        self.peer = Peer().greet({frames.INITIAL_WINDOW_SIZE: window})
        self.peer.core._output.sendWindow = connection
        self.peer.feed(*[headers(2 * number + 1) for number in range(count)])
        self.streams: list[RecordingStream] = list(self.peer.opened.values())
        self.stream = self.streams[0]
        for stream in self.streams:
            stream.sendHead(OK)
        self.peer.sent()

    def sizes(self, sent: list[Frame]) -> list[int]:
        return [len(each.payload) for each in sent]


class WindowTests(_Case):
    """RFC 9113 section 6.9"""

    def test_stream(self) -> None:
        """DATA waits for the window of its stream."""
        self.begin(10)
        self.stream.sendData(b"0123456789abcdef", True)
        self.assertEqual(self.peer.sent()[0][1:], (0, 1, b"0123456789"))
        self.assertEqual(self.peer.sent(), [])
        self.assertFalse(self.peer.core.hasOutput)
        self.assertEqual(self.peer.feed(windowUpdate(1, 2))[0].payload, b"ab")
        self.assertEqual(self.peer.feed(windowUpdate(1, 9))[0][1:], (END, 1, b"cdef"))
        self.assertEqual(self.peer.core.streams, {})

    def test_connection(self) -> None:
        """DATA waits for the window of the connection."""
        self.begin(100, 5, 2)
        for stream in self.streams:
            stream.sendData(b"01234", True)
        self.assertEqual(self.sizes(self.peer.sent()), [5])
        self.assertFalse(self.peer.core.hasOutput)
        self.assertEqual(self.sizes(self.peer.feed(windowUpdate(0, 3))), [3])
        self.assertEqual(self.sizes(self.peer.feed(windowUpdate(0, 3))), [2])
        self.assertEqual(self.peer.core.sendWindow, 1)

    def test_endWithoutWindow(self) -> None:
        """Section 6.9.1: an empty end and trailers need no window, even if it is negative."""
        self.begin(10, 20, 2)
        for stream in self.streams:
            stream.sendData(b"0123456789")
        self.peer.sent()
        self.assertEqual(self.peer.core.sendWindow, 0)
        self.peer.feed(frames.settings({frames.INITIAL_WINDOW_SIZE: 0}))
        self.assertEqual([stream.sendWindow for stream in self.streams], [-10, -10])
        self.streams[0].sendData(b"", True)
        self.streams[1].sendTrailers(TRAILERS)
        self.assertEqual(
            self.peer.sent(), [(frames.DATA, END, 1, b""), (frames.HEADERS, ENDS, 3, TRAILERS)]
        )
        self.assertEqual(self.peer.core.streams, {})

    def test_negative(self) -> None:
        """Section 6.9.2: SETTINGS change the windows of all streams, also to negative ones."""
        self.begin(10)
        self.stream.sendData(b"0123456789abcdef", True)
        self.peer.sent()
        self.peer.feed(frames.settings({frames.INITIAL_WINDOW_SIZE: 3}))
        self.assertEqual(self.stream.sendWindow, -7)
        self.assertEqual(self.peer.feed(windowUpdate(1, 7)), [])
        self.assertEqual(self.peer.feed(windowUpdate(1, 1))[0].payload, b"a")
        sent = self.peer.feed(frames.settings({frames.INITIAL_WINDOW_SIZE: 5}))
        self.assertEqual([each.payload for each in sent], [b"", b"bc"])

    def test_smallerBeforeSending(self) -> None:
        """A stream whose window closes before its turn waits for the next one."""
        self.begin(10)
        self.stream.sendData(b"abc", True)
        sent = self.peer.feed(frames.settings({frames.INITIAL_WINDOW_SIZE: 0}))
        self.assertEqual([each.kind for each in sent], [frames.SETTINGS])
        self.assertEqual(self.peer.feed(windowUpdate(1, 3))[0][1:], (END, 1, b"abc"))

    def test_overflow(self) -> None:
        """Section 6.9.1: windows over 2**31 - 1."""
        self.begin(1, 1)
        self.assertEqual(self.peer.resets(windowUpdate(1, MAX_WINDOW)), [(1, 3)])
        self.assertEqual(self.peer.failure(windowUpdate(0, MAX_WINDOW)), 3)
        self.begin(MAX_WINDOW, 1)
        self.assertIsNone(self.peer.failure(windowUpdate(0, MAX_WINDOW - 1)))
        self.begin(1)
        self.peer.feed(windowUpdate(1, MAX_WINDOW - 1))
        wire = frames.settings({frames.INITIAL_WINDOW_SIZE: 2})
        self.assertEqual(self.peer.failure(wire), ErrorCode.FLOW_CONTROL_ERROR)

    def test_zero(self) -> None:
        """Section 6.9: an increment of 0, where the reserved bit does not count."""
        for zero in (0, 2**31):
            self.begin()
            self.assertEqual(self.peer.resets(windowUpdate(1, zero)), [(1, 1)])
            self.assertEqual(self.peer.failure(windowUpdate(0, zero)), ErrorCode.PROTOCOL_ERROR)

    def test_whole(self) -> None:
        """A small response is sent at once, a larger one or one behind others in order."""
        self.begin(100, count=4)
        first, second, third, fourth = self.streams
        first.sendWhole(TRAILERS, b"x" * 100)
        self.assertEqual(first.sendWindow, 0)
        second.sendWhole(TRAILERS, b"y" * 101)
        third.sendWhole(TRAILERS, b"zz")
        fourth.sendWhole(TRAILERS, b"")
        sent = [(each.stream, len(each.payload), each.flags) for each in self.peer.sent()]
        size = len(TRAILERS)
        self.assertEqual(
            sent,
            [
                (1, size, 4),
                (1, 100, END),
                (3, size, 4),
                (5, size, 4),
                (7, size, ENDS),
                (3, 100, 0),
                (5, 2, END),
            ],
        )

    def test_wholeWithTrailers(self) -> None:
        """Trailers follow the body of a response, at once or when its window allows."""
        self.begin(100, count=3)
        for stream, body in zip(self.streams, (b"x" * 100, b"y" * 101, b""), strict=True):
            stream.sendWhole(OK, body, TRAILERS)
        sent = [(each.stream, len(each.payload), each.flags) for each in self.peer.sent()]
        head, last = len(OK), len(TRAILERS)
        self.assertEqual(
            sent,
            [
                (1, head, 4),
                (1, 100, 0),
                (1, last, ENDS),
                (3, head, 4),
                (5, head, 4),
                (5, last, ENDS),
                (3, 100, 0),
            ],
        )
        sent = [(each.flags, each.payload) for each in self.peer.feed(windowUpdate(3, 1))]
        self.assertEqual(sent, [(0, b"y"), (ENDS, TRAILERS)])
        self.assertEqual(self.peer.core.streams, {})


class FrameTests(_Case):
    """How DATA is cut."""

    def test_joined(self) -> None:
        """The pieces of a turn share a frame."""
        self.begin()
        for _ in range(5):
            self.stream.sendData(b"abc")
        self.stream.sendTrailers(TRAILERS)
        sent = self.peer.sent()
        self.assertEqual(sent[0], (frames.DATA, 0, 1, b"abc" * 5))
        self.assertEqual(sent[1], (frames.HEADERS, ENDS, 1, TRAILERS))

    def test_cut(self) -> None:
        """Frames have at most 16,384 bytes, even if the peer accepts more."""
        self.begin(MAX_WINDOW)
        self.peer.feed(frames.settings({frames.MAX_FRAME_SIZE: 2**20}))
        self.stream.sendData(b"a" * 40_000)
        self.stream.sendData(b"b" * 10, True)
        sent = self.peer.sent()
        self.assertEqual(self.sizes(sent), [16_384, 16_384, 7242])
        self.assertEqual([each.flags for each in sent], [0, 0, END])
        self.assertEqual(b"".join([each.payload for each in sent]), b"a" * 40_000 + b"b" * 10)

    @given(
        st.lists(st.binary(max_size=40), max_size=20),
        st.lists(st.integers(1, 50), min_size=1),
        st.booleans(),
    )
    def test_pieces(self, pieces: list[bytes], budgets: list[int], hasTrailers: bool) -> None:
        """Pieces of all sizes arrive in order, for all budgets."""
        self.begin()
        for piece in pieces:
            self.stream.sendData(piece)
        if hasTrailers:
            self.stream.sendTrailers(TRAILERS)
        else:
            self.stream.sendData(b"", True)
        sent: list[Frame] = []
        while self.peer.core.hasOutput:
            for budget in budgets:
                part = self.peer.sent(budget)
                self.assertLessEqual(sum(self.sizes([e for e in part if not e.kind])), budget)
                sent += part
        body = b"".join([each.payload for each in sent if each.kind == frames.DATA])
        self.assertEqual(body, b"".join(pieces))
        self.assertEqual([each.flags & END for each in sent], [0] * (len(sent) - 1) + [END])
        self.assertEqual(self.peer.core.streams, {})
        self.assertEqual(self.stream.queued, 0)

    def test_fullTransport(self) -> None:
        """Without a budget, other frames are sent, and no DATA."""
        self.begin()
        self.stream.sendData(b"abc", True)
        sent = self.peer.feed(frame(frames.PING, 0, 0, bytes(8)), budget=0)
        self.assertEqual([each.kind for each in sent], [frames.PING])
        self.assertTrue(self.peer.core.hasOutput)
        self.assertEqual(self.peer.sent()[0].payload, b"abc")

    def test_wholeBodies(self) -> None:
        """Small responses are sent at once up to the budget, and none to a full transport."""
        for isFull in (False, True):
            self.begin(MAX_WINDOW, count=100)
            self.peer.sent(0 if isFull else 50_000)
            for stream in self.streams:
                stream.sendWhole(TRAILERS, bytes(16_000))
            sizes = [len(each.payload) for each in self.peer.sent(0) if not each.kind]
            self.assertEqual(sizes, [] if isFull else [16_000] * 3)
            self.assertIsNone(self.peer.core.failure)
            self.assertEqual(
                sum(stream.queued for stream in self.streams), 16_000 * (100 - len(sizes))
            )
            self.peer.sent()
            self.assertEqual(self.peer.core.streams, {})


class PauseTests(_Case):
    """The writer of a stream that sends slowly."""

    def test_paused(self) -> None:
        """A writer is paused over 64 KiB, and resumed at half of it."""
        self.begin(MAX_WINDOW)
        self.stream.sendData(bytes(65_536))
        self.assertEqual(self.stream.heard[1:], [])
        self.stream.sendData(b"a")
        self.stream.sendData(b"b")
        self.assertEqual(self.stream.heard[1:], [("paused", True)])
        self.peer.sent(32_769)
        self.assertEqual(self.stream.heard[2:], [])
        self.peer.sent(1)
        self.assertEqual(self.stream.heard[2:], [("paused", False)])

    def test_writerGoesOn(self) -> None:
        """What a resumed writer sends at once is sent with the next output."""
        self.begin(MAX_WINDOW)
        self.stream.on = lambda stream, event: event[1] or stream.sendData(b"last", True)
        self.stream.sendData(bytes(65_537))
        flushes = self.peer.flushes
        self.peer.sent()
        self.assertGreater(self.peer.flushes, flushes)
        self.assertEqual(self.peer.sent()[0].payload, b"last")

    def test_whole(self) -> None:
        """The last piece pauses nothing."""
        self.begin()
        self.stream.sendData(bytes(100_000), True)
        self.assertFalse(self.stream.isPaused)


class OrderTests(_Case):
    """RFC 9218"""

    def order(self, budget: int) -> list[int]:
        return [each.stream for each in self.peer.sent(budget) if each.payload]

    def prioritise(self, *values: bytes) -> None:
        for stream, value in zip(self.streams, values, strict=True):
            self.peer.core.prioritise(stream, value)

    def fill(self, size: int = 40_000) -> None:
        for stream in self.streams:
            stream.sendData(bytes(size), True)

    def test_turns(self) -> None:
        """Without priorities, streams take turns frame by frame."""
        self.begin(count=3)
        self.fill()
        self.assertEqual(self.order(4 * 16_384), [1, 3, 5, 1])
        self.assertEqual(self.order(3 * 16_384)[:3], [3, 5, 1])

    def test_urgency(self) -> None:
        """Section 10: the most urgent stream that can send is sent first."""
        self.begin(count=3)
        self.prioritise(b"u=5, i", b"u=1, i", b"i")
        self.fill(20_000)
        self.assertEqual(self.order(10**6), [3, 3, 5, 5, 1, 1])

    def test_blocked(self) -> None:
        """An urgent stream without a window blocks no other."""
        self.begin(0, count=2)
        self.prioritise(b"u=0", b"u=7")
        self.fill(10)
        self.peer.core.receive(windowUpdate(3, 4))
        self.assertEqual(self.order(10**6), [3])
        self.peer.core.receive(windowUpdate(3, 4) + windowUpdate(1, 4))
        self.assertEqual(self.order(10**6), [1, 3])

    def test_sequential(self) -> None:
        """Section 4.2: streams that are not incremental are sent one after the other."""
        self.begin(count=3)
        self.prioritise(b"u=3", b"u=3", b"u=3, i")
        for stream in reversed(self.streams):
            stream.sendData(bytes(40_000), True)
        self.assertEqual(self.order(16_384), [1])
        self.assertEqual(self.order(10**6), [1, 1, 3, 3, 3, 5, 5, 5])

    def test_changed(self) -> None:
        """Section 7: PRIORITY_UPDATE changes a stream that waits."""
        self.begin(count=2)
        self.fill()
        self.peer.core.receive(priority(3, b"u=1"))
        self.assertEqual((self.streams[1].urgency, self.streams[1].isIncremental), (1, False))
        self.assertEqual(self.order(10**6), [3, 3, 3, 1, 1, 1])
        self.assertIsNone(self.peer.failure(priority(3, b"u=2")))

    def test_beforeRequest(self) -> None:
        """Section 7.1: a PRIORITY_UPDATE before its request overrides the field."""
        self.begin()
        self.peer.on = lambda stream, event: self.peer.core.prioritise(stream, b"u=6")
        self.peer.feed(priority(5, b"u=1"), headers(3), headers(5))
        self.assertEqual([self.peer.opened[number].urgency for number in (3, 5)], [6, 1])

    def test_invalid(self) -> None:
        """Section 7.1: a priority of the connection, or of a push."""
        for number in (0, 2):
            self.begin()
            self.assertEqual(self.peer.failure(priority(number, b"u=1")), 1)

    def test_field(self) -> None:
        """Section 4: a dictionary, of which other members are ignored."""
        for value, level in (
            (b"", (3, False)),
            (b"u=0", (0, False)),
            (b"i", (3, True)),
            (b"i=?1,u=7", (7, True)),
            (b"i=?0 , u=2", (2, False)),
            (b"u=8", (3, False)),
            (b"u=-1", (3, False)),
            (b"u=4.5", (3, False)),
            (b"u", (3, False)),
            (b"i=5", (3, False)),
            (b"u=1, u=5", (5, False)),
            (b"u=1;a=b, i;c", (1, True)),
            (b"x=1, u=2, \xff", (2, False)),
        ):
            self.assertEqual(readPriority(value), level[0] * 2 + level[1], value)

    @given(st.binary(max_size=60))
    def test_anyField(self, value: bytes) -> None:
        """Any bytes are read."""
        self.assertIn(readPriority(value), range(16))

    def test_waiting(self) -> None:
        """Priorities of requests that never come make room for others."""
        waiting = WaitingPriorities(2)
        for number in (1, 3, 5):
            waiting.add(number, number, 0)
        self.assertIsNone(waiting.pop(5))
        waiting.add(7, 7, 1)
        self.assertEqual([waiting.pop(number) for number in (1, 3, 7)], [None, 3, 7])
