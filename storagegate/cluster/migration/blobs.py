"""
The bytes of blobs, which never change: copied, and read again where they are now, before the
catalog that they are copied for has a row with references to them.
"""

import os
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from functools import partial
from typing import Any, Protocol

from attrs import define
from twisted.internet.defer import Deferred, FirstError, gatherResults
from twisted.internet.task import deferLater

from storagegate.cluster.migration.tables import MigrationError, Row
from storagegate.core.files import crc32c
from storagegate.net.transport import writeAll
from storagegate.storage.blobs.layout import BlobLayout, Shards, SyncGroup
from storagegate.storage.blobs.pieces import (
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
from storagegate.storage.threadpool import IWorkPool

_CHUNK = 1 << 20
"""Bytes that are read at a time."""

_AT_ONCE = 8
"""Blobs that are copied at one time, each with a buffer of the target."""

_RETRY_SECONDS = (0.5, 1.0, 2.0, 4.0, 8.0)
"""The pauses before an operation is tried again; then the migration ends, and can be continued."""


class MissingBlob(Exception):
    """There are no bytes of a blob, or not all."""


class BlobEnd(Protocol):
    """The bytes of a store, as one side of a migration. Reactor thread."""

    def read(self, blob: str, size: int) -> AsyncIterator[bytes]:
        """
        Yield the bytes of a blob.

        @param size: As its row has it.
        @raise MissingBlob: It is not there.
        @raise StoreBusy: It cannot be read now.
        """

    async def write(self, blob: str, chunks: AsyncIterator[bytes]) -> None:
        """
        Write a blob, durably, in the place of one of the same id.

        @param chunks: Its bytes.
        @raise StoreError: It is not possible.
        """

    async def remove(self, blob: str) -> None:
        """Remove a blob, if it is there."""


class FileEnd:
    """Files of a data directory. Reactor thread."""

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
        """See L{BlobEnd.write}: under its first name, until all is there."""
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
    """The blobs of a cluster. Reactor thread."""

    def __init__(self, pieces: IPieceStore, mayWrite: Callable[[], None] = lambda: None) -> None:
        """@param mayWrite: Called before each write; raises where that is too late."""
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
    """Blobs that have other ids there than they are named by. Reactor thread."""

    def __init__(self, end: BlobEnd, idOf: Callable[[str], str]) -> None:
        """
        @param end: Where they are.
        @param idOf: Returns the id there.
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
    """Counts and sums bytes that pass."""

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
    Copies blobs from one store to another. Methods: reactor thread.

    @ivar copied: How many blobs were copied.
    @ivar bytesCopied: How many bytes they have.
    """

    def __init__(self, source: BlobEnd, target: BlobEnd, reactor: Any) -> None:
        """@param reactor: Measures the pauses."""
        self.copied = 0
        self.bytesCopied = 0
        self._source = source
        self._target = target
        self._reactor = reactor

    async def copy(self, rows: Sequence[Row]) -> list[str]:
        """
        Copy blobs, and read the copies.

        @param rows: Of blobs.
        @return: Those of which the source does not have the bytes that their rows describe: they
            may be gone by now, or damaged. Of one that was marked as damaged all is copied that
            there is.
        @raise MigrationError: The target has other bytes than were written to it.
        @raise StoreError: One of the stores does not answer, or is full.
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
        """Remove blobs that were copied."""
        waiting = iter(blobs)

        async def work() -> None:
            for blob in waiting:
                await self._persist(partial(self._target.remove, blob))

        await _together(work() for _ in range(min(_AT_ONCE, len(blobs))))

    async def _copyOne(self, blob: str, size: int, crc: int, damaged: bool) -> bool:
        read, written = _Checksum(), _Checksum()
        try:
            await self._write(blob, size, read)
        except MissingBlob:
            return bool(damaged)
        if not damaged and (read.size, read.crc) != (size, crc):
            return False
        try:
            async for _ in written.of(self._target.read(blob, size)):
                pass
        except MissingBlob:
            written.size = -1
        if (written.size, written.crc) != (read.size, read.crc):
            raise MigrationError(f"blob {blob} was not kept as it was written")
        self.copied += 1
        self.bytesCopied += size
        return True

    async def _write(self, blob: str, size: int, read: _Checksum) -> None:
        try:
            await self._target.write(blob, read.of(self._source.read(blob, size)))
        except FileExistsError:
            # An earlier run has not come to its end.
            await self._target.remove(blob)
            read.size = read.crc = 0
            await self._target.write(blob, read.of(self._source.read(blob, size)))

    async def _persist(self, act: Any) -> Any:
        """Do something, again and again while a store is busy."""
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
