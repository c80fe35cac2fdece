"""
The signatures within a signed C{aws-chunked} body: each signs the one before it::

    chunk   = "AWS4-HMAC-SHA256-PAYLOAD" LF context LF sha256("") LF sha256(data)
    trailer = "AWS4-HMAC-SHA256-TRAILER" LF context LF sha256(trailer)
    context = timestamp LF scope LF previous signature
"""

from hashlib import sha256

from storagegate.s3.sigv4 import wrongSignature
from storagegate.s3.sigv4claims import Claim
from storagegate.s3.sigv4keys import sameSignature, sign

_EMPTY_DIGEST = sha256().hexdigest()


class ChunkSigner:
    """Check the signatures of one body, in their order."""

    def __init__(self, claim: Claim, signingKey: bytes) -> None:
        """
        @param claim: Of the request, verified; its signature seeds the chain.
        @param signingKey: What verifying it returned.
        """
        self._claim = claim
        self._signingKey = signingKey
        self._context = f"{claim.timestamp}\n{claim.scope}"
        self._previous = claim.signature

    def checkChunk(self, digest: str, signature: str) -> None:
        """
        Check the next chunk.

        @param digest: SHA-256 of its data, in lower-case hexadecimal.
        @raise S3Error: C{SignatureDoesNotMatch}.
        """
        self._check("AWS4-HMAC-SHA256-PAYLOAD", f"{_EMPTY_DIGEST}\n{digest}", signature)

    def checkTrailer(self, canonical: bytes, signature: str) -> None:
        """
        Check the trailer.

        @param canonical: C{name:value} lines, each with a LF.
        @raise S3Error: C{SignatureDoesNotMatch}.
        """
        self._check("AWS4-HMAC-SHA256-TRAILER", sha256(canonical).hexdigest(), signature)

    def _check(self, kind: str, what: str, signature: str) -> None:
        stringToSign = f"{kind}\n{self._context}\n{self._previous}\n{what}"
        expected = sign(self._signingKey, stringToSign.encode())
        if not sameSignature(expected, signature):
            raise wrongSignature(self._claim, stringToSign, {"SignatureProvided": signature})
        self._previous = expected
