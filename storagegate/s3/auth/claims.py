"""
Claims: who a request says it is from, and with which signature.

A claim comes in the C{Authorization} header (C{sigv4header}), in the query of a presigned URL
(C{sigv4query}) or in the fields of a form (C{sigv4post}). Reading one proves nothing: see
C{sigv4.verify}. What the three have in common is here::

    credential    = access-key "/" YYYYMMDD "/" region "/" service "/aws4_request"
    SignedHeaders = name *(";" name)
    payload hash  = 64 hexadecimal digits / "UNSIGNED-PAYLOAD" / "STREAMING-" ...

Claims in the C{Authorization} header::

    Authorization: AWS4-HMAC-SHA256 Credential=<credential>, SignedHeaders=<names>, Signature=<hex>

Claims of presigned URLs, in the query::

    X-Amz-Algorithm X-Amz-Credential X-Amz-Date X-Amz-Expires X-Amz-SignedHeaders X-Amz-Signature
    and, if the payload is signed too, X-Amz-Content-Sha256 in any case; each once, its name as here
"""

import re
from collections.abc import Mapping
from enum import Enum
from functools import lru_cache
from typing import NamedTuple

from attrs import frozen

from storagegate.core.options import parseDecimal
from storagegate.net.http.ranges import parseHttpDate
from storagegate.s3.auth.canonical import SIGNATURE_PARAMETER, TERMINATOR, decodeComponent
from storagegate.s3.errors import S3Error, invalidArgument
from storagegate.s3.headers import formatAmzDate, parseAmzDate

ALGORITHM = "AWS4-HMAC-SHA256"

UNSIGNED_PAYLOAD = "UNSIGNED-PAYLOAD"
STREAMING_SIGNED = "STREAMING-AWS4-HMAC-SHA256-PAYLOAD"
STREAMING_SIGNED_TRAILER = "STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER"
STREAMING_UNSIGNED_TRAILER = "STREAMING-UNSIGNED-PAYLOAD-TRAILER"
STREAMING = frozenset({STREAMING_SIGNED, STREAMING_SIGNED_TRAILER, STREAMING_UNSIGNED_TRAILER})
"""The payloads whose body is C{aws-chunked}."""
UNSIGNED = frozenset({UNSIGNED_PAYLOAD, STREAMING_UNSIGNED_TRAILER})
"""The payloads that no signature covers."""

_NOT_BUILT = frozenset(
    {"STREAMING-AWS4-ECDSA-P256-SHA256-PAYLOAD", "STREAMING-AWS4-ECDSA-P256-SHA256-PAYLOAD-TRAILER"}
)
_SHA256 = re.compile(r"[0-9A-Fa-f]{64}", re.ASCII)
_DATE = re.compile(r"[0-9]{8}", re.ASCII)
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+", re.ASCII)
_SPECIMEN = f'"<YOUR-AKID>/YYYYMMDD/REGION/SERVICE/{TERMINATOR}"'


class SignatureSource(Enum):
    """Where a claim was found; errors are worded by it."""

    HEADER = "header"
    QUERY = "query"
    FORM = "form"

    def malformed(self, detail: str, fields: Mapping[str, str] | None = None) -> S3Error:
        """Make the error for a credential that is not right."""
        if self is SignatureSource.HEADER:
            text = f"The authorization header is malformed; {detail}"
            return S3Error("AuthorizationHeaderMalformed", text, fields=fields)
        if self is SignatureSource.QUERY:
            text = f"Error parsing the X-Amz-Credential parameter; {detail}"
            return S3Error("AuthorizationQueryParametersError", text, fields=fields)
        return S3Error("InvalidArgument", detail, fields=fields)


class CredentialScope(NamedTuple):
    """The access key and the scope of a signature."""

    accessKey: str
    date: str
    region: str
    service: str


@frozen
class SignatureParams:
    """
    What a request says of its signer.

    @ivar date: Of the scope, C{YYYYMMDD}.
    @ivar signedHeaders: Lower-case names in order.
    @ivar timestamp: When it was signed, C{20130524T000000Z}.
    @ivar seconds: The same in seconds since the epoch.
    @ivar payloadHash: A SHA-256 in hexadecimal as it was sent (its letters may be capitals), or one
        of the constants of this module.
    @ivar expires: For how many seconds a presigned URL is good.
    """

    source: SignatureSource
    accessKey: str
    date: str
    region: str
    service: str
    signedHeaders: tuple[bytes, ...]
    signature: str
    timestamp: str
    seconds: int
    payloadHash: str
    expires: int = 0

    @property
    def presigned(self) -> bool:
        """Tell whether the claim came in the query."""
        return self.source is SignatureSource.QUERY

    @property
    def scope(self) -> str:
        """The scope as it is signed."""
        return f"{self.date}/{self.region}/{self.service}/{TERMINATOR}"


# One client sends the same credential all day.
@lru_cache(maxsize=256)
def parseCredential(text: str, source: SignatureSource) -> CredentialScope:
    """
    Read a credential.

    @raise S3Error: In the words of the source, if it is not one of ours or its date is none.
    """
    # From the right, for an access key may hold slashes.
    parts = text.rsplit("/", 4)
    if len(parts) != 5 or not all(parts):
        raise source.malformed(f"the Credential is mal-formed; expecting {_SPECIMEN}.")
    accessKey, date, region, service, terminator = parts
    if terminator != TERMINATOR:
        detail = f'incorrect terminal "{terminator}". This endpoint uses "{TERMINATOR}".'
        raise source.malformed(detail)
    if not _DATE.fullmatch(date):
        raise source.malformed(
            f'incorrect date format "{date}". '
            'This date in the credential must be in the format "yyyyMMdd".'
        )
    return CredentialScope(accessKey, date, region, service)


