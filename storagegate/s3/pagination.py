"""
The parameters of list requests.

Each function parses one request into a frozen value, or raises L{S3Error} with C{InvalidArgument}.
An empty marker, prefix, delimiter or token counts as absent; a large number is reduced to the page
size. Keys and markers are text here and bytes in the store.
"""

import re
from collections.abc import Mapping
from urllib.parse import quote

from msgspec import Struct

from storagegate.core.options import parseDecimal
from storagegate.objects.names import isRegion
from storagegate.objects.pagination import (
    BUCKETS_LIMIT,
    PAGE_LIMIT,
    PART_LIMIT,
    UPLOAD_ID_BYTES,
    readToken,
)
from storagegate.s3.errors import S3Error, invalidArgument

_INTEGER = 2**31 - 1
_ATTRIBUTES = frozenset(["ETag", "Checksum", "ObjectParts", "StorageClass", "ObjectSize"])
_ATTRIBUTES_FIELD = "x-amz-object-attributes"


_isUploadId = re.compile(rf"[0-9a-f]{{{2 * UPLOAD_ID_BYTES}}}", re.ASCII).fullmatch

isPlain = re.compile(r"[A-Za-z0-9_.~/-]*", re.ASCII).fullmatch
"""Match text that needs no encoding in URLs or XML."""


class KeysQuery(Struct, frozen=True):
    """
    A list of objects, versions or uploads.

    @ivar after: List strictly after this key or common prefix.
    @ivar marker: The raw C{marker} or C{start-after} of a list of objects.
    @ivar idMarker: C{version-id-marker} or C{upload-id-marker}; if it is empty, the versions or
        uploads of the key C{after} are omitted.
    @ivar token: The raw C{continuation-token}.
    @ivar version: 2 for ListObjectsV2.
    """

    prefix: str
    delimiter: str
    after: str
    limit: int
    urlEncoding: bool
    marker: str = ""
    idMarker: str = ""
    token: str | None = None
    fetchOwner: bool = False
    version: int = 1

    @property
    def keys(self) -> tuple[bytes, bytes, bytes]:
        """The prefix, the delimiter and the start of a page, as the store takes them."""
        return self.prefix.encode(), self.delimiter.encode(), self.after.encode()


class PartsQuery(Struct, frozen=True):
    """ListParts: the parts with a number above C{after}."""

    after: int
    limit: int
    urlEncoding: bool


class BucketsQuery(Struct, frozen=True):
    """
    ListBuckets.

    @ivar after: List strictly after this name.
    @ivar region: Only the buckets of this region; empty for all regions.
    """

    prefix: str
    after: str
    limit: int
    region: str


class AttributesQuery(Struct, frozen=True):
    """
    GetObjectAttributes.

    @ivar names: Some of C{ETag}, C{Checksum}, C{ObjectParts}, C{StorageClass}, C{ObjectSize}.
    @ivar partsAfter: List the parts with a greater number.
    @ivar partsLimit: Largest number of parts.
    """

    names: frozenset[str]
    partsAfter: int
    partsLimit: int


def parseListObjects(query: Mapping[str, str], secret: bytes, bucket: str) -> KeysQuery:
    """
    Parse ListObjects or, with C{list-type=2}, ListObjectsV2.

    Both have C{continuation-token}, which takes precedence over C{marker} and C{start-after}.

    @param secret: The secret of the store, for the token.
    @param bucket: The listed bucket.
    @raise S3Error: C{InvalidArgument}, also for the position of the other version.
    """
    version = 2 if query.get("list-type") == "2" else 1
    if version == 1 and query.get("start-after"):
        message = "startAfter only supported in REST.GET.BUCKET with list-type=2"
        raise invalidArgument("start-after", query["start-after"], message)
    if version == 2 and query.get("marker"):
        message = "Marker unsupported with REST.GET.BUCKET in list-type=2"
        raise invalidArgument("marker", query["marker"], message)
    marker = query.get("start-after" if version == 2 else "marker", "")
    token = query.get("continuation-token")
    return KeysQuery(
        *_keys(query),
        readToken(secret, bucket, token) if token else marker,
        *_page(query),
        marker=marker,
        token=token,
        fetchOwner=version == 1 or query.get("fetch-owner", "").lower() == "true",
        version=version,
    )


def parseListVersions(query: Mapping[str, str]) -> KeysQuery:
    """Parse ListObjectVersions."""
    keyMarker = query.get("key-marker", "")
    idMarker = query.get("version-id-marker", "")
    if "version-id-marker" in query and not (idMarker and keyMarker):
        message = "A version-id marker cannot be specified without a key marker."
        if keyMarker:
            message = "A version-id marker cannot be empty."
        raise invalidArgument("version-id-marker", idMarker, message)
    return KeysQuery(*_keys(query), keyMarker, *_page(query), idMarker=idMarker)


