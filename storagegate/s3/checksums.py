"""
The checksums of S3: computing them, and comparing them with what a client sent.

Values travel in Base64, CRCs as big-endian numbers. What the headers of a request ask for is read
in C{checksumheaders}, checksums of objects in parts are made in C{partchecksums}.
"""

import hashlib
from base64 import b64encode
from binascii import Error, a2b_base64
from collections.abc import Callable, Mapping
from hmac import compare_digest
from typing import Protocol

from attrs import frozen

from storagegate.core import crcs
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
        Algorithm("CRC32", b"x-amz-checksum-crc32", 4, crcs.crc32, crcs.combineCRC32),
        Algorithm("CRC32C", b"x-amz-checksum-crc32c", 4, crcs.crc32c, crcs.combineCRC32C),
        Algorithm(
            "CRC64NVME", b"x-amz-checksum-crc64nvme", 8, crcs.crc64nvme, crcs.combineCRC64NVME
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
