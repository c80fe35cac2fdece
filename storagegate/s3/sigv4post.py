"""
Claims of browser forms: the policy is what is signed::

    x-amz-algorithm x-amz-credential x-amz-date x-amz-signature policy
    signature = HMAC-SHA256(signing key, policy as it was sent)
"""

from collections.abc import Mapping

from storagegate.s3.dates import parseAmzDate
from storagegate.s3.errors import S3Error, invalidArgument
from storagegate.s3.sigv4 import checkScope, unknownKey, wrongSignature
from storagegate.s3.sigv4claims import (
    ALGORITHM,
    UNSIGNED_PAYLOAD,
    Claim,
    Source,
    parseCredential,
)
from storagegate.s3.sigv4keys import SigningKeys, sameSignature, sign

_REQUIRED = ("x-amz-signature", "x-amz-algorithm", "x-amz-credential", "x-amz-date")


def isSignedForm(fields: Mapping[str, str]) -> bool:
    """Tell whether a form's fields carry a claim, be it whole or in part."""
    return any(name in fields for name in _REQUIRED)


def missingField(name: str) -> S3Error:
    """Make the error for a field that a form has to have."""
    text = f"Bucket POST must contain a field named '{name}'."
    hint = "  If it is specified, please check the order of the fields."
    return invalidArgument(name, "", text + hint)


def parseFormClaim(fields: Mapping[str, str]) -> Claim:
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
    return Claim(
        Source.FORM,
        *parseCredential(fields["x-amz-credential"], Source.FORM),
        (),
        fields["x-amz-signature"],
        timestamp,
        seconds,
        UNSIGNED_PAYLOAD,
    )


def verifyForm(
    claim: Claim, policyBase64: str, secret: str | None, region: str, keys: SigningKeys
) -> None:
    """
    Check the claim of a form. How long it is good for is for the policy to say.

    @param policyBase64: The field C{policy} as it was sent.
    @param secret: The secret of the claimed access key; L{None} if there is no such key.
    @raise S3Error: As L{verify<storagegate.s3.sigv4.verify>} raises them.
    """
    checkScope(claim, region)
    signingKey = keys.find(secret, claim.date, claim.region, claim.service)
    matches = sameSignature(sign(signingKey, policyBase64.encode()), claim.signature)
    if secret is None:
        raise unknownKey(claim)
    if not matches:
        raise wrongSignature(claim, policyBase64)
