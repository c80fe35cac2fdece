"""The schema of the catalog in PostgreSQL: made once by any node, refused where it does not fit."""

from threading import Thread

from twisted.trial.unittest import SynchronousTestCase

from storagegate.storage.cluster import schema
from storagegate.storage.cluster.schema import MIGRATIONS, migrate
from storagegate.storage.sqlite import CatalogUnusable
from tests.support.postgresql import USER, execute, sharedServer
from tests.support.selection import long

_SECOND = ("ALTER TABLE buckets ADD COLUMN color text", "CREATE TABLE made (n int)")


@long("starts PostgreSQL")
class SchemaTests(SynchronousTestCase):
    """Migrations."""

    def assertUnusable(self, conninfo: str, text: str) -> None:
        """Check that a database is refused, in one line that has a text."""
        with self.assertRaises(CatalogUnusable) as caught:
            migrate(conninfo)
        self.assertIn(text, str(caught.exception))
        self.assertNotIn("\n", str(caught.exception))

    def test_twice(self) -> None:
        """A database that has the schema is left as it is, the store's secret too."""
        conninfo = sharedServer().database()
        migrate(conninfo)
        meta = execute(conninfo, "SELECT name, number, value FROM meta ORDER BY name")
        self.assertEqual({name: len(value) for name, _, value in meta}["secret"], 32)
        self.assertEqual(
            execute(conninfo, "SELECT version FROM schemaversion"), [(len(MIGRATIONS),)]
        )
        migrate(conninfo)
        self.assertEqual(
            execute(conninfo, "SELECT name, number, value FROM meta ORDER BY name"), meta
        )

    def test_later(self) -> None:
        """A later migration is made once, by one of several nodes that start at the same time."""
        conninfo = sharedServer().database()
        migrate(conninfo)
        self.patch(schema, "MIGRATIONS", (*MIGRATIONS, _SECOND))
        failures = self.together(conninfo)
        self.assertEqual(failures, [])
        self.assertEqual(execute(conninfo, "SELECT count(*) FROM made"), [(0,)])
        migrate(conninfo)

    def test_together(self) -> None:
        """Of nodes that start on an empty database at the same time one makes the schema."""
        conninfo = sharedServer().database()
        self.assertEqual(self.together(conninfo), [])
        self.assertEqual(execute(conninfo, "SELECT count(*) FROM shards"), [(1,)])

    def together(self, conninfo: str) -> list[Exception]:
        """Migrate in several threads; return what failed."""
        failures: list[Exception] = []

        def act() -> None:
            try:
                migrate(conninfo)
            except Exception as error:
                failures.append(error)

        threads = [Thread(target=act) for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return failures

    def test_failed(self) -> None:
        """A migration that fails changes nothing."""
        conninfo = sharedServer().database()
        self.patch(schema, "MIGRATIONS", (*MIGRATIONS, ("CREATE TABLE made (n int)", "nonsense")))
        self.assertUnusable(conninfo, "syntax error")
        self.assertEqual(
            execute(conninfo, "SELECT to_regclass('meta'), to_regclass('made')"), [(None, None)]
        )

    def test_newer(self) -> None:
        """A schema of a newer program is refused."""
        conninfo = sharedServer().store()
        execute(conninfo, "UPDATE schemaversion SET version = %s", len(MIGRATIONS) + 1)
        self.assertUnusable(conninfo, "it was written by a newer version")

    def test_encoding(self) -> None:
        """A database that cannot hold all texts is refused."""
        self.assertUnusable(sharedServer().database(encoding="LATIN1"), "LATIN1, not UTF8")

    def test_synchronousCommit(self) -> None:
        """A database whose commits are not durable is refused."""
        for value in ("off", "local", "remote_write"):
            conninfo = sharedServer().database()
            name = conninfo.rpartition("=")[2]
            execute(conninfo, f"ALTER DATABASE {name} SET synchronous_commit = {value}")
            self.assertUnusable(conninfo, f"synchronous_commit of the catalog is {value}")

    def test_oldServer(self) -> None:
        """A server that is too old is refused."""
        conninfo = sharedServer().database()
        self.patch(schema, "OLDEST", 99)
        self.assertUnusable(conninfo, "is too old: 99 is required")

    def test_unreachable(self) -> None:
        """A server, user or database that is not there is one line."""
        there = sharedServer().conninfo("postgres")
        for conninfo in (
            f"host=127.0.0.1 port=1 user={USER}",
            f"{there} dbname=missing",
            f"{there} user=missing",
            "nonsense",
        ):
            self.assertUnusable(conninfo, "the catalog cannot be used")
