"""The frames of HTTP/2 as bytes (RFC 9113 section 6)."""

from struct import Struct

from storagegate.net.http2.interfaces import ConnectionFailure, ErrorCode

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
"""What a client sends first (section 3.4)."""

HEADER_SIZE = 9
"""The bytes before the payload of each frame."""

DATA = 0x0
HEADERS = 0x1
PRIORITY = 0x2
RST_STREAM = 0x3
SETTINGS = 0x4
PUSH_PROMISE = 0x5
PING = 0x6
GOAWAY = 0x7
WINDOW_UPDATE = 0x8
CONTINUATION = 0x9
PRIORITY_UPDATE = 0x10

END_STREAM = 0x1
ACK = 0x1
END_HEADERS = 0x4
PADDED = 0x8
HAS_PRIORITY = 0x20

HEADER_TABLE_SIZE = 0x1
ENABLE_PUSH = 0x2
MAX_CONCURRENT_STREAMS = 0x3
INITIAL_WINDOW_SIZE = 0x4
MAX_FRAME_SIZE = 0x5
MAX_HEADER_LIST_SIZE = 0x6
ENABLE_CONNECT_PROTOCOL = 0x8
NO_RFC7540_PRIORITIES = 0x9

# The frames that belong to a stream, and to the connection; the least and most bytes of payloads.
_OF_STREAM = frozenset([DATA, HEADERS, PRIORITY, RST_STREAM, PUSH_PROMISE, CONTINUATION])
_OF_CONNECTION = frozenset([SETTINGS, PING, GOAWAY, PRIORITY_UPDATE])
_SIZES = {
    PRIORITY: (5, 5),
    RST_STREAM: (4, 4),
    PING: (8, 8),
    GOAWAY: (8, 2**24),
    WINDOW_UPDATE: (4, 4),
    PRIORITY_UPDATE: (4, 2**24),
}

_HEADER = Struct(">IBI")
_SETTING = Struct(">HI")

packHeader = _HEADER.pack
"""Pack length and type as C{length << 8 | type}, the flags and the stream."""

readHeader = _HEADER.unpack_from
"""Read what L{packHeader} has packed, from an offset; the stream with its reserved bit."""

readSettings = _SETTING.iter_unpack
"""Iterate over the pairs of identifier and value of a SETTINGS payload."""


def checkFrame(kind: int, number: int, size: int) -> None:
    """
    Check the stream and the size of a received frame; those of unknown types are right.

    @raise ConnectionFailure: If they are wrong.
    """
    if kind in _OF_STREAM:
        if not number:
            raise ConnectionFailure(ErrorCode.PROTOCOL_ERROR, "a frame without a stream")
    elif number and kind in _OF_CONNECTION:
        raise ConnectionFailure(ErrorCode.PROTOCOL_ERROR, "a frame of the connection in a stream")
    sizes = _SIZES.get(kind)
    if sizes is not None and not sizes[0] <= size <= sizes[1]:
        raise ConnectionFailure(ErrorCode.FRAME_SIZE_ERROR, "a frame of the wrong size")


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    """
    Encode a frame.

    @param kind: Its type.
    @param stream: The number of the stream; 0 for the connection.
    """
    return packHeader(len(payload) << 8 | kind, flags, stream) + payload


def settings(values: dict[int, int]) -> bytes:
    """Encode a SETTINGS frame."""
    payload = b"".join([_SETTING.pack(name, value) for name, value in values.items()])
    return frame(SETTINGS, 0, 0, payload)


def windowUpdate(stream: int, increment: int) -> bytes:
    """Encode a WINDOW_UPDATE frame."""
    return packHeader(4 << 8 | WINDOW_UPDATE, 0, stream) + increment.to_bytes(4, "big")


def resetStream(stream: int, code: int) -> bytes:
    """Encode a RST_STREAM frame."""
    return packHeader(4 << 8 | RST_STREAM, 0, stream) + code.to_bytes(4, "big")


def goAway(last: int, code: int, text: bytes = b"") -> bytes:
    """
    Encode a GOAWAY frame.

    @param last: The highest stream that was or might be processed.
    """
    return frame(GOAWAY, 0, 0, last.to_bytes(4, "big") + code.to_bytes(4, "big") + text)
