"""The catalog's contract: buckets and objects."""

from typing import Any

from msgspec.structs import replace
from twisted.internet.defer import Deferred, DeferredList

from storagegate.storage.errors import (
    BucketExists,
    BucketNotEmpty,
    InvalidVersionId,
    NoSuchBucket,
    NoSuchKey,
    PreconditionFailed,
)
from storagegate.storage.mutations import (
    AddBucket,
    CreateUpload,
    PutAcl,
    PutObject,
    PutTags,
    RemoveBucket,
    RemoveObjects,
)
from storagegate.storage.records import (
    Attributes,
    Checksum,
    Content,
    ObjectRecord,
    PartSummary,
    Removal,
    Segment,
    WriteCondition,
)
from tests.contract.catalogcase import (
    ALWAYS,
    IF_ABSENT,
    CatalogCase,
    blobRecord,
    bucketNamed,
    inlineRecord,
    newBlobsOf,
    uploadOf,
)


class BucketContract(CatalogCase):
    """Buckets."""

    async def test_createdBucketIsThere(self) -> None:
        """A created bucket is found, just as it was given."""
        await self.catalog.commit(AddBucket(bucketNamed("other", "bob")))
        self.assertEqual(await self.catalog.bucket("other"), bucketNamed("other", "bob"))
        self.assertIsNone(await self.catalog.bucket("others"))

    async def test_bucketIsCreatedOnce(self) -> None:
        """Creating a bucket again fails, and says whose it is."""
        again = self.catalog.commit(AddBucket(bucketNamed("b", "bob")))
        error = await self.assertRefused(again, BucketExists)
        self.assertEqual(error.bucket, bucketNamed("b", "alice"))
        self.assertEqual(await self.catalog.bucket("b"), bucketNamed("b", "alice"))

    async def test_bucketKeepsItsOwnership(self) -> None:
        """The ownership that a bucket was created with comes back with it."""
        made = replace(bucketNamed("o"), ownership="BucketOwnerEnforced")
        await self.catalog.commit(AddBucket(made))
        await self.put(replace(inlineRecord(b"k"), bucket="o"))
        error = await self.assertRefused(self.catalog.commit(AddBucket(made)), BucketExists)
        self.assertEqual(error.bucket, made)
        self.assertEqual(await self.catalog.bucket("o"), made)
        self.assertEqual((await self.catalog.object("o", b"k"))[0], made)
        self.assertIn(made, await self.catalog.buckets(None, "", "", 100))

    async def test_emptyBucketIsDeleted(self) -> None:
        """A bucket whose objects are gone can be removed, once, and made again."""
        await self.put(inlineRecord(b"k"))
        await self.catalog.commit(RemoveObjects("b", [(b"k", None, ALWAYS)]))
        await self.catalog.commit(RemoveBucket("b"))
        self.assertIsNone(await self.catalog.bucket("b"))
        await self.assertRefused(self.catalog.commit(RemoveBucket("b")), NoSuchBucket)
        await self.catalog.commit(AddBucket(bucketNamed("b", "bob")))
        self.assertEqual(await self.catalog.object("b", b"k"), (bucketNamed("b", "bob"), None))

    async def test_bucketWithObjectsStays(self) -> None:
        """A bucket that holds an object is not removed."""
        await self.put(inlineRecord(b"k"))
        await self.assertRefused(self.catalog.commit(RemoveBucket("b")), BucketNotEmpty)
        self.assertIsNotNone((await self.catalog.object("b", b"k"))[1])

    async def test_bucketWithUploadsStays(self) -> None:
        """A bucket with an upload in progress is not removed."""
        await self.catalog.commit(CreateUpload(uploadOf(b"k", "u1")))
        await self.assertRefused(self.catalog.commit(RemoveBucket("b")), BucketNotEmpty)

    async def test_bucketsAreListed(self) -> None:
        """Buckets come by name: of an account or of all, with a prefix, in pages."""
        for name in ("c", "ba", "a", "bb", "ab"):
            await self.catalog.commit(
                AddBucket(bucketNamed(name, "bob" if "a" in name else "alice"))
            )

        async def names(*query: object) -> list[str]:
            return [bucket.name for bucket in await self.catalog.buckets(*query)]

        self.assertEqual(await names(None, "", "", 10), ["a", "ab", "b", "ba", "bb", "c"])
        self.assertEqual(await names(None, "", "ab", 2), ["b", "ba"])
        self.assertEqual(await names(None, "b", "", 10), ["b", "ba", "bb"])
        self.assertEqual(await names(None, "b", "b", 10), ["ba", "bb"])
        self.assertEqual(await names("bob", "", "", 10), ["a", "ab", "ba"])
        self.assertEqual(await names("bob", "a", "a", 10), ["ab"])
        self.assertEqual(await names("carol", "", "", 10), [])
        self.assertEqual(await self.catalog.buckets(None, "c", "", 1), [bucketNamed("c", "alice")])


