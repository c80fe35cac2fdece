"""The changes that watchers of several nodes get: all, once, in the order of the commits."""

import random
from typing import Any

import psycopg
from twisted.internet.defer import Deferred, gatherResults
from twisted.internet.task import deferLater
from twisted.trial.unittest import TestCase
from zope.interface.verify import verifyObject

from storagegate.cluster.events import PAGE, ChangeFollower
from storagegate.storage.cluster import catalog as catalogModule
from storagegate.storage.cluster import eventfunctions
from storagegate.storage.cluster.catalog import PostgreSQLCatalog, openPostgreSQL
from storagegate.storage.cluster.interfaces import IChangeJournal
from storagegate.storage.errors import NoSuchBucket, StoreBusy
from storagegate.storage.mutations import (
    AddBucket,
    CompleteUpload,
    CreateUpload,
    PutObject,
    PutPart,
    PutTags,
    RemoveBucket,
    RemoveObjects,
    SetVersioning,
)
from storagegate.storage.node import IBucketWatches
from storagegate.storage.records import (
    VERSIONING_ENABLED,
    ObjectChange,
    Removal,
)
from tests.contract.catalogcase import (
    ALWAYS,
    blobRecord,
    bucketNamed,
    inlineRecord,
    newBlobsOf,
    partOf,
    uploadOf,
)
from tests.support.postgresql import Server, execute, sharedServer
from tests.support.selection import long


def pause(seconds: float = 0.01) -> Deferred[None]:
    """Wait."""
    from twisted.internet import reactor

    return deferLater(reactor, seconds)


def brief(change: ObjectChange) -> tuple[Any, ...]:
    """Return the bucket, the key and the ETag of a change."""
    return (change.bucket, change.key, change.record and change.record.etag)


class Node:
    """
    A node with its follower.

    @ivar changes: What its observers were called with.
    @ivar missed: How often changes were missed.
    """

    def __init__(self, conninfos: list[str]) -> None:
        from twisted.internet import reactor

        self.catalog: PostgreSQLCatalog = openPostgreSQL(reactor, conninfos, "node", 60.0)
        self.follower = ChangeFollower(reactor, self.catalog)
        self.changes: list[ObjectChange] = []
        self.missed = 0
        self.follower.missedObservers.append(self._miss)
        self.follower.start(self.changes.append)

    def _miss(self) -> None:
        self.missed += 1

    async def close(self) -> None:
        """Stop it."""
        await self.follower.stop()
        await self.catalog.close()

    async def put(self, key: bytes, etag: str = "e1", bucket: str = "b") -> None:
        """Store an object."""
        await self.catalog.commit(PutObject(inlineRecord(key, etag=etag, bucket=bucket), ALWAYS))

    async def remove(self, *keys: bytes, versionId: str | None = None) -> list[Any]:
        """Remove objects."""
        return await self.catalog.commit(
            RemoveObjects("b", [(key, versionId, ALWAYS) for key in keys])
        )

    async def got(self, count: int, seconds: float = 10.0) -> list[tuple[Any, ...]]:
        """Wait for changes; return all."""
        from twisted.internet import reactor

        end = reactor.seconds() + seconds
        while len(self.changes) < count and reactor.seconds() < end:
            await pause()
        return [brief(change) for change in self.changes]


class FollowersCase(TestCase):
    """Two nodes, and the bucket C{b}."""

    timeout = 120

    async def setUp(self) -> None:
        """Open them."""
        self.conninfo = sharedServer().store()
        self.one, self.two = self.openNode(), self.openNode()
        await self.one.catalog.commit(AddBucket(bucketNamed("b")))

    def openNode(self, *conninfos: str) -> Node:
        """Start a node."""
        node = Node(list(conninfos) or [self.conninfo])
        self.addCleanup(lambda: Deferred.fromCoroutine(node.close()))
        return node

    def execute(self, sql: str, *values: object) -> list[Any]:
        """Run a statement of an operator."""
        return execute(self.conninfo, sql, *values)

    def count(self, table: str) -> int:
        """Count rows."""
        count: int = self.execute(f"SELECT count(*) FROM {table}")[0][0]
        return count


