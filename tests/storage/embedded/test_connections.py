"""The catalog's file: made, migrated, refused, survived, watched."""

import os
import shutil
import sqlite3
import stat
from contextlib import closing
from typing import Any

from twisted.internet.defer import Deferred, maybeDeferred
from twisted.trial.unittest import SynchronousTestCase, TestCase

from storagegate.storage.embedded.catalog import SQLiteCatalog
from storagegate.storage.embedded.connections import (
    MIGRATIONS,
    PAGE_SIZE,
    Durability,
    Purpose,
    connect,
    prepare,
)
from storagegate.storage.embedded.groupcommit import QueuedMutation, runTogether
from storagegate.storage.embedded.keyadmin import openForTools
from storagegate.storage.embedded.logbinding import BINDING
from storagegate.storage.embedded.objects import checkInline, lookUp
from storagegate.storage.embedded.usage import readUsage
from storagegate.storage.embedded.wal import CHECKPOINT_AT, CheckpointScheduler, WALCheckpointer
from storagegate.storage.errors import KeyExists, StoreBusy, StoreReadOnly
from storagegate.storage.files import DirectoryLock, FailStopLatch
from storagegate.storage.mutations import AddBucket, PutObject
from storagegate.storage.ranges import ObjectRange
from storagegate.storage.records import AccessKey, BucketUsage
from storagegate.storage.sqlite import CatalogUnusable
from tests.contract.catalogcase import ALWAYS, bucketNamed, inlineRecord
from tests.storage.embedded.memory import CREATE_BUCKET, putOf
from tests.storage.embedded.test_catalog import openCatalog


class FileCase(SynchronousTestCase):
    """A case with a path for a catalog."""

    def setUp(self) -> None:
        """Make a directory."""
        self.directory = self.mktemp()
        os.makedirs(self.directory)
        self.path = os.path.join(self.directory, "catalog.sqlite")

    def connect(self, purpose: Purpose = Purpose.WRITER) -> sqlite3.Connection:
        """Open the file, making it first."""
        prepare(self.path, Durability.OS)
        connection = connect(self.path, Durability.OS, purpose)
        self.addCleanup(connection.close)
        return connection


