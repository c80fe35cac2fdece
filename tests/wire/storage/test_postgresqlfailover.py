"""The catalog in PostgreSQL while its primary and its standby stop, crash and come back."""

from typing import Any

from attrs import evolve
from twisted.internet.defer import Deferred, gatherResults
from twisted.internet.task import deferLater
from twisted.internet.threads import deferToThread
from twisted.python.failure import Failure
from twisted.trial.unittest import TestCase

from storagegate.storage.cluster.admin import openForTools
from storagegate.storage.cluster.catalog import PostgreSQLCatalog, openPostgreSQL
from storagegate.storage.errors import CommitUnknown, StoreBusy
from storagegate.storage.mutations import AddBucket, PutObject
from tests.contract.catalogcase import ALWAYS, IF_ABSENT, bucketNamed, inlineRecord
from tests.contract.catalogkeys import KEY
from tests.support.contention import Stopwatch
from tests.support.postgresql import Server, execute
from tests.support.selection import long

WORKERS = 4

_REPLICATING = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'"
_BEHIND = "SELECT count(*) FROM pg_stat_replication WHERE replay_lsn < pg_current_wal_lsn()"


def pause(seconds: float = 0.02) -> Deferred[None]:
    """Wait."""
    from twisted.internet import reactor

    return deferLater(reactor, seconds)


class FailoverCase(TestCase):
    """A primary with a synchronous standby, and a node."""

    timeout = 180

    def setUp(self) -> None:
        """Start both."""
        self.first = Server.make()
        self.addCleanup(self.first.remove)
        name = self.first.store().rpartition("=")[2]
        self.second = self.first.standby("second")
        self.addCleanup(self.second.remove)
        self.conninfos = [
            server.conninfo("postgres").replace("dbname=postgres", f"dbname={name}")
            for server in (self.first, self.second)
        ]

    def openNode(self, *conninfos: str) -> PostgreSQLCatalog:
        """Open the catalog as a node does."""
        from twisted.internet import reactor

        node = openPostgreSQL(reactor, conninfos or self.conninfos, "node", 60.0)
        self.addCleanup(node.close)
        return node

    async def lease(self, node: PostgreSQLCatalog) -> None:
        """Take a new lease, as its keeper does, as soon as that is possible."""
        while not node.lease:
            try:
                await node.leases.take("node", 60.0)
            except StoreBusy:
                await pause()


@long("starts PostgreSQL")
class StandbyTests(FailoverCase):
    """The standby is away, while commits wait for it."""

    async def test_away(self) -> None:
        """
        Without its standby a write is answered in time, and as unknown; look-ups go on. When the
        standby is back, so are writes.
        """
        node = self.openNode()
        await node.commit(AddBucket(bucketNamed("b")))
        self.assertEqual(await node.cleanup.replication(), ("second", 1))
        self.second.stop()
        watch = Stopwatch()
        with self.assertRaises(CommitUnknown):
            await node.commit(PutObject(inlineRecord(b"k"), ALWAYS))
        self.assertLess(watch.seconds(), 8.0)
        self.assertEqual(node.lease, 0)
        self.assertEqual((await node.object("b", b"none"))[1], None)
        with self.assertRaises(StoreBusy):
            await node.commit(PutObject(inlineRecord(b"k"), ALWAYS))
        self.second.start()
        await self.lease(node)
        await node.commit(PutObject(inlineRecord(b"l"), ALWAYS))

    async def test_canceled(self) -> None:
        """A commit that an operator cancels, while it waits, is not a success."""
        node = self.openNode()
        await node.commit(AddBucket(bucketNamed("b")))
        self.second.stop()
        writing = node.commit(PutObject(inlineRecord(b"k"), ALWAYS))
        while not self.first.value(_REPLICATING):
            await pause()
        self.assertFalse(writing.called)
        self.first.execute(
            "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'"
        )
        with self.assertRaises(CommitUnknown):
            await writing
        self.assertEqual(node.lease, 0)

    async def test_canceledKey(self) -> None:
        """So is a change of a key by a command, which may be lost as well."""
        admin = openForTools(self.conninfos, mayCreate=True)
        self.addCleanup(admin.close)
        admin.addAccessKey(evolve(KEY, accessKey="FIRST"))
        self.second.stop()
        for change in (
            lambda: admin.addAccessKey(KEY),
            lambda: admin.removeAccessKey("FIRST"),
            lambda: admin.openShard(0, False),
            lambda: admin.makeSecrets("AK", "SK", b"affinity"),
        ):
            changing = deferToThread(change)
            changing.addErrback(lambda failure: failure)
            while not changing.called:
                self.first.execute(
                    "SELECT pg_cancel_backend(pid) FROM pg_stat_activity"
                    " WHERE wait_event = 'SyncRep'"
                )
                await pause()
            self.assertIsInstance(changing.result, Failure)
            self.assertIsInstance(changing.result.value, CommitUnknown)
            changing.addErrback(lambda failure: None)
        self.assertEqual([each.accessKey for each in admin.accessKeys()], ["AK"])


