"""
The declarations of an S3 request about its body.

Values travel in Base64, CRCs as big-endian numbers. A request declares them in headers::

    x-amz-checksum-<algorithm>: <Base64>        the value, in a header
    x-amz-trailer: x-amz-checksum-<algorithm>   the value follows the body
    x-amz-sdk-checksum-algorithm: <ALGORITHM>   must agree with either
    Content-MD5: <Base64>                       in addition, or instead
"""

from collections.abc import Mapping

from storagegate.net.http.parser import RequestBody
from storagegate.objects.checksums import (
    ALGORITHMS,
    BodyExpectation,
    BodyHasher,
    ExpectedChecksum,
    checksumKind,
)
from storagegate.objects.documents.fields import CHECKSUMS_BY_HEADER, declared
from storagegate.s3.errors import S3Error


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
        known = CHECKSUMS_BY_HEADER.get(trailer.strip().lower())
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
            while hasher.isBehind:
                pieces += await hasher.resume()
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
