"""
What is asked of the servers of each wire: an echo of a call whose JSON has 128 bytes.

The peers of TCP, UDP and WebSocket send back what they got; the others answer with the text.
"""

import json
import struct
from collections.abc import Mapping

from attrs import frozen

SIZE = 128
"""Bytes of a call's JSON."""

MASK = b"\x37\xfa\x21\x3d"
"""A client's key of RFC 6455 section 5.3; any will do."""


def _document(shape: Mapping[str, object]) -> bytes:
    """Write a call as JSON of the right size; its text fills it up."""
    empty = len(json.dumps({**shape, "text": ""}, separators=(",", ":")))
    return _write({**shape, "text": "x" * (SIZE - empty)})


def _write(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


POSTED = _document({})
"""A request as HTTP posts it."""

TEXT = str(json.loads(POSTED)["text"])

CALL_ID = "0000000000"
"""Ten digits: the client of datagrams counts in them, for a repetition is no new call."""


def _call() -> bytes:
    """Write a call with its envelope, of the same size."""
    envelope = {"id": CALL_ID, "service": "Echo", "method": "echo", "data": {"text": ""}}
    return _write({**envelope, "data": {"text": "x" * (SIZE - len(_write(envelope)))}})


CALL = _call()
FRAME = struct.pack(">BBI", 1, 1, len(CALL)) + CALL
"""A call as TCP and UDP have it."""

MESSAGE = (
    b"\x81\xfe"
    + struct.pack(">H", len(CALL))
    + MASK
    + bytes(byte ^ MASK[index & 3] for index, byte in enumerate(CALL))
)
"""A call as a WebSocket's client sends it: longer than 125 bytes, so its length has two more."""

NOTE = b"\x0a" + bytes([len(TEXT)]) + TEXT.encode()
"""The C{Note} of gRPC with the same text."""

FRAMED_NOTE = b"\0" + len(NOTE).to_bytes(4, "big") + NOTE


@frozen
class Case:
    """
    One wire.

    @ivar target: The path of HTTP and of a WebSocket, or the method of gRPC.
    """

    name: str
    target: str = "/"
    connections: tuple[int, ...] = (64,)


CASES: Mapping[str, Case] = {
    case.name: case
    for case in (
        Case("http", "/api/Echo/echo"),
        Case("websocket", "/ws"),
        Case("grpc", "/bench.Echo/Once"),
        Case("tcp"),
        Case("udp"),
    )
}

INVOKER = "invoker"
"""No wire: the invoker alone, with all its steps on."""
