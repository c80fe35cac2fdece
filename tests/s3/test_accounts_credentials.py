"""Keys: the root pair and the issued ones."""

from attrs import evolve
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from storagegate.s3.accounts import AccessKeyStore
from storagegate.storage.errors import StoreBusy
from storagegate.storage.records import AccessKey
from storagegate.storage.store import KEYS_POLL_SECONDS, AccessKeySnapshot


class Issued:
    """A catalog's keys and their generation, and nothing else of a catalog."""

    def __init__(self) -> None:
        self.keys: list[AccessKey] = []
        self.generation = 0
        self.reads = 0
        self.error: Exception | None = None
        self.late: list[Deferred[None]] | None = None

    async def keysGeneration(self) -> int:
        """As ICatalog says."""
        if self.error is not None:
            raise self.error
        return self.generation

    async def accessKeys(self) -> tuple[int, list[AccessKey]]:
        """As ICatalog says; where there is a list C{late}, after its Deferred fires."""
        self.reads += 1
        found = (self.generation, list(self.keys))
        if self.late is not None:
            waiting: Deferred[None] = Deferred()
            self.late.append(waiting)
            await waiting
        return found


def issuedKeys() -> AccessKeySnapshot:
    """Make a snapshot of no keys."""
    keys = AccessKeySnapshot(Issued(), Clock())
    keys.start()
    return keys


class CredentialsTests(SynchronousTestCase):
    """Looking keys up."""

    def setUp(self) -> None:
        """Make credentials over an empty catalog."""
        self.clock = Clock()
        self.issued = Issued()
        self.keys = AccessKeySnapshot(self.issued, self.clock)
        self.credentials = AccessKeyStore(self.keys, "ROOT", "rootsecret")

    def test_root(self) -> None:
        """The root pair is always there and may act on everything; it can be exchanged."""
        found = self.credentials.find("ROOT")
        assert found is not None
        self.assertEqual((found.secretKey, found.identity.isRoot), ("rootsecret", True))
        self.credentials.setRoot("NEW", "other")
        self.assertIsNone(self.credentials.find("ROOT"))
        self.assertIsNotNone(self.credentials.find("NEW"))

    def test_issuedAndRevokedWithinASecond(self) -> None:
        """A key works, and stops working, within a second of the operator's word."""
        self.keys.start()
        self.assertIsNone(self.credentials.find("K"))
        self.issued.keys.append(AccessKey("K", "s", "ada", "readonly", "b*", "p/*"))
        self.issued.generation = 1
        self.clock.advance(KEYS_POLL_SECONDS)
        found = self.credentials.find("K")
        assert found is not None
        self.assertEqual(found.identity.account, "ada")
        self.assertFalse(found.identity.isRoot)
        self.assertEqual(evolve(found.identity.policy).kind, "readonly")
        self.issued.keys.clear()
        self.issued.generation = 2
        self.assertIsNotNone(self.credentials.find("K"))
        self.clock.advance(KEYS_POLL_SECONDS)
        self.assertIsNone(self.credentials.find("K"))
        self.assertLess(KEYS_POLL_SECONDS, 1.0)

    def test_unchangedKeysStay(self) -> None:
        """When other keys change, a key keeps its compiled policy; when it changes, it does not."""
        key = AccessKey("K", "s", "ada", "readwrite", "b*", "p/*")
        self.issued.keys.append(key)
        self.keys.start()
        before = self.credentials.find("K")
        assert before is not None
        for generation, changed in ((1, key), (2, evolve(key, prefixPattern="q/*"))):
            self.issued.keys[:] = [changed, AccessKey(f"L{generation}", "s", "ada")]
            self.issued.generation = generation
            self.clock.advance(KEYS_POLL_SECONDS)
            found = self.credentials.find("K")
            assert found is not None
            self.assertIs(found is before, changed is key)
            self.assertIs(found.identity.policy.allows("read", "b", "p/x"), changed is key)
            self.assertIs(found.identity.policy.allows("read", "b", "q/x"), changed is not key)

    def test_readsOnlyWhatChanged(self) -> None:
        """The keys are read again only when their generation is another."""
        self.keys.start()
        for _ in range(10):
            self.clock.advance(KEYS_POLL_SECONDS)
            self.credentials.find("K")
        self.assertEqual(self.issued.reads, 1)

    def test_loaded(self) -> None:
        """The snapshot says when the keys have been read for the first time."""
        self.issued.late = []
        self.keys.start()
        loaded = self.keys.loaded()
        self.assertFalse(self.keys.isLoaded)
        self.assertNoResult(loaded)
        self.issued.late.pop().callback(None)
        self.successResultOf(loaded)
        self.assertTrue(self.keys.isLoaded)
        self.successResultOf(self.keys.loaded())

    def test_outOfOrder(self) -> None:
        """An older snapshot that comes after a newer one does not replace it."""
        self.issued.late = []
        self.issued.keys.append(AccessKey("K", "s", "ada"))
        first = Deferred.fromCoroutine(self.keys.refresh())
        self.issued.keys.clear()
        self.issued.generation = 1
        second = Deferred.fromCoroutine(self.keys.refresh())
        for waiting in reversed(self.issued.late):
            waiting.callback(None)
        self.successResultOf(first)
        self.successResultOf(second)
        self.assertEqual((self.keys.generation, self.keys.keys), (1, {}))

    def test_unreadable(self) -> None:
        """Without the catalog no issued key is good, for it may be revoked; the root pair is."""
        self.issued.keys.append(AccessKey("K", "s", "ada"))
        self.keys.start()
        self.assertIsNotNone(self.credentials.find("K"))
        self.issued.error = OSError("the disk is gone")
        self.clock.advance(KEYS_POLL_SECONDS)
        with self.assertRaises(StoreBusy):
            self.credentials.find("K")
        self.assertIsNotNone(self.credentials.find("ROOT"))
        self.issued.error = None
        self.clock.advance(KEYS_POLL_SECONDS)
        self.assertIsNotNone(self.credentials.find("K"))

    def test_stop(self) -> None:
        """A snapshot that was stopped polls no more."""
        self.keys.start()
        self.successResultOf(Deferred.fromCoroutine(self.keys.stop()))
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_secretsStayOutOfRepr(self) -> None:
        """No repr shows a secret: reprs end up in logs."""
        self.assertNotIn("rootsecret", repr(self.credentials.find("ROOT")))
