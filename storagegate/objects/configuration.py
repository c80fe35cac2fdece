"""
The settings of buckets and objects: reading, replacing and removing each, with its rules.

Each setting is a typed value here; L{storagegate.objects.documents} has their documents.
"""

from collections.abc import Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from storagegate.objects import errors
from storagegate.objects.access.acl import decodeList, encodeList, privateList
from storagegate.objects.access.decision import BUCKET_OWNER_ENFORCED, PublicAccessBlock
from storagegate.objects.access.policy import UnknownPrincipal, compilePolicy
from storagegate.objects.cors import CORSRule
from storagegate.objects.encryption.requests import BucketEncryption
from storagegate.objects.lifecycle import LIFECYCLE, TRANSITION_MINIMUM, LifecycleRule
from storagegate.objects.operations import (
    BucketOperation,
    DeleteObjectTagging,
    GetBucketAcl,
    GetBucketCors,
    GetBucketEncryption,
    GetBucketLifecycleConfiguration,
    GetBucketOwnershipControls,
    GetBucketPolicy,
    GetBucketPolicyStatus,
    GetBucketTagging,
    GetBucketVersioning,
    GetObjectAcl,
    GetObjectLockConfiguration,
    GetPublicAccessBlock,
    ObjectAcl,
    OwnedList,
    PutBucketAcl,
    PutBucketCors,
    PutBucketEncryption,
    PutBucketLifecycleConfiguration,
    PutBucketOwnershipControls,
    PutBucketPolicy,
    PutBucketTagging,
    PutBucketVersioning,
    PutObjectAcl,
    PutObjectLockConfiguration,
    PutObjectTagging,
    PutPublicAccessBlock,
)
from storagegate.objects.principals import canonicalId
from storagegate.objects.service import ObjectService
from storagegate.objects.settings import (
    ACL,
    CORS,
    ENCRYPTION,
    OWNERSHIP,
    POLICY,
    PUBLIC_ACCESS_BLOCK,
    TAGS,
    ownershipOf,
)
from storagegate.objects.tags import Tags, decodeTags, encodeTags
from storagegate.storage.errors import BucketLocked, NoSuchKey
from storagegate.storage.mutations import (
    PutAcl,
    PutSettings,
    PutTags,
    SetObjectLock,
    SetVersioning,
)
from storagegate.storage.records import (
    DEFAULT_RETENTION,
    Bucket,
    DefaultRetention,
    ObjectRecord,
    readDefault,
)

if TYPE_CHECKING:
    from storagegate.objects.access.context import Caller


async def _put(service: ObjectService, bucket: str, name: str, document: bytes | None) -> None:
    """Store a setting, or remove it. Access was decided on."""
    await service.catalog.commit(PutSettings(bucket, {name: document}))


def removal(
    *names: str, document: bytes | None = None
) -> Callable[[ObjectService, "Caller", BucketOperation[None]], Coroutine[Any, Any, None]]:
    """
    Return the function of an operation that removes settings.

    @param names: See L{storagegate.objects.settings}.
    @param document: A document that states that there is none; L{None} stores nothing.
    """

    async def remove(
        service: ObjectService, caller: "Caller", wanted: BucketOperation[None]
    ) -> None:
        await service.bucket(caller, wanted.bucket)
        await service.catalog.commit(PutSettings(wanted.bucket, dict.fromkeys(names, document)))

    return remove


async def getBucketVersioning(
    service: ObjectService, caller: "Caller", wanted: GetBucketVersioning
) -> str:
    """Return the status of versioning."""
    return (await service.bucket(caller, wanted.bucket)).versioning


async def putBucketVersioning(
    service: ObjectService, caller: "Caller", wanted: PutBucketVersioning
) -> None:
    """Enable or suspend versioning."""
    await service.bucket(caller, wanted.bucket)
    try:
        await service.catalog.commit(SetVersioning(wanted.bucket, wanted.status))
    except BucketLocked as error:
        raise errors.InvalidBucketState(
            "An Object Lock configuration is present on this bucket, so the versioning state "
            "cannot be changed."
        ) from error


async def getObjectLockConfiguration(
    service: ObjectService, caller: "Caller", wanted: GetObjectLockConfiguration
) -> DefaultRetention | None:
    """Return the default retention of a bucket with object lock."""
    found, settings = await service.bucketSettings(caller, wanted.bucket)
    if not found.lockEnabled:
        raise errors.BucketLockNotFound(bucket=wanted.bucket)
    document = settings.documents.get(DEFAULT_RETENTION)
    return None if document is None else readDefault(document)


async def putObjectLockConfiguration(
    service: ObjectService, caller: "Caller", wanted: PutObjectLockConfiguration
) -> None:
    """Enable object lock, and set or remove the default retention."""
    await service.bucket(caller, wanted.bucket)
    await service.catalog.commit(SetObjectLock(wanted.bucket, wanted.default))


