"""The header fields with which a client describes an object that it uploads to the console."""

import re
from collections.abc import Mapping
from urllib.parse import unquote_to_bytes

from msgspec.structs import replace

from storagegate.core.errors import ServiceError, codedError
from storagegate.objects.attributes import isFieldText, makeAttributes
from storagegate.objects.checksums import (
    ALGORITHMS,
    BodyExpectation,
    ExpectedChecksum,
    decodeDigest,
    encodeDigest,
)
from storagegate.objects.tags import OBJECT_TAGS, Tags, checkedTags, encodeTags
from storagegate.storage.records import Attributes, WriteCondition

_METADATA = b"x-amz-meta-"
_CHECKSUM = b"x-amz-checksum-"

_STORED = ("content-disposition", "content-encoding", "content-language")
"""
The request fields that are stored with an object. C{Cache-Control} is not among them: a browser
sends its own.
"""

_TAG = rb'[ \t]*(?:\*|(?:W/)?"[^"]*"|[0-9a-f]{32}(?:-[0-9]{1,5})?)[ \t]*'
_TAGS = re.compile(rb"%b(?:,%b)*" % (_TAG, _TAG))
_MALFORMED = re.compile(rb"%(?![0-9A-Fa-f]{2})")

Headers = Mapping[bytes, bytes]


def _invalid(message: str) -> ServiceError:
    return codedError("INVALID_ARGUMENT", message)


def writeCondition(headers: Headers) -> WriteCondition:
    """
    Read C{If-Match} and C{If-None-Match}.

    @param headers: Values by lower-case name.
    @raise ServiceError: C{INVALID_ARGUMENT}.
    """
    match, unlike = _etags(headers, b"if-match"), _etags(headers, b"if-none-match")
    if unlike and _TAGS.fullmatch(headers[b"if-none-match"]) is None:
        raise _invalid("If-None-Match must be * or a list of ETags")
    condition = WriteCondition(etags=match)
    if "*" in unlike:
        return replace(condition, absent=True)
    # If-Match compares strongly: a weak tag matches nothing. If-None-Match compares weakly.
    return replace(condition, unlike=tuple(tag.removeprefix('W/"') for tag in unlike))


def _etags(headers: Headers, name: bytes) -> tuple[str, ...]:
    """Return the tags in a field, without quotation marks."""
    value = headers.get(name)
    if value is None:
        return ()
    text = value.decode("latin-1")
    if not text.strip():
        raise _invalid(f"{name.decode().title()} must not be empty")
    return tuple(each.strip().strip('"') for each in text.split(","))


def uploadAttributes(headers: Headers) -> Attributes:
    """
    Read the attributes of an object: its type, stored fields, metadata and tags.

    @param headers: Values by lower-case name.
    @raise ServiceError: C{INVALID_ARGUMENT}: the tags are malformed.
    @raise DomainError: The attributes break a rule.
    """
    metadata = {
        name[len(_METADATA) :].decode("latin-1"): _text(value)
        for name, value in headers.items()
        if name.startswith(_METADATA)
    }
    fields = {name: _text(headers[name.encode()]) for name in _STORED if name.encode() in headers}
    attributes = makeAttributes(_text(headers.get(b"content-type", b"")), metadata, fields)
    sent = headers.get(b"x-amz-tagging")
    return attributes if sent is None else replace(attributes, tags=encodeTags(_tags(sent)))


def _text(value: bytes) -> str:
    """Decode a field; bytes that are not UTF-8 keep their values."""
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value.decode("latin-1")


def _tags(header: bytes) -> Tags:
    pairs = []
    for pair in header.strip().split(b"&"):
        if pair:
            key, _, value = pair.partition(b"=")
            pairs.append((_unquoted(key), _unquoted(value)))
    return checkedTags(pairs, OBJECT_TAGS)


def _unquoted(raw: bytes) -> str:
    try:
        if _MALFORMED.search(raw) is None:
            return unquote_to_bytes(raw.replace(b"+", b" ")).decode()
    except UnicodeDecodeError:
        pass
    raise _invalid("x-amz-tagging must be URL-encoded UTF-8")


def uploadExpectation(headers: Headers, length: int | None, algorithm: str) -> BodyExpectation:
    """
    Read the declarations about the body: C{Content-MD5} and C{x-amz-checksum-*}.

    @param headers: Values by lower-case name.
    @param length: Bytes of the body, if declared.
    @param algorithm: The checksum to compute if the request names none.
    @raise ServiceError: C{INVALID_ARGUMENT}.
    """
    found = {
        name: headers[_CHECKSUM + name.lower().encode()]
        for name in ALGORITHMS
        if _CHECKSUM + name.lower().encode() in headers
    }
    if len(found) > 1 or b"x-amz-trailer" in headers:
        raise _invalid("Expecting a single x-amz-checksum- header")
    checksum = None
    for name, value in found.items():
        digest = decodeDigest(value, ALGORITHMS[name].size)
        if digest is None:
            raise _invalid(f"Value for x-amz-checksum-{name.lower()} header is invalid.")
        checksum = ExpectedChecksum(name, encodeDigest(digest))
    md5 = None
    if b"content-md5" in headers:
        md5 = decodeDigest(headers[b"content-md5"], 16)
        if md5 is None:
            message = "The Content-MD5 you specified was invalid."
            raise ServiceError("InvalidDigest", message, 400)
    return BodyExpectation(length, md5, checksum=checksum, algorithm=algorithm)


def attributesOf(
    contentType: str, metadata: Mapping[str, str], headers: Mapping[str, str]
) -> Attributes:
    """
    Make attributes from JSON, with the checks of header fields.

    @param metadata: Values by name.
    @param headers: The stored fields.
    @raise ServiceError: C{INVALID_ARGUMENT}: a name or a value is invalid in a header field.
    """
    for name, value in {"content-type": contentType, **headers, **metadata}.items():
        isName = name.isascii() and name.replace("-", "").replace("_", "").isalnum()
        if not isName or not isFieldText(value):
            raise _invalid("A name or a value is not valid in a header field")
    return makeAttributes(
        contentType,
        {name.lower(): value for name, value in metadata.items()},
        {name.lower(): value for name, value in headers.items()},
    )
