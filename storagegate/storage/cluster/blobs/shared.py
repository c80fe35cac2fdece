"""
Blobs as files on a file system that all nodes mount, such as CephFS or NFS.

::

    DIRECTORY/blobs/ab/cd/abcd...    the blob, under its id: 32 hexadecimal digits
    DIRECTORY/blobs/store-id         the id of the store

A file has its final name from the start and becomes a blob when the catalog commits it. Calls run
in separate threads, and each is waited for at most the timeout of an operation: if a mount hangs,
only these threads hang.
"""

import errno
import os
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

from twisted.internet.defer import Deferred, fail
from twisted.python.failure import Failure
from zope.interface import implementer

from storagegate.net.transport import Buffer, writeAll
from storagegate.storage.backends import BackEndContext, OpenCatalog
from storagegate.storage.blobwriter import BUFFER, BUFFERS
from storagegate.storage.cluster.blobs.completions import CompletionQueue
from storagegate.storage.cluster.blobs.pieces import (
    OPERATION_SECONDS,
    UNLIMITED,
    IPieceStore,
    MissingPiece,
    PieceRange,
)
from storagegate.storage.cluster.blobs.remote import RemoteBlobs, openRemote
from storagegate.storage.errors import StoreBusy, StoreError, StoreFull, StoreReadOnly
from storagegate.storage.files import FailStopLatch, Files, unlinkIfThere
from storagegate.storage.layout import (
    DISK_FULL,
    BlobLayout,
    Shards,
    SyncGroup,
    isBlobId,
)
from storagegate.storage.threadpool import BoundedThreadPool

T = TypeVar("T")

_GONE = frozenset({errno.ENOENT, errno.ESTALE})
"""The errors for a file that another node has removed; NFS has its own."""

_CLOSE_SECONDS = 5.0
"""Threads that still hang after this time are abandoned."""


class NoLatch(FailStopLatch):
    """
    A latch that is never set. A failed fsync on a network file system affects one upload, which is
    removed. All nodes write to the directories, so no local cache must be trusted.
    """

    def set(self, reason: str, isMarked: bool = True) -> None:
        """Do nothing: the caller handles the error."""


