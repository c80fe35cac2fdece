"""
Checksums, the declarations of a request about its body, and ingestion.

Values are Base64, of CRCs as big-endian numbers. For an object in parts, a C{COMPOSITE} checksum is
the checksum of the parts' checksums; a C{FULL_OBJECT} checksum is the checksum of the data itself,
which only CRCs can be combined to. S3's table ("Checking object integrity")::

                FULL_OBJECT  COMPOSITE  default
    CRC32       yes          yes        COMPOSITE
    CRC32C      yes          yes        COMPOSITE
    CRC64NVME   yes          no         FULL_OBJECT
    SHA1        no           yes        COMPOSITE
    SHA256      no           yes        COMPOSITE

No part of a body is visible before all declarations of the client about it have been verified; a
failure leaves nothing behind.
"""

import hashlib
from binascii import Error, a2b_base64, b2a_base64
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from hmac import compare_digest
from typing import TYPE_CHECKING, Protocol

import msgspec
from msgspec import Struct

from storagegate.core import files
from storagegate.net.transport import Buffer
from storagegate.objects import errors
from storagegate.storage.blobinterfaces import Hasher, IBlobStore, IBlobWriter
from storagegate.storage.records import Checksum, Content

if TYPE_CHECKING:
    # Imported with the first encrypted object.
    from storagegate.objects.encryption.sealing import ObjectKey

DEFAULT_ALGORITHM = "CRC64NVME"
"""The checksum of an object whose client names none: S3's own choice."""

PUT_LIMIT = 5 << 30
"""Largest body of one PUT or one part: S3's own 5 GiB."""

FULL_OBJECT = "FULL_OBJECT"

COMPOSITE = "COMPOSITE"


class DigestHasher(Hasher, Protocol):
    """A checksum over data in pieces: a CRC, or an object of C{hashlib}."""

    def digest(self) -> bytes:
        """Return the digest."""


class Algorithm(Struct, frozen=True):
    """
    A checksum algorithm of S3.

    @ivar name: The name in S3's spelling.
    @ivar size: Bytes of a value.
    @ivar combine: For a CRC: computes the value over two runs of data from both values and the
        length of the second run.
    @ivar kinds: The checksum kinds for an object in parts; the first is the default.
    """

    name: str
    size: int
    kinds: tuple[str, ...]
    combine: Callable[[int, int, int], int] | None = None


ALGORITHMS: Mapping[str, Algorithm] = {
    name: Algorithm(name, size, kinds, combine)
    for name, size, kinds, combine in (
        ("CRC32", 4, (COMPOSITE, FULL_OBJECT), files.combineCRC32),
        ("CRC32C", 4, (COMPOSITE, FULL_OBJECT), files.combineCRC32C),
        ("CRC64NVME", 8, (FULL_OBJECT,), files.combineCRC64NVME),
        ("SHA1", 20, (COMPOSITE,), None),
        ("SHA256", 32, (COMPOSITE,), None),
    )
}


class _CRC:
    __slots__ = ("_function", "_size", "_value")

    def __init__(self, name: str, size: int) -> None:
        self._function = files.crcFunction(name)
        self._size = size
        self._value = 0

    def update(self, data: Buffer, /) -> None:
        self._value = self._function(data, self._value)

    def digest(self) -> bytes:
        return self._value.to_bytes(self._size, "big")


# Copies of initial hashers: a constructor takes twice as long, and hashlib.new six times.
_CONSTRUCTORS: Mapping[str, Callable[[], DigestHasher]] = {
    "MD5": hashlib.md5(usedforsecurity=False).copy,
    "SHA1": hashlib.sha1(usedforsecurity=False).copy,
    "SHA256": hashlib.sha256(usedforsecurity=False).copy,
    **{
        name: partial(_CRC, name.lower(), known.size)
        for name, known in ALGORITHMS.items()
        if known.combine is not None
    },
}


def newHasher(algorithm: str) -> DigestHasher:
    """
    Start a checksum.

    @param algorithm: The name of one of L{ALGORITHMS}, or C{"MD5"}.
    """
    return _CONSTRUCTORS[algorithm]()


def encodeDigest(digest: bytes) -> str:
    """Encode a digest in Base64."""
    return b2a_base64(digest, newline=False).decode()


def decodeDigest(value: bytes, size: int) -> bytes | None:
    """
    Decode a digest.

    @param value: Base64.
    @param size: The required number of bytes.
    @return: L{None} if the value is not Base64 of that size.
    """
    try:
        digest = a2b_base64(value, strict_mode=True)
    except Error:
        return None
    return digest if len(digest) == size else None


class ExpectedChecksum(Struct, frozen=True):
    """
    The checksum that a body must have.

    @ivar value: Base64; L{None} if the trailer carries the value.
    """

    algorithm: str
    value: str | None


class BodyDecoder(Protocol):
    """Decodes a body that is encoded for its transfer."""

    @property
    def isSigned(self) -> bool:
        """Whether a signature covers the bytes of the body."""

    @property
    def isBehind(self) -> bool:
        """Whether received bytes are left to decode, by a call of L{feed} without bytes."""

    def feed(self, data: bytes) -> Sequence[bytes]:
        """Decode the next bytes; return the decoded pieces."""

    def finish(self) -> None:
        """Check that the body is complete."""

    def trailingChecksum(self, algorithm: str) -> bytes:
        """Return the checksum in Base64 that followed the body; empty if there was none."""


