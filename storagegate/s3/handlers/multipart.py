"""The multipart operations."""

from storagegate.core.options import parseDecimal
from storagegate.objects.checksums import DEFAULT_ALGORITHM, PUT_LIMIT, ingest
from storagegate.objects.contents import retryCopy
from storagegate.objects.documents.fields import attributesFrom, declared, writeCondition
from storagegate.objects.operations import (
    AbortMultipartUpload,
    CompleteMultipartUpload,
    CreateMultipartUpload,
    ListMultipartUploads,
    ListParts,
    UploadPartCopy,
)
from storagegate.s3.acls import listIn
from storagegate.s3.attributes import WRITE_FIELDS
from storagegate.s3.checksums import requestedKind, requestedType
from storagegate.s3.conditions import parseCopyRange
from storagegate.s3.encryption import (
    ENCRYPTION_FIELDS,
    encryptionHeaders,
    optionalKey,
    requestedEncryption,
    uploadKey,
    writtenEncryption,
)
from storagegate.s3.errors import S3Error
from storagegate.s3.handlers.lifecycle import abortHeaders, expirationHeaders
from storagegate.s3.handlers.put import CopySource, findCopySource, rejectBody
from storagegate.s3.pagination import parseListParts, parseListUploads, parsePartNumber
from storagegate.s3.request import (
    S3Request,
    checksumHeaders,
    rejectUnsupported,
    versionHeaders,
)
from storagegate.s3.xml import documents
from storagegate.s3.xml.reader import readComplete
from storagegate.storage.ranges import PartRange, UploadRange
from storagegate.storage.records import MultipartUpload, Part


async def createMultipartUpload(call: S3Request) -> None:
    """Begin an upload."""
    rejectUnsupported(call.headers, call.identity.account, WRITE_FIELDS)
    algorithm, kind = requestedKind(call.headers) or ("", "")
    acl = listIn(call.headers, call.services.accounts)
    attributes = attributesFrom(call.headers)
    requested = None
    if not ENCRYPTION_FIELDS.isdisjoint(call.headers):
        # A policy is the error, not a malformed header that it requires.
        await call.services.objects.bucket(call, call.bucket, call.key)
        requested = requestedEncryption(call)
    upload = await call.perform(
        CreateMultipartUpload(call.bucket, call.key, attributes, algorithm, kind, acl, requested)
    )
    headers = await abortHeaders(call, upload)
    headers += writtenEncryption(upload.attributes.encryption, requested)
    if algorithm:
        headers += [
            (b"x-amz-checksum-algorithm", algorithm.encode()),
            (b"x-amz-checksum-type", kind.encode()),
        ]
    body = documents.initiateMultipartUpload(call.bucket, call.key.decode(), upload.uploadId)
    call.respondXML(body, headers)


async def _find(call: S3Request) -> MultipartUpload:
    return await call.services.objects.upload(call, call.bucket, call.key, call.query["uploadId"])


async def uploadPart(call: S3Request) -> None:
    """Store the body as a part."""
    rejectUnsupported(call.headers, call.identity.account, ENCRYPTION_FIELDS)
    number = parsePartNumber(call.query)
    upload = await _find(call)
    encryption = upload.attributes.encryption
    key = uploadKey(call, encryption)
    expectation = call.authenticated.bodyExpectation(
        call.headers,
        call.request.contentLength,
        upload.checksumAlgorithm or DEFAULT_ALGORITHM,
        turn=call.services.scheduler.turn,
    )
    checksum = expectation.checksum
    if checksum is not None and upload.checksumAlgorithm not in ("", checksum.algorithm):
        raise S3Error(
            "InvalidRequest",
            f"Checksum Type mismatch occurred, expected checksum Type: "
            f"{upload.checksumAlgorithm.lower()}, actual checksum Type: "
            f"{checksum.algorithm.lower()}",
        )
    blobs = call.services.store.blobs
    objectKey = await call.services.objects.keyForPart(upload, key)
    ingested = await ingest(call.request.body, expectation, blobs, 0, call.bucket, objectKey)
    part = await call.services.objects.putPart(upload, number, ingested)
    # The checksum of a part has no type.
    call.respond(
        200,
        [
            (b"ETag", b'"%b"' % part.etag.encode()),
            *checksumHeaders(part.checksum)[:1],
            *encryptionHeaders(encryption, key),
        ],
    )


