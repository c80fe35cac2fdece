"""The catalog's contract: lists of objects and uploads."""

from twisted.internet.defer import DeferredList

from storagegate.storage.errors import NoSuchBucket
from storagegate.storage.mutations import CreateUpload, PutObject
from storagegate.storage.ranges import ObjectRange, UploadRange
from storagegate.storage.records import (
    Attributes,
    Checksum,
    ListedObject,
    ObjectListing,
    UploadListing,
)
from tests.contract.catalogcase import ALWAYS, CatalogCase, inlineRecord, uploadOf


class ListContract(CatalogCase):
    """Lists of objects and of uploads in progress."""

    async def fill(self, *keys: str) -> None:
        """Store an object under each key."""
        await DeferredList(
            [self.catalog.commit(PutObject(inlineRecord(key.encode()), ALWAYS)) for key in keys]
        )

    async def page(
        self, prefix: str = "", delimiter: str = "", after: str = "", limit: int = 1000
    ) -> tuple[list[str], list[str], str | None]:
        """List a page: keys, common prefixes, the last."""
        page: ObjectListing = await self.catalog.listObjects(
            ObjectRange("b", prefix.encode(), delimiter.encode(), after.encode(), limit)
        )
        return [listed.key for listed in page.objects], list(page.prefixes), page.last

    async def test_listedObject(self) -> None:
        """A list shows what was stored."""
        attributes = Attributes(
            checksum=Checksum("SHA256", "x", "COMPOSITE"), storageClass="GLACIER"
        )
        await self.put(inlineRecord(b"k\0\xc3\xa9", b"12", "e9", attributes=attributes))
        page = await self.catalog.listObjects(ObjectRange("b", b"", b"", b"", 10))
        self.assertEqual(
            page.objects,
            (
                ListedObject(
                    "k\0é",
                    2,
                    "e9",
                    1_700_000_000_123,
                    "alice",
                    "GLACIER",
                    "SHA256",
                    "COMPOSITE",
                ),
            ),
        )

    async def test_contentTypes(self) -> None:
        """A list shows content types where they are asked for, also beside common prefixes."""
        await self.put(inlineRecord(b"a", b"", attributes=Attributes(contentType="text/x")))
        await self.put(inlineRecord(b"b/c", b""))
        await self.put(inlineRecord(b"d", b""))
        for delimiter, usual in ((b"", ["b/c", "d"]), (b"/", ["d"])):
            plain = await self.catalog.listObjects(ObjectRange("b", b"", delimiter, b"", 10))
            self.assertEqual({row.contentType for row in plain.objects}, {""})
            page = await self.catalog.listObjects(
                ObjectRange("b", b"", delimiter, b"", 10, contentTypes=True)
            )
            types = {row.key: row.contentType for row in page.objects}
            self.assertEqual(types, {"a": "text/x"} | dict.fromkeys(usual, "binary/octet-stream"))

    async def test_missingBucket(self) -> None:
        """A missing bucket cannot be listed."""
        await self.assertRefused(
            self.catalog.listObjects(ObjectRange("none", b"", b"", b"", 0)), NoSuchBucket
        )
        await self.assertRefused(
            self.catalog.uploads(UploadRange("none", b"", b"", b"", 0)), NoSuchBucket
        )

    async def test_order(self) -> None:
        """Keys are in the order of their UTF-8 bytes."""
        await self.fill("b", "a", "B", "é", "\U00010000", "\uffff", "a/", "a!", "a\0")
        self.assertEqual(
            await self.page(),
            (["B", "a", "a\0", "a!", "a/", "b", "é", "\uffff", "\U00010000"], [], None),
        )

    async def test_pages(self) -> None:
        """Pages follow each other, and only the last has no C{last}."""
        await self.fill("a", "b", "c", "d")
        self.assertEqual(await self.page(limit=2), (["a", "b"], [], "b"))
        self.assertEqual(await self.page(after="b", limit=2), (["c", "d"], [], None))
        self.assertEqual(await self.page(after="bb", limit=1), (["c"], [], "c"))
        self.assertEqual(await self.page(after="d"), ([], [], None))
        self.assertEqual(await self.page(limit=0), ([], [], None))

    async def test_prefix(self) -> None:
        """A prefix narrows a list; the key that equals it belongs to it."""
        await self.fill("a", "ab", "abc", "b")
        self.assertEqual(await self.page("ab"), (["ab", "abc"], [], None))
        self.assertEqual(await self.page("ab", after="ab"), (["abc"], [], None))
        self.assertEqual(await self.page("b", after="a"), (["b"], [], None))
        self.assertEqual(await self.page("a", after="b"), ([], [], None))

    async def test_groups(self) -> None:
        """With a delimiter keys behind it are one common prefix, in order with the rest."""
        await self.fill("a", "b/1", "b/2", "b/2/3", "c", "d/", "e//f", "é/1")
        self.assertEqual(
            await self.page(delimiter="/"), (["a", "c"], ["b/", "d/", "e/", "é/"], None)
        )
        self.assertEqual(await self.page("b/", "/"), (["b/1", "b/2"], ["b/2/"], None))
        self.assertEqual(await self.page("d/", "/"), (["d/"], [], None))
        self.assertEqual(await self.page("e/", "/"), ([], ["e//"], None))

    async def test_groupPages(self) -> None:
        """Pages count keys and common prefixes alike, and go on behind a whole group."""
        await self.fill("a", "b/1", "b/2", "c", "d/1")
        self.assertEqual(await self.page(delimiter="/", limit=2), (["a"], ["b/"], "b/"))
        self.assertEqual(await self.page(delimiter="/", after="b/", limit=2), (["c"], ["d/"], None))
        self.assertEqual(await self.page(delimiter="/", after="b/1", limit=2), (["c"], ["b/"], "c"))

    async def test_longDelimiter(self) -> None:
        """A delimiter may have several bytes, and overlap itself."""
        await self.fill("a--b", "a-b", "a---c", "b----")
        self.assertEqual(await self.page(delimiter="--"), (["a-b"], ["a--", "b--"], None))
        self.assertEqual(await self.page("b-", delimiter="--"), ([], ["b---"], None))
        self.assertEqual(
            await self.page(delimiter="--", after="a--", limit=1), (["a-b"], [], "a-b")
        )

    async def test_uploadsInOrder(self) -> None:
        """Uploads come by key and then by id, in pages."""
        for key, uploadId in ((b"b", "2"), (b"a", "9"), (b"b", "1"), (b"c", "0"), (b"b", "3")):
            await self.catalog.commit(CreateUpload(uploadOf(key, uploadId)))

        async def page(
            keyAfter: bytes, idAfter: str, limit: int
        ) -> tuple[list[str], tuple[str, str] | None]:
            page = await self.catalog.uploads(UploadRange("b", b"", b"", keyAfter, limit, idAfter))
            self.assertEqual(page.prefixes, [])
            return [upload.uploadId for upload in page.uploads], page.last

        self.assertEqual(await page(b"", "", 10), (["9", "1", "2", "3", "0"], None))
        self.assertEqual(await page(b"", "", 3), (["9", "1", "2"], ("b", "2")))
        self.assertEqual(await page(b"b", "2", 1), (["3"], ("b", "3")))
        self.assertEqual(await page(b"b", "3", 1), (["0"], None))
        self.assertEqual(await page(b"b", "", 10), (["0"], None))
        self.assertEqual(await page(b"", "", 0), ([], None))

    async def test_uploadGroups(self) -> None:
        """Uploads have common prefixes as objects do."""
        uploads = [uploadOf(key, "1") for key in (b"a/x", b"a/y", b"b", b"c/x")]
        for upload in uploads:
            await self.catalog.commit(CreateUpload(upload))
        found = await self.catalog.uploads(UploadRange("b", b"", b"/", b"", 2))
        self.assertEqual(found, UploadListing([uploads[2]], ["a/"], ("b", "1")))
        found = await self.catalog.uploads(UploadRange("b", b"", b"/", b"b", 2, "1"))
        self.assertEqual(found, UploadListing([], ["c/"], None))
        found = await self.catalog.uploads(UploadRange("b", b"a/", b"/", b"", 2))
        self.assertEqual(found, UploadListing(uploads[:2], [], None))
