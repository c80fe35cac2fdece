"""Buckets: lists, creation and removal."""

from contextlib import suppress
from typing import TYPE_CHECKING

import msgspec

from storagegate.objects import errors
from storagegate.objects.access.acl import encodeList
from storagegate.objects.access.actions import LIST_BUCKETS
from storagegate.objects.access.decision import BUCKET_OWNER_ENFORCED, decideAlone
from storagegate.objects.encryption.requests import SSE_C, BucketEncryption
from storagegate.objects.names import checkBucketName, isRegion
from storagegate.objects.operations import CreateBucket, DeleteBucket, ListBuckets
from storagegate.objects.service import ObjectService
from storagegate.objects.settings import ACL, ENCRYPTION, TAGS, ownershipOf
from storagegate.objects.tags import encodeTags
from storagegate.storage.errors import BucketExists, BucketNotEmpty, NoSuchUpload
from storagegate.storage.mutations import AbortUpload, AddBucket, PutSettings
from storagegate.storage.ranges import UploadRange, VersionRange
from storagegate.storage.records import VERSIONING_ENABLED, Bucket

if TYPE_CHECKING:
    from storagegate.objects.access.context import Caller

# Buckets that are read at a time if only some of them are listed.
_BUCKETS = 1000

# Uploads of a removed bucket that are aborted at a time.
_UPLOADS = 1000


async def listBuckets(
    service: ObjectService, caller: "Caller", wanted: ListBuckets
) -> list[Bucket]:
    """List buckets by name."""
    identity = caller.identity
    if identity.isAnonymous:
        raise errors.AccessDenied()
    decideAlone(caller, LIST_BUCKETS)
    isOfRoot = identity.isRoot or (identity.rights is not None and identity.rights.isRoot)
    account = None if isOfRoot else identity.account
    policy = identity.policy
    isWhole = policy.isUnlimited and not wanted.region
    size = wanted.limit if isWhole else max(wanted.limit, _BUCKETS)
    found: list[Bucket] = []
    after = wanted.after
    while True:
        some = await service.catalog.buckets(account, wanted.prefix, after, size)
        found += [
            each
            for each in some
            if isWhole
            or (wanted.region in ("", each.region) and policy.allows("list", each.name, None))
        ]
        if len(some) < size or len(found) >= wanted.limit:
            return found[: wanted.limit]
        after = some[-1].name


async def createBucket(service: ObjectService, caller: "Caller", wanted: CreateBucket) -> Bucket:
    """Create a bucket."""
    identity, name = caller.identity, wanted.bucket
    if identity.isAnonymous:
        raise errors.AccessDenied()
    checkBucketName(name)
    _checkCreation(caller, wanted)
    if wanted.region and wanted.region != service.region:
        if not isRegion(wanted.region):
            raise errors.InvalidRegion(region=wanted.region)
        raise errors.ForeignRegion()
    versioning = VERSIONING_ENABLED if wanted.locked else ""
    owned = wanted.ownership or service.ownership
    acl = _storedList(wanted, identity.account)
    if acl is not None and owned == BUCKET_OWNER_ENFORCED:
        raise errors.InvalidBucketAclWithObjectOwnership()
    bucket = Bucket(
        name,
        identity.account,
        service.nowMs(),
        service.region,
        owned,
        versioning,
        wanted.locked,
    )
    try:
        await service.catalog.commit(AddBucket(bucket))
    except BucketExists as error:
        if error.bucket.account != identity.account:
            raise errors.BucketAlreadyExists(bucket=name) from error
        if wanted.isRepeatable and (found := await _repeated(service, caller, wanted)):
            return found
        raise errors.BucketAlreadyOwnedByYou(bucket=name) from error
    settings: dict[str, bytes | None] = {}
    if wanted.tags:
        settings[TAGS] = encodeTags(wanted.tags).encode("ascii")
    if acl is not None:
        # The bucket is private until this point.
        settings[ACL] = acl
    if service.blocksCustomerKeys:
        settings[ENCRYPTION] = msgspec.json.encode(BucketEncryption(blocked=(SSE_C,)))
    if settings:
        await service.catalog.commit(PutSettings(name, settings))
    return bucket


def _checkCreation(caller: "Caller", wanted: CreateBucket) -> None:
    """
    Decide on the creation of a bucket, and on the settings that the request gives to it.

    @raise AccessDenied: The caller lacks one of the rights.
    """
    if caller.identity.rights is None:
        return
    actions = ["s3:CreateBucket"]
    if wanted.acl is not None:
        actions.append("s3:PutBucketAcl")
    if wanted.ownership:
        actions.append("s3:PutBucketOwnershipControls")
    if wanted.locked:
        actions += ["s3:PutBucketObjectLockConfiguration", "s3:PutBucketVersioning"]
    if wanted.tags:
        actions.append("s3:PutBucketTagging")
    for action in actions:
        decideAlone(caller, action, wanted.bucket)


def _storedList(wanted: CreateBucket, account: str) -> bytes | None:
    """Return the stored form of the ACL; L{None} for the private ACL."""
    text = None if wanted.acl is None else encodeList(wanted.acl, account)
    return None if text is None else text.encode()


async def _repeated(
    service: ObjectService, caller: "Caller", wanted: CreateBucket
) -> Bucket | None:
    """
    Give the caller's own bucket the ACL of a request to create it.

    @return: L{None} if the bucket lacks something else that the request names.
    """
    bucket, settings = await service.bucketSettings(caller, wanted.bucket)
    hasAll = (
        wanted.ownership in ("", ownershipOf(bucket, settings.documents))
        and (
            not wanted.tags
            or encodeTags(wanted.tags).encode("ascii") == settings.documents.get(TAGS)
        )
        and (bucket.lockEnabled or not wanted.locked)
    )
    if not hasAll:
        return None
    document = _storedList(wanted, caller.identity.account)
    if settings.documents.get(ACL) != document:
        await service.bucket(caller, wanted.bucket, operation="PutBucketAcl")
        if wanted.acl is not None:
            settings.access.checkList(wanted.acl)
        await service.catalog.commit(PutSettings(wanted.bucket, {ACL: document}))
    return bucket


async def deleteBucket(service: ObjectService, caller: "Caller", wanted: DeleteBucket) -> None:
    """Remove a bucket."""
    name = wanted.bucket
    await service.bucket(caller, name)
    notEmpty = errors.BucketOccupied(bucket=name)
    catalog = service.catalog
    if (await catalog.listVersions(VersionRange(name, b"", b"", b"", 1))).versions:
        raise notEmpty
    page = UploadRange(name, b"", b"", b"", _UPLOADS)
    while uploads := (await catalog.uploads(page)).uploads:
        for each in uploads:
            with suppress(NoSuchUpload):
                await catalog.commit(AbortUpload(name, each.key, each.uploadId))
    # Fails if an object or an upload was added in the meantime.
    try:
        await service.store.deleteBucket(name)
    except BucketNotEmpty as error:
        raise notEmpty from error
