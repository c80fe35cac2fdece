"""A WAL that is replayed into its own catalog only."""

import os
import shutil
import sqlite3
from contextlib import closing

from twisted.trial.unittest import SynchronousTestCase

from storagegate.storage.embedded.connections import Durability, Purpose, connect, prepare
from storagegate.storage.embedded.logbinding import (
    BINDING,
    checkLog,
    hasFrames,
    makeIncarnation,
    nameBinding,
    renewIncarnation,
)
from storagegate.storage.embedded.wal import checkpoint, prewrite
from storagegate.storage.sqlite import CatalogUnusable


class LogCase(SynchronousTestCase):
    """A directory with a catalog, and copies of it as a crash leaves them."""

    def setUp(self) -> None:
        """Make a directory."""
        self.directory = self.mktemp()
        os.mkdir(self.directory)
        self.path = os.path.join(self.directory, "catalog.sqlite")

    def opened(self) -> sqlite3.Connection:
        """Open the catalog as a daemon that starts does."""
        prepare(self.path, Durability.OS)
        connection = connect(self.path, Durability.OS, Purpose.WRITER)
        self.addCleanup(connection.close)
        renewIncarnation(connection, self.path, True)
        return connection

    def crashed(self, name: str) -> str:
        """Copy the directory as it is now, with a log that was not closed; return the catalog."""
        copy = f"{self.directory}-{name}"
        shutil.copytree(self.directory, copy)
        return os.path.join(copy, "catalog.sqlite")

    def bindings(self, path: str) -> list[str]:
        """List the files that bind a log."""
        names = os.listdir(os.path.dirname(path))
        return [name for name in names if name.startswith(BINDING)]

    def write(self, connection: sqlite3.Connection, value: int) -> None:
        """Commit something."""
        connection.execute("INSERT OR REPLACE INTO meta VALUES ('test', ?)", (value,))

    def read(self, path: str) -> int:
        """Read it, with what the log has."""
        with closing(connect(path, Durability.OS, Purpose.WRITER)) as connection:
            [(value,)] = connection.execute("SELECT value FROM meta WHERE name = 'test'").fetchall()
            return int(value)

    def refused(self, path: str) -> None:
        """See that a catalog is refused in one line, and that nothing is changed."""
        directory = os.path.dirname(path)

        def content() -> dict[str, bytes]:
            found = {}
            for name in sorted(os.listdir(directory)):
                with open(os.path.join(directory, name), "rb") as file:
                    found[name] = file.read()
            return found

        before = content()
        for opening in (
            lambda: prepare(path, Durability.FULL),
            lambda: connect(path, Durability.FULL, Purpose.POOL),
        ):
            error = self.assertRaises(CatalogUnusable, opening)
            self.assertNotIn("\n", str(error))
            self.assertIn("storagegate restore", str(error))
        self.assertEqual(content(), before)


class CrashTests(LogCase):
    """Logs that must be replayed."""

    def test_always(self) -> None:
        """
        The log of a crash at any step of any start is replayed: before and after the new name, the
        commit of the new number, a checkpoint, and again without a checkpoint between.
        """
        connection = self.opened()
        paths: list[tuple[str, int]] = []
        for number in range(40):
            self.write(connection, number)
            paths.append((self.crashed(f"{number}-written"), number))
            if number % 3 == 2:
                checkpoint(connection, "PASSIVE")
                paths.append((self.crashed(f"{number}-copied"), number))
            renewIncarnation(connection, self.path, True)
            self.write(connection, number)
            paths.append((self.crashed(f"{number}-renewed"), number))
            if number == 20:
                # From here on a reader keeps pages out of the file: the names become longer.
                reader = connect(self.path, Durability.OS, Purpose.POOL)
                self.addCleanup(reader.close)
                reader.execute("BEGIN")
                reader.execute("SELECT * FROM meta").fetchall()
        for path, number in paths:
            self.assertTrue(hasFrames(f"{path}-wal"))
            self.assertLess(len(self.bindings(path)[0]), 200)
            self.assertEqual(self.read(path), number)

    def test_betweenNameAndCommit(self) -> None:
        """A crash after the new name and before its commit leaves a log that is replayed."""
        connection = self.opened()
        checkpoint(connection, "TRUNCATE")
        self.write(connection, 7)
        [name] = self.bindings(self.path)
        path = self.crashed("named")
        old = os.path.join(os.path.dirname(path), name)
        current = name.rpartition("-")[2]
        os.rename(old, os.path.join(os.path.dirname(path), f"{BINDING}{current}-0badcafe"))
        self.assertEqual(self.read(path), 7)

    def test_earlierVersion(self) -> None:
        """The log of an earlier version, which bound none, is replayed, also after a crash here."""
        prepare(self.path, Durability.OS)
        connection = connect(self.path, Durability.OS, Purpose.WRITER)
        self.addCleanup(connection.close)
        self.write(connection, 3)
        self.assertEqual(self.bindings(self.path), [])
        self.assertEqual(self.read(self.crashed("old")), 3)
        renewIncarnation(connection, self.path, True)
        self.assertEqual(self.read(self.crashed("new")), 3)


