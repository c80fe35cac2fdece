"""
Blobs as they are on another machine: no file descriptor, bytes by ranged reads that come late.

Registered as C{"ranged"}. The bytes are in files of their own, below C{ranged/} in the data
directory, so a daemon can be started again; see C{STORE_UNDER_TEST} in L{tests.support.daemon}.
"""

import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from random import Random
from typing import Any

from twisted.internet.defer import CancelledError, Deferred, fail, succeed
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import deferLater
from zope.interface import implementer

from storagegate.storage.backends import BLOBS, DEFAULT_BLOBS, BackEndContext, OpenCatalog
from storagegate.storage.blobinterfaces import (
    BlobFilter,
    ByteSink,
    Hasher,
    IBlobReader,
    IBlobStore,
    IBlobWriter,
)
from storagegate.storage.blobwriter import BlobChecksum
from storagegate.storage.errors import CorruptBlob, StoreReadOnly
from storagegate.storage.records import Content, Segment
from storagegate.storage.threadpool import IWorkPool

RANGED = "ranged"
"""The name of this back end."""

RANGE = 64 * 1024
"""Bytes of one read on the way to a client."""

_BUFFER = 512 * 1024

BLOBS[RANGED] = "tests.contract.rangedblobs:openBlobs"


def _append(path: str, pieces: Sequence[bytes]) -> None:
    with open(path, "ab") as file:
        file.writelines(pieces)


def _readRange(path: str, offset: int, length: int) -> bytes:
    with open(path, "rb") as file:
        file.seek(offset)
        return file.read(length)


def _removeAll(paths: Sequence[str]) -> None:
    for path in paths:
        with suppress(FileNotFoundError):
            os.unlink(path)


@implementer(IBlobReader)
class RangedHandle:
    """A blob that was found; each read of it is a request of its own."""

    isVerified = False

    def __init__(self, blobs: "RangedBlobs", blob: str, size: int) -> None:
        self.size = size
        self._blobs = blobs
        self._blob = blob
        self._isClosed = False

    async def sendTo(self, response: ByteSink, offset: int, length: int) -> None:
        """See L{IBlobReader.sendTo}."""
        end = offset + length
        while offset < end:
            piece = await self.read(offset, min(RANGE, end - offset))
            if not piece:
                raise CorruptBlob(f"blob {self._blob} has become shorter")
            offset += len(piece)
            wait = response.send(piece)
            if wait is not None:
                await wait

    async def read(self, offset: int, length: int, hashers: Sequence[Hasher] = ()) -> bytes:
        """See L{IBlobReader.read}."""
        assert not self._isClosed
        piece = await self._blobs.readRange(self._blob, offset, length)
        for hasher in hashers:
            hasher.update(piece)
        return piece

    def readWarm(self, offset: int, length: int) -> None:
        """Nothing is in memory."""

    async def digest(
        self,
        hashers: Sequence[Hasher],
        offset: int,
        length: int,
        space: memoryview | None = None,
    ) -> int:
        """See L{IBlobReader.digest}."""
        done = 0
        while done < length:
            piece = await self.read(offset + done, min(RANGE, length - done), hashers)
            if not piece:
                break
            done += len(piece)
        return done

    def close(self) -> None:
        """See L{IBlobReader.close}."""
        if self._isClosed:
            raise RuntimeError("the handle was released already")
        self._isClosed = True


