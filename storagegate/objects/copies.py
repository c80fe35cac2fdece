"""Copies of objects, and the access decision on the attributes that a copy takes over."""

from functools import partial
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from storagegate.objects import errors
from storagegate.objects.checksums import encodeDigest, newHasher
from storagegate.objects.contents import OpenContent, digest, putCopy
from storagegate.objects.encryption.requests import withDigestsOf
from storagegate.objects.locks import checkLock
from storagegate.objects.operations import CopyObject
from storagegate.objects.service import ObjectService
from storagegate.objects.tags import decodeTags
from storagegate.storage.errors import ConcurrentChange, NoSuchKey, PreconditionFailed
from storagegate.storage.records import Checksum, ObjectRecord, WriteCondition

if TYPE_CHECKING:
    # Imported with the first policy.
    from storagegate.objects.access.context import Caller


async def copyObject(service: ObjectService, caller: "Caller", wanted: CopyObject) -> ObjectRecord:
    """Copy an object by giving its content a second name."""
    source = wanted.source
    home, owner = await service.checkWrite(caller, wanted.bucket, wanted.key, acl=wanted.acl)
    await service.checkComparison(caller, home, wanted.key, wanted.condition)
    checkLock(home, wanted.lock, service.nowMs())
    await _checkTaken(service, caller, wanted)
    if (source.bucket, source.key) == (wanted.bucket, wanted.key) and not wanted.overwrites:
        raise errors.InvalidRequest(
            "This copy request is illegal because it is trying to copy an object to itself without "
            "changing the object's metadata, storage class, website redirect location or "
            "encryption attributes.",
        )
    content, source = await _opened(service, wanted)
    former = content.objectKey
    shared = None if former is None else former.key
    objectKey = await service.keyForWrite(home, wanted.key, wanted.encryption, shared)
    checksum, algorithm = source.attributes.checksum, wanted.algorithm
    if algorithm and (checksum is None or checksum.algorithm != algorithm):
        hasher = newHasher(algorithm)
        await digest(service.store, content, 0, source.size, [hasher])
        checksum = Checksum(algorithm, encodeDigest(hasher.digest()))
    attributes = replace(
        wanted.attributes or source.attributes,
        acl=owner.text,
        checksum=checksum,
        parts=source.attributes.parts,
        uploadId="",
        lock=wanted.lock,
        encryption=None,
    )
    sealed = attributes
    if objectKey is not None:
        count = len(attributes.parts)
        sealed = await service.runForParts(count, objectKey.sealAttributes, attributes)
    record = ObjectRecord(
        wanted.bucket,
        wanted.key,
        source.size,
        source.etag if objectKey is None else objectKey.hidden(source.etag),
        service.nowMs(),
        owner.account,
        sealed,
        source.content,
    )
    condition = _unchanged(wanted)
    try:
        record = await putCopy(
            service.store, record, content, objectKey, condition, partial(service.checkSame, home)
        )
    except (NoSuchKey, PreconditionFailed) as error:
        if condition is wanted.condition:
            raise
        raise ConcurrentChange from error
    return record if objectKey is None else withDigestsOf(record, attributes)


def _unchanged(wanted: CopyObject) -> WriteCondition:
    """
    Return the condition of a copy. A copy of an object onto itself changes the object as it was
    looked up, and must not replace the bytes of a later write by those.
    """
    source, condition = wanted.source, wanted.condition
    isItself = (source.bucket, source.key) == (wanted.bucket, wanted.key)
    etag = source.etag
    if (
        not isItself
        or wanted.sourceVersionId is not None
        or condition.absent
        or etag in condition.unlike
        or not (set(condition.etags) <= {"*"} or etag in condition.etags)
    ):
        # The condition of the request does not hold already, or concerns another object.
        return condition
    return replace(condition, etags=(etag,))


async def _opened(service: ObjectService, wanted: CopyObject) -> tuple[OpenContent, ObjectRecord]:
    """Open the source of a copy; return its content, and its record with plain digests."""
    source = wanted.source
    if source.attributes.encryption is None and wanted.sourceKey is None:
        return OpenContent(source.content), source
    home = await service.find(source.bucket)
    content = await service.contentOf(home, source, wanted.sourceKey)
    objectKey = content.objectKey
    if objectKey is None:
        return content, source
    count = len(source.attributes.parts)
    plain = await service.runForParts(count, objectKey.openRecord, source)
    return content, replace(plain, etag=objectKey.shown(source.etag))


async def _checkTaken(service: ObjectService, caller: "Caller", wanted: CopyObject) -> None:
    """
    Decide on the attributes that a copy has without naming them, as if the request named them: the
    storage class, and the tags of its source, which require the rights to read and to set them.

    @raise AccessDenied: The caller lacks one of the rights.
    """
    source = wanted.source
    tags = decodeTags(source.attributes.tags) if wanted.takesTags else {}
    if not tags and wanted.storageClass is None:
        return
    headers = caller.headers
    if wanted.storageClass is not None:
        named = wanted.storageClass or source.attributes.storageClass
        headers = {**headers, b"x-amz-storage-class": named.encode("ascii")}
    from storagegate.objects.access.context import DescribedCaller

    writer: Any = DescribedCaller(caller, headers, tags if wanted.takesTags else None)
    await service.bucket(writer, wanted.bucket, wanted.key, "CopyObject")
    if tags:
        await service.object(
            caller, source.bucket, source.key, wanted.sourceVersionId, "GetObjectTagging"
        )
        await service.bucket(writer, wanted.bucket, wanted.key, "PutObjectTagging")
