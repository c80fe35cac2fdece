"""Runs of the bytes of an object: where they are, and what they come to."""

from collections.abc import Sequence

from storagegate.s3.checksums import DigestHasher
from storagegate.storage.errors import CorruptBlob
from storagegate.storage.records import Content, Segment
from storagegate.storage.store import ObjectStore


def segmentsOf(content: Content, start: int, length: int) -> tuple[Segment, ...]:
    """
    Find the runs of blobs that hold a run of a content that is not inline.

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
    Feed a run of a content to hashers, in the pool for blobs.

    @param start: Offset of the first byte.
    @param length: Number of bytes.
    @raise CorruptBlob: If a blob is shorter than its segment.
    """
    if content.inline is not None:
        for hasher in hashers:
            hasher.update(content.inline[start : start + length])
        return
    hold = store.hold(content)
    try:
        for segment in segmentsOf(content, start, length):
            handle = await store.blobs.open(segment)
            try:
                count = await handle.digest(hashers, segment.offset, segment.length)
            finally:
                handle.close()
            if count < segment.length:
                raise CorruptBlob(f"blob {segment.blob} has become shorter")
    finally:
        hold.release()