class ObjectContract(CatalogCase):
    """Objects: stored, found, replaced, under conditions."""

    async def test_objectIsAsItWasStored(self) -> None:
        """All that was said of an object comes back, and its bytes."""
        attributes = Attributes(
            "text/plain",
            {"cache-control": "no-store"},
            {"mtime": "1.5", "naïve": "☃"},
            Checksum("CRC32", "AAAAAA==-2", "COMPOSITE"),
            (PartSummary(1, 5, Checksum("CRC32", "AAAAAA==")), PartSummary(2, 0)),
            "STANDARD_IA",
            tags="a=b",
            acl='[["*","READ"]]',
        )
        record = inlineRecord(b"k", b"\0\xff bytes", attributes=attributes)
        stored = await self.catalog.commit(PutObject(record, ALWAYS))
        self.assertEqual(await self.catalog.object("b", b"k"), (bucketNamed("b"), stored))
        self.assertEqual(stored.content, Content(8, b"\0\xff bytes"))
        self.assertEqual(stored.attributes, attributes)
        self.assertEqual((stored.key, stored.size, stored.etag), (b"k", 8, "e1"))

    async def test_tags(self) -> None:
        """Tags are replaced and removed, of what is there, and nothing else of it changes."""
        await self._assertReplaced("tags", "a=b&c=", "d=1", "")

    async def test_acl(self) -> None:
        """So are the lists of who may."""
        await self._assertReplaced("acl", '[["*","READ"]]', "[]", "")

    async def _assertReplaced(self, name: str, *texts: str) -> None:
        isTags = name == "tags"
        put: Any = PutTags if isTags else PutAcl
        attributes = Attributes(tags="kept=1", acl="[1]")
        stored = await self.catalog.commit(
            PutObject(inlineRecord(b"k", attributes=attributes), ALWAYS)
        )
        await self.put(blobRecord(b"blobs", "x"))
        for text in texts:
            await self.catalog.commit(put("b", b"k", None if isTags else stored.sequence, text))
            for verify in (False, True):
                _, found = await self.catalog.object("b", b"k", verify=verify)
                changed = replace(stored.attributes, **{name: text})
                self.assertEqual(found, replace(stored, attributes=changed))
        _, found = await self.catalog.object("b", b"blobs")
        version = "null" if isTags else found.sequence
        await self.catalog.commit(put("b", b"blobs", version, texts[0]))
        _, found = await self.catalog.object("b", b"blobs")
        self.assertEqual(getattr(found.attributes, name), texts[0])
        for bucket, key, version, error in (
            ("none", b"k", None if isTags else stored.sequence, NoSuchBucket),
            ("b", b"none", None if isTags else stored.sequence, NoSuchKey),
            ("b", b"k", self.otherVersion() if isTags else 1 << 40, NoSuchKey),
        ):
            with self.assertRaises(error):
                await self.catalog.commit(put(bucket, key, version, texts[0]))

    async def test_segmentsComeBackInOrder(self) -> None:
        """An object of blobs names the same runs of bytes, in the same order."""
        segments = (Segment("z", 10, 5), Segment("a", 0, 3), Segment("z", 0, 4))
        record = inlineRecord(b"k", content=Content(12, None, segments))
        await self.catalog.commit(PutObject(record, ALWAYS, newBlobs=newBlobsOf("z", "a")))
        self.assertEqual(
            (await self.catalog.object("b", b"k"))[1].content, Content(12, None, segments)
        )

    async def test_verified(self) -> None:
        """A sound object is verified to be just what it is, wherever its bytes are."""
        await self.put(inlineRecord(b"inline"), inlineRecord(b"empty", b""), blobRecord(b"k", "x"))
        for bucket, key, version in (
            *(("b", key, None) for key in (b"inline", b"empty", b"k", b"none")),
            *(("b", b"inline", version) for version in ("null", self.otherVersion())),
            ("none", b"inline", None),
        ):
            found = await self.catalog.object(bucket, key, version, verify=True)
            self.assertEqual(found, await self.catalog.object(bucket, key, version))

    async def test_emptyObject(self) -> None:
        """An object may have no bytes at all, inline or not."""
        await self.put(inlineRecord(b"inline", b""), blobRecord(b"blobs"))
        self.assertEqual((await self.catalog.object("b", b"inline"))[1].content, Content(0, b""))
        self.assertEqual((await self.catalog.object("b", b"blobs"))[1].content, Content(0))

    async def test_anyKey(self) -> None:
        """Keys are told apart by each byte, NUL among them."""
        keys = [b"", b"a", b"a\0", b"a\0b", "é\U0010ffff".encode(), b"a/", b"A", b"%", b"'"]
        for number, key in enumerate(keys):
            await self.put(inlineRecord(key, b"%d" % number))
        for number, key in enumerate(keys):
            self.assertEqual(
                (await self.catalog.object("b", key))[1].content.inline, b"%d" % number
            )

    async def test_keysAreUTF8(self) -> None:
        """A key that is no UTF-8 is refused before it can spoil a list."""
        with self.assertRaises(UnicodeDecodeError):
            self.catalog.commit(PutObject(inlineRecord(b"\xff"), ALWAYS))
        with self.assertRaises(UnicodeDecodeError):
            self.catalog.commit(CreateUpload(uploadOf(b"\xff", "u1")))

    async def test_nothingThere(self) -> None:
        """A missing key is told from a missing bucket."""
        self.assertEqual(await self.catalog.object("b", b"k"), (bucketNamed("b"), None))
        self.assertEqual(await self.catalog.object("none", b"k"), (None, None))
        await self.assertRefused(
            self.catalog.commit(PutObject(inlineRecord(b"k", bucket="none"), ALWAYS)), NoSuchBucket
        )

    async def test_laterWriteReplaces(self) -> None:
        """The last write of a key is the object, and its number is greater."""
        first = await self.catalog.commit(PutObject(inlineRecord(b"k", b"long body"), ALWAYS))
        second = await self.catalog.commit(PutObject(inlineRecord(b"k", b"x", "e2"), ALWAYS))
        self.assertEqual((await self.catalog.object("b", b"k"))[1], second)
        self.assertGreater(second.sequence, first.sequence)

    async def test_writesInOneBatch(self) -> None:
        """Writes that wait together happen in the order in which they were asked for."""
        writes = [
            self.catalog.commit(PutObject(inlineRecord(b"k%d" % (n % 3), b"%d" % n), ALWAYS))
            for n in range(200)
        ]
        stored = [await write for write in writes]
        self.assertEqual(len({record.sequence for record in stored}), 200)
        for n in range(197, 200):
            self.assertEqual((await self.catalog.object("b", b"k%d" % (n % 3)))[1], stored[n])

    async def test_version(self) -> None:
        """An unversioned object is the version C{null} and no other."""
        await self.put(inlineRecord(b"k"))
        self.assertIsNotNone((await self.catalog.object("b", b"k", "null"))[1])
        other = self.otherVersion()
        self.assertEqual(await self.catalog.object("b", b"k", other), (bucketNamed("b"), None))
        with self.assertRaises(InvalidVersionId):
            await self.catalog.object("b", b"k", "v1")

    async def test_ifAbsent(self) -> None:
        """A write for an absent key happens once; the first object stays."""
        first = await self.catalog.commit(PutObject(inlineRecord(b"k", b"1"), IF_ABSENT))
        await self.assertRefused(
            self.catalog.commit(PutObject(inlineRecord(b"k", b"2"), IF_ABSENT)), PreconditionFailed
        )
        self.assertEqual((await self.catalog.object("b", b"k"))[1], first)

    def write(self, record: ObjectRecord, condition: WriteCondition) -> Deferred[ObjectRecord]:
        """Store an object without new blobs."""
        return self.catalog.commit(PutObject(record, condition))

    def removeFrom(self, bucket: str, entries: Any) -> Deferred[Any]:
        """Remove objects."""
        return self.catalog.commit(RemoveObjects(bucket, entries))

    async def test_ifMatch(self) -> None:
        """A write on a condition happens only over an object with one of these ETags."""
        write = self.write
        await self.assertRefused(
            write(inlineRecord(b"k"), WriteCondition(etags=("e1",))), NoSuchKey
        )
        await self.assertRefused(write(inlineRecord(b"k"), WriteCondition(etags=("*",))), NoSuchKey)
        await self.put(inlineRecord(b"k", etag="e1"))
        await self.assertRefused(
            write(inlineRecord(b"k", etag="no"), WriteCondition(etags=("e2", "e3"))),
            PreconditionFailed,
        )
        await write(inlineRecord(b"k", etag="e2"), WriteCondition(etags=("e0", "e1")))
        await write(inlineRecord(b"k", etag="e3"), WriteCondition(etags=("*",)))
        other = WriteCondition(unlike=("e2", "e3"))
        await self.assertRefused(write(inlineRecord(b"k", etag="no"), other), PreconditionFailed)
        await write(inlineRecord(b"k", etag="e4"), WriteCondition(unlike=("e1", "e2")))
        await write(inlineRecord(b"new", etag="e4"), other)
        self.assertEqual((await self.catalog.object("b", b"k"))[1].etag, "e4")

    async def test_oneOfManyWins(self) -> None:
        """Of many writes for an absent key that wait together, exactly the first is done."""
        writes = [
            self.catalog.commit(PutObject(inlineRecord(b"k", b"%d" % n), IF_ABSENT))
            for n in range(50)
        ]
        results = await DeferredList(writes, consumeErrors=True)
        self.assertEqual([success for success, _ in results], [True] + [False] * 49)
        for _, failure in results[1:]:
            self.assertIsNotNone(failure.check(PreconditionFailed))
        self.assertEqual((await self.catalog.object("b", b"k"))[1].content.inline, b"0")

    async def test_refusalConcernsNobodyElse(self) -> None:
        """What waits beside a refused mutation is done."""
        refused = self.catalog.commit(PutObject(inlineRecord(b"k", bucket="none"), ALWAYS))
        done = self.catalog.commit(PutObject(inlineRecord(b"k"), ALWAYS))
        also = self.catalog.commit(AddBucket(bucketNamed("b")))
        await self.assertRefused(refused, NoSuchBucket)
        await self.assertRefused(also, BucketExists)
        self.assertEqual((await self.catalog.object("b", b"k"))[1], await done)


