"""The schemas of the Storage service, and the results that fit them."""

import binascii
from collections.abc import Mapping
from email.errors import HeaderParseError
from email.header import decode_header, make_header
from typing import Any

from storagegate.s3.timestamps import isoTimestamp
from storagegate.storage.records import Bucket, ListedObject, ObjectRecord

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
