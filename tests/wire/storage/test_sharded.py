"""A catalog of two shards keeps the catalog's contract, on real databases."""

from contextlib import closing
from contextvars import copy_context
from functools import cache
from typing import Any

from msgspec.structs import replace
from twisted.internet.defer import Deferred
from twisted.trial.unittest import TestCase
from zope.interface.verify import verifyObject

from storagegate.storage.blobids import SHARDS, readBlobId, shardOf
from storagegate.storage.cluster.admin import openForTools
from storagegate.storage.cluster.catalog import openPostgreSQL
from storagegate.storage.cluster.interfaces import REQUEST_LEASES, IShardedCatalog
from storagegate.storage.cluster.sharded import ShardedCatalog, openShards
from storagegate.storage.errors import (
    BlobsElsewhere,
    BucketExists,
    NoSuchBucket,
    StoreBusy,
)
from storagegate.storage.mutations import AddBucket, PutObject, RemoveBucket
from storagegate.storage.ranges import ObjectRange
from storagegate.storage.sqlite import CatalogUnusable
from tests.contract.catalog import CatalogContract
from tests.contract.catalogcase import ALWAYS, blobRecord, bucketNamed, inlineRecord, newBlobsOf
from tests.support.postgresql import execute, sharedServer
from tests.support.selection import long
from tests.wire.storage.test_postgresqlcatalog import CollectedCatalog


@cache
def templates() -> tuple[str, ...]:
    """Make two shards that take buckets, once for all cases; return the names of the databases."""
    conninfos = [sharedServer().store() for _ in range(2)]
    with closing(openForTools(conninfos[:1])) as admin:
        number = admin.addShard(conninfos[1:])
        assert number == 1, number
        admin.openShard(1, True)
    return tuple(each.rpartition("=")[2] for each in conninfos)


def makeShards() -> list[str]:
    """Make the databases of two shards that both take buckets; return their conninfos."""
    conninfos = [sharedServer().database(each) for each in templates()]
    sql = "UPDATE shards SET servers = ARRAY[%s] WHERE number = 1"
    execute(conninfos[0], sql, conninfos[1])
    return conninfos


@cache
def contractShards() -> list[str]:
    """Make the databases of the contract, of which new buckets are made in the second."""
    conninfos = makeShards()
    onlyIn(conninfos, 1)
    return conninfos


def onlyIn(conninfos: list[str], shard: int) -> None:
    """Have new buckets made in one shard."""
    execute(conninfos[0], "UPDATE shards SET takesbuckets = number = %s", shard)


def openNode(case: TestCase, conninfo: str) -> ShardedCatalog:
    """Open all shards as a node does."""
    from twisted.internet import reactor

    first = openPostgreSQL(reactor, [conninfo], "node", 60.0)
    catalog = openShards(reactor, first, "node", 60.0)
    case.addCleanup(catalog.close)
    return catalog


class _CollectedShards(CollectedCatalog):
    """The same for each shard."""

    def _collect(self, result: Any) -> Deferred[Any]:
        async def collect() -> Any:
            for each in self._catalog.shards.values():
                await each.leases.renew(60.0, 1 << 62)
                await each.cleanup.fold()
            garbage = await self._catalog.garbage("", 1000)
            self._collected += [blob for blob in garbage if blob not in self._known]
            self._known.update(garbage)
            return result

        return Deferred.fromCoroutine(collect())


@long("starts PostgreSQL")
class ShardedContractTests(CatalogContract, TestCase):
    """The contract, with a bucket in the second shard."""

    def makeCatalog(self) -> Any:
        """Open the databases, which are emptied: to make new ones takes a minute for all cases."""
        tables = (
            "SELECT string_agg(tablename, ', ') FROM pg_tables WHERE schemaname = 'public'"
            " AND tablename NOT IN ('meta', 'shards', 'schemaversion')"
        )
        for each in contractShards():
            [(names,)] = execute(each, tables)
            execute(each, f"TRUNCATE {names}")
        catalog: Any = openNode(self, contractShards()[0])
        return _CollectedShards(catalog, self.collected)

    async def test_interfaces(self) -> None:
        """The catalog has all methods of its interface, and the bucket is where it should be."""
        verifyObject(IShardedCatalog, self.catalog._catalog)
        self.assertEqual(await self.catalog.shard("b"), 1)


