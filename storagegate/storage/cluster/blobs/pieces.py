"""
Blobs as pieces in a store that nodes share: names, writers and readers.

::

    ID              a blob written in one piece
    ID.0, ID.1 ...  the pieces of any other blob: all but the last have the size of the first
    store-id        the id of the store whose catalog names the blobs

A blob is written from its first piece to its last and removed from its last to its first, so
C{ID.0} exists while any piece does. Uncommitted blobs have no marks: the catalog knows their ids
(see L{storagegate.storage.interfaces.ICatalog.newBlobId}).
"""

import errno
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any, NamedTuple, TypeVar

from attrs import define, field, frozen
from twisted.internet.defer import CancelledError, Deferred, gatherResults, maybeDeferred, succeed
from twisted.python.failure import Failure
from zope.interface import Attribute, Interface, implementer

from storagegate.core.files import crc32c
from storagegate.core.task import IdleWaiters
from storagegate.net.transport import Buffer
from storagegate.storage.blobinterfaces import ByteSink, Hasher, IBlobReader
from storagegate.storage.errors import StoreBusy, StoreError
from storagegate.storage.threadpool import IWorkPool

T = TypeVar("T")

MARKER = "store-id"
"""The name of the piece with the id of the store."""

UNLIMITED = 1 << 62
"""The C{pieceSize} of a store in which every blob is whole."""

OPERATION_SECONDS = 4.0
"""The timeout of one operation: a client must be answered within five seconds."""


READ_TRIES = 2
"""Attempts to find a piece before its blob counts as damaged."""


class MissingPiece(Exception):
    """The piece does not exist."""


class DamagedPiece(OSError):
    """The bytes of a piece were wrong in two responses."""

    def __init__(self, name: str) -> None:
        super().__init__(errno.EIO, f"piece {name} differs from the bytes that were written")


class PieceRange(NamedTuple):
    """
    A range of a piece.

    @ivar body: The bytes, fewer than requested only at the end of the piece.
    @ivar size: The size of the piece.
    @ivar isVerified: Whether the bytes were verified with checksums stored beside them.
    """

    body: bytes
    size: int
    isVerified: bool = False


class IPieceStore(Interface):
    """
    Named bytes on another machine. Methods: reactor thread.

    Every operation ends within L{OPERATION_SECONDS}. It fails with C{StoreBusy} if the store does
    not answer or cannot serve it now, with C{StoreFull} if there is no space, and with L{OSError}
    if a healthy store cannot read the bytes. A cancelled operation may still take effect.
    """

    name: str = Attribute("A description of the store for operators.")
    pieceSize: int = Attribute("The largest size of a piece in bytes, or L{UNLIMITED}.")
    growsPieces: bool = Attribute("Whether bytes can be appended to a piece.")
    bufferSize: int = Attribute(
        "Size of the buffer of an upload in bytes, while there are few uploads."
    )
    buffersSize: int = Attribute(
        "Total size of the buffers of all uploads in bytes, if there are many."
    )
    onError: Callable[[StoreError], object] = Attribute(
        "Called with each C{StoreBusy} and C{StoreFull} that ends an operation."
    )
    unconfirmedWrites: int = Attribute(
        "Number of writes that the server answered without confirming the bytes."
    )
    rereads: int = Attribute("Number of reads that were repeated because the bytes were wrong.")

    def put(name: str, offset: int, body: Sequence[Buffer], isLast: bool) -> Deferred[None]:
        """
        Write a piece, or append to it if C{growsPieces}. The piece is durable when the last write
        is done.

        @param name: The piece's name, which must be new if C{offset} is 0.
        @param offset: The current size of the piece: 0 unless C{growsPieces}.
        @param body: Buffers that no longer change.
        @param isLast: Whether no more bytes follow.
        """

    def get(name: str, offset: int, length: int) -> Deferred[PieceRange]:
        """
        Read a range of a piece.

        @param name: The name of the piece.
        @param offset: The first byte.
        @param length: Bytes to read, at least 1.
        @raise MissingPiece: The piece does not exist. Reported through the Deferred.
        @raise DamagedPiece: The bytes are wrong, even after a reread. Reported through the
            Deferred.
        """

    def size(name: str) -> Deferred[int]:
        """
        Return the size of a piece in bytes.

        @param name: The name of the piece.
        @raise MissingPiece: The piece does not exist. Reported through the Deferred.
        """

    def remove(name: str) -> Deferred[bool | None]:
        """
        Durably remove a piece; a missing piece is no error.

        @param name: The name of the piece.
        @return: Whether the piece existed; L{None} if unknown.
        """

    def names() -> AsyncIterator[Sequence[str]]:
        """
        List the names of all pieces and of L{MARKER}, page by page, in any order.

        For tools: nothing stays open on the server between pages.
        """

    def create(name: str, body: bytes) -> Deferred[None]:
        """
        Write a piece unless it exists. If two callers race, the bytes of one stay.

        @param name: The name of the piece.
        @param body: A few bytes.
        """

    def wait(result: Deferred[T]) -> T:
        """
        Wait for an operation before the reactor runs. Blocks.

        @raise StoreBusy: The operation timed out.
        """

    def detach() -> None:
        """
        Close all connections and stop all threads, because the process may fork before the reactor
        runs. The next operation reconnects. Blocks; no operation may be in progress.
        """

    def close() -> Deferred[None]:
        """Close all connections. Call once, after all operations."""


