"""The reads of a node keep what they read, by their stamps and then by name."""

from storagegate.storage.cluster.interfaces import ICleanup
from storagegate.storage.errors import StoreBusy
from tests.cluster.nodecase import ModelCase
from tests.support.clustermodel import LONG_SECONDS


class OpenReadsTests(ModelCase):
    """The reads in progress."""

    def test_oldest(self) -> None:
        """The oldest stamp is that of the first read that is not released."""
        reads = self.node.reads
        self.assertIsNone(reads.oldest())
        held = []
        for stamp in (3, 3, 5, 8):
            self.node.leases.earlier = stamp
            held.append(reads.hold(["a"]))
        self.assertEqual(len(reads), 4)
        self.assertEqual(reads.oldest(), 3)
        held[1].release()
        self.assertEqual(reads.oldest(), 3)
        held[0].release()
        held[0].release()
        self.assertEqual(reads.oldest(), 5)
        held[2].release()
        held[3].release()
        self.assertIsNone(reads.oldest())

    def test_lateHold(self) -> None:
        """
        A read keeps what was looked up before the last renewal: to decide on access, a request may
        have to wait after its look-up.
        """
        self.do(self.cluster.put(self.node, "k"))
        (blob,) = self.cluster.stored
        self.wait(1.1)
        self.do(self.cluster.put(self.node, "k"))
        self.wait(1.1)
        read = self.node.reads.hold([blob])
        self.wait(5.0)
        self.assertIn(blob, self.cluster.stored)
        read.release()
        self.wait(3.0)
        self.assertNotIn(blob, self.cluster.stored)

    def test_end(self) -> None:
        """All reads end with the lease."""
        first, second = (self.node.reads.hold(["a"]) for _ in range(2))
        self.node.leases.giveUp()
        self.assertEqual((first.isOpen, second.isOpen, len(self.node.reads)), (False, False, 0))
        second.release()
        self.wait(1.0)
        self.assertIsNone(self.node.reads.oldest())

    def test_long(self) -> None:
        """A long read names its blobs: its stamp counts no more, and they stay until it ends."""
        self.do(self.cluster.put(self.node, "k"))
        read = self.get(self.node, "k")
        (blob,) = read.blobs
        self.do(self.cluster.put(self.node, "k"))
        self.wait(LONG_SECONDS + 1.1)
        server = self.cluster.server
        self.assertEqual(server.holds, {(blob, self.node.leases.number)})
        self.assertIsNone(self.node.reads.oldest())
        self.wait(3.0)
        self.assertEqual(server.freed, [])
        self.assertIn(blob, self.cluster.stored)
        read.release()
        self.wait(2.0)
        self.assertEqual(server.holds, set())
        self.assertNotIn(blob, self.cluster.stored)

    def test_shared(self) -> None:
        """A blob of several long reads stays until the last of them ends."""
        first = self.node.reads.hold(["a", "b"])
        second = self.node.reads.hold(["b", "c"])
        self.wait(LONG_SECONDS + 1.1)
        number, server = self.node.leases.number, self.cluster.server
        self.assertEqual(server.holds, {("a", number), ("b", number), ("c", number)})
        first.release()
        self.cluster.drain()
        self.assertEqual(server.holds, {("b", number), ("c", number)})
        third = self.node.reads.hold(["c"])
        self.wait(LONG_SECONDS + 1.1)
        second.release()
        self.cluster.drain()
        self.assertEqual(server.holds, {("c", number)})
        third.release()
        self.cluster.drain()
        self.assertEqual(server.holds, set())

    def test_unanswered(self) -> None:
        """A read counts by its stamp until the catalog has answered that its blobs are held."""
        stamp = self.node.leases.earlier
        read = self.node.reads.hold(["a"])
        self.wait(LONG_SECONDS - 0.5)
        self.node.lists.isCut = True
        self.node.lists.lose(self.cluster.dice)
        self.wait(2.0)
        self.assertEqual(self.node.reads.oldest(), stamp)
        self.node.lists.isCut = False
        self.wait(2.0)
        self.assertEqual(self.node.reads.oldest(), None)
        self.assertEqual(len(self.cluster.server.holds), 1)
        read.release()
        self.cluster.drain()
        self.assertEqual(self.cluster.server.holds, set())

    def test_releasedEarly(self) -> None:
        """What is released while the catalog is about to hold it is not held afterwards."""
        read = self.node.reads.hold(["a"])
        names = self.sent()
        while "hold" not in names:
            self.cluster.advance(0.1)
            for each in (self.node.lookups, self.node.writer):
                while each.canExecute():
                    each.execute()
                while each.answered:
                    each.deliver()
            if self.node.lists.canExecute():
                if self.node.lists.queue[0].steps[0][0] != b"hold":
                    self.node.lists.execute()
                    self.node.lists.deliver()
                else:
                    self.node.lists.execute()
        read.release()
        self.cluster.drain()
        self.wait(1.0)
        self.assertEqual(self.cluster.server.holds, set())
        self.assertEqual(len(self.node.reads), 0)

    def test_unknownRelease(self) -> None:
        """A blob whose release has an unknown outcome is held anew only after another release."""
        refusals: list[str] = []
        cleanup = self.node.cleanup
        release, hold = cleanup.release, cleanup.hold
        events: list[str] = []

        class Failing:
            """Cleaning whose releases fail."""

            async def release(self, lease: int, ids: list[str]) -> None:
                events.append("release")
                if refusals:
                    raise StoreBusy(refusals.pop())
                await release(lease, ids)

            async def hold(self, lease: int, ids: list[str]) -> None:
                events.append("hold")
                await hold(lease, ids)

        failing: ICleanup = Failing()  # type: ignore[assignment]
        self.node.reads._cleanup = failing
        read = self.node.reads.hold(["a"])
        self.wait(LONG_SECONDS + 1.1)
        refusals += ["lost", "lost"]
        read.release()
        again = self.node.reads.hold(["a"])
        again.since -= LONG_SECONDS
        self.wait(3.0)
        self.assertEqual(events, ["hold", "release", "release", "release", "hold"])
        self.assertEqual(len(self.cluster.server.holds), 1)

    def test_otherLease(self) -> None:
        """The holds of a lease end with it; those of the next one are its own."""
        self.node.reads.hold(["a"])
        self.wait(LONG_SECONDS + 1.1)
        number = self.node.leases.number
        self.assertEqual(self.cluster.server.holds, {("a", number)})
        self.node.leases.giveUp()
        self.wait(0.5)
        read = self.node.reads.hold(["b"])
        self.wait(LONG_SECONDS + 1.1)
        self.assertIn(("b", self.node.leases.number), self.cluster.server.holds)
        self.wait(15.0)
        self.assertEqual(self.cluster.server.holds, {("b", self.node.leases.number)})
        read.release()
