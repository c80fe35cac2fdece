"""
Blobs in a store on the network: RADOS, any S3, files on a shared file system.

The node has no state: what it must remember of uploads that were not committed is in the catalog,
as the range of ids of its lease. While the store is away every operation fails within five seconds,
and nothing has to be done when it is back; removals of uploads that failed are tried again until
then.
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
from storagegate.storage.blobinterfaces import IBlobStore
from storagegate.storage.blobs.pieces import (
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
from storagegate.storage.blobs.writer import BlobWriter, bufferSize
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
"""Bytes of one read: fewer operations, while there are few readers."""

_READS = 16 << 20
"""Bytes of the reads of all readers, two for each, until each has the least."""

_LEAST_BUFFER = 256 * 1024
"""The least bytes of a buffer of an upload where a piece is one buffer: pieces must not be many."""

_PLACES = 8192
"""Sizes of blobs of several pieces that are remembered, 2 MB: the others are found again."""

_BACKLOG = 65_536
"""Ids that are remembered of uploads; more are left to the sweep of the node's range of ids."""

_OPEN_SECONDS = 4.5
"""How long all operations of an opening may take: a client has its answer after five seconds."""

LATE_SECONDS = 60.0
"""A write without an answer has come to pass after so long, or never will."""

_RETRY_SECONDS = (0.5, 10.0)
"""The pause before the next removal while the store is away: at first, and at most."""

_AT_ONCE = 16
"""Blobs that are removed at one time."""

_NOTHING = PieceRange(b"", 0, isVerified=True)

_UNCHECKED = "was not reached yet"

_PROVE_SECONDS = 30.0
"""After so long without a write a small blob is written, for the health: three requests."""

_SETTLED_SECONDS = 10.0
"""After so long the id of the store is read again, for two clusters may claim a store at once."""


