"""PutObject, CopyObject, DeleteObject and DeleteObjects."""

from typing import NamedTuple

from msgspec.structs import replace

from storagegate.objects.checksums import ingest
from storagegate.objects.contents import retryCopy
from storagegate.objects.documents.fields import (
    STORAGE_CLASS,
    attributesFrom,
    lockFrom,
    writeCondition,
)
from storagegate.objects.encryption.requests import CustomerKey
from storagegate.objects.errors import DomainError, VersionIsDeleteMarker
from storagegate.objects.locks import checkLock
from storagegate.objects.operations import CopyObject, DeleteEntry, DeleteObject, DeleteObjects
from storagegate.s3.acls import listIn
from storagegate.s3.attributes import LIST_FIELDS, WRITE_FIELDS
from storagegate.s3.checksums import requestedKind
from storagegate.s3.conditions import (
    DELETE_FIELDS,
    deleteCondition,
    evaluateCopySource,
    narrowed,
)
from storagegate.s3.encryption import (
    ENCRYPTION_FIELDS,
    requestedEncryption,
    sourceKey,
    writtenEncryption,
    writtenLines,
)
from storagegate.s3.errors import S3Error, asS3Error, invalidArgument
from storagegate.s3.handlers.lifecycle import expirationHeaders, expirationLine, mayHaveRules
from storagegate.s3.locks import bypasses
from storagegate.s3.names import parseCopySource
from storagegate.s3.request import (
    S3Request,
    checksumFields,
    rejectUnsupported,
    versionField,
    versionHeaders,
)
from storagegate.s3.xml import documents, reader
from storagegate.storage.errors import InvalidVersionId
from storagegate.storage.records import (
    UNCONDITIONAL,
    UNLOCKED,
    Attributes,
    Bucket,
    ObjectRecord,
    Removal,
    WriteCondition,
)


async def putObject(call: S3Request) -> None:
    """Store the body under the key."""
    headers = call.headers
    rejectUnsupported(headers, call.identity.account, WRITE_FIELDS)
    condition = UNCONDITIONAL
    if b"if-none-match" in headers or b"if-match" in headers:
        condition = writeCondition(headers)
    objects = call.services.objects
    length = call.request.contentLength
    acl = None if LIST_FIELDS.isdisjoint(headers) else listIn(headers, call.services.accounts)
    bucket, owner = await objects.checkWrite(call, call.bucket, call.key, condition, length, acl)
    requested = None if ENCRYPTION_FIELDS.isdisjoint(headers) else requestedEncryption(call)
    attributes = attributesFrom(headers)
    if attributes.lock is not UNLOCKED:
        if owner.revision is not None:
            bucket = await objects.find(call.bucket)
        checkLock(bucket, attributes.lock, objects.nowMs())
    expectation = call.authenticated.bodyExpectation(
        headers, length, turn=call.services.scheduler.turn
    )
    if attributes.lock is not UNLOCKED or (bucket.lockEnabled and await objects.isRetained(bucket)):
        expectation.requireDigest()
    store = call.services.store
    objectKey = await objects.keyForWrite(bucket, call.key, requested)
    ingested = await ingest(
        call.request.body, expectation, store.blobs, store.inlineLimit, call.bucket, objectKey
    )
    record = await objects.putObject(owner, call.bucket, call.key, ingested, attributes, condition)
    etag = b'ETag: "%b"\r\n' % record.etag.encode("ascii")
    fields = etag + checksumFields(ingested.checksum) + versionField(record)
    if record.attributes.encryption is not None:
        fields += writtenLines(record.attributes.encryption, requested)
    if bucket.generation and mayHaveRules(call, bucket):
        fields += await expirationLine(call, bucket, record)
    call.respondObject(200, fields)


class CopySource(NamedTuple):
    """
    The source of a copy.

    @ivar byVersion: Whether the request names the version of the source.
    @ivar key: The client's key of the source.
    """

    bucket: Bucket
    record: ObjectRecord
    byVersion: bool
    key: CustomerKey | None

    def headers(self) -> list[tuple[bytes, bytes]]:
        """Return the header with the copied version, if its bucket has versions."""
        if not self.bucket.versioning:
            return []
        return [(b"x-amz-copy-source-version-id", self.record.versionId.encode("ascii"))]


def rejectBody(call: S3Request) -> None:
    """
    Reject a copy with a body, which the client meant to store.

    @raise S3Error: C{InvalidRequest}.
    """
    if call.request.contentLength != 0:
        message = "A copy request must not have a body."
        raise S3Error("InvalidRequest", message)


async def findCopySource(call: S3Request) -> CopySource:
    """Look up the source of a copy; check the right to read it, and the conditions on it."""
    bucket, key, versionId = parseCopySource(call.headers[b"x-amz-copy-source"])
    call.identity.authorise("read", bucket, key)
    await call.checkOwner(bucket, b"x-amz-source-expected-bucket-owner")
    try:
        found, record = await call.services.objects.object(
            call, bucket, key, versionId, "GetObject"
        )
    except VersionIsDeleteMarker as error:
        message = (
            "The source of a copy request may not specifically refer to a delete marker by "
            "version id."
        )
        raise S3Error("InvalidRequest", message) from error
    sent = sourceKey(call, record.attributes.encryption)
    evaluateCopySource(call.headers, record.etag, record.modifiedMs)
    return CopySource(found, record, versionId is not None, sent)


