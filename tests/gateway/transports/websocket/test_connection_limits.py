"""WebSocket: closing, compression and limits, frame by frame."""

import zlib

from tests.gateway.framingcase import INVALID, LIMIT, PROTOCOL_ERROR, TOO_BIG, FramingCase, said
from tests.support.wsclient import (
    BINARY,
    CLOSE,
    CONTINUATION,
    PING,
    TEXT,
    closeFrame,
    deflated,
    frame,
    inflated,
)

SNOWMAN = "\N{SNOWMAN}".encode()


class CloseTests(FramingCase):
    """Closing."""

    def assertClosed(self, close: bytes, code: int | None) -> None:
        """Check how a close is answered, and that nothing after it is."""
        for way, client in self.conversations([close, frame(TEXT, b"after"), frame(PING)]):
            (answer,) = client.heard()
            self.assertEqual((answer.opcode, answer.code), (CLOSE, code), way)
            self.clock.advance(0)
            self.assertTrue(client.transport.isOver, way)
            self.assertFalse(client.transport.isAborted, way)
            self.assertTrue(self.adapter.latest.isLost, way)

    def test_close(self) -> None:
        """A close is answered by one with its code, and the connection ends."""
        self.assertClosed(closeFrame(), None)
        for code in (1000, 1001, 1002, 1003, 1007, 1008, 1009, 1010, 1011, 3000, 3999, 4000, 4999):
            self.assertClosed(closeFrame(code), code)
        self.assertClosed(closeFrame(1000, b"*" * 123), 1000)
        self.assertClosed(closeFrame(1000, SNOWMAN), 1000)

    def test_badCodes(self) -> None:
        """Codes that nobody may send are refused."""
        for code in (0, 999, 1004, 1005, 1006, 1016, 1100, 2000, 2999, 5000, 65535):
            self.assertFailed([closeFrame(code)], PROTOCOL_ERROR)

    def test_badBodies(self) -> None:
        """A close has a whole code, and a reason that is text."""
        self.assertFailed([frame(CLOSE, b"\x03")], PROTOCOL_ERROR)
        self.assertFailed([closeFrame(1000, b"*" * 124)], PROTOCOL_ERROR)
        for reason in (b"\xce\xba\xed\xa0\x80", b"\xff", SNOWMAN[:2]):
            self.assertFailed([closeFrame(1000, reason)], INVALID)

    def test_unfinishedMessage(self) -> None:
        """A close within a message is one all the same."""
        client = self.connect()
        client.send(frame(TEXT, b"a", fin=False), closeFrame(1000))
        (answer,) = client.heard()
        self.assertEqual(answer.code, 1000)


class FragmentTests(FramingCase):
    """Messages in many frames."""

    def fragments(self, count: int, payload: bytes) -> bytes:
        """Give the first frames of a message, as many as C{count} and one."""
        more = frame(CONTINUATION, payload, fin=False) * count
        return frame(BINARY, payload, fin=False) + more

    def test_many(self) -> None:
        """A message may have a frame for each byte, and a few empty ones."""
        client = self.connect()
        client.send(self.fragments(9_999, b"ab"))
        self.assertLess(len(client.wire.message_data), 2_000)
        client.send(frame(CONTINUATION, b"", fin=False), frame(CONTINUATION, b""))
        self.assertEqual(client.heard(), said(b"ab" * 10_000))
        client.send(frame(TEXT, b"on"))
        self.assertEqual(client.heard(), said("on"))


