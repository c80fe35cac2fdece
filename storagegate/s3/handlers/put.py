"""PutObject, CopyObject, DeleteObject and DeleteObjects."""

from functools import partial

from attrs import evolve

from storagegate.s3.checksums import requestedKind
from storagegate.s3.conditions import evaluateCopySource
from storagegate.s3.errors import S3Error, fromStoreError, invalidArgument
from storagegate.s3.handlers.body import expectationOf, readDocument, receiveBody, writeCondition
from storagegate.s3.headers import attributesFrom, checksumHeaders, rejectUnsupported
from storagegate.s3.multipart import CopyRequest
from storagegate.s3.names import parseCopySource
from storagegate.s3.objects import DeleteEntry, checkVersion
from storagegate.s3.request import S3Request
from storagegate.s3.xml import documents, reader
from storagegate.storage.records import Attributes, ObjectRecord, WriteCondition


def _etag(record: ObjectRecord) -> tuple[bytes, bytes]:
    return (b"ETag", b'"%b"' % record.etag.encode("ascii"))


async def putObject(call: S3Request) -> None:
    """Store the body under the key."""
    rejectUnsupported(call.headers)
    condition = writeCondition(call)
    await call.services.objects.checkWrite(call.identity, call.bucket, call.key, condition)
    attributes = attributesFrom(call.headers)
    received = await receiveBody(call, expectationOf(call))
    attributes = evolve(attributes, checksum=received.checksum)
    record = await call.services.objects.putObject(
        call.identity, call.bucket, call.key, received, attributes, condition
    )
    call.answer(200, [_etag(record), *checksumHeaders(received.checksum)])


async def findCopySource(call: S3Request) -> ObjectRecord:
    """
    Look up what C{x-amz-copy-source} names, with its read right and its conditions.

    @raise S3Error: Whatever a read of it would give; C{PreconditionFailed}.
    """
    bucket, key, versionId = parseCopySource(call.headers[b"x-amz-copy-source"])
    await call.services.objects.authoriseAccess(call.identity, "read", bucket, key)
    await call.checkOwner(bucket, b"x-amz-source-expected-bucket-owner")
    record = await call.services.objects.object(call.identity, bucket, key, versionId)
    evaluateCopySource(call.headers, record.etag, record.modifiedMs)
    return record


def _copiedAttributes(call: S3Request, source: ObjectRecord) -> Attributes | None:
    """
    The attributes that a copy asks for, or L{None} where it takes over its source's.

    @raise S3Error: C{InvalidArgument} for a directive that is none.
    """
    directive = call.headers.get(b"x-amz-metadata-directive", b"COPY").upper()
    if directive not in (b"COPY", b"REPLACE"):
        text = directive.decode("latin-1")
        raise invalidArgument("x-amz-metadata-directive", text, "Unknown metadata directive.")
    asked = attributesFrom(call.headers)
    if directive == b"REPLACE":
        return asked
    wanted = asked.storageClass
    if b"x-amz-storage-class" not in call.headers or wanted == source.attributes.storageClass:
        return None
    return evolve(source.attributes, storageClass=wanted)


def _requestedAlgorithm(call: S3Request) -> str:
    requested = requestedKind(call.headers)
    return requested[0] if requested is not None else ""


async def copyObject(call: S3Request) -> None:
    """Give an object's bytes a second name."""
    rejectUnsupported(call.headers)
    condition = writeCondition(call)
    algorithm = _requestedAlgorithm(call)
    await call.services.objects.bucket(call.identity, call.bucket)

    def want(source: ObjectRecord) -> CopyRequest:
        attributes = _copiedAttributes(call, source)
        return CopyRequest(call.bucket, call.key, attributes, algorithm, condition)

    find = partial(findCopySource, call)
    record = await call.services.copies.copyCurrent(call.identity, find, want)
    call.document(documents.copyObject(record.etag, record.modifiedMs, record.attributes.checksum))


def _condition(etag: str | None) -> WriteCondition:
    return WriteCondition(etags=(etag,)) if etag is not None else WriteCondition()


async def deleteObject(call: S3Request) -> None:
    """Delete an object; one that is not there is deleted already."""
    rejectUnsupported(call.headers)
    version = call.query.get("versionId")
    checkVersion(version)
    entry = DeleteEntry(call.key, version, writeCondition(call))
    await call.services.objects.deleteObject(call.identity, call.bucket, entry)
    call.answer(204, [(b"x-amz-version-id", b"null")] if version else ())


async def _judgeEntry(call: S3Request, each: reader.DeleteRequestEntry) -> DeleteEntry:
    """
    Judge one entry of a delete-many on its own.

    @raise S3Error: What becomes of it alone.
    """
    await call.services.objects.authoriseAccess(call.identity, "write", call.bucket, each.key)
    checkVersion(each.versionId)
    if each.modified is not None or each.size is not None:
        raise S3Error("NotImplemented")
    return DeleteEntry(each.key, each.versionId, _condition(each.etag))


async def deleteObjects(call: S3Request) -> None:
    """Delete up to 1,000 objects in one transaction."""
    await call.services.objects.bucket(call.identity, call.bucket)
    wanted = reader.readDelete(await readDocument(call))
    errors: dict[int, S3Error] = {}
    entries: dict[int, DeleteEntry] = {}
    for position, each in enumerate(wanted.entries):
        try:
            entries[position] = await _judgeEntry(call, each)
        except S3Error as error:
            errors[position] = error
    results = await call.services.objects.deleteObjects(
        call.identity, call.bucket, list(entries.values())
    )
    for position, result in zip(entries, results, strict=True):
        if result is not None:
            errors[position] = fromStoreError(result)
    outcomes = [
        documents.DeleteOutcome(each.key.decode(), each.versionId, errors.get(position))
        for position, each in enumerate(wanted.entries)
    ]
    call.document(documents.deleteResult(outcomes, wanted.quiet))
