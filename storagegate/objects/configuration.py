"""
The settings of buckets and versions: reading, replacing and removing each, with its rules.

Each setting is a typed value here; L{storagegate.objects.documents} has their documents.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from storagegate.objects import errors
from storagegate.objects.access.acl import AccessControlList, decodeList, encodeList, privateList
from storagegate.objects.access.decision import (
    BUCKET_OWNER_ENFORCED,
    BucketAccess,
    PublicAccessBlock,
)
from storagegate.objects.access.policy import UnknownPrincipal, compilePolicy
from storagegate.objects.accounts import AccessKeyStore, canonicalId
from storagegate.objects.cors import CORSRule
from storagegate.objects.lifecycle import LIFECYCLE, TRANSITION_MINIMUM, LifecycleRule
from storagegate.objects.locks import requireLock
from storagegate.objects.settings import (
    ACL,
    CORS,
    OWNERSHIP,
    POLICY,
    PUBLIC_ACCESS_BLOCK,
    BucketSettings,
    ownershipOf,
)
from storagegate.objects.tags import Tags, decodeTags
from storagegate.storage.errors import BucketLocked
from storagegate.storage.records import (
    DEFAULT_RETENTION,
    Bucket,
    DefaultRetention,
    ObjectLock,
    ObjectRecord,
    readDefault,
)

if TYPE_CHECKING:
    from storagegate.objects.access.context import Caller
    from storagegate.objects.service import ObjectService


class OwnedList(NamedTuple):
    """The account that owns a bucket or an object, and its ACL."""

    owner: str
    acl: AccessControlList


class BucketConfiguration:
    """
    The settings of buckets and versions.

    Every method decides on access first, and raises an error of L{storagegate.objects.errors} to
    refuse.
    """

    def __init__(self, objects: "ObjectService", accounts: AccessKeyStore) -> None:
        """
        @param objects: Looks up the buckets and objects.
        @param accounts: The accounts that policies and ACLs can name.
        """
        self._objects = objects
        self.accounts = accounts

    async def _settings(self, caller: "Caller", bucket: str) -> tuple[Bucket, BucketSettings]:
        return await self._objects.bucketSettings(caller, bucket)

    async def _put(self, bucket: str, name: str, document: bytes | None) -> None:
        await self._objects.putSettings(bucket, {name: document})

    async def remove(
        self, caller: "Caller", bucket: str, *names: str, document: bytes | None = None
    ) -> None:
        """
        Remove settings; a missing setting counts as removed.

        @param names: See L{storagegate.objects.settings}.
        @param document: A document that states that there is none; L{None} stores nothing.
        """
        await self._objects.bucket(caller, bucket)
        await self._objects.putSettings(bucket, dict.fromkeys(names, document))

    async def versioning(self, caller: "Caller", bucket: str) -> str:
        """Return the status of versioning; empty if it was never enabled."""
        return (await self._objects.bucket(caller, bucket)).versioning

    async def putVersioning(self, caller: "Caller", bucket: str, status: str) -> None:
        """
        Enable or suspend versioning.

        @raise InvalidBucketState: A bucket with object lock stays versioned.
        """
        try:
            await self._objects.setVersioning(caller, bucket, status)
        except BucketLocked as error:
            raise errors.InvalidBucketState(
                "An Object Lock configuration is present on this bucket, so the versioning state "
                "cannot be changed."
            ) from error

    async def defaultRetention(self, caller: "Caller", bucket: str) -> DefaultRetention | None:
        """
        Return the default retention of a bucket with object lock.

        @raise BucketLockNotFound: The bucket has no object lock.
        """
        found, settings = await self._settings(caller, bucket)
        if not found.lockEnabled:
            raise errors.BucketLockNotFound(bucket=bucket)
        document = settings.documents.get(DEFAULT_RETENTION)
        return None if document is None else readDefault(document)

    async def putDefaultRetention(
        self, caller: "Caller", bucket: str, default: DefaultRetention | None
    ) -> None:
        """Enable object lock permanently, and set or remove the default retention."""
        await self._objects.setObjectLock(caller, bucket, default)

    async def lifecycle(self, caller: "Caller", bucket: str) -> tuple[Sequence[LifecycleRule], str]:
        """
        Return the lifecycle rules, and the smallest size of a transition, empty for the default.

        @raise LifecycleNotFound: The bucket has no rules.
        """
        _, settings = await self._settings(caller, bucket)
        if not settings.lifecycle:
            raise errors.LifecycleNotFound(bucket=bucket)
        return settings.lifecycle, settings.documents.get(TRANSITION_MINIMUM, b"").decode("ascii")

    async def putLifecycle(
        self,
        caller: "Caller",
        bucket: str,
        rules: Sequence[LifecycleRule],
        transitionMinimum: str = "",
    ) -> None:
        """
        Replace the lifecycle rules.

        @param transitionMinimum: The smallest size of a transition; empty for the default.
        """
        await self._objects.bucket(caller, bucket)
        minimum = transitionMinimum.encode("ascii") or None
        documents = {LIFECYCLE: msgspec.json.encode(rules), TRANSITION_MINIMUM: minimum}
        await self._objects.putSettings(bucket, documents)

    async def removeLifecycle(self, caller: "Caller", bucket: str) -> None:
        """Remove the lifecycle rules."""
        await self.remove(caller, bucket, LIFECYCLE, TRANSITION_MINIMUM)

    async def policy(self, caller: "Caller", bucket: str) -> bytes:
        """
        Return the policy, byte for byte.

        @raise PolicyNotFound: The bucket has none.
        """
        _, settings = await self._settings(caller, bucket)
        document = settings.documents.get(POLICY)
        if document is None:
            raise errors.PolicyNotFound(bucket=bucket)
        return document

    async def isPolicyPublic(self, caller: "Caller", bucket: str) -> bool:
        """
        Return whether the policy is public.

        @raise PolicyNotFound: The bucket has none.
        """
        _, settings = await self._settings(caller, bucket)
        policy = settings.access.policy
        if policy is None:
            raise errors.PolicyNotFound(bucket=bucket)
        return policy.isPublic

    async def putPolicy(self, caller: "Caller", bucket: str, document: bytes) -> None:
        """
        Replace the policy.

        @raise MalformedPolicy: The policy is invalid.
        @raise AccessDenied: The policy is public, and the public access block forbids it.
        """
        _, settings = await self._settings(caller, bucket)
        try:
            policy = compilePolicy(document, bucket, self.accounts)
        except errors.MalformedPolicy as error:
            if not isinstance(error.__cause__, UnknownPrincipal):
                raise
            # Another process may have issued a key.
            await self.accounts.refresh()
            policy = compilePolicy(document, bucket, self.accounts)
        if policy.isPublic and settings.access.block.blockPublicPolicy:
            raise errors.AccessDenied("The block of public access forbids public policies")
        await self._put(bucket, POLICY, document)

    async def removePolicy(self, caller: "Caller", bucket: str) -> None:
        """Remove the policy."""
        await self.remove(caller, bucket, POLICY)

    async def cors(self, caller: "Caller", bucket: str) -> Sequence[CORSRule]:
        """
        Return the CORS rules.

        @raise CORSNotFound: The bucket has none.
        """
        _, settings = await self._settings(caller, bucket)
        if not settings.cors:
            raise errors.CORSNotFound(bucket=bucket)
        return settings.cors

    async def putCORS(self, caller: "Caller", bucket: str, rules: Sequence[CORSRule]) -> None:
        """Replace the CORS rules."""
        await self._objects.bucket(caller, bucket)
        await self._put(bucket, CORS, msgspec.json.encode(rules))

    async def removeCORS(self, caller: "Caller", bucket: str) -> None:
        """Remove the CORS rules."""
        await self.remove(caller, bucket, CORS)

    async def acl(self, caller: "Caller", bucket: str) -> OwnedList:
        """Return the ACL of a bucket."""
        found, settings = await self._settings(caller, bucket)
        acl = settings.access.acl
        if acl is None or settings.access.isEnforced:
            acl = privateList(found.account)
        return OwnedList(found.account, acl)

    async def putACL(
        self, caller: "Caller", bucket: str, acl: AccessControlList, canned: str | None = None
    ) -> None:
        """
        Replace the ACL of a bucket.

        @param canned: The name of the canned ACL; L{None} for another form.
        @raise DomainError: The settings forbid the ACL.
        """
        found, settings = await self._settings(caller, bucket)
        settings.access.checkList(acl, canned)
        text = encodeList(acl, found.account)
        await self._put(bucket, ACL, None if text is None else text.encode())

    async def objectACL(
        self, caller: "Caller", bucket: str, key: bytes, versionId: str | None
    ) -> tuple[Bucket, ObjectRecord, OwnedList]:
        """
        Return an object with its ACL.

        @param versionId: The version; L{None} for the current one.
        """
        found, record, access = await self._object(caller, bucket, key, versionId)
        owner, text = record.account, record.attributes.acl
        if access.isEnforced:
            owner, text = found.account, ""
        return found, record, OwnedList(owner, decodeList(text) if text else privateList(owner))

    async def putObjectACL(
        self,
        record: ObjectRecord,
        access: BucketAccess,
        owned: OwnedList,
        canned: str | None = None,
    ) -> None:
        """
        Replace the ACL of an object. The caller has decided on access.

        @param record: The object as it was looked up.
        @param access: The access settings of its bucket.
        @param canned: The name of the canned ACL; L{None} for another form.
        @raise DomainError: The settings forbid the ACL.
        """
        access.checkList(owned.acl, canned)
        await self._objects.putAcl(record, encodeList(owned.acl, owned.owner) or "")

    async def _object(
        self, caller: "Caller", bucket: str, key: bytes, versionId: str | None
    ) -> tuple[Bucket, ObjectRecord, BucketAccess]:
        found, record = await self._objects.object(caller, bucket, key, versionId)
        return found, record, await self._objects.accessOf(found)

    async def ownership(self, caller: "Caller", bucket: str) -> str:
        """
        Return the object ownership.

        @raise OwnershipNotFound: It was never set.
        """
        found, settings = await self._settings(caller, bucket)
        ownership = ownershipOf(found, settings.documents)
        if not ownership:
            raise errors.OwnershipNotFound(bucket=bucket)
        return ownership

    async def putOwnership(self, caller: "Caller", bucket: str, ownership: str) -> None:
        """
        Set the object ownership.

        @raise InvalidBucketAclWithObjectOwnership: The ACL of the bucket grants access to others.
        """
        found, settings = await self._settings(caller, bucket)
        acl, owner = settings.access.acl, canonicalId(found.account)
        grants = () if acl is None else acl.grants
        if ownership == BUCKET_OWNER_ENFORCED and any(each.grantee != owner for each in grants):
            raise errors.InvalidBucketAclWithObjectOwnership()
        await self._put(bucket, OWNERSHIP, ownership.encode())

    async def removeOwnership(self, caller: "Caller", bucket: str) -> None:
        """Remove the object ownership."""
        # An empty setting, not L{None}: the bucket may have been created with an ownership.
        await self.remove(caller, bucket, OWNERSHIP, document=b"")

    async def publicAccessBlock(self, caller: "Caller", bucket: str) -> PublicAccessBlock:
        """
        Return the public access block.

        @raise PublicAccessBlockNotFound: The bucket has none.
        """
        _, settings = await self._settings(caller, bucket)
        if PUBLIC_ACCESS_BLOCK not in settings.documents:
            raise errors.PublicAccessBlockNotFound(bucket=bucket)
        return settings.access.block

    async def putPublicAccessBlock(
        self, caller: "Caller", bucket: str, block: PublicAccessBlock
    ) -> None:
        """Set the public access block."""
        await self._objects.bucket(caller, bucket)
        await self._put(bucket, PUBLIC_ACCESS_BLOCK, msgspec.json.encode(block))

    async def removePublicAccessBlock(self, caller: "Caller", bucket: str) -> None:
        """Remove the public access block."""
        await self.remove(caller, bucket, PUBLIC_ACCESS_BLOCK)

    async def tags(self, caller: "Caller", bucket: str) -> Tags:
        """
        Return the tags of a bucket.

        @raise TagsNotFound: The bucket has none.
        """
        tags = await self._objects.bucketTags(caller, bucket)
        if not tags:
            raise errors.TagsNotFound(bucket=bucket)
        return decodeTags(tags)

    async def retention(
        self, caller: "Caller", bucket: str, key: bytes, versionId: str | None
    ) -> ObjectLock:
        """
        Return the lock of a version with a retention.

        @param versionId: The version; L{None} for the current one.
        @raise LockNotFound: The version has no retention.
        """
        lock = (await self.lockedObject(caller, bucket, key, versionId)).attributes.lock
        if not lock.mode:
            raise errors.LockNotFound()
        return lock

    async def legalHold(
        self, caller: "Caller", bucket: str, key: bytes, versionId: str | None
    ) -> bool:
        """
        Return whether the legal hold of a version is on.

        @param versionId: The version; L{None} for the current one.
        @raise LockNotFound: The version never had a legal hold.
        """
        lock = (await self.lockedObject(caller, bucket, key, versionId)).attributes.lock
        if lock.legalHold is None:
            raise errors.LockNotFound()
        return lock.legalHold

    async def lockedObject(
        self, caller: "Caller", bucket: str, key: bytes, versionId: str | None
    ) -> ObjectRecord:
        """
        Look up a version in a bucket with object lock.

        @param versionId: The version; L{None} for the current one.
        @raise InvalidRequest: The bucket has no object lock.
        """
        found, record = await self._objects.object(caller, bucket, key, versionId)
        requireLock(found)
        return record
