"""GetObject, HeadObject and GetObjectAttributes."""

from collections.abc import Coroutine
from functools import partial
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from storagegate.net.http.message import encodeLines
from storagegate.net.http.ranges import ByteRange, formatHttpDate
from storagegate.objects.checksums import FULL_OBJECT
from storagegate.objects.contents import TRIES, openContent, sendSegments
from storagegate.objects.encryption.requests import SSE_C, SSE_S3, CustomerKey
from storagegate.s3.conditions import READ_FIELDS, NotModified, evaluateRead
from storagegate.s3.encryption import (
    ENCRYPTION_FIELDS,
    SSE_S3_LINE,
    encryptionHeaders,
    objectKey,
)
from storagegate.s3.errors import S3Error
from storagegate.s3.handlers.lifecycle import expirationLine, mayHaveRules
from storagegate.s3.pagination import parseAttributes, parsePartNumber
from storagegate.s3.request import (
    S3Request,
    checksumHeaders,
    objectFields,
    overrides,
    readVersionHeaders,
    versionLine,
)
from storagegate.s3.xml import documents
from storagegate.storage.errors import CorruptBlob, StoreBusy
from storagegate.storage.records import Bucket, Checksum, ObjectRecord

if TYPE_CHECKING:
    # Imported with the first encrypted object.
    from storagegate.objects.encryption.sealing import ObjectKey


def _find(call: S3Request) -> Coroutine[Any, Any, tuple[Bucket, ObjectRecord]]:
    return call.services.objects.object(call, call.bucket, call.key, call.query.get("versionId"))


async def _withVisibleTags(call: S3Request, bucket: Bucket, record: ObjectRecord) -> ObjectRecord:
    """Return an object, without its tags if the request may not read them."""
    access = await call.services.objects.accessOf(bucket)
    if access.mayReadTags(call, bucket, record, call.query.get("versionId")):
        return record
    return replace(record, attributes=replace(record.attributes, tags=""))


def _keyOf(call: S3Request, record: ObjectRecord) -> CustomerKey | None:
    """Parse the client's key of the object; see L{objectKey}."""
    encryption = record.attributes.encryption
    isOfClient = encryption is not None and encryption.kind == SSE_C
    if not isOfClient and ENCRYPTION_FIELDS.isdisjoint(call.headers):
        return None
    return objectKey(call, encryption)


def _withDigests(call: S3Request, opened: "ObjectKey | None", record: ObjectRecord) -> ObjectRecord:
    """Return an object with the digests that the response needs, opened by its key."""
    if opened is not None and opened.hidesDigests and _wantsChecksums(call):
        isPart = "partNumber" in call.query
        return opened.openChecksums(record, parsePartNumber(call.query) if isPart else None)
    return record


def _wantsChecksums(call: S3Request) -> bool:
    return call.headers.get(b"x-amz-checksum-mode", b"").upper() == b"ENABLED"


async def headObject(call: S3Request) -> None:
    """Respond with an object's headers."""
    bucket, record = await _find(call)
    key = _keyOf(call, record)
    shown = await _withVisibleTags(call, bucket, record) if record.attributes.tags else record
    isEncrypted = record.attributes.encryption is not None
    if isEncrypted and (key is not None or _wantsChecksums(call)):
        # Without these two, the response needs no key.
        opened = await call.services.objects.keyForRead(bucket, record, key)
        shown = _withDigests(call, opened, shown)
    code, _, length, fields = _prepare(call, bucket, shown, key)
    if bucket.generation and mayHaveRules(call, bucket) and "versionId" not in call.query:
        fields += await expirationLine(call, bucket, record)
    call.respondObject(code, fields, length=length)


async def getObject(call: S3Request, tries: int = TRIES) -> None:
    """
    Respond with an object's content, or a range of it.

    @param tries: The number of attempts if its blobs are missing.
    """
    bucket, record = await _find(call)
    key = _keyOf(call, record)
    # An overwrite or a delete in the meantime must not remove the blobs of this response.
    hold = None if record.content.inline is not None else call.services.store.hold(record.content)
    try:
        shown = await _withVisibleTags(call, bucket, record) if record.attributes.tags else record
        opened = None
        if record.attributes.encryption is not None:
            objects = call.services.objects
            if key is None:
                opened = objects.recallKey(bucket, record)
            opened = opened or await objects.keyForRead(bucket, record, key)
            shown = _withDigests(call, opened, shown)
        code, start, length, fields = _prepare(call, bucket, shown, key)
        if bucket.generation and mayHaveRules(call, bucket) and "versionId" not in call.query:
            fields += await expirationLine(call, bucket, record)
        content = openContent(call.services.store, record, opened)
        if code == 304:
            call.respondObject(code, fields)
        elif content.isInline:
            call.respondObject(code, fields, content.inline(start, length))
        else:
            begin = partial(call.startObject, code, fields, length)
            if not await sendSegments(
                call.services.store, content, start, length, call.request, begin
            ):
                call.respondObject(code, fields)
    except CorruptBlob:
        if call.request.started:
            raise
        # The blobs may have been removed before the hold, by an overwrite.
        _, again = await _find(call)
        if again.content == record.content:
            raise
        if tries == 1:
            raise StoreBusy(f"the object was replaced {TRIES} times while it was read") from None
        await getObject(call, tries - 1)
    finally:
        if hold is not None:
            hold.release()


