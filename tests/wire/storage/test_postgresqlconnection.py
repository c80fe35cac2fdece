"""The connections to PostgreSQL, with real servers that refuse, stop, crash and come back."""

from types import SimpleNamespace
from typing import Any

from psycopg import pq
from twisted.internet.defer import (
    CancelledError,
    Deferred,
    DeferredList,
    FirstError,
    gatherResults,
)
from twisted.internet.task import deferLater
from twisted.python.failure import Failure
from twisted.trial.unittest import TestCase

from storagegate.storage.cluster import connection as connectionModule
from storagegate.storage.cluster.connection import (
    Connection,
    ConnectionLost,
    StatementRefused,
)
from storagegate.storage.cluster.primary import (
    ASK_STATEMENTS,
    PersistentConnection,
    Primary,
    findPrimary,
)
from storagegate.storage.cluster.values import (
    byteaArray,
    int4Array,
    int8,
    int8Array,
    integer,
    textArray,
)
from storagegate.storage.errors import CommitUnknown, StoreBusy
from storagegate.storage.sqlite import CatalogUnusable
from tests.support.postgresql import Server, execute, sharedServer
from tests.support.selection import long

STATEMENTS = {
    b"number": "SELECT $1::bigint",
    b"bytes": "SELECT $1::bytea",
    b"arrays": "SELECT ($1::bigint[])[2], ($2::text[])[2], ($3::int[])[1], ($4::bytea[])[1]",
    b"make": "CREATE TABLE IF NOT EXISTS t (n bigint PRIMARY KEY)",
    b"pid": "SELECT pg_backend_pid()::bigint",
    b"began": "SELECT (extract(epoch FROM now()) * 1000000)::bigint + 0 * $1::bigint",
    b"sleep": "SELECT pg_sleep(30)",
    b"divide": "SELECT 1 / $1::bigint",
    b"listen": "LISTEN news",
    b"tell": "SELECT pg_notify('news', 'x y')",
}


def pause(seconds: float = 0.01) -> Deferred[None]:
    """Wait."""
    from twisted.internet import reactor

    return deferLater(reactor, seconds)