class CompressionTests(FramingCase):
    """Messages that are deflated."""

    compresses = True

    def test_agreed(self) -> None:
        """Compression is agreed on, and small answers go without."""
        client = self.connect()
        self.assertIn(b"Sec-WebSocket-Extensions: permessage-deflate", client.head)
        client.send(frame(TEXT, deflated(b"small"), rsv=4), frame(TEXT, b"plain"))
        self.assertEqual(client.heard(), said("small", "plain"))

    def test_large(self) -> None:
        """Large answers are deflated."""
        client = self.connect()
        client.send(frame(TEXT, deflated(b"*" * 5000), rsv=4))
        (answer,) = client.heard()
        self.assertEqual((answer.rsv, inflated(answer.payload)), (4, b"*" * 5000))

    def test_fragments(self) -> None:
        """Only the first frame of a message says that it is deflated."""
        data = deflated(b"abcdefgh")
        self.assertEchoed(
            [frame(TEXT, data[:3], fin=False, rsv=4), frame(CONTINUATION, data[3:])],
            said("abcdefgh"),
        )
        self.assertFailed(
            [frame(TEXT, data[:3], fin=False, rsv=4), frame(CONTINUATION, data[3:], rsv=4)],
            PROTOCOL_ERROR,
        )
        self.assertFailed([frame(PING, deflated(b"a"), rsv=4)], PROTOCOL_ERROR)

    def test_corrupt(self) -> None:
        """What cannot be inflated ends the conversation."""
        self.assertFailed([frame(BINARY, b"\xff" * 20, rsv=4)], INVALID)

    def test_badText(self) -> None:
        """Text is UTF-8 when it is inflated."""
        self.assertFailed([frame(TEXT, deflated(b"\xff"), rsv=4)], INVALID)

    def test_final(self) -> None:
        """A message may end with a final block (RFC 7692 7.2.3.4); the next one begins anew."""
        compressor = zlib.compressobj(wbits=-15)
        final = compressor.compress(b"Hello") + compressor.flush()
        self.assertEchoed(
            [
                frame(TEXT, final + b"\0", rsv=4),
                frame(TEXT, final, rsv=4),
                frame(TEXT, deflated(b"on"), rsv=4),
            ],
            said("Hello", "Hello", "on"),
        )

    def test_afterFinal(self) -> None:
        """
        Data after a final block are refused: the inflater would keep them, of every later message.
        """
        compressor = zlib.compressobj(wbits=-15)
        final = compressor.compress(b"Hello") + compressor.flush()
        self.assertFailed([frame(TEXT, final + b"more", rsv=4)], INVALID)
        self.assertFailed(
            [frame(TEXT, final, fin=False, rsv=4), frame(CONTINUATION, b"more")], INVALID
        )

    def test_bomb(self) -> None:
        """What inflates beyond the limit is cut off, in one frame or in many."""
        bomb = deflated(bytes(50 * LIMIT))
        self.assertLess(len(bomb), LIMIT)
        self.assertFailed([frame(BINARY, bomb, rsv=4)], TOO_BIG)
        part = len(bomb) // 5
        self.assertFailed(
            [
                frame(BINARY, bomb[:part], fin=False, rsv=4),
                *(
                    frame(CONTINUATION, bomb[i : i + part], fin=False)
                    for i in range(part, len(bomb), part)
                ),
            ],
            TOO_BIG,
        )

    def test_limit(self) -> None:
        """A message of just the limit is taken."""
        client = self.connect()
        client.send(frame(BINARY, deflated(bytes(LIMIT)), rsv=4))
        self.assertEqual(inflated(client.heard()[0].payload), bytes(LIMIT))


class LimitTests(FramingCase):
    """What has no end of its own."""

    def test_size(self) -> None:
        """A message that says it is too large is refused before it comes, however it comes."""
        for size in (LIMIT + 1, 1 << 40, (1 << 63) - 1):
            self.assertFailed([frame(BINARY, b"begun", length=size)], TOO_BIG)
        half = bytes(LIMIT // 2)
        self.assertFailed(
            [
                frame(BINARY, half, fin=False),
                frame(CONTINUATION, half, fin=False),
                frame(CONTINUATION, b"x", fin=False),
            ],
            TOO_BIG,
        )

    def test_emptyFrames(self) -> None:
        """A message of thousands of empty frames is cut off."""
        frames = [frame(TEXT, fin=False)] + [frame(CONTINUATION, fin=False)] * 20_000
        self.assertFailed([b"".join(frames)], TOO_BIG)

    def test_manyFrames(self) -> None:
        """A large message may come in frames of 256 bytes."""
        count = LIMIT // 256
        frames = [frame(TEXT, b"*" * 256, fin=False)]
        frames += [frame(CONTINUATION, b"*" * 256, fin=False)] * (count - 2)
        frames.append(frame(CONTINUATION, b"*" * 256))
        self.assertEchoed([b"".join(frames)], said("*" * LIMIT))
