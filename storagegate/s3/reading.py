"""Which bytes of which blobs make up a run of an object, and digests over stored content."""

import os
from collections.abc import Sequence

from storagegate.s3.checksums import Hasher
from storagegate.storage.records import Content, Segment
from storagegate.storage.store import ObjectStore

DIGEST_JOB = 8 << 20
"""Bytes that one pool job reads and hashes: worth a hop, and soon over for those who wait."""

_READ = 1 << 20


def segmentsOf(content: Content, start: int, length: int) -> tuple[Segment, ...]:
    """
    Find the runs of blobs that hold C{length} bytes from C{start} of a content that is not inline.
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


def _digestRun(fd: int, offset: int, length: int, hashers: Sequence[Hasher]) -> None:
    """Read and hash a run of a file. Runs in a pool thread."""
    while length:
        chunk = os.pread(fd, min(length, _READ), offset)
        if not chunk:
            raise EOFError("a blob is shorter than its record says")
        for hasher in hashers:
            hasher.update(chunk)
        offset += len(chunk)
        length -= len(chunk)


async def digest(
    store: ObjectStore, content: Content, start: int, length: int, hashers: Sequence[Hasher]
) -> None:
    """Feed C{length} bytes from C{start} of a content to the hashers, in the pool."""
    if content.inline is not None:
        for hasher in hashers:
            hasher.update(content.inline[start : start + length])
        return
    hold = store.hold(content)
    try:
        for segment in segmentsOf(content, start, length):
            handle = await store.blobs.openSegment(segment)
            try:
                for done in range(0, segment.length, DIGEST_JOB):
                    size = min(DIGEST_JOB, segment.length - done)
                    await store.run(_digestRun, handle.fd, segment.offset + done, size, hashers)
            finally:
                handle.release()
    finally:
        hold.release()
