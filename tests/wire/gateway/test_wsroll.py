"""A WebSocket that is asked for on a connection of HTTP while the wires close."""

import json

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock

from storagegate.gateway.host import TransportSet
from tests.support.gateway import makeHost
from tests.support.wsclient import CLOSE, FIELDS, TEXT, closeFrame, frame, readFrames
from tests.wire.http.support import RawClient, ServedCase, get

HANDSHAKE = get(
    b"/ws", *(name + b": " + value for name, value in FIELDS.items() if name != b"host")
)


class LateTests(ServedCase):
    """The first WebSocket of a process comes when that is about to go."""

    async def connected(self) -> RawClient:
        """Serve, and connect a client."""
        self.clock = Clock()
        host, _ = makeHost(self.clock, reactor=self.reactor)
        self.transports = TransportSet(host)
        port = await self.transports.open("http", "tcp:0:interface=127.0.0.1")
        return await self.connect(port)

    async def test_patience(self) -> None:
        """Where another process serves the place, it is one, and ends in order."""
        client = await self.connected()
        closed = Deferred.fromCoroutine(self.transports.close(60, 60))
        client.write(HANDSHAKE)
        await client.until(b"\r\n\r\n")
        self.assertTrue(client.received.startswith(b"HTTP/1.1 101"), client.received)
        client.received = b""
        call = {"id": 1, "service": "Probe", "method": "echo", "data": {"text": "a"}}
        client.write(frame(TEXT, json.dumps(call).encode()))
        # Answers are held back for two turns.
        await self.turnUntil(lambda: any(not each.getTime() for each in self.clock.calls))
        self.clock.advance(0)
        self.clock.advance(0)
        await client.until(lambda received: len(readFrames(received)[0]) == 2)
        answer, goodbye = readFrames(client.received)[0]
        self.assertEqual(json.loads(answer.payload)["data"], {"text": "a"})
        self.assertEqual((goodbye.opcode, goodbye.code), (CLOSE, 1001))
        client.write(closeFrame(1001))
        await client.closed
        for seconds in (60, 0, 0):
            self.clock.advance(seconds)
        await closed

    async def test_end(self) -> None:
        """Where everything ends, it is none, though the request was in time."""
        client = await self.connected()
        client.write(HANDSHAKE)
        closed = Deferred.fromCoroutine(self.transports.close(60))
        await client.until(b"\r\n\r\n")
        self.assertTrue(client.received.startswith(b"HTTP/1.1 503"), client.received)
        await closed
