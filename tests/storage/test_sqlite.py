"""Files with tables of their own: made, recognised, brought up to date, waited for."""

import os
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing

from twisted.trial.unittest import SynchronousTestCase

from storagegate.storage.sqlite import (
    _CHECKPOINT_WRITES,
    MEMORY,
    FileKind,
    SQLiteFile,
    createFile,
    leave,
    readOnlyURI,
)

FIRST = ("CREATE TABLE notes (text TEXT NOT NULL)",)
SECOND = ("CREATE INDEX notesByText ON notes (text)", "INSERT INTO notes VALUES ('second')")


class NotesUnusable(Exception):
    """The file cannot store notes."""


def kind(*migrations: Sequence[str], makesDirectory: bool = False) -> FileKind:
    """Describe files of notes."""
    return FileKind("notes", migrations, "notes", "NORMAL", NotesUnusable, makesDirectory)


NOTES = kind(FIRST)


class FileCase(SynchronousTestCase):
    """What the cases of this file share."""

    def setUp(self) -> None:
        """Choose a path."""
        self.path = os.path.abspath(self.mktemp())

    def file(
        self,
        kind: FileKind = NOTES,
        busyMs: int = 0,
        nap: Callable[[float], object] = lambda seconds: None,
    ) -> SQLiteFile:
        """Make a file's owner."""
        file = SQLiteFile(self.path, kind, busyMs, nap)
        self.addCleanup(file.close)
        return file

    def notes(self, file: SQLiteFile) -> list[str]:
        """Read everything."""
        rows = file.perform(lambda: file.execute("SELECT text FROM notes").fetchall(), False)
        return [text for (text,) in rows]

    def note(self, file: SQLiteFile, text: str) -> None:
        """Write something."""
        file.perform(lambda: file.execute("INSERT INTO notes VALUES (?)", text), True)

    def other(self) -> sqlite3.Connection:
        """Connect by other means."""
        other = sqlite3.connect(self.path, timeout=0, isolation_level=None)
        self.addCleanup(other.close)
        return other

    def refused(self, file: SQLiteFile) -> str:
        """Give why a file cannot be used."""
        return str(self.assertRaises(NotesUnusable, self.notes, file))


class OpenTests(FileCase):
    """What becomes of a path."""

    def test_made(self) -> None:
        """A file is made by its first use, for its owner alone, and so is what SQLite adds."""
        file = self.file()
        self.assertFalse(os.path.exists(self.path))
        self.note(file, "a")
        for suffix in ("", "-wal", "-shm"):
            self.assertEqual(os.stat(self.path + suffix).st_mode & 0o777, 0o600, suffix)
        file.close()
        self.assertEqual(self.notes(file), ["a"])

    def test_directory(self) -> None:
        """Its directory is made, for its owner alone, where the kind says so; else it is named."""
        directory = self.path
        self.path = os.path.join(directory, "notes")
        self.assertIn(f"{self.path} cannot store notes: ", self.refused(self.file()))
        self.note(self.file(kind(FIRST, makesDirectory=True)), "a")
        self.assertEqual(os.stat(directory).st_mode & 0o777, 0o700)

    def test_kept(self) -> None:
        """A file that is there keeps its mode."""
        with open(self.path, "w"):
            os.chmod(self.path, 0o640)
        self.assertFalse(createFile(self.path))
        self.note(self.file(), "a")
        self.assertEqual(os.stat(self.path).st_mode & 0o777, 0o640)

    def test_memory(self) -> None:
        """What is in memory has no file, and ends when it is closed."""
        self.path = MEMORY
        file = self.file()
        self.note(file, "a")
        self.assertEqual(self.notes(file), ["a"])
        file.close()
        self.assertEqual(self.notes(file), [])
        self.assertFalse(os.path.exists(MEMORY))


class FailedSyncTests(FileCase):
    """A file after a sync of it has failed."""

    def test_failed(self) -> None:
        """Nothing is written any more, reads go on, and to close it copies nothing."""
        file = self.file()
        self.note(file, "before")

        def act() -> None:
            error = sqlite3.OperationalError("disk I/O error")
            error.sqlite_errorcode = sqlite3.SQLITE_IOERR_FSYNC
            raise error

        for failing in (act, lambda: self.fail("it was called")):
            error = self.assertRaises(kind(FIRST).error, file.perform, failing, True)
            self.assertIn("cannot be written until a restart: disk I/O error", str(error))
        self.assertEqual(self.notes(file), ["before"])
        file.close()
        self.assertGreater(os.path.getsize(f"{self.path}-wal"), 0)
        self.assertEqual(self.notes(self.file()), ["before"])

    def test_checkpoints(self) -> None:
        """The log is copied now and then, and its file does not grow."""
        file = self.file()
        for _ in range(2):
            for number in range(_CHECKPOINT_WRITES):
                self.note(file, str(number))
            size = os.path.getsize(f"{self.path}-wal")
        self.note(file, "last")
        self.assertEqual(os.path.getsize(f"{self.path}-wal"), size)


