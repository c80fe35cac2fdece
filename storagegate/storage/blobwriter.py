"""
The writer of an upload: two buffers, and one job at a time that writes a buffer to a new blob.

In the embedded store the blob is a staging file. The order is: write the bytes, fsync the file and
C{staging/}, link it under C{blobs/}, fsync that directory, commit the catalog, and only then unlink
the staging name. Every file left by a crash therefore has a name in C{staging/}, and a start never
has to search C{blobs/}.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Protocol

from attrs import define
from twisted.internet.defer import CancelledError, Deferred, fail, succeed
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

from storagegate.core.files import crc32c
from storagegate.net.transport import Buffer, writeAll
from storagegate.storage.blobinterfaces import BlobFilter, IBlobWriter
from storagegate.storage.errors import StoreBusy, StoreError, StoreReadOnly
from storagegate.storage.files import FailStopLatch, Files, unlinkIfThere
from storagegate.storage.layout import BlobLayout, Shards, SyncGroup, storeError
from storagegate.storage.records import Content, Segment
from storagegate.storage.threadpool import IWorkPool


@define(eq=False)
class BlobChecksum:
    """
    The CRC-32C of a blob, updated with its bytes in order, at a measured 59 GB/s.

    @ivar value: The checksum of the bytes so far.
    """

    value: int = 0

    def update(self, data: Buffer, /) -> None:
        """Add bytes."""
        self.value = crc32c(data, self.value)


@define(eq=False)
class StagingFile:
    """
    A blob being written. Every method blocks and runs in a pool thread, one at a time.

    @ivar blob: The blob's id.
    @ivar crc: The checksum of the bytes written so far.
    @ivar _onError: Called with each operating system error.
    """

    _log = Logger()

    blob: str
    _layout: BlobLayout
    _files: Files
    _shards: Shards
    _durability: SyncGroup
    _latch: FailStopLatch
    _onError: Callable[[OSError], object] = lambda error: None
    crc: int = 0
    _fd: int = -1
    _isCreated: bool = False
    _isLinked: bool = False

    def append(self, buffers: Sequence[Buffer]) -> None:
        """
        Write more bytes.

        @param buffers: Appended to the file in order.
        @raise StoreError: Or L{OSError} if there is no matching L{StoreError}. The caller must then
            call L{remove}.
        """
        self._latch.check()
        try:
            if not self._isCreated:
                self._fd = self._files.create(self._layout.stagingPath(self.blob))
                self._isCreated = True
            for buffer in buffers:
                self.crc = crc32c(buffer, self.crc)
            writeAll(partial(self._files.write, self._fd), buffers)
        except OSError as error:
            self._onError(error)
            raise storeError(error) from error

    def commit(self, buffers: Sequence[Buffer]) -> None:
        """
        Write the last bytes and make the blob durable under its id.

        @param buffers: The last buffers; may be empty.
        @raise StoreError: As for L{append}.
        """
        self.append(buffers)
        try:
            self._durability.syncFile(self._fd)
            self._close()
            self._durability.syncDirectory(self._layout.staging)
            self._shards.ensure(self.blob)
            try:
                self._link()
            except FileNotFoundError:
                self._shards.forget(self.blob)
                self._shards.ensure(self.blob)
                self._link()
            self._durability.syncDirectory(self._layout.shard(self.blob))
        except OSError as error:
            self._onError(error)
            raise storeError(error) from error

    def remove(self) -> None:
        """
        Remove all files of the blob. A file that cannot be removed is logged and found in
        C{staging/} at the next start. If writing has stopped, all files are left to the next start.
        """
        try:
            self._close()
            if self._latch.failure is not None:
                return
            # The staging name goes last, because the next start searches staging/.
            if self._isLinked:
                unlinkIfThere(self._files, self._layout.path(self.blob))
                self._isLinked = False
            if self._isCreated:
                unlinkIfThere(self._files, self._layout.stagingPath(self.blob))
                self._isCreated = False
        except OSError as error:
            self._log.error(
                "cannot remove upload {blob}: {error}", blob=self.blob, error=str(error)
            )

    def _link(self) -> None:
        # A failed link may still have been created; an existing one belongs to another blob.
        self._isLinked = True
        try:
            self._files.link(self._layout.stagingPath(self.blob), self._layout.path(self.blob))
        except FileExistsError:
            self._isLinked = False
            raise

    def _close(self) -> None:
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            self._files.close(fd)


BUFFER = 512 * 1024
"""Bytes of a buffer: large enough for the disk; an upload holds at most two."""

FULL_BUFFERS = 16
"""Concurrent uploads with full-size buffers, which together hold 16 MiB."""

BUFFERS = 8 * 1024 * 1024
"""Bytes of all buffers if there are more uploads, until each has the minimum."""

_LEAST = 64 * 1024
"""The smallest buffer with any number of uploads: the size of one read."""

_SMALL = 4096
"""Smaller chunks are copied together: tiny chunks as objects take forty times their size."""


def bufferSize(writers: int, full: int = BUFFER, total: int = BUFFERS, least: int = _LEAST) -> int:
    """
    Return the size of a buffer for a number of concurrent uploads or reads.

    @param full: Bytes of a buffer while there are few uploads.
    @param total: Bytes of all buffers, two each, if there are more uploads: half of the most that
        few uploads use.
    @param least: The smallest buffer with any number of uploads.
    """
    return full if writers * full <= total else max(least, total // (2 * writers))


class NewBlob(Protocol):
    """
    A blob being written. L{BlobWriter} runs these methods in its pool, one at a time.

    @ivar blob: The blob's id.
    @ivar crc: The CRC-32C of the bytes written so far.
    """

    blob: str
    crc: int

    def append(self, buffers: Sequence[Buffer]) -> Any:
        """Write more bytes. The buffers no longer change."""

    def commit(self, buffers: Sequence[Buffer]) -> Any:
        """Write the last bytes and make the blob durable under its id."""

    def remove(self) -> Any:
        """Remove the blob, or start removing it. Never fails because a server is unavailable."""


@implementer(IBlobWriter)
class BlobWriter:
    """
    Collects chunks until a buffer is full, and collects the next buffer while that is written.

    A body whose declared size fits in both buffers is written and synced in one job.

    @param newBlob: Creates the blob when it is needed.
    @param pool: Runs the methods of the blob.
    @param latch: The upload is refused if this is set.
    @param inlineLimit: See L{IBlobStore.writer}; so is C{expectedSize}.
    @param buffer: Bytes of one buffer.
    @param isDouble: Whether to collect chunks while a buffer is written. With many uploads the disk
        is busy anyway, and a second buffer would only use memory.
    @param filtered: See L{IBlobStore.writer}.
    @param threads: Runs the filter, if C{pool} runs its functions in the reactor thread.
    """

    _log = Logger()

    def __init__(
        self,
        newBlob: Callable[[], NewBlob],
        pool: IWorkPool,
        latch: FailStopLatch,
        inlineLimit: int,
        expectedSize: int | None,
        buffer: int = BUFFER,
        isDouble: bool = True,
        filtered: BlobFilter | None = None,
        threads: IWorkPool | None = None,
    ) -> None:
        self._filtered = filtered
        self._threads = threads
        self._newBlob = newBlob
        self._isDouble = isDouble
        self._buffer = buffer
        self._pool = pool
        self._inlineLimit = inlineLimit
        self._threshold = max(buffer, inlineLimit + 1)
        if expectedSize is not None and expectedSize <= 2 * buffer:
            self._threshold = max(self._threshold, expectedSize + 1)
        self._blob: NewBlob | None = None
        self._buffers: list[Buffer] = []
        self._held = 0
        self._size = 0
        self._busy = False
        self._waiting: Deferred[None] | None = None
        self._finishing: Deferred[Content] | None = None
        self._committed = False
        self._ended = False
        self._error: Exception | None = None
        if latch.failure is not None:
            self._error = StoreReadOnly(latch.failure)

    def takeNewBlobs(self) -> Mapping[str, int]:
        """See L{IBlobWriter.takeNewBlobs}: none or one."""
        if self._blob is None or not self._committed:
            return {}
        self._committed = False
        return {self._blob.blob: self._blob.crc}

    def write(self, chunk: bytes) -> Deferred[None] | None:
        """
        See L{IBlobWriter.write}.

        @param chunk: Kept without a copy if it has at least 4 KiB.
        @raise RuntimeError: The Deferred of the last write has not fired, or the writer has ended.
        """
        if self._error is not None:
            raise self._error
        if self._ended or self._waiting is not None:
            raise RuntimeError("the writer does not accept chunks now")
        self._held += len(chunk)
        self._size += len(chunk)
        if len(chunk) >= _SMALL:
            self._buffers.append(chunk)
        elif self._buffers and isinstance(last := self._buffers[-1], bytearray):
            last += chunk
        else:
            self._buffers.append(bytearray(chunk))
        if self._held < self._threshold:
            return None
        if not self._busy:
            self._writeBuffers()
            if self._isDouble:
                return None
        self._waiting = Deferred()
        return self._waiting

    def finish(self) -> Deferred[Content]:
        """See L{IBlobWriter.finish}. Cancelling the Deferred calls L{abort}."""
        if self._error is not None:
            return fail(self._error)
        if self._ended:
            return fail(RuntimeError("the writer has ended"))
        self._ended = True
        if self._size <= self._inlineLimit and self._inlineLimit:
            inline = b"".join(self._takeBuffers())
            if self._filtered is not None:
                inline = self._filtered.whole(inline)
            return succeed(Content(self._size, inline))
        self._finishing = Deferred(lambda _: self.abort())
        finishing = self._finishing
        if not self._busy:
            self._commit()
        return finishing

    def abort(self) -> None:
        """See L{IBlobWriter.abort}. Waiting Deferreds fail with C{CancelledError}."""
        if self._error is not None or (self._ended and self._finishing is None):
            return
        self._ended = True
        self._error = CancelledError("the upload was aborted")
        self._takeBuffers()
        # A running job uses the file, so it is removed after that job.
        if not self._busy:
            self._remove().addCallback(self._failWaiting)
        else:
            self._failWaiting()

    def _takeBuffers(self) -> list[Buffer]:
        buffers, self._buffers = self._buffers, []
        self._held = 0
        return buffers

    def _writeBuffers(self) -> None:
        # A body longer than its declared size does not get larger buffers.
        self._threshold = self._buffer
        self._run(False, self._written)

    def _written(self, _: None) -> None:
        self._busy = False
        if self._error is not None:
            self._remove()
        elif self._finishing is not None:
            self._commit()
        elif self._waiting is not None:
            waiting, self._waiting = self._waiting, None
            if self._held:
                self._writeBuffers()
            waiting.callback(None)

    def _commit(self) -> None:
        self._run(True, self._durable)

    def _run(self, isLast: bool, onEnd: Callable[[None], None]) -> None:
        self._busy = True
        try:
            blob = self._blob = self._blob or self._newBlob()
        except StoreError:
            # No blob id is available now.
            self._failed(Failure())
            return
        write = blob.commit if isLast else blob.append
        self._start(write, self._takeBuffers(), isLast).addCallbacks(onEnd, self._failed)

    def _start(
        self, write: Callable[[Sequence[Buffer]], Any], buffers: list[Buffer], isLast: bool
    ) -> Deferred[None]:
        """Write buffers, or what the filter makes of them."""
        filtered = self._filtered
        if filtered is None:
            return self._pool.run(write, buffers)
        if self._threads is None:
            return self._pool.run(_filterAndWrite, filtered, write, buffers, isLast)
        changing = self._threads.run(filtered.update, buffers, isLast)
        return changing.addCallback(partial(self._pool.run, write))

    def _durable(self, _: None) -> None:
        self._busy = False
        if self._error is not None:
            self._remove()
            return
        self._committed = True
        finishing, self._finishing = self._finishing, None
        if finishing is not None:
            assert self._blob is not None
            filtered = self._filtered
            stored = self._size if filtered is None else filtered.size
            segment = Segment(self._blob.blob, 0, stored)
            finishing.callback(Content(self._size, segments=(segment,)))

    def _failed(self, failure: Failure) -> None:
        self._busy = False
        self._ended = True
        if self._error is None:
            assert isinstance(failure.value, Exception)
            self._error = failure.value
        self._takeBuffers()
        # The Deferreds fail after the space has been freed.
        self._remove().addCallback(self._failWaiting)

    def _remove(self) -> Deferred[None]:
        if self._blob is None:
            return succeed(None)
        return self._pool.runAnyway(self._blob.remove).addErrback(self._notRemoved)

    def _notRemoved(self, failure: Failure) -> None:
        # Only a stopped pool refuses the job; the next start then removes the file.
        if failure.check(StoreBusy) is None:
            self._log.failure("cannot remove an upload", failure)

    def _failWaiting(self, _: None = None) -> None:
        assert self._error is not None
        for waiting in (self._waiting, self._finishing):
            if waiting is not None and not waiting.called:
                waiting.errback(self._error)
        self._waiting = self._finishing = None


def _filterAndWrite(
    filtered: BlobFilter,
    write: Callable[[Sequence[Buffer]], Any],
    buffers: Sequence[Buffer],
    isLast: bool,
) -> None:
    """Write filtered buffers. Runs in a pool thread."""
    write(filtered.update(buffers, isLast))
