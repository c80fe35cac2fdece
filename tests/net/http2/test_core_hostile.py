"""
Hostile clients of HTTP/2: what each can do before its connection ends, or what it costs.

Bounds of time are processor time, with a margin of about ten for slow machines.
"""

import gc
import time
import tracemalloc
from collections.abc import Callable, Iterator
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from storagegate.net.http2 import frames
from storagegate.net.http2.frames import frame, goAway, resetStream, windowUpdate
from storagegate.net.http2.hpack import encodeInteger
from storagegate.net.http2.interfaces import ErrorCode, StreamFailure
from tests.support.http2 import FOREVER, GET, OK, POST, TRAILERS, Peer, data, headers
from tests.support.selection import rounds

CALM = ErrorCode.ENHANCE_YOUR_CALM
PING = frame(frames.PING, 0, 0, bytes(8))
MAX_WINDOW = 2**31 - 1


def odd(count: int) -> Iterator[int]:
    """Return the numbers of streams."""
    return iter(range(1, 2 * count, 2))


class _Case(SynchronousTestCase):
    def setUp(self) -> None:
        # The greeting has two of the frames that do no work.
        self.peer = Peer().greet()

    def flood(self, wire: Callable[[int], bytes], most: int) -> int:
        """Send rounds of frames until the connection ends; return how many it took."""
        for count in range(1, most + 1):
            # Output is taken, so that a limit on it is not what ends the flood.
            if self.peer.failure(wire(count)) is not None:
                self.assertEqual(self.peer.core.failures.get(CALM), 1, self.peer.core.failure)
                return count
        raise AssertionError(f"{most} rounds were borne")

    def seconds(self, function: Callable[[], Any]) -> float:
        """Return the processor time of a function."""
        before = time.process_time()
        function()
        return time.process_time() - before

    def memory(self, function: Callable[[], Any]) -> int:
        """Return the bytes that a function leaves allocated."""
        tracemalloc.start()
        try:
            function()
            # Empties the free lists, too.
            gc.collect()
            return tracemalloc.get_traced_memory()[0]
        finally:
            tracemalloc.stop()