class OpenTests(FileCase):
    """Opening."""

    def test_onlyTheOwnerReads(self) -> None:
        """The file, its WAL and its shared memory are for the owner only, whatever the umask."""
        self.addCleanup(os.umask, os.umask(0))
        connection = self.connect()
        runTogether(connection, [QueuedMutation(CREATE_BUCKET, bucketNamed("b"))])
        for name in ("catalog.sqlite", "catalog.sqlite-wal", "catalog.sqlite-shm"):
            mode = os.stat(os.path.join(self.directory, name)).st_mode
            self.assertEqual(stat.S_IMODE(mode), 0o600, name)

    def test_newerIsRefused(self) -> None:
        """A file that a newer program wrote is refused, in one line that says so."""
        self.connect().execute(f"PRAGMA user_version = {len(MIGRATIONS) + 1}")
        error = self.assertRaises(CatalogUnusable, prepare, self.path, Durability.OS)
        self.assertIn("newer version", str(error))
        self.assertNotIn("\n", str(error))

    def test_toolsDoNotMigrateWhatIsInUse(self) -> None:
        """
        A command migrates an earlier catalog, but not while a daemon has it: that is of the earlier
        version, and does not know the new schema.
        """
        with closing(sqlite3.connect(self.path, isolation_level=None)) as old:
            for statement in MIGRATIONS[0]:
                old.execute(statement)
            old.execute("PRAGMA user_version = 1")
            lock = DirectoryLock.take(self.directory)
            try:
                error = self.assertRaises(CatalogUnusable, openForTools, self.path)
                self.assertIn("restart the daemon", str(error))
                self.assertEqual(old.execute("PRAGMA user_version").fetchall(), [(1,)])
            finally:
                lock.release()
            openForTools(self.path).close()
            self.assertEqual(old.execute("PRAGMA user_version").fetchall(), [(len(MIGRATIONS),)])

    def test_strangerIsRefused(self) -> None:
        """A file that is no database is refused, and stays as it is."""
        with open(self.path, "wb") as file:
            file.write(b"not a database, but long enough to look at" * 10)
        self.assertRaises(CatalogUnusable, prepare, self.path, Durability.OS)
        self.assertEqual(os.path.getsize(self.path), 420)

    def test_againIsTheSame(self) -> None:
        """Opening again changes nothing: the secret and the contents stay."""
        first = self.connect()
        read = "SELECT value FROM meta WHERE name = 'secret'"
        secret = first.execute(read).fetchall()
        runTogether(
            first, [QueuedMutation(CREATE_BUCKET, bucketNamed("b")), putOf(inlineRecord(b"k"))]
        )
        first.close()
        again = self.connect()
        self.assertEqual(again.execute(read).fetchall(), secret)
        self.assertIsNotNone(lookUp(again, "b", b"k")[1])

    def test_failedMigrationLeavesNothing(self) -> None:
        """A migration that fails is undone as a whole, and can be made again."""
        from storagegate.storage.embedded import connections

        self.patch(
            connections, "MIGRATIONS", (*MIGRATIONS, ("CREATE TABLE t (x)", "CREATE NONSENSE"))
        )
        self.assertRaises(CatalogUnusable, prepare, self.path, Durability.OS)
        self.patch(connections, "MIGRATIONS", MIGRATIONS)
        tables = self.connect().execute("SELECT name FROM sqlite_master WHERE name = 't'")
        self.assertEqual(tables.fetchall(), [])

    def test_usageOfOlderFile(self) -> None:
        """A file from before usage was counted is counted once, as it is migrated."""
        from storagegate.storage.embedded import connections

        self.patch(connections, "MIGRATIONS", MIGRATIONS[:2])
        old = self.connect()
        for number, name in (1, "b"), (2, "c"):
            old.execute("INSERT INTO buckets VALUES (?, ?, 'a', 0, 'r', '')", (number, name))
        for key, size in (b"k", 5), (b"l", 7):
            row = (1, key, size, "", 0, size, "", 0, "", "", "", "", None, "", None)
            old.execute(f"INSERT INTO objects VALUES ({', '.join('?' * 15)})", row)
        old.execute("INSERT INTO uploads VALUES (1, x'00', 'u', '', 0, '', '', '')")
        old.execute("INSERT INTO uploads VALUES (2, x'00', 'v', '', 0, '', '', '')")
        for number, size in (1, 100), (2, 50):
            part = ("u", number, size, "", 0, None, None)
            old.execute(f"INSERT INTO parts VALUES ({', '.join('?' * 7)})", part)
        old.close()
        self.patch(connections, "MIGRATIONS", MIGRATIONS)
        usage = readUsage(self.connect(), 5)
        self.assertEqual(
            usage.buckets, (BucketUsage("b", 2, 12, 1, 150), BucketUsage("c", 0, 0, 1, 0))
        )

    def test_largeOlderFile(self) -> None:
        """
        A file from before there were versions opens without a row being written again, keeps all
        objects, and is refused by the program that wrote it.
        """
        from storagegate.storage.embedded import connections

        self.patch(connections, "MIGRATIONS", MIGRATIONS[:3])
        old = self.connect()
        old.execute("INSERT INTO buckets VALUES (1, 'b', 'a', 0, 'r', '')")
        count = 50_000
        old.execute(
            "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?)"
            " INSERT INTO objects SELECT 1, CAST(printf('k%07d', i) AS BLOB), i, 'null', 0, 4, 'e',"
            " i, 'a', 'STANDARD', '', '', NULL, '{}', NULL FROM n",
            (count,),
        )
        old.execute("INSERT INTO inline SELECT sequence, CAST('body' AS BLOB) FROM objects")
        old.execute("INSERT INTO usage VALUES (1, ?, ?, 0, 0)", (count, 4 * count))
        old.execute("UPDATE meta SET value = ? WHERE name = 'sequence'", (count,))
        old.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        rows = old.execute("SELECT * FROM objects").fetchall()
        old.close()
        size = os.path.getsize(self.path)
        self.patch(connections, "MIGRATIONS", MIGRATIONS)
        new = self.connect()
        self.assertLess(os.path.getsize(self.path) - size, 16 * PAGE_SIZE)
        columns = len(rows[0])
        found = new.execute("SELECT * FROM objects").fetchall()
        self.assertEqual([row[:columns] for row in found], rows)
        self.assertEqual({row[columns:] for row in found}, {(None,) * 5})
        self.assertEqual(readUsage(new, 5).buckets, (BucketUsage("b", count, 4 * count, 0, 0),))
        bucket, record = lookUp(new, "b", b"k%07d" % count)
        assert bucket is not None and record is not None
        self.assertEqual((bucket.versioning, record.content.inline), ("", b"body"))
        new.close()
        self.patch(connections, "MIGRATIONS", MIGRATIONS[:3])
        error = self.assertRaises(CatalogUnusable, prepare, self.path, Durability.OS)
        text = (
            f"has schema {len(MIGRATIONS)}, this program supports up to 3:"
            " it was written by a newer version"
        )
        self.assertIn(text, str(error))

    def test_settings(self) -> None:
        """A durable commit syncs, one that is not does not; readers cannot write."""
        connection = self.connect()
        full = connect(self.path, Durability.FULL, Purpose.WRITER)
        self.addCleanup(full.close)
        for each, name, value in (
            (full, "synchronous", 2),
            (connection, "synchronous", 0),
            (full, "journal_mode", "wal"),
            (full, "page_size", PAGE_SIZE),
            (full, "wal_autocheckpoint", 0),
        ):
            self.assertEqual(each.execute(f"PRAGMA {name}").fetchall(), [(value,)], name)
        reader = self.connect(Purpose.REACTOR)
        self.assertRaises(sqlite3.OperationalError, reader.execute, "DELETE FROM buckets")


