"""
Taking in the bytes of an object or a part: decoded, counted, hashed, checked, then durable.

Nothing is visible before everything that the client said of its bytes has been found true; what
fails leaves nothing behind. Memory is bounded by the sink, whatever the body's size.
"""

from collections.abc import AsyncIterator, Callable
from typing import Protocol

from attrs import frozen

from storagegate.s3.checksums import (
    ExpectedChecksum,
    Hasher,
    checkChecksum,
    checkContentMD5,
    checkPayloadHash,
    newHasher,
    trailerChecksum,
)
from storagegate.s3.errors import S3Error
from storagegate.storage.interfaces import IBlobWriter
from storagegate.storage.records import Checksum, Content

DEFAULT_ALGORITHM = "CRC64NVME"
"""The checksum of an object whose client names none: S3's own choice."""

PUT_LIMIT = 5 << 30
"""The most that one PUT, or one part, may carry: S3's own 5 GiB."""


class RequestBody(Protocol):
    """The bytes of a request as they arrive."""

    def readAvailable(self) -> bytes | None:
        """The whole body, if it has arrived already."""

    def __aiter__(self) -> AsyncIterator[bytes]:
        """The body's pieces; reading them is what lets more come."""


class BodyCoding(Protocol):
    """Takes a transfer coding (C{aws-chunked}) off a body, checking its signatures."""

    trailers: dict[bytes, bytes]

    def feed(self, data: bytes) -> list[bytes]:
        """Decode what came."""

    def finish(self) -> None:
        """Say that the body has ended."""


@frozen
class BodyExpectation:
    """
    What a request says of the bytes that it carries.

    @ivar length: Bytes after decoding, if declared.
    @ivar md5: The 16 bytes of C{Content-MD5}.
    @ivar payloadHash: The signed SHA-256 in hexadecimal.
    @ivar checksum: The checksum that a header or the trailer gives.
    @ivar algorithm: What to compute where neither does.
    @ivar decoder: Takes C{aws-chunked} off.
    @ivar limit: The most that the decoded body may carry.
    """

    length: int | None = None
    md5: bytes | None = None
    payloadHash: str | None = None
    checksum: ExpectedChecksum | None = None
    algorithm: str = DEFAULT_ALGORITHM
    decoder: BodyCoding | None = None
    limit: int = PUT_LIMIT


@frozen
class IngestedBody:
    """
    Bytes that came in whole and are durable, or small enough to live in the catalog.

    @ivar etag: MD5 in hex.
    @ivar sink: The finished sink that made the content; L{None} where no sink was needed.
    """

    content: Content
    etag: str
    checksum: Checksum
    sink: IBlobWriter | None = None


class _BodyVerifier:
    """The hashes over one body, and the judgement at its end."""

    def __init__(self, expectation: BodyExpectation) -> None:
        self._expectation = expectation
        declared = expectation.checksum
        self._algorithm = declared.algorithm if declared is not None else expectation.algorithm
        self._md5 = newHasher("MD5")
        self._checksum = newHasher(self._algorithm)
        self._hashers: list[Hasher] = [self._md5, self._checksum]
        if expectation.payloadHash is not None:
            self._sha256 = newHasher("SHA256")
            self._hashers.append(self._sha256)
        self.size = 0

    def update(self, piece: bytes) -> None:
        """
        Count and hash a piece of the decoded body.

        @raise S3Error: C{EntityTooLarge}, as soon as it is.
        """
        self.size += len(piece)
        if self.size > self._expectation.limit:
            raise S3Error("EntityTooLarge")
        for hasher in self._hashers:
            hasher.update(piece)

    def judge(self) -> tuple[str, Checksum]:
        """
        Compare with what the request said.

        @return: The MD5 in hex, and the checksum to keep.
        @raise S3Error: C{IncompleteBody}, C{BadDigest}, C{XAmzContentSHA256Mismatch}.
        """
        expectation = self._expectation
        if expectation.length is not None and self.size != expectation.length:
            raise S3Error("IncompleteBody")
        md5 = self._md5.digest()
        if expectation.md5 is not None:
            checkContentMD5(expectation.md5, md5)
        if expectation.payloadHash is not None:
            checkPayloadHash(expectation.payloadHash, self._sha256.digest())
        declared = self._declared()
        if declared is not None:
            checkChecksum(self._algorithm, declared, self._checksum)
        return md5.hex(), Checksum(self._algorithm, self._checksum.base64())

    def _declared(self) -> str | None:
        """The checksum that the client gave, in a header or in the trailer."""
        expectation = self._expectation
        if expectation.checksum is None:
            return None
        if expectation.checksum.value is not None:
            return expectation.checksum.value
        trailers = expectation.decoder.trailers if expectation.decoder is not None else {}
        return trailerChecksum(self._algorithm, trailers)


async def ingest(
    body: RequestBody,
    expectation: BodyExpectation,
    newSink: Callable[[int], IBlobWriter],
    inlineLimit: int,
) -> IngestedBody:
    """
    Take in a body.

    @param newSink: Makes the sink when it is known to be needed; it is given C{inlineLimit}.
    @param inlineLimit: A body of up to this many bytes becomes inline content.
    @raise S3Error: For whatever the body is not.
    """
    reading = _BodyVerifier(expectation)
    ready = body.readAvailable()
    if ready is not None and len(ready) <= inlineLimit:
        return _receiveReady(ready, reading, expectation.decoder)
    sink = newSink(inlineLimit)
    try:
        if ready is not None:
            await _pass(ready, reading, expectation.decoder, sink)
        else:
            async for chunk in body:
                await _pass(chunk, reading, expectation.decoder, sink)
        if expectation.decoder is not None:
            expectation.decoder.finish()
        etag, checksum = reading.judge()
        content = await sink.finish()
    except BaseException:
        sink.abort()
        raise
    return IngestedBody(content, etag, checksum, sink)


def _receiveReady(ready: bytes, reading: _BodyVerifier, decoder: BodyCoding | None) -> IngestedBody:
    """The whole of a small body has come with its head: no sink, no file, no waiting."""
    if decoder is not None:
        ready = b"".join(decoder.feed(ready))
        decoder.finish()
    reading.update(ready)
    etag, checksum = reading.judge()
    return IngestedBody(Content(len(ready), ready), etag, checksum)


async def _pass(
    chunk: bytes, reading: _BodyVerifier, decoder: BodyCoding | None, sink: IBlobWriter
) -> None:
    for piece in decoder.feed(chunk) if decoder is not None else (chunk,):
        reading.update(piece)
        wait = sink.write(piece)
        if wait is not None:
            await wait


async def gather(body: RequestBody, expectation: BodyExpectation) -> bytes:
    """
    Read a small body whole, up to the limit of its expectation, with the same checks.

    @raise S3Error: For whatever the body is not.
    """
    reading = _BodyVerifier(expectation)
    decoder = expectation.decoder
    pieces: list[bytes] = []
    async for chunk in body:
        for piece in decoder.feed(chunk) if decoder is not None else (chunk,):
            reading.update(piece)
            pieces.append(piece)
    if decoder is not None:
        decoder.finish()
    reading.judge()
    return b"".join(pieces)
