"""
What several processes count together: rate limits, sessions, and replies over UDP, in PostgreSQL or
in Valkey.

The daemon uses it if its configuration has C{[cluster]}. An application uses it by L{openCounts}::

    counts = openCounts("valkey://:PASSWORD@counts.example.com/0")
    app.use(session(secret=SECRET, store=counts.sessionStore()))
    app.use(rateLimit(60_000, max=100, store=counts.rateLimitStore("api", 60_000)))
"""

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from twisted.internet.defer import Deferred

from storagegate.cluster.counts.interfaces import CountsUnavailable as CountsUnavailable
from storagegate.cluster.counts.interfaces import ICountsServer
from storagegate.net.endpoints import processReactor
from storagegate.storage.node import BackgroundTask
from storagegate.telemetry.metrics import MetricsRegistry

if TYPE_CHECKING:
    # They import what they are stores of.
    from storagegate.cluster.counts.stores import (
        ClusterRateLimitStore,
        ClusterReplyCache,
        ClusterSessionStore,
    )
    from storagegate.net.valkey import ValkeyOptions

_POSTGRESQL = ("postgresql://", "postgres://")

MakeServer = Callable[[Any], ICountsServer]
"""Makes a server for a reactor."""


def readCounts(where: str, catalog: Sequence[str] = ()) -> MakeServer:
    """
    Read where the counts are kept.

    @param where: C{postgresql} for the servers of the catalog; C{postgresql://...} for another one;
        or C{valkey://...}, C{valkeys://...}, C{redis://...}, C{rediss://...} or C{unix:...}, see
        L{readValkeyURL<storagegate.net.valkey.readValkeyURL>}, with C{valkey:} in front or not.
    @param catalog: The conninfos of the catalog.
    @raise ValueError: It is nothing of that. The text has no part of it.
    """
    if where == "postgresql" or where.startswith(_POSTGRESQL):
        from storagegate.cluster.counts.postgresql import PostgreSQLCounts

        conninfos = list(catalog) if where == "postgresql" else [where]
        if not conninfos:
            raise ValueError("no server of the catalog is named")
        return lambda reactor: PostgreSQLCounts(reactor, conninfos)
    from storagegate.cluster.counts.valkey import ValkeyCounts

    options = _readValkey(where)
    return lambda reactor: ValkeyCounts(reactor, options)


def checkCounts(where: str, catalog: Sequence[str] = ()) -> None:
    """
    Make the tables of a database, or check that Valkey lets this program in. Blocks, for a start.

    A server of Valkey that is away is no error: all goes on without it.

    @param where: As for L{readCounts}, so is C{catalog}.
    @raise StoreError: The server cannot be used; one line says why.
    """
    if where == "postgresql" or where.startswith(_POSTGRESQL):
        from storagegate.cluster.counts.postgresql import createTables

        createTables(list(catalog) if where == "postgresql" else [where])
        return
    from storagegate.cluster.counts.valkey import checkLogin

    checkLogin(_readValkey(where))


def _readValkey(where: str) -> "ValkeyOptions":
    from storagegate.net.valkey import readValkeyURL

    # "valkey:" is in front of any address; "valkey://" alone is one.
    if where.startswith("valkey:") and not where.startswith("valkey://"):
        where = where.removeprefix("valkey:")
    return readValkeyURL(where)


class Counts:
    """
    The stores of a process, over one connection that is opened when the first of them is used.
    """

    def __init__(
        self,
        make: MakeServer,
        reactor: Any = None,
        meters: MetricsRegistry | None = None,
        expires: bool = False,
    ) -> None:
        """
        @param make: Of L{readCounts}.
        @param reactor: By default that of the process, when it is needed.
        @param expires: Whether this process removes what has expired, besides others perhaps.
        @param meters: Has the counter C{storagegate_counts_failures_total}; L{None} for none.
        """
        self._make = make
        self._reactor = reactor
        self._expires = expires
        self._expiry: BackgroundTask | None = None
        self._server: ICountsServer | None = None
        self._isOpen = self._isClosed = False
        self._failures = None
        if meters is not None:
            self._failures = meters.counter(
                "storagegate_counts_failures_total",
                "Steps that the server of rate limits, sessions and replies did not do.",
                ("kind",),
            )

    @property
    def failure(self) -> str | None:
        """Return why the server cannot be used; C{None} if it can, or was not needed yet."""
        return self._server.failure if self._isOpen and self._server is not None else None

    def open(self) -> ICountsServer:
        """
        Connect, if that was not done yet.

        @raise CountsUnavailable: It was closed.
        """
        if self._isOpen:
            assert self._server is not None
            return self._server
        if self._isClosed:
            raise CountsUnavailable("the counts are closed")
        self._isOpen = True
        server = self._prepared()
        server.open()
        if self._expires:
            self._expiry = server.expiry()
            if self._expiry is not None:
                self._expiry.start()
        return server

    def close(self) -> None:
        """Close the connection. The stores fail from now on."""
        self._isClosed = True
        if self._isOpen and self._server is not None:
            self._isOpen = False
            self._server.close()
        if self._expiry is not None:
            Deferred.fromCoroutine(self._expiry.stop())

    def rateLimitStore(self, name: str, windowMs: float) -> "ClusterRateLimitStore":
        """
        Make the store of a rate limit.

        @param name: Of the limit, the same in all processes.
        @param windowMs: The length of a window in milliseconds.
        @raise ValueError: If a window has no length.
        """
        from storagegate.cluster.counts.stores import ClusterRateLimitStore

        return ClusterRateLimitStore(self.open, name, windowMs, onFailure=self._countFailure)

    def sessionStore(self, name: str = "sessions") -> "ClusterSessionStore":
        """
        Make a store of sessions.

        @param name: Of the application, the same in all its processes: each application has its own
            sessions.
        """
        from storagegate.cluster.counts.stores import ClusterSessionStore

        return ClusterSessionStore(self.open, name, self._countFailure)

    def replyCache(
        self, name: str = "replies", now: Callable[[], float] = time.monotonic
    ) -> "ClusterReplyCache":
        """
        Make the cache of the replies of a UDP listener.

        @param name: Of the listener, the same in all processes.
        @param now: Gives seconds of a clock that only goes forward.
        """
        from storagegate.cluster.counts.stores import ClusterReplyCache

        return ClusterReplyCache(self.open, name, now, onFailure=self._countFailure)

    def expiry(self) -> BackgroundTask | None:
        """
        Make the task that removes what has expired, for one of the processes.

        @return: C{None} if the server does that by itself.
        """
        return self._prepared().expiry()

    def _prepared(self) -> ICountsServer:
        if self._server is None:
            # Not earlier: an application may choose another reactor when it runs.
            self._server = self._make(self._reactor or processReactor())
        return self._server

    def _countFailure(self, kind: str) -> None:
        if self._failures is not None:
            self._failures.add(1, (kind,))


def openCounts(where: str, reactor: Any = None) -> Counts:
    """
    Make the stores of an application; they connect when the first of them is used, and remove what
    has expired.

    @param where: See L{readCounts}. A database needs the tables of
        L{createTables<storagegate.cluster.counts.postgresql.createTables>}.
    @param reactor: By default that of the process.
    @raise ValueError: It is no address.
    """
    return Counts(readCounts(where), reactor, expires=True)
