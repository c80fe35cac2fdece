"""
The binary frames of TCP, UDP and WebSocket's binary format, and the lines of JSON on TCP.

All integers are big-endian::

    frame       = version type length payload
    version     = %x01                  1 byte
    type        = OCTET                 1 byte, see the table below
    length      = 4OCTET                length of the payload in bytes
    payload     = *OCTET                JSON in UTF-8; any bytes in a ping

    type    from     payload
    1       client   {service, method, data?, id?, auth?: {token}, deadlineMs?, seq?, traceparent?,
                     tracestate?}
    2       server   the result, or {id, data}
    3       server   {error, message, details?, id?}
    4       server   an item of a stream, or {id, data}
    5       server   {} or {id}: the end of a stream
    6       both     a ping: any bytes
    7       both     a pong: the payload of the ping
    8       client   {} or {id}: cancels the call
    9       server   {id}: acknowledges the request (UDP)
    10      client   {data} or {id, data}: an item of the client's stream
    11      client   {} or {id}: its end
    12      server   {}: no further calls are accepted

An C{id} is always the id of the request. Unknown keys are ignored.

JSON on TCP has one message a line::

    line        = *OCTET LF             a CR before the LF is white space of JSON

Twisted's C{LineReceiver} searches and copies all buffered bytes for each received piece: with 15
MiB buffered, each further byte takes 25 ms. L{LineDecoder} resumes where it stopped.
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

SERVER_TYPES = frozenset({RESPONSE, ERROR, ITEM, END, ACK, GOING_AWAY})
"""The types that only servers send."""

HEADER_LENGTH = 6

_HEADER = Struct(">BBI")
_packHeader = _HEADER.pack
_unpackHeader = _HEADER.unpack_from


class Frame(msgspec.Struct, frozen=True):
    """
    A frame.

    @ivar type: Any octet; see the module for the defined types.
    """

    type: int
    payload: bytes


class FrameError(ValueError):
    """
    Bytes that are not a frame; later input cannot be decoded.

    @ivar code: One of L{CODES<storagegate.core.errors.CODES>}.
    """

    def __init__(self, code: str, message: str) -> None:
        """
        @param message: The problem, as text for the client.
        """
        super().__init__(message)
        self.code = code


_MAX_TAKEN = 64 * 1024
"""Maximum number of returned bytes that stay in memory because of the bytes behind them."""


class Decoder:
    """
    Buffers bytes until a frame or a line is complete.

    @ivar held: How many bytes are buffered.
    @ivar _data: The bytes from which complete messages are cut, at C{_position}.
    @ivar _more: The bytes of an incomplete message, if there are any.
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
        """Return the bytes from C{begin} to C{end}, and continue at C{following}."""
        data = self._data
        self.held = len(data) - following
        if following == len(data):
            # An idle connection keeps no buffer.
            self._data, self._position = b"", 0
        elif following > _MAX_TAKEN:
            self._data, self._position = data[following:], 0
        else:
            self._position = following
        return data[begin:end]


class FrameDecoder(Decoder):
    """
    Finds the frames in a stream of bytes.

    Memory is only used for bytes received: nothing is allocated for a declared length.
    """

    def __init__(self, maxLength: int) -> None:
        """
        @param maxLength: The maximum length of a payload in bytes.
        """
        self._maxLength = maxLength
        self._wanted = HEADER_LENGTH

    def next(self) -> Frame | None:
        """
        Return the next frame; C{None} if it is not complete.

        @raise FrameError: If the next bytes are not a frame.
        """
        if self.held < self._wanted:
            data, start = self._data, self._position
            # One byte reveals that the client uses another protocol: do not wait for six.
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
            # Most reads are one frame: cut it here, and reset this object.
            self._data, self._position, self.held = b"", 0, 0
            return Frame(type, data[begin:])
        return Frame(type, self._cut(begin, end, end))


def decodeFrame(data: bytes, maxLength: int) -> Frame:
    """
    Decode exactly one frame.

    @param data: A datagram, or a WebSocket message.
    @param maxLength: The maximum length of the payload in bytes.
    @raise FrameError: If it is not exactly one frame.
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
    Encode a frame.

    @param type: The number of its type, see the module.
    @param payload: JSON in UTF-8; any bytes in a ping or pong.
    """
    return _packHeader(VERSION, type, len(payload)) + payload


def _badVersion(version: int) -> FrameError:
    return FrameError("INVALID_ARGUMENT", f"Frames have version {VERSION}, not {version}")


def _tooLong(length: int, maxLength: int) -> FrameError:
    return FrameError("PAYLOAD_TOO_LARGE", f"A payload has {maxLength} bytes at most, not {length}")


class FrameWriter(ReplyWriter):
    """Writes replies as frames."""

    shapeError = staticmethod(frameError)

    def __init__(
        self, host: TransportContext, protocol: str, maxLength: int, write: Callable[[bytes], None]
    ) -> None:
        """
        @param maxLength: The maximum length of a payload in bytes.
        @param write: Sends an encoded frame.
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
        """Send an error, transformed by C{transformError}."""
        self._write(encodeFrame(ERROR, self.encodeError(id, error)))

    def sendPong(self, payload: bytes) -> None:
        """
        Reply to a ping.

        @param payload: The payload of the ping.
        """
        self._write(encodeFrame(PONG, payload))

    def _send(self, type: int, value: Any, payload: Any) -> None:
        """
        Send a payload.

        @param value: The value in the payload, or the payload itself, see
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
    Handle a frame: begin a call, or continue one. An invalid frame gets an error.

    @param session: Runs the calls.
    @param writer: Replies to pings and malformed frames.
    @param frame: A complete frame of the client.
    @param decoded: Returns its payload, if it is already decoded.
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
        # Without an id and "data", the payload is the item.
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
        @param maxLength: The maximum length of a line in bytes, without its end.
        """
        self._maxLength = maxLength
        # How many of the buffered bytes have been searched for a line end; C{_more} has none.
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

        @raise FrameError: If the line is too long.
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
