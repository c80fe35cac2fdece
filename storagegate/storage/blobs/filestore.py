"""
Blobs as files below one directory.

Unlinks that nobody waits for.
"""

import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from weakref import WeakSet

from twisted.internet.defer import Deferred, fail
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

from storagegate.core.task import IdleWaiters
from storagegate.storage.backends import BackEndContext, OpenCatalog
from storagegate.storage.blobids import isBlobId
from storagegate.storage.blobs.fsync import SyncGroup, WriteFence, storeError
from storagegate.storage.blobs.handles import CheckedBlob, HandleCache
from storagegate.storage.blobs.layout import BlobLayout, Shards
from storagegate.storage.blobs.writer import FileBlobWriter, StagingFile, bufferSize
from storagegate.storage.errors import CorruptBlob, StoreBusy, StoreReadOnly
from storagegate.storage.files import Files, unlinkIfThere
from storagegate.storage.interfaces import IBlobReader, IBlobStore
from storagegate.storage.records import Segment
from storagegate.storage.recovery import sweepStaging
from storagegate.storage.threadpool import IWorkPool

_BATCH = 512
"""Names a job: few jobs, yet none that keeps a thread for long."""

_BACKLOG = 65_536
"""Names that may wait (8 MB of them); any more are left for the sweep of the next start."""


class BackgroundUnlinker:
    """Takes names away in the pool, one job at a time. All methods but one: reactor thread."""

    _log = Logger()

    def __init__(self, pool: IWorkPool, files: Files) -> None:
        self._pool = pool
        self._files = files
        self._paths: list[str] = []
        self._running = False
        self._waiters = IdleWaiters()

    def unlink(self, paths: Iterable[str]) -> None:
        """Take these names away, some time."""
        if len(self._paths) < _BACKLOG:
            self._paths.extend(paths)
        if not self._running:
            self._next()

    def idle(self) -> Deferred[None]:
        """Wait until nothing is left to do."""
        return self._waiters.wait(self._running)

    def _next(self) -> None:
        batch, self._paths = self._paths[:_BATCH], self._paths[_BATCH:]
        self._running = bool(batch)
        if batch:
            job = self._pool.runAnyway(self._unlinkAll, batch)
            job.addCallbacks(lambda _: self._next(), self._giveUp)
        else:
            self._waiters.notify()

    def _giveUp(self, failure: Failure) -> None:
        # A pool that has stopped refuses: the rest is for the sweep of the next start.
        if failure.check(StoreBusy) is None:
            self._log.failure("names were not removed", failure)
        self._paths.clear()
        self._running = False
        self._waiters.notify()

    def _unlinkAll(self, paths: list[str]) -> None:
        """Take names away; one that resists is logged. Runs in a pool thread."""
        for path in paths:
            try:
                unlinkIfThere(self._files, path)
            except OSError as error:
                self._log.error("{path} was not removed: {error}", path=path, error=str(error))


