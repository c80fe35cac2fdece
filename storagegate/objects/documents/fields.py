"""
The header fields with which a request describes an object that it writes: its attributes, its lock,
the condition of the write, and the digests of the body. S3 defined them, and the console has the
same::

    x-amz-tagging            = [tag *("&" tag)]           tag = key ["=" value], URL-encoded
    x-amz-object-lock-mode              = "GOVERNANCE" / "COMPLIANCE"
    x-amz-object-lock-retain-until-date = date            ISO 8601, in the future
    x-amz-object-lock-legal-hold        = "ON" / "OFF"
    x-amz-checksum-ALGORITHM = Base64
    Content-MD5              = Base64
    If-Match, If-None-Match  = "*" / 1#entity-tag

A retention always has both a mode and a date. The catalog applies the default of the bucket.
"""

import re
from collections.abc import Mapping
from functools import lru_cache
from urllib.parse import unquote_to_bytes

from storagegate.objects import errors
from storagegate.objects.attributes import (
    DEFAULT_CONTENT_TYPE,
    METADATA_LIMIT,
    STORED_FIELDS,
    checkedStorageClass,
    checkMetadataSize,
    encodeMetadata,
)
from storagegate.objects.checksums import ALGORITHMS, Algorithm, decodeDigest, encodeDigest
from storagegate.objects.dates import parseUntil
from storagegate.objects.locks import HOLDS
from storagegate.objects.tags import OBJECT_TAGS, Tags, checkedTags, encodeTags
from storagegate.storage.records import (
    RETENTION_MODES,
    UNLOCKED,
    Attributes,
    ObjectLock,
    WriteCondition,
)

TAGGING = b"x-amz-tagging"
STORAGE_CLASS = b"x-amz-storage-class"

METADATA_PREFIX = b"x-amz-meta-"

KEPT = tuple(name.encode() for name in STORED_FIELDS)
"""Headers, besides C{Content-Type}, that are stored and returned unchanged."""

MODE = b"x-amz-object-lock-mode"
UNTIL = b"x-amz-object-lock-retain-until-date"
LEGAL_HOLD = b"x-amz-object-lock-legal-hold"

LOCK_FIELDS = frozenset({MODE, UNTIL, LEGAL_HOLD})
"""The headers that set the lock of a written object."""

_CHECKSUM_PREFIX = b"x-amz-checksum-"
_CHECKSUM_SETTINGS = frozenset(
    {b"x-amz-checksum-algorithm", b"x-amz-checksum-type", b"x-amz-checksum-mode"}
)

CHECKSUM_HEADERS: Mapping[str, bytes] = {
    name: _CHECKSUM_PREFIX + name.lower().encode() for name in ALGORITHMS
}
"""The headers that carry checksums, by algorithm."""

CHECKSUMS_BY_HEADER: Mapping[bytes, Algorithm] = {
    header: ALGORITHMS[name] for name, header in CHECKSUM_HEADERS.items()
}
"""The algorithms, by the headers that carry their checksums."""

_AWS_CHUNKED = re.compile(rb"(?i)(?:^|,)[ \t]*aws-chunked[ \t]*(?=,|$)")
_MALFORMED = re.compile(rb"%(?![0-9A-Fa-f]{2})")

# ETags need no quotation marks if they have the form of this store's.
_TAG = rb'[ \t]*(?:\*|(?:W/)?"[^"]*"|[0-9a-f]{32}(?:-[0-9]{1,5})?)[ \t]*'
_TAGS = re.compile(rb"%b(?:,%b)*" % (_TAG, _TAG))


# A client sends the same fields with each request.
@lru_cache(maxsize=64)
def _attributeNames(names: tuple[bytes, ...]) -> tuple[bytes, ...]:
    metadata = [name for name in names if name.startswith(METADATA_PREFIX)]
    return (*(name for name in (*KEPT, TAGGING, *LOCK_FIELDS) if name in names), *metadata)


