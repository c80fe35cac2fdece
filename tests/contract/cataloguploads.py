"""The catalog's contract: multipart uploads."""

from twisted.internet.defer import DeferredList

from storagegate.storage.errors import (
    ConcurrentChange,
    InvalidPart,
    NoSuchBucket,
    NoSuchUpload,
    PreconditionFailed,
)
from storagegate.storage.mutations import (
    AbortUpload,
    CompleteUpload,
    CreateUpload,
    PutPart,
    RemoveBucket,
    RemoveObjects,
)
from storagegate.storage.ranges import PartRange
from storagegate.storage.records import Attributes, Checksum, Content, ObjectRecord, Segment
from tests.contract.catalogcase import (
    ALWAYS,
    IF_ABSENT,
    CatalogCase,
    blobContent,
    blobRecord,
    inlineRecord,
    newBlobsOf,
    partOf,
    uploadOf,
)


class UploadContract(CatalogCase):
    """Uploads: begun, filled, completed, aborted."""

    async def begin(self, *parts: tuple[int, str], key: bytes = b"k", uploadId: str = "u") -> None:
        """Begin an upload with parts of one new blob each; the ETag is C{e} and the number."""
        await self.catalog.commit(CreateUpload(uploadOf(key, uploadId)))
        for number, blob in parts:
            part = partOf(number, blob, etag=f"e{number}")
            await self.catalog.commit(PutPart("b", key, uploadId, part, newBlobs=newBlobsOf(blob)))

    async def complete(self, *parts: tuple[int, str], uploadId: str = "u") -> ObjectRecord:
        """Complete the upload of the key C{k}."""
        record: ObjectRecord = await self.catalog.commit(
            CompleteUpload(uploadId, inlineRecord(b"k", b"", "whole"), parts, ALWAYS)
        )
        return record

    async def test_uploadIsAsItWasBegun(self) -> None:
        """An upload is found under its bucket, key and id, and only there."""
        upload = uploadOf(
            b"k\0",
            "u",
            attributes=Attributes("text/plain", {"expires": "0"}, {"a": "b"}),
            checksumAlgorithm="CRC32",
            checksumKind="COMPOSITE",
        )
        await self.catalog.commit(CreateUpload(upload))
        self.assertEqual(await self.catalog.upload("b", b"k\0", "u"), upload)
        for wrong in (("c", b"k\0", "u"), ("b", b"k", "u"), ("b", b"k\0", "v")):
            self.assertIsNone(await self.catalog.upload(*wrong))
        self.assertIsNone((await self.catalog.object("b", b"k\0"))[1])

    async def test_uploadNeedsItsBucket(self) -> None:
        """No upload begins in a missing bucket."""
        await self.catalog.commit(RemoveBucket("b"))
        await self.assertRefused(
            self.catalog.commit(CreateUpload(uploadOf(b"k", "u"))), NoSuchBucket
        )

    async def test_partsComeBackInPages(self) -> None:
        """Parts are listed by number, just as they were given."""
        await self.begin((3, "z"), (1, "x"), (20, "y"))
        summed = partOf(2, "a", "b")
        summed = type(summed)(
            2, 9, "é", 5, Content(9, None, (Segment("x", 5, 9),)), Checksum("SHA1", "=", "F")
        )
        await self.catalog.commit(PutPart("b", b"k", "u", summed))
        parts = await self.catalog.parts(PartRange("b", b"k", "u", 0, 10))
        self.assertEqual([part.number for part in parts], [1, 2, 3, 20])
        self.assertEqual(parts[1], summed)
        self.assertEqual(parts[2], partOf(3, "z", etag="e3"))
        page = await self.catalog.parts(PartRange("b", b"k", "u", 1, 2))
        self.assertEqual([part.number for part in page], [2, 3])

    async def test_missingUpload(self) -> None:
        """Nothing can be done with an upload that is not there."""
        await self.begin((1, "x"))
        for bucket, key, uploadId in (("c", b"k", "u"), ("b", b"l", "u"), ("b", b"k", "v")):
            put = self.catalog.commit(
                PutPart(bucket, key, uploadId, partOf(1, "n"), newBlobs=newBlobsOf("n"))
            )
            await self.assertRefused(put, NoSuchUpload)
            parts = self.catalog.parts(PartRange(bucket, key, uploadId, 0, 1))
            await self.assertRefused(parts, NoSuchUpload)
            abort = self.catalog.commit(AbortUpload(bucket, key, uploadId))
            await self.assertRefused(abort, NoSuchUpload)
            record = inlineRecord(key, bucket=bucket)
            completed = self.catalog.commit(CompleteUpload(uploadId, record, [(1, "e1")], ALWAYS))
            await self.assertRefused(completed, NoSuchUpload)
        self.assertEqual(await self.catalog.knownBlobs(["n", "x"]), {"x"})

    async def test_partIsReplaced(self) -> None:
        """A part that comes again takes the place of the first, whose blobs are garbage."""
        await self.begin((1, "x"), (1, "y"))
        parts = await self.catalog.parts(PartRange("b", b"k", "u", 0, 10))
        self.assertEqual([part.content for part in parts], [blobContent("y")])
        self.assertEqual(self.collected, ["x"])

    async def test_partOfGarbage(self) -> None:
        """A part cannot be copied from a blob that is being removed."""
        await self.put(blobRecord(b"o", "x"))
        await self.begin()
        await self.catalog.commit(RemoveObjects("b", [(b"o", None, ALWAYS)]))
        copy = self.catalog.commit(PutPart("b", b"k", "u", partOf(1, "x")))
        await self.assertRefused(copy, ConcurrentChange)

    async def test_complete(self) -> None:
        """The named parts, in their order, are the object; the upload is over."""
        await self.begin((1, "x"), (2, "y"), (3, "z"))
        stored = await self.complete((1, "e1"), (3, "e3"))
        self.assertEqual(stored.content, blobContent("x", "z"))
        self.assertEqual((stored.size, stored.etag), (200_000, "whole"))
        self.assertEqual((await self.catalog.object("b", b"k"))[1], stored)
        self.assertEqual(self.collected, ["y"])
        self.assertIsNone(await self.catalog.upload("b", b"k", "u"))
        with self.assertRaises(NoSuchUpload):
            await self.complete((1, "e1"))
        await self.catalog.commit(RemoveObjects("b", [(b"k", None, ALWAYS)]))
        self.assertEqual(sorted(self.collected), ["x", "y", "z"])
        await self.catalog.commit(RemoveBucket("b"))

    async def test_completeReplaces(self) -> None:
        """A completed upload takes the place of the object under its key."""
        await self.put(blobRecord(b"k", "old"))
        await self.begin((1, "x"))
        stored = await self.complete((1, "e1"))
        self.assertEqual((await self.catalog.object("b", b"k"))[1], stored)
        self.assertEqual(self.collected, ["old"])

    async def test_invalidPart(self) -> None:
        """A part that is missing or another changes nothing; the upload goes on."""
        await self.begin((1, "x"), (2, "y"))
        for parts in ([(1, "e1"), (3, "e3")], [(1, "e1"), (2, "other")]):
            with self.assertRaises(InvalidPart):
                await self.complete(*parts)
        self.assertIsNone((await self.catalog.object("b", b"k"))[1])
        self.assertEqual(self.collected, [])
        await self.complete((1, "e1"), (2, "e2"))

    async def test_completeOnCondition(self) -> None:
        """A completion whose condition fails leaves the upload as it is."""
        await self.put(inlineRecord(b"k"))
        await self.begin((1, "x"))
        completed = self.catalog.commit(
            CompleteUpload("u", inlineRecord(b"k"), [(1, "e1")], IF_ABSENT)
        )
        await self.assertRefused(completed, PreconditionFailed)
        self.assertEqual(len(await self.catalog.parts(PartRange("b", b"k", "u", 0, 9))), 1)
        self.assertEqual(self.collected, [])

    async def test_completedOnce(self) -> None:
        """Of two completions that wait together, one finds the upload."""
        await self.begin((1, "x"))
        both = [
            self.catalog.commit(CompleteUpload("u", inlineRecord(b"k"), [(1, "e1")], ALWAYS))
            for _ in range(2)
        ]
        results = await DeferredList(both, consumeErrors=True)
        self.assertEqual([success for success, _ in results], [True, False])
        self.assertIsNotNone(results[1][1].check(NoSuchUpload))
        self.assertEqual(self.collected, [])

    async def test_abort(self) -> None:
        """An aborted upload is gone with its parts; another of the same key goes on."""
        await self.begin((1, "x"), (2, "y"))
        await self.begin((1, "z"), uploadId="v")
        await self.catalog.commit(AbortUpload("b", b"k", "u"))
        self.assertEqual(sorted(self.collected), ["x", "y"])
        self.assertIsNone(await self.catalog.upload("b", b"k", "u"))
        self.assertEqual(len(await self.catalog.parts(PartRange("b", b"k", "v", 0, 9))), 1)

    async def test_copiedPart(self) -> None:
        """A part may be a range of a stored blob, and keeps it when the source goes."""
        await self.put(blobRecord(b"o", "x"))
        await self.begin()
        part = partOf(1, "x")
        await self.catalog.commit(PutPart("b", b"k", "u", part))
        await self.catalog.commit(RemoveObjects("b", [(b"o", None, ALWAYS)]))
        self.assertEqual(self.collected, [])
        stored = await self.complete((1, "p1"))
        self.assertEqual(stored.content, blobContent("x"))
        await self.catalog.commit(RemoveObjects("b", [(b"k", None, ALWAYS)]))
        self.assertEqual(self.collected, ["x"])
