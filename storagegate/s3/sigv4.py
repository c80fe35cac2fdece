"""
Signature version 4: check that a request comes from who it claims to be from::

    string to sign = "AWS4-HMAC-SHA256" LF timestamp LF scope LF sha256(canonical request)
    signature      = HMAC-SHA256(signing key, string to sign), in hexadecimal

Claims are read by L{parseHeaderClaim} and L{parseQueryClaim}; forms are in C{sigv4post}.
"""

from collections.abc import Mapping
from hashlib import sha256
from typing import Protocol

from storagegate.s3.errors import S3Error
from storagegate.s3.sigv4canonical import SignedRequest, canonicalRequest
from storagegate.s3.sigv4claims import (
    ALGORITHM,
    STREAMING,
    STREAMING_SIGNED,
    STREAMING_SIGNED_TRAILER,
    STREAMING_UNSIGNED_TRAILER,
    UNSIGNED,
    UNSIGNED_PAYLOAD,
    Claim,
    Source,
)
from storagegate.s3.sigv4header import parseHeaderClaim
from storagegate.s3.sigv4keys import SigningKeys, sameSignature, sign
from storagegate.s3.sigv4query import isPresigned, parseQueryClaim
from storagegate.s3.timestamps import isoSeconds

__all__ = [
    "STREAMING",
    "STREAMING_SIGNED",
    "STREAMING_SIGNED_TRAILER",
    "STREAMING_UNSIGNED_TRAILER",
    "UNSIGNED",
    "UNSIGNED_PAYLOAD",
    "Claim",
    "SignedRequest",
    "SigningKeys",
    "isPresigned",
    "parseHeaderClaim",
    "parseQueryClaim",
    "verify",
]

SERVICE = "s3"

SKEW_LIMIT = 900
"""Seconds by which a client's clock may be wrong: S3's own quarter of an hour."""


def verify(
    claim: Claim,
    request: SignedRequest,
    secret: str | None,
    region: str,
    now: float,
    keys: SigningKeys,
) -> bytes:
    """
    Check a claim.

    @param secret: The secret of the claimed access key. L{None} if there is no such key: the
        signature is then computed all the same, so that the answer takes no less time.
    @param region: The one that we serve.
    @param now: Seconds since the epoch.
    @return: The signing key, which the chunks of the body may be signed with too.
    @raise S3Error: If the scope is another's, the time is wrong, a header that had to be signed is
        not, the key is unknown (C{InvalidAccessKeyId}) or the signature wrong
        (C{SignatureDoesNotMatch}).
    """
    checkScope(claim, region)
    _checkTime(claim, now)
    _checkCoverage(claim, request.headers)
    canonical = canonicalRequest(request, claim.signedHeaders, claim.payloadHash)
    digest = sha256(canonical).hexdigest()
    stringToSign = f"{ALGORITHM}\n{claim.timestamp}\n{claim.scope}\n{digest}"
    signingKey = keys.find(secret, claim.date, claim.region, claim.service)
    matches = sameSignature(sign(signingKey, stringToSign.encode()), claim.signature)
    if secret is None:
        raise unknownKey(claim)
    if not matches:
        details = {"CanonicalRequest": canonical.decode("utf-8", "backslashreplace")}
        raise wrongSignature(claim, stringToSign, details)
    return signingKey


def checkScope(claim: Claim, region: str) -> None:
    """
    Check that a signature was made for this service, this region, and its own day.

    @raise S3Error: With a sentence of its own for each.
    """
    if claim.service != SERVICE:
        detail = f'incorrect service "{claim.service}". This endpoint belongs to "{SERVICE}".'
        raise claim.source.malformed(detail)
    if claim.region != region:
        detail = f"the region '{claim.region}' is wrong; expecting '{region}'"
        raise claim.source.malformed(detail, {"Region": region})
    if not claim.timestamp.startswith(claim.date):
        raise S3Error(
            "SignatureDoesNotMatch",
            f"Date in Credential scope does not match YYYYMMDD from ISO-8601 version of date "
            f"from HTTP: '{claim.date}' != '{claim.timestamp[:8]}'.",
        )


def _checkTime(claim: Claim, now: float) -> None:
    ahead = claim.seconds - now
    if claim.source is not Source.QUERY:
        if abs(ahead) > SKEW_LIMIT:
            fields = {
                "RequestTime": claim.timestamp,
                "ServerTime": isoSeconds(int(now)),
                "MaxAllowedSkewMilliseconds": str(SKEW_LIMIT * 1000),
            }
            raise S3Error("RequestTimeTooSkewed", fields=fields)
    elif ahead > SKEW_LIMIT:
        raise S3Error("AccessDenied", "Request is not yet valid")
    elif now > claim.seconds + claim.expires:
        fields = {
            "X-Amz-Expires": str(claim.expires),
            "Expires": isoSeconds(claim.seconds + claim.expires),
            "ServerTime": isoSeconds(int(now)),
        }
        raise S3Error("AccessDenied", "Request has expired", fields=fields)


def _checkCoverage(claim: Claim, headers: Mapping[bytes, bytes]) -> None:
    signed = claim.signedHeaders
    missing = [name for name in headers if name.startswith(b"x-amz-") and name not in signed]
    if b"host" not in signed:
        missing.append(b"host")
    if missing:
        raise S3Error(
            "AccessDenied",
            "There were headers present in the request which were not signed",
            fields={"HeadersNotSigned": ", ".join(name.decode("latin-1") for name in missing)},
        )


class Signer(Protocol):
    """Whoever a claim of any kind names."""

    @property
    def accessKey(self) -> str: ...
    @property
    def signature(self) -> str: ...


def unknownKey(claim: Signer) -> S3Error:
    """Make the error for an access key that was never issued."""
    return S3Error("InvalidAccessKeyId", fields={"AWSAccessKeyId": claim.accessKey})


def wrongSignature(
    claim: Signer, stringToSign: str, details: Mapping[str, str] | None = None
) -> S3Error:
    """Make the error for a wrong signature; it shows what was signed, as S3's does."""
    fields = {
        "AWSAccessKeyId": claim.accessKey,
        "StringToSign": stringToSign,
        "SignatureProvided": claim.signature,
    }
    return S3Error("SignatureDoesNotMatch", fields=fields | dict(details or {}))
