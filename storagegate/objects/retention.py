"""Retention and legal hold of versions."""

from typing import TYPE_CHECKING

from storagegate.objects import errors
from storagegate.objects.locks import checkLock, requireLock
from storagegate.objects.operations import (
    GetObjectLegalHold,
    GetObjectRetention,
    PutObjectLegalHold,
    PutObjectRetention,
)
from storagegate.objects.service import ObjectService
from storagegate.storage.mutations import PutLegalHold, PutRetention
from storagegate.storage.records import ObjectLock, ObjectRecord

if TYPE_CHECKING:
    from storagegate.objects.access.context import Caller


async def findLocked(
    service: ObjectService, caller: "Caller", bucket: str, key: bytes, versionId: str | None
) -> ObjectRecord:
    """
    Look up a version in a bucket with object lock.

    @param versionId: The version; L{None} for the current one.
    @raise InvalidRequest: The bucket has no object lock.
    """
    found, record = await service.object(caller, bucket, key, versionId)
    requireLock(found)
    return record


async def getObjectRetention(
    service: ObjectService, caller: "Caller", wanted: GetObjectRetention
) -> ObjectLock:
    """Return the lock of a version with a retention."""
    record = await findLocked(service, caller, wanted.bucket, wanted.key, wanted.versionId)
    if not record.attributes.lock.mode:
        raise errors.LockNotFound()
    return record.attributes.lock


async def putObjectRetention(
    service: ObjectService, caller: "Caller", wanted: PutObjectRetention
) -> None:
    """Change the retention of a version."""
    bucket, key, versionId, lock = wanted.bucket, wanted.key, wanted.versionId, wanted.lock
    home, _ = await service.object(caller, bucket, key, versionId)
    now = service.nowMs()
    checkLock(home, lock, now)
    bypass = wanted.bypass and await service.mayBypass(caller, home, key, versionId)
    settled = service.store.settledMs(now)
    await service.catalog.commit(
        PutRetention(bucket, key, versionId, lock.mode, lock.untilMs, settled, bypass)
    )


async def getObjectLegalHold(
    service: ObjectService, caller: "Caller", wanted: GetObjectLegalHold
) -> bool:
    """Return whether the legal hold of a version is on."""
    record = await findLocked(service, caller, wanted.bucket, wanted.key, wanted.versionId)
    held = record.attributes.lock.legalHold
    if held is None:
        raise errors.LockNotFound()
    return held


async def putObjectLegalHold(
    service: ObjectService, caller: "Caller", wanted: PutObjectLegalHold
) -> None:
    """Place or release the legal hold of a version."""
    await service.object(caller, wanted.bucket, wanted.key, wanted.versionId)
    await service.catalog.commit(
        PutLegalHold(wanted.bucket, wanted.key, wanted.versionId, wanted.isOn)
    )
