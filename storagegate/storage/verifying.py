"""
Reads of blobs that are compared with what was written, before the reader can take them for whole.

The checksum that the catalog has is one of the whole blob. A whole blob is compared while it goes
out, and its last piece waits for the verdict. A part of a blob goes out after the whole of it has
been compared: such a read costs a second one, of all of the blob.
"""

from collections.abc import Callable

from twisted.internet.defer import Deferred
from twisted.logger import Logger

from storagegate.storage.blobs.staging import checksumOf
from storagegate.storage.catalog.ledger import BlobRow, IBlobLedger
from storagegate.storage.damage import DamageReport, verdict
from storagegate.storage.errors import DamagedBlob, StoreError
from storagegate.storage.files import Files
from storagegate.storage.interfaces import IBlobHandle, IBlobs
from storagegate.storage.pool import IWorkPool
from storagegate.storage.records import Segment

PIECE = 256 * 1024
"""Bytes read in one job; as many are in memory for each answer under way."""

Take = Callable[[bytes], Deferred[None] | None]
"""Takes a piece; a Deferred is to be waited for before the next."""


def _readPiece(files: Files, fd: int, offset: int, length: int, crc: int) -> tuple[bytes, int]:
    """Read on in a blob. Blocks; runs in a pool thread."""
    piece = files.read(fd, min(length, PIECE), offset)
    return piece, checksumOf(piece, crc)


def _drop(piece: bytes) -> None:
    """Take a piece that nobody wants."""


async def _wait(taken: Deferred[None] | None) -> None:
    """Wait until the next piece may come."""
    if taken is not None:
        await taken


class VerifyingReader:
    """Reads segments in the pool. Methods: reactor thread."""

    _log = Logger()

    def __init__(
        self,
        catalog: IBlobLedger,
        blobs: IBlobs,
        files: Files,
        pool: IWorkPool,
        report: DamageReport,
    ) -> None:
        self._catalog = catalog
        self._blobs = blobs
        self._files = files
        self._pool = pool
        self._report = report

    async def read(self, segment: Segment, take: Take) -> None:
        """
        Give a segment out, piece by piece.

        @raise DamagedBlob: The blob is not what was written; C{take} has not had the last piece.
        """
        row = self._catalog.blobRow(segment.blob)
        if row is None:
            raise DamagedBlob(f"blob {segment.blob} is not known")
        handle = await self._blobs.openSegment(segment)
        try:
            if segment.length == row.size:
                await self._compare(handle, row, take)
            else:
                await self._compare(handle, row, _drop)
                await self._give(handle, segment, take)
        finally:
            handle.release()

    async def _compare(self, handle: IBlobHandle, row: BlobRow, take: Take) -> None:
        """Read a whole blob; keep its last piece back until its checksum is right."""
        problem = verdict(row.size, None, handle.size, 0)
        crc, offset, piece = 0, 0, b""
        while problem is None and offset < row.size:
            if piece:
                await _wait(take(piece))
            try:
                piece, crc = await self._read(handle, offset, row.size - offset, crc)
            except OSError as error:
                problem = f"cannot be read: {error.strerror or error}"
            else:
                offset += len(piece)
                if not piece or offset == row.size:
                    problem = verdict(row.size, row.crc, offset, crc)
        if problem is not None:
            raise await self._damaged(row, problem)
        await _wait(take(piece))

    async def _give(self, handle: IBlobHandle, segment: Segment, take: Take) -> None:
        """Read a part of a blob that has just been compared."""
        offset, end = segment.offset, segment.offset + segment.length
        while offset < end:
            piece, _ = await self._read(handle, offset, end - offset, 0)
            if not piece:
                raise DamagedBlob(f"blob {segment.blob} has become shorter")
            await _wait(take(piece))
            offset += len(piece)

    def _read(
        self, handle: IBlobHandle, offset: int, length: int, crc: int
    ) -> Deferred[tuple[bytes, int]]:
        return self._pool.run(_readPiece, self._files, handle.fd, offset, length, crc)

    async def _damaged(self, row: BlobRow, problem: str) -> DamagedBlob:
        """Report a blob, and make the error for its reader."""
        try:
            await self._report.add(row, problem)
        except StoreError as error:
            # The reader has to know of the damage, whether it could be noted or not.
            self._log.error("damage could not be noted: {error}", error=str(error))
        return DamagedBlob(f"blob {row.id} {problem}")
