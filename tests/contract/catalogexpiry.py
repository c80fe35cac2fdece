"""The catalog's contract: what the lifecycle scanner needs."""

from typing import Any

from msgspec.structs import replace

from storagegate.storage.errors import ConcurrentChange, NoSuchBucket, ObjectLocked
from storagegate.storage.mutations import (
    AbortUpload,
    CreateBucket,
    CreateUpload,
    DeleteObjects,
    PutLegalHold,
    PutProgress,
    PutRetention,
    PutSettings,
    SetObjectLock,
    SetVersioning,
)
from storagegate.storage.records import (
    GOVERNANCE,
    VERSIONING_ENABLED,
    VERSIONING_SUSPENDED,
    Attributes,
    Expiry,
    ExpiryRow,
    Removal,
    WriteCondition,
)
from tests.contract.catalogcase import ALWAYS, CatalogCase, bucketNamed, inlineRecord, uploadOf

NOW = 1_800_000_000_000


class ExpiryContract(CatalogCase):
    """Pages of versions, and removals that are right only while nothing changes."""

    async def expiryRows(self, prefix: bytes = b"", limit: int = 1000) -> list[ExpiryRow]:
        """Read all rows, in pages."""
        found: list[ExpiryRow] = []
        after = None
        while True:
            page = await self.catalog.expiryPage("b", prefix, after, limit)
            found += page
            if len(page) < limit:
                return found
            after = (page[-1].key.encode(), page[-1].sequence)

    async def expire(self, row: ExpiryRow, version: str | None, **more: Any) -> object:
        """Remove a row as a rule does; return the outcome."""
        bucket = await self.catalog.bucket("b")
        expiry = Expiry(row.sequence, row.noncurrentMs, row.tags, bucket.generation)
        entry = (row.key.encode(), version, WriteCondition(expiry=replace(expiry, **more)))
        [outcome] = await self.catalog.commit(DeleteObjects("b", [entry], "alice", NOW))
        return outcome

    async def assertKept(self, row: ExpiryRow, version: str | None, **more: Any) -> None:
        """Check that a removal is refused."""
        before = await self.expiryRows()
        self.assertIsInstance(await self.expire(row, version, **more), ConcurrentChange)
        self.assertEqual(await self.expiryRows(), before)

    async def stacked(self) -> list[ExpiryRow]:
        """Store three versions of one key, with a marker, and a key beside each of its sides."""
        await self.catalog.commit(SetVersioning("b", VERSIONING_ENABLED))
        tagged = replace(inlineRecord(b"k"), attributes=Attributes(tags="a=b"))
        await self.put(inlineRecord(b"j"), *[tagged] * 3, inlineRecord(b"l"))
        await self.catalog.commit(DeleteObjects("b", [(b"k", None, ALWAYS)], "alice", NOW))
        return await self.expiryRows()

    async def test_pages(self) -> None:
        """All rows come once, in order, whatever the pages are."""
        self.assertEqual(await self.expiryRows(), [])
        rows = await self.stacked()
        self.assertEqual([each.key for each in rows], ["j", "k", "k", "k", "k", "l"])
        self.assertEqual([each.isDeleteMarker for each in rows], [0, 1, 0, 0, 0, 0])
        numbers = [each.sequence for each in rows[1:5]]
        self.assertEqual(numbers, sorted(numbers, reverse=True))
        self.assertEqual([each.noncurrentMs is None for each in rows], [1, 1, 0, 0, 0, 1])
        self.assertEqual([each.tags for each in rows], ["", "", "a=b", "a=b", "a=b", ""])
        for limit in range(1, 8):
            self.assertEqual(await self.expiryRows(limit=limit), rows)
            self.assertEqual(await self.expiryRows(b"k", limit), rows[1:5])
        with self.assertRaises(NoSuchBucket):
            await self.catalog.expiryPage("none", b"", None, 1)

    async def test_unchanged(self) -> None:
        """What is as it was is removed."""
        j, marker, newest, older, oldest, _ = await self.stacked()
        for row in (oldest, older):
            self.assertIsInstance(await self.expire(row, row.versionId, newer=1), Removal)
        self.assertIsInstance(await self.expire(newest, newest.versionId), Removal)
        outcome = await self.expire(marker, marker.versionId, isOnly=True)
        self.assertEqual(outcome, Removal(True, marker.versionId, True))
        outcome = await self.expire(j, None)
        assert isinstance(outcome, Removal)
        self.assertTrue(outcome.isDeleteMarker)
        self.assertEqual([each.key for each in await self.expiryRows()], ["j", "j", "l"])

    async def test_changed(self) -> None:
        """What is not as it was stays."""
        j, marker, newest, _, oldest, _ = await self.stacked()
        await self.assertKept(oldest, oldest.versionId, newer=3)
        await self.assertKept(marker, marker.versionId, isOnly=True)
        await self.assertKept(oldest, oldest.versionId, noncurrentMs=1)
        await self.assertKept(oldest, oldest.versionId, noncurrentMs=None)
        await self.assertKept(j, None, sequence=j.sequence + 1000)
        await self.assertKept(j, None, tags="a=b")
        await self.put(inlineRecord(b"j"))
        await self.assertKept(j, None)
        await self.assertKept(j, j.versionId)
        # A version that has become current again.
        await self.catalog.commit(
            DeleteObjects("b", [(b"k", marker.versionId, ALWAYS)], "alice", NOW)
        )
        await self.assertKept(newest, newest.versionId)
        bucket = await self.catalog.bucket("b")
        await self.catalog.commit(PutSettings("b", {"lifecycle": b"x"}))
        await self.assertKept(oldest, oldest.versionId, generation=bucket.generation)
        self.assertIsInstance(await self.expire(oldest, oldest.versionId), Removal)

    async def test_suspended(self) -> None:
        """Where a delete replaces, nothing stays below a marker."""
        await self.put(inlineRecord(b"k"))
        await self.catalog.commit(SetVersioning("b", VERSIONING_SUSPENDED))
        [row] = await self.expiryRows()
        outcome = await self.expire(row, None)
        self.assertEqual(outcome, Removal(True, "null", True, True))
        [marker] = await self.expiryRows()
        self.assertTrue(marker.isDeleteMarker)

    async def test_locked(self) -> None:
        """A locked version stays, also if it was locked after the look."""
        await self.catalog.commit(SetVersioning("b", VERSIONING_ENABLED))
        await self.catalog.commit(SetObjectLock("b", None))
        await self.put(*[inlineRecord(b"k")] * 3)
        current, held, retained = await self.expiryRows()
        await self.catalog.commit(PutLegalHold("b", b"k", held.versionId, True))
        await self.catalog.commit(
            PutRetention("b", b"k", retained.versionId, GOVERNANCE, NOW + 1, NOW - 1000)
        )
        for row in (held, retained):
            self.assertIsInstance(await self.expire(row, row.versionId), ObjectLocked)
        _, held, retained = await self.expiryRows()
        for row in (held, retained):
            self.assertTrue(row.lock.isActive(NOW))
            self.assertIsInstance(await self.expire(row, row.versionId), ObjectLocked)
        self.assertFalse(retained.lock.isActive(NOW + 1))
        outcome = await self.expire(current, None)
        assert isinstance(outcome, Removal)
        self.assertTrue(outcome.isDeleteMarker)
        self.assertEqual(len(await self.expiryRows()), 4)

    async def test_manyAtOnce(self) -> None:
        """Of many, each is checked for itself."""
        await self.put(*(inlineRecord(b"%03d" % number) for number in range(200)))
        rows = await self.expiryRows()
        entries = [
            (
                row.key.encode(),
                None,
                WriteCondition(expiry=Expiry(row.sequence + number % 2, None, "", 0)),
            )
            for number, row in enumerate(rows)
        ]
        outcomes = await self.catalog.commit(DeleteObjects("b", entries, "alice", NOW))
        kinds = [type(each) for each in outcomes]
        self.assertEqual(kinds, [Removal, ConcurrentChange] * 100)
        self.assertEqual(await self.expiryRows(), rows[1::2])

    async def test_uploads(self) -> None:
        """An upload is not aborted by a rule that is gone."""
        await self.catalog.commit(CreateUpload(uploadOf(b"k", "u")))
        generation = await self.catalog.commit(PutSettings("b", {"lifecycle": b"x"}))
        other = self.catalog.commit(AbortUpload("b", b"k", "u", generation - 1))
        await self.assertRefused(other, ConcurrentChange)
        self.assertIsNotNone(await self.catalog.upload("b", b"k", "u"))
        await self.catalog.commit(AbortUpload("b", b"k", "u", generation))
        self.assertIsNone(await self.catalog.upload("b", b"k", "u"))

    async def test_bucketsWith(self) -> None:
        """Buckets are found by a setting, in order of their names."""
        for name in ("d", "a", "c"):
            await self.catalog.commit(CreateBucket(bucketNamed(name)))
            await self.catalog.commit(PutSettings(name, {"lifecycle": b"x", "cors": b"y"}))
        await self.catalog.commit(PutSettings("b", {"cors": b"y"}))
        find = self.catalog.bucketsWith
        self.assertEqual(await find("lifecycle", "", 10), ["a", "c", "d"])
        self.assertEqual(await find("lifecycle", "a", 1), ["c"])
        self.assertEqual(await find("lifecycle", "d", 1), [])
        self.assertEqual(await find("cors", "", 10), ["a", "b", "c", "d"])

    async def test_progress(self) -> None:
        """Where a task has come to is kept, for each task."""
        self.assertIsNone(await self.catalog.progress("t"))
        for document in (b"1", b"\0\xff"):
            await self.catalog.commit(PutProgress("t", document))
            self.assertEqual(await self.catalog.progress("t"), document)
        self.assertIsNone(await self.catalog.progress("other"))
