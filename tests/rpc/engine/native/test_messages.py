"""Messages are split however their bytes arrive, and no more is kept than the limit allows."""

import gzip
import zlib
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from storagegate.core.errors import GrpcError
from storagegate.rpc.engine.native.messages import (
    CompressedMessage,
    MessageDecoder,
    deflateMessage,
    inflateMessage,
)
from tests.support.h2client import framed

LIMIT = 100_000
EXHAUSTED, INTERNAL = 8, 13


class DecoderTests(SynchronousTestCase):
    """L{MessageDecoder}."""

    def test_pieces(self) -> None:
        """Whole, byte by byte, or cut anywhere, the messages are the same."""
        expected = [b"", b"a", bytes(40_000), b"bc", b""]
        wire = b"".join(map(framed, expected))
        for step in (len(wire), 1, 3, 4, 7, 16_384, 65_537):
            decoder = MessageDecoder(LIMIT, isCompressed=False)
            found = []
            for at in range(0, len(wire), step):
                found += decoder.feed(wire[at : at + step])
            self.assertEqual(found, expected)
            self.assertEqual(decoder.held, 0)

    @given(st.lists(st.binary(max_size=40), max_size=8), st.data())
    def test_anyPieces(self, expected: list[bytes], data: st.DataObject) -> None:
        """So they are for any pieces, also empty ones."""
        wire = b"".join(map(framed, expected))
        cuts = sorted(data.draw(st.lists(st.integers(0, len(wire)), max_size=12)))
        decoder, found = MessageDecoder(LIMIT, isCompressed=False), []
        for start, end in pairwise([0, *cuts, len(wire)]):
            found += decoder.feed(wire[start:end])
        self.assertEqual(found, expected)

    def test_held(self) -> None:
        """The bytes of an incomplete message are counted, with its prefix."""
        decoder = MessageDecoder(LIMIT, isCompressed=False)
        wire = framed(b"x" * 1000)
        for size in (3, 5, 6, 1004):
            decoder.feed(wire[decoder.held : size])
            self.assertEqual(decoder.held, size)
        self.assertEqual(decoder.feed(wire[1004:] + wire[:2]), [b"x" * 1000])
        self.assertEqual(decoder.held, 2)
        decoder.clear()
        self.assertEqual(decoder.held, 0)

    def test_compressed(self) -> None:
        """A message with the flag 1 comes as it is."""
        decoder = MessageDecoder(LIMIT, isCompressed=True)
        wire = framed(b"plain") + framed(b"packed", isCompressed=True)
        for step in (len(wire), 1):
            found = []
            for at in range(0, len(wire), step):
                found += decoder.feed(wire[at : at + step])
            self.assertEqual(found, [b"plain", b"packed"])
            self.assertEqual([type(each) for each in found], [bytes, CompressedMessage])

    def assertRefused(self, wire: bytes, status: int, isCompressed: bool = True) -> None:
        """The bytes are refused with a status."""
        decoder = MessageDecoder(LIMIT, isCompressed)
        error = self.assertRaises(GrpcError, decoder.feed, wire)
        self.assertEqual(error.status, status)

    def test_refused(self) -> None:
        """A wrong flag, and a length over the limit, are refused before the message has arrived."""
        self.assertRefused(b"\x02\0\0\0\1", INTERNAL)
        self.assertRefused(b"\xff\0\0\0\0", INTERNAL)
        self.assertRefused(b"\x01\0\0\0\1", INTERNAL, isCompressed=False)
        self.assertRefused(b"\0" + (LIMIT + 1).to_bytes(4, "big"), EXHAUSTED)
        self.assertRefused(b"\0\xff\xff\xff\xff", EXHAUSTED)
        self.assertRefused(b"\1" + (LIMIT + 1).to_bytes(4, "big"), EXHAUSTED)


class CompressionTests(SynchronousTestCase):
    """Both encodings, both ways."""

    def test_roundTrip(self) -> None:
        """Other libraries read our messages, and we read theirs."""
        message = b"message " * 1000
        self.assertEqual(gzip.decompress(deflateMessage("gzip", message, -1)), message)
        self.assertEqual(zlib.decompress(deflateMessage("deflate", message, 9)), message)
        self.assertEqual(inflateMessage("gzip", gzip.compress(message), 8000), message)
        self.assertEqual(inflateMessage("deflate", zlib.compress(message), 8000), message)

    def test_refused(self) -> None:
        """A message over the limit is not inflated, and a damaged one is an error."""
        bomb = deflateMessage("gzip", bytes(10 << 20), 9)
        for encoding, wire, status in (
            ("gzip", bomb, EXHAUSTED),
            ("gzip", bomb[:-1], EXHAUSTED),
            ("gzip", gzip.compress(b"a")[:-1], INTERNAL),
            ("gzip", b"no gzip", INTERNAL),
            ("gzip", b"", INTERNAL),
            ("deflate", zlib.compress(b"a") + b"b", INTERNAL),
        ):
            error = self.assertRaises(GrpcError, inflateMessage, encoding, wire, 1000)
            self.assertEqual(error.status, status)
