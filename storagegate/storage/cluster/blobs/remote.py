"""
Blobs in a network store: RADOS, any S3 server, or files on a shared file system.

The node is stateless: the catalog records uncommitted uploads as the id range of the node's lease.
While the store is unavailable, every operation fails within five seconds. Recovery needs no action;
removals of failed uploads are retried until the store is back.
"""

from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any
from weakref import WeakSet

from attrs import define, field
from twisted.internet.defer import CancelledError, Deferred, fail, gatherResults, succeed
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.internet.task import deferLater
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

from storagegate.core.task import IdleWaiters
from storagegate.storage.backends import BackEndContext, OpenCatalog
from storagegate.storage.blobinterfaces import BlobFilter, IBlobStore
from storagegate.storage.blobwriter import BlobWriter, bufferSize
from storagegate.storage.cluster.blobs.pieces import (
    MARKER,
    READ_TRIES,
    UNLIMITED,
    DamagedPiece,
    InPlace,
    IPieceStore,
    MissingPiece,
    PiecePlace,
    PieceRange,
    PieceReader,
    PieceUpload,
    findSize,
    removeBlob,
)
from storagegate.storage.errors import (
    BlobsRefused,
    CorruptBlob,
    StoreBusy,
    StoreError,
    StoreFull,
    StoreReadOnly,
)
from storagegate.storage.files import FailStopLatch
from storagegate.storage.identity import ForeignBlobs, storeId
from storagegate.storage.records import Segment
from storagegate.storage.threadpool import IWorkPool

_log = Logger()

READ = 1 << 20
"""Bytes per read while there are few readers: fewer operations."""

_READS = 16 << 20
"""Bytes of the reads of all readers, two each, until each has the minimum."""

_LEAST_BUFFER = 256 * 1024
"""The smallest upload buffer if a piece is one buffer, to bound the number of pieces."""

_PLACES = 8192
"""The most cached sizes of blobs of several pieces (2 MB); others are looked up again."""

_BACKLOG = 65_536
"""The most upload ids kept in memory; others are left to the sweep of the node's id range."""

_OPEN_SECONDS = 4.5
"""The timeout of all operations of an open: a client must be answered within five seconds."""

LATE_SECONDS = 60.0
"""An unanswered write has taken effect after this time, or never will."""

_RETRY_SECONDS = (0.5, 10.0)
"""The first and the longest pause between removals while the store is unavailable."""

_AT_ONCE = 16
"""Blobs that are removed concurrently."""

_NOTHING = PieceRange(b"", 0, isVerified=True)

_UNCHECKED = "has not been reached yet"

_PROVE_SECONDS = 30.0
"""After this long without a write, the health check writes a small blob, in three requests."""

_SETTLED_SECONDS = 10.0
"""The store id is reread after this time, because two clusters may claim a store concurrently."""


