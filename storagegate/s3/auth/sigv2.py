"""
Signature version 2, the default of boto3 and aws-cli for URLs and forms::

    string to sign = METHOD LF content-md5 LF content-type LF expires LF
                     *(name ":" value LF) resource
    resource       = path with the bucket ["?" subresource *("&" subresource)]
    signature      = HMAC-SHA1(secret, string to sign), in Base64

    query: AWSAccessKeyId Expires Signature           Expires in seconds since the epoch
    form:  awsaccesskeyid policy signature            the policy is the string to sign

All C{x-amz-} headers are signed, but only the subresources of the query: neither list parameters
nor the body. Version 2 is not accepted in C{Authorization}.
"""

import hmac
from base64 import b64encode
from collections.abc import Mapping

from msgspec import Struct

from storagegate.core.options import parseDecimal
from storagegate.objects.dates import isoSeconds
from storagegate.s3.auth.sigv4 import (
    SignedRequest,
    decodeComponent,
    missingField,
    unknownKey,
    wrongSignature,
)
from storagegate.s3.errors import S3Error, invalidArgument

ACCESS_KEY = "AWSAccessKeyId"
SIGNATURE = "Signature"
EXPIRES = "Expires"
_MARKS = frozenset({ACCESS_KEY.encode(), SIGNATURE.encode()})

_FORM_KEY = ACCESS_KEY.lower()
_FORM_SIGNATURE = SIGNATURE.lower()
FORM_FIELDS = frozenset({_FORM_KEY, _FORM_SIGNATURE})
"""The fields that a form's policy need not name."""

_LATEST = 1 << 62
"""The last second that an expiry may name, so that it stays a number everywhere."""

# The subresources that clients sign: AWS's "Constructing the CanonicalizedResource element" and
# botocore's additions. Each of our selectors is included even if no client signs it: a parameter
# that selects the operation must be signed.
SUBRESOURCES = frozenset(
    name.encode()
    for name in (
        "accelerate",
        "acl",
        "analytics",
        "cors",
        "defaultObjectAcl",
        "delete",
        "inventory",
        "lifecycle",
        "location",
        "logging",
        "metrics",
        "notification",
        "object-lock",
        "partNumber",
        "policy",
        "replication",
        "requestPayment",
        "restore",
        "select",
        "select-type",
        "storageClass",
        "tagging",
        "torrent",
        "uploadId",
        "uploads",
        "versionId",
        "versioning",
        "versions",
        "website",
        "response-cache-control",
        "response-content-disposition",
        "response-content-encoding",
        "response-content-language",
        "response-content-type",
        "response-expires",
        # The selectors of operations that no client signs.
        "abac",
        "annotation",
        "append",
        "attributes",
        "encryption",
        "intelligent-tiering",
        "legal-hold",
        "metadataAnnotationTable",
        "metadataConfiguration",
        "metadataInventoryTable",
        "metadataJournalTable",
        "metadataTable",
        "ownershipControls",
        "policyStatus",
        "publicAccessBlock",
        "renameObject",
        "retention",
        "session",
    )
)


class SigV2Params(Struct, frozen=True):
    """
    The claim of a URL or a form: its signer and signature.

    @ivar expires: The signed text of the expiry; empty for a form, whose policy has the expiry.
    @ivar seconds: The expiry in seconds since the epoch.
    """

    accessKey: str
    signature: str
    expires: str = ""
    seconds: int = 0


def isPresigned(queryString: bytes) -> bool:
    """Return whether a raw query carries a version 2 claim, complete or not."""
    if queryString.find(b"Signature") < 0 and queryString.find(b"AWSAccessKeyId") < 0:
        return False
    return any(pair.partition(b"=")[0] in _MARKS for pair in queryString.split(b"&"))


def parseQueryClaim(query: Mapping[str, str]) -> SigV2Params:
    """
    Parse the claim of a presigned URL.

    @param query: Decoded values by name.
    @raise S3Error: C{AccessDenied} if a parameter is absent or the time is invalid, as in S3.
    """
    accessKey, signature, expires = (query.get(n, "") for n in (ACCESS_KEY, SIGNATURE, EXPIRES))
    if not (accessKey and signature and expires):
        raise S3Error(
            "AccessDenied",
            "Query-string authentication requires the Signature, Expires and AWSAccessKeyId "
            "parameters",
        )
    try:
        seconds = parseDecimal(expires, _LATEST)
    except ValueError:
        text = f"Invalid date (should be seconds since epoch): {expires}"
        raise S3Error("AccessDenied", text) from None
    return SigV2Params(accessKey, signature, expires, seconds)


