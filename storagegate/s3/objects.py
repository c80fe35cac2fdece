"""
What may be done with buckets and objects, and by whom: the domain, without HTTP.

Every method takes the L{Identity<storagegate.s3.accounts.Identity>} on whose behalf it acts
and raises L{S3Error<storagegate.s3.errors.S3Error>} for a refusal. Who may do what is decided by
L{ObjectService.authorise} and L{ObjectService.authoriseAccess}, which every front door calls first,
and by the look-up of the bucket, which every method makes. What is set for a bucket is read by
L{ObjectService.settings} and made by L{ObjectService.createBucket}.

Which bytes of which blobs make up a run of an object, and digests over stored content.
"""

from collections.abc import Callable, Sequence

from attrs import frozen

from storagegate.s3.accounts import Identity, authorise, authoriseOperation
from storagegate.s3.checksums import Hasher
from storagegate.s3.errors import S3Error, invalidArgument
from storagegate.s3.ingest import IngestedBody
from storagegate.s3.names import checkBucketName
from storagegate.s3.operation import Operation
from storagegate.storage.errors import BucketExists, CorruptBlob, NoSuchKey
from storagegate.storage.interfaces import IBlobWriter
from storagegate.storage.records import (
    NULL_VERSION,
    Attributes,
    Bucket,
    Content,
    ObjectListing,
    ObjectRecord,
    Segment,
    WriteCondition,
)
from storagegate.storage.store import ObjectStore

UNCONDITIONAL = WriteCondition()
"""A write that happens whatever is there."""


@frozen
class DeleteEntry:
    """One object to delete."""

    key: bytes
    versionId: str | None = None
    condition: WriteCondition = UNCONDITIONAL


def checkVersion(versionId: str | None) -> None:
    """
    Accept no version id and C{null}, the only version of an unversioned bucket's object.

    @raise S3Error: C{NoSuchVersion} for any other, C{InvalidArgument} for an empty one.
    """
    if versionId == "":
        raise invalidArgument("versionId", "", "Version id cannot be the empty string")
    if versionId is not None and versionId != NULL_VERSION:
        raise S3Error("NoSuchVersion", fields={"VersionId": versionId})


