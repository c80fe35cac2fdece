"""Writes of several nodes to one catalog in PostgreSQL: races, locks, unknown outcomes."""

import random
from collections.abc import Coroutine
from typing import Any

import psycopg
from twisted.internet.defer import Deferred, DeferredList, gatherResults

from storagegate.storage.cluster.catalog import PostgreSQLCatalog
from storagegate.storage.cluster.databaselocks import Locks, RowLocks
from storagegate.storage.errors import (
    BucketNotEmpty,
    CommitUnknown,
    ConcurrentChange,
    NoSuchKey,
    NoSuchUpload,
    PreconditionFailed,
    StoreBusy,
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
    RemoveAccessKey,
    RemoveBucket,
    RemoveObjects,
    SetVersioning,
)
from storagegate.storage.ranges import VersionRange
from storagegate.storage.records import (
    VERSIONING_ENABLED,
    VERSIONING_SUSPENDED,
    WriteCondition,
)
from tests.contract.catalogcase import (
    ALWAYS,
    IF_ABSENT,
    blobRecord,
    bucketNamed,
    inlineRecord,
    newBlobsOf,
    partOf,
    uploadOf,
)
from tests.support.contention import Stopwatch
from tests.support.postgresql import Server
from tests.support.selection import long
from tests.wire.storage.nodescase import NodesCase, pause