class WALTests(FileCase):
    """The WAL's length."""

    def put(self, connection: sqlite3.Connection, n: int) -> int:
        """Store 1 MiB; return its weight."""
        puts = [putOf(inlineRecord(b"%d/%d" % (n, m), bytes(65_536))) for m in range(16)]
        runTogether(connection, puts)
        return sum(put.weight for put in puts)

    def size(self) -> int:
        """Measure the WAL."""
        return os.path.getsize(self.path + "-wal")

    def begin(self, restartAt: int) -> tuple[sqlite3.Connection, WALCheckpointer]:
        """Open a catalog with a bucket."""
        connection = self.connect()
        runTogether(connection, [QueuedMutation(CREATE_BUCKET, bucketNamed("b"))])
        return connection, WALCheckpointer(connection, self.directory, FailStopLatch(), restartAt)

    def test_boundedUnderLoad(self) -> None:
        """While one commit follows the other without a pause the WAL stays bounded."""
        connection, wal = self.begin(4 * 1024 * 1024)
        for n in range(40):
            wal.committed(self.put(connection, n))
            wal.restartIfLong()
        self.assertLess(self.size(), 6 * 1024 * 1024)

    def test_readerInTheWay(self) -> None:
        """A reader that does not end makes the WAL grow; it is short again when that has gone."""
        connection, wal = self.begin(2 * 1024 * 1024)
        reader = self.connect(Purpose.POOL)
        reader.execute("BEGIN")
        reader.execute("SELECT * FROM buckets").fetchall()
        for n in range(6):
            wal.committed(self.put(connection, n))
            wal.restartIfLong()
        reader.execute("COMMIT")
        grown = self.size()
        self.assertGreater(grown, 5 * 1024 * 1024)
        for n in range(20):
            wal.committed(self.put(connection, n))
            wal.restartIfLong()
        self.assertLess(self.size(), grown + 4 * 1024 * 1024)
        wal.shrink()
        self.assertEqual(self.size(), 0)

    def test_poolKeepsItShort(self) -> None:
        """The pool's checkpoints, made when they are due, keep the WAL near their distance."""
        connection, wal = self.begin(1 << 40)
        looks = []

        def run(function: Any, *arguments: object) -> Deferred[Any]:
            looks.append(function)
            return maybeDeferred(function, *arguments)

        looker = CheckpointScheduler(run, self.connect(Purpose.CHECKPOINT), wal)
        for n in range(40):
            wal.committed(self.put(connection, n))
            looker.schedule()
        self.assertLess(self.size(), 2 * CHECKPOINT_AT)
        self.assertGreater(len(looks), 2)
        self.assertLess(len(looks), 10)

    def test_anotherLooks(self) -> None:
        """A look that finds another process at it is made again later, and nothing is forgotten."""
        connection, wal = self.begin(1 << 40)
        while not wal.isCheckpointDue:
            wal.committed(self.put(connection, 0))
        wal.checkpointed(-1, -1)
        self.assertFalse(wal.isCheckpointDue)
        self.assertFalse(wal.fitsFreePages(1))
        while not wal.isCheckpointDue:
            wal.committed(self.put(connection, 0))

    def test_oneCheckpointAtATime(self) -> None:
        """One that finds another thread at it does nothing; a failure sets the latch before."""
        connection, wal = self.begin(1 << 40)
        self.put(connection, 0)
        size = self.size()
        self.assertTrue(wal.lock.tryAcquire())
        self.assertEqual(wal.checkpoint(connection, "TRUNCATE"), (True, -1, -1))
        self.assertFalse(wal.shrink())
        wal.lock.release()
        self.assertEqual(self.size(), size)
        wal._latch.set("a sync failed")
        self.assertRaises(StoreReadOnly, wal.checkpoint, connection, "PASSIVE")
        self.assertFalse(wal.shrink())
        self.assertTrue(wal.lock.tryAcquire())

    def test_oneLookAtATime(self) -> None:
        """No second checkpoint is asked of the pool before the first has ended."""
        connection, wal = self.begin(1 << 40)
        waiting: list[Deferred[Any]] = []

        def run(function: Any, *arguments: object) -> Deferred[Any]:
            waiting.append(Deferred())
            return waiting[-1]

        looker = CheckpointScheduler(run, connection, wal)
        for n in range(20):
            wal.committed(self.put(connection, n))
            looker.schedule()
        self.assertEqual(len(waiting), 1)
        waiting[0].errback(StoreBusy())
        looker.schedule()
        self.assertEqual(len(waiting), 2)
        self.assertIsNone(looker.problem)
        waiting[1].errback(MemoryError("no memory"))
        self.assertEqual(len(self.flushLoggedErrors(MemoryError)), 1)
        self.assertEqual(looker.problem, "the checkpoint failed: no memory")
        looker.schedule()
        self.assertEqual(len(waiting), 3)
        waiting[2].callback((False, 1, 1))
        self.assertIsNone(looker.problem)


