"""
The documents that clients send: Delete, CompleteMultipartUpload, CreateBucketConfiguration.

Elements that are not known here are ignored, as S3 ignores them; what is missing, too many or not
a number is C{MalformedXML}.
"""

from collections.abc import Mapping

from attrs import frozen

from storagegate.core.scalars import parseDecimal
from storagegate.s3.errors import S3Error
from storagegate.s3.listing import PART_LIMIT
from storagegate.s3.xmlreader import (
    BUCKET_LIMIT,
    COMPLETE_LIMIT,
    DELETE_LIMIT,
    Limits,
    readRecords,
)

ENTRY_LIMIT = 1000
"""Objects of one delete-many: Amazon's limit."""

# Fields of an Object: 5. Of a Part: its number, its ETag, one checksum or two.
_DELETE = Limits(size=DELETE_LIMIT, records=ENTRY_LIMIT, fields=5)
_COMPLETE = Limits(size=COMPLETE_LIMIT, records=PART_LIMIT, fields=4)
_BUCKET = Limits(size=BUCKET_LIMIT, records=0, fields=500)

_CHECKSUM = "Checksum"


@frozen
class DeleteEntry:
    """
    An object to delete.

    @ivar etag: Delete it only if it has this ETag.
    @ivar modified: Delete it only if it was last modified then, as it was sent.
    @ivar size: Delete it only if it has so many bytes, as it was sent.
    """

    key: bytes
    versionId: str | None = None
    etag: str | None = None
    modified: str | None = None
    size: str | None = None


@frozen
class DeleteRequest:
    """
    A delete-many.

    @ivar quiet: Whether only errors are to be reported.
    """

    entries: tuple[DeleteEntry, ...]
    quiet: bool = False


@frozen
class CompletedPart:
    """
    A part that a completion names.

    @ivar etag: Without quotation marks.
    @ivar checksums: Base64 by algorithm (C{CRC32}).
    """

    number: int
    etag: str
    checksums: Mapping[str, str]


def readDelete(body: bytes) -> DeleteRequest:
    """
    Read Delete.

    @raise S3Error: C{MalformedXML}, also for no entry or more than 1,000.
    """
    read = readRecords(body, "Delete", "Object", _DELETE)
    if not read.records:
        raise S3Error("MalformedXML")
    quiet = read.settings.get("Quiet", "")
    return DeleteRequest(tuple(map(_deleteEntry, read.records)), quiet.strip().lower() == "true")


def readComplete(body: bytes) -> tuple[CompletedPart, ...]:
    """
    Read CompleteMultipartUpload. The order of the parts is for the caller to judge.

    @raise S3Error: C{MalformedXML}, also for no part or more than 10,000.
    """
    read = readRecords(body, "CompleteMultipartUpload", "Part", _COMPLETE)
    if not read.records:
        raise S3Error("MalformedXML")
    return tuple(map(_completedPart, read.records))


def readBucketConfiguration(body: bytes) -> str:
    """
    Read CreateBucketConfiguration, which most clients do not send.

    @return: The region; empty where none is named.
    @raise S3Error: C{MalformedXML}.
    """
    if not body:
        return ""
    read = readRecords(body, "CreateBucketConfiguration", "", _BUCKET)
    return read.settings.get("LocationConstraint", "").strip()


def _deleteEntry(fields: Mapping[str, str]) -> DeleteEntry:
    key = fields.get("Key")
    if not key:
        raise S3Error("MalformedXML")
    etag = fields.get("ETag")
    return DeleteEntry(
        key=key.encode(),
        versionId=fields.get("VersionId") or None,
        etag=None if etag is None else etag.strip().strip('"'),
        modified=fields.get("LastModifiedTime"),
        size=fields.get("Size"),
    )


def _completedPart(fields: Mapping[str, str]) -> CompletedPart:
    try:
        number = parseDecimal(fields["PartNumber"].strip(), PART_LIMIT)
        etag = fields["ETag"].strip().strip('"')
    except (KeyError, ValueError):
        raise S3Error("MalformedXML") from None
    if not number:
        raise S3Error("MalformedXML")
    return CompletedPart(
        number=number,
        etag=etag,
        checksums={
            name.removeprefix(_CHECKSUM): value.strip()
            for name, value in fields.items()
            if name.startswith(_CHECKSUM)
        },
    )