@define(eq=False)
class UploadRemovals:
    """
    Removes failed uploads, retrying until each is removed. Methods: reactor thread.

    @ivar _remove: Removes one blob.
    @ivar _clock: Measures the pauses.
    @ivar _lateSeconds: See L{RemoteBlobs}.
    @ivar _onRemoved: Called with each upload that is permanently removed.
    """

    _log = Logger()

    _remove: Callable[[str], Any]
    _clock: IReactorTime
    _lateSeconds: float
    _onRemoved: Callable[[str], object]
    # Each with whether one of its writes may still take effect.
    _waiting: deque[tuple[str, bool]] = field(factory=deque, init=False)
    _late: set[IDelayedCall] = field(factory=set, init=False)
    _isRunning: bool = field(default=False, init=False)
    _isStopping: bool = field(default=False, init=False)
    _pause: Deferred[None] | None = field(default=None, init=False)
    _waiters: IdleWaiters = field(factory=IdleWaiters, init=False)

    def add(self, blob: str, isUnknown: bool) -> None:
        """
        Remove an upload.

        @param blob: The upload's blob id.
        @param isUnknown: Whether one of its writes may still take effect, so that it must be
            removed again later.
        """
        if self._isStopping or len(self._waiting) >= _BACKLOG:
            return
        self._waiting.append((blob, isUnknown))
        if isUnknown and len(self._late) < _BACKLOG:

            def again() -> None:
                self._late.discard(call)
                self.add(blob, False)

            call = self._clock.callLater(self._lateSeconds, again)
            self._late.add(call)
        if not self._isRunning:
            self._isRunning = True
            Deferred.fromCoroutine(self._work()).addErrback(
                lambda failure: self._log.failure("cannot remove an upload", failure)
            )

    def idle(self) -> Deferred[None]:
        """Wait until no removal is waiting."""
        return self._waiters.wait(self._isRunning)

    async def stop(self) -> None:
        """
        Remove the waiting uploads if the store answers. The sweep of the node's id range finds the
        rest.
        """
        self._isStopping = True
        for call in self._late:
            call.cancel()
        self._late.clear()
        if self._pause is not None:
            self._pause.cancel()
        await self.idle()

    async def _work(self) -> None:
        seconds, most = _RETRY_SECONDS
        try:
            while self._waiting:
                blob, isUnknown = self._waiting[0]
                try:
                    await self._remove(blob)
                except (StoreError, MissingPiece, OSError) as error:
                    if seconds == _RETRY_SECONDS[0]:
                        self._log.warn("cannot remove uploads: {error}", error=str(error))
                    if self._isStopping:
                        break
                    self._pause = deferLater(self._clock, seconds)
                    await self._pause
                    seconds = min(2 * seconds, most)
                else:
                    self._waiting.popleft()
                    seconds = _RETRY_SECONDS[0]
                    if not isUnknown:
                        self._onRemoved(blob)
        except CancelledError:
            # The store closes.
            pass
        finally:
            self._isRunning = False
            self._waiters.notify()


