"""Content codings as they are made, undone by other libraries."""

import random
import subprocess
import sys

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from storagegate.http.encoding import CODINGS, makeEncoder
from tests.http.decoding import decode, decodeSoFar
from tests.support.modules import CHECKOUT

WORDS = [bytes([97 + number % 26]) * (1 + number % 7) for number in range(50)]
TEXT = b" ".join(random.Random(1).choices(WORDS, k=20_000))

# More than any window, and nothing in it repeats.
NOISE = random.Random(2).randbytes(6 << 20)

# The largest window and its queue, with room.
HELD_BACK = 1 << 20


class EncoderTests(SynchronousTestCase):
    """Each coding."""

    def test_codings(self) -> None:
        """All four are there, in the order of preference."""
        self.assertEqual(CODINGS, ("br", "zstd", "gzip", "deflate"))

    def test_whole(self) -> None:
        """A body comes back as it was, and is smaller on its way; so does an empty one."""
        for coding in CODINGS:
            for length in (None, len(TEXT)):
                encoder = makeEncoder(coding, length=length)
                encoded = encoder.feed(TEXT) + encoder.finish()
                self.assertLess(len(encoded), len(TEXT) // 2, coding)
                self.assertEqual(decode(coding, encoded), TEXT, coding)
            self.assertEqual(decode(coding, makeEncoder(coding).finish()), b"", coding)

    @given(st.lists(st.tuples(st.binary(max_size=300), st.booleans()), max_size=12))
    def test_pieces(self, pieces: list[tuple[bytes, bool]]) -> None:
        """However a body comes and wherever it is flushed, it comes back as it was."""
        for coding in CODINGS:
            encoder = makeEncoder(coding)
            encoded = b""
            for chunk, flush in pieces:
                encoded += encoder.feed(chunk)
                if flush:
                    encoded += encoder.flush()
            encoded += encoder.finish()
            body = b"".join(chunk for chunk, flush in pieces)
            self.assertEqual(decode(coding, encoded), body, coding)

    def test_flush(self) -> None:
        """After a flush a decoder sees all that was fed, before the end is there."""
        for coding in CODINGS:
            encoder = makeEncoder(coding)
            encoded = encoder.feed(b"first ") + encoder.flush()
            self.assertEqual(decodeSoFar(coding, encoded), b"first ", coding)
            encoded += encoder.feed(b"second") + encoder.flush()
            self.assertEqual(decodeSoFar(coding, encoded), b"first second", coding)
            self.assertEqual(decode(coding, encoded + encoder.finish()), b"first second", coding)

    def test_flushes(self) -> None:
        """An encoder says whether each chunk is to be flushed."""
        for coding in CODINGS:
            self.assertFalse(makeEncoder(coding).flushes)
            self.assertTrue(makeEncoder(coding, flushes=True).flushes)

    def test_bounded(self) -> None:
        """Whatever the length of a body, what an encoder holds back of it is bounded."""
        for coding in CODINGS:
            encoder = makeEncoder(coding)
            fed = made = most = 0
            for start in range(0, len(NOISE), 64 * 1024):
                chunk = NOISE[start : start + 64 * 1024]
                fed += len(chunk)
                made += len(encoder.feed(chunk))
                most = max(most, fed - made)
            self.assertLess(most, HELD_BACK, coding)

    def test_brotliWindow(self) -> None:
        """A body of C{br} does not make its reader keep more than 256 KiB."""
        encoder = makeEncoder("br")
        encoded = encoder.feed(TEXT) + encoder.finish()
        # RFC 7932 section 9.1: windows of 18 to 24 bits begin with a set bit, then bits - 17.
        self.assertEqual(encoded[0] & 0b1111, 1 | (18 - 17) << 1)

    def test_level(self) -> None:
        """A higher level makes less of a body, level 0 of zlib's codings only stores."""
        for coding in ("zstd", "gzip", "deflate"):
            sizes = []
            for level in (0, 1, 9):
                encoder = makeEncoder(coding, level)
                encoded = encoder.feed(TEXT) + encoder.finish()
                self.assertEqual(decode(coding, encoded), TEXT)
                sizes.append(len(encoded))
            self.assertLess(sizes[2], sizes[1], coding)
            self.assertEqual(sizes[0] > len(TEXT), coding != "zstd", coding)

    def test_defaultLevel(self) -> None:
        """The level -1 is zlib's 6 and zstd's 3."""
        for coding, level in (("gzip", 6), ("deflate", 6), ("zstd", 3)):
            plain, named = makeEncoder(coding), makeEncoder(coding, level)
            self.assertEqual(plain.feed(TEXT) + plain.finish(), named.feed(TEXT) + named.finish())

    def test_withoutZstd(self) -> None:
        """Where the extra is not installed the coding is not offered, and all else works."""
        script = (
            "import sys; sys.modules['zstandard'] = None\n"
            "from storagegate.http.encoding import CODINGS, makeEncoder\n"
            "print(*CODINGS, len(makeEncoder('gzip').finish()))"
        )
        result = subprocess.run(
            [sys.executable, "-c", script], cwd=CHECKOUT, capture_output=True, text=True, check=True
        )
        self.assertEqual(result.stdout, "br gzip deflate 20\n")
