"""The catalog's file, whole and damaged."""

import os
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from storagegate.cli.doctor.configuration import checkCatalog, checkMasterKeys
from storagegate.daemon.config import StoreOptions
from storagegate.objects.encryption.masterkeys.keyfile import createKeyFile
from storagegate.objects.encryption.masterkeys.options import readVault
from storagegate.storage.embedded.logbinding import nameBinding
from storagegate.storage.files import FailStopLatch


class CatalogTests(SynchronousTestCase):
    """What is said of a file."""

    def setUp(self) -> None:
        """Make a database of some pages."""
        self.directory = Path(self.mktemp())
        self.directory.mkdir()
        self.file = self.directory / "catalog.sqlite"
        with closing(sqlite3.connect(self.file)) as connection:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("CREATE TABLE a (b)")
            connection.execute("INSERT INTO a VALUES (zeroblob(50000))")
            connection.commit()

    def found(self, isInUse: bool = False) -> list[str]:
        """Give what is said: the levels, and the texts without the path."""
        found = checkCatalog(str(self.directory), isInUse)
        return [f"{each.level}: {each.text.removeprefix(str(self.file))}" for each in found]

    def test_whole(self) -> None:
        """A whole one is one; nothing is changed or made by looking at it."""
        before = self.file.read_bytes()
        self.assertEqual(self.found(), ["ok:  has the header and the size of a catalog"])
        self.assertEqual(os.listdir(self.directory), ["catalog.sqlite"])
        self.assertEqual(self.file.read_bytes(), before)

    def test_cut(self) -> None:
        """One that has lost its end is told of with the bytes that there are."""
        size = self.file.stat().st_size
        os.truncate(self.file, 5000)
        [line] = self.found()
        self.assertRegex(line, f"^problem:  is truncated to 5000 of {size} bytes: ")

    def test_none(self) -> None:
        """Neither is a file of other bytes one, nor one of few, nor a pipe."""
        for data in (b"", b"SQLite format 3\0", b"x" * 50000):
            self.file.write_bytes(data)
            [line] = self.found()
            self.assertRegex(line, "^problem:  is not a database: ")
        self.file.unlink()
        os.mkfifo(self.file)
        [line] = self.found()
        self.assertRegex(line, "^problem:  is not a database: ")

    def test_unreadable(self) -> None:
        """A directory of its name cannot be read; where nothing is, the daemon makes one."""
        self.file.unlink()
        self.assertEqual(self.found(), [])
        self.file.mkdir()
        self.assertEqual(self.found(), ["problem:  cannot be read: Is a directory"])

    def test_lost(self) -> None:
        """A catalog that is gone is a problem if its blobs are there: the daemon does not start."""
        blobs = self.directory / "blobs"
        blobs.mkdir()
        (blobs / "store-id").write_text("0" * 32)
        self.file.unlink()
        [line] = self.found()
        self.assertRegex(line, "^problem:  is gone, but the store's blobs are there")

    def test_otherLog(self) -> None:
        """The log of another catalog is a problem: the daemon does not start."""
        Path(f"{self.file}-wal").write_bytes(b"\x37\x7f\x06\x82" + bytes(100))
        self.assertEqual(len(self.found()), 1)
        (self.directory / nameBinding(1)).touch()
        before = {each.name: each.read_bytes() for each in self.directory.iterdir()}
        [line] = self.found()
        self.assertRegex(line, "^problem: -wal is the log of another catalog.sqlite")
        after = {each.name: each.read_bytes() for each in self.directory.iterdir()}
        self.assertEqual(after, before)

    def test_stopped(self) -> None:
        """A daemon that has stopped writing is a problem, whether it runs or not."""
        FailStopLatch(str(self.directory)).set("a sync failed")
        for isInUse in (False, True):
            self.assertEqual(
                self.found(isInUse)[0],
                "problem: the daemon has stopped writing, restart it: a sync failed",
            )

    def test_inUse(self) -> None:
        """A daemon that runs on it is writing it, and knows better."""
        os.truncate(self.file, 5000)
        self.assertEqual(self.found(isInUse=True), [])


class MasterKeyTests(SynchronousTestCase):
    """What is said of the master keys."""

    def setUp(self) -> None:
        """Make a data directory."""
        self.directory = Path(self.mktemp())
        self.directory.mkdir()
        self.file = self.directory / "master-keys"

    def found(self, **options: Any) -> list[str]:
        """Give what is said: the levels and the texts."""
        store = StoreOptions(str(self.directory), "full", False, **options)
        found = checkMasterKeys(store, str(self.directory))
        return [f"{each.level}: {each.text}" for each in found]

    def test_file(self) -> None:
        """A file is counted, and named if it is damaged or others can read it."""
        self.assertEqual(self.found(), [])
        createKeyFile(str(self.file))
        self.assertEqual(self.found(), [f"ok: {self.file} has 1 master key"])
        self.file.chmod(0o640)
        [line] = self.found()
        self.assertIn(f"chmod 600 {self.file}", line)
        self.file.chmod(0o600)
        self.file.write_bytes(self.file.read_bytes()[:-9])
        [line] = self.found()
        self.assertTrue(line.startswith(f"problem: {self.file}: damaged"), line)
        self.assertEqual(self.found(masterKeys=str(self.directory / "other")), [])

    def test_vault(self) -> None:
        """The files to sign in with are checked."""
        path = str(self.directory / "token")
        vault = readVault({"address": "https://vault:8200", "tokenFile": path})
        self.assertTrue(self.found(vault=vault)[0].startswith(f"problem: {path} cannot be read"))
        Path(path).write_text("x")
        self.assertTrue(self.found(vault=vault)[0].startswith(f"ok: {path} can be read"))
