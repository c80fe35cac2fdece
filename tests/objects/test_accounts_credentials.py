"""Keys: the root pair and the issued ones."""

from collections.abc import Mapping

from attrs import evolve
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from storagegate.objects.accounts import ROLES, AccessKeyStore
from storagegate.storage.accesskeys import KEYS_POLL_SECONDS, USES_SECONDS, AccessKeySnapshot
from storagegate.storage.errors import StoreBusy
from storagegate.storage.mutations import NoteKeyUses
from storagegate.storage.records import AccessKey, AccountDocuments


class Issued:
    """A catalog's keys and their generation, and nothing else of a catalog."""

    def __init__(self) -> None:
        self.keys: list[AccessKey] = []
        self.generation = 0
        self.reads = 0
        self.error: Exception | None = None
        self.uses: list[Mapping[str, int]] = []
        self.late: list[Deferred[None]] | None = None

    def secret(self) -> bytes:
        """As ICatalog says."""
        return b"s" * 32

    async def keysGeneration(self) -> int:
        """As ICatalog says."""
        if self.error is not None:
            raise self.error
        return self.generation

    async def commit(self, mutation: NoteKeyUses) -> None:
        """As ICatalog says."""
        if self.error is not None:
            raise self.error
        self.uses.append(mutation.uses)

    async def accessKeys(self) -> tuple[int, list[AccessKey]]:
        """As ICatalog says; where there is a list C{late}, after its Deferred fires."""
        self.reads += 1
        found = (self.generation, list(self.keys))
        if self.late is not None:
            waiting: Deferred[None] = Deferred()
            self.late.append(waiting)
            await waiting
        return found

    async def identities(self, after: int) -> tuple[int, Mapping[str, AccountDocuments]]:
        """As ICatalog says: there are none."""
        return self.generation, {}


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
        self.now = 1000.0
        self.credentials = AccessKeyStore(self.keys, "ROOT", "rootsecret", lambda: self.now)

    def test_root(self) -> None:
        """The root pair is always there and may act on everything; it can be exchanged."""
        found = self.credentials.find("ROOT")
        assert found is not None
        self.assertEqual((found.secretKey, found.identity.isRoot), ("rootsecret", True))
        self.credentials.setRoot("NEW", "other")
        self.assertIsNone(self.credentials.find("ROOT"))
        self.assertIsNotNone(self.credentials.find("NEW"))

    def test_clockSetRight(self) -> None:
        """A key that a clock which was ahead has ended is valid when the clock is right again."""
        key = AccessKey("K", "secret-of-k", "account", expiresMs=2_000_000)
        self.issued.keys, self.issued.generation = [key], 1
        self.keys.start()
        self.assertIsNotNone(self.credentials.find("K"))
        self.now += 365 * 86400
        self.assertIsNone(self.credentials.find("K"))
        self.now -= 365 * 86400
        self.assertIsNotNone(self.credentials.find("K"))

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

    def test_oldKeys(self) -> None:
        """
        Where the catalog is on a network, no issued key is good that was read more than a second
        ago, although no poll has failed; requests wait for it to answer, but not for long.
        """
        self.keys = AccessKeySnapshot(self.issued, self.clock, 1.0)
        self.credentials = AccessKeyStore(self.keys, "ROOT", "rootsecret")
        self.issued.keys.append(AccessKey("K", "s", "ada"))
        self.keys.start()
        self.assertIsNotNone(self.credentials.find("K"))
        self.successResultOf(Deferred.fromCoroutine(self.keys.certain()))
        self.issued.late, self.issued.generation = [], 1
        self.issued.keys.clear()
        self.clock.advance(KEYS_POLL_SECONDS)
        self.clock.advance(0.4)
        self.assertIsNotNone(self.credentials.find("K"))
        self.clock.advance(0.2)
        with self.assertRaises(StoreBusy):
            self.credentials.find("K")
        self.assertIsNotNone(self.credentials.find("ROOT"))
        waiting = [Deferred.fromCoroutine(self.keys.certain()) for _ in range(2)]
        self.assertNoResult(waiting[0])
        self.clock.advance(4.0)
        self.successResultOf(waiting[0])
        late = Deferred.fromCoroutine(self.keys.certain())
        self.issued.late.pop().callback(None)
        self.successResultOf(late)
        # What was read was asked for long ago.
        with self.assertRaises(StoreBusy):
            self.credentials.find("K")
        self.issued.late = None
        self.clock.advance(KEYS_POLL_SECONDS)
        self.assertIsNone(self.credentials.find("K"))

    def test_noticed(self) -> None:
        """A change that the catalog is notified of is read at once, but not after the end."""
        self.keys.notice()
        self.assertEqual(self.issued.reads, 0)
        self.keys.start()
        self.issued.keys.append(AccessKey("K", "s", "ada"))
        self.issued.generation = 1
        self.keys.notice()
        self.assertIsNotNone(self.credentials.find("K"))

    def test_generationBefore(self) -> None:
        """The keys are those of the catalog, also if it has lost a change with a server."""
        self.issued.generation = 5
        self.keys.start()
        self.issued.generation = 4
        self.issued.keys.append(AccessKey("K", "s", "ada"))
        self.clock.advance(KEYS_POLL_SECONDS)
        self.assertIsNotNone(self.credentials.find("K"))

    def test_stop(self) -> None:
        """A snapshot that was stopped polls no more."""
        self.keys.start()
        self.successResultOf(Deferred.fromCoroutine(self.keys.stop()))
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_disabled(self) -> None:
        """A key that is disabled is as good as none, and works again when it is not."""
        key = AccessKey("K", "s", "ada", role="admin")
        for generation, isDisabled in ((1, True), (2, False), (3, True)):
            self.issued.keys[:] = [evolve(key, disabled=isDisabled)]
            self.issued.generation = generation
            self.successResultOf(Deferred.fromCoroutine(self.keys.refresh()))
            found = self.credentials.find("K")
            self.assertEqual(None if found is None else found.role, None if isDisabled else "admin")
            proved = self.credentials.prove("K", b"s")
            self.assertEqual(proved is None, isDisabled)

    def test_expires(self) -> None:
        """Each key works until its time, and no poll is needed to end it."""
        self.issued.keys[:] = [
            AccessKey(f"K{seconds}", "s", "ada", expiresMs=seconds * 1000)
            for seconds in (1001, 1003, 999, 0)
        ]
        self.keys.start()
        valid = {"K1001", "K1003", "K0"}
        for at, gone in ((1000.999, set()), (1001, {"K1001"}), (1003, {"K1003"}), (9e9, set())):
            self.now = at
            valid -= gone
            found = {
                key.accessKey for key in self.issued.keys if self.credentials.find(key.accessKey)
            }
            self.assertEqual(found, valid)
        self.assertEqual(self.issued.reads, 1)

    def test_roles(self) -> None:
        """The root pair has a role above all that keys can have."""
        root = self.credentials.find("ROOT")
        assert root is not None
        self.assertEqual(root.role, ROLES[-1])
        self.issued.keys.append(AccessKey("K", "s", "ada"))
        self.keys.start()
        found = self.credentials.find("K")
        assert found is not None
        self.assertEqual(found.role, ROLES[0])

    def test_uses(self) -> None:
        """Which keys were used is noted once a minute, and at the end; not those of others."""
        self.issued.keys[:] = [AccessKey(name, "s", "ada") for name in "KLM"]
        self.keys.start()
        self.credentials.prove("K", b"s")
        self.credentials.prove("L", b"wrong")
        self.credentials.prove("ROOT", b"rootsecret")
        self.clock.pump([KEYS_POLL_SECONDS] * int(USES_SECONDS / KEYS_POLL_SECONDS))
        self.assertEqual([list(uses) for uses in self.issued.uses], [["K"]])
        self.clock.pump([KEYS_POLL_SECONDS] * int(USES_SECONDS / KEYS_POLL_SECONDS))
        self.assertEqual(len(self.issued.uses), 1)
        self.credentials.prove("M", b"s")
        self.successResultOf(Deferred.fromCoroutine(self.keys.stop()))
        self.assertEqual([list(uses) for uses in self.issued.uses], [["K"], ["M"]])

    def test_usesAreNotNoted(self) -> None:
        """A catalog that cannot write keeps no key from working, nor the store from its end."""
        self.issued.keys.append(AccessKey("K", "s", "ada"))
        self.keys.start()
        self.credentials.prove("K", b"s")
        self.issued.error = StoreBusy("not now")
        self.successResultOf(Deferred.fromCoroutine(self.keys.stop()))
        self.assertEqual(self.issued.uses, [])

    def test_secretsStayOutOfRepr(self) -> None:
        """No repr shows a secret: reprs end up in logs."""
        self.assertNotIn("rootsecret", repr(self.credentials.find("ROOT")))