# Every request of a client names the same headers: 0.2 microseconds instead of 1.5.
@lru_cache(maxsize=256)
def parseSignedHeaders(text: str, source: SignatureSource) -> tuple[bytes, ...]:
    """
    Read a list of signed headers into lower-case names in order.

    @raise S3Error: In the words of the source, if a name is none or comes twice.
    """
    names = text.lower().split(";")
    if len(set(names)) != len(names) or not all(map(_TOKEN.fullmatch, names)):
        raise source.malformed("the SignedHeaders are mal-formed.")
    return tuple(name.encode() for name in sorted(names))


def parsePayloadHash(value: bytes) -> str:
    """
    Read the hash of a payload.

    @raise S3Error: C{InvalidArgument} for what S3 does not know either, C{NotImplemented} for the
        elliptic curve variants.
    """
    text = value.decode("latin-1").strip()
    if _SHA256.fullmatch(text) or text == UNSIGNED_PAYLOAD or text in STREAMING:
        return text
    if text in _NOT_BUILT:
        raise S3Error("NotImplemented")
    known = ", ".join([UNSIGNED_PAYLOAD, *sorted(STREAMING)])
    raise invalidArgument(
        "x-amz-content-sha256",
        text,
        f"x-amz-content-sha256 must be {known} or a valid sha256 value.",
    )


_USUAL = re.compile(r"Credential=([^,\s]+), ?SignedHeaders=([^,\s]+), ?Signature=([^,\s]+)")


def parseHeaderClaim(headers: Mapping[bytes, bytes]) -> SignatureParams:
    """
    Read the claim of an C{Authorization} header.

    @param headers: Values by lower-case name.
    @raise S3Error: C{AccessDenied} if there is none or no date, C{InvalidArgument} for another
        scheme, C{AuthorizationHeaderMalformed} for what cannot be read.
    """
    text = headers.get(b"authorization", b"").decode("latin-1").strip()
    if not text:
        raise S3Error("AccessDenied")
    scheme, space, rest = text.partition(" ")
    if not space or not text.isascii():
        raise _badAuthorization(
            "Authorization header is invalid -- one and only one ' ' (space) required."
        )
    if scheme != ALGORITHM:
        raise _badAuthorization(
            "The authorization mechanism you have provided is not supported. "
            f"Please use {ALGORITHM}."
        )
    credential, signedHeaders, signature = _components(rest)
    timestamp, seconds = _time(headers)
    return SignatureParams(
        SignatureSource.HEADER,
        *parseCredential(credential, SignatureSource.HEADER),
        parseSignedHeaders(signedHeaders, SignatureSource.HEADER),
        signature,
        timestamp,
        seconds,
        _payload(headers),
    )


def _badAuthorization(message: str) -> S3Error:
    # The value is not repeated, for with another scheme it may be a password.
    return S3Error("InvalidArgument", message, fields={"ArgumentName": "Authorization"})


def _components(text: str) -> tuple[str, str, str]:
    # As SDKs write it: 0.5 microseconds instead of 1.4.
    usual = _USUAL.fullmatch(text)
    if usual is not None:
        return usual[1], usual[2], usual[3]
    found = {}
    pieces = text.split(",", 3)
    for piece in pieces:
        name, _, value = piece.strip().partition("=")
        found[name] = value
    try:
        credential, names, signature = (
            found["Credential"],
            found["SignedHeaders"],
            found["Signature"],
        )
    except KeyError:
        credential = names = signature = ""
    if not (credential and names and signature) or len(pieces) != 3:
        raise SignatureSource.HEADER.malformed(
            "the authorization header requires three components: "
            "Credential, SignedHeaders, and Signature."
        )
    return credential, names, signature


def _time(headers: Mapping[bytes, bytes]) -> tuple[str, int]:
    raw = headers.get(b"x-amz-date")
    if raw is not None:
        timestamp = raw.decode("latin-1").strip()
        seconds = parseAmzDate(timestamp)
    else:
        raw = headers.get(b"date", b"")
        timestamp = raw.decode("latin-1").strip()
        seconds = parseAmzDate(timestamp)
        if seconds is None:
            seconds = parseHttpDate(raw)
            timestamp = "" if seconds is None else formatAmzDate(seconds)
    if seconds is None:
        text = "AWS authentication requires a valid Date or x-amz-date header"
        raise S3Error("AccessDenied", text)
    return timestamp, seconds


def _payload(headers: Mapping[bytes, bytes]) -> str:
    value = headers.get(b"x-amz-content-sha256")
    if value is None:
        text = "Missing required header for this request: x-amz-content-sha256"
        raise S3Error("InvalidRequest", text)
    return parsePayloadHash(value)


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


def parseQueryClaim(queryString: bytes, headers: Mapping[bytes, bytes]) -> SignatureParams:
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
    credential = parseCredential(found[_CREDENTIAL], SignatureSource.QUERY)
    timestamp = found[_TIMESTAMP]
    seconds = parseAmzDate(timestamp)
    if seconds is None:
        form = "yyyyMMdd'T'HHmmss'Z'"
        raise _badQuery(f'X-Amz-Date must be in the ISO8601 Long Format "{form}"')
    return SignatureParams(
        SignatureSource.QUERY,
        *credential,
        parseSignedHeaders(found[_SIGNED_HEADERS], SignatureSource.QUERY),
        found[SIGNATURE_PARAMETER],
        timestamp,
        seconds,
        _queryPayload(found, headers),
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


def _queryPayload(found: Mapping[bytes, str], headers: Mapping[bytes, bytes]) -> str:
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
