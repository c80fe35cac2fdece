"""Writes that outlast their bucket, whose name another account has taken."""

import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from twisted.internet.defer import Deferred
from twisted.trial.unittest import TestCase

from storagegate.objects.access.context import PlainCaller
from storagegate.objects.accounts import AccessKeyStore, Identity
from storagegate.objects.checksums import BodyExpectation, ingest
from storagegate.objects.domain import openDomain
from storagegate.objects.encryption.requests import SSE_C, CustomerKey, RequestedEncryption
from storagegate.objects.errors import BucketNotFound
from storagegate.objects.operations import CopyObject, CreateBucket, DeleteBucket, DeleteObject
from storagegate.storage.backends import DEFAULT_BLOBS, DEFAULT_CATALOG
from storagegate.storage.embedded.opening import openStore
from storagegate.storage.layout import isBlobId
from storagegate.storage.records import Attributes, ObjectRecord

ANN, BOB = (PlainCaller(Identity(name.upper(), name), "") for name in ("ann", "bob"))

SIZES = (100, 100_000)
"""Inline, and in a blob."""


class ArrivingBody:
    """A body whose end arrives after something else has happened."""

    def __init__(self, body: bytes, happens: Callable[[], Awaitable[object]]) -> None:
        self._body: bytes | None = body
        self._happens = happens

    def readAvailable(self) -> bytes | None:
        """Give it, if it is there."""
        return None

    def __aiter__(self) -> "ArrivingBody":
        return self

    async def __anext__(self) -> bytes:
        body, self._body = self._body, None
        if body is None:
            raise StopAsyncIteration
        await self._happens()
        return body


class RecreatedTests(TestCase):
    """Ann's writes, and a bucket that becomes Bob's."""

    catalog = DEFAULT_CATALOG
    blobs = DEFAULT_BLOBS
    timeout = 60

    def setUp(self) -> Deferred[None]:
        """Have Ann's buckets."""
        self.directory = os.path.abspath(self.mktemp())
        self.seconds = 1.8e9
        self.open()
        self.addCleanup(lambda: Deferred.fromCoroutine(self.store.close()))
        return Deferred.fromCoroutine(self._begin())

    def open(self) -> None:
        """Open the store."""
        from twisted.internet import reactor

        self.store = openStore(
            self.directory, reactor, durability="os", catalog=self.catalog, blobs=self.blobs
        )
        accounts = AccessKeyStore(self.store.accessKeys, "AK", "secret")
        self.objects = openDomain(self.store, accounts, "us-east-1", lambda: self.seconds)

    async def _begin(self) -> None:
        for name in ("box", "source"):
            await self.objects.perform(ANN, CreateBucket(name))

    async def put(
        self,
        caller: PlainCaller,
        body: bytes,
        happens: Callable[[], Awaitable[object]],
        bucket: str = "box",
    ) -> ObjectRecord:
        """Store an object, while something happens."""
        _, owner = await self.objects.checkWrite(caller, bucket, b"k")
        arriving = ArrivingBody(body, happens)
        limit, blobs = self.store.inlineLimit, self.store.blobs
        received = await ingest(arriving, BodyExpectation(), blobs, limit, bucket)
        return await self.objects.putObject(owner, bucket, b"k", received, Attributes())

    async def nothing(self) -> None:
        """Let nothing happen."""

    async def taken(self) -> None:
        """Let the bucket become Bob's, with an object of Bob."""
        await self.objects.perform(ANN, DeleteBucket("box"))
        self.seconds += 1
        await self.objects.perform(BOB, CreateBucket("box"))
        await self.put(BOB, b"of Bob", self.nothing)

    async def assertBobs(self) -> None:
        """Check that Bob's object is his, and that no blob is left; then give the bucket to Ann."""
        _, record = await self.objects.object(BOB, "box", b"k")
        self.assertEqual((record.account, record.content.inline), ("bob", b"of Bob"))
        await self.objects.perform(BOB, DeleteObject("box", b"k", None))
        await self.objects.perform(BOB, DeleteBucket("box"))
        self.seconds += 1
        await self.objects.perform(ANN, CreateBucket("box"))

    async def assertNothingLeft(self, count: int = 0) -> None:
        """Check the number of blobs."""
        await self.store.close()
        left = [each for each in Path(self.directory, "blobs").rglob("*") if isBlobId(each.name)]
        self.assertEqual(len(left), count)
        self.open()

    async def test_write(self) -> None:
        """A write to a bucket that another account has since is refused, and leaves nothing."""
        for size in SIZES:
            with self.assertRaises(BucketNotFound):
                await self.put(ANN, bytes(size), self.taken)
            await self.assertBobs()
        await self.assertNothingLeft()

    async def test_copy(self) -> None:
        """So is a copy, whether it shares the bytes of its source or writes them again."""
        keyForWrite = self.objects.keyForWrite

        async def slowly(*arguments: Any) -> Any:
            found = await keyForWrite(*arguments)
            self.patch(self.objects, "keyForWrite", keyForWrite)
            await self.taken()
            return found

        customer = RequestedEncryption(SSE_C, customerKey=CustomerKey(bytes(32), ""))
        for size in SIZES:
            record = await self.put(ANN, bytes(size), self.nothing, "source")
            for encryption in (None, customer):
                self.patch(self.objects, "keyForWrite", slowly)
                wanted = CopyObject("box", b"k", record, encryption=encryption)
                with self.assertRaises(BucketNotFound):
                    await self.objects.perform(ANN, wanted)
                await self.assertBobs()
        await self.assertNothingLeft(1)
