"""
The store: a catalog, its blobs, and the threads that they share.

What holds the two together is here: a write settles its new blobs when the catalog has committed
them, and discards them when the catalog has surely refused; blobs that lose their last reference
are removed behind their readers; and when either half cannot write, nothing is written any more.

What a store is put together from, opened in the order that its promises need.

A process that is alone takes the data directory's lock. Where several serve it, whoever starts them
has done once what comes before all of them, and keeps the lock.
"""

import os
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from attrs import frozen
from twisted.internet.defer import Deferred, fail
from twisted.internet.interfaces import IDelayedCall
from twisted.logger import Logger
from twisted.python.failure import Failure

from storagegate.storage.accesskeys import AccessKeySnapshot
from storagegate.storage.backends import (
    BLOBS,
    CATALOGS,
    DEFAULT_BLOBS,
    DEFAULT_CATALOG,
    BackEndContext,
    OpenCatalog,
    loadBackEnd,
)
from storagegate.storage.blobs.fsync import SyncGroup, WriteFence
from storagegate.storage.blobs.layout import BlobLayout, Shards
from storagegate.storage.catalog import refcounts
from storagegate.storage.catalog.connections import Durability as CatalogDurability
from storagegate.storage.catalog.connections import Purpose, connect, prepare
from storagegate.storage.catalog.wal import Reserve
from storagegate.storage.errors import StoreError, StoreReadOnly
from storagegate.storage.files import DirectoryLock, Files
from storagegate.storage.gc import BlobLease, GarbageCollector
from storagegate.storage.interfaces import IBlobStore, IBlobWriter, ICatalog
from storagegate.storage.multiprocess.memory import ProcessGroupConfig
from storagegate.storage.records import (
    INLINE_LIMIT,
    Content,
    ObjectChange,
    ObjectRecord,
    Part,
    WriteCondition,
)
from storagegate.storage.recovery import removeUnconfirmed, sweepStaging
from storagegate.storage.scrub import BYTES_PER_SECOND, CorruptionLog, Scrubber, VerifyingReader
from storagegate.storage.sqlite import CatalogUnusable
from storagegate.storage.threadpool import BoundedThreadPool

if TYPE_CHECKING:
    from storagegate.storage.multiprocess.group import ProcessGroup


if TYPE_CHECKING:
    # A process that is alone has no use for it.
    pass


@frozen
class StoreSettings:
    """
    How a store works.

    @ivar durability: C{"full"}, or C{"os"} for no fsyncs.
    @ivar random: C{os.urandom} or what replaces it.
    @ivar scrubBytesPerSecond: How fast blobs are read again in the background.
    @ivar verifyReads: Whether there is a verifier.
    @ivar catalog: The name of a back end of the catalog.
    @ivar blobs: The name of a back end of the blobs.
    """

    durability: str
    random: Callable[[int], bytes]
    scrubBytesPerSecond: int
    verifyReads: bool
    catalog: str
    blobs: str


@frozen
class StoreComponents:
    """
    What a store is made of.

    @ivar catchUp: The reclaimer will look for what an earlier process left.
    @ivar space: Bytes free on the disk, and all of its bytes.
    @ivar closing: What is undone, blocking, at the very end.
    @ivar company: The other processes, where there may be some.
    """

    catalog: ICatalog
    accessKeys: AccessKeySnapshot
    blobs: IBlobStore
    pool: BoundedThreadPool
    reclaimer: GarbageCollector
    catchUp: IDelayedCall
    scrubber: Scrubber
    verifier: VerifyingReader | None
    space: Callable[[], tuple[int, int]]
    closing: ExitStack
    company: "ProcessGroup | None"


