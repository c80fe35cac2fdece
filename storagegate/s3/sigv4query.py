"""
Claims of presigned URLs, in the query::

    X-Amz-Algorithm X-Amz-Credential X-Amz-Date X-Amz-Expires X-Amz-SignedHeaders X-Amz-Signature
    and, if the payload is signed too, X-Amz-Content-Sha256 in any case; each once, its name as here
"""

from collections.abc import Mapping

from storagegate.core.scalars import parseDecimal
from storagegate.s3.dates import parseAmzDate
from storagegate.s3.errors import S3Error
from storagegate.s3.sigv4canonical import SIGNATURE_PARAMETER, decodeComponent
from storagegate.s3.sigv4claims import (
    ALGORITHM,
    UNSIGNED_PAYLOAD,
    Claim,
    Source,
    parseCredential,
    parsePayloadHash,
    parseSignedHeaders,
)

EXPIRES_LIMIT = 604_800
"""Seconds that a presigned URL may live: a week, for a signing key is not good for longer."""

_ALGORITHM = b"X-Amz-Algorithm"
_CREDENTIAL = b"X-Amz-Credential"
_TIMESTAMP = b"X-Amz-Date"
_EXPIRES = b"X-Amz-Expires"
_SIGNED_HEADERS = b"X-Amz-SignedHeaders"
_CONTENT_SHA256 = b"X-Amz-Content-Sha256"
_REQUIRED = (_ALGORITHM, _CREDENTIAL, _TIMESTAMP, _EXPIRES, _SIGNED_HEADERS, SIGNATURE_PARAMETER)
_MARKS = frozenset({_ALGORITHM, _CREDENTIAL, SIGNATURE_PARAMETER})


def isPresigned(queryString: bytes) -> bool:
    """Tell whether a raw query carries a claim, be it whole or in part."""
    if b"X-Amz-" not in queryString:
        return False
    return any(pair.partition(b"=")[0] in _MARKS for pair in queryString.split(b"&"))


def parseQueryClaim(queryString: bytes, headers: Mapping[bytes, bytes]) -> Claim:
    """
    Read the claim of a presigned URL.

    @param queryString: As it was sent, without the question mark.
    @param headers: Values by lower-case name; the payload's hash may be there.
    @raise S3Error: C{AuthorizationQueryParametersError} for what is missing, comes twice or cannot
        be read.
    """
    found = _parameters(queryString)
    if not all(found.get(name) for name in _REQUIRED):
        raise S3Error("AuthorizationQueryParametersError")
    if found[_ALGORITHM] != ALGORITHM:
        raise _badQuery(f'X-Amz-Algorithm only supports "{ALGORITHM}"')
    credential = parseCredential(found[_CREDENTIAL], Source.QUERY)
    timestamp = found[_TIMESTAMP]
    seconds = parseAmzDate(timestamp)
    if seconds is None:
        form = "yyyyMMdd'T'HHmmss'Z'"
        raise _badQuery(f'X-Amz-Date must be in the ISO8601 Long Format "{form}"')
    return Claim(
        Source.QUERY,
        *credential,
        parseSignedHeaders(found[_SIGNED_HEADERS], Source.QUERY),
        found[SIGNATURE_PARAMETER],
        timestamp,
        seconds,
        _payload(found, headers),
        _expires(found[_EXPIRES]),
    )


def _badQuery(message: str) -> S3Error:
    return S3Error("AuthorizationQueryParametersError", message)


def _parameters(queryString: bytes) -> dict[bytes, str]:
    found: dict[bytes, str] = {}
    for pair in queryString.split(b"&"):
        name, _, value = pair.partition(b"=")
        if name.lower() == b"x-amz-content-sha256":  # an SDK's header, moved here as it was written
            name = _CONTENT_SHA256
        if name in _REQUIRED or name == _CONTENT_SHA256:
            text = decodeComponent(value).decode("latin-1")
            if name in found:
                raise _badQuery(f"{name.decode()} must not be given more than once")
            if not text.isascii():
                raise _badQuery(f"{name.decode()} is not valid")
            found[name] = text
    return found


def _payload(found: Mapping[bytes, str], headers: Mapping[bytes, bytes]) -> str:
    declared = [headers[b"x-amz-content-sha256"]] if b"x-amz-content-sha256" in headers else []
    if _CONTENT_SHA256 in found:
        declared.append(found[_CONTENT_SHA256].encode())
    if not declared:
        return UNSIGNED_PAYLOAD
    payloadHash = parsePayloadHash(declared[0])
    if parsePayloadHash(declared[-1]) != payloadHash:
        raise _badQuery("X-Amz-Content-Sha256 is not the x-amz-content-sha256 header")
    return payloadHash


def _expires(text: str) -> int:
    digits = text.removeprefix("-")
    if not (digits.isascii() and digits.isdigit()):
        raise _badQuery("X-Amz-Expires should be a number")
    if digits != text:
        raise _badQuery("X-Amz-Expires must be non-negative")
    try:
        expires = parseDecimal(digits, EXPIRES_LIMIT)
    except ValueError:
        raise _badQuery(
            "X-Amz-Expires must be less than a week (in seconds); that is, the given "
            f"X-Amz-Expires must be less than {EXPIRES_LIMIT} seconds"
        ) from None
    if expires == 0:
        raise _badQuery("X-Amz-Expires must be at least one second")
    return expires