class BodyExpectation(msgspec.Struct, frozen=True):
    """
    The declarations of a request about its body.

    @ivar length: Bytes after decoding, if declared.
    @ivar md5: The 16 bytes of C{Content-MD5}.
    @ivar payloadHash: The signed SHA-256 in lower-case hexadecimal.
    @ivar checksum: The checksum that a header or the trailer carries.
    @ivar algorithm: The checksum to compute if there is none.
    @ivar decoder: Decodes the encoding of the transfer.
    @ivar limit: Largest size after decoding, in bytes.
    @ivar turn: Waits until others were served, while the decoder is behind.
    """

    length: int | None = None
    md5: bytes | None = None
    payloadHash: str | None = None
    checksum: ExpectedChecksum | None = None
    algorithm: str = DEFAULT_ALGORITHM
    decoder: BodyDecoder | None = None
    limit: int = PUT_LIMIT
    turn: Callable[[], Awaitable[object]] | None = None

    def requireDigest(self) -> None:
        """
        Reject a body whose bytes no declaration verifies.

        A checksum, a signed hash or signed chunks are as good as a C{Content-MD5}.

        @raise InvalidRequest: No declaration verifies the bytes, or the choice is invalid.
        """
        isSigned = self.decoder is not None and self.decoder.isSigned
        if not (self.md5 or self.payloadHash or self.checksum or isSigned):
            message = "Missing required header for this request: Content-MD5"
            raise errors.InvalidRequest(message)


class BodyHasher:
    """Decodes, counts and hashes a body, and verifies it at its end."""

    __slots__ = ("_algorithm", "_checksum", "_expectation", "_md5", "_sha256", "_size")

    def __init__(self, expectation: BodyExpectation) -> None:
        self._expectation = expectation
        expected = expectation.checksum
        self._algorithm = expected.algorithm if expected is not None else expectation.algorithm
        self._md5 = newHasher("MD5")
        self._checksum = newHasher(self._algorithm)
        self._sha256 = None if expectation.payloadHash is None else newHasher("SHA256")
        self._size = 0

    @property
    def isBehind(self) -> bool:
        """Whether received bytes are left, for calls of L{resume}."""
        decoder = self._expectation.decoder
        return decoder is not None and decoder.isBehind

    async def resume(self) -> Sequence[bytes]:
        """Let others be served, then continue as L{update} does."""
        if self._expectation.turn is not None:
            await self._expectation.turn()
        return self.update(b"")

    def update(self, chunk: bytes) -> Sequence[bytes]:
        """
        Decode, count and hash the next bytes of the body.

        @return: The decoded pieces; there may be more, see L{isBehind}.
        @raise EntityTooLarge: The body exceeds its limit; also the errors of the decoder.
        """
        expectation, sha256 = self._expectation, self._sha256
        pieces = (chunk,) if expectation.decoder is None else expectation.decoder.feed(chunk)
        for piece in pieces:
            self._size += len(piece)
            if self._size > expectation.limit:
                raise errors.EntityTooLarge()
            self._md5.update(piece)
            self._checksum.update(piece)
            if sha256 is not None:
                sha256.update(piece)
        return pieces

    def verify(self) -> tuple[str, Checksum]:
        """
        Verify the whole body against the declarations of the request.

        @return: The MD5 in hexadecimal, and the checksum to store.
        @raise DomainError: L{BodyLengthMismatch<errors.BodyLengthMismatch>},
            L{BadDigest<errors.BadDigest>}, L{PayloadHashMismatch<errors.PayloadHashMismatch>}.
        """
        expectation, decoder = self._expectation, self._expectation.decoder
        if decoder is not None:
            decoder.finish()
        if expectation.length is not None and self._size != expectation.length:
            raise errors.BodyLengthMismatch()
        md5 = self._md5.digest()
        if expectation.md5 is not None and not compare_digest(expectation.md5, md5):
            raise errors.BadDigest(
                expectedDigest=encodeDigest(expectation.md5), calculatedDigest=encodeDigest(md5)
            )
        if expectation.payloadHash is not None and self._sha256 is not None:
            sha256 = self._sha256.digest().hex()
            if not compare_digest(expectation.payloadHash, sha256):
                raise errors.PayloadHashMismatch(
                    expectedHash=expectation.payloadHash, calculatedHash=sha256
                )
        checksum = encodeDigest(self._checksum.digest())
        if expectation.checksum is not None:
            value = expectation.checksum.value
            if value is None:
                value = self._trailingValue()
            if not compare_digest(value, checksum):
                text = f"The {self._algorithm} you specified did not match the calculated checksum."
                raise errors.BadDigest(text)
        return md5.hex(), Checksum(self._algorithm, checksum)

    def _trailingValue(self) -> str:
        decoder, name = self._expectation.decoder, self._algorithm
        sent = b"" if decoder is None else decoder.trailingChecksum(name)
        digest = decodeDigest(sent, ALGORITHMS[name].size)
        if digest is None:
            text = f"Value for x-amz-checksum-{name.lower()} trailing header is invalid."
            raise errors.InvalidRequest(text)
        return encodeDigest(digest)