@long("starts PostgreSQL")
class ConnectionTests(TestCase):
    """One connection."""

    def setUp(self) -> None:
        """Make a database."""
        self.conninfo = sharedServer().database()
        self.lost: list[str] = []
        self.told: list[tuple[str, str]] = []

    async def connect(self, conninfo: str = "", **more: Any) -> Connection:
        """Open a connection that is closed at the end."""
        from twisted.internet import reactor

        made = Connection(
            reactor,
            more.pop("statements", STATEMENTS),
            lambda _, reason: self.lost.append(reason),
            lambda *told: self.told.append(told),
            **more,
        )
        self.addCleanup(made.close)
        await made.open(conninfo or self.conninfo)
        return made

    async def numberOf(self, connection: Connection, name: bytes, *values: bytes) -> int:
        """Run a statement; return its number."""
        (rows,) = await connection.run([(name, values)])
        return integer(rows.get_value(0, 0))

    async def test_manyUnderWay(self) -> None:
        """Results come in order, each to its own query, without a round trip between two."""
        connection = await self.connect()
        asked = [connection.run([(b"number", (int8(n),))] * (n % 3 + 1)) for n in range(500)]
        self.assertEqual(connection.waiting, 500)
        for n, results in enumerate(await gatherResults(asked)):
            self.assertEqual([integer(rows.get_value(0, 0)) for rows in results], [n] * (n % 3 + 1))
        self.assertEqual(connection.waiting, 0)
        self.assertGreaterEqual(connection.serverVersion, 140_000)

    async def test_arrays(self) -> None:
        """Arrays are as PostgreSQL reads them, with absent members and without any."""
        connection = await self.connect()
        values = (int8Array([1, -2]), textArray(["a", "é\n"]), int4Array([7]), byteaArray([None]))
        (rows,) = await connection.run([(b"arrays", values)])
        found = [rows.get_value(0, n) for n in range(4)]
        self.assertEqual((integer(found[0]), found[1], integer(found[2])), (-2, "é\n".encode(), 7))
        self.assertIsNone(found[3])
        empty = (int8Array([]), textArray([]), int4Array([]), byteaArray([]))
        (rows,) = await connection.run([(b"arrays", empty)])
        self.assertEqual([rows.get_value(0, n) for n in range(4)], [None] * 4)

    async def test_longValues(self) -> None:
        """Values that fit into no buffer go both ways while others wait."""
        connection = await self.connect()
        body = bytes(range(256)) * 16_384
        asked = [connection.run([(b"bytes", (body,))]) for _ in range(4)]
        for (rows,) in await gatherResults(asked):
            self.assertEqual(rows.get_value(0, 0), body)

    async def test_refused(self) -> None:
        """A statement that fails undoes its own transaction, and no other."""
        connection = await self.connect()
        await connection.run([(b"make", ())])
        execute(self.conninfo, "INSERT INTO t VALUES (1)")
        statements = {b"insert": "INSERT INTO t VALUES ($1::bigint)", **STATEMENTS}
        connection = await self.connect(statements=statements)
        insert = lambda n: (b"insert", (int8(n),))  # noqa: E731
        results = await DeferredList(
            [
                connection.run([insert(2)]),
                connection.run([insert(3), insert(1), insert(4)]),
                connection.run([insert(5)]),
            ],
            consumeErrors=True,
        )
        self.assertEqual([success for success, _ in results], [True, False, True])
        error = results[1][1].value
        self.assertIsInstance(error, StatementRefused)
        self.assertEqual(error.state, "23505")
        self.assertNotIn("\n", str(error))
        rows = execute(self.conninfo, "SELECT n FROM t ORDER BY n")
        self.assertEqual([n for (n,) in rows], [1, 2, 5])
        self.assertEqual(self.lost, [])

    async def lookUp(self, connection: Connection, name: bytes, value: int) -> int:
        """Look up; return the number."""
        rows = await connection.lookUp((name, (int8(value),)))
        return integer(rows.get_value(0, 0))

    async def lookUpAll(self, connection: Connection, *steps: tuple[bytes, int]) -> list[Any]:
        """Look up together; return numbers and errors."""
        asked = [Deferred.fromCoroutine(self.lookUp(connection, *step)) for step in steps]
        done = await DeferredList(asked, consumeErrors=True)
        return [result if isGood else type(result.value) for isGood, result in done]

    async def test_lookUps(self) -> None:
        """Those of one turn are one transaction, up to a bound; others are not in it."""
        connection = await self.connect()
        times = await self.lookUpAll(connection, *[(b"began", 0)] * 40)
        self.assertEqual([len(set(times[:32])), len(set(times[32:])), len(set(times))], [1, 1, 2])
        first = Deferred.fromCoroutine(self.lookUp(connection, b"began", 0))
        other = connection.run([(b"began", (int8(0),))])
        second = Deferred.fromCoroutine(self.lookUp(connection, b"began", 0))
        a, (rows,), b = await gatherResults([first, other, second])
        self.assertLess(a, integer(rows.get_value(0, 0)))
        self.assertLess(integer(rows.get_value(0, 0)), b)

    async def test_lookUpRefused(self) -> None:
        """One that is refused fails alone: those after it are looked up again."""
        connection = await self.connect()
        steps = ((b"number", 1), (b"divide", 0), (b"number", 2), (b"divide", 0), (b"number", 3))
        found = await self.lookUpAll(connection, *steps)
        self.assertEqual(found, [1, StatementRefused, 2, StatementRefused, 3])
        self.assertEqual(await self.lookUp(connection, b"number", 4), 4)

    async def test_lookUpLost(self) -> None:
        """All fail when the connection is lost, sent or not; and none is begun without one."""
        connection = await self.connect()
        sent = connection.lookUp((b"sleep", ()))
        await pause()
        waiting = connection.lookUp((b"number", (int8(1),)))
        connection.close()
        for each in (sent, waiting, connection.lookUp((b"number", (int8(1),)))):
            await self.assertFailure(each, ConnectionLost)

    async def test_unpreparable(self) -> None:
        """A statement that the server cannot prepare fails the connection, which is closed."""
        with self.assertRaises(StatementRefused):
            await self.connect(statements={b"x": "SELECT nothing FROM nowhere"})
        self.assertEqual(self.lost, [])

    async def test_unreachable(self) -> None:
        """A server that refuses, or is not there, is one line."""
        for conninfo in (
            f"{self.conninfo} dbname=missing",
            "host=127.0.0.1 port=1 user=x",
            "host=/nonexistent",
            "nonsense",
        ):
            with self.assertRaises(ConnectionLost) as caught:
                await self.connect(conninfo)
            self.assertNotIn("\n", str(caught.exception))
            self.assertTrue(str(caught.exception))
        self.assertEqual(self.lost, [])

    async def test_lost(self) -> None:
        """What is under way on a connection that the server ends is lost, and that is told once."""
        connection = await self.connect()
        process = await self.numberOf(connection, b"pid")
        asked = [connection.run([(b"sleep", ())]) for _ in range(2)]
        execute(self.conninfo, "SELECT pg_terminate_backend(%s)", process)
        for success, failure in await DeferredList(asked, consumeErrors=True):
            self.assertFalse(success)
            self.assertIsInstance(failure.value, ConnectionLost)
        self.assertEqual(len(self.lost), 1)
        self.assertFalse(connection.isOpen)
        self.assertEqual(connection.fileno(), -1)
        with self.assertRaises(ConnectionLost):
            await connection.run([(b"pid", ())])
        connection.close()

    async def test_lostWhileSending(self) -> None:
        """
        Statements that are sent after the server ended the connection, and before the reactor
        notices, are lost; also if there are so many that libpq notices while it buffers them.
        """
        step = (b"bytes", (bytes(50_000),))

        def lookUp(connection: Connection) -> Deferred[Any]:
            return gatherResults([connection.lookUp(step) for _ in range(20)], consumeErrors=True)

        for send in (lambda connection: connection.run([step] * 20), lookUp):
            self.lost.clear()
            connection = await self.connect()
            process = await self.numberOf(connection, b"pid")
            execute(self.conninfo, "SELECT pg_terminate_backend(%s, 10000)", process)
            failure = await self.failureOf(send(connection))
            failure.trap(ConnectionLost, FirstError)
            if failure.check(FirstError):
                failure.value.subFailure.trap(ConnectionLost)
            self.assertEqual(len(self.lost), 1)
            self.assertFalse(connection.isOpen)
            self.assertEqual(connection.waiting, 0)

    async def test_lostWhilePreparing(self) -> None:
        """A server that ends the connection before the statements are prepared is one line."""
        large = {b"large%d" % n: f"SELECT '{'x' * 50_000}'" for n in range(20)}
        connected = Connection._connected

        def ended(connection: Connection) -> None:
            process = connection._pg.backend_pid
            execute(self.conninfo, "SELECT pg_terminate_backend(%s, 10000)", process)
            connected(connection)

        self.patch(Connection, "_connected", ended)
        with self.assertRaises(ConnectionLost) as caught:
            await self.connect(statements=large)
        self.assertNotIn("\n", str(caught.exception))
        self.assertEqual(self.lost, [])

    async def failureOf(self, asked: Deferred[Any]) -> Failure:
        """Return the failure of a Deferred."""
        found: list[Any] = []
        await asked.addErrback(found.append)
        self.assertEqual(len(found), 1)
        failure: Failure = found[0]
        return failure

    async def test_lostWhileIdle(self) -> None:
        """A connection that the server ends is noticed without a query."""
        connection = await self.connect()
        process = await self.numberOf(connection, b"pid")
        execute(self.conninfo, "SELECT pg_terminate_backend(%s)", process)
        while not self.lost:
            await pause()
        self.assertFalse(connection.isOpen)

    async def test_statementIsCanceled(self) -> None:
        """A statement that an operator cancels is refused; the connection stays."""
        connection = await self.connect()
        process = await self.numberOf(connection, b"pid")
        sleeping = connection.run([(b"sleep", ())])
        sql = "SELECT wait_event FROM pg_stat_activity WHERE pid = %s"
        while execute(self.conninfo, sql, process) != [("PgSleep",)]:
            await pause()
        execute(self.conninfo, "SELECT pg_cancel_backend(%s)", process)
        with self.assertRaises(StatementRefused) as caught:
            await sleeping
        self.assertEqual(caught.exception.state, "57014")
        self.assertEqual(await self.numberOf(connection, b"pid"), process)

    async def test_noAnswer(self) -> None:
        """A server that does not answer in time counts as gone."""
        connection = await self.connect(answerSeconds=0.3)
        with self.assertRaises(ConnectionLost):
            await connection.run([(b"sleep", ())])
        self.assertEqual(len(self.lost), 1)

    async def test_cancelled(self) -> None:
        """The result of a cancelled query is dropped; those after it get their own."""
        connection = await self.connect()
        first = connection.run([(b"number", (int8(1),))])
        second = self.numberOf(connection, b"number", int8(2))
        first.cancel()
        self.assertEqual(await second, 2)
        with self.assertRaises(CancelledError):
            await first

    async def test_bounded(self) -> None:
        """A query too many is refused and not sent."""
        self.patch(connectionModule, "MAX_WAITING", 10)
        connection = await self.connect()
        asked = [connection.run([(b"pid", ())]) for _ in range(11)]
        results = await DeferredList(asked, consumeErrors=True)
        self.assertEqual([success for success, _ in results], [True] * 10 + [False])
        self.assertIs(type(results[10][1].value), StoreBusy)

    async def test_closed(self) -> None:
        """Closing fails what is under way, and is not a loss; also while it connects."""
        from twisted.internet import reactor

        connection = await self.connect()
        asked = connection.run([(b"sleep", ())])
        connection.close()
        with self.assertRaises(ConnectionLost):
            await asked
        connection = Connection(reactor, STATEMENTS)
        opening = connection.open(self.conninfo)
        connection.close()
        with self.assertRaises(ConnectionLost):
            await opening
        connection = Connection(reactor, STATEMENTS)
        opening = connection.open(self.conninfo)
        opening.cancel()
        with self.assertRaises(ConnectionLost):
            await opening
        self.assertEqual(self.lost, [])

    async def test_notified(self) -> None:
        """Notifications come with channel and payload, between results."""
        connection = await self.connect()
        other = await self.connect()
        await connection.run([(b"listen", ())])
        await other.run([(b"tell", ())])
        while not self.told:
            await pause()
        self.assertEqual(self.told, [("news", "x y")])