@long("starts a cluster")
class JournalTests(FollowersCase):
    """What is a change, and who gets it."""

    def test_interfaces(self) -> None:
        """Journal and follower have all methods of their interfaces."""
        verifyObject(IChangeJournal, self.one.catalog.journal)
        verifyObject(IBucketWatches, self.one.follower)

    async def test_changes(self) -> None:
        """Each way in which a key gets another object, or none, is a change, on both nodes."""
        await self.one.follower.watch("b")
        await self.two.follower.watch("b")
        catalog = self.one.catalog
        await self.one.put(b"a")
        await self.two.put(b"a", "e2")
        await catalog.commit(
            PutObject(blobRecord(b"big", "x", etag="big"), ALWAYS, newBlobsOf("x"))
        )
        await self.two.catalog.commit(PutObject(blobRecord(b"copy", "x", etag="copy"), ALWAYS))
        await catalog.commit(CreateUpload(uploadOf(b"many", "u")))
        await catalog.commit(PutPart("b", b"many", "u", partOf(1, "y"), newBlobsOf("y")))
        await self.two.catalog.commit(
            CompleteUpload("u", inlineRecord(b"many", etag="many"), [(1, "p1")], ALWAYS)
        )
        await self.two.remove(b"a", b"none")
        await catalog.commit(PutTags("b", b"big", None, "t=1"))
        await self.one.remove(b"big", b"copy", b"many")
        expected = [
            ("b", b"a", "e1"),
            ("b", b"a", "e2"),
            ("b", b"big", "big"),
            ("b", b"copy", "copy"),
            ("b", b"many", "many"),
            ("b", b"a", None),
            ("b", b"big", None),
            ("b", b"copy", None),
            ("b", b"many", None),
        ]
        self.assertEqual(await self.one.got(len(expected)), expected)
        self.assertEqual(await self.two.got(len(expected)), expected)
        record = self.two.changes[0].record
        assert record is not None
        self.assertEqual((record.size, record.content.inline), (5, None))

    async def test_versions(self) -> None:
        """A version is a change if it becomes the object of its key, or ceases to be."""
        catalog = self.one.catalog
        await catalog.commit(SetVersioning("b", VERSIONING_ENABLED))
        await self.two.follower.watch("b")
        await self.one.put(b"k", "e1")
        await self.one.put(b"k", "e2")
        (marked,) = await self.one.remove(b"k")
        assert isinstance(marked, Removal)
        await self.one.remove(b"k", versionId=marked.versionId)
        _, current = await catalog.object("b", b"k")
        assert current is not None
        await self.one.remove(b"k", versionId=current.versionId)
        found = await self.two.got(5)
        self.assertEqual([etag for _, _, etag in found], ["e1", "e2", None, "e2", "e1"])
        first, last = self.two.changes[0].record, self.two.changes[-1].record
        assert first is not None and last is not None
        self.assertEqual(first.versionId, last.versionId)

    async def test_unwatched(self) -> None:
        """Without watchers nothing is written down; a node gets nothing of what others watch."""
        await self.one.put(b"before")
        await self.one.catalog.commit(AddBucket(bucketNamed("other")))
        await self.one.follower.watch("b")
        await self.two.follower.watch("other")
        await self.one.put(b"elsewhere", bucket="other")
        await self.two.put(b"here")
        self.assertEqual(await self.one.got(1), [("b", b"here", "e1")])
        self.assertEqual(await self.two.got(1), [("other", b"elsewhere", "e1")])
        self.one.follower.unwatch("b")
        self.two.follower.unwatch("other")
        while self.count("watches") or self.count("followers"):
            await pause()
        self.assertEqual(self.execute("SELECT name FROM buckets WHERE watched"), [])
        await self.one.catalog.cleanup.fold()
        await self.one.put(b"after")
        self.assertEqual(self.count("events"), 0)
        with self.assertRaises(NoSuchBucket):
            await self.one.follower.watch("none")
        self.one.follower.unwatch("none")

    async def test_deletedBucket(self) -> None:
        """The deletion of a bucket ends its watch; one of the same name is watched anew."""
        await self.two.follower.watch("b")
        await self.one.catalog.commit(RemoveBucket("b"))
        self.assertEqual(await self.two.got(1), [("b", None, None)])
        self.two.follower.unwatch("b")
        await self.one.catalog.commit(AddBucket(bucketNamed("b")))
        await self.two.follower.watch("b")
        await self.one.put(b"k")
        self.assertEqual((await self.two.got(2))[1:], [("b", b"k", "e1")])

    async def test_many(self) -> None:
        """A deletion of very many keys comes in pages, whole and in order."""
        keys = [b"%05d" % n for n in range(2 * PAGE + 7)]
        await gatherResults([Deferred.fromCoroutine(self.one.put(key)) for key in keys])
        await self.two.follower.watch("b")
        await self.one.remove(*keys)
        found = await self.two.got(len(keys))
        self.assertEqual(found, [("b", key, None) for key in keys])