@long("starts PostgreSQL")
class PromotionTests(FailoverCase):
    """The primary crashes, and its standby is promoted."""

    async def test_promoted(self) -> None:
        """
        What was acknowledged is there, nothing that was refused is; writes go on by themselves, and
        no node uses the old primary when it comes back.
        """
        node = self.openNode()
        await node.commit(AddBucket(bucketNamed("b")))
        acknowledged: dict[bytes, int] = {}
        refused: set[tuple[bytes, int]] = set()
        isOver: list[None] = []
        after: list[None] = []

        async def write(worker: int) -> None:
            number = 0
            while not isOver:
                number += 1
                key = b"%d-%d" % (worker, number % 7)
                await self.lease(node)
                try:
                    await node.commit(PutObject(inlineRecord(key, b"%d" % number), ALWAYS))
                except CommitUnknown:
                    continue
                except StoreBusy:
                    refused.add((key, number))
                    await pause()
                    continue
                acknowledged[key] = number
                if after:
                    after.append(None)

        writers = gatherResults([Deferred.fromCoroutine(write(n)) for n in range(WORKERS)])
        await pause(1.0)
        while not acknowledged:
            await pause()
        self.first.kill()
        self.second.execute("SELECT pg_promote(true, 60)")
        self.second.execute("ALTER SYSTEM RESET synchronous_standby_names")
        self.second.execute("SELECT pg_reload_conf()")
        after.append(None)
        while len(after) < 200:
            await pause()
        # It takes writes, as nothing has told it that it is over.
        self.first.start()
        self.first.execute("ALTER SYSTEM RESET synchronous_standby_names")
        self.first.execute("SELECT pg_reload_conf()")
        old = self.count(0)
        execute(
            self.conninfos[1],
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()",
        )
        count = len(after)
        while len(after) < count + 200:
            await pause()
        isOver.append(None)
        await writers
        for key, number in acknowledged.items():
            record = (await node.object("b", key))[1]
            assert record is not None
            found = int(record.content.inline or b"")
            # A later write of it may be one of those that are unknown.
            self.assertGreaterEqual(found, number)
            self.assertNotIn((key, found), refused)
        fresh = self.openNode(*self.conninfos)
        await fresh.commit(PutObject(inlineRecord(b"fresh"), IF_ABSENT))
        self.assertIsNotNone((await node.object("b", b"fresh"))[1])
        self.assertEqual((node.primary.timeline, fresh.primary.timeline), (2, 2))
        self.assertEqual(self.count(0), old)

    async def test_openSockets(self) -> None:
        """
        An old primary that stood still while another was promoted, and goes on, with all sockets
        open: a node that has used it leaves it within seconds, although it would take its writes.
        """
        self.first.execute("ALTER SYSTEM RESET synchronous_standby_names")
        self.first.execute("SELECT pg_reload_conf()")
        node = self.openNode()
        await node.commit(AddBucket(bucketNamed("b")))
        await node.commit(PutObject(inlineRecord(b"k"), ALWAYS))
        while self.first.value(_BEHIND):
            await pause()
        # It watches the standby by now.
        await pause(1.5)
        self.first.suspend()
        self.second.promote()
        self.first.resume()
        watch = Stopwatch()
        fresh = self.openNode(self.conninfos[1])
        await fresh.commit(PutObject(inlineRecord(b"new"), ALWAYS))
        while (await node.object("b", b"new"))[1] is None:
            await pause()
        self.assertLess(watch.seconds(), 3.0)
        self.assertEqual((node.lease, node.primary.timeline), (0, 2))
        await self.lease(node)
        await node.commit(PutObject(inlineRecord(b"mine"), ALWAYS))
        self.assertIsNotNone((await fresh.object("b", b"mine"))[1])

    def count(self, server: int) -> Any:
        """Read the last number of a write of a server."""
        return execute(self.conninfos[server], "SELECT last_value FROM writes")
