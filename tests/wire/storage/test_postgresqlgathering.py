"""Look-ups that are gathered, on a real server."""

from typing import Any

from twisted.internet.defer import CancelledError, Deferred, gatherResults
from twisted.trial.unittest import TestCase

from storagegate.storage.cluster.catalog import openPostgreSQL
from storagegate.storage.cluster.connection import Connection
from storagegate.storage.cluster.primary import MAX_WAITING
from storagegate.storage.errors import StoreBusy
from storagegate.storage.mutations import AddBucket, PutObject
from tests.contract.catalogcase import ALWAYS, bucketNamed, inlineRecord
from tests.support.postgresql import sharedServer
from tests.support.selection import long

KEYS = [b"k%d" % n for n in range(60)] + [
    b"\0",
    b"{,}",
    b'"\\',
    b"NULL",
    "ü😀".encode(),
    b"k" * 1024,
]


@long("starts PostgreSQL")
class GathererTests(TestCase):
    """A node that looks many objects up at once."""

    async def setUp(self) -> None:
        """Open a node with the bucket C{b}."""
        from twisted.internet import reactor

        self.node = openPostgreSQL(reactor, [sharedServer().store()], "node", 60.0)
        self.addCleanup(self.node.close)
        await self.node.commit(AddBucket(bucketNamed("b")))

    def find(self, bucket: str, key: bytes) -> Deferred[Any]:
        """Begin a look-up."""
        return Deferred.fromCoroutine(self.node.object(bucket, key))

    async def test_each(self) -> None:
        """Each is given its own object, none or no bucket, by far fewer queries."""
        for key in KEYS:
            await self.node.commit(PutObject(inlineRecord(key, b"of " + key[:9]), ALWAYS))
        sent: list[None] = []
        run = Connection.run

        def count(connection: Connection, *arguments: Any) -> Any:
            sent.append(None)
            return run(connection, *arguments)

        self.patch(Connection, "run", count)
        asked = [self.find(bucket, key) for key in KEYS for bucket in ("b", "absent")]
        asked += [self.find("b", key + b"?") for key in KEYS]
        found = await gatherResults(asked)
        for n, key in enumerate(KEYS):
            bucket, record = found[2 * n]
            self.assertEqual((bucket.name, record.key), ("b", key))
            self.assertEqual(record.content.inline, b"of " + key[:9])
            self.assertEqual(found[2 * n + 1], (None, None))
            bucket, record = found[2 * len(KEYS) + n]
            self.assertEqual((bucket.name, record), ("b", None))
        self.assertLess(len(sent), len(asked) // 10)

    async def test_cancelled(self) -> None:
        """One that is given up takes no other's answer."""
        await self.node.commit(PutObject(inlineRecord(b"k"), ALWAYS))
        asked = [self.find("b", b"k") for _ in range(3)]
        asked[1].cancel()
        await self.assertFailure(asked[1], CancelledError)
        for each in (asked[0], asked[2]):
            self.assertEqual((await each)[1].key, b"k")

    async def test_tooMany(self) -> None:
        """A further one is refused at once while as many wait as may."""
        asked = [self.find("b", b"k") for _ in range(MAX_WAITING)]
        refused = self.find("b", b"k")
        self.assertTrue(refused.called)
        await self.assertFailure(refused, StoreBusy)
        self.assertEqual(len(await gatherResults(asked)), MAX_WAITING)
