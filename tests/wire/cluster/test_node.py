"""Nodes of a store over several machines: PostgreSQL, files that all reach, and each its lease."""

import os
from collections.abc import Callable
from contextvars import copy_context
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.task import deferLater
from twisted.trial.unittest import TestCase
from zope.interface.verify import verifyObject

from storagegate.cluster.node import ClusterNode
from storagegate.storage.blobids import readBlobId
from storagegate.storage.cluster.interfaces import REQUEST_LEASE
from storagegate.storage.errors import StoreBusy
from storagegate.storage.mutations import AddBucket
from storagegate.storage.node import IStoreNode
from storagegate.storage.records import Content, Segment
from storagegate.storage.store import ObjectStore
from tests.contract.catalogcase import ALWAYS, bucketNamed, inlineRecord
from tests.support.postgresql import execute, sharedServer
from tests.support.selection import long

BODY = b"x" * 100_000
LEASE_SECONDS = 5.0
"""The nodes keep their leases although a busy machine stops this process for half of this time."""


def pause(seconds: float) -> Deferred[None]:
    """Wait."""
    from twisted.internet import reactor

    return deferLater(reactor, seconds)


class CountedTask:
    """A task that counts."""

    def __init__(self) -> None:
        self.started = self.stopped = 0

    @property
    def isRunning(self) -> bool:
        """Whether it runs."""
        return self.started > self.stopped

    def start(self) -> None:
        """Begin."""
        self.started += 1

    async def stop(self) -> None:
        """End."""
        self.stopped += 1


class ClusterCase(TestCase):
    """A cluster without nodes, of which C{open} makes some."""

    def setUp(self) -> None:
        """Make the database, and the directory of the blobs."""
        self.conninfo = sharedServer().store()
        self.blobs = os.path.abspath(self.mktemp())
        os.makedirs(self.blobs)
        self.stores: list[ObjectStore] = []

    def open(self, **options: Any) -> Any:
        """Open a store as a node."""
        from twisted.internet import reactor

        made = ObjectStore.open(
            os.path.abspath(self.mktemp()),
            reactor,
            durability="os",
            catalog="postgresql",
            blobs="shared",
            options={
                "catalog": [self.conninfo],
                "blobs": f"files:{self.blobs}",
                "node": f"node{len(self.stores)}",
                "leaseSeconds": LEASE_SECONDS,
                "lateSeconds": 0.0,
                "isNew": not self.stores,
                **options,
            },
            node=ClusterNode,
        )
        node = nodeOf(made)
        node.sweeper._pauseSeconds = node.collector._pauseSeconds = 0.05
        self.stores.append(made)
        self.addCleanup(self.close, made)
        return made

    async def close(self, store: ObjectStore) -> None:
        """Close a store, unless it was closed or left already."""
        if store in self.stores:
            self.stores.remove(store)
            await store.close()

    async def die(self, store: Any) -> None:
        """End a node as a crash does: its lease, jobs and uploads stay as they are."""
        self.stores.remove(store)
        node = nodeOf(store)
        for job in node._jobs:
            job.number = 0
            await job.stop()
        await node.watches._task.stop()
        await node.keeper._task.stop()
        node.keeper._end("it is dead")
        store.blobs._removals._isStopping = True
        await store.accessKeys.stop()
        await store.blobs.close()
        await store.catalog.close()
        await store.pool.stop()

    async def write(self, store: Any) -> Any:
        """Write a blob that is not committed."""
        writer = store.blobs.writer(0, len(BODY))
        waiting = writer.write(BODY)
        if waiting is not None:
            await waiting
        return writer, await writer.finish()

    async def put(self, store: Any, key: bytes) -> str:
        """Store an object; return its blob."""
        writer, content = await self.write(store)
        await store.putObject(inlineRecord(key, content=content), writer, ALWAYS)
        blob: str = content.segments[0].blob
        return blob

    def files(self) -> set[str]:
        """Return the ids of all blobs that are there."""
        return {
            name
            for _, _, names in os.walk(self.blobs)
            for name in names
            if readBlobId(name) is not None
        }

    def execute(self, sql: str, *values: object) -> list[Any]:
        """Run a statement of an operator."""
        return execute(self.conninfo, sql, *values)

    async def until(self, condition: Callable[[], object], seconds: float = 40.0) -> None:
        """Wait for something."""
        for _ in range(int(seconds / 0.05)):
            if condition():
                return
            await pause(0.05)
        self.fail("it has not come about")


def nodeOf(store: Any) -> ClusterNode:
    """Return the part of a process in a store."""
    node: ClusterNode = store._node
    return node


