"""Blobs as files: the contract, and what the disk sees."""

import os
from typing import Any

from twisted.internet.defer import Deferred
from twisted.trial.unittest import TestCase

from storagegate.core.files import crc32c
from storagegate.storage.layout import BlobIds, isBlobId
from storagegate.storage.threadpool import BoundedThreadPool
from tests.contract.blobs import KIB, MIB, BlobsContract, store
from tests.contract.rangedblobs import RangedBlobs
from tests.support.blobs import BlobsCase, filesBelow, makeBlobs
from tests.support.pools import ImmediatePool


class FileContract(BlobsContract):
    """What is true of local files besides."""

    async def test_cached(self: Any) -> None:
        """A blob that was read lately opens at once."""
        content = await store(self.blobs, b"hot")
        (await self.blobs.open(content.segments[0])).close()
        handle = self.successResultOf(Deferred.fromCoroutine(self.blobs.open(content.segments[0])))
        self.assertEqual(await handle.read(0, 10), b"hot")
        # It is in the page cache.
        self.assertEqual(handle.readWarm(1, 2), b"ot")
        handle.close()

    async def test_discardWhileRead(self: Any) -> None:
        """A blob that is discarded stays for those who are reading it."""
        content = await store(self.blobs, b"old bytes")
        reader = await self.blobs.open(content.segments[0])
        await self.blobs.remove([content.segments[0].blob])
        self.assertEqual(await reader.read(0, 20), b"old bytes")
        reader.close()


class ThreadedContractTests(FileContract, TestCase):
    """The contract, with real threads and real fsyncs."""

    def setUp(self) -> None:
        from twisted.internet import reactor

        self.pool = BoundedThreadPool(reactor, threads=4)
        self.blobs = makeBlobs(self.mktemp(), self.pool)

    async def tearDown(self) -> None:
        await self.blobs.close()
        await self.pool.stop()


class ImmediateContractTests(FileContract, TestCase):
    """The contract, where every job ends before its caller goes on, and nothing is synced."""

    def setUp(self) -> None:
        self.blobs = makeBlobs(self.mktemp(), ImmediatePool(), durable=False)


class RangedContractTests(BlobsContract, TestCase):
    """The contract of blobs that are not local: ranged reads, which come late."""

    def setUp(self) -> None:
        from twisted.internet import reactor

        directory = self.mktemp()
        os.makedirs(directory)
        self.pool = BoundedThreadPool(reactor, threads=4)
        self.blobs = RangedBlobs(directory, self.pool, reactor, BlobIds().new)

    async def tearDown(self) -> None:
        await self.blobs.close()
        await self.pool.stop()


class LayoutTests(BlobsCase):
    """Where the files go, and in which order."""

    def test_order(self) -> None:
        """
        Before a finish fires, the bytes and their first name are synced, linked under their id, and
        the directory is synced, with every new directory above it; the first name stays until the
        settling.
        """
        sink = self.blobs.writer(0, 5)
        sink.write(b"bytes")
        finished = sink.finish()
        self.assertNoResult(finished)
        self.pool.go()
        blob = self.successResultOf(finished).segments[0].blob
        self.assertTrue(isBlobId(blob))
        opened = [args[0] for name, args in self.files.calls if name == "openDirectory"]
        first = os.path.join(self.directory, "blobs", blob[:2])
        second = os.path.join(first, blob[2:4])
        staging = os.path.join(self.directory, "staging")
        self.assertEqual(opened, [staging, os.path.dirname(first), first, second])
        names = [n for n in self.called() if n not in ("openDirectory", "close")]
        self.assertEqual(
            names,
            [
                "create",
                "write",
                "sync",
                "syncDirectory",
                "makeDirectory",
                "syncDirectory",
                "makeDirectory",
                "syncDirectory",
                "link",
                "syncDirectory",
            ],
        )
        path = os.path.join("blobs", blob[:2], blob[2:4], blob)
        self.assertEqual(filesBelow(self.directory), [path, os.path.join("staging", blob)])
        self.blobs.confirm([blob])
        self.pool.goAll()
        self.assertEqual(filesBelow(self.directory), [path])
        self.assertEqual(os.stat(os.path.join(self.directory, path)).st_mode & 0o777, 0o600)
        self.assertEqual(os.stat(second).st_mode & 0o777, 0o700)

    def test_sharedDirectory(self) -> None:
        """256 blobs in a row share a directory, which is made once; the next goes elsewhere."""
        blobs = [self.put(b"x") for _ in range(257)]
        self.assertEqual({blob[:4] for blob in blobs[:256]}, {blobs[0][:4]})
        self.assertNotEqual(blobs[256][:4], blobs[0][:4])
        self.assertLessEqual(self.called().count("makeDirectory"), 4)

    def test_oneJob(self) -> None:
        """A body declared to fit in both buffers costs one job, whatever its chunks."""
        for size in (1, 100 * KIB, MIB):
            sink = self.blobs.writer(0, size)
            for start in range(0, size, 64 * KIB):
                self.assertIsNone(sink.write(b"x" * min(64 * KIB, size - start)))
            finished = sink.finish()
            self.pool.go()
            self.successResultOf(finished)
            self.assertEqual(self.pool.waiting, [])

    def test_inlineTouchesNothing(self) -> None:
        """An inline body costs no job and no file operation."""
        sink = self.blobs.writer(64 * KIB, 64 * KIB)
        sink.write(b"x" * 64 * KIB)
        self.successResultOf(sink.finish())
        self.assertEqual((self.pool.waiting, self.called(), sink.takeNewBlobs()), ([], [], {}))

    def test_withoutDurability(self) -> None:
        """With the durability of the operating system nothing is synced."""
        blobs = makeBlobs(self.mktemp(), ImmediatePool(), self.files, durable=False)
        content = self.successResultOf(store(blobs, b"x" * 2 * MIB))
        self.successResultOf(blobs.remove([content.segments[0].blob]))
        self.assertEqual({"sync", "syncDirectory"} & set(self.called()), set())

    def test_checksum(self) -> None:
        """After the finish the sink tells the CRC of the blob, whatever the chunks."""
        body = os.urandom(MIB + 9)
        sink = self.blobs.writer(0)
        for start in range(0, len(body), 100_000):
            sink.write(body[start : start + 100_000])
            self.assertEqual(sink.takeNewBlobs(), {})
            self.pool.goAll()
        finished = sink.finish()
        self.pool.goAll()
        blob = self.successResultOf(finished).segments[0].blob
        self.assertEqual(sink.takeNewBlobs(), {blob: crc32c(body)})

    def test_discardIsDurable(self) -> None:
        """A discard syncs each directory once, so that no crash brings a forgotten blob back."""
        blobs = [self.put(b"x") for _ in range(3)]
        self.called()
        discarded = self.blobs.remove(blobs)
        self.pool.go()
        self.successResultOf(discarded)
        self.assertEqual(self.called().count("syncDirectory"), 1)
        self.assertEqual(filesBelow(self.directory), [])