@implementer(IWorkPool)
@define(eq=False)
class InPlace:
    """A pool for non-blocking functions, which it calls immediately in the reactor thread."""

    _running: int = field(default=0, init=False)
    _waiters: IdleWaiters = field(factory=IdleWaiters, init=False)

    def run(self, function: Callable[..., Any], *args: Any) -> Deferred[Any]:
        """See L{IWorkPool.run}."""
        self._running += 1
        return maybeDeferred(function, *args).addBoth(self._ended)

    runAnyway = run

    def idle(self) -> Deferred[None]:
        """Wait until the Deferreds of all calls have fired."""
        return self._waiters.wait(self._running > 0)

    def _ended(self, result: Any) -> Any:
        self._running -= 1
        if not self._running:
            self._waiters.notify()
        return result


@frozen
class PiecePlace:
    """
    The location of a blob's bytes.

    @ivar size: The size of the blob in bytes.
    @ivar pieceSize: The size of its pieces in bytes; 0 if the blob is a single piece.
    """

    blob: str
    size: int
    pieceSize: int = 0

    def piece(self, offset: int, length: int) -> tuple[str, int, int]:
        """
        Return the piece in which a range of the blob begins, and the part of the range in that
        piece.

        @param offset: The start of the range in the blob.
        @param length: Bytes of the range.
        @return: The name, the offset in the piece and the length.
        """
        if not self.pieceSize:
            return self.blob, offset, length
        number, within = divmod(offset, self.pieceSize)
        return f"{self.blob}.{number}", within, min(length, self.pieceSize - within)


def splitBuffers(
    buffers: Sequence[Buffer], length: int
) -> tuple[Sequence[Buffer], Sequence[Buffer]]:
    """
    Split buffers at an offset without copying.

    @param length: The bytes before the split, at most the total.
    """
    for number, buffer in enumerate(buffers):
        if len(buffer) > length:
            view = memoryview(buffer)
            return (*buffers[:number], view[:length]), (view[length:], *buffers[number + 1 :])
        length -= len(buffer)
    return buffers, ()


@define(eq=False)
class PieceUpload:
    """
    A blob being written. Its methods do not block; each call starts after the previous one has
    ended.

    @ivar blob: The blob's id.
    @ivar crc: The checksum of the bytes so far.
    @ivar _pieceSize: The size of its pieces, if it needs several.
    @ivar _onCommit: Called with the blob's id when the blob is durable.
    @ivar _onRemove: Called when the blob must be removed, with its id and whether a write may still
        take effect.
    """

    blob: str
    _pieces: IPieceStore
    _pieceSize: int
    _check: Callable[[], None]
    _onCommit: Callable[[str], None]
    _onRemove: Callable[[str, bool], object]
    crc: int = field(default=0, init=False)
    _size: int = field(default=0, init=False)
    _rest: Sequence[Buffer] = field(default=(), init=False)
    _isBegun: bool = field(default=False, init=False)
    _isUnknown: bool = field(default=False, init=False)

    def append(self, buffers: Sequence[Buffer]) -> Deferred[None]:
        """Write more bytes. If pieces cannot grow, the remainder is kept for the next piece."""
        self._check()
        body = self._withRest(buffers)
        if not self._pieces.growsPieces:
            size = sum(map(len, body))
            body, self._rest = splitBuffers(body, size - size % self._pieceSize)
        return self._put(body, isLast=False)

    def commit(self, buffers: Sequence[Buffer]) -> Deferred[None]:
        """Write the last bytes."""
        self._check()
        body = self._withRest(buffers)
        if self._isBegun:
            done = self._put(body, isLast=True)
        else:
            done = self._track(self._pieces.put(self.blob, 0, body, True))
        return done.addCallback(lambda _: self._onCommit(self.blob))

    def remove(self) -> Deferred[None]:
        """Schedule the removal of the blob, which is retried until the server is back."""
        if self._isBegun:
            self._onRemove(self.blob, self._isUnknown)
        return succeed(None)

    def _withRest(self, buffers: Sequence[Buffer]) -> Sequence[Buffer]:
        for buffer in buffers:
            self.crc = crc32c(buffer, self.crc)
        rest, self._rest = self._rest, ()
        return (*rest, *buffers) if rest else buffers

    def _put(self, body: Sequence[Buffer], isLast: bool) -> Deferred[None]:
        """Append bytes, one piece after the other."""
        size = sum(map(len, body))
        if self._pieceSize == UNLIMITED:
            puts = [(self.blob, self._size, body, isLast)] if size or isLast else []
        else:
            puts = list(self._cut(body, size, isLast))
        self._size += size
        if len(puts) == 1:
            return self._track(self._pieces.put(*puts[0]))
        return self._track(Deferred.fromCoroutine(self._putAll(puts)))

    async def _putAll(self, puts: Sequence[tuple[str, int, Sequence[Buffer], bool]]) -> None:
        for put in puts:
            await self._pieces.put(*put)

    def _cut(
        self, body: Sequence[Buffer], size: int, isLast: bool
    ) -> Iterator[tuple[str, int, Sequence[Buffer], bool]]:
        done = 0
        while done < size:
            number, offset = divmod(self._size + done, self._pieceSize)
            length = min(size - done, self._pieceSize - offset)
            part, body = splitBuffers(body, length)
            done += length
            isFull = offset + length == self._pieceSize
            yield f"{self.blob}.{number}", offset, part, isFull or (isLast and done == size)

    def _track(self, put: Deferred[None]) -> Deferred[None]:
        self._isBegun = True

        def failed(failure: Failure) -> Failure:
            # An unanswered write may take effect after the removal.
            self._isUnknown = failure.check(StoreBusy, CancelledError) is not None
            return failure

        return put.addErrback(failed)


