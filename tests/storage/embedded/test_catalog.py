"""The SQLite catalog keeps the catalog's contract, and what is SQLite's own of it."""

import os
import sqlite3
from contextlib import closing
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.threads import deferToThreadPool
from twisted.trial.unittest import TestCase
from zope.interface.verify import verifyObject

from storagegate.storage.embedded.catalog import SQLiteCatalog
from storagegate.storage.interfaces import ICatalog
from tests.contract.catalog import CatalogContract
from tests.contract.catalogcase import inlineRecord
from tests.contract.delayedcatalog import DelayedCatalog


def openCatalog(path: str, collected: list[str], durability: str) -> SQLiteCatalog:
    """Open a catalog on the real reactor and its threads; closing is the caller's."""
    from twisted.internet import reactor

    def run(function: Any, *arguments: object) -> Deferred[Any]:
        return deferToThreadPool(reactor, reactor.getThreadPool(), function, *arguments)

    return SQLiteCatalog(path, reactor, run, durability, collected.extend)


class SQLiteContractTests(CatalogContract, TestCase):
    """The contract."""

    def makeCatalog(self) -> SQLiteCatalog:
        """Open a new file."""
        directory = self.mktemp()
        os.makedirs(directory)
        self.path = os.path.join(directory, "catalog.sqlite")
        catalog = openCatalog(self.path, self.collected, "os")
        self.addCleanup(catalog.close)
        return catalog

    def test_interfaces(self) -> None:
        """The catalog has all methods of its interface."""
        verifyObject(ICatalog, self.catalog)

    async def test_emptyColumnsAreNull(self) -> None:
        """What an object does not have is NULL in its row, and empty in its record."""
        await self.put(inlineRecord(b"key"))
        with closing(sqlite3.connect(self.path)) as connection:
            rows = connection.execute("SELECT segments, tags, acl FROM objects").fetchall()
        self.assertEqual(rows, [(None, None, None)])
        _, found = await self.catalog.object("b", b"key")
        self.assertEqual((found.attributes.tags, found.attributes.acl), ("", ""))
        self.assertEqual(found.content.segments, ())


class DelayedContractTests(CatalogContract, TestCase):
    """The contract where look-ups come back late and out of order."""

    def makeCatalog(self) -> DelayedCatalog:
        """Open a new file behind the delay."""
        from twisted.internet import reactor

        directory = self.mktemp()
        os.makedirs(directory)
        catalog = openCatalog(os.path.join(directory, "catalog.sqlite"), self.collected, "os")
        self.addCleanup(catalog.close)
        # Without a grace, of which the contract knows nothing.
        return DelayedCatalog(catalog, reactor, graceSeconds=0.0)

    def test_interfaces(self) -> None:
        """The catalog has all methods of its interface."""
        verifyObject(ICatalog, self.catalog)

    async def test_outOfOrder(self) -> None:
        """Look-ups come back in another order than they were made in."""
        came: list[int] = []
        for number in range(20):
            found = Deferred.fromCoroutine(self.catalog.bucket("b"))
            found.addCallback(lambda _, number=number: came.append(number))
        self.assertEqual(came, [])
        while len(came) < 20:
            await self.catalog.bucket("b")
        self.assertNotEqual(came, sorted(came))