@implementer(IBlobWriter)
class RangedSink:
    """Collects half a MiB, and appends it while the writer waits."""

    def __init__(self, blobs: "RangedBlobs", inlineLimit: int, filtered: BlobFilter | None) -> None:
        self._blobs = blobs
        self._filtered = filtered
        self._inlineLimit = inlineLimit
        self._pieces: list[bytes] = []
        self._held = 0
        self._size = 0
        self._blob: str | None = None
        self._crc = BlobChecksum()
        self._ended = False
        self._isDurable = False
        self._waiting: Deferred[None] | None = None
        self._finishing: Deferred[Content] | None = None
        self._error: Exception | None = None
        if blobs.failure is not None:
            self._error = StoreReadOnly(blobs.failure)

    def write(self, chunk: bytes) -> Deferred[None] | None:
        """See L{IBlobWriter.write}."""
        if self._error is not None:
            raise self._error
        if self._ended or self._waiting is not None:
            raise RuntimeError("the sink takes no chunk now")
        self._pieces.append(chunk)
        self._held += len(chunk)
        self._size += len(chunk)
        if self._held < max(_BUFFER, self._inlineLimit + 1):
            return None
        self._waiting = Deferred.fromCoroutine(self._append(False))
        return self._waiting

    def finish(self) -> Deferred[Content]:
        """See L{IBlobWriter.finish}."""
        if self._error is not None:
            return fail(self._error)
        if self._ended:
            return fail(RuntimeError("the sink has ended"))
        self._ended = True
        if self._size <= self._inlineLimit and self._inlineLimit:
            self._isDurable = True
            inline = b"".join(self._pieces)
            if self._filtered is not None:
                inline = self._filtered.whole(inline)
            return succeed(Content(self._size, inline))
        self._finishing = Deferred.fromCoroutine(self._finish())
        return self._finishing

    def abort(self) -> None:
        """See L{IBlobWriter.abort}."""
        if self._error is not None or self._isDurable:
            return
        self._ended = True
        self._error = CancelledError("the upload was aborted")
        for each in (self._waiting, self._finishing):
            if each is not None:
                each.cancel()
        if self._blob is not None:
            self._blobs.remove([self._blob])

    def takeNewBlobs(self) -> Mapping[str, int]:
        """See L{IBlobWriter.takeNewBlobs}."""
        if self._blob is None or not self._isDurable:
            return {}
        blob, self._blob = self._blob, None
        return {blob: self._crc.value}

    async def _append(self, isLast: bool) -> None:
        pieces, self._pieces = self._pieces, []
        if self._filtered is not None:
            pieces = self._filtered.update(pieces, isLast)
        self._held = 0
        for piece in pieces:
            self._crc.update(piece)
        if self._blob is None:
            self._blob = self._blobs.newId()
        await self._blobs.append(self._blob, pieces)
        self._waiting = None

    async def _finish(self) -> Content:
        await self._append(True)
        assert self._blob is not None
        self._isDurable = True
        stored = self._size if self._filtered is None else self._filtered.size
        return Content(self._size, segments=(Segment(self._blob, 0, stored),))