LOOK_AHEAD = 8
"""Pieces that are looked up or removed concurrently."""


async def findSize(pieces: IPieceStore, blob: str, atLeast: int) -> PiecePlace:
    """
    Find the size of a blob of several pieces.

    @param pieces: The store.
    @param blob: The blob's id.
    @param atLeast: The most likely size of the blob.
    @raise MissingPiece: The first piece is missing.
    """
    first = await pieces.size(f"{blob}.0")
    pieceSize = pieces.pieceSize if pieces.growsPieces else max(first, 1)
    if first < pieceSize:
        return PiecePlace(blob, first, pieceSize)

    async def sizeOf(number: int) -> int:
        try:
            return first if number == 0 else await pieces.size(f"{blob}.{number}")
        except MissingPiece:
            return 0

    # Find one existing and one missing piece; usually this already finds the end.
    low = max(atLeast - 1, 0) // pieceSize
    size = await sizeOf(low)
    if not size:
        low, high, size = 0, low, first
    else:
        step = 1
        while size == pieceSize:
            following = await sizeOf(low + step)
            if not following:
                break
            low, size, step = low + step, following, 2 * step
        high = low + step if size == pieceSize else low + 1
    while high - low > 1:
        middle = (low + high) // 2
        found = await sizeOf(middle)
        if found:
            low, size = middle, found
        else:
            high = middle
    return PiecePlace(blob, low * pieceSize + size, pieceSize)


async def removeBlob(pieces: IPieceStore, blob: str) -> None:
    """
    Remove all pieces of a blob, even if writing or removing it was interrupted.

    @param pieces: The store.
    @param blob: The blob's id; a missing one is no error.
    """
    if await pieces.remove(blob) or pieces.pieceSize == UNLIMITED:
        return
    groups: list[list[str]] = []
    while True:
        begin = len(groups) * LOOK_AHEAD
        # The first look-up usually shows that no piece exists.
        count = LOOK_AHEAD if groups else 1
        names = [f"{blob}.{number}" for number in range(begin, begin + count)]
        found = await _existing(pieces, names)
        if groups or not found:
            if not found:
                break
            groups.append(found)
            continue
        rest = [f"{blob}.{number}" for number in range(1, LOOK_AHEAD)]
        groups.append([*found, *await _existing(pieces, rest)])
    for group in reversed(groups):
        await _together([pieces.remove(name) for name in group if not name.endswith(".0")])
    if groups:
        await pieces.remove(f"{blob}.0")


async def _existing(pieces: IPieceStore, names: Sequence[str]) -> list[str]:
    def missing(failure: Failure) -> None:
        failure.trap(MissingPiece)

    sizes = await _together([pieces.size(name).addErrback(missing) for name in names])
    return [name for name, size in zip(names, sizes, strict=True) if size is not None]


