"""
Content codings of responses, as they are made: C{br}, C{zstd}, C{gzip} and C{deflate}.

Whatever the length of a body, what an encoder keeps of it is bounded by its window. Windows are
smaller than the codings allow: a server has as many of them as responses on the way, and the last
percent of a large text is not worth megabytes for each.
"""

from collections.abc import Callable
from zlib import DEFLATED, Z_SYNC_FLUSH, compressobj

import attrs
import brotli

try:
    import zstandard
except ImportError:  # An extra: without it the coding is not offered.
    zstandard = None  # type: ignore[assignment]

LEVELS = range(-1, 10)
"""What C{level} may be: zlib's own range."""

# What Express's users have: it comes to the size of zlib's level 6 in half of its time.
_BROTLI_QUALITY = 4

# 256 KiB; with its tables an encoder takes 2 MB, at the default of 22 it takes 5.
_BROTLI_WINDOW = 18

# 512 KiB; an encoder takes 1.6 MB, 6 at level 9, with zstd's own choice twice that and more.
_ZSTD_WINDOW = 19
_ZSTD_DEFAULT = 3

# Of zlib's windows the sign tells the frame: 15 bits of window, plus 16 for gzip's.
_ZLIB_WINDOW = 15
_GZIP_FRAME = 16


@attrs.define(eq=False)
class BodyEncoder:
    """
    Encodes one body.

    Every method may run in a thread, never two at once.

    @ivar flushes: Whether each chunk is to be flushed as soon as it is written.
    """

    _feed: Callable[[bytes], bytes]
    _flush: Callable[[], bytes]
    _finish: Callable[[], bytes]
    flushes: bool = False

    def feed(self, chunk: bytes) -> bytes:
        """Take a chunk, and give what is ready of the encoded body: perhaps nothing."""
        return self._feed(chunk)

    def flush(self) -> bytes:
        """Give what a decoder needs to see everything that has been fed."""
        return self._flush()

    def finish(self) -> bytes:
        """Give the rest of the encoded body. Nothing may be fed after it."""
        return self._finish()


def _zlib(level: int, window: int, flushes: bool) -> BodyEncoder:
    coder = compressobj(level, DEFLATED, window)
    return BodyEncoder(coder.compress, lambda: coder.flush(Z_SYNC_FLUSH), coder.flush, flushes)


def _gzip(level: int, length: int | None, flushes: bool) -> BodyEncoder:
    return _zlib(level, _ZLIB_WINDOW + _GZIP_FRAME, flushes)


def _deflate(level: int, length: int | None, flushes: bool) -> BodyEncoder:
    # With zlib's frame, as RFC 9110 section 8.4.1.2 has it.
    return _zlib(level, _ZLIB_WINDOW, flushes)


def _br(level: int, length: int | None, flushes: bool) -> BodyEncoder:
    coder = brotli.Compressor(quality=_BROTLI_QUALITY, lgwin=_BROTLI_WINDOW)
    return BodyEncoder(coder.process, coder.flush, coder.finish, flushes)


def _zstd(level: int, length: int | None, flushes: bool) -> BodyEncoder:
    # A level chooses its tables by the length of the body: those for one small body are built in
    # a fifth of the time, and those for an endless one are no larger than the window needs.
    whole = 1 << _ZSTD_WINDOW
    parameters = zstandard.ZstdCompressionParameters.from_level(
        _ZSTD_DEFAULT if level == -1 else max(level, 1),
        source_size=whole if length is None else min(length, whole),
        window_log=_ZSTD_WINDOW,
    )
    coder = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
    return BodyEncoder(
        coder.compress,
        lambda: coder.flush(zstandard.COMPRESSOBJ_FLUSH_BLOCK),
        coder.flush,
        flushes,
    )


_MAKERS: dict[str, Callable[[int, int | None, bool], BodyEncoder]] = {
    "br": _br,
    "zstd": _zstd,
    "gzip": _gzip,
    "deflate": _deflate,
}

CODINGS = tuple(coding for coding in _MAKERS if coding != "zstd" or zstandard is not None)
"""The codings that there are encoders for, the preferred one first."""


def makeEncoder(
    coding: str, level: int = -1, length: int | None = None, flushes: bool = False
) -> BodyEncoder:
    """
    Make an encoder for one body.

    @param coding: One of L{CODINGS}.
    @param level: From 0 (C{gzip} and C{deflate} only store, C{zstd} takes 1) to 9 (smallest), or
        -1, the coding's own default. C{br} always works at quality 4.
    @param length: The length of the body, if it is known.
    @param flushes: Whether each chunk is to be flushed as soon as it is written.
    """
    return _MAKERS[coding](level, length, flushes)