@long("starts a cluster")
class OrderTests(FollowersCase):
    """Nothing is left out, nothing comes twice, and the last change of a key is its object."""

    async def test_late(self) -> None:
        """A transaction that commits late, with an early number, comes late, and once."""
        await self.two.follower.watch("b")
        with psycopg.connect(self.conninfo) as late:
            late.execute("SELECT journal('b', 'late', 1, 'e', 1, 'a', '{}', false, 1)")
            for n in range(3):
                await self.one.put(b"%d" % n)
                await self.two.got(n + 1)
            self.assertEqual(len(await self.two.got(3)), 3)
            late.commit()
        found = await self.two.got(4)
        self.assertEqual([key for _, key, _ in found], [b"0", b"1", b"2", b"late"])
        await pause(0.6)
        self.assertEqual(len(self.two.changes), 4)

    async def test_race(self) -> None:
        """
        Two nodes write the same keys at one time, and a third watches, from before its watch has
        begun: of each key it gets every write after that, in the order in which they were made.
        """
        three = self.openNode()
        seed = random.randrange(1 << 30)
        choice = random.Random(seed)
        written: dict[str, bytes] = {}
        started: set[str] = set()
        isStarted = isOver = False

        async def write(node: Node, name: str) -> None:
            n = 0
            while not isOver:
                n += 1
                key = b"k%d" % choice.randrange(4)
                if choice.random() < 0.2:
                    await node.remove(key)
                    continue
                etag = f"{name}-{n}"
                if isStarted:
                    started.add(etag)
                await node.put(key, etag)
                written[etag] = key

        writers = [
            Deferred.fromCoroutine(write(node, f"{index}-{n}"))
            for n in range(6)
            for index, node in enumerate((self.one, self.two))
        ]
        await pause(0.1)
        await three.follower.watch("b")
        isStarted = True
        await pause(1.0)
        isOver = True
        await gatherResults(writers)
        await self.one.put(b"end", "end")
        while not three.changes or three.changes[-1].key != b"end":
            await pause()
        found = [brief(change) for change in three.changes]
        etags = [etag for _, _, etag in found if etag]
        self.assertEqual(len(etags), len(set(etags)), f"twice, seed {seed}")
        self.assertEqual(started - set(etags), set(), f"left out, seed {seed}")
        self.assertGreater(len(started), 100)
        sequences: dict[bytes, int] = {}
        for change in three.changes:
            if change.record is not None and change.key is not None:
                self.assertLess(sequences.get(change.key, 0), change.record.sequence)
                sequences[change.key] = change.record.sequence
            elif change.key is not None:
                # A write that has waited for a removal drew its number before.
                sequences.pop(change.key, None)
        last = {key: etag for _, key, etag in found}
        for key, etag in last.items():
            _, record = await self.one.catalog.object("b", key)
            self.assertEqual(record and record.etag, etag, f"seed {seed}")