class ObjectService:
    """
    Buckets and objects of one store.

    @ivar region: The region that new buckets are said to be in.
    """

    def __init__(self, store: ObjectStore, region: str, nowMs: Callable[[], int]) -> None:
        self.store = store
        self.region = region
        self.nowMs = nowMs
        self._catalog = store.catalog
        self._verifies = store.verifier is not None

    def _own(self, identity: Identity, bucket: Bucket | None, name: str) -> Bucket:
        if bucket is None:
            raise S3Error("NoSuchBucket", fields={"BucketName": name})
        if bucket.account != identity.account and not identity.isRoot:
            raise S3Error("AccessDenied")
        return bucket

    async def authorise(
        self,
        identity: Identity,
        operation: Operation,
        bucket: str = "",
        key: bytes = b"",
        prefix: str = "",
    ) -> None:
        """
        Decide whether an identity may do what an operation does: by the policy of its key.

        @param bucket: Empty for the service itself.
        @param key: Empty where the bucket or the service is addressed.
        @param prefix: What a list is asked for by.
        @raise S3Error: C{AccessDenied}.
        """
        authoriseOperation(identity.policy, operation, bucket, key, prefix)

    async def authoriseAccess(
        self, identity: Identity, access: str, bucket: str, key: bytes
    ) -> None:
        """
        Decide on one object that an operation names besides, or later than, its address: the source
        of a copy, an entry of a delete-many, the key in a form.

        @param access: C{"read"} or C{"write"}.
        @raise S3Error: C{AccessDenied}.
        """
        authorise(identity.policy, access, bucket, key)

    def listable(self, identity: Identity, buckets: Sequence[Bucket]) -> list[Bucket]:
        """Choose those of an account's buckets that the identity may list."""
        allows = identity.policy.allows
        return [each for each in buckets if allows("list", each.name, None)]

    async def settings(
        self, identity: Identity, bucket: str, key: bytes = b"", versionId: str | None = None
    ) -> Bucket:
        """
        Look up the bucket whose settings, or those of an object in it, are read or made.

        @param key: Empty for the bucket's own.
        @return: Its region and its owner are all that can be set today.
        """
        found = await self.bucket(identity, bucket)
        if key:
            await self.object(identity, bucket, key, versionId)
        return found

    async def checkWrite(
        self, identity: Identity, bucket: str, key: bytes, condition: WriteCondition
    ) -> None:
        """
        Refuse before a body is read what is sure to be refused after it.

        The condition is judged again, for good, in the transaction that writes.
        """
        await self.bucket(identity, bucket)
        if condition.absent:
            _, record = await self._catalog.object(bucket, key)
            if record is not None:
                raise S3Error("PreconditionFailed", fields={"Condition": "If-None-Match"})

    async def bucket(self, identity: Identity, name: str) -> Bucket:
        """Look up a bucket that the identity may act on."""
        return self._own(identity, await self._catalog.bucket(name), name)

    async def buckets(
        self, identity: Identity, prefix: str, after: str, limit: int
    ) -> list[Bucket]:
        """List the account's buckets by name: strictly after C{after}, at most C{limit}."""
        account = None if identity.isRoot else identity.account
        found: list[Bucket] = await self._catalog.buckets(account, prefix, after, limit)
        return found

    async def createBucket(self, identity: Identity, name: str, region: str = "") -> Bucket:
        """
        Create a bucket that the identity's account owns.

        @param region: Where it is to be; empty is here.
        """
        checkBucketName(name)
        if region and region != self.region:
            raise S3Error("IllegalLocationConstraintException")
        bucket = Bucket(name, identity.account, self.nowMs(), self.region)
        try:
            await self._catalog.createBucket(bucket)
        except BucketExists as error:
            own = error.bucket.account == identity.account
            code = "BucketAlreadyOwnedByYou" if own else "BucketAlreadyExists"
            raise S3Error(code, fields={"BucketName": name}) from error
        return bucket

    async def deleteBucket(self, identity: Identity, name: str) -> None:
        """Remove an empty bucket."""
        await self.bucket(identity, name)
        await self.store.deleteBucket(name)

    async def object(
        self, identity: Identity, bucket: str, key: bytes, versionId: str | None = None
    ) -> ObjectRecord:
        """Look up an object with all that a read of it needs."""
        checkVersion(versionId)
        record: ObjectRecord | None
        found, record = await self._catalog.object(bucket, key, verify=self._verifies)
        self._own(identity, found, bucket)
        if record is None:
            raise S3Error("NoSuchKey", fields={"Key": key.decode()})
        return record

    async def listObjects(
        self,
        identity: Identity,
        bucket: str,
        prefix: bytes,
        delimiter: bytes,
        after: bytes,
        limit: int,
        contentTypes: bool = False,
    ) -> ObjectListing:
        """List a page of a bucket; see L{ICatalog.listObjects}."""
        await self.bucket(identity, bucket)
        page: ObjectListing = await self._catalog.listObjects(
            bucket, prefix, delimiter, after, limit, contentTypes
        )
        return page

    def sink(self, expectedSize: int | None, inlineLimit: int) -> IBlobWriter:
        """Begin to take the bytes of an object or a part."""
        return self.store.blobs.sink(inlineLimit, expectedSize)

    async def putObject(
        self,
        identity: Identity,
        bucket: str,
        key: bytes,
        received: IngestedBody,
        attributes: Attributes,
        condition: WriteCondition = UNCONDITIONAL,
    ) -> ObjectRecord:
        """Store bytes that were taken in. Who may write was judged before they were."""
        content = received.content
        record = ObjectRecord(
            bucket,
            key,
            content.size,
            received.etag,
            self.nowMs(),
            identity.account,
            attributes,
            content,
        )
        return await self.store.putObject(record, received.sink, condition)

    async def deleteObjects(
        self, identity: Identity, bucket: str, entries: Sequence[DeleteEntry]
    ) -> list[Exception | None]:
        """
        Delete objects; one that is not there counts as deleted.

        @return: For each entry L{None}, or what concerns it.
        """
        await self.bucket(identity, bucket)
        rows = [(entry.key, entry.versionId, entry.condition) for entry in entries]
        results = await self.store.deleteObjects(bucket, rows)
        return [each if isinstance(each, Exception) else None for each in results]

    async def deleteObject(self, identity: Identity, bucket: str, entry: DeleteEntry) -> None:
        """Delete one object; one that is not there counts as deleted."""
        (error,) = await self.deleteObjects(identity, bucket, [entry])
        if isinstance(error, NoSuchKey):
            raise S3Error("NoSuchKey", fields={"Key": entry.key.decode(errors="replace")})
        if error is not None:
            raise error


def segmentsOf(content: Content, start: int, length: int) -> tuple[Segment, ...]:
    """
    Find the runs of blobs that hold C{length} bytes from C{start} of a content that is not inline.
    """
    found = []
    for segment in content.segments:
        if length <= 0:
            break
        if start >= segment.length:
            start -= segment.length
            continue
        taken = min(segment.length - start, length)
        found.append(Segment(segment.blob, segment.offset + start, taken))
        length -= taken
        start = 0
    return tuple(found)


async def digest(
    store: ObjectStore, content: Content, start: int, length: int, hashers: Sequence[Hasher]
) -> None:
    """Feed C{length} bytes from C{start} of a content to the hashers."""
    if content.inline is not None:
        for hasher in hashers:
            hasher.update(content.inline[start : start + length])
        return
    hold = store.hold(content)
    try:
        for segment in segmentsOf(content, start, length):
            handle = await store.blobs.open(segment)
            try:
                count = await handle.digest(hashers, segment.offset, segment.length)
            finally:
                handle.release()
            if count < segment.length:
                raise CorruptBlob(f"blob {segment.blob} has become shorter")
    finally:
        hold.release()