@long("starts a cluster")
class NodeTests(ClusterCase):
    """Leases, reads, sweeping, collecting and jobs of several nodes."""

    async def test_interface(self) -> None:
        """It is the part of a process that a store expects."""
        store = self.open()
        verifyObject(IStoreNode, nodeOf(store))
        self.assertIsNone(store.space())
        await self.until(lambda: set(store.health().values()) == {None})
        self.assertEqual(set(store.warnings().values()), {None})

    async def test_collects(self) -> None:
        """An object that is replaced or deleted on one node is removed, whoever wrote it."""
        first, second = self.open(), self.open()
        await first.catalog.commit(AddBucket(bucketNamed("b")))
        old = await self.put(first, b"k")
        new = await self.put(second, b"k")
        await self.until(lambda: self.files() == {new})
        await first.deleteObjects("b", [(b"k", None, ALWAYS)])
        await self.until(lambda: not self.files())
        self.assertNotEqual(old, new)
        await first.idle()
        self.assertEqual(self.execute("SELECT * FROM blobs"), [])

    async def test_reads(self) -> None:
        """What a node reads stays while it reads, for as long as that lasts, and then goes."""
        first, second = self.open(), self.open()
        await first.catalog.commit(AddBucket(bucketNamed("b")))
        old = await self.put(first, b"k")
        _, record = await second.catalog.object("b", b"k")
        hold = second.hold(record.content)
        new = await self.put(first, b"k")
        await pause(2 * LEASE_SECONDS)
        self.assertEqual(self.files(), {old, new})
        self.assertEqual(self.execute("SELECT count(*) FROM freed"), [(1,)])
        # A long read names its blobs: then what others give back is folded.
        nodeOf(second).reads._longSeconds = 0.0
        await self.until(lambda: self.execute("SELECT blob FROM holds") == [(old,)])
        await self.until(lambda: not self.execute("SELECT * FROM freed"))
        await pause(LEASE_SECONDS)
        self.assertEqual(self.files(), {old, new})
        hold.release()
        await self.until(lambda: self.files() == {new})
        self.assertEqual(self.execute("SELECT * FROM holds"), [])

    async def test_crash(self) -> None:
        """
        Of a node that dies the uploads are removed that it has not committed, the others stay, its
        holds end, and its work goes on elsewhere.
        """
        first, second = self.open(), self.open()
        tasks = [CountedTask(), CountedTask()]
        first.runInOne("count", tasks[0])
        await self.until(lambda: tasks[0].isRunning)
        second.runInOne("count", tasks[1])
        await first.catalog.commit(AddBucket(bucketNamed("b")))
        kept = await self.put(first, b"k")
        _, content = await self.write(first)
        nodeOf(first).reads._longSeconds = 0.0
        first.hold(content)
        await self.until(lambda: self.execute("SELECT * FROM holds"))
        self.assertFalse(tasks[1].isRunning)
        self.assertEqual(len(self.files()), 2)
        await self.die(first)
        await self.until(lambda: self.files() == {kept})
        await self.until(lambda: tasks[1].isRunning)
        await self.until(lambda: len(self.execute("SELECT * FROM leases")) == 1)
        self.assertEqual(self.execute("SELECT * FROM holds"), [])

    async def test_stop(self) -> None:
        """A node that stops in order leaves nothing that another has to wait for."""
        first, second = self.open(), self.open()
        tasks = [CountedTask(), CountedTask()]
        first.runInOne("count", tasks[0])
        await self.until(lambda: tasks[0].isRunning)
        second.runInOne("count", tasks[1])
        await first.catalog.commit(AddBucket(bucketNamed("b")))
        kept = await self.put(first, b"k")
        number = first.catalog.lease
        await self.close(first)
        self.assertEqual(self.execute("SELECT * FROM leases WHERE id = %s", number), [])
        await self.until(lambda: tasks[1].isRunning)
        self.assertFalse(tasks[0].isRunning)
        self.assertEqual(self.files(), {kept})

    async def test_givenUp(self) -> None:
        """
        After a commit of unknown outcome nothing is admitted until there is another lease. What was
        written under the old one is swept, unless it was committed.
        """
        store = self.open()
        node = nodeOf(store)
        await store.catalog.commit(AddBucket(bucketNamed("b")))
        kept = await self.put(store, b"k")
        _, content = await self.write(store)
        number = store.catalog.lease
        read: Any = node.hold({"a blob"})
        store.catalog.leases.giveUp()
        self.assertFalse(read.isOpen)
        read.release()
        self.assertRaises(StoreBusy, store.admit)
        self.assertRaises(StoreBusy, store.hold, content)
        self.assertIn("given up", store.health()["lease"])
        await self.until(lambda: store.catalog.lease)
        self.assertGreater(store.catalog.lease, number)
        store.admit()
        await self.until(lambda: self.files() == {kept})
        self.assertIsNone(store.health()["lease"])

    async def test_admit(self) -> None:
        """A request commits under the lease of the moment at which it came."""
        store = self.open()
        number = store.catalog.lease

        def admitted() -> int:
            store.admit()
            return REQUEST_LEASE.get()

        self.assertEqual(copy_context().run(admitted), number)
        self.assertEqual(REQUEST_LEASE.get(), 0)

    async def test_numbers(self) -> None:
        """Uploads that were removed are settled: the range that is swept at the end is short."""
        store = self.open()
        await store.catalog.commit(AddBucket(bucketNamed("b")))
        for _ in range(3):
            writer, _ = await self.write(store)
            store.abort(writer)
        await self.until(lambda: not self.files())
        await self.until(lambda: store.catalog.leases.isSettled)
        await self.until(lambda: self.execute("SELECT low FROM leases") == [(3,)])

    async def test_noStandby(self) -> None:
        """Where commits must wait for a standby and wait for none, nothing is served."""
        store = self.open(synchronous="required")
        await self.until(lambda: "synchronous_standby_names" in (store.health()["lease"] or ""))
        self.assertRaises(StoreBusy, store.admit)
        self.assertEqual(store.catalog.lease, 0)

    async def test_restartedJobs(self) -> None:
        """A task goes on under the next lease."""
        store = self.open()
        task = CountedTask()
        store.runInOne("count", task)
        await self.until(lambda: task.isRunning)
        store.catalog.leases.giveUp()
        await self.until(lambda: task.stopped)
        await self.until(lambda: task.isRunning)
        self.assertEqual((task.started, task.stopped), (2, 1))

    async def test_empty(self) -> None:
        """What has no blobs is read without a lease: it was in the row."""
        store = self.open()
        store.catalog.leases.giveUp()
        store.hold(Content(5, b"hello")).release()
        self.assertRaises(StoreBusy, store.hold, Content(1, None, (Segment("a", 0, 1),)))
