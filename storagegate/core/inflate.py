"""
Inflating bodies: gzip, deflate, br and zstd.

Ten kilobytes can inflate to ten gigabytes, so every step makes a bounded piece, and inflating stops
at the limit: at most L{STEP} bytes more than allowed are produced. A body that ends early or
continues after its end is an error.
"""

import zlib
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from typing import Any

STEP = 64 * 1024
"""Maximum number of bytes of one step: large enough that steps cost little, small compared with any
limit."""

# Bytes passed to a library at a time. It copies unused input at every step and at the start of
# every gzip member, so large pieces would take quadratic time.
_SLICE = 4096

# Brotli grows a piece until it has reached the requested size, first by 32 KiB, then by 64 KiB.
_BROTLI_STEP = 16 * 1024

# RFC 9659: a zstd content coding needs no larger window. A frame may demand gigabytes.
_ZSTD_WINDOW = 8 << 20

_GZIP = 16 + zlib.MAX_WBITS


class InflatedTooLarge(Exception):
    """
    The body inflates to more than the limit.

    @ivar limit: The limit in bytes.
    """

    def __init__(self, limit: int) -> None:
        super().__init__(f"the body inflates to over {limit} bytes")
        self.limit = limit


class MalformedCoding(ValueError):
    """The body does not match its Content-Encoding, ends early or continues after its end."""


def _slices(body: bytes) -> Iterator[bytes]:
    for start in range(0, len(body), _SLICE):
        yield body[start : start + _SLICE]


def _inflateZlib(body: bytes, windowBits: int) -> Iterator[bytes]:
    stream = zlib.decompressobj(windowBits)
    for rest in _slices(body):
        while True:
            if stream.eof and rest:
                # Another gzip member may follow.
                if windowBits != _GZIP:
                    raise MalformedCoding("bytes follow the end of the body")
                stream = zlib.decompressobj(_GZIP)
            piece = stream.decompress(rest, STEP)
            rest = stream.unused_data if stream.eof else stream.unconsumed_tail
            if piece:
                yield piece
            # A full piece may not be the last, even if the input is used up.
            if not rest and (stream.eof or len(piece) < STEP):
                break
    if not stream.eof:
        raise MalformedCoding("the body ends early")


def _inflateDeflate(body: bytes, limit: int) -> Iterator[bytes]:
    """
    Inflate the zlib format, or raw deflate data, as some clients send; the first byte distinguishes
    them.
    """
    # RFC 1950 section 2.2: the method is 8. No encoder begins raw data with it.
    isBare = bool(body) and body[0] & 0x0F != 8
    return _inflateZlib(body, -zlib.MAX_WBITS if isBare else zlib.MAX_WBITS)


def _inflateBrotli(body: bytes, limit: int) -> Iterator[bytes]:
    # Takes 1.3 MB, which most applications never need.
    import brotli

    stream = brotli.Decompressor()
    try:
        for rest in _slices(body):
            while True:
                # The library refuses bytes after the end.
                piece = stream.process(rest, output_buffer_limit=_BROTLI_STEP)
                if piece:
                    yield piece
                elif stream.can_accept_more_data():
                    break
                rest = b""
    except brotli.error as error:
        raise MalformedCoding(str(error)) from None
    if not stream.is_finished():
        raise MalformedCoding("the body ends early")


def _inflateZstandard(body: bytes, limit: int) -> Iterator[bytes]:
    """
    Inflate frames of RFC 8878, one after another.

    The library's bounded streams do not report whether the data is complete, and the streams that
    do are unbounded. So each piece goes through both: first through a stream whose output is
    counted, then, once it is known to be small enough, through the other.
    """
    import zstandard

    # Streams of one decompressor share its state, so there are two.
    counter = zstandard.ZstdDecompressor(max_window_size=_ZSTD_WINDOW)
    count: Any = _Count(limit)
    counted = counter.stream_writer(count, write_size=STEP)
    decompressor = zstandard.ZstdDecompressor(max_window_size=_ZSTD_WINDOW)
    frame = decompressor.decompressobj()
    try:
        for rest in _slices(body):
            counted.write(rest)
            while rest:
                if frame.eof:
                    frame = decompressor.decompressobj()
                piece = frame.decompress(rest)
                rest = frame.unused_data
                if piece:
                    yield piece
    except zstandard.ZstdError as error:
        raise MalformedCoding(str(error)) from None
    if not frame.eof:
        raise MalformedCoding("the body ends early")


class _Count:
    """A file object that only counts bytes, up to a limit."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._size = 0

    def write(self, piece: bytes) -> int:
        """Count the bytes."""
        self._size += len(piece)
        if self._size > self._limit:
            raise InflatedTooLarge(self._limit)
        return len(piece)


_DECODERS: dict[str, Callable[[bytes, int], Iterator[bytes]]] = {
    "gzip": lambda body, limit: _inflateZlib(body, _GZIP),
    "x-gzip": lambda body, limit: _inflateZlib(body, _GZIP),
    "deflate": _inflateDeflate,
    "br": _inflateBrotli,
}
if find_spec("zstandard") is not None:
    _DECODERS["zstd"] = _inflateZstandard

CODINGS = frozenset(_DECODERS)
"""The supported content codings, in lower case; zstd if C{zstandard} is installed."""


def inflateSteps(coding: str, body: bytes, limit: int) -> Iterator[bytes]:
    """
    Inflate a whole body in bounded steps, as L{inflate}.

    @return: The inflated body in pieces; pieces of zstd may be longer than L{STEP}.
    """
    if coding not in CODINGS:
        raise ValueError(f"unknown content coding: {coding}")
    size = 0
    try:
        for piece in _DECODERS[coding](body, limit):
            size += len(piece)
            if size > limit:
                raise InflatedTooLarge(limit)
            yield piece
    except zlib.error as error:
        raise MalformedCoding(str(error)) from None


def inflate(coding: str, body: bytes, limit: int) -> bytes:
    """
    Inflate a whole body. May be called in a thread.

    @param coding: One of L{CODINGS}.
    @param body: The body as received.
    @param limit: The maximum number of inflated bytes.
    @raise InflatedTooLarge: If it inflates to more than C{limit} bytes.
    @raise MalformedCoding: If it is malformed or incomplete.
    """
    return b"".join(inflateSteps(coding, body, limit))