def parseListUploads(query: Mapping[str, str]) -> KeysQuery:
    """
    Parse ListMultipartUploads; S3 ignores the upload id marker without a key marker.

    @raise S3Error: C{InvalidArgument}, also for a marker that is no upload id.
    """
    keyMarker = query.get("key-marker", "")
    idMarker = query.get("upload-id-marker", "") if keyMarker else ""
    if idMarker and _isUploadId(idMarker) is None:
        raise invalidArgument("upload-id-marker", idMarker, "Invalid uploadId marker")
    return KeysQuery(*_keys(query), keyMarker, *_page(query, "max-uploads"), idMarker=idMarker)


def parseListParts(query: Mapping[str, str]) -> PartsQuery:
    """Parse ListParts."""
    after = _count(query, "part-number-marker", _INTEGER, default=0)
    return PartsQuery(after, *_page(query, "max-parts"))


def parseListBuckets(query: Mapping[str, str], secret: bytes, ownRegion: str) -> BucketsQuery:
    """
    Parse ListBuckets.

    @param secret: The secret of the store, for the token.
    @param ownRegion: The region of new buckets.
    """
    limit = _count(query, "max-buckets", _INTEGER, default=BUCKETS_LIMIT)
    if not 1 <= limit <= BUCKETS_LIMIT:
        message = f"Argument max-buckets must be an integer between 1 and {BUCKETS_LIMIT}"
        raise invalidArgument("max-buckets", query["max-buckets"], message)
    token, region = query.get("continuation-token"), query.get("bucket-region", "")
    if region not in ("", ownRegion) and not isRegion(region):
        message = f"Argument value {region} is not a valid AWS Region"
        raise invalidArgument("bucket-region", region, message)
    return BucketsQuery(
        prefix=query.get("prefix", ""),
        after=readToken(secret, "", token) if token else "",
        limit=limit,
        region=region,
    )


def parseAttributes(headers: Mapping[bytes, bytes]) -> AttributesQuery:
    """
    Parse GetObjectAttributes, whose parameters are header fields.

    @param headers: Headers by lower-case name.
    @raise S3Error: C{InvalidArgument}, or C{InvalidRequest} if no attribute is named.
    """
    field = headers.get(_ATTRIBUTES_FIELD.encode(), b"").decode("latin-1")
    names = [name.strip() for name in field.split(",")]
    while names and not names[-1]:
        names.pop()
    if not names:
        raise S3Error(
            "InvalidRequest",
            "The x-amz-object-attributes header specifying the attributes to be retrieved is "
            "either missing or empty",
        )
    for name in names:
        if name not in _ATTRIBUTES:
            raise invalidArgument(_ATTRIBUTES_FIELD, name, "Invalid attribute name specified.")
    numbers = {
        name: headers[name.encode()].decode("latin-1")
        for name in ("x-amz-part-number-marker", "x-amz-max-parts")
        if name.encode() in headers
    }
    return AttributesQuery(
        names=frozenset(names),
        partsAfter=_count(numbers, "x-amz-part-number-marker", _INTEGER, default=0),
        partsLimit=_count(numbers, "x-amz-max-parts", PAGE_LIMIT),
    )


def parsePartNumber(query: Mapping[str, str]) -> int:
    """Parse the required parameter C{partNumber}, from 1 to 10,000."""
    text = query.get("partNumber", "")
    try:
        number = parseDecimal(text, PART_LIMIT)
    except ValueError:
        number = 0
    if not number:
        message = f"Part number must be an integer between 1 and {PART_LIMIT}, inclusive"
        raise invalidArgument("partNumber", text, message)
    return number


def encodeKey(text: str, urlEncoding: bool) -> str:
    """
    Encode a key, prefix, delimiter or marker as the client requested.

    @param urlEncoding: Whether C{encoding-type=url} was sent.

    Slashes stay unescaped. A space becomes C{%20}: S3 writes C{+}, which some decoders take for a
    plus sign, while all decode C{%20}.
    """
    if not urlEncoding or isPlain(text) is not None:
        return text
    return quote(text, safe="/")


def _keys(query: Mapping[str, str]) -> tuple[str, str]:
    return query.get("prefix", ""), query.get("delimiter", "")


def parsePageSize(query: Mapping[str, str], name: str = "max-keys") -> int:
    """Parse the page size: C{PAGE_LIMIT} by default and at most."""
    return _count(query, name, PAGE_LIMIT)


def _page(query: Mapping[str, str], name: str = "max-keys") -> tuple[int, bool]:
    """Parse the page size, and whether keys are URL-encoded."""
    limit = parsePageSize(query, name)
    encoding = query.get("encoding-type", "")
    if encoding and encoding != "url":
        message = "Invalid Encoding Method specified in Request"
        raise invalidArgument("encoding-type", encoding, message)
    return limit, bool(encoding)


def _count(query: Mapping[str, str], name: str, limit: int, default: int | None = None) -> int:
    text = query.get(name)
    if text is None:
        return limit if default is None else default
    try:
        return min(parseDecimal(text, _INTEGER), limit)
    except ValueError:
        pass
    raise invalidArgument(name, text, f"Provided {name} not an integer or within integer range")
