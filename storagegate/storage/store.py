"""
The store: a catalog, its blobs, and the threads that both use.

The order between the two halves is here: a write confirms its new blobs when the catalog has
committed them, and removes them when the catalog has certainly refused; blobs that lose their last
reference are removed after their readers; and when either half cannot write, all writes fail.

A process that is alone locks the data directory. If several processes serve it, their parent
prepares the store (L{ObjectStore.prepare}) and keeps the lock.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from attrs import define, field
from twisted.internet.defer import CancelledError, Deferred, fail
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import deferLater
from twisted.logger import Logger
from twisted.python.failure import Failure

from storagegate.core.task import IdleWaiters
from storagegate.storage.backends import (
    BLOBS,
    CATALOGS,
    DEFAULT_BLOBS,
    DEFAULT_CATALOG,
    BackEndContext,
    OpenCatalog,
)
from storagegate.storage.blobs.layout import BlobLayout, SyncGroup
from storagegate.storage.catalog import refcounts
from storagegate.storage.catalog.connections import Durability, opened, prepare, readSecret
from storagegate.storage.catalog.reserve import Reserve
from storagegate.storage.errors import StoreError, StoreFull, StoreReadOnly
from storagegate.storage.files import DirectoryLock, FailStopLatch, Files
from storagegate.storage.gc import BlobLease, GarbageCollector
from storagegate.storage.identity import claimBlobs, refuseLostCatalog
from storagegate.storage.interfaces import IBlobStore, IBlobWriter, ICatalog
from storagegate.storage.records import (
    INLINE_LIMIT,
    AccessKey,
    Content,
    ObjectChange,
    ObjectRecord,
    Part,
    Removal,
    WriteCondition,
)
from storagegate.storage.recovery import removeUnconfirmed, sweepStaging
from storagegate.storage.scrub import BYTES_PER_SECOND, CorruptionLog, Scrubber, VerifyingReader
from storagegate.storage.threadpool import BoundedThreadPool

if TYPE_CHECKING:
    # A process that is alone does not import it.
    from storagegate.storage.processgroup import ProcessGroup
    from storagegate.storage.sharedmemory import ProcessGroupConfig

T = TypeVar("T")

_LOW_SPACE = 20
"""A warning is given when less than one part in twenty of the disk is free."""

_SPACE_SECONDS = 10.0
"""Uploads that are refused free what they wrote: so long none is, before that is recovery."""

KEYS_POLL_SECONDS = 0.5
"""Half of the second within which a key that another process revokes must stop working."""


@define(eq=False)
class AccessKeySnapshot:
    """
    The access keys of a store as the catalog had them half a second ago at most.

    All methods: reactor thread.

    @ivar generation: The catalog's number of this snapshot; -1 before the first.
    @ivar keys: The keys by name. Replaced, never changed.
    @ivar problem: Why the last poll failed; L{None} if it did not.
    """

    _log = Logger()

    _catalog: ICatalog
    _clock: IReactorTime
    generation: int = field(default=-1, init=False)
    keys: Mapping[str, AccessKey] = field(factory=dict, init=False)
    problem: str | None = field(default=None, init=False)
    _polling: Deferred[None] | None = field(default=None, init=False)
    _waiters: IdleWaiters = field(factory=IdleWaiters, init=False)

    def start(self) -> None:
        """Poll until L{stop}; the first time at once. Once."""
        self._polling = Deferred.fromCoroutine(self._poll())

    @property
    def isLoaded(self) -> bool:
        """Whether the keys have been read."""
        return self.generation >= 0

    def loaded(self) -> Deferred[None]:
        """Wait until the keys have been read for the first time."""
        return self._waiters.wait(not self.isLoaded)

    async def refresh(self) -> None:
        """Read the keys if their generation is a newer one. A failure is kept as L{problem}."""
        try:
            if await self._catalog.keysGeneration() != self.generation:
                generation, keys = await self._catalog.accessKeys()
                # Of two concurrent reads the older one may end last.
                if generation > self.generation:
                    self.generation = generation
                    self.keys = {key.accessKey: key for key in keys}
        except CancelledError:
            raise
        except Exception as error:
            if self.problem is None:
                self._log.error("access keys were not read: {error}", error=str(error))
            self.problem = str(error) or type(error).__name__
            return
        self.problem = None
        self._waiters.notify()

    async def stop(self) -> None:
        """Poll no more."""
        polling, self._polling = self._polling, None
        if polling is not None:
            polling.cancel()
            await polling

    async def _poll(self) -> None:
        try:
            while True:
                await self.refresh()
                await deferLater(self._clock, KEYS_POLL_SECONDS)
        except CancelledError:
            return


class BackgroundTask(Protocol):
    """Work on a store that goes on for as long as the store is open. Reactor thread."""

    def start(self) -> None:
        """Begin. Once."""

    async def stop(self) -> None:
        """End, when nothing is in work any more."""


class ObjectStore:
    """
    The embedded store. Methods: reactor thread.

    Every method that writes fails with L{StoreReadOnly} once an fsync has failed, in either half.
    A write is carried out, or refused, even if its Deferred is cancelled.

    @ivar catalog: The metadata. Lists and buckets are read from it directly.
    @ivar accessKeys: The issued keys, kept fresh while the store is open.
    @ivar blobs: The bytes.
    @ivar pool: The threads; C{run(function, *args)} runs a function in one.
    @ivar verifier: Compares blobs with their checksums while they are read, if that is configured.
    @ivar observers: Called with each change that this process has committed, in the reactor thread
        and in the order of the commits; with L{ProcessGroupConfig}, also with those of the other
        processes, whose records have no bytes. They must return quickly.
    """

    _log = Logger()

    def __init__(
        self,
        context: BackEndContext,
        catalog: ICatalog,
        blobs: IBlobStore,
        group: "ProcessGroup | None",
        resources: ExitStack,
        scrubBytesPerSecond: int,
        verifyReads: bool,
    ) -> None:
        """
        Connect the parts; L{open} opens them.

        @param context: What the back ends were opened with.
        @param group: The other processes of the store, if there may be some.
        @param resources: Is closed, which blocks, at the very end.
        @param scrubBytesPerSecond: See L{open}; so is C{verifyReads}.
        """
        reactor = context.reactor
        self.catalog = catalog
        self.blobs = blobs
        self.pool = context.pool
        self.run = context.pool.run
        self._directory = context.directory
        self._files = context.files
        self._group = group
        self._resources = resources
        blobs.markCorrupt(catalog.corruptBlobs())
        self.observers: list[Callable[[ObjectChange], None]] = []
        if group is not None:
            self.observers = group.observers
            group.subscribe(blobs, self._notifyObservers)
        corruption = CorruptionLog(catalog, self._markCorrupt)
        self._corruption = corruption
        blobs.onShort = self._markShort
        blobs.onFull = self._sawFull
        self._clock: IReactorTime = reactor
        self._isFull = False
        self._fullAt: float | None = None
        self.verifier = VerifyingReader(catalog, blobs, corruption) if verifyReads else None
        self.scrubber = Scrubber(catalog, blobs, reactor, corruption, scrubBytesPerSecond)
        if group is None or group.isFirst:
            self.scrubber.start()
        self._collector = GarbageCollector(
            self._removeBlobs,
            catalog.forgetBlobs,
            catalog.garbage,
            reactor,
            None if group is None else group.peers,
            catalog.graceSeconds,
            partial(removeUnconfirmed, catalog, blobs),
        )
        # Not now, for that would start a thread, and a process may fork before it serves.
        self._resuming = reactor.callLater(0, self._collector.resumeCollection)
        if group is not None and not group.resumesCollection:
            self._resuming.cancel()
        self._tasks: list[BackgroundTask] = []
        self.accessKeys = AccessKeySnapshot(catalog, reactor)
        self.accessKeys.start()

    def runInOne(self, task: BackgroundTask) -> None:
        """
        Start a task, if this process is the one of the store's that does such work, and stop it
        before the store is closed.

        @param task: One that works with this store.
        """
        if self._group is None or self._group.isFirst:
            self._tasks.append(task)
            task.start()

    @classmethod
    def open(
        cls,
        directory: str,
        reactor: Any,
        *,
        durability: str = "full",
        files: Files | None = None,
        random: Callable[[int], bytes] = os.urandom,
        scrubBytesPerSecond: int = BYTES_PER_SECOND,
        verifyReads: bool = False,
        sharing: "ProcessGroupConfig | None" = None,
        catalog: str = DEFAULT_CATALOG,
        blobs: str = DEFAULT_BLOBS,
    ) -> "ObjectStore":
        """
        Open a store, creating it if it does not exist. Blocks; call it before the reactor runs.

        Files that a crash has left in C{staging/} are removed first.

        @param reactor: Provides C{IReactorFromThreads} and C{IReactorTime}.
        @param durability: C{"full"}, or C{"os"} for no fsyncs.
        @param files: The operating system's calls, or a replacement.
        @param random: C{os.urandom} or a replacement.
        @param scrubBytesPerSecond: How fast blobs are read again in the background.
        @param verifyReads: Whether there is a C{verifier}.
        @param sharing: The other processes that serve the same store. Their parent has called
            L{prepare}, and keeps the lock.
        @param catalog: The back end of the catalog, a name in L{storagegate.storage.backends}.
        @param blobs: The back end of the blobs, likewise.
        @param directory: The data directory.
        @raise StoreLocked: Another process has it open.
        @raise StoreError: It cannot be used; one line gives the reason.
        @raise OSError: The disk refuses.
        """
        files = files or Files()
        store: ObjectStore
        with ExitStack() as opened:
            group = _enter(opened, directory, reactor, files, durability, sharing)
            context = BackEndContext(
                directory,
                reactor,
                BoundedThreadPool(reactor),
                files,
                durability,
                random,
                lambda ids: store._collector.reclaim(ids),
                FailStopLatch() if group is None else group.latch,
                None if group is None else group.catalogState,
                b"" if group is None else group.owner,
            )
            parts = _openBackEnds(context, catalog, blobs)
            store = cls(context, *parts, group, opened.pop_all(), scrubBytesPerSecond, verifyReads)
        return store

    @staticmethod
    def prepare(
        directory: str, *, durability: str = "full", files: Files | None = None
    ) -> DirectoryLock:
        """
        Make a store ready for several processes, which each L{open} it. Blocks.

        It is created if it does not exist, and files that a crash has left are removed.

        @param files: The operating system's calls, or a replacement.
        @param directory: The data directory.
        @param durability: See L{open}.
        @return: The lock. The processes inherit its descriptor; until the last of them and the
            caller have ended, no other process can open the store.
        @raise StoreLocked: Another process has it open.
        @raise StoreError: It cannot be used; one line gives the reason.
        @raise OSError: The disk refuses.
        """
        files = files or Files()
        path = os.path.join(directory, "catalog.sqlite")
        kind = Durability(durability)
        with ExitStack() as taken:
            lock = _lock(directory, files, durability)
            taken.callback(lock.release)
            layout = BlobLayout(directory)
            refuseLostCatalog(layout, files)
            prepare(path, kind)
            with opened(path, kind) as connection:
                Reserve(os.path.join(directory, "reserve")).ensure()
                known = partial(refcounts.knownBlobs, connection)
                syncs = SyncGroup(files, FailStopLatch(), kind is Durability.FULL)
                claimBlobs(layout, files, syncs, readSecret(connection), known)
                sweepStaging(layout, files, syncs, known)
            os.set_inheritable(lock.descriptor, True)
            taken.pop_all()
            return lock

    def putObject(
        self, record: ObjectRecord, writer: IBlobWriter | None, condition: WriteCondition
    ) -> Deferred[ObjectRecord]:
        """
        Store an object whose bytes are durable; see L{ICatalog.putObject}.

        @param writer: The finished writer of the content; L{None} for a copy.
        @param record: See L{ICatalog.putObject}; so is C{condition}.
        """
        newBlobs = {} if writer is None else writer.takeNewBlobs()
        args = (record, condition, newBlobs)
        return self._write(newBlobs, self._notifyCreated, self.catalog.putObject, *args)

    def putPart(
        self, bucket: str, key: bytes, uploadId: str, part: Part, writer: IBlobWriter | None
    ) -> Deferred[None]:
        """
        Store a part whose bytes are durable; see L{ICatalog.putPart}.

        @param writer: The finished writer of the content; L{None} for a copy.
        @param part: Replaces one of the same number.
        """
        newBlobs = {} if writer is None else writer.takeNewBlobs()
        args = (bucket, key, uploadId, part, newBlobs)
        return self._write(newBlobs, None, self.catalog.putPart, *args)

    def completeUpload(
        self,
        uploadId: str,
        record: ObjectRecord,
        parts: Sequence[tuple[int, str]],
        condition: WriteCondition,
    ) -> Deferred[ObjectRecord]:
        """Turn parts into an object; see L{ICatalog.completeUpload}."""
        args = (uploadId, record, parts, condition)
        return self._write({}, self._notifyCreated, self.catalog.completeUpload, *args)

    def deleteObjects(
        self,
        bucket: str,
        entries: Sequence[tuple[bytes, str | None, WriteCondition]],
        account: str = "",
        atMs: int = 0,
    ) -> Deferred[list[Removal | Exception]]:
        """
        Remove objects; see L{ICatalog.deleteObjects}. Blobs are removed in the background.

        @param entries: See L{ICatalog.deleteObjects}; so are C{account} and C{atMs}.
        """

        def notify(results: list[Removal | Exception]) -> None:
            for (key, _, _), result in zip(entries, results, strict=True):
                if isinstance(result, Removal) and result.isChanged:
                    self._notify(ObjectChange(bucket, key, result.current))

        args = (bucket, entries, account, atMs)
        return self._write({}, notify, self.catalog.deleteObjects, *args)

    async def deleteBucket(self, name: str) -> None:
        """Remove an empty bucket; see L{ICatalog.deleteBucket}."""
        await self.catalog.deleteBucket(name)
        self._notify(ObjectChange(name, None, None))

    def abort(self, writer: IBlobWriter) -> None:
        """
        Abort an upload, whether its writer has finished or not. Does nothing after the writer was
        an argument of L{putObject} or L{putPart}, which confirm or remove its blobs.
        """
        writer.abort()
        self._removeNew(writer.takeNewBlobs())

    def hold(self, content: Content) -> BlobLease:
        """
        Keep the blobs of a content until the lease is released, even if the object is replaced.

        Call it in the same iteration of the reactor in which the look-up returned the content.

        @param content: Without segments nothing is held.
        """
        return self._collector.hold({segment.blob for segment in content.segments})

    @property
    def readOnly(self) -> str | None:
        """Why nothing can be written until a restart, or L{None}."""
        return self.blobs.failure or self.catalog.failure

    def space(self) -> tuple[int, int]:
        """
        Return the bytes that are free on the disk, and all of its bytes.

        @raise OSError: The disk does not respond.
        """
        return self._files.space(self._directory)

    def health(self) -> dict[str, str | None]:
        """Return for each part why the store cannot take writes, or L{None}."""
        disk = self._disk(lambda free, total: free < INLINE_LIMIT)
        self._logFull(disk)
        return {**self.catalog.health(), **self.blobs.health(), "disk": disk}

    def warnings(self) -> dict[str, str | None]:
        """Return problems that an operator should see although the store works, or L{None}s."""
        damaged = self.damagedCount
        return {
            "corrupt": f"{damaged} objects or blobs are corrupt" if damaged else None,
            "disk": self._disk(lambda free, total: free * _LOW_SPACE < total),
            "inodes": self._inodes(),
        }

    @property
    def damagedCount(self) -> int:
        """How many objects and blobs are known to be corrupt."""
        return len(self.blobs.corrupt) + len(self.scrubber.corruptObjects)

    @property
    def reclaimBacklog(self) -> int:
        """How many blobs are to be removed."""
        return self._collector.backlog

    def _disk(self, isLow: Callable[[int, int], bool]) -> str | None:
        try:
            free, total = self.space()
        except OSError as error:
            return f"the disk does not respond: {error.strerror or error}"
        return f"{free >> 10} KiB are free" if isLow(free, total) else None

    def _sawFull(self) -> None:
        """Note that a write was refused because the disk is full. Any thread."""
        self._isFull = True

    def _logFull(self, problem: str | None) -> None:
        """Log that the disk is full, and that it has not been for a while: one line each."""
        isFull, self._isFull = self._isFull or problem is not None, False
        now = self._clock.seconds()
        if isFull:
            if self._fullAt is None:
                text = problem or "a write did not fit"
                self._log.error("the disk is full, deletes work: {text}", text=text)
            self._fullAt = now
        elif self._fullAt is not None and now - self._fullAt >= _SPACE_SECONDS:
            self._fullAt = None
            self._log.info("the disk has space again")

    def _inodes(self) -> str | None:
        try:
            free, total = self._files.inodes(self._directory)
        except OSError:
            # The warning of the disk says so.
            return None
        return f"{free} inodes are free" if free * _LOW_SPACE < total else None

    def idle(self) -> Deferred[None]:
        """Wait until all garbage is removed, except blobs with leases."""
        return self._collector.idle()

    async def close(self) -> None:
        """Finish all writes, then release the directory. Once."""
        if self._resuming.active():
            self._resuming.cancel()
        try:
            await self.accessKeys.stop()
            for task in self._tasks:
                await task.stop()
            await self.scrubber.stop()
            await self._collector.stop()
            await self.blobs.close()
            await self.catalog.close()
        finally:
            await self.pool.stop()
            if self._group is not None:
                self._group.isClean = self._collector.isClean
            self._resources.close()

    def _notifyCreated(self, record: ObjectRecord) -> None:
        self._notify(ObjectChange(record.bucket, record.key, record))

    def _notify(self, change: ObjectChange) -> None:
        if self._group is not None:
            self._group.broadcastChange(change)
        self._notifyObservers(change)

    def _notifyObservers(self, change: ObjectChange) -> None:
        for observer in tuple(self.observers):
            try:
                observer(change)
            except Exception:
                # The change is committed nevertheless.
                self._log.failure("an observer of the store failed")

    def _write(
        self,
        newBlobs: Mapping[str, int],
        notify: Callable[[T], None] | None,
        mutate: Callable[..., Deferred[T]],
        *args: Any,
    ) -> Deferred[T]:
        """
        Change the catalog, and confirm or remove the new blobs.

        The caller gets a Deferred of its own, so that cancelling it does not affect the mutation,
        which may be committed after all.
        """
        if (reason := self.readOnly) is not None:
            self._removeNew(newBlobs)
            return fail(StoreReadOnly(reason))
        written: Deferred[T] = Deferred()

        def committed(result: T) -> None:
            try:
                if newBlobs:
                    self.blobs.confirm(tuple(newBlobs))
                if notify is not None and (self.observers or self._group is not None):
                    notify(result)
            except Exception:
                written.errback()
            else:
                written.callback(result)

        def refused(failure: Failure) -> None:
            if failure.check(StoreReadOnly):
                # The commit may be on the disk or not. The blobs keep their names in staging/,
                # and the next start looks them up in the catalog.
                self.blobs.failStop(f"the catalog failed: {failure.getErrorMessage()}")
            elif failure.check(StoreError):
                self._removeNew(newBlobs)
                if failure.check(StoreFull):
                    self._sawFull()
            written.errback(failure)

        mutate(*args).addCallbacks(committed, refused)
        return written

    def _removeNew(self, newBlobs: Mapping[str, int]) -> None:
        # A blob that cannot be removed now keeps its name in staging/ for the next start.
        if newBlobs and self.blobs.failure is None:
            self.blobs.remove(tuple(newBlobs)).addErrback(
                lambda failure: self._log.error(
                    "an upload was not removed: {error}", error=failure.getErrorMessage()
                )
            )

    async def _removeBlobs(self, ids: Sequence[str]) -> None:
        """Remove blobs, in all processes."""
        await self.blobs.remove(ids)
        if self._group is not None:
            self._group.broadcastRemoved(ids)

    def _markShort(self, blob: str, size: int) -> None:
        """Record a blob that a reader has found short."""

        async def record() -> None:
            row = await self.catalog.blobRow(blob)
            if row is None:
                # It was deleted meanwhile.
                self.blobs.forget([blob])
            else:
                await self._corruption.add(row, f"has {size} bytes, not {row.size}")

        self._markCorrupt([blob])
        Deferred.fromCoroutine(record()).addErrback(
            lambda failure: self._log.error(
                "damage was not recorded: {error}", error=failure.getErrorMessage()
            )
        )

    def _markCorrupt(self, ids: Sequence[str]) -> None:
        """Stop reads of these blobs, in all processes."""
        self.blobs.markCorrupt(ids)
        if self._group is not None:
            self._group.broadcastCorrupt(ids)


def _lock(directory: str, files: Files, durability: str) -> DirectoryLock:
    """Make the directories of a store, which only their owner may enter, and lock it."""
    layout = BlobLayout(directory)
    syncs = SyncGroup(files, FailStopLatch(), durability == "full")
    os.makedirs(os.path.dirname(os.path.abspath(directory)), exist_ok=True)
    for path in (directory, layout.blobs, layout.staging):
        try:
            files.makeDirectory(path)
        except FileExistsError:
            continue
        syncs.syncDirectory(os.path.dirname(path) or ".")
    return DirectoryLock.take(directory)


def _enter(
    opened: ExitStack,
    directory: str,
    reactor: Any,
    files: Files,
    durability: str,
    sharing: "ProcessGroupConfig | None",
) -> "ProcessGroup | None":
    """Lock a store, or join the other processes that serve it, until C{opened} is closed."""
    if sharing is None:
        opened.callback(_lock(directory, files, durability).release)
        return None
    from storagegate.storage.processgroup import ProcessGroup

    group = ProcessGroup(sharing, reactor, directory)
    opened.callback(group.leave)
    group.recover(directory, files, durability)
    return group


def _openBackEnds(context: BackEndContext, catalog: str, blobs: str) -> tuple[ICatalog, IBlobStore]:
    """Open the catalog first: recovery of blobs needs it."""
    found: OpenCatalog = resolve_name(CATALOGS[catalog])(context)
    openedBlobs: IBlobStore = resolve_name(BLOBS[blobs])(context, found)
    return found.catalog, openedBlobs
