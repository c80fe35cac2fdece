"""
Inflating bodies: gzip, deflate, br and zstd.

Ten kilobytes can inflate to ten gigabytes, so every step asks its library for a bounded piece, and
what passes the limit ends it: at most L{STEP} bytes more than allowed are ever made. A body that
ends early or goes on after its end is an error.
"""

import zlib
from collections.abc import Iterator
from importlib import import_module
from typing import Any

import brotli
from zope.interface import Attribute, Interface, implementer

STEP = 64 * 1024
"""The most that one step gives: large enough that steps cost nothing, small beside any limit."""

# How much is handed to a library at once. It copies what it has not used yet, at every step and at
# the start of every gzip member, so large pieces would take quadratic time.
_SLICE = 4096

# Brotli lets a piece grow until it has reached what was asked: by 32 KiB first, by 64 KiB then.
_BROTLI_STEP = 16 * 1024

# RFC 9659: a zstd content coding needs no larger window. A header may ask for gigabytes.
_ZSTD_WINDOW = 8 << 20


class InflatedTooLarge(Exception):
    """
    The body inflates to more than is allowed.

    @ivar limit: How many bytes are.
    """

    def __init__(self, limit: int) -> None:
        super().__init__(f"the body inflates to over {limit} bytes")
        self.limit = limit


class MalformedCoding(ValueError):
    """The body is not what its Content-Encoding says, ends early or goes on after its end."""


class _ICoding(Interface):
    """One compressed format."""

    complete: bool = Attribute("Whether the data may end here.")

    def inflate(wire: bytes) -> Iterator[bytes]:
        """Return what a piece of a body inflates to, in pieces of at most L{STEP} bytes."""


@implementer(_ICoding)
class _Zlib:
    """Gzip, of one member or several, and deflate."""

    def __init__(self, windowBits: int) -> None:
        self._windowBits = windowBits
        self._stream = zlib.decompressobj(windowBits)
        self.complete = False

    def inflate(self, wire: bytes) -> Iterator[bytes]:
        """Inflate a piece; what follows a gzip member must be another one."""
        while True:
            if self.complete:
                if not wire:
                    return
                if self._windowBits != _GZIP:
                    raise MalformedCoding("bytes follow the end of the body")
                self._stream = zlib.decompressobj(_GZIP)
                self.complete = False
            try:
                piece = self._stream.decompress(wire, STEP)
            except zlib.error as error:
                raise MalformedCoding(str(error)) from None
            self.complete = self._stream.eof
            wire = self._stream.unused_data if self.complete else self._stream.unconsumed_tail
            if piece:
                yield piece
            # A full piece may not be all, though the input is used up.
            if not wire and len(piece) < STEP:
                return


@implementer(_ICoding)
class _Deflate:
    """Deflate: the zlib format, or bare as some clients send it."""

    def __init__(self) -> None:
        self._zlib: _Zlib | None = None

    @property
    def complete(self) -> bool:
        """Return whether the data may end here."""
        return self._zlib is not None and self._zlib.complete

    def inflate(self, wire: bytes) -> Iterator[bytes]:
        """Inflate a piece; the first byte tells the format."""
        if self._zlib is None:
            # RFC 1950 section 2.2: the method is 8. No encoder begins bare data so.
            self._zlib = _Zlib(zlib.MAX_WBITS if wire[0] & 0x0F == 8 else -zlib.MAX_WBITS)
        return self._zlib.inflate(wire)


@implementer(_ICoding)
class _Brotli:
    """Brotli, RFC 7932."""

    def __init__(self) -> None:
        self._stream = brotli.Decompressor()

    @property
    def complete(self) -> bool:
        """Return whether the data may end here."""
        finished: bool = self._stream.is_finished()
        return finished

    def inflate(self, wire: bytes) -> Iterator[bytes]:
        """Inflate a piece; the library refuses bytes after the end."""
        while True:
            try:
                piece = self._stream.process(wire, output_buffer_limit=_BROTLI_STEP)
            except brotli.error as error:
                raise MalformedCoding(str(error)) from None
            if piece:
                yield piece
            elif self._stream.can_accept_more_data():
                return
            wire = b""


