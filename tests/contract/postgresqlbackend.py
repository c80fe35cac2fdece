"""
The catalog in PostgreSQL in place of the embedded one, for a daemon that C{STORE_UNDER_TEST} gives
it to; with what a node does in the background: its lease is renewed, and garbage collected.

The database is that of C{CATALOG_UNDER_TEST}.
"""

import os
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.task import LoopingCall

from storagegate.storage.backends import CATALOGS, DEFAULT_CATALOG, BackEndContext, OpenCatalog
from storagegate.storage.cluster.catalog import PostgreSQLCatalog, openPostgreSQL
from storagegate.storage.errors import StoreBusy, StoreReadOnly

VARIABLE = "CATALOG_UNDER_TEST"
LEASE_SECONDS = 10.0
BEAT_SECONDS = 1.0


class _Keeper:
    """Renews the lease of a node that is alone, and collects its garbage."""

    def __init__(self, catalog: PostgreSQLCatalog, onGarbage: Any) -> None:
        self._catalog = catalog
        self._onGarbage = onGarbage

    async def beat(self) -> None:
        """Renew, fold, and tell of garbage."""
        catalog = self._catalog
        try:
            if catalog.lease:
                await catalog.leases.renew(LEASE_SECONDS, catalog.leases.stamp)
            else:
                await catalog.leases.take("daemon", LEASE_SECONDS)
            await catalog.cleanup.fold()
            self._onGarbage(await catalog.garbage("", 1000))
        except (StoreBusy, StoreReadOnly):
            # The next beat tries again.
            pass


def openCatalog(context: BackEndContext) -> OpenCatalog:
    """Open the database of the variable."""
    conninfos = os.environ[VARIABLE].split(";")
    catalog = openPostgreSQL(context.reactor, conninfos, "daemon", LEASE_SECONDS)
    keeper = _Keeper(catalog, context.onGarbage)
    loop = LoopingCall(lambda: Deferred.fromCoroutine(keeper.beat()))
    loop.clock = context.reactor
    context.reactor.callLater(0, loop.start, BEAT_SECONDS)
    close = catalog.close

    def stop() -> Deferred[None]:
        if loop.running:
            loop.stop()
        return close()

    catalog.close = stop  # type: ignore[method-assign]
    return OpenCatalog(catalog, lambda ids: ids)


def install() -> None:
    """Have every store of this process opened so."""
    CATALOGS[DEFAULT_CATALOG] = "tests.contract.postgresqlbackend:openCatalog"
