"""A WebSocket adapter in memory, and clients that talk to it in messages."""

from collections.abc import Mapping
from typing import Any

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from storagegate.core.codecs import CODECS, JSON
from storagegate.gateway.messages.frames import Frame, FrameDecoder, encodeFrame
from storagegate.gateway.transports.websocket import WebSocketOptions
from storagegate.gateway.transports.websocket.listener import WebSocketTransport
from storagegate.net.websocket.connection import CLOSE_SECONDS
from tests.support.gateway import makeHost
from tests.support.wsclient import BINARY, CLOSE, TEXT, MemorySocket, ServerFrame, frame


class Talker(MemorySocket):
    """
    A client that talks in messages.

    @ivar others: What has come that is no message.
    """

    def __init__(
        self,
        adapter: Any,
        clock: Clock,
        format: str | None = None,
        address: str = "192.168.1.1",
        **fields: bytes,
    ) -> None:
        every = {name.replace("_", "-").encode(): value for name, value in fields.items()}
        if format is not None:
            every[b"sec-websocket-protocol"] = format.encode()
        super().__init__(adapter, clock, every, address=address)
        self.codec = CODECS[format or "json"] if format != "binary" else JSON
        self.others: list[ServerFrame] = []

    def say(self, *messages: Any) -> list[Any]:
        """Send messages in one piece; give what comes."""
        opcode = BINARY if self.codec.isBinary else TEXT
        self.send(b"".join(frame(opcode, self.codec.encode(each)) for each in messages))
        return self.messages()

    def messages(self) -> list[Any]:
        """Give the messages that have come since the last time."""
        opcode = BINARY if self.codec.isBinary else TEXT
        messages = []
        for each in self.heard():
            if each.opcode == opcode:
                messages.append(self.codec.decode(each.payload))
            else:
                self.others.append(each)
        return messages

    def call(self, method: str, data: Any = None, id: Any = 1, **more: Any) -> list[Any]:
        """Call a method of C{Probe}; give what comes."""
        given = {} if data is None else {"data": data}
        return self.say({"id": id, "service": "Probe", "method": method, **given, **more})

    def sayFrame(self, type: int, payload: Any) -> list[Frame]:
        """Send a frame of TCP in a message; give those that come."""
        self.send(frame(BINARY, encodeFrame(type, JSON.encode(payload))))
        frames = []
        for each in self.heard():
            assert each.opcode == BINARY, each
            decoder = FrameDecoder(1 << 20)
            decoder.feed(each.payload)
            found = decoder.next()
            assert found is not None and not decoder.held
            frames.append(found)
        return frames

    @property
    def closeCode(self) -> int | None:
        """Give the code that the server closed with."""
        self.others += self.heard()
        return next((each.code for each in self.others if each.opcode == CLOSE), None)


class WebSocketCase(SynchronousTestCase):
    """What tests of the adapter share."""

    def setUp(self) -> None:
        """Make an adapter."""
        self.clock = Clock()
        self._adapters: list[WebSocketTransport] = []
        self.addCleanup(self._end)
        self.configure()

    def configure(
        self, services: Any = (), transformError: Any = None, **options: Any
    ) -> WebSocketTransport:
        """Make the adapter."""
        self.host, self.probe = makeHost(self.clock, services, transformError)
        self.adapter = WebSocketTransport(self.host, WebSocketOptions(**options))
        self._adapters.append(self.adapter)
        return self.adapter

    def _end(self) -> None:
        """Drop what is left; nothing may stay behind."""
        closing = [adapter.close(0) for adapter in self._adapters]
        for seconds in (0, CLOSE_SECONDS, 0):
            self.clock.advance(seconds)
        for done in closing:
            self.successResultOf(done)
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def connect(self, format: str | None = None, **fields: bytes) -> Talker:
        """Make a client."""
        return Talker(self.adapter, self.clock, format, **fields)

    def connectFrom(self, address: str) -> Talker:
        """Make a client at an address."""
        return Talker(self.adapter, self.clock, address=address)

    def assertError(self, answers: list[Any], code: str, id: Any = None) -> None:
        """Check that there is one answer: an error."""
        self.assertEqual(len(answers), 1, answers)
        self.assertEqual(answers[0]["type"], "error")
        self.assertEqual(answers[0]["error"]["code"], code)
        self.assertEqual(answers[0].get("id"), id)

    def data(self, answers: list[Mapping[str, Any]]) -> list[Any]:
        """Give the data of messages."""
        return [answer["data"] for answer in answers]
