"""What TCP connections refuse, in memory, and whatever else comes."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.support.gateway import Boom
from tests.support.tcp import connect, frame
from tests.support.tcpcases import BAD, FrameCase

KEYS = st.sampled_from(
    ["id", "service", "method", "data", "auth", "deadlineMs", "traceparent", "x"]
)
WORDS = st.sampled_from(["Probe", "echo", "count", "collect", "chat", "slow", "fail", "1", ""])
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 2) | st.floats(allow_nan=False) | WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=6,
)
PAYLOADS = VALUES | st.dictionaries(KEYS, VALUES | WORDS, max_size=6) | st.binary(max_size=20)


class FuzzTests(FrameCase):
    """Whatever clients send."""

    @given(st.lists(st.tuples(st.integers(0, 13), PAYLOADS), max_size=12), st.data())
    def test_frames(self, sent: list[tuple[int, Any]], data: Any) -> None:
        """Well-formed frames of anything leave a connection that answers, and nothing behind."""
        client = connect(self.adapter)
        wire = b"".join(frame(type, payload) for type, payload in sent)
        cut = data.draw(st.integers(0, len(wire)))
        client.connection.dataReceived(wire[:cut])
        client.connection.dataReceived(wire[cut:])
        client.received()
        client.send(6, b"still there?")
        self.assertTrue(client.isOpen)
        if client.transport.producerState == "producing":
            self.assertEqual(client.received(), [(7, b"still there?")])
        client.lose()
        self.assertEqual((self.adapter.listener.calls, self.adapter.heldBytes), (0, 0))
        self.flushLoggedErrors(Boom, AttributeError)

    @given(st.lists(st.binary(max_size=60), max_size=6))
    def test_bytes(self, pieces: list[bytes]) -> None:
        """Bytes of any kind are answered, refused, or wait for more."""
        client = connect(self.adapter)
        for piece in pieces:
            client.connection.dataReceived(piece) if piece else None
        client.lose()
        self.assertEqual((self.adapter.listener.calls, self.adapter.heldBytes), (0, 0))


class RefusalTests(FrameCase):
    """What ends a connection."""

    def assertRefused(self, wire: bytes, code: str) -> None:
        """Check that bytes are answered by one error and a closed connection, and not held."""
        client = connect(self.adapter)
        client.call("slow", 1)
        cancelled = len(self.probe.cancelled)
        client.connection.dataReceived(wire)
        ((type, error),) = client.received()
        self.assertEqual((type, error["error"]), (3, code))
        self.assertFalse(client.isOpen)
        self.assertEqual(len(self.probe.cancelled), cancelled + 1)
        client.connection.dataReceived(frame(6, b"x") + wire)
        self.assertEqual(client.received(), [])
        self.assertEqual((self.adapter.heldBytes, self.adapter.listener.calls), (0, 0))
        client.lose()

    def test_version(self) -> None:
        """Another version is refused."""
        for wire in (b"\x02", b"GET / HTTP/1.1\r\n\r\n", b"\x00\x01\x00\x00\x00\x00"):
            self.assertRefused(wire, BAD)

    def test_length(self) -> None:
        """A length over the limit is refused before its payload comes."""
        for length in (b"\xff\xff\xff\xff", b"\x00\x00\x04\x01"):
            self.assertRefused(b"\x01\x01" + length + b"{" * 500, "PAYLOAD_TOO_LARGE")

    def test_answeredBefore(self) -> None:
        """What came before it is answered."""
        self.client.connection.dataReceived(frame(6, b"x") + b"\x07")
        pong, (type, error) = self.client.received()
        self.assertEqual(pong, (7, b"x"))
        self.assertEqual((type, error["error"]), (3, BAD))
        self.assertFalse(self.client.isOpen)