@long("starts PostgreSQL")
class ShardsTests(TestCase):
    """Two nodes, and buckets in both shards: C{zero} and C{one}."""

    async def setUp(self) -> None:
        """Make the databases and the buckets."""
        self.conninfos = makeShards()
        self.nodes = [openNode(self, self.conninfos[0]) for _ in range(2)]
        for number, name in enumerate(("zero", "one")):
            onlyIn(self.conninfos, number)
            await self.nodes[0].commit(AddBucket(bucketNamed(name)))

    def rows(self, shard: int, sql: str, *values: object) -> list[Any]:
        """Run a statement in a shard."""
        return execute(self.conninfos[shard], sql, *values)

    async def assertFails(self, refused: Any, kind: type[Exception]) -> str:
        """Check that a Deferred or coroutine fails so; return the text."""
        with self.assertRaises(kind) as caught:
            await refused
        return str(caught.exception)

    async def test_places(self) -> None:
        """Each bucket is in one shard only, and all nodes find it, list it and count it."""
        one, two = self.nodes
        self.assertEqual([await two.shard(name) for name in ("zero", "one")], [0, 1])
        self.assertEqual(self.rows(0, "SELECT name FROM buckets"), [("zero",)])
        self.assertEqual(self.rows(1, "SELECT name FROM buckets"), [("one",)])
        for name in ("zero", "one"):
            await one.commit(PutObject(replace(inlineRecord(b"k"), bucket=name), ALWAYS))
            _, found = await two.object(name, b"k")
            assert found is not None
            self.assertEqual(found.bucket, name)
        names = [each.name for each in await two.buckets(None, "", "", 10)]
        self.assertEqual(names, ["one", "zero"])
        self.assertEqual([each.name for each in await two.buckets(None, "", "one", 1)], ["zero"])
        usage = await two.usage(1)
        self.assertEqual((usage.buckets[0].objects, usage.others.objects), (1, 1))
        await self.assertFails(two.commit(AddBucket(bucketNamed("zero"))), BucketExists)
        await self.assertFails(two.commit(AddBucket(bucketNamed("one"))), BucketExists)

    async def test_spread(self) -> None:
        """Where both shards take buckets they are spread."""
        with closing(openForTools(self.conninfos[:1])) as admin:
            admin.openShard(0, True)
        for number in range(16):
            await self.nodes[0].commit(AddBucket(bucketNamed(f"spread{number}")))
        counts = self.rows(
            0, "SELECT count(*) FROM directory WHERE bucket LIKE 'spread%' GROUP BY shard"
        )
        self.assertEqual(len(counts), 2, counts)
        self.assertEqual(len(await self.nodes[1].buckets(None, "spread", "", 100)), 16)

    async def test_rowWithoutBucket(self) -> None:
        """A crash behind the row of the directory leaves no bucket, and the name is used again."""
        one, two = self.nodes
        self.assertEqual(await one.shards[0].placeBucket("half"), 1)
        self.assertIsNone(await two.bucket("half"))
        await self.assertFails(two.listObjects(ObjectRange("half", b"", b"", b"", 1)), NoSuchBucket)
        await self.assertFails(two.commit(RemoveBucket("half")), NoSuchBucket)
        # A node that knows the first shard alone makes it nowhere else.
        busy = one.shards[0].commit(AddBucket(bucketNamed("half")))
        self.assertIn("belongs to shard 1", await self.assertFails(busy, StoreBusy))
        onlyIn(self.conninfos, 0)
        await two.commit(AddBucket(bucketNamed("half")))
        self.assertEqual(self.rows(1, "SELECT count(*) FROM buckets WHERE name = 'half'"), [(1,)])
        await one.commit(RemoveBucket("half"))
        self.assertEqual(await one.shard("half"), 1)
        await one.commit(RemoveBucket("zero"))
        onlyIn(self.conninfos, 1)
        await two.commit(AddBucket(bucketNamed("zero")))
        self.assertEqual(self.rows(0, "SELECT count(*) FROM buckets WHERE name = 'zero'"), [(1,)])

    async def test_ids(self) -> None:
        """The ids of blobs tell the shard; a commit in another one is refused."""
        node = self.nodes[0]
        found = {name: node.newBlobId(name) for name in ("zero", "one")}
        self.assertEqual([shardOf(each) for each in found.values()], [0, 1])
        leases = [(readBlobId(each) or (0, 0))[0] for each in found.values()]
        self.assertEqual([each % SHARDS for each in leases], [0, 1])
        wrong = replace(blobRecord(b"k", found["zero"]), bucket="one")
        await self.assertFails(
            node.commit(PutObject(wrong, ALWAYS, newBlobs=newBlobsOf(found["zero"]))), StoreBusy
        )
        self.assertEqual(self.rows(1, "SELECT * FROM blobs"), [])

    async def test_copies(self) -> None:
        """A copy by reference from shard to shard is refused, within a shard it is not."""
        node = self.nodes[0]
        blob = node.newBlobId("one")
        made = replace(blobRecord(b"k", blob), bucket="one")
        await node.commit(PutObject(made, ALWAYS, newBlobs=newBlobsOf(blob)))
        await node.commit(PutObject(replace(made, key=b"copy"), ALWAYS))
        across = node.commit(PutObject(replace(made, bucket="zero"), ALWAYS))
        await self.assertFails(across, BlobsElsewhere)

    async def test_lapsed(self) -> None:
        """Without a lease in one shard its buckets are refused, and the others are served."""
        node = self.nodes[0]
        await node.bucket("one")
        node.shards[1].leases.giveUp()
        self.assertIn("no lease in shard 1", await self.assertFails(node.bucket("one"), StoreBusy))
        await self.assertFails(node.commit(RemoveBucket("one")), StoreBusy)
        await self.assertFails(node.buckets(None, "", "", 10), StoreBusy)
        assert await node.bucket("zero") is not None

    async def test_request(self) -> None:
        """What a request writes is committed under its own lease in that shard, or not at all."""
        node = self.nodes[0]
        before = {number: each.leases.number for number, each in node.shards.items()}
        await node.shards[1].leases.take("node", 60.0)
        await self.nodes[1].shards[1].cleanup.endLease(before[1], evenValid=True)

        def delete() -> Deferred[None]:
            REQUEST_LEASES.set(before)
            return node.commit(RemoveBucket("one"))

        await self.assertFails(copy_context().run(delete), StoreBusy)
        await node.commit(RemoveBucket("one"))

    async def test_sweeping(self) -> None:
        """Each shard has its own leases that are over, and what was made under them."""
        node, other = self.nodes
        blob = node.newBlobId("one")
        number = node.shards[1].leases.number
        await other.shards[1].cleanup.endLease(number, evenValid=True)
        ended = await other.shards[1].cleanup.endLapsed()
        self.assertEqual([each.number for each in ended], [number])
        self.assertEqual((readBlobId(blob) or (0, 0))[0], number)
        self.assertEqual(await other.shards[0].cleanup.endLapsed(), [])

    def test_refused(self) -> None:
        """A database of another store, or of another shard, is refused in one line."""
        from twisted.internet import reactor

        foreign = sharedServer().store()
        execute(foreign, "UPDATE meta SET value = 'foreign' WHERE name = 'secret'")
        other = self.conninfos[1]
        for conninfo, shard, secret, text in (
            (foreign, 0, self.nodes[0].secret(), "belongs to another store"),
            (other, 0, None, "is shard 1, not 0"),
            (self.conninfos[0], 1, None, "is shard 0, not 1"),
        ):
            with self.assertRaises(CatalogUnusable) as caught:
                openPostgreSQL(reactor, [conninfo], "node", 9.0, shard=shard, secret=secret)
            self.assertIn(text, str(caught.exception))
        with closing(openForTools(self.conninfos[:1])) as admin:
            for conninfo in self.conninfos:
                with self.assertRaises(CatalogUnusable):
                    admin.addShard([conninfo])
            self.assertEqual(admin.addShard([foreign]), 2)
            with self.assertRaises(CatalogUnusable) as caught:
                admin.openShard(2, True)
            self.assertIn("unknown to node", str(caught.exception))
            with self.assertRaises(CatalogUnusable):
                admin.openShard(7, True)
            self.assertEqual([each.number for each in admin.shards()], [0, 1, 2])
