"""Directories of blobs that are taken away, and a disk that refuses everything."""

import os
import shutil
from typing import Any

from twisted.internet.defer import Deferred

from storagegate.storage.errors import CorruptBlob, StoreBusy
from tests.storage.test_store import StoreCase
from tests.support.faultyfiles import Fault


class HealthTests(StoreCase):
    """Blobs that cannot be written or read show in the health, and recover by themselves."""

    def health(self) -> str | None:
        """Look at the health twice: the first look may begin a try of the disk."""
        self.driver.store.health()
        self.driver.reactor.settle(self.driver.store.run(lambda: None))
        self.driver.reactor.turnUntil(lambda: not self.driver.store.blobs._isProbing, lambda: None)
        return self.driver.store.health()["blobs"]

    def test_directories(self) -> None:
        """A directory that is missing is named until it is back; what it held is no damage."""
        self.driver.put("b", b"before", b"x" * 1000)
        self.reopen()
        for path in (self.layout.blobs, self.layout.staging):
            os.rename(path, f"{path}.away")
            self.assertRaises(StoreBusy, self.driver.put, "b", b"k", b"y" * 1000)
            self.assertEqual(self.health(), f"{path} is missing")
            if path == self.layout.blobs:
                self.assertRaises(StoreBusy, self.driver.get, "b", b"before")
            os.rename(f"{path}.away", path)
            self.assertIsNone(self.health())
            self.assertEqual(self.driver.get("b", b"before"), b"x" * 1000)
        self.assertIsNone(self.driver.store.warnings()["corrupt"])
        self.assertSound()

    def test_readOnly(self) -> None:
        """A file system that became read-only shows before a write fails."""
        self.assertIsNone(self.health())
        self.patch(self.files, "isReadOnly", lambda path: path == self.layout.blobs)
        self.assertEqual(self.health(), f"{self.layout.blobs} is on a read-only file system")
        self.patch(self.files, "isReadOnly", lambda path: False)
        self.assertIsNone(self.health())

    def test_shards(self) -> None:
        """The directories of blobs are made again."""
        self.driver.put("b", b"one", b"x" * 1000)
        self.assertEqual(self.driver.delete("b", [b"one"]), [True])
        self.settle()
        shutil.rmtree(self.layout.blobs)
        os.mkdir(self.layout.blobs)
        self.driver.put("b", b"two", b"y" * 1000)
        self.assertIsNone(self.health())
        self.assertEqual(self.driver.get("b", b"two"), b"y" * 1000)
        self.assertSound()

    def test_errors(self) -> None:
        """So long as no file can be made, linked or opened the health says so; not after one."""
        self.driver.put("b", b"before", b"x" * 1000)
        for operation in ("create", "link", "openForReading"):
            self.reopen()
            self.files.arm(Fault(1, sticky=True, only=frozenset({operation})))
            with self.assertRaises(OSError):
                if operation == "openForReading":
                    self.driver.get("b", b"before")
                else:
                    self.driver.put("b", b"k", b"y" * 1000)
            for _ in range(2):
                self.assertIn("Input/output error", self.health())
            self.files.arm(None)
            self.health()
            self.assertIsNone(self.health())
            self.files.arm(Fault(1, only=frozenset({"create"})))
            self.assertRaises(OSError, self.driver.put, "b", b"k", b"y" * 1000)
            self.assertIsNone(self.health())
        self.settle()
        self.assertSound()

    def test_short(self) -> None:
        """A blob that a read finds short is marked, shown and logged at once, and stays so."""
        self.driver.put("b", b"short", b"x" * 1000)
        self.driver.put("b", b"whole", b"y" * 1000)
        record = self.driver.find("b", b"short")
        assert record is not None
        self.reopen()
        os.truncate(self.layout.path(record.content.segments[0].blob), 999)
        for _ in range(2):
            self.assertRaises(CorruptBlob, self.driver.get, "b", b"short")
            self.assertEqual(
                self.driver.store.warnings()["corrupt"], "1 objects or blobs are corrupt"
            )
            self.assertEqual(self.driver.get("b", b"whole"), b"y" * 1000)
            self.driver.reactor.turnUntil(
                lambda: bool(self.driver.store.catalog.corruptBlobs()), lambda: None
            )
            self.reopen()

    def test_clearedMeanwhile(self) -> None:
        """A blob that another reader found intact before the mark was recorded stays unmarked."""
        self.driver.put("b", b"short", b"x" * 1000)
        record = self.driver.find("b", b"short")
        assert record is not None
        blob = record.content.segments[0].blob
        self.reopen()
        store = self.driver.store
        found = Deferred.fromCoroutine(store.catalog.blobRow(blob))
        # The query of the mark answers after the mark was cleared.
        asked: Deferred[Any] = Deferred()
        self.patch(store.catalog, "blobRow", lambda blob: asked)
        store._markShort(blob, 999)
        self.assertEqual(store.blobs.corrupt, {blob})
        store._clearCorrupt([blob])
        found.chainDeferred(asked)
        for _ in range(4):
            query = Deferred.fromCoroutine(store.catalog.referenced([blob]))
            self.driver.reactor.settle(query)
        self.assertEqual(store.blobs.corrupt, frozenset())
        self.assertEqual(store.catalog.corruptBlobs(), frozenset())
