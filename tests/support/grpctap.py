"""
A relay that records which messages of which call were compressed, in both directions.

Clients do not report whether a message was compressed, but its first byte on the wire does.
"""

import struct
from typing import Any

from attrs import define, field
from hpack import Decoder
from twisted.internet.interfaces import IListeningPort
from twisted.protocols.portforward import ProxyClient, ProxyClientFactory, ProxyFactory, ProxyServer

_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_DATA, _HEADERS, _CONTINUATION = 0, 1, 9
_END_HEADERS, _PADDED, _PRIORITY = 4, 8, 32
# Upper limit of a peer's header table; the tap never answers, so it accepts any size.
_TABLE_BYTES = 1 << 20


@define
class MessageReader:
    """
    One direction of a call.

    @ivar flags: The flag of each complete message: 1 if it is compressed.
    @ivar fields: The first header block, with lower-case names.
    """

    flags: list[int] = field(factory=list)
    fields: dict[str, str] = field(factory=dict)
    _rest: bytearray = field(factory=bytearray)

    def feed(self, data: bytes) -> None:
        """Process bytes of the call."""
        self._rest += data
        while len(self._rest) >= 5:
            flag, length = struct.unpack_from(">BI", self._rest)
            if len(self._rest) < 5 + length:
                break
            self.flags.append(flag)
            del self._rest[: 5 + length]


@define
class FrameReader:
    """
    One direction of a connection: the part of RFC 9113 that is needed to follow its calls.

    @ivar calls: The reader of each call, by the number of its stream.
    """

    calls: dict[int, MessageReader] = field(factory=dict)
    _rest: bytearray = field(factory=bytearray)
    _block: bytearray = field(factory=bytearray)
    _decoder: Any = field(factory=Decoder)

    def __attrs_post_init__(self) -> None:
        self._decoder.max_allowed_table_size = _TABLE_BYTES

    def feed(self, data: bytes) -> None:
        """Process bytes of the connection."""
        self._rest += data
        if self._rest.startswith(_PREFACE):
            del self._rest[: len(_PREFACE)]
        while len(self._rest) >= 9 and not _PREFACE.startswith(self._rest):
            length = int.from_bytes(self._rest[:3])
            if len(self._rest) < 9 + length:
                break
            kind, flags, stream = struct.unpack_from(">BBI", self._rest, 3)
            self._frame(kind, flags, stream, bytes(self._rest[9 : 9 + length]))
            del self._rest[: 9 + length]

    def _frame(self, kind: int, flags: int, stream: int, payload: bytes) -> None:
        if kind in (_DATA, _HEADERS) and flags & _PADDED:
            payload = payload[1 : len(payload) - payload[0]]
        call = self.calls.setdefault(stream, MessageReader())
        if kind == _DATA:
            call.feed(payload)
        elif kind in (_HEADERS, _CONTINUATION):
            self._block += payload[5:] if kind == _HEADERS and flags & _PRIORITY else payload
            if flags & _END_HEADERS:
                # Every block must be decoded, even trailers, because they change the header table.
                fields = dict(self._decoder.decode(bytes(self._block)))
                call.fields = call.fields or fields
                self._block.clear()


@define
class Tap:
    """
    The recorded connections.

    @ivar connections: For each connection a reader of the client's bytes and a reader of the
        server's bytes.
    """

    connections: list[tuple[FrameReader, FrameReader]] = field(factory=list)

    def find(self, name: str, value: str) -> tuple[MessageReader, MessageReader]:
        """
        Return the two directions of the call with the given metadata.

        @raise LookupError: If the number of such calls is not one.
        """
        found = [
            (request, responses.calls.get(stream, MessageReader()))
            for requests, responses in self.connections
            for stream, request in requests.calls.items()
            if request.fields.get(name) == value
        ]
        if len(found) != 1:
            raise LookupError(f"{len(found)} calls with {name}: {value}")
        return found[0]


class _Outgoing(ProxyClient):
    """The connection to the server."""

    def dataReceived(self, data: bytes) -> None:
        """Record bytes from the server."""
        self.peer.readers[1].feed(data)
        super().dataReceived(data)


class _OutgoingFactory(ProxyClientFactory):
    protocol = _Outgoing


class _Incoming(ProxyServer):
    """The connection of a client."""

    clientProtocolFactory = _OutgoingFactory

    def connectionMade(self) -> None:
        """Start to record."""
        self.readers = (FrameReader(), FrameReader())
        self.factory.tap.connections.append(self.readers)
        super().connectionMade()

    def dataReceived(self, data: bytes) -> None:
        """Record bytes from the client."""
        self.readers[0].feed(data)
        super().dataReceived(data)


class _RelayFactory(ProxyFactory):
    protocol = _Incoming
    noisy = False


def listenTapped(reactor: Any, port: int) -> tuple[Tap, IListeningPort]:
    """Put a tap in front of a local port; return it and its own port."""
    factory = _RelayFactory("127.0.0.1", port)
    factory.tap = Tap()
    return factory.tap, reactor.listenTCP(0, factory, interface="127.0.0.1")