@implementer(IBlobStore)
class RemoteBlobs:
    """
    An L{IBlobStore} on an L{IPieceStore}. Methods: reactor thread.

    @ivar latch: Set by L{failStop}.
    @ivar onRemoved: Called with each blob that is removed and that no late write can recreate.
    """

    _log = Logger()

    isRemote = True

    def __init__(
        self,
        pieces: IPieceStore,
        pool: IWorkPool,
        clock: IReactorTime,
        newId: Callable[[str], str],
        store: str,
        latch: FailStopLatch,
        lateSeconds: float = LATE_SECONDS,
        isChecked: bool = True,
    ) -> None:
        """
        @param isChecked: Whether the id beside the blobs has been compared with the store's.
            Nothing is written or removed before that.
        @param pieces: The piece store, claimed for this store.
        @param pool: Runs hashers.
        @param clock: Measures the duration of operations.
        @param newId: Generates the ids of new blobs; see
            L{storagegate.storage.interfaces.ICatalog.newBlobId}.
        @param store: The id of the store.
        @param latch: Set when writing must stop.
        @param lateSeconds: Delay before an upload with an unanswered write is removed again.
        """
        self.latch = latch
        self._pieces = pieces
        self._pool = pool
        self._clock = clock
        self._newId = newId
        self._store = store
        self._corrupt: set[str] = set()
        self.onFull: Callable[[], object] = lambda: None
        self.onShort: Callable[[str, int], object] = lambda blob, size: None
        self.onDamaged: Callable[[str], object] = lambda blob: None
        self.reexamine: Callable[[str], Deferred[bool]] = lambda blob: succeed(False)
        self._places: OrderedDict[str, PiecePlace] = OrderedDict()
        self._new: OrderedDict[str, float] = OrderedDict()
        self._writers: WeakSet[BlobWriter] = WeakSet()
        self._writes = InPlace()
        self._readers = 0
        self.onRemoved: Callable[[str], object] = lambda blob: None
        self._removals = UploadRemovals(
            self._removeOne, clock, lateSeconds, lambda blob: self.onRemoved(blob)
        )
        self._isChecked = isChecked
        self._isSuspect = self._isProbing = self._isClosing = False
        self._probes = IdleWaiters()
        self._problem: str | None = None if isChecked else _UNCHECKED
        self._provedAt = clock.seconds()
        pieces.onError = self._saw
        self._checking = clock.callLater(_SETTLED_SECONDS, self._probeSoon)

    def writer(
        self,
        inlineLimit: int,
        expectedSize: int | None = None,
        bucket: str = "",
        filtered: BlobFilter | None = None,
    ) -> BlobWriter:
        """See L{IBlobStore.writer}."""
        full = self._pieces.bufferSize
        buffer = bufferSize(
            len(self._writers) + 1,
            full,
            self._pieces.buffersSize,
            min(full, _LEAST_BUFFER),
        )
        pieceSize = self._pieces.pieceSize if self._pieces.growsPieces else buffer
        writer = BlobWriter(
            partial(self._newUpload, pieceSize, bucket),
            self._writes,
            self.latch,
            inlineLimit,
            expectedSize,
            buffer,
            isDouble=buffer == full,
            filtered=filtered,
            threads=self._pool,
        )
        self._writers.add(writer)
        return writer

    async def open(self, segment: Segment) -> PieceReader:
        """See L{IBlobStore.open}; it also reads the first bytes of the segment."""
        if segment.blob in self._corrupt and not await self.reexamine(segment.blob):
            raise CorruptBlob(f"blob {segment.blob} is damaged")
        return await self._open(segment)

    async def openUncached(self, blob: str) -> PieceReader:
        """See L{IBlobStore.openUncached}."""
        return await self._open(Segment(blob, 0, 0))

    async def _open(self, segment: Segment) -> PieceReader:
        self._readers += 1
        try:
            place, first = await self._locate(segment)
            if place.size < segment.offset + segment.length:
                self._places.pop(segment.blob, None)
                place, first = await self._locate(segment)
            if place.size < segment.offset + segment.length:
                self.onShort(segment.blob, place.size)
                raise CorruptBlob(f"blob {segment.blob} is short: {place.size} bytes")
        except DamagedPiece:
            self._readers -= 1
            reader: PieceReader = await self._refuseDamaged(segment.blob)
            return reader
        except BaseException:
            self._readers -= 1
            raise
        return self._newReader(place, segment.offset, first)

    def remove(self, blobs: Sequence[str]) -> Deferred[None]:
        """See L{IBlobStore.remove}."""
        try:
            self._mayWrite()
        except StoreError as error:
            return fail(error)
        self.forget(blobs)
        return Deferred.fromCoroutine(self._removeAll(blobs))

    def forget(self, blobs: Sequence[str]) -> None:
        """See L{IBlobStore.forget}: no file is open, but cached locations are dropped."""
        self._corrupt.difference_update(blobs)
        for blob in blobs:
            self._places.pop(blob, None)

    def confirm(self, blobs: Sequence[str]) -> None:
        """See L{IBlobStore.confirm}: the marks are in memory."""
        for blob in blobs:
            self._new.pop(blob, None)

    async def unconfirmed(
        self, olderThanSeconds: float, corrected: Callable[[int], int]
    ) -> Sequence[str]:
        """
        See L{IBlobStore.unconfirmed}: lists the blobs of this process. The catalog identifies blobs
        left by a crash, as the id range of an ended lease.
        """
        latest = self._clock.seconds() - olderThanSeconds
        return [blob for blob, since in self._new.items() if since < latest]

    def markCorrupt(self, blobs: Iterable[str]) -> None:
        """See L{IBlobStore.markCorrupt}."""
        self._corrupt.update(blobs)

    def clearCorrupt(self, blobs: Iterable[str]) -> None:
        """See L{IBlobStore.clearCorrupt}."""
        self._corrupt.difference_update(blobs)

    @property
    def unconfirmedWrites(self) -> int:
        """See L{IBlobStore}."""
        return self._pieces.unconfirmedWrites

    @property
    def rereads(self) -> int:
        """See L{IBlobStore}."""
        return self._pieces.rereads

    @property
    def corrupt(self) -> frozenset[str]:
        """The blobs that are known to be corrupt."""
        return frozenset(self._corrupt)

    @property
    def failure(self) -> str | None:
        """Why nothing is written or removed until a restart, or L{None}."""
        return self.latch.failure

    def failStop(self, reason: str) -> None:
        """See L{IBlobStore.failStop}."""
        self.latch.set(reason)

    def health(self) -> Mapping[str, str | None]:
        """
        See L{IBlobStore.health}. After a failed operation, and after a period without writes, it
        starts a probe that writes, reads and removes a blob, for the next call.
        """
        isOld = self._clock.seconds() - self._provedAt >= _PROVE_SECONDS
        if self._isSuspect or self._problem or isOld:
            self._probeSoon()
        return {"blobs": self.latch.failure or self._problem}

    def idle(self) -> Deferred[None]:
        """Wait until no write is in progress and all failed uploads are removed."""
        return Deferred.fromCoroutine(self._idle())

    async def close(self) -> None:
        """Finish background work as far as the store responds, and close all connections."""
        self._isClosing = True
        if self._checking.active():
            self._checking.cancel()
        await self._ended()
        # A probe that is interrupted leaves a blob, and the row of this node's lease with it.
        await self._probes.wait(self._isProbing)
        await self._removals.stop()
        await self._pieces.close()

    async def _idle(self) -> None:
        await self._ended()
        await self._removals.idle()

    async def _ended(self) -> None:
        """Wait until no write is in progress."""
        await self._writes.idle()
        # An aborted writer schedules the removal of its upload only now.
        await deferLater(self._clock, 0)

    def _newUpload(self, pieceSize: int, bucket: str) -> PieceUpload:
        # A number that is taken and not used stays in the row of the lease.
        self._mayWrite()
        return PieceUpload(
            self._newId(bucket),
            self._pieces,
            pieceSize,
            self._mayWrite,
            self._committed,
            self._removals.add,
        )

    def _mayWrite(self) -> None:
        """
        Check that writes and removals are allowed.

        @raise StoreReadOnly: Writing has stopped until a restart.
        @raise StoreBusy: The blobs have not yet been verified to belong to the store.
        """
        self.latch.check()
        if not self._isChecked:
            raise StoreBusy(f"{self._pieces.name} {_UNCHECKED}")

    def _committed(self, blob: str) -> None:
        self._new[blob] = self._provedAt = self._clock.seconds()
        if len(self._new) > _BACKLOG:
            self._new.popitem(last=False)

    def _newReader(self, place: PiecePlace, offset: int, first: PieceRange) -> PieceReader:
        def closed() -> None:
            self._readers -= 1

        return PieceReader(
            place,
            self._pieces,
            self._pool,
            self._step(),
            (offset, first.body),
            first.isVerified,
            self._refuseMissing,
            self._refuseDamaged,
            closed,
        )

    def _step(self) -> int:
        return bufferSize(self._readers, READ, _READS)

    async def _locate(self, segment: Segment) -> tuple[PiecePlace, PieceRange]:
        """Find a blob and read the first bytes of the segment."""

        def tookLong(value: object, seconds: float) -> Any:
            raise StoreBusy(f"{self._pieces.name} did not respond within {seconds:g} s")

        search = Deferred.fromCoroutine(self._search(segment))
        place, first = await search.addTimeout(_OPEN_SECONDS, self._clock, tookLong)
        if place.pieceSize:
            self._places[place.blob] = place
        if len(self._places) > _PLACES:
            self._places.popitem(last=False)
        return place, first

    async def _search(self, segment: Segment) -> tuple[PiecePlace, PieceRange]:
        blob, end = segment.blob, segment.offset + segment.length
        ways = [self._readWhole, self._readCut]
        # An upload that fits in its buffers is written as one piece.
        if blob in self._places or end > 2 * self._pieces.bufferSize:
            ways.reverse()
        for way in ways * READ_TRIES:
            try:
                return await way(segment)
            except MissingPiece:
                continue
        await self._refuseMissing(PiecePlace(blob, 0), 0)
        raise AssertionError("unreachable")

    async def _readWhole(self, segment: Segment) -> tuple[PiecePlace, PieceRange]:
        blob, length = segment.blob, min(segment.length, self._step())
        if not length:
            return PiecePlace(blob, await self._pieces.size(blob)), _NOTHING
        first = await self._pieces.get(blob, segment.offset, length)
        return PiecePlace(blob, first.size), first

    async def _readCut(self, segment: Segment) -> tuple[PiecePlace, PieceRange]:
        blob, offset = segment.blob, segment.offset
        if self._pieces.pieceSize == UNLIMITED:
            raise MissingPiece
        place = self._places.get(blob)
        if place is None or not segment.length:
            place = await findSize(self._pieces, blob, offset + segment.length)
        name, within, count = place.piece(offset, min(segment.length, self._step()))
        if not count or offset >= place.size:
            return place, _NOTHING
        return place, await self._pieces.get(name, within, count)

    async def _refuseDamaged(self, blob: str) -> Any:
        """
        Refuse a blob whose bytes were wrong in two responses of the store.

        @raise CorruptBlob: Always.
        """
        self.onDamaged(blob)
        raise CorruptBlob(f"blob {blob} differs from the bytes that were written")

    async def _refuseMissing(self, place: PiecePlace, offset: int) -> Any:
        """
        Refuse a blob with missing bytes, after checking the identity of the store: in an unmounted
        directory or a new pool, all blobs are missing.

        @param place: The expected location of the bytes; its size is 0 if no piece was found.
        @param offset: The first missing byte.
        @raise CorruptBlob: The bytes are missing.
        @raise StoreBusy: The store's identity could not be verified.
        """
        self._places.pop(place.blob, None)
        await self._checkIdentity()
        self.onShort(place.blob, offset)
        if not place.size:
            raise CorruptBlob(f"blob {place.blob} is missing")
        raise CorruptBlob(f"blob {place.blob} is short: byte {offset} is missing")

    async def _checkIdentity(self) -> None:
        """
        Compare the id beside the blobs with the store's.

        @raise StoreBusy: The id cannot be read, or belongs to another store; in that case writing
            stops.
        """
        try:
            found = await readMarker(self._pieces)
        except MissingPiece:
            raise StoreBusy(f"{self._pieces.name} no longer has {MARKER}") from None
        if found != self._store:
            self.failStop(f"{self._pieces.name} is of store {found}, not {self._store}")
            raise StoreBusy(f"{self._pieces.name} belongs to another store")
        self._isChecked = True

    async def _removeOne(self, blob: str) -> None:
        await removeBlob(self._pieces, blob)
        self._new.pop(blob, None)

    async def _removeAll(self, blobs: Sequence[str]) -> None:
        """Remove blobs concurrently; try all before raising an error."""
        waiting = iter(blobs)
        errors: list[Exception] = []

        async def work() -> None:
            for blob in waiting:
                try:
                    await self._removeOne(blob)
                    self.onRemoved(blob)
                except (StoreError, MissingPiece, OSError) as error:
                    errors.append(error)
                    if isinstance(error, StoreBusy):
                        # The others would time out, too.
                        return

        workers = range(min(_AT_ONCE, len(blobs)))
        await gatherResults([Deferred.fromCoroutine(work()) for _ in workers])
        if errors:
            # The catalog has no row for a blob that was never committed; only this process knows
            # it.
            for blob in blobs:
                if blob in self._new:
                    self._removals.add(blob, False)
            raise errors[0]

    def _saw(self, error: Exception) -> None:
        """Record a failed operation."""
        if isinstance(error, StoreFull):
            self.onFull()
        else:
            self._isSuspect = True

    def _probeSoon(self) -> None:
        if not (self._isProbing or self._isClosing) and self.latch.failure is None:
            self._isProbing, self._isSuspect = True, False
            Deferred.fromCoroutine(self._probe()).addBoth(self._probed)

    async def _probe(self) -> None:
        """Read the store's id, then write, read and remove a small blob."""
        await self._checkIdentity()
        upload = self._newUpload(self._pieces.pieceSize, "")
        body = upload.blob.encode()
        try:
            await upload.commit([body])
            found = await self._pieces.get(upload.blob, 0, len(body))
            if found.body != body:
                raise StoreBusy(
                    f"{self._pieces.name} returns bytes that differ from the bytes written"
                )
            await self._removeOne(upload.blob)
        except BaseException:
            upload.remove()
            raise
        self.onRemoved(upload.blob)

    def _probed(self, result: object) -> None:
        self._isProbing = self._isSuspect = False
        self._provedAt = self._clock.seconds()
        problem = None
        if isinstance(result, Failure) and not result.check(
            StoreFull, StoreReadOnly, CancelledError
        ):
            problem = f"writes or reads fail: {result.getErrorMessage()}"
        if (problem is None) != (self._problem is None):
            self._log.warn("blobs: {state}", state=problem or "is writable and readable again")
        self._problem = problem
        self._probes.notify()


