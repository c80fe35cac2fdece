"""What a batch's mutations are told when something fails."""

import os
import sqlite3
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from storagegate.storage.embedded.buckets import deleteBucket
from storagegate.storage.embedded.connections import Durability, Purpose, connect, prepare
from storagegate.storage.embedded.groupcommit import (
    Committer,
    QueuedMutation,
    Transaction,
    oneByOne,
)
from storagegate.storage.embedded.objects import lookUp
from storagegate.storage.embedded.reserve import Reserve
from storagegate.storage.embedded.wal import WALCheckpointer
from storagegate.storage.errors import (
    BucketExists,
    BucketNotEmpty,
    NoSuchBucket,
    StoreBusy,
    StoreFull,
    StoreReadOnly,
)
from storagegate.storage.files import FailStopLatch
from storagegate.storage.records import Removal
from storagegate.storage.sqlite import Fault, classify
from tests.contract.catalogcase import blobRecord, bucketNamed, inlineRecord, newBlobsOf
from tests.storage.embedded.memory import CREATE_BUCKET, REMOVED, deletionOf, putOf


def databaseError(code: int) -> sqlite3.OperationalError:
    """Make an error as SQLite raises it."""
    error = sqlite3.OperationalError(f"code {code}")
    error.sqlite_errorcode = code
    return error


