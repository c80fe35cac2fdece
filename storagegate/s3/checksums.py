"""
Bodies of S3 requests: checksums, the declarations of a request about its body, and ingestion.

Values travel in Base64, CRCs as big-endian numbers. A request declares them in headers::

    x-amz-checksum-<algorithm>: <Base64>        the value, in a header
    x-amz-trailer: x-amz-checksum-<algorithm>   the value follows the body
    x-amz-sdk-checksum-algorithm: <ALGORITHM>   must agree with either
    Content-MD5: <Base64>                       in addition, or instead

For an object in parts, a C{COMPOSITE} checksum is the checksum of the parts' checksums; a
C{FULL_OBJECT} checksum is the checksum of the data itself, which only CRCs can be combined to. S3's
table ("Checking object integrity")::

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
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from functools import lru_cache, partial
from hmac import compare_digest
from typing import TYPE_CHECKING, Protocol

import msgspec
from msgspec import Struct

from storagegate.core import files
from storagegate.net.http.parser import RequestBody
from storagegate.s3.errors import S3Error
from storagegate.storage.blobinterfaces import Hasher, IBlobStore, IBlobWriter
from storagegate.storage.records import Checksum, Content

if TYPE_CHECKING:
    from storagegate.s3.chunked import AwsChunkedDecoder

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
    @ivar header: The lower-case name of the header that carries values.
    @ivar size: Bytes of a value.
    @ivar combine: For a CRC: computes the value over two runs of data from both values and the
        length of the second run.
    @ivar kinds: The checksum kinds for an object in parts; the first is the default.
    """

    name: str
    header: bytes
    size: int
    kinds: tuple[str, ...]
    combine: Callable[[int, int, int], int] | None = None


