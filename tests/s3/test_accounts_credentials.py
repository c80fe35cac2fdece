"""Keys: the root pair and the issued ones."""

from attrs import evolve
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from storagegate.s3.accounts import REFRESH_SECONDS, AccessKeyStore
from storagegate.storage.records import AccessKey


class Issued:
    """A catalog's keys and their generation, and nothing else of a catalog."""

    def __init__(self) -> None:
        self.keys: list[AccessKey] = []
        self.generation = 0
        self.reads = 0

    def keysGeneration(self) -> int:
        """As ICatalog says."""
        return self.generation

    def accessKeys(self) -> list[AccessKey]:
        """As ICatalog says."""
        self.reads += 1
        return list(self.keys)


class CredentialsTests(SynchronousTestCase):
    """Looking keys up."""

    def setUp(self) -> None:
        """Make credentials over an empty catalog."""
        self.clock = Clock()
        self.issued = Issued()
        self.credentials = AccessKeyStore(self.issued, self.clock, "ROOT", "rootsecret")

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
        self.assertIsNone(self.credentials.find("K"))
        self.issued.keys.append(AccessKey("K", "s", "ada", "readonly", "b*", "p/*"))
        self.issued.generation = 1
        self.clock.advance(REFRESH_SECONDS)
        found = self.credentials.find("K")
        assert found is not None
        self.assertEqual(found.identity.account, "ada")
        self.assertFalse(found.identity.isRoot)
        self.assertEqual(evolve(found.identity.policy).kind, "readonly")
        self.issued.keys.clear()
        self.issued.generation = 2
        self.assertIsNotNone(self.credentials.find("K"))
        self.clock.advance(REFRESH_SECONDS)
        self.assertIsNone(self.credentials.find("K"))
        self.assertLess(REFRESH_SECONDS, 1.0)

    def test_readsOnlyWhatChanged(self) -> None:
        """The keys are read again only when their generation is another."""
        for _ in range(10):
            self.clock.advance(REFRESH_SECONDS)
            self.credentials.find("K")
        self.assertEqual(self.issued.reads, 1)

    def test_secretsStayOutOfRepr(self) -> None:
        """No repr shows a secret: reprs end up in logs."""
        self.assertNotIn("rootsecret", repr(self.credentials.find("ROOT")))
