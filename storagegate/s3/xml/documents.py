"""
The XML documents of responses, with S3's exact order of elements.

ETags are passed without quotation marks. A checksum is written only if the object has one. A list
takes its query (L{storagegate.s3.pagination}), the rows, and the start of the next page, which the
last page lacks.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import TypeVar

from msgspec.structs import replace

from storagegate.objects.accounts import canonicalId
from storagegate.objects.dates import isoTimestamp
from storagegate.objects.names import FIRST_REGION
from storagegate.s3.errors import S3Error
from storagegate.s3.pagination import (
    AttributesQuery,
    BucketsQuery,
    KeysQuery,
    PartsQuery,
    encodeKey,
    isPlain,
)
from storagegate.s3.xml.reader import DeleteRequestEntry
from storagegate.s3.xml.writer import document, documentStart, element, escape, optional
from storagegate.storage.records import (
    Bucket,
    Checksum,
    ListedObject,
    ListedVersion,
    MultipartUpload,
    ObjectListing,
    ObjectRecord,
    Part,
    PartSummary,
    Removal,
    UploadListing,
    VersionListing,
)

_Listed = TypeVar("_Listed", ListedObject, ListedVersion)


@lru_cache(maxsize=256)
def ownerElement(name: str, account: str) -> str:
    """Return an C{Owner}, C{Initiator} or C{Grantee} element for an account."""
    return f"<{name}>{_identity(account)}</{name}>"


def _identity(account: str) -> str:
    return element("ID", canonicalId(account)) + element("DisplayName", account)


def locationConstraint(region: str) -> bytes:
    """Return LocationConstraint: empty for us-east-1, the original region of S3."""
    return document("LocationConstraint", "" if region == FIRST_REGION else region)


def policyStatus(isPublic: bool) -> bytes:
    """Return PolicyStatus."""
    return document("PolicyStatus", f"<IsPublic>{'true' if isPublic else 'false'}</IsPublic>")


def initiateMultipartUpload(bucket: str, key: str, uploadId: str) -> bytes:
    """Return InitiateMultipartUploadResult."""
    return document(
        "InitiateMultipartUploadResult",
        element("Bucket", bucket) + element("Key", key) + element("UploadId", uploadId),
    )


def completeMultipartUpload(
    location: str, bucket: str, key: str, etag: str, checksum: Checksum | None
) -> bytes:
    """
    Return CompleteMultipartUploadResult.

    @param location: The URL of the object.
    """
    content = _stored(location, bucket, key, etag) + _checksum(checksum)
    return document("CompleteMultipartUploadResult", content)


def postResponse(location: str, bucket: str, key: str, etag: str) -> bytes:
    """Return the response to a form with C{success_action_status} 201; it has no namespace."""
    return document("PostResponse", _stored(location, bucket, key, etag), namespace="")


def _stored(location: str, bucket: str, key: str, etag: str) -> str:
    names = element("Bucket", bucket) + element("Key", key)
    return element("Location", location) + names + _etag(etag)


def copyObject(etag: str, modifiedMs: int, checksum: Checksum | None) -> bytes:
    """Return CopyObjectResult."""
    return document("CopyObjectResult", _copied(etag, modifiedMs) + _checksum(checksum))


def copyPart(etag: str, modifiedMs: int, checksum: Checksum | None) -> bytes:
    """Return CopyPartResult; the checksum of a part has no type."""
    return document("CopyPartResult", _copied(etag, modifiedMs) + checksumElements(checksum))


def deleteResult(
    entries: Sequence[DeleteRequestEntry],
    removals: Mapping[int, Removal],
    errors: Mapping[int, S3Error],
    quiet: bool,
) -> bytes:
    """
    Return DeleteResult.

    @param entries: The entries of the request, in order.
    @param removals: Removals by the positions of deleted entries.
    @param errors: Errors by the positions of the other entries.
    @param quiet: Whether to include only errors.
    """
    pieces = []
    for position, each in enumerate(entries):
        entry = element("Key", each.key.decode()) + optional("VersionId", each.versionId)
        error = errors.get(position)
        if error is not None:
            entry += element("Code", error.code) + element("Message", error.message)
            pieces.append(f"<Error>{entry}</Error>")
        elif not quiet:
            if removals[position].isDeleteMarker:
                marker = element("DeleteMarkerVersionId", removals[position].versionId)
                entry += f"<DeleteMarker>true</DeleteMarker>{marker}"
            pieces.append(f"<Deleted>{entry}</Deleted>")
    return document("DeleteResult", "".join(pieces))


def objectAttributes(query: AttributesQuery, record: ObjectRecord) -> bytes:
    """Return GetObjectAttributesResponse: the requested attributes that the object has."""
    names, attributes = query.names, record.attributes
    pieces = []
    if "ETag" in names:
        pieces.append(element("ETag", record.etag))
    if "Checksum" in names and attributes.checksum is not None:
        # Amazon omits the count of a composite checksum only here.
        value = attributes.checksum.value.partition("-")[0]
        checksum = _checksum(replace(attributes.checksum, value=value))
        pieces.append(f"<Checksum>{checksum}</Checksum>")
    if "ObjectParts" in names and attributes.parts:
        pieces.append(_objectParts(query, attributes.parts))
    if "StorageClass" in names:
        pieces.append(element("StorageClass", attributes.storageClass))
    if "ObjectSize" in names:
        pieces.append(f"<ObjectSize>{record.size}</ObjectSize>")
    return document("GetObjectAttributesResponse", "".join(pieces))


def _objectParts(query: AttributesQuery, parts: Sequence[PartSummary]) -> str:
    rest = [part for part in parts if part.number > query.partsAfter]
    page = rest[: query.partsLimit]
    # A page without parts is the last: another page would start at the same position.
    truncated = 0 < len(page) < len(rest)
    rows = "".join(
        f"<Part><PartNumber>{part.number}</PartNumber><Size>{part.size}</Size>"
        f"{checksumElements(part.checksum)}</Part>"
        for part in page
    )
    return (
        f"<ObjectParts><PartsCount>{len(parts)}</PartsCount>"
        f"<PartNumberMarker>{query.partsAfter}</PartNumberMarker>"
        f"<NextPartNumberMarker>{page[-1].number if page else query.partsAfter}"
        f"</NextPartNumberMarker><MaxParts>{query.partsLimit}</MaxParts>"
        f"{_truncated(truncated)}{rows}</ObjectParts>"
    )


def _etag(etag: str) -> str:
    return element("ETag", f'"{etag}"')


def _copied(etag: str, modifiedMs: int) -> str:
    return f"<LastModified>{isoTimestamp(modifiedMs)}</LastModified>{_etag(etag)}"


def _checksum(checksum: Checksum | None) -> str:
    if checksum is None:
        return ""
    return checksumElements(checksum) + element("ChecksumType", checksum.kind)


def checksumElements(checksum: Checksum | None) -> str:
    """Return the value of a checksum, without its type; empty for no checksum."""
    return element(f"Checksum{checksum.algorithm}", checksum.value) if checksum else ""


def listBuckets(
    query: BucketsQuery, buckets: Iterable[Bucket], account: str, nextToken: str | None
) -> bytes:
    """Return ListAllMyBucketsResult."""
    rows = "".join(
        f"<Bucket><Name>{escape(bucket.name)}</Name>"
        f"<CreationDate>{isoTimestamp(bucket.createdMs)}</CreationDate>"
        f"<BucketRegion>{escape(bucket.region)}</BucketRegion></Bucket>"
        for bucket in buckets
    )
    return document(
        "ListAllMyBucketsResult",
        f"{ownerElement('Owner', account)}<Buckets>{rows}</Buckets>"
        + optional("ContinuationToken", nextToken)
        + optional("Prefix", query.prefix),
    )


ROWS_OF_A_PIECE = 150
"""Rows of a list that are written at a time: 0.1 ms, during which other requests wait."""


def listObjects(
    bucket: str,
    query: KeysQuery,
    page: ObjectListing,
    nextToken: str | None,
    owner: str | None = None,
) -> Iterator[str]:
    """
    Yield ListBucketResult, of either version, in pieces.

    @param nextToken: The token of C{page.last}.
    @param owner: The account that owns all objects, if there is one.
    """
    url, last = query.urlEncoding, page.last
    head = [element("Name", bucket), element("Prefix", encodeKey(query.prefix, url))]
    if query.version == 2:
        count = len(page.objects) + len(page.prefixes)
        head += (
            "" if query.token is None else element("ContinuationToken", query.token),
            optional("NextContinuationToken", nextToken),
            optional("StartAfter", encodeKey(query.marker, url)),
            f"<KeyCount>{count}</KeyCount>",
        )
    else:
        head += (
            element("Marker", encodeKey(query.marker, url)),
            optional("ContinuationToken", query.token),
            optional("NextMarker", encodeKey(last or "", url)),
            optional("NextContinuationToken", nextToken),
        )
    head += (
        f"<MaxKeys>{query.limit}</MaxKeys>",
        _page(query.delimiter, url, nextToken is not None),
    )
    yield documentStart("ListBucketResult") + "".join(head)
    texts: list[str] = []
    for rows in _slices(page.objects):
        if texts:
            yield "".join(texts)
        # Most keys are plain; one check of all keys takes a fifth of separate checks.
        isAllPlain = isPlain("".join([row.key for row in rows])) is not None
        texts = [
            f"<Contents><Key>{row.key if isAllPlain else _keyText(row.key, url)}</Key>"
            f"{_properties(row)}"
            f"{ownerElement('Owner', owner or row.account) if query.fetchOwner else ''}"
            f"<StorageClass>{row.storageClass}</StorageClass></Contents>"
            for row in rows
        ]
    yield "".join(texts) + _commonPrefixes(page.prefixes, url) + "</ListBucketResult>"


def listVersions(
    bucket: str, query: KeysQuery, page: VersionListing, owner: str | None = None
) -> Iterator[str]:
    """
    Yield ListVersionsResult in pieces, with versions and delete markers in one order.

    @param owner: See L{listObjects}.
    """
    url, last = query.urlEncoding, page.last
    head = [
        element("Name", bucket),
        element("Prefix", encodeKey(query.prefix, url)),
        element("KeyMarker", encodeKey(query.after, url)),
        element("VersionIdMarker", query.idMarker),
        optional("NextKeyMarker", encodeKey(last or "", url)),
        optional("NextVersionIdMarker", page.lastVersion),
        f"<MaxKeys>{query.limit}</MaxKeys>",
        _page(query.delimiter, url, last is not None),
    ]
    yield documentStart("ListVersionsResult") + "".join(head)
    texts: list[str] = []
    for rows in _slices(page.versions):
        if texts:
            yield "".join(texts)
        isAllPlain = isPlain("".join([row.key for row in rows])) is not None
        texts = [
            _version(row, row.key if isAllPlain else _keyText(row.key, url), owner or row.account)
            for row in rows
        ]
    yield "".join(texts) + _commonPrefixes(page.prefixes, url) + "</ListVersionsResult>"


def _slices(rows: Sequence[_Listed]) -> Iterator[Sequence[_Listed]]:
    for first in range(0, len(rows), ROWS_OF_A_PIECE):
        yield rows[first : first + ROWS_OF_A_PIECE]


def _version(row: ListedVersion, key: str, account: str) -> str:
    """Return a version or a delete marker; its key is already XML text."""
    names = (
        f"<Key>{key}</Key><VersionId>{row.versionId}</VersionId>"
        f"<IsLatest>{'true' if row.isLatest else 'false'}</IsLatest>"
    )
    owner = ownerElement("Owner", account)
    if row.isDeleteMarker:
        modified = f"<LastModified>{isoTimestamp(row.modifiedMs)}</LastModified>"
        return f"<DeleteMarker>{names}{modified}{owner}</DeleteMarker>"
    return (
        f"<Version>{names}{_properties(row)}{owner}"
        f"<StorageClass>{row.storageClass}</StorageClass></Version>"
    )


def listUploads(
    bucket: str,
    query: KeysQuery,
    page: UploadListing,
    owners: Sequence[str],
) -> bytes:
    """
    Return ListMultipartUploadsResult.

    @param owners: The account that will own the object of each upload.
    """
    url = query.urlEncoding
    nextKey, nextId = page.last or _lastOf(page)
    head = [
        element("Bucket", bucket),
        element("KeyMarker", encodeKey(query.after, url)),
        element("UploadIdMarker", query.idMarker),
        optional("NextKeyMarker", encodeKey(nextKey, url)),
        optional("NextUploadIdMarker", nextId),
        element("Prefix", encodeKey(query.prefix, url)),
        f"<MaxUploads>{query.limit}</MaxUploads>",
        _page(query.delimiter, url, page.last is not None),
    ]
    rows = [
        f"<Upload><Key>{_keyText(row.key.decode(), url)}</Key>"
        f"<UploadId>{escape(row.uploadId)}</UploadId>"
        f"{ownerElement('Initiator', row.account)}{ownerElement('Owner', owner)}"
        f"<StorageClass>{escape(row.attributes.storageClass)}</StorageClass>"
        f"<Initiated>{isoTimestamp(row.startedMs)}</Initiated>"
        f"{optional('ChecksumAlgorithm', row.checksumAlgorithm)}"
        f"{optional('ChecksumType', row.checksumKind)}</Upload>"
        for row, owner in zip(page.uploads, owners, strict=True)
    ]
    return document(
        "ListMultipartUploadsResult", "".join(head + rows) + _commonPrefixes(page.prefixes, url)
    )


def _lastOf(page: UploadListing) -> tuple[str, str]:
    """Return key and upload id of the last item of a list; a common prefix has no id."""
    uploads, prefixes = page.uploads, page.prefixes
    last = (uploads[-1].key.decode(), uploads[-1].uploadId) if uploads else ("", "")
    return (prefixes[-1], "") if prefixes and prefixes[-1] > last[0] else last


def listParts(
    bucket: str,
    query: PartsQuery,
    upload: MultipartUpload,
    parts: Sequence[Part],
    truncated: bool,
    owner: str,
) -> bytes:
    """
    Return ListPartsResult.

    @param owner: The account that will own the object.
    """
    last = parts[-1].number if parts else query.after
    head = [
        element("Bucket", bucket),
        element("Key", encodeKey(upload.key.decode(), query.urlEncoding)),
        element("UploadId", upload.uploadId),
        f"<PartNumberMarker>{query.after}</PartNumberMarker>",
        f"<NextPartNumberMarker>{last}</NextPartNumberMarker>",
        f"<MaxParts>{query.limit}</MaxParts>",
        _truncated(truncated),
    ]
    rows = [
        f"<Part><PartNumber>{part.number}</PartNumber>"
        f"{_copied(part.etag, part.modifiedMs)}<Size>{part.size}</Size>"
        f"{checksumElements(part.checksum)}</Part>"
        for part in parts
    ]
    tail = [
        ownerElement("Initiator", upload.account),
        ownerElement("Owner", owner),
        element("StorageClass", upload.attributes.storageClass),
        optional("ChecksumAlgorithm", upload.checksumAlgorithm),
        optional("ChecksumType", upload.checksumKind),
    ]
    return document("ListPartsResult", "".join(head + rows + tail))


def _keyText(key: str, url: bool) -> str:
    """Return a key as XML text."""
    # One check suffices for both encodings.
    if isPlain(key) is not None:
        return key
    return escape(encodeKey(key, url))


def _truncated(truncated: bool) -> str:
    return f"<IsTruncated>{'true' if truncated else 'false'}</IsTruncated>"


def _page(delimiter: str, url: bool, truncated: bool) -> str:
    return (
        optional("Delimiter", encodeKey(delimiter, url))
        + _truncated(truncated)
        + ("<EncodingType>url</EncodingType>" if url else "")
    )


def _properties(row: ListedObject | ListedVersion) -> str:
    return (
        f"<LastModified>{isoTimestamp(row.modifiedMs)}</LastModified><ETag>&quot;{row.etag}&quot;"
        f"</ETag>{_checksumNames(row.checksumAlgorithm, row.checksumKind)}<Size>{row.size}</Size>"
    )


# There are a dozen, and each row of a list has one.
@lru_cache(maxsize=64)
def _checksumNames(algorithm: str, kind: str) -> str:
    if not algorithm:
        return ""
    return f"<ChecksumAlgorithm>{algorithm}</ChecksumAlgorithm><ChecksumType>{kind}</ChecksumType>"


def _commonPrefixes(prefixes: Sequence[str], url: bool) -> str:
    return "".join(
        f"<CommonPrefixes><Prefix>{_keyText(prefix, url)}</Prefix></CommonPrefixes>"
        for prefix in prefixes
    )
