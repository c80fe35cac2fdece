"""Frames, in bytes that come in any pieces."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from storagegate.gateway.messages.frames import (
    GOING_AWAY,
    PING,
    REQUEST,
    Frame,
    FrameDecoder,
    FrameError,
    decodeFrame,
    encodeFrame,
)

MAXIMUM = 1000


def frames() -> Any:
    """Draw a frame."""
    return st.builds(Frame, st.integers(0, 255), st.binary(max_size=300))


def written(sent: list[Frame]) -> bytes:
    """Write frames."""
    return b"".join(encodeFrame(frame.type, frame.payload) for frame in sent)


def read(decoder: FrameDecoder, data: bytes) -> list[Frame]:
    """Feed a decoder; take all the frames that it finds."""
    decoder.feed(data)
    found = []
    while (frame := decoder.next()) is not None:
        found.append(frame)
    return found


class DecoderTests(SynchronousTestCase):
    """Finding frames in a stream."""

    def setUp(self) -> None:
        """Make a decoder."""
        self.decoder = FrameDecoder(MAXIMUM)

    def assertDecodes(self, wire: bytes, expected: list[Frame]) -> None:
        """Check what bytes become: at once, one by one, and with the beginning of another."""
        self.assertEqual(read(FrameDecoder(MAXIMUM), wire), expected)
        slow = FrameDecoder(MAXIMUM)
        found = [frame for byte in wire for frame in read(slow, bytes([byte]))]
        self.assertEqual(found, expected)
        self.assertEqual(slow.held, 0)
        more = FrameDecoder(MAXIMUM)
        self.assertEqual(read(more, wire + b"\x01"), expected)
        self.assertEqual(more.held, 1)

    def assertRefused(self, wire: bytes, code: str) -> None:
        """Check that bytes are refused, and go on being refused."""
        with self.assertRaises(FrameError) as caught:
            read(self.decoder, wire)
        self.assertEqual(caught.exception.code, code)
        self.assertRaises(FrameError, self.decoder.next)

    def test_layout(self) -> None:
        """A frame is a version, a type, a big-endian length and the payload."""
        wire = b"\x01\x01\x00\x00\x00\x02{}"
        self.assertEqual(encodeFrame(REQUEST, b"{}"), wire)
        self.assertDecodes(wire, [Frame(REQUEST, b"{}")])
        self.assertEqual(encodeFrame(PING, b"x" * 258)[:6], b"\x01\x06\x00\x00\x01\x02")

    def test_several(self) -> None:
        """Frames follow each other, empty ones and those of unknown types among them."""
        sent = [Frame(REQUEST, b"{}"), Frame(PING, b""), Frame(0, b"x"), Frame(255, b"y" * 500)]
        self.assertDecodes(written(sent), sent)

    def test_longest(self) -> None:
        """A payload may be as long as the limit, and no byte longer."""
        frame = Frame(GOING_AWAY, b"x" * MAXIMUM)
        self.assertDecodes(written([frame]), [frame])
        self.assertRefused(encodeFrame(REQUEST, b"x" * (MAXIMUM + 1)), "PAYLOAD_TOO_LARGE")

    def test_hugeLength(self) -> None:
        """A length of 4 GiB is refused before a byte of the payload is here."""
        self.assertRefused(b"\x01\x01\xff\xff\xff\xff", "PAYLOAD_TOO_LARGE")

    def test_version(self) -> None:
        """Another version is refused at its first byte."""
        for wire in (b"\x00", b"\x02", b"GET / HTTP/1.1\r\n\r\n", b"\xff\x01\x00\x00\x00\x00"):
            self.decoder = FrameDecoder(MAXIMUM)
            self.assertRefused(wire, "INVALID_ARGUMENT")

    def test_framesBeforeFault(self) -> None:
        """Frames before the fault are given first."""
        self.decoder.feed(encodeFrame(PING, b"x") + b"\x02")
        self.assertEqual(self.decoder.next(), Frame(PING, b"x"))
        self.assertRaises(FrameError, self.decoder.next)

    def test_fedAhead(self) -> None:
        """What is fed before the frames that are here were taken comes after them."""
        sent = [Frame(PING, bytes([number])) for number in range(5)]
        wire = written(sent)
        self.decoder.feed(wire[:10])
        self.assertEqual(self.decoder.next(), sent[0])
        self.decoder.feed(wire[10:17])
        self.decoder.feed(wire[17:])
        self.assertEqual(read(self.decoder, b""), sent[1:])

    def test_nothingKept(self) -> None:
        """A long frame is not kept for the first byte of the next."""
        decoder = FrameDecoder(1_000_000)
        wire = encodeFrame(PING, bytes(500_000)) + encodeFrame(PING, b"x")
        decoder.feed(wire[:1000])
        self.assertEqual(decoder.next(), None)
        self.assertEqual(len(read(decoder, wire[1000:-1])), 1)
        self.assertEqual((decoder.held, len(decoder._data)), (6, 6))
        self.assertEqual(read(decoder, wire[-1:]), [Frame(PING, b"x")])

    @given(st.lists(frames(), max_size=6), st.data())
    def test_anyPieces(self, sent: list[Frame], data: Any) -> None:
        """However a stream is cut, the same frames come of it."""
        wire = written(sent)
        cuts = sorted(data.draw(st.lists(st.integers(0, len(wire)), max_size=8)))
        decoder = FrameDecoder(MAXIMUM)
        found = []
        for start, end in zip([0, *cuts], [*cuts, len(wire)], strict=True):
            found += read(decoder, wire[start:end])
        self.assertEqual((found, decoder.held), (sent, 0))

    @given(st.lists(st.binary(max_size=40), max_size=10))
    def test_anyBytes(self, pieces: list[bytes]) -> None:
        """Whatever comes is frames, the beginning of one, or refused; nothing is lost."""
        decoder = FrameDecoder(20)
        found: list[Frame] = []
        try:
            for piece in pieces:
                found += read(decoder, piece)
        except FrameError:
            return
        wire = b"".join(pieces)
        self.assertTrue(wire.startswith(written(found)))
        self.assertEqual(len(written(found)) + decoder.held, len(wire))


class SingleTests(SynchronousTestCase):
    """One frame, and nothing beside it."""

    @given(frames())
    def test_whole(self, frame: Frame) -> None:
        """What was written is read."""
        self.assertEqual(decodeFrame(encodeFrame(frame.type, frame.payload), MAXIMUM), frame)

    def test_wrong(self) -> None:
        """What is too short, too long, of another version or lies about its length is refused."""
        good = encodeFrame(REQUEST, b"{}")
        for wire in (b"", good[:5], good[:-1], good + b"x", b"\x02" + good[1:]):
            with self.assertRaises(FrameError) as caught:
                decodeFrame(wire, MAXIMUM)
            self.assertEqual(caught.exception.code, "INVALID_ARGUMENT")
        with self.assertRaises(FrameError) as caught:
            decodeFrame(encodeFrame(REQUEST, b"x" * 11), 10)
        self.assertEqual(caught.exception.code, "PAYLOAD_TOO_LARGE")