class ForeignTests(LogCase):
    """Logs that must not be replayed."""

    def setUp(self) -> None:
        """Make a daemon's directory that crashed, and a backup from before."""
        super().setUp()
        connection = self.opened()
        self.write(connection, 1)
        self.backup = os.path.join(self.mktemp(), "catalog.sqlite")
        os.mkdir(os.path.dirname(self.backup))
        with closing(sqlite3.connect(self.backup, isolation_level=None)) as copy:
            connection.backup(copy)
            self.binding = makeIncarnation(copy)
        self.write(connection, 2)
        self.crash = self.crashed("crash")

    def test_copiedOver(self) -> None:
        """The catalog of a backup beside the log of the crash is refused, with and without name."""
        shutil.copy(self.backup, self.crash)
        self.refused(self.crash)
        open(os.path.join(os.path.dirname(self.crash), self.binding), "x").close()
        self.refused(self.crash)
        # As the line says.
        os.unlink(f"{self.crash}-wal")
        self.assertEqual(self.read(self.crash), 1)

    def test_ofEarlierVersion(self) -> None:
        """So is the catalog of a backup that an earlier version made."""
        with closing(sqlite3.connect(self.backup, isolation_level=None)) as copy:
            copy.execute("PRAGMA application_id = 0")
        shutil.copy(self.backup, self.crash)
        self.refused(self.crash)

    def test_stoppedDirectory(self) -> None:
        """So is a directory of the same store, copied as a whole while its daemon was stopped."""
        stopped = f"{self.directory}-stopped"
        shutil.copytree(os.path.dirname(self.crash), stopped)
        path = os.path.join(stopped, "catalog.sqlite")
        with closing(connect(path, Durability.OS, Purpose.WRITER)) as connection:
            renewIncarnation(connection, path, True)
        self.assertFalse(os.path.exists(f"{path}-wal"))
        again = f"{self.directory}-again"
        shutil.copytree(stopped, again)
        crash = os.path.join(again, "catalog.sqlite")
        connection = connect(crash, Durability.OS, Purpose.WRITER)
        self.addCleanup(connection.close)
        renewIncarnation(connection, crash, True)
        self.write(connection, 3)
        shutil.copytree(again, f"{again}-crash")
        shutil.copytree(stopped, f"{again}-crash", dirs_exist_ok=True)
        self.refused(os.path.join(f"{again}-crash", "catalog.sqlite"))

    def test_voided(self) -> None:
        """With the empty log of a backup nothing is replayed, and one name is left by a start."""
        shutil.copy(self.backup, self.crash)
        open(f"{self.crash}-wal", "wb").close()
        open(os.path.join(os.path.dirname(self.crash), self.binding), "x").close()
        checkLog(self.crash)
        self.assertEqual(self.read(self.crash), 1)
        with closing(connect(self.crash, Durability.OS, Purpose.WRITER)) as connection:
            renewIncarnation(connection, self.crash, True)
            self.write(connection, 5)
            self.assertEqual(len(self.bindings(self.crash)), 1)
            checkLog(self.crash)

    def test_zeros(self) -> None:
        """Zeros that were written in advance are no log, whatever catalog is beside them."""
        with closing(connect(self.crash, Durability.OS, Purpose.WRITER)) as connection:
            checkpoint(connection, "TRUNCATE")
            self.assertTrue(prewrite(f"{self.crash}-wal", 1 << 20))
            shutil.copy(f"{self.crash}-wal", f"{self.backup}-wal")
        open(os.path.join(os.path.dirname(self.backup), nameBinding(1)), "x").close()
        checkLog(self.backup)
        self.assertEqual(self.read(self.backup), 1)
