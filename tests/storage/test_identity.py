"""A catalog that is lost, or another store's, beside the blobs of a store."""

import os
import shutil

from twisted.trial.unittest import SynchronousTestCase

from storagegate.storage.embedded.fsck import check
from storagegate.storage.embedded.opening import prepareStore
from storagegate.storage.errors import StoreError
from storagegate.storage.files import Files
from storagegate.storage.identity import MARKER, ForeignBlobs
from storagegate.storage.layout import BlobLayout
from storagegate.storage.sqlite import CatalogUnusable
from tests.support.stores import StoreDriver, fastDirectory


class IdentityTests(SynchronousTestCase):
    """A store with a blob, and another one."""

    def setUp(self) -> None:
        self.directory, self.other = fastDirectory(self), fastDirectory(self)
        self.layout = BlobLayout(self.directory)
        self.marker = os.path.join(self.layout.blobs, MARKER)
        self.path = os.path.join(self.directory, "catalog.sqlite")
        for directory in (self.other, self.directory):
            self.driver = StoreDriver(directory, Files())
            self.driver.createBucket("b")
            self.driver.put("b", b"big", directory.encode() * 100)
            self.driver.close()
        self.before = self.driver.blobFiles()

    def assertRefused(self, kind: type[StoreError], text: str) -> None:
        """No start and no repair of the store changes anything; each gives its reason in a line."""
        for start in (self.driver.open, lambda: prepareStore(self.directory)):
            with self.assertRaises(kind) as caught:
                start()
            self.assertIn(text, str(caught.exception))
            self.assertNotIn("\n", str(caught.exception))
        problems: list[str] = []
        try:
            self.assertGreater(check(self.directory, True, True, problems.append), 0)
        except StoreError as error:
            problems.append(str(error))
        self.assertIn(text, problems[0])
        self.assertEqual([line for line in problems if line.endswith(": repaired")], [])
        self.assertEqual(self.driver.blobFiles(), self.before)

    def test_catalogLost(self) -> None:
        """A start makes no empty catalog beside blobs, nor does C{fsck}; the old one may return."""
        os.rename(self.path, f"{self.path}.away")
        for isEmpty in (False, True):
            if isEmpty:
                with open(self.path, "wb"):
                    pass
            self.assertRefused(CatalogUnusable, f"{self.path} is gone")
        os.unlink(self.path)
        self.assertRefused(CatalogUnusable, "storagegate recover")
        self.assertFalse(os.path.exists(self.path))
        os.rename(f"{self.path}.away", self.path)
        self.driver.open()
        self.assertEqual(self.driver.get("b", b"big"), self.directory.encode() * 100)
        self.driver.close()

    def test_onlySmall(self) -> None:
        """So it is with a store that had no blobs yet."""
        shutil.rmtree(self.directory)
        StoreDriver(self.directory, Files()).close()
        self.before = (set(), set())
        os.unlink(self.path)
        self.assertRefused(CatalogUnusable, f"{self.path} is gone")

    def test_otherCatalog(self) -> None:
        """The catalog of another store is refused, and repairs nothing."""
        with open(self.layout.stagingPath("0" * 32), "wb"):
            pass
        self.before = self.driver.blobFiles()
        shutil.copy(os.path.join(self.other, "catalog.sqlite"), self.path)
        self.assertRefused(ForeignBlobs, "catalog.sqlite is of store ")

    def test_earlierVersion(self) -> None:
        """A store of an earlier version has no id beside its blobs: one of them will do."""
        os.unlink(self.marker)
        self.assertEqual(check(self.directory, True, True, self.fail), 0)
        self.driver.open()
        self.driver.close()
        self.assertTrue(os.path.exists(self.marker))
        os.unlink(self.marker)
        shutil.copy(os.path.join(self.other, "catalog.sqlite"), self.path)
        self.assertRefused(ForeignBlobs, "catalog.sqlite references none of the blobs")
        self.assertFalse(os.path.exists(self.marker))

    def test_interrupted(self) -> None:
        """A crash while the id is written is no problem."""
        os.unlink(self.marker)
        with open(os.path.join(self.layout.staging, MARKER), "wb"):
            pass
        self.assertEqual(check(self.directory, False, True, self.fail), 0)
        self.driver.open()
        self.driver.close()
        self.assertEqual(os.listdir(self.layout.staging), [])
        self.assertEqual(os.stat(self.marker).st_size, 33)
