"""
Reading the body of an object, a part or a document: decoded, counted, hashed, verified, durable.

Nothing is visible before everything that the client declared of the bytes has been verified; a
failure leaves nothing behind. Memory is bounded by the sink, for bodies of any size.
"""

from collections.abc import AsyncIterator, Callable
from typing import Protocol

from attrs import frozen

from storagegate.s3.checksums import BodyExpectation, BodyHasher
from storagegate.storage.interfaces import IBlobWriter
from storagegate.storage.records import Checksum, Content


class ReadableBody(Protocol):
    """The body of a request, a form's file, or the items of a stream."""

    def readAvailable(self) -> bytes | None:
        """Return the whole body if it has arrived already."""

    def __aiter__(self) -> AsyncIterator[bytes]:
        """Iterate over the pieces; the next one is received when it is read."""


@frozen
class IngestedBody:
    """
    The bytes of a whole body, durable or small enough to live in the catalog.

    @ivar etag: MD5 in hexadecimal.
    @ivar sink: The finished sink that made the content; L{None} if none was needed.
    """

    content: Content
    etag: str
    checksum: Checksum
    sink: IBlobWriter | None = None


async def ingest(
    body: ReadableBody,
    expectation: BodyExpectation,
    newSink: Callable[[int | None, int], IBlobWriter],
    inlineLimit: int,
) -> IngestedBody:
    """
    Read, verify and store a body.

    @param newSink: Creates the sink, from the expected size and C{inlineLimit}.
    @param inlineLimit: A body of up to so many bytes becomes inline content.
    @raise S3Error: If the body is not as expected.
    """
    ready = body.readAvailable()
    hasher = BodyHasher(expectation)
    if ready is not None and len(ready) <= inlineLimit:
        # A small body arrives with its head: no sink, no file, no wait.
        data = b"".join(hasher.update(ready))
        etag, checksum = hasher.verify()
        return IngestedBody(Content(len(data), data), etag, checksum)
    sink = newSink(expectation.length, inlineLimit)

    async def store(chunk: bytes) -> None:
        for piece in hasher.update(chunk):
            wait = sink.write(piece)
            if wait is not None:
                await wait

    try:
        if ready is not None:
            await store(ready)
        else:
            async for chunk in body:
                await store(chunk)
        etag, checksum = hasher.verify()
        content = await sink.finish()
    except BaseException:
        sink.abort()
        raise
    return IngestedBody(content, etag, checksum, sink)


async def gather(body: ReadableBody, expectation: BodyExpectation) -> bytes:
    """
    Read a small body into memory, up to the limit of its expectation, with the same checks.

    @raise S3Error: If the body is not as expected.
    """
    hasher = BodyHasher(expectation)
    pieces: list[bytes] = []
    async for chunk in body:
        pieces += hasher.update(chunk)
    hasher.verify()
    return b"".join(pieces)
