"""
Taking in the bytes of an object or a part: decoded, counted, hashed, checked, then durable.

Nothing is visible before everything that the client said of its bytes has been found true; what
fails leaves nothing behind. Memory is bounded by the sink, whatever the body's size.
"""

from collections.abc import AsyncIterator, Callable
from typing import Protocol

from attrs import field, frozen

from storagegate.s3.checksums import Hasher, newHasher
from storagegate.s3.errors import S3Error
from storagegate.storage.interfaces import IBlobSink
from storagegate.storage.records import Checksum, Content

PUT_LIMIT = 5 << 30
"""The most that one PUT, or one part, may carry: S3's own 5 GiB."""


class Body(Protocol):
    """The bytes of a request as they arrive."""

    def takeReady(self) -> bytes | None:
        """The whole body, if it has arrived already."""

    def __aiter__(self) -> AsyncIterator[bytes]:
        """The body's pieces; reading them is what lets more come."""


class Decoder(Protocol):
    """Takes a transfer coding (C{aws-chunked}) off a body, checking its signatures."""

    trailers: dict[bytes, bytes]

    def feed(self, data: bytes) -> list[bytes]:
        """Decode what came."""

    def finish(self) -> None:
        """Say that the body has ended."""


@frozen
class Expectation:
    """
    What a request says of the bytes that it carries.

    @ivar length: Bytes after decoding, if declared.
    @ivar md5: Base64 of the C{Content-MD5}.
    @ivar sha256: Hex of the signed payload hash.
    @ivar checksum: Algorithm and base64 from an C{x-amz-checksum-*} header.
    @ivar trailer: The algorithm whose value comes in the trailer.
    @ivar algorithm: What to compute where neither says so.
    @ivar decoder: Takes C{aws-chunked} off.
    """

    length: int | None = None
    md5: str | None = None
    sha256: str | None = None
    checksum: tuple[str, str] | None = None
    trailer: str | None = None
    algorithm: str = "CRC64NVME"
    decoder: Decoder | None = None
    trailerHeader: bytes = b""
    limit: int = PUT_LIMIT

    def checksumAlgorithm(self) -> str:
        """The algorithm of the checksum that is stored with the object."""
        if self.checksum is not None:
            return self.checksum[0]
        return self.trailer or self.algorithm


@frozen
class Received:
    """
    Bytes that came in whole and are durable, or small enough to live in the catalog.

    @ivar etag: MD5 in hex.
    @ivar crcs: The CRC of each new blob, for the catalog.
    """

    content: Content
    etag: str
    checksum: Checksum
    crcs: dict[str, int] = field(factory=dict)


class _Reading:
    """The hashes over one body, and the judgement at its end."""

    def __init__(self, expectation: Expectation) -> None:
        self._expectation = expectation
        self._algorithm = expectation.checksumAlgorithm()
        self._md5 = newHasher("MD5")
        self._checksum = newHasher(self._algorithm)
        self._hashers: list[Hasher] = [self._md5, self._checksum]
        self._sha256: Hasher | None = None
        if expectation.sha256 is not None:
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
        if expectation.md5 is not None and expectation.md5 != self._md5.base64():
            raise S3Error("BadDigest")
        if self._sha256 is not None and self._sha256.digest().hex() != expectation.sha256:
            raise S3Error("XAmzContentSHA256Mismatch")
        value = self._checksum.base64()
        declared = expectation.checksum[1] if expectation.checksum else self._trailing()
        if declared is not None and declared != value:
            message = f"The {self._algorithm} you specified did not match the calculated checksum."
            raise S3Error("BadDigest", message)
        return self._md5.digest().hex(), Checksum(self._algorithm, value)

    def _trailing(self) -> str | None:
        expectation = self._expectation
        if expectation.trailer is None or expectation.decoder is None:
            return None
        value = expectation.decoder.trailers.get(expectation.trailerHeader)
        if value is None:
            raise S3Error("MalformedTrailerError")
        return value.decode("latin-1")


async def receive(
    body: Body,
    expectation: Expectation,
    newSink: Callable[[int], IBlobSink],
    inlineLimit: int,
) -> Received:
    """
    Take in a body.

    @param newSink: Makes the sink when it is known to be needed; it is given C{inlineLimit}.
    @param inlineLimit: A body of up to this many bytes becomes inline content.
    @raise S3Error: For whatever the body is not.
    """
    reading = _Reading(expectation)
    ready = body.takeReady()
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
    return Received(content, etag, checksum, dict(sink.crcs))


def _receiveReady(ready: bytes, reading: _Reading, decoder: Decoder | None) -> Received:
    """The whole of a small body has come with its head: no sink, no file, no waiting."""
    if decoder is not None:
        ready = b"".join(decoder.feed(ready))
        decoder.finish()
    reading.update(ready)
    etag, checksum = reading.judge()
    return Received(Content(len(ready), ready), etag, checksum)


async def _pass(chunk: bytes, reading: _Reading, decoder: Decoder | None, sink: IBlobSink) -> None:
    for piece in decoder.feed(chunk) if decoder is not None else (chunk,):
        reading.update(piece)
        wait = sink.write(piece)
        if wait is not None:
            await wait


async def gather(body: Body, expectation: Expectation) -> bytes:
    """
    Read a small body whole, up to the limit of its expectation, with the same checks.

    @raise S3Error: For whatever the body is not.
    """
    reading = _Reading(expectation)
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
