"""Garbage is collected once no read of any node has it: its bytes, and then its row."""

from collections.abc import Sequence

from twisted.internet.defer import Deferred, fail
from twisted.logger import LogEvent, formatEvent, globalLogPublisher

from storagegate.cluster import collector
from storagegate.storage.cluster.connection import StatementRefused
from storagegate.storage.errors import StoreBusy, StoreError
from tests.cluster.nodecase import ModelCase


class CollectorTests(ModelCase):
    """The collector."""

    def replace(self, count: int) -> None:
        """Store an object again and again: each time a blob becomes garbage."""
        for _ in range(count + 1):
            self.do(self.cluster.put(self.node, "k"))

    def test_collects(self) -> None:
        """Some beats after the last reference the blob is gone, and its row."""
        self.replace(9)
        self.assertEqual(len(self.cluster.stored), 10)
        self.wait(6.0)
        self.assertEqual(len(self.cluster.stored), 1)
        self.assertEqual(len(self.cluster.server.blobs), 1)
        self.assertEqual(self.node.collector.removed, 9)
        self.assertEqual(self.node.collector.failed, 0)

    def test_order(self) -> None:
        """The bytes are removed, then the row, so that a crash between them repeats it."""
        self.replace(1)
        rows = dict(self.cluster.server.blobs)
        self.node.writer.isCut = True
        self.node.writer.lose(self.cluster.dice)
        self.wait(8.0)
        self.assertEqual(len(self.cluster.stored), 1)
        self.assertEqual(len(self.cluster.server.blobs), len(rows))
        self.assertIsNotNone(self.node.collector.problem)
        self.node.writer.isCut = False
        self.wait(40.0)
        self.assertEqual(len(self.cluster.server.blobs), 1)
        self.assertIsNone(self.node.collector.problem)

    def test_readers(self) -> None:
        """A blob stays for a reader of another node."""
        other = self.spawn()
        self.do(self.cluster.put(self.node, "k"))
        read = self.get(other, "k")
        self.replace(2)
        self.wait(3.5)
        self.assertIn(read.blobs[0], self.cluster.stored)
        read.release()
        self.wait(4.0)
        self.assertEqual(len(self.cluster.stored), 1)

    def test_pausedReader(self) -> None:
        """A blob stays for a reader that is stopped until its lease is over, and not longer."""
        other = self.spawn()
        self.do(self.cluster.put(self.node, "k"))
        read = self.get(other, "k")
        other.isStopped = True
        self.replace(2)
        self.wait(2.5)
        self.assertIn(read.blobs[0], self.cluster.stored)
        self.wait(6.0)
        self.assertNotIn(read.blobs[0], self.cluster.stored)
        other.resume()
        self.assertFalse(read.isOpen)

    def refuse(self, error: Exception, *stuck: str) -> list[Sequence[str]]:
        """Have the removal of some blobs fail; of all, without names."""
        tried: list[Sequence[str]] = []
        remove = self.node.blobs.remove

        def removing(blobs: Sequence[str]) -> Deferred[None]:
            tried.append(blobs)
            if not stuck or not set(stuck).isdisjoint(blobs):
                return fail(error)
            return remove(blobs)

        self.node.blobs.remove = removing  # type: ignore[method-assign]
        return tried

    def test_unforeseen(self) -> None:
        """An error of any kind ends a round, not the collection: no other node takes it over."""
        self.replace(3)
        remove = self.node.blobs.remove
        for error, isLogged in (
            (StatementRefused("58030", "no block"), False),
            (KeyError("k"), True),
        ):
            self.refuse(error)
            self.wait(32.0)
            self.assertIn(str(error), str(self.node.collector.problem))
            self.assertEqual(bool(self.flushLoggedErrors()), isLogged)
        self.node.blobs.remove = remove  # type: ignore[method-assign]
        self.wait(40.0)
        self.assertEqual(len(self.cluster.stored), 1)
        self.assertIsNone(self.node.collector.problem)

    def test_stuckBlob(self) -> None:
        """A blob that cannot be removed keeps no other; it is logged once, and tried again."""
        self.replace(9)
        stuck = sorted(self.cluster.stored)[4]
        lines: list[str] = []

        def observe(event: LogEvent) -> None:
            lines.append(formatEvent(event))

        globalLogPublisher.addObserver(observe)
        self.addCleanup(globalLogPublisher.removeObserver, observe)
        self.refuse(OSError("it is stuck"), stuck)
        self.wait(8.0)
        self.assertEqual(self.cluster.stored & {stuck}, {stuck})
        self.assertEqual(len(self.cluster.stored), 2)
        self.assertEqual(self.node.collector.failed, 1)
        self.assertIn("it is stuck", self.node.collector.problem or "")
        self.assertEqual(sum("cannot remove garbage" in each for each in lines), 1)

    def test_away(self) -> None:
        """While the blobs cannot be reached it is tried more and more rarely, and whole batches."""
        self.replace(5)
        tried = self.refuse(StoreBusy("away"))
        self.wait(60.0)
        self.assertLess(len(tried), 10)
        self.assertEqual(len(tried[-1]), 5)

    def test_manyStuck(self) -> None:
        """If most removals fail the round is given up: the storage fails, not a blob."""
        self.patch(collector, "_MOST_FAILURES", 3)
        self.replace(12)
        tried = self.refuse(StoreError("no"))
        self.wait(4.0)
        self.assertLess(max(map(tried.count, tried)), 4)
        self.assertEqual(self.node.collector.failed, 3)

    def test_notConfirmed(self) -> None:
        """A node that may not be the one that collects removes nothing."""

        async def refuse() -> bool:
            return False

        self.node.collector._confirm = refuse
        self.replace(3)
        self.wait(8.0)
        self.assertEqual(len(self.cluster.stored), 4)

    def test_backlog(self) -> None:
        """What waits is counted now and then."""
        self.node.reads.hold(["another"])
        self.replace(6)
        self.wait(3.5)
        self.node.collector._rest = 1
        self.wait(1.5)
        self.assertEqual(self.node.collector.backlog, 6)
