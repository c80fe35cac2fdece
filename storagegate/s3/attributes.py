"""
The attributes of an object that a write sets: content type, stored headers, metadata, tags, lock,
storage class.

Every adapter passes the attributes of a write as S3's header fields: lower-case names and values as
C{bytes}. The store holds text.
"""

import re
from collections.abc import Mapping
from email.charset import Charset
from email.errors import HeaderParseError
from email.header import decode_header, make_header
from functools import lru_cache

from storagegate.s3.errors import S3Error
from storagegate.s3.locks import LOCK_FIELDS, lockFrom
from storagegate.s3.tags import encodeTags, tagsOfHeader
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
METADATA_LIMIT = 2048
"""Largest size of user metadata, names and values together, in bytes: S3's own limit."""

KEPT = (
    b"content-encoding",
    b"content-disposition",
    b"content-language",
    b"cache-control",
    b"expires",
)
"""Headers, besides C{Content-Type}, that are stored and returned unchanged."""

# Labels without effect. Objects of C{GLACIER} and C{DEEP_ARCHIVE} could not be read before a
# restoration, so these two are refused.
_STORAGE_CLASSES = {
    name.encode(): name
    for name in (
        "STANDARD",
        "REDUCED_REDUNDANCY",
        "STANDARD_IA",
        "ONEZONE_IA",
        "INTELLIGENT_TIERING",
        "GLACIER_IR",
    )
}

_UTF8 = Charset("utf-8")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_AWS_CHUNKED = re.compile(rb"(?i)(?:^|,)[ \t]*aws-chunked[ \t]*(?=,|$)")


def _metadataText(value: bytes) -> str:
    """Decode the value of metadata; raw UTF-8 becomes the RFC 2047 words that S3 returns."""
    try:
        return value.decode("ascii")
    except UnicodeDecodeError:
        pass
    try:
        # The email package's Header would begin a line of its own after each line separator.
        return _UTF8.header_encode(value.decode("utf-8"))
    except UnicodeDecodeError:
        return value.decode("latin-1")


def isFieldText(value: str) -> bool:
    """
    Return whether a text may be the value of a header field: it has no control characters.

    Unlike C{str.isprintable}, this allows spaces of all kinds and soft hyphens.
    """
    return _CONTROL.search(value) is None


def readableText(value: str) -> str:
    """
    Decode a stored value for people: the encoded words of metadata, and the bytes in UTF-8 of other
    fields.
    """
    if value.isascii():
        if not value.startswith("=?"):
            return value
        try:
            return str(make_header(decode_header(value)))
        except (HeaderParseError, LookupError, ValueError):
            # The value only resembles an encoded word.
            return value
    try:
        return value.encode("latin-1").decode()
    except UnicodeError:
        return value


# A client sends the same fields with each request.
@lru_cache(maxsize=64)
def _attributeNames(names: tuple[bytes, ...]) -> tuple[bytes, ...]:
    metadata = [name for name in names if name.startswith(METADATA_PREFIX)]
    return (*(name for name in (*KEPT, TAGGING, *LOCK_FIELDS) if name in names), *metadata)


def attributesFrom(headers: Mapping[bytes, bytes]) -> Attributes:
    """
    Parse the attributes that a write sets on its object.

    @param headers: Values by lower-case name.
    @raise S3Error: C{MetadataTooLarge}, C{InvalidStorageClass}, C{InvalidTag}, C{InvalidArgument}.
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
            metadata[name[start:].decode("latin-1")] = _metadataText(value)
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
        fields = {"Size": str(size), "MaxSizeAllowed": str(METADATA_LIMIT)}
        raise S3Error("MetadataTooLarge", fields=fields)
    storageClass = _STORAGE_CLASSES.get(headers.get(STORAGE_CLASS, b"STANDARD"))
    if storageClass is None:
        raise S3Error("InvalidStorageClass")
    contentType = headers.get(b"content-type", b"").decode("latin-1") or "binary/octet-stream"
    return Attributes(contentType, kept, metadata, storageClass=storageClass, tags=tags, lock=lock)
