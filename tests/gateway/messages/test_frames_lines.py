"""Lines of JSON: the decoder, and TCP connections that speak them."""

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from storagegate.gateway.messages.frames import FrameError, LineDecoder
from storagegate.gateway.transports.tcp import TCPOptions
from storagegate.gateway.transports.tcp.listener import TCPTransport
from tests.support.gateway import TOKEN, makeHost
from tests.support.tcp import connect


def read(decoder: LineDecoder, data: bytes) -> list[bytes]:
    """Feed a decoder; take all the lines that it finds."""
    decoder.feed(data)
    found = []
    while (line := decoder.next()) is not None:
        found.append(line)
    return found


class DecoderTests(SynchronousTestCase):
    """Finding lines in a stream."""

    @given(st.lists(st.binary(max_size=30).map(lambda x: x.replace(b"\n", b""))), st.data())
    def test_anyPieces(self, lines: list[bytes], data: Any) -> None:
        """However a stream is cut, the same lines come of it."""
        wire = b"".join(line + b"\n" for line in lines)
        cuts = sorted(data.draw(st.lists(st.integers(0, len(wire)), max_size=8)))
        decoder = LineDecoder(30)
        found = []
        for start, end in zip([0, *cuts], [*cuts, len(wire)], strict=True):
            found += read(decoder, wire[start:end])
        self.assertEqual((found, decoder.held), (lines, 0))

    def test_bytes(self) -> None:
        """Lines come byte by byte."""
        decoder = LineDecoder(5)
        found = [line for byte in b"ab\n\ncde\nf" for line in read(decoder, bytes([byte]))]
        self.assertEqual((found, decoder.held), ([b"ab", b"", b"cde"], 1))

    def test_limit(self) -> None:
        """A line may be as long as the limit; a longer one is refused, complete or not."""
        self.assertEqual(read(LineDecoder(5), b"12345\n12345"), [b"12345"])
        for wire in (b"123456", b"123456\n", b"12345678\n1\n"):
            with self.assertRaises(FrameError) as caught:
                read(LineDecoder(5), wire)
            self.assertEqual(caught.exception.code, "PAYLOAD_TOO_LARGE")

    def test_limitInPieces(self) -> None:
        """It does not matter in how many pieces a line comes."""
        decoder = LineDecoder(5)
        self.assertEqual(read(decoder, b"1\n123"), [b"1"])
        self.assertEqual(read(decoder, b"45"), [])
        self.assertRaises(FrameError, read, decoder, b"6")


class LineTests(SynchronousTestCase):
    """Calls by the line."""

    def setUp(self) -> None:
        """Connect to a listener."""
        self.clock = Clock()
        host, self.probe = makeHost(self.clock)
        self.adapter = TCPTransport(host, TCPOptions(maxFrameSize=1024))
        self.client = connect(self.adapter)
        self.addCleanup(self.client.lose)

    def say(self, *messages: Any) -> None:
        """Send lines."""
        wire = b"".join(json.dumps(message).encode() + b"\n" for message in messages)
        self.client.connection.dataReceived(wire)

    def call(self, method: str, **more: Any) -> None:
        """Call a method of C{Probe}."""
        self.say({"service": "Probe", "method": method, **more})

    def test_call(self) -> None:
        """Who begins with a brace is answered with the messages of WebSocket, one a line."""
        self.call("echo", id=1, data={"text": "a\nb"})
        (answer,) = self.client.lines()
        self.assertIsInstance(answer.pop("timestamp"), int)
        expected = {"id": 1, "type": "response", "method": "echo", "data": {"text": "a\nb"}}
        self.assertEqual(answer, expected)

    def test_context(self) -> None:
        """The wire is TCP, and the token is read where TCP has it."""
        self.call("private", id=1, auth={"token": TOKEN})
        (answer,) = self.client.lines()
        self.assertEqual(answer["data"]["protocol"], "tcp")
        self.assertEqual(answer["data"]["user"], {"sub": "ann"})

    def test_streams(self) -> None:
        """Streams go both ways."""
        self.call("chat", id=1)
        self.say({"id": 1, "type": "stream", "data": {"text": "a"}})
        self.say({"id": 1, "type": "stream_end"})
        self.assertEqual(
            self.client.lines(),
            [
                {"id": 1, "type": "stream", "data": {"text": "A"}},
                {"id": 1, "type": "stream", "data": {"text": "goodbye"}},
                {"id": 1, "type": "stream_end"},
            ],
        )

    def test_cancel(self) -> None:
        """A call can be cancelled."""
        self.call("slow", id=1)
        self.say({"id": 1, "type": "cancel"})
        self.assertEqual(self.probe.cancelled, ["slow"])
        self.assertEqual(self.client.lines(), [])

    def test_bad(self) -> None:
        """What is no message gets an error, and the connection lives."""
        self.client.connection.dataReceived(b"{\n")
        for wire in (b"\x01\n", b"[]\n", b'{"id":[]}\n', b'{"type":"x"}\n', b"\xff\n"):
            self.client.connection.dataReceived(wire)
        answers = self.client.lines()
        self.assertEqual([each["error"]["code"] for each in answers], 6 * ["INVALID_ARGUMENT"])
        self.assertTrue(self.client.isOpen)

    def test_white(self) -> None:
        """Empty lines say nothing, and lines may end as those of a terminal."""
        self.client.connection.dataReceived(b'{"type":"ping"}\r\n\r\n\n  \n{"type":"ping"}\n')
        self.assertEqual(self.client.lines(), 2 * [{"type": "pong"}])

    def test_tooLong(self) -> None:
        """A line over the limit is refused with one line, and the connection closes."""
        self.client.connection.dataReceived(b"{" * 1025)
        (answer,) = self.client.lines()
        self.assertEqual(answer["error"]["code"], "PAYLOAD_TOO_LARGE")
        self.assertFalse(self.client.isOpen)
        self.assertEqual(self.adapter.heldBytes, 0)

    def test_stop(self) -> None:
        """At the end of the listener there is a line that says so."""
        self.call("slow", id=1, data={"seconds": 1})
        self.adapter.close(30)
        self.clock.advance(0)
        self.clock.advance(1)
        going, answer = self.client.lines()
        self.assertEqual((going, answer["type"]), ({"type": "going_away"}, "response"))
        self.assertFalse(self.client.isOpen)