@long("starts PostgreSQL")
class RaceTests(NodesCase):
    """Writers on two nodes at once."""

    async def test_absent(self) -> None:
        """Of racing writes for an absent key exactly one wins, and all nodes see that one."""
        for number in range(150):
            key = b"%d" % number
            writes = [
                node.commit(PutObject(inlineRecord(key, b"%d%d" % (n, place)), IF_ABSENT))
                for n in range(4)
                for place, node in enumerate(self.nodes)
            ]
            results = await DeferredList(writes, consumeErrors=True)
            won = [result for success, result in results if success]
            self.assertEqual(len(won), 1)
            for success, failure in results:
                self.assertTrue(success or failure.check(PreconditionFailed))
            for node in self.nodes:
                self.assertEqual((await node.object("b", key))[1], won[0])
        await self.assertConsistent()

    async def count(self, versioning: str) -> None:
        """Add to counters by compare-and-swap, on both nodes."""
        if versioning:
            await self.nodes[0].commit(SetVersioning("b", versioning))
        keys = [b"c%d" % n for n in range(3)]
        for key in keys:
            await self.nodes[0].commit(PutObject(inlineRecord(key, b"", "0"), ALWAYS))
        done = [0]

        async def add(node: PostgreSQLCatalog, seed: int) -> None:
            dice = random.Random(seed)
            for _ in range(25):
                key = dice.choice(keys)
                while True:
                    record = (await node.object("b", key))[1]
                    assert record is not None
                    made = inlineRecord(key, b"", str(int(record.etag) + 1))
                    try:
                        await node.commit(PutObject(made, WriteCondition(etags=(record.etag,))))
                    except PreconditionFailed:
                        continue
                    done[0] += 1
                    break

        workers = [add(node, n) for n in range(4) for node in self.nodes]
        await gatherResults([Deferred.fromCoroutine(each) for each in workers])
        total = 0
        for key in keys:
            record = (await self.nodes[1].object("b", key))[1]
            assert record is not None
            total += int(record.etag)
        self.assertEqual((total, done[0]), (200, 200))
        await self.assertConsistent()

    async def test_counters(self) -> None:
        """Counters that are changed by C{If-Match} on two nodes add up."""
        await self.count("")

    async def test_countersOfVersions(self) -> None:
        """So they do where each write makes a version."""
        await self.count(VERSIONING_ENABLED)
        rows = self.execute("SELECT count(*) FROM versions")
        self.assertEqual(rows, [(200,)])

    async def run_(self, *workers: Coroutine[Any, Any, None]) -> None:
        """Run workers together."""
        await gatherResults([Deferred.fromCoroutine(each) for each in workers])

    async def storm(self, *versionings: str) -> None:
        """Do everything to few keys at once, on both nodes."""
        keys = [b"k%d" % n for n in range(4)]
        self.versions: list[int] = []
        unexpected: list[BaseException] = []
        made = iter(range(1 << 30))

        async def work(node: PostgreSQLCatalog, seed: int) -> None:
            dice = random.Random(seed)
            for _ in range(60):
                try:
                    await act(node, dice)
                except (ConcurrentChange, PreconditionFailed, NoSuchKey, NoSuchUpload):
                    pass
                except StoreError as error:
                    unexpected.append(error)

        async def act(node: PostgreSQLCatalog, dice: random.Random) -> None:
            key = dice.choice(keys)
            what = dice.randrange(10)
            blob = f"n{next(made)}"
            if what < 3:
                await node.commit(
                    PutObject(
                        blobRecord(key, blob, etag=dice.choice("ab")),
                        dice.choice([ALWAYS, IF_ABSENT, WriteCondition(etags=("a",))]),
                        newBlobsOf(blob),
                    )
                )
            elif what < 4:
                await node.commit(PutObject(inlineRecord(key, b"x" * dice.randrange(9)), ALWAYS))
            elif what < 6:
                # A copy of one or two others.
                sources = [(await node.object("b", dice.choice(keys)))[1] for _ in range(2)]
                blobs = [
                    segment.blob
                    for source in sources
                    if source is not None
                    for segment in source.content.segments
                ]
                if blobs:
                    await node.commit(PutObject(blobRecord(key, *blobs), ALWAYS))
            elif what < 7:
                entries = [(each, None, ALWAYS) for each in dice.sample(keys, 3)]
                await node.commit(RemoveObjects("b", entries, "alice", 5))
            elif what < 9:
                page = await node.listVersions(VersionRange("b", b"", b"", b"", 1000))
                if page.versions:
                    chosen = dice.choices(page.versions, k=2)
                    named = [(each.key.encode(), each.versionId, ALWAYS) for each in chosen]
                    await node.commit(RemoveObjects("b", named, "alice", 6))
            else:
                upload = uploadOf(key, blob)
                await node.commit(CreateUpload(upload))
                await node.commit(PutPart("b", key, blob, partOf(1, blob), newBlobsOf(blob)))
                if dice.randrange(2):
                    await node.commit(
                        CompleteUpload(blob, inlineRecord(key, b""), [(1, "p1")], ALWAYS)
                    )
                else:
                    await node.commit(AbortUpload("b", key, blob))

        async def change() -> None:
            for versioning in versionings:
                await self.nodes[1].commit(SetVersioning("b", versioning))
                await pause(0.15)

        async def fold() -> None:
            for _ in range(40):
                for node in self.nodes:
                    await node.leases.renew(60.0, 1 << 62)
                await self.nodes[0].cleanup.fold()
                rows = self.execute("SELECT count(*) FROM versions")
                self.versions.append(rows[0][0])
                await pause(0.02)

        workers = [
            work(node, n * 2 + place) for n in range(6) for place, node in enumerate(self.nodes)
        ]
        await self.run_(*workers, change(), fold())
        self.assertEqual(unexpected, [])
        await self.assertConsistent()

    async def test_storm(self) -> None:
        """Everything at once on few keys: no deadlock, and counts and stacks agree at the end."""
        await self.storm()

    async def test_stormOfVersions(self) -> None:
        """So it is with versioning, also while that changes."""
        await self.storm(
            VERSIONING_ENABLED, VERSIONING_SUSPENDED, VERSIONING_ENABLED, VERSIONING_SUSPENDED
        )
        self.assertGreater(max(self.versions), 0)

    async def test_bucketGoesAlone(self) -> None:
        """A bucket is removed empty or not at all, while others store in it."""
        for number in range(20):
            node, other = self.nodes
            name = f"r{number}"
            await node.commit(AddBucket(bucketNamed(name)))
            results = await DeferredList(
                [
                    node.commit(PutObject(inlineRecord(b"k", bucket=name), ALWAYS)),
                    other.commit(RemoveBucket(name)),
                    other.commit(PutObject(inlineRecord(b"l", bucket=name), ALWAYS)),
                ],
                consumeErrors=True,
            )
            (stored, _), (removed, why), (also, _) = results
            if removed:
                self.assertFalse(stored or also)
                self.assertIsNone(await node.bucket(name))
            else:
                self.assertIsNotNone(why.check(BucketNotEmpty))
                self.assertTrue(stored or also)
        orphans = "SELECT count(*) FROM objects WHERE bucketid NOT IN (SELECT id FROM buckets)"
        self.assertEqual(self.execute(orphans), [(0,)])

    async def test_numbers(self) -> None:
        """
        A write that waits for a removal of its key, without an object there, is the newer version,
        though it began while the removal was under way.
        """
        one, two = self.nodes
        await one.commit(SetVersioning("b", VERSIONING_ENABLED))
        await one.commit(PutObject(inlineRecord(b"k"), ALWAYS))
        await one.commit(RemoveObjects("b", [(b"k", None, ALWAYS)]))
        with psycopg.connect(self.conninfo) as other:
            # The removal waits for the lock of the marker before it.
            other.execute("SELECT FROM versions FOR UPDATE")
            removing = one.commit(RemoveObjects("b", [(b"k", None, ALWAYS)]))
            await self.waiting(1)
            writing = two.commit(PutObject(inlineRecord(b"k"), ALWAYS))
            await self.waiting(2)
        await removing
        stored = await writing
        listed = await one.listVersions(VersionRange("b", b"", b"", b"", 10))
        self.assertEqual(listed.versions[0].versionId, stored.versionId)
        self.assertEqual([each.isLatest for each in listed.versions], [True, False, False, False])