@implementer(IPieceStore)
class SharedFiles:
    """Pieces as files below a directory. Methods: reactor thread, unless they say otherwise."""

    pieceSize = UNLIMITED
    growsPieces = True
    bufferSize = BUFFER
    buffersSize = BUFFERS
    unconfirmedWrites = rereads = 0

    def __init__(
        self, directory: str, reactor: Any, files: Files | None = None, isDurable: bool = True
    ) -> None:
        """
        @param directory: An existing directory, the same on all nodes.
        @param reactor: Provides C{IReactorFromThreads} and C{IReactorTime}.
        @param files: The operating system's calls, or a replacement.
        @param isDurable: Whether to sync files and directories.
        """
        self.name = f"directory {directory}"
        self.onError: Callable[[StoreError], object] = lambda error: None
        self._clock = reactor
        self._files = files or Files()
        self._layout = BlobLayout(directory)
        self._syncs = SyncGroup(self._files, NoLatch(), isDurable)
        self._shards = Shards(self._layout, self._files, self._syncs)
        self._completions = CompletionQueue(reactor)
        self._pool = self._newPool()
        self._hanging: dict[str, int] = {}

    def put(self, name: str, offset: int, body: Sequence[Buffer], isLast: bool) -> Deferred[None]:
        """See L{IPieceStore.put}."""
        return self._run(name, self._putNow, name, offset, body, isLast)

    def get(self, name: str, offset: int, length: int) -> Deferred[PieceRange]:
        """See L{IPieceStore.get}."""
        return self._run("", self._getNow, name, offset, length)

    def size(self, name: str) -> Deferred[int]:
        """See L{IPieceStore.size}."""
        return self._run("", self._files.size, self._path(name))

    def remove(self, name: str) -> Deferred[bool | None]:
        """See L{IPieceStore.remove}."""
        if name in self._hanging:
            # The write might create the file after the removal.
            return fail(StoreBusy("a write of the file has not finished"))
        return self._run("", self._removeNow, name)

    async def names(self) -> AsyncIterator[Sequence[str]]:
        """See L{IPieceStore.names}: a page is a directory of the first level."""
        for entry in await self._run("", self._files.names, self._layout.blobs):
            yield await self._run("", self._namesNow, entry)

    def create(self, name: str, body: bytes) -> Deferred[None]:
        """See L{IPieceStore.create}."""
        return self._run("", self._createNow, name, body)

    def wait(self, result: Deferred[T]) -> T:
        """See L{IPieceStore.wait}."""
        return self._completions.wait(result, 2 * OPERATION_SECONDS)

    def detach(self) -> None:
        """See L{IPieceStore.detach}."""
        self._completions.wait(self._pool.stop(), OPERATION_SECONDS)
        self._pool = self._newPool()

    def close(self) -> Deferred[None]:
        """See L{IPieceStore.close}."""
        stopped: Deferred[Any] = self._pool.stop()

        def hangs(result: object, seconds: float) -> None:
            return None

        return stopped.addTimeout(_CLOSE_SECONDS, self._clock, hangs)

    def _newPool(self) -> BoundedThreadPool:
        return BoundedThreadPool(self._completions, name="storagegate-shared")

    def _path(self, name: str) -> str:
        return self._layout.path(name) if isBlobId(name) else os.path.join(self._layout.blobs, name)

    def _run(self, written: str, function: Callable[..., T], *args: Any) -> Deferred[T]:
        """
        Run a function in a thread, and wait for it for at most the timeout of an operation.

        @param written: The name of the file that the function writes, or empty.
        """
        result: Deferred[T] = Deferred()
        job = self._pool.run(function, *args)

        def tookLong() -> None:
            if written:
                self._hanging[written] = self._hanging.get(written, 0) + 1
                job.addBoth(self._woke, written)
            if not result.called:
                seconds = f"{OPERATION_SECONDS:g} s"
                result.errback(
                    self._failed(StoreBusy(f"{self.name}: no response within {seconds}"))
                )

        timer = self._clock.callLater(OPERATION_SECONDS, tookLong)

        def ended(value: Any) -> Any:
            if timer.active():
                timer.cancel()
            if not result.called:
                result.callback(value)

        job.addBoth(ended)
        return result.addErrback(self._translate, bool(written))

    def _woke(self, result: object, written: str) -> None:
        self._hanging[written] -= 1
        if not self._hanging[written]:
            del self._hanging[written]

    def _translate(self, failure: Failure, isWrite: bool) -> Any:
        """Translate an operating system error to an error of L{IPieceStore}."""
        error = failure.value
        if isinstance(error, StoreReadOnly):
            raise self._failed(StoreBusy(f"{self.name}: {error}")) from error
        if not isinstance(error, OSError):
            return failure
        if error.errno in _GONE and not isWrite:
            raise MissingPiece(self.name) from error
        if error.errno in DISK_FULL:
            raise self._failed(StoreFull(f"{self.name} is full")) from error
        if error.errno == errno.EEXIST or (error.errno == errno.EIO and not isWrite):
            return failure
        raise self._failed(StoreBusy(f"{self.name}: {error.strerror}")) from error

    def _failed(self, error: StoreError) -> StoreError:
        self.onError(error)
        return error

    def _putNow(self, name: str, offset: int, body: Sequence[Buffer], isLast: bool) -> None:
        """Write to a file. Runs in a pool thread."""
        files, path = self._files, self._path(name)
        if offset:
            fd = files.openForAppending(path)
        else:
            try:
                fd = files.create(path)
            except FileNotFoundError:
                # Successive ids have different directories, most of which already exist.
                self._shards.forget(name)
                self._shards.ensure(name)
                fd = files.create(path)
        try:
            writeAll(partial(files.write, fd), body)
            if isLast:
                self._syncs.syncFile(fd)
        finally:
            # NFS reports write errors on close.
            files.close(fd)
        if isLast:
            self._syncs.syncDirectory(os.path.dirname(path))

    def _getNow(self, name: str, offset: int, length: int) -> PieceRange:
        """Read a range of a file. Runs in a pool thread."""
        files = self._files
        fd = files.openForReading(self._path(name))
        try:
            return PieceRange(files.read(fd, length, offset), files.size(fd))
        finally:
            files.close(fd)

    def _removeNow(self, name: str) -> bool:
        """Remove a file. Runs in a pool thread."""
        path = self._path(name)
        if not unlinkIfThere(self._files, path):
            return False
        self._syncs.syncDirectory(os.path.dirname(path))
        return True

    def _namesNow(self, entry: str) -> list[str]:
        """List the files below a directory, or the file itself. Runs in a pool thread."""
        path = os.path.join(self._layout.blobs, entry)
        if not os.path.isdir(path):
            return [entry]
        found: list[str] = []
        for second in self._files.names(path):
            found += self._files.names(os.path.join(path, second))
        return found

    def _createNow(self, name: str, body: bytes) -> None:
        """Write a file under a temporary name, then link the final name. Runs in a pool thread."""
        files, path = self._files, self._path(name)
        draft = f"{path}.{os.urandom(8).hex()}"
        with suppress(FileExistsError):
            files.makeDirectory(self._layout.blobs)
        fd = files.create(draft)
        try:
            writeAll(partial(files.write, fd), [body])
            self._syncs.syncFile(fd)
        finally:
            files.close(fd)
        with suppress(FileExistsError):
            files.link(draft, path)
        files.unlink(draft)
        self._syncs.syncDirectory(self._layout.blobs)


def openPieces(blobs: str, reactor: Any, isDurable: bool = True) -> SharedFiles:
    """
    Open the directory given as C{files:DIRECTORY}.

    @param reactor: See L{SharedFiles}; so is C{isDurable}.
    @raise StoreError: The text has another form, or the directory does not exist.
    """
    scheme, _, directory = blobs.partition(":")
    if scheme != "files" or not os.path.isabs(directory):
        raise StoreError(f"{blobs!r} is not files:DIRECTORY with an absolute path")
    if not os.path.isdir(directory):
        raise StoreError(f"{directory} does not exist; is it mounted?")
    return SharedFiles(directory, reactor, isDurable=isDurable)


def openBlobs(context: BackEndContext, opened: OpenCatalog) -> RemoteBlobs:
    """
    Open the blobs below the directory that the store's options name. Blocks.

    @param context: C{options["blobs"]} is C{files:DIRECTORY}.
    @param opened: The catalog of the blobs.
    @raise ForeignBlobs: The blobs do not belong to the catalog.
    @raise StoreError: The directory cannot be used; one line gives the reason.
    """
    isDurable = context.durability == "full"
    pieces = openPieces(context.options["blobs"], context.reactor, isDurable)
    return openRemote(context, opened, pieces)