class FaultyConnection:
    """A connection on which some statements fail."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self.faults: dict[str, list[Exception]] = {}

    def fail(self, start: str, *errors: Exception) -> None:
        """Let the next statements that start so fail."""
        self.faults[start] = list(errors)

    def execute(self, sql: str, parameters: Any = ()) -> sqlite3.Cursor:
        """Run a statement, or fail."""
        for start, errors in self.faults.items():
            if sql.startswith(start) and errors:
                raise errors.pop(0)
        return self._connection.execute(sql, parameters)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)


def _fails(transaction: Transaction, argument: Exception) -> None:
    """Write something and then fail."""
    transaction.execute("DELETE FROM objects")
    raise argument


FAILS = oneByOne(_fails)


class CommitterCase(SynchronousTestCase):
    """A case with a committer on a file whose bucket C{b} has the object C{old}."""

    def setUp(self) -> None:
        """Make them."""
        self.directory = self.mktemp()
        os.makedirs(self.directory)
        path = os.path.join(self.directory, "catalog.sqlite")
        prepare(path, Durability.OS)
        self.path = path
        connection = connect(path, Durability.OS, Purpose.WRITER)
        self.connection = FaultyConnection(connection)
        self.latch = FailStopLatch()
        wal = WALCheckpointer(self.connection, self.directory, self.latch)
        reserve = Reserve(os.path.join(self.directory, "reserve"))
        self.committer = Committer(self.connection, reserve, self.latch, wal)
        self.addCleanup(connection.close)
        self.commit(QueuedMutation(CREATE_BUCKET, bucketNamed("b")), putOf(inlineRecord(b"old")))

    def commit(self, *mutations: QueuedMutation) -> list[Any]:
        """Commit and give the outcomes."""
        return self.committer.commit(mutations)[0]

    def kinds(self, *mutations: QueuedMutation) -> list[type]:
        """Commit and give the types of the outcomes."""
        return [type(outcome) for outcome in self.commit(*mutations)]

    def isThere(self, key: bytes) -> bool:
        """Say whether an object is there."""
        return lookUp(self.connection, "b", key)[1] is not None


class CommitterTests(CommitterCase):
    """The committer."""

    def test_refusalLeavesOthers(self) -> None:
        """A refusal is one mutation's own, before and after others, in one transaction."""
        outcomes = self.commit(
            QueuedMutation(CREATE_BUCKET, bucketNamed("b")),
            putOf(inlineRecord(b"1")),
            putOf(inlineRecord(b"2", bucket="none")),
            putOf(inlineRecord(b"3")),
            QueuedMutation(deleteBucket, "b"),
        )
        self.assertIsInstance(outcomes[0], BucketExists)
        self.assertEqual(outcomes[1].key, b"1")
        self.assertIsInstance(outcomes[2], NoSuchBucket)
        self.assertEqual(outcomes[3].key, b"3")
        self.assertIsInstance(outcomes[4], BucketNotEmpty)

    def test_neighboursShareStatements(self) -> None:
        """Sixty-four neighbours are written with as many statements as one."""
        statements: list[str] = []
        self.connection.set_trace_callback(statements.append)
        self.commit(putOf(inlineRecord(b"1")))
        alone = len(statements)
        self.commit(*(putOf(inlineRecord(b"%d" % n)) for n in range(100, 164)))
        self.assertEqual(len(statements), 2 * alone)
        # BEGIN, the number, the look-up, the row, its bytes, what its bucket holds, COMMIT.
        self.assertEqual(alone, 7)

    def test_guiltyIsTold(self) -> None:
        """An unexpected error is the guilty one's; what it wrote is undone, the others are done."""
        boom = ValueError("boom")
        first, second, third = self.commit(
            putOf(inlineRecord(b"1")), QueuedMutation(FAILS, boom), putOf(inlineRecord(b"2"))
        )
        self.assertIs(second, boom)
        self.assertEqual((first.key, third.key), (b"1", b"2"))
        self.assertTrue(self.isThere(b"old"))
        self.assertLess(first.sequence, third.sequence)

    def test_statementErrorIsNotForGood(self) -> None:
        """An error of one statement leaves the catalog writable."""
        self.connection.fail("INSERT INTO inline", *[databaseError(sqlite3.SQLITE_ERROR)] * 2)
        kinds = self.kinds(
            putOf(inlineRecord(b"1")), QueuedMutation(CREATE_BUCKET, bucketNamed("c"))
        )
        self.assertEqual(kinds, [sqlite3.OperationalError, type(None)])
        self.assertFalse(self.isThere(b"1"))
        self.assertIsNone(self.latch.failure)

    def test_busyElsewhere(self) -> None:
        """While another process holds the lock for too long, mutations fail as busy."""
        self.connection.execute("PRAGMA busy_timeout = 0")
        other = connect(self.path, Durability.OS, Purpose.WRITER)
        self.addCleanup(other.close)
        other.execute("BEGIN IMMEDIATE")
        puts = [putOf(inlineRecord(b"1")), putOf(inlineRecord(b"2"))]
        self.assertEqual(self.kinds(*puts), [StoreBusy, StoreBusy])
        other.execute("ROLLBACK")
        self.assertEqual(self.commit(*puts)[1].key, b"2")

    def test_failedSyncIsForGood(self) -> None:
        """After a failed fsync nothing is written any more, not even a delete."""
        self.connection.fail("COMMIT", databaseError(sqlite3.SQLITE_IOERR_FSYNC))
        put = putOf(inlineRecord(b"1"))
        self.assertEqual(self.kinds(put, deletionOf(b"old")), [StoreReadOnly] * 2)
        self.assertEqual(self.kinds(put, deletionOf(b"old")), [StoreReadOnly] * 2)
        self.assertIn("code 1034", self.latch.failure or "")
        self.assertFalse(self.isThere(b"1"))
        self.assertTrue(self.isThere(b"old"))

    def test_failedCheckpointIsForGood(self) -> None:
        """After a checkpoint that failed to write, or met damage, nothing is written any more."""
        corrupt = sqlite3.DatabaseError("malformed")
        corrupt.sqlite_errorcode = sqlite3.SQLITE_CORRUPT
        for error in (databaseError(sqlite3.SQLITE_IOERR_WRITE), corrupt):
            self.latch.failure = None
            self.connection.fail("PRAGMA wal_checkpoint", error)
            self.assertFalse(WALCheckpointer(self.connection, self.directory, self.latch).shrink())
            self.assertEqual(self.kinds(putOf(inlineRecord(b"1"))), [StoreReadOnly])

    def test_garbageIsTold(self) -> None:
        """The blobs that became garbage come with the outcomes of their batch."""
        self.commit(putOf(blobRecord(b"k", "x", "y"), newBlobs=newBlobsOf("x", "y")))
        _, garbage = self.committer.commit([deletionOf(b"k"), putOf(inlineRecord(b"l"))])
        self.assertEqual(sorted(garbage), ["x", "y"])

    def test_noGarbageWithoutCommit(self) -> None:
        """What was not committed makes no garbage."""
        self.commit(putOf(blobRecord(b"k", "x"), newBlobs=newBlobsOf("x")))
        self.connection.fail("COMMIT", databaseError(sqlite3.SQLITE_IOERR))
        self.assertEqual(self.committer.commit([deletionOf(b"k")])[1], [])