@long("starts PostgreSQL")
class RowLocksRaceTests(RaceTests):
    """Writers on two nodes at once, with locks of rows."""

    def makeLocks(self) -> Locks:
        """Make the locks of a node."""
        return RowLocks()

    async def test_endWaitsForCommits(self) -> None:
        """The end of a lease waits for a commit under it, and those after it find it over."""
        import psycopg

        node, other = self.nodes
        await node.commit(PutObject(inlineRecord(b"k", b"old"), ALWAYS))
        number = node.lease
        with psycopg.connect(self.conninfo) as held:
            held.execute("SELECT * FROM objects FOR UPDATE")
            writing = node.commit(PutObject(inlineRecord(b"k", b"new"), ALWAYS))
            await self.waiting(1)
            # A renewal waits for nothing.
            await node.leases.renew(60.0, 0)
            ending = Deferred.fromCoroutine(other.cleanup.endLease(number, True))
            await pause(0.3)
            self.assertFalse(ending.called)
            held.rollback()
            await writing
            await ending
        await self.assertFails(node.commit(PutObject(inlineRecord(b"k"), ALWAYS)), StoreBusy)


@long("starts PostgreSQL")
class UnknownTests(NodesCase):
    """Outcomes that the node does not know."""

    async def lock(self) -> Any:
        """Lock the row of C{k}, so that a write of it waits; return the transaction."""
        import psycopg

        await self.nodes[1].commit(PutObject(inlineRecord(b"k", b"old"), ALWAYS))
        held = psycopg.connect(self.conninfo)
        self.addCleanup(held.close)
        held.execute("SELECT * FROM objects FOR UPDATE")
        return held

    async def test_lostInCommit(self) -> None:
        """
        A write whose connection is lost is unknown and is not made again; the lease is given up,
        and its blobs stay unsettled.
        """
        node = self.nodes[0]
        number = node.lease
        held = await self.lock()
        blob = node.newBlobId()
        writing = [
            node.commit(PutObject(blobRecord(b"k", blob), ALWAYS, {blob: 7})),
            node.commit(PutObject(inlineRecord(b"l"), ALWAYS)),
        ]
        await self.waiting(1)
        self.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE datname = current_database() AND wait_event_type = 'Lock'"
        )
        for each in writing:
            await self.assertFails(each, CommitUnknown)
        held.rollback()
        self.assertEqual(node.lease, 0)
        await pause(0.3)
        record = (await self.nodes[1].object("b", b"k"))[1]
        assert record is not None
        self.assertEqual(record.content.inline, b"old")
        self.assertEqual(await node.knownBlobs([blob]), frozenset())
        self.assertEqual(self.execute("SELECT low FROM leases WHERE id = %s", number), [(0,)])
        await node.leases.take("again", 60.0)
        await node.commit(PutObject(inlineRecord(b"k", b"new"), ALWAYS))
        self.assertEqual(len(self.flushLoggedErrors()), 0)

    async def test_lostInSending(self) -> None:
        """
        Large writes whose connection the server has ended, unnoticed yet, are answered, and their
        keys are free for later writes.
        """
        node = self.nodes[0]
        await pause(0.3)
        for each in node.writer._idle:
            self.execute("SELECT pg_terminate_backend(%s, 10000)", each._pg.backend_pid)
        body = bytes(60_000)
        writing = [node.commit(PutObject(inlineRecord(b"%d" % n, body), ALWAYS)) for n in range(20)]
        for each in writing:
            await self.assertFails(each, CommitUnknown)
        self.assertEqual(node.waiting, 0)
        await node.leases.take("again", 60.0)
        for n in range(20):
            await node.commit(PutObject(inlineRecord(b"%d" % n, body), ALWAYS))
        self.assertEqual(len(self.flushLoggedErrors()), 0)

    test_lostInSending.timeout = 30  # type: ignore[attr-defined]

    async def test_waitedTooLong(self) -> None:
        """A write that waits for a lock is refused in time, and has done nothing."""
        node = self.nodes[0]
        held = await self.lock()
        error = await self.assertFails(
            node.commit(PutObject(inlineRecord(b"k", b"new"), ALWAYS)), StoreBusy
        )
        self.assertNotIsInstance(error, CommitUnknown)
        held.rollback()
        record = (await self.nodes[1].object("b", b"k"))[1]
        assert record is not None
        self.assertEqual(record.content.inline, b"old")

    async def test_away(self) -> None:
        """While the server is away writes fail in time; those that were not sent are not done."""
        server = Server.make()
        self.addCleanup(server.remove)
        self.conninfo = server.store()
        node = self.openNode()
        await node.commit(AddBucket(bucketNamed("b")))
        server.kill()
        while node.writer._idle and node.writer._idle[-1].isOpen:
            await pause()
        watch = Stopwatch()
        refused = [node.commit(PutObject(inlineRecord(b"%d" % n), ALWAYS)) for n in range(3)]
        looked = Deferred.fromCoroutine(node.object("b", b"0"))
        for each in refused:
            await self.assertFails(each, StoreBusy)
        await self.assertFails(looked, StoreBusy)
        self.assertLess(watch.seconds(), 7.0)
        self.assertIsNotNone(node.health()["catalog"])
        server.start()
        await node.leases._connection.opened(30.0)
        await node.leases.take("again", 60.0)
        await node.commit(PutObject(inlineRecord(b"k"), ALWAYS))
        self.assertIsNone((await node.object("b", b"0"))[1])
        self.assertIsNone(node.health()["catalog"])

    async def test_refusalIsAlone(self) -> None:
        """What the server refuses fails alone; what was sent with it is done."""
        node = self.nodes[0]
        self.execute("ALTER TABLE objects ADD CHECK (etag <> 'bad')")
        puts = [
            node.commit(PutObject(inlineRecord(b"%d" % n, etag="bad" if n == 3 else "e"), ALWAYS))
            for n in range(6)
        ]
        results = await DeferredList(puts, consumeErrors=True)
        self.assertEqual([success for success, _ in results], [True, True, True, False, True, True])
        rows = self.execute("SELECT count(*) FROM objects")
        self.assertEqual(rows, [(5,)])

    async def test_refusalKeepsOrder(self) -> None:
        """What was sent with it is done in the order in which it was submitted."""
        node = self.nodes[0]
        self.execute("ALTER TABLE objects ADD CHECK (etag <> 'bad')")
        for _ in range(5):
            bad = node.commit(PutObject(inlineRecord(b"bad", etag="bad"), ALWAYS))
            puts = [
                node.commit(PutObject(inlineRecord(b"k", b"%d" % n), ALWAYS)) for n in range(20)
            ]
            await self.assertFails(bad, Exception)
            stored = await gatherResults(puts)
            self.assertEqual((await node.object("b", b"k"))[1], stored[-1])
            numbers = [each.sequence for each in stored]
            self.assertEqual(numbers, sorted(numbers))

    async def test_divided(self) -> None:
        """
        What waits together is divided among the idle connections, except for a key's, which stays
        in its order.
        """
        node = self.nodes[0]
        await node.commit(PutObject(inlineRecord(b"k"), ALWAYS))
        while len(node.writer._idle) < 2:
            await pause()
        sizes: list[int] = []
        node.measure(sizes.append, lambda seconds: None)
        keys = [b"k" if n % 2 else b"%d" % n for n in range(64)]
        stored = await gatherResults(
            [
                node.commit(PutObject(inlineRecord(key, b"%d" % n), ALWAYS))
                for n, key in enumerate(keys)
            ]
        )
        self.assertEqual((max(sizes), sum(sizes)), (32, 64))
        self.assertEqual((await node.object("b", b"k"))[1], stored[-1])
        sequences = [each.sequence for each in stored if each.key == b"k"]
        self.assertEqual(sequences, sorted(sequences))

    async def test_closing(self) -> None:
        """Closing commits what waits, and refuses what comes after."""
        node = self.openNode()
        puts = [node.commit(PutObject(inlineRecord(b"%d" % n), ALWAYS)) for n in range(600)]
        closed = node.close()
        await self.assertFails(node.commit(PutObject(inlineRecord(b"x"), ALWAYS)), StoreBusy)
        await gatherResults(puts)
        await closed
        self.assertEqual(self.execute("SELECT count(*) FROM objects"), [(600,)])
        self.patch(node, "close", lambda: None)


