"""PutObject, CopyObject, DeleteObject and DeleteObjects."""

from attrs import evolve

from storagegate.s3 import documents, xmlreader
from storagegate.s3.checksums import requestedAlgorithm
from storagegate.s3.copying import CopyRequest
from storagegate.s3.credentials import canonicalId
from storagegate.s3.errors import S3Error
from storagegate.s3.faults import asS3Error
from storagegate.s3.headers import attributesFrom, checksumHeaders, refuseUnsupported
from storagegate.s3.names import parseCopySource
from storagegate.s3.ranges import evaluateCopySource
from storagegate.s3.routes.bodies import expectationOf, readDocument, receiveBody, writeCondition
from storagegate.s3.routes.call import Call
from storagegate.s3.service import DeleteEntry, checkVersion
from storagegate.storage.errors import ConcurrentChange
from storagegate.storage.records import ObjectRecord, WriteCondition

_TRIES = 3
"""How often a copy starts over when its source is replaced under it."""


def _etag(record: ObjectRecord) -> tuple[bytes, bytes]:
    return (b"ETag", b'"%b"' % record.etag.encode("ascii"))


def refuseEarly(call: Call, condition: WriteCondition) -> None:
    """
    Refuse before the body is read what is sure to be refused after it.

    The condition is judged again, for good, in the transaction that writes.
    """
    call.services.objects.bucket(call.identity, call.bucket)
    if condition.absent:
        _, record = call.services.store.catalog.object(call.bucket, call.key)
        if record is not None:
            raise S3Error("PreconditionFailed", fields={"Condition": "If-None-Match"})


async def putObject(call: Call) -> None:
    """Store the body under the key."""
    refuseUnsupported(call.headers)
    condition = writeCondition(call)
    refuseEarly(call, condition)
    attributes = attributesFrom(call.headers)
    received = await receiveBody(call, expectationOf(call))
    attributes = evolve(attributes, checksum=received.checksum)
    record = await call.services.objects.putObject(
        call.identity, call.bucket, call.key, received, attributes, condition
    )
    call.answer(200, [_etag(record), *checksumHeaders(received.checksum)])


def findCopySource(call: Call) -> ObjectRecord:
    """
    Look up what C{x-amz-copy-source} names, with its read right and its conditions.

    @raise S3Error: Whatever a read of it would give; C{PreconditionFailed}.
    """
    bucket, key, versionId = parseCopySource(call.headers[b"x-amz-copy-source"])
    call.authorise("read", bucket, key)
    record = call.services.objects.object(call.identity, bucket, key, versionId)
    evaluateCopySource(call.headers, record.etag, record.modifiedMs)
    return record


def _directive(call: Call) -> bool:
    """Say whether the copy takes its attributes from the request."""
    value = call.headers.get(b"x-amz-metadata-directive", b"COPY").upper()
    if value not in (b"COPY", b"REPLACE"):
        raise S3Error("InvalidArgument", "Unknown metadata directive.")
    return value == b"REPLACE"


async def copyObject(call: Call) -> None:
    """Give an object's bytes a second name."""
    refuseUnsupported(call.headers)
    condition = writeCondition(call)
    call.services.objects.bucket(call.identity, call.bucket)
    replace = _directive(call)
    for _ in range(_TRIES):
        source = findCopySource(call)
        attributes = attributesFrom(call.headers) if replace else None
        if attributes is None and b"x-amz-storage-class" in call.headers:
            wanted = attributesFrom(call.headers).storageClass
            if wanted != source.attributes.storageClass:
                attributes = evolve(source.attributes, storageClass=wanted)
        algorithm = requestedAlgorithm(call.headers) or ""
        request = CopyRequest(call.bucket, call.key, attributes, algorithm, condition)
        try:
            record = await call.services.copies.copyObject(call.identity, source, request)
        except ConcurrentChange:
            continue
        call.document(
            documents.copyObjectResult(record.etag, record.modifiedMs, record.attributes.checksum)
        )
        return
    raise S3Error("OperationAborted")


def _deleteCondition(etag: str | None) -> WriteCondition:
    return WriteCondition(etags=(etag.strip('"'),)) if etag is not None else WriteCondition()


async def deleteObject(call: Call) -> None:
    """Delete an object; one that is not there is deleted already."""
    versionId = call.query.get("versionId")
    checkVersion(versionId)
    match = call.headers.get(b"if-match")
    condition = _deleteCondition(match.decode("latin-1").strip() if match is not None else None)
    entry = DeleteEntry(call.key, versionId, condition)
    await call.services.objects.deleteObject(call.identity, call.bucket, entry)
    call.answer(204, [(b"x-amz-version-id", b"null")] if versionId else ())


async def deleteObjects(call: Call) -> None:
    """Delete up to 1,000 objects in one transaction."""
    call.services.objects.bucket(call.identity, call.bucket)
    wanted = xmlreader.readDelete(await readDocument(call))
    errors: dict[int, S3Error] = {}
    entries: list[tuple[int, DeleteEntry]] = []
    for position, each in enumerate(wanted.objects):
        try:
            key = each.key.encode()
            call.authorise("write", call.bucket, key)
            checkVersion(each.versionId)
        except S3Error as error:
            errors[position] = error
        else:
            entry = DeleteEntry(key, each.versionId, _deleteCondition(each.etag))
            entries.append((position, entry))
    results = await call.services.objects.deleteObjects(
        call.identity, call.bucket, [entry for _, entry in entries]
    )
    for (position, _), result in zip(entries, results, strict=True):
        if result is not None:
            errors[position] = asS3Error(result)
    call.document(documents.deleteResult(wanted, errors))


def ownerOf(account: str) -> tuple[str, str]:
    """An account as documents name it: canonical id and display name."""
    return canonicalId(account), account
