"""The bench's way to fill a large bucket, on a real store."""

from pathlib import Path

from twisted.trial.unittest import TestCase

from bench.s3 import bulkfill
from bench.s3.requests import listedKeys
from storagegate.storage.embedded.opening import openStore
from storagegate.storage.ranges import ObjectRange


class BulkFillTests(TestCase):
    """A bulk fill leaves what as many PUTs would have left."""

    async def test_fill(self) -> None:
        """All keys are there, in order, and one is whole, when the store is opened again."""
        from twisted.internet import reactor

        data = str(Path(self.mktemp()).absolute())
        count = bulkfill.TOGETHER + 1
        await bulkfill.fill(reactor, data, "list", count, 64)
        store = openStore(data, reactor)
        try:
            page = await store.catalog.listObjects(ObjectRange("list", b"", b"", b"", count + 1))
            _, record = await store.catalog.object("list", b"f001-000")
        finally:
            await store.close()
        self.assertEqual([row.key for row in page.objects], list(listedKeys(count)))
        self.assertEqual((record.size, record.content.inline), (64, b"x" * 64))
        self.assertEqual(record.etag, "c1bb4f81d892b2d57947682aeb252456")
