"""The catalog in PostgreSQL keeps the catalog's contract, on a real server."""

from typing import Any

from twisted.internet.defer import Deferred
from twisted.trial.unittest import TestCase
from zope.interface.verify import verifyObject

from storagegate.storage.cluster.catalog import PostgreSQLCatalog, openPostgreSQL
from storagegate.storage.cluster.databaselocks import AdvisoryLocks, Locks, RowLocks
from storagegate.storage.cluster.interfaces import ICleanup, IClusterCatalog, INodeLeases
from storagegate.storage.mutations import (
    AbortUpload,
    CompleteUpload,
    Mutation,
    PutObject,
    PutPart,
    RemoveObjects,
)
from tests.contract.catalog import CatalogContract
from tests.support.postgresql import sharedServer
from tests.support.selection import long

_COLLECTED = AbortUpload | CompleteUpload | RemoveObjects | PutObject | PutPart
"""The mutations that may leave garbage."""


class CollectedCatalog:
    """
    A catalog whose garbage is found with each mutation, before its Deferred fires, as the contract
    has it; in a cluster one node does so in the background.
    """

    def __init__(self, catalog: PostgreSQLCatalog, collected: list[str]) -> None:
        self._catalog = catalog
        self._collected = collected
        self._known: set[str] = set()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._catalog, name)

    def commit(self, mutation: Mutation[Any]) -> Deferred[Any]:
        """See L{ICatalog.commit}."""
        done = self._catalog.commit(mutation)
        return done.addCallback(self._collect) if isinstance(mutation, _COLLECTED) else done

    def _collect(self, result: Any) -> Deferred[Any]:
        async def collect() -> Any:
            await self._catalog.leases.renew(60.0, 1 << 62)
            await self._catalog.cleanup.fold()
            garbage = await self._catalog.garbage("", 1000)
            self._collected += [blob for blob in garbage if blob not in self._known]
            self._known.update(garbage)
            return result

        return Deferred.fromCoroutine(collect())


@long("starts PostgreSQL")
class PostgreSQLContractTests(CatalogContract, TestCase):
    """The contract."""

    def makeCatalog(self) -> Any:
        """Open a new database."""
        from twisted.internet import reactor

        catalog = openPostgreSQL(
            reactor, [sharedServer().store()], "node", 60.0, locks=self.makeLocks()
        )
        self.addCleanup(catalog.close)
        return CollectedCatalog(catalog, self.collected)

    def makeLocks(self) -> Locks:
        """Make the locks."""
        return AdvisoryLocks()

    def test_interfaces(self) -> None:
        """The catalog has all methods of its interface."""
        catalog = self.catalog._catalog
        verifyObject(IClusterCatalog, catalog)
        verifyObject(INodeLeases, catalog.leases)
        verifyObject(ICleanup, catalog.cleanup)


@long("starts PostgreSQL")
class RowLocksContractTests(PostgreSQLContractTests):
    """The contract with locks of rows."""

    def makeLocks(self) -> Locks:
        """Make the locks."""
        return RowLocks()
