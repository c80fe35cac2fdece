"""The descriptors that stay open."""

from twisted.internet.defer import CancelledError, Deferred

from storagegate.storage.errors import CorruptBlob, StoreBusy
from storagegate.storage.records import Segment
from tests.contract.blobs import claim
from tests.support.blobs import BlobsCase


class HandleTests(BlobsCase):
    """The descriptors that stay open."""

    def claim(self, blob: str) -> object:
        """Open a blob, doing all jobs."""
        opened = Deferred.fromCoroutine(claim(self.blobs, blob))
        self.pool.goAll()
        return self.successResultOf(opened)

    def test_bounded(self) -> None:
        """Idle descriptors are at most 256: those used longest ago are closed."""
        blobs = [self.put(b"x") for _ in range(258)]
        for blob in blobs:
            self.claim(blob).close()
        self.assertEqual(len(self.files.opened), 256)
        self.assertIsInstance(self.blobs.openBlob(blobs[0]), Deferred)
        self.pool.goAll()
        self.assertNotIsInstance(self.blobs.openBlob(blobs[257]), Deferred)

    def test_readersOfOneMiss(self) -> None:
        """Readers that miss at one time open the file once; one that gives up is left out."""
        blob = self.put(b"x")
        opened = [self.blobs.openBlob(blob) for _ in range(3)]
        self.assertEqual(len(self.pool.waiting), 1)
        opened[1].cancel()
        self.failureResultOf(opened[1], CancelledError)
        self.pool.goAll()
        handles = [self.successResultOf(opened[n]) for n in (0, 2)]
        self.assertEqual(len(self.files.opened), 1)
        for handle in handles:
            handle.close()
        self.successResultOf(Deferred.fromCoroutine(self.blobs.close()))
        self.assertEqual(self.files.opened, set())

    def test_allGaveUp(self) -> None:
        """A file that nobody waits for any more is kept for the next, not lost."""
        blob = self.put(b"x")
        self.blobs.openBlob(blob).addErrback(lambda _: None).cancel()
        self.pool.goAll()
        self.assertNotIsInstance(self.blobs.openBlob(blob), Deferred)

    def test_uncachedGivesUp(self) -> None:
        """A file that a check no longer waits for is closed."""
        blob = self.put(b"x")
        opening = Deferred.fromCoroutine(self.blobs.openUncached(blob))
        opening.cancel()
        self.failureResultOf(opening, CancelledError)
        self.pool.goAll()
        self.pool.goAll()
        self.assertEqual(self.files.opened, set())

    def test_uncachedGivesUpMissing(self) -> None:
        """If the file is missing, too, nothing is logged."""
        opening = Deferred.fromCoroutine(self.blobs.openUncached("0" * 32))
        opening.cancel()
        self.failureResultOf(opening, CancelledError)
        self.pool.goAll()

    def test_discardWhileOpening(self) -> None:
        """A blob that is discarded while it is opened is closed with its reader."""
        blob = self.put(b"x")
        opened = self.blobs.openBlob(blob)
        self.blobs.remove([blob])
        self.pool.goAll()
        self.successResultOf(opened).close()
        self.pool.goAll()
        self.assertEqual(self.files.opened, set())

    def test_discardClosesInPool(self) -> None:
        """The last descriptor of a discarded blob is closed in the pool: that frees its space."""
        blob = self.put(b"x")
        reader = self.claim(blob)
        self.blobs.remove([blob])
        self.pool.goAll()
        reader.close()
        self.assertEqual(len(self.files.opened), 1)
        self.pool.go()
        self.assertEqual(self.files.opened, set())

    def test_closing(self) -> None:
        """Closing closes what is idle at once, the rest with its reader, and opens no more."""
        first, second, third = (self.put(b"x") for _ in range(3))
        reader = self.claim(first)
        self.claim(second).close()
        self.successResultOf(Deferred.fromCoroutine(self.blobs.close()))
        self.assertEqual(self.files.opened, {reader.fd})
        self.failureResultOf(self.blobs.openBlob(third), StoreBusy)
        reader.close()
        self.pool.goAll()
        self.assertEqual(self.files.opened, set())

    def test_damaged(self) -> None:
        """A blob that is known to be damaged is not opened, cached or not."""
        blob = self.put(b"x")
        self.claim(blob).close()
        self.blobs.markCorrupt([blob])
        self.failureResultOf(self.blobs.openBlob(blob), CorruptBlob)

    def test_short(self) -> None:
        """A segment that reaches past the end of its blob is damage, and nothing stays claimed."""
        blob = self.put(b"12345")
        self.claim(blob).close()
        opened = Deferred.fromCoroutine(self.blobs.open(Segment(blob, 1, 4)))
        self.successResultOf(opened).close()
        opened = Deferred.fromCoroutine(self.blobs.open(Segment(blob, 2, 4)))
        self.failureResultOf(opened, CorruptBlob)
        self.successResultOf(Deferred.fromCoroutine(self.blobs.close()))
        self.assertEqual(self.files.opened, set())
