"""
The headers of a write that set the attributes of its object: content type, stored headers,
metadata, tags, lock, storage class.
"""

import re
from collections.abc import Mapping
from functools import lru_cache

from storagegate.objects.attributes import (
    DEFAULT_CONTENT_TYPE,
    METADATA_LIMIT,
    STORED_FIELDS,
    checkedStorageClass,
    checkMetadataSize,
    encodeMetadata,
)
from storagegate.objects.tags import encodeTags
from storagegate.s3.locks import LOCK_FIELDS, lockFrom
from storagegate.s3.tags import tagsOfHeader
from storagegate.storage.records import UNLOCKED, Attributes

TAGGING = b"x-amz-tagging"
STORAGE_CLASS = b"x-amz-storage-class"
GRANT_HEADERS: Mapping[bytes, str] = {
    b"x-amz-grant-read": "READ",
    b"x-amz-grant-write": "WRITE",
    b"x-amz-grant-read-acp": "READ_ACP",
    b"x-amz-grant-write-acp": "WRITE_ACP",
    b"x-amz-grant-full-control": "FULL_CONTROL",
}
"""The headers with grants, by lower-case name, with their permissions."""

LIST_FIELDS = frozenset({b"x-amz-acl", *GRANT_HEADERS})
"""The headers that name an access control list."""

WRITE_FIELDS = LIST_FIELDS | LOCK_FIELDS
"""The headers of a write that set the ACL and the lock of its object."""

METADATA_PREFIX = b"x-amz-meta-"

KEPT = tuple(name.encode() for name in STORED_FIELDS)
"""Headers, besides C{Content-Type}, that are stored and returned unchanged."""


_AWS_CHUNKED = re.compile(rb"(?i)(?:^|,)[ \t]*aws-chunked[ \t]*(?=,|$)")


# A client sends the same fields with each request.
@lru_cache(maxsize=64)
def _attributeNames(names: tuple[bytes, ...]) -> tuple[bytes, ...]:
    metadata = [name for name in names if name.startswith(METADATA_PREFIX)]
    return (*(name for name in (*KEPT, TAGGING, *LOCK_FIELDS) if name in names), *metadata)


def attributesFrom(headers: Mapping[bytes, bytes]) -> Attributes:
    """
    Parse the attributes that a write sets on its object.

    @param headers: Values by lower-case name.
    @raise DomainError: The metadata, the storage class or the tags are invalid.
    @raise S3Error: C{InvalidArgument} for a malformed header.
    """
    kept = {}
    metadata = {}
    tags = ""
    lock = UNLOCKED
    size = 0
    for name in _attributeNames(tuple(headers)):
        value = headers[name]
        if name.startswith(METADATA_PREFIX):
            start = len(METADATA_PREFIX)
            size += len(name) - start + len(value)
            metadata[name[start:].decode("latin-1")] = encodeMetadata(value)
            continue
        if name == TAGGING:
            tags = encodeTags(tagsOfHeader(value))
            continue
        if name in LOCK_FIELDS:
            lock = lockFrom(headers)
            continue
        if name == b"content-encoding":
            # aws-chunked describes the transfer, not the object.
            value = _AWS_CHUNKED.sub(b"", value).strip(b", \t")
        if value:
            # The bytes are returned as they came; their encoding is unknown.
            kept[name.decode("ascii")] = value.decode("latin-1")
    if size > METADATA_LIMIT:
        checkMetadataSize(size)
    storageClass = "STANDARD"
    if STORAGE_CLASS in headers:
        storageClass = checkedStorageClass(headers[STORAGE_CLASS].decode("latin-1"))
    contentType = headers.get(b"content-type", b"").decode("latin-1") or DEFAULT_CONTENT_TYPE
    return Attributes(contentType, kept, metadata, storageClass=storageClass, tags=tags, lock=lock)
