"""Counts while their server is killed, stopped, slow, full, or another one than it was."""

import time
from pathlib import Path
from random import Random
from typing import Any

import psycopg
from twisted.internet.defer import Deferred, gatherResults
from twisted.internet.task import deferLater
from twisted.trial.unittest import TestCase

from storagegate.cluster.counts import Counts, CountsUnavailable, checkCounts, readCounts
from storagegate.cluster.counts.postgresql import PostgreSQLCounts, createTables
from storagegate.gateway.transports.udp.replycache import ReplyCacheUnavailable
from storagegate.storage.errors import StoreError
from storagegate.storage.sqlite import CatalogUnusable
from tests.support.certificates import Authority
from tests.support.faultyproxy import FaultyProxy
from tests.support.postgresql import Server, execute, sharedServer
from tests.support.redis import RedisServer
from tests.support.selection import long, rounds

ASKED_SECONDS = 5.0
"""Within which each step has to end."""

BACK_SECONDS = 20.0

ROUNDS = rounds(12, 12, soak=400)


class FaultCase(TestCase):
    """
    A server behind a proxy, and the counts of two processes.

    @ivar proxy: Before the server.
    """

    timeout = 60
    proxy: FaultyProxy

    async def made(self, where: str, catalog: list[str]) -> None:
        """Make the counts, and connect."""
        from twisted.internet import reactor

        self.counts, self.others = (Counts(readCounts(where, catalog), reactor) for _ in range(2))
        for each in (self.counts, self.others):
            self.addCleanup(self.closed, each)
        self.rates = self.counts.rateLimitStore("limit", 60_000)
        self.sessions = self.counts.sessionStore()
        self.cache, self.otherCache = self.counts.replyCache(), self.others.replyCache()
        self.calls = 0
        await self.serves(1)

    async def closed(self, counts: Counts) -> None:
        """Close a connection, and let the other side see it."""
        counts.close()
        await self.pause(0.02)

    async def pause(self, seconds: float) -> None:
        """Wait."""
        from twisted.internet import reactor

        await deferLater(reactor, seconds)  # type: ignore[arg-type]

    async def back(self) -> None:
        """Wait until the server is used again."""
        end = time.monotonic() + BACK_SECONDS
        while self.counts.failure is not None or self.others.failure is not None:
            self.assertLess(time.monotonic(), end, self.counts.failure)
            await self.pause(0.05)

    async def begin(self, cache: Any, number: int) -> bool | None:
        """Begin a request; return whether it is new, C{None} if it was dropped."""
        key = (("127.0.0.1", 40_000), number)
        try:
            known = cache.begin(key, 100)
            if hasattr(known, "__await__"):
                known = await known
        except ReplyCacheUnavailable:
            return None
        return known is None

    async def serves(self, hits: int) -> None:
        """Assert that all goes well, and that so many requests were counted."""
        self.assertEqual((await self.rates.increment("key"))[0], hits)
        data = {"cookie": {}, "n": hits}
        await self.sessions.set("id", data)
        self.assertEqual(await self.others.sessionStore().get("id"), data)
        self.calls += 1
        self.assertTrue(await self.begin(self.cache, self.calls))
        self.assertFalse(await self.begin(self.otherCache, self.calls))
        self.assertIsNone(self.counts.failure)

    async def isAway(self, first: int = 1) -> None:
        """
        Assert that each step ends in time: limits are counted here, sessions fail, requests over
        UDP are dropped; and that nothing is waited for once the failure is known.
        """
        began = time.monotonic()
        steps = [
            Deferred.fromCoroutine(each)
            for each in (
                self.rates.increment("key"),
                self.refused(self.sessions.get("id")),
                self.refused(self.sessions.set("late", {"cookie": {}})),
                self.begin(self.cache, 1_000_000),
            )
        ]
        count, _, _, isNew = await gatherResults(steps)
        self.assertLess(time.monotonic() - began, ASKED_SECONDS)
        self.assertEqual(count[0], first)
        self.assertIsNone(isNew)
        began = time.monotonic()
        self.assertIsNotNone(self.counts.failure)
        self.assertEqual((await self.rates.increment("key"))[0], first + 1)
        await self.refused(self.sessions.get("id"))
        self.assertIsNone(await self.begin(self.cache, 1_000_000))
        self.assertLess(time.monotonic() - began, 1.0)

    async def refused(self, step: Any) -> None:
        """Assert that a step fails."""
        with self.assertRaises(CountsUnavailable):
            await step