async def getBucketLifecycleConfiguration(
    service: ObjectService, caller: "Caller", wanted: GetBucketLifecycleConfiguration
) -> tuple[Sequence[LifecycleRule], str]:
    """Return the lifecycle rules, and the smallest size of a transition."""
    _, settings = await service.bucketSettings(caller, wanted.bucket)
    if not settings.lifecycle:
        raise errors.LifecycleNotFound(bucket=wanted.bucket)
    return settings.lifecycle, settings.documents.get(TRANSITION_MINIMUM, b"").decode("ascii")


async def putBucketLifecycleConfiguration(
    service: ObjectService, caller: "Caller", wanted: PutBucketLifecycleConfiguration
) -> None:
    """Replace the lifecycle rules."""
    await service.bucket(caller, wanted.bucket)
    minimum = wanted.transitionMinimum.encode("ascii") or None
    documents = {LIFECYCLE: msgspec.json.encode(wanted.rules), TRANSITION_MINIMUM: minimum}
    await service.catalog.commit(PutSettings(wanted.bucket, documents))


async def getBucketPolicy(
    service: ObjectService, caller: "Caller", wanted: GetBucketPolicy
) -> bytes:
    """Return the policy."""
    _, settings = await service.bucketSettings(caller, wanted.bucket)
    document = settings.documents.get(POLICY)
    if document is None:
        raise errors.PolicyNotFound(bucket=wanted.bucket)
    return document


async def getBucketPolicyStatus(
    service: ObjectService, caller: "Caller", wanted: GetBucketPolicyStatus
) -> bool:
    """Return whether the policy is public."""
    _, settings = await service.bucketSettings(caller, wanted.bucket)
    policy = settings.access.policy
    if policy is None:
        raise errors.PolicyNotFound(bucket=wanted.bucket)
    return policy.isPublic


async def putBucketPolicy(
    service: ObjectService, caller: "Caller", wanted: PutBucketPolicy
) -> None:
    """Replace the policy."""
    _, settings = await service.bucketSettings(caller, wanted.bucket)
    try:
        policy = compilePolicy(wanted.document, wanted.bucket, service.accounts)
    except errors.MalformedPolicy as error:
        if not isinstance(error.__cause__, UnknownPrincipal):
            raise
        # Another process may have issued a key.
        await service.accounts.refresh()
        policy = compilePolicy(wanted.document, wanted.bucket, service.accounts)
    if policy.isPublic and settings.access.block.blockPublicPolicy:
        raise errors.AccessDenied("The block of public access forbids public policies")
    await _put(service, wanted.bucket, POLICY, wanted.document)


async def getBucketCors(
    service: ObjectService, caller: "Caller", wanted: GetBucketCors
) -> Sequence[CORSRule]:
    """Return the CORS rules."""
    _, settings = await service.bucketSettings(caller, wanted.bucket)
    if not settings.cors:
        raise errors.CORSNotFound(bucket=wanted.bucket)
    return settings.cors


async def putBucketCors(service: ObjectService, caller: "Caller", wanted: PutBucketCors) -> None:
    """Replace the CORS rules."""
    await service.bucket(caller, wanted.bucket)
    await _put(service, wanted.bucket, CORS, msgspec.json.encode(wanted.rules))


async def getBucketEncryption(
    service: ObjectService, caller: "Caller", wanted: GetBucketEncryption
) -> BucketEncryption:
    """Return the encryption configuration."""
    _, settings = await service.bucketSettings(caller, wanted.bucket)
    if settings.encryption is None:
        raise errors.EncryptionNotFound(bucket=wanted.bucket)
    return settings.encryption


async def putBucketEncryption(
    service: ObjectService, caller: "Caller", wanted: PutBucketEncryption
) -> None:
    """Replace the encryption configuration."""
    await service.bucket(caller, wanted.bucket)
    await _put(service, wanted.bucket, ENCRYPTION, msgspec.json.encode(wanted.encryption))


async def getBucketAcl(service: ObjectService, caller: "Caller", wanted: GetBucketAcl) -> OwnedList:
    """Return the ACL of a bucket."""
    found, settings = await service.bucketSettings(caller, wanted.bucket)
    acl = settings.access.acl
    if acl is None or settings.access.isEnforced:
        acl = privateList(found.account)
    return OwnedList(found.account, acl)


async def putBucketAcl(service: ObjectService, caller: "Caller", wanted: PutBucketAcl) -> None:
    """Replace the ACL of a bucket."""
    found, settings = await service.bucketSettings(caller, wanted.bucket)
    settings.access.checkList(wanted.acl, wanted.canned)
    text = encodeList(wanted.acl, found.account)
    await _put(service, wanted.bucket, ACL, None if text is None else text.encode())


