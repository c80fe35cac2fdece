"""Catalogs of several nodes on one database, for cases."""

from contextvars import copy_context
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.task import deferLater
from twisted.trial.unittest import TestCase

from storagegate.storage.cluster.catalog import PostgreSQLCatalog, openPostgreSQL
from storagegate.storage.cluster.databaselocks import AdvisoryLocks, Locks
from storagegate.storage.cluster.interfaces import REQUEST_LEASE
from storagegate.storage.mutations import AddBucket
from tests.contract.catalogcase import (
    bucketNamed,
)
from tests.support.postgresql import execute, sharedServer


def pause(seconds: float = 0.01) -> Deferred[None]:
    """Wait."""
    from twisted.internet import reactor

    return deferLater(reactor, seconds)


def under(lease: int, mutate: Any, *args: Any) -> Any:
    """Make a mutation as a request does that came under a lease; 0: outside of requests."""

    def make() -> Any:
        REQUEST_LEASE.set(lease)
        return mutate(*args)

    return copy_context().run(make)


class NodesCase(TestCase):
    """A database that has the bucket C{b}, and catalogs of several nodes."""

    async def setUp(self) -> None:
        """Make the database, and open two catalogs."""
        self.conninfo = sharedServer().store()
        self.nodes = [self.openNode() for _ in range(2)]
        await self.nodes[0].commit(AddBucket(bucketNamed("b")))

    def openNode(self, leaseSeconds: float = 60.0) -> PostgreSQLCatalog:
        """Open the catalog as a node does."""
        from twisted.internet import reactor

        node = openPostgreSQL(
            reactor, [self.conninfo], "node", leaseSeconds, locks=self.makeLocks()
        )
        self.addCleanup(node.close)
        return node

    def makeLocks(self) -> Locks:
        """Make the locks of a node."""
        return AdvisoryLocks()

    def execute(self, sql: str, *values: object) -> list[Any]:
        """Run a statement of an operator."""
        return execute(self.conninfo, sql, *values)

    async def waiting(self, count: int) -> None:
        """Wait until so many transactions wait for locks."""
        sql = "SELECT count(*) FROM pg_locks WHERE NOT granted"
        while self.execute(sql) != [(count,)]:
            await pause()

    async def assertFails(self, refused: Deferred[Any], kind: type[Exception]) -> Exception:
        """Check that a Deferred fails so."""
        with self.assertRaises(kind) as caught:
            await refused
        return caught.exception

    async def assertConsistent(self) -> None:
        """Check that counts of references and of buckets are what the rows say."""
        await self.nodes[0].leases.renew(60.0, 1 << 62)
        await self.nodes[1].leases.renew(60.0, 1 << 62)
        while (await self.nodes[0].cleanup.fold())[0]:
            pass
        self.assertEqual(self.execute("SELECT * FROM freed"), [])
        wrong = self.execute(
            """
            SELECT id, refs, n FROM blobs FULL JOIN (
                SELECT each ->> 0 AS id, count(*) AS n FROM (
                    SELECT segments FROM objects UNION ALL SELECT segments FROM versions
                    UNION ALL SELECT segments FROM parts) AS s,
                    json_array_elements(segments::json) AS each GROUP BY 1
            ) AS counted USING (id) WHERE refs <> coalesce(n, 0) OR refs IS NULL
            """
        )
        self.assertEqual(wrong, [])
        counted = self.execute(
            """
            SELECT b.id, count(o.key), coalesce(sum(o.size), 0) FROM buckets AS b LEFT JOIN (
                SELECT bucketid, key, size FROM objects UNION ALL
                SELECT bucketid, key, size FROM versions WHERE NOT deletemarker
            ) AS o ON o.bucketid = b.id GROUP BY b.id ORDER BY b.id
            """
        )
        recorded = self.execute(
            """
            SELECT b.id, coalesce(objects, 0), coalesce(bytes, 0) FROM buckets AS b
            LEFT JOIN usage AS u ON u.bucketid = b.id ORDER BY b.id
            """
        )
        self.assertEqual(recorded, counted)
        # Of each key at most one version is current, and its number is the greatest.
        wrong = self.execute(
            """
            SELECT bucketid, key FROM (
                SELECT bucketid, key, sequence, true AS current FROM objects UNION ALL
                SELECT bucketid, key, sequence, noncurrentms IS NULL FROM versions
            ) AS v GROUP BY bucketid, key
            HAVING count(*) FILTER (WHERE current) <> 1
                OR max(sequence) <> max(sequence) FILTER (WHERE current)
            """
        )
        self.assertEqual(wrong, [])
