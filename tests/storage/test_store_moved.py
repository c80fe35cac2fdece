"""The files of a store that serves are taken away."""

import os
import shutil
from collections.abc import Callable
from functools import partial

from twisted.trial.unittest import SynchronousTestCase

from storagegate.storage.errors import StoreReadOnly
from storagegate.storage.files import Files
from tests.support.stores import StoreDriver, fastDirectory


class MovedFilesTests(SynchronousTestCase):
    """Each way in which what is written would be found by no later start."""

    def setUp(self) -> None:
        self.directory = fastDirectory(self)
        self.path = os.path.join(self.directory, "catalog.sqlite")
        self.away = f"{self.directory}.away"
        self.driver = StoreDriver(self.directory, Files())
        self.driver.createBucket("b")
        self.driver.put("b", b"before", b"small")
        # The search for garbage opens the catalog once more.
        self.driver.reactor.settle(self.driver.store.idle())

    def assertStops(self, act: Callable[[], object]) -> None:
        """The first write after this is refused, as are those that come then; reads go on."""
        act()
        for _ in range(2):
            with self.assertRaises(StoreReadOnly) as caught:
                self.driver.put("b", b"after", b"small")
            self.assertRegex(str(caught.exception), r"was removed, moved or replaced: /")
        self.assertIn("was removed, moved or replaced", self.driver.store.health()["catalog"])
        self.assertEqual(self.driver.get("b", b"before"), b"small")

    def test_unlinked(self) -> None:
        """C{catalog.sqlite} is removed."""
        self.assertStops(partial(os.unlink, self.path))
        self.driver.close()

    def test_directoryMoved(self) -> None:
        """The data directory is moved; a start finds there what was acknowledged."""
        self.assertStops(lambda: os.rename(self.directory, self.away))
        self.driver.close()
        os.rename(self.away, self.directory)
        self.driver.open()
        self.assertEqual(self.driver.get("b", b"before"), b"small")
        self.driver.put("b", b"after", b"small")
        self.driver.close()

    def test_replaced(self) -> None:
        """Another store is put in its place; a stop takes nothing from that one."""
        other = fastDirectory(self)
        driver = StoreDriver(other, Files())
        driver.createBucket("b")
        driver.put("b", b"theirs", b"in the WAL")
        copy = f"{other}.copy"
        shutil.copytree(other, copy)
        driver.close()

        def replace() -> None:
            os.rename(self.directory, self.away)
            os.rename(copy, self.directory)

        self.assertStops(replace)
        self.driver.close()
        self.driver.open()
        self.assertEqual(self.driver.get("b", b"theirs"), b"in the WAL")
        self.driver.close()

    def test_noticed(self) -> None:
        """A look at the health, which is taken each second, is enough."""
        os.unlink(f"{self.path}-wal")
        self.assertIn("catalog.sqlite-wal was removed", self.driver.store.health()["catalog"])
        self.assertIn("catalog.sqlite-wal was removed", self.driver.store.readOnly)
        self.driver.close()
