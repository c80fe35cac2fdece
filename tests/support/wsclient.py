"""The client's side of WebSocket, frame by frame, without any checks."""

import struct
import zlib
from base64 import b64encode
from collections.abc import Mapping
from hashlib import sha1
from typing import Any

from attrs import define, field, frozen
from twisted.internet.error import ConnectionAborted, ConnectionDone
from twisted.internet.interfaces import IReactorTime
from twisted.internet.testing import StringTransport
from twisted.python.failure import Failure

KEY = b"dGhlIHNhbXBsZSBub25jZQ=="
ACCEPT = b64encode(sha1(KEY + b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11").digest())

CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG = 0, 1, 2, 8, 9, 10

FIELDS: Mapping[bytes, bytes] = {
    b"host": b"localhost",
    b"upgrade": b"websocket",
    b"connection": b"Upgrade",
    b"sec-websocket-version": b"13",
    b"sec-websocket-key": KEY,
}


@frozen
class ServerFrame:
    """A received server frame."""

    opcode: int
    payload: bytes
    fin: bool = True
    rsv: int = 0

    @property
    def code(self) -> int | None:
        """Return the code of a close frame; C{None} if it has none."""
        return struct.unpack("!H", self.payload[:2])[0] if self.payload else None


def frame(
    opcode: int,
    payload: bytes = b"",
    fin: bool = True,
    rsv: int = 0,
    mask: bytes | None = b"\x12\x34\x56\x78",
    length: int | None = None,
    width: int | None = None,
) -> bytes:
    """
    Encode a frame.

    @param mask: The mask; C{None} for an unmasked frame.
    @param length: The length in the header, if it differs from the real one.
    @param width: The number of additional length bytes; the default is the minimum.
    """
    size = len(payload) if length is None else length
    if width is None:
        width = 0 if size < 126 else 2 if size < 1 << 16 else 8
    first = (0x80 if fin else 0) | rsv << 4 | opcode
    second = 0 if mask is None else 0x80
    head = bytes((first, second | {0: size, 2: 126, 8: 127}[width])) + (
        size.to_bytes(width, "big") if width else b""
    )
    return head + (payload if mask is None else mask + masked(payload, mask))


def masked(payload: bytes, mask: bytes) -> bytes:
    """Mask or unmask a payload."""
    stream = (mask * (len(payload) // 4 + 1))[: len(payload)]
    size = len(payload)
    return (int.from_bytes(payload, "big") ^ int.from_bytes(stream, "big")).to_bytes(size, "big")


def closeFrame(code: int | None = None, reason: bytes = b"") -> bytes:
    """Encode a close frame."""
    return frame(CLOSE, b"" if code is None else struct.pack("!H", code) + reason)


def readFrames(wire: bytes) -> tuple[list[ServerFrame], bytes]:
    """
    Decode a server's frames.

    @return: The frames, and the remaining bytes.
    @raise AssertionError: If a frame is masked, or its length is not encoded minimally.
    """
    frames: list[ServerFrame] = []
    while len(wire) >= 2:
        first, second = wire[0], wire[1]
        assert not second & 0x80, "a server masks nothing"
        width = {126: 2, 127: 8}.get(second, 0)
        if len(wire) < 2 + width:
            break
        size = int.from_bytes(wire[2 : 2 + width], "big") if width else second
        assert width != 2 or size >= 126, "a length is longer than it has to be"
        assert width != 8 or size >= 1 << 16, "a length is longer than it has to be"
        end = 2 + width + size
        if len(wire) < end:
            break
        frames.append(
            ServerFrame(first & 0xF, wire[2 + width : end], bool(first & 0x80), first >> 4 & 7)
        )
        wire = wire[end:]
    return frames, wire


def inflated(payload: bytes) -> bytes:
    """Inflate an independent message."""
    return zlib.decompressobj(-15).decompress(payload + b"\0\0\xff\xff")


def deflated(payload: bytes) -> bytes:
    """Deflate a message independently."""
    compressor = zlib.compressobj(wbits=-15)
    return (compressor.compress(payload) + compressor.flush(zlib.Z_SYNC_FLUSH))[:-4]


class MemoryTransport(StringTransport):
    """
    An in-memory connection that ends like a real one: asynchronously, and once.

    @ivar isAborted: Whether it was aborted.
    @ivar isHalfClosed: Whether this end is closed while the other may still send.
    """

    def __init__(self, clock: IReactorTime) -> None:
        super().__init__()
        self.clock = clock
        self.isAborted = self.isHalfClosed = False
        self.protocol: Any = None
        self._ending: Any = None

    def setTcpNoDelay(self, enabled: bool) -> None:
        """Do nothing."""

    def loseConnection(self) -> None:
        """Close, unless a producer is registered."""
        self.disconnecting = True
        if self.producer is None:
            self._end(ConnectionDone())

    def abortConnection(self) -> None:
        """Abort the connection."""
        if not self.isAborted:
            self.isAborted = True
            self._end(ConnectionAborted())

    def unregisterProducer(self) -> None:
        """Remove the producer."""
        self.producer = None
        if self.disconnecting:
            self._end(ConnectionDone())

    def _end(self, reason: Exception) -> None:
        if self._ending is None:
            self._ending = self.clock.callLater(0, self.protocol.connectionLost, Failure(reason))

    @property
    def isOver(self) -> bool:
        """Return whether the connection has ended."""
        return self._ending is not None


@define
class MemoryRequest:
    """
    A WebSocket request with the part of the interface that the adapter uses; it is its own
    connection.
    """

    headers: dict[bytes, bytes]
    transport: MemoryTransport
    method: bytes = b"GET"
    version: bytes = b"HTTP/1.1"
    secure: bool = False
    clientHost: str = "192.168.1.1"
    clientPort: int = 54321
    ip: str = "192.168.1.1"
    leftover: bytes = b""
    disconnected: bool = False
    protocol: Any = None

    @property
    def raw(self) -> "MemoryRequest":
        """Return the connection's own request."""
        return self

    def upgrade(self, protocol: Any) -> None:
        """Hand the connection to a protocol."""
        self.protocol = self.transport.protocol = protocol
        protocol.makeConnection(self.transport)
        if self.leftover:
            protocol.dataReceived(self.leftover)


@define
class MemoryResponse:
    """The response to a rejected handshake."""

    code: int | None = None
    fields: dict[str, str] = field(factory=dict)
    body: Any = None

    def status(self, code: int) -> "MemoryResponse":
        """Set the status."""
        self.code = code
        return self

    def header(self, fields: Mapping[str, str]) -> "MemoryResponse":
        """Set fields."""
        self.fields.update(fields)
        return self

    def setChecked(self, fields: Mapping[str, tuple[str, str]]) -> None:
        """Set checked fields, by their lower-case names."""
        self.fields.update(fields.values())

    def json(self, body: Any) -> "MemoryResponse":
        """Send a body."""
        self.body = body
        return self


class MemorySocket:
    """
    An in-memory client of an adapter.

    @ivar response: The response in place of a WebSocket.
    @ivar head: The head of the handshake response.
    @ivar transport: The server's end of the connection.
    """

    def __init__(
        self,
        adapter: Any,
        clock: IReactorTime,
        fields: Mapping[bytes, bytes] | None = None,
        leftover: bytes = b"",
        address: str = "192.168.1.1",
    ) -> None:
        """
        @param fields: Additional fields of the handshake.
        @param leftover: Bytes that follow the handshake immediately.
        @param address: The address of the client, as from a trusted proxy.
        """
        self.transport = MemoryTransport(clock)
        self.response = MemoryResponse()
        request = MemoryRequest(
            {**FIELDS, **(fields or {})}, self.transport, leftover=leftover, ip=address
        )
        adapter.answer(request, self.response)
        self.wire = request.protocol
        self.head, _, self._unread = self.transport.value().partition(b"\r\n\r\n")
        self.transport.clear()

    def send(self, *frames: bytes) -> None:
        """Send bytes, each piece separately."""
        for piece in frames:
            self.wire.dataReceived(piece)

    def heard(self) -> list[ServerFrame]:
        """Return the frames received since the last call."""
        frames, self._unread = readFrames(self._unread + self.transport.value())
        self.transport.clear()
        return frames
