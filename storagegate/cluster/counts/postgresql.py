"""
Counts, sessions and replies in PostgreSQL, in unlogged tables.

The tables are empty after a crash of the server, and on a promoted standby: windows start over, and
users must log in again. One node removes expired rows, see L{PostgreSQLCounts.removeExpired}; until
then queries ignore them.
"""

from collections.abc import Callable, Coroutine, Sequence
from contextlib import closing
from functools import partial
from random import uniform
from typing import Any

import psycopg
from twisted.internet.defer import Deferred, fail
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

from storagegate.cluster.counts.interfaces import CountsUnavailable, ICountsServer, RecordedCall
from storagegate.storage.cluster.connection import (
    MAX_WAITING,
    Connection,
    ConnectionLost,
    StatementRefused,
    Step,
)
from storagegate.storage.cluster.primary import (
    ASK_STATEMENTS,
    PersistentConnection,
    Primary,
    findPrimary,
)
from storagegate.storage.cluster.values import (
    boolean,
    byteaArray,
    float8,
    int8,
    int8Array,
    integer,
)
from storagegate.storage.errors import StoreBusy
from storagegate.storage.periodic import PeriodicTask
from storagegate.storage.sqlite import CatalogUnusable

_log = Logger()

ANSWER_SECONDS = 2.0
"""A server without a reply within this time counts as down: user requests wait for it."""

FAILED_SECONDS = 5.0
"""How long the server counts as failed after it refused a statement (disk full, say)."""

MAX_BYTES = 64 * 1024 * 1024
"""Limit of the pending sessions and replies: as large as an in-memory session store."""

MAX_ROWS = 1_000_000
"""Approximate limit of a table's rows, as in a session file; the first to expire are evicted."""

_BATCHES = 2
"""Concurrent counting statements: while one waits for the server, the next one is written."""

_BATCH = 512
"""Counts in one statement, which locks the rows for a few milliseconds."""

EXPIRY_SECONDS = 60.0
"""The interval at which expired rows are removed; until then they only use space."""

_REMOVED_AT_ONCE = 10_000
"""Rows that are removed in one transaction, which takes a tenth of a second."""

_LOCK = 0x636F756E74
"""The advisory lock for creating the tables."""

_TABLES = (
    # For updates in place, half of each page is left for the next versions of its rows.
    """
    CREATE UNLOGGED TABLE countrates (
        key bytea PRIMARY KEY, hits bigint NOT NULL, ends timestamptz NOT NULL
    ) WITH (fillfactor = 50)
    """,
    """
    CREATE UNLOGGED TABLE countsessions (
        key bytea PRIMARY KEY, content bytea NOT NULL, cookie bytea NOT NULL,
        ends timestamptz NOT NULL
    )
    """,
    """
    CREATE UNLOGGED TABLE countcalls (
        key bytea PRIMARY KEY, owner bytea NOT NULL, size bigint NOT NULL,
        isknown boolean NOT NULL DEFAULT false, reply bytea, ends timestamptz NOT NULL
    )
    """,
    "CREATE INDEX countsessionsends ON countsessions (ends)",
    "CREATE INDEX countcallsends ON countcalls (ends)",
)

_HAS_TABLES = """
    SELECT count(*) FROM pg_tables
    WHERE tablename = 'countcalls' AND schemaname = ANY (current_schemas(false))
"""

_NAMES = ("countrates", "countsessions", "countcalls")

