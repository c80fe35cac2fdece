"""
Blobs stored as files below one directory.

Descriptors stay open for the next reader, so that a repeated GET opens no file. Names are unlinked
in the background.
"""

import os
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from weakref import WeakSet

from attrs import define, field
from twisted.internet.defer import Deferred, fail, succeed
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

from storagegate.core.task import IdleWaiters
from storagegate.storage.backends import BackEndContext, OpenCatalog
from storagegate.storage.blobinterfaces import BlobFilter, ByteSink, Hasher, IBlobReader, IBlobStore
from storagegate.storage.blobwriter import BUFFER, BlobWriter, StagingFile, bufferSize
from storagegate.storage.embedded.recovery import sweepStaging
from storagegate.storage.errors import CorruptBlob, StoreBusy, StoreFull, StoreReadOnly
from storagegate.storage.files import FailStopLatch, Files, unlinkIfThere
from storagegate.storage.identity import claimBlobs
from storagegate.storage.layout import (
    DISK_FULL,
    BlobLayout,
    Shards,
    SyncGroup,
    isBlobId,
    storeError,
)
from storagegate.storage.records import Segment
from storagegate.storage.threadpool import IWorkPool

CAPACITY = 256
"""Descriptors kept open: a quarter of the default limit of 1024 per process."""


DIGEST_JOB = 8 << 20
"""Bytes that one pool job reads and hashes: enough to justify a thread switch, but quick."""

DIGEST_PIECE = 1 << 20
"""Bytes that are read at a time."""


@define(eq=False)
class _OpenFile:
    """
    An open file and the number of its readers.

    @ivar isRemoved: Whether the blob was removed, so that the last reader closes the file.
    """

    blob: str
    fd: int
    size: int
    users: int = 0
    isRemoved: bool = False


@implementer(IBlobReader)
@define(eq=False)
class BlobReader:
    """
    One reader of an open file.

    @ivar fd: The descriptor for C{pread} and C{sendfile}; its position is never used.
    @ivar size: The size of the file when it was opened.
    @ivar _onClose: Called by L{close}.
    @ivar _keepsPages: Whether digested bytes stay in the page cache.
    """

    isVerified = False

    fd: int
    size: int
    _pool: IWorkPool
    _files: Files
    _onClose: Callable[[], object] | None
    _keepsPages: bool = True

    async def sendTo(self, response: ByteSink, offset: int, length: int) -> None:
        """See L{IBlobReader.sendTo}."""
        await response.sendFile(self.fd, offset, length, self._pool.run)

    async def read(self, offset: int, length: int, hashers: Sequence[Hasher] = ()) -> bytes:
        """See L{IBlobReader.read}."""
        run: bytes = await self._pool.run(self._readNow, offset, length, hashers)
        return run

    def readWarm(self, offset: int, length: int) -> bytes | None:
        """See L{IBlobReader.readWarm}."""
        return self._files.readWarm(self.fd, length, offset)

    async def digest(
        self,
        hashers: Sequence[Hasher],
        offset: int,
        length: int,
        space: memoryview | None = None,
    ) -> int:
        """See L{IBlobReader.digest}; pool jobs run one after the other."""
        done = 0
        while done < length:
            size = min(DIGEST_JOB, length - done)
            count: int = await self._pool.run(self._digestNow, hashers, offset + done, size, space)
            done += count
            if count < size:
                break
        return done

    def close(self) -> None:
        """
        See L{IBlobReader.close}.

        @raise RuntimeError: The reader was already closed; its descriptor number may have been
            reused.
        """
        if self._onClose is None:
            raise RuntimeError("the reader is already closed")
        onClose, self._onClose = self._onClose, None
        onClose()

    def _readNow(self, offset: int, length: int, hashers: Sequence[Hasher]) -> bytes:
        """Read and hash a range of the file. Runs in a pool thread."""
        run = self._files.read(self.fd, length, offset)
        for hasher in hashers:
            hasher.update(run)
        return run

    def _digestNow(
        self, hashers: Sequence[Hasher], offset: int, length: int, space: memoryview | None
    ) -> int:
        """Read and hash a range of the file, piece by piece. Runs in a pool thread."""
        begin, end = offset, offset + length
        while offset < end:
            chunk: bytes | memoryview
            if space is None:
                chunk = self._files.read(self.fd, min(end - offset, DIGEST_PIECE), offset)
            else:
                chunk = space[: min(end - offset, len(space))]
                chunk = chunk[: self._files.readInto(self.fd, chunk, offset)]
            if not chunk:
                break
            for hasher in hashers:
                hasher.update(chunk)
            if not self._keepsPages:
                # A check must not displace pages that clients read.
                self._files.dropCache(self.fd, offset, len(chunk))
            offset += len(chunk)
        return offset - begin