async def uploadPartCopy(call: S3Request) -> None:
    """Store a range of an object as a part."""
    rejectUnsupported(call.headers, call.identity.account, ENCRYPTION_FIELDS)
    number = parsePartNumber(call.query)
    # An upload that does not exist is the error, not its source.
    encryption = (await _find(call)).attributes.encryption
    key = uploadKey(call, encryption)
    rejectBody(call)

    async def copy() -> tuple[CopySource, Part]:
        source = await findCopySource(call)
        named = call.headers.get(b"x-amz-copy-source-range")
        start, length = 0, source.record.size
        if named is not None:
            found = parseCopyRange(named, source.record.size)
            start, length = found.first, found.length
        if length > PUT_LIMIT:
            raise S3Error("EntityTooLarge")
        uploadId = call.query["uploadId"]
        wanted = UploadPartCopy(
            call.bucket,
            call.key,
            uploadId,
            number,
            source.record,
            start,
            length,
            key,
            source.key,
        )
        return source, await call.perform(wanted)

    source, part = await retryCopy(copy)
    body = documents.copyPart(part.etag, part.modifiedMs, part.checksum)
    call.respondXML(body, [*source.headers(), *encryptionHeaders(encryption, key)])


def _objectSize(call: S3Request) -> int | None:
    value = call.headers.get(b"x-amz-mp-object-size")
    if value is None:
        return None
    try:
        return parseDecimal(value, 1 << 62)
    except ValueError:
        message = "Value for x-amz-mp-object-size header is invalid."
        raise S3Error("InvalidRequest", message) from None


async def completeMultipartUpload(call: S3Request) -> None:
    """Turn the parts into the object."""
    rejectUnsupported(call.headers, call.identity.account, ENCRYPTION_FIELDS)
    condition = writeCondition(call.headers)
    # The checksum in the headers applies to the object, not to the document.
    whole = declared(call.headers, hasCount=True)
    kind = requestedType(call.headers)
    uploadId = call.query["uploadId"]
    bucket = await call.services.objects.bucketOfUpload(call, call.bucket, call.key, uploadId)
    key = optionalKey(call)
    parts = readComplete(await call.readDocument(checked=False))
    size = _objectSize(call)
    record = await call.perform(
        CompleteMultipartUpload(
            call.bucket,
            call.key,
            uploadId,
            parts,
            condition,
            whole,
            size,
            kind,
            customerKey=key,
        )
    )
    body = documents.completeMultipartUpload(
        call.location(call.key),
        call.bucket,
        call.key.decode(),
        record.etag,
        record.attributes.checksum,
    )
    encryption = encryptionHeaders(record.attributes.encryption, key)
    expiration = await expirationHeaders(call, bucket, record)
    call.respondXML(body, [*versionHeaders(record), *encryption, *expiration])


async def abortMultipartUpload(call: S3Request) -> None:
    """Abort an upload and remove its parts."""
    rejectUnsupported(call.headers, call.identity.account)
    await call.perform(AbortMultipartUpload(call.bucket, call.key, call.query["uploadId"]))
    call.respond(204)


async def listParts(call: S3Request) -> None:
    """List an upload's parts."""
    query = parseListParts(call.query)
    uploadId = call.query["uploadId"]
    key = None
    if not ENCRYPTION_FIELDS.isdisjoint(call.headers):
        await _find(call)
        key = optionalKey(call)
    page = PartRange(call.bucket, call.key, uploadId, query.after, query.limit + 1)
    upload, found = await call.perform(ListParts(page, key))
    # A page without parts is the last: another page would start at the same position.
    shown, truncated = found[: query.limit], 0 < query.limit < len(found)
    (owner,) = await call.services.objects.ownershipsOf(call.bucket, [upload])
    body = documents.listParts(call.bucket, query, upload, shown, truncated, owner.account)
    call.respondXML(body, await abortHeaders(call, upload))


async def listMultipartUploads(call: S3Request) -> None:
    """List a bucket's uploads in progress."""
    query = parseListUploads(call.query)
    page = await call.perform(
        ListMultipartUploads(UploadRange(call.bucket, *query.keys, query.limit, query.idMarker))
    )
    owners = await call.services.objects.ownershipsOf(call.bucket, page.uploads)
    accounts = [each.account for each in owners]
    call.respondXML(documents.listUploads(call.bucket, query, page, accounts))