def attributesFrom(headers: Mapping[bytes, bytes]) -> Attributes:
    """
    Parse the attributes that a write sets on its object.

    @param headers: Values by lower-case name.
    @raise DomainError: A field is malformed, or breaks a rule of the attributes.
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


def lockFrom(headers: Mapping[bytes, bytes]) -> ObjectLock:
    """
    Parse the lock that a write sets on its object.

    @param headers: Values by lower-case name.
    @raise InvalidArgument: A mode without a date, a date without a mode, or an invalid value.
    """
    named = {name: headers[name].decode("latin-1").strip() for name in LOCK_FIELDS & headers.keys()}
    if not named:
        return UNLOCKED
    hold = named.get(LEGAL_HOLD)
    if hold is not None and hold not in HOLDS:
        raise errors.InvalidArgument(
            "Legal Hold must be either of 'ON' or 'OFF'", name=LEGAL_HOLD.decode(), value=hold
        )
    legalHold = None if hold is None else HOLDS[hold]
    mode, until = named.get(MODE), named.get(UNTIL)
    if mode is None and until is None:
        return ObjectLock(legalHold=legalHold)
    if mode is None or until is None:
        message = (
            "x-amz-object-lock-retain-until-date and x-amz-object-lock-mode must both be supplied"
        )
        name = UNTIL if until is None else MODE
        raise errors.InvalidArgument(message, name=name.decode(), value="")
    if mode not in RETENTION_MODES:
        raise errors.InvalidArgument("Unknown wormMode directive.", name=MODE.decode(), value=mode)
    try:
        return ObjectLock(mode, parseUntil(until), legalHold)
    except ValueError:
        message = "The retain until date must be provided in ISO 8601 format"
        raise errors.InvalidArgument(message, name=UNTIL.decode(), value=until) from None


# A client gives the same tags to many objects.
@lru_cache(maxsize=64)
def tagsOfHeader(header: bytes) -> Tags:
    """
    Parse C{x-amz-tagging}: the tags of an object.

    @param header: The value of the header; empty for no tags. Empty pairs are ignored.
    @raise InvalidArgument: The value is not URL-encoded UTF-8.
    @raise DomainError: A tag is invalid.
    """
    pairs = []
    for pair in header.strip().split(b"&"):
        if pair:
            key, _, value = pair.partition(b"=")
            pairs.append((_decoded(header, key), _decoded(header, value)))
    return checkedTags(pairs, OBJECT_TAGS)


def _decoded(header: bytes, raw: bytes) -> str:
    try:
        return decodePercent(raw.replace(b"+", b" ")).decode()
    except ValueError:
        message = (
            "The header 'x-amz-tagging' shall be encoded as UTF-8 then URLEncoded URL query "
            "parameters without tag name duplicates."
        )
        raise errors.InvalidArgument(
            message, name="x-amz-tagging", value=header.decode("latin-1")
        ) from None


def decodePercent(raw: bytes) -> bytes:
    """Decode percent escapes, once; raise L{ValueError} if one is malformed."""
    # For bytes, CPython's "in" goes through an exception, which takes ten times as long.
    if raw.find(b"%") < 0:
        return raw
    if _MALFORMED.search(raw) is not None:
        raise ValueError("malformed percent escape")
    return unquote_to_bytes(raw)


def writeCondition(headers: Mapping[bytes, bytes]) -> WriteCondition:
    """
    Parse the conditions of a write.

    @param headers: Values by lower-case name.
    @raise InvalidArgument: A condition is empty.
    @raise UnsupportedFeature: C{If-None-Match} is neither C{*} nor ETags, and so none of HTTP's
        conditions.
    """
    absent, unlike = False, _etags(headers, b"if-none-match")
    if unlike and _TAGS.fullmatch(headers[b"if-none-match"]) is None:
        raise errors.UnsupportedFeature(argument="If-None-Match")
    if "*" in unlike:
        absent, unlike = True, ()
    # If-Match compares strongly: a weak tag matches nothing. If-None-Match compares weakly.
    return WriteCondition(
        absent, _etags(headers, b"if-match"), tuple(tag.removeprefix('W/"') for tag in unlike)
    )


def _etags(headers: Mapping[bytes, bytes], name: bytes) -> tuple[str, ...]:
    """Return the tags in a field, without quotation marks."""
    value = headers.get(name)
    if value is None:
        return ()
    text = value.decode("latin-1")
    if not text.strip():
        raise errors.InvalidArgument(name=name.decode().title(), value=text)
    return tuple(each.strip().strip('"') for each in text.split(","))


# A client sends the same fields with each request.
@lru_cache(maxsize=64)
def _checksumNames(names: tuple[bytes, ...]) -> tuple[bytes, ...]:
    return tuple(
        name
        for name in names
        if name.startswith(_CHECKSUM_PREFIX) and name not in _CHECKSUM_SETTINGS
    )


def declared(headers: Mapping[bytes, bytes], hasCount: bool = False) -> tuple[str, str] | None:
    """
    Parse the checksum that a request carries in a header.

    @param headers: Values by lower-case name.
    @param hasCount: Whether C{-} and the number of parts may follow the value.
    @return: Algorithm and value in Base64; L{None} if the headers have none.
    @raise InvalidRequest: Several checksums, an unknown algorithm or an invalid value.
    """
    names = _checksumNames(tuple(headers))
    if not names:
        return None
    if len(names) > 1:
        raise errors.InvalidRequest(
            "Expecting a single x-amz-checksum- header. Multiple checksum Types are not allowed.",
        )
    known = CHECKSUMS_BY_HEADER.get(names[0])
    if known is None:
        text = "The algorithm type you specified in x-amz-checksum- header is invalid."
        raise errors.InvalidRequest(text)
    value, dash, count = headers[names[0]], b"", b""
    if hasCount:
        value, dash, count = value.partition(b"-")
    return known.name, _value(known, value) + (dash + count).decode("latin-1")


def _value(known: Algorithm, value: bytes) -> str:
    digest = decodeDigest(value, known.size)
    if digest is None:
        text = f"Value for {CHECKSUM_HEADERS[known.name].decode()} header is invalid."
        raise errors.InvalidRequest(text)
    return encodeDigest(digest)


def contentMD5(headers: Mapping[bytes, bytes]) -> bytes | None:
    """
    Parse C{Content-MD5}.

    @param headers: Values by lower-case name.
    @return: The 16 bytes; L{None} if the header is absent.
    @raise InvalidDigest: The value is not the Base64 of 16 bytes.
    """
    value = headers.get(b"content-md5")
    if value is None:
        return None
    digest = decodeDigest(value, 16)
    if digest is None:
        raise errors.InvalidDigest(contentMD5=value.decode("latin-1"))
    return digest
