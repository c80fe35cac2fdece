"""
The binary frames of TCP, UDP and WebSocket's binary format, and the lines of JSON on TCP.

All integers are big-endian::

    frame       = version type length payload
    version     = %x01                  1 byte
    type        = OCTET                 1 byte, one of those below
    length      = 4OCTET                of the payload in bytes
    payload     = *OCTET                JSON in UTF-8; that of a ping is anything

    type    from     payload
    1       client   {service, method, data?, id?, auth?: {token}, deadlineMs?, seq?, traceparent?,
                     tracestate?}
    2       server   the result, or {id, data}
    3       server   {error, message, details?, id?}
    4       server   an item of a stream, or {id, data}
    5       server   {} or {id}: the end of a stream
    6       both     a ping: anything
    7       both     a pong: what the ping had
    8       client   {} or {id}: the call is given up
    9       server   {id}: the request is here (UDP)
    10      client   {data} or {id, data}: an item of the client's stream
    11      client   {} or {id}: its end
    12      server   {}: no further calls are taken

What has an C{id} has that of the request. Unknown keys are ignored.

JSON on TCP has one message a line::

    line        = *OCTET LF             a CR before the LF is white space of JSON

Twisted's C{LineReceiver} searches and copies all buffered bytes for each piece received, so that
15 MiB received byte by byte take 25 ms a byte. L{LineDecoder} resumes where it stopped.
"""

from collections.abc import Awaitable, Callable
from functools import partial
from struct import Struct
from typing import Any

import msgspec

from storagegate.core.codecs import INLINE_SIZE, JSON, isLarge
from storagegate.core.errors import ServiceError, codedError
from storagegate.core.heldbytes import HeldBuffer
from storagegate.gateway.host import TransportContext
from storagegate.gateway.messages.interfaces import MessageId, detailedError
from storagegate.gateway.messages.json import ReplyWriter
from storagegate.gateway.messages.session import Decoded, PeerSession, readId


def frameResult(id: MessageId, result: Any) -> Any:
    """Return the payload of a result, or of an item."""
    return result if id is None else {"id": id, "data": result}


def frameEnd(id: MessageId) -> dict[str, Any]:
    """Return the payload of a stream's end."""
    return {} if id is None else {"id": id}


def frameError(id: MessageId, error: ServiceError) -> dict[str, Any]:
    """
    Return the payload of an error.

    @param error: The error after C{transformError}.
    """
    payload = detailedError({"error": error.code, "message": error.message}, error)
    return payload if id is None else {"id": id, **payload}


VERSION = 1

REQUEST = 1
RESPONSE = 2
ERROR = 3
ITEM = 4
END = 5
PING = 6
PONG = 7
CANCEL = 8
ACK = 9
CLIENT_ITEM = 10
CLIENT_END = 11
GOING_AWAY = 12

_PROBES = frozenset({PING, PONG})

HEADER_LENGTH = 6

_HEADER = Struct(">BBI")
_packHeader = _HEADER.pack
_unpackHeader = _HEADER.unpack_from


class Frame(msgspec.Struct, frozen=True):
    """
    A frame.

    @ivar type: Any octet; see the module for those that have a meaning.
    """

    type: int
    payload: bytes


class FrameError(ValueError):
    """
    Bytes that are no frame; what follows them cannot be understood.

    @ivar code: One of L{CODES<storagegate.core.errors.CODES>}.
    """

    def __init__(self, code: str, message: str) -> None:
        """
        @param message: The problem, in words for the client.
        """
        super().__init__(message)
        self.code = code


_MAX_TAKEN = 64 * 1024
"""Bytes that are kept for those behind them, although they were returned."""