async def getBucketOwnershipControls(
    service: ObjectService, caller: "Caller", wanted: GetBucketOwnershipControls
) -> str:
    """Return the object ownership."""
    found, settings = await service.bucketSettings(caller, wanted.bucket)
    ownership = ownershipOf(found, settings.documents)
    if not ownership:
        raise errors.OwnershipNotFound(bucket=wanted.bucket)
    return ownership


async def putBucketOwnershipControls(
    service: ObjectService, caller: "Caller", wanted: PutBucketOwnershipControls
) -> None:
    """Set the object ownership."""
    found, settings = await service.bucketSettings(caller, wanted.bucket)
    acl, owner = settings.access.acl, canonicalId(found.account)
    grants = () if acl is None else acl.grants
    isEnforced = wanted.ownership == BUCKET_OWNER_ENFORCED
    if isEnforced and any(each.grantee != owner for each in grants):
        raise errors.InvalidBucketAclWithObjectOwnership()
    await _put(service, wanted.bucket, OWNERSHIP, wanted.ownership.encode())


async def getPublicAccessBlock(
    service: ObjectService, caller: "Caller", wanted: GetPublicAccessBlock
) -> PublicAccessBlock:
    """Return the public access block."""
    _, settings = await service.bucketSettings(caller, wanted.bucket)
    if PUBLIC_ACCESS_BLOCK not in settings.documents:
        raise errors.PublicAccessBlockNotFound(bucket=wanted.bucket)
    return settings.access.block


async def putPublicAccessBlock(
    service: ObjectService, caller: "Caller", wanted: PutPublicAccessBlock
) -> None:
    """Set the public access block."""
    await service.bucket(caller, wanted.bucket)
    await _put(service, wanted.bucket, PUBLIC_ACCESS_BLOCK, msgspec.json.encode(wanted.block))


async def getBucketTagging(
    service: ObjectService, caller: "Caller", wanted: GetBucketTagging
) -> Tags:
    """Return the tags of a bucket."""
    await service.bucket(caller, wanted.bucket)
    _, documents = await service.catalog.settings(wanted.bucket)
    tags = decodeTags(documents.get(TAGS, b"").decode("ascii"))
    if not tags:
        raise errors.TagsNotFound(bucket=wanted.bucket)
    return tags


async def putBucketTagging(
    service: ObjectService, caller: "Caller", wanted: PutBucketTagging
) -> None:
    """Replace the tags of a bucket."""
    await service.bucket(caller, wanted.bucket)
    document = encodeTags(wanted.tags).encode("ascii") if wanted.tags else None
    await _put(service, wanted.bucket, TAGS, document)


async def putObjectTagging(
    service: ObjectService, caller: "Caller", wanted: PutObjectTagging
) -> tuple[Bucket, ObjectRecord]:
    """Replace the tags of an object."""
    bucket, key, versionId = wanted.bucket, wanted.key, wanted.versionId
    found = await service.object(caller, bucket, key, versionId)
    record = wanted.seen
    seen = None if record is None else (record.sequence, record.attributes.tags)
    try:
        await service.catalog.commit(PutTags(bucket, key, versionId, encodeTags(wanted.tags), seen))
    except NoSuchKey:
        # The object was deleted in the meantime.
        raise await service.absent(found[0], key, versionId) from None
    return found


async def deleteObjectTagging(
    service: ObjectService, caller: "Caller", wanted: DeleteObjectTagging
) -> tuple[Bucket, ObjectRecord]:
    """Remove the tags of an object."""
    change = PutObjectTagging(wanted.bucket, wanted.key, wanted.versionId, {})
    return await putObjectTagging(service, caller, change)


async def getObjectAcl(service: ObjectService, caller: "Caller", wanted: GetObjectAcl) -> ObjectAcl:
    """Return the ACL of an object."""
    found, record = await service.object(caller, wanted.bucket, wanted.key, wanted.versionId)
    owner, text = record.account, record.attributes.acl
    if (await service.accessOf(found)).isEnforced:
        owner, text = found.account, ""
    acl = decodeList(text) if text else privateList(owner)
    return ObjectAcl(found, record, OwnedList(owner, acl))


async def putObjectAcl(service: ObjectService, caller: "Caller", wanted: PutObjectAcl) -> None:
    """Replace the ACL of an object."""
    bucket, key = wanted.bucket, wanted.key
    found, record = await service.object(caller, bucket, key, wanted.versionId)
    access = await service.accessOf(found)
    access.checkList(wanted.acl, wanted.canned)
    owner = found.account if access.isEnforced else record.account
    text = encodeList(wanted.acl, owner) or ""
    try:
        await service.catalog.commit(PutAcl(bucket, key, wanted.sequence, text))
    except NoSuchKey:
        # The object was replaced or deleted in the meantime.
        raise errors.OperationAborted() from None