class InlineTests(FileCase):
    """The checksums of inline bytes."""

    def test_rotIsFound(self) -> None:
        """Bytes that are not those that were written are found, and those that are missing."""
        connection = self.connect()
        puts = [putOf(inlineRecord(b"%d" % n, b"%d" % n)) for n in range(5)]
        runTogether(connection, [QueuedMutation(CREATE_BUCKET, bucketNamed("b")), *puts])
        whole = checkInline(connection, None, 10)
        self.assertEqual((whole.damaged, whole.bytesRead, whole.next), ((), 5, None))
        connection.execute("UPDATE inline SET bytes = x'00' WHERE bytes = x'31'")
        connection.execute("DELETE FROM inline WHERE bytes = x'33'")
        damaged: list[tuple[str, bytes]] = []
        position = None
        for _ in range(3):
            page = checkInline(connection, position, 2)
            damaged += page.damaged
            position = page.next
        self.assertEqual(damaged, [("b", b"1"), ("b", b"3")])
        self.assertIsNone(position)


class ToolsTests(FileCase):
    """The catalog for the command line."""

    def test_keys(self) -> None:
        """Keys are issued, listed and revoked without a reactor, and seen beside it."""
        other = self.connect(Purpose.REACTOR)
        key = AccessKey("AK", "secret", "bob")
        with closing(openForTools(self.path)) as tools:
            tools.addAccessKey(key)
            self.assertRaises(KeyExists, tools.addAccessKey, key)
            self.assertEqual(tools.accessKeys(), [key])
            self.assertIs(tools.removeAccessKey("AK"), True)
            self.assertIs(tools.removeAccessKey("AK"), False)
        generation = other.execute("SELECT value FROM meta WHERE name = 'keysGeneration'")
        self.assertEqual(generation.fetchall(), [(2,)])

    def test_locked(self) -> None:
        """Where another process does not let go of the lock, that is a busy store."""
        other = self.connect()
        with closing(openForTools(self.path)) as tools:
            tools._connection.execute("PRAGMA busy_timeout = 0")
            other.execute("BEGIN IMMEDIATE")
            self.assertRaises(StoreBusy, tools.removeAccessKey, "AK")


