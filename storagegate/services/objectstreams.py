"""Object contents between the gateway's streams and the store."""

from collections import deque
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator
from contextlib import aclosing
from typing import Any

from twisted.internet.defer import CancelledError, Deferred

from storagegate.core.errors import ServiceError, codedError
from storagegate.objects.contents import OpenContent, openPieces, segmentsOf
from storagegate.storage.errors import CorruptBlob
from storagegate.storage.records import Segment
from storagegate.storage.store import ObjectStore

CHUNK = 64 * 1024
"""Bytes per item: fits a message of every transport, and takes little memory."""

_PIECE = 4 * CHUNK
"""Bytes that one job of the pool reads: the most that a slow reader keeps in memory."""


class UploadBody:
    """
    The items of an upload after its first, for L{ingest<storagegate.objects.checksums.ingest>}.

    The next item is requested after the previous one is written.

    @ivar checksum: The checksum of the last item, in lower case; empty if it has none.
    """

    def __init__(self, items: AsyncIterator[Any], size: int | None, needsEnd: bool) -> None:
        """
        @param items: The items after the first, each with a C{chunk}; the last with C{complete}.
        @param size: The number of bytes of all chunks, if the first item declares it.
        @param needsEnd: Whether the end of the items does not prove completeness, see
            L{beginUpload}.
        """
        self._items = items
        self._size = size
        self._received = 0
        self._isComplete = size is not None or not needsEnd
        self._isAtEnd = False
        self.checksum = ""

    def readAvailable(self) -> bytes | None:
        """Return L{None}: the items of a stream arrive one by one."""
        return None

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        item = await anext(self._items, None)
        if item is None:
            if not self._isComplete:
                raise _misplaced(
                    "the first item needs size, or the last one complete: the upload may be cut"
                )
            self._checkSize()
            raise StopAsyncIteration
        if self._isAtEnd:
            raise _misplaced("no item follows the one with complete")
        for name in _OF_FIRST:
            # Protobuf does not distinguish an absent map from an empty one.
            if item.get(name):
                raise _misplaced(f"{name} belongs into the first item")
        chunk: bytes = item.get("chunk") or b""
        self._received += len(chunk)
        if item.get("complete"):
            self._isAtEnd = self._isComplete = True
            self.checksum = (item.get("checksum") or "").lower()
        elif item.get("checksum"):
            raise _misplaced("checksum belongs into the item with complete")
        if self._size is not None and self._received > self._size:
            self._checkSize()
        return chunk

    def _checkSize(self) -> None:
        if self._size is not None and self._received != self._size:
            raise _misplaced(f"size is {self._size}, but {self._received} bytes came")


_OF_FIRST = ("bucket", "key", "contentType", "metadata", "size")


async def beginUpload(
    requests: AsyncIterable[Any], needsEnd: bool
) -> tuple[dict[str, Any], UploadBody]:
    """
    Read the first item of an upload, which names the object.

    @param requests: The items of the call; the first has no C{chunk}.
    @param needsEnd: Whether the client must declare a size or mark the last item, because a
        truncated stream may look complete.
    @raise ServiceError: C{INVALID_ARGUMENT} if the first item is absent or misplaced.
    """
    items = aiter(requests)
    first = await anext(items, None)
    if first is None:
        raise _misplaced("an upload begins with an item that has bucket and key")
    for name in ("chunk", "complete", "checksum"):
        if first.get(name):
            raise _misplaced(f"{name} belongs into the items behind the first")
    return first, UploadBody(items, first.get("size"), needsEnd)


async def readContent(
    store: ObjectStore, content: OpenContent, start: int, length: int, most: int
) -> AsyncGenerator[bytes, None]:
    """
    Read a range of a content as the consumer requests it. The caller must hold the content.

    @param store: The store of the segments, with its verifier if it has one.
    @param content: The bytes, either inline or in segments.
    @param start: Offset of the first byte.
    @param length: Number of bytes.
    @param most: Largest size of a chunk, in bytes.
    """
    if content.isInline:
        for chunk in _cut(content.inline(start, length), most):
            yield chunk
        return
    if content.objectKey is not None:
        async with aclosing(openPieces(store, content, start, length)) as opened:
            async for piece in opened:
                for chunk in _cut(piece, most):
                    yield chunk
        return
    for segment in segmentsOf(content.stored, start, length):
        pieces = _verified(store, segment) if store.verifier else _pieces(store, segment)
        try:
            async for piece in pieces:
                for chunk in _cut(piece, most):
                    yield chunk
        finally:
            await pieces.aclose()


def _cut(data: bytes, most: int) -> list[bytes]:
    return [data[start : start + most] for start in range(0, len(data), most)]


async def _pieces(store: ObjectStore, segment: Segment) -> AsyncGenerator[bytes, None]:
    """Read a segment, piece by piece as the consumer requests them."""
    handle = await store.blobs.open(segment)
    try:
        offset, end = segment.offset, segment.offset + segment.length
        while offset < end:
            size = min(_PIECE, end - offset)
            piece = await handle.read(offset, size)
            if not piece:
                raise CorruptBlob(f"blob {segment.blob} has become shorter")
            offset += len(piece)
            yield piece
    finally:
        handle.close()


async def _verified(store: ObjectStore, segment: Segment) -> AsyncGenerator[bytes, None]:
    """Read a segment, and verify its checksum before its last piece is passed on."""
    assert store.verifier is not None
    relay = _Relay()
    reading = Deferred.fromCoroutine(store.verifier.read(segment, relay.put))
    reading.addBoth(relay.end)
    try:
        while (piece := await relay.get()) is not None:
            yield piece
    finally:
        relay.leave(reading)


class _Relay:
    """Pass pieces from a producer to a consumer; the producer waits until each is consumed."""

    def __init__(self) -> None:
        self._pieces: deque[bytes] = deque()
        self._taken: Deferred[None] | None = None
        self._requested: Deferred[None] | None = None
        self._outcome: list[Any] = []
        self._isPutting = False

    def put(self, piece: bytes) -> Deferred[None]:
        """Pass a piece; the Deferred fires when the consumer requests the next one."""
        self._pieces.append(piece)
        taken: Deferred[None] = Deferred()
        self._taken = taken
        self._isPutting = True
        self._wake()
        self._isPutting = False
        return taken

    def end(self, outcome: Any) -> None:
        """End the stream with the producer's result or failure."""
        self._outcome = [outcome]
        self._wake()

    async def get(self) -> bytes | None:
        """
        Wait for a piece.

        @return: The piece; C{None} at the end.
        """
        taken, self._taken = self._taken, None
        if taken is not None and not self._pieces:
            taken.callback(None)
        while not self._pieces and not self._outcome:
            self._requested = Deferred()
            await self._requested
        if self._pieces:
            return self._pieces.popleft()
        # The consumer receives the producer's error.
        ended: Deferred[Any] = Deferred()
        ended.callback(self._outcome[0])
        await ended
        return None

    def leave(self, producer: Deferred[None]) -> None:
        """Disconnect the consumer; cancel the producer at its current wait."""
        if self._isPutting and self._taken is not None:
            # The consumer, woken by this piece, ends synchronously: the producer is not waiting yet
            # and cannot be cancelled.
            self._taken.errback(CancelledError())
        else:
            producer.cancel()

    def _wake(self) -> None:
        requested, self._requested = self._requested, None
        if requested is not None:
            requested.callback(None)


def _misplaced(message: str) -> ServiceError:
    return codedError("INVALID_ARGUMENT", message)