class ResetTests(_Case):
    """Streams that start work and are ended at once."""

    def test_rapidReset(self) -> None:
        """CVE-2023-44487: 1,000 resets in a burst."""

        def wire(count: int) -> bytes:
            return headers(2 * count - 1) + resetStream(2 * count - 1, 8)

        self.assertEqual(self.flood(wire, 2000), 1001)
        self.assertEqual(len(self.peer.opened), 1001)
        self.assertEqual(self.peer.core.streams, {})

    def test_provokedResets(self) -> None:
        """CVE-2025-8671: resets of ours that the client provokes count as its own."""

        def refuse(stream: Any, event: Any) -> None:
            if event[0] == "trailers":
                raise StreamFailure(ErrorCode.PROTOCOL_ERROR, "malformed")

        mistakes: list[Callable[[int], bytes]] = [
            lambda number: windowUpdate(number, 0),
            lambda number: windowUpdate(number, MAX_WINDOW),
            lambda number: headers(number, TRAILERS, frames.END_HEADERS),
            lambda number: headers(number, TRAILERS),
            # Over the window of the stream.
            lambda number: data(number, bytes(16_384)) * 5,
        ]
        for mistake in mistakes:
            self.peer = Peer().greet()
            self.peer.on = refuse

            def wire(count: int, mistake: Callable[[int], bytes] = mistake) -> bytes:
                number = 2 * count - 1
                self.peer.feed(headers(number, POST, frames.END_HEADERS))
                if number > 1:
                    self.assertEqual(self.peer.opened[number - 2].names()[-1], "lost")
                self.peer.opened[number].takes = False
                return mistake(number)

            self.assertEqual(self.flood(wire, 2000), 1001)

    def test_refusedStreams(self) -> None:
        """Streams over the limit cost a decoder's work: 1,000 in a burst."""
        self.peer.feed(*[headers(number) for number in odd(100)])
        self.assertEqual(self.flood(lambda count: headers(2 * count + 199), 2000), 999)
        self.assertEqual(len(self.peer.opened), 100)

    def test_afterGoAway(self) -> None:
        """Streams after the last GOAWAY are ignored, 1,000 in a burst."""
        self.peer.core.goAway()
        self.peer.sent()
        self.assertEqual(self.flood(lambda count: headers(2 * count - 1), 2000), 999)
        self.assertEqual(self.peer.opened, {})

    def test_resetsOfClosedStreams(self) -> None:
        """Resets of streams that have ended."""
        self.peer.on = lambda stream, event: stream.sendHead(OK, True)
        self.peer.feed(headers(1))
        self.assertEqual(self.flood(lambda count: resetStream(1, 8), 2000), 999)

    def test_closedStreams(self) -> None:
        """DATA of closed streams is answered once for each, and charged."""
        self.peer.on = lambda stream, event: stream.sendHead(OK, True)
        self.peer.feed(*[headers(number) for number in odd(2000)])
        self.assertEqual(self.flood(lambda count: data(2 * count - 1, b"a"), 2000), 999)

    def test_forgiven(self) -> None:
        """50 resets a second go on for ever, also if time passes in small steps."""
        number = 1
        for _ in range(100 * 60):
            for _ in range(1 if number % 4 == 1 else 0):
                self.assertIsNone(self.peer.failure(headers(number), resetStream(number, 8)))
            number += 2
            self.peer.core.forgive(0.01)

    def test_memory(self) -> None:
        """What is remembered of streams that were reset is bounded."""

        def attack() -> None:
            for number in odd(10_000):
                self.peer.core.receive(headers(number, POST, 4))
                stream = self.peer.opened.pop(number)
                stream.reset()
                self.peer.core.takeOutput(0)

        self.assertLess(self.memory(attack), 200_000)
        self.assertLessEqual(len(self.peer.core._resets), 256)


class BlockTests(_Case):
    """Header blocks."""

    def test_emptyContinuations(self) -> None:
        """CVE-2024-27316 and others: CONTINUATION without END_HEADERS."""
        self.peer.feed(headers(1, GET, 0))
        self.assertEqual(self.flood(lambda count: frame(frames.CONTINUATION, 0, 1), 2000), 999)

    def test_longContinuations(self) -> None:
        """A block ends at 32 KiB."""
        self.peer.feed(
            headers(1, bytes(16_384), 0), frame(frames.CONTINUATION, 0, 1, bytes(16_384))
        )
        self.assertIsNone(self.peer.core.failure)
        self.assertEqual(self.peer.failure(frame(frames.CONTINUATION, 0, 1, b"a")), CALM)
        self.assertFalse(self.peer.core._block._pieces)

    def test_bomb(self) -> None:
        """A table entry of 4 KB that is repeated 32,000 times is counted, not copied."""
        entry = b"\x40\x01a" + encodeInteger(4000, 7) + b"x" * 4000
        self.peer.feed(headers(1, GET + entry))
        self.peer.opened[1].reset()
        block = b"\xbe" * 32_000

        def attack(*numbers: int) -> None:
            for number in numbers:
                self.peer.core.receive(
                    headers(number, block[:16_000], frames.END_STREAM)
                    + frame(frames.CONTINUATION, frames.END_HEADERS, number, block[16_000:])
                )

        self.assertLess(self.seconds(lambda: attack(*range(3, 23, 2))), 1)
        self.assertLess(self.memory(lambda: attack(23)), 100_000)
        self.assertEqual(self.peer.opened[23].heard, [("head", [], True)])

    def test_tableSizes(self) -> None:
        """A block of 8,000 changes of the table's size takes little time."""
        entry = b"\x40\x01a\x01b"
        block = (b"\x20\x3f\xe1\x1f" * 4000)[:16_000] + GET
        wire = b"".join([headers(number, block) for number in range(3, 43, 2)])
        wire = headers(1, GET + entry) + wire
        self.assertLess(self.seconds(lambda: self.peer.feed(wire)), 1)
        self.assertEqual(len(self.peer.opened), 21)

    def test_tableOverLimit(self) -> None:
        """A table over its limit ends the connection, as does any index behind it."""
        for block in (b"\x3f\xe2\x1f" + GET, GET + b"\xbf", GET + b"\xff\xff\xff\x7f", b"\x80"):
            self.peer = Peer().greet()
            failure = self.peer.failure(headers(1, block))
            self.assertEqual(failure, ErrorCode.COMPRESSION_ERROR)

    def test_longList(self) -> None:
        """A list of fields over 16 KiB reaches the stream without them, which responds 431."""
        block = GET + b"\x00\x01a" + encodeInteger(16_200, 7) + b"x" * 16_200
        self.assertLess(len(block), 16_384)
        self.assertIsNone(self.peer.failure(headers(1, block)))
        self.assertEqual(self.peer.opened[1].heard, [("head", [], True)])

    def test_emptyHeads(self) -> None:
        """Requests without fields, which their streams refuse."""

        def refuse(stream: Any, event: Any) -> None:
            if event[0] == "head":
                raise StreamFailure(ErrorCode.PROTOCOL_ERROR, "malformed")

        self.peer.on = refuse
        self.assertEqual(self.flood(lambda count: headers(2 * count - 1, b""), 2000), 1001)


