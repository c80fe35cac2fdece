"""The content codings undone, by other libraries than those that made them where there are any."""

import gzip
import zlib
from collections.abc import Callable

import brotli
import zstandard

# The largest window that a body of ours asks its reader to keep.
_ZSTD_WINDOW = 1 << 19


def _decodeZstd(data: bytes) -> bytes:
    decoder = zstandard.ZstdDecompressor(max_window_size=_ZSTD_WINDOW)
    return decoder.decompressobj().decompress(data)


_DECODE: dict[str, Callable[[bytes], bytes]] = {
    "br": brotli.decompress,
    "zstd": _decodeZstd,
    "gzip": gzip.decompress,
    # The zlib format: a raw stream would not do.
    "deflate": zlib.decompress,
}


def decode(coding: str | None, data: bytes) -> bytes:
    """Decode a whole body; C{None} for the plain one."""
    return data if coding is None else _DECODE[coding](data)


def decodeSoFar(coding: str, data: bytes) -> bytes:
    """Give what a decoder makes of a body whose end is missing."""
    if coding == "br":
        return bytes(brotli.Decompressor().process(data))
    if coding == "zstd":
        return zstandard.ZstdDecompressor().decompressobj().decompress(data)
    return zlib.decompressobj(zlib.MAX_WBITS | 32).decompress(data)
