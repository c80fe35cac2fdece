"""Copies of objects, and the access decision on the attributes that a copy takes over."""

from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from storagegate.objects import errors
from storagegate.objects.checksums import encodeDigest, newHasher
from storagegate.objects.contents import digest, putCopy
from storagegate.objects.locks import checkLock
from storagegate.objects.operations import CopyObject
from storagegate.objects.service import ObjectService
from storagegate.objects.tags import decodeTags
from storagegate.storage.records import Checksum, ObjectRecord

if TYPE_CHECKING:
    # Imported with the first policy.
    from storagegate.objects.access.context import Caller


async def copyObject(service: ObjectService, caller: "Caller", wanted: CopyObject) -> ObjectRecord:
    """Copy an object by giving its content a second name."""
    source = wanted.source
    home, owner = await service.checkWrite(caller, wanted.bucket, wanted.key, acl=wanted.acl)
    checkLock(home, wanted.lock, service.nowMs())
    await _checkTaken(service, caller, wanted)
    if (source.bucket, source.key) == (wanted.bucket, wanted.key) and not wanted.overwrites:
        raise errors.InvalidRequest(
            "This copy request is illegal because it is trying to copy an object to itself without "
            "changing the object's metadata, storage class, website redirect location or "
            "encryption attributes.",
        )
    checksum, algorithm = source.attributes.checksum, wanted.algorithm
    if algorithm and (checksum is None or checksum.algorithm != algorithm):
        hasher = newHasher(algorithm)
        await digest(service.store, source.content, 0, source.size, [hasher])
        checksum = Checksum(algorithm, encodeDigest(hasher.digest()))
    record = ObjectRecord(
        wanted.bucket,
        wanted.key,
        source.size,
        source.etag,
        service.nowMs(),
        owner.account,
        replace(
            wanted.attributes or source.attributes,
            acl=owner.text,
            checksum=checksum,
            parts=source.attributes.parts,
            uploadId="",
            lock=wanted.lock,
        ),
        source.content,
    )
    return await putCopy(service.store, record, wanted.condition)


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