def _replaces(call: S3Request, kind: str) -> bool:
    """Return whether a copy replaces the metadata or the tags (C{kind}) of its source."""
    name = f"x-amz-{kind}-directive"
    directive = call.headers.get(name.encode(), b"COPY").upper()
    if directive not in (b"COPY", b"REPLACE"):
        raise invalidArgument(name, directive.decode("latin-1"), f"Unknown {kind} directive.")
    return directive == b"REPLACE"


def _copiedAttributes(call: S3Request, source: ObjectRecord) -> Attributes:
    """
    Return the attributes of a copy.

    It never inherits the storage class: without a header it is C{STANDARD}.
    """
    requested = attributesFrom(call.headers)
    tags = requested.tags if _replaces(call, "tagging") else source.attributes.tags
    if _replaces(call, "metadata"):
        return replace(requested, tags=tags)
    return replace(source.attributes, storageClass=requested.storageClass, tags=tags)


async def copyObject(call: S3Request) -> None:
    """Copy an object: its content gets a second name."""
    rejectUnsupported(call.headers, call.identity.account, WRITE_FIELDS)
    takesTags = not _replaces(call, "tagging")
    if takesTags:
        # The tags that the request names are not applied.
        call.documentTags = {}
    condition = writeCondition(call.headers)
    algorithm, _ = requestedKind(call.headers) or ("", "")
    objects = call.services.objects
    acl = listIn(call.headers, call.services.accounts)
    # A refused copy is the error, not its source.
    bucket, _ = await objects.checkWrite(call, call.bucket, call.key, acl=acl)
    requested = requestedEncryption(call)
    rejectBody(call)
    lock = lockFrom(call.headers)
    checkLock(bucket, lock, objects.nowMs())
    isNamed = _replaces(call, "metadata") or STORAGE_CLASS in call.headers

    async def copy() -> tuple[CopySource, ObjectRecord]:
        source = await findCopySource(call)
        attributes = _copiedAttributes(call, source.record)
        wanted = CopyObject(
            call.bucket,
            call.key,
            source.record,
            sourceVersionId=source.record.versionId if source.byVersion else None,
            attributes=attributes,
            takesTags=takesTags,
            storageClass=None if isNamed else attributes.storageClass,
            algorithm=algorithm,
            condition=condition,
            overwrites=isNamed or bool(algorithm) or source.byVersion or requested is not None,
            lock=lock,
            acl=acl,
            encryption=requested,
            sourceKey=source.key,
        )
        return source, await call.perform(wanted)

    source, record = await retryCopy(copy)
    call.respondXML(
        documents.copyObject(record.etag, record.modifiedMs, record.attributes.checksum),
        [
            *versionHeaders(record),
            *source.headers(),
            *writtenEncryption(record.attributes.encryption, requested),
            *await expirationHeaders(call, bucket, record),
        ],
    )


async def deleteObject(call: S3Request) -> None:
    """Delete an object or a version; a missing object counts as deleted."""
    rejectUnsupported(call.headers, call.identity.account, DELETE_FIELDS)
    version = call.query.get("versionId")
    wanted = DeleteObject(call.bucket, call.key, version, deleteCondition(call.headers))
    removal = await call.services.objects.perform(call, wanted)
    headers = []
    if removal.isDeleteMarker:
        headers.append((b"x-amz-delete-marker", b"true"))
    if versionId := removal.versionId or version:
        headers.append((b"x-amz-version-id", versionId.encode("ascii")))
    call.respond(204, headers)


def _checkEntry(call: S3Request, each: reader.DeleteRequestEntry) -> DeleteEntry:
    """Check one entry of a bulk deletion; an error concerns only this entry."""
    call.identity.authorise("write", call.bucket, each.key)
    etags = () if each.etag is None else (each.etag,)
    condition = WriteCondition(etags=etags, bypass=bypasses(call.headers))
    condition = narrowed(condition, "Size", each.size, "LastModifiedTime", each.modified)
    return DeleteEntry(each.key, each.versionId, condition)


async def deleteObjects(call: S3Request) -> None:
    """Delete up to 1,000 objects in one transaction."""
    await call.services.objects.bucket(call, call.bucket)
    wanted = reader.readDelete(await call.readDocument())
    errors: dict[int, S3Error] = {}
    entries: dict[int, DeleteEntry] = {}
    for position, each in enumerate(wanted.entries):
        try:
            entries[position] = _checkEntry(call, each)
        except (S3Error, DomainError) as error:
            errors[position] = asS3Error(error)
    results = await call.perform(DeleteObjects(call.bucket, list(entries.values())))
    removals: dict[int, Removal] = {}
    for position, result in zip(entries, results, strict=True):
        if isinstance(result, Removal):
            removals[position] = result
        elif isinstance(result, InvalidVersionId):
            # In a document, S3 treats a malformed id as the id of a missing version.
            errors[position] = S3Error("NoSuchVersion")
        else:
            errors[position] = asS3Error(result)
    call.respondXML(documents.deleteResult(wanted.entries, removals, errors, wanted.quiet))
