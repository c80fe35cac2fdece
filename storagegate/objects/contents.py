"""Ranges of an object's content: segments, digests, and copies."""

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Protocol, TypeVar

from msgspec.structs import replace
from twisted.internet.defer import Deferred

from storagegate.objects import errors
from storagegate.objects.checksums import DigestHasher
from storagegate.storage.blobinterfaces import ByteSink, IBlobReader, IBlobWriter
from storagegate.storage.errors import BlobsElsewhere, ConcurrentChange, CorruptBlob
from storagegate.storage.records import Content, ObjectRecord, Segment, WriteCondition
from storagegate.storage.store import ObjectStore

_Copied = TypeVar("_Copied")

_CHUNK = 256 << 10
"""Bytes per read of a copy."""


def segmentsOf(content: Content, start: int, length: int) -> tuple[Segment, ...]:
    """
    Find the segments that hold a range of a content that is not inline.

    @param start: Offset of the first byte.
    @param length: Number of bytes.
    """
    found = []
    for segment in content.segments:
        if length <= 0:
            break
        if start >= segment.length:
            start -= segment.length
            continue
        taken = min(segment.length - start, length)
        found.append(Segment(segment.blob, segment.offset + start, taken))
        length -= taken
        start = 0
    return tuple(found)


async def digest(
    store: ObjectStore, content: Content, start: int, length: int, hashers: Sequence[DigestHasher]
) -> None:
    """
    Feed a range of a content to hashers, in the pool for blobs.

    @param start: Offset of the first byte.
    @param length: Number of bytes.
    @raise CorruptBlob: A blob is shorter than its segment.
    """
    if content.inline is not None:
        for hasher in hashers:
            hasher.update(content.inline[start : start + length])
        return
    hold = store.hold(content)
    try:
        for segment in segmentsOf(content, start, length):
            if store.blobs.isRemote and store.verifier is not None:
                feed = partial(store.run, _feed, hashers)
                await store.verifier.read(segment, feed)
                continue
            handle = await store.blobs.open(segment)
            try:
                count = await handle.digest(hashers, segment.offset, segment.length)
            finally:
                handle.close()
            if count < segment.length:
                raise CorruptBlob(f"blob {segment.blob} has become shorter")
    finally:
        hold.release()


def _feed(hashers: Sequence[DigestHasher], chunk: bytes) -> None:
    """Hash a chunk. May run in any thread."""
    for hasher in hashers:
        hasher.update(chunk)


class ResponseSink(ByteSink, Protocol):
    """A response whose head may not have been sent yet."""

    @property
    def started(self) -> bool:
        """Whether the head has been sent."""

    def finish(self) -> None:
        """End the response."""


async def sendSegments(
    store: ObjectStore,
    content: Content,
    start: int,
    length: int,
    response: ResponseSink,
    begin: Callable[[], None],
) -> bool:
    """
    Send a range of a content that is not inline. The caller must hold the content.

    @param start: Offset of the first byte.
    @param length: Number of bytes.
    @param response: Receives the content.
    @param begin: Sends the head of the response. It is called before the first bytes, so that a
        damaged first blob becomes an error response.
    @return: Whether the response has begun; otherwise, the range is empty.
    """

    def send(chunk: bytes) -> Deferred[None] | None:
        if not response.started:
            begin()
        return response.send(chunk)

    for segment in segmentsOf(content, start, length):
        if store.verifier is not None:
            await store.verifier.read(segment, send)
            continue
        handle = await store.blobs.open(segment)
        try:
            if not response.started:
                begin()
            await handle.sendTo(response, segment.offset, segment.length)
        finally:
            handle.close()
    if response.started:
        response.finish()
    return response.started


async def rewrite(
    store: ObjectStore, content: Content, start: int, length: int, bucket: str
) -> tuple[Content, IBlobWriter]:
    """
    Write a range of a content again, as a new blob.

    @param start: Offset of the first byte.
    @param length: Number of bytes.
    @param bucket: The bucket of the object that will own the blob.
    @return: The new content, and the finished writer.
    @raise CorruptBlob: A blob is shorter than its segment.
    """
    hold = store.hold(content)
    sink = store.blobs.writer(0, length, bucket)
    try:
        for segment in segmentsOf(content, start, length):
            if store.verifier is not None:
                await store.verifier.read(segment, sink.write)
                continue
            handle = await store.blobs.open(segment)
            try:
                await _append(sink, handle, segment)
            finally:
                handle.close()
        return await sink.finish(), sink
    except BaseException:
        store.abort(sink)
        raise
    finally:
        hold.release()


async def putCopy(
    store: ObjectStore, record: ObjectRecord, condition: WriteCondition
) -> ObjectRecord:
    """
    Store an object with the content of another object: by reference if possible, otherwise by
    copying the bytes.

    @param record: See L{ObjectStore.putObject}, also for C{condition}.
    @raise ConcurrentChange: The source was replaced in the meantime; try again.
    """
    try:
        return await store.putObject(record, None, condition)
    except BlobsElsewhere:
        content, sink = await rewrite(store, record.content, 0, record.size, record.bucket)
    return await store.putObject(replace(record, content=content), sink, condition)


async def _append(sink: IBlobWriter, handle: IBlobReader, segment: Segment) -> None:
    """Write the bytes of a segment to a sink."""
    for offset in range(segment.offset, segment.offset + segment.length, _CHUNK):
        count = min(_CHUNK, segment.offset + segment.length - offset)
        chunk = await handle.read(offset, count)
        if len(chunk) < count:
            raise CorruptBlob(f"blob {segment.blob} has become shorter")
        wait = sink.write(chunk)
        if wait is not None:
            await wait


TRIES = 3
"""Attempts of a copy or a read whose source is replaced concurrently."""


async def retryCopy(copy: Callable[[], Awaitable[_Copied]]) -> _Copied:
    """
    Run a copy that looks up its source; repeat it if the source is replaced in the meantime.

    @raise OperationAborted: After L{TRIES}, and the errors of the copy.
    @raise CorruptBlob: The bytes of the source are damaged.
    """
    failure: Exception = errors.OperationAborted()
    for _ in range(TRIES):
        try:
            return await copy()
        except ConcurrentChange:
            continue
        except CorruptBlob as error:
            # The blobs may have been removed after the look-up.
            failure = error
    raise failure