@long("starts PostgreSQL")
class ShardTests(NodesCase):
    """The directory of shards."""

    async def test_directory(self) -> None:
        """Each bucket has its place in the directory, for as long as it exists."""
        node, other = self.nodes
        self.assertEqual(await other.shard("b"), 0)
        self.assertIsNone(await other.shard("c"))
        self.assertIsNone(await other.shard("\0"))
        await node.commit(AddBucket(bucketNamed("c")))
        self.assertEqual(await other.shard("c"), 0)
        await node.commit(RemoveBucket("c"))
        self.assertIsNone(await other.shard("c"))

    async def test_another(self) -> None:
        """
        A node that knows one shard makes no bucket whose name belongs to another, and from then on
        no row of the directory is removed.
        """
        node = self.nodes[0]
        await node.commit(AddBucket(bucketNamed("c")))
        self.execute("INSERT INTO shards (number) VALUES (1)")
        self.execute("INSERT INTO directory VALUES ('d', 1)")
        refused = await self.assertFails(node.commit(AddBucket(bucketNamed("d"))), StoreBusy)
        self.assertIn("belongs to shard 1", str(refused))
        await node.commit(RemoveBucket("c"))
        self.assertEqual(await node.shard("c"), 0)
        await node.commit(AddBucket(bucketNamed("c")))
        await node.commit(PutObject(inlineRecord(b"k"), ALWAYS))


@long("starts PostgreSQL")
class NotificationTests(NodesCase):
    """Changes that other nodes learn of."""

    async def test_told(self) -> None:
        """Changes of buckets and keys are told to all nodes; a new connection says all may have."""
        node, other = self.nodes
        told: list[str] = []
        keys: list[None] = []
        other.onBucketChanged = told.append
        other.onKeysChanged = lambda: keys.append(None)
        await other._forLists.opened()
        while "" not in told and not other._forLists.connection:
            await pause()
        await pause(0.2)
        told.clear()
        await node.commit(AddBucket(bucketNamed("c")))
        await node.commit(PutSettings("c", {"cors": b"x"}))
        await node.commit(SetVersioning("c", VERSIONING_ENABLED))
        await node.commit(RemoveBucket("c"))
        while told.count("c") < 4:
            await pause()
        # The connection may have been opened late.
        self.assertEqual([each for each in told if each], ["c"] * 4)
        told.clear()
        count = len(keys)
        await node.commit(RemoveAccessKey("none"))
        self.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()"
            " AND query LIKE 'LISTEN%%'"
        )
        while "" not in told:
            await pause()
        self.assertGreater(len(keys), count)