_STATEMENTS = {
    # Commits of unlogged tables need not be durable.
    b"unsynced": "SET synchronous_commit = off",
    # All times in a statement are equal: a window that it finds ended is the window that it begins.
    # A window that ends later than a new one was begun before the server's clock was set back; the
    # extra second is for statements that wait for each other.
    b"count": """
        INSERT INTO countrates AS r (key, hits, ends)
        SELECT key, hits, statement_timestamp() + us * interval '1 us'
        FROM unnest($1::bytea[], $2::bigint[], $3::bigint[]) AS given (key, hits, us)
        ORDER BY key
        ON CONFLICT (key) DO UPDATE SET
            hits = CASE WHEN r.ends <= statement_timestamp()
                OR r.ends > excluded.ends + interval '1 s'
                THEN excluded.hits ELSE r.hits + excluded.hits END,
            ends = CASE WHEN r.ends <= statement_timestamp()
                OR r.ends > excluded.ends + interval '1 s'
                THEN excluded.ends ELSE r.ends END
        RETURNING key, hits, ends, statement_timestamp()
    """,
    b"takeback": """
        UPDATE countrates SET hits = hits - 1
        WHERE key = $1::bytea AND hits > 0 AND ends > statement_timestamp()
    """,
    b"removecount": "DELETE FROM countrates WHERE key = $1::bytea",
    b"findcount": """
        SELECT hits, ends, statement_timestamp() FROM countrates
        WHERE key = $1::bytea AND ends > statement_timestamp()
    """,
    b"findsession": """
        SELECT content, cookie FROM countsessions
        WHERE key = $1::bytea AND ends > statement_timestamp()
    """,
    b"putsession": """
        INSERT INTO countsessions AS s (key, content, cookie, ends)
        VALUES ($1::bytea, $2::bytea, $3::bytea,
            statement_timestamp() + $4::float8 * interval '1 ms')
        ON CONFLICT (key) DO UPDATE
            SET content = excluded.content, cookie = excluded.cookie, ends = excluded.ends
    """,
    b"replacesession": """
        UPDATE countsessions SET content = $2::bytea, cookie = $3::bytea,
            ends = statement_timestamp() + $4::float8 * interval '1 ms'
        WHERE key = $1::bytea AND ends > statement_timestamp()
    """,
    b"touchsession": """
        UPDATE countsessions SET cookie = $2::bytea,
            ends = statement_timestamp() + $3::float8 * interval '1 ms'
        WHERE key = $1::bytea AND ends > statement_timestamp()
    """,
    b"removesession": "DELETE FROM countsessions WHERE key = $1::bytea",
    b"begincall": """
        INSERT INTO countcalls AS c (key, owner, size, ends)
        VALUES ($1::bytea, $2::bytea, $3::bigint, statement_timestamp() +
            $4::float8 * interval '1 ms')
        ON CONFLICT (key) DO UPDATE SET
            owner = excluded.owner, size = excluded.size, ends = excluded.ends,
            isknown = false, reply = NULL
        WHERE c.ends <= statement_timestamp()
            OR $5::boolean AND c.owner = excluded.owner AND c.reply IS NULL
        RETURNING 1
    """,
    b"findcall": """
        SELECT owner, size, reply, isknown, ends, statement_timestamp() FROM countcalls
        WHERE key = $1::bytea
    """,
    b"endcall": """
        UPDATE countcalls SET reply = $3::bytea, isknown = $4::boolean
        WHERE key = $1::bytea AND owner = $2::bytea AND reply IS NULL
    """,
}

_EXPIRY_STATEMENTS = {
    **{
        b"expire" + name.encode(): f"""
            DELETE FROM {name} WHERE ctid = ANY (ARRAY(
                SELECT ctid FROM {name} WHERE ends <= statement_timestamp()
                LIMIT $1::bigint FOR UPDATE SKIP LOCKED))
            RETURNING 1
        """
        for name in _NAMES
    },
    **{
        b"excess" + name.encode(): f"""
            DELETE FROM {name} WHERE ctid = ANY (ARRAY(
                SELECT ctid FROM {name} ORDER BY ends
                LIMIT least($1::bigint,
                    greatest(0, (SELECT count(*) FROM {name}) - $2::bigint))
                FOR UPDATE SKIP LOCKED))
            RETURNING 1
        """
        for name in _NAMES
    },
}