class Decoder:
    """
    Holds bytes until a frame or a line is complete.

    @ivar held: How many bytes were not yet returned.
    @ivar _data: Complete ones are cut out of these bytes, at C{_position}.
    @ivar _more: The bytes that follow an incomplete one, if there are any.
    """

    _data = b""
    _more: HeldBuffer | None = None
    _position = 0
    held = 0

    def feed(self, data: bytes) -> None:
        """
        Add input.

        @param data: The next bytes received, in pieces of any size.
        """
        self.held += len(data)
        if not self._data:
            self._data = data
            return
        more = self._more
        if more is None:
            more = self._more = HeldBuffer()
            more.append(self._data[self._position :])
            # The first byte tells the version.
            self._data, self._position = self._data[self._position :][:1], 0
        more.append(data)

    def _join(self) -> bytes:
        """Return all bytes, of which C{held} begin at C{_position}."""
        more, self._more = self._more, None
        if more is not None:
            self._data, self._position = more.take(), 0
        return self._data

    def _cut(self, begin: int, end: int, following: int) -> bytes:
        """Return the bytes from C{begin} to C{end}, and go on at C{following}."""
        data = self._data
        self.held = len(data) - following
        if following == len(data):
            # A silent connection keeps nothing.
            self._data, self._position = b"", 0
        elif following > _MAX_TAKEN:
            self._data, self._position = data[following:], 0
        else:
            self._position = following
        return data[begin:end]


class FrameDecoder(Decoder):
    """
    Finds the frames in a stream of bytes.

    A length is believed only as far as bytes have come: nothing is set aside for it.
    """

    def __init__(self, maxLength: int) -> None:
        """
        @param maxLength: Bytes of a payload at most.
        """
        self._maxLength = maxLength
        self._wanted = HEADER_LENGTH

    def next(self) -> Frame | None:
        """
        Return the next frame; C{None} if it is not complete.

        @raise FrameError: If what comes next is none.
        """
        if self.held < self._wanted:
            data, start = self._data, self._position
            # One byte shows that the client speaks another protocol: no need to wait for six.
            if len(data) > start and data[start] != VERSION:
                raise _badVersion(data[start])
            return None
        data = self._data if self._more is None else self._join()
        start = self._position
        version, type, length = _unpackHeader(data, start)
        if version != VERSION:
            raise _badVersion(version)
        if length > self._maxLength:
            raise _tooLong(length, self._maxLength)
        begin = start + HEADER_LENGTH
        end = begin + length
        if end > len(data):
            self._wanted = HEADER_LENGTH + length
            return None
        self._wanted = HEADER_LENGTH
        if end == len(data):
            # Most reads are one frame: it is cut here, and this object is as new.
            self._data, self._position, self.held = b"", 0, 0
            return Frame(type, data[begin:])
        return Frame(type, self._cut(begin, end, end))


def decodeFrame(data: bytes, maxLength: int) -> Frame:
    """
    Decode exactly one frame.

    @param data: A datagram, or a message of a WebSocket.
    @param maxLength: Bytes of the payload at most.
    @raise FrameError: If it is no frame, or not one alone.
    """
    if data and data[0] != VERSION:
        raise _badVersion(data[0])
    if len(data) >= HEADER_LENGTH:
        _, type, length = _unpackHeader(data)
        if length > maxLength:
            raise _tooLong(length, maxLength)
        if length == len(data) - HEADER_LENGTH:
            return Frame(type, data[HEADER_LENGTH:])
    raise FrameError("INVALID_ARGUMENT", "A message is one frame")


def encodeFrame(type: int, payload: bytes) -> bytes:
    """
    Write a frame.

    @param type: The number of its type, see the module.
    @param payload: JSON in UTF-8; any bytes in a ping or pong.
    """
    return _packHeader(VERSION, type, len(payload)) + payload


def _badVersion(version: int) -> FrameError:
    return FrameError("INVALID_ARGUMENT", f"Frames have version {VERSION}, not {version}")


def _tooLong(length: int, maxLength: int) -> FrameError:
    return FrameError("PAYLOAD_TOO_LARGE", f"A payload has {maxLength} bytes at most, not {length}")


