"""The catalog's contract: which blobs are named, and when nobody names them any more."""

from storagegate.storage.errors import ConcurrentChange, NoSuchBucket, PreconditionFailed
from storagegate.storage.mutations import (
    ClearCorrupt,
    ForgetBlobs,
    MarkCorrupt,
    PutObject,
    RemoveObjects,
)
from tests.contract.catalogcase import (
    ALWAYS,
    IF_ABSENT,
    CatalogCase,
    blobRecord,
    inlineRecord,
    newBlobsOf,
)


class ReferenceContract(CatalogCase):
    """References to blobs."""

    async def delete(self, *keys: bytes) -> None:
        """Remove objects."""
        await self.catalog.commit(RemoveObjects("b", [(key, None, ALWAYS) for key in keys]))

    async def test_deletedBlobIsGarbage(self) -> None:
        """The blobs of a removed object are reported, all of them, once."""
        await self.put(blobRecord(b"k", "x", "y"), blobRecord(b"l", "z"))
        await self.delete(b"k")
        self.assertEqual(sorted(self.collected), ["x", "y"])

    async def test_replacedBlobIsGarbage(self) -> None:
        """The blobs of a replaced object are reported, whatever replaces it."""
        await self.put(blobRecord(b"k", "x"), blobRecord(b"k", "y"), inlineRecord(b"k"))
        self.assertEqual(self.collected, ["x", "y"])

    async def test_copyKeepsItsBlobs(self) -> None:
        """A blob that a copy names stays until the copy goes too."""
        await self.put(blobRecord(b"k", "x", "y"))
        await self.catalog.commit(PutObject(blobRecord(b"copy", "y"), ALWAYS))
        await self.delete(b"k")
        self.assertEqual(self.collected, ["x"])
        await self.delete(b"copy")
        self.assertEqual(self.collected, ["x", "y"])

    async def test_copyOntoItself(self) -> None:
        """An object that is written over itself keeps its blobs."""
        await self.put(blobRecord(b"k", "x"))
        await self.catalog.commit(PutObject(blobRecord(b"k", "x", etag="e2"), ALWAYS))
        self.assertEqual(self.collected, [])
        await self.delete(b"k")
        self.assertEqual(self.collected, ["x"])

    async def test_objectsOfBlobs(self) -> None:
        """The objects that have bytes in a blob are found, but not by a catalog elsewhere."""
        await self.put(blobRecord(b"k", "x", "y"), blobRecord(b"l", "z"))
        found = await self.catalog.objectsOf(["y", "none"], 10)
        named = [] if self.catalog.isRemote else [("y", b"k", "b")]
        self.assertEqual([row[:3] for row in found], named)

    async def test_blobNamedTwice(self) -> None:
        """A blob that one object names twice goes with it."""
        await self.put(blobRecord(b"k", "x", "x"))
        await self.delete(b"k")
        self.assertEqual(self.collected, ["x"])

    async def test_garbageCannotBeNamed(self) -> None:
        """A blob that is being removed is not given to a new object, before and after it went."""
        await self.put(blobRecord(b"k", "x"))
        await self.delete(b"k")
        copy = blobRecord(b"copy", "x")
        await self.assertRefused(self.catalog.commit(PutObject(copy, ALWAYS)), ConcurrentChange)
        await self.catalog.commit(ForgetBlobs(["x"]))
        await self.assertRefused(self.catalog.commit(PutObject(copy, ALWAYS)), ConcurrentChange)
        self.assertIsNone((await self.catalog.object("b", b"copy"))[1])

    async def test_refusedWriteNamesNothing(self) -> None:
        """A refused write leaves its new blobs unknown: they are still its caller's."""
        await self.put(inlineRecord(b"k"))
        for record, condition, error in (
            (blobRecord(b"k", "x"), IF_ABSENT, PreconditionFailed),
            (blobRecord(b"n", "x", "gone"), ALWAYS, ConcurrentChange),
            (
                inlineRecord(b"k", bucket="none", content=blobRecord(b"", "x").content),
                ALWAYS,
                NoSuchBucket,
            ),
        ):
            write = self.catalog.commit(PutObject(record, condition, newBlobs=newBlobsOf("x")))
            await self.assertRefused(write, error)
        self.assertEqual(await self.catalog.knownBlobs(["x", "gone"]), frozenset())

    async def test_ledger(self) -> None:
        """Known, named and unnamed blobs are told apart, with size and CRC."""
        await self.catalog.commit(
            PutObject(blobRecord(b"k", "x", "y"), ALWAYS, newBlobs={"x": 5, "y": 2**32 - 1})
        )
        await self.catalog.commit(PutObject(blobRecord(b"l", "x"), ALWAYS))
        await self.put(blobRecord(b"m", "z"))
        await self.delete(b"m")
        rows = await self.catalog.blobRows("", 10)
        self.assertEqual(
            [(row.id, row.size, row.crc, row.refs, row.damaged) for row in rows],
            [
                ("x", 100_000, 5, 2, False),
                ("y", 100_000, 2**32 - 1, 1, False),
                ("z", 100_000, 7, 0, False),
            ],
        )
        self.assertEqual([row.id for row in await self.catalog.blobRows("x", 1)], ["y"])
        self.assertEqual([await self.catalog.blobRow(row.id) for row in rows], rows)
        self.assertIsNone(await self.catalog.blobRow("?"))
        self.assertEqual(await self.catalog.knownBlobs(["z", "x", "?"]), {"z", "x"})
        self.assertEqual(await self.catalog.referenced(["z", "x", "?"]), {"x"})
        self.assertEqual(await self.catalog.garbage("", 10), ["z"])
        self.assertEqual(await self.catalog.garbage("z", 10), [])

    async def test_forget(self) -> None:
        """Rows of blobs that nothing names go; those that are named stay."""
        await self.put(blobRecord(b"k", "x"), blobRecord(b"l", "y"))
        await self.delete(b"k")
        await self.catalog.commit(ForgetBlobs(["x", "y", "?"]))
        self.assertEqual(await self.catalog.knownBlobs(["x", "y"]), {"y"})

    async def test_damaged(self) -> None:
        """A blob that was found damaged is remembered, until it is found right again."""
        await self.put(blobRecord(b"k", "x", "y"))
        await self.catalog.commit(MarkCorrupt("y"))
        self.assertEqual(self.catalog.corruptBlobs(), {"y"})
        rows = await self.catalog.blobRows("", 10)
        self.assertEqual([row.damaged for row in rows], [False, True])
        for blob in ("y", "?"):
            await self.catalog.commit(ClearCorrupt(blob))
            self.assertEqual(self.catalog.corruptBlobs(), set())
        rows = await self.catalog.blobRows("", 10)
        self.assertEqual([row.damaged for row in rows], [False, False])
