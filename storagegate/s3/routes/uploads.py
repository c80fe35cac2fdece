"""The multipart operations."""

from storagegate.core.scalars import parseDecimal
from storagegate.s3 import documents, listdocuments
from storagegate.s3.bodies import readComplete
from storagegate.s3.checksumheaders import declared
from storagegate.s3.copying import TRIES
from storagegate.s3.errors import S3Error, invalidArgument
from storagegate.s3.faults import asS3Error
from storagegate.s3.headers import attributesFrom, checksumHeaders, refuseUnsupported
from storagegate.s3.listing import parseListParts, parseListUploads, parsePartNumber
from storagegate.s3.partchecksums import requestedKind, requestedType
from storagegate.s3.ranges import parseCopyRange
from storagegate.s3.routes.call import Call
from storagegate.s3.routes.payload import (
    expectationOf,
    readDocument,
    receiveBody,
    writeCondition,
)
from storagegate.s3.routes.writes import findCopySource
from storagegate.s3.upload import DEFAULT_ALGORITHM, PUT_LIMIT
from storagegate.storage.errors import ConcurrentChange, NoSuchUpload
from storagegate.storage.records import Upload


async def createMultipartUpload(call: Call) -> None:
    """Begin an upload."""
    refuseUnsupported(call.headers)
    algorithm, kind = requestedKind(call.headers) or ("", "")
    upload = await call.services.multipart.create(
        call.identity, call.bucket, call.key, attributesFrom(call.headers), algorithm, kind
    )
    headers = []
    if algorithm:
        headers = [
            (b"x-amz-checksum-algorithm", algorithm.encode()),
            (b"x-amz-checksum-type", kind.encode()),
        ]
    body = documents.initiateMultipartUpload(call.bucket, call.key.decode(), upload.uploadId)
    call.document(body, headers)


def _find(call: Call) -> Upload:
    return call.services.multipart.upload(
        call.identity, call.bucket, call.key, call.query["uploadId"]
    )


async def uploadPart(call: Call) -> None:
    """Store the body as a part."""
    refuseUnsupported(call.headers)
    number = parsePartNumber(call.query)
    upload = _find(call)
    expectation = expectationOf(call, upload.checksumAlgorithm or DEFAULT_ALGORITHM)
    checksum = expectation.checksum
    if checksum is not None and upload.checksumAlgorithm not in ("", checksum.algorithm):
        raise S3Error(
            "InvalidRequest",
            f"Checksum Type mismatch occurred, expected checksum Type: "
            f"{upload.checksumAlgorithm.lower()}, actual checksum Type: "
            f"{checksum.algorithm.lower()}",
        )
    received = await receiveBody(call, expectation, inlineLimit=0)
    part = await call.services.multipart.putPart(upload, number, received)
    # A part's checksum has no type.
    call.answer(200, [(b"ETag", b'"%b"' % part.etag.encode()), *checksumHeaders(part.checksum)[:1]])


async def uploadPartCopy(call: Call) -> None:
    """Make a run of an object a part."""
    refuseUnsupported(call.headers)
    number = parsePartNumber(call.query)
    upload = _find(call)
    for _ in range(TRIES):
        source = findCopySource(call)
        wanted = call.headers.get(b"x-amz-copy-source-range")
        run = (0, source.size)
        if wanted is not None:
            found = parseCopyRange(wanted, source.size)
            run = (found.first, found.length)
        if run[1] > PUT_LIMIT:
            raise S3Error("EntityTooLarge")
        try:
            part = await call.services.copies.copyPart(upload, number, source, *run)
        except ConcurrentChange:
            continue
        call.document(documents.copyPart(part.etag, part.modifiedMs, part.checksum))
        return
    raise S3Error("OperationAborted")


def _objectSize(call: Call) -> int | None:
    value = call.headers.get(b"x-amz-mp-object-size")
    if value is None:
        return None
    try:
        return parseDecimal(value, 1 << 62)
    except ValueError:
        text = value.decode("latin-1")
        raise invalidArgument("x-amz-mp-object-size", text, "Not a size") from None


async def completeMultipartUpload(call: Call) -> None:
    """Turn the parts into the object."""
    condition = writeCondition(call)
    multipart = call.services.multipart
    # The checksum in this request's headers is the object's; the document has none of its own.
    whole = declared(call.headers)
    kind = requestedType(call.headers)
    parts = readComplete(await readDocument(call, checked=False))
    try:
        upload = _find(call)
        record = await multipart.complete(upload, parts, condition, whole, _objectSize(call), kind)
    except (S3Error, NoSuchUpload) as error:
        if asS3Error(error).code != "NoSuchUpload":
            raise
        # A client that lost the first answer asks again, and must not be told that it failed.
        done = multipart.completed(call.identity, call.bucket, call.key, parts)
        if done is None:
            raise
        record = done
    body = documents.completeMultipartUpload(
        call.location(call.key),
        call.bucket,
        call.key.decode(),
        record.etag,
        record.attributes.checksum,
    )
    call.document(body)


async def abortMultipartUpload(call: Call) -> None:
    """End an upload and drop its parts."""
    await call.services.multipart.abort(_find(call))
    call.answer(204)


async def listParts(call: Call) -> None:
    """List an upload's parts."""
    query = parseListParts(call.query)
    upload = _find(call)
    found = await call.services.multipart.parts(upload, query.after, query.limit + 1)
    page, truncated = found[: query.limit], len(found) > query.limit
    call.document(listdocuments.listParts(call.bucket, query, upload, page, truncated))


async def listMultipartUploads(call: Call) -> None:
    """List a bucket's uploads in progress."""
    query = parseListUploads(call.query)
    uploads, prefixes, after = await call.services.multipart.uploads(
        call.identity,
        call.bucket,
        query.prefix,
        query.delimiter,
        (query.keyMarker, query.uploadIdMarker),
        query.limit,
    )
    call.document(listdocuments.listUploads(call.bucket, query, uploads, prefixes, after))