def createTables(conninfos: Sequence[str]) -> None:
    """
    Create the tables of a database, if they are missing. Blocks.

    @param conninfos: One conninfo per server; one server is the primary.
    @raise CatalogUnusable: If no server can be reached, or it refuses; the text gives the reason in
        one line.
    """
    conninfo, _ = findPrimary(conninfos)
    try:
        with closing(psycopg.connect(conninfo, autocommit=True, connect_timeout=5)) as connection:
            hasTables = partial(connection.execute, _HAS_TABLES.encode())
            # Existing tables need no lock and no privilege to create tables.
            if hasTables().fetchall()[0][0]:
                return
            with connection.transaction():
                connection.execute("SELECT pg_advisory_xact_lock(%s)", (_LOCK,))
                if not hasTables().fetchall()[0][0]:
                    for statement in _TABLES:
                        connection.execute(statement.encode())
    except psycopg.Error as error:
        text = " ".join(str(error).split())
        raise CatalogUnusable(f"cannot create the tables of the counts: {text}") from error


@implementer(ICountsServer)
class PostgreSQLCounts:
    """Keeps counts in PostgreSQL, over its own connection."""

    def __init__(
        self,
        reactor: Any,
        conninfos: Sequence[str],
        answerSeconds: float = ANSWER_SECONDS,
        maxRows: int = MAX_ROWS,
    ) -> None:
        """
        @param conninfos: One conninfo per server; one server is the primary. It has the tables of
            L{createTables}.
        @param answerSeconds: Time without a result after which the connection counts as lost.
        @param maxRows: Approximate limit of the rows of a table.
        """
        self._reactor = reactor
        self._primary = Primary(reactor, conninfos)
        self._connection = PersistentConnection(
            reactor,
            self._primary,
            _STATEMENTS,
            onOpen=self._opened,
            answerSeconds=answerSeconds,
        )
        self._batches = _CountBatches(self._run)
        self._wait = answerSeconds
        self._maxRows = maxRows
        # Size of the pending sessions and replies.
        self._bytes = 0
        self._isFirst = True
        self._refusal: str | None = None
        self._refusedAt = 0.0

    @property
    def failure(self) -> str | None:
        """See L{ICountsServer}."""
        if self._refusal is not None:
            if self._reactor.seconds() - self._refusedAt < FAILED_SECONDS:
                return self._refusal
            self._refusal = None
        if self._connection.connection is not None:
            return None
        return self._primary.failure or "the connection was lost"

    def open(self) -> None:
        """See L{ICountsServer.open}."""
        self._connection.open()

    def close(self) -> None:
        """See L{ICountsServer.close}."""
        self._connection.close()

    def expiry(self) -> "ExpiryTask":
        """See L{ICountsServer.expiry}."""
        return ExpiryTask(self, self._reactor)

    async def count(self, key: bytes, windowMs: float) -> tuple[int, float]:
        """See L{ICountsServer.count}."""
        return await self._batches.count(key, windowMs)

    async def takeBack(self, key: bytes) -> None:
        """See L{ICountsServer.takeBack}."""
        await self._run((b"takeback", (key,)))

    async def removeCount(self, key: bytes) -> None:
        """See L{ICountsServer.removeCount}."""
        await self._run((b"removecount", (key,)))

    async def findCount(self, key: bytes) -> tuple[int, float] | None:
        """See L{ICountsServer.findCount}."""
        [result] = await self._run((b"findcount", (key,)))
        return _countOf(result) if result.ntuples else None

    async def findSession(self, key: bytes) -> tuple[bytes, bytes] | None:
        """See L{ICountsServer.findSession}."""
        [result] = await self._run((b"findsession", (key,)))
        if not result.ntuples:
            return None
        return result.get_value(0, 0), result.get_value(0, 1)

    async def putSession(
        self, key: bytes, content: bytes, cookie: bytes, ms: float, mustExist: bool
    ) -> None:
        """See L{ICountsServer.putSession}."""
        name = b"replacesession" if mustExist else b"putsession"
        size = len(content) + len(cookie)
        await self._run((name, (key, content, cookie, float8(ms))), size=size)

    async def touchSession(self, key: bytes, cookie: bytes, ms: float) -> None:
        """See L{ICountsServer.touchSession}."""
        await self._run((b"touchsession", (key, cookie, float8(ms))), size=len(cookie))

    async def removeSession(self, key: bytes) -> None:
        """See L{ICountsServer.removeSession}."""
        await self._run((b"removesession", (key,)))

    async def beginCall(
        self, key: bytes, owner: bytes, size: int, ms: float, isOwnNew: bool
    ) -> RecordedCall | None:
        """See L{ICountsServer.beginCall}."""
        values = (key, owner, int8(size), float8(ms), boolean(isOwnNew))
        # A separate statement, whose snapshot includes the row that the first one waited for.
        made, found = await self._run((b"begincall", values), (b"findcall", (key,)))
        if made.ntuples:
            return None
        if not found.ntuples:
            # The row was removed in between. The client will resend the datagram.
            raise CountsUnavailable("the request has expired")
        return RecordedCall(
            found.get_value(0, 0),
            integer(found.get_value(0, 1)),
            found.get_value(0, 2),
            found.get_value(0, 3) == boolean(True),
            _leftMs(found, 0, 4),
        )

    async def endCall(self, key: bytes, owner: bytes, reply: bytes, isKnown: bool) -> None:
        """See L{ICountsServer.endCall}."""
        step = (b"endcall", (key, owner, reply, boolean(isKnown)))
        await self._run(step, size=len(reply))

    async def removeExpired(self) -> int:
        """
        Remove expired rows, and the rows beyond the limit of a table that expire first.

        It opens its own connection while it runs, so that counts do not wait for it.

        @return: The number of removed rows.
        @raise CountsUnavailable: If the server did not remove them.
        """

        def make() -> Connection:
            return Connection(self._reactor, {**ASK_STATEMENTS, **_EXPIRY_STATEMENTS})

        total = 0
        try:
            connection = await self._primary.connect(make)
            try:
                for name in _NAMES:
                    total += await self._removeFrom(connection, name.encode())
            finally:
                connection.close()
        except (StatementRefused, StoreBusy) as error:
            raise CountsUnavailable(str(error)) from error
        return total

    async def _removeFrom(self, connection: Connection, table: bytes) -> int:
        total, most = 0, int8(_REMOVED_AT_ONCE)
        expire: Step = (b"expire" + table, (most,))
        excess: Step = (b"excess" + table, (most, int8(self._maxRows)))
        for step in (expire, excess):
            removed = _REMOVED_AT_ONCE
            while removed >= _REMOVED_AT_ONCE:
                [result] = await connection.run([step])
                removed = result.ntuples
                total += removed
        return total

    async def _run(self, *steps: Step, size: int = 0) -> list[Any]:
        connection = self._connection.connection
        if connection is None:
            connection = await self._first()
        if self._bytes + size > MAX_BYTES:
            raise CountsUnavailable("too many sessions are waiting for the server")
        self._bytes += size
        try:
            return await connection.run(steps)
        except StatementRefused as error:
            self._refusal, self._refusedAt = str(error), self._reactor.seconds()
            raise CountsUnavailable(str(error)) from error
        except StoreBusy as error:
            isUnknown = isinstance(error, ConnectionLost)
            raise CountsUnavailable(str(error), isUnknown) from error
        finally:
            self._bytes -= size

    async def _first(self) -> Connection:
        """Wait for the first connection; do not wait for later ones."""
        if self._isFirst:
            try:
                return await self._connection.opened(self._wait)
            except StoreBusy as error:
                self._isFirst = False
                raise CountsUnavailable(str(error)) from error
        raise CountsUnavailable(f"not connected: {self.failure}")

    def _opened(self, connection: Connection) -> None:
        self._isFirst = False
        # A connection that fails immediately also fails the statements after it.
        connection.run([(b"unsynced", ())]).addErrback(lambda failure: None)


