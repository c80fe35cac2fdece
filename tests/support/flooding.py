"""
Floods a gRPC server with frames: C{python -m tests.support.flooding PORT KIND}.

It runs in a separate process, so that it does not disturb the measuring one. It prints C{begun}
when it begins.
"""

import itertools
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress

from hpack import Encoder
from hyperframe.frame import (
    ContinuationFrame,
    DataFrame,
    HeadersFrame,
    PingFrame,
    RstStreamFrame,
    SettingsFrame,
)

from tests.support.h2client import FRAME_LENGTH, H2Client, framed

PATH = "/test.Service/Never"

_AT_ONCE = 100
_STREAMS = 20_000
_CONTINUATIONS = 5_000
_CANCEL = 8
_PATIENCE = 60.0

_HEADERS = [
    (":method", "POST"),
    (":scheme", "http"),
    (":path", PATH),
    (":authority", "localhost"),
    ("te", "trailers"),
    ("content-type", "application/grpc"),
]


def _resets(hasMessage: bool) -> Iterator[bytes]:
    """Start calls, and cancel each immediately."""
    encoder = Encoder()
    for number in range(1, 2 * _STREAMS, 2):
        block = encoder.encode(_HEADERS)
        call = HeadersFrame(number, data=block, flags=["END_HEADERS"]).serialize()
        if hasMessage:
            call += DataFrame(number, data=framed(b""), flags=["END_STREAM"]).serialize()
        yield call + RstStreamFrame(number, error_code=_CANCEL).serialize()


def _continuations() -> Iterator[bytes]:
    """Start a header block without ever ending it."""
    yield HeadersFrame(1, data=Encoder().encode(_HEADERS)).serialize()
    value = b"v" * (FRAME_LENGTH - 32)
    # A field that is never indexed, RFC 7541 section 6.2.3: the length is 127 plus the rest.
    rest = len(value) - 127
    length = bytes([127, rest & 0x7F | 0x80, rest >> 7])
    frame = ContinuationFrame(1, data=b"\x10\x03x-a" + length + value).serialize()
    yield from itertools.repeat(frame, _CONTINUATIONS)


def _pings() -> Iterator[bytes]:
    return itertools.repeat(PingFrame(0, opaque_data=b"01234567").serialize(), _STREAMS)


def _settings() -> Iterator[bytes]:
    frame = SettingsFrame(0, settings={SettingsFrame.INITIAL_WINDOW_SIZE: 65_535})
    return itertools.repeat(frame.serialize(), _STREAMS)


KINDS: dict[str, Callable[[], Iterator[bytes]]] = {
    "resets": lambda: _resets(hasMessage=False),
    "cancelled": lambda: _resets(hasMessage=True),
    "continuations": _continuations,
    "pings": _pings,
    "settings": _settings,
}


def flood(port: int, kind: str) -> None:
    """
    Send a flood as fast as the server reads it, and wait until the server closes the connection.
    """
    frames = KINDS[kind]()
    with H2Client(port) as client, suppress(OSError):
        client.waitFor(SettingsFrame)
        print("begun", flush=True)
        while heap := b"".join(itertools.islice(frames, _AT_ONCE)):
            client.sendBytes(heap)
            client.discard()
        client.discard(_PATIENCE)


if __name__ == "__main__":
    flood(int(sys.argv[1]), sys.argv[2])
