"""
Continuation tokens: where a listing goes on, readable by this store alone.

A token is base64url of 16 bytes of HMAC-SHA256 and the position in UTF-8. The MAC covers what is
listed, so a token of one bucket is none of another's.
"""

import hmac
from base64 import urlsafe_b64decode, urlsafe_b64encode
from hashlib import sha256

from storagegate.s3.errors import S3Error

_MAC_BYTES = 16
# A key or common prefix of 1,024 bytes and the MAC come to 1,388 characters.
_TOKEN_LIMIT = 2048


def _mac(secret: bytes, bucket: str, position: bytes) -> bytes:
    message = b"list token\0" + bucket.encode() + b"\0" + position
    return hmac.digest(secret, message, sha256)[:_MAC_BYTES]


def makeToken(secret: bytes, bucket: str, position: str) -> str:
    """
    Make a token.

    @param secret: The store's 32 bytes.
    @param bucket: The bucket that is listed; empty for the list of buckets.
    @param position: The key, common prefix or name after which the next page starts.
    """
    raw = position.encode()
    return urlsafe_b64encode(_mac(secret, bucket, raw) + raw).rstrip(b"=").decode()


def readToken(secret: bytes, bucket: str, token: str) -> str:
    """
    Read a token that L{makeToken} made with the same secret and bucket.

    @return: The position.
    @raise S3Error: C{InvalidArgument}, whatever is wrong with it.
    """
    try:
        if len(token) > _TOKEN_LIMIT:
            raise ValueError("too long")
        raw = urlsafe_b64decode(token.encode("ascii") + b"=" * (-len(token) % 4))
        position = raw[_MAC_BYTES:].decode()
        # The whole token and not its MAC alone: base64 can write the same bytes in many ways.
        if hmac.compare_digest(makeToken(secret, bucket, position), token):
            return position
    except ValueError:
        pass
    raise S3Error(
        "InvalidArgument",
        "The continuation token provided is incorrect",
        fields={"ArgumentName": "continuation-token"},
    )
