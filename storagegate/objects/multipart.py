"""Multipart uploads: creation, copied parts, completion, abortion and lists."""

import secrets
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from msgspec.structs import replace

from storagegate.objects import errors
from storagegate.objects.access.acl import encodeList
from storagegate.objects.checksums import (
    COMPOSITE,
    DEFAULT_ALGORITHM,
    IngestedBody,
    checksumKind,
    compositeChecksum,
    encodeDigest,
    fullObjectChecksum,
    multipartETag,
    newHasher,
)
from storagegate.objects.contents import OpenContent, digest, rewrite, segmentsOf
from storagegate.objects.encryption.requests import SSE_C, CustomerKey, checkKeySent, withDigestsOf
from storagegate.objects.locks import checkLock
from storagegate.objects.operations import (
    AbortMultipartUpload,
    CompletedPart,
    CompleteMultipartUpload,
    CreateMultipartUpload,
    ListMultipartUploads,
    ListParts,
    PartListing,
    UploadPartCopy,
)
from storagegate.objects.pagination import UPLOAD_ID_BYTES
from storagegate.objects.service import ObjectService
from storagegate.storage.errors import BlobsElsewhere, NoSuchUpload
from storagegate.storage.mutations import AbortUpload, CreateUpload
from storagegate.storage.ranges import PartRange
from storagegate.storage.records import (
    Checksum,
    Content,
    MultipartUpload,
    ObjectRecord,
    Part,
    PartSummary,
    UploadListing,
)

if TYPE_CHECKING:
    from storagegate.objects.access.context import Caller
    from storagegate.objects.encryption.sealing import ObjectKey

PART_MINIMUM = 5 << 20
"""Smallest part except for the last: S3's own limit."""

OBJECT_LIMIT = 5 << 40
"""The largest object: S3's own 5 TiB."""

# Parts that a completion reads at a time.
_PARTS = 1000


async def createMultipartUpload(
    service: ObjectService, caller: "Caller", wanted: CreateMultipartUpload
) -> MultipartUpload:
    """Start an upload."""
    attributes = wanted.attributes
    home, owner = await service.checkWrite(caller, wanted.bucket, wanted.key, acl=wanted.acl)
    checkLock(home, attributes.lock, service.nowMs())
    objectKey = await service.keyForWrite(home, wanted.key, wanted.encryption)
    if objectKey is not None:
        attributes = replace(attributes, encryption=objectKey.encryption)
    account = caller.identity.account
    if owner.acl is not None:
        # The owner of the object is decided at its completion; until then it is the initiator.
        attributes = replace(attributes, acl=encodeList(owner.acl, account) or "")
    upload = MultipartUpload(
        wanted.bucket,
        wanted.key,
        secrets.token_hex(UPLOAD_ID_BYTES),
        account,
        service.nowMs(),
        attributes,
        wanted.algorithm,
        wanted.kind,
    )
    await service.catalog.commit(CreateUpload(upload))
    return upload


async def listParts(service: ObjectService, caller: "Caller", wanted: ListParts) -> PartListing:
    """List a page of the parts of an upload."""
    page = wanted.page
    upload = await service.upload(caller, page.bucket, page.key, page.uploadId)
    _checkKey(upload, wanted.customerKey)
    parts = await service.catalog.parts(page)
    objectKey = await _keyForDigests(service, upload, wanted.customerKey)
    shown = await service.runForParts(len(parts), partial(_withDigests, upload, objectKey), parts)
    return PartListing(upload, shown)


async def listMultipartUploads(
    service: ObjectService, caller: "Caller", wanted: ListMultipartUploads
) -> UploadListing:
    """List a page of the uploads in progress of a bucket."""
    await service.bucket(caller, wanted.page.bucket)
    return await service.catalog.uploads(wanted.page)


async def abortMultipartUpload(
    service: ObjectService, caller: "Caller", wanted: AbortMultipartUpload
) -> None:
    """Abort an upload."""
    await service.upload(caller, wanted.bucket, wanted.key, wanted.uploadId)
    await service.catalog.commit(AbortUpload(wanted.bucket, wanted.key, wanted.uploadId))


async def completeMultipartUpload(
    service: ObjectService, caller: "Caller", wanted: CompleteMultipartUpload
) -> ObjectRecord:
    """Complete an upload, or find the object of an earlier completion with the same parts."""
    try:
        upload = await service.upload(caller, wanted.bucket, wanted.key, wanted.uploadId)
        if wanted.condition.compares:
            home = await service.find(wanted.bucket)
            await service.checkComparison(caller, home, wanted.key, wanted.condition)
        return await _complete(service, _without(upload, wanted.dropped), wanted)
    except (errors.UploadNotFound, NoSuchUpload):
        record = await _completed(service, caller, wanted)
        if record is None:
            raise
        return record