class FrameWriter(ReplyWriter):
    """Writer of replies as frames."""

    shapeError = staticmethod(frameError)

    def __init__(
        self, host: TransportContext, protocol: str, maxLength: int, write: Callable[[bytes], None]
    ) -> None:
        """
        @param maxLength: Bytes of a payload at most.
        @param write: Sends a frame that is encoded.
        """
        super().__init__(host, protocol, JSON, write)
        self._maxLength = maxLength

    def respond(self, id: MessageId, method: str, result: Any) -> Awaitable[None] | None:
        """Send a result."""
        self._send(RESPONSE, result, frameResult(id, result))
        return None

    def sendItem(self, id: MessageId, method: str, item: Any) -> None:
        """Send an item of a stream."""
        self._send(ITEM, item, frameResult(id, item))

    def sendEnd(self, id: MessageId, method: str) -> None:
        """Send the end of a stream."""
        self._send(END, None, frameEnd(id))

    def sendRefusal(self, id: MessageId, error: ServiceError) -> None:
        """Refuse a request with the id of a call in flight."""
        self.sendError(id, error)

    def sendError(self, id: MessageId, error: ServiceError) -> None:
        """Send an error, as C{transformError} returned it."""
        self._write(encodeFrame(ERROR, self.encodeError(id, error)))

    def sendPong(self, payload: bytes) -> None:
        """
        Reply to a ping.

        @param payload: That of the ping.
        """
        self._write(encodeFrame(PONG, payload))

    def _send(self, type: int, value: Any, payload: Any) -> None:
        """
        Send a payload.

        @param value: What is in it, or the payload itself, see
            L{encodeAround<storagegate.core.codecs.Codec.encodeAround>}.
        """
        data = self._codec.encodeAround(value, payload)
        if len(data) > self._maxLength:
            limit = self._maxLength
            raise codedError("RESPONSE_TOO_LARGE", f"A payload has {limit} bytes at most")
        self._write(_packHeader(VERSION, type, len(data)) + data)


def handleFrame(
    session: PeerSession, writer: FrameWriter, frame: Frame, decoded: Decoded | None = None
) -> None:
    """
    Take a frame: begin a call, or continue one; reply to an invalid one with an error.

    @param session: Runs the calls.
    @param writer: Replies to pings and malformed frames.
    @param frame: A complete frame of the client.
    @param decoded: Its payload, if that has been decoded already.
    """
    type, data = frame.type, frame.payload
    if type in _PROBES:
        if type == PING:
            writer.sendPong(data)
        return
    if len(data) > INLINE_SIZE and isLarge(data):
        again = partial(handleFrame, session, writer, Frame(type, b""))
        session.decodeLarge(writer.host, data, again)
        return
    try:
        payload = JSON.decode(data) if decoded is None else decoded()
        isObject = isinstance(payload, dict)
        id = readId(payload.get("id")) if isObject else None
        if not isObject and type != CLIENT_ITEM:
            raise codedError("INVALID_ARGUMENT", "The payload is no object")
    except ValueError as error:
        message = f"The payload is unreadable: {error}"
        writer.sendError(None, codedError("INVALID_ARGUMENT", message))
        return
    except ServiceError as refusal:
        writer.sendError(None, refusal)
        return
    if type == REQUEST:
        session.request(payload, id)
    elif type == CLIENT_ITEM:
        # Without an id and C{data}, the payload is the item.
        isWrapped = isObject and (id is not None or "data" in payload)
        session.item(id, payload.get("data", {}) if isWrapped else payload)
    elif type == CLIENT_END:
        session.itemsEnd(id)
    elif type == CANCEL:
        session.cancel(id)
    else:
        message = f"Clients send no frames of type {type}"
        writer.sendError(id, codedError("INVALID_ARGUMENT", message))


class LineDecoder(Decoder):
    """Finds the lines in a stream of bytes."""

    def __init__(self, maxLength: int) -> None:
        """
        @param maxLength: Bytes of a line at most, without its end.
        """
        self._maxLength = maxLength
        # How many of the held bytes are known to have no end of a line; C{_more} has none.
        self._searched = 0

    def feed(self, data: bytes) -> None:
        """Add input, see L{Decoder.feed}."""
        isWhole = self._more is None and self._find() >= 0
        super().feed(data)
        if self._more is not None and (isWhole or b"\n" in data):
            self._join()

    def _find(self) -> int:
        return self._data.find(b"\n", self._position + self._searched)

    def next(self) -> bytes | None:
        """
        Return the next line without its end; C{None} if it is not complete.

        @raise FrameError: If it is too long.
        """
        start = self._position
        end = -1 if self._more is not None else self._find()
        if (self.held if end < 0 else end - start) > self._maxLength:
            limit = self._maxLength
            raise FrameError("PAYLOAD_TOO_LARGE", f"A line has {limit} bytes at most")
        if end < 0:
            self._searched = self.held
            return None
        self._searched = 0
        return self._cut(start, end, end + 1)
