"""
The buckets and objects of a store.

Every method takes the L{Caller<storagegate.objects.access.context.Caller>} or its
L{Identity<storagegate.objects.accounts.Identity>} and raises an error of
L{storagegate.objects.errors} to refuse. Every adapter first calls
L{Identity.authorise<storagegate.objects.accounts.Identity.authorise>}, which enforces the limits of
a key; each method makes all other access decisions when it looks up the bucket
(L{storagegate.objects.access.decision}).
"""

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from typing import TYPE_CHECKING, Final

from msgspec import Struct
from msgspec.structs import replace

from storagegate.objects import errors
from storagegate.objects.accounts import Identity
from storagegate.objects.checksums import IngestedBody, encodeDigest, newHasher
from storagegate.objects.contents import digest, putCopy
from storagegate.objects.errors import DomainError
from storagegate.objects.locks import checkLock
from storagegate.objects.names import checkBucketName, isRegion
from storagegate.objects.tags import Tags, encodeTags
from storagegate.storage.errors import (
    BucketChanged,
    BucketExists,
    BucketNotEmpty,
    InvalidVersionId,
    NoSuchKey,
    NoSuchUpload,
)
from storagegate.storage.mutations import (
    AbortUpload,
    CreateBucket,
    PutAcl,
    PutLegalHold,
    PutRetention,
    PutSettings,
    PutTags,
    SetObjectLock,
    SetVersioning,
)
from storagegate.storage.records import (
    DEFAULT_RETENTION,
    INLINE_LIMIT,
    UNLOCKED,
    VERSIONING_ENABLED,
    Attributes,
    Bucket,
    Checksum,
    DefaultRetention,
    MultipartUpload,
    ObjectListing,
    ObjectLock,
    ObjectRecord,
    Removal,
    VersionListing,
    WriteCondition,
)
from storagegate.storage.store import ObjectStore

if TYPE_CHECKING:
    from storagegate.objects.access.acl import AccessControlList, RequestedList
    from storagegate.objects.access.context import Caller
    from storagegate.objects.access.decision import BucketAccess
    from storagegate.objects.settings import BucketSettings, SettingsCache

UNCONDITIONAL = WriteCondition()
"""A write without a condition."""

# Buckets that are read at a time if only some of them are listed.
_BUCKETS = 1000

_EMPTY_ID = "Version id cannot be the empty string"

TAGS: Final = "tagging"
"""The name of the setting that holds the tags of a bucket."""


class DeleteEntry(Struct, frozen=True):
    """
    One object to delete.

    @ivar versionId: The version to delete permanently; L{None} deletes the current object, which a
        versioned bucket keeps as an older version.
    """

    key: bytes
    versionId: str | None = None
    condition: WriteCondition = UNCONDITIONAL


class Ownership(Struct, frozen=True):
    """
    The owner and ACL of a new object.

    @ivar account: The owner.
    @ivar acl: The ACL that the request names; L{None} for the private ACL.
    @ivar caller: The writer, if access was decided from a cached bucket that may be stale.
    @ivar revision: The revision of the cached bucket, which the commit verifies.
    @ivar requested: The ACL as the request names it, for another decision.
    """

    account: str
    acl: "AccessControlList | None" = None
    caller: "Caller | None" = None
    revision: int | None = None
    requested: "RequestedList | None" = None

    @property
    def text(self) -> str:
        """The ACL in its stored form."""
        if self.acl is None:
            return ""
        from storagegate.objects.access.acl import encodeList

        return encodeList(self.acl, self.account) or ""


