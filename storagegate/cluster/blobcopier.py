"""
The bytes of blobs, which never change. They are copied and read back before the target catalog gets
a row with references to them.
"""

import os
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from functools import partial
from typing import Any, Protocol

from attrs import define
from twisted.internet.defer import Deferred, FirstError, gatherResults
from twisted.internet.task import deferLater

from storagegate.cluster.tables import MigrationError, Row
from storagegate.core.files import crc32c
from storagegate.net.transport import writeAll
from storagegate.storage.cluster.blobs.pieces import (
    UNLIMITED,
    IPieceStore,
    MissingPiece,
    PiecePlace,
    PieceUpload,
    findSize,
    removeBlob,
)
from storagegate.storage.errors import StoreBusy
from storagegate.storage.files import FailStopLatch, Files, unlinkIfThere
from storagegate.storage.layout import BlobLayout, Shards, SyncGroup
from storagegate.storage.threadpool import IWorkPool

_CHUNK = 1 << 20
"""Size of one read in bytes."""

_AT_ONCE = 8
"""Blobs that are copied concurrently, each with a buffer of the target."""

_RETRY_SECONDS = (0.5, 1.0, 2.0, 4.0, 8.0)
"""The pauses between retries; after the last one the migration stops, and can be continued."""


class MissingBlob(Exception):
    """The bytes of a blob are missing or incomplete."""


class BlobEnd(Protocol):
    """The blobs of a store, as one side of a migration. Methods must run in the reactor thread."""

    def read(self, blob: str, size: int) -> AsyncIterator[bytes]:
        """
        Yield the bytes of a blob.

        @param size: The size in the blob's row.
        @raise MissingBlob: If the blob is missing.
        @raise StoreBusy: If the blob cannot be read now.
        """

    async def write(self, blob: str, chunks: AsyncIterator[bytes]) -> None:
        """
        Write a blob durably, replacing a blob with the same id.

        @param chunks: The bytes of the blob.
        @raise StoreError: If the blob cannot be written.
        """

    async def remove(self, blob: str) -> None:
        """Remove a blob, if it exists."""


class FileEnd:
    """The blob files of a data directory. Methods must run in the reactor thread."""

    def __init__(self, layout: BlobLayout, pool: IWorkPool) -> None:
        self._layout = layout
        self._pool = pool
        self._files = Files()
        self._syncs = SyncGroup(self._files, FailStopLatch(), True)
        self._shards = Shards(layout, self._files, self._syncs)

    async def read(self, blob: str, size: int) -> AsyncIterator[bytes]:
        """See L{BlobEnd.read}."""
        run, files = self._pool.run, self._files
        try:
            fd = await run(files.openForReading, self._layout.path(blob))
        except FileNotFoundError:
            raise MissingBlob(blob) from None
        try:
            offset = 0
            while chunk := await run(files.read, fd, _CHUNK, offset):
                offset += len(chunk)
                yield chunk
        finally:
            files.close(fd)

    async def write(self, blob: str, chunks: AsyncIterator[bytes]) -> None:
        """See L{BlobEnd.write}. The file keeps its staging name until it is complete."""
        run, files = self._pool.run, self._files
        fd = await run(self._create, blob)
        try:
            async for chunk in chunks:
                await run(writeAll, partial(files.write, fd), [chunk])
            await run(self._syncs.syncFile, fd)
        finally:
            files.close(fd)
        await run(self._link, blob)

    async def remove(self, blob: str) -> None:
        """See L{BlobEnd.remove}."""
        await self._pool.run(self._remove, blob)

    def _create(self, blob: str) -> int:
        unlinkIfThere(self._files, self._layout.stagingPath(blob))
        return self._files.create(self._layout.stagingPath(blob))

    def _link(self, blob: str) -> None:
        self._shards.ensure(blob)
        os.replace(self._layout.stagingPath(blob), self._layout.path(blob))
        self._syncs.syncDirectory(self._layout.shard(blob))

    def _remove(self, blob: str) -> None:
        unlinkIfThere(self._files, self._layout.stagingPath(blob))
        if unlinkIfThere(self._files, self._layout.path(blob)):
            self._syncs.syncDirectory(self._layout.shard(blob))


class PieceEnd:
    """The blobs of a cluster. Methods must run in the reactor thread."""

    def __init__(self, pieces: IPieceStore, mayWrite: Callable[[], None] = lambda: None) -> None:
        """@param mayWrite: Called before each write; raises if it is too late to write."""
        self._pieces = pieces
        self._mayWrite = mayWrite

    async def read(self, blob: str, size: int) -> AsyncIterator[bytes]:
        """See L{BlobEnd.read}."""
        try:
            place = await self._locate(blob, size)
            offset = 0
            while offset < place.size:
                name, within, count = place.piece(offset, min(_CHUNK, place.size - offset))
                chunk, _, _ = await self._pieces.get(name, within, count)
                if not chunk:
                    raise MissingBlob(blob)
                offset += len(chunk)
                yield chunk
        except MissingPiece:
            raise MissingBlob(blob) from None

    async def write(self, blob: str, chunks: AsyncIterator[bytes]) -> None:
        """See L{BlobEnd.write}."""
        pieces = self._pieces
        size = pieces.pieceSize
        if not pieces.growsPieces:
            size = min(size, pieces.bufferSize)
        upload = PieceUpload(blob, pieces, size, self._mayWrite, _ignore, _ignore)
        buffers: list[bytes] = []
        async for chunk in chunks:
            if sum(map(len, buffers)) + len(chunk) > pieces.bufferSize:
                await upload.append(buffers)
                buffers = []
            buffers.append(chunk)
        await upload.commit(buffers)

    async def remove(self, blob: str) -> None:
        """See L{BlobEnd.remove}."""
        await removeBlob(self._pieces, blob)

    async def _locate(self, blob: str, size: int) -> PiecePlace:
        try:
            return PiecePlace(blob, await self._pieces.size(blob))
        except MissingPiece:
            if self._pieces.pieceSize == UNLIMITED:
                raise
        return await findSize(self._pieces, blob, size)


