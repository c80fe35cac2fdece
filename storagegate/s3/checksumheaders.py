"""
The checksums that a request asks for::

    x-amz-checksum-<algorithm>: <Base64>        the value, in a header
    x-amz-trailer: x-amz-checksum-<algorithm>   the value comes behind the body
    x-amz-sdk-checksum-algorithm: <ALGORITHM>   has to agree with either
    Content-MD5: <Base64>                       besides, or instead
"""

from collections.abc import Mapping

from attrs import frozen

from storagegate.s3.checksums import (
    ALGORITHMS,
    MD5_SIZE,
    Algorithm,
    decodeDigest,
    encodeDigest,
    headerName,
)
from storagegate.s3.errors import S3Error

_PREFIX = b"x-amz-checksum-"
_SETTINGS = frozenset({b"x-amz-checksum-algorithm", b"x-amz-checksum-type", b"x-amz-checksum-mode"})
_BY_HEADER: Mapping[bytes, Algorithm] = {known.header: known for known in ALGORITHMS.values()}


@frozen
class Expectation:
    """
    The checksum that a body has to have.

    @ivar value: Base64; L{None} if it comes in the trailer.
    """

    algorithm: str
    value: str | None


def expectedChecksum(headers: Mapping[bytes, bytes]) -> Expectation | None:
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
        expectation = Expectation(*found)
    elif trailing is not None:
        expectation = Expectation(trailing, None)
    _checkAgreement(headers, expectation)
    return expectation


def _checkAgreement(headers: Mapping[bytes, bytes], expectation: Expectation | None) -> None:
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
