"""
A server of the catalog that stands still, is slow, is cut off, is read-only or full: whatever a
client waits for is answered within five seconds, nothing is promised that did not happen, and
service is back by itself.
"""

from collections.abc import Awaitable
from time import monotonic
from typing import Any

from twisted.internet.defer import Deferred, gatherResults
from twisted.internet.task import deferLater
from twisted.trial.unittest import TestCase

from storagegate.storage.cluster.catalog import PostgreSQLCatalog, openPostgreSQL
from storagegate.storage.cluster.primary import PersistentConnection, Primary
from storagegate.storage.cluster.writer import MAX_WAITING
from storagegate.storage.errors import CommitUnknown, StoreBusy, StoreFull
from storagegate.storage.mutations import AddBucket, PutObject, RemoveObjects
from storagegate.storage.ranges import ObjectRange
from tests.contract.catalogcase import ALWAYS, bucketNamed, inlineRecord
from tests.support.contention import Stopwatch
from tests.support.faultyproxy import FaultyProxy
from tests.support.postgresql import Server, execute, sharedServer
from tests.support.selection import long

LATEST_SECONDS = 8.0
"""Five, and what a busy machine takes."""


def pause(seconds: float = 0.01) -> Deferred[None]:
    """Wait."""
    from twisted.internet import reactor

    return deferLater(reactor, seconds)


class FaultCase(TestCase):
    """A node with the bucket C{b}."""

    def openNode(self, conninfo: str) -> PostgreSQLCatalog:
        """Open the catalog as a node does."""
        from twisted.internet import reactor

        node = openPostgreSQL(reactor, [conninfo], "node", 60.0)
        self.addCleanup(node.close)
        self.watch = Stopwatch()
        return node

    async def timed(self, work: Awaitable[Any]) -> Any:
        """Return the result, or the refusal, which must come in time."""
        began = monotonic()
        try:
            result = await work
        except StoreBusy as error:
            result = error
        passed = monotonic() - began
        if passed > LATEST_SECONDS:
            # A look takes a millisecond, and there are thousands of calls.
            self.assertLess(passed - self.watch.waitedSeconds(), LATEST_SECONDS)
        return result

    def start(self, work: Awaitable[Any]) -> Deferred[Any]:
        """Begin something that L{timed} waits for."""
        return Deferred.fromCoroutine(self.timed(work))

    async def recover(self, node: PostgreSQLCatalog) -> None:
        """Take a lease again, as its keeper does, and write."""
        while not node.lease:
            try:
                await node.leases.take("node", 60.0)
            except StoreBusy:
                await pause()
        await node.commit(PutObject(inlineRecord(b"after"), ALWAYS))


@long("starts PostgreSQL")
class StandstillTests(FaultCase):
    """All processes of the server are stopped, while its sockets stay open."""

    async def test_suspended(self) -> None:
        """
        Look-ups, lists and writes are refused in time, also those that came before it stopped, and
        those that are too many at once. What was refused as busy did not happen.
        """
        server = Server.make()
        self.addCleanup(server.remove)
        node = self.openNode(server.store())
        await node.commit(AddBucket(bucketNamed("b")))
        await node.commit(PutObject(inlineRecord(b"before"), ALWAYS))
        await node._forLists.opened()
        await node._forLookups.opened()
        server.suspend()
        writes = {
            b"%d" % n: self.start(node.commit(PutObject(inlineRecord(b"%d" % n), ALWAYS)))
            for n in range(MAX_WAITING + 50)
        }
        self.assertEqual(len([each for each in writes.values() if each.called]), 50)
        reads = []
        # The last of them wait until those before have an answer.
        for _ in range(4):
            reads += [self.start(node.object("b", b"before")) for _ in range(20)]
            await pause()
        reads.append(self.start(node.listObjects(ObjectRange("b", b"", b"", b"", 10))))
        await pause(2.0)
        late = self.start(node.commit(PutObject(inlineRecord(b"late"), ALWAYS)))
        reads.append(self.start(node.bucket("b")))
        answers = dict(zip(writes, await gatherResults(list(writes.values())), strict=True))
        for each in [*answers.values(), *await gatherResults(reads), await late]:
            self.assertIsInstance(each, StoreBusy)
        server.resume()
        await self.recover(node)
        page = await node.listObjects(ObjectRange("b", b"", b"", b"", 5000))
        found = {each.key.encode() for each in page.objects} - {b"before", b"after"}
        unknown = {key for key, each in answers.items() if isinstance(each, CommitUnknown)}
        self.assertLessEqual(found, unknown)
        self.assertEqual(node.waiting, 0)


