"""The messages of a WebSocket that Autobahn need not read."""

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from storagegate.net.websocket.connection import LONGEST, readPlain
from tests.support.wsclient import BINARY, CONTINUATION, PING, TEXT, frame

LIMIT = 1024 * 1024

MASKS = st.binary(min_size=4, max_size=4)


class ReadPlainTests(SynchronousTestCase):
    """What is read, and what is left."""

    @given(st.binary(max_size=300), MASKS, st.binary(max_size=9), st.binary(max_size=9))
    def test_bytes(self, payload: bytes, mask: bytes, before: bytes, after: bytes) -> None:
        """A message of bytes is read wherever it stands, and its end is given."""
        wire = before + frame(BINARY, payload, mask=mask)
        read = readPlain(wire + after, len(before), LIMIT)
        self.assertEqual(read, (payload, True, len(wire)))

    @given(st.text(max_size=100), MASKS)
    def test_text(self, text: str, mask: bytes) -> None:
        """A message of text is read in any language."""
        wire = frame(TEXT, text.encode(), mask=mask)
        self.assertEqual(readPlain(wire, 0, LIMIT), (text.encode(), False, len(wire)))

    def test_sizes(self) -> None:
        """Lengths of both kinds are read up to the longest, and no longer one."""
        for size in (0, 1, 125, 126, 127, 255, 256, LONGEST):
            wire = frame(BINARY, b"\xff" * size)
            self.assertEqual(readPlain(wire, 0, LIMIT), (b"\xff" * size, True, len(wire)), size)
        for size in (LONGEST + 1, 0x10000):
            self.assertIsNone(readPlain(frame(BINARY, bytes(size)), 0, LIMIT), size)

    def test_limit(self) -> None:
        """A message that is too long for the WebSocket is left."""
        wire = frame(TEXT, b"12345")
        self.assertIsNone(readPlain(wire, 0, 4))
        self.assertIsNotNone(readPlain(wire, 0, 5))

    def test_incomplete(self) -> None:
        """A message that is not all here is left, wherever it is cut."""
        for size in (0, 5, 130):
            wire = frame(TEXT, b"x" * size)
            for end in range(len(wire)):
                self.assertIsNone(readPlain(wire[:end], 0, LIMIT), (size, end))

    def test_left(self) -> None:
        """Whatever is no whole message, has an extension, or is a mistake is left to Autobahn."""
        for wire in (
            frame(TEXT, b"x", fin=False),
            frame(CONTINUATION, b"x"),
            frame(PING, b"x"),
            frame(3, b"x"),
            frame(TEXT, b"x", rsv=4),
            frame(BINARY, b"x", rsv=1),
            frame(TEXT, b"123456", mask=None),
            frame(BINARY, bytes(200), mask=None),
            frame(BINARY, b"x", width=2),
            frame(BINARY, b"x", width=8),
            frame(TEXT, b"\xff"),
            frame(TEXT, "é".encode()[:1]),
            frame(TEXT, b"\xed\xa0\x80"),
        ):
            self.assertIsNone(readPlain(wire, 0, LIMIT), wire)
