"""
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

from collections.abc import Iterable, Mapping, Sequence
from hashlib import md5

from storagegate.s3.checksums import ALGORITHMS, decodeDigest, encodeDigest, newHasher
from storagegate.s3.errors import S3Error

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
