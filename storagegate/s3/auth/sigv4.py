"""
Signature version 4: check that a request comes from who it claims to be from::

    string to sign = "AWS4-HMAC-SHA256" LF timestamp LF scope LF sha256(canonical request)
    signature      = HMAC-SHA256(signing key, string to sign), in hexadecimal

Claims are read by L{parseHeaderClaim} and L{parseQueryClaim}; forms are in C{sigv4post}.

Claims of browser forms: the policy is what is signed::

    x-amz-algorithm x-amz-credential x-amz-date x-amz-signature policy
    signature = HMAC-SHA256(signing key, policy as it was sent)
"""

from collections.abc import Mapping
from hashlib import sha256
from typing import Protocol

from storagegate.s3.auth.canonical import (
    SignedRequest,
    SigningKeys,
    canonicalRequest,
    sameSignature,
    sign,
)
from storagegate.s3.auth.claims import (
    ALGORITHM,
    UNSIGNED_PAYLOAD,
    SignatureParams,
    SignatureSource,
    parseCredential,
)
from storagegate.s3.errors import S3Error, invalidArgument
from storagegate.s3.headers import isoSeconds, parseAmzDate

SERVICE = "s3"

SKEW_LIMIT = 900
"""Seconds by which a client's clock may be wrong: S3's own quarter of an hour."""


def verify(
    claim: SignatureParams,
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


def checkScope(claim: SignatureParams, region: str) -> None:
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


def _checkTime(claim: SignatureParams, now: float) -> None:
    ahead = claim.seconds - now
    if claim.source is not SignatureSource.QUERY:
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


def _checkCoverage(claim: SignatureParams, headers: Mapping[bytes, bytes]) -> None:
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


class SigV4Signer(Protocol):
    """Whoever a claim of any kind names."""

    @property
    def accessKey(self) -> str: ...
    @property
    def signature(self) -> str: ...


def unknownKey(claim: SigV4Signer) -> S3Error:
    """Make the error for an access key that was never issued."""
    return S3Error("InvalidAccessKeyId", fields={"AWSAccessKeyId": claim.accessKey})


def wrongSignature(
    claim: SigV4Signer, stringToSign: str, details: Mapping[str, str] | None = None
) -> S3Error:
    """Make the error for a wrong signature; it shows what was signed, as S3's does."""
    fields = {
        "AWSAccessKeyId": claim.accessKey,
        "StringToSign": stringToSign,
        "SignatureProvided": claim.signature,
    }
    return S3Error("SignatureDoesNotMatch", fields=fields | dict(details or {}))


_REQUIRED = ("x-amz-signature", "x-amz-algorithm", "x-amz-credential", "x-amz-date")


def isSignedForm(fields: Mapping[str, str]) -> bool:
    """Tell whether a form's fields carry a claim, be it whole or in part."""
    return any(name in fields for name in _REQUIRED)


def missingField(name: str) -> S3Error:
    """Make the error for a field that a form has to have."""
    text = f"Bucket POST must contain a field named '{name}'."
    hint = "  If it is specified, please check the order of the fields."
    return invalidArgument(name, "", text + hint)


def parseFormClaim(fields: Mapping[str, str]) -> SignatureParams:
    """
    Read the claim of a form.

    @param fields: Values by lower-case name.
    @raise S3Error: C{AccessDenied} for a form that says nothing of a signer or has no policy,
        C{InvalidArgument} for a field that lacks or cannot be read.
    """
    if not fields.get("policy") or not isSignedForm(fields):
        raise S3Error("AccessDenied")
    for name in _REQUIRED:
        if not fields.get(name, ""):
            raise missingField(name)
    if fields["x-amz-algorithm"] != ALGORITHM:
        text = f"Only {ALGORITHM} is supported"
        raise invalidArgument("X-Amz-Algorithm", fields["x-amz-algorithm"], text)
    timestamp = fields["x-amz-date"]
    seconds = parseAmzDate(timestamp)
    if seconds is None:
        text = "X-Amz-Date must be formatted via ISO8601 Long format"
        raise invalidArgument("X-Amz-Date", timestamp, text)
    return SignatureParams(
        SignatureSource.FORM,
        *parseCredential(fields["x-amz-credential"], SignatureSource.FORM),
        (),
        fields["x-amz-signature"],
        timestamp,
        seconds,
        UNSIGNED_PAYLOAD,
    )


def verifyForm(
    claim: SignatureParams, policyBase64: str, secret: str | None, region: str, keys: SigningKeys
) -> None:
    """
    Check the claim of a form. How long it is good for is for the policy to say.

    @param policyBase64: The field C{policy} as it was sent.
    @param secret: The secret of the claimed access key; L{None} if there is no such key.
    @raise S3Error: As L{verify<storagegate.s3.auth.sigv4.verify>} raises them.
    """
    checkScope(claim, region)
    signingKey = keys.find(secret, claim.date, claim.region, claim.service)
    matches = sameSignature(sign(signingKey, policyBase64.encode()), claim.signature)
    if secret is None:
        raise unknownKey(claim)
    if not matches:
        raise wrongSignature(claim, policyBase64)