def _without(upload: MultipartUpload, dropped: frozenset[str]) -> MultipartUpload:
    """Return the upload without some of its metadata."""
    if not dropped:
        return upload
    attributes = upload.attributes
    kept = {name: value for name, value in attributes.metadata.items() if name not in dropped}
    return replace(upload, attributes=replace(attributes, metadata=kept))


def _checkKey(upload: MultipartUpload, key: CustomerKey | None) -> None:
    """
    Check the client's key of an upload, which may be omitted if the client never named checksums.

    @raise InvalidRequest: The key is missing or superfluous.
    """
    if key is not None or upload.checksumAlgorithm:
        checkKeySent(upload.attributes.encryption, key, isUpload=True)


async def _keyForDigests(
    service: ObjectService, upload: MultipartUpload, key: CustomerKey | None
) -> "ObjectKey | None":
    """Open the key of an upload, unless it needs a client's key that was not sent."""
    encryption = upload.attributes.encryption
    if encryption is not None and encryption.kind == SSE_C and key is None:
        return None
    return await service.keyOfUpload(upload, key)


def _withDigests(
    upload: MultipartUpload, objectKey: "ObjectKey | None", parts: list[Part]
) -> list[Part]:
    """Return parts with plain checksums, or without checksums if these cannot be opened."""
    if upload.attributes.encryption is None:
        return list(parts)
    if objectKey is None:
        return [replace(part, checksum=None) for part in parts]
    return [objectKey.openPart(part) for part in parts]


async def _complete(
    service: ObjectService, upload: MultipartUpload, wanted: CompleteMultipartUpload
) -> ObjectRecord:
    """Turn the named parts into the object."""
    await service.checkUploadAllowed(upload)
    _checkKey(upload, wanted.customerKey)
    objectKey = await _keyForDigests(service, upload, wanted.customerKey)
    named = {part.number for part in wanted.parts}
    stored = [part for part in await _allParts(service, upload) if part.number in named]
    isComparable = objectKey is not None or upload.attributes.encryption is None
    opened = await service.runForParts(
        len(stored), partial(_withDigests, upload, objectKey), stored
    )
    chosen = _choose(wanted.parts, opened, isComparable)
    if upload.checksumKind == COMPOSITE:
        _checkNamed(upload.checksumAlgorithm, wanted.parts)
    size = sum(part.size for part in chosen)
    if size > OBJECT_LIMIT:
        raise errors.EntityTooLarge()
    if wanted.size is not None and wanted.size != size:
        raise errors.InvalidRequest("The parts do not add up to x-amz-mp-object-size.")
    checksum = combinedChecksum(upload, chosen)
    if wanted.kind is not None and (checksum is None or checksum.kind != wanted.kind):
        raise errors.InvalidRequest(
            "The upload was created with another checksum type than the complete request names: "
            f"{wanted.kind}",
        )
    if wanted.checksum is not None:
        algorithm, value = wanted.checksum
        if checksum is None or checksum.algorithm != algorithm:
            raise errors.BadDigest()
        # The count of a composite checksum may be omitted.
        if value not in (checksum.value, checksum.value.partition("-")[0]):
            raise errors.BadDigest()
    (owner,) = await service.ownershipsOf(upload.bucket, [upload])
    attributes = replace(
        upload.attributes,
        acl=owner.text,
        checksum=checksum,
        parts=tuple(PartSummary(p.number, p.size, p.checksum) for p in chosen),
    )
    sealed = attributes
    if objectKey is not None:
        sealed = await service.runForParts(len(chosen), objectKey.sealAttributes, attributes)
    record = ObjectRecord(
        upload.bucket,
        upload.key,
        size,
        multipartETag([part.etag for part in chosen]),
        service.nowMs(),
        owner.account,
        sealed,
        Content(size),
    )
    pairs = [(part.number, part.etag) for part in chosen]
    record = await service.store.completeUpload(upload.uploadId, record, pairs, wanted.condition)
    return record if objectKey is None else withDigestsOf(record, attributes)


async def _completed(
    service: ObjectService, caller: "Caller", wanted: CompleteMultipartUpload
) -> ObjectRecord | None:
    """Find the version that an earlier completion with these parts has made."""
    bucket, key, uploadId = wanted.bucket, wanted.key, wanted.uploadId
    home = await service.bucketOfUpload(caller, bucket, key, uploadId)
    record = await service.catalog.completed(bucket, key, uploadId)
    if record is None:
        return None
    if [part.number for part in record.attributes.parts] != [each.number for each in wanted.parts]:
        return None
    try:
        etag = multipartETag([each.etag for each in wanted.parts])
    except ValueError:
        return None
    if record.etag != etag:
        return None
    return await service.withDigests(home, record, wanted.customerKey)


