"""
Discovery of the primary among several servers, and connections to it that reopen when they are
lost.

All servers are queried, and the primary with the newest timeline is used. libpq's own host list
would stop at the first server that accepts writes, which may be an old primary that came back.
Timelines of standbys count, too: an old primary is not used if a standby has a newer timeline.
While there is a primary, the other servers are watched, because one of them may be promoted
although connections to the old primary stay open.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from random import uniform
from typing import Any

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from twisted.internet.abstract import isIPAddress, isIPv6Address
from twisted.internet.defer import CancelledError, Deferred, gatherResults
from twisted.internet.interfaces import IDelayedCall
from twisted.internet.task import deferLater
from twisted.logger import Logger

from storagegate.core.backoff import Backoff
from storagegate.storage.cluster.connection import (
    ANSWER_SECONDS,
    Connection,
    ConnectionLost,
    StatementRefused,
    Step,
    ignoreNotification,
)
from storagegate.storage.cluster.values import integer
from storagegate.storage.errors import StoreBusy
from storagegate.storage.sqlite import CatalogUnusable

ASK_SECONDS = 2.0
"""The timeout of a query to one server."""

WAIT_SECONDS = 5.0
"""
How long a query waits for a connection and the answer: the time within which a client must be
answered.
"""

WATCH_SECONDS = 1.0
"""
Interval between checks of the servers that are not in use. If an old primary was suspended while
another was promoted, and then resumes, a node whose connections it has kept uses it for up to this
time.
"""

MAX_WAITING = 4096
"""The most queries that wait for a connection: the limit of transactions in flight on one."""

_BACKOFF = Backoff(firstSeconds=0.1, maxSeconds=2.0, minSeconds=0.02)

_SESSION = b"session"
_WHERE = b"where"

# The timeline is taken from the current WAL, because the control file shows the old timeline until
# the first checkpoint after a promotion. The server times out before this program does, so that it
# reports what it has not done.
ASK_STATEMENTS = {
    _SESSION: """
        SELECT set_config(name, value, false) FROM (VALUES
            ('lock_timeout', '3000'),
            ('statement_timeout', '4000'), ('idle_in_transaction_session_timeout', '5000'),
            ('tcp_keepalives_idle', '5'), ('tcp_keepalives_interval', '2'),
            ('tcp_keepalives_count', '3'), ('jit', 'off'), ('enable_seqscan', 'off'),
            ('enable_bitmapscan', 'off'),
            ('plan_cache_mode', 'force_generic_plan'),
            ('default_transaction_isolation', 'read committed')) AS setting (name, value)
    """,
    _WHERE: """
        SELECT pg_is_in_recovery(), (CASE WHEN pg_is_in_recovery() THEN greatest(
            (SELECT timeline_id FROM pg_control_checkpoint()),
            (SELECT min_recovery_end_timeline FROM pg_control_recovery()),
            (SELECT received_tli FROM pg_stat_wal_receiver))
        ELSE ('x' || substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8))::bit(32)::int END)::int
    """,
}

"""Statements of each connection, in addition to its own."""


_PASSING = re.compile(
    "start|shut|recover|not (?:yet )?accepting|too many|remaining connection slots", re.IGNORECASE
)
"""Matches the errors of a server that temporarily accepts no connections."""


class CatalogUnreachable(CatalogUnusable, StoreBusy):
    """No server of the catalog answers as a primary. This may be temporary."""


def unreached(error: psycopg.Error) -> CatalogUnusable:
    """
    Return the error for a failed connection.

    A refusal of the user, the password or the database is permanent.
    """
    reason = " ".join(str(error).split())
    isRefusal = "FATAL:" in reason and not _PASSING.search(reason)
    kind = CatalogUnusable if isRefusal else CatalogUnreachable
    return kind(f"the catalog cannot be used: {reason}")


def findPrimary(conninfos: Sequence[str]) -> tuple[str, int]:
    """
    Return the conninfo of the primary with the newest timeline, and that timeline. Blocks; for
    startup.

    @param conninfos: The conninfos, one per server.
    @raise CatalogUnusable: No server is a usable primary; the message is one line with the reason.
        L{CatalogUnreachable} if this may be temporary.
    """
    newest, best = 0, ""
    problem = CatalogUnusable("the catalog cannot be used: no server is configured")
    for conninfo in conninfos:
        try:
            with closing(
                psycopg.connect(conninfo, autocommit=True, connect_timeout=int(ASK_SECONDS))
            ) as connection:
                isStandby, timeline = connection.execute(
                    ASK_STATEMENTS[_WHERE].encode()
                ).fetchall()[0]
        except psycopg.Error as error:
            problem = unreached(error)
            continue
        if timeline > newest:
            newest, best = timeline, ""
            problem = CatalogUnreachable("the catalog cannot be used: no server is the primary")
        if timeline == newest and not isStandby and not best:
            best = conninfo
    if not best:
        raise problem
    return best, newest


class Primary:
    """
    Finds the primary. Methods: reactor thread.

    @ivar timeline: The newest timeline seen on any server.
    @ivar failure: Why the last check found no primary; L{None} if it found one.
    @ivar onPromotion: Called when the timeline has changed, before a new connection is used:
        commits without a synchronous standby, including a lease, may be lost.
    """

    def __init__(self, reactor: Any, conninfos: Sequence[str], timeline: int = 0) -> None:
        """
        @param conninfos: The conninfos, one per server.
        @param timeline: The newest timeline seen; 0 for none.
        """
        self.timeline = timeline
        self.onPromotion: Callable[[], object] = lambda: None
        self.failure: str | None = "not connected yet"
        self._reason = ""
        self._reactor = reactor
        self._conninfos = conninfos
        self._used = ""
        self._watched: dict[str, Connection] = {}
        self._watching: Deferred[None] | None = None

    def watch(self) -> None:
        """Watch the servers that are not in use. Call once."""
        if len(self._conninfos) > 1:
            self._watching = Deferred.fromCoroutine(self._watch())
            self._watching.addErrback(lambda failure: failure.trap(CancelledError) and None)

    def close(self) -> None:
        """Stop L{watch}."""
        watching, self._watching = self._watching, None
        if watching is not None:
            watching.cancel()
        for each in self._watched.values():
            each.close()
        self._watched.clear()

    async def _watch(self) -> None:
        while True:
            await deferLater(self._reactor, uniform(0.5, 1.0) * WATCH_SECONDS)
            others = [each for each in self._conninfos if each != self._used]
            asked = [Deferred.fromCoroutine(self._timelineOf(each)) for each in others]
            newest = max(await gatherResults(asked), default=0)
            if self._watching is None:
                return
            if self.timeline and newest > self.timeline:
                self.timeline = newest
                self.failure = "another server was promoted"
                self.onPromotion()

    async def _timelineOf(self, conninfo: str) -> int:
        """
        Return the timeline of a server, over a persistent connection; 0 if it does not answer.
        """
        connection = self._watched.pop(conninfo, None)
        steps: list[Step] = [(_WHERE, ())]
        try:
            if connection is None or not connection.isOpen:
                connection = Connection(self._reactor, ASK_STATEMENTS)
                address = await self._resolved(conninfo)
                await connection.open(address).addTimeout(ASK_SECONDS, self._reactor)
                steps.insert(0, (_SESSION, ()))
            rows = await connection.run(steps).addTimeout(ASK_SECONDS, self._reactor)
        except Exception:
            # Only a server that answers can have a newer timeline.
            if connection is not None:
                connection.close()
            return 0
        if self._watching is None or conninfo == self._used:
            connection.close()
        else:
            self._watched[conninfo] = connection
        return integer(rows[-1].get_value(0, 1))

    async def connect(self, make: Callable[[], Connection]) -> Connection:
        """
        Connect to the primary.

        @param make: Creates a connection that is not open.
        @raise ConnectionLost: No server is the primary, or its timeline is older than one already
            seen.
        """
        answers = zip(self._conninfos, await self._askAll(make), strict=True)
        found = [(conninfo, *answer) for conninfo, answer in answers if answer is not None]
        newest = max([self.timeline, *(timeline for _, timeline, _, _ in found)])
        if self.timeline and newest != self.timeline:
            self.onPromotion()
        self.timeline = newest
        best: Connection | None = None
        for conninfo, timeline, isPrimary, connection in found:
            if best is None and isPrimary and timeline == self.timeline and connection.isOpen:
                best = connection
                self._used = conninfo
                watched = self._watched.pop(conninfo, None)
                if watched is not None:
                    watched.close()
            else:
                connection.close()
        if best is None:
            if any(isPrimary for _, _, isPrimary, _ in found):
                self.failure = f"the primary is older than timeline {self.timeline}"
            elif found:
                self.failure = "no server is the primary"
            else:
                self.failure = self._reason
            raise ConnectionLost(f"the catalog has no primary: {self.failure}")
        self.failure = None
        return best

    async def _askAll(
        self, make: Callable[[], Connection]
    ) -> list[tuple[int, bool, Connection] | None]:
        asked = [Deferred.fromCoroutine(self._ask(each, make())) for each in self._conninfos]
        answers: list[tuple[int, bool, Connection] | None] = await gatherResults(asked)
        return answers

    async def _ask(
        self, conninfo: str, connection: Connection
    ) -> tuple[int, bool, Connection] | None:
        """Connect to a server; return its timeline, whether it is a primary, and the connection."""
        try:
            address = await self._resolved(conninfo)
            await connection.open(address).addTimeout(ASK_SECONDS, self._reactor)
            rows = await connection.run([(_SESSION, ()), (_WHERE, ())]).addTimeout(
                ASK_SECONDS, self._reactor
            )
        except Exception as error:
            # Whatever the fault of this server, another may be the primary.
            self._reason = " ".join(str(error).split()) or "no answer"
            connection.close()
            return None
        isStandby = rows[1].get_value(0, 0) == b"\x01"
        return integer(rows[1].get_value(0, 1)), not isStandby, connection

    async def _resolved(self, conninfo: str) -> str:
        values = conninfo_to_dict(conninfo)
        host = str(values.get("host", ""))
        if not host or values.get("hostaddr") or host.startswith(("/", "@")):
            return conninfo
        if isIPAddress(host) or isIPv6Address(host):
            return conninfo
        address = await self._reactor.resolve(host)
        return make_conninfo(conninfo, hostaddr=address)


class PersistentConnection:
    """
    Keeps one connection to the primary open. Methods: reactor thread.

    @ivar connection: The open connection; L{None} while there is none.
    """

    _log = Logger()

    def __init__(
        self,
        reactor: Any,
        primary: Primary,
        statements: Mapping[bytes, str],
        onNotification: Callable[[str, str], object] | None = None,
        onOpen: Callable[[Connection], object] | None = None,
        onLost: Callable[[], object] | None = None,
        random: Callable[[float, float], float] = uniform,
        answerSeconds: float = ANSWER_SECONDS,
    ) -> None:
        """
        @param statements: Statements by name, prepared on each new connection.
        @param onNotification: See L{Connection}.
        @param onOpen: Called with each new connection, before waiting queries are sent.
        @param onLost: Called when an open connection is lost.
        @param random: C{random.uniform} or a replacement.
        @param answerSeconds: See L{Connection}.
        """
        self.connection: Connection | None = None
        self._reactor = reactor
        self._primary = primary
        self._statements = {**ASK_STATEMENTS, **statements}
        self._onNotification = onNotification
        self._onOpen = onOpen
        self._onLost = onLost
        self._random = random
        self._answerSeconds = answerSeconds
        self._failures = 0
        self._timer: IDelayedCall | None = None
        self._isClosed = False
        self._waiting: set[Deferred[Connection]] = set()
        self._asked: list[Connection] = []

    def open(self) -> None:
        """Start connecting. Call once."""
        Deferred.fromCoroutine(self._open()).addErrback(
            lambda failure: self._log.failure("the catalog's connection failed", failure)
        )

    def close(self) -> None:
        """Close the connection without reopening it. Waiting queries fail."""
        self._isClosed = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        connections, self._asked = self._asked, []
        if self.connection is not None:
            connections.append(self.connection)
            self.connection = None
        for each in connections:
            each.close()
        for waiting in tuple(self._waiting):
            waiting.errback(ConnectionLost("the catalog is closed"))

    def reopen(self, reason: str) -> None:
        """
        Replace the open connection, if any. The outcome of transactions in flight on it is unknown.

        @param reason: The reason for the log.
        """
        connection = self.connection
        if connection is not None:
            self._lost(connection, reason)
            connection.close()

    async def opened(self, seconds: float = WAIT_SECONDS) -> Connection:
        """
        Wait for an open connection.

        @param seconds: The longest wait.
        @raise StoreBusy: The wait timed out, or too many queries wait.
        """
        if self.connection is not None:
            return self.connection
        if self._isClosed:
            raise ConnectionLost("the catalog is closed")
        if len(self._waiting) >= MAX_WAITING:
            raise StoreBusy("too many queries are waiting for the catalog")
        waiting: Deferred[Connection] = Deferred()
        self._waiting.add(waiting)
        # A client may have waited for all of its time already.
        timer = self._reactor.callLater(max(seconds, 0.0), self._expire, waiting)
        try:
            return await waiting
        finally:
            self._waiting.discard(waiting)
            if timer.active():
                timer.cancel()

    async def query(self, *steps: Step, began: float | None = None) -> list[Any]:
        """
        Run read-only statements in one transaction; retry if the connection is lost.

        @param began: When the client began to wait, if not now.
        @return: A result for each statement.
        @raise StoreBusy: The catalog did not answer.
        """
        connection = self.connection
        began = self._reactor.seconds() if began is None else began
        try:
            if connection is not None:
                return await connection.run(steps, began)
        except ConnectionLost:
            if self._reactor.seconds() >= began + WAIT_SECONDS:
                raise
        except StatementRefused as error:
            raise self._refused(error) from error
        return await self._queryLater(steps, began)

    async def _queryLater(self, steps: Sequence[Step], began: float) -> list[Any]:
        """Run statements once there is a connection, while their client still waits."""
        connection = await self.opened(began + WAIT_SECONDS - self._reactor.seconds())
        try:
            return await connection.run(steps, began)
        except StatementRefused as error:
            raise self._refused(error) from error

    async def lookUp(self, step: Step) -> Any:
        """
        Run one read-only statement, batched with others of this reactor iteration; retry if the
        connection is lost.

        @return: The result.
        @raise StoreBusy: The catalog did not answer.
        """
        connection = self.connection
        began = self._reactor.seconds()
        if connection is not None:
            try:
                return await connection.lookUp(step)
            except ConnectionLost:
                if self._reactor.seconds() >= began + WAIT_SECONDS:
                    raise
            except StatementRefused as error:
                raise self._refused(error) from error
        (rows,) = await self._queryLater([step], began)
        return rows

    def _refused(self, error: StatementRefused) -> StoreBusy:
        self._log.error("the catalog refused a query: {error}", error=str(error))
        return StoreBusy(str(error))

    def _expire(self, waiting: Deferred[Connection]) -> None:
        reason = self._primary.failure or "connecting to it"
        waiting.errback(ConnectionLost(f"the catalog does not respond: {reason}"))

    def _make(self) -> Connection:
        made = Connection(
            self._reactor,
            self._statements,
            self._lost,
            self._onNotification or ignoreNotification,
            self._answerSeconds,
        )
        self._asked.append(made)
        return made

    async def _open(self) -> None:
        self._timer = None
        try:
            connection = await self._primary.connect(self._make)
        except ConnectionLost as error:
            if not self._failures:
                self._log.warn("the catalog is unreachable: {error}", error=str(error))
            self._retry()
            return
        finally:
            self._asked.clear()
        if self._isClosed:
            connection.close()
            return
        if self._failures:
            self._log.info("the catalog is reachable again")
        self._failures = 0
        self.connection = connection
        if self._onOpen is not None:
            self._onOpen(connection)
        for waiting in tuple(self._waiting):
            if not waiting.called:
                waiting.callback(connection)

    def _retry(self) -> None:
        if not self._isClosed:
            seconds = _BACKOFF.seconds(self._failures, self._random)
            self._failures += 1
            self._timer = self._reactor.callLater(seconds, self.open)

    def _lost(self, connection: Connection, reason: str) -> None:
        if connection is not self.connection:
            return
        self.connection = None
        self._log.warn("a connection to the catalog was lost: {reason}", reason=reason)
        if self._onLost is not None:
            self._onLost()
        # Reconnect immediately, because another server may already be available.
        self.open()
