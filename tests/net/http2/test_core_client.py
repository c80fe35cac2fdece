"""The core of HTTP/2 as a client."""

from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from storagegate.net.http2 import frames
from storagegate.net.http2.frames import frame, goAway, resetStream, windowUpdate
from storagegate.net.http2.hpack import encodePairs
from storagegate.net.http2.interfaces import ErrorCode, StreamFailure, StreamReset
from tests.support.http2 import END, GET, OK, POST, TRAILERS, Peer, RecordingStream, data, headers

INTERIM = encodePairs([(b":status", b"103")])


class ClientTests(SynchronousTestCase):
    """Requests and responses."""

    def setUp(self) -> None:
        self.peer = Peer(isClient=True).greet()

    def request(self, block: bytes = GET, isEnd: bool = True) -> RecordingStream:
        """Open a stream."""
        stream: RecordingStream = self.peer.core.open(self.peer.openStream)
        stream.sendHead(block, isEnd)
        return stream

    def test_preface(self) -> None:
        """RFC 9113 section 3.4: the preface, and SETTINGS without pushes."""
        core = Peer(isClient=True).core
        wire = core.takeOutput(0)
        self.assertTrue(wire.startswith(frames.PREFACE))
        size = int.from_bytes(wire[24:27], "big")
        settings = dict(frames.readSettings(wire[33 : 33 + size]))
        self.assertEqual(settings[frames.ENABLE_PUSH], 0)
        self.assertNotIn(frames.MAX_CONCURRENT_STREAMS, settings)

    def test_exchange(self) -> None:
        """A response with interim ones, DATA and trailers, after the end of the request."""
        stream = self.request()
        sent = self.peer.feed(
            headers(1, INTERIM, frames.END_HEADERS),
            headers(1, OK, frames.END_HEADERS),
            data(1, b"body"),
            headers(1, TRAILERS),
        )
        self.assertEqual([(each.kind, each.stream) for each in sent], [(frames.HEADERS, 1)])
        self.assertEqual(stream.names(), ["head", "head", "data", "trailers"])
        self.assertEqual(self.peer.core.streams, {})

    def test_windowAfterRequest(self) -> None:
        """The window of the response is granted again after the end of the request."""
        self.request()
        self.peer.feed(headers(1, OK, frames.END_HEADERS))
        sent = self.peer.feed(*[data(1, bytes(16_384))] * 3)
        self.assertEqual([(each.stream, each.number) for each in sent], [(1, 32_768)])

    def test_numbers(self) -> None:
        """Section 5.1.1: numbers are odd and rise, up to 2**31 - 1."""
        self.assertEqual([self.request().id for _ in range(3)], [1, 3, 5])
        core = self.peer.core
        core._nextStream = 2**31 - 1
        self.assertEqual(self.request().id, 2**31 - 1)
        self.assertFalse(core.mayOpen)
        self.assertRaises(RuntimeError, core.open, self.peer.openStream)

    def test_concurrency(self) -> None:
        """Section 5.1.2: the limit of the server holds, and may change."""
        core = self.peer.core
        self.peer.feed(frames.settings({frames.MAX_CONCURRENT_STREAMS: 1}))
        self.request()
        self.assertFalse(core.mayOpen)
        self.peer.feed(frames.settings({frames.MAX_CONCURRENT_STREAMS: 2}))
        self.assertTrue(core.mayOpen)
        self.peer.feed(headers(1, OK), frames.settings({frames.MAX_CONCURRENT_STREAMS: 0}))
        self.assertFalse(core.mayOpen)

    def test_mistakes(self) -> None:
        """Frames that a server never sends end the connection."""
        for code, wire in (
            (ErrorCode.PROTOCOL_ERROR, headers(2, OK)),
            (ErrorCode.PROTOCOL_ERROR, headers(3, OK)),
            (ErrorCode.PROTOCOL_ERROR, data(3, b"a")),
            (ErrorCode.PROTOCOL_ERROR, resetStream(2, 8)),
            (ErrorCode.PROTOCOL_ERROR, windowUpdate(3, 1)),
            (ErrorCode.PROTOCOL_ERROR, frame(frames.PUSH_PROMISE, 4, 1, bytes(4) + GET)),
            (ErrorCode.PROTOCOL_ERROR, frame(frames.PRIORITY_UPDATE, 0, 0, b"\0\0\0\1u=1")),
            (ErrorCode.PROTOCOL_ERROR, frames.settings({frames.ENABLE_PUSH: 1})),
        ):
            self.peer = Peer(isClient=True).greet()
            self.request()
            self.assertEqual(self.peer.failure(wire), code)
            self.assertEqual(self.peer.opened[1].names(), ["lost"])

    def test_dataBeforeHead(self) -> None:
        """Section 8.1: DATA before the head, or after interim responses only, is malformed."""
        self.request()
        self.request()
        resets = self.peer.resets(data(1, b"a"), headers(3, INTERIM, 4), data(3, b"a", END))
        self.assertEqual(resets, [(1, ErrorCode.PROTOCOL_ERROR), (3, ErrorCode.PROTOCOL_ERROR)])

    def test_endOfInterim(self) -> None:
        """Section 8.1: an interim response that ends its stream is malformed."""
        stream = self.request()
        self.assertEqual(self.peer.resets(headers(1, INTERIM)), [(1, ErrorCode.PROTOCOL_ERROR)])
        self.assertEqual(stream.names(), ["head", "lost"])

    def test_refusedEnd(self) -> None:
        """A stream that does not accept the end of its response hears of its loss."""

        def refuse(stream: Any, event: Any) -> None:
            if event[0] != "lost":
                raise StreamFailure(ErrorCode.PROTOCOL_ERROR, "malformed")

        head = headers(1, OK, frames.END_HEADERS)
        for wire in (headers(1, OK), head + data(1, b"a", END), head + headers(1, TRAILERS)):
            self.peer = Peer(isClient=True).greet()
            stream = self.request()
            if wire.startswith(head):
                self.peer.feed(head)
                wire = wire[len(head) :]
            stream.on = refuse
            self.assertEqual(self.peer.resets(wire), [(1, ErrorCode.PROTOCOL_ERROR)])
            self.assertEqual(stream.names()[-1], "lost")

    def test_length(self) -> None:
        """Section 8.1.1: a body that is shorter than declared, ended by trailers."""
        stream = self.request()
        self.peer.feed(headers(1, OK, frames.END_HEADERS))
        stream.expected = 3
        resets = self.peer.resets(data(1, b"ab"), headers(1, TRAILERS))
        self.assertEqual(resets, [(1, ErrorCode.PROTOCOL_ERROR)])
        self.assertEqual(stream.names(), ["head", "data", "lost"])

    def test_earlyResponse(self) -> None:
        """Section 8.1: a response before the end of its request, whose rest is then not wanted."""
        stream = self.request(POST, False)
        stream.sendData(bytes(70_000))
        self.peer.feed(headers(1, OK, 4), data(1, b"done", END))
        self.assertEqual(list(self.peer.core.streams), [1])
        self.peer.feed(resetStream(1, ErrorCode.NO_ERROR))
        self.assertIn(("data", b"done", True), stream.heard)
        self.assertNotIn("lost", stream.names())
        self.assertEqual(self.peer.core.streams, {})
        stream.sendData(b"more")
        self.assertEqual(self.peer.sent(), [])

    def test_reset(self) -> None:
        """The server resets a stream, or refuses it; late frames are errors of the stream."""
        first, second = self.request(), self.request(POST, False)
        self.peer.feed(resetStream(1, ErrorCode.REFUSED_STREAM), resetStream(3, ErrorCode.CANCEL))
        (_, lost), (_, cancelled) = *first.heard, *second.heard
        self.assertEqual((lost.code, lost.isUnprocessed), (7, True))
        self.assertEqual((cancelled.code, cancelled.isUnprocessed), (8, False))

    def test_lateResponses(self) -> None:
        """Responses of any number of streams that were reset are ignored."""
        count = 600
        streams = [self.request() for _ in range(count)]
        self.peer.sent()
        for stream in streams:
            stream.reset()
        self.peer.sent()
        block = b"".join([headers(stream.id, OK, 4) for stream in streams])
        self.assertEqual(self.peer.feed(block), [])
        self.assertIsNone(self.peer.core.failure)

    def test_goAway(self) -> None:
        """Section 6.8: streams over the last one were not processed; the others go on."""
        streams = [self.request() for _ in range(3)]
        self.peer.feed(goAway(2**31 - 1, 0))
        self.assertFalse(self.peer.core.mayOpen)
        self.peer.feed(goAway(3, ErrorCode.NO_ERROR), headers(3, OK))
        self.assertEqual(streams[0].names(), [])
        self.assertEqual(streams[1].names(), ["head"])
        ((_, reason),) = streams[2].heard
        self.assertIsInstance(reason, StreamReset)
        self.assertTrue(reason.isUnprocessed)
        self.assertEqual(list(self.peer.core.streams), [1])

    def test_exceptionOnGoAway(self) -> None:
        """A stream that fails on its end leaves the others alone."""
        streams = [self.request() for _ in range(2)]

        def fault(stream: Any, event: Any) -> None:
            raise ZeroDivisionError

        streams[0].on = fault
        self.peer.feed(goAway(0, 0))
        self.assertEqual(streams[1].names(), ["lost"])
        self.assertIsNone(self.peer.core.failure)
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)

    def test_interimFlood(self) -> None:
        """Interim responses are charged."""
        self.request()
        wire = headers(1, INTERIM, 4) * 1001
        self.assertEqual(self.peer.failure(wire), ErrorCode.ENHANCE_YOUR_CALM)