class RandomMixin:
    """Two processes, each behind a proxy of its own, which cuts and holds replies at random."""

    async def play(self: Any, where: Any, catalog: Any, target: int) -> None:
        """
        Repeat requests over UDP and count others: none is begun twice, and all are counted at last.

        @param where: Makes the address of a proxy's port.
        @param catalog: Makes the conninfos of a proxy's port.
        """
        from twisted.internet import reactor

        random = Random(17)
        proxies = [FaultyProxy(target) for _ in range(2)]
        counts = []
        for proxy in proxies:
            made = Counts(readCounts(where(proxy.port), catalog(proxy.port)), reactor)
            counts.append(made)
            self.addCleanup(proxy.refuse)
            self.addCleanup(self.closed, made)
        caches = [each.replyCache() for each in counts]
        begun: dict[int, int] = {}
        for number in range(ROUNDS):
            at = random.randrange(2)
            if random.random() < 0.5:
                proxies[at].holdsAnswers = True
            else:
                proxies[at].cutAfter = random.randrange(1, 200)
            steps = []
            keys = [number * 20 + random.randrange(20) for _ in range(60)]
            for key in keys:
                steps.append((key, Deferred.fromCoroutine(self.begin(random.choice(caches), key))))
            await self.pause(random.uniform(0, 0.1))
            for proxy in proxies:
                proxy.cutAfter = None
                proxy.release()
            for key, step in steps:
                if await step:
                    begun[key] = begun.get(key, 0) + 1
        self.counts, self.others = counts
        await self.back()
        for key in range(ROUNDS * 20):
            for cache in random.sample(caches, 2):
                if await self.begin(cache, key):
                    begun[key] = begun.get(key, 0) + 1
        self.assertEqual(set(begun.values()), {1})
        # One that a process has recorded and did not see is begun by that one alone.
        self.assertEqual(len(begun), ROUNDS * 20)


class SlowMixin:
    """What happens with any server behind the proxy."""

    async def test_slow(self: Any) -> None:
        """Replies that come too late are not waited for; when they come in time, all is well."""
        self.proxy.holdsAnswers = True
        await self.isAway()
        self.proxy.release()
        await self.back()
        # The step whose reply was late may have been done.
        hits = (await self.rates.increment("key"))[0]
        self.assertIn(hits, (2, 3))
        await self.serves(hits + 1)

    async def test_refusedConnections(self: Any) -> None:
        """A server whose machine is away, and comes back."""
        await self.proxy.refuse()
        await self.pause(0.05)
        await self.isAway()
        self.proxy.accept()
        await self.back()
        await self.serves(2)

    async def test_cutAnswers(self: Any) -> None:
        """
        A request over UDP whose record may have been made: it is begun once, however often it
        comes, and by that process.
        """
        for number in range(100, 110):
            self.proxy.holdsAnswers = True
            beginning = Deferred.fromCoroutine(self.begin(self.cache, number))
            await self.pause(0.05)
            self.proxy.cutAfter = 1
            self.proxy.release()
            self.assertIsNone(await beginning)
            await self.back()
            self.assertEqual(await self.begin(self.otherCache, number), False)
            begun = [await self.begin(self.cache, number) for _ in range(3)]
            self.assertEqual(begun, [True, False, False])
        self.assertEqual(self.proxy.cuts, 10)

    async def test_flood(self: Any) -> None:
        """Far more requests than may wait are all counted in time while nothing replies."""
        self.proxy.holdsAnswers = True
        began = time.monotonic()
        counted = [
            Deferred.fromCoroutine(self.rates.increment(f"k{number}")) for number in range(10_000)
        ]
        await gatherResults(counted)
        self.assertLess(time.monotonic() - began, ASKED_SECONDS)
        self.proxy.release()
        await self.back()