def openPieces(
    directory: str,
    reactor: Any,
    files: Files,
    options: StoreSettings,
    sharing: ProcessGroupConfig | None,
) -> StoreComponents:
    """
    Open everything; see L{storagegate.storage.store.ObjectStore.open}. Blocks.

    @raise StoreError: It cannot be used; one line says why.
    @raise OSError: The disk refuses.
    """
    layout = BlobLayout(directory)
    durable = options.durability == "full"
    path = os.path.join(directory, "catalog.sqlite")
    with ExitStack() as opened:
        company = _join(opened, sharing, reactor, directory)
        latch = WriteFence() if company is None else company.latch
        syncs = SyncGroup(files, latch, durable)
        if company is None:
            _makeDirectories(layout, files, syncs)
            opened.callback(DirectoryLock.take(directory).release)
        else:
            company.takeOver(path, layout, files, syncs, durable)
        pool = BoundedThreadPool(reactor)
        context = BackEndContext(
            directory,
            reactor,
            pool,
            files,
            options.durability,
            options.random,
            lambda ids: reclaimer.reclaim(ids),
            latch,
            None if company is None else company.commons,
            b"" if company is None else company.owner,
        )
        catalog, blobs = _openBackEnds(context, options)
        reclaimer = _makeReclaimer(catalog, blobs, reactor, company)
        report = CorruptionLog(catalog, lambda ids: _markDamaged(blobs, company, ids))
        scrubber = Scrubber(catalog, blobs, reactor, report, options.scrubBytesPerSecond)
        accessKeys = AccessKeySnapshot(catalog, reactor)
        accessKeys.start()
        return StoreComponents(
            catalog,
            accessKeys,
            blobs,
            pool,
            reclaimer,
            _begin(reactor, scrubber, reclaimer, company),
            scrubber,
            VerifyingReader(catalog, blobs, report) if options.verifyReads else None,
            lambda: files.space(directory),
            opened.pop_all(),
            company,
        )


def _openBackEnds(context: BackEndContext, options: StoreSettings) -> tuple[ICatalog, IBlobStore]:
    """Open the two halves by their names, the catalog first: recovery of blobs needs it."""
    found: OpenCatalog = loadBackEnd(CATALOGS, options.catalog)(context)
    blobs: IBlobStore = loadBackEnd(BLOBS, options.blobs)(context, found)
    blobs.markDamaged(found.catalog.damagedBlobs())
    return found.catalog, blobs


def _makeReclaimer(
    catalog: ICatalog, blobs: IBlobStore, reactor: Any, company: "ProcessGroup | None"
) -> GarbageCollector:
    return GarbageCollector(
        lambda ids: _discard(blobs, company, ids),
        catalog.forgetBlobs,
        catalog.garbage,
        None if company is None else company.neighbours,
        catalog.graceSeconds,
        reactor,
        partial(removeUnconfirmed, catalog, blobs),
    )


def prepareStore(directory: str, durability: str, files: Files) -> DirectoryLock:
    """
    Make a store ready for several processes; see
    L{storagegate.storage.store.ObjectStore.prepare}. Blocks.

    @raise StoreError: The store cannot be used; one line says why.
    @raise OSError: The disk refuses.
    """
    layout = BlobLayout(directory)
    syncs = SyncGroup(files, WriteFence(), durability == "full")
    _makeDirectories(layout, files, syncs)
    path = os.path.join(directory, "catalog.sqlite")
    kind = CatalogDurability(durability)
    with ExitStack() as taken:
        lock = DirectoryLock.take(directory)
        taken.callback(lock.release)
        prepare(path, kind)
        try:
            with closing(connect(path, kind, Purpose.WRITER)) as connection:
                Reserve(os.path.join(directory, "reserve")).ensure()
                shards = Shards(layout, files, syncs)
                sweepStaging(
                    layout, files, shards, syncs, partial(refcounts.knownBlobs, connection)
                )
        except sqlite3.DatabaseError as error:
            raise CatalogUnusable(f"{path} cannot be opened: {error}") from error
        os.set_inheritable(lock.descriptor, True)
        taken.pop_all()
        return lock


def _makeDirectories(layout: BlobLayout, files: Files, durability: SyncGroup) -> None:
    """Make the directories, which only their owner may enter."""
    os.makedirs(os.path.dirname(os.path.abspath(layout.data)), exist_ok=True)
    for path in (layout.data, layout.blobs, layout.staging):
        try:
            files.makeDirectory(path)
        except FileExistsError:
            continue
        durability.syncDirectory(os.path.dirname(path) or ".")


