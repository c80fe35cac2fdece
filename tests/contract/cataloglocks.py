"""The catalog's contract: retentions and legal holds, and the defaults of buckets."""

from msgspec.structs import replace
from twisted.internet.defer import DeferredList

from storagegate.storage.errors import (
    BucketLocked,
    BucketNotLocked,
    BucketNotVersioned,
    NoSuchBucket,
    NoSuchKey,
    ObjectLocked,
)
from storagegate.storage.mutations import (
    CompleteUpload,
    CreateBucket,
    CreateUpload,
    DeleteObjects,
    PutLegalHold,
    PutObject,
    PutPart,
    PutRetention,
    SetObjectLock,
    SetVersioning,
)
from storagegate.storage.records import (
    COMPLIANCE,
    GOVERNANCE,
    UNLOCKED,
    VERSIONING_ENABLED,
    VERSIONING_SUSPENDED,
    Attributes,
    DefaultRetention,
    ObjectLock,
    ObjectRecord,
    Removal,
    WriteCondition,
)
from tests.contract.catalogcase import (
    ALWAYS,
    CatalogCase,
    bucketNamed,
    inlineRecord,
    newBlobsOf,
    partOf,
    uploadOf,
)

NOW = 1_700_000_000_123
"""When the records of a case are made."""

MADE = 1_700_000_001_000
"""The whole second from which defaults count then."""

DAY = 86_400_000
BYPASS = WriteCondition(bypass=True)