def verifyQuery(claim: SigV2Params, request: SignedRequest, secret: str | None, now: float) -> None:
    """
    Verify the claim of a presigned URL.

    @param now: Seconds since the epoch.
    @param request: The request; its path begins with the bucket, even if the host names the bucket.
    @param secret: The secret of the claimed access key; L{None} if the key does not exist.
    @raise S3Error: C{AccessDenied} if it has expired, C{InvalidAccessKeyId},
        C{SignatureDoesNotMatch}; C{InvalidArgument}: another query has the same signature.
    """
    if now > claim.seconds:
        fields = {"Expires": isoSeconds(claim.seconds), "ServerTime": isoSeconds(int(now))}
        raise S3Error("AccessDenied", "Request has expired", fields=fields)
    _check(claim, canonicalString(request, claim.expires), secret)


def isSignedForm(fields: Mapping[str, str]) -> bool:
    """Return whether a form's fields carry a version 2 claim, complete or not."""
    return not FORM_FIELDS.isdisjoint(fields)


def parseFormClaim(fields: Mapping[str, str]) -> SigV2Params:
    """
    Parse the claim of a form.

    @param fields: Values by lower-case name.
    @raise S3Error: C{AccessDenied} for a form without a policy, C{InvalidArgument} for an
        incomplete claim.
    """
    if not fields.get("policy"):
        raise S3Error("AccessDenied")
    for name in (_FORM_KEY, _FORM_SIGNATURE):
        if not fields.get(name):
            raise missingField(name)
    return SigV2Params(fields[_FORM_KEY], fields[_FORM_SIGNATURE])


def verifyForm(claim: SigV2Params, policyBase64: str, secret: str | None) -> None:
    """
    Verify the claim of a form. The policy limits its validity; see C{postform}.

    @param policyBase64: The raw field C{policy}.
    @param secret: The secret of the claimed access key; L{None} if the key does not exist.
    @raise S3Error: C{InvalidAccessKeyId}, C{SignatureDoesNotMatch}.
    """
    _check(claim, policyBase64.encode(), secret)


def canonicalString(request: SignedRequest, expires: str) -> bytes:
    """
    Return the string to sign of a request.

    @raise S3Error: C{InvalidArgument}: another query has the same string.
    """
    headers = request.headers
    lines = [request.method]
    lines += [headers.get(name, b"").strip() for name in (b"content-md5", b"content-type")]
    lines.append(expires.encode())
    names = sorted(name for name in headers if name.startswith(b"x-amz-"))
    lines += [name + b":" + headers[name].strip() for name in names]
    lines.append(request.path + _subresources(request.queryString))
    return b"\n".join(lines)


def _subresources(queryString: bytes) -> bytes:
    found = []
    for pair in queryString.split(b"&"):
        rawName, equals, value = pair.partition(b"=")
        # Matched by the decoded name: an escaped name also selects an operation.
        name, text = decodeComponent(rawName), decodeComponent(value)
        if name in SUBRESOURCES:
            # The signed text escapes nothing, so C{a=1%26versionId=2} and C{a=1&versionId=2} have
            # the same signature.
            if any(each.partition(b"=")[0] in SUBRESOURCES for each in text.split(b"&")[1:]):
                message = "The value contains another parameter, which version 2 cannot sign."
                raise invalidArgument(name.decode(), text.decode("latin-1"), message)
            found.append((name, equals + text))
    return b"?" + b"&".join(name + value for name, value in sorted(found)) if found else b""


def _check(claim: SigV2Params, stringToSign: bytes, secret: str | None) -> None:
    # The signature of an unknown key is computed too, so its refusal takes as long.
    digest = hmac.digest((secret or "\0").encode(), stringToSign, "sha1")
    matches = hmac.compare_digest(b64encode(digest), claim.signature.encode())
    if secret is None:
        raise unknownKey(claim.accessKey)
    if not matches:
        shown = stringToSign.decode("utf-8", "backslashreplace")
        raise wrongSignature(claim.accessKey, claim.signature, shown)
