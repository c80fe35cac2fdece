"""The names of buckets, keys and regions."""

import re

from storagegate.objects import errors

KEY_LIMIT = 1024
"""Bytes of UTF-8 in a key: Amazon's limit, which clients rely on."""

_NAME = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")

_ADDRESS = re.compile(r"[0-9]{1,3}(\.[0-9]{1,3}){3}")

_ADJACENT = ("..", ".-", "-.")

# Reserved by Amazon for names of other kinds of buckets.
_RESERVED_PREFIXES = ("xn--", "sthree-", "amzn-s3-demo-")

_RESERVED_SUFFIXES = ("-s3alias", "--ol-s3", ".mrap", "--x-s3", "--table-s3")


def checkBucketName(name: str) -> None:
    """Reject names that break Amazon's rules for general purpose buckets: C{InvalidBucketName}."""
    if (
        _NAME.fullmatch(name) is None
        or _ADDRESS.fullmatch(name) is not None
        or any(pair in name for pair in _ADJACENT)
        or name.startswith(_RESERVED_PREFIXES)
        or name.endswith(_RESERVED_SUFFIXES)
    ):
        raise _invalidBucket(name)


FIRST_REGION = "us-east-1"
"""The oldest region of S3, in which some responses differ."""

_REGION = re.compile(r"[a-z]{2,4}(-[a-z]+)+-[0-9]{1,2}", re.ASCII)


def isRegion(name: str) -> bool:
    """Return whether a name has the form of Amazon's regions, such as C{eu-west-1}."""
    return _REGION.fullmatch(name) is not None


def checkKey(key: bytes) -> None:
    """
    Reject an invalid key.

    @raise KeyTooLong: The key has more than L{KEY_LIMIT} bytes.
    @raise InvalidKey: The bytes are not UTF-8.
    """
    if len(key) > KEY_LIMIT:
        raise errors.KeyTooLong(size=str(len(key)), maxSize=str(KEY_LIMIT))
    if not key.isascii():
        try:
            key.decode()
        except UnicodeDecodeError:
            raise errors.InvalidKey() from None


def _invalidBucket(name: str) -> errors.InvalidBucketName:
    return errors.InvalidBucketName(bucket=name)
