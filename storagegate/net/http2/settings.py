"""The settings of a connection of HTTP/2 (RFC 9113 section 6.5)."""

from storagegate.net.http2 import frames
from storagegate.net.http2.interfaces import ConnectionFailure, ErrorCode, HTTP2Limits

INITIAL_WINDOW = 65_535
"""The windows of a new connection and its streams."""

MAX_WINDOW = 2**31 - 1
"""The largest window (section 6.9.1)."""

DEFAULT_FRAME = 16_384
"""The payload that each peer accepts."""

MAX_FRAME = 2**24 - 1
"""The largest payload."""

HEADER_TABLE = 4096
"""The dynamic table of a new decoder."""

# The values of settings (section 6.5.2; RFC 8441, RFC 9218), and the error for others.
_RANGES = {
    frames.HEADER_TABLE_SIZE: (0, 2**32 - 1, ErrorCode.PROTOCOL_ERROR),
    frames.ENABLE_PUSH: (0, 1, ErrorCode.PROTOCOL_ERROR),
    frames.MAX_CONCURRENT_STREAMS: (0, 2**32 - 1, ErrorCode.PROTOCOL_ERROR),
    frames.INITIAL_WINDOW_SIZE: (0, MAX_WINDOW, ErrorCode.FLOW_CONTROL_ERROR),
    frames.MAX_FRAME_SIZE: (DEFAULT_FRAME, MAX_FRAME, ErrorCode.PROTOCOL_ERROR),
    frames.ENABLE_CONNECT_PROTOCOL: (0, 1, ErrorCode.PROTOCOL_ERROR),
    frames.NO_RFC7540_PRIORITIES: (0, 1, ErrorCode.PROTOCOL_ERROR),
}

# Section 6.5.2: a server has no stream on which a client could push.
_OF_SERVER = {**_RANGES, frames.ENABLE_PUSH: (0, 0, ErrorCode.PROTOCOL_ERROR)}


def announce(limits: HTTP2Limits, isClient: bool) -> dict[int, int]:
    """Return the settings that the first frame of a connection contains."""
    values = {frames.MAX_HEADER_LIST_SIZE: limits.headerList}
    if isClient:
        values[frames.ENABLE_PUSH] = 0
    else:
        values[frames.MAX_CONCURRENT_STREAMS] = limits.streams
        values[frames.NO_RFC7540_PRIORITIES] = 1
    for name, value, default in (
        (frames.INITIAL_WINDOW_SIZE, limits.streamWindow, INITIAL_WINDOW),
        (frames.MAX_FRAME_SIZE, limits.frame, DEFAULT_FRAME),
        (frames.HEADER_TABLE_SIZE, limits.headerTable, HEADER_TABLE),
    ):
        if value != default:
            values[name] = value
    return values


def readSettings(payload: bytes, isClient: bool) -> dict[int, int]:
    """
    Read the payload of a SETTINGS frame.

    The last value of each setting counts, so that a frame with thousands of values costs no more
    than one with a few. The least value of the header table counts, which the encoder has to
    acknowledge (RFC 7541 section 4.2).

    @param isClient: Whether the peer is a server.
    @return: The values of the settings that are known.
    @raise ConnectionFailure: If one is invalid.
    """
    if len(payload) % 6:
        raise ConnectionFailure(ErrorCode.FRAME_SIZE_ERROR, "a frame of the wrong size")
    ranges = _OF_SERVER if isClient else _RANGES
    values: dict[int, int] = {}
    for name, value in frames.readSettings(payload):
        known = ranges.get(name)
        if known is None:
            continue
        least, most, code = known
        if not least <= value <= most:
            raise ConnectionFailure(code, "an invalid setting")
        if name == frames.HEADER_TABLE_SIZE:
            value = min(value, values.get(name, value))
        values[name] = value
    return values
