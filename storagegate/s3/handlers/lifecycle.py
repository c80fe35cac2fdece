"""The lifecycle of a bucket's objects: its rules, and the headers of responses."""

from urllib.parse import quote

from storagegate.net.http.message import encodeLines
from storagegate.net.http.ranges import formatHttpDate
from storagegate.objects.lifecycle import (
    Due,
    findAbort,
    findExpiration,
)
from storagegate.objects.operations import (
    DeleteBucketLifecycle,
    GetBucketLifecycleConfiguration,
    PutBucketLifecycleConfiguration,
)
from storagegate.s3.errors import invalidArgument
from storagegate.s3.request import S3Request
from storagegate.s3.xml.reader import LIFECYCLE_LIMIT, readDocument
from storagegate.s3.xml.writer import writeDocument
from storagegate.storage.records import Bucket, MultipartUpload, ObjectRecord

_MINIMUM_SIZE = b"x-amz-transition-default-minimum-object-size"
_MINIMUM_SIZES = (b"all_storage_classes_128K", b"varies_by_storage_class")


async def getBucketLifecycleConfiguration(call: S3Request) -> None:
    """Respond with the rules."""
    from storagegate.objects.documents.lifecycle import writeLifecycle

    rules, minimum = await call.perform(GetBucketLifecycleConfiguration(call.bucket))
    size = minimum.encode("ascii") or _MINIMUM_SIZES[0]
    call.respondXML(writeDocument(writeLifecycle(rules)), [(_MINIMUM_SIZE, size)])


async def putBucketLifecycleConfiguration(call: S3Request) -> None:
    """Set the rules."""
    # Many buckets never have rules.
    from storagegate.objects.documents.lifecycle import readLifecycle

    await call.services.objects.bucket(call, call.bucket)
    # The size applies only to transitions, which are not implemented. Terraform waits for it.
    size = call.headers.get(_MINIMUM_SIZE, _MINIMUM_SIZES[0])
    if size not in _MINIMUM_SIZES:
        raise invalidArgument(_MINIMUM_SIZE.decode(), size.decode("latin-1"))
    document = await call.readDocument()
    rules = readLifecycle(readDocument(document, "LifecycleConfiguration", LIFECYCLE_LIMIT))
    minimum = "" if size == _MINIMUM_SIZES[0] else size.decode("ascii")
    await call.perform(PutBucketLifecycleConfiguration(call.bucket, rules, minimum))
    call.respond(200, [(_MINIMUM_SIZE, size)])


async def deleteBucketLifecycle(call: S3Request) -> None:
    """Remove the rules."""
    await call.perform(DeleteBucketLifecycle(call.bucket))
    call.respond(204)


def mayHaveRules(call: S3Request, bucket: Bucket) -> bool:
    """
    Return whether L{expirationHeaders} may return a header, which is known for cached settings.

    @param bucket: The bucket as looked up for the request; it has settings.
    """
    settings = call.services.objects.settings.kept(bucket.generation)
    return settings is None or bool(settings.lifecycle)


async def expirationHeaders(
    call: S3Request, bucket: Bucket, record: ObjectRecord
) -> list[tuple[bytes, bytes]]:
    """
    Return the header with the expiry of an object, if a rule deletes it.

    @param bucket: The bucket as looked up for the request.
    @param record: The current object; a version that the request names may not be the current one.
    """
    if not bucket.generation:
        return []
    settings = call.services.objects.settings
    rules = (settings.kept(bucket.generation) or await settings.find(bucket)).lifecycle
    if not rules:
        return []
    key, tags = record.key.decode(), record.attributes.tags
    calendar = call.services.calendar
    due = findExpiration(rules, calendar, key, record.size, tags, record.modifiedMs)
    return [] if due is None else [expirationField(due)]


async def expirationLine(call: S3Request, bucket: Bucket, record: ObjectRecord) -> bytes:
    """Return the encoded L{expirationHeaders}."""
    headers = await expirationHeaders(call, bucket, record)
    return encodeLines(headers) if headers else b""


async def abortHeaders(call: S3Request, upload: MultipartUpload) -> list[tuple[bytes, bytes]]:
    """Return the headers with the expiry of an upload, if a rule aborts it."""
    objects = call.services.objects
    bucket = await objects.find(upload.bucket)
    if not bucket.generation:
        return []
    rules = (await objects.settings.find(bucket)).lifecycle
    due = findAbort(rules, call.services.calendar, upload.key.decode(), upload.startedMs)
    return [] if due is None else abortFields(due)


def expirationField(due: Due) -> tuple[bytes, bytes]:
    """Return the header C{x-amz-expiration}."""
    date = formatHttpDate(due.atMs // 1000)
    return b"x-amz-expiration", b'expiry-date="%b", rule-id="%b"' % (date, _quoted(due.ruleId))


def abortFields(due: Due) -> list[tuple[bytes, bytes]]:
    """Return the headers C{x-amz-abort-date} and C{x-amz-abort-rule-id}."""
    return [
        (b"x-amz-abort-date", formatHttpDate(due.atMs // 1000)),
        (b"x-amz-abort-rule-id", _quoted(due.ruleId)),
    ]


def _quoted(ruleId: str) -> bytes:
    return quote(ruleId, safe="").encode("ascii")