@define(eq=False)
class HandleCache:
    """
    A cache of recently used descriptors. All methods: reactor thread.

    @ivar _files: The operating system's calls.
    @ivar _openFile: Opens the blob of an id; returns descriptor and size. Blocks; runs in the pool.
    @ivar _closeFile: Closes a descriptor and never fails; blocks if it is the last one of a removed
        file.
    @ivar _closeSoon: Closes a descriptor in the pool.
    @ivar _pool: Runs C{openFile} and the reads of readers.
    @ivar _capacity: The most descriptors; beyond it idle ones are closed, but descriptors with
        readers stay.
    """

    _pool: IWorkPool
    _files: Files
    _openFile: Callable[[str], tuple[int, int]]
    _closeFile: Callable[[int], None]
    _closeSoon: Callable[[int], object]
    _capacity: int = CAPACITY
    _busy: dict[str, _OpenFile] = field(factory=dict, init=False)
    _idle: OrderedDict[str, _OpenFile] = field(factory=OrderedDict, init=False)
    _opening: dict[str, list[Deferred[IBlobReader]]] = field(factory=dict, init=False)
    _removed: set[str] = field(factory=set, init=False)
    _closed: bool = field(default=False, init=False)

    def open(self, blob: str) -> BlobReader | Deferred[IBlobReader]:
        """Return a reader of a blob. Concurrent misses share one open."""
        entry = self._busy.get(blob)
        if entry is None:
            entry = self._idle.pop(blob, None)
            if entry is None:
                return self._miss(blob)
            self._busy[blob] = entry
        return self._newReader(entry)

    def drop(self, blobs: Iterable[str]) -> list[int]:
        """
        Forget blobs that are about to be removed.

        @param blobs: The blobs; a blob with readers is closed after its last reader.
        @return: Descriptors that must be closed outside the reactor thread, because closing frees
            disk space.
        """
        descriptors = []
        for blob in blobs:
            if (entry := self._idle.pop(blob, None)) is not None:
                descriptors.append(entry.fd)
            elif (entry := self._busy.pop(blob, None)) is not None:
                entry.isRemoved = True
            elif blob in self._opening:
                self._removed.add(blob)
        return descriptors

    def close(self) -> None:
        """
        Close files without readers now, and the rest after their last readers. Refuse new opens.
        """
        self._closed = True
        while self._idle:
            self._closeFile(self._idle.popitem()[1].fd)
        for entry in self._busy.values():
            entry.isRemoved = True
        self._busy.clear()

    def _newReader(self, entry: _OpenFile) -> BlobReader:
        entry.users += 1
        release = partial(self._release, entry)
        return BlobReader(entry.fd, entry.size, self._pool, self._files, release)

    def _miss(self, blob: str) -> Deferred[IBlobReader]:
        if self._closed:
            return fail(StoreBusy("the store is closing"))
        isFirst = blob not in self._opening
        waiting = self._opening.setdefault(blob, [])
        reader: Deferred[IBlobReader] = Deferred(waiting.remove)
        waiting.append(reader)
        if isFirst:
            job = self._pool.run(self._openFile, blob)
            job.addCallbacks(self._opened, self._notOpened, (blob,), {}, (blob,))
        return reader

    def _opened(self, file: tuple[int, int], blob: str) -> None:
        entry = _OpenFile(blob, *file)
        readers = self._opening.pop(blob)
        entry.isRemoved = blob in self._removed or self._closed
        self._removed.discard(blob)
        # An extra user: otherwise the first reader's close could close the file for the others.
        entry.users = 1
        if not entry.isRemoved:
            self._busy[blob] = entry
        # A callback may cancel another reader, which removes itself from this list.
        while readers:
            readers.pop(0).callback(self._newReader(entry))
        self._release(entry)

    def _notOpened(self, failure: Failure, blob: str) -> None:
        self._removed.discard(blob)
        readers = self._opening.pop(blob)
        while readers:
            readers.pop(0).errback(failure)

    def _release(self, entry: _OpenFile) -> None:
        entry.users -= 1
        if entry.users:
            return
        if entry.isRemoved:
            self._closeSoon(entry.fd)
            return
        del self._busy[entry.blob]
        self._idle[entry.blob] = entry
        while self._idle and len(self._busy) + len(self._idle) > self._capacity:
            self._closeFile(self._idle.popitem(last=False)[1].fd)


_BATCH = 512
"""Names per job: few jobs, but none that occupies a thread for long."""