class LeaveTests(FileCase):
    """L{leave}, of the last connection to a file."""

    def connect(self) -> sqlite3.Connection:
        """Connect to a file with a log, in which there is a row."""
        connection = self.other()
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("CREATE TABLE notes (text)")
        return connection

    def size(self) -> int:
        """Give the length of the log."""
        return os.path.getsize(f"{self.path}-wal")

    def test_left(self) -> None:
        """It makes no checkpoint, drops an open transaction, and holds no lock of the file."""
        connection = self.connect()
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("INSERT INTO notes VALUES ('a')")
        size = self.size()
        leave(connection)
        self.assertRaises(sqlite3.ProgrammingError, connection.execute, "SELECT 1")
        self.assertEqual(self.size(), size)
        other = self.other()
        other.execute("PRAGMA locking_mode = EXCLUSIVE")
        self.assertEqual(other.execute("SELECT count(*) FROM notes").fetchall(), [(0,)])

    def test_readOnly(self) -> None:
        """A connection that is read-only makes none either, however it is closed."""
        connection = self.connect()
        for close in (leave, sqlite3.Connection.close):
            reader = sqlite3.connect(readOnlyURI(self.path), uri=True)
            reader.execute("PRAGMA query_only = ON")
            reader.execute("SELECT * FROM notes").fetchall()
            if close is leave:
                leave(connection)
            size = self.size()
            close(reader)
            self.assertEqual(self.size(), size)
            self.assertGreater(size, 0)

    def test_moved(self) -> None:
        """Where the file is gone, the connection stays open, for it cannot be closed safely."""
        connection = self.connect()
        os.rename(self.path, f"{self.path}.moved")
        leave(connection)
        self.assertEqual(connection.execute("SELECT count(*) FROM notes").fetchall(), [(0,)])


class VersionTests(FileCase):
    """What is in a file."""

    def test_migrated(self) -> None:
        """An older file is brought up to date once."""
        self.note(self.file(), "first")
        for _ in range(2):
            self.assertEqual(self.notes(self.file(kind(FIRST, SECOND))), ["first", "second"])

    def test_newer(self) -> None:
        """A file that a newer program has written is not touched."""
        self.notes(self.file(kind(FIRST, SECOND)))
        self.assertIn(f"{self.path} was written by a newer", self.refused(self.file()))
        self.assertEqual(self.notes(self.file(kind(FIRST, SECOND))), ["second"])

    def test_foreign(self) -> None:
        """A database of something else is left alone, whatever its version."""
        for version in (0, 1, 2):
            with closing(self.other()) as other:
                other.execute("CREATE TABLE IF NOT EXISTS letters (text)")
                other.execute(f"PRAGMA user_version = {version}")
            self.assertIn("a database of another program", self.refused(self.file()))

    def test_noDatabase(self) -> None:
        """So is what is no database."""
        with open(self.path, "w") as stream:
            stream.write("hello " * 1000)
        self.assertEqual(self.refused(self.file()), f"{self.path} is not a database")
        with open(self.path) as stream:
            self.assertEqual(stream.read(), "hello " * 1000)


class BusyTests(FileCase):
    """A file that others use as well."""

    def test_opening(self) -> None:
        """A new file that another process is about to make one with a log is waited for."""
        other = self.other()
        other.execute("BEGIN EXCLUSIVE")
        naps: list[float] = []

        def nap(seconds: float) -> None:
            naps.append(seconds)
            if len(naps) == 3:
                other.execute("ROLLBACK")

        self.note(self.file(busyMs=60_000, nap=nap), "a")
        self.assertEqual(len(naps), 3)

    def test_writing(self) -> None:
        """So is who writes; the act is done once as a whole."""
        file = self.file(busyMs=60_000, nap=lambda seconds: other.execute("COMMIT"))
        self.notes(file)
        other = self.other()
        other.execute("BEGIN IMMEDIATE")
        other.execute("INSERT INTO notes VALUES ('other')")
        self.note(file, "a")
        self.assertEqual(self.notes(file), ["other", "a"])

    def test_tooLong(self) -> None:
        """Who holds it too long is an error; nothing was done, and it can be tried again."""
        file = self.file()
        self.notes(file)
        other = self.other()
        other.execute("BEGIN IMMEDIATE")
        self.assertRaises(sqlite3.OperationalError, self.note, file, "a")
        other.execute("ROLLBACK")
        self.note(file, "b")
        self.assertEqual(self.notes(file), ["b"])

    def test_otherErrors(self) -> None:
        """What time does not mend is not tried again."""
        file = self.file(busyMs=60_000, nap=lambda seconds: self.fail("waited"))
        self.assertRaises(
            sqlite3.OperationalError, file.perform, lambda: file.execute("SELECT no"), False
        )

    def test_failing(self) -> None:
        """What fails in the midst leaves nothing behind."""
        file = self.file()

        def act() -> None:
            file.execute("INSERT INTO notes VALUES ('a')")
            raise KeyError

        self.assertRaises(KeyError, file.perform, act, True)
        self.assertEqual(self.notes(file), [])