@long("starts PostgreSQL")
class ProxyTests(FaultCase):
    """The network between node and server."""

    async def setUp(self) -> None:
        """Open a node behind a proxy."""
        self.conninfo = sharedServer().store()
        direct = self.openNode(self.conninfo)
        await direct.commit(AddBucket(bucketNamed("b")))
        self.proxy = FaultyProxy(sharedServer().port)
        self.addCleanup(self.proxy.refuse)
        from twisted.internet import reactor

        found = self.conninfo.replace(f"port={sharedServer().port}", f"port={self.proxy.port}")
        # To open blocks, and the proxy runs in this thread.
        self.node = PostgreSQLCatalog(reactor, [found], direct.secret())
        self.addCleanup(self.node.close)
        await self.recover(self.node)

    async def test_late(self) -> None:
        """Answers that come late, but in time, are answers."""
        self.proxy.holdsAnswers = True
        working = [
            self.start(self.node.commit(PutObject(inlineRecord(b"k"), ALWAYS))),
            self.start(self.node.object("b", b"after")),
            self.start(self.node.listObjects(ObjectRange("b", b"", b"", b"", 10))),
        ]
        await pause(1.0)
        self.proxy.release()
        for result in await gatherResults(working):
            self.assertNotIsInstance(result, StoreBusy)

    async def test_cut(self) -> None:
        """
        Connections that are cut in the middle of an answer: look-ups are made again, writes are
        not, for they may have happened.
        """
        unknown = 0
        for length in (1, 5, 30, 200):
            self.proxy.cutAfter = length
            key = b"cut%d" % length
            result = await self.timed(self.node.commit(PutObject(inlineRecord(key), ALWAYS)))
            _, record = await self.node.object("b", key)
            if isinstance(result, StoreBusy):
                unknown += 1
                self.assertIsInstance(result, CommitUnknown)
            else:
                self.assertIsNotNone(record)
            self.proxy.cutAfter = None
            await self.recover(self.node)
            self.proxy.cutAfter = length
            found = await self.timed(self.node.object("b", b"after"))
            self.assertIsNotNone(found[1])
            self.proxy.cutAfter = None
        self.assertGreater(unknown, 0)

    async def test_away(self) -> None:
        """While nothing gets through, everything is refused in time; then it is back by itself."""
        await self.proxy.refuse()
        working = [
            self.start(self.node.commit(PutObject(inlineRecord(b"k"), ALWAYS))),
            self.start(self.node.object("b", b"after")),
        ]
        for result in await gatherResults(working):
            self.assertIsInstance(result, StoreBusy)
        self.assertIsNotNone(self.node.health()["catalog"])
        self.proxy.accept()
        await self.recover(self.node)
        self.assertIsNone(self.node.health()["catalog"])

    async def test_jitter(self) -> None:
        """Connections are tried again after times that grow, are drawn, and are bounded."""
        from twisted.internet import reactor

        await self.proxy.refuse()
        drawn: list[tuple[float, float]] = []

        def draw(least: float, most: float) -> float:
            drawn.append((least, most))
            return least

        conninfo = f"host=127.0.0.1 port={self.proxy.port} user=x"
        kept = PersistentConnection(reactor, Primary(reactor, [conninfo]), {}, random=draw)
        kept.open()
        while len(drawn) < 10:
            await pause()
        kept.close()
        bounds = [most for _, most in drawn]
        self.assertEqual(bounds, sorted(bounds))
        self.assertLess(bounds[0], 0.5)
        self.assertLessEqual(bounds[-1], 2.0)
        self.assertTrue(all(least < most for least, most in drawn[3:]))


@long("starts PostgreSQL")
class RefusingTests(FaultCase):
    """A server that answers, and takes no writes."""

    async def test_readOnly(self) -> None:
        """Writes to a server that is read-only are refused, reads go on, and then writes, too."""
        conninfo = sharedServer().store()
        node = self.openNode(conninfo)
        await node.commit(AddBucket(bucketNamed("b")))
        database = conninfo.rpartition("=")[2]
        execute(conninfo, f"ALTER DATABASE {database} SET default_transaction_read_only = on")
        await self._reconnect(node, conninfo)
        result = await self.timed(node.commit(PutObject(inlineRecord(b"k"), ALWAYS)))
        self.assertIsInstance(result, StoreBusy)
        self.assertNotIsInstance(result, CommitUnknown)
        self.assertEqual((await node.object("b", b"k"))[1], None)
        execute(
            conninfo.replace(f"dbname={database}", "dbname=postgres"),
            f"ALTER DATABASE {database} SET default_transaction_read_only = off",
        )
        await self._reconnect(node, conninfo)
        await self.recover(node)

    async def test_full(self) -> None:
        """A server whose disk is full refuses what it cannot store, and nothing else."""
        conninfo = sharedServer().store()
        node = self.openNode(conninfo)
        await node.commit(AddBucket(bucketNamed("b")))
        await node.commit(PutObject(inlineRecord(b"old"), ALWAYS))
        execute(
            conninfo,
            "CREATE FUNCTION full_() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
            " RAISE EXCEPTION 'could not extend file' USING ERRCODE = '53100'; END $$",
        )
        execute(
            conninfo,
            "CREATE TRIGGER full_ BEFORE INSERT ON objects FOR EACH ROW"
            " WHEN (NEW.size > 100) EXECUTE FUNCTION full_()",
        )
        large = node.commit(PutObject(inlineRecord(b"large", b"x" * 101), ALWAYS))
        small = node.commit(PutObject(inlineRecord(b"small"), ALWAYS))
        with self.assertRaises(StoreFull):
            await large
        await small
        await node.commit(RemoveObjects("b", [(b"old", None, ALWAYS)]))
        self.assertNotEqual(node.lease, 0)

    async def _reconnect(self, node: PostgreSQLCatalog, conninfo: str) -> None:
        """
        End all sessions of the database, each of which has the setting of its beginning, and wait
        until the node knows.
        """
        kept = (node._forLookups, node._forLists, *node.writer._connections)
        ended = {id(each.connection): each.connection for each in kept if each.connection}
        execute(
            conninfo,
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()",
        )
        while any(id(each.connection) in ended for each in kept):
            await pause()
