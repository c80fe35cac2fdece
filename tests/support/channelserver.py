"""A client's channel in memory, and the server's end of its connections, frame by frame."""

from typing import Any

from hpack import Decoder, Encoder
from hyperframe.frame import (
    DataFrame,
    Frame,
    GoAwayFrame,
    HeadersFrame,
    PingFrame,
    RstStreamFrame,
    SettingsFrame,
    WindowUpdateFrame,
)
from twisted.internet.error import ConnectionDone, ConnectionRefusedError
from twisted.internet.testing import MemoryReactorClock, StringTransport
from twisted.python.failure import Failure

from storagegate.net.http2.frames import PREFACE
from storagegate.rpc.client import readOptions
from storagegate.rpc.engine.native.channel import NativeChannel

Fields = list[tuple[str, str]]

HEAD: Fields = [(":status", "200"), ("content-type", "application/grpc")]
OK: Fields = [("grpc-status", "0")]


class ClientTransport(StringTransport):
    """
    The transport of a client's connection.

    @ivar isAborted: Whether the client has dropped the connection.
    """

    isAborted = False

    def abortConnection(self) -> None:
        """Note that the connection was dropped."""
        self.isAborted = True
        self.loseConnection()


class ServerSide:
    """
    The server's end of a connection.

    @ivar requests: The fields of the heads that were received, by stream.
    @ivar blocks: Their encoded forms.
    @ivar frames: All frames that were received.
    @ivar body: The bytes that were received, by stream.
    """

    def __init__(self, protocol: Any) -> None:
        self._protocol = protocol
        self.transport = ClientTransport()
        self._wire = b""
        self._isGreeted = False
        self.encoder = Encoder()
        self.decoder = Decoder()
        self.requests: dict[int, dict[str, str]] = {}
        self.blocks: dict[int, bytes] = {}
        self.body: dict[int, bytes] = {}
        self.frames: list[Frame] = []
        protocol.makeConnection(self.transport)

    def receive(self) -> list[Frame]:
        """Take the frames that the client has sent since the last call."""
        self._wire += self.transport.value()
        self.transport.clear()
        if not self._isGreeted and len(self._wire) >= len(PREFACE):
            assert self._wire.startswith(PREFACE)
            self._wire = self._wire[len(PREFACE) :]
            self._isGreeted = True
        found: list[Frame] = []
        while len(self._wire) >= 9:
            frame, length = Frame.parse_frame_header(memoryview(self._wire[:9]))
            frame.parse_body(memoryview(self._wire[9 : 9 + length]))
            self._wire = self._wire[9 + length :]
            found.append(frame)
            if isinstance(frame, HeadersFrame):
                self.blocks[frame.stream_id] = bytes(frame.data)
                self.requests[frame.stream_id] = dict(self.decoder.decode(frame.data))
                self.body.setdefault(frame.stream_id, b"")
            elif isinstance(frame, DataFrame):
                self.body[frame.stream_id] += bytes(frame.data)
        self.frames += found
        return found

    def resets(self) -> dict[int, int]:
        """Return the codes of all resets of the client, by stream."""
        self.receive()
        return {
            each.stream_id: each.error_code
            for each in self.frames
            if isinstance(each, RstStreamFrame)
        }

    def granted(self, stream: int) -> int:
        """Return how many bytes the client has granted a stream."""
        self.receive()
        return sum(
            each.window_increment
            for each in self.frames
            if isinstance(each, WindowUpdateFrame) and each.stream_id == stream
        )

    def pings(self) -> list[PingFrame]:
        """Return all pings of the client."""
        self.receive()
        return [each for each in self.frames if isinstance(each, PingFrame)]

    def wire(self, data: bytes) -> None:
        """Send bytes."""
        self._protocol.dataReceived(data)

    def send(self, *frames: Frame) -> None:
        """Send frames at once."""
        self.wire(b"".join(each.serialize() for each in frames))

    def settings(self, **values: int) -> None:
        """Send the settings of a server."""
        frame = SettingsFrame(0)
        for name, value in values.items():
            frame.settings[getattr(SettingsFrame, name)] = value
        self.send(frame)

    def headers(self, stream: int, fields: Fields, isLast: bool = False) -> None:
        """Send a header block."""
        flags = ["END_HEADERS", "END_STREAM"] if isLast else ["END_HEADERS"]
        self.send(HeadersFrame(stream, data=self.encoder.encode(fields), flags=flags))

    def data(self, stream: int, body: bytes, isLast: bool = False) -> None:
        """Send bytes of a body."""
        pieces = [body[at : at + 16_384] for at in range(0, len(body), 16_384)] or [b""]
        for at, piece in enumerate(pieces):
            isEnd = isLast and at == len(pieces) - 1
            self.send(DataFrame(stream, data=piece, flags=["END_STREAM"] if isEnd else []))

    def answer(self, stream: int, body: bytes, fields: Fields = OK) -> None:
        """Send a whole response."""
        self.headers(stream, HEAD)
        self.data(stream, body)
        self.headers(stream, fields, isLast=True)

    def reset(self, stream: int, code: int) -> None:
        """Reset a stream."""
        self.send(RstStreamFrame(stream, error_code=code))

    def goAway(self, last: int, code: int = 0, text: bytes = b"") -> None:
        """Send GOAWAY."""
        self.send(GoAwayFrame(0, last_stream_id=last, error_code=code, additional_data=text))

    def lose(self) -> None:
        """Lose the connection."""
        self._protocol.connectionLost(Failure(ConnectionDone()))


class _Reactor(MemoryReactorClock):
    """A reactor that takes calls from threads."""

    def callFromThread(self, function: Any, *arguments: Any) -> None:
        """Make a call in the next iteration."""
        self.callLater(0, function, *arguments)


class MemoryChannel:
    """
    A channel in memory.

    @ivar reactor: Its reactor, whose time the test advances.
    @ivar engine: The channel.
    """

    def __init__(self, target: str = "ipv4:192.0.2.1:443", **options: Any) -> None:
        self.reactor = _Reactor()
        self.engine = NativeChannel(
            target, None, readOptions(options), self.reactor, lambda least, most: most
        )
        self._taken = 0

    @property
    def attempts(self) -> int:
        """Return how many connections the client has begun."""
        return len(self.reactor.tcpClients)

    def accept(self, **settings: int) -> ServerSide:
        """Accept the client's next connection, and send settings."""
        server = self.acceptSilently()
        server.settings(**settings)
        self.turn()
        return server

    def acceptSilently(self) -> ServerSide:
        """Accept the client's next connection."""
        _, _, factory, _, _ = self.reactor.tcpClients[self._taken]
        self._taken += 1
        return ServerSide(factory.buildProtocol(None))

    def refuse(self) -> None:
        """Refuse the client's next connection."""
        _, _, factory, _, _ = self.reactor.tcpClients[self._taken]
        connector = self.reactor.connectors[self._taken]
        self._taken += 1
        factory.clientConnectionFailed(connector, Failure(ConnectionRefusedError()))

    def turn(self, seconds: float = 0.0) -> None:
        """Let time pass."""
        self.reactor.advance(seconds)
