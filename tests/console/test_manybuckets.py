"""More buckets than the usage lists one by one."""

import os
from types import SimpleNamespace
from typing import Any

from twisted.internet.defer import Deferred
from twisted.trial.unittest import TestCase

from storagegate.console import buckets
from storagegate.console.buckets import BucketPageQuery, listBuckets, showBucket
from storagegate.console.call import Principal
from storagegate.objects.access.context import PlainCaller
from storagegate.objects.accounts import AccessKeyStore, AccountKey, Identity
from storagegate.objects.checksums import BodyExpectation, ingest
from storagegate.objects.domain import openDomain
from storagegate.objects.operations import CreateBucket
from storagegate.storage.embedded.opening import openStore
from storagegate.storage.records import Attributes
from tests.objects.test_service_overwriting import WholeBody

ROOT = Identity("AK", "root", isRoot=True)
CALLER = PlainCaller(ROOT, "")


class ManyBucketsTests(TestCase):
    """Two buckets with an object each, of which the usage lists one."""

    timeout = 60

    def setUp(self) -> Deferred[None]:
        """Have the buckets."""
        from twisted.internet import reactor

        directory = os.path.abspath(self.mktemp())
        self.store = openStore(directory, reactor, durability="os")
        self.addCleanup(lambda: Deferred.fromCoroutine(self.store.close()))
        accounts = AccessKeyStore(self.store.accessKeys, "AK", "secret")
        self.objects = openDomain(self.store, accounts, "us-east-1", lambda: 1.8e9)
        services = SimpleNamespace(store=self.store, objects=self.objects)
        self.console: Any = SimpleNamespace(
            services=services, who=Principal(AccountKey(ROOT, "secret"), None), params={}
        )
        self.patch(buckets, "USAGE_LIMIT", 1)
        self.patch(buckets, "usageHistory", lambda services: None)
        return Deferred.fromCoroutine(self.prepare())

    async def prepare(self) -> None:
        """Store the objects."""
        for name in ("first", "second"):
            await self.objects.perform(CALLER, CreateBucket(name))
            _, owner = await self.objects.checkWrite(CALLER, name, b"k")
            body = WholeBody(b"x")
            received = await ingest(body, BodyExpectation(), self.store.blobs, 1024, name)
            await self.objects.putObject(owner, name, b"k", received, Attributes())

    async def test_figures(self) -> None:
        """The figures of the other bucket are unknown, and not 0."""
        page = await listBuckets(self.console, BucketPageQuery())
        shown = {each.name: (each.objects, each.bytes, each.uploads) for each in page.items}
        self.assertEqual(shown, {"first": (1, 1, 0), "second": (None, None, None)})
        self.console.params = {"bucket": "second"}
        self.assertIsNone((await showBucket(self.console)).objects)
