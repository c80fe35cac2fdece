"""What the parts of the catalog's contract share: the factory, and records by the handful."""

from typing import Any

from twisted.internet.defer import Deferred

from storagegate.storage.mutations import AddBucket, PutObject
from storagegate.storage.records import (
    Attributes,
    Bucket,
    Content,
    MultipartUpload,
    ObjectRecord,
    Part,
    Segment,
    WriteCondition,
)
from storagegate.storage.versionids import VersionIds

ALWAYS = WriteCondition()
IF_ABSENT = WriteCondition(absent=True)


def bucketNamed(name: str, account: str = "alice") -> Bucket:
    """Make a bucket."""
    return Bucket(name, account, 1_700_000_000_000, "us-east-1")


def inlineRecord(key: bytes, body: bytes = b"hello", etag: str = "e1", **more: Any) -> ObjectRecord:
    """Make a small object of the bucket C{b}."""
    return _record(key, Content(len(body), body), etag, **more)


def blobRecord(key: bytes, *blobs: str, etag: str = "e1") -> ObjectRecord:
    """Make an object of the bucket C{b} from blobs of 100,000 bytes."""
    return _record(key, blobContent(*blobs), etag)


def blobContent(*blobs: str) -> Content:
    """Make a content of whole blobs of 100,000 bytes."""
    segments = tuple(Segment(blob, 0, 100_000) for blob in blobs)
    return Content(100_000 * len(blobs), None, segments)


def _record(key: bytes, made: Content, etag: str, **more: Any) -> ObjectRecord:
    content: Content = more.pop("content", made)
    values: dict[str, Any] = {"bucket": "b", "account": "alice", "attributes": Attributes()}
    return ObjectRecord(
        key=key,
        size=content.size,
        etag=etag,
        modifiedMs=1_700_000_000_123,
        content=content,
        **(values | more),
    )


def uploadOf(key: bytes, uploadId: str, **more: Any) -> MultipartUpload:
    """Make an upload in the bucket C{b}."""
    values: dict[str, Any] = {"attributes": Attributes()} | more
    return MultipartUpload("b", key, uploadId, "alice", 1_700_000_000_456, **values)


def partOf(number: int, *blobs: str, etag: str = "p1") -> Part:
    """Make a part of whole blobs."""
    content = blobContent(*blobs)
    return Part(number, content.size, etag, 1_700_000_000_789, content)


def newBlobsOf(*blobs: str) -> dict[str, int]:
    """Say that blobs are new."""
    return dict.fromkeys(blobs, 7)


class CatalogCase:
    """
    A part of the contract, for mixing with C{TestCase}: a catalog that has the bucket C{b}.

    @ivar collected: The blobs that were reported as garbage.
    """

    collected: list[str]

    def makeCatalog(self) -> Any:
        """Give an empty catalog that reports garbage to L{collected}, and have it closed."""
        raise NotImplementedError

    def setUp(self) -> Deferred[None]:
        """Begin with an empty bucket."""
        self.collected = []
        self.catalog = self.makeCatalog()
        created: Deferred[None] = self.catalog.commit(AddBucket(bucketNamed("b")))
        return created

    async def put(self, *records: ObjectRecord) -> None:
        """Store objects; all their blobs are new."""
        for record in records:
            blobs = [segment.blob for segment in record.content.segments]
            await self.catalog.commit(PutObject(record, ALWAYS, newBlobs=newBlobsOf(*blobs)))

    def otherVersion(self) -> str:
        """Give an id of a version that does not exist."""
        return VersionIds(self.catalog.secret()).make(1 << 40)

    async def assertRefused(self, refused: Deferred[Any], kind: type[Exception]) -> Any:
        """Check that a Deferred fails in this way, and give the exception."""
        with self.assertRaises(kind) as caught:
            await refused
        return caught.exception