def notice(function: bytes, text: str) -> Any:
    """Return a warning of the server."""
    fields = {
        pq.DiagnosticField.SOURCE_FUNCTION: function,
        pq.DiagnosticField.MESSAGE_PRIMARY: text.encode(),
    }
    return SimpleNamespace(error_field=fields.get)


@long("starts PostgreSQL")
class InDoubtTests(TestCase):
    """Commits that are not replicated."""

    async def test_languages(self) -> None:
        """The warning is recognised in the language of every server, and no other is."""
        from twisted.internet import reactor

        connection = Connection(reactor, STATEMENTS)
        self.addCleanup(connection.close)
        await connection.open(sharedServer().database())
        german = "storniere Warten auf synchrone Replikation wegen Benutzeraufforderung"
        writing = connection.run([(b"pid", ())])
        connection._noticed(notice(b"SyncRepWaitForLSN", german))
        with self.assertRaises(CommitUnknown) as caught:
            await writing
        self.assertEqual(str(caught.exception), german)
        writing = connection.run([(b"pid", ())])
        connection._noticed(notice(b"exec_stmt_raise", "no synchronous replication today"))
        await writing

    async def test_canceledWait(self) -> None:
        """A commit whose wait for the standby is canceled succeeds, and its outcome is unknown."""
        from twisted.internet import reactor

        server = Server.make()
        self.addCleanup(server.remove)
        conninfo = server.database()
        execute(conninfo, "CREATE TABLE t (n bigint PRIMARY KEY)")
        statements = {b"insert": "INSERT INTO t VALUES ($1::bigint)", **STATEMENTS}
        connection = Connection(reactor, statements, answerSeconds=30.0)
        self.addCleanup(connection.close)
        await connection.open(conninfo)
        (rows,) = await connection.run([(b"pid", ())])
        process = integer(rows.get_value(0, 0))
        server.execute("ALTER SYSTEM SET synchronous_standby_names = 'absent'")
        server.execute("SELECT pg_reload_conf()")

        async def insert(number: int) -> Deferred[Any]:
            """Insert a row; return when the commit waits for the standby, or is over."""
            writing = connection.run([(b"insert", (int8(number),))])
            sql = "SELECT wait_event FROM pg_stat_activity WHERE pid = %s"
            while not writing.called and server.value(sql, process) != "SyncRep":
                await pause()
            return writing

        number = 1
        # The setting comes into force a little later.
        while (writing := await insert(number)).called:
            await writing
            number += 1
        server.execute("SELECT pg_cancel_backend(%s)", process)
        with self.assertRaises(CommitUnknown):
            await writing
        # The warning is of that commit alone.
        await connection.run([(b"pid", ())])
        # Without a look at warnings it would be a success.
        self.patch(connectionModule, "UNREPLICATED", b"nothing")
        writing = await insert(number + 1)
        server.execute("SELECT pg_cancel_backend(%s)", process)
        await writing