def _join(
    opened: ExitStack, sharing: ProcessGroupConfig | None, reactor: Any, directory: str
) -> "ProcessGroup | None":
    """Find the other processes, if there may be any."""
    if sharing is None:
        return None
    from storagegate.storage.multiprocess.group import ProcessGroup

    company = ProcessGroup(sharing, reactor, directory)
    opened.callback(company.leave)
    return company


def _begin(
    reactor: Any, scrubber: Scrubber, reclaimer: GarbageCollector, company: "ProcessGroup | None"
) -> IDelayedCall:
    """Begin what goes on in the background, in one process for all."""
    if company is None or company.isFirst:
        scrubber.start()
    # Not now, for that would start a thread, and a process may fork before it serves.
    catchUp: IDelayedCall = reactor.callLater(0, reclaimer.catchUp)
    if company is not None and not company.catchesUp:
        catchUp.cancel()
    return catchUp


async def _discard(blobs: IBlobStore, company: "ProcessGroup | None", ids: Sequence[str]) -> None:
    """Remove blobs everywhere."""
    await blobs.discard(ids)
    if company is not None:
        company.tellGone(ids)


def _markDamaged(blobs: IBlobStore, company: "ProcessGroup | None", ids: Sequence[str]) -> None:
    """Have these blobs opened no more anywhere."""
    blobs.markDamaged(ids)
    if company is not None:
        company.tellDamaged(ids)


T = TypeVar("T")


_LOW_SPACE = 20
"""A warning comes when less than one part in twenty of the disk is free."""


