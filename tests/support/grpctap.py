"""
A relay that reads along: which messages of which call were compressed, in both directions.

No client tells whether a message came compressed, and none should have to: the first byte of each
message says so on the wire.
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
# What a peer may be allowed for its table of fields; the tap never answers, so it takes any.
_TABLE_BYTES = 1 << 20


@define
class MessageReader:
    """
    One direction of a call.

    @ivar flags: The flag of each message that is complete: 1 if it is compressed.
    @ivar fields: The first head, names in lower case.
    """

    flags: list[int] = field(factory=list)
    fields: dict[str, str] = field(factory=dict)
    _rest: bytearray = field(factory=bytearray)

    def feed(self, data: bytes) -> None:
        """Take bytes of the call."""
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
    One direction of a connection: RFC 9113 as far as it takes to follow its calls.

    @ivar calls: What the direction carries of each call, by the number of its stream.
    """

    calls: dict[int, MessageReader] = field(factory=dict)
    _rest: bytearray = field(factory=bytearray)
    _block: bytearray = field(factory=bytearray)
    _decoder: Any = field(factory=Decoder)

    def __attrs_post_init__(self) -> None:
        self._decoder.max_allowed_table_size = _TABLE_BYTES

    def feed(self, data: bytes) -> None:
        """Take bytes of the connection."""
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
                # Every block has to be read, trailers too: they change the table of fields.
                fields = dict(self._decoder.decode(bytes(self._block)))
                call.fields = call.fields or fields
                self._block.clear()


@define
class Tap:
    """
    What was seen of all connections.

    @ivar connections: A reader for what the client sent and one for what the server did, of each.
    """

    connections: list[tuple[FrameReader, FrameReader]] = field(factory=list)

    def find(self, name: str, value: str) -> tuple[MessageReader, MessageReader]:
        """
        Give the two directions of the call that was made with some metadata.

        @raise LookupError: If there was not exactly one.
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
        """Read along what the server sends."""
        self.peer.readers[1].feed(data)
        super().dataReceived(data)


class _OutgoingFactory(ProxyClientFactory):
    protocol = _Outgoing


class _Incoming(ProxyServer):
    """The connection of a client."""

    clientProtocolFactory = _OutgoingFactory

    def connectionMade(self) -> None:
        """Begin to read along."""
        self.readers = (FrameReader(), FrameReader())
        self.factory.tap.connections.append(self.readers)
        super().connectionMade()

    def dataReceived(self, data: bytes) -> None:
        """Read along what the client sends."""
        self.readers[0].feed(data)
        super().dataReceived(data)


class _RelayFactory(ProxyFactory):
    protocol = _Incoming
    noisy = False


def listenTapped(reactor: Any, port: int) -> tuple[Tap, IListeningPort]:
    """Put a tap before a port of this machine; give it and the port where it listens."""
    factory = _RelayFactory("127.0.0.1", port)
    factory.tap = Tap()
    return factory.tap, reactor.listenTCP(0, factory, interface="127.0.0.1")
