"""The domain of buckets and objects, on a catalog in memory."""

from types import SimpleNamespace
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from storagegate.objects.access.context import PlainCaller
from storagegate.objects.accounts import ANONYMOUS, Identity, KeyPolicy
from storagegate.objects.domain import openDomain
from storagegate.objects.errors import DomainError
from storagegate.objects.operations import ListBuckets
from storagegate.storage.records import Bucket

ACCOUNTS: Any = SimpleNamespace()
"""No policy names an account here."""


class Catalog:
    """Buckets of ann; every hundredth one is in another region."""

    recentBucket = None

    def __init__(self, count: int) -> None:
        self.reads = 0
        self._names = [f"b{n:04d}" for n in range(count)]

    async def buckets(self, account: str, prefix: str, after: str, limit: int) -> list[Bucket]:
        """List some."""
        assert account == "ann"
        self.reads += 1
        names = [each for each in self._names if each > after and each.startswith(prefix)]
        return [
            Bucket(name, "ann", 0, "eu-west-1" if name.endswith("00") else "us-east-1")
            for name in names[:limit]
        ]


class ListTests(SynchronousTestCase):
    """Lists of buckets."""

    def listed(self, policy: KeyPolicy, region: str, limit: int, after: str = "") -> list[str]:
        """List buckets of a key; count the reads of the catalog."""
        self.catalog = Catalog(2500)
        store: Any = SimpleNamespace(catalog=self.catalog, verifier=None)
        service = openDomain(store, ACCOUNTS, "us-east-1", float)
        caller = PlainCaller(Identity("K", "ann", policy), "ListBuckets")
        coroutine = service.perform(caller, ListBuckets("", after, limit, region))
        with self.assertRaises(StopIteration) as ended:
            coroutine.send(None)
        return [each.name for each in ended.exception.value]

    def test_filtered(self) -> None:
        """Buckets of a region, or that a key may list, fill a page wherever they are."""
        whole, narrow = KeyPolicy(), KeyPolicy(bucketPattern="b*00")
        hundreds = [f"b{n:04d}" for n in range(0, 2500, 100)]
        for policy, region in ((whole, "eu-west-1"), (narrow, ""), (narrow, "eu-west-1")):
            self.assertEqual(self.listed(policy, region, 3), hundreds[:3])
            self.assertEqual(self.catalog.reads, 1)
            self.assertEqual(self.listed(policy, region, 12, hundreds[2]), hundreds[3:15])
            self.assertEqual(self.listed(policy, region, 100), hundreds)
            self.assertEqual(self.catalog.reads, 3)
        self.assertEqual(self.listed(narrow, "us-east-1", 3), [])
        self.assertEqual(self.listed(whole, "", 3), ["b0000", "b0001", "b0002"])
        self.assertEqual(self.catalog.reads, 1)

    def test_anonymous(self) -> None:
        """A request without credentials has no list."""
        store: Any = SimpleNamespace(catalog=Catalog(1), verifier=None)
        caller = PlainCaller(ANONYMOUS, "ListBuckets")
        service = openDomain(store, ACCOUNTS, "us-east-1", float)
        listing = service.perform(caller, ListBuckets("", "", 1))
        error = self.assertRaises(DomainError, listing.send, None)
        self.assertEqual(error.code, "AccessDenied")