class ReadableBody(Protocol):
    """The body of a request, a form's file, or the items of a stream."""

    def readAvailable(self) -> bytes | None:
        """Return the whole body if it has already arrived; otherwise L{None}."""

    def __aiter__(self) -> AsyncIterator[bytes]:
        """Iterate over the pieces; each piece is received when it is read."""


class IngestedBody(msgspec.Struct, frozen=True):
    """
    A complete body, durable or small enough for the catalog.

    @ivar etag: MD5 of the plain bytes in hexadecimal.
    @ivar checksum: The checksum of the plain bytes.
    @ivar sink: The finished sink of the content; L{None} for inline content.
    @ivar objectKey: The key that sealed the content; L{None} for plain bytes.
    """

    content: Content
    etag: str
    checksum: Checksum
    sink: IBlobWriter | None = None
    objectKey: "ObjectKey | None" = None


async def ingest(
    body: ReadableBody,
    expectation: BodyExpectation,
    blobs: IBlobStore,
    inlineLimit: int,
    bucket: str,
    objectKey: "ObjectKey | None" = None,
) -> IngestedBody:
    """
    Read, verify and store a body.

    @param blobs: The store for larger bodies.
    @param inlineLimit: Largest body that becomes inline content, in bytes.
    @param bucket: The bucket of the object.
    @param objectKey: Seals the body; L{None} stores it as it is.
    @raise DomainError: The body does not match its declarations.
    """
    ready = body.readAvailable()
    hasher = BodyHasher(expectation)
    if ready is not None and len(ready) <= inlineLimit:
        # A small body arrives with its head: no sink, no file, no wait.
        pieces = [*hasher.update(ready)]
        while hasher.isBehind:
            pieces += await hasher.resume()
        data = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        etag, checksum = hasher.verify()
        if objectKey is None:
            return IngestedBody(Content(len(data), data), etag, checksum)
        content = Content(len(data), objectKey.seal(data))
        return IngestedBody(content, etag, checksum, None, objectKey)
    sealer = None if objectKey is None else objectKey.sealer()
    sink = blobs.writer(inlineLimit, expectation.length, bucket, sealer)

    async def store(chunk: bytes) -> None:
        pieces = hasher.update(chunk)
        while True:
            for piece in pieces:
                wait = sink.write(piece)
                if wait is not None:
                    await wait
            if not hasher.isBehind:
                return
            pieces = await hasher.resume()

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
    return IngestedBody(content, etag, checksum, sink, objectKey)


def checksumKind(algorithm: str, requested: str | None) -> str:
    """
    Choose the checksum kind of an object in parts.

    @param requested: The client's choice; L{None} for the default.
    @raise InvalidRequest: No declaration verifies the bytes, or the choice is invalid.
    """
    allowed = ALGORITHMS[algorithm].kinds
    if requested is None:
        return allowed[0]
    if requested not in (FULL_OBJECT, COMPOSITE):
        raise errors.InvalidRequest("Value for x-amz-checksum-type header is invalid.")
    if requested not in allowed:
        raise errors.InvalidRequest(
            f"The {requested} checksum type cannot be used with the {algorithm.lower()} checksum "
            "algorithm.",
        )
    return requested


def compositeChecksum(algorithm: str, values: Sequence[str]) -> str:
    """
    Compute the checksum of the parts' checksums.

    @param values: Base64, in the order of the parts.
    @return: Base64, C{-} and the number of parts.
    """
    hasher = newHasher(algorithm)
    for value in values:
        hasher.update(_digest(algorithm, value))
    return f"{encodeDigest(hasher.digest())}-{len(values)}"


def fullObjectChecksum(algorithm: str, parts: Iterable[tuple[str, int]]) -> str:
    """
    Combine the CRCs of parts to the CRC of the whole object, without the data.

    @param parts: Value in Base64 and size of each part, in order.
    @return: Base64.
    """
    known = ALGORITHMS[algorithm]
    if known.combine is None:
        raise ValueError(f"values of {algorithm} cannot be combined")
    total = 0
    for value, size in parts:
        total = known.combine(total, int.from_bytes(_digest(algorithm, value), "big"), size)
    return encodeDigest(total.to_bytes(known.size, "big"))


def _digest(algorithm: str, value: str) -> bytes:
    digest = decodeDigest(value.encode(), ALGORITHMS[algorithm].size)
    if digest is None:
        raise ValueError(f"not a value of {algorithm}")
    return digest


def multipartETag(etags: Sequence[str]) -> str:
    """
    Compute the ETag of an object in parts: the MD5 of their MD5s, and their number.

    @param etags: The ETags of the parts in order, in hexadecimal without quotation marks.
    """
    binary = b"".join(map(bytes.fromhex, etags))
    return f"{hashlib.md5(binary, usedforsecurity=False).hexdigest()}-{len(etags)}"