class LifeTests(TestCase):
    """A catalog with its threads: opened, closed, cut off, shared."""

    def setUp(self) -> None:
        """Make a directory."""
        self.directory = self.mktemp()
        os.makedirs(self.directory)
        self.path = os.path.join(self.directory, "catalog.sqlite")

    def open(self, durability: str = "os") -> SQLiteCatalog:
        """Open the catalog until the test ends."""
        catalog = openCatalog(self.path, [], durability)
        self.addCleanup(catalog.close)
        return catalog

    async def test_closedIsOneFile(self) -> None:
        """A closed catalog has done what was asked of it, takes no more, and needs no WAL."""
        catalog = openCatalog(self.path, [], "full")
        await catalog.commit(AddBucket(bucketNamed("b")))
        waiting = [catalog.commit(PutObject(inlineRecord(b"%d" % n), ALWAYS)) for n in range(100)]
        underWay = Deferred.fromCoroutine(
            catalog.listObjects(ObjectRange("b", b"", b"", b"", 1000))
        )
        closed = catalog.close()
        late = catalog.commit(PutObject(inlineRecord(b"late"), ALWAYS))
        for refused in (late, catalog.buckets(None, "", "", 1)):
            with self.assertRaises(StoreBusy):
                await refused
        await underWay
        for each in waiting:
            await each
        await closed
        names = [name for name in os.listdir(self.directory) if not name.startswith(BINDING)]
        self.assertEqual(sorted(names), ["catalog.sqlite", "reserve"])
        again = self.open("full")
        page = await again.listObjects(ObjectRange("b", b"", b"", b"", 1000))
        self.assertEqual(len(page.objects), 100)

    async def test_answeredIsInTheFile(self) -> None:
        """What was answered is in the files at that moment, as a cut would leave them."""
        catalog = self.open("full")
        await catalog.commit(AddBucket(bucketNamed("b")))
        for n in range(5):
            stored = await catalog.commit(PutObject(inlineRecord(b"%d" % n, bytes(3000)), ALWAYS))
            copy = os.path.join(self.directory, f"copy{n}")
            os.makedirs(copy)
            for end in ("", "-wal"):
                shutil.copy(self.path + end, os.path.join(copy, "catalog.sqlite" + end))
            cut = os.path.join(copy, "catalog.sqlite")
            prepare(cut, Durability.OS)
            connection = connect(cut, Durability.OS, Purpose.REACTOR)
            self.assertEqual(lookUp(connection, "b", b"%d" % n)[1], stored)
            connection.close()

    async def test_keysFromOutside(self) -> None:
        """A key that another process issues is seen at once, and its change of generation."""
        catalog = self.open()
        before = await catalog.keysGeneration()
        with closing(openForTools(self.path)) as tools:
            tools.addAccessKey(AccessKey("AK", "secret", "bob"))
        after = await catalog.keysGeneration()
        self.assertNotEqual(after, before)
        generation, keys = await catalog.accessKeys()
        self.assertEqual((generation, [key.accessKey for key in keys]), (after, ["AK"]))

    async def test_failureIsShown(self) -> None:
        """A catalog that cannot write any more says why, and still reads."""
        catalog = self.open()
        await catalog.commit(AddBucket(bucketNamed("b")))
        self.assertIsNone(catalog.failure)
        catalog._latch.set("catalog: the disk is gone")
        self.assertEqual(catalog.failure, "catalog: the disk is gone")
        self.assertEqual(await catalog.bucket("b"), bucketNamed("b"))
