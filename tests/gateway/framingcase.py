"""Framing of WebSocket: a server that says everything again, and how it is talked to."""

from collections.abc import Iterable

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from storagegate.gateway.transports.websocket import WebSocketOptions
from tests.support.gateway import makeHost
from tests.support.wsclient import (
    BINARY,
    CLOSE,
    PING,
    TEXT,
    MemorySocket,
    ServerFrame,
    frame,
)
from tests.support.wsecho import EchoAdapter

LIMIT = 1024 * 1024
"""Bytes of a message that the server takes."""

PROTOCOL_ERROR, INVALID, TOO_BIG = 1002, 1007, 1009


def said(*payloads: bytes | str) -> list[ServerFrame]:
    """Give the messages that an echo says: text for text, bytes for bytes."""
    return [
        ServerFrame(TEXT, each.encode()) if isinstance(each, str) else ServerFrame(BINARY, each)
        for each in payloads
    ]


class FramingCase(SynchronousTestCase):
    """What the cases of this file share."""

    compresses = False

    def setUp(self) -> None:
        """Make the server."""
        self.clock = Clock()
        host, _ = makeHost(self.clock)
        options = WebSocketOptions(maxMessageSize=LIMIT, enableCompression=self.compresses)
        self.adapter = EchoAdapter(host, options)

    def connect(self) -> MemorySocket:
        """Make a client."""
        fields = {b"sec-websocket-extensions": b"permessage-deflate"} if self.compresses else {}
        return MemorySocket(self.adapter, self.clock, fields)

    def conversations(self, frames: Iterable[bytes]) -> Iterable[tuple[str, MemorySocket]]:
        """Say the same in one piece, frame by frame, and byte by byte."""
        pieces = list(frames)
        whole = b"".join(pieces)
        ways = {"whole": [whole], "frames": pieces}
        if len(whole) < 2000:
            ways["bytes"] = [whole[i : i + 1] for i in range(len(whole))]
        for way, parts in ways.items():
            client = self.connect()
            client.send(*parts)
            self.clock.advance(0)
            yield way, client

    def assertEchoed(self, frames: Iterable[bytes], expected: list[ServerFrame]) -> None:
        """Check what a conversation is answered with, and that it could go on."""
        for way, client in self.conversations(frames):
            self.assertEqual(client.heard(), expected, way)
            client.send(frame(TEXT, b"on"))
            self.assertEqual(client.heard(), said("on"), way)

    def assertFailed(
        self, frames: Iterable[bytes], code: int, before: list[ServerFrame] | None = None
    ) -> None:
        """Check that a conversation is closed, and that nothing after its fault is looked at."""
        for way, client in self.conversations([*frames, frame(TEXT, b"after"), frame(PING)]):
            *answers, last = client.heard()
            self.assertEqual(answers, before or [], way)
            self.assertEqual((last.opcode, last.code), (CLOSE, code), way)
            self.assertTrue(self.adapter.latest.isLost, way)
            self.clock.advance(60)
            self.assertTrue(client.transport.isOver, way)
