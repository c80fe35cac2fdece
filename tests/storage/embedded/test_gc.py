"""Garbage goes, behind its last reader."""

import errno
import os
from collections.abc import Sequence

from twisted.internet.defer import Deferred, succeed
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from storagegate.storage.embedded.gc import BATCH, GarbageCollector
from storagegate.storage.errors import StoreBusy, StoreReadOnly


class ReclaimerTests(SynchronousTestCase):
    """L{GarbageCollector} with its two ends played by the test."""

    def setUp(self) -> None:
        self.removals: list[tuple[list[str], Deferred[None]]] = []
        self.forgotten: list[str] = []
        self.garbage: list[str] = []
        self.clock = Clock()
        self.reclaimer = GarbageCollector(self.remove, self.forget, self.read, self.clock)

    def remove(self, blobs: Sequence[str]) -> Deferred[None]:
        """Remove files when the test says."""
        deferred: Deferred[None] = Deferred()
        self.removals.append((list(blobs), deferred))
        return deferred

    def forget(self, blobs: Sequence[str]) -> Deferred[None]:
        """Remove rows."""
        self.forgotten += blobs
        gone = set(blobs)
        self.garbage = [blob for blob in self.garbage if blob not in gone]
        return succeed(None)

    def read(self, after: str, limit: int) -> Deferred[Sequence[str]]:
        """Read rows without references."""
        return succeed([blob for blob in sorted(self.garbage) if blob > after][:limit])

    def removed(self) -> list[str]:
        """Let the discard that runs succeed."""
        blobs, deferred = self.removals.pop(0)
        deferred.callback(None)
        return blobs

    def test_order(self) -> None:
        """A blob's row is forgotten only when its file is gone."""
        self.reclaimer.reclaim(["a", "b"])
        self.assertEqual(self.forgotten, [])
        self.assertEqual(self.removed(), ["a", "b"])
        self.assertEqual(self.forgotten, ["a", "b"])

    def test_unconfirmedLater(self) -> None:
        """The search for blobs that were never committed is repeated until it was possible."""
        outcomes: list[object] = [StoreBusy("busy"), None, "swept"]

        async def search() -> object:
            outcome = outcomes.pop(0)
            if isinstance(outcome, Exception):
                raise outcome
            return outcome

        reclaimer = GarbageCollector(
            self.remove, self.forget, self.read, self.clock, removeUnconfirmed=search
        )
        reclaimer.resumeCollection()
        for left in (2, 1, 0, 0):
            self.assertEqual(len(outcomes), left)
            self.clock.advance(3600)
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_problem(self) -> None:
        """An error of any kind is logged and shown, nobody waits, and the next garbage is taken."""
        self.reclaimer.reclaim(["a"])
        idle = self.reclaimer.idle()
        self.clock.advance(2)
        self.removals.pop(0)[1].errback(MemoryError("no memory"))
        self.successResultOf(idle)
        self.assertEqual(len(self.flushLoggedErrors(MemoryError)), 1)
        self.assertEqual(self.reclaimer.problem, "cannot remove garbage: no memory")
        self.reclaimer.reclaim(["b"])
        self.assertEqual(self.removed(), ["b"])
        self.assertIsNone(self.reclaimer.problem)

    def test_oneRound(self) -> None:
        """One round runs at a time; what comes meanwhile is taken together, in bounded rounds."""
        self.reclaimer.reclaim(["first"])
        for number in range(BATCH + 1):
            self.reclaimer.reclaim([str(number)])
        self.assertEqual(len(self.removals), 1)
        idle = self.reclaimer.idle()
        self.removed()
        self.assertEqual(len(self.removed()), BATCH)
        self.assertNoResult(idle)
        self.assertEqual(self.removed(), [str(BATCH)])
        self.successResultOf(idle)
        self.successResultOf(self.reclaimer.idle())

    def test_held(self) -> None:
        """What a reader holds stays until the last reader has gone."""
        first = self.reclaimer.hold(["a", "b"])
        second = self.reclaimer.hold(["b"])
        self.reclaimer.reclaim(["a", "b", "c"])
        self.assertEqual(self.removed(), ["c"])
        first.release()
        self.assertEqual(self.removed(), ["a"])
        first.release()
        self.assertEqual(self.removals, [])
        second.release()
        self.assertEqual(self.removed(), ["b"])

    def test_heldButNoGarbage(self) -> None:
        """A blob that was only read stays for good."""
        self.reclaimer.hold(["a"]).release()
        self.assertEqual(self.removals, [])
        self.assertEqual(self.reclaimer._leases, {})

    def test_catchUp(self) -> None:
        """Garbage of earlier is read page by page; what is held waits for its reader."""
        self.garbage = [f"{number:05}" for number in range(BATCH + 2)]
        hold = self.reclaimer.hold(["00001"])
        self.reclaimer.resumeCollection()
        self.assertEqual(len(self.removed()), BATCH - 1)
        self.assertEqual(len(self.removed()), 2)
        self.successResultOf(self.reclaimer.idle())
        self.assertEqual(self.garbage, ["00001"])
        hold.release()
        self.assertEqual(self.removed(), ["00001"])

    def test_backlog(self) -> None:
        """Past a hundred thousand ids the catalog's memory is used instead of ours."""
        self.garbage = [f"{number:06}" for number in range(100_500)]
        self.reclaimer.reclaim(["zzz"])
        self.reclaimer.reclaim(list(self.garbage))
        while self.removals:
            self.removed()
        self.assertEqual(self.garbage, [])

    def test_failure(self) -> None:
        """Blobs that could not be removed are not forgotten, and the others go on."""
        self.reclaimer.reclaim(["a"])
        self.reclaimer.reclaim(["b"])
        self.removals.pop(0)[1].errback(OSError(errno.EIO, os.strerror(errno.EIO)))
        self.assertEqual(self.removed(), ["b"])
        self.assertEqual(self.forgotten, ["b"])

    def test_retried(self) -> None:
        """They are removed later, together with what was not even tried, if that is possible."""
        self.garbage = ["a"]
        for error in (OSError(errno.EIO, os.strerror(errno.EIO)), MemoryError("no memory")):
            self.reclaimer.reclaim(["a"])
            self.clock.advance(2)
            self.removals.pop(0)[1].errback(error)
            self.clock.advance(59)
            self.assertEqual(self.removals, [])
            self.clock.advance(1)
        self.flushLoggedErrors(MemoryError)
        self.assertEqual(self.removed(), ["a"])
        self.assertEqual((self.garbage, self.forgotten), ([], ["a"]))
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def failRemoval(self, error: Exception) -> None:
        """Let the discard of a blob fail."""
        self.reclaimer.reclaim(["a"])
        self.clock.advance(2)
        self.removals.pop(0)[1].errback(error)

    def test_notRetried(self) -> None:
        """Nothing is tried again after writing has stopped."""
        self.failRemoval(StoreReadOnly("an fsync failed"))
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_notRetriedAtStop(self) -> None:
        """Nor is it after a stop, whether the failure came before it or comes after it."""
        self.failRemoval(StoreBusy("busy"))
        self.reclaimer.reclaim(["b"])
        self.clock.advance(2)
        stopped = self.reclaimer.stop()
        self.removals.pop(0)[1].errback(StoreBusy("busy"))
        self.successResultOf(stopped)
        self.assertEqual(self.clock.getDelayedCalls(), [])