@long("starts PostgreSQL")
class PersistentConnectionTests(TestCase):
    """A connection that comes back."""

    def open(self, *conninfos: str) -> PersistentConnection:
        """Keep a connection open until the end."""
        from twisted.internet import reactor

        self.primary = Primary(reactor, conninfos)
        self.opened: list[Connection] = []
        self.losses: list[None] = []
        made = PersistentConnection(
            reactor,
            self.primary,
            STATEMENTS,
            onOpen=self.opened.append,
            onLost=lambda: self.losses.append(None),
        )
        made.open()
        self.addCleanup(made.close)
        return made

    async def test_reopened(self) -> None:
        """A lost connection is opened again, and a query that reads is made once more."""
        conninfo = sharedServer().database()
        kept = self.open(conninfo)
        (rows,) = await kept.query((b"pid", ()))
        process = integer(rows.get_value(0, 0))
        execute(conninfo, "SELECT pg_terminate_backend(%s)", process)
        (rows,) = await kept.query((b"pid", ()))
        self.assertNotEqual(integer(rows.get_value(0, 0)), process)
        self.assertEqual((len(self.opened), len(self.losses)), (2, 1))
        self.assertIsNone(self.primary.failure)

    async def test_left(self) -> None:
        """One that is open yet is left for another: what is under way on it is unknown."""
        kept = self.open(sharedServer().database())
        (rows,) = await kept.query((b"pid", ()))
        process = integer(rows.get_value(0, 0))
        old = kept.connection
        assert old is not None
        waiting = old.run([(b"pid", ())])
        kept.reopen("another server was promoted")
        with self.assertRaises(ConnectionLost):
            await waiting
        (rows,) = await kept.query((b"pid", ()))
        self.assertNotEqual(integer(rows.get_value(0, 0)), process)
        self.assertEqual((len(self.opened), len(self.losses)), (2, 1))
        kept.close()
        kept.reopen("another server was promoted")

    async def test_away(self) -> None:
        """While the server is away queries fail in time; it is found when it comes back."""
        server = Server.make()
        self.addCleanup(server.remove)
        kept = self.open(server.conninfo("postgres"))
        await kept.query((b"pid", ()))
        server.kill()
        while kept.connection is not None:
            await pause()
        with self.assertRaises(StoreBusy) as caught:
            await kept.opened(0.5)
        self.assertNotIn("\n", str(caught.exception))
        self.assertTrue(self.primary.failure)
        waiting = Deferred.fromCoroutine(kept.opened(60.0))
        server.start()
        await waiting
        await kept.query((b"pid", ()))

    async def test_tooLate(self) -> None:
        """A query whose client has waited for too long already is refused without a connection."""
        from twisted.internet import reactor

        kept = self.open("host=127.0.0.1 port=1 user=x")
        with self.assertRaises(StoreBusy):
            await kept.query((b"pid", ()), began=reactor.seconds() - 60.0)

    async def test_closedWhileAway(self) -> None:
        """Closing ends the tries, and fails what waits."""
        kept = self.open("host=127.0.0.1 port=1 user=x")
        waiting = Deferred.fromCoroutine(kept.opened())
        await pause(0.2)
        kept.close()
        with self.assertRaises(ConnectionLost):
            await waiting
        with self.assertRaises(ConnectionLost):
            await kept.opened()


