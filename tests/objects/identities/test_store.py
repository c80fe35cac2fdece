"""Reads of the state of an account."""

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from storagegate.objects.identities.entities import AccountState
from storagegate.objects.identities.store import KEPT_STATES, IdentityStore
from storagegate.storage.accesskeys import AccessKeySnapshot
from storagegate.storage.records import AccessKey
from tests.objects.identities.test_sessions import ANN, OPS, Identities


class ReadTests(SynchronousTestCase):
    """L{IdentityStore.read}."""

    def setUp(self) -> None:
        """Have an account with a user and a key."""
        self.catalog = Identities()
        self.catalog.keys = [AccessKey("UK", "su", "ada", userName="ann")]
        self.catalog.put(ANN)
        self.store = IdentityStore(self.catalog, AccessKeySnapshot(self.catalog, Clock()))

    def read(self, account: str = "ada") -> AccountState:
        """Read the state of an account."""
        return self.successResultOf(Deferred.fromCoroutine(self.store.read(account)))

    def test_kept(self) -> None:
        """Reads without a signature decode an unchanged account once, however large it is."""
        self.assertIs(self.read(), self.read())
        for number in range(KEPT_STATES):
            self.read(f"other{number}")
        self.assertEqual(len(self.store._states), KEPT_STATES)

    def test_changed(self) -> None:
        """A change of an entity or a key is read at once."""
        self.assertIsNone(self.read().role("ops"))
        self.catalog.put(ANN, OPS)
        self.assertEqual(self.read().role("ops"), OPS)
        self.catalog.keys.append(AccessKey("OK", "so", "ada"))
        self.catalog.generation += 1
        self.assertEqual(set(self.read().keys), {"UK", "OK"})