@long("starts a cluster")
class ValkeyFaultTests(SlowMixin, FaultCase):
    """Valkey."""

    async def setUp(self) -> None:
        """Start a server behind a proxy."""
        self.server = RedisServer()
        self.addCleanup(self.server.remove)
        self.proxy = FaultyProxy(self.server.port)
        self.addCleanup(self.proxy.refuse)
        await self.made(f"valkey:redis://127.0.0.1:{self.proxy.port}", [])

    async def test_killed(self) -> None:
        """A server that was killed and started again has lost all, and begins anew."""
        self.server.kill()
        await self.isAway()
        self.server.start()
        await self.back()
        self.assertIsNone(await self.sessions.get("id"))
        await self.serves(1)

    async def test_stopped(self) -> None:
        """A server that is stopped and goes on has lost nothing."""
        self.server.suspend()
        await self.isAway()
        self.server.resume()
        await self.back()
        self.assertEqual(await self.sessions.get("id"), {"cookie": {}, "n": 1})

    async def test_full(self) -> None:
        """A server without memory says so, keeps what it has, and is used when it has some."""
        self.server.execute("CONFIG", "SET", "maxmemory", 1)
        self.assertEqual((await self.rates.increment("key"))[0], 1)
        await self.refused(self.sessions.set("id", {"cookie": {}}))
        self.assertIsNone(await self.begin(self.cache, 1_000_000))
        self.assertIn("OOM", str(self.counts.failure))
        self.assertEqual(await self.sessions.get("id"), {"cookie": {}, "n": 1})
        self.server.execute("CONFIG", "SET", "maxmemory", 0)
        self.assertEqual((await self.rates.increment("key"))[0], 2)
        await self.back()
        await self.serves(3)

    async def test_flushedScripts(self) -> None:
        """Scripts that the server has lost are sent again."""
        self.server.execute("SCRIPT", "FLUSH")
        await self.serves(2)
        self.server.execute("SCRIPT", "FLUSH")
        counted = await gatherResults(
            [Deferred.fromCoroutine(self.rates.increment("key")) for _ in range(100)]
        )
        self.assertEqual(sorted(hits for hits, _ in counted), list(range(3, 103)))

    async def test_replica(self) -> None:
        """A server that has become a replica is not used before it is none any more."""
        self.server.execute("REPLICAOF", "127.0.0.1", 1)
        self.assertEqual((await self.rates.increment("key"))[0], 1)
        await self.refused(self.sessions.set("id", {"cookie": {}}))
        self.server.execute("REPLICAOF", "NO", "ONE")
        await self.back()
        await self.pause(0.2)
        await self.back()
        await self.serves(2)

    async def test_noEnd(self) -> None:
        """A count that has lost its end gets another one."""
        [key] = [each for each in self.server.execute("KEYS", "*") if b":rates:" in each]
        self.server.execute("PERSIST", key)
        hits, end = await self.rates.increment("key")
        self.assertEqual(hits, 2)
        self.assertGreater(self.server.execute("PTTL", key), 50_000)
        self.assertGreater(end, time.time() + 50)

    async def test_allExpire(self) -> None:
        """Nothing is kept for ever."""
        await self.rates.decrement("key")
        for key in self.server.execute("KEYS", "*"):
            self.assertGreater(self.server.execute("PTTL", key), 0, key)


@long("starts a cluster")
class RandomTests(RandomMixin, FaultCase):
    """Replies that are cut and held at random."""

    timeout = 1800

    async def test_valkey(self) -> None:
        """Valkey."""
        server = RedisServer()
        self.addCleanup(server.remove)
        await self.play(lambda port: f"redis://127.0.0.1:{port}", lambda port: [], server.port)

    async def test_postgresql(self) -> None:
        """PostgreSQL."""
        server = sharedServer()
        conninfo = server.database()
        createTables([conninfo])
        await self.play(
            lambda port: "postgresql",
            lambda port: [conninfo.replace(f"port={server.port}", f"port={port}")],
            server.port,
        )


