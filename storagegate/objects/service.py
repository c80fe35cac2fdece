"""
The domain of buckets and objects: what front ends call.

A front end authenticates a request, calls
L{Identity.authorise<storagegate.objects.accounts.Identity.authorise>}, which enforces the limits of
the key, and passes the L{Caller<storagegate.objects.access.context.Caller>} to L{ObjectService}.
All other access decisions are made here and in the functions of operations, when the bucket is
looked up (L{storagegate.objects.access.decision}). An error of L{storagegate.objects.errors}
refuses.
"""

from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec.structs import replace

from storagegate.objects import errors
from storagegate.objects.accounts import AccessKeyStore
from storagegate.objects.checksums import IngestedBody
from storagegate.objects.contents import OpenContent, openContent
from storagegate.objects.encryption.options import EncryptionOptions
from storagegate.objects.errors import DomainError
from storagegate.objects.ownership import Ownership
from storagegate.storage.blobinterfaces import IBlobWriter
from storagegate.storage.errors import BucketChanged, InvalidVersionId
from storagegate.storage.records import (
    DEFAULT_RETENTION,
    INLINE_LIMIT,
    UNCONDITIONAL,
    UNLOCKED,
    Attributes,
    Bucket,
    Content,
    MultipartUpload,
    ObjectRecord,
    Part,
    WriteCondition,
)
from storagegate.storage.store import ObjectStore

if TYPE_CHECKING:
    from storagegate.objects.access.acl import RequestedList
    from storagegate.objects.access.context import Caller
    from storagegate.objects.access.decision import BucketAccess
    from storagegate.objects.encryption.requests import CustomerKey, RequestedEncryption
    from storagegate.objects.encryption.sealing import ObjectKey
    from storagegate.objects.encryption.service import Encryption
    from storagegate.objects.identities.store import IdentityStore
    from storagegate.objects.identities.webidentity import Providers, WebIdentityVerifier
    from storagegate.objects.operations import Operation
    from storagegate.objects.settings import BucketSettings, SettingsCache

T = TypeVar("T")

Functions = Mapping[
    "type[Operation[Any]]", Callable[["ObjectService", "Caller", Any], Coroutine[Any, Any, Any]]
]
"""The function of each operation, by type."""

_MANY_PARTS = 100
"""Parts whose checksums the reactor thread opens: they take it a millisecond."""

_EMPTY_ID = "Version id cannot be the empty string"

_OTHER_KEY = (
    "The provided encryption parameters did not match the ones used originally to initiate the "
    "multipart upload."
)