class RenamedEnd:
    """Blobs with other ids in the wrapped store. Methods must run in the reactor thread."""

    def __init__(self, end: BlobEnd, idOf: Callable[[str], str]) -> None:
        """
        @param end: The wrapped store.
        @param idOf: Returns the id in the wrapped store.
        """
        self._end = end
        self._idOf = idOf

    def read(self, blob: str, size: int) -> AsyncIterator[bytes]:
        """See L{BlobEnd.read}."""
        return self._end.read(self._idOf(blob), size)

    async def write(self, blob: str, chunks: AsyncIterator[bytes]) -> None:
        """See L{BlobEnd.write}."""
        await self._end.write(self._idOf(blob), chunks)

    async def remove(self, blob: str) -> None:
        """See L{BlobEnd.remove}."""
        await self._end.remove(self._idOf(blob))


def _ignore(*arguments: object) -> None:
    pass


@define(eq=False)
class _Checksum:
    """The size and the checksum of a stream."""

    size: int = 0
    crc: int = 0

    async def of(self, chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        """Yield chunks unchanged."""
        async for chunk in chunks:
            self.size += len(chunk)
            self.crc = crc32c(chunk, self.crc)
            yield chunk


class BlobCopier:
    """
    Copies blobs from one store to another. Methods must run in the reactor thread.

    @ivar copied: The number of copied blobs.
    @ivar bytesCopied: The total size of the copied blobs in bytes.
    """

    def __init__(
        self, source: BlobEnd, target: BlobEnd, reactor: Any, keepsIntact: bool = False
    ) -> None:
        """
        @param reactor: Times the pauses.
        @param keepsIntact: Whether a blob whose bytes in the target match its row is not copied, as
            the source's bytes may be damaged.
        """
        self.copied = 0
        self.bytesCopied = 0
        self._source = source
        self._target = target
        self._reactor = reactor
        self._keepsIntact = keepsIntact

    async def copy(self, rows: Sequence[Row]) -> list[str]:
        """
        Copy blobs and verify the copies.

        @param rows: The rows of the blobs.
        @return: The ids of blobs whose bytes in the source do not match their rows: they may be
            gone by now, or damaged. A blob that is marked as damaged is copied as it is.
        @raise MigrationError: If a copy differs from the written bytes.
        @raise StoreError: If one of the stores does not respond, or is full.
        """
        failed: list[str] = []
        waiting = iter(rows)

        async def work() -> None:
            for blob, size, crc, _, damaged in waiting:
                if not await self._persist(partial(self._copyOne, blob, size, crc, damaged)):
                    failed.append(blob)

        await _together(work() for _ in range(min(_AT_ONCE, len(rows))))
        return failed

    async def remove(self, blobs: Sequence[str]) -> None:
        """Remove copied blobs."""
        waiting = iter(blobs)

        async def work() -> None:
            for blob in waiting:
                await self._persist(partial(self._target.remove, blob))

        await _together(work() for _ in range(min(_AT_ONCE, len(blobs))))

    async def _copyOne(self, blob: str, size: int, crc: int, damaged: bool) -> bool:
        if self._keepsIntact:
            there = await self._checksumOf(blob, size)
            if (there.size, there.crc) == (size, crc):
                return True
        read = _Checksum()
        try:
            await self._write(blob, size, read)
        except MissingBlob:
            return bool(damaged)
        if not damaged and (read.size, read.crc) != (size, crc):
            return False
        written = await self._checksumOf(blob, size)
        if (written.size, written.crc) != (read.size, read.crc):
            raise MigrationError(f"blob {blob} was not kept as it was written")
        self.copied += 1
        self.bytesCopied += size
        return True

    async def _checksumOf(self, blob: str, size: int) -> _Checksum:
        """Read a blob in the target; the size of the result is -1 if the blob is missing."""
        found = _Checksum()
        try:
            async for _ in found.of(self._target.read(blob, size)):
                pass
        except MissingBlob:
            found.size = -1
        return found

    async def _write(self, blob: str, size: int, read: _Checksum) -> None:
        try:
            await self._target.write(blob, read.of(self._source.read(blob, size)))
        except FileExistsError:
            # Left over from an interrupted run.
            await self._target.remove(blob)
            read.size = read.crc = 0
            await self._target.write(blob, read.of(self._source.read(blob, size)))

    async def _persist(self, act: Any) -> Any:
        """Call a function, and retry while a store is busy."""
        for seconds in _RETRY_SECONDS:
            try:
                return await act()
            except StoreBusy:
                await deferLater(self._reactor, seconds)
        return await act()


async def _together(works: Iterable[Any]) -> None:
    try:
        await gatherResults([Deferred.fromCoroutine(work) for work in works], consumeErrors=True)
    except FirstError as error:
        error.subFailure.raiseException()
