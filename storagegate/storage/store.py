"""
The store: a catalog, its blobs, and the threads they share.

This module orders the work of catalog and blobs. A write confirms its new blobs when the catalog
has committed them, and removes them if the catalog has definitely refused. Blobs that lose their
last reference are removed after their readers. If either side cannot write, all writes fail.

A single process locks the data directory itself. If several processes serve the directory, their
parent prepares the store (L{ObjectStore.prepare}) and keeps the lock.
"""

import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any, Protocol, TypeVar
from weakref import WeakSet

from attrs import define, field
from msgspec.structs import replace
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
from storagegate.storage.blobinterfaces import IBlobStore, IBlobWriter
from storagegate.storage.blobs.layout import BlobLayout, SyncGroup
from storagegate.storage.catalog import refcounts
from storagegate.storage.catalog.connections import (
    Durability,
    buryUnseenCommits,
    opened,
    prepare,
    readSecret,
    replayLog,
)
from storagegate.storage.catalog.logbinding import renewIncarnation
from storagegate.storage.catalog.reserve import Reserve
from storagegate.storage.clock import ClockRecorder, StoreClock
from storagegate.storage.errors import (
    CommitUnknown,
    StoreError,
    StoreFull,
    StoreFullUnknown,
    StoreReadOnly,
)
from storagegate.storage.files import DirectoryLock, FailStopLatch, Files
from storagegate.storage.gc import HeldBlobs
from storagegate.storage.identity import claimBlobs, refuseLostCatalog
from storagegate.storage.interfaces import ICatalog
from storagegate.storage.node import BackgroundTask, EmbeddedNode, IStoreNode
from storagegate.storage.records import (
    DEFAULT_RETENTION,
    INLINE_LIMIT,
    AccessKey,
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
from storagegate.storage.recovery import sweepStaging
from storagegate.storage.scrub import (
    BYTES_PER_SECOND,
    CorruptionLog,
    Reexamination,
    Scrubber,
    VerifyingReader,
)
from storagegate.storage.threadpool import BoundedThreadPool

if TYPE_CHECKING:
    # A single process does not need this module.
    from storagegate.storage.processgroup import ProcessGroup
    from storagegate.storage.sharedmemory import ProcessGroupConfig

T = TypeVar("T")

NodeMaker = Callable[[BackEndContext, ICatalog, IBlobStore], IStoreNode]
"""Creates the node of this process in a store over several machines."""

KEYS_POLL_SECONDS = 0.5
"""Half of the second within which a key revoked by another process must stop working."""

_CERTAIN_SECONDS = 4.0
"""Less than the five seconds within which a request must be answered."""

USES_SECONDS = 60.0
"""Interval between commits of key uses, if any key was used."""


class KeyUser(Protocol):
    """Tracks which access keys were used."""

    def takeUsed(self) -> Iterable[str]:
        """Return the issued keys that were used since the last call."""


@define(eq=False)
class AccessKeySnapshot:
    """
    A snapshot of a store's access keys, at most half a second old.

    All methods: reactor thread.

    @ivar _staleSeconds: How long the keys may be used after they were read; L{None}: until a poll
        fails.
    @ivar generation: The catalog's generation of this snapshot; -1 before the first.
    @ivar keys: The keys by name. The mapping is replaced, never mutated.
    @ivar problem: Why the last poll failed; L{None} if it succeeded.
    @ivar users: The sources of key uses, which are recorded in the catalog once a minute.
    """

    _log = Logger()

    _catalog: ICatalog
    _clock: IReactorTime
    _staleSeconds: float | None = None
    generation: int = field(default=-1, init=False)
    keys: Mapping[str, AccessKey] = field(factory=dict, init=False)
    problem: str | None = field(default=None, init=False)
    users: "WeakSet[KeyUser]" = field(factory=WeakSet, init=False)
    _notedAt: float = field(init=False)
    _polling: Deferred[None] | None = field(default=None, init=False)
    _waiters: IdleWaiters = field(factory=IdleWaiters, init=False)
    _begun: int = field(default=0, init=False)
    _taken: int = field(default=0, init=False)
    # Keys that were never read are in doubt.
    _takenAt: float = field(default=float("-inf"), init=False)

    @_notedAt.default
    def _makeNotedAt(self) -> float:
        return self._clock.seconds()

    def start(self) -> None:
        """Poll immediately and then until L{stop}. Call once."""
        self._polling = Deferred.fromCoroutine(self._poll())

    @property
    def isLoaded(self) -> bool:
        """Whether the keys have been read."""
        return self.generation >= 0

    def loaded(self) -> Deferred[None]:
        """Wait until the keys have been read for the first time."""
        return self._waiters.wait(not self.isLoaded)

    @property
    def isInDoubt(self) -> bool:
        """Whether a key may have been revoked for longer than a second."""
        stale = self._staleSeconds
        if stale is not None and self._clock.seconds() > self._takenAt + stale:
            return True
        return self.problem is not None

    async def certain(self) -> None:
        """Wait until the keys are not in doubt, or until a timeout."""
        waiting = self._waiters.wait(self.isInDoubt)
        await waiting.addTimeout(_CERTAIN_SECONDS, self._clock, lambda result, seconds: None)

    async def refresh(self) -> None:
        """Read the keys if their generation has changed. A failure is kept in L{problem}."""
        self._begun += 1
        number, began = self._begun, self._clock.seconds()
        try:
            generation, keys = await self._catalog.keysGeneration(), None
            if generation != self.generation:
                generation, keys = await self._catalog.accessKeys()
            # The older of two concurrent reads may end last.
            if number > self._taken:
                self._taken, self._takenAt = number, began
                if keys is not None:
                    self.generation = generation
                    self.keys = {key.accessKey: key for key in keys}
        except CancelledError:
            raise
        except Exception as error:
            if self.problem is None:
                self._log.error("cannot read access keys: {error}", error=str(error))
            self.problem = str(error) or type(error).__name__
            return
        self.problem = None
        self._waiters.notify()

    def notice(self) -> None:
        """Read the keys now, because they have changed."""
        if self._polling is not None:
            Deferred.fromCoroutine(self.refresh()).addErrback(lambda failure: None)

    async def stop(self) -> None:
        """Stop polling and record the last uses."""
        polling, self._polling = self._polling, None
        if polling is not None:
            polling.cancel()
            await polling
        await self._noteUses()

    async def _noteUses(self) -> None:
        self._notedAt = self._clock.seconds()
        nowMs = time.time_ns() // 1_000_000
        uses = {name: nowMs for user in tuple(self.users) for name in user.takeUsed()}
        if uses:
            try:
                await self._catalog.noteKeyUses(uses)
            except StoreError as error:
                self._log.info("cannot record the use of keys: {error}", error=str(error))

    async def _poll(self) -> None:
        try:
            while True:
                await self.refresh()
                if self._clock.seconds() - self._notedAt >= USES_SECONDS:
                    await self._noteUses()
                await deferLater(self._clock, KEYS_POLL_SECONDS)
        except CancelledError:
            return


class ObjectStore:
    """
    The store. Methods: reactor thread.

    Every method that writes fails with L{StoreReadOnly} after an fsync of the catalog or the blobs
    has failed. Cancelling the Deferred of a write does not stop the write.

    @ivar catalog: The metadata. Lists and buckets are read from it directly.
    @ivar accessKeys: The issued keys, kept fresh while the store is open.
    @ivar blobs: The bytes.
    @ivar pool: The threads; C{run(function, *args)} runs a function in one.
    @ivar verifier: Verifies the checksums of blobs while they are read, if configured or if the
        blobs come over a network.
    @ivar observers: Called with each change that this process has committed, in the reactor thread
        and in commit order, and with the changes of the store's other processes, whose records have
        no bytes. They must return quickly.
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
        durability: str = "full",
        files: Files | None = None,
        random: Callable[[int], bytes] = os.urandom,
        scrubBytesPerSecond: int = BYTES_PER_SECOND,
        verifyReads: bool = False,
        sharing: "ProcessGroupConfig | None" = None,
        catalog: str = DEFAULT_CATALOG,
        blobs: str = DEFAULT_BLOBS,
        options: Mapping[str, Any] | None = None,
        node: NodeMaker | None = None,
        inlineLimit: int = INLINE_LIMIT,
        clock: StoreClock | None = None,
        lock: DirectoryLock | None = None,
    ) -> "ObjectStore":
        """
        Open a store, creating it if it does not exist. Blocks; call it before the reactor runs.

        Files left in C{staging/} by a crash are removed first.

        @param reactor: Provides C{IReactorFromThreads} and C{IReactorTime}.
        @param durability: C{"full"}, or C{"os"} for no fsyncs.
        @param files: The operating system's calls, or a replacement.
        @param random: C{os.urandom} or a replacement.
        @param scrubBytesPerSecond: The rate at which blobs are reread in the background.
        @param verifyReads: Whether to verify all reads, including reads of blobs on this machine.
        @param sharing: The other processes that serve the same store. Their parent has called
            L{prepare} and keeps the lock.
        @param catalog: The back end of the catalog, a name in L{storagegate.storage.backends}.
        @param blobs: The back end of the blobs, also a name in that module.
        @param options: The configuration of back ends on a network.
        @param node: Creates the node of this process in a store over several machines, which keeps
            nothing in the data directory; L{None} for a store on this machine.
        @param inlineLimit: New objects up to this size are rows of the catalog.
        @param clock: Detects steps of the machine's clock; L{None} to trust all dates.
        @param lock: The lock of the data directory if this process already holds it. The store
            releases it, unless C{node} or C{sharing} is given: then the caller keeps it.
        @param directory: The data directory.
        @raise StoreLocked: Another process has it open.
        @raise StoreError: The store cannot be used; one line gives the reason.
        @raise OSError: The operating system reported a disk error.
        """
        files = files or Files()
        store: ObjectStore
        with ExitStack() as opened:
            group = None
            if node is None:
                group = _enter(opened, directory, reactor, files, durability, sharing, lock)
            context = BackEndContext(
                directory,
                reactor,
                BoundedThreadPool(reactor),
                files,
                durability,
                random,
                lambda ids: store._node.reclaim(ids),
                _latch(directory, node, group),
                None if group is None else group.catalogState,
                b"" if group is None else group.owner,
                clock,
                options or {},
            )
            parts = _openBackEnds(context, catalog, blobs)
            made = node(context, *parts) if node else EmbeddedNode(context, *parts, group)
            observers = [] if group is None else group.observers
            store = cls(
                context,
                *parts,
                made,
                observers,
                opened.pop_all(),
                scrubBytesPerSecond,
                verifyReads,
                inlineLimit,
            )
        return store

    @staticmethod
    def prepare(
        directory: str,
        *,
        durability: str = "full",
        files: Files | None = None,
        lock: DirectoryLock | None = None,
    ) -> DirectoryLock:
        """
        Prepare a store for several processes, each of which calls L{open}. Blocks.

        The store is created if it does not exist, and files left by a crash are removed.

        @param files: The operating system's calls, or a replacement.
        @param directory: The data directory.
        @param durability: See L{open}.
        @param lock: The lock of the directory if the caller already holds it.
        @return: The lock. The processes inherit its descriptor; no other process can open the store
            until the caller and all of them have exited.
        @raise StoreLocked: Another process has it open.
        @raise StoreError: The store cannot be used; one line gives the reason.
        @raise OSError: The operating system reported a disk error.
        """
        files = files or Files()
        path = os.path.join(directory, "catalog.sqlite")
        kind = Durability(durability)
        with ExitStack() as taken:
            lock = _lock(directory, files, durability, lock)
            taken.callback(lock.release)
            layout = BlobLayout(directory)
            refuseLostCatalog(layout, files)
            prepare(path, kind)
            latch = FailStopLatch(directory)
            with opened(path, kind, latch) as connection:
                renewIncarnation(connection, path, kind is Durability.FULL)
                Reserve(os.path.join(directory, "reserve")).ensure()
                known = partial(refcounts.knownBlobs, connection)
                syncs = SyncGroup(files, latch, kind is Durability.FULL)
                settle = partial(buryUnseenCommits, connection, latch)
                claimBlobs(layout, files, syncs, readSecret(connection), known)
                sweepStaging(layout, files, syncs, known, settle)
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
        args = (condition, newBlobs)
        return self._create(newBlobs, self.catalog.putObject, record, *args)

    def putPart(
        self, bucket: str, key: bytes, uploadId: str, part: Part, writer: IBlobWriter | None
    ) -> Deferred[None]:
        """
        Store a part whose bytes are durable; see L{ICatalog.putPart}.

        @param writer: The finished writer of the content; L{None} for a copy.
        @param part: The part, which replaces a part of the same number.
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
        """Assemble parts into an object; see L{ICatalog.completeUpload}."""
        complete = partial(self.catalog.completeUpload, uploadId)
        return self._create({}, complete, record, parts, condition)

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

        args = (bucket, entries, account, atMs)
        return self._write({}, notify, self.catalog.deleteObjects, *args)

    def settledMs(self, atMs: int) -> int:
        """
        Return the date that decides whether a retention has ended.

        @param atMs: The date of the machine's clock, in milliseconds since 1970.
        @return: C{atMs}, or an earlier date if the clock was set ahead and is not trusted.
        """
        return atMs if self.clock is None else min(atMs, self.clock.settledMs())

    async def deleteBucket(self, name: str) -> None:
        """Remove an empty bucket; see L{ICatalog.deleteBucket}."""
        await self.catalog.deleteBucket(name)
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

        Call this in the reactor iteration in which the look-up returned the content.

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
        self,
        newBlobs: Mapping[str, int],
        mutate: Callable[..., Deferred[ObjectRecord]],
        record: ObjectRecord,
        *args: Any,
    ) -> Deferred[ObjectRecord]:
        """
        Store an object. Even if the clock is behind, its default retention counts from the newest
        date that the store has seen.
        """
        behindMs = 0 if self.clock is None else self.clock.behindMs()
        if not behindMs:
            return self._write(newBlobs, self._notifyCreated, mutate, record, *args)

        async def create() -> ObjectRecord:
            try:
                retained = await self._retained(record, behindMs)
            except BaseException:
                self._removeNew(newBlobs)
                raise
            return await self._write(newBlobs, self._notifyCreated, mutate, retained, *args)

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
        newBlobs: Mapping[str, int],
        notify: Callable[[T], None] | None,
        mutate: Callable[..., Deferred[T]],
        *args: Any,
    ) -> Deferred[T]:
        """
        Apply a mutation, then confirm or remove the new blobs.

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

        mutate(*args).addCallbacks(committed, refused)
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


def _latch(directory: str, node: object, group: "ProcessGroup | None") -> FailStopLatch:
    """Return the fail-stop latch, shared by all processes if there are several."""
    if group is not None:
        return group.latch
    return FailStopLatch(directory if node is None else None)


def _lock(
    directory: str, files: Files, durability: str, taken: DirectoryLock | None
) -> DirectoryLock:
    """
    Lock a store, create its directories with access for their owner only, and replay the log left
    by a crash. This precedes all other work on the store.

    @param taken: The lock if this process already holds it.
    """
    layout = BlobLayout(directory)
    syncs = SyncGroup(files, FailStopLatch(), durability == "full")
    parent = os.path.dirname(os.path.abspath(directory))
    with ExitStack() as releasing:
        if taken is None:
            os.makedirs(parent, exist_ok=True)
            with suppress(FileExistsError):
                files.makeDirectory(directory)
            taken = DirectoryLock.take(directory)
        releasing.callback(taken.release)
        for path in (layout.blobs, layout.staging):
            with suppress(FileExistsError):
                files.makeDirectory(path)
        # Existing directories may stem from a start whose sync failed.
        for path in (parent, directory):
            syncs.syncDirectory(path)
        replayLog(directory, Durability(durability))
        releasing.pop_all()
    return taken


def _enter(
    opened: ExitStack,
    directory: str,
    reactor: Any,
    files: Files,
    durability: str,
    sharing: "ProcessGroupConfig | None",
    lock: DirectoryLock | None,
) -> "ProcessGroup | None":
    """Lock a store, or join the processes that serve it, until C{opened} is closed."""
    if sharing is None:
        opened.callback(_lock(directory, files, durability, lock).release)
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
