"""Readers beside a writer that overwrites what they read, all the time."""

import hashlib
import os
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from typing import Any

from twisted.internet.defer import Deferred, gatherResults
from twisted.trial.unittest import TestCase

from storagegate.objects.access.context import PlainCaller
from storagegate.objects.accounts import AccessKeyStore, Identity
from storagegate.objects.checksums import BodyExpectation, ingest, newHasher
from storagegate.objects.contents import OpenContent, digest
from storagegate.objects.domain import openDomain
from storagegate.objects.operations import CreateBucket
from storagegate.objects.ownership import Ownership
from storagegate.services.objectstreams import readContent
from storagegate.storage.backends import DEFAULT_BLOBS, DEFAULT_CATALOG
from storagegate.storage.embedded.opening import openStore
from storagegate.storage.records import Attributes, Content, ObjectRecord
from tests.contract.delayedcatalog import DELAYED
from tests.contract.rangedblobs import RANGED
from tests.support.selection import long

ROOT = Identity("AK", "root", isRoot=True)
READER = PlainCaller(ROOT, "GetObject")

SIZE = 100_000
"""More than the catalog keeps inline: every body is a blob."""

READERS = 4
READS = 40
"""So many reads of each reader, beside as many writes, make a race."""


class WholeBody:
    """A body that has arrived."""

    def __init__(self, body: bytes) -> None:
        self._body: bytes | None = body

    def readAvailable(self) -> bytes | None:
        """Give it."""
        return None

    def __aiter__(self) -> "WholeBody":
        return self

    async def __anext__(self) -> bytes:
        body, self._body = self._body, None
        if body is None:
            raise StopAsyncIteration
        return body


class OverwritingTests(TestCase):
    """One key, one writer, several readers; the store is the embedded one."""

    catalog = DEFAULT_CATALOG
    blobs = DEFAULT_BLOBS
    verifyReads = False
    timeout = 120

    def setUp(self) -> Deferred[None]:
        """Have a bucket."""
        from twisted.internet import reactor

        self.store = openStore(
            os.path.abspath(self.mktemp()),
            reactor,
            durability="os",
            verifyReads=self.verifyReads,
            catalog=self.catalog,
            blobs=self.blobs,
        )
        self.addCleanup(lambda: Deferred.fromCoroutine(self.store.close()))
        accounts = AccessKeyStore(self.store.accessKeys, "AK", "secret")
        self.objects = openDomain(self.store, accounts, "us-east-1", lambda: 1)
        self.isOver = False
        self.writes = 0
        return Deferred.fromCoroutine(self._begin())

    async def _begin(self) -> None:
        await self.objects.perform(READER, CreateBucket("box"))
        await self._put()

    async def _put(self) -> None:
        self.writes += 1
        body = b"%08d" % self.writes * (SIZE // 8)
        received = await ingest(WholeBody(body), BodyExpectation(), self.store.blobs, 1024, "box")
        await self.objects.putObject(Ownership("root"), "box", b"k", received, Attributes())

    async def _overwrite(self) -> None:
        while not self.isOver:
            await self._put()

    async def _read(self, take: Callable[[Content], Awaitable[str]]) -> None:
        reads = 0
        while reads < READS or self.writes < READS:
            reads += 1
            record: ObjectRecord
            _, record = await self.objects.object(READER, "box", b"k")
            self.assertEqual(await take(record.content), record.etag)

    async def _race(self, take: Callable[[Content], Awaitable[str]]) -> None:
        writing = Deferred.fromCoroutine(self._overwrite())
        try:
            readers = [Deferred.fromCoroutine(self._read(take)) for _ in range(READERS)]
            await gatherResults(readers, consumeErrors=True)
        finally:
            self.isOver = True
            await writing

    async def _gather(self, content: Content) -> str:
        """Read a content as the Storage service does."""
        hold = self.store.hold(content)
        found: Any = hashlib.md5(usedforsecurity=False)
        try:
            chunks = readContent(self.store, OpenContent(content), 0, content.size, 10_000)
            async with aclosing(chunks):
                async for chunk in chunks:
                    found.update(chunk)
        finally:
            hold.release()
        return str(found.hexdigest())

    async def _digest(self, content: Content) -> str:
        """Read a content as a copy does that needs a checksum."""
        md5 = newHasher("MD5")
        await digest(self.store, OpenContent(content), 0, content.size, [md5])
        return md5.digest().hex()

    async def test_chunks(self) -> None:
        """Each read has the whole body of the record that it found."""
        await self._race(self._gather)

    async def test_digest(self) -> None:
        """Each digest is that of the record that was found."""
        await self._race(self._digest)

    async def test_removed(self) -> None:
        """What was overwritten is removed in the end, and the last body stays."""
        await self._race(self._gather)
        await self.store.idle()
        rows = await self.store.catalog.blobRows("", 100)
        self.assertEqual([row.refs for row in rows], [1])


class VerifiedOverwritingTests(OverwritingTests):
    """The same where reads are compared with what was written."""

    verifyReads = True


@long("takes seconds")
class DelayedOverwritingTests(OverwritingTests):
    """The same where look-ups come back late: a lease on a blob comes after its last reference."""

    catalog = DELAYED


@long("takes seconds")
class DelayedVerifiedOverwritingTests(DelayedOverwritingTests):
    """Both."""

    verifyReads = True


class RangedOverwritingTests(OverwritingTests):
    """The same where blobs are read by ranges, late: they are leased until the last is read."""

    blobs = RANGED


@long("takes seconds")
class RemoteOverwritingTests(RangedOverwritingTests):
    """The same where both the look-ups and the bytes come late."""

    catalog = DELAYED
