"""
Claims in the C{Authorization} header::

    Authorization: AWS4-HMAC-SHA256 Credential=<credential>, SignedHeaders=<names>, Signature=<hex>
"""

import re
from collections.abc import Mapping

from storagegate.net.httpdates import parseHttpDate
from storagegate.s3.dates import formatAmzDate, parseAmzDate
from storagegate.s3.errors import S3Error
from storagegate.s3.sigv4claims import (
    ALGORITHM,
    Claim,
    Source,
    parseCredential,
    parsePayloadHash,
    parseSignedHeaders,
)

_USUAL = re.compile(r"Credential=([^,\s]+), ?SignedHeaders=([^,\s]+), ?Signature=([^,\s]+)")


def parseHeaderClaim(headers: Mapping[bytes, bytes]) -> Claim:
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
    return Claim(
        Source.HEADER,
        *parseCredential(credential, Source.HEADER),
        parseSignedHeaders(signedHeaders, Source.HEADER),
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
        raise Source.HEADER.malformed(
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
