"""The records of the console in the catalog of two nodes, on a real server."""

import time
from typing import Any

from twisted.internet.defer import Deferred, gatherResults
from twisted.trial.unittest import TestCase

from storagegate.storage.cluster.catalog import openPostgreSQL
from storagegate.storage.consolerecords import RecordLimits
from storagegate.storage.errors import StoreBusy
from tests.contract.consolerecords import NOW_MS, ConsoleRecordsContract, record
from tests.support.postgresql import execute, sharedServer
from tests.support.selection import long
from tests.wire.storage.test_sharded import makeShards, openNode


@long("starts PostgreSQL")
class ClusterConsoleRecordsTests(ConsoleRecordsContract, TestCase):
    """The contract, and what nodes do at the same time."""

    def setUp(self) -> None:
        """Have two nodes."""
        self.conninfo = sharedServer().store()
        self.catalogs = [self.open() for _ in range(2)]
        self.stores = [each.consoleRecords for each in self.catalogs]

    def open(self) -> Any:
        """Open the catalog as a node does."""
        from twisted.internet import reactor

        catalog = openPostgreSQL(reactor, [self.conninfo], "node", 60.0)
        self.addCleanup(catalog.close)
        return catalog

    async def test_race(self) -> None:
        """Of the nodes that add one id at the same time, one stores it."""
        limits = RecordLimits(50, 50, 1 << 20, evicts=False)
        for number in range(20):
            adding = [
                Deferred.fromCoroutine(each.add(record(str(number)), limits, NOW_MS))
                for each in self.stores * 2
            ]
            self.assertEqual(sorted(await gatherResults(adding)), [False] * 3 + [True])

    async def test_evictions(self) -> None:
        """Nodes that evict the same records at the same time neither fail nor deadlock."""
        limits = RecordLimits(5, 5, 1 << 20)
        adding = [
            Deferred.fromCoroutine(store.add(record(f"{node}/{number}"), limits, NOW_MS))
            for number in range(100)
            for node, store in enumerate(self.stores)
        ]
        self.assertEqual(await gatherResults(adding), [True] * 200)
        self.assertEqual(await self.put(0, record("last"), most=5), [True])
        self.assertEqual(len(await self.ids()), 5)

    async def test_clockAhead(self) -> None:
        """A node whose clock is ahead removes no record that has not expired by the server's."""
        nowMs = int(time.time() * 1000)
        await self.put(0, record("old", expiresMs=nowMs), record("a", expiresMs=nowMs + 600_000))
        limits = RecordLimits(50, 50, 1 << 20)
        await self.stores[1].add(record("b", expiresMs=nowMs + 9**12), limits, nowMs + 9**11)
        self.assertEqual(await self.ids(), {"a", "b"})

    async def test_noLease(self) -> None:
        """A node without a lease changes nothing, and still reads."""
        await self.put(0, record("a"))
        self.catalogs[1].leases.giveUp()
        with self.assertRaises(StoreBusy):
            await self.put(1, record("b"))
        with self.assertRaises(StoreBusy):
            await self.stores[1].remove("session", "a")
        self.assertEqual(await self.ids(), {"a"})


@long("starts PostgreSQL")
class ShardedConsoleRecordsTests(ConsoleRecordsContract, TestCase):
    """The contract with a catalog of two shards, of which the first has the records."""

    def setUp(self) -> None:
        """Have two nodes."""
        conninfos = makeShards()
        self.conninfos = conninfos
        self.stores = [openNode(self, conninfos[0]).consoleRecords for _ in range(2)]

    async def test_place(self) -> None:
        """The records are in the first shard."""
        await self.put(0, record("a"))
        counts = [execute(each, "SELECT count(*) FROM consolerecords") for each in self.conninfos]
        self.assertEqual(counts, [[(1,)], [(0,)]])
