"""Finding the end of a body."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from storagegate.net.http.interfaces import BadRequest, HTTPLimits
from storagegate.net.http.parser import MAX_CHUNKS, ChunkedDecoder, SizedDecoder

LIMITS = HTTPLimits()


def feedAll(decoder: SizedDecoder | ChunkedDecoder, pieces: list[bytes]) -> tuple[bytes, bytes]:
    """Feed pieces until the body ends; give it, and what follows it."""
    payload = b""
    for number, piece in enumerate(pieces):
        payload += decoder.feed(piece)
        while decoder.isBehind:
            payload += decoder.feed(b"")
        if decoder.complete:
            return payload, decoder.rest + b"".join(pieces[number + 1 :])
    raise AssertionError("the body did not end")


def cut(wire: bytes, places: list[int]) -> list[bytes]:
    """Cut bytes into pieces."""
    marks = [0, *sorted(place % (len(wire) + 1) for place in places), len(wire)]
    return [wire[start:end] for start, end in pairwise(marks) if start < end]


class SizedTests(SynchronousTestCase):
    """A body of known length."""

    @given(st.binary(min_size=1), st.binary(), st.lists(st.integers(0), max_size=8))
    def test_anyCut(self, body: bytes, after: bytes, places: list[int]) -> None:
        """However the bytes come, the body ends where its length says."""
        pieces = cut(body + after, places)
        self.assertEqual(feedAll(SizedDecoder(len(body)), pieces), (body, after))

    def test_noCopy(self) -> None:
        """A piece from the middle is passed on as it is."""
        piece = b"x" * 100
        self.assertIs(SizedDecoder(1000).feed(piece), piece)


class ChunkedTests(SynchronousTestCase):
    """A body in chunks."""

    @given(
        st.lists(st.binary(min_size=1, max_size=40), max_size=6),
        st.binary(max_size=20),
        st.lists(st.integers(0), max_size=12),
    )
    def test_anyCut(self, chunks: list[bytes], after: bytes, places: list[int]) -> None:
        """However the bytes come, the chunks are joined and the rest is kept."""
        wire = b"".join(b"%x;ext=1\r\n%b\r\n" % (len(chunk), chunk) for chunk in chunks)
        wire += b"0\r\nX-Sum: 1\r\nB:\r\n\r\n" + after
        decoder = ChunkedDecoder(LIMITS)
        self.assertEqual(feedAll(decoder, cut(wire, places)), (b"".join(chunks), after))
        self.assertEqual(decoder.trailers, ((b"x-sum", b"1"), (b"b", b"")))

    @given(st.binary(max_size=60), st.integers(0, 60))
    def test_garbage(self, garbage: bytes, place: int) -> None:
        """Bytes are a body or a L{BadRequest}, never another exception."""
        decoder = ChunkedDecoder(LIMITS)
        try:
            for piece in cut(b"3\r\nabc\r\n" + garbage, [place]):
                if not decoder.complete:
                    decoder.feed(piece)
        except BadRequest as error:
            self.assertEqual(error.code, 400)

    def test_manyChunks(self) -> None:
        """A call decodes a bounded number of chunks; the next one goes on."""
        decoder = ChunkedDecoder(LIMITS)
        count = 5 * MAX_CHUNKS
        found = [decoder.feed(b"1\r\nx\r\n" * count + b"0\r\n\r\nrest")]
        while decoder.isBehind:
            found.append(decoder.feed(b""))
        self.assertLessEqual(max(map(len, found)), MAX_CHUNKS)
        self.assertEqual(b"".join(found), b"x" * count)
        self.assertEqual((decoder.complete, decoder.rest), (True, b"rest"))

    def test_refused(self) -> None:
        """Whatever is no chunk is refused, as soon as that is certain."""
        for wire in [
            b"x\r\n",
            b"\r\n",
            b"-1\r\n",
            b"+1\r\n",
            b"0x1\r\n",
            b"1_0\r\n",
            b" 1\r\n",
            b"1 \r\n",
            b"1\n",
            b"f" * 17,
            b"ffffffffffffffff\r\n",
            b"1;" + b"a" * 255,
            b"1;a\rb\r\n",
            b"1;a\x00\r\n",
            b"1\r\nab",
            b"1\r\na\n",
            b"0\r\nXX\r\n",
            b"0\r\nA : 1\r\n",
            b"0\r\n A: 1\r\n",
            b"0\r\nA: \x01\r\n",
            b"0\r\nA: 1\n",
            b"0\r\nA: " + b"a" * 9000,
            b"0\r\n" + b"A: 1\r\n" * 1500,
        ]:
            self.assertRaises(BadRequest, ChunkedDecoder(LIMITS).feed, wire)

    def test_largeChunk(self) -> None:
        """A piece from the middle of a large chunk is passed on as it is."""
        decoder = ChunkedDecoder(LIMITS)
        decoder.feed(b"1000\r\n")
        piece = b"x" * 100
        self.assertIs(decoder.feed(piece), piece)
