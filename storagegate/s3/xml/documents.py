"""
The answers that are not lists.

ETags go in without quotation marks. Checksums are written only where there are any.
"""

from collections.abc import Sequence

from attrs import frozen

from storagegate.s3.errors import S3Error
from storagegate.s3.headers import isoTimestamp, ownerOf
from storagegate.s3.pagination import AttributesQuery
from storagegate.s3.xml.listings import ChecksumRow, PartSummaryRow, checksumElements
from storagegate.s3.xml.writer import document, element, optional

_DEFAULT_REGION = "us-east-1"
_INSTANCE = "http://www.w3.org/2001/XMLSchema-instance"


@frozen
class DeleteOutcome:
    """
    What became of one entry of a delete-many.

    @ivar versionId: The version that was named, if one was.
    @ivar error: Why it is still there; C{None} where it is gone, or never was.
    """

    key: str
    versionId: str | None = None
    error: S3Error | None = None


def locationConstraint(region: str) -> bytes:
    """Write LocationConstraint: empty for the region that S3 had before it had regions."""
    return document("LocationConstraint", "" if region == _DEFAULT_REGION else region)


def accessControlPolicy(account: str) -> bytes:
    """Write the ACL of what nobody but its owner may use."""
    owner = ownerOf(account)
    identity = element("ID", owner.id) + element("DisplayName", owner.displayName)
    return document(
        "AccessControlPolicy",
        f"<Owner>{identity}</Owner><AccessControlList><Grant>"
        f'<Grantee xmlns:xsi="{_INSTANCE}" xsi:type="CanonicalUser">{identity}</Grantee>'
        "<Permission>FULL_CONTROL</Permission></Grant></AccessControlList>",
    )


def initiateMultipartUpload(bucket: str, key: str, uploadId: str) -> bytes:
    """Write InitiateMultipartUploadResult."""
    return document(
        "InitiateMultipartUploadResult",
        element("Bucket", bucket) + element("Key", key) + element("UploadId", uploadId),
    )


def completeMultipartUpload(
    location: str, bucket: str, key: str, etag: str, checksum: ChecksumRow | None
) -> bytes:
    """
    Write CompleteMultipartUploadResult.

    @param location: The URL of the object.
    """
    return document(
        "CompleteMultipartUploadResult",
        element("Location", location)
        + element("Bucket", bucket)
        + element("Key", key)
        + _etag(etag)
        + _checksum(checksum),
    )


def copyObject(etag: str, modifiedMs: int, checksum: ChecksumRow | None) -> bytes:
    """Write CopyObjectResult."""
    return document("CopyObjectResult", _copied(etag, modifiedMs) + _checksum(checksum))


def copyPart(etag: str, modifiedMs: int, checksum: ChecksumRow | None) -> bytes:
    """Write CopyPartResult; a part's checksum has no type."""
    return document("CopyPartResult", _copied(etag, modifiedMs) + checksumElements(checksum))


def postResponse(location: str, bucket: str, key: str, etag: str) -> bytes:
    """Write the answer to a form whose C{success_action_status} is 201; it has no namespace."""
    return document(
        "PostResponse",
        element("Location", location)
        + element("Bucket", bucket)
        + element("Key", key)
        + _etag(etag),
        namespace="",
    )


def deleteResult(outcomes: Sequence[DeleteOutcome], quiet: bool) -> bytes:
    """
    Write DeleteResult.

    @param quiet: Leave out what went well.
    """
    pieces = []
    for outcome in outcomes:
        entry = element("Key", outcome.key) + optional("VersionId", outcome.versionId)
        if outcome.error is not None:
            code, message = outcome.error.code, outcome.error.message
            entry += element("Code", code) + element("Message", message)
            pieces.append(f"<Error>{entry}</Error>")
        elif not quiet:
            pieces.append(f"<Deleted>{entry}</Deleted>")
    return document("DeleteResult", "".join(pieces))


def objectAttributes(
    query: AttributesQuery,
    etag: str,
    size: int,
    storageClass: str,
    checksum: ChecksumRow | None,
    parts: Sequence[PartSummaryRow],
) -> bytes:
    """
    Write GetObjectAttributesResponse: what was asked for, as far as the object has it.

    @param parts: All parts, in order; empty for an object that was uploaded in one piece.
    """
    pieces = []
    if "ETag" in query.names:
        pieces.append(element("ETag", etag))
    if "Checksum" in query.names and checksum is not None:
        pieces.append(f"<Checksum>{_checksum(checksum)}</Checksum>")
    if "ObjectParts" in query.names and parts:
        pieces.append(_objectParts(query, parts))
    if "StorageClass" in query.names:
        pieces.append(element("StorageClass", storageClass))
    if "ObjectSize" in query.names:
        pieces.append(f"<ObjectSize>{size}</ObjectSize>")
    return document("GetObjectAttributesResponse", "".join(pieces))


def _objectParts(query: AttributesQuery, parts: Sequence[PartSummaryRow]) -> str:
    rest = [part for part in parts if part.number > query.partsAfter]
    page = rest[: query.partsLimit]
    # A page of no parts is the last one: the next would start where it did.
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
        f"<IsTruncated>{'true' if truncated else 'false'}</IsTruncated>"
        f"{rows}</ObjectParts>"
    )


def _etag(etag: str) -> str:
    return element("ETag", f'"{etag}"')


def _copied(etag: str, modifiedMs: int) -> str:
    return f"<LastModified>{isoTimestamp(modifiedMs)}</LastModified>{_etag(etag)}"


def _checksum(checksum: ChecksumRow | None) -> str:
    if checksum is None:
        return ""
    return checksumElements(checksum) + element("ChecksumType", checksum.kind)