@long("starts a cluster")
class LossTests(FollowersCase):
    """Connections, leases and the journal itself do not last."""

    async def test_connection(self) -> None:
        """A node whose connections were all lost goes on where it was."""
        await self.two.follower.watch("b")
        await self.one.put(b"a")
        await self.two.got(1)
        self.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
        while not self.execute("SELECT 1 FROM objects WHERE key = 'b'"):
            try:
                if not self.one.catalog.lease:
                    await self.one.catalog.leases.take("node", 60.0)
                await self.one.put(b"b")
            except StoreBusy:
                await pause()
        await self.one.put(b"c")
        found = await self.two.got(3)
        self.assertEqual([key for _, key, _ in found], [b"a", b"b", b"c"])
        self.assertEqual(self.two.missed, 0)

    async def test_lease(self) -> None:
        """
        A new lease takes the watches over; if the old one was forgotten before, the watchers get an
        error, and may begin anew.
        """
        catalog = self.two.catalog
        await self.two.follower.watch("b")
        before = catalog.lease
        catalog.leases.giveUp()
        await self.one.put(b"a")
        await catalog.leases.take("node", 60.0)
        self.assertEqual(await self.two.got(1), [("b", b"a", "e1")])
        await self.one.catalog.cleanup.endLease(before, True)
        await self.one.catalog.cleanup.forgetLease(before)
        await self.one.put(b"b")
        self.assertEqual(len(await self.two.got(2)), 2)
        self.assertEqual(self.two.missed, 0)
        before = catalog.lease
        catalog.leases.giveUp()
        await self.one.catalog.cleanup.endLease(before, True)
        await self.one.catalog.cleanup.forgetLease(before)
        self.assertEqual(self.execute("SELECT name FROM buckets WHERE watched"), [])
        await self.one.put(b"c")
        await catalog.leases.take("node", 60.0)
        while not self.two.missed:
            await pause()
        self.assertEqual(len(self.flushLoggedErrors()), 0)
        self.two.follower.unwatch("b")
        await self.two.follower.watch("b")
        await self.one.put(b"d")
        found = await self.two.got(3)
        self.assertEqual([key for _, key, _ in found], [b"a", b"b", b"d"])
        self.assertEqual(self.two.missed, 1)

    async def test_trim(self) -> None:
        """
        Events go when all nodes have read them. Of a node that does not read no more is kept than
        the bound, and it learns that changes were missed.
        """
        await self.one.follower.watch("b")
        await self.two.follower.watch("b")
        for n in range(5):
            await self.one.put(b"%d" % n)
        await self.one.got(5)
        await self.two.got(5)
        while self.count("events"):
            await self.one.catalog.cleanup.fold()
            await pause(0.1)
        # One that has stopped.
        self.two.follower._lock.acquire()
        for n in range(5):
            await self.one.put(b"%d" % n)
        await self.one.got(10)
        await pause(1.2)
        await self.one.catalog.cleanup.fold()
        self.assertEqual(self.count("events"), 5)
        self.execute("SELECT trimevents(2)")
        self.assertEqual(self.count("events"), 2)
        self.two.follower._lock.release()
        while not self.two.missed:
            await pause()
        self.assertEqual((len(self.two.changes), self.one.missed), (5, 0))

    async def test_withoutSnapshots(self) -> None:
        """The judgement by snapshots is needed: by numbers alone the late transaction is lost."""
        broken = eventfunctions._READ.replace(
            "NOT pg_visible_in_snapshot(xid, $1::text::pg_snapshot)",
            "id > coalesce((SELECT max(id) FROM events WHERE"
            " pg_visible_in_snapshot(xid, $1::text::pg_snapshot)), 0)",
        )
        self.assertNotEqual(broken, eventfunctions._READ)
        self.patch(catalogModule, "EVENTS", {**eventfunctions.EVENTS, b"events": broken})
        three = self.openNode()
        await three.follower.watch("b")
        with psycopg.connect(self.conninfo) as late:
            late.execute("SELECT journal('b', 'late', 1, 'e', 1, 'a', '{}', false, 1)")
            await self.one.put(b"a")
            await three.got(1)
            late.commit()
        await self.one.put(b"b")
        await three.got(2)
        await pause(0.6)
        self.assertNotIn(b"late", [key for _, key, _ in await three.got(2)])


@long("starts a cluster")
class PromotionTests(TestCase):
    """The primary crashes, and its standby is promoted."""

    timeout = 120

    async def test_promoted(self) -> None:
        """Every acknowledged write comes, once, from before and after."""
        first = Server.make()
        self.addCleanup(first.remove)
        name = first.store().rpartition("=")[2]
        second = first.standby("second")
        self.addCleanup(second.remove)
        conninfos = [each.conninfo(name) for each in (first, second)]
        one, two = Node(conninfos), Node(conninfos)
        for node in (one, two):
            self.addCleanup(lambda node=node: Deferred.fromCoroutine(node.close()))
        await one.catalog.commit(AddBucket(bucketNamed("b")))
        await two.follower.watch("b")
        acknowledged: list[bytes] = []
        isOver = False

        async def write() -> None:
            n = 0
            while not isOver:
                n += 1
                key = b"%d" % n
                try:
                    await one.put(key)
                except StoreBusy:
                    await pause()
                else:
                    acknowledged.append(key)

        async def lease(node: Node) -> None:
            while not isOver:
                if not node.catalog.lease:
                    try:
                        await node.catalog.leases.take("node", 60.0)
                    except StoreBusy:
                        pass
                await pause()

        tasks = [Deferred.fromCoroutine(each) for each in (write(), lease(one), lease(two))]
        await pause(1.5)
        before = len(acknowledged)
        self.assertGreater(before, 10)
        first.kill()
        second.execute("ALTER SYSTEM SET synchronous_standby_names = ''")
        second.promote()
        while len(acknowledged) < before + 100:
            await pause()
        isOver = True
        await gatherResults(tasks)
        while acknowledged[-1] not in [change.key for change in two.changes]:
            await pause()
        keys = [change.key for change in two.changes]
        self.assertEqual(len(keys), len(set(keys)))
        self.assertEqual(set(acknowledged) - set(keys), set())
        self.assertEqual(two.missed, 0)