class ObjectService:
    """
    Buckets and objects of one store.

    @ivar region: The region of new buckets.
    @ivar ownership: The object ownership of new buckets that name none; empty for none.
    """

    def __init__(
        self,
        store: ObjectStore,
        region: str,
        now: Callable[[], float],
        ownership: str = "",
    ) -> None:
        """
        @param store: An open store, whose catalog holds the buckets and objects.
        @param region: The region of new buckets.
        @param now: Returns seconds since the epoch.
        @param ownership: The object ownership of new buckets that name none; empty for none.
        """
        self.store = store
        self.region = region
        self._now = now
        self.ownership = ownership
        self._catalog = store.catalog
        self._recentBucket = store.catalog.recentBucket
        self._verifies = store.verifier is not None

    @cached_property
    def settings(self) -> "SettingsCache":
        """The compiled settings of buckets, loaded on first use."""
        from storagegate.objects.settings import SettingsCache

        return SettingsCache(self._catalog)

    def nowMs(self) -> int:
        """Return milliseconds since the epoch."""
        return int(self._now() * 1000)

    async def checkWrite(
        self,
        caller: "Caller",
        bucket: str,
        key: bytes,
        condition: WriteCondition = UNCONDITIONAL,
        length: int | None = None,
        acl: "RequestedList | None" = None,
    ) -> tuple[Bucket, Ownership]:
        """
        Reject a write before its body is read, if it cannot succeed.

        The condition is evaluated again, and finally, in the transaction that writes.

        @param condition: Only its requirement that the key is absent is evaluated here.
        @param length: Length of the body, in bytes. If a bucket look-up is slow, a small write is
            decided on from the cached bucket, which L{putObject} verifies.
        @param acl: The ACL that the request names; L{None} for the private ACL.
        @return: The bucket; the owner and ACL of the object.
        @raise DomainError: The write cannot succeed, or the ACL is invalid.
        """
        recent = None
        if self._recentBucket is not None and length is not None and length <= INLINE_LIMIT:
            recent = self._recentBucket(bucket)
        if recent is not None and not condition.absent:
            found, revision = recent
            try:
                if found.generation or found.account != caller.identity.account:
                    (await self.accessOf(found)).decide(caller, found, key)
                owner = await self._ownerOfNew(caller, found, acl)
            except DomainError:
                # The cached bucket may be stale.
                pass
            else:
                return found, Ownership(owner.account, owner.acl, caller, revision, acl)
        found = await self.bucket(caller, bucket, key)
        if condition.absent:
            _, record = await self._catalog.object(bucket, key)
            if record is not None:
                raise errors.ConditionFailed(condition="absent")
        return found, await self._ownerOfNew(caller, found, acl)

    async def _ownerOfNew(
        self, caller: "Caller", found: Bucket, requested: "RequestedList | None"
    ) -> Ownership:
        """Find the owner and ACL of a new object in a bucket."""
        writer = caller.identity.account
        if requested is None and not found.generation and found.account == writer:
            return Ownership(writer)
        access = await self.accessOf(found)
        if requested is None:
            return Ownership(access.ownerOf(writer, None))
        acl = requested.ownedBy(writer, found.account)
        owner = access.ownerOf(writer, acl)
        if owner != writer:
            # A canned ACL depends on the owner.
            acl = requested.ownedBy(owner, found.account)
        access.checkList(acl, requested.canned)
        return Ownership(owner, acl)

    async def accessOf(self, bucket: Bucket) -> "BucketAccess":
        """Return the access settings of a bucket."""
        return (self.settings.kept(bucket.generation) or await self.settings.find(bucket)).access

    async def ownerOfAll(self, name: str) -> str | None:
        """
        Return the account that owns all objects of a bucket; L{None} if each object has its own
        owner.

        @raise BucketNotFound: The bucket does not exist.
        """
        bucket = await self.find(name)
        # Until its settings change, each object keeps the owner that it was written with.
        if bucket.generation and (await self.accessOf(bucket)).isEnforced:
            return bucket.account
        return None

    async def ownershipsOf(self, name: str, uploads: Sequence[MultipartUpload]) -> list[Ownership]:
        """
        Find the owners and ACLs of the objects of uploads, by the settings of their bucket now.

        @param name: The bucket of all uploads.
        @raise BucketNotFound: The bucket does not exist.
        """
        from storagegate.objects.access.acl import decodeList

        access = await self.accessOf(await self.find(name))
        texts = [upload.attributes.acl for upload in uploads]
        acls = [decodeList(text) if text else None for text in texts]
        return [
            Ownership(access.ownerOf(upload.account, acl), acl)
            for upload, acl in zip(uploads, acls, strict=True)
        ]

    async def find(self, name: str) -> Bucket:
        """
        Look up a bucket without deciding on access.

        @raise BucketNotFound: The bucket does not exist.
        """
        found: Bucket | None = await self._catalog.bucket(name)
        if found is None:
            raise errors.BucketNotFound(bucket=name)
        return found

    async def bucket(
        self,
        caller: "Caller",
        name: str,
        key: bytes = b"",
        operation: str = "",
        initiator: str | None = None,
    ) -> Bucket:
        """
        Look up a bucket, and decide on a request for it or for a key in it.

        @param key: Empty for the bucket itself.
        @param operation: See L{object}.
        @param initiator: The account that began the upload that the request names, if any.
        @raise BucketNotFound: The bucket does not exist.
        @raise AccessDenied: The caller has no right to it.
        """
        found = await self.find(name)
        if found.generation or found.account != caller.identity.account:
            settings = self.settings.kept(found.generation) or await self.settings.find(found)
            settings.access.decide(caller, found, key, operation=operation, initiator=initiator)
        return found

    async def bucketSettings(self, caller: "Caller", name: str) -> "tuple[Bucket, BucketSettings]":
        """
        Look up a bucket with its settings, and decide on a request for it.

        @raise BucketNotFound: The bucket does not exist.
        @raise AccessDenied: The caller has no right to it.
        """
        found = await self.bucket(caller, name)
        return found, await self.settings.find(found)

    async def buckets(
        self, identity: Identity, prefix: str, after: str, limit: int, region: str = ""
    ) -> list[Bucket]:
        """
        List by name the buckets of the account that the key may list; of all accounts for the root
        identity. There are fewer than C{limit} only at the end of the list.

        @param identity: The root identity or one of an account.
        @param prefix: Only names with this prefix.
        @param after: List strictly after this name.
        @param limit: Largest number of buckets.
        @param region: Only the buckets of this region; empty for all regions.
        """
        if identity.isAnonymous:
            raise errors.AccessDenied()
        account = None if identity.isRoot else identity.account
        policy = identity.policy
        isWhole = policy.isUnlimited and not region
        size = limit if isWhole else max(limit, _BUCKETS)
        found: list[Bucket] = []
        while True:
            some = await self._catalog.buckets(account, prefix, after, size)
            found += [
                each
                for each in some
                if isWhole
                or (region in ("", each.region) and policy.allows("list", each.name, None))
            ]
            if len(some) < size or len(found) >= limit:
                return found[:limit]
            after = some[-1].name

    async def createBucket(
        self,
        identity: Identity,
        name: str,
        region: str = "",
        ownership: str = "",
        tags: Tags | None = None,
        locked: bool = False,
    ) -> Bucket:
        """
        Create a bucket that the identity's account owns.

        @param identity: Owns the new bucket through its account.
        @param name: The name, as L{checkBucketName} allows it.
        @param region: The requested region; empty for this server's.
        @param ownership: The object ownership; empty for the default of the service.
        @param tags: The initial tags, if any.
        @param locked: Whether the bucket has object lock, which implies versioning.
        """
        if identity.isAnonymous:
            raise errors.AccessDenied()
        checkBucketName(name)
        if region and region != self.region:
            if not isRegion(region):
                raise errors.InvalidRegion(region=region)
            raise errors.ForeignRegion()
        versioning = VERSIONING_ENABLED if locked else ""
        owned = ownership or self.ownership
        bucket = Bucket(
            name, identity.account, self.nowMs(), self.region, owned, versioning, locked
        )
        try:
            await self._catalog.commit(CreateBucket(bucket))
        except BucketExists as error:
            own = error.bucket.account == identity.account
            kind = errors.BucketAlreadyOwnedByYou if own else errors.BucketAlreadyExists
            raise kind(bucket=name) from error
        if tags:
            await self.putSettings(name, {TAGS: encodeTags(tags).encode("ascii")})
        return bucket

    async def bucketTags(self, caller: "Caller", name: str) -> str:
        """Return the tags of a bucket, URL-encoded; empty if it has none."""
        await self.bucket(caller, name)
        _, documents = await self._catalog.settings(name)
        return documents.get(TAGS, b"").decode("ascii")

    async def putBucketTags(self, caller: "Caller", name: str, tags: Tags) -> None:
        """
        Replace the tags of a bucket.

        @param tags: Checked tags; empty removes all.
        """
        await self.bucket(caller, name)
        document = encodeTags(tags).encode("ascii") if tags else None
        await self._catalog.commit(PutSettings(name, {TAGS: document}))

    async def putTags(
        self, caller: "Caller", bucket: str, key: bytes, versionId: str | None, tags: Tags
    ) -> tuple[Bucket, ObjectRecord]:
        """
        Replace the tags of an object and nothing else.

        @param versionId: The version whose tags change; L{None} for the current one.
        @param tags: Checked tags.
        @return: The bucket, and the object before the change.
        """
        found = await self.object(caller, bucket, key, versionId)
        try:
            await self._catalog.commit(PutTags(bucket, key, versionId, encodeTags(tags)))
        except NoSuchKey:
            # The object was deleted in the meantime.
            raise await self._absent(found[0], key, versionId) from None
        return found

    async def putAcl(self, record: ObjectRecord, acl: str) -> None:
        """
        Replace the ACL of an object and nothing else. The caller has decided on access.

        @param record: The object as it was looked up; a later object of the same key is not
            changed.
        @param acl: The stored form; empty for the private ACL.
        """
        try:
            await self._catalog.commit(PutAcl(record.bucket, record.key, record.sequence, acl))
        except NoSuchKey:
            # The object was replaced or deleted in the meantime.
            raise errors.OperationAborted() from None

    async def putSettings(self, name: str, documents: Mapping[str, bytes | None]) -> None:
        """
        Store settings of a bucket. The caller has decided on access.

        @param name: The bucket's name.
        @param documents: Documents by the names of L{storagegate.objects.settings}; L{None} removes
            one.
        """
        await self._catalog.commit(PutSettings(name, documents))

    async def deleteBucket(self, caller: "Caller", name: str) -> None:
        """
        Remove a bucket without versions and delete markers, and abort its uploads in progress.
        """
        await self.bucket(caller, name)
        notEmpty = errors.BucketOccupied(bucket=name)
        if (await self._catalog.listVersions(name, b"", b"", b"", None, 1)).versions:
            raise notEmpty
        while uploads := (await self._catalog.uploads(name, b"", b"", b"", "", 1000))[0]:
            for each in uploads:
                with suppress(NoSuchUpload):
                    await self._catalog.commit(AbortUpload(name, each.key, each.uploadId))
        # Fails if an object or an upload was added in the meantime.
        try:
            await self.store.deleteBucket(name)
        except BucketNotEmpty as error:
            raise notEmpty from error

    async def setVersioning(self, caller: "Caller", bucket: str, versioning: str) -> None:
        """
        Enable or suspend versioning, for all later writes.

        @param versioning: C{"Enabled"} or C{"Suspended"}.
        @raise BucketLocked: A bucket with object lock stays versioned.
        """
        await self.bucket(caller, bucket)
        await self._catalog.commit(SetVersioning(bucket, versioning))

    async def setObjectLock(
        self, caller: "Caller", bucket: str, default: DefaultRetention | None
    ) -> None:
        """
        Enable object lock permanently, and set the default retention of later versions.

        @param default: L{None} for no default.
        @raise BucketNotVersioned: The versioning of the bucket is not enabled.
        """
        await self.bucket(caller, bucket)
        await self._catalog.commit(SetObjectLock(bucket, default))

    async def object(
        self,
        caller: "Caller",
        bucket: str,
        key: bytes,
        versionId: str | None = None,
        operation: str = "",
    ) -> tuple[Bucket, ObjectRecord]:
        """
        Look up an object with its bucket, and decide on a request for it.

        @param key: The name in UTF-8.
        @param versionId: The version to look up; L{None} for the current one.
        @param operation: The operation whose actions the caller needs; empty for the operation of
            the request. A copy reads its source as C{GetObject} does.
        @raise DomainError: L{BucketNotFound<errors.BucketNotFound>},
            L{AccessDenied<errors.AccessDenied>}, L{ObjectNotFound<errors.ObjectNotFound>},
            L{VersionNotFound<errors.VersionNotFound>},
            L{VersionIsDeleteMarker<errors.VersionIsDeleteMarker>}.
        """
        record: ObjectRecord | None
        try:
            home, record = await self._catalog.object(bucket, key, versionId, verify=self._verifies)
        except InvalidVersionId as error:
            raise _invalidId("versionId", versionId or "") from error
        if home is None:
            raise errors.BucketNotFound(bucket=bucket)
        account = caller.identity.account
        if (
            home.generation
            or home.account != account
            or (record is not None and record.account != account)
        ):
            settings = self.settings.kept(home.generation) or await self.settings.find(home)
            settings.access.decide(caller, home, key, versionId, record, operation)
            if record is not None and record.attributes.lock is not UNLOCKED:
                record = settings.access.withVisibleLock(caller, home, record, versionId)
        if record is None:
            raise await self._absent(home, key, versionId)
        if record.isDeleteMarker:
            raise errors.VersionIsDeleteMarker(record, caller.operationName)
        return home, record

    async def _absent(self, bucket: Bucket, key: bytes, versionId: str | None) -> DomainError:
        """Return the error for a missing object; for a deleted one, it names the delete marker."""
        if versionId is not None:
            return errors.VersionNotFound(key=key.decode(), versionId=versionId)
        missing = errors.ObjectNotFound(key=key.decode())
        if bucket.versioning:
            missing.marker = await self._catalog.deleteMarker(bucket.name, key)
        return missing

    async def listObjects(
        self,
        caller: "Caller",
        bucket: str,
        prefix: bytes,
        delimiter: bytes,
        after: bytes,
        limit: int,
        contentTypes: bool = False,
    ) -> ObjectListing:
        """
        List a page of a bucket; see L{ICatalog.listObjects}.

        @param prefix: Only keys with this prefix.
        @param delimiter: Groups keys by common prefixes; empty for none.
        @param after: List strictly after this key or common prefix.
        @param limit: Largest number of keys and common prefixes.
        @param contentTypes: Whether the rows carry content types.
        """
        await self.bucket(caller, bucket)
        page: ObjectListing = await self._catalog.listObjects(
            bucket, prefix, delimiter, after, limit, contentTypes
        )
        return page

    async def listVersions(
        self,
        caller: "Caller",
        bucket: str,
        prefix: bytes,
        delimiter: bytes,
        after: bytes,
        versionAfter: str | None,
        limit: int,
    ) -> VersionListing:
        """
        List a page of the versions of a bucket; see L{ICatalog.listVersions}.

        @param prefix: Only keys with this prefix.
        @param delimiter: Groups keys by common prefixes; empty for none.
        @param after: List strictly after this key or common prefix.
        @param versionAfter: Also list the versions of that key that are older than this version.
        @param limit: Largest number of versions and common prefixes.
        @raise InvalidArgument: The version id is malformed.
        """
        await self.bucket(caller, bucket)
        self._checkVersionId("versionAfter", versionAfter)
        page: VersionListing = await self._catalog.listVersions(
            bucket, prefix, delimiter, after, versionAfter, limit
        )
        return page

    def _checkVersionId(self, name: str, versionId: str | None) -> None:
        """Reject a malformed version id in the named parameter."""
        if versionId is None:
            return
        try:
            self._catalog.checkVersionId(versionId)
        except InvalidVersionId as error:
            raise _invalidId(name, versionId) from error

    def putObject(
        self,
        owner: Ownership,
        bucket: str,
        key: bytes,
        ingested: IngestedBody,
        attributes: Attributes,
        condition: WriteCondition = UNCONDITIONAL,
    ) -> Awaitable[ObjectRecord]:
        """
        Store an ingested body. The caller authorised access before it read the body.

        @param owner: From L{checkWrite}.
        @param attributes: The attributes of the object, without its checksum.
        """
        content = ingested.content
        record = ObjectRecord(
            bucket,
            key,
            content.size,
            ingested.etag,
            int(self._now() * 1000),
            owner.account,
            replace(attributes, checksum=ingested.checksum, acl=owner.text),
            content,
        )
        if owner.revision is not None:
            return self._putDecided(owner, record, ingested, condition)
        return self.store.putObject(record, ingested.sink, condition)

    async def _putDecided(
        self,
        owner: Ownership,
        record: ObjectRecord,
        ingested: IngestedBody,
        condition: WriteCondition,
    ) -> ObjectRecord:
        """Store an object if its bucket is unchanged since the decision; otherwise decide again."""
        checked = replace(condition, revision=owner.revision)
        try:
            return await self.store.putObject(record, ingested.sink, checked)
        except BucketChanged:
            if record.content.segments:
                # The failed write released its blobs.
                raise
        # Nothing was stored.
        assert owner.caller is not None
        _, owner = await self.checkWrite(
            owner.caller, record.bucket, record.key, condition, acl=owner.requested
        )
        attributes = replace(record.attributes, acl=owner.text)
        record = replace(record, account=owner.account, attributes=attributes)
        return await self.store.putObject(record, None, condition)

    async def copyObject(
        self,
        owner: Ownership,
        source: ObjectRecord,
        bucket: str,
        key: bytes,
        attributes: Attributes | None = None,
        algorithm: str = "",
        condition: WriteCondition = UNCONDITIONAL,
        overwrites: bool = False,
        lock: ObjectLock = UNLOCKED,
    ) -> ObjectRecord:
        """
        Copy an object by giving its content a second name; the ETag is kept, because the bytes are
        the same.

        @param owner: From L{checkWrite}; a copy does not inherit the ACL of its source.
        @param source: The object as it was looked up.
        @param attributes: The attributes of the new object; L{None} copies those from the source.
        @param algorithm: The checksum that the new object must carry; empty keeps the source's.
        @param overwrites: Whether the source may be the current object of the same key. A request
            must then name a version or what it changes, even if that stays the same.
        @param lock: The lock that the request names; a copy does not inherit the lock of its
            source.
        @raise InvalidRequest: The copy would change nothing.
        @raise ConcurrentChange: The source was replaced in the meantime; try again.
        """
        if (source.bucket, source.key) == (bucket, key) and not overwrites:
            raise errors.InvalidRequest(
                "This copy request is illegal because it is trying to copy an object to itself "
                "without changing the object's metadata, storage class, website redirect location "
                "or encryption attributes.",
            )
        checksum = source.attributes.checksum
        if algorithm and (checksum is None or checksum.algorithm != algorithm):
            hasher = newHasher(algorithm)
            await digest(self.store, source.content, 0, source.size, [hasher])
            checksum = Checksum(algorithm, encodeDigest(hasher.digest()))
        record = ObjectRecord(
            bucket,
            key,
            source.size,
            source.etag,
            self.nowMs(),
            owner.account,
            replace(
                attributes or source.attributes,
                acl=owner.text,
                checksum=checksum,
                parts=source.attributes.parts,
                uploadId="",
                lock=lock,
            ),
            source.content,
        )
        return await putCopy(self.store, record, condition)

    async def deleteObjects(
        self, caller: "Caller", bucket: str, entries: Sequence[DeleteEntry]
    ) -> list[Removal | Exception]:
        """
        Delete those objects or versions that the caller may delete.

        An object that does not exist counts as deleted.

        @param entries: Each with its own condition.
        @return: The removal of each entry, or its error.
        """
        found = await self.find(bucket)
        identity = caller.identity
        results: dict[int, Removal | Exception] = {}
        if found.generation or found.account != identity.account:
            results.update(await self._refusedDeletes(caller, found, entries))
        rows = []
        for position, entry in enumerate(entries):
            if position in results:
                continue
            try:
                if entry.versionId is not None:
                    self._catalog.checkVersionId(entry.versionId)
            except InvalidVersionId as error:
                results[position] = error
            else:
                condition = entry.condition
                if condition.bypass and not await self._mayBypass(
                    caller, found, entry.key, entry.versionId
                ):
                    condition = replace(condition, bypass=False)
                rows.append((entry.key, entry.versionId, condition))
        done: Iterator[Removal | Exception] = iter(())
        if rows:
            done = iter(
                await self.store.deleteObjects(bucket, rows, identity.account, self.nowMs())
            )
        return [
            results[position] if position in results else next(done)
            for position in range(len(entries))
        ]

    async def _mayBypass(
        self, caller: "Caller", bucket: Bucket, key: bytes, versionId: str | None
    ) -> bool:
        """Return whether the caller may bypass a retention in governance mode."""
        if not bucket.lockEnabled:
            # Any lock on the version is set after this check.
            return False
        return (await self.settings.find(bucket)).access.mayBypass(caller, bucket, key, versionId)

    async def isRetained(self, bucket: Bucket) -> bool:
        """Return whether new versions in a bucket get a default retention."""
        if not bucket.lockEnabled:
            return False
        return DEFAULT_RETENTION in (await self.settings.find(bucket)).documents

    async def putRetention(
        self,
        caller: "Caller",
        bucket: str,
        key: bytes,
        versionId: str | None,
        lock: ObjectLock,
        bypass: bool,
    ) -> None:
        """
        Change the retention of a version.

        @param versionId: L{None} for the current one.
        @param lock: Mode and date; L{UNLOCKED} lifts the retention.
        @param bypass: Whether to bypass governance mode, if the caller has the right.
        @raise InvalidArgument: The date is in the past.
        @raise ObjectLocked: The present retention forbids it.
        """
        home, _ = await self.object(caller, bucket, key, versionId)
        now = self.nowMs()
        checkLock(home, lock, now)
        bypass = bypass and await self._mayBypass(caller, home, key, versionId)
        await self._catalog.commit(
            PutRetention(
                bucket, key, versionId, lock.mode, lock.untilMs, self.store.settledMs(now), bypass
            )
        )

    async def putLegalHold(
        self, caller: "Caller", bucket: str, key: bytes, versionId: str | None, isOn: bool
    ) -> None:
        """
        Place or release the legal hold of a version.

        @param versionId: L{None} for the current one.
        """
        await self.object(caller, bucket, key, versionId)
        await self._catalog.commit(PutLegalHold(bucket, key, versionId, isOn))

    async def _refusedDeletes(
        self, caller: "Caller", bucket: Bucket, entries: Sequence[DeleteEntry]
    ) -> dict[int, Exception]:
        """Decide on each entry of a deletion; return the errors by position."""
        refused: dict[int, Exception] = {}
        access = (await self.settings.find(bucket)).access
        for position, entry in enumerate(entries):
            record = None
            if access.acl is not None:
                # A writer through an ACL may delete only its own objects.
                _, record = await self._catalog.object(bucket.name, entry.key)
            try:
                access.decide(caller, bucket, entry.key, entry.versionId, record, "DeleteObject")
            except DomainError as error:
                refused[position] = error
        return refused

    async def deleteObject(self, caller: "Caller", bucket: str, entry: DeleteEntry) -> Removal:
        """Delete one object or version; an object that does not exist counts as deleted."""
        (result,) = await self.deleteObjects(caller, bucket, [entry])
        if isinstance(result, NoSuchKey):
            raise errors.ObjectNotFound(key=entry.key.decode(errors="replace"))
        if isinstance(result, InvalidVersionId):
            raise _invalidId("versionId", entry.versionId or "") from result
        if isinstance(result, Exception):
            raise result
        return result


def _invalidId(parameter: str, versionId: str) -> errors.InvalidArgument:
    message = "Invalid version id specified" if versionId else _EMPTY_ID
    return errors.InvalidArgument(message, name=parameter, value=versionId)