@long("starts a cluster")
class ValkeyLoginTests(TestCase):
    """Servers that want a password or speak TLS."""

    timeout = 60

    async def failureOf(self, url: str) -> str | None:
        """Count with a server; return why it could not be used."""
        from twisted.internet import reactor

        counts = Counts(readCounts(url), reactor)
        await counts.rateLimitStore("limit", 60_000).increment("key")
        failure = counts.failure
        counts.close()
        await deferLater(reactor, 0.02)  # type: ignore[arg-type]
        return failure

    async def test_password(self) -> None:
        """The password is needed, that of a named user too; no message has it."""
        server = RedisServer("--requirepass", "right")
        self.addCleanup(server.remove)
        server.execute("ACL", "SETUSER", "sg", "on", ">its", "~storagegate:*", "+@all")
        where = f"127.0.0.1:{server.port}"
        self.assertIsNone(await self.failureOf(f"valkey://:right@{where}"))
        self.assertIsNone(await self.failureOf(f"valkey://sg:its@{where}/0"))
        checkCounts(f"valkey://sg:its@{where}/0")
        for login in ("", ":SECRET@", "sg:SECRET@"):
            failure = await self.failureOf(f"valkey://{login}{where}")
            self.assertRegex(str(failure), "NOAUTH|WRONGPASS")
            self.assertNotIn("SECRET", str(failure))
            with self.assertRaisesRegex(StoreError, "NOAUTH|WRONGPASS") as caught:
                checkCounts(f"valkey://{login}{where}")
            self.assertNotIn("SECRET", str(caught.exception))

    async def test_check(self) -> None:
        """
        Before a start it is found out whether a server refuses the user, or has another key space;
        one that is away, or is loading or full, may come back.
        """
        server = RedisServer()
        self.addCleanup(server.remove)
        where = f"127.0.0.1:{server.port}"
        server.execute("ACL", "SETUSER", "other", "on", ">its", "~other:*", "+@all")
        server.execute("ACL", "SETUSER", "mute", "on", ">its", "~*", "+get")
        for url in (f"redis://other:its@{where}", f"redis://mute:its@{where}", f"{where}/99"):
            url = url if "//" in url else f"redis://{url}"
            with self.assertRaisesRegex(StoreError, "the counts in .* cannot be used"):
                checkCounts(url)
        server.execute("CONFIG", "SET", "maxmemory", 1)
        checkCounts(f"redis://{where}")
        server.suspend()
        checkCounts(f"redis://{where}")
        server.kill()
        checkCounts(f"redis://{where}")
        checkCounts("unix:/nonexistent")

    async def test_socket(self) -> None:
        """A Unix socket."""
        server = RedisServer()
        self.addCleanup(server.remove)
        self.assertIsNone(await self.failureOf(f"unix:{server.socketPath}?db=1"))

    async def test_TLS(self) -> None:
        """The certificate of the server is verified, and its name."""
        directory = Path(self.mktemp())
        authority, other = Authority(directory), Authority(directory, "other")
        cert, key = authority.issue()
        server = RedisServer(certificate=cert, key=key)
        self.addCleanup(server.remove)
        where = f"localhost:{server.port}"
        self.assertIsNone(await self.failureOf(f"valkeys://{where}?ca={authority.path}"))
        self.assertIsNotNone(await self.failureOf(f"rediss://{where}?ca={other.path}"))
        self.assertIsNotNone(await self.failureOf(f"rediss://{where}"))
        self.assertIsNotNone(await self.failureOf(f"valkey://{where}"))
        self.assertIsNotNone(await self.failureOf(f"valkeys://{where}?ca={directory}/none.pem"))
        checkCounts(f"valkeys://{where}?ca={authority.path}")
        for wrong in (f"?ca={other.path}", "", f"?ca={directory}/none.pem"):
            with self.assertRaisesRegex(StoreError, "the counts in .* cannot be used"):
                checkCounts(f"valkeys://{where}{wrong}")