async def readMarker(pieces: IPieceStore) -> str:
    """
    Read the id of the store that has claimed a piece store.

    @raise MissingPiece: No store has claimed it.
    @raise StoreError: The id cannot be read now.
    """
    found = await pieces.get(MARKER, 0, 128)
    return found.body.decode("ascii", "replace").strip()


async def checkPieces(pieces: IPieceStore, store: str) -> None:
    """
    Check that a store has claimed the blobs.

    @param store: The id of the store.
    @raise ForeignBlobs: Another store, or no store, has claimed them.
    @raise StoreError: The id cannot be read now.
    """
    try:
        found = await readMarker(pieces)
    except MissingPiece:
        raise ForeignBlobs(
            f"{pieces.name} has no {MARKER}: the blobs of the catalog are elsewhere, or the cluster"
            " is not initialised"
        ) from None
    if found != store:
        raise ForeignBlobs(
            f"the catalog is of store {store}, {pieces.name} of store {found}; nothing was changed"
        )


async def claimPieces(pieces: IPieceStore, store: str) -> None:
    """
    Write the id of a store beside its blobs, unless it exists. Called once, when a cluster is
    created: doing so at each start could claim an empty, unmounted directory.

    @param store: The id of the store.
    @raise ForeignBlobs: Another store has claimed them.
    @raise StoreError: The id cannot be read or written now.
    """
    try:
        await readMarker(pieces)
    except MissingPiece:
        await pieces.create(MARKER, store.encode() + b"\n")
    await checkPieces(pieces, store)


