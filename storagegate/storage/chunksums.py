"""
Checksums of the chunks of a piece, stored beside the bytes.

::

    SUMS    CHUNK ":" base64 (CRC of chunk 0, CRC of chunk 1, ...)
    CHUNK   bytes of every chunk but the last, a power of two from 65536
    CRC     CRC-32C of the name of the piece, the number of the chunk, and its bytes; big-endian

A read covers whole chunks, from the start of the first to the end of the last, so that every byte
is verified before use. Each checksum includes the piece name and the chunk number, so that intact
bytes of another piece or range do not match.
"""

import base64
import binascii
from collections.abc import Iterator, Sequence

from attrs import frozen

from storagegate.core.files import combineCRC32C, crc32c
from storagegate.core.options import parseDecimal
from storagegate.net.transport import Buffer

CHUNK = 64 * 1024
"""Bytes of a chunk: the size of the smallest read, so that verification never reads more."""

_MOST_CHUNKS = 128
"""
The most chunks of a piece: their checksums take 700 bytes of the 2 KiB that S3 allows for metadata.
"""

_LARGEST = 1 << 62


def crcHeader(crc: int) -> str:
    """Return a CRC-32C as S3 headers encode it."""
    return base64.b64encode(crc.to_bytes(4, "big")).decode()


@frozen
class ChunkSums:
    """
    The checksums of a piece.

    @ivar chunk: Bytes of a chunk.
    @ivar sums: The CRC of each chunk.
    """

    chunk: int
    sums: tuple[int, ...]

    @classmethod
    def of(cls, name: str, buffers: Sequence[Buffer]) -> tuple["ChunkSums", int]:
        """
        Compute the chunk checksums of a piece and the CRC of its bytes, in one pass.

        @param name: The name of the piece.
        @param buffers: All of its bytes.
        """
        size, chunk = sum(map(len, buffers)), CHUNK
        while size > chunk * _MOST_CHUNKS:
            chunk *= 2
        sums, whole = [], 0
        for number, (crc, length) in enumerate(_chunkCRCs(chunk, buffers)):
            sums.append(combineCRC32C(_seed(name, number), crc, length))
            whole = combineCRC32C(whole, crc, length)
        return cls(chunk, tuple(sums)), whole

    @classmethod
    def parse(cls, text: str) -> "ChunkSums":
        """
        Parse the output of L{text}.

        @raise ValueError: The text has another form.
        """
        chunk, _, encoded = text.partition(":")
        try:
            sums = base64.b64decode(encoded, validate=True)
        except binascii.Error as error:
            raise ValueError(str(error)) from error
        size = parseDecimal(chunk, _LARGEST)
        if size < CHUNK or size & (size - 1) or len(sums) % 4:
            raise ValueError("not checksums of chunks")
        return cls(
            size, tuple(int.from_bytes(sums[n : n + 4], "big") for n in range(0, len(sums), 4))
        )

    def text(self) -> str:
        """Return the checksums as the value of a header."""
        encoded = base64.b64encode(b"".join(crc.to_bytes(4, "big") for crc in self.sums))
        return f"{self.chunk}:{encoded.decode()}"

    def matches(self, name: str, offset: int, body: Buffer, size: int) -> bool:
        """
        Compare bytes with the checksums.

        @param name: The name of the piece.
        @param offset: The offset of the bytes, at a chunk boundary.
        @param body: The bytes, which end at a chunk boundary or the end of the piece.
        @param size: The size of the piece.
        """
        if len(self.sums) != -(-size // self.chunk) or offset % self.chunk:
            return False
        end = offset + len(body)
        if end % self.chunk and end != size:
            return False
        first = offset // self.chunk
        view = memoryview(body)
        return all(
            crc32c(view[at : at + self.chunk], _seed(name, number)) == self.sums[number]
            for number, at in enumerate(range(0, len(body), self.chunk), first)
        )


def _chunkCRCs(chunk: int, buffers: Sequence[Buffer]) -> Iterator[tuple[int, int]]:
    """Yield the CRC and the length of each chunk."""
    crc, missing = 0, chunk
    for buffer in buffers:
        view = memoryview(buffer)
        while len(view):
            crc = crc32c(view[:missing], crc)
            taken = min(missing, len(view))
            view, missing = view[taken:], missing - taken
            if not missing:
                yield crc, chunk
                crc, missing = 0, chunk
    if missing < chunk:
        yield crc, chunk - missing


def _seed(name: str, number: int) -> int:
    return crc32c(f"{name} {number} ".encode())
