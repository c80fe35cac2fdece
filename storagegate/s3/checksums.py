"""
The checksums of S3: computing them, and comparing them with what a client sent.

Values travel in Base64, CRCs as big-endian numbers. What the headers of a request ask for is read
in C{checksumheaders}, checksums of objects in parts are made in C{partchecksums}.

The checksums that a request asks for::

    x-amz-checksum-<algorithm>: <Base64>        the value, in a header
    x-amz-trailer: x-amz-checksum-<algorithm>   the value comes behind the body
    x-amz-sdk-checksum-algorithm: <ALGORITHM>   has to agree with either
    Content-MD5: <Base64>                       besides, or instead

Checksums of objects that came in parts.

A C{COMPOSITE} one is the checksum of the checksums of the parts, a C{FULL_OBJECT} one that of the
data itself; only CRCs can be combined to the latter. S3's table ("Checking object integrity")::

                FULL_OBJECT  COMPOSITE  default
    CRC32       yes          yes        COMPOSITE
    CRC32C      yes          yes        COMPOSITE
    CRC64NVME   yes          no         FULL_OBJECT
    SHA1        no           yes        COMPOSITE
    SHA256      no           yes        COMPOSITE
"""

import hashlib
from base64 import b64encode
from binascii import Error, a2b_base64
from collections.abc import Callable, Iterable, Mapping, Sequence
from hashlib import md5
from hmac import compare_digest
from typing import Protocol

from attrs import frozen

from storagegate.core import files
from storagegate.s3.errors import S3Error


class Hasher(Protocol):
    """Computes one checksum over data that comes in pieces."""

    def update(self, data: bytes, /) -> None:
        """Add the next piece."""

    def digest(self) -> bytes:
        """Give the value as bytes."""

    def base64(self) -> str:
        """Give the value as S3 writes it."""


@frozen
class Algorithm:
    """
    A checksum algorithm of S3.

    @ivar name: As S3 spells it.
    @ivar header: The lower-case name of the header that carries values.
    @ivar size: Bytes of a value.
    @ivar crc: For a CRC: the value over data, given the value before it.
    @ivar combine: For a CRC: the value over two runs of data from the values of both and the
        length of the second.
    """

    name: str
    header: bytes
    size: int
    crc: Callable[[bytes, int], int] | None = None
    combine: Callable[[int, int, int], int] | None = None


ALGORITHMS: Mapping[str, Algorithm] = {
    algorithm.name: algorithm
    for algorithm in (
        Algorithm("CRC32", b"x-amz-checksum-crc32", 4, files.crc32, files.combineCRC32),
        Algorithm("CRC32C", b"x-amz-checksum-crc32c", 4, files.crc32c, files.combineCRC32C),
        Algorithm(
            "CRC64NVME", b"x-amz-checksum-crc64nvme", 8, files.crc64nvme, files.combineCRC64NVME
        ),
        Algorithm("SHA1", b"x-amz-checksum-sha1", 20),
        Algorithm("SHA256", b"x-amz-checksum-sha256", 32),
    )
}

MD5_SIZE = 16


class _CRC:
    __slots__ = ("_function", "_size", "_value")

    def __init__(self, function: Callable[[bytes, int], int], size: int) -> None:
        self._function = function
        self._size = size
        self._value = 0

    def update(self, data: bytes, /) -> None:
        self._value = self._function(data, self._value)

    def digest(self) -> bytes:
        return self._value.to_bytes(self._size, "big")

    def base64(self) -> str:
        return encodeDigest(self.digest())


_CONSTRUCTORS = {"MD5": hashlib.md5, "SHA1": hashlib.sha1, "SHA256": hashlib.sha256}


class _Hash:
    __slots__ = ("_hash", "digest", "update")

    def __init__(self, name: str) -> None:
        # By its own constructor: hashlib.new takes three times as long.
        self._hash = _CONSTRUCTORS[name](usedforsecurity=False)
        self.update = self._hash.update
        self.digest = self._hash.digest

    def base64(self) -> str:
        return encodeDigest(self.digest())


def newHasher(algorithm: str) -> Hasher:
    """
    Begin a checksum.

    @param algorithm: The name of one of L{ALGORITHMS}, or C{"MD5"}.
    """
    known = ALGORITHMS.get(algorithm)
    if known is not None and known.crc is not None:
        return _CRC(known.crc, known.size)
    return _Hash(algorithm)


