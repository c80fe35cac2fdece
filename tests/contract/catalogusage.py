"""The catalog's contract: what the buckets hold."""

from twisted.internet.defer import DeferredList

from storagegate.storage.mutations import (
    AbortUpload,
    AddAccessKey,
    AddBucket,
    CompleteUpload,
    CreateUpload,
    PutObject,
    PutPart,
    RemoveBucket,
    RemoveObjects,
)
from storagegate.storage.records import AccessKey, BucketUsage
from tests.contract.catalogcase import (
    ALWAYS,
    IF_ABSENT,
    CatalogCase,
    blobRecord,
    bucketNamed,
    inlineRecord,
    newBlobsOf,
    partOf,
    uploadOf,
)


class UsageContract(CatalogCase):
    """Objects and bytes of each bucket, counted with each mutation."""

    async def counts(self, bucket: str = "b") -> tuple[int, int, int, int]:
        """Give objects, bytes, uploads and bytes of uploads of a bucket."""
        usage = await self.catalog.usage(10)
        [found] = [each for each in usage.buckets if each.bucket == bucket]
        return found.objects, found.bytes, found.uploads, found.uploadBytes

    async def test_usageOfObjects(self) -> None:
        """Objects count when they are stored, replaced and removed; refused ones do not."""
        self.assertEqual(await self.counts(), (0, 0, 0, 0))
        await self.put(inlineRecord(b"k", b"hello"), blobRecord(b"l", "x", "y"))
        self.assertEqual(await self.counts(), (2, 200_005, 0, 0))
        await self.put(inlineRecord(b"k", b"longer one"))
        self.assertEqual(await self.counts(), (2, 200_010, 0, 0))
        refused = self.catalog.commit(PutObject(inlineRecord(b"k", b"no"), IF_ABSENT))
        await DeferredList([refused], consumeErrors=True)
        await self.catalog.commit(
            RemoveObjects("b", [(b"l", None, ALWAYS), (b"none", None, ALWAYS)])
        )
        self.assertEqual(await self.counts(), (1, 10, 0, 0))

    async def test_usageTogether(self) -> None:
        """Mutations of several buckets that are committed together count as alone."""
        await self.catalog.commit(AddBucket(bucketNamed("c")))
        mutations = [
            self.catalog.commit(PutObject(inlineRecord(key, b"12345", bucket=bucket), ALWAYS))
            for key in (b"k", b"l", b"k")
            for bucket in ("b", "c")
        ]
        mutations.append(self.catalog.commit(RemoveObjects("c", [(b"l", None, ALWAYS)])))
        await DeferredList(mutations, fireOnOneErrback=True)
        self.assertEqual(await self.counts("b"), (2, 10, 0, 0))
        self.assertEqual(await self.counts("c"), (1, 5, 0, 0))

    async def test_usageOfUploads(self) -> None:
        """Parts count for their upload until it is an object, or is aborted."""
        for uploadId in ("u", "v"):
            await self.catalog.commit(CreateUpload(uploadOf(b"k", uploadId)))
            for number, blob in (1, "x"), (2, "y"), (2, "z"):
                part, blob = partOf(number, blob + uploadId, etag=blob), blob + uploadId
                await self.catalog.commit(
                    PutPart("b", b"k", uploadId, part, newBlobs=newBlobsOf(blob))
                )
        self.assertEqual(await self.counts(), (0, 0, 2, 400_000))
        await self.catalog.commit(
            CompleteUpload("u", inlineRecord(b"k", b"", "e"), [(2, "z")], ALWAYS)
        )
        self.assertEqual(await self.counts(), (1, 100_000, 1, 200_000))
        await self.catalog.commit(AbortUpload("b", b"k", "v"))
        self.assertEqual(await self.counts(), (1, 100_000, 0, 0))

    async def test_usageOfGoneBucket(self) -> None:
        """A bucket that is removed together with its last object, and made anew, is empty."""
        await self.put(inlineRecord(b"k", b"hello"))
        mutations = [
            self.catalog.commit(RemoveObjects("b", [(b"k", None, ALWAYS)])),
            self.catalog.commit(RemoveBucket("b")),
            self.catalog.commit(AddBucket(bucketNamed("b"))),
        ]
        await DeferredList(mutations, fireOnOneErrback=True)
        self.assertEqual(await self.counts(), (0, 0, 0, 0))

    async def test_usageOfOthers(self) -> None:
        """The newest of many buckets are counted together, and keys are."""
        for name in ("c", "d"):
            await self.catalog.commit(AddBucket(bucketNamed(name)))
            await self.put(inlineRecord(b"k", b"hello", bucket=name))
        await self.catalog.commit(AddAccessKey(AccessKey("K", "S", "alice")))
        usage = await self.catalog.usage(1)
        self.assertEqual([each.bucket for each in usage.buckets], ["b"])
        self.assertEqual(usage.others, BucketUsage("", 2, 10, 0, 0))
        self.assertEqual(usage.accessKeys, 1)
        self.assertEqual((await self.catalog.usage(5)).others, BucketUsage("", 0, 0, 0, 0))
