"""Access keys of a cluster, changed beside its nodes."""

from attrs import evolve
from twisted.internet.defer import Deferred
from twisted.trial.unittest import TestCase

from storagegate.storage.cluster.admin import openForTools
from storagegate.storage.cluster.catalog import openPostgreSQL
from storagegate.storage.errors import KeyExists, StoreBusy
from storagegate.storage.sqlite import CatalogUnusable
from tests.contract.catalogkeys import KEY
from tests.support.postgresql import sharedServer
from tests.support.selection import long


@long("starts PostgreSQL")
class AdminTests(TestCase):
    """What the tool does, a node sees."""

    async def test_keys(self) -> None:
        """A key that is issued or revoked is so for a node that is open, which is told."""
        from twisted.internet import reactor

        conninfo = sharedServer().database()
        with self.assertRaises(CatalogUnusable):
            openForTools([conninfo])
        admin = openForTools([conninfo], mayCreate=True)
        self.addCleanup(admin.close)
        node = openPostgreSQL(reactor, [conninfo], "node", 60.0)
        self.addCleanup(node.close)
        told: Deferred[None] = Deferred()
        generation = await node.keysGeneration()
        await node.cleanup.backlog()
        node.onKeysChanged = lambda: told.called or told.callback(None)
        admin.addAccessKey(KEY)
        await told
        self.assertEqual((await node.accessKeys())[1], [KEY])
        self.assertNotEqual(await node.keysGeneration(), generation)
        self.assertEqual(admin.accessKeys(), [KEY])
        with self.assertRaises(KeyExists):
            admin.addAccessKey(evolve(KEY, account="eve"))
        self.assertIs(admin.removeAccessKey("AK"), True)
        self.assertIs(admin.removeAccessKey("AK"), False)
        self.assertEqual((await node.accessKeys())[1], [])
        admin.close()
        with self.assertRaises(StoreBusy):
            admin.accessKeys()

    def test_secrets(self) -> None:
        """The secrets of a cluster are made once; the second pair is not used."""
        admin = openForTools([sharedServer().store()])
        self.addCleanup(admin.close)
        with self.assertRaises(CatalogUnusable):
            admin.secrets()
        self.assertIs(admin.makeSecrets("AK", "SK", b"affinity"), True)
        self.assertIs(admin.makeSecrets("AK2", "SK2", b"other"), False)
        found = admin.secrets()
        self.assertEqual((found.accessKey, found.secretKey), ("AK", "SK"))
        self.assertEqual((found.store, found.affinity), (admin.storeSecret(), b"affinity"))
        self.assertNotIn("SK", repr(found))

    def test_unreachable(self) -> None:
        """A catalog that is not there is one line."""
        with self.assertRaises(CatalogUnusable) as caught:
            openForTools(["host=127.0.0.1 port=1 user=x"])
        self.assertNotIn("\n", str(caught.exception))