class GraceTests(ReclaimerTests):
    """L{GarbageCollector} of a catalog whose look-ups may come back late."""

    def setUp(self) -> None:
        super().setUp()
        self.clock = Clock()
        self.reclaimer = GarbageCollector(
            self.remove, self.forget, self.read, self.clock, graceSeconds=2.0
        )

    def removed(self) -> list[str]:
        """Let the discard that runs, or that comes when the grace is over, succeed."""
        if not self.removals:
            self.clock.advance(2)
        return super().removed()

    def test_oneRound(self) -> None:
        """What loses its last reference within the grace is removed in bounded rounds after it."""
        self.reclaimer.reclaim(str(number) for number in range(BATCH + 1))
        idle = self.reclaimer.idle()
        self.assertEqual(self.reclaimer.backlog, BATCH + 1)
        self.assertEqual(len(self.removed()), BATCH)
        self.assertNoResult(idle)
        self.assertEqual(self.removed(), [str(BATCH)])
        self.successResultOf(idle)

    def test_held(self) -> None:
        """A lease within the grace keeps a blob, though its last reference has gone before."""
        self.reclaimer.reclaim(["a", "b", "c"])
        self.clock.advance(1.9)
        first = self.reclaimer.hold(["a"])
        self.reclaimer.hold(["b"]).release()
        self.assertEqual(self.removals, [])
        self.clock.advance(0.1)
        self.assertEqual(self.removed(), ["b", "c"])
        first.release()
        self.assertEqual(self.removed(), ["a"])

    def test_failure(self) -> None:
        """Blobs that could not be removed are not forgotten, and the others go on."""
        self.reclaimer.reclaim(["a"])
        self.clock.advance(1)
        self.reclaimer.reclaim(["b"])
        self.clock.advance(1)
        self.removals.pop(0)[1].errback(OSError(errno.EIO, os.strerror(errno.EIO)))
        self.assertEqual(self.removed(), ["b"])
        self.assertEqual(self.forgotten, ["b"])

    def test_catchUp(self) -> None:
        """Garbage of earlier is as old as the grace when it is read."""
        self.garbage = ["a", "b"]
        self.reclaimer.resumeCollection()
        self.assertEqual(self.removals, [])
        self.assertEqual(self.removed(), ["a", "b"])
        self.assertEqual(self.garbage, [])

    def test_backlog(self) -> None:
        """Past a hundred thousand ids the catalog is asked, once their grace is over."""
        self.garbage = [f"{number:06}" for number in range(100_500)]
        self.reclaimer.reclaim(list(self.garbage))
        self.assertEqual(self.reclaimer.backlog, 100_001)
        self.clock.advance(2)
        while self.removals:
            super().removed()
        self.assertEqual(self.garbage, [])

    def test_stop(self) -> None:
        """A store that closes does not wait for a grace: the rows stay for the next start."""
        self.reclaimer.reclaim(["a"])
        idle = self.reclaimer.idle()
        self.successResultOf(self.reclaimer.stop())
        self.successResultOf(idle)
        self.reclaimer.reclaim(["b"])
        self.assertEqual((self.removals, self.clock.getDelayedCalls()), ([], []))