@implementer(IBlobStore)
class RangedBlobs:
    """
    Blobs that are read by ranges.

    @ivar reads: How many ranges were read.
    """

    isRemote = True
    unconfirmedWrites = rereads = 0

    def __init__(
        self,
        directory: str,
        pool: IWorkPool,
        clock: IReactorTime,
        newId: Callable[[], str],
        longestSeconds: float = 0.005,
    ) -> None:
        self.newId = newId
        self.failure: str | None = None
        self.reads = 0
        self._directory = os.path.join(directory, "ranged")
        self._new = os.path.join(self._directory, "new")
        os.makedirs(self._new, exist_ok=True)
        self._pool = pool
        self._clock = clock
        self._random = Random(1)
        self._longestSeconds = longestSeconds
        self._corrupt: set[str] = set()
        self.onFull = lambda: None
        self.onShort = lambda blob, size: None
        self.onDamaged = lambda blob: None
        self.reexamine = lambda blob: succeed(False)

    @property
    def corrupt(self) -> frozenset[str]:
        """The blobs that are marked."""
        return frozenset(self._corrupt)

    def writer(
        self,
        inlineLimit: int,
        expectedSize: int | None = None,
        bucket: str = "",
        filtered: BlobFilter | None = None,
    ) -> RangedSink:
        """See L{IBlobStore.writer}."""
        return RangedSink(self, inlineLimit, filtered)

    async def open(self, segment: Segment) -> RangedHandle:
        """See L{IBlobStore.open}."""
        if segment.blob in self._corrupt and not await self.reexamine(segment.blob):
            raise CorruptBlob(f"blob {segment.blob} is damaged")
        handle = await self.openUncached(segment.blob)
        if handle.size < segment.offset + segment.length:
            raise CorruptBlob(f"blob {segment.blob} is short")
        return handle

    async def openUncached(self, blob: str) -> RangedHandle:
        """See L{IBlobStore.openUncached}."""
        await self._pause()
        try:
            return RangedHandle(self, blob, os.stat(self._path(blob)).st_size)
        except FileNotFoundError as error:
            raise CorruptBlob(f"blob {blob} is missing") from error

    def remove(self, blobs: Sequence[str]) -> Deferred[None]:
        """See L{IBlobStore.remove}."""
        if self.failure is not None:
            return fail(StoreReadOnly(self.failure))
        self._corrupt.difference_update(blobs)
        names = [path for blob in blobs for path in (self._path(blob), self._marker(blob))]
        return self._pool.runAnyway(_removeAll, names)

    def confirm(self, blobs: Sequence[str]) -> None:
        """See L{IBlobStore.confirm}."""
        _removeAll([self._marker(blob) for blob in blobs])

    async def unconfirmed(
        self, olderThanSeconds: float, corrected: Callable[[int], int]
    ) -> Sequence[str]:
        """See L{IBlobStore.unconfirmed}."""
        await self._pause()
        latest = time.time() - olderThanSeconds
        names = os.listdir(self._new)
        dates = {name: int(os.stat(self._marker(name)).st_mtime * 1000) for name in names}
        return [name for name, dateMs in dates.items() if corrected(dateMs) <= latest * 1000]

    def forget(self, blobs: Sequence[str]) -> None:
        """See L{IBlobStore.forget}: nothing is open."""

    def markCorrupt(self, blobs: Iterable[str]) -> None:
        """See L{IBlobStore.markCorrupt}."""
        self._corrupt.update(blobs)

    def clearCorrupt(self, blobs: Iterable[str]) -> None:
        """See L{IBlobStore.clearCorrupt}."""
        self._corrupt.difference_update(blobs)

    def failStop(self, reason: str) -> None:
        """See L{IBlobStore.failStop}."""
        self.failure = self.failure or reason

    def health(self) -> Mapping[str, str | None]:
        """See L{IBlobStore.health}."""
        return {"blobs": self.failure}

    def idle(self) -> Deferred[None]:
        """See L{IBlobStore.idle}."""
        return succeed(None)

    async def close(self) -> None:
        """See L{IBlobStore.close}."""

    async def append(self, blob: str, pieces: Sequence[bytes]) -> None:
        """Write on at the end of a blob, after its marker."""
        await self._pause()
        await self._pool.run(_append, self._marker(blob), ())
        await self._pool.run(_append, self._path(blob), pieces)

    async def readRange(self, blob: str, offset: int, length: int) -> bytes:
        """Read a range, and give it late."""
        self.reads += 1
        try:
            piece: bytes = await self._pool.run(_readRange, self._path(blob), offset, length)
        except FileNotFoundError as error:
            raise CorruptBlob(f"blob {blob} is missing") from error
        await self._pause()
        return piece

    async def _pause(self) -> Any:
        await deferLater(self._clock, self._random.uniform(0, self._longestSeconds))

    def _path(self, blob: str) -> str:
        return os.path.join(self._directory, blob)

    def _marker(self, blob: str) -> str:
        return os.path.join(self._new, blob)


def openBlobs(context: BackEndContext, opened: OpenCatalog) -> RangedBlobs:
    """Open the blobs of a store, and remove what a crash has left."""
    blobs = RangedBlobs(context.directory, context.pool, context.reactor, opened.catalog.newBlobId)
    left = os.listdir(blobs._new)
    known = opened.knownBlobs(left)
    _removeAll([blobs._path(blob) for blob in left if blob not in known])
    _removeAll([blobs._marker(blob) for blob in left])
    return blobs


def install() -> None:
    """Have every store of this process opened so."""
    BLOBS[DEFAULT_BLOBS] = BLOBS[RANGED]
