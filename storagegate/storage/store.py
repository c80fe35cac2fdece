"""
The store: a catalog, its blobs, and the threads they share.

This module orders the work of catalog and blobs. A write confirms its new blobs when the catalog
has committed them, and removes them if the catalog has definitely refused. Blobs that lose their
last reference are removed after their readers. If either side cannot write, all writes fail.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pkgutil import resolve_name
from typing import Any

from msgspec.structs import replace
from twisted.internet.defer import Deferred, DeferredQueue, fail
from twisted.logger import Logger
from twisted.python.failure import Failure

from storagegate.storage.accesskeys import AccessKeySnapshot
from storagegate.storage.backends import (
    BLOBS,
    CATALOGS,
    BackEndContext,
    OpenCatalog,
)
from storagegate.storage.blobinterfaces import IBlobStore, IBlobWriter
from storagegate.storage.clock import ClockRecorder, StoreClock
from storagegate.storage.errors import (
    CommitUnknown,
    StoreError,
    StoreFull,
    StoreFullUnknown,
    StoreReadOnly,
)
from storagegate.storage.files import FailStopLatch, Files
from storagegate.storage.interfaces import ICatalog
from storagegate.storage.mutations import (
    CompleteUpload,
    Mutation,
    PutObject,
    PutPart,
    RemoveBucket,
    RemoveObjects,
    T,
)
from storagegate.storage.node import BackgroundTask, HeldBlobs, IStoreNode
from storagegate.storage.records import (
    DEFAULT_RETENTION,
    INLINE_LIMIT,
    BlobRow,
    Bucket,
    Content,
    ObjectChange,
    ObjectRecord,
    Part,
    Removal,
    WriteCondition,
    readDefault,
)
from storagegate.storage.scrub import (
    BYTES_PER_SECOND,
    CorruptionLog,
    Reexamination,
    Scrubber,
    VerifyingReader,
)
from storagegate.storage.threadpool import BoundedThreadPool

NodeMaker = Callable[[BackEndContext, ICatalog, IBlobStore], IStoreNode]
"""Creates the node of this process."""


class ObjectStore:
    """
    The store. Methods: reactor thread.

    Every method that writes fails with L{StoreReadOnly} after an fsync of the catalog or the blobs
    has failed. Cancelling the Deferred of a write does not stop the write.

    @ivar catalog: The metadata. Lists and buckets are read from it directly.
    @ivar accessKeys: The issued keys, kept fresh while the store is open.
    @ivar blobs: The bytes.
    @ivar pool: The threads; C{run(function, *args)} runs a function in one.
    @ivar openings: The free buffers of jobs of the pool that decrypt. There is one for each core of
        the processor, which limits these jobs: without the limit, 16 readers of 1 MiB on one core
        take 40 % more CPU time.
    @ivar verifier: Verifies the checksums of blobs while they are read, if configured or if the
        blobs come over a network.
    @ivar observers: Called with each change that this process has committed, in the reactor thread
        and in commit order, and with the changes of the store's other processes, whose records have
        no bytes and may have no attributes but the content type. They must return quickly.
    @ivar admit: See L{IStoreNode}; so is C{watches}.
    @ivar inlineLimit: New objects up to this size are rows of the catalog.
    @ivar clock: See L{open}.
    """

    _log = Logger()

    def __init__(
        self,
        context: BackEndContext,
        catalog: ICatalog,
        blobs: IBlobStore,
        node: IStoreNode,
        observers: list[Callable[[ObjectChange], None]],
        resources: ExitStack,
        scrubBytesPerSecond: int,
        verifyReads: bool,
        inlineLimit: int,
    ) -> None:
        """
        Connect the parts; L{open} opens them.

        @param context: The context of the back ends.
        @param node: The node of this process.
        @param observers: An empty list.
        @param resources: Closed last; closing blocks.
        @param scrubBytesPerSecond: See L{open}; so are C{verifyReads} and C{inlineLimit}.
        """
        reactor = context.reactor
        self.catalog = catalog
        self.blobs = blobs
        self.pool = context.pool
        self.run = context.pool.run
        self.openings: DeferredQueue[bytearray] = DeferredQueue()
        for _ in os.sched_getaffinity(0):
            self.openings.put(bytearray())
        self._node = node
        self.admit = node.admit
        self.inlineLimit = inlineLimit
        self.clock = context.clock
        self.watches = node.watches
        self._holdBlobs = node.hold
        self._resources = resources
        blobs.markCorrupt(catalog.corruptBlobs())
        self.observers = observers
        # New blobs of commits that may still become visible; see L{StoreFullUnknown}.
        self._unsettled: dict[str, int] = {}
        corruption = CorruptionLog(catalog, self._markCorrupt, self._clearCorrupt)
        self._corruption = corruption
        blobs.onShort = self._markShort
        blobs.onDamaged = self._markDamaged
        blobs.reexamine = Reexamination(catalog, blobs, reactor, corruption).examine
        blobs.onFull = node.full
        self.verifier: VerifyingReader | None = None
        if verifyReads or blobs.isRemote:
            self.verifier = VerifyingReader(catalog, blobs, corruption, verifyReads)
        self.scrubber = Scrubber(catalog, blobs, reactor, corruption, scrubBytesPerSecond)
        node.start(self._notifyObservers)
        node.runInOne("scrub", self.scrubber)
        self.accessKeys = AccessKeySnapshot(catalog, reactor, catalog.keysStaleSeconds)
        self.accessKeys.start()
        self._recorder: ClockRecorder | None = None
        if self.clock is not None:
            self._recorder = ClockRecorder(self.clock, catalog, reactor)
            self._recorder.start()
        catalog.onKeysChanged = self.accessKeys.notice

    def runInOne(self, name: str, task: BackgroundTask) -> None:
        """
        Run a task in one of the processes of the store, and stop it before the store is closed.

        @param name: The name of the task in all processes.
        @param task: A task that uses this store.
        """
        self._node.runInOne(name, task)

    @classmethod
    def open(
        cls,
        directory: str,
        reactor: Any,
        *,
        node: NodeMaker,
        catalog: str,
        blobs: str,
        durability: str = "full",
        files: Files | None = None,
        random: Callable[[int], bytes] = os.urandom,
        scrubBytesPerSecond: int = BYTES_PER_SECOND,
        verifyReads: bool = False,
        options: Mapping[str, Any] | None = None,
        inlineLimit: int = INLINE_LIMIT,
        clock: StoreClock | None = None,
        latch: FailStopLatch | None = None,
        catalogState: Any = None,
        owner: bytes = b"",
        observers: list[Callable[[ObjectChange], None]] | None = None,
        resources: ExitStack | None = None,
    ) -> "ObjectStore":
        """
        Open a store. Blocks; call it before the reactor runs. L{openStore
        <storagegate.storage.embedded.opening.openStore>} opens a store on one machine.

        @param directory: The data directory.
        @param reactor: Provides C{IReactorFromThreads} and C{IReactorTime}.
        @param node: Creates the node of this process.
        @param catalog: The back end of the catalog, a name in L{storagegate.storage.backends}.
        @param blobs: The back end of the blobs, also a name in that module.
        @param durability: C{"full"}, or C{"os"} for no fsyncs.
        @param files: The operating system's calls, or a replacement.
        @param random: C{os.urandom} or a replacement.
        @param scrubBytesPerSecond: The rate at which blobs are reread in the background.
        @param verifyReads: Whether to verify all reads, including reads of blobs on this machine.
        @param options: The configuration of back ends on a network.
        @param inlineLimit: New objects up to this size are rows of the catalog.
        @param clock: Detects steps of the machine's clock; L{None} to trust all dates.
        @param latch: See L{BackEndContext}; so are C{catalogState} and C{owner}. The default latch
            belongs to this process.
        @param observers: The list for the observers of changes.
        @param resources: Closed after the store, or if it cannot be opened; closing blocks.
        @raise StoreError: The store cannot be used; one line gives the reason.
        @raise OSError: The operating system reported a disk error.
        """
        store: ObjectStore
        with resources or ExitStack() as opened:
            context = BackEndContext(
                directory,
                reactor,
                BoundedThreadPool(reactor),
                files or Files(),
                durability,
                random,
                lambda ids: store._node.reclaim(ids),
                latch or FailStopLatch(None),
                catalogState,
                owner,
                clock,
                options or {},
            )
            parts = _openBackEnds(context, catalog, blobs)
            store = cls(
                context,
                *parts,
                node(context, *parts),
                [] if observers is None else observers,
                opened.pop_all(),
                scrubBytesPerSecond,
                verifyReads,
                inlineLimit,
            )
        return store

    def putObject(
        self, record: ObjectRecord, writer: IBlobWriter | None, condition: WriteCondition
    ) -> Deferred[ObjectRecord]:
        """
        Store an object whose bytes are durable; see L{PutObject}.

        @param writer: The finished writer of the content; L{None} for a copy.
        @param record: See L{PutObject}; so is C{condition}.
        """
        newBlobs = {} if writer is None else writer.takeNewBlobs()
        return self._create(PutObject(record, condition, newBlobs), newBlobs)

    def putPart(
        self, bucket: str, key: bytes, uploadId: str, part: Part, writer: IBlobWriter | None
    ) -> Deferred[None]:
        """
        Store a part whose bytes are durable; see L{PutPart}.

        @param writer: The finished writer of the content; L{None} for a copy.
        @param part: The part, which replaces a part of the same number.
        """
        newBlobs = {} if writer is None else writer.takeNewBlobs()
        return self._write(PutPart(bucket, key, uploadId, part, newBlobs), newBlobs, None)

    def completeUpload(
        self,
        uploadId: str,
        record: ObjectRecord,
        parts: Sequence[tuple[int, str]],
        condition: WriteCondition,
    ) -> Deferred[ObjectRecord]:
        """Assemble parts into an object; see L{CompleteUpload}."""
        return self._create(CompleteUpload(uploadId, record, parts, condition), {})

    def deleteObjects(
        self,
        bucket: str,
        entries: Sequence[tuple[bytes, str | None, WriteCondition]],
        account: str = "",
        atMs: int = 0,
    ) -> Deferred[list[Removal | Exception]]:
        """
        Remove objects; see L{RemoveObjects}. Blobs are removed in the background.

        @param entries: See L{RemoveObjects}; so are C{account} and C{atMs}.
        @param atMs: See L{settledMs}.
        """

        settledMs = self.settledMs(atMs)
        named = [entry for entry in entries if entry[1] is not None]
        if settledMs == atMs or not named:
            return self._delete(bucket, entries, account, atMs)
        if len(named) == len(entries):
            return self._delete(bucket, entries, account, settledMs)

        async def delete() -> list[Removal | Exception]:
            # Locks are checked against the settled date; delete markers get the request's date.
            unnamed = [entry for entry in entries if entry[1] is None]
            made = iter(await self._delete(bucket, unnamed, account, atMs))
            removed = iter(await self._delete(bucket, named, account, settledMs))
            return [next(made if entry[1] is None else removed) for entry in entries]

        return Deferred.fromCoroutine(delete())

    def _delete(
        self,
        bucket: str,
        entries: Sequence[tuple[bytes, str | None, WriteCondition]],
        account: str,
        atMs: int,
    ) -> Deferred[list[Removal | Exception]]:
        def notify(results: list[Removal | Exception]) -> None:
            for (key, _, _), result in zip(entries, results, strict=True):
                if isinstance(result, Removal) and result.isChanged:
                    self._node.committed(ObjectChange(bucket, key, result.current))

        return self._write(RemoveObjects(bucket, entries, account, atMs), {}, notify)

    def settledMs(self, atMs: int) -> int:
        """
        Return the date that decides whether a retention has ended.

        @param atMs: The date of the machine's clock, in milliseconds since 1970.
        @return: C{atMs}, or an earlier date if the clock was set ahead and is not trusted.
        """
        return atMs if self.clock is None else min(atMs, self.clock.settledMs())

    def correctedMs(self, dateMs: int) -> int:
        """
        Correct a date that the machine's clock gave, see L{StoreClock.corrected}. May run in any
        thread.

        @param dateMs: In milliseconds since 1970.
        """
        return dateMs if self.clock is None else self.clock.corrected(dateMs)

    async def lookAtClocks(self) -> None:
        """
        Learn from the catalog which other clocks of the store were behind, for L{correctedMs}.
        """
        if self._recorder is not None:
            await self._recorder.look()

    async def deleteBucket(self, name: str) -> None:
        """Remove an empty bucket; see L{RemoveBucket}."""
        await self.catalog.commit(RemoveBucket(name))
        self._node.committed(ObjectChange(name, None, None))

    def abort(self, writer: IBlobWriter) -> None:
        """
        Abort an upload, finished or not. Does nothing if the writer was passed to L{putObject} or
        L{putPart}, which confirm or remove its blobs.
        """
        writer.abort()
        self._removeNew(writer.takeNewBlobs())

    def hold(self, content: Content) -> HeldBlobs:
        """
        Lease the blobs of a content, so that they outlive a replacement of the object.

        Call this as soon as access to the content is decided after its look-up.

        @param content: The content; without segments nothing is held.
        """
        return self._holdBlobs({segment.blob for segment in content.segments})

    @property
    def readOnly(self) -> str | None:
        """Why nothing can be written until a restart, or L{None}."""
        return self.blobs.failure or self.catalog.failure

    def space(self) -> tuple[int, int] | None:
        """
        Return the free and total bytes of the disk; L{None} if this machine stores no objects.

        @raise OSError: The disk does not respond.
        """
        return self._node.space()

    def health(self) -> dict[str, str | None]:
        """Return for each component why the store cannot take writes, or L{None}."""
        return {**self.catalog.health(), **self.blobs.health(), **self._node.health()}

    def warnings(self) -> dict[str, str | None]:
        """Return for each component a problem that does not stop the store, or L{None}."""
        damaged = self.damagedCount
        corrupt = f"{damaged} objects or blobs are corrupt" if damaged else None
        scrubber = self.scrubber.problem
        found = {"corrupt": corrupt, "scrubber": scrubber, **self._node.warnings()}
        return found if self.clock is None else {**found, "clock": self.clock.problem}

    @property
    def damagedCount(self) -> int:
        """How many objects and blobs are known to be corrupt."""
        return len(self.blobs.corrupt) + len(self.scrubber.corruptObjects)

    @property
    def reclaimBacklog(self) -> int:
        """The number of blobs waiting for removal."""
        return self._node.backlog

    def idle(self) -> Deferred[None]:
        """Wait until all garbage is removed, except blobs with leases."""
        return Deferred.fromCoroutine(self._node.idle())

    async def close(self) -> None:
        """Finish all writes, then release the directory. Call once."""
        try:
            await self.accessKeys.stop()
            if self._recorder is not None:
                await self._recorder.stop()
            await self._node.stop()
            await self.blobs.close()
            await self._node.leave()
            await self.catalog.close()
        finally:
            await self.pool.stop()
            self._resources.close()

    def _notifyCreated(self, record: ObjectRecord) -> None:
        self._node.committed(ObjectChange(record.bucket, record.key, record))

    def _notifyObservers(self, change: ObjectChange) -> None:
        for observer in tuple(self.observers):
            try:
                observer(change)
            except Exception:
                # The change is committed nevertheless.
                self._log.failure("an observer of the store failed")

    def _create(
        self, mutation: PutObject | CompleteUpload, newBlobs: Mapping[str, int]
    ) -> Deferred[ObjectRecord]:
        """
        Store an object. Even if the clock is behind, its default retention counts from the newest
        date that the store has seen.
        """
        behindMs = 0 if self.clock is None else self.clock.behindMs()
        if not behindMs:
            return self._write(mutation, newBlobs, self._notifyCreated)

        async def create() -> ObjectRecord:
            try:
                retained = await self._retained(mutation.record, behindMs)
            except BaseException:
                self._removeNew(newBlobs)
                raise
            made = replace(mutation, record=retained)
            return await self._write(made, newBlobs, self._notifyCreated)

        return Deferred.fromCoroutine(create())

    async def _retained(self, record: ObjectRecord, behindMs: int) -> ObjectRecord:
        """
        Add the bucket's default retention, with its end date, to an object without a retention.
        """
        bucket: Bucket | None = await self.catalog.bucket(record.bucket)
        lock = record.attributes.lock
        if bucket is None or not bucket.lockEnabled or lock.mode:
            return record
        _, documents = await self.catalog.settings(record.bucket)
        document = documents.get(DEFAULT_RETENTION)
        if document is None:
            return record
        default = readDefault(document)
        untilMs = default.until(record.modifiedMs + behindMs)
        lock = replace(lock, mode=default.mode, untilMs=untilMs)
        return replace(record, attributes=replace(record.attributes, lock=lock))

    def _write(
        self,
        mutation: Mutation[T],
        newBlobs: Mapping[str, int],
        notify: Callable[[T], None] | None,
    ) -> Deferred[T]:
        """
        Commit a mutation, then confirm or remove the new blobs.

        The caller gets a separate Deferred, so that cancelling it does not affect the mutation,
        which may still be committed.
        """
        if (reason := self.readOnly) is not None:
            self._removeNew(newBlobs)
            return fail(StoreReadOnly(reason))
        written: Deferred[T] = Deferred()

        def committed(result: T) -> None:
            try:
                if self._unsettled:
                    # This later commit has overwritten the unfinished ones.
                    unsettled, self._unsettled = self._unsettled, {}
                    self._removeNew(unsettled)
                if newBlobs:
                    self.blobs.confirm(tuple(newBlobs))
                if notify is not None and (self.observers or self._node.publishes):
                    notify(result)
            except Exception:
                written.errback()
            else:
                written.callback(result)

        def refused(failure: Failure) -> None:
            if failure.check(StoreReadOnly):
                # The commit may or may not be on disk. The blobs keep their names in staging/, and
                # the next start looks them up in the catalog.
                self.blobs.failStop(f"the catalog failed: {failure.getErrorMessage()}")
            elif failure.check(StoreFullUnknown):
                self._unsettled.update(newBlobs)
                self._node.full()
            elif failure.check(StoreError) and not failure.check(CommitUnknown):
                self._removeNew(newBlobs)
                if failure.check(StoreFull):
                    self._node.full()
            written.errback(failure)

        self.catalog.commit(mutation).addCallbacks(committed, refused)
        return written

    def _removeNew(self, newBlobs: Mapping[str, int]) -> None:
        # A blob that cannot be removed now keeps its name in staging/ for the next start.
        if newBlobs and self.blobs.failure is None:
            self.blobs.remove(tuple(newBlobs)).addErrback(
                lambda failure: self._log.error(
                    "cannot remove an upload: {error}", error=failure.getErrorMessage()
                )
            )

    def _markShort(self, blob: str, size: int) -> None:
        """Record a blob that a reader has found short."""
        self._mark(blob, lambda row: f"has {size} bytes, not {row.size}")

    def _markDamaged(self, blob: str) -> None:
        """Record a blob whose bytes a reader has found wrong."""
        self._mark(blob, lambda row: "differs from the bytes that were written")

    def _mark(self, blob: str, problem: Callable[[BlobRow], str]) -> None:
        """Record damage that a reader has found."""

        async def record() -> None:
            row = await self.catalog.blobRow(blob)
            if row is None or not await self.catalog.referenced([blob]):
                # The blob was deleted in the meantime.
                self.blobs.forget([blob])
            elif blob in self.blobs.corrupt:
                # No reader has found it intact in the meantime.
                await self._corruption.record(row, problem(row))

        self._markCorrupt([blob])
        Deferred.fromCoroutine(record()).addErrback(
            lambda failure: self._log.error(
                "cannot record damage: {error}", error=failure.getErrorMessage()
            )
        )

    def _markCorrupt(self, ids: Sequence[str]) -> None:
        """Refuse reads of these blobs in all processes."""
        self.blobs.markCorrupt(ids)
        self._node.corrupted(ids)

    def _clearCorrupt(self, ids: Sequence[str]) -> None:
        """Allow reads of these blobs again in all processes."""
        self.blobs.clearCorrupt(ids)
        self._node.cleared(ids)


def _openBackEnds(context: BackEndContext, catalog: str, blobs: str) -> tuple[ICatalog, IBlobStore]:
    """Open the catalog first: recovery of blobs needs it."""
    found: OpenCatalog = resolve_name(CATALOGS[catalog])(context)
    openedBlobs: IBlobStore = resolve_name(BLOBS[blobs])(context, found)
    return found.catalog, openedBlobs