class LockContract(CatalogCase):
    """What keeps a version from being removed."""

    async def enableLock(self, default: DefaultRetention | None = None) -> None:
        """Enable versioning and object lock."""
        await self.catalog.commit(SetVersioning("b", VERSIONING_ENABLED))
        await self.catalog.commit(SetObjectLock("b", default))

    async def putLocked(self, key: bytes = b"k", lock: ObjectLock = UNLOCKED) -> ObjectRecord:
        """Store an object with a lock; return its record, which is what a look-up finds."""
        record: ObjectRecord = await self.catalog.commit(
            PutObject(inlineRecord(key, attributes=Attributes(lock=lock)), ALWAYS)
        )
        self.assertEqual((await self.catalog.object("b", key))[1], record)
        return record

    async def lockOf(self, record: ObjectRecord) -> ObjectLock:
        """Return the lock that a version has now."""
        _, found = await self.catalog.object("b", record.key, record.versionId, verify=True)
        lock: ObjectLock = found.attributes.lock
        return lock

    async def removes(
        self, *records: ObjectRecord, condition: WriteCondition = ALWAYS, atMs: int = NOW
    ) -> list[bool]:
        """Remove versions; return for each whether that was possible."""
        entries = [(each.key, each.versionId, condition) for each in records]
        done = await self.catalog.commit(DeleteObjects("b", entries, "alice", atMs))
        for each in done:
            self.assertIsInstance(each, Removal | ObjectLocked)
        return [isinstance(each, Removal) for each in done]

    async def test_locksBuckets(self) -> None:
        """Only a bucket with versioning gets object lock, and both stay."""
        await self.assertRefused(self.catalog.commit(SetObjectLock("b", None)), BucketNotVersioned)
        await self.assertRefused(self.catalog.commit(SetObjectLock("none", None)), NoSuchBucket)
        await self.catalog.commit(SetVersioning("b", VERSIONING_SUSPENDED))
        await self.assertRefused(self.catalog.commit(SetObjectLock("b", None)), BucketNotVersioned)
        await self.enableLock()
        await self.enableLock()
        self.assertTrue((await self.catalog.bucket("b")).lockEnabled)
        suspended = self.catalog.commit(SetVersioning("b", VERSIONING_SUSPENDED))
        await self.assertRefused(suspended, BucketLocked)
        made = replace(bucketNamed("c"), versioning=VERSIONING_ENABLED, lockEnabled=True)
        await self.catalog.commit(CreateBucket(made))
        self.assertEqual(await self.catalog.bucket("c"), made)

    async def test_withoutLock(self) -> None:
        """A lock in a bucket without object lock is refused, and nothing is stored."""
        record = inlineRecord(b"k", attributes=Attributes(lock=ObjectLock(legalHold=True)))
        await self.assertRefused(self.catalog.commit(PutObject(record, ALWAYS)), BucketNotLocked)
        await self.put(inlineRecord(b"k"))
        for change in (
            self.catalog.commit(PutRetention("b", b"k", None, GOVERNANCE, NOW + 1, NOW)),
            self.catalog.commit(PutLegalHold("b", b"k", None, True)),
        ):
            await self.assertRefused(change, BucketNotLocked)

    async def test_removals(self) -> None:
        """A locked version stays until its retention ends and its hold is released."""
        await self.enableLock()
        governed = await self.putLocked(lock=ObjectLock(GOVERNANCE, NOW + 5))
        complied = await self.putLocked(lock=ObjectLock(COMPLIANCE, NOW + 5))
        held = await self.putLocked(lock=ObjectLock(GOVERNANCE, NOW + 5, True))
        free = await self.putLocked(lock=ObjectLock(legalHold=False))
        rows = (governed, complied, held)
        self.assertEqual(await self.removes(*rows, free), [False, False, False, True])
        self.assertEqual(await self.removes(*rows, atMs=NOW + 4), [False] * 3)
        [plain] = await self.catalog.commit(
            DeleteObjects("b", [(b"k", None, ALWAYS)], "alice", NOW)
        )
        self.assertTrue(plain.isDeleteMarker)
        self.assertEqual(
            await self.removes(*rows, condition=BYPASS), [True, False, False], "a bypass"
        )
        self.assertEqual(await self.removes(*rows[1:], atMs=NOW + 5), [True, False])
        await self.catalog.commit(PutLegalHold("b", b"k", held.versionId, False))
        self.assertEqual(await self.removes(held, atMs=NOW + 5), [True])

    async def test_promoted(self) -> None:
        """A lock goes with its version, out of the current objects and back."""
        await self.enableLock()
        lock = ObjectLock(COMPLIANCE, NOW + 5, False)
        old = await self.putLocked(lock=lock)
        new = await self.putLocked()
        self.assertEqual((await self.lockOf(old), await self.lockOf(new)), (lock, UNLOCKED))
        self.assertEqual(await self.removes(old, new), [False, True])
        self.assertEqual((await self.catalog.object("b", b"k"))[1], old)
        self.assertEqual(await self.removes(old), [False])

    async def test_neverStale(self) -> None:
        """A version that was read, current or not, is shown with the lock that it has now."""
        await self.enableLock()
        records = [await self.putLocked() for _ in range(2)]

        async def assertLocked(lock: ObjectLock) -> None:
            for _ in range(3):
                for record in records:
                    _, found = await self.catalog.object("b", b"k", record.versionId)
                    self.assertEqual(found.attributes.lock, lock)

        await assertLocked(UNLOCKED)
        for mode, untilMs in ((GOVERNANCE, NOW + 1000), (COMPLIANCE, NOW + 2000)):
            for isOn in (True, False):
                for record in records:
                    name = ("b", b"k", record.versionId)
                    await self.catalog.commit(PutRetention(*name, mode, untilMs, NOW, True))
                    await self.catalog.commit(PutLegalHold(*name, isOn))
                await assertLocked(ObjectLock(mode, untilMs, isOn))

    async def test_nullVersion(self) -> None:
        """A version from before versioning can be locked, above others and below."""
        await self.put(inlineRecord(b"k"))
        await self.enableLock()
        await self.catalog.commit(PutLegalHold("b", b"k", "null", True))
        (_, record) = await self.catalog.object("b", b"k")
        self.assertEqual(await self.removes(record), [False])
        await self.putLocked()
        self.assertEqual(await self.removes(record), [False])
        await self.catalog.commit(PutLegalHold("b", b"k", "null", False))
        self.assertEqual(await self.removes(record), [True])

    async def test_retentions(self) -> None:
        """A retention is extended by all, and else changed by a bypass or not at all."""
        await self.enableLock()
        for before, after, isFree, isBypassed in (
            (UNLOCKED, ObjectLock(GOVERNANCE, NOW + 5), True, True),
            (ObjectLock(GOVERNANCE, NOW + 5), ObjectLock(GOVERNANCE, NOW + 6), True, True),
            (ObjectLock(GOVERNANCE, NOW + 5), ObjectLock(GOVERNANCE, NOW + 4), False, True),
            (ObjectLock(GOVERNANCE, NOW + 5), ObjectLock(COMPLIANCE, NOW + 6), False, True),
            (ObjectLock(GOVERNANCE, NOW + 5), UNLOCKED, False, True),
            (ObjectLock(COMPLIANCE, NOW + 5), ObjectLock(COMPLIANCE, NOW + 6), True, True),
            (ObjectLock(COMPLIANCE, NOW + 5), ObjectLock(COMPLIANCE, NOW + 4), False, False),
            (ObjectLock(COMPLIANCE, NOW + 5), ObjectLock(GOVERNANCE, NOW + 9), False, False),
            (ObjectLock(COMPLIANCE, NOW + 5), UNLOCKED, False, False),
            (ObjectLock(COMPLIANCE, NOW), ObjectLock(GOVERNANCE, NOW + 1), True, True),
            (ObjectLock(COMPLIANCE, NOW), UNLOCKED, True, True),
        ):
            for bypass, isAllowed in ((False, isFree), (True, isBypassed)):
                record = await self.putLocked(lock=before)
                change = self.catalog.commit(
                    PutRetention(
                        "b", b"k", record.versionId, after.mode, after.untilMs, NOW, bypass
                    )
                )
                if isAllowed:
                    await change
                else:
                    await self.assertRefused(change, ObjectLocked)
                self.assertEqual(await self.lockOf(record), after if isAllowed else before)

    async def test_changesOfNothing(self) -> None:
        """The lock of what is not there, or is a marker, does not change."""
        await self.enableLock()
        await self.putLocked()
        [removal] = await self.catalog.commit(
            DeleteObjects("b", [(b"k", None, ALWAYS)], "alice", NOW)
        )
        for bucket, key, version, kind in (
            ("none", b"k", None, NoSuchBucket),
            ("b", b"none", None, NoSuchKey),
            ("b", b"k", None, NoSuchKey),
            ("b", b"k", self.otherVersion(), NoSuchKey),
            ("b", b"k", removal.versionId, NoSuchKey),
            ("b", b"k", "null", NoSuchKey),
        ):
            await self.assertRefused(
                self.catalog.commit(PutLegalHold(bucket, key, version, True)), kind
            )
            change = self.catalog.commit(
                PutRetention(bucket, key, version, GOVERNANCE, NOW + 1, NOW)
            )
            await self.assertRefused(change, kind)

    async def test_defaults(self) -> None:
        """The default is that of the moment of the write; what a request names wins."""
        await self.catalog.commit(SetVersioning("b", VERSIONING_ENABLED))
        puts = [
            self.catalog.commit(SetObjectLock("b", DefaultRetention(GOVERNANCE, days=2))),
            self.catalog.commit(PutObject(inlineRecord(b"k"), ALWAYS)),
            self.catalog.commit(SetObjectLock("b", DefaultRetention(COMPLIANCE, years=1))),
            self.catalog.commit(PutObject(inlineRecord(b"k"), ALWAYS)),
            self.catalog.commit(SetObjectLock("b", None)),
            self.catalog.commit(PutObject(inlineRecord(b"k"), ALWAYS)),
        ]
        await DeferredList(puts, fireOnOneErrback=True)
        records = [await put for put in puts[1::2]]
        self.assertEqual(
            [await self.lockOf(record) for record in records],
            [
                ObjectLock(GOVERNANCE, MADE + 2 * DAY),
                ObjectLock(COMPLIANCE, MADE + 366 * DAY),
                UNLOCKED,
            ],
        )
        await self.enableLock(DefaultRetention(GOVERNANCE, days=2))
        named = await self.putLocked(lock=ObjectLock(COMPLIANCE, NOW - 1))
        held = await self.putLocked(lock=ObjectLock(legalHold=True))
        self.assertEqual(await self.lockOf(named), ObjectLock(COMPLIANCE, NOW - 1))
        self.assertEqual(await self.lockOf(held), ObjectLock(GOVERNANCE, MADE + 2 * DAY, True))

    async def test_completions(self) -> None:
        """An upload keeps what it names; without that the default is that of its completion."""
        await self.enableLock()
        made = []
        for uploadId, blob, lock in (
            ("u", "x", ObjectLock(COMPLIANCE, NOW - 1)),
            ("v", "y", UNLOCKED),
        ):
            upload = uploadOf(b"k", uploadId, attributes=Attributes(lock=lock))
            await self.catalog.commit(CreateUpload(upload))
            self.assertEqual(await self.catalog.upload("b", b"k", uploadId), upload)
            part = partOf(1, blob)
            await self.catalog.commit(PutPart("b", b"k", uploadId, part, newBlobs=newBlobsOf(blob)))
            await self.catalog.commit(SetObjectLock("b", DefaultRetention(GOVERNANCE, days=1)))
            record = inlineRecord(b"k", b"", attributes=upload.attributes)
            made.append(
                await self.catalog.commit(CompleteUpload(uploadId, record, [(1, "p1")], ALWAYS))
            )
        self.assertEqual(
            [await self.lockOf(each) for each in made],
            [ObjectLock(COMPLIANCE, NOW - 1), ObjectLock(GOVERNANCE, MADE + DAY)],
        )