@long("starts a cluster")
class PostgreSQLFaultTests(SlowMixin, FaultCase):
    """PostgreSQL."""

    async def setUp(self) -> None:
        """Put a proxy before a server that others use as well."""
        self.server = sharedServer()
        self.conninfo = self.server.database()
        createTables([self.conninfo])
        self.proxy = FaultyProxy(self.server.port)
        self.addCleanup(self.proxy.refuse)
        conninfo = self.conninfo.replace(f"port={self.server.port}", f"port={self.proxy.port}")
        await self.made("postgresql", [conninfo])

    async def test_locked(self) -> None:
        """A table that is locked counts as a server that does not reply."""
        with psycopg.connect(self.conninfo) as connection:
            connection.execute("LOCK TABLE countrates, countsessions, countcalls")
            await self.isAway()
        await self.back()
        self.assertEqual(await self.sessions.get("id"), {"cookie": {}, "n": 1})

    async def test_refusedStatements(self) -> None:
        """A database that lets nothing be written says so, and is used when it does again."""
        name = self.conninfo.rpartition("=")[2]
        for readOnly in ("on", "off"):
            self.server.execute(
                f"ALTER DATABASE {name} SET default_transaction_read_only = {readOnly}"
            )
            execute(
                self.conninfo,
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE datname = current_database() AND pid <> pg_backend_pid()",
            )
            await self.pause(0.1)
            await self.back()
            if readOnly == "on":
                self.assertEqual((await self.rates.increment("key"))[0], 1)
                await self.refused(self.sessions.set("id", {"cookie": {}}))
                self.assertIsNone(await self.begin(self.cache, 1_000_000))
                self.assertIn("read-only", str(self.counts.failure))
                self.assertEqual(await self.sessions.get("id"), {"cookie": {}, "n": 1})
        await self.serves(2)

    async def test_clockSetBack(self) -> None:
        """A window of before the server's clock was set back by an hour limits nothing."""
        for _ in range(5):
            await self.rates.increment("key")
        execute(self.conninfo, "UPDATE countrates SET ends = ends + interval '1 h'")
        hits, end = await self.rates.increment("key")
        self.assertEqual(hits, 1)
        self.assertLess(end - time.time(), 61)
        self.assertEqual((await self.rates.increment("key"))[0], 2)

    async def test_expiry(self) -> None:
        """Rows that have expired are removed, those that have not stay."""
        await self.counts.rateLimitStore("short", 1).increment("key")
        await self.sessions.set("short", {"cookie": {}}, 1)
        await self.pause(0.01)
        self.assertEqual(await self.server_.removeExpired(), 2)
        self.assertEqual(await self.server_.removeExpired(), 0)
        await self.serves(2)

    async def test_bounded(self) -> None:
        """Beyond the limit of a table the rows go that end first."""
        from twisted.internet import reactor

        server = PostgreSQLCounts(reactor, [self.conninfo], maxRows=3)
        server.open()
        self.addCleanup(server.close)
        for number in range(10):
            await server.count(b"%d" % number, 1_000_000 + number)
        self.assertEqual(await server.removeExpired(), 8)
        for number in range(10):
            found = await server.findCount(b"%d" % number)
            self.assertEqual(found is not None, number >= 7)

    async def test_tables(self) -> None:
        """Tables are made once, by a role that may; without them the failure says so."""
        createTables([self.conninfo])
        execute(self.conninfo, "DROP TABLE IF EXISTS countcalls")
        with self.assertRaisesRegex(CatalogUnusable, "cannot create the tables of the counts"):
            createTables([self.conninfo])
        with self.assertRaisesRegex(CatalogUnusable, "the catalog cannot be used"):
            createTables(["host=127.0.0.1 port=1 dbname=x"])

    @property
    def server_(self) -> Any:
        """Return the server of the first process."""
        return self.counts._server


@long("starts a cluster")
class PostgreSQLServerTests(FaultCase):
    """PostgreSQL, as a whole server that is killed and stopped."""

    async def setUp(self) -> None:
        """Start a server."""
        self.server = Server.make()
        self.addCleanup(self.server.remove)
        conninfo = self.server.database()
        createTables([conninfo])
        await self.made("postgresql", [conninfo])

    async def test_stoppedAndKilled(self) -> None:
        """
        A server that is stopped has lost nothing; one that crashed begins anew. Counts do not wait
        for a standby that is away, for which all commits of the catalog wait.
        """
        self.server.execute("ALTER SYSTEM SET synchronous_standby_names = 'away'")
        self.server.execute("SELECT pg_reload_conf()")
        await self.pause(0.2)
        await self.serves(2)
        self.server.suspend()
        await self.isAway()
        self.server.resume()
        await self.back()
        self.assertEqual(await self.sessions.get("id"), {"cookie": {}, "n": 2})
        self.server.kill()
        await self.isAway(3)
        self.server.start()
        await self.back()
        self.assertIsNone(await self.sessions.get("id"))
        await self.serves(1)
