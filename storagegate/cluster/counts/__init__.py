"""
Shared state of several processes: rate limits, sessions and UDP replies, in PostgreSQL or Valkey.

The daemon uses it if its configuration has a table C{[cluster]}. Applications use L{openCounts}::

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
    # These import the interfaces that they implement.
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
    Parse the location of the counts.

    @param where: C{postgresql} for the servers of the catalog; C{postgresql://...} for another
        server; or C{valkey://...}, C{valkeys://...}, C{redis://...}, C{rediss://...} or
        C{unix:...}, see L{readValkeyURL<storagegate.net.valkey.readValkeyURL>}, with an optional
        prefix C{valkey:}.
    @param catalog: The conninfos of the catalog.
    @raise ValueError: If C{where} has none of these forms. The text does not contain it.
    """
    if where == "postgresql" or where.startswith(_POSTGRESQL):
        from storagegate.cluster.counts.postgresql import PostgreSQLCounts

        conninfos = list(catalog) if where == "postgresql" else [where]
        if not conninfos:
            raise ValueError("no catalog server is configured")
        return lambda reactor: PostgreSQLCounts(reactor, conninfos)
    from storagegate.cluster.counts.valkey import ValkeyCounts

    options = _readValkey(where)
    return lambda reactor: ValkeyCounts(reactor, options)


def checkCounts(where: str, catalog: Sequence[str] = ()) -> None:
    """
    Create the tables of a database, or check the login to Valkey. Blocks; used at the start.

    An unreachable Valkey server is not an error: nodes work without it.

    @param where: As in L{readCounts}; the same applies to C{catalog}.
    @raise StoreError: If the server cannot be used; the text gives the reason in one line.
    """
    if where == "postgresql" or where.startswith(_POSTGRESQL):
        from storagegate.cluster.counts.postgresql import createTables

        createTables(list(catalog) if where == "postgresql" else [where])
        return
    from storagegate.cluster.counts.valkey import checkLogin

    checkLogin(_readValkey(where))


def _readValkey(where: str) -> "ValkeyOptions":
    from storagegate.net.valkey import readValkeyURL

    # The prefix "valkey:" may precede any address; "valkey://" is itself an address.
    if where.startswith("valkey:") and not where.startswith("valkey://"):
        where = where.removeprefix("valkey:")
    return readValkeyURL(where)


class Counts:
    """The shared stores of a process, over one connection that opens when a store is first used."""

    def __init__(
        self,
        make: MakeServer,
        reactor: Any = None,
        meters: MetricsRegistry | None = None,
        expires: bool = False,
    ) -> None:
        """
        @param make: The result of L{readCounts}.
        @param reactor: The reactor; the default is the reactor of the process, when it is needed.
        @param expires: Whether this process removes expired entries; other processes may do so too.
        @param meters: The registry of the counter C{storagegate_counts_failures_total}; C{None}
            disables it.
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
                "Failed operations of the server of rate limits, sessions and replies.",
                ("kind",),
            )

    @property
    def failure(self) -> str | None:
        """Return why the server cannot be used; C{None} if it works or was not needed yet."""
        return self._server.failure if self._isOpen and self._server is not None else None

    def open(self) -> ICountsServer:
        """
        Connect, unless connected already.

        @raise CountsUnavailable: If the counts were closed.
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
        """Close the connection. Stores fail from now on."""
        self._isClosed = True
        if self._isOpen and self._server is not None:
            self._isOpen = False
            self._server.close()
        if self._expiry is not None:
            Deferred.fromCoroutine(self._expiry.stop())

    def rateLimitStore(self, name: str, windowMs: float) -> "ClusterRateLimitStore":
        """
        Make the store of a rate limit.

        @param name: The name of the limit, which is the same in all processes.
        @param windowMs: The length of a window in milliseconds.
        @raise ValueError: If a window has no length.
        """
        from storagegate.cluster.counts.stores import ClusterRateLimitStore

        return ClusterRateLimitStore(self.open, name, windowMs, onFailure=self._countFailure)

    def sessionStore(self, name: str = "sessions") -> "ClusterSessionStore":
        """
        Make a session store.

        @param name: The name of the application, which is the same in all its processes. Each
            application has its own sessions.
        """
        from storagegate.cluster.counts.stores import ClusterSessionStore

        return ClusterSessionStore(self.open, name, self._countFailure)

    def replyCache(
        self, name: str = "replies", now: Callable[[], float] = time.monotonic
    ) -> "ClusterReplyCache":
        """
        Make the cache of the replies of a UDP listener.

        @param name: The name of the listener, which is the same in all processes.
        @param now: Returns the time of a monotonic clock in seconds.
        """
        from storagegate.cluster.counts.stores import ClusterReplyCache

        return ClusterReplyCache(self.open, name, now, onFailure=self._countFailure)

    def expiry(self) -> BackgroundTask | None:
        """
        Make the task that removes expired entries, for one of the processes.

        @return: The task; C{None} if the server removes them itself.
        """
        return self._prepared().expiry()

    def _prepared(self) -> ICountsServer:
        if self._server is None:
            # Not earlier, because an application may install another reactor before it runs.
            self._server = self._make(self._reactor or processReactor())
        return self._server

    def _countFailure(self, kind: str) -> None:
        if self._failures is not None:
            self._failures.add(1, (kind,))


def openCounts(where: str, reactor: Any = None) -> Counts:
    """
    Make the stores of an application. They connect on first use, and remove expired entries.

    @param where: See L{readCounts}. A database needs the tables of
        L{createTables<storagegate.cluster.counts.postgresql.createTables>}.
    @param reactor: The reactor; the default is the reactor of the process.
    @raise ValueError: If C{where} is invalid.
    """
    return Counts(readCounts(where), reactor, expires=True)