class ControlTests(_Case):
    """Frames that do no work."""

    def test_floods(self) -> None:
        """Each kind ends the connection after 1,000, or 200 more where they are expected."""
        for wire, most in (
            (frame(frames.SETTINGS, 0, 0), 999),
            (frames.settings({frames.INITIAL_WINDOW_SIZE: 5}), 999),
            (frame(frames.SETTINGS, frames.ACK, 0), 999),
            (PING, 1199),
            (frame(frames.PING, frames.ACK, 0, bytes(8)), 999),
            (frame(frames.PRIORITY, 0, 7, bytes(5)), 999),
            (frame(frames.PRIORITY_UPDATE, 0, 0, b"\0\0\0\7u=1"), 999),
            (goAway(0, 0), 999),
            (frame(0x16, 0, 0, b"unknown"), 999),
            (windowUpdate(0, 1), 1199),
            (windowUpdate(1, 1), 1199),
            (data(1), 999),
            (data(1, b"\x05" + bytes(5), frames.PADDED), 999),
        ):
            self.peer = Peer().greet()
            self.peer.feed(headers(1, POST, 4))
            self.assertEqual(self.flood(lambda count, wire=wire: wire, 1300), most, wire)

    def test_forgiven(self) -> None:
        """200 a second go on for ever."""
        for _ in range(6000):
            self.assertIsNone(self.peer.failure(PING, PING))
            self.peer.core.forgive(0.01)

    def test_manySettings(self) -> None:
        """SETTINGS frames of 2,730 windows cost little, with 100 streams that wait."""
        self.peer.feed(*[headers(number) for number in odd(100)])
        for stream in self.peer.opened.values():
            stream.sendData(bytes(60_000))
        entries = frames.settings({frames.INITIAL_WINDOW_SIZE: 0})[9:]
        entries += frames.settings({frames.INITIAL_WINDOW_SIZE: MAX_WINDOW})[9:]
        wire = frame(frames.SETTINGS, 0, 0, (entries * 1365)[:16_380]) * 100
        self.assertLess(self.seconds(lambda: self.peer.core.receive(wire)), 2)
        self.assertIsNone(self.peer.core.failure)

    def test_priorities(self) -> None:
        """Priorities of requests to come keep a number each, and at most 100."""

        def attack() -> None:
            for number in odd(900):
                payload = (2 * number + 1).to_bytes(4, "big") + b"u=1;" + b"x" * 16_000
                self.peer.core.receive(frame(frames.PRIORITY_UPDATE, 0, 0, payload))

        self.assertLess(self.memory(attack), 50_000)
        self.assertEqual(len(self.peer.core._waitingPriorities._levels), 100)
        self.assertIsNone(self.peer.core.failure)