class DeleteContract(CatalogCase):
    """Objects: removed."""

    async def test_deleteTells(self) -> None:
        """Each entry says whether there was something to remove, a second one of a key too."""
        await self.put(inlineRecord(b"a"), inlineRecord(b"b"), inlineRecord(b"c"))
        gone = await self.catalog.commit(
            RemoveObjects("b", [(key, None, ALWAYS) for key in (b"a", b"x", b"c", b"a")])
        )
        self.assertEqual([each.isFound for each in gone], [True, False, True, False])
        self.assertIsNone((await self.catalog.object("b", b"a"))[1])
        self.assertIsNotNone((await self.catalog.object("b", b"b"))[1])

    async def test_deleteInMissingBucket(self) -> None:
        """Removing from a missing bucket fails, also where nothing is named."""
        remove = self.removeFrom
        await self.assertRefused(remove("none", [(b"k", None, ALWAYS)]), NoSuchBucket)
        await self.assertRefused(remove("none", []), NoSuchBucket)
        self.assertEqual(await remove("b", []), [])

    async def test_deleteOnCondition(self) -> None:
        """An entry whose condition fails says so in its place; the others are removed."""
        await self.put(inlineRecord(b"a", etag="ea"), inlineRecord(b"b", etag="eb"))
        outcomes = await self.catalog.commit(
            RemoveObjects(
                "b",
                [
                    (b"a", None, WriteCondition(etags=("other",))),
                    (b"b", None, WriteCondition(etags=("eb",))),
                    (b"c", None, WriteCondition(etags=("*",))),
                ],
            )
        )
        self.assertIsInstance(outcomes[0], PreconditionFailed)
        self.assertEqual(outcomes[1], Removal(True, isChanged=True))
        self.assertIsInstance(outcomes[2], NoSuchKey)
        self.assertIsNotNone((await self.catalog.object("b", b"a"))[1])
        self.assertIsNone((await self.catalog.object("b", b"b"))[1])

    async def test_deleteVersion(self) -> None:
        """Only the version that is named is removed; where versioning never was, it is C{null}."""
        await self.put(inlineRecord(b"k"))
        other = self.otherVersion()
        gone = await self.catalog.commit(RemoveObjects("b", [(b"k", other, ALWAYS)]))
        self.assertEqual(gone, [Removal(False)])
        gone = await self.catalog.commit(RemoveObjects("b", [(b"k", "null", ALWAYS)]))
        self.assertEqual(gone, [Removal(True, "null", isChanged=True)])

    async def test_readsAreNeverOlderThanAnswers(self) -> None:
        """Once a write is answered, whoever had read the object before reads the new one."""
        for number in range(3):
            await self.put(inlineRecord(b"k", etag=f"e{number}"))
            for _ in range(2):
                found = (await self.catalog.object("b", b"k"))[1]
                assert found is not None
                self.assertEqual(found.etag, f"e{number}")
        await self.catalog.commit(RemoveObjects("b", [(b"k", None, ALWAYS)]))
        self.assertIsNone((await self.catalog.object("b", b"k"))[1])

    async def test_deleteThousand(self) -> None:
        """A thousand objects go with one request, whose order the answer keeps."""
        await DeferredList(
            [
                self.catalog.commit(PutObject(inlineRecord(b"%d" % n), ALWAYS))
                for n in range(0, 1000, 2)
            ]
        )
        gone = await self.catalog.commit(
            RemoveObjects("b", [(b"%d" % n, None, ALWAYS) for n in range(1000)])
        )
        self.assertEqual([each.isFound for each in gone], [True, False] * 500)
        await self.catalog.commit(RemoveBucket("b"))