def _prepare(
    call: S3Request, bucket: Bucket, record: ObjectRecord, key: CustomerKey | None
) -> tuple[int, int, int, bytes]:
    """
    Evaluate the conditions and the range of a read.

    @param bucket: The bucket of the object; if it has versions, the response names the version that
        is read.
    @param key: The client's key of the object.
    @return: Status, offset of the first byte, number of bytes, and encoded header fields.
    @raise S3Error: C{PreconditionFailed}, C{InvalidRange}, C{InvalidPartNumber}, C{InvalidRequest}.
    """
    headers, query = call.headers, call.query
    extra: list[tuple[bytes, bytes]] = []
    isPart = bool(query) and "partNumber" in query
    found = None
    if not READ_FIELDS.isdisjoint(headers):
        size = None if isPart else record.size
        try:
            found = evaluateRead(headers, record.etag, record.modifiedMs, size)
        except NotModified:
            return 304, 0, 0, objectFields(record) + _versionOf(bucket, record)
    checksum = record.attributes.checksum
    if isPart:
        found, start, length, checksum = _partRange(call, record, extra)
    elif found is not None:
        # A partial response must omit the checksum of the whole object, which clients would verify.
        start, length, checksum = found.first, found.length, None
    else:
        start, length = 0, record.size
    code = 200
    if found is not None:
        code = 206
        extra.insert(0, (b"Content-Range", found.contentRange(record.size)))
    changed = overrides(query, not call.identity.isAnonymous) if query else {}
    fields = objectFields(record, changed) if changed else objectFields(record)
    encryption = record.attributes.encryption
    if encryption is not None:
        if encryption.kind == SSE_S3:
            fields += SSE_S3_LINE
        else:
            extra += encryptionHeaders(encryption, key)
    if checksum is not None and _wantsChecksums(call):
        extra += checksumHeaders(checksum)
    if bucket.versioning:
        fields += versionLine(record)
    return code, start, length, fields + encodeLines(extra) if extra else fields


def _versionOf(bucket: Bucket, record: ObjectRecord) -> bytes:
    return versionLine(record) if bucket.versioning else b""


def _partRange(
    call: S3Request, record: ObjectRecord, extra: list[tuple[bytes, bytes]]
) -> tuple[ByteRange | None, int, int, Checksum | None]:
    """
    Find the range of the part that the query names.

    @param extra: Receives the header with the number of parts.
    @return: The range, offset, length and checksum; the range of an empty part is L{None}.
    """
    if b"range" in call.headers:
        raise S3Error(
            "InvalidRequest", "Cannot specify both Range header and partNumber query parameter"
        )
    number = parsePartNumber(call.query)
    parts, checksum = record.attributes.parts, record.attributes.checksum
    start, length = 0, record.size
    if parts or number > 1:
        # The numbers of a completion may have gaps.
        found = [index for index, part in enumerate(parts) if part.number == number]
        if not found:
            count = str(len(parts) or 1)
            fields = {"PartNumberRequested": str(number), "ActualPartCount": count}
            raise S3Error("InvalidPartNumber", fields=fields)
        part = parts[found[0]]
        start = sum(each.size for each in parts[: found[0]])
        length = part.size
        extra.append((b"x-amz-mp-parts-count", b"%d" % len(parts)))
        kind = checksum.kind if checksum is not None else FULL_OBJECT
        checksum = part.checksum
        if checksum is not None:
            checksum = replace(checksum, kind=kind)
    covered = ByteRange(start, start + length - 1) if length else None
    return covered, start, length, checksum


async def getObjectAttributes(call: S3Request) -> None:
    """Respond with the attributes that the request names."""
    bucket, record = await _find(call)
    key = _keyOf(call, record)
    if record.attributes.encryption is not None:
        record = await call.services.objects.withDigests(bucket, record, key)
    query = parseAttributes(call.headers)
    try:
        evaluateRead(call.headers, record.etag, record.modifiedMs)
    except NotModified:
        call.respondObject(304, objectFields(record) + _versionOf(bucket, record))
        return
    body = documents.objectAttributes(query, record)
    modified = (b"Last-Modified", formatHttpDate(record.modifiedMs // 1000))
    call.respondXML(body, [modified, *readVersionHeaders(bucket, record)])
