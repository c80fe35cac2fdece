"""
The limits of pages, and continuation tokens.

A token has 16 bytes of HMAC-SHA256 and the position in UTF-8, as L{storagegate.core.urlnames}
encodes them, and is valid only for this store. The MAC covers the bucket, so a token is invalid for
other buckets.
"""

import hmac
from hashlib import sha256

from storagegate.core.urlnames import decodeName, encodeName, normalName
from storagegate.objects import errors

_MAC_BYTES = 16

# A key or common prefix of 1,024 bytes and the MAC take 1,388 characters.
_TOKEN_LIMIT = 2048


def _mac(secret: bytes, bucket: str, position: bytes) -> bytes:
    message = b"list token\0" + bucket.encode() + b"\0" + position
    return hmac.digest(secret, message, sha256)[:_MAC_BYTES]


def makeToken(secret: bytes, bucket: str, position: str) -> str:
    """
    Make a token.

    @param secret: The 32-byte secret of the store.
    @param bucket: The listed bucket; empty for a list of buckets.
    @param position: The key, common prefix or name after which the next page starts.
    """
    raw = position.encode()
    return encodeName(_mac(secret, bucket, raw) + raw)


def readToken(secret: bytes, bucket: str, token: str) -> str:
    """
    Verify a token from L{makeToken} with the same secret and bucket.

    @return: The position.
    @raise InvalidArgument: The token was made otherwise.
    """
    try:
        if len(token) > _TOKEN_LIMIT:
            raise ValueError("too long")
        raw = decodeName(token)
        position = raw[_MAC_BYTES:].decode()
        # Compares the whole token, not only its MAC: Base64 has several encodings of the same
        # bytes.
        if hmac.compare_digest(makeToken(secret, bucket, position), normalName(token)):
            return position
    except ValueError:
        pass
    raise errors.InvalidArgument(
        "The continuation token provided is incorrect", name="continuationToken"
    )


PAGE_LIMIT = 1000
"""Rows per page: Amazon's limit, which keeps a response below about 1 MiB."""

BUCKETS_LIMIT = 10_000
"""Buckets per page: Amazon's limit."""

PART_LIMIT = 10_000
"""The highest part number: Amazon's limit."""

UPLOAD_ID_BYTES = 24
"""Random bytes of an upload id, which is their hexadecimal form."""
