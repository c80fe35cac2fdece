"""Inflating bodies."""

import gzip
import os
import zlib
from collections.abc import Callable
from time import process_time

import brotli
import zstandard
from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from storagegate.core.inflate import (
    CODINGS,
    STEP,
    InflatedTooLarge,
    MalformedCoding,
    inflate,
    inflateSteps,
)

MIB = 1 << 20

# Many times what the longest takes; in quadratic time it would be most of a minute.
LONG_SECONDS = 8.0


def rawDeflate(data: bytes) -> bytes:
    """Deflate without the zlib format, as some clients do."""
    encoder = zlib.compressobj(wbits=-15)
    return encoder.compress(data) + encoder.flush()


def streamedZstd(data: bytes) -> bytes:
    """Compress without telling the size."""
    return zstandard.ZstdCompressor(write_content_size=False, write_checksum=True).compress(data)


ENCODERS: list[tuple[str, Callable[[bytes], bytes]]] = [
    ("gzip", gzip.compress),
    ("x-gzip", gzip.compress),
    ("deflate", zlib.compress),
    ("deflate", rawDeflate),
    ("br", brotli.compress),
    ("zstd", zstandard.ZstdCompressor().compress),
    ("zstd", streamedZstd),
]

BOMBS: list[tuple[str, Callable[[bytes], bytes]]] = [
    ("gzip", gzip.compress),
    ("deflate", rawDeflate),
    ("br", lambda data: brotli.compress(data, quality=1)),
    ("zstd", streamedZstd),
]


class InflateTests(SynchronousTestCase):
    """Whole bodies."""

    def test_codings(self) -> None:
        """Every coding of the table is known, and no other."""
        self.assertEqual(CODINGS, {coding for coding, _ in ENCODERS})
        for coding in ("", "identity", "compress", "GZIP", "gzip, br"):
            self.assertRaises(ValueError, inflate, coding, b"", 10)

    @given(st.binary(max_size=2000), st.integers(0, 3000))
    def test_roundTrip(self, data: bytes, repeated: int) -> None:
        """What was compressed comes back, if it is not over the limit."""
        data += data[:40] * repeated
        for coding, encode in ENCODERS:
            wire = encode(data)
            self.assertEqual(inflate(coding, wire, len(data)), data)
            if data:
                self.assertRaises(InflatedTooLarge, inflate, coding, wire, len(data) - 1)

    def test_large(self) -> None:
        """Bodies of many steps come back whole, dense or not."""
        for data in (os.urandom(300_000), bytes(MIB), bytes(range(256)) * 3000):
            for coding, encode in ENCODERS:
                self.assertEqual(inflate(coding, encode(data), len(data)), data)

    def test_steps(self) -> None:
        """Bodies that end at the end of a step, or just after it, come back whole."""
        for size in (STEP - 1, STEP, STEP + 1, STEP + 257, 2 * STEP, 2 * STEP + 1):
            for coding, encode in ENCODERS:
                self.assertEqual(inflate(coding, encode(bytes(size)), size), bytes(size))

    def test_truncated(self) -> None:
        """A body that ends early is malformed, wherever it ends."""
        for coding, encode in ENCODERS:
            wire = encode(b"hello, hello, hello")
            for end in range(len(wire)):
                self.assertRaises(MalformedCoding, inflate, coding, wire[:end], 100)

    def test_garbage(self) -> None:
        """A body that goes on after its end is malformed."""
        for coding, encode in ENCODERS:
            for garbage in (b"\0", b"x", b"garbage" * 1000):
                self.assertRaises(MalformedCoding, inflate, coding, encode(b"hello") + garbage, 100)

    def test_damaged(self) -> None:
        """A body with another checksum is malformed."""
        for coding, encode in ENCODERS[:3] + ENCODERS[-1:]:
            wire = bytearray(encode(b"hello"))
            wire[-1 if coding != "gzip" and coding != "x-gzip" else -5] ^= 1
            self.assertRaises(MalformedCoding, inflate, coding, bytes(wire), 100)

    @given(st.binary(max_size=60))
    def test_anything(self, wire: bytes) -> None:
        """Whatever comes is inflated, malformed or too large."""
        for coding in CODINGS:
            try:
                self.assertLessEqual(len(inflate(coding, wire, 1000)), 1000)
            except (MalformedCoding, InflatedTooLarge):
                pass

    def test_members(self) -> None:
        """Gzip members and zstd frames that follow each other are one body."""
        for coding, encode in (ENCODERS[0], *ENCODERS[-2:]):
            wire = encode(b"one ") + encode(b"") + encode(b"two")
            self.assertEqual(inflate(coding, wire, 7), b"one two")
            self.assertRaises(InflatedTooLarge, inflate, coding, wire, 6)
            self.assertRaises(MalformedCoding, inflate, coding, wire[:-1], 100)
        self.assertRaises(
            MalformedCoding, inflate, "deflate", zlib.compress(b"a") + zlib.compress(b"b"), 100
        )


class BombTests(SynchronousTestCase):
    """Small bodies that inflate to large ones."""

    def test_cut(self) -> None:
        """Inflating ends at the limit, one step further at most."""
        for coding, encode in BOMBS:
            size = 0
            with self.assertRaises(InflatedTooLarge) as raised:
                for piece in inflateSteps(coding, encode(bytes(64 * MIB)), MIB):
                    size += len(piece)
            self.assertEqual((raised.exception.limit, size <= MIB), (MIB, True))

    def test_steps(self) -> None:
        """No step gives more than the size of a step, except of what is known to be small."""
        for coding, encode in BOMBS[:3]:
            pieces = inflateSteps(coding, encode(bytes(8 * MIB)), 8 * MIB)
            self.assertLessEqual(max(map(len, pieces)), STEP)

    def test_manyMembers(self) -> None:
        """Eight megabytes of empty members takes time in proportion."""
        before = process_time()
        self.assertEqual(inflate("gzip", gzip.compress(b"") * 400_000, 10), b"")
        self.assertLess(process_time() - before, LONG_SECONDS)

    def test_window(self) -> None:
        """A frame cannot ask for more memory than eight megabytes of window."""
        parameters = zstandard.ZstdCompressionParameters(window_log=27)
        encoder = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
        wire = encoder.compress(b"x") + encoder.flush()
        self.assertRaises(MalformedCoding, inflate, "zstd", wire, 100)
