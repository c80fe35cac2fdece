"""
Ranges of an object's content: segments, digests, and copies.

All readers take an L{OpenContent}, so that none can pass on sealed bytes.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Protocol, TypeVar

from attrs import define, field
from msgspec import Struct
from msgspec.structs import replace
from twisted.internet.defer import Deferred

from storagegate.objects import errors
from storagegate.objects.checksums import DigestHasher
from storagegate.storage.blobinterfaces import ByteSink, Hasher, IBlobReader, IBlobWriter
from storagegate.storage.errors import (
    BlobsElsewhere,
    ConcurrentChange,
    CorruptBlob,
    CorruptObject,
)
from storagegate.storage.records import Content, ObjectRecord, Segment, WriteCondition
from storagegate.storage.store import ObjectStore

if TYPE_CHECKING:
    # Imported with the first encrypted object.
    from storagegate.objects.encryption.sealing import BlobOpener, ObjectKey

_Copied = TypeVar("_Copied")
_Wait = TypeVar("_Wait")

_CHUNK = 256 << 10
"""Bytes per read of a copy."""


class OpenContent(Struct, frozen=True):
    """
    The stored bytes of an object, with the key that opens them.

    @ivar stored: The bytes as they are stored, sealed if there is a key.
    @ivar objectKey: L{None} for plain bytes.
    @ivar onDamaged: Called if inline bytes do not open.
    """

    stored: Content
    objectKey: "ObjectKey | None" = None
    onDamaged: Callable[[], object] | None = None

    @property
    def isInline(self) -> bool:
        """Whether the bytes are in the row of the object."""
        return self.stored.inline is not None

    def inline(self, start: int, length: int) -> bytes:
        """
        Return a range of inline content.

        @param start: Offset of the first byte.
        @param length: Number of bytes.
        @raise CorruptObject: Sealed bytes do not open.
        """
        found = self.stored.inline
        assert found is not None
        if self.objectKey is not None:
            try:
                found = self.objectKey.open(found)
            except CorruptObject:
                if self.onDamaged is not None:
                    self.onDamaged()
                raise
        return found if length == len(found) else found[start : start + length]


def openContent(
    store: ObjectStore, record: ObjectRecord, objectKey: "ObjectKey | None"
) -> OpenContent:
    """
    Return the content of an object, which reports damage to the store.

    @param objectKey: The key of the object; L{None} for plain bytes.
    """
    if objectKey is None or record.content.inline is None:
        return OpenContent(record.content, objectKey)
    noted = partial(store.scrubber.noteObject, record.bucket, record.key)
    return OpenContent(record.content, objectKey, noted)


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


async def openPieces(
    store: ObjectStore, content: OpenContent, start: int, length: int
) -> AsyncGenerator[bytes, None]:
    """
    Yield a range of a sealed content that is not inline, at most 256 KiB at a time, as the consumer
    requests it. See L{feedPieces}.
    """
    for reader in _readersOf(store, content, start, length):
        try:
            while not reader.isDone:
                piece = await reader.next(bytes)
                if piece is not None:
                    yield piece
        finally:
            reader.close()


async def feedPieces(
    store: ObjectStore,
    content: OpenContent,
    start: int,
    length: int,
    feed: Callable[[bytes | memoryview], Awaitable[None] | None],
    hashers: Sequence[Hasher] = (),
) -> None:
    """
    Feed a range of a sealed content that is not inline to a consumer, at most 256 KiB at a time.
    Only the chunks of the range are read. The tags of chunks take the place of a verifier.

    @param start: Offset of the first byte.
    @param length: Number of bytes.
    @param feed: Receives the plain bytes, which it must not keep, and returns what to wait for
        before the next ones.
    @param hashers: Receive the plain bytes, in the pool; then C{feed} may not return anything.
    @raise CorruptBlob: A blob is short, or a chunk does not open.
    """
    for reader in _readersOf(store, content, start, length, hashers):
        try:
            while not reader.isDone:
                wait = await reader.next(feed)
                if wait is not None:
                    await wait
        finally:
            reader.close()


def _readersOf(
    store: ObjectStore,
    content: OpenContent,
    start: int,
    length: int,
    hashers: Sequence[Hasher] = (),
) -> Iterator["_SealedReader"]:
    """Make the readers of a range of a sealed content; see L{feedPieces}."""
    from storagegate.objects.encryption.sealing import BlobOpener, chunkCount, plainLength

    assert content.objectKey is not None
    for segment in content.stored.segments:
        if length <= 0:
            break
        size = plainLength(segment.length)
        if start >= size:
            start -= size
            continue
        opener = BlobOpener(content.objectKey, chunkCount(size), hashers, segment.blob)
        end = min(start + length, size)
        yield _SealedReader(store, segment, opener, start, end, not hashers)
        length -= end - start
        start = 0


@define(eq=False)
class _SealedReader:
    """
    Reads and opens a range of a sealed blob, piece by piece.

    @ivar _isReading: Whether no hashers receive the bytes, which takes longer than to open them.
    @ivar _pieces: The number of pieces that the next job opens.
    @ivar _start: Offset of the next plain byte.
    @ivar _end: Offset of the first plain byte behind the range.
    """

    _store: ObjectStore
    _segment: Segment
    _opener: "BlobOpener"
    _start: int
    _end: int
    _isReading: bool
    _handle: IBlobReader | None = field(default=None, init=False)
    _pieces: int = field(default=1, init=False)

    @property
    def isDone(self) -> bool:
        """Whether the whole range was read."""
        return self._start >= self._end

    def close(self) -> None:
        """Close the blob."""
        handle, self._handle = self._handle, None
        if handle is not None:
            handle.close()

    async def next(self, use: Callable[[bytes | memoryview], _Wait]) -> _Wait | None:
        """
        Read and open the next pieces, and feed them to a consumer while they are in the cache of
        the processor. A consumer that keeps up gets several pieces of one job; the others are
        opened again for one that falls behind, so that it never keeps more than one.

        @param use: Receives each piece, which it must not keep, because its buffer is used again;
            returns what to wait for before the next one.
        @return: The last result of C{use}.
        @raise CorruptBlob: The blob is short, or a chunk does not open.
        """
        from storagegate.objects.encryption.sealing import (
            CHUNK,
            MOST_CHUNKS,
            MOST_PLAIN,
            MOST_SEALED,
            PIECE_CHUNKS,
            SALT,
            SEALED_CHUNK,
        )

        store, blob, opener, start = self._store, self._segment.blob, self._opener, self._start
        first, last = start // CHUNK, (self._end - 1) // CHUNK
        handle = self._handle
        if handle is None:
            # The first chunk follows the salt, without which no other chunk opens.
            begin = SALT + first * SEALED_CHUNK if first else 0
            stop = min(SALT + (last + 1) * SEALED_CHUNK, self._segment.length)
            handle = self._handle = await store.blobs.open(Segment(blob, begin, stop - begin))
            if first and not opener.recall():
                warm = handle.readWarm(0, SALT)
                opener.readSalt(warm or await _exactly(handle, blob, 0, SALT))
        isLocal = not store.blobs.isRemote
        offset = SALT + first * SEALED_CHUNK if first else 0
        count = min(PIECE_CHUNKS * self._pieces if isLocal else PIECE_CHUNKS, last + 1 - first)
        size = min(SALT + (first + count) * SEALED_CHUNK, self._segment.length) - offset
        skipped = start - first * CHUNK
        wanted = min(self._end, (first + count) * CHUNK) - start
        warm = handle.readWarm(offset, size) if count == 1 and self._isReading else None
        if warm is not None:
            # To open one chunk takes less time than a switch of threads.
            opener.expect(first, skipped, wanted)
            opener.update(warm)
            if not opener.isDamaged:
                self._start += wanted
                return use(opener.plain)
        elif isLocal:
            buffer = await store.openings.get() or bytearray(MOST_PLAIN + MOST_SEALED)
            space = memoryview(buffer)
            # If this is cancelled, the job goes on, and writes to its buffer.
            free = bytearray()
            try:
                opener.expect(first, skipped, wanted, space[:MOST_PLAIN])
                found = await handle.digest((opener,), offset, size, space[MOST_PLAIN:])
                free = buffer
                if found < size:
                    raise _shorter(blob)
                if not opener.isDamaged:
                    wait, used = _feedPlain(opener.plain, PIECE_CHUNKS * CHUNK, use)
                    self._start += used
                    grown = min(MOST_CHUNKS // PIECE_CHUNKS, 2 * self._pieces)
                    self._pieces = grown if wait is None else 1
                    return wait
            finally:
                store.openings.put(free)
        else:
            # The network takes longer than the processor.
            opener.expect(first, skipped, wanted)
            await _exactly(handle, blob, offset, size, (opener,))
            if opener.isDamaged:
                # The response may be wrong rather than the blob.
                opener.readSalt(await _exactly(handle, blob, 0, SALT))
                opener.expect(first, skipped, wanted)
                await _exactly(handle, blob, offset, size, (opener,))
            if not opener.isDamaged:
                self._start += wanted
                return use(opener.plain)
        store.blobs.onDamaged(blob)
        raise CorruptBlob(f"chunk {first} of blob {blob} does not open")


def _feedPlain(
    plain: bytes | memoryview, size: int, use: Callable[[bytes | memoryview], _Wait]
) -> tuple[_Wait | None, int]:
    """
    Feed plain bytes to a consumer until it has to wait.

    @param size: Largest size of a piece.
    @return: The last result of the consumer, and the number of bytes that it got.
    """
    wait: _Wait | None = None
    used = 0
    while used < len(plain) and wait is None:
        piece = plain[used : used + size]
        wait = use(piece)
        used += len(piece)
    return wait, used


async def _exactly(
    handle: IBlobReader, blob: str, offset: int, count: int, hashers: Sequence[Hasher] = ()
) -> bytes:
    """Read a range of a blob, all of which must be there."""
    found = await handle.read(offset, count, hashers)
    if len(found) < count:
        raise _shorter(blob)
    return found


def _shorter(blob: str) -> CorruptBlob:
    return CorruptBlob(f"blob {blob} has become shorter")


async def digest(
    store: ObjectStore,
    content: OpenContent,
    start: int,
    length: int,
    hashers: Sequence[DigestHasher],
) -> None:
    """
    Feed a range of a content to hashers, in the pool for blobs.

    @param start: Offset of the first byte.
    @param length: Number of bytes.
    @raise CorruptBlob: A blob is shorter than its segment, or damaged.
    """
    if content.isInline:
        found = content.inline(start, length)
        for hasher in hashers:
            hasher.update(found)
        return
    hold = store.hold(content.stored)
    try:
        if content.objectKey is not None:
            await feedPieces(store, content, start, length, lambda piece: None, hashers)
            return
        for segment in segmentsOf(content.stored, start, length):
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

    def sendBuffer(self, view: memoryview) -> Deferred[None] | None:
        """Send the bytes of a buffer that the caller writes to again."""

    def finish(self) -> None:
        """End the response."""


async def sendSegments(
    store: ObjectStore,
    content: OpenContent,
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

    def send(chunk: bytes | memoryview) -> Deferred[None] | None:
        if not response.started:
            begin()
        if isinstance(chunk, memoryview):
            return response.sendBuffer(chunk)
        return response.send(chunk)

    if content.objectKey is not None:
        await feedPieces(store, content, start, length, send)
        if response.started:
            response.finish()
        return response.started
    for segment in segmentsOf(content.stored, start, length):
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
    store: ObjectStore,
    content: OpenContent,
    start: int,
    length: int,
    bucket: str,
    objectKey: "ObjectKey | None" = None,
    inlineLimit: int = 0,
) -> tuple[Content, IBlobWriter]:
    """
    Write a range of a content again, as a new blob.

    @param start: Offset of the first byte.
    @param length: Number of bytes.
    @param bucket: The bucket of the object that will own the blob.
    @param objectKey: Seals the bytes; L{None} writes plain bytes.
    @param inlineLimit: Largest range that becomes inline content, in bytes.
    @return: The new content, and the finished writer.
    @raise CorruptBlob: A blob is shorter than its segment, or damaged.
    """
    hold = store.hold(content.stored)
    sealer = None if objectKey is None else objectKey.sealer()
    sink = store.blobs.writer(inlineLimit, length, bucket, sealer)
    try:
        await _feedSink(store, content, start, length, sink)
        return await sink.finish(), sink
    except BaseException:
        store.abort(sink)
        raise
    finally:
        hold.release()


async def _feedSink(
    store: ObjectStore, content: OpenContent, start: int, length: int, sink: IBlobWriter
) -> None:
    """Write a range of a content to a sink."""
    if content.isInline:
        await _write(sink, content.inline(start, length))
        return
    if content.objectKey is not None:
        await feedPieces(store, content, start, length, lambda piece: sink.write(bytes(piece)))
        return
    for segment in segmentsOf(content.stored, start, length):
        if store.verifier is not None:
            await store.verifier.read(segment, sink.write)
            continue
        handle = await store.blobs.open(segment)
        try:
            await _append(sink, handle, segment)
        finally:
            handle.close()


async def _write(sink: IBlobWriter, chunk: bytes) -> None:
    wait = sink.write(chunk)
    if wait is not None:
        await wait


async def putCopy(
    store: ObjectStore,
    record: ObjectRecord,
    source: OpenContent,
    objectKey: "ObjectKey | None",
    condition: WriteCondition,
    check: Callable[[], Awaitable[None]],
) -> ObjectRecord:
    """
    Store an object with the content of another object: by reference if possible, otherwise by
    copying the bytes. Encrypted objects can share blobs; an encrypted and a plain one cannot.

    @param record: See L{ObjectStore.putObject}, also for C{condition}. Its content is not used.
    @param source: The content of the source.
    @param objectKey: The key of the record, which is the source's if both are encrypted.
    @param check: Checks that the bucket is still the same, right before the object is stored.
    @raise ConcurrentChange: The source was replaced in the meantime; try again.
    """
    inlineLimit = 0
    if (objectKey is None) == (source.objectKey is None):
        shared = replace(record, content=source.stored)
        await check()
        try:
            return await store.putObject(shared, None, condition)
        except BlobsElsewhere:
            pass
    else:
        inlineLimit = store.inlineLimit
    content, sink = await rewrite(
        store, source, 0, record.size, record.bucket, objectKey, inlineLimit
    )
    try:
        await check()
    except BaseException:
        store.abort(sink)
        raise
    return await store.putObject(replace(record, content=content), sink, condition)


async def _append(sink: IBlobWriter, handle: IBlobReader, segment: Segment) -> None:
    """Write the bytes of a segment to a sink."""
    for offset in range(segment.offset, segment.offset + segment.length, _CHUNK):
        count = min(_CHUNK, segment.offset + segment.length - offset)
        chunk = await handle.read(offset, count)
        if len(chunk) < count:
            raise CorruptBlob(f"blob {segment.blob} has become shorter")
        await _write(sink, chunk)


TRIES = 3
"""Attempts of a copy or a read whose source is replaced concurrently."""


async def retryCopy(copy: Callable[[], Awaitable[_Copied]]) -> _Copied:
    """
    Run a copy, or another change, that looks up its source; repeat it if the source is changed in
    the meantime.

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
