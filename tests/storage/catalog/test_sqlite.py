"""The SQLite catalog keeps the catalog's contract, and what is SQLite's own of it."""

import os
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.threads import deferToThreadPool
from twisted.trial.unittest import TestCase
from zope.interface.verify import verifyObject

from storagegate.storage.catalog import SQLiteCatalog
from storagegate.storage.catalog.refcounts import IBlobLedger
from storagegate.storage.interfaces import ICatalog
from tests.contract.catalog import CatalogContract


def openCatalog(path: str, collected: list[str], durability: str) -> SQLiteCatalog:
    """Open a catalog on the real reactor and its threads; closing is the caller's."""
    from twisted.internet import reactor

    def run(function: Any, *arguments: object) -> Deferred[Any]:
        return deferToThreadPool(reactor, reactor.getThreadPool(), function, *arguments)

    catalog = SQLiteCatalog(path, reactor, run, durability, collected.extend)
    catalog.open()
    return catalog


class SQLiteContractTests(CatalogContract, TestCase):
    """The contract."""

    def makeCatalog(self) -> SQLiteCatalog:
        """Open a new file."""
        directory = self.mktemp()
        os.makedirs(directory)
        path = os.path.join(directory, "catalog.sqlite")
        catalog = openCatalog(path, self.collected, "os")
        self.addCleanup(catalog.close)
        return catalog

    def test_interfaces(self) -> None:
        """The catalog has all methods of its interfaces."""
        verifyObject(ICatalog, self.catalog)
        verifyObject(IBlobLedger, self.catalog)