_BACKLOG = 65_536
"""The most waiting names (8 MB); further names are left to the sweep at the next start."""


@define(eq=False)
class BackgroundUnlinker:
    """
    Unlinks names in the pool, one job at a time. Methods: reactor thread, except the last.

    @ivar _pool: Runs the jobs, even when it is full.
    @ivar _files: The operating system's calls.
    @ivar _latch: While it is set, names are left to the sweep at the next start.
    """

    _log = Logger()

    _pool: IWorkPool
    _files: Files
    _latch: FailStopLatch
    _paths: list[str] = field(factory=list, init=False)
    _running: bool = field(default=False, init=False)
    _waiters: IdleWaiters = field(factory=IdleWaiters, init=False)

    def unlink(self, paths: Iterable[str]) -> None:
        """Unlink names later; drop them if 65,536 are already waiting."""
        if len(self._paths) < _BACKLOG:
            self._paths.extend(paths)
        if not self._running:
            self._running = True
            Deferred.fromCoroutine(self._work())

    def idle(self) -> Deferred[None]:
        """Wait until all names are unlinked."""
        return self._waiters.wait(self._running)

    async def _work(self) -> None:
        try:
            while self._paths:
                batch, self._paths = self._paths[:_BATCH], self._paths[_BATCH:]
                await self._pool.runAnyway(self._unlinkAll, batch)
        except StoreBusy:
            # The pool has stopped; the sweep at the next start removes the rest.
            self._paths.clear()
        finally:
            self._running = False
            self._waiters.notify()

    def _unlinkAll(self, paths: list[str]) -> None:
        """Unlink names; log failures. Runs in a pool thread."""
        for path in paths:
            if self._latch.failure is not None:
                return
            try:
                unlinkIfThere(self._files, path)
            except OSError as error:
                self._log.error("cannot remove {path}: {error}", path=path, error=str(error))