ALGORITHMS: Mapping[str, Algorithm] = {
    name: Algorithm(name, b"x-amz-checksum-" + name.lower().encode(), size, kinds, combine)
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

    def update(self, data: bytes, /) -> None:
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


_PREFIX = b"x-amz-checksum-"
_SETTINGS = frozenset({b"x-amz-checksum-algorithm", b"x-amz-checksum-type", b"x-amz-checksum-mode"})
_BY_HEADER: Mapping[bytes, Algorithm] = {known.header: known for known in ALGORITHMS.values()}


# A client sends the same fields with each request.
@lru_cache(maxsize=64)
def _checksumNames(names: tuple[bytes, ...]) -> tuple[bytes, ...]:
    return tuple(name for name in names if name.startswith(_PREFIX) and name not in _SETTINGS)


class ExpectedChecksum(Struct, frozen=True):
    """
    The checksum that a body must have.

    @ivar value: Base64; L{None} if the trailer carries the value.
    """

    algorithm: str
    value: str | None


def expectedChecksum(headers: Mapping[bytes, bytes]) -> ExpectedChecksum | None:
    """
    Parse the checksum that a body must have.

    @param headers: Values by lower-case name.
    @return: L{None} if the request names no checksum.
    @raise S3Error: C{InvalidRequest} for invalid or contradictory headers.
    """
    found = declared(headers)
    trailer = headers.get(b"x-amz-trailer")
    expected = None
    if found is not None and trailer is not None:
        raise S3Error("InvalidRequest", "Expecting a single x-amz-checksum- header")
    if found is not None:
        expected = ExpectedChecksum(*found)
    elif trailer is not None:
        known = _BY_HEADER.get(trailer.strip().lower())
        if known is None:
            text = "The value specified in the x-amz-trailer header is not supported"
            raise S3Error("InvalidRequest", text)
        expected = ExpectedChecksum(known.name, None)
    sdkAlgorithm = headers.get(b"x-amz-sdk-checksum-algorithm")
    if sdkAlgorithm is None:
        return expected
    if expected is None:
        raise S3Error(
            "InvalidRequest",
            "x-amz-sdk-checksum-algorithm specified, but no corresponding x-amz-checksum-* or "
            "x-amz-trailer headers were found.",
        )
    if sdkAlgorithm.upper() != expected.algorithm.encode():
        text = "Value for x-amz-sdk-checksum-algorithm header is invalid."
        raise S3Error("InvalidRequest", text)
    return expected


def declared(headers: Mapping[bytes, bytes], hasCount: bool = False) -> tuple[str, str] | None:
    """
    Parse the checksum that a request carries in a header.

    @param headers: Values by lower-case name.
    @param hasCount: Whether C{-} and the number of parts may follow the value.
    @return: Algorithm and value in Base64; L{None} if the headers have none.
    @raise S3Error: C{InvalidRequest} for several checksums, an unknown algorithm or an invalid
        value.
    """
    names = _checksumNames(tuple(headers))
    if not names:
        return None
    if len(names) > 1:
        raise S3Error(
            "InvalidRequest",
            "Expecting a single x-amz-checksum- header. Multiple checksum Types are not allowed.",
        )
    known = _BY_HEADER.get(names[0])
    if known is None:
        text = "The algorithm type you specified in x-amz-checksum- header is invalid."
        raise S3Error("InvalidRequest", text)
    value, dash, count = headers[names[0]], b"", b""
    if hasCount:
        value, dash, count = value.partition(b"-")
    return known.name, _value(known, value, "header") + (dash + count).decode("latin-1")


def _value(known: Algorithm, value: bytes, source: str) -> str:
    digest = decodeDigest(value, known.size)
    if digest is None:
        text = f"Value for {known.header.decode()} {source} is invalid."
        raise S3Error("InvalidRequest", text)
    return encodeDigest(digest)


def contentMD5(headers: Mapping[bytes, bytes]) -> bytes | None:
    """
    Parse C{Content-MD5}.

    @param headers: Values by lower-case name.
    @return: The 16 bytes; L{None} if the header is absent.
    @raise S3Error: C{InvalidDigest}.
    """
    value = headers.get(b"content-md5")
    if value is None:
        return None
    digest = decodeDigest(value, 16)
    if digest is None:
        raise S3Error("InvalidDigest", fields={"Content-MD5": value.decode("latin-1")})
    return digest


class BodyExpectation(msgspec.Struct, frozen=True):
    """
    The declarations of a request about its body.

    @ivar length: Bytes after decoding, if declared.
    @ivar md5: The 16 bytes of C{Content-MD5}.
    @ivar payloadHash: The signed SHA-256 in lower-case hexadecimal.
    @ivar checksum: The checksum that a header or the trailer carries.
    @ivar algorithm: The checksum to compute if there is none.
    @ivar decoder: Decodes C{aws-chunked}.
    @ivar limit: Largest size after decoding, in bytes.
    """

    length: int | None = None
    md5: bytes | None = None
    payloadHash: str | None = None
    checksum: ExpectedChecksum | None = None
    algorithm: str = DEFAULT_ALGORITHM
    decoder: "AwsChunkedDecoder | None" = None
    limit: int = PUT_LIMIT

    def requireDigest(self) -> None:
        """
        Reject a body whose bytes no declaration verifies.

        A checksum, a signed hash or signed chunks are as good as a C{Content-MD5}.

        @raise S3Error: C{InvalidRequest}.
        """
        isSigned = self.decoder is not None and self.decoder.isSigned
        if not (self.md5 or self.payloadHash or self.checksum or isSigned):
            message = "Missing required header for this request: Content-MD5"
            raise S3Error("InvalidRequest", message)


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

    def update(self, chunk: bytes) -> Sequence[bytes]:
        """
        Decode, count and hash the next bytes of the body.

        @return: The decoded pieces.
        @raise S3Error: C{EntityTooLarge} beyond the limit; also the errors of the decoder.
        """
        expectation, sha256 = self._expectation, self._sha256
        pieces = (chunk,) if expectation.decoder is None else expectation.decoder.feed(chunk)
        for piece in pieces:
            self._size += len(piece)
            if self._size > expectation.limit:
                raise S3Error("EntityTooLarge")
            self._md5.update(piece)
            self._checksum.update(piece)
            if sha256 is not None:
                sha256.update(piece)
        return pieces

    def verify(self) -> tuple[str, Checksum]:
        """
        Verify the whole body against the declarations of the request.

        @return: The MD5 in hexadecimal, and the checksum to store.
        @raise S3Error: C{IncompleteBody}, C{BadDigest}, C{XAmzContentSHA256Mismatch}.
        """
        expectation, decoder = self._expectation, self._expectation.decoder
        if decoder is not None:
            decoder.finish()
        if expectation.length is not None and self._size != expectation.length:
            raise S3Error("IncompleteBody")
        md5 = self._md5.digest()
        if expectation.md5 is not None and not compare_digest(expectation.md5, md5):
            fields = {
                "ExpectedDigest": encodeDigest(expectation.md5),
                "CalculatedDigest": encodeDigest(md5),
            }
            raise S3Error("BadDigest", fields=fields)
        if expectation.payloadHash is not None and self._sha256 is not None:
            sha256 = self._sha256.digest().hex()
            if not compare_digest(expectation.payloadHash, sha256):
                fields = {
                    "ClientComputedContentSHA256": expectation.payloadHash,
                    "S3ComputedContentSHA256": sha256,
                }
                raise S3Error("XAmzContentSHA256Mismatch", fields=fields)
        checksum = encodeDigest(self._checksum.digest())
        if expectation.checksum is not None:
            value = expectation.checksum.value
            if value is None:
                known = ALGORITHMS[self._algorithm]
                trailers = {} if decoder is None else decoder.trailers
                value = _value(known, trailers.get(known.header, b""), "trailing header")
            if not compare_digest(value, checksum):
                text = f"The {self._algorithm} you specified did not match the calculated checksum."
                raise S3Error("BadDigest", text)
        return md5.hex(), Checksum(self._algorithm, checksum)


class ReadableBody(Protocol):
    """The body of a request, a form's file, or the items of a stream."""

    def readAvailable(self) -> bytes | None:
        """Return the whole body if it has already arrived; otherwise L{None}."""

    def __aiter__(self) -> AsyncIterator[bytes]:
        """Iterate over the pieces; each piece is received when it is read."""


class IngestedBody(msgspec.Struct, frozen=True):
    """
    A complete body, durable or small enough for the catalog.

    @ivar etag: MD5 in hexadecimal.
    @ivar sink: The finished sink of the content; L{None} for inline content.
    """

    content: Content
    etag: str
    checksum: Checksum
    sink: IBlobWriter | None = None


async def ingest(
    body: ReadableBody,
    expectation: BodyExpectation,
    blobs: IBlobStore,
    inlineLimit: int,
    bucket: str,
) -> IngestedBody:
    """
    Read, verify and store a body.

    @param blobs: The store for larger bodies.
    @param inlineLimit: Largest body that becomes inline content, in bytes.
    @param bucket: The bucket of the object.
    @raise S3Error: The body does not match its declarations.
    """
    ready = body.readAvailable()
    hasher = BodyHasher(expectation)
    if ready is not None and len(ready) <= inlineLimit:
        # A small body arrives with its head: no sink, no file, no wait.
        data = b"".join(hasher.update(ready))
        etag, checksum = hasher.verify()
        return IngestedBody(Content(len(data), data), etag, checksum)
    sink = blobs.writer(inlineLimit, expectation.length, bucket)

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


async def gather(body: RequestBody, expectation: BodyExpectation) -> bytes:
    """
    Read a small body into memory, with the same checks as L{ingest}, up to the limit of its
    expectation.

    @raise TooMuchHeld: All requests together hold too much memory.
    """
    hasher = BodyHasher(expectation)
    pieces: list[bytes] = []
    try:
        async for chunk in body:
            pieces += hasher.update(chunk)
            body.hold(body.taken)
        hasher.verify()
        return b"".join(pieces)
    finally:
        body.hold(0)


def requestedKind(headers: Mapping[bytes, bytes]) -> tuple[str, str] | None:
    """
    Parse the checksum that the object of a multipart upload or a copy must have.

    @param headers: Values by lower-case name.
    @return: Algorithm and kind; L{None} if the client names no checksum.
    @raise S3Error: C{InvalidRequest} for an unknown algorithm or kind, or an invalid combination.
    """
    algorithm = headers.get(b"x-amz-checksum-algorithm")
    if algorithm is None:
        if requestedType(headers) is None:
            return None
        raise S3Error(
            "InvalidRequest",
            "The x-amz-checksum-type header can only be used with the x-amz-checksum-algorithm "
            "header.",
        )
    name = algorithm.decode("latin-1").upper()
    if name not in ALGORITHMS:
        raise S3Error(
            "InvalidRequest",
            "Checksum algorithm provided is unsupported. Please try again with any of the valid "
            f"types: [{', '.join(ALGORITHMS)}]",
        )
    return name, checksumKind(name, requestedType(headers))


def requestedType(headers: Mapping[bytes, bytes]) -> str | None:
    """Return C{x-amz-checksum-type} in upper case; L{None} if it is absent."""
    kind = headers.get(b"x-amz-checksum-type")
    return None if kind is None else kind.decode("latin-1").upper()


def checksumKind(algorithm: str, requested: str | None) -> str:
    """
    Choose the checksum kind of an object in parts.

    @param requested: The client's choice; L{None} for the default.
    @raise S3Error: C{InvalidRequest}.
    """
    allowed = ALGORITHMS[algorithm].kinds
    if requested is None:
        return allowed[0]
    if requested not in (FULL_OBJECT, COMPOSITE):
        raise S3Error("InvalidRequest", "Value for x-amz-checksum-type header is invalid.")
    if requested not in allowed:
        raise S3Error(
            "InvalidRequest",
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
