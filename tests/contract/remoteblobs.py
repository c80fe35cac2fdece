"""What blobs in a store on the network must keep besides L{tests.contract.blobs}."""

import os
from typing import Any

from storagegate.core.files import crc32c
from storagegate.storage.cluster.blobs.pieces import MARKER, findSize
from storagegate.storage.cluster.blobs.remote import RemoteBlobs, checkPieces, claimPieces
from storagegate.storage.errors import CorruptBlob, StoreBusy
from storagegate.storage.files import FailStopLatch
from storagegate.storage.identity import ForeignBlobs
from storagegate.storage.layout import BlobIds
from storagegate.storage.records import Segment
from storagegate.storage.threadpool import BoundedThreadPool
from tests.contract.blobs import KIB, MIB, BlobsContract, SlowResponse, claim, load, store

STORE = "0123456789abcdef" * 2
"""The id of the store under test."""

LARGE = 9 * MIB + 77


class RemoteCase:
    """
    L{RemoteBlobs<storagegate.storage.cluster.blobs.remote.RemoteBlobs>} on a new store.

    Mix into a trial C{TestCase} that defines L{openPieces} and L{names}.

    @ivar isCut: Whether large blobs have several pieces.
    """

    blobs: Any
    isCut = True

    def openPieces(self) -> Any:
        """Connect to the store, which is new and empty."""
        raise NotImplementedError

    async def names(self) -> set[str]:
        """List all names in the store, as a client of its own."""
        raise NotImplementedError

    async def setUp(self: Any) -> None:
        """Claim a new store."""
        from twisted.internet import reactor

        self.pool = BoundedThreadPool(reactor, threads=4)
        self.pieces = self.openPieces()
        await claimPieces(self.pieces, STORE)
        self.ids = BlobIds().new
        self.blobs = self.open(self.pieces)

    def open(self: Any, pieces: Any) -> RemoteBlobs:
        """Open the blobs in a store."""
        from twisted.internet import reactor

        return RemoteBlobs(
            pieces, self.pool, reactor, self.ids, STORE, FailStopLatch(), lateSeconds=6.0
        )

    def openAgain(self: Any) -> RemoteBlobs:
        """Open the blobs as another process has them."""
        blobs = self.open(self.pieces)
        blobs._checking.cancel()
        return blobs

    async def tearDown(self: Any) -> None:
        """Close everything."""
        await self.blobs.close()
        await self.pool.stop()


