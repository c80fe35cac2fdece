"""The frames of HTTP/2 as bytes (RFC 9113 section 6)."""

from struct import Struct

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

_HEADER = Struct(">IBI")
_SETTING = Struct(">HI")

packHeader = _HEADER.pack
"""Pack length and type as C{length << 8 | type}, the flags and the stream."""

readSettings = _SETTING.iter_unpack
"""Iterate over the pairs of identifier and value of a SETTINGS payload."""


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