class ObjectStore:
    """
    The embedded store. Methods: reactor thread.

    Every method that writes fails with L{StoreReadOnly} once an fsync has failed, in either half.
    A write that was asked for is carried out, or refused, even if its Deferred is cancelled.

    @ivar catalog: The metadata. Lists and buckets are asked of it directly.
    @ivar accessKeys: The issued keys, kept fresh while the store is open.
    @ivar blobs: The bytes.
    @ivar verifier: Compares blobs while they are read, where that is wanted; else L{None}.
    @ivar run: Runs a function in the store's threads: C{run(function, *args) -> Deferred}.
    @ivar space: Gives the bytes that are free on the disk, and all of its bytes.
    @ivar observers: Are told of each change that this process has committed, in the reactor thread
        and in the order of the commits; with L{ProcessGroupConfig}, of those of the other
        processes too, whose
        records have no bytes. They take what they need and return at once.
    """

    _log = Logger()

    def __init__(self, pieces: StoreComponents) -> None:
        """Put a store together; L{open} does that."""
        self.catalog = pieces.catalog
        self.accessKeys = pieces.accessKeys
        self.blobs = pieces.blobs
        self.pool = pieces.pool
        self.run = pieces.pool.run
        self.scrubber = pieces.scrubber
        self.verifier = pieces.verifier
        self.observers: list[Callable[[ObjectChange], None]] = []
        self._company = pieces.company
        if self._company is not None:
            self.observers = self._company.observers
            self._company.begin(self.blobs, self._tellHere)
        self._reclaimer = pieces.reclaimer
        self._catchUp = pieces.catchUp
        self.space = pieces.space
        self._closing = pieces.closing

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
        sharing: ProcessGroupConfig | None = None,
        catalog: str = DEFAULT_CATALOG,
        blobs: str = DEFAULT_BLOBS,
    ) -> "ObjectStore":
        """
        Open a store, making it if there is none. Blocks; call it before the reactor runs.

        What a crash has left in C{staging/} is swept here, before anything is served.

        @param reactor: Provides C{IReactorFromThreads} and C{IReactorTime}.
        @param durability: C{"full"}, or C{"os"} for no fsyncs.
        @param scrubBytesPerSecond: How fast blobs are read again in the background.
        @param verifyReads: Whether readers have a L{verifier}.
        @param sharing: The other processes that serve the same store. Somebody has done L{prepare}
            for all of them, and this process or a parent of it keeps the lock.
        @param catalog: The back end of the catalog, a name in L{storagegate.storage.backends}.
        @param blobs: The back end of the blobs, likewise.
        @raise StoreLocked: Another process has it open.
        @raise StoreError: It cannot be used; one line says why.
        @raise OSError: The disk refuses.
        """
        options = StoreSettings(
            durability, random, scrubBytesPerSecond, verifyReads, catalog, blobs
        )
        return cls(openPieces(directory, reactor, files or Files(), options, sharing))

    @staticmethod
    def prepare(
        directory: str, *, durability: str = "full", files: Files | None = None
    ) -> DirectoryLock:
        """
        Make a store ready for several processes, which each L{open} it. Blocks.

        It is made if there is none, and what a crash has left is swept.

        @return: The lock. The processes inherit its descriptor; until the last of them and the
            caller have ended, nobody else can open the store.
        @raise StoreLocked: Another process has it open.
        @raise StoreError: It cannot be used; one line says why.
        @raise OSError: The disk refuses.
        """
        return prepareStore(directory, durability, files or Files())

    def putObject(
        self, record: ObjectRecord, sink: IBlobWriter | None, condition: WriteCondition
    ) -> Deferred[ObjectRecord]:
        """
        Store an object whose bytes are durable; see L{ICatalog.putObject}.

        @param sink: The finished sink that made the content; L{None} for a copy.
        """
        crcs = {} if sink is None else sink.handOver()
        return self._write(
            lambda: self.catalog.putObject(record, condition, crcs=crcs), crcs, self._tellCreated
        )

    def putPart(
        self, bucket: str, key: bytes, uploadId: str, part: Part, sink: IBlobWriter | None
    ) -> Deferred[None]:
        """
        Store a part whose bytes are durable; see L{ICatalog.putPart}.

        @param sink: The finished sink that made the content; L{None} for a copy.
        """
        crcs = {} if sink is None else sink.handOver()
        return self._write(
            lambda: self.catalog.putPart(bucket, key, uploadId, part, crcs=crcs), crcs
        )

    def completeUpload(
        self,
        uploadId: str,
        record: ObjectRecord,
        parts: Sequence[tuple[int, str]],
        condition: WriteCondition,
    ) -> Deferred[ObjectRecord]:
        """Turn parts into an object; see L{ICatalog.completeUpload}."""
        return self._write(
            lambda: self.catalog.completeUpload(uploadId, record, parts, condition),
            {},
            self._tellCreated,
        )

    def deleteObjects(
        self, bucket: str, entries: Sequence[tuple[bytes, str | None, WriteCondition]]
    ) -> Deferred[list[bool | Exception]]:
        """Remove objects; see L{ICatalog.deleteObjects}. Their blobs go in the background."""

        def tell(results: list[bool | Exception]) -> None:
            for (key, _, _), removed in zip(entries, results, strict=True):
                if removed is True:
                    self._tell(ObjectChange(bucket, key, None))

        return self._write(lambda: self.catalog.deleteObjects(bucket, entries), {}, tell)

    async def deleteBucket(self, name: str) -> None:
        """Remove an empty bucket; see L{ICatalog.deleteBucket}."""
        await self.catalog.deleteBucket(name)
        self._tell(ObjectChange(name, None, None))

    def abandon(self, sink: IBlobWriter) -> None:
        """
        Give up an upload, whether its sink has finished or not. Harmless once the sink was given
        to L{putObject} or L{putPart}, which see to it themselves.
        """
        sink.abort()
        self._discard(sink.handOver())

    def hold(self, content: Content) -> BlobLease:
        """
        Keep the blobs of a content until the hold is released, though the object be replaced.

        Call it in the same iteration of the reactor in which the look-up returned the content.
        """
        return self._reclaimer.hold({segment.blob for segment in content.segments})

    @property
    def readOnly(self) -> str | None:
        """Why nothing can be written until a restart, or L{None}."""
        return self.blobs.failure or self.catalog.failure

    def health(self) -> dict[str, str | None]:
        """Say of each part why the store cannot take writes, or L{None}."""
        return {
            **self.catalog.health(),
            **self.blobs.health(),
            "disk": self._disk(lambda free, total: free < INLINE_LIMIT),
        }

    def warnings(self) -> dict[str, str | None]:
        """Say what an operator should look at while the store goes on: damage, a filling disk."""
        damaged = self.damagedCount
        return {
            "damage": f"{damaged} objects or blobs are damaged" if damaged else None,
            "disk": self._disk(lambda free, total: free * _LOW_SPACE < total),
        }

    @property
    def damagedCount(self) -> int:
        """How many objects and blobs are known to be damaged."""
        return len(self.blobs.damaged) + len(self.scrubber.damagedObjects)

    @property
    def reclaimBacklog(self) -> int:
        """How many blobs are to be removed."""
        return self._reclaimer.backlog

    def _disk(self, isLow: Callable[[int, int], bool]) -> str | None:
        try:
            free, total = self.space()
        except OSError as error:
            return f"the disk does not answer: {error.strerror or error}"
        return f"{free >> 10} KiB are free" if isLow(free, total) else None

    def idle(self) -> Deferred[None]:
        """Wait until everything that was deleted is gone, except what is held."""
        return self._reclaimer.idle()

    async def close(self) -> None:
        """Finish what was taken, then let the directory go. Once."""
        if self._catchUp.active():
            self._catchUp.cancel()
        try:
            await self.accessKeys.stop()
            await self.scrubber.stop()
            await self._reclaimer.stop()
            await self.blobs.close()
            await self.catalog.close()
        finally:
            await self.pool.stop()
            if self._company is not None:
                self._company.isClean = self._reclaimer.isClean
            self._closing.close()

    def _tellCreated(self, record: ObjectRecord) -> None:
        self._tell(ObjectChange(record.bucket, record.key, record))

    def _tell(self, change: ObjectChange) -> None:
        if self._company is not None and self._company.relay.isWanted:
            self._company.relay.send(change)
        self._tellHere(change)

    def _tellHere(self, change: ObjectChange) -> None:
        for observer in tuple(self.observers):
            try:
                observer(change)
            except Exception:
                # It is committed, whatever anybody makes of it.
                self._log.failure("an observer of the store failed")

    def _write(
        self,
        mutate: Callable[[], Deferred[T]],
        crcs: Mapping[str, int],
        tell: Callable[[T], None] | None = None,
    ) -> Deferred[T]:
        """
        Change the catalog, and see to the new blobs whatever comes of it.

        The caller's Deferred is a second one: a caller who goes away cancels his own, for a
        mutation that is under way may be committed after all.
        """
        if self.readOnly is not None:
            self._discard(crcs)
            return fail(StoreReadOnly(self.readOnly))
        told: Deferred[T] = Deferred()

        def committed(result: T) -> T:
            self.blobs.settle(tuple(crcs))
            if tell is not None and (self.observers or self._company is not None):
                tell(result)
            return result

        def refused(failure: Failure) -> Failure:
            if failure.check(StoreReadOnly):
                # The commit may be on the disk or not. The blobs keep their names in staging/,
                # and the next start asks the catalog about them.
                self.blobs.failStop(f"the catalog failed: {failure.getErrorMessage()}")
            elif failure.check(StoreError):
                self._discard(crcs)
            return failure

        mutate().addCallbacks(committed, refused).addBoth(told.callback)
        return told

    def _discard(self, crcs: Mapping[str, int]) -> None:
        # What cannot be removed now keeps its name in staging/ for the next start.
        if crcs and self.blobs.failure is None:
            self.blobs.discard(tuple(crcs)).addErrback(
                lambda failure: self._log.error(
                    "an upload was not removed: {error}", error=failure.getErrorMessage()
                )
            )
