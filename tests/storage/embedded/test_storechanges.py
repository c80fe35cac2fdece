"""The random changes with which migrations are tested leave out no kind."""

from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from storagegate.storage.embedded.catalog import MUTATIONS
from storagegate.storage.mutations import ClearCorrupt, MarkCorrupt, Mutation
from tests.support.selection import long
from tests.support.storechanges import StoreChanges

LEFT_OUT = {MarkCorrupt, ClearCorrupt}
"""A migration refuses a store with a damaged blob."""


class StoreChangesTests(SynchronousTestCase):
    """L{StoreChanges}."""

    @long("takes seconds")
    def test_kinds(self) -> None:
        """Each kind of mutation is among them."""
        changes = StoreChanges(self.mktemp(), 1)
        self.addCleanup(changes.close)
        catalog: Any = changes.driver.store.catalog
        commit, seen = catalog.commit, set[type[Mutation[Any]]]()

        def noted(mutation: Mutation[Any]) -> Any:
            seen.add(type(mutation))
            return commit(mutation)

        self.patch(catalog, "commit", noted)
        # The store's creation has set the object lock.
        changes.change(300)
        missing = {kind.__name__ for kind in set(MUTATIONS) - seen - LEFT_OUT}
        self.assertEqual(missing, {"SetObjectLock"})