@implementer(_ICoding)
class _Zstandard:
    """
    Zstandard, RFC 8878.

    The library's bounded streams do not tell whether the data is whole, and what tells has no
    bound. So each piece goes through both: first through a stream whose output is counted, then,
    when it is known to be small enough, through the other.
    """

    def __init__(self, limit: int) -> None:
        self._library: Any = import_module("zstandard")
        # Streams of one decompressor share its state, so there are two.
        counter = self._library.ZstdDecompressor(max_window_size=_ZSTD_WINDOW)
        self._counted = counter.stream_writer(_Count(limit), write_size=STEP)
        self._decompressor = self._library.ZstdDecompressor(max_window_size=_ZSTD_WINDOW)
        self._frame = self._decompressor.decompressobj()

    @property
    def complete(self) -> bool:
        """Return whether the data may end here."""
        complete: bool = self._frame.eof
        return complete

    def inflate(self, wire: bytes) -> Iterator[bytes]:
        """Inflate a piece; what follows a frame must be another one."""
        try:
            self._counted.write(wire)
            while wire:
                if self._frame.eof:
                    self._frame = self._decompressor.decompressobj()
                piece = self._frame.decompress(wire)
                wire = self._frame.unused_data
                if piece:
                    yield piece
        except self._library.ZstdError as error:
            raise MalformedCoding(str(error)) from None


class _Count:
    """A file that only counts, and stops at a limit."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._size = 0

    def write(self, piece: bytes) -> int:
        """Count what would be written."""
        self._size += len(piece)
        if self._size > self._limit:
            raise InflatedTooLarge(self._limit)
        return len(piece)


_GZIP = 16 + zlib.MAX_WBITS


def _findCodings() -> frozenset[str]:
    try:
        import_module("zstandard")
    except ImportError:
        return frozenset(("gzip", "x-gzip", "deflate", "br"))
    return frozenset(("gzip", "x-gzip", "deflate", "br", "zstd"))


CODINGS = _findCodings()
"""The content codings that can be inflated, in lower case; zstd where C{zstandard} is installed."""


class Inflater:
    """
    A body that is being inflated. May be used in a thread, by one at a time.

    @ivar size: How much it has given.
    """

    def __init__(self, coding: str, limit: int) -> None:
        """
        @param coding: One of L{CODINGS}.
        @param limit: How many bytes the body may inflate to.
        """
        self._limit = limit
        self.size = 0
        self._coding: _Zlib | _Deflate | _Brotli | _Zstandard
        if coding in ("gzip", "x-gzip"):
            self._coding = _Zlib(_GZIP)
        elif coding == "deflate":
            self._coding = _Deflate()
        elif coding == "br":
            self._coding = _Brotli()
        elif coding == "zstd" and coding in CODINGS:
            self._coding = _Zstandard(limit)
        else:
            raise ValueError(f"no such content coding: {coding}")

    def feed(self, wire: bytes) -> list[bytes]:
        """
        Inflate a piece of the body.

        @param wire: The next bytes of the body as they were received.
        @raise InflatedTooLarge: If the whole is over the limit.
        @raise MalformedCoding: If it is malformed.
        """
        pieces: list[bytes] = []
        for start in range(0, len(wire), _SLICE):
            for piece in self._coding.inflate(wire[start : start + _SLICE]):
                self.size += len(piece)
                if self.size > self._limit:
                    raise InflatedTooLarge(self._limit)
                pieces.append(piece)
        return pieces

    def finish(self) -> None:
        """
        End the body.

        @raise MalformedCoding: If it is not whole.
        """
        if not self._coding.complete:
            raise MalformedCoding("the body ends early")


def inflate(coding: str, wire: bytes, limit: int) -> bytes:
    """
    Inflate a whole body. May be called in a thread.

    @param coding: One of L{CODINGS}.
    @param wire: The body as it was received.
    @param limit: The most bytes that it may inflate to.
    @raise InflatedTooLarge: If it is over C{limit} bytes.
    @raise MalformedCoding: If it is malformed or not whole.
    """
    inflater = Inflater(coding, limit)
    pieces = inflater.feed(wire)
    inflater.finish()
    return b"".join(pieces)