async def uploadPartCopy(service: ObjectService, caller: "Caller", wanted: UploadPartCopy) -> Part:
    """Store a range of an object as a part."""
    upload = await service.upload(caller, wanted.bucket, wanted.key, wanted.uploadId)
    objectKey = await service.keyForPart(upload, wanted.customerKey)
    store = service.store
    source = await _sourceOf(service, wanted)
    start, length = wanted.start, wanted.length
    md5 = newHasher("MD5")
    algorithm = upload.checksumAlgorithm or DEFAULT_ALGORITHM
    checksum = newHasher(algorithm)
    await digest(store, source, start, length, [md5, checksum])
    value = Checksum(algorithm, encodeDigest(checksum.digest()))
    etag = md5.digest().hex()
    isShared = source.objectKey is None and objectKey is None and not source.isInline
    if isShared:
        content = Content(length, segments=segmentsOf(source.stored, start, length))
        try:
            return await service.putPart(
                upload, wanted.number, IngestedBody(content, etag, value, None)
            )
        except BlobsElsewhere:
            pass
    # Every part must be a blob.
    content, sink = await rewrite(store, source, start, length, upload.bucket, objectKey)
    received = IngestedBody(content, etag, value, sink, objectKey)
    return await service.putPart(upload, wanted.number, received)


async def _sourceOf(service: ObjectService, wanted: UploadPartCopy) -> OpenContent:
    """Open the source of a copied part."""
    source = wanted.source
    if source.attributes.encryption is None and wanted.sourceKey is None:
        return OpenContent(source.content)
    home = await service.find(source.bucket)
    return await service.contentOf(home, source, wanted.sourceKey)


async def _allParts(service: ObjectService, upload: MultipartUpload) -> list[Part]:
    found: list[Part] = []
    page = PartRange(upload.bucket, upload.key, upload.uploadId, 0, _PARTS)
    while parts := await service.catalog.parts(page):
        found += parts
        page = replace(page, after=parts[-1].number)
    return found


def _choose(
    named: Sequence[CompletedPart], stored: Sequence[Part], isComparable: bool
) -> list[Part]:
    """
    Find the parts that a completion names.

    @param isComparable: Whether the checksums of the parts are known.
    """
    byNumber = {part.number: part for part in stored}
    chosen = []
    previous = 0
    for each in named:
        if each.number <= previous:
            raise errors.InvalidPartOrder()
        previous = each.number
        part = byNumber.get(each.number)
        checksum = None if part is None else part.checksum
        # A checksum of a different algorithm cannot be compared, so it does not agree.
        known = {} if checksum is None else {checksum.algorithm: checksum.value}
        agrees = not isComparable or each.checksums.items() <= known.items()
        if part is None or part.etag != each.etag or not agrees:
            raise errors.PartMismatch(partNumber=str(each.number), etag=each.etag)
        chosen.append(part)
    for part in chosen[:-1]:
        if part.size < PART_MINIMUM:
            raise errors.EntityTooSmall(
                proposedSize=str(part.size),
                minSize=str(PART_MINIMUM),
                partNumber=str(part.number),
                etag=part.etag,
            )
    return chosen


def _checkNamed(algorithm: str, named: Sequence[CompletedPart]) -> None:
    for each in named:
        if algorithm not in each.checksums:
            raise errors.InvalidRequest(
                f"The upload was created using a {algorithm.lower()} checksum. The complete "
                "request must include the checksum for each part. It was missing for part "
                f"{each.number} in the request.",
            )


def combinedChecksum(upload: MultipartUpload, parts: Sequence[Part]) -> Checksum | None:
    """
    Compute the object's checksum from the checksums of its parts.

    If the upload named no algorithm, parts that share one algorithm are combined anyway; otherwise
    the object gets no checksum.

    @param upload: The upload, whose checksum kind is used if it names one.
    @param parts: The chosen parts, in the order of the object.
    """
    algorithms = {part.checksum.algorithm if part.checksum else "" for part in parts}
    if len(algorithms) != 1 or algorithms == {""}:
        return None
    (algorithm,) = algorithms
    kind = checksumKind(algorithm, upload.checksumKind or None)
    pairs = [(part.checksum.value, part.size) for part in parts if part.checksum is not None]
    if kind == COMPOSITE:
        values = [value for value, _ in pairs]
        return Checksum(algorithm, compositeChecksum(algorithm, values), kind)
    return Checksum(algorithm, fullObjectChecksum(algorithm, pairs), kind)
