"""The WAL that is long from the start."""

import os
import shutil
import sqlite3

from twisted.trial.unittest import SynchronousTestCase

from storagegate.storage.embedded.wal import prewrite, prewriteBetweenCommits


class PrewriteTests(SynchronousTestCase):
    """L{prewrite}."""

    def setUp(self) -> None:
        """Open a database in WAL mode."""
        self.path = self.mktemp()
        self.wal = self.path + "-wal"
        self.connection = self.connect()
        self.connection.execute("PRAGMA journal_mode = WAL").fetchall()

    def connect(self) -> sqlite3.Connection:
        """Open the database once more."""
        connection = sqlite3.connect(self.path, isolation_level=None)
        self.addCleanup(connection.close)
        return connection

    def crashed(self) -> list[int]:
        """What a process finds that opens the files as they lie after a crash."""
        copy = self.mktemp()
        for name in ("", "-wal"):
            shutil.copyfile(self.path + name, copy + name)
        found = sqlite3.connect(copy)
        try:
            return [row[0] for row in found.execute("SELECT x FROM t ORDER BY x")]
        finally:
            found.close()

    def test_notDuringACommit(self) -> None:
        """While another connection writes nothing is put behind what it writes; later it is."""
        self.connection.execute("CREATE TABLE t (x)")
        other = self.connect()
        other.execute("PRAGMA busy_timeout = 0")
        self.connection.execute("BEGIN IMMEDIATE")
        length = os.path.getsize(self.wal)
        self.assertFalse(prewriteBetweenCommits(other, self.wal))
        self.assertEqual(os.path.getsize(self.wal), length)
        self.connection.execute("COMMIT")
        self.assertTrue(prewriteBetweenCommits(other, self.wal))
        self.assertFalse(other.in_transaction)
        self.assertGreater(os.path.getsize(self.wal), length)

    def test_longAndStillAWAL(self) -> None:
        """The file is long at once; commits before and after survive a crash, and it stays long."""
        self.connection.execute("CREATE TABLE t (x)")
        self.connection.execute("INSERT INTO t VALUES (1)")
        self.assertTrue(prewrite(self.wal, 1 << 20))
        self.assertEqual(self.crashed(), [1])
        self.connection.execute("INSERT INTO t VALUES (2)")
        self.assertEqual(self.crashed(), [1, 2])
        self.connection.execute("PRAGMA wal_checkpoint(RESTART)").fetchall()
        self.connection.execute("INSERT INTO t VALUES (3)")
        self.assertEqual(self.crashed(), [1, 2, 3])
        self.assertEqual(os.path.getsize(self.wal), 1 << 20)

    def test_emptyFile(self) -> None:
        """Zeros alone are an empty WAL."""
        self.connection.execute("CREATE TABLE t (x)")
        self.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        self.assertTrue(prewrite(self.wal, 1 << 20))
        self.assertEqual(self.crashed(), [])
        self.connect().execute("INSERT INTO t VALUES (1)")
        self.assertEqual(self.crashed(), [1])

    def test_never(self) -> None:
        """No file, or a disk with too little room, is no error; the file stays as it is."""
        self.connection.execute("CREATE TABLE t (x)")
        before = os.path.getsize(self.wal)
        self.assertFalse(prewrite(self.wal, 1 << 60))
        self.assertEqual(os.path.getsize(self.wal), before)
        self.assertFalse(prewrite(self.wal + "-not-there"))