class FullTests(CommitterCase):
    """The committer on a full disk, which is a database that may not grow."""

    def setUp(self) -> None:
        """Let the database grow no more."""
        super().setUp()
        pages = self.connection.execute("PRAGMA page_count").fetchall()[0][0]
        self.connection.execute(f"PRAGMA max_page_count = {pages}")
        self.big = putOf(inlineRecord(b"big", bytes(60_000)))

    def test_fullRefusesWrites(self) -> None:
        """What needs room is refused and nothing of it is there; the catalog goes on."""
        self.assertEqual(self.kinds(self.big, putOf(inlineRecord(b"1"))), [StoreFull] * 2)
        self.assertFalse(self.isThere(b"1"))
        self.assertIsNone(self.latch.failure)
        self.connection.execute("PRAGMA max_page_count = 1000000")
        self.assertEqual(self.commit(self.big)[0].key, b"big")

    def test_fullLetsDeletesPass(self) -> None:
        """A delete that waits beside a write without room is done."""
        outcomes = self.commit(self.big, deletionOf(b"old"), self.big)
        self.assertEqual([type(each) for each in outcomes], [StoreFull, list, StoreFull])
        self.assertEqual(outcomes[1], [REMOVED])
        self.assertFalse(self.isThere(b"old"))

    def test_deletesHaveTheReserve(self) -> None:
        """A delete that finds no room is tried again with the reserve's; then that is made anew."""
        reserve = os.path.join(self.directory, "reserve")
        self.connection.fail("COMMIT", *[databaseError(sqlite3.SQLITE_FULL)] * 1)
        self.assertTrue(os.path.exists(reserve))
        self.assertEqual(self.commit(deletionOf(b"old")), [[REMOVED]])
        self.connection.fail("COMMIT", *[databaseError(sqlite3.SQLITE_FULL)] * 2)
        self.assertEqual(self.commit(deletionOf(b"old")), [[Removal(False)]])
        self.assertFalse(os.path.exists(reserve))
        self.connection.fail("COMMIT", *[databaseError(sqlite3.SQLITE_FULL)] * 3)
        self.assertEqual(self.kinds(deletionOf(b"old")), [StoreFull])
        self.assertEqual(self.commit(putOf(inlineRecord(b"1")))[0].key, b"1")
        self.assertTrue(os.path.exists(reserve))


class ClassifyTests(SynchronousTestCase):
    """The meaning of SQLite's codes."""

    def test_codes(self) -> None:
        """Each kind of error is told from the others; only failed writes are for good."""
        for code, fault in (
            (sqlite3.SQLITE_FULL, Fault.FULL),
            (sqlite3.SQLITE_IOERR_SHMSIZE, Fault.FULL),
            (sqlite3.SQLITE_BUSY, Fault.BUSY),
            (sqlite3.SQLITE_BUSY_SNAPSHOT, Fault.BUSY),
            (sqlite3.SQLITE_LOCKED, Fault.BUSY),
            (sqlite3.SQLITE_IOERR_WRITE, Fault.UNSAFE),
            (sqlite3.SQLITE_IOERR_FSYNC, Fault.UNSAFE),
            (sqlite3.SQLITE_IOERR_DIR_FSYNC, Fault.UNSAFE),
            (sqlite3.SQLITE_CORRUPT, Fault.UNSAFE),
            (sqlite3.SQLITE_READONLY, Fault.UNSAFE),
            (sqlite3.SQLITE_IOERR_READ, Fault.OTHER),
            (sqlite3.SQLITE_IOERR_NOMEM, Fault.OTHER),
            (sqlite3.SQLITE_CONSTRAINT_UNIQUE, Fault.OTHER),
            (sqlite3.SQLITE_ERROR, Fault.OTHER),
        ):
            self.assertIs(classify(databaseError(code)), fault, code)
        self.assertIs(classify(ValueError()), Fault.OTHER)
        self.assertIs(classify(sqlite3.ProgrammingError("no code")), Fault.OTHER)
