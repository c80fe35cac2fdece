"""The attributes of an object that a write sets: content type, stored fields, metadata, class."""

import re
from collections.abc import Mapping
from email.charset import Charset
from email.errors import HeaderParseError
from email.header import decode_header, make_header

from storagegate.objects import errors
from storagegate.storage.records import Attributes

STORED_FIELDS = (
    "content-encoding",
    "content-disposition",
    "content-language",
    "cache-control",
    "expires",
)
"""Fields, besides the content type, that are stored and returned unchanged."""

METADATA_LIMIT = 2048
"""Largest size of user metadata, names and values together, in bytes: S3's own limit."""

# Labels without effect. Objects of C{GLACIER} and C{DEEP_ARCHIVE} could not be read before a
# restoration, so these two are refused.
STORAGE_CLASSES = frozenset(
    {
        "STANDARD",
        "REDUCED_REDUNDANCY",
        "STANDARD_IA",
        "ONEZONE_IA",
        "INTELLIGENT_TIERING",
        "GLACIER_IR",
    }
)
"""The storage classes that an object can have."""

DEFAULT_CONTENT_TYPE = "binary/octet-stream"
"""The content type of an object that names none: S3's own choice."""

_UTF8 = Charset("utf-8")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")


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


def encodeMetadata(value: bytes) -> str:
    """Return the stored form of a value of metadata: UTF-8 becomes words of RFC 2047."""
    try:
        return value.decode("ascii")
    except UnicodeDecodeError:
        pass
    try:
        # The email package's Header would begin a line of its own after each line separator.
        return _UTF8.header_encode(value.decode("utf-8"))
    except UnicodeDecodeError:
        return value.decode("latin-1")


def checkMetadataSize(size: int) -> None:
    """
    Check the size of the metadata of an object.

    @param size: Bytes of all names and values.
    @raise MetadataTooLarge: The size exceeds L{METADATA_LIMIT}.
    """
    if size > METADATA_LIMIT:
        raise errors.MetadataTooLarge(size=str(size), maxSize=str(METADATA_LIMIT))


def checkedStorageClass(name: str) -> str:
    """Return a valid storage class; raise L{InvalidStorageClass<errors.InvalidStorageClass>}."""
    if name not in STORAGE_CLASSES:
        raise errors.InvalidStorageClass()
    return name


def makeAttributes(
    contentType: str, metadata: Mapping[str, str], fields: Mapping[str, str] | None = None
) -> Attributes:
    """
    Make the attributes of an object from text.

    @param contentType: Empty for the default.
    @param metadata: Values by lower-case name.
    @param fields: Further fields by lower-case name; only L{STORED_FIELDS} are kept.
    @raise MetadataTooLarge: The metadata exceed their limit.
    """
    encoded = {name: value.encode() for name, value in metadata.items()}
    checkMetadataSize(sum(len(name) + len(value) for name, value in encoded.items()))
    return Attributes(
        contentType.encode().decode("latin-1") or DEFAULT_CONTENT_TYPE,
        {
            name: value.encode().decode("latin-1")
            for name, value in (fields or {}).items()
            if value and name in STORED_FIELDS
        },
        {name: encodeMetadata(value) for name, value in encoded.items()},
    )
