"""Lines and events in the bodies of HTTP."""

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from storagegate.gateway.transports.http.call import LINES
from storagegate.net.http.lines import EVENT_STREAM, LineTooLong, NDJSONDecoder


def lines(*chunks: bytes, maxLength: int = 100) -> list[bytes]:
    """Split chunks of a body into its lines."""
    decoder = NDJSONDecoder(maxLength)
    return [line for chunk in chunks for line in decoder.feed(chunk)] + decoder.end()


class LineTests(SynchronousTestCase):
    """NDJSONDecoder."""

    def test_lines(self) -> None:
        """Lines end in either way, the last one need not, and blank ones are none."""
        self.assertEqual(lines(b"a\nb\r\n\n \t\r\n c \nd"), [b"a", b"b", b"c", b"d"])
        self.assertEqual(lines(), [])
        self.assertEqual(lines(b"\n\n"), [])

    def test_atOnce(self) -> None:
        """A line is there as soon as its end is."""
        decoder = NDJSONDecoder(100)
        self.assertEqual(decoder.feed(b"a"), [])
        self.assertEqual(decoder.feed(b"b\nc"), [b"ab"])
        self.assertEqual(decoder.feed(b"\n"), [b"c"])
        self.assertEqual(decoder.end(), [])

    def test_limit(self) -> None:
        """A line has a limit, a body has none."""
        self.assertEqual(lines(*[b"x" * 10 + b"\r\n"] * 50, maxLength=10), [b"x" * 10] * 50)
        self.assertRaises(LineTooLong, lines, b"x" * 11 + b"\n", maxLength=10)
        self.assertRaises(LineTooLong, lines, b"x" * 6, b"x" * 5, maxLength=10)

    def test_endless(self) -> None:
        """What does not end is refused while it comes."""
        decoder = NDJSONDecoder(10)
        decoder.feed(b"x" * 11)
        self.assertRaises(LineTooLong, decoder.feed, b"x")

    @given(st.binary(), st.lists(st.integers(0, 50)))
    def test_chunks(self, body: bytes, cuts: list[int]) -> None:
        """However a body is cut, its lines are the same."""
        chunks, rest = [], body
        for cut in cuts:
            chunks.append(rest[:cut])
            rest = rest[cut:]
        self.assertEqual(lines(*chunks, rest, maxLength=10_000), lines(body, maxLength=10_000))


class FormatTests(SynchronousTestCase):
    """What goes out."""

    def test_lines(self) -> None:
        """An item is an object with its data, an error is bare."""
        self.assertEqual(LINES.shape(1), {"data": 1})
        self.assertEqual((LINES.item(b"{}"), LINES.error(b"{}")), (b"{}\n", b"{}\n"))

    def test_events(self) -> None:
        """An item is bare, an error is an event of its own."""
        self.assertEqual(EVENT_STREAM.shape(1), 1)
        self.assertEqual(EVENT_STREAM.item(b"{}"), b"data: {}\n\n")
        self.assertEqual(EVENT_STREAM.error(b"{}"), b"event: error\ndata: {}\n\n")