@implementer(IBlobStore)
class FileBlobs:
    """
    The embedded L{IBlobStore}. Methods: reactor thread, unless they say otherwise.

    @ivar latch: Set when an fsync fails, after which nothing is written or removed.
    """

    _log = Logger()

    isRemote = False
    unconfirmedWrites = rereads = 0

    def __init__(
        self,
        layout: BlobLayout,
        pool: IWorkPool,
        files: Files,
        latch: FailStopLatch,
        newId: Callable[[], str],
        durable: bool = True,
    ) -> None:
        """
        @param pool: Runs blocking calls.
        @param files: The operating system's calls.
        @param newId: Generates the ids of new blobs; see
            L{storagegate.storage.interfaces.ICatalog.newBlobId}.
        @param durable: Whether to sync files and directories; C{False} leaves that to the operating
            system.
        """
        self.latch = latch
        self._layout = layout
        self._pool = pool
        self._files = files
        self._durability = SyncGroup(files, latch, durable)
        self._newId = newId
        self._shards = Shards(layout, files, self._durability)
        self._handles = HandleCache(pool, files, self._openFile, self._closeFile, self._closeSoon)
        self._unlinker = BackgroundUnlinker(pool, files, latch)
        self._corrupt: set[str] = set()
        self.onFull: Callable[[], object] = lambda: None
        self.onShort: Callable[[str, int], object] = lambda blob, size: None
        self.onDamaged: Callable[[str], object] = lambda blob: None
        self.reexamine: Callable[[str], Deferred[bool]] = lambda blob: succeed(False)
        self._isSuspect = self._isProbing = False
        self._problem: str | None = None
        self._writers: WeakSet[BlobWriter] = WeakSet()

    def writer(
        self,
        inlineLimit: int,
        expectedSize: int | None = None,
        bucket: str = "",
        filtered: BlobFilter | None = None,
    ) -> BlobWriter:
        """See L{IBlobStore.writer}."""
        buffer = bufferSize(len(self._writers) + 1)
        writer = BlobWriter(
            self._newFile,
            self._pool,
            self.latch,
            inlineLimit,
            expectedSize,
            buffer,
            isDouble=buffer == BUFFER,
            filtered=filtered,
        )
        self._writers.add(writer)
        return writer

    def openBlob(self, blob: str) -> IBlobReader | Deferred[IBlobReader]:
        """Open a blob: immediately if its descriptor is cached, otherwise through the pool."""
        if blob in self._corrupt:
            return Deferred.fromCoroutine(self._openMarked(blob))
        return self._handles.open(blob)

    async def _openMarked(self, blob: str) -> IBlobReader:
        """Open a blob that is marked as corrupt, if it is intact again."""
        if not await self.reexamine(blob):
            raise CorruptBlob(f"blob {blob} is damaged")
        opened = self._handles.open(blob)
        return await opened if isinstance(opened, Deferred) else opened

    async def open(self, segment: Segment) -> IBlobReader:
        """See L{IBlobStore.open}."""
        opened = self.openBlob(segment.blob)
        reader: IBlobReader = await opened if isinstance(opened, Deferred) else opened
        if reader.size < segment.offset + segment.length:
            size = reader.size
            reader.close()
            self.onShort(segment.blob, size)
            raise CorruptBlob(f"blob {segment.blob} is short: {size} bytes")
        return reader

    async def openUncached(self, blob: str) -> BlobReader:
        """See L{IBlobStore.openUncached}."""
        opened: Deferred[tuple[int, int]] = Deferred()

        def done(file: tuple[int, int]) -> None:
            if opened.called:
                # The caller was cancelled, but the job has opened the file.
                self._closeSoon(file[0])
            else:
                opened.callback(file)

        self._pool.run(self._openFile, blob).addCallbacks(done, opened.errback)
        fd, size = await opened
        close = partial(self._closeSoon, fd)
        return BlobReader(fd, size, self._pool, self._files, close, keepsPages=False)

    def remove(self, blobs: Sequence[str]) -> Deferred[None]:
        """See L{IBlobStore.remove}. The removal is durable."""
        if self.latch.failure is not None:
            return fail(StoreReadOnly(self.latch.failure))
        descriptors = self._handles.drop(blobs)
        self._corrupt.difference_update(blobs)
        # Never refused, because it frees space. The calls are bounded: one batch of garbage at a
        # time, and one call per refused upload.
        return self._pool.runAnyway(self._removeAll, tuple(blobs), descriptors)

    def forget(self, blobs: Sequence[str]) -> None:
        """See L{IBlobStore.forget}; files without readers are closed."""
        self._corrupt.difference_update(blobs)
        for fd in self._handles.drop(blobs):
            self._closeSoon(fd)

    def confirm(self, blobs: Sequence[str]) -> None:
        """See L{IBlobStore.confirm}."""
        self._unlinker.unlink(self._layout.stagingPath(blob) for blob in blobs)

    async def unconfirmed(
        self, olderThanSeconds: float, corrected: Callable[[int], int]
    ) -> Sequence[str]:
        """See L{IBlobStore.unconfirmed}: such a blob has a name in C{staging/}."""
        found: list[str] = await self._pool.run(self._listStaging, olderThanSeconds, corrected)
        return found

    def markCorrupt(self, blobs: Iterable[str]) -> None:
        """See L{IBlobStore.markCorrupt}."""
        self._corrupt.update(blobs)

    def clearCorrupt(self, blobs: Iterable[str]) -> None:
        """
        See L{IBlobStore.clearCorrupt}; cached descriptors are closed, because the files may have
        been replaced.
        """
        cleared = self._corrupt.intersection(blobs)
        self._corrupt -= cleared
        for fd in self._handles.drop(sorted(cleared)):
            self._closeSoon(fd)

    @property
    def failure(self) -> str | None:
        """Why nothing is written or removed until a restart, or L{None}."""
        return self.latch.failure

    def failStop(self, reason: str) -> None:
        """See L{IBlobStore.failStop}."""
        self.latch.set(reason)

    def health(self) -> Mapping[str, str | None]:
        """
        See L{IBlobStore.health}. Checks that the directories exist and are writable. After an
        operating system error it also starts a probe in the pool that writes and opens a blob.
        """
        for path in (self._layout.blobs, self._layout.staging):
            try:
                wrong = "is on a read-only file system" if self._files.isReadOnly(path) else None
            except FileNotFoundError:
                wrong = "is missing"
            except OSError as error:
                wrong = f"cannot be used: {error.strerror or error}"
            if wrong is not None:
                return {"blobs": self.latch.failure or f"{path} {wrong}"}
        if (self._isSuspect or self._problem) and not (self._isProbing or self.latch.failure):
            self._isProbing, self._isSuspect = True, False
            self._pool.runAnyway(self._probe, self._newFile()).addBoth(self._probed)
        return {"blobs": self.latch.failure or self._problem}

    @property
    def corrupt(self) -> frozenset[str]:
        """The blobs that are known to be corrupt."""
        return frozenset(self._corrupt)

    def idle(self) -> Deferred[None]:
        """Wait until the staging names of all confirmed blobs are unlinked."""
        return self._unlinker.idle()

    async def close(self) -> None:
        """Finish background work and close all files."""
        await self._unlinker.idle()
        self._handles.close()

    def _suspect(self, error: OSError) -> None:
        """
        Request a probe of the disk at the next health check, unless the disk is full. Any thread.
        """
        if error.errno in DISK_FULL:
            self.onFull()
        else:
            self._isSuspect = True

    def _probe(self, file: StagingFile) -> None:
        """Write, open and remove an empty blob. Runs in a pool thread."""
        try:
            file.commit([])
            self._closeFile(self._files.openForReading(self._layout.path(file.blob)))
        finally:
            file.remove()

    def _probed(self, result: object) -> None:
        self._isProbing = self._isSuspect = False
        problem = None
        if isinstance(result, Failure) and not result.check(StoreFull, StoreBusy):
            problem = f"writes or reads fail: {result.getErrorMessage()}"
        if (problem is None) != (self._problem is None):
            self._log.warn("blobs: {state}", state=problem or "is writable and readable again")
        self._problem = problem

    def _newFile(self) -> StagingFile:
        return StagingFile(
            self._newId(),
            self._layout,
            self._files,
            self._shards,
            self._durability,
            self.latch,
            self._suspect,
        )

    def _openFile(self, blob: str) -> tuple[int, int]:
        """Open a blob; return its descriptor and size. Runs in a pool thread."""
        try:
            fd = self._files.openForReading(self._layout.path(blob))
        except FileNotFoundError as error:
            if not os.path.isdir(self._layout.blobs):
                # The whole directory is missing, and may come back.
                raise storeError(error) from error
            raise CorruptBlob(f"blob {blob} is missing") from error
        except OSError as error:
            self._suspect(error)
            raise storeError(error) from error
        try:
            return fd, self._files.size(fd)
        except OSError as error:
            self._closeFile(fd)
            raise storeError(error) from error

    def _closeFile(self, fd: int) -> None:
        """Close a descriptor that was only read. It is closed even after an error. Any thread."""
        try:
            self._files.close(fd)
        except OSError as error:
            self._log.error("closing a blob failed: {error}", error=str(error))

    def _closeSoon(self, fd: int) -> None:
        """Close a descriptor in the pool, because freeing the space of a file blocks."""

        def closeHere(failure: Failure) -> None:
            # The pool has stopped, so blocking this thread delays no call.
            failure.trap(StoreBusy)
            self._closeFile(fd)

        self._pool.runAnyway(self._closeFile, fd).addErrback(closeHere)

    def _listStaging(self, olderThanSeconds: float, corrected: Callable[[int], int]) -> list[str]:
        """List the staging names of blobs that were written long ago. Runs in a pool thread."""
        found = []
        latestMs = int((time.time() - olderThanSeconds) * 1000)
        for name in filter(isBlobId, self._files.names(self._layout.staging)):
            # A blob confirmed in the meantime has no staging name.
            with suppress(FileNotFoundError):
                modified = os.stat(self._layout.stagingPath(name)).st_mtime
                if corrected(int(modified * 1000)) < latestMs:
                    found.append(name)
        return found

    def _removeAll(self, blobs: Sequence[str], descriptors: Sequence[int]) -> None:
        """
        Remove blobs durably: a blob whose row is forgotten must not reappear. Runs in a pool
        thread.
        """
        for fd in descriptors:
            self._closeFile(fd)
        error: OSError | None = None
        for blob in blobs:
            self.latch.check()
            try:
                unlinkIfThere(self._files, self._layout.path(blob))
                unlinkIfThere(self._files, self._layout.stagingPath(blob))
            except OSError as failure:
                error = failure
        if error is not None:
            try:
                raise storeError(error) from error
            finally:
                # Break the reference cycle through the traceback.
                del error
        for shard in sorted({self._layout.shard(blob) for blob in blobs}):
            try:
                self._durability.syncDirectory(shard)
            except FileNotFoundError:
                # No blob of this shard was ever linked.
                continue


def openBlobs(context: BackEndContext, opened: OpenCatalog) -> FileBlobs:
    """
    Open the blobs below the data directory and sweep files left by a crash. Blocks.

    @param context: The data directory, pool and durability of the store.
    @param opened: The catalog; blobs unknown to it are removed from C{staging/}.
    @raise ForeignBlobs: The blobs do not belong to the catalog.
    @raise OSError: The operating system reported a disk error.
    """
    layout = BlobLayout(context.directory)
    files, latch = context.files, context.latch
    isDurable = context.durability == "full"
    if context.catalogState is None:
        syncs = SyncGroup(files, latch, isDurable)
        claimBlobs(layout, files, syncs, opened.catalog.secret(), opened.knownBlobs)
        sweepStaging(layout, files, syncs, opened.knownBlobs, opened.settle)
    return FileBlobs(layout, context.pool, files, latch, opened.catalog.newBlobId, isDurable)
