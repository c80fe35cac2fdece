"""
The schemas of the Storage service, and the results that fit them.

Requests of the Storage service, read by the rules of S3.

Names are text on every wire of the gateway; what could not be sent to S3 is refused here, so that
nothing is stored that S3 could not give back.

What the domain of S3 and the store say, in the words of services.
"""

import binascii
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from email.errors import HeaderParseError
from email.header import decode_header, make_header
from typing import Any

from attrs import frozen

from storagegate.core.errors import ServiceError, codedError
from storagegate.s3.errors import S3Error, fromStoreError
from storagegate.s3.headers import METADATA_PREFIX, attributesFrom, isoTimestamp
from storagegate.s3.names import checkKey
from storagegate.s3.pagination import PAGE_LIMIT, readToken
from storagegate.storage.errors import StoreError
from storagegate.storage.records import Attributes, Bucket, ListedObject, ObjectRecord

_LARGEST = (1 << 63) - 1
"""Numbers are C{int64} in the proto."""

_TEXT: Mapping[str, Any] = {"type": "string"}
_NAME: Mapping[str, Any] = {"type": "string", "minLength": 1, "required": True}
_SIZE: Mapping[str, Any] = {"type": "integer", "minimum": 0, "maximum": _LARGEST}
_TIME: Mapping[str, Any] = {"type": "string", "format": "date-time"}
_CHUNK: Mapping[str, Any] = {"type": "string", "contentEncoding": "base64"}
_METADATA: Mapping[str, Any] = {"type": "object", "additionalProperties": {"type": "string"}}


def _object(**properties: Mapping[str, Any]) -> Mapping[str, Any]:
    return {"type": "object", "properties": properties}


def _list(items: Mapping[str, Any]) -> Mapping[str, Any]:
    return {"type": "array", "items": items, "required": True}


EMPTY: Mapping[str, Any] = {"type": "object"}

# Of an object that was removed there is but its key.
OBJECT = _object(
    key=_NAME, size=_SIZE, etag=_TEXT, contentType=_TEXT, lastModified=_TIME, metadata=_METADATA
)

BUCKET_REQUEST = _object(bucket=_NAME)
OBJECT_REQUEST = _object(bucket=_NAME, key=_NAME)

BUCKETS = _object(buckets=_list(_object(name=_NAME, createdAt=_TIME)))

LIST_REQUEST = _object(
    bucket=_NAME,
    prefix=_TEXT,
    delimiter=_TEXT,
    # More than a page is a page, as in S3.
    maxKeys=_SIZE,
    continuationToken=_TEXT,
)
LISTING = _object(objects=_list(OBJECT), commonPrefixes=_list(_TEXT), nextContinuationToken=_TEXT)

COPY_REQUEST = _object(fromBucket=_NAME, fromKey=_NAME, bucket=_NAME, key=_NAME)
READ_REQUEST = _object(bucket=_NAME, key=_NAME, offset=_SIZE, length=_SIZE)
READ_ITEM = _object(object=OBJECT, chunk=_CHUNK)

# One schema for the first item and the others: a gRPC method has one message.
WRITE_ITEM = _object(bucket=_TEXT, key=_TEXT, contentType=_TEXT, metadata=_METADATA, chunk=_CHUNK)

WATCH_REQUEST = _object(bucket=_NAME, prefix=_TEXT)
CHANGE = _object(
    event={"type": "string", "enum": ["created", "removed"], "required": True},
    object={**OBJECT, "required": True},
)


def bucketShape(bucket: Bucket) -> dict[str, Any]:
    """Show a bucket."""
    return {"name": bucket.name, "createdAt": isoTimestamp(bucket.createdMs)}


def objectShape(record: ObjectRecord) -> dict[str, Any]:
    """Show an object with all that was said of it."""
    metadata = record.attributes.metadata
    return {
        **rowShape(record),
        "metadata": {name: readableText(value) for name, value in metadata.items()},
    }


def rowShape(record: ObjectRecord) -> dict[str, Any]:
    """Show an object as a listing does: what whoever may list it may know."""
    contentType = record.attributes.contentType
    return _row(record.key.decode(), record.size, record.etag, contentType, record.modifiedMs)


def listedShape(row: ListedObject) -> dict[str, Any]:
    """Show a row of a listing."""
    return _row(row.key, row.size, row.etag, row.contentType, row.modifiedMs)


def _row(key: str, size: int, etag: str, contentType: str, modifiedMs: int) -> dict[str, Any]:
    return {
        "key": key,
        "size": size,
        "etag": etag,
        "contentType": readableText(contentType),
        "lastModified": isoTimestamp(modifiedMs),
    }


def readableText(value: str) -> str:
    """
    Give back the text that a header's value stands for.

    S3 keeps what is not ASCII as RFC 2047's encoded words, for its answers are HTTP headers.
    """
    if not value.startswith("=?"):
        return value
    try:
        return str(make_header(decode_header(value)))
    except (HeaderParseError, LookupError, ValueError, binascii.Error):
        # It only looks like one.
        return value


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


_CODES = {
    "NoSuchBucket": "NOT_FOUND",
    "NoSuchKey": "NOT_FOUND",
    "BucketAlreadyExists": "ALREADY_EXISTS",
    "BucketAlreadyOwnedByYou": "ALREADY_EXISTS",
    "AccessDenied": "PERMISSION_DENIED",
    "InvalidArgument": "INVALID_ARGUMENT",
    "InvalidBucketName": "INVALID_ARGUMENT",
    "InvalidRequest": "INVALID_ARGUMENT",
    "KeyTooLongError": "INVALID_ARGUMENT",
    "MetadataTooLarge": "INVALID_ARGUMENT",
    "EntityTooLarge": "PAYLOAD_TOO_LARGE",
    # A try later may succeed.
    "InsufficientStorage": "UNAVAILABLE",
    "OperationAborted": "UNAVAILABLE",
    "ServiceUnavailable": "UNAVAILABLE",
    "SlowDown": "UNAVAILABLE",
}


@contextmanager
def translated() -> Iterator[None]:
    """
    Make services' errors of what is raised within.

    What S3 has no word for but C{InternalError} travels on as it is: it is logged where every
    exception is that nobody foresaw.
    """
    try:
        yield
    except (S3Error, StoreError) as error:
        told = fromStoreError(error)
        if told.code == "BucketNotEmpty":
            raise ServiceError("BUCKET_NOT_EMPTY", told.message, 409, None, 6) from error
        code = _CODES.get(told.code)
        if code is None:
            raise
        raise codedError(code, told.message) from error
