"""The catalog's contract: versions of objects, and settings of buckets."""

from msgspec.structs import replace
from twisted.internet.defer import DeferredList

from storagegate.storage.errors import (
    BucketChanged,
    BucketNotEmpty,
    ConcurrentChange,
    InvalidVersionId,
    NoSuchBucket,
    NoSuchUpload,
    PreconditionFailed,
    SettingsChanged,
    StoreError,
)
from storagegate.storage.mutations import (
    AbortUpload,
    AddBucket,
    CompleteUpload,
    CreateUpload,
    PutObject,
    PutPart,
    PutSettings,
    PutTags,
    RemoveBucket,
    RemoveObjects,
    SetVersioning,
)
from storagegate.storage.ranges import VersionRange
from storagegate.storage.records import (
    BUCKET_KEY,
    VERSIONING_ENABLED,
    VERSIONING_SUSPENDED,
    Attributes,
    Bucket,
    ObjectEncryption,
    ObjectRecord,
    OlderVersions,
    Removal,
    WriteCondition,
)
from tests.contract.catalogcase import (
    ALWAYS,
    CatalogCase,
    blobRecord,
    bucketNamed,
    inlineRecord,
    newBlobsOf,
    partOf,
    uploadOf,
)


class VersionContract(CatalogCase):
    """The versions of a key; random histories are compared with a model elsewhere."""

    async def setVersioning(self, versioning: str = VERSIONING_ENABLED) -> Bucket:
        """Enable versioning; return the bucket as it is then."""
        await self.catalog.commit(SetVersioning("b", versioning))
        return replace(bucketNamed("b"), versioning=versioning)

    async def stored(self, key: bytes, body: bytes) -> ObjectRecord:
        """Store an object; return its record."""
        record: ObjectRecord = await self.catalog.commit(PutObject(inlineRecord(key, body), ALWAYS))
        return record

    async def remove(self, *names: tuple[bytes, str | None]) -> list[Removal | Exception]:
        """Remove objects and versions in one request."""
        entries = [(key, version, ALWAYS) for key, version in names]
        removed: list[Removal | Exception] = await self.catalog.commit(
            RemoveObjects("b", entries, "carol", 1_800_000_000_000)
        )
        return removed

    async def ids(self) -> list[str]:
        """List the ids of all versions, by key, the newest first."""
        page = await self.catalog.listVersions(VersionRange("b", b"", b"", b"", 1000))
        return [each.versionId for each in page.versions]

    async def test_bucketIsNeverStale(self) -> None:
        """A bucket that was read, alone or with an object, is not shown as it was before."""
        await self.put(inlineRecord(b"k"))
        for versioning in (VERSIONING_ENABLED, VERSIONING_SUSPENDED, VERSIONING_ENABLED):
            for _ in range(2):
                await self.catalog.object("b", b"k")
                await self.catalog.bucket("b")
            bucket = await self.setVersioning(versioning)
            self.assertEqual(await self.catalog.bucket("b"), bucket)
            self.assertEqual((await self.catalog.object("b", b"k"))[0], bucket)
            self.assertIn(bucket, await self.catalog.buckets(None, "", "", 10))
        await self.assertRefused(
            self.catalog.commit(SetVersioning("none", "Enabled")), NoSuchBucket
        )

    async def test_decidedWhenWritten(self) -> None:
        """A write that waits beside a change of versioning obeys what is committed before it."""
        waiting = [
            self.catalog.commit(PutObject(inlineRecord(b"k", b"1"), ALWAYS)),
            self.catalog.commit(SetVersioning("b", VERSIONING_ENABLED)),
            self.catalog.commit(PutObject(inlineRecord(b"k", b"2"), ALWAYS)),
            self.catalog.commit(PutObject(inlineRecord(b"k", b"3"), ALWAYS)),
            self.catalog.commit(SetVersioning("b", VERSIONING_SUSPENDED)),
            self.catalog.commit(PutObject(inlineRecord(b"k", b"4"), ALWAYS)),
        ]
        await DeferredList(waiting, fireOnOneErrback=True)
        ids = [each.versionId for each in [await waiting[2], await waiting[3]]]
        self.assertEqual(await self.ids(), ["null", *reversed(ids)])
        self.assertEqual((await self.catalog.object("b", b"k"))[1].content.inline, b"4")

    async def test_versionsAreFound(self) -> None:
        """Every version is found by its id as it was stored, and no other key's is."""
        bucket = await self.setVersioning()
        records = [await self.stored(b"k", b"%d" % n) for n in range(3)]
        other = await self.stored(b"l", b"x")
        self.assertEqual(len({each.versionId for each in [*records, other]}), 4)
        for record in records:
            for verify in (False, True):
                found = await self.catalog.object("b", b"k", record.versionId, verify=verify)
                self.assertEqual(found, (bucket, record))
        for key, version in ((b"k", other.versionId), (b"k", "null"), (b"none", "null")):
            self.assertEqual(await self.catalog.object("b", key, version), (bucket, None))
        with self.assertRaises(InvalidVersionId):
            self.catalog.checkVersionId("x")

    async def test_versionIsNeverStale(self) -> None:
        """
        A version that was read is not shown as it was before an acknowledged change: of its tags,
        of its bucket, of what C{null} names, and its end.
        """
        catalog = self.catalog
        null = await self.stored(b"k", b"null")
        bucket = await self.setVersioning()
        made = [await self.stored(b"k", b"%d" % n) for n in range(2)]

        async def assertFound(version: str, record: ObjectRecord | None) -> None:
            for _ in range(3):
                self.assertEqual(await catalog.object("b", b"k", version), (bucket, record))

        async def assertAllFound() -> None:
            for each in (null, *made):
                await assertFound(each.versionId, each)

        await assertAllFound()
        for index, tags in enumerate(("a=1", "b=2")):
            await catalog.commit(PutTags("b", b"k", made[index].versionId, tags))
            attributes = replace(made[index].attributes, tags=tags)
            made[index] = replace(made[index], attributes=attributes)
            await assertAllFound()
        bucket = await self.setVersioning(VERSIONING_SUSPENDED)
        await assertAllFound()
        generation = await catalog.commit(PutSettings("b", {"policy": b"{}"}))
        bucket = replace(bucket, generation=generation)
        await assertAllFound()
        null = await self.stored(b"k", b"null again")
        await assertAllFound()
        await self.remove((b"k", made[0].versionId))
        await assertFound(made[0].versionId, None)
        await assertFound(made[1].versionId, made[1])
        await self.remove((b"k", None))
        for _ in range(3):
            _, found = await catalog.object("b", b"k", "null")
            self.assertTrue(found.isDeleteMarker)
        await self.remove((b"k", "null"), (b"k", made[1].versionId))
        await assertFound("null", None)
        await assertFound(made[1].versionId, None)

    async def test_tagsOfSeen(self) -> None:
        """Tags of an object as it was seen are stored only while it has those tags."""
        catalog = self.catalog

        async def put(seen: tuple[int, str], tags: str, bucket: str = "b") -> None:
            await catalog.commit(PutTags(bucket, b"k", None, tags, seen))

        async def assertRefused(seen: tuple[int, str]) -> None:
            before = await catalog.object("b", b"k")
            with self.assertRaises(ConcurrentChange):
                await put(seen, "lost=1")
            self.assertEqual(await catalog.object("b", b"k"), before)

        await assertRefused((1, ""))
        for versioning in (None, VERSIONING_ENABLED):
            if versioning is not None:
                await self.setVersioning(versioning)
            seen = (await self.stored(b"k", b"x")).sequence
            for before, tags in (("", "a=1"), ("a=1", "b=2"), ("b=2", ""), ("", "c=3")):
                await put((seen, before), tags)
                _, found = await catalog.object("b", b"k")
                self.assertEqual(found.attributes.tags, tags)
                await assertRefused((seen, before))
            await assertRefused((seen + 1, "c=3"))
        newer = (await self.stored(b"k", b"x")).sequence
        await assertRefused((seen, "c=3"))
        await put((newer, ""), "d=4")
        await self.remove((b"k", None))
        await assertRefused((newer, "d=4"))
        with self.assertRaises(StoreError):
            await put((newer, "d=4"), "", "no-bucket")

    async def test_pagesOfVersions(self) -> None:
        """Pages of any size show all versions in order, of high stacks and of low ones."""
        bucket = (await self.setVersioning()).name
        heights = {b"a": 1, b"a!": 5, b"b/1": 1, b"b/2": 3, b"c\xc3\xa4": 2, b"d": 1, b"e": 1}
        wanted = []
        for key, height in heights.items():
            made = [(await self.stored(key, b"x")).versionId for _ in range(height)]
            if key in (b"b/2", b"d"):
                [removal] = await self.remove((key, None))
                assert isinstance(removal, Removal)
                made.append(removal.versionId)
            wanted += [(key.decode(), version, version == made[-1]) for version in reversed(made)]
        for limit in range(1, len(wanted) + 2):
            found, after, versionAfter, isLast = [], b"", None, False
            while not isLast:
                page = await self.catalog.listVersions(
                    VersionRange(bucket, b"", b"", after, limit, versionAfter)
                )
                self.assertLessEqual(len(page.versions), limit)
                found += [(row.key, row.versionId, bool(row.isLatest)) for row in page.versions]
                after, versionAfter = (page.last or "").encode(), page.lastVersion
                isLast = page.last is None
            self.assertEqual(found, wanted, limit)

    async def test_deleteMarkers(self) -> None:
        """A delete puts a marker on top, which is found by its id, and as the newest version."""
        await self.setVersioning()
        record = await self.stored(b"k", b"1")
        [removal] = await self.remove((b"k", None))
        assert isinstance(removal, Removal)
        self.assertEqual(removal, Removal(True, removal.versionId, True, True))
        self.assertIsNone((await self.catalog.object("b", b"k"))[1])
        _, marker = await self.catalog.object("b", b"k", removal.versionId)
        self.assertTrue(marker.isDeleteMarker)
        self.assertEqual((marker.account, marker.modifiedMs), ("carol", 1_800_000_000_000))
        self.assertEqual(await self.catalog.deleteMarker("b", b"k"), marker)
        [removal] = await self.remove((b"k", removal.versionId))
        assert isinstance(removal, Removal) and removal.current is not None
        self.assertTrue(removal.isDeleteMarker and removal.isChanged)
        self.assertEqual(removal.current.sequence, record.sequence)
        self.assertEqual((removal.current.bucket, removal.current.etag), ("b", "e1"))
        self.assertIsNone(await self.catalog.deleteMarker("b", b"k"))
        self.assertEqual((await self.catalog.object("b", b"k"))[1], record)

    async def test_removedTogether(self) -> None:
        """Removals of several versions of a key in one request are as one after the other."""
        await self.setVersioning()
        records = [await self.stored(b"k", b"%d" % n) for n in range(5)]
        ids = [each.versionId for each in records]
        removed = await self.remove(
            (b"k", ids[4]), (b"k", ids[3]), (b"k", ids[3]), (b"k", ids[0]), (b"l", None)
        )
        found = [each.isFound for each in removed if isinstance(each, Removal)]
        self.assertEqual(found, [True, True, False, True, False])
        self.assertEqual((await self.catalog.object("b", b"k"))[1], records[2])
        removed = await self.remove((b"k", ids[2]), (b"k", None), (b"k", ids[1]))
        self.assertEqual(len(await self.ids()), 2)
        self.assertIsNone((await self.catalog.object("b", b"k"))[1])

    async def test_conditionsOfVersions(self) -> None:
        """A condition judges the version that is named, or the current one."""
        await self.setVersioning()
        old, new = await self.stored(b"k", b"old"), await self.stored(b"k", b"newer")
        second = new.modifiedMs // 1000
        for version, condition, isHeld in (
            (old.versionId, WriteCondition(size=5), False),
            (old.versionId, WriteCondition(size=3, modifiedSeconds=second), True),
            (None, WriteCondition(modifiedSeconds=second + 1), False),
            (None, WriteCondition(size=5), True),
            (None, WriteCondition(size=77), True),
        ):
            [result] = await self.catalog.commit(RemoveObjects("b", [(b"k", version, condition)]))
            self.assertIsInstance(result, Removal if isHeld else PreconditionFailed)

    async def test_bytesOfVersions(self) -> None:
        """Versions keep their blobs, and count, until the last of them goes."""
        await self.setVersioning()
        await self.put(blobRecord(b"k", "x"), inlineRecord(b"k", b"12345"))
        await self.remove((b"k", None))
        usage = (await self.catalog.usage(1)).buckets[0]
        self.assertEqual((usage.objects, usage.bytes), (2, 100_005))
        self.assertEqual((await self.catalog.blobRow("x")).refs, 1)
        await self.assertRefused(self.catalog.commit(RemoveBucket("b")), BucketNotEmpty)
        ids = await self.ids()
        await self.remove(*((b"k", version) for version in ids[1:]))
        self.assertEqual(self.collected, ["x"])
        await self.assertRefused(self.catalog.commit(RemoveBucket("b")), BucketNotEmpty)
        await self.remove((b"k", ids[0]))
        self.assertEqual((await self.catalog.usage(1)).buckets[0].objects, 0)
        await self.catalog.commit(RemoveBucket("b"))

    async def test_olderVersions(self) -> None:
        """Older versions are counted apart, without delete markers, up to a limit of rows."""
        self.assertEqual(await self.catalog.olderVersions("b", 5), OlderVersions(0, 0))
        await self.setVersioning()
        await self.put(*(inlineRecord(b"k", body) for body in (b"1", b"22", b"333")))
        await self.put(inlineRecord(b"l", b"4444"))
        self.assertEqual(await self.catalog.olderVersions("b", 5), OlderVersions(2, 3))
        await self.remove((b"k", None))
        usage = (await self.catalog.usage(1)).buckets[0]
        self.assertEqual((usage.objects, usage.bytes), (4, 10))
        self.assertEqual(await self.catalog.olderVersions("b", 4), OlderVersions(3, 6))
        self.assertIsNone(await self.catalog.olderVersions("b", 3))
        self.assertEqual(await self.catalog.olderVersions("none", 5), OlderVersions(0, 0))

    async def test_completed(self) -> None:
        """What an upload has become is found, current or not, until it is removed."""
        await self.setVersioning()
        for uploadId, blob in ("u", "x"), ("v", "y"):
            await self.catalog.commit(CreateUpload(uploadOf(b"k", uploadId)))
            part = partOf(1, blob)
            await self.catalog.commit(PutPart("b", b"k", uploadId, part, newBlobs=newBlobsOf(blob)))
        made = {}
        for uploadId in ("u", "v"):
            self.assertIsNone(await self.catalog.completed("b", b"k", uploadId))
            record = inlineRecord(b"k", b"", "e")
            made[uploadId] = await self.catalog.commit(
                CompleteUpload(uploadId, record, [(1, "p1")], ALWAYS)
            )
        for uploadId, record in made.items():
            self.assertEqual(await self.catalog.completed("b", b"k", uploadId), record)
            self.assertIsNone(await self.catalog.completed("b", b"l", uploadId))
        await self.remove((b"k", made["u"].versionId))
        self.assertIsNone(await self.catalog.completed("b", b"k", "u"))
        again = self.catalog.commit(CompleteUpload("u", made["u"], [(1, "p1")], ALWAYS))
        await self.assertRefused(again, NoSuchUpload)