def openRemote(context: BackEndContext, opened: OpenCatalog, pieces: IPieceStore) -> RemoteBlobs:
    """
    Open the blobs of a catalog in a piece store. Blocks; call before the reactor runs. If the piece
    store does not answer, it is opened anyway, but not written to until its identity is verified.

    @param context: The reactor, pool and latch of the store; C{options["isNew"]} is whether to
        claim the piece store.
    @param opened: The catalog.
    @param pieces: The piece store, connected.
    @raise ForeignBlobs: The blobs do not belong to the catalog.
    @raise StoreError: The piece store cannot be used; one line gives the reason.
    """
    store = storeId(opened.catalog.secret())
    isNew = bool(context.options.get("isNew"))
    check = claimPieces if isNew else checkPieces
    isChecked = True
    try:
        pieces.wait(Deferred.fromCoroutine(check(pieces, store)))
    except OSError as error:
        raise StoreError(f"{pieces.name} cannot be used: {error}") from error
    except BlobsRefused:
        raise
    except StoreBusy as error:
        if isNew:
            raise
        # Requests that need no blobs can be served without them.
        isChecked = False
        _log.warn("the blob store does not respond yet: {error}", error=str(error))
    pieces.detach()
    return RemoteBlobs(
        pieces,
        context.pool,
        context.reactor,
        opened.catalog.newBlobId,
        store,
        context.latch,
        isChecked=isChecked,
    )