class _WaitingCount:
    __slots__ = ("done", "key", "us")

    def __init__(self, key: bytes, windowMs: float) -> None:
        self.key = key
        self.us = round(windowMs * 1000)
        self.done: Deferred[tuple[int, float]] = Deferred()


class _CountBatches:
    """
    Batches counts while L{_BATCHES} statements are in flight. This triples the throughput, and
    concurrent requests of a client change its row only once.
    """

    def __init__(self, run: Callable[[Step], Coroutine[Any, Any, list[Any]]]) -> None:
        """
        @param run: Runs a statement, or raises L{CountsUnavailable}.
        """
        self._run = run
        self._waiting: list[_WaitingCount] = []
        self._underWay = 0

    def count(self, key: bytes, windowMs: float) -> Deferred[tuple[int, float]]:
        """Count, see L{ICountsServer.count}."""
        waiting = _WaitingCount(key, windowMs)
        if len(self._waiting) >= MAX_WAITING:
            return fail(CountsUnavailable("too many counts are waiting for the server"))
        self._waiting.append(waiting)
        if self._underWay < _BATCHES:
            self._send()
        return waiting.done

    def _send(self) -> None:
        batch, self._waiting = self._waiting[:_BATCH], self._waiting[_BATCH:]
        self._underWay += 1
        Deferred.fromCoroutine(self._count(batch)).addBoth(self._ended, batch)

    def _ended(self, result: Failure | None, batch: Sequence[_WaitingCount]) -> None:
        self._underWay -= 1
        if self._waiting:
            self._send()
        if isinstance(result, Failure):
            isUnknown = getattr(result.value, "isUnknown", True)
            for waiting in batch:
                # A separate error for each: a shared one would collect the frames of all callers.
                waiting.done.errback(CountsUnavailable(result.getErrorMessage(), isUnknown))
            if result.check(CountsUnavailable) is None:
                _log.failure("counts failed", result)

    async def _count(self, batch: Sequence[_WaitingCount]) -> None:
        # A statement can change a row only once.
        together: dict[bytes, list[_WaitingCount]] = {}
        for waiting in batch:
            together.setdefault(waiting.key, []).append(waiting)
        values = (
            byteaArray(list(together)),
            int8Array([len(each) for each in together.values()]),
            int8Array([each[0].us for each in together.values()]),
        )
        [result] = await self._run((b"count", values))
        for row in range(result.ntuples):
            waiters = together[result.get_value(row, 0)]
            hits, left = integer(result.get_value(row, 1)), _leftMs(result, row, 2)
            for before, waiting in enumerate(reversed(waiters)):
                waiting.done.callback((hits - before, left))