class SettingContract(CatalogCase):
    """The settings of buckets."""

    async def test_settings(self) -> None:
        """Documents are kept as they are; each change has a generation that never repeats."""
        self.assertEqual(await self.catalog.settings("b"), (0, {}))
        first = await self.catalog.commit(PutSettings("b", {"policy": b"{ }", "cors": b"\0\xff"}))
        self.assertEqual(
            await self.catalog.settings("b"), (first, {"policy": b"{ }", "cors": b"\0\xff"})
        )
        second = await self.catalog.commit(
            PutSettings("b", {"policy": None, "acl": b"", "none": None})
        )
        self.assertEqual(
            await self.catalog.settings("b"), (second, {"cors": b"\0\xff", "acl": b""})
        )
        self.assertEqual((await self.catalog.bucket("b")).generation, second)
        self.assertEqual((await self.catalog.object("b", b"k"))[0].generation, second)
        await self.catalog.commit(RemoveBucket("b"))
        await self.catalog.commit(AddBucket(bucketNamed("b")))
        self.assertEqual(await self.catalog.settings("b"), (0, {}))
        third = await self.catalog.commit(PutSettings("b", {"cors": b"x"}))
        self.assertEqual(len({0, first, second, third}), 4)

    async def test_expectedSettings(self) -> None:
        """Documents are stored only if the present ones are those that the change expects."""
        commit, settings = self.catalog.commit, self.catalog.settings
        first = await commit(PutSettings("b", {"a": b"1"}, {"a": None, "x": None}))
        self.assertEqual(await settings("b"), (first, {"a": b"1"}))
        for expected in ({"a": None}, {"a": b"2"}, {"x": b"1"}, {"a": b"1", "x": b""}):
            refused = commit(PutSettings("b", {"a": b"3", "b": b"3"}, expected))
            await self.assertRefused(refused, SettingsChanged)
        self.assertEqual(await settings("b"), (first, {"a": b"1"}))
        second = await commit(PutSettings("b", {"a": b"2", "c": b"4"}, {"a": b"1", "x": None}))
        self.assertEqual(await settings("b"), (second, {"a": b"2", "c": b"4"}))
        self.assertEqual((await self.catalog.bucket("b")).generation, second)
        third = await commit(PutSettings("b", {"a": None}, {"a": b"2"}))
        self.assertEqual(await settings("b"), (third, {"c": b"4"}))
        missing = commit(PutSettings("none", {"a": b"1"}, {"a": None}))
        await self.assertRefused(missing, NoSuchBucket)

    async def test_bucketKeys(self) -> None:
        """What a bucket's key encrypts is stored only if the bucket has this key."""
        commit = self.catalog.commit
        plain = replace(inlineRecord(b"k", b"sealed"), attributes=Attributes(metadata={"a": "1"}))
        sealed = ObjectEncryption("AES256", "wrapped", "id")
        record = replace(plain, attributes=replace(plain.attributes, encryption=sealed))
        begun = uploadOf(b"k", "u")
        upload = replace(begun, attributes=record.attributes)
        for documents in ({}, {BUCKET_KEY + "other": b"{}"}, {"id": b"{}"}):
            if documents:
                await commit(PutSettings("b", documents))
            await self.assertRefused(commit(PutObject(record, ALWAYS)), BucketChanged)
            await self.assertRefused(commit(CreateUpload(upload)), BucketChanged)
        # A client's key belongs to no bucket, and metadata may look like the description of a key.
        hers = replace(plain.attributes, encryption=ObjectEncryption("SSE-C", "wrapped"))
        alike = Attributes(metadata={"encryption": '{"bucketKey":"id"}', "bucketkey": "id"})
        for attributes in (hers, alike):
            await commit(PutObject(replace(plain, attributes=attributes), ALWAYS))
            await commit(CreateUpload(replace(begun, attributes=attributes)))
            await commit(AbortUpload("b", b"k", begun.uploadId))
        await commit(PutSettings("b", {BUCKET_KEY + "id": b"{}"}))
        await commit(PutObject(record, ALWAYS))
        await commit(CreateUpload(upload))
        self.assertEqual((await self.catalog.object("b", b"k"))[1].attributes, record.attributes)

    async def test_settingsOfNoBucket(self) -> None:
        """A bucket that does not exist has no settings."""
        await self.assertRefused(
            self.catalog.commit(PutSettings("none", {"cors": b""})), NoSuchBucket
        )
        with self.assertRaises(NoSuchBucket):
            await self.catalog.settings("none")