async def _together(operations: Sequence[Deferred[Any]]) -> list[Any]:
    """Wait for all operations, then raise the first error."""
    ends: list[list[Any]] = await gatherResults(
        [operation.addBoth(lambda result: [result]) for operation in operations]
    )
    for [end] in ends:
        if isinstance(end, Failure):
            end.raiseException()
    return [end for [end] in ends]


@implementer(IBlobReader)
@define(eq=False)
class PieceReader:
    """
    A reader of a blob; each read is an operation.

    @ivar _first: The offset and the bytes that were read when the blob was opened.
    @ivar _step: Bytes per read; two reads are in memory.
    @ivar isVerified: Whether the bytes are verified with checksums stored beside them.
    @ivar _onMissing: Called with the blob's location and the offset of a missing or short piece;
        raises.
    @ivar _onDamaged: Called with the id of a corrupt blob; raises.
    @ivar _onClose: Called by L{close}.
    """

    _place: PiecePlace
    _pieces: IPieceStore
    _pool: IWorkPool
    _step: int
    _first: tuple[int, bytes]
    isVerified: bool
    _onMissing: Callable[[PiecePlace, int], Any]
    _onDamaged: Callable[[str], Any]
    _onClose: Callable[[], object] | None

    @property
    def size(self) -> int:
        """The size of the blob in bytes."""
        return self._place.size

    async def sendTo(self, response: ByteSink, offset: int, length: int) -> None:
        """See L{IBlobReader.sendTo}: each read overlaps the sending of the previous one."""
        if await self._walk(offset, length, response.send) < length:
            await self._onMissing(self._place, self.size)

    async def read(self, offset: int, length: int, hashers: Sequence[Hasher] = ()) -> bytes:
        """See L{IBlobReader.read}."""
        chunks: list[bytes] = []
        await self._walk(offset, length, chunks.append)
        chunk = chunks[0] if len(chunks) == 1 else b"".join(chunks)
        if hashers:
            await self._pool.run(_feed, hashers, chunk)
        return chunk

    def readWarm(self, offset: int, length: int) -> bytes | None:
        """See L{IBlobReader.readWarm<storagegate.storage.blobinterfaces.IBlobReader.readWarm>}."""
        return None

    async def digest(
        self,
        hashers: Sequence[Hasher],
        offset: int,
        length: int,
        space: memoryview | None = None,
    ) -> int:
        """See L{IBlobReader.digest}; the hashers run in the pool."""
        return await self._walk(offset, length, lambda chunk: self._pool.run(_feed, hashers, chunk))

    def close(self) -> None:
        """
        See L{IBlobReader.close}.

        @raise RuntimeError: The reader was already closed.
        """
        if self._onClose is None:
            raise RuntimeError("the reader is already closed")
        onClose, self._onClose = self._onClose, None
        self._first = (0, b"")
        onClose()

    async def _walk(
        self, offset: int, length: int, take: Callable[[bytes], Deferred[None] | None]
    ) -> int:
        """Read a range and forward it chunk by chunk; return the number of bytes."""
        begin, end = offset, min(offset + length, self.size)
        if offset >= end:
            return 0
        ahead = self._begin(offset, end)
        try:
            while True:
                chunk = await ahead
                offset += len(chunk)
                isLast = offset >= end
                if not isLast:
                    ahead = self._begin(offset, end)
                taken = take(chunk)
                del chunk
                if taken is not None:
                    await taken
                if isLast:
                    return offset - begin
        finally:
            ahead.addErrback(lambda failure: None).cancel()

    def _begin(self, offset: int, end: int) -> Deferred[bytes]:
        start, first = self._first
        if first and start <= offset < start + len(first):
            self._first = (0, b"")
            isWhole = start == offset and start + len(first) <= end
            return succeed(first if isWhole else first[offset - start : end - start])
        name, within, count = self._place.piece(offset, min(end - offset, self._step))
        return Deferred.fromCoroutine(self._get(name, within, count, offset))

    async def _get(self, name: str, within: int, count: int, offset: int) -> bytes:
        """Read a range of a piece that must exist, at C{offset} of the blob."""
        try:
            # A wrong response from the network must not condemn the blob, so the read is retried
            # once.
            for _ in range(READ_TRIES):
                with suppress(MissingPiece):
                    found = await self._pieces.get(name, within, count)
                    if len(found.body) == count:
                        self.isVerified = self.isVerified and found.isVerified
                        return found.body
        except DamagedPiece:
            return await self._onDamaged(self._place.blob)  # type: ignore[no-any-return]
        missing: bytes = await self._onMissing(self._place, offset)
        return missing


def _feed(hashers: Sequence[Hasher], chunk: bytes) -> None:
    """Hash a chunk. Runs in a pool thread."""
    for hasher in hashers:
        hasher.update(chunk)