class ExpiryTask:
    """Removes expired rows from the tables, for all nodes."""

    def __init__(
        self,
        counts: PostgreSQLCounts,
        clock: IReactorTime,
        random: Callable[[float, float], float] = uniform,
    ) -> None:
        """@param random: C{random.uniform}, or a replacement."""
        self._counts = counts
        self._random = random
        self._isFailing = False
        self._task = PeriodicTask("the removal of expired counts", clock)

    def start(self) -> None:
        """Start, or restart after L{stop}."""
        self._task.start(self._rounds)

    async def stop(self) -> None:
        """Stop after the current round."""
        await self._task.stop()

    async def _rounds(self) -> None:
        while not self._task.isStopping:
            await self._task.pause(EXPIRY_SECONDS * self._random(0.8, 1.0))
            if self._task.isStopping:
                return
            try:
                await self._counts.removeExpired()
                self._isFailing = False
            except CountsUnavailable as error:
                if not self._isFailing:
                    self._isFailing = True
                    _log.warn("expired counts were not removed: {error}", error=str(error))


def _countOf(result: Any) -> tuple[int, float]:
    return integer(result.get_value(0, 0)), _leftMs(result, 0, 1)


def _leftMs(result: Any, row: int, column: int) -> float:
    """Return the milliseconds until the time in a column; the next column has the current time."""
    # Times are in microseconds.
    ends, now = result.get_value(row, column), result.get_value(row, column + 1)
    return (integer(ends) - integer(now)) / 1000