@define(eq=False)
class UploadRemovals:
    """
    Removes uploads that failed, until each is removed. Methods: reactor thread.

    @ivar _remove: Removes one blob.
    @ivar _clock: Measures the pauses.
    @ivar _lateSeconds: See L{RemoteBlobs}.
    @ivar _onRemoved: Called with each that is removed for good.
    """

    _log = Logger()

    _remove: Callable[[str], Any]
    _clock: IReactorTime
    _lateSeconds: float
    _onRemoved: Callable[[str], object]
    # With each, whether a write of it may still come to pass.
    _waiting: deque[tuple[str, bool]] = field(factory=deque, init=False)
    _late: set[IDelayedCall] = field(factory=set, init=False)
    _isRunning: bool = field(default=False, init=False)
    _isStopping: bool = field(default=False, init=False)
    _pause: Deferred[None] | None = field(default=None, init=False)
    _waiters: IdleWaiters = field(factory=IdleWaiters, init=False)

    def add(self, blob: str, isUnknown: bool) -> None:
        """
        Remove an upload.

        @param blob: Its id.
        @param isUnknown: Whether one of its writes may still come to pass: it is removed again.
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
                lambda failure: self._log.failure("an upload was not removed", failure)
            )

    def idle(self) -> Deferred[None]:
        """Wait until nothing waits."""
        return self._waiters.wait(self._isRunning)

    async def stop(self) -> None:
        """
        Remove what waits if the store answers; the sweep of the node's range of ids finds the rest.
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
                        self._log.warn("uploads are not removed: {error}", error=str(error))
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

    @ivar latch: Is set by L{failStop}.
    @ivar onRemoved: Called with each blob that is removed, and that no late write brings back.
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
        @param isChecked: Whether the id beside the blobs was compared with the store's. Otherwise
            nothing is written or removed until it was.
        @param pieces: Has the bytes, and was claimed for this store.
        @param pool: Runs hashers.
        @param clock: Measures the time of operations.
        @param newId: Makes the ids of new blobs; see
            L{storagegate.storage.interfaces.ICatalog.newBlobId}.
        @param store: The id of the store.
        @param latch: Is set when nothing may be written any more.
        @param lateSeconds: When an upload is removed again of which a write may come to pass late.
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
        self._isSuspect = self._isProbing = False
        self._problem: str | None = None if isChecked else _UNCHECKED
        self._provedAt = clock.seconds()
        pieces.onError = self._saw
        self._checking = clock.callLater(_SETTLED_SECONDS, self._probeSoon)

    def writer(
        self, inlineLimit: int, expectedSize: int | None = None, bucket: str = ""
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
        )
        self._writers.add(writer)
        return writer

    async def open(self, segment: Segment) -> PieceReader:
        """See L{IBlobStore.open}; the first bytes of the segment are read with it."""
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
        """See L{IBlobStore.forget}: nothing is open, but places are remembered."""
        self._corrupt.difference_update(blobs)
        for blob in blobs:
            self._places.pop(blob, None)

    def confirm(self, blobs: Sequence[str]) -> None:
        """See L{IBlobStore.confirm}: the marks are in memory."""
        for blob in blobs:
            self._new.pop(blob, None)

    async def unconfirmed(self, olderThanSeconds: float) -> Sequence[str]:
        """
        See L{IBlobStore.unconfirmed}: those of this process. The catalog names those that a crash
        has left, as the range of ids of a lease that has ended.
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
        """Why nothing is written or removed until a restart."""
        return self.latch.failure

    def failStop(self, reason: str) -> None:
        """See L{IBlobStore.failStop}."""
        self.latch.set(reason)

    def health(self) -> Mapping[str, str | None]:
        """
        See L{IBlobStore.health}: after an operation that failed, and while no write shows it,
        whether a blob can be written, read and removed, which is tried now for the next call.
        """
        isOld = self._clock.seconds() - self._provedAt >= _PROVE_SECONDS
        if self._isSuspect or self._problem or isOld:
            self._probeSoon()
        return {"blobs": self.latch.failure or self._problem}

    def idle(self) -> Deferred[None]:
        """Wait until no write is under way, and the uploads that failed are removed."""
        return Deferred.fromCoroutine(self._idle())

    async def close(self) -> None:
        """Finish background work as far as the store answers, and close all connections."""
        if self._checking.active():
            self._checking.cancel()
        await self._ended()
        await self._removals.stop()
        await self._pieces.close()

    async def _idle(self) -> None:
        await self._ended()
        await self._removals.idle()

    async def _ended(self) -> None:
        """Wait until no write is under way."""
        await self._writes.idle()
        # A writer that was aborted has its upload removed only now.
        await deferLater(self._clock, 0)

    def _newUpload(self, pieceSize: int, bucket: str) -> PieceUpload:
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
        Check that something may be written or removed.

        @raise StoreReadOnly: Not until a restart.
        @raise StoreBusy: The blobs have not been found to be the store's yet.
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
        """Find a blob, and read the first bytes of the segment in it."""

        def tookLong(value: object, seconds: float) -> Any:
            raise StoreBusy(f"{self._pieces.name} did not answer within {seconds:g} s")

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
        # What an upload holds in memory is written at once.
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
        Refuse a blob whose bytes are wrong, in two answers of the store.

        @raise CorruptBlob: Always.
        """
        self.onDamaged(blob)
        raise CorruptBlob(f"blob {blob} does not hold the bytes that were written")

    async def _refuseMissing(self, place: PiecePlace, offset: int) -> Any:
        """
        Refuse a blob of which bytes are missing, if the store is the right one: in an empty
        directory that something is not mounted on, or in a new pool, all are missing.

        @param place: Where the bytes should be; of no size if nothing was found of the blob.
        @param offset: The first byte that is missing.
        @raise CorruptBlob: They are missing.
        @raise StoreBusy: It is not known whether they are.
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

        @raise StoreBusy: It cannot be read, or is another's; then nothing is written any more.
        """
        try:
            found = await readMarker(self._pieces)
        except MissingPiece:
            raise StoreBusy(f"{self._pieces.name} has no {MARKER} any more") from None
        if found != self._store:
            self.failStop(f"{self._pieces.name} is of store {found}, not {self._store}")
            raise StoreBusy(f"{self._pieces.name} is another store's")
        self._isChecked = True

    async def _removeOne(self, blob: str) -> None:
        await removeBlob(self._pieces, blob)
        self._new.pop(blob, None)

    async def _removeAll(self, blobs: Sequence[str]) -> None:
        """Remove blobs, some at one time; all are tried before an error is raised."""
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
                        # The others would wait as long.
                        return

        workers = range(min(_AT_ONCE, len(blobs)))
        await gatherResults([Deferred.fromCoroutine(work()) for _ in workers])
        if errors:
            # The catalog has no row of a blob that was never committed: only here it is known.
            for blob in blobs:
                if blob in self._new:
                    self._removals.add(blob, False)
            raise errors[0]

    def _saw(self, error: Exception) -> None:
        """Note an operation that failed."""
        if isinstance(error, StoreFull):
            self.onFull()
        else:
            self._isSuspect = True

    def _probeSoon(self) -> None:
        if not self._isProbing and self.latch.failure is None:
            self._isProbing, self._isSuspect = True, False
            Deferred.fromCoroutine(self._probe()).addBoth(self._probed)

    async def _probe(self) -> None:
        """Read the store's id; write a small blob, read it, and remove it."""
        await self._checkIdentity()
        upload = self._newUpload(self._pieces.pieceSize, "")
        body = upload.blob.encode()
        try:
            await upload.commit([body])
            found = await self._pieces.get(upload.blob, 0, len(body))
            if found.body != body:
                raise StoreBusy(f"{self._pieces.name} returns other bytes than were written")
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
            problem = f"cannot be written or read: {result.getErrorMessage()}"
        if (problem is None) != (self._problem is None):
            self._log.warn("blobs: {state}", state=problem or "can be written and read again")
        self._problem = problem