class RemoteContract(BlobsContract):
    """The promises of blobs on any store; for a L{RemoteCase}."""

    async def test_large(self: Any) -> None:
        """A blob of many pieces is read in any range, also by a process that has not written it."""
        body = os.urandom(LARGE)
        content = await store(self.blobs, body)
        [segment] = content.segments
        for blobs in (self.blobs, self.openAgain()):
            self.assertTrue(await load(blobs, content) == body)
            for offset, length in ((4 * MIB - 5, 10), (8 * MIB, MIB), (LARGE - 1, 1), (0, LARGE)):
                handle = await blobs.open(Segment(segment.blob, offset, length))
                response = SlowResponse()
                await handle.sendTo(response, offset, length)
                self.assertTrue(response.body == body[offset : offset + length], (offset, length))
                handle.close()
            handle = await blobs.openUncached(segment.blob)
            self.assertEqual(handle.size, LARGE)
            handle.close()
        await self.blobs.remove([segment.blob])
        self.assertEqual(await self.names(), {MARKER})

    async def test_edges(self: Any) -> None:
        """Blobs that end where a piece or a buffer ends have their exact size."""
        for size in (512 * KIB, MIB, 4 * MIB, 4 * MIB + 1, 8 * MIB):
            body = os.urandom(size)
            for declared in (None, size):
                sink = self.blobs.writer(0, declared)
                for start in range(0, size, 256 * KIB):
                    waiting = sink.write(body[start : start + 256 * KIB])
                    if waiting is not None:
                        await waiting
                content = await sink.finish()
                [segment] = content.segments
                self.assertEqual(sink.takeNewBlobs(), {segment.blob: crc32c(body)})
                handle = await claim(self.openAgain(), segment.blob)
                self.assertEqual(handle.size, size)
                handle.close()
                with self.assertRaises(CorruptBlob):
                    await self.blobs.open(Segment(segment.blob, size - 1, 2))
                self.assertTrue(await load(self.blobs, content) == body)
                await self.blobs.remove([segment.blob])

    async def test_abortedLeavesNothing(self: Any) -> None:
        """An upload that is aborted at any point leaves no piece."""
        for size in (10, 600 * KIB, 5 * MIB, 9 * MIB):
            sink = self.blobs.writer(0)
            for start in range(0, size, 64 * KIB):
                waiting = sink.write(b"x" * min(64 * KIB, size - start))
                if waiting is not None and start + 64 * KIB < size:
                    await waiting
            sink.abort()
            if waiting is not None:
                waiting.addErrback(lambda failure: None)
                await waiting
        await self.blobs.idle()
        self.assertEqual(await self.names(), {MARKER})

    async def test_brokenOff(self: Any) -> None:
        """What a crash has left of an upload, or of a removal, is removed by its id."""
        body = os.urandom(LARGE)
        for gone in ([], ["1"], ["2"], ["1", "2"]):
            [segment] = (await store(self.blobs, body)).segments
            for number in gone:
                await self.pieces.remove(f"{segment.blob}.{number}")
            await self.blobs.remove([segment.blob])
            self.assertEqual(await self.names(), {MARKER})

    async def test_missingPiece(self: Any) -> None:
        """A piece that is missing or short is damage, which is reported with the bytes before."""
        short: list[tuple[str, int]] = []
        self.blobs.onShort = lambda blob, size: short.append((blob, size))
        [segment] = (await store(self.blobs, os.urandom(LARGE))).segments
        place = await findSize(self.pieces, segment.blob, LARGE) if self.isCut else None
        if place is None:
            return
        self.assertEqual(place.size, LARGE)
        await self.pieces.remove(f"{segment.blob}.1")
        handle = await self.blobs.open(segment)
        with self.assertRaises(CorruptBlob):
            await handle.sendTo(SlowResponse(), 0, LARGE)
        handle.close()
        [(blob, size)] = short
        self.assertEqual(blob, segment.blob)
        self.assertLessEqual(place.pieceSize, size)
        self.assertLess(size, LARGE)

    async def test_claimed(self: Any) -> None:
        """A store has one id: another cluster is refused, and changes nothing."""
        for check in (claimPieces, checkPieces):
            await check(self.pieces, STORE)
            with self.assertRaises(ForeignBlobs):
                await check(self.pieces, "f" * 32)
        await claimPieces(self.pieces, STORE)
        self.assertEqual(await self.names(), {MARKER})

    async def test_names(self: Any) -> None:
        """The names of all pieces are listed, and that of the store's id."""
        await store(self.blobs, b"bytes")
        await store(self.blobs, os.urandom(LARGE))
        found = [name async for page in self.pieces.names() for name in page]
        self.assertEqual(sorted(found), sorted(await self.names()))
        self.assertIn(MARKER, found)

    async def test_emptied(self: Any) -> None:
        """Where the id of the store is gone no blob is called damaged."""
        content = await store(self.blobs, b"bytes")
        await self.pieces.remove(content.segments[0].blob)
        await self.pieces.remove(MARKER)
        with self.assertRaises(StoreBusy):
            await self.blobs.open(content.segments[0])
        with self.assertRaises(ForeignBlobs):
            await checkPieces(self.pieces, STORE)

    async def test_replaced(self: Any) -> None:
        """Blobs that turn out to be another store's are not written to any more."""
        content = await store(self.blobs, b"bytes")
        await self.pieces.remove(content.segments[0].blob)
        await self.pieces.remove(MARKER)
        await claimPieces(self.pieces, "f" * 32)
        with self.assertRaises(StoreBusy):
            await self.blobs.open(content.segments[0])
        self.assertIn("f" * 32, self.blobs.failure)
        self.assertEqual(len(self.flushLoggedErrors()), 0)