class OutputTests(_Case):
    """A client that does not read, or grants little."""

    def test_unreadAnswers(self) -> None:
        """While 1,000 frames wait to be sent, no input is handled."""
        self.peer.on = lambda stream, event: stream.sendHead(OK, True)
        for number in odd(5000):
            self.peer.core.receive(headers(number))
        self.assertEqual(len(self.peer.opened), 1001)
        self.assertTrue(self.peer.core.hasInput)
        sent = self.peer.sent(0)
        while self.peer.core.hasInput:
            sent += self.peer.feed(budget=0)
        self.assertEqual(len(self.peer.opened), 5000)
        self.assertEqual(len(sent), 5000)

    def test_fullTransport(self) -> None:
        """A client that never reads gets 1 MiB of heads, whatever it sends."""
        self.peer.on = lambda stream, event: stream.sendHead(
            OK + b"\x00\x01a\x40" + b"x" * 64, True
        )
        sent = 0
        for number in odd(50_000):
            self.peer.core.receive(headers(number))
            sent += len(self.peer.core.takeOutput(0))
            self.peer.opened.clear()
            if self.peer.core.failure is not None:
                break
        self.assertEqual(self.peer.core.failures, {CALM: 1})
        self.assertLess(sent, 2**20 + 100)
        # A client that reads goes on.
        self.peer = Peer().greet()
        self.peer.on = lambda stream, event: stream.sendHead(
            OK + b"\x00\x01a\x40" + b"x" * 64, True
        )
        for number in odd(20_000):
            self.peer.core.receive(headers(number))
            self.peer.core.takeOutput(0)
            if number % 1000 == 1:
                self.peer.core.takeOutput(1)
            self.peer.opened.clear()
        self.assertIsNone(self.peer.core.failure)

    def test_zeroWindow(self) -> None:
        """Responses without a window wait, without work for the other output."""
        self.peer = Peer().greet({frames.INITIAL_WINDOW_SIZE: 0})
        self.peer.feed(*[headers(number) for number in odd(100)])
        for stream in self.peer.opened.values():
            stream.sendData(bytes(64 * 1024 + 1))
            self.assertTrue(stream.isPaused)
        self.assertFalse(self.peer.core.hasOutput)
        self.assertLess(self.seconds(lambda: [self.peer.sent() for _ in range(10_000)]), 0.5)

    def test_closedConnectionWindow(self) -> None:
        """Streams that wait for the connection's window cost the other output nothing."""
        self.peer = Peer(streams=2000).greet({frames.INITIAL_WINDOW_SIZE: MAX_WINDOW})
        self.peer.core._output.sendWindow = 0
        self.peer.feed(*[headers(number) for number in odd(2000)], budget=0)
        self.peer.feed(budget=0)
        for stream in self.peer.opened.values():
            stream.sendData(bytes(1000))
        self.peer.sent()
        self.assertEqual(len(self.peer.opened), 2000)
        self.assertLess(self.seconds(lambda: [self.peer.sent() for _ in range(10_000)]), 0.5)

    def test_byteByByte(self) -> None:
        """A window of one byte at a time costs a frame each, also behind a long piece."""
        self.peer = Peer().greet({frames.INITIAL_WINDOW_SIZE: 0})
        self.peer.feed(headers(1))
        stream = self.peer.opened[1]
        stream.sendData(b"x" * 2**24)

        def attack() -> None:
            for _ in range(20_000):
                (sent,) = self.peer.feed(windowUpdate(1, 1))
                assert sent.payload == b"x"

        self.assertLess(self.seconds(attack), 5)
        self.assertEqual(stream.queued, 2**24 - 20_000)

    def test_urgentStreams(self) -> None:
        """2,000 streams of different urgencies are ordered without a search for each frame."""
        self.peer = Peer(streams=2000).greet({frames.INITIAL_WINDOW_SIZE: MAX_WINDOW})
        self.peer.core._output.sendWindow = MAX_WINDOW
        self.peer.feed(*[headers(number) for number in odd(2000)], budget=0)
        self.peer.feed(budget=0)
        for stream in self.peer.opened.values():
            self.peer.core.prioritise(stream, b"u=%d, i" % (stream.id % 8))
            stream.sendData(bytes(10_000))

        def take() -> None:
            while self.peer.core.takeOutput(16_384):
                pass

        self.assertLess(self.seconds(take), 1)


