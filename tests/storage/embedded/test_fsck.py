"""Each kind of damage, made by hand, is found; what can be repaired without loss is."""

import os
import sqlite3

from twisted.trial.unittest import SynchronousTestCase

from storagegate.storage.embedded.fsck import check
from storagegate.storage.errors import CorruptBlob, StoreError
from storagegate.storage.files import StoreLocked
from storagegate.storage.layout import BlobLayout
from storagegate.storage.records import COMPLIANCE, VERSIONING_ENABLED, VERSIONING_SUSPENDED
from tests.support.faultyfiles import FaultyFiles
from tests.support.stores import StoreDriver, fastDirectory

STRAY = "00ff" + "5" * 28


class FsckTests(SynchronousTestCase):
    """L{check} on a store with a large object, a copy of it, an upload and a small object."""

    def setUp(self) -> None:
        self.directory = fastDirectory(self)
        self.layout = BlobLayout(self.directory)
        self.driver = StoreDriver(self.directory, FaultyFiles())
        self.driver.createBucket("b")
        self.driver.put("b", b"big\n", b"x" * 5000)
        self.driver.copy("b", b"big\n", b"copy")
        self.driver.createUpload("u", "b", b"up")
        self.driver.putPart("b", b"up", "u", 1, b"y" * 700)
        self.driver.put("b", b"small", b"inline")
        record = self.driver.find("b", b"big\n")
        self.blob = record.content.segments[0].blob
        self.path = self.layout.path(self.blob)
        self.driver.close()

    def check(self, repair: bool = False, verify: bool = False) -> tuple[int, list[str]]:
        """Check the store."""
        lines: list[str] = []
        return check(self.directory, repair, verify, lines.append), lines

    def sql(self, statement: str, *values: object) -> None:
        """Do something to the catalog behind everybody's back."""
        connection = sqlite3.connect(os.path.join(self.directory, "catalog.sqlite"))
        with connection:
            connection.execute(statement, values)
        connection.close()

    def assertRepairs(self, text: str, verify: bool = False) -> None:
        """The problem is found, and found until it is repaired; then the store is as it was."""
        for _ in range(2):
            left, lines = self.check(verify=verify)
            self.assertEqual((left, len(lines)), (1, 1), lines)
            self.assertIn(text, lines[0])
        left, lines = self.check(repair=True, verify=verify)
        self.assertEqual((left, [line.endswith(": repaired") for line in lines]), (0, [True]))
        self.assertEqual(self.check(verify=True), (0, []))
        self.driver.open()
        self.assertEqual(self.driver.get("b", b"big\n"), b"x" * 5000)
        self.assertEqual(self.driver.get("b", b"copy"), b"x" * 5000)
        self.driver.close()

    def assertReports(self, text: str, verify: bool = False) -> None:
        """The problem is found, and no repair makes it go away."""
        for repair in (False, True, False):
            left, lines = self.check(repair, verify)
            self.assertEqual((left, len(lines)), (1, 1), lines)
            self.assertIn(text, lines[0])

    def test_sound(self) -> None:
        """A sound store has no problems, and a repair changes nothing."""
        before = self.driver.blobFiles()
        for repair in (False, True):
            for verify in (False, True):
                self.assertEqual(self.check(repair, verify), (0, []))
        self.assertEqual(self.driver.blobFiles(), before)

    def test_references(self) -> None:
        """A count of references that is wrong, either way, is counted again."""
        for wrong in (1, 3):
            self.sql("UPDATE blobs SET refs = ? WHERE id = ?", wrong, self.blob)
            self.assertRepairs(f"blob {self.blob} has {wrong} references, not 2")

    def test_usage(self) -> None:
        """What a bucket is said to hold is counted again; a bucket that is gone holds nothing."""
        self.sql("UPDATE usage SET objects = 7, uploadBytes = -1")
        self.assertRepairs(
            "bucket b has wrong totals: 7 objects, not 3, -1 bytes of uploads, not 700"
        )
        self.sql("DELETE FROM usage")
        self.assertRepairs("bucket b has wrong totals: 0 objects, not 3, 0 bytes, not 10006, 0 upl")
        self.sql("INSERT INTO usage VALUES (99, 1, 0, 0, 0)")
        self.assertRepairs("no bucket 99 has wrong totals: 1 objects, not 0")

    def test_everyRow(self) -> None:
        """A repair loses nothing of any kind of row, also where all counts are wrong."""
        self.driver.open()
        for versioning in (VERSIONING_ENABLED, VERSIONING_SUSPENDED, VERSIONING_ENABLED):
            self.driver.setVersioning("b", versioning)
            for key in (b"big\n", b"small"):
                self.driver.put("b", key, b"%b %b" % (key, versioning.encode()) * 100)
                self.driver.delete("b", [key])
            self.driver.put("b", b"small", b"tiny")
        self.driver.setObjectLock("b", COMPLIANCE)
        self.driver.put("b", b"small", b"locked")
        self.driver.hold("b", b"small", 1, True)
        ids = [(each.key.encode(), each.versionId) for each in self.driver.listed("b")[0]]
        versions = self.driver.versions("b")
        bodies = [self.driver.get("b", *name) for name in ids]
        locks = [self.driver.find("b", *name).attributes.lock for name in ids]
        self.assertEqual(len(set(map(str, locks))), 3)
        self.assertGreater(len(ids), 12)
        self.driver.close()
        self.assertEqual(self.check(repair=True, verify=True), (0, []))
        self.sql("UPDATE blobs SET refs = 0")
        self.sql("DELETE FROM usage")
        self.assertEqual(self.check(repair=True)[0], 0)
        self.assertEqual(self.check(repair=True, verify=True), (0, []))
        self.driver.open()
        self.assertEqual(self.driver.versions("b"), versions)
        self.assertEqual([self.driver.get("b", *name) for name in ids], bodies)
        found = [self.driver.find("b", *name).attributes.lock for name in ids]
        self.assertEqual(found, locks)
        self.driver.close()

    def test_oldVersionRot(self) -> None:
        """A byte that has changed in a version that is not current is found too."""
        self.driver.open()
        self.driver.setVersioning("b", VERSIONING_ENABLED)
        self.driver.put("b", b"small", b"newer")
        self.driver.put("b", b"small", b"newest")
        self.driver.close()
        self.assertEqual(self.check(verify=True), (0, []))
        self.sql("UPDATE inline SET bytes = CAST('inLine' AS BLOB) WHERE bytes = x'696e6c696e65'")
        self.assertReports("object b/'small' differs from the bytes that were written", verify=True)
        self.sql("UPDATE blobs SET refs = 7 WHERE id = ?", self.blob)
        self.driver.open()
        self.driver.put("b", b"big\n", b"")
        self.driver.close()
        os.unlink(self.path)
        left, lines = self.check(repair=True)
        self.assertEqual(left, 1)
        self.assertIn("is missing; referenced by b/'big\\n', b/'copy'", lines[1])

    def test_noReferences(self) -> None:
        """A blob that seems to be garbage and is named is counted before anything is removed."""
        self.sql("UPDATE blobs SET refs = 0 WHERE id = ?", self.blob)
        left, lines = self.check(repair=True)
        self.assertEqual((left, len(lines)), (0, 1))
        self.assertEqual(self.check(verify=True), (0, []))

    def test_orphan(self) -> None:
        """A file that no row speaks of is removed."""
        os.makedirs(self.layout.shard(STRAY))
        with open(self.layout.path(STRAY), "wb") as file:
            file.write(b"orphan")
        self.assertRepairs(f"blob {STRAY} is not referenced")
        self.assertFalse(os.path.exists(self.layout.path(STRAY)))

    def test_garbage(self) -> None:
        """A blob without references is removed, with its row."""
        self.sql("INSERT INTO blobs (id, size, crc, refs) VALUES (?, 1, 1, 0)", STRAY)
        self.assertRepairs(f"blob {STRAY} is garbage")

    def test_staging(self) -> None:
        """An upload that was never committed is removed; the name of one that was only goes."""
        with open(self.layout.stagingPath(STRAY), "wb") as file:
            file.write(b"half an upl")
        self.assertRepairs("1 uploads were left in staging")
        os.link(self.path, self.layout.stagingPath(self.blob))
        self.assertRepairs("1 uploads were left in staging")
        self.assertEqual(self.driver.blobFiles()[1], set())

    def test_onlyStaging(self) -> None:
        """A committed blob that has only its first name is given the other again."""
        os.rename(self.path, self.layout.stagingPath(self.blob))
        left, lines = self.check()
        self.assertEqual(left, 2, lines)
        self.assertEqual(self.check(repair=True)[0], 0)
        self.assertEqual(self.check(verify=True), (0, []))

    def test_missing(self) -> None:
        """A blob whose file is gone is reported with the objects that it was part of."""
        os.unlink(self.path)
        self.assertReports(f"blob {self.blob} is missing; referenced by b/'big\\n', b/'copy'")

    def test_short(self) -> None:
        """A blob that is short is reported, and read no more after a repair."""
        os.truncate(self.path, 4999)
        self.assertReports(f"blob {self.blob} has 4999 bytes, not 5000")
        self.driver.open()
        self.assertRaises(CorruptBlob, self.driver.get, "b", b"copy")
        self.driver.close()

    def test_rot(self) -> None:
        """A byte that has changed is found only where all bytes are read."""
        with open(self.path, "r+b") as file:
            file.seek(2000)
            file.write(b"X")
        self.assertEqual(self.check(), (0, []))
        self.assertReports("differs from the bytes that were written", verify=True)
        left, lines = self.check()
        self.assertEqual(left, 1)
        self.assertIn("is marked as damaged", lines[0])
        with open(self.path, "r+b") as file:
            file.seek(2000)
            file.write(b"x")
        self.assertEqual(self.check(repair=True)[0], 1)
        left, lines = self.check(verify=True)
        self.assertEqual((left, len(lines)), (0, 1))
        self.assertIn("is correct: it is served again", lines[0])
        self.assertEqual(self.check(), (0, []))
        self.driver.open()
        self.assertEqual(self.driver.get("b", b"copy"), b"x" * 5000)
        self.driver.close()

    def test_inlineRot(self) -> None:
        """A byte that has changed in a small object is found too."""
        self.sql("UPDATE inline SET bytes = CAST('inLine' AS BLOB)")
        self.assertReports("object b/'small' differs from the bytes that were written", verify=True)

    def test_noRow(self) -> None:
        """
        A blob that objects name but no row knows is reported, and its file stays, also with a
        leftover in staging.
        """
        self.sql("DELETE FROM blobs WHERE id = ?", self.blob)
        self.assertReports(f"blob {self.blob} has no row; referenced by b/'big\\n', b/'copy'")
        self.assertTrue(os.path.exists(self.path))

        os.link(self.path, self.layout.stagingPath(self.blob))
        left, lines = self.check(repair=True)
        self.assertEqual((left, len(lines)), (1, 2), lines)
        self.assertTrue(os.path.exists(self.path))

    def test_strangers(self) -> None:
        """Files that cannot be ours are reported, wherever they are, and left alone."""
        layout = self.layout
        shard = layout.shard(self.blob)
        places = [
            os.path.join(layout.staging, "notes"),
            os.path.join(layout.blobs, "notes"),
            os.path.join(os.path.dirname(shard), "notes"),
            os.path.join(shard, "notes"),
            os.path.join(shard, STRAY),
        ]
        for path in places:
            with open(path, "w") as file:
                file.write("mine")
        left, lines = self.check(repair=True)
        self.assertEqual((left, len(lines)), (5, 5), lines)
        self.assertTrue(all(line.endswith("is not a file of the store") for line in lines), lines)
        self.assertTrue(all(os.path.exists(path) for path in places))

    def test_brokenCatalog(self) -> None:
        """A catalog that is broken itself is reported, and nothing is repaired after it."""
        path = os.path.join(self.directory, "catalog.sqlite")
        connection = sqlite3.connect(path)
        pages = connection.execute("SELECT rootpage FROM sqlite_schema WHERE rootpage").fetchall()
        connection.close()
        # All but the tables' names, without which it is not opened.
        with open(path, "r+b") as file:
            for (page,) in pages:
                file.seek((page - 1) * 4096)
                file.write(b"\xff" * 4096)
        before = self.driver.blobFiles()
        left, lines = self.check(repair=True)
        self.assertGreater(left, 0)
        self.assertTrue(lines[0].startswith("catalog: "), lines)
        self.assertEqual(self.driver.blobFiles(), before)

    def test_inUse(self) -> None:
        """A store that is open is not checked."""
        self.driver.open()
        self.assertRaises(StoreLocked, self.check)
        self.driver.close()

    def test_noStore(self) -> None:
        """Where no store is, none is made."""
        self.assertRaises(StoreError, check, self.mktemp(), True, True, print)
        os.unlink(os.path.join(self.directory, "catalog.sqlite"))
        self.assertRaises(StoreError, self.check, True)
        self.assertFalse(os.path.exists(os.path.join(self.directory, "catalog.sqlite")))
