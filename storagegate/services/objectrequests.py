"""
Requests of the Storage service, read by the rules of S3.

Names are text on every wire of the gateway; what could not be sent to S3 is refused here, so that
nothing is stored that S3 could not give back.
"""

import re
from collections.abc import Mapping
from typing import Any

from attrs import frozen

from storagegate.core.errors import ServiceError, codedError
from storagegate.s3.headers import METADATA_PREFIX, attributesFrom
from storagegate.s3.listing import PAGE_LIMIT
from storagegate.s3.names import checkKey
from storagegate.s3.tokens import readToken
from storagegate.storage.records import Attributes

# A metadata name becomes a part of a header's, a value a header's value (RFC 9110 section 5).
_HEADER_NAME = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_UNSPEAKABLE = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")


def invalid(message: str) -> ServiceError:
    """Make the error of a request that does not make sense."""
    return codedError("INVALID_ARGUMENT", message)


def bucketOf(request: Mapping[str, Any], name: str = "bucket") -> str:
    """Read the name of a bucket; whether it can be one is for those who look for it."""
    bucket = textOf(request, name)
    if not bucket:
        raise invalid(f"{name} is required")
    return bucket


def keyOf(request: Mapping[str, Any], name: str = "key") -> bytes:
    """
    Read a key.

    @raise S3Error: C{KeyTooLongError}.
    """
    key = textOf(request, name).encode()
    if not key:
        raise invalid(f"{name} is required")
    checkKey(key)
    return key


def textOf(request: Mapping[str, Any], name: str) -> str:
    """Read a text that may be absent."""
    text: str = request.get(name) or ""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise invalid(f"{name} is no Unicode text") from None
    return text


def attributesOf(request: Mapping[str, Any]) -> Attributes:
    """
    Read what is said of an object besides its bytes.

    @raise S3Error: C{MetadataTooLarge}.
    """
    headers: dict[bytes, bytes] = {}
    contentType = textOf(request, "contentType")
    if contentType:
        headers[b"content-type"] = _headerValue("contentType", contentType)
    metadata: Mapping[str, str] = request.get("metadata") or {}
    for name in metadata:
        if _HEADER_NAME.fullmatch(name) is None:
            raise invalid(f"metadata has the name {name!a:.80}, which no header can have")
        header = METADATA_PREFIX + name.lower().encode()
        if header in headers:
            raise invalid(f"metadata has {name!a:.80} twice")
        headers[header] = _headerValue("metadata", textOf(metadata, name))
    return attributesFrom(headers)


def _headerValue(name: str, value: str) -> bytes:
    if _UNSPEAKABLE.search(value) is not None or value != value.strip(" \t"):
        raise invalid(f"{name} has a value that no header can have")
    return value.encode()


@frozen
class ObjectsPage:
    """
    What is asked of a listing.

    @ivar after: List strictly after this key or common prefix.
    """

    bucket: str
    prefix: str
    delimiter: str
    after: str
    limit: int


def readListing(request: Mapping[str, Any], secret: bytes) -> ObjectsPage:
    """
    Read what is asked of a listing.

    @param secret: The store's, for the token.
    @raise S3Error: C{InvalidArgument} for a token that is none.
    """
    bucket = bucketOf(request)
    token = textOf(request, "continuationToken")
    wanted = request.get("maxKeys")
    return ObjectsPage(
        bucket,
        textOf(request, "prefix"),
        textOf(request, "delimiter"),
        readToken(secret, bucket, token) if token else "",
        PAGE_LIMIT if wanted is None else min(wanted, PAGE_LIMIT),
    )


def readRange(request: Mapping[str, Any], size: int) -> tuple[int, int]:
    """
    Read which bytes of an object are wanted.

    @return: Where they begin and how many they are; what is behind the object's end is left out.
    """
    offset: int = request.get("offset") or 0
    length = request.get("length")
    if offset > size:
        raise invalid(f"offset is behind the end of the object, which has {size} bytes")
    return offset, size - offset if length is None else min(length, size - offset)
