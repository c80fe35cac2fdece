"""
The framing of WebSocket, case by case, against something that says everything again.

The cases are those that a server has to get right by RFC 6455: framing, pings, reserved bits,
opcodes, fragmentation, closing and UTF-8. Each is sent in one piece, frame by frame and byte by
byte.
"""

from tests.gateway.framingcase import INVALID, LIMIT, PROTOCOL_ERROR, FramingCase, said
from tests.support.wsclient import (
    BINARY,
    CLOSE,
    CONTINUATION,
    PING,
    PONG,
    TEXT,
    MemorySocket,
    ServerFrame,
    frame,
)

# From Markus Kuhn's UTF-8 decoder stress test.
KOSME = "κόσμε".encode()


class FramingTests(FramingCase):
    """Messages in one frame."""

    def test_sizes(self) -> None:
        """Messages of every kind of length come back, the largest, too."""
        for size in (0, 1, 125, 126, 127, 128, 4096, 65535, 65536, 65537, LIMIT):
            self.assertEchoed([frame(TEXT, b"*" * size)], said("*" * size))
            self.assertEchoed([frame(BINARY, b"\xfe" * size)], said(b"\xfe" * size))

    def test_masks(self) -> None:
        """Any mask is taken off."""
        for mask in (b"\0\0\0\0", b"\xff\xff\xff\xff", b"\x01\x02\x03\x04"):
            self.assertEchoed([frame(TEXT, b"abcdefg", mask=mask)], said("abcdefg"))

    def test_unmasked(self) -> None:
        """A client that does not mask is cut off."""
        for opcode in (TEXT, BINARY, PING, CLOSE):
            self.assertFailed([frame(opcode, b"", mask=None)], PROTOCOL_ERROR)

    def test_longLengths(self) -> None:
        """A length that takes more bytes than it has to is refused."""
        for size, width in ((0, 2), (125, 2), (0, 8), (126, 8), (65535, 8)):
            self.assertFailed([frame(BINARY, b"a" * size, width=width)], PROTOCOL_ERROR)

    def test_negativeLength(self) -> None:
        """A length with the first bit set is refused."""
        self.assertFailed([frame(BINARY, length=1 << 63)], PROTOCOL_ERROR)

    def test_manyMessages(self) -> None:
        """Messages that come together are answered in their order."""
        self.assertEchoed(
            [frame(TEXT, b"%d" % i) for i in range(200)], said(*(str(i) for i in range(200)))
        )

    def test_othersWait(self) -> None:
        """While a connection waits for its turn, another one is served a message at a time."""
        messages = b"".join(frame(TEXT, b"%d" % number) for number in range(100))
        clients = [MemorySocket(self.adapter, self.clock) for _ in range(2)]
        for client in clients:
            client.send(messages)
        self.assertEqual([len(client.heard()) for client in clients], [64, 1])
        self.clock.advance(0)
        self.assertEqual([len(client.heard()) for client in clients], [36, 99])

    def test_behindTheHandshake(self) -> None:
        """What comes right behind the handshake is not lost."""
        client = MemorySocket(self.adapter, self.clock, leftover=frame(TEXT, b"early"))
        self.assertEqual(client.heard(), said("early"))


class ControlTests(FramingCase):
    """Pings, reserved bits and opcodes."""

    def test_ping(self) -> None:
        """A pong says what the ping said."""
        for payload in (b"", b"hello", b"\0\xff\xfe", b"\xfe" * 125):
            self.assertEchoed([frame(PING, payload)], [ServerFrame(PONG, payload)])

    def test_longControl(self) -> None:
        """A control frame has 125 bytes at most."""
        for opcode in (PING, PONG, CLOSE):
            self.assertFailed([frame(opcode, b"\xfe" * 126)], PROTOCOL_ERROR)

    def test_pong(self) -> None:
        """A pong that nobody asked for is passed over."""
        self.assertEchoed(
            [frame(PONG), frame(PONG, b"x"), frame(PING, b"y")], [ServerFrame(PONG, b"y")]
        )

    def test_manyPings(self) -> None:
        """Each of many pings is answered."""
        pings = [frame(PING, b"%d" % i) for i in range(10)]
        self.assertEchoed(pings, [ServerFrame(PONG, b"%d" % i) for i in range(10)])

    def test_reservedBits(self) -> None:
        """Bits that mean nothing are refused in every kind of frame."""
        for rsv in range(1, 8):
            for opcode in (TEXT, BINARY, PING, PONG, CLOSE):
                self.assertFailed([frame(opcode, b"", rsv=rsv)], PROTOCOL_ERROR)
        self.assertFailed(
            [frame(TEXT, b"good"), frame(TEXT, b"bad", rsv=4)], PROTOCOL_ERROR, said("good")
        )

    def test_opcodes(self) -> None:
        """Opcodes that mean nothing are refused, with or without a payload."""
        for opcode in (3, 4, 5, 6, 7, 11, 12, 13, 14, 15):
            for payload in (b"", b"reserved"):
                self.assertFailed([frame(opcode, payload)], PROTOCOL_ERROR)

    def test_fragmentedControl(self) -> None:
        """A control frame is not fragmented."""
        for opcode in (PING, PONG, CLOSE):
            self.assertFailed([frame(opcode, b"", fin=False)], PROTOCOL_ERROR)


