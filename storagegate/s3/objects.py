"""
What may be done with buckets and objects, and by whom: the domain, without HTTP.

Every method takes the L{Identity<storagegate.s3.accounts.Identity>} on whose behalf it acts
and raises L{S3Error<storagegate.s3.errors.S3Error>} for a refusal.

Which bytes of which blobs make up a run of an object, and digests over stored content.
"""

import os
from collections.abc import Callable, Sequence

from attrs import frozen

from storagegate.s3.accounts import Identity
from storagegate.s3.checksums import Hasher
from storagegate.s3.errors import S3Error, invalidArgument
from storagegate.s3.ingest import IngestedBody
from storagegate.storage.errors import BucketExists, NoSuchKey
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
        verifies = store.verifier is not None
        self._lookUp = self._catalog.verified if verifies else self._catalog.object

    def _own(self, identity: Identity, bucket: Bucket | None, name: str) -> Bucket:
        if bucket is None:
            raise S3Error("NoSuchBucket", fields={"BucketName": name})
        if bucket.account != identity.account and not identity.isRoot:
            raise S3Error("AccessDenied")
        return bucket

    def bucket(self, identity: Identity, name: str) -> Bucket:
        """Look up a bucket that the identity may act on."""
        return self._own(identity, self._catalog.bucket(name), name)

    async def buckets(
        self, identity: Identity, prefix: str, after: str, limit: int
    ) -> list[Bucket]:
        """List the account's buckets by name: strictly after C{after}, at most C{limit}."""
        account = None if identity.isRoot else identity.account
        found: list[Bucket] = await self._catalog.buckets(account, prefix, after, limit)
        return found

    async def createBucket(self, identity: Identity, name: str) -> Bucket:
        """Create a bucket that the identity's account owns."""
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
        self.bucket(identity, name)
        await self.store.deleteBucket(name)

    def object(
        self, identity: Identity, bucket: str, key: bytes, versionId: str | None = None
    ) -> ObjectRecord:
        """Look up an object with all that a read of it needs."""
        checkVersion(versionId)
        record: ObjectRecord | None
        found, record = self._lookUp(bucket, key)
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
        self.bucket(identity, bucket)
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
        self.bucket(identity, bucket)
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


DIGEST_JOB = 8 << 20
"""Bytes that one pool job reads and hashes: worth a hop, and soon over for those who wait."""

_READ = 1 << 20


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


def _digestRun(fd: int, offset: int, length: int, hashers: Sequence[Hasher]) -> None:
    """Read and hash a run of a file. Runs in a pool thread."""
    while length:
        chunk = os.pread(fd, min(length, _READ), offset)
        if not chunk:
            raise EOFError("a blob is shorter than its record says")
        for hasher in hashers:
            hasher.update(chunk)
        offset += len(chunk)
        length -= len(chunk)


async def digest(
    store: ObjectStore, content: Content, start: int, length: int, hashers: Sequence[Hasher]
) -> None:
    """Feed C{length} bytes from C{start} of a content to the hashers, in the pool."""
    if content.inline is not None:
        for hasher in hashers:
            hasher.update(content.inline[start : start + length])
        return
    hold = store.hold(content)
    try:
        for segment in segmentsOf(content, start, length):
            handle = await store.blobs.openSegment(segment)
            try:
                for done in range(0, segment.length, DIGEST_JOB):
                    size = min(DIGEST_JOB, segment.length - done)
                    await store.run(_digestRun, handle.fd, segment.offset + done, size, hashers)
            finally:
                handle.release()
    finally:
        hold.release()