@long("starts PostgreSQL")
class PrimaryTests(TestCase):
    """Several servers, of which one is the primary."""

    async def test_newestTimeline(self) -> None:
        """
        The primary is found wherever it is in the list; an old one beside a newer one is not used,
        also by a node that begins then, and not if the newer one is away.
        """
        from twisted.internet import reactor

        first = Server.make()
        self.addCleanup(first.remove)
        second = first.standby("second", isSynchronous=False)
        self.addCleanup(second.remove)
        conninfos = [server.conninfo("postgres") for server in (first, second)]

        async def portOf(primary: Primary) -> int:
            connection = await primary.connect(
                lambda: Connection(reactor, {**ASK_STATEMENTS, b"port": "SHOW port"})
            )
            try:
                (rows,) = await connection.run([(b"port", ())])
                return int(rows.get_value(0, 0))
            finally:
                connection.close()

        known = Primary(reactor, conninfos)
        backwards = Primary(reactor, conninfos[::-1])
        for primary in (known, backwards):
            self.assertEqual(await portOf(primary), first.port)
        self.assertEqual(findPrimary(conninfos[::-1]), (conninfos[0], 1))
        promotions: list[None] = []
        known.onPromotion = lambda: promotions.append(None)
        second.promote()
        for primary in (known, backwards, Primary(reactor, conninfos)):
            self.assertEqual(await portOf(primary), second.port)
            self.assertEqual(primary.timeline, 2)
        self.assertEqual(findPrimary(conninfos), (conninfos[1], 2))
        self.assertEqual(len(promotions), 1)
        second.stop()
        for primary in (known, backwards):
            with self.assertRaises(ConnectionLost):
                await portOf(primary)
            assert primary.failure is not None
            self.assertIn("older", primary.failure)

    def test_onlyStandby(self) -> None:
        """A standby alone is refused in one line."""
        with self.assertRaises(CatalogUnusable) as caught:
            findPrimary(["host=127.0.0.1 port=1 user=x"])
        self.assertNotIn("\n", str(caught.exception))