class ObjectService:
    """
    The buckets and objects of one store: operations, and the methods with which a front end reads
    and writes a stream.

    A read looks up its object (L{object}), leases the blobs and sends them. A write is checked
    (L{checkWrite}) before its body is read, and stored afterwards (L{putObject}, L{putPart}).
    L{storagegate.objects.domain} makes instances.

    @ivar store: The open store, which the caller closes.
    @ivar accounts: The accounts that policies and ACLs can name.
    @ivar region: The region of new buckets.
    @ivar ownership: The object ownership of new buckets that name none; empty for none.
    @ivar blocksCustomerKeys: Whether new buckets block encryption keys of clients (SSE-C).
    @ivar catalog: The catalog of the store.
    """

    def __init__(
        self,
        store: ObjectStore,
        accounts: AccessKeyStore,
        region: str,
        now: Callable[[], float],
        ownership: str,
        table: Callable[[], Functions],
        encryption: EncryptionOptions,
        providers: "Providers",
    ) -> None:
        """
        @param now: Returns seconds since the epoch.
        @param table: Returns the functions of operations; called with the first operation.
        @param encryption: The configuration of encryption.
        @param providers: Returns the configured OpenID Connect providers of an account.
        """
        self.store = store
        self.accounts = accounts
        self.region = region
        self._now = now
        self.ownership = ownership
        self._table = table
        self._options = encryption
        self.blocksCustomerKeys = encryption.blocksCustomerKeys
        self._providers = providers
        self.catalog = store.catalog
        self._recentBucket = store.catalog.recentBucket
        self._verifies = store.verifier is not None

    @cached_property
    def _functions(self) -> Functions:
        return self._table()

    def perform(self, caller: "Caller", operation: "Operation[T]") -> Coroutine[Any, Any, T]:
        """
        Perform an operation. Its class has the errors and the meaning of the answer.

        @param operation: A value of L{storagegate.objects.operations}.
        """
        return self._functions[type(operation)](self, caller, operation)

    @cached_property
    def settings(self) -> "SettingsCache":
        """The compiled settings of buckets, loaded on first use."""
        from storagegate.objects.settings import SettingsCache

        return SettingsCache(self.catalog)

    @cached_property
    def identities(self) -> "IdentityStore":
        """The users, groups, roles and policies of accounts."""
        from storagegate.objects.identities.store import IdentityStore

        return IdentityStore(self.catalog, self.store.accessKeys)

    @cached_property
    def webIdentities(self) -> "WebIdentityVerifier":
        """The verifier of the tokens of issuers, loaded on first use."""
        from storagegate.objects.identities.webidentity import WebIdentityVerifier

        return WebIdentityVerifier(self._providers)

    @cached_property
    def encryption(self) -> "Encryption":
        """The encryption of the store, loaded on first use."""
        return self._options.open(self.catalog, self._now)

    async def keyForWrite(
        self,
        bucket: Bucket,
        key: bytes,
        requested: "RequestedEncryption | None" = None,
        shared: bytes | None = None,
    ) -> "ObjectKey | None":
        """
        Make the key of a new object or upload, by the request or the default of its bucket.

        @param bucket: As just looked up, such as by L{checkWrite}.
        @param requested: The encryption that the request names.
        @param shared: The object key of the source, if a copy shares its blobs.
        @return: L{None} for plain bytes.
        @raise DomainError: See L{Encryption.forWrite
            <storagegate.objects.encryption.service.Encryption.forWrite>}.
        """
        documents: Mapping[str, bytes] = {}
        configuration = None
        if bucket.generation:
            settings = self.settings.kept(bucket.generation) or await self.settings.find(bucket)
            documents, configuration = settings.documents, settings.encryption
        if requested is None and configuration is None and not self._options.encryptAll:
            return None
        if self._options.opened is not None and shared is None:
            made = self._options.opened.recallForWrite(bucket, key, requested)
            if made is not None:
                return made
        return await self.encryption.forWrite(
            bucket, configuration, documents, key, requested, shared
        )

    async def keyForRead(
        self, bucket: Bucket, record: ObjectRecord, customerKey: "CustomerKey | None" = None
    ) -> "ObjectKey | None":
        """
        Open the key of an object.

        @param bucket: The bucket, as looked up with the object.
        @param customerKey: The key that the client sent.
        @return: L{None} for plain bytes.
        @raise DomainError: See L{Encryption.open
            <storagegate.objects.encryption.service.Encryption.open>}.
        """
        encryption = record.attributes.encryption
        if encryption is None and customerKey is None:
            return None
        kept = self.settings.kept(bucket.generation) or await self.settings.find(bucket)
        return await self.encryption.open(
            bucket.name, kept.documents, record.key, encryption, customerKey
        )

    def recallKey(self, bucket: Bucket, record: ObjectRecord) -> "ObjectKey | None":
        """
        Return the key of an encrypted object if it is open in memory; see L{keyForRead}. It saves
        the coroutines of most small reads, a microsecond.
        """
        encryption, opened = record.attributes.encryption, self._options.opened
        if encryption is None or opened is None:
            return None
        return opened.recall(bucket.name, record.key, encryption)

    async def withDigests(
        self, bucket: Bucket, record: ObjectRecord, customerKey: "CustomerKey | None" = None
    ) -> ObjectRecord:
        """
        Return an object with plain checksums; without checksums, if it needs a client's key that is
        L{None}.

        @raise DomainError: See L{keyForRead}.
        """
        encryption = record.attributes.encryption
        if encryption is None:
            return record
        from storagegate.objects.encryption.requests import SSE_C, withoutDigests

        if encryption.kind == SSE_C and customerKey is None:
            return replace(record, attributes=withoutDigests(record.attributes))
        objectKey = await self.keyForRead(bucket, record, customerKey)
        if objectKey is None:
            return record
        return await self.runForParts(len(record.attributes.parts), objectKey.openRecord, record)

    async def runForParts(self, count: int, function: Callable[[T], T], value: T) -> T:
        """
        Run a function that seals or opens a checksum of each part: of many parts in the pool.

        @param count: The number of parts.
        """
        if count <= _MANY_PARTS:
            return function(value)
        found: T = await self.store.run(function, value)
        return found

    async def contentOf(
        self, bucket: Bucket, record: ObjectRecord, customerKey: "CustomerKey | None" = None
    ) -> OpenContent:
        """Return the readable content of an object; see L{keyForRead}."""
        objectKey = await self.keyForRead(bucket, record, customerKey)
        return openContent(self.store, record, objectKey)

    async def keyOfUpload(
        self, upload: MultipartUpload, customerKey: "CustomerKey | None" = None
    ) -> "ObjectKey | None":
        """
        Open the key of an upload, under which its parts are sealed.

        @param customerKey: The key that the client sent.
        @return: L{None} for plain bytes.
        @raise InvalidRequest: The client's key is missing, superfluous, or another than the key of
            the upload.
        @raise DomainError: The errors of L{keyForRead}.
        """
        encryption = upload.attributes.encryption
        if encryption is None and customerKey is None:
            return None
        from storagegate.objects.encryption.requests import checkKeySent

        checkKeySent(encryption, customerKey, isUpload=True)
        bucket = await self.find(upload.bucket)
        documents = (await self.settings.find(bucket)).documents
        try:
            return await self.encryption.open(
                upload.bucket, documents, upload.key, encryption, customerKey
            )
        except errors.AccessDenied as error:
            raise errors.InvalidRequest(_OTHER_KEY) from error

    async def keyForPart(
        self, upload: MultipartUpload, customerKey: "CustomerKey | None" = None
    ) -> "ObjectKey | None":
        """
        Open the key of an upload to seal a new part.

        @return: L{None} for plain bytes.
        @raise DomainError: The errors of L{checkUploadAllowed} and L{keyOfUpload}.
        """
        await self.checkUploadAllowed(upload)
        return await self.keyOfUpload(upload, customerKey)

    async def checkUploadAllowed(self, upload: MultipartUpload) -> None:
        """
        Check that the bucket of an upload still accepts its encryption.

        @raise AccessDenied: The bucket has blocked it since.
        """
        encryption = upload.attributes.encryption
        if encryption is None:
            return
        from storagegate.objects.encryption.requests import SSE_C, checkAllowed

        if encryption.kind == SSE_C:
            settings = await self.settings.find(await self.find(upload.bucket))
            checkAllowed(settings.encryption, encryption.kind)

    def nowMs(self) -> int:
        """Return milliseconds since the epoch."""
        return int(self._now() * 1000)

    async def find(self, name: str) -> Bucket:
        """
        Look up a bucket without deciding on access.

        @raise BucketNotFound: The bucket does not exist.
        """
        found: Bucket | None = await self.catalog.bucket(name)
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
        if (found.generation or found.account != caller.identity.ownerAccount) and (
            initiator is not None or not self._isCovered(caller, found, key, operation)
        ):
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
            home, record = await self.catalog.object(bucket, key, versionId, verify=self._verifies)
        except InvalidVersionId as error:
            raise invalidId("versionId", versionId or "") from error
        if home is None:
            raise errors.BucketNotFound(bucket=bucket)
        account = caller.identity.ownerAccount
        if (
            home.generation
            or home.account != account
            or (record is not None and record.account != account)
        ) and not self._isRead(caller, home, key, versionId, record, operation):
            settings = self.settings.kept(home.generation) or await self.settings.find(home)
            settings.access.decide(caller, home, key, versionId, record, operation)
            if record is not None and record.attributes.lock is not UNLOCKED:
                record = settings.access.withVisibleLock(caller, home, record, versionId)
        if record is None:
            raise await self.absent(home, key, versionId)
        if record.isDeleteMarker:
            raise errors.VersionIsDeleteMarker(record, caller.operationName)
        return home, record

    def _isCovered(self, caller: "Caller", home: Bucket, key: bytes, operation: str = "") -> bool:
        """
        Return whether a request for a bucket or for a key in it needs no L{decision
        <storagegate.objects.access.decision>}: the bucket has no policy, and either its account may
        do everything, or the policies of a user of this account are known to allow the request.
        Most requests are of this kind.

        @param operation: See L{object}.
        """
        identity, account = caller.identity, home.account
        if home.generation:
            settings = self.settings.kept(home.generation)
            if settings is None or settings.access.policy is not None:
                return False
        if account == identity.ownerAccount:
            return True
        rights = identity.rights
        if rights is None or account != identity.account or not key:
            return False
        operation = operation or caller.operationName
        return rights.covers(operation, home.name, key, caller.headers)

    def _isRead(
        self,
        caller: "Caller",
        home: Bucket,
        key: bytes,
        versionId: str | None,
        record: ObjectRecord | None,
        operation: str,
    ) -> bool:
        """
        Return whether a read of an object needs no decision, as L{_isCovered}. A user that may read
        an object may not learn that it is missing, or how it is locked.
        """
        isOwn = record is None or record.account == home.account
        if home.account != caller.identity.ownerAccount:
            isOwn = (
                isOwn
                and record is not None
                and versionId is None
                and record.attributes.lock is UNLOCKED
            )
        return isOwn and self._isCovered(caller, home, key, operation)

    async def absent(self, bucket: Bucket, key: bytes, versionId: str | None) -> DomainError:
        """Return the error for a missing object; for a deleted one, it names the delete marker."""
        if versionId is not None:
            return errors.VersionNotFound(key=key.decode(), versionId=versionId)
        missing = errors.ObjectNotFound(key=key.decode())
        if bucket.versioning:
            missing.marker = await self.catalog.deleteMarker(bucket.name, key)
        return missing

    async def upload(
        self, caller: "Caller", bucket: str, key: bytes, uploadId: str
    ) -> MultipartUpload:
        """
        Look up an upload, and decide on a request for it.

        @raise UploadNotFound: The upload does not exist; also the errors of looking up the bucket.
        """
        found: MultipartUpload | None = await self.catalog.upload(bucket, key, uploadId)
        if found is None:
            await self.bucketOfUpload(caller, bucket, key, uploadId)
            raise errors.UploadNotFound(uploadId=uploadId)
        # The initiator may abort the upload.
        caller = _ofEncrypted(caller, found.attributes)
        await self.bucket(caller, bucket, key, initiator=found.account)
        return found

    async def bucketOfUpload(
        self, caller: "Caller", bucket: str, key: bytes, uploadId: str
    ) -> Bucket:
        """
        Look up the bucket of an upload that exists or was completed, and decide on a request for
        the upload. Whether it exists is not checked.

        @raise BucketNotFound: The bucket does not exist.
        @raise AccessDenied: The caller has no right to it.
        """
        if (await self.find(bucket)).generation:
            found: Any = await self.catalog.upload(bucket, key, uploadId)
            if found is None:
                found = await self.catalog.completed(bucket, key, uploadId)
            if found is not None:
                caller = _ofEncrypted(caller, found.attributes)
        return await self.bucket(caller, bucket, key)

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

    async def mayBypass(
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
        @raise DomainError: The write cannot succeed, or the ACL is invalid; also the errors of
            L{checkComparison}.
        """
        recent = None
        if self._recentBucket is not None and length is not None and length <= INLINE_LIMIT:
            recent = self._recentBucket(bucket)
        if recent is not None and not condition.absent:
            found, revision = recent
            try:
                if (
                    found.generation or found.account != caller.identity.ownerAccount
                ) and not self._isCovered(caller, found, key):
                    (await self.accessOf(found)).decide(caller, found, key)
                if condition is not UNCONDITIONAL:
                    await self.checkComparison(caller, found, key, condition)
                owner = await self._ownerOfNew(caller, found, acl)
            except DomainError:
                # The cached bucket may be stale.
                pass
            else:
                return found, Ownership(owner.account, owner.acl, None, caller, revision, acl)
        found = await self.bucket(caller, bucket, key)
        if condition is not UNCONDITIONAL:
            await self.checkComparison(caller, found, key, condition)
        if condition.absent:
            _, record = await self.catalog.object(bucket, key)
            if record is not None:
                raise errors.ConditionFailed(condition="absent")
        return found, await self._ownerOfNew(caller, found, acl)

    async def checkComparison(
        self,
        caller: "Caller",
        home: Bucket,
        key: bytes,
        condition: WriteCondition,
        versionId: str | None = None,
    ) -> None:
        """
        Check that a request may read the object with which its condition compares an ETag, a size
        or a time: the answer tells whether they are those of the object.

        @param home: The bucket, in which access to the write was decided.
        @param versionId: The version that the condition concerns; L{None} for the current one.
        @raise AccessDenied: The caller may write, but not read.
        """
        if not condition.compares:
            return
        caller.identity.authorise("read", home.name, key)
        if not home.generation and home.account == caller.identity.ownerAccount:
            return
        _, record = await self.catalog.object(home.name, key, versionId)
        # Without an object nothing is compared.
        if record is None or self._isRead(caller, home, key, versionId, record, "GetObject"):
            return
        (await self.accessOf(home)).decide(caller, home, key, versionId, record, "GetObject")

    async def _ownerOfNew(
        self, caller: "Caller", found: Bucket, requested: "RequestedList | None"
    ) -> Ownership:
        """Find the owner and ACL of a new object in a bucket."""
        writer = caller.identity.account
        if requested is None and found.account == writer:
            return Ownership(writer, None, found)
        access = await self.accessOf(found)
        if requested is None:
            return Ownership(access.ownerOf(writer, None), None, found)
        acl = requested.ownedBy(writer, found.account)
        owner = access.ownerOf(writer, acl)
        if owner != writer:
            # A canned ACL depends on the owner.
            acl = requested.ownedBy(owner, found.account)
        access.checkList(acl, requested.canned)
        return Ownership(owner, acl, found)

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
        content, objectKey = ingested.content, ingested.objectKey
        attributes = replace(
            attributes,
            checksum=ingested.checksum,
            acl="" if owner.acl is None else owner.text,
            encryption=None if objectKey is None else objectKey.encryption,
        )
        etag = ingested.etag
        if objectKey is not None and objectKey.hidesDigests:
            attributes, etag = objectKey.sealAttributes(attributes), objectKey.hidden(etag)
        record = ObjectRecord(
            bucket,
            key,
            content.size,
            etag,
            int(self._now() * 1000),
            owner.account,
            attributes,
            content,
        )
        if owner.revision is not None:
            return self._putDecided(owner, record, ingested, condition)
        if ingested.sink is not None and owner.home is not None:
            return self._putArrived(owner.home, record, ingested.sink, condition)
        return self.store.putObject(record, ingested.sink, condition)

    async def _putArrived(
        self, home: Bucket, record: ObjectRecord, sink: IBlobWriter, condition: WriteCondition
    ) -> ObjectRecord:
        """Store an object whose body has arrived slowly, if its bucket is still the same."""
        try:
            await self.checkSame(home)
        except BaseException:
            self.store.abort(sink)
            raise
        return await self.store.putObject(record, sink, condition)

    async def checkSame(self, home: Bucket) -> None:
        """
        Check that a bucket was not removed since access to it was decided. Another account may have
        created one of its name, and could otherwise get the object in place of its own.

        @raise BucketNotFound: It was removed.
        """
        found = await self.find(home.name)
        if (found.account, found.createdMs) != (home.account, home.createdMs):
            raise errors.BucketNotFound(bucket=home.name)

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
        found, owner = await self.checkWrite(
            owner.caller, record.bucket, record.key, condition, acl=owner.requested
        )
        attributes = replace(record.attributes, acl=owner.text)
        record = replace(record, account=owner.account, attributes=attributes)
        record = await self._sealedAgain(found, record, ingested)
        return await self.store.putObject(record, None, condition)

    async def _sealedAgain(
        self, bucket: Bucket, record: ObjectRecord, ingested: IngestedBody
    ) -> ObjectRecord:
        """Return a record with inline content, sealed by the settings that its bucket has now."""
        former = ingested.objectKey
        requested = None if former is None else former.requested
        objectKey = await self.keyForWrite(bucket, record.key, requested)
        if former is None and objectKey is None:
            return record
        plain = OpenContent(record.content, former).inline(0, record.size)
        attributes = replace(record.attributes, encryption=None, checksum=ingested.checksum)
        etag = ingested.etag
        if objectKey is not None:
            attributes, etag = objectKey.sealAttributes(attributes), objectKey.hidden(etag)
            plain = objectKey.seal(plain)
        content = Content(record.size, plain)
        return replace(record, attributes=attributes, etag=etag, content=content)

    async def putPart(self, upload: MultipartUpload, number: int, received: IngestedBody) -> Part:
        """
        Store an ingested body as a part, replacing any part with the same number.

        @param upload: An upload in progress, from L{upload}.
        @param number: From 1 to 10,000.
        @param received: The ingested body, without inline content.
        @return: The part with its plain checksum.
        """
        content = received.content
        if content.inline is not None:  # only an empty part is inline: it has no blob
            content = Content(content.size)
        etag, checksum, objectKey = received.etag, received.checksum, received.objectKey
        if objectKey is not None:
            etag = objectKey.hidden(etag)
        part = Part(number, content.size, etag, self.nowMs(), content, checksum)
        stored = part if objectKey is None else objectKey.sealPart(part)
        await self.store.putPart(upload.bucket, upload.key, upload.uploadId, stored, received.sink)
        return part


def _ofEncrypted(caller: "Caller", attributes: Attributes) -> "Caller":
    """Return a caller whose request names the encryption of its upload."""
    if attributes.encryption is None:
        return caller
    from storagegate.objects.access.context import withEncryption

    return withEncryption(caller, attributes.encryption)


def invalidId(parameter: str, versionId: str) -> errors.InvalidArgument:
    """Return the error for a malformed version id in the named parameter."""
    message = "Invalid version id specified" if versionId else _EMPTY_ID
    return errors.InvalidArgument(message, name=parameter, value=versionId)