def headerName(algorithm: str) -> bytes:
    """Give the lower-case name of the header that carries values of an algorithm."""
    return ALGORITHMS[algorithm].header


def encodeDigest(digest: bytes) -> str:
    """Write a value as S3 writes it."""
    return b64encode(digest).decode()


def decodeDigest(value: bytes, size: int) -> bytes | None:
    """
    Read a value.

    @param size: How many bytes it has to have.
    @return: L{None} if it is not Base64 of so many bytes.
    """
    try:
        digest = a2b_base64(value, strict_mode=True)
    except Error:
        return None
    return digest if len(digest) == size else None


def checkChecksum(algorithm: str, declared: str, hasher: Hasher) -> None:
    """
    Compare a computed checksum with the one that the client declared.

    @param declared: Base64, as the functions of C{checksumheaders} return it.
    @raise S3Error: C{BadDigest}.
    """
    if not compare_digest(declared, hasher.base64()):
        text = f"The {algorithm} you specified did not match the calculated checksum."
        raise S3Error("BadDigest", text)


def checkContentMD5(declared: bytes, digest: bytes) -> None:
    """
    Compare a computed MD5 with the one of C{Content-MD5}.

    @raise S3Error: C{BadDigest}.
    """
    if not compare_digest(declared, digest):
        fields = {
            "ExpectedDigest": encodeDigest(declared),
            "CalculatedDigest": encodeDigest(digest),
        }
        raise S3Error("BadDigest", fields=fields)


def checkPayloadHash(payloadHash: str, digest: bytes) -> None:
    """
    Compare the SHA-256 of a body with the one that was signed.

    @param payloadHash: 64 hexadecimal digits of the claim, in any case.
    @raise S3Error: C{XAmzContentSHA256Mismatch}.
    """
    if not compare_digest(payloadHash.lower(), digest.hex()):
        fields = {
            "ClientComputedContentSHA256": payloadHash,
            "S3ComputedContentSHA256": digest.hex(),
        }
        raise S3Error("XAmzContentSHA256Mismatch", fields=fields)


_PREFIX = b"x-amz-checksum-"
_SETTINGS = frozenset({b"x-amz-checksum-algorithm", b"x-amz-checksum-type", b"x-amz-checksum-mode"})
_BY_HEADER: Mapping[bytes, Algorithm] = {known.header: known for known in ALGORITHMS.values()}


@frozen
class ExpectedChecksum:
    """
    The checksum that a body has to have.

    @ivar value: Base64; L{None} if it comes in the trailer.
    """

    algorithm: str
    value: str | None


def expectedChecksum(headers: Mapping[bytes, bytes]) -> ExpectedChecksum | None:
    """
    Read which checksum a body has to have.

    @param headers: Values by lower-case name.
    @return: L{None} if the request asks for none.
    @raise S3Error: C{InvalidRequest} for headers that are wrong or contradict each other.
    """
    found = declared(headers)
    trailing = trailerAlgorithm(headers)
    if found is not None and trailing is not None:
        raise S3Error("InvalidRequest", "Expecting a single x-amz-checksum- header")
    expectation = None
    if found is not None:
        expectation = ExpectedChecksum(*found)
    elif trailing is not None:
        expectation = ExpectedChecksum(trailing, None)
    _checkAgreement(headers, expectation)
    return expectation


def _checkAgreement(headers: Mapping[bytes, bytes], expectation: ExpectedChecksum | None) -> None:
    value = headers.get(b"x-amz-sdk-checksum-algorithm")
    if value is None:
        return
    if expectation is None:
        raise S3Error(
            "InvalidRequest",
            "x-amz-sdk-checksum-algorithm specified, but no corresponding x-amz-checksum-* or "
            "x-amz-trailer headers were found.",
        )
    if value.upper() != expectation.algorithm.encode():
        text = "Value for x-amz-sdk-checksum-algorithm header is invalid."
        raise S3Error("InvalidRequest", text)