class InputTests(_Case):
    """Streams that never end, and pieces."""

    def test_openStreams(self) -> None:
        """Requests that never end: 100, which keep a window each."""
        self.peer.feed(*[headers(number, POST, 4) for number in odd(150)])
        self.assertEqual(len(self.peer.core.streams), 100)
        for stream in self.peer.opened.values():
            stream.takes = False
        piece = data(1, bytes(13_107))

        def attack() -> None:
            for number in odd(100):
                for _ in range(5):
                    self.peer.core.receive(piece[:5] + number.to_bytes(4, "big") + piece[9:])
                    self.peer.core.takeOutput(0)

        self.assertLess(self.memory(attack), 100 * 65_535 + 200_000)
        self.assertEqual(self.peer.resets(data(1, b"a")), [(1, ErrorCode.FLOW_CONTROL_ERROR)])

    def test_pieces(self) -> None:
        """The longest frame in pieces of a byte."""
        self.peer.feed(headers(1, POST, 4))
        wire = data(1, bytes(16_384))

        def attack() -> None:
            for at in range(len(wire)):
                self.peer.core.receive(wire[at : at + 1])

        self.assertLess(self.seconds(attack), 1)
        self.assertEqual(len(self.peer.opened[1].body()), 16_384)

    def test_padding(self) -> None:
        """Padding is granted again in halves of a window, not frame by frame."""
        self.peer.feed(headers(1, POST, 4))
        wire = data(1, bytes([255]) + b"a" + bytes(255), frames.PADDED) * 100
        sent = [each for _ in range(30) for each in self.peer.feed(wire)]
        self.assertLess(len(sent), 50)
        self.assertEqual(self.peer.opened[1].body(), b"a" * 3000)

    def test_dataAfterReset(self) -> None:
        """DATA of a stream that was reset is discarded, and granted on the connection only."""
        self.peer.feed(headers(1, POST, 4))
        self.peer.opened[1].reset()
        self.peer.sent()
        wire = data(1, bytes(16_384)) * 16

        def attack() -> None:
            for _ in range(100):
                sent = self.peer.feed(wire)
                assert {each.stream for each in sent} <= {0}

        self.assertLess(self.memory(attack), 50_000)
        self.assertIsNone(self.peer.core.failure)


