"""
The bytes of objects on their way between the gateway's streams and the store.

Who watches which bucket.

The workers of a daemon with several tell each other, too. What one commits is told in order; what
two commit at one time may be told in either order.
"""

from collections import deque
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Callable
from typing import Any

from twisted.internet.defer import CancelledError, Deferred

from storagegate.core.errors import ServiceError, codedError
from storagegate.core.streams import BoundedStream, PubSub
from storagegate.s3.objects import segmentsOf
from storagegate.services.objectschemas import rowShape
from storagegate.storage.errors import CorruptBlob
from storagegate.storage.records import Content, ObjectChange, Segment
from storagegate.storage.store import ObjectStore

CHUNK = 64 * 1024
"""Bytes of an item: a message on every wire, and not much for whoever must hold it."""

_PIECE = 4 * CHUNK
"""Bytes that one job reads: worth a hop, and all that a slow reader makes us hold."""


class UploadBody:
    """
    The items of an upload behind its first, as the body that S3's intake reads.

    No item is asked for before the disk has taken the last one.
    """

    def __init__(self, items: AsyncIterator[Any]) -> None:
        self._items = items

    def readAvailable(self) -> bytes | None:
        """Nothing of a stream is there before it is read."""
        return None

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        item = await anext(self._items)
        for name, value in item.items():
            # Protobuf has no word for an empty map that is not there.
            if name in ("bucket", "key", "contentType", "metadata") and value:
                raise _misplaced(f"{name} belongs into the first item")
        chunk = item.get("chunk")
        return b"" if chunk is None else chunk


async def beginUpload(requests: AsyncIterable[Any]) -> tuple[dict[str, Any], UploadBody]:
    """
    Take the first item of an upload, which names the object.

    @raise ServiceError: C{INVALID_ARGUMENT} if there is none.
    """
    items = aiter(requests)
    first = await anext(items, None)
    if first is None:
        raise _misplaced("an upload begins with an item that has bucket and key")
    if first.get("chunk"):
        raise _misplaced("chunk belongs into the items behind the first")
    return first, UploadBody(items)


async def readContent(
    store: ObjectStore, content: Content, start: int, length: int, most: int
) -> AsyncGenerator[bytes, None]:
    """
    Give C{length} bytes from C{start} of a content, at most C{most} at once.

    No more is read than is taken. The caller holds the content meanwhile.
    """
    if content.inline is not None:
        for chunk in _cut(content.inline[start : start + length], most):
            yield chunk
        return
    for segment in segmentsOf(content, start, length):
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
    """Read a segment, a piece whenever one is asked for."""
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
    """Read a segment that is compared with what was written before its end goes out."""
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
    """Pieces from one who gives them to one who asks for them; the giver waits for each."""

    def __init__(self) -> None:
        self._pieces: deque[bytes] = deque()
        self._taken: Deferred[None] | None = None
        self._asked: Deferred[None] | None = None
        self._outcome: list[Any] = []
        self._isGiving = False

    def put(self, piece: bytes) -> Deferred[None]:
        """Give a piece; wait until it is taken."""
        self._pieces.append(piece)
        taken: Deferred[None] = Deferred()
        self._taken = taken
        self._isGiving = True
        self._wake()
        self._isGiving = False
        return taken

    def end(self, outcome: Any) -> None:
        """Give no more."""
        self._outcome = [outcome]
        self._wake()

    async def get(self) -> bytes | None:
        """
        Ask for a piece.

        @return: It, or C{None} at the end.
        """
        taken, self._taken = self._taken, None
        if taken is not None and not self._pieces:
            taken.callback(None)
        while not self._pieces and not self._outcome:
            self._asked = Deferred()
            await self._asked
        if self._pieces:
            return self._pieces.popleft()
        # An error of the giver is one of whoever asks.
        ended: Deferred[Any] = Deferred()
        ended.callback(self._outcome[0])
        await ended
        return None

    def leave(self, giver: Deferred[None]) -> None:
        """Ask for nothing more; the giver ends where it waits."""
        if self._isGiving and self._taken is not None:
            # Whoever was woken by a piece leaves at once: the giver does not wait for it yet, and
            # could not be cancelled.
            self._taken.errback(CancelledError())
        else:
            giver.cancel()

    def _wake(self) -> None:
        asked, self._asked = self._asked, None
        if asked is not None:
            asked.callback(None)


def _misplaced(message: str) -> ServiceError:
    return codedError("INVALID_ARGUMENT", message)


class BucketWatchers:
    """The watches of one store. Reactor thread."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._topics = PubSub()

    def __len__(self) -> int:
        return len(self._topics)

    def subscribe(self, bucket: str, prefix: str) -> BoundedStream[Any]:
        """
        Watch the objects of a bucket whose keys begin with a prefix, from now on.

        @return: Gives C{{"event", "object"}}; ends where the bucket does. It has to L{leave}.
        """
        if not self._topics:
            self._store.observers.append(self._changed)
        wants: Callable[[Any], bool] | None = None
        if prefix:

            def wants(change: Any) -> bool:
                key: str = change["object"]["key"]
                return key.startswith(prefix)

        return self._topics.subscribe(bucket, wants)

    def unsubscribe(self, bucket: str, box: BoundedStream[Any]) -> None:
        """Watch no more."""
        self._topics.unsubscribe(bucket, box)
        if not self._topics:
            self._store.observers.remove(self._changed)

    def _changed(self, change: ObjectChange) -> None:
        if change.key is None:
            self._topics.close(change.bucket)
            return
        # What waits for a slow reader has no bytes of objects.
        if change.record is not None:
            told = {"event": "created", "object": rowShape(change.record)}
        else:
            told = {"event": "removed", "object": {"key": change.key.decode()}}
        self._topics.publish(change.bucket, (told,))
