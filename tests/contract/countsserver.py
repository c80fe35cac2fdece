"""Real servers of counts whose time a test decides: PostgreSQL and Redis."""

import time
from typing import Any

import psycopg
from twisted.internet.task import Clock

from storagegate.cluster.counts import Counts, readCounts
from storagegate.cluster.counts.postgresql import createTables
from tests.support.postgresql import sharedServer
from tests.support.redis import RedisServer

_CLOCK = """
    CREATE SCHEMA fake;
    CREATE TABLE fake.moment (at timestamptz NOT NULL);
    INSERT INTO fake.moment VALUES (to_timestamp(0));
    CREATE FUNCTION fake.statement_timestamp() RETURNS timestamptz LANGUAGE sql
        AS 'SELECT at FROM fake.moment';
"""


class DatabaseClock(Clock):
    """The clock of a database, which stands still."""

    def __init__(self, conninfo: str) -> None:
        super().__init__()
        self._connection = psycopg.connect(conninfo, autocommit=True)
        self._connection.execute(_CLOCK.encode())
        name = self._connection.info.dbname
        path = f'ALTER DATABASE "{name}" SET search_path = fake, public, pg_catalog'
        self._connection.execute(path.encode())

    def advance(self, amount: float) -> None:
        """Let the database's time go on, and what is scheduled here happen."""
        super().advance(amount)
        self._connection.execute("UPDATE fake.moment SET at = to_timestamp(%s)", (self.rightNow,))

    def close(self) -> None:
        """Close the connection that moves it."""
        self._connection.close()


class ShiftedClock(Clock):
    """The real time and what it was advanced by, which the keys of a server see as well."""

    def __init__(self, server: RedisServer) -> None:
        super().__init__()
        self._server = server
        self._ahead = 0.0

    def seconds(self) -> float:
        """Return the time in seconds since 1970."""
        return time.time() + self._ahead

    def advance(self, amount: float) -> None:
        """Let so much time pass at once."""
        self._ahead += amount
        self._server.advance(amount)


class PostgreSQLCase:
    """
    Makes C{self.counts} in a database of its own, and its C{self.clock}.

    Mix into a trial C{TestCase}.
    """

    clock: Any

    def setUp(self: Any) -> None:
        """Make a database with the tables."""
        from twisted.internet import reactor

        self.conninfo = sharedServer().database()
        createTables([self.conninfo])
        self.clock = DatabaseClock(self.conninfo)
        self.addCleanup(self.clock.close)
        self.clock.advance(1_700_000_000)
        self.counts = Counts(readCounts("postgresql", [self.conninfo]), reactor)
        self.addCleanup(self.counts.close)


class ValkeyCase:
    """
    Makes C{self.counts} in a server of its own, and its C{self.clock}.

    Mix into a trial C{TestCase}.
    """

    clock: Any

    def setUp(self: Any) -> None:
        """Start a server."""
        from twisted.internet import reactor

        self.server = RedisServer()
        self.addCleanup(self.server.remove)
        self.clock = ShiftedClock(self.server)
        self.counts = Counts(readCounts(f"valkey:redis://127.0.0.1:{self.server.port}"), reactor)
        self.addCleanup(self.counts.close)