class HeavyUseTests(_Case):
    """Clients that work hard, and must not be taken for hostile."""

    def test_sequentialRequests(self) -> None:
        """20,000 requests, one after the other."""
        self.peer.on = lambda stream, event: stream.sendWhole(OK, b"hello")
        for number in odd(20_000):
            self.peer.core.receive(headers(number))
            self.peer.core.takeOutput(65_536)
            if number % 100 == 1:
                self.peer.core.receive(windowUpdate(0, 500))
            self.peer.opened.clear()
        self.assertIsNone(self.peer.core.failure)

    def test_thousandStreams(self) -> None:
        """1,000 streams at a time on one connection, of all ends: nothing is left of them."""
        self.peer = Peer(streams=1000).greet({frames.INITIAL_WINDOW_SIZE: 2000})
        core = self.peer.core
        core._output.sendWindow = MAX_WINDOW
        number = 1

        def turn() -> None:
            nonlocal number
            first = number
            for _ in range(1000):
                core.receive(headers(number, POST, 4) + data(number, b"body"))
                stream = self.peer.opened[number]
                stream.sendHead(OK)
                stream.sendData(bytes(number % 5000))
                number += 2
            core.takeOutput(FOREVER)
            for each in range(first, number, 2):
                stream = self.peer.opened.pop(each)
                if each % 100 == 1:
                    core.receive(resetStream(each, 8))
                elif each % 100 == 3:
                    stream.reset()
                else:
                    core.receive(data(each, b"end", 1) + windowUpdate(each, 5000))
                    stream.sendTrailers(TRAILERS)
                core.takeOutput(FOREVER)
            core.forgive(1)
            assert core.failure is None
            assert not core.streams

        turn()
        self.assertLess(self.memory(lambda: [turn() for _ in range(rounds(2, 50, 2000))]), 200_000)

    def test_cancelledImages(self) -> None:
        """A browser cancels 100 images at once, 9 times in a second."""
        for turn in range(9):
            numbers = [2 * (100 * turn + each) + 1 for each in range(100)]
            self.peer.feed(*[headers(number) for number in numbers])
            self.assertIsNone(self.peer.failure(*[resetStream(number, 8) for number in numbers]))

    def test_refusedUploads(self) -> None:
        """100 uploads are refused, while a window of each is on its way in small frames."""
        self.peer.on = lambda stream, event: stream.sendWhole(OK, b"no")
        self.peer.feed(*[headers(number, POST, 4) for number in odd(100)])
        for number in odd(100):
            self.assertIsNone(self.peer.failure(data(number, bytes(1000)) * 65))

    def test_messages(self) -> None:
        """50,000 messages a second: a client grants both windows and pings for each frame."""
        self.peer = Peer().greet({frames.INITIAL_WINDOW_SIZE: 65_535})
        self.peer.feed(headers(1))
        stream = self.peer.opened[1]
        stream.sendHead(OK)
        for _ in range(10_000):
            for _ in range(5):
                stream.sendData(b"m" * 100)
            (sent,) = [each for each in self.peer.sent() if each.kind == frames.DATA]
            size = len(sent.payload)
            self.assertIsNone(self.peer.failure(PING, windowUpdate(0, size), windowUpdate(1, size)))

    def test_grantedMessages(self) -> None:
        """A client of gRPC grants both windows for each message, of which frames have hundreds."""
        self.peer = Peer().greet({frames.INITIAL_WINDOW_SIZE: 65_535})
        self.peer.feed(headers(1))
        stream = self.peer.opened[1]
        stream.sendHead(OK)
        for _ in range(200):
            for _ in range(500):
                stream.sendData(b"m" * 32)
            sent = [each for each in self.peer.sent() if each.kind == frames.DATA]
            self.assertEqual(sum(len(each.payload) for each in sent), 16_000)
            wire = (windowUpdate(0, 32) + windowUpdate(1, 32)) * 500
            self.assertIsNone(self.peer.failure(PING, wire))

    def test_floodOfGrants(self) -> None:
        """A large response makes 8,192 frames free, not more."""
        self.peer = Peer().greet({frames.INITIAL_WINDOW_SIZE: MAX_WINDOW})
        self.peer.core._output.sendWindow = MAX_WINDOW
        self.peer.feed(headers(1))
        self.peer.opened[1].sendData(bytes(2**20))
        self.peer.sent()
        self.assertEqual(self.flood(lambda count: windowUpdate(0, 1), 10_000), 8192 + 999)

    def test_uploadsOfMessages(self) -> None:
        """A client sends 50,000 messages, each in its own frame, and pings now and then."""
        self.peer.feed(headers(1, POST, 4))
        for _ in range(50):
            self.assertIsNone(self.peer.failure(data(1, b"m" * 100) * 1000, PING))
            self.peer.opened[1].heard.clear()
            self.peer.core.forgive(0.02)