@implementer(IBlobStore)
class FileBlobs:
    """
    The embedded L{IBlobStore}. Methods: reactor thread, unless they say otherwise.

    @ivar latch: Falls when an fsync fails; nothing is written or removed then.
    """

    _log = Logger()

    def __init__(
        self,
        layout: BlobLayout,
        pool: IWorkPool,
        files: Files,
        latch: WriteFence,
        newId: Callable[[], str],
        durable: bool = True,
    ) -> None:
        """
        @param newId: Makes the ids of new blobs; see
            L{storagegate.storage.interfaces.ICatalog.newBlobId}.
        """
        self.latch = latch
        self._layout = layout
        self._pool = pool
        self._files = files
        self._durability = SyncGroup(files, latch, durable)
        self._newId = newId
        self._shards = Shards(layout, files, self._durability)
        self._handles = HandleCache(pool, files, self._openFile, self._closeFile)
        self._unlinker = BackgroundUnlinker(pool, files)
        self._damaged: set[str] = set()
        self._sinks: WeakSet[FileBlobWriter] = WeakSet()

    def sink(self, inlineLimit: int, expectedSize: int | None = None) -> FileBlobWriter:
        """See L{IBlobStore.sink}."""
        buffer = bufferSize(len(self._sinks) + 1)
        sink = FileBlobWriter(
            self._newFile, self._pool, self.latch, inlineLimit, expectedSize, buffer
        )
        self._sinks.add(sink)
        return sink

    def openBlob(self, blob: str) -> IBlobReader | Deferred[IBlobReader]:
        """Open a blob: at once where its descriptor is cached, else through the pool."""
        if blob in self._damaged:
            return fail(CorruptBlob(f"blob {blob} is damaged"))
        return self._handles.open(blob)

    async def open(self, segment: Segment) -> IBlobReader:
        """See L{IBlobStore.open}."""
        opened = self.openBlob(segment.blob)
        handle: IBlobReader = await opened if isinstance(opened, Deferred) else opened
        if handle.size < segment.offset + segment.length:
            size = handle.size
            handle.release()
            raise CorruptBlob(f"blob {segment.blob} is short: {size} bytes")
        return handle

    async def openToCheck(self, blob: str) -> CheckedBlob:
        """See L{IBlobStore.openToCheck}."""
        fd, size = await self._pool.run(self._openFile, blob)
        return CheckedBlob(fd, size, self._pool, self._files, self._closeSoon)

    def discard(self, blobs: Sequence[str]) -> Deferred[None]:
        """
        See L{IBlobStore.discard}. When it fires, no crash brings the blobs back.

        @raise StoreReadOnly: As a failure; the files stay.
        """
        if self.latch.reason is not None:
            return fail(StoreReadOnly(self.latch.reason))
        descriptors = self._handles.drop(blobs)
        self._damaged.difference_update(blobs)
        # Never refused: it frees space. Garbage comes one batch at a time, and an upload that
        # was refused has one of these.
        return self._pool.runAnyway(self._removeAll, tuple(blobs), descriptors)

    def forget(self, blobs: Sequence[str]) -> None:
        """Let go of blobs that another process has removed; closed is what nobody reads."""
        self._damaged.difference_update(blobs)
        for fd in self._handles.drop(blobs):
            self._closeSoon(fd)

    def settle(self, blobs: Sequence[str]) -> None:
        """See L{IBlobStore.settle}."""
        self._unlinker.unlink(self._layout.stagingPath(blob) for blob in blobs)

    async def unconfirmed(self, olderThanSeconds: float) -> Sequence[str]:
        """See L{IBlobStore.unconfirmed}: a blob that was not settled has a name in C{staging/}."""
        found: list[str] = await self._pool.run(self._listStaging, olderThanSeconds)
        return found

    def markDamaged(self, blobs: Iterable[str]) -> None:
        """Open these blobs no more."""
        self._damaged.update(blobs)

    @property
    def failure(self) -> str | None:
        """Why nothing is written or removed until a restart."""
        return self.latch.reason

    def failStop(self, reason: str) -> None:
        """See L{IBlobStore.failStop}."""
        self.latch.trip(reason)

    def health(self) -> Mapping[str, str | None]:
        """See L{IBlobStore.health}."""
        return {"blobs": self.latch.reason}

    @property
    def damaged(self) -> frozenset[str]:
        """The blobs that are known to be damaged."""
        return frozenset(self._damaged)

    def idle(self) -> Deferred[None]:
        """Wait until every settled blob has lost its first name."""
        return self._unlinker.idle()

    async def close(self) -> None:
        """Finish what runs in the background, and close what is open."""
        await self._unlinker.idle()
        self._handles.close()

    def _newFile(self) -> StagingFile:
        return StagingFile(
            self._newId(),
            self._layout,
            self._files,
            self._shards,
            self._durability,
            self.latch,
        )

    def _openFile(self, blob: str) -> tuple[int, int]:
        """Open a blob; return descriptor and size. Runs in a pool thread."""
        try:
            fd = self._files.openForReading(self._layout.path(blob))
        except FileNotFoundError as error:
            raise CorruptBlob(f"blob {blob} is missing") from error
        except OSError as error:
            raise storeError(error) from error
        try:
            return fd, self._files.size(fd)
        except OSError as error:
            self._closeFile(fd)
            raise storeError(error) from error

    def _closeFile(self, fd: int) -> None:
        """
        Close what was only read: the descriptor is gone whatever the system says. Any thread.
        """
        try:
            self._files.close(fd)
        except OSError as error:
            self._log.error("a blob did not close well: {error}", error=str(error))

    def _closeSoon(self, fd: int) -> None:
        """Close a descriptor in the pool, for that may free the space of a file."""
        self._pool.runAnyway(self._closeFile, fd).addErrback(self._closeHere, fd)

    def _closeHere(self, failure: Failure, fd: int) -> None:
        """Close what no thread is left for."""
        failure.trap(StoreBusy)
        self._closeFile(fd)

    def _listStaging(self, olderThanSeconds: float) -> list[str]:
        """List the first names of blobs that were written long ago. Runs in a pool thread."""
        found = []
        latest = time.time() - olderThanSeconds
        for name in filter(isBlobId, self._files.names(self._layout.staging)):
            # What was settled in the meantime is gone.
            with suppress(FileNotFoundError):
                if os.stat(self._layout.stagingPath(name)).st_mtime < latest:
                    found.append(name)
        return found

    def _removeAll(self, blobs: Sequence[str], descriptors: Sequence[int]) -> None:
        """
        Remove blobs, then make that durable: a blob whose row is forgotten must not come back.
        Runs in a pool thread.
        """
        for fd in descriptors:
            self._closeFile(fd)
        error: OSError | None = None
        for blob in blobs:
            try:
                unlinkIfThere(self._files, self._layout.path(blob))
                unlinkIfThere(self._files, self._layout.stagingPath(blob))
            except OSError as failure:
                error = failure
        if error is not None:
            raise storeError(error) from error
        for shard in sorted({self._layout.shard(blob) for blob in blobs}):
            try:
                self._durability.syncDirectory(shard)
            except FileNotFoundError:
                # No blob of this shard was ever linked.
                continue


def openBlobs(context: BackEndContext, opened: OpenCatalog) -> FileBlobs:
    """
    Open the blobs below the data directory, and sweep what a crash has left. Blocks.

    @raise OSError: The disk refuses.
    """
    layout = BlobLayout(context.directory)
    files, latch = context.files, context.latch
    isDurable = context.durability == "full"
    if context.commons is None:
        syncs = SyncGroup(files, latch, isDurable)
        shards = Shards(layout, files, syncs)
        sweepStaging(layout, files, shards, syncs, opened.knownBlobs)
    return FileBlobs(layout, context.pool, files, latch, opened.catalog.newBlobId, isDurable)
