"""
The binary frames of TCP and UDP, as bytes; the third format of WebSocket messages.

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

What has an C{id} has that of the request. Keys that nobody knows are ignored.
"""

from struct import Struct

from attrs import define

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

HEADER_LENGTH = 6

_HEADER = Struct(">BBI")
_packHeader = _HEADER.pack
_unpackHeader = _HEADER.unpack_from


@define
class Frame:
    """
    A frame. Nobody changes it; attrs takes twice as long to make one that nobody can change.

    @ivar type: What it is; not all numbers mean something.
    """

    type: int
    payload: bytes


class FrameError(ValueError):
    """
    Bytes that are no frame; what follows them cannot be understood.

    @ivar code: The code that goes with it, one of
        L{CODES<storagegate.core.errors.CODES>}.
    """

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class Decoder:
    """
    Holds bytes until a part that can be read is complete.

    @ivar _data: Whole parts are cut out of bytes at C{_position}; one of which more has to come
        grows in a bytearray.
    """

    _data: bytes | bytearray = b""
    _position = 0

    @property
    def held(self) -> int:
        """Count the bytes that have not been given."""
        return len(self._data) - self._position

    def feed(self, data: bytes) -> None:
        """Take what has come."""
        if not self._data:
            self._data = data
            return
        if not isinstance(self._data, bytearray):
            self._data, self._position = bytearray(self._data[self._position :]), 0
        self._data += data

    def _cut(self, begin: int, end: int, following: int) -> bytes:
        """Give the bytes from C{begin} to C{end}, and go on at C{following}."""
        data = self._data
        if isinstance(data, bytes):
            if following == len(data):
                # A silent connection keeps nothing.
                self._data, self._position = b"", 0
            else:
                self._position = following
            return data[begin:end]
        with memoryview(data) as view:
            self._data, self._position = bytes(view[following:]), 0
            return bytes(view[begin:end])


class FrameDecoder(Decoder):
    """
    Finds the frames in a stream of bytes.

    A length is believed only as far as bytes have come: nothing is set aside for it.
    """

    def __init__(self, maxLength: int) -> None:
        """
        @param maxLength: How long a payload may be.
        """
        self._maxLength = maxLength
        self._wanted = HEADER_LENGTH

    def next(self) -> Frame | None:
        """
        Give the next frame; C{None} if it is not complete.

        @raise FrameError: If what comes next is none.
        """
        data, start = self._data, self._position
        if len(data) - start < self._wanted:
            # One byte tells that somebody speaks another protocol: why wait for six?
            if len(data) > start and data[start] != VERSION:
                raise _badVersion(data[start])
            return None
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
        return Frame(type, self._cut(begin, end, end))


def decodeFrame(data: bytes, maxLength: int) -> Frame:
    """
    Read what is one frame and nothing else: a datagram, or a message of a WebSocket.

    @raise FrameError: If it is none.
    """
    if len(data) < HEADER_LENGTH:
        raise FrameError("INVALID_ARGUMENT", f"A frame has at least {HEADER_LENGTH} bytes")
    version, type, length = _unpackHeader(data)
    if version != VERSION:
        raise _badVersion(version)
    if length > maxLength:
        raise _tooLong(length, maxLength)
    if length != len(data) - HEADER_LENGTH:
        raise FrameError("INVALID_ARGUMENT", "The length of the frame is wrong")
    return Frame(type, data[HEADER_LENGTH:])


def encodeFrame(type: int, payload: bytes) -> bytes:
    """Write a frame."""
    return _packHeader(VERSION, type, len(payload)) + payload


def _badVersion(version: int) -> FrameError:
    return FrameError("INVALID_ARGUMENT", f"Frames have version {VERSION}, not {version}")


def _tooLong(length: int, maxLength: int) -> FrameError:
    return FrameError("PAYLOAD_TOO_LARGE", f"A payload has {maxLength} bytes at most, not {length}")