async def readMarker(pieces: IPieceStore) -> str:
    """
    Read the id of the store that has claimed a store of pieces.

    @raise MissingPiece: There is none.
    @raise StoreError: It cannot be read now.
    """
    found = await pieces.get(MARKER, 0, 128)
    return found.body.decode("ascii", "replace").strip()


async def checkPieces(pieces: IPieceStore, store: str) -> None:
    """
    Compare the id beside the blobs with a store's.

    @param store: The id of the store.
    @raise ForeignBlobs: Another store has claimed them, or none has.
    @raise StoreError: It cannot be read now.
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
            f"the catalog is of store {store}, {pieces.name} of store {found}: nothing was changed"
        )


async def claimPieces(pieces: IPieceStore, store: str) -> None:
    """
    Write the id of a store beside its blobs, unless it is there: once, when a cluster is made. A
    store that did so at each start would claim an empty directory where nothing is mounted.

    @param store: The id of the store.
    @raise ForeignBlobs: Another store has claimed them.
    @raise StoreError: It cannot be read or written now.
    """
    try:
        await readMarker(pieces)
    except MissingPiece:
        await pieces.create(MARKER, store.encode() + b"\n")
    await checkPieces(pieces, store)


def openRemote(context: BackEndContext, opened: OpenCatalog, pieces: IPieceStore) -> RemoteBlobs:
    """
    Open the blobs of a catalog in a store of pieces. Blocks, before the reactor runs. Blobs that do
    not answer are opened all the same, and not written to until they are known to be the store's.

    @param context: The reactor, pool and latch of the store; C{options["isNew"]} is whether the
        store of pieces is claimed.
    @param opened: The catalog.
    @param pieces: The store of pieces, connected.
    @raise ForeignBlobs: They are not those of the catalog.
    @raise StoreError: The store of pieces cannot be used; one line gives the reason.
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
        # What does not need the blobs can be served without them.
        isChecked = False
        _log.warn("the blobs do not answer yet: {error}", error=str(error))
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