def declared(headers: Mapping[bytes, bytes]) -> tuple[str, str] | None:
    """
    Read the checksum that a request carries in a header.

    @return: Algorithm and value in Base64; L{None} if there is none.
    @raise S3Error: C{InvalidRequest} for several of them, for an algorithm that we do not have
        and for a value that is none of it.
    """
    names = [name for name in headers if name.startswith(_PREFIX) and name not in _SETTINGS]
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
    return known.name, _value(known, headers[names[0]], "header")


def trailerAlgorithm(headers: Mapping[bytes, bytes]) -> str | None:
    """
    Read of which algorithm the trailer will bring a value.

    @return: L{None} if no trailer is announced.
    @raise S3Error: C{InvalidRequest} if anything but one checksum is announced.
    """
    value = headers.get(b"x-amz-trailer")
    if value is None:
        return None
    known = _BY_HEADER.get(value.strip().lower())
    if known is None:
        text = "The value specified in the x-amz-trailer header is not supported"
        raise S3Error("InvalidRequest", text)
    return known.name


def trailerChecksum(algorithm: str, trailers: Mapping[bytes, bytes]) -> str:
    """
    Read the value that the trailer brought.

    @param trailers: Values by lower-case name.
    @return: Base64.
    @raise S3Error: C{InvalidRequest} if it is not there or none of the algorithm.
    """
    known = ALGORITHMS[algorithm]
    return _value(known, trailers.get(headerName(algorithm), b""), "trailing header")


def _value(known: Algorithm, value: bytes, place: str) -> str:
    digest = decodeDigest(value, known.size)
    if digest is None:
        text = f"Value for {known.header.decode()} {place} is invalid."
        raise S3Error("InvalidRequest", text)
    return encodeDigest(digest)


def contentMD5(headers: Mapping[bytes, bytes]) -> bytes | None:
    """
    Read C{Content-MD5}.

    @return: The 16 bytes; L{None} if it is not there.
    @raise S3Error: C{InvalidDigest}.
    """
    value = headers.get(b"content-md5")
    if value is None:
        return None
    digest = decodeDigest(value, MD5_SIZE)
    if digest is None:
        raise S3Error("InvalidDigest", fields={"Content-MD5": value.decode("latin-1")})
    return digest


FULL_OBJECT = "FULL_OBJECT"
COMPOSITE = "COMPOSITE"

_KINDS: Mapping[str, tuple[str, ...]] = {
    "CRC32": (COMPOSITE, FULL_OBJECT),
    "CRC32C": (COMPOSITE, FULL_OBJECT),
    "CRC64NVME": (FULL_OBJECT,),
    "SHA1": (COMPOSITE,),
    "SHA256": (COMPOSITE,),
}
"""Which kinds an algorithm allows; the first is the default."""


def requestedKind(headers: Mapping[bytes, bytes]) -> tuple[str, str] | None:
    """
    Read which checksum a multipart upload is to have.

    @param headers: Of CreateMultipartUpload; values by lower-case name.
    @return: Algorithm and kind; L{None} if the client leaves it to us.
    @raise S3Error: C{InvalidRequest} for an algorithm or a kind that is not known, and for two that
        do not go together.
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
    """Read C{x-amz-checksum-type}."""
    kind = headers.get(b"x-amz-checksum-type")
    return None if kind is None else kind.decode("latin-1").upper()


def checksumKind(algorithm: str, requested: str | None) -> str:
    """
    Say which kind of checksum an object in parts has.

    @param requested: What the client asked for; L{None} for the default.
    @raise S3Error: C{InvalidRequest}.
    """
    allowed = _KINDS[algorithm]
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
    Make the checksum of the checksums of parts.

    @param values: Base64, in the order of the parts.
    @return: Base64, C{-} and the number of parts.
    """
    hasher = newHasher(algorithm)
    for value in values:
        hasher.update(_digest(algorithm, value))
    return f"{hasher.base64()}-{len(values)}"


def fullObjectChecksum(algorithm: str, parts: Iterable[tuple[str, int]]) -> str:
    """
    Combine the CRCs of parts to that of the whole, without the data.

    @param parts: Value in Base64 and size of each, in order.
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
    Make the ETag of an object in parts: the MD5 of their MD5s, and how many they are.

    @param etags: Of the parts in order, in hexadecimal without quotation marks.
    """
    binary = b"".join(map(bytes.fromhex, etags))
    return f"{md5(binary, usedforsecurity=False).hexdigest()}-{len(etags)}"