class FragmentTests(FramingCase):
    """Messages in several frames."""

    def test_fragments(self) -> None:
        """A message is put together, with empty frames anywhere."""
        for parts in ([b"a", b"b"], [b"", b"a"], [b"a", b""], [b"", b"", b""], [b"a"] * 50):
            for opcode in (TEXT, BINARY):
                opcodes = [opcode] + [CONTINUATION] * (len(parts) - 1)
                last = len(parts) - 1
                frames = [
                    frame(code, part, fin=index == last)
                    for index, (code, part) in enumerate(zip(opcodes, parts, strict=True))
                ]
                self.assertEchoed(frames, [ServerFrame(opcode, b"".join(parts))])

    def test_controlBetween(self) -> None:
        """Control frames come between the frames of a message, and are answered first."""
        self.assertEchoed(
            [
                frame(TEXT, b"a", fin=False),
                frame(PING, b"1"),
                frame(CONTINUATION, b"b", fin=False),
                frame(PONG, b"2"),
                frame(PING, b"3"),
                frame(CONTINUATION, b"c"),
            ],
            [ServerFrame(PONG, b"1"), ServerFrame(PONG, b"3"), *said("abc")],
        )

    def test_nothingToContinue(self) -> None:
        """A continuation has something to continue."""
        for fin in (True, False):
            self.assertFailed([frame(CONTINUATION, b"a", fin=fin)], PROTOCOL_ERROR)
            self.assertFailed(
                [frame(TEXT, b"a"), frame(CONTINUATION, b"b", fin=fin)], PROTOCOL_ERROR, said("a")
            )

    def test_interrupted(self) -> None:
        """A message is not begun within another."""
        for opcode in (TEXT, BINARY):
            self.assertFailed([frame(TEXT, b"a", fin=False), frame(opcode, b"b")], PROTOCOL_ERROR)


class TextTests(FramingCase):
    """Text is UTF-8."""

    GOOD = (
        KOSME,
        b"Hello-\xc2\xb5@\xc3\x9f\xc3\xb6\xc3\xa4\xc3\xbc\xc3\xa0\xc3\xa1-UTF-8!!",
        b"\xf0\x90\x80\x80",
        b"\xf4\x8f\xbf\xbf",
        b"\xed\x9f\xbf",
        b"\xee\x80\x80",
        b"\xef\xbf\xbd",
        b"\xef\xbf\xbe",
        b"\xef\xbf\xbf",
        b"\x00",
        b"\x7f",
        b"\xc2\x80",
        b"\xdf\xbf",
        b"\xe0\xa0\x80",
    )
    BAD = (
        b"\x80",
        b"\xbf",
        b"\xc0\x80",
        b"\xc0\xaf",
        b"\xc1\xbf",
        b"\xe0\x80\x80",
        b"\xe0\x9f\xbf",
        b"\xed\xa0\x80",
        b"\xed\xbf\xbf",
        b"\xf0\x80\x80\xaf",
        b"\xf0\x8f\xbf\xbf",
        b"\xf4\x90\x80\x80",
        b"\xf5\x80\x80\x80",
        b"\xf8\x88\x80\x80\x80",
        b"\xfc\x84\x80\x80\x80\x80",
        b"\xfe",
        b"\xff",
        KOSME + b"\xed\xa0\x80edited",
        b"\xc2",
        b"\xe2\x98",
        b"\xf0\x90\x80",
        b"\xc2A",
        b"\xe2\x98A",
    )

    def test_good(self) -> None:
        """UTF-8 of every length comes back, wherever it is cut into frames."""
        for text in self.GOOD:
            self.assertEchoed([frame(TEXT, text)], [ServerFrame(TEXT, text)])
            for cut in range(len(text) + 1):
                frames = [frame(TEXT, text[:cut], fin=False), frame(CONTINUATION, text[cut:])]
                self.assertEchoed(frames, [ServerFrame(TEXT, text)])

    def test_bad(self) -> None:
        """What is no UTF-8 ends the conversation."""
        for text in self.BAD:
            self.assertFailed([frame(TEXT, text)], INVALID)
            self.assertFailed([frame(TEXT, text, fin=False), frame(CONTINUATION)], INVALID)

    def test_badEarly(self) -> None:
        """The fault is found before the message is complete."""
        self.assertFailed([frame(TEXT, KOSME + b"\xf4\x90", fin=False)], INVALID)
        client = self.connect()
        client.send(frame(TEXT, KOSME + b"\xff", length=1000))
        self.assertEqual(client.heard()[0].code, INVALID)

    def test_bytes(self) -> None:
        """Bytes need not be text."""
        for text in self.BAD:
            self.assertEchoed([frame(BINARY, text)], said(text))
