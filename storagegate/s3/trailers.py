"""Trailers of C{aws-chunked} bodies: header fields that come when the data has been sent."""

import re

from storagegate.s3.chunksigner import ChunkSigner
from storagegate.s3.errors import S3Error

TRAILER_LIMIT = 8192
"""Bytes of a trailer with its empty line; a checksum and a signature need 200."""

_FIELD = re.compile(
    rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*([\x21-\x7e](?:[\x20-\x7e]*[\x21-\x7e])?)[ \t]*\n?"
)
_SIGNATURE = re.compile(rb"x-amz-trailer-signature:[ \t]*([0-9a-f]{64})[ \t]*", re.IGNORECASE)


def parseTrailer(
    section: bytes, expected: frozenset[bytes], signer: ChunkSigner | None
) -> dict[bytes, bytes]:
    """
    Read a trailer.

    @param section: Its lines, each with its CRLF.
    @param expected: Lower-case names of the fields that have to be there, and no others.
    @param signer: Checks its signature; L{None} if the body is not signed.
    @return: Values by lower-case name, without the signature.
    @raise S3Error: C{InvalidRequest} for a trailer that is not the one that was announced,
        C{SignatureDoesNotMatch}.
    """
    lines = section.split(b"\r\n")[:-1]
    signature = None
    # A body that announces no trailer has none, and no signature for it either.
    if signer is not None and expected:
        match = _SIGNATURE.fullmatch(lines.pop()) if lines else None
        if match is None:
            raise _malformed("it is not signed")
        signature = match[1].decode()
    trailers: dict[bytes, bytes] = {}
    for line in lines:
        match = _FIELD.fullmatch(line)
        if match is None:
            raise _malformed("a line cannot be read")
        name = match[1].lower()
        if name in trailers:
            raise _malformed("a field comes twice")
        trailers[name] = match[2]
    if trailers.keys() != expected:
        raise _malformed("its fields are not those of x-amz-trailer")
    if signer is not None and signature is not None:
        canonical = b"".join(b"%b:%b\n" % field for field in trailers.items())
        signer.checkTrailer(canonical, signature)
    return trailers


def _malformed(detail: str) -> S3Error:
    return S3Error("InvalidRequest", f"The trailer of the request is not valid: {detail}")
