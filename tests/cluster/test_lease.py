"""A lease is renewed in time, and between two renewals that succeeded its node serves."""

from twisted.internet.defer import Deferred

from storagegate.storage.errors import StoreBusy
from tests.cluster.nodecase import ModelCase
from tests.support.clustermodel import LEASE_SECONDS


class LeaseKeeperTests(ModelCase):
    """The keeper."""

    def test_renews(self) -> None:
        """It is renewed every third of its time, and stays the same."""
        number = self.node.leases.number
        names = self.sent()
        self.wait(3 * LEASE_SECONDS)
        self.assertEqual(self.node.leases.number, number)
        self.assertIn(names.count("renewlease"), (8, 9, 10))
        self.assertGreater(self.row(self.node).expires, self.cluster.now + LEASE_SECONDS / 2)
        self.assertIsNone(self.node.keeper.problem)

    def test_gate(self) -> None:
        """Without a renewal the node serves until the time of the lease is over, and no longer."""
        number = self.node.leases.number
        read = self.node.reads.hold(["a"])
        self.cut(self.node)
        self.wait(LEASE_SECONDS - 0.2)
        self.assertEqual((self.node.leases.number, read.isOpen), (number, True))
        self.wait(0.3)
        self.assertEqual((self.node.leases.number, read.isOpen), (0, False))
        self.assertRaises(StoreBusy, self.node.reads.hold, ["a"])
        self.assertIn("has expired", self.node.keeper.problem or "")
        self.mend(self.node)
        self.wait(2.1)
        self.assertGreater(self.node.leases.number, number)
        self.assertIsNone(self.node.keeper.problem)

    def test_triesAgain(self) -> None:
        """A renewal that failed is tried again soon: a short loss of the server costs nothing."""
        number = self.node.leases.number
        for _ in range(5):
            self.node.lookups.lose(self.cluster.dice)
            self.wait(1.0)
            self.assertEqual(self.node.leases.number, number)

    def test_givenUp(self) -> None:
        """A lease that was given up is replaced at once, but not by all nodes at the same time."""
        number = self.node.leases.number
        self.node.leases.giveUp()
        self.assertEqual(self.node.leases.number, 0)
        self.assertIn("given up", self.node.keeper.problem or "")
        self.cluster.drain()
        self.assertEqual(self.node.leases.number, 0)
        self.wait(0.3)
        self.assertGreater(self.node.leases.number, number)
        self.assertEqual(self.node.keeper.taken, 2)

    def test_givenUpWhileTaken(self) -> None:
        """
        A lease that was asked for before another server was promoted is not used: it may be that of
        the old one.
        """
        self.node.leases.giveUp()
        self.cluster.advance(0.3)
        while not self.node.lookups.answered:
            self.node.lookups.execute()
        taken = max(self.cluster.server.leases)
        self.node.leases.giveUp()
        self.cluster.drain()
        self.assertEqual(self.node.leases.number, 0)
        self.wait(1.0)
        self.assertGreater(self.node.leases.number, taken)

    def test_lateAnswer(self) -> None:
        """A renewal whose answer comes after the end does not bring the lease back."""
        number = self.node.leases.number
        read = self.node.reads.hold(["a"])
        names = self.sent()
        while "renewlease" not in names:
            self.cluster.advance(0.1)
            while self.node.lookups.canExecute():
                self.node.lookups.execute()
        self.cluster.advance(LEASE_SECONDS)
        self.assertEqual((read.isOpen, self.node.leases.number), (False, 0))
        self.cluster.drain()
        self.assertEqual(self.node.leases.number, 0)
        self.wait(0.5)
        self.assertGreater(self.node.leases.number, number)

    def test_ended(self) -> None:
        """A lease that the server has ended is used no more, whatever the node's clock says."""
        number = self.node.leases.number
        self.row(self.node).alive = False
        self.wait(1.1)
        self.assertNotEqual(self.node.leases.number, number)

    def test_stamps(self) -> None:
        """
        A renewal passes the stamp of the oldest read, or else that of the beat before: what this
        node may find meanwhile is kept.
        """
        self.do(self.cluster.put(self.node, "a"))
        stamp = self.node.leases.stamp
        self.wait(1.1)
        self.assertEqual(self.row(self.node).readsFrom, stamp)
        self.assertGreater(self.node.leases.stamp, stamp)
        self.wait(1.0)
        newer = self.node.leases.stamp
        self.assertEqual(self.row(self.node).readsFrom, newer)
        read = self.node.reads.hold(["x"])
        self.do(self.cluster.put(self.node, "a"))
        self.wait(3.0)
        self.assertGreater(self.node.leases.stamp, newer)
        self.assertEqual(self.row(self.node).readsFrom, newer)
        read.release()
        self.wait(1.1)
        self.assertEqual(self.row(self.node).readsFrom, self.node.leases.stamp)

    def test_check(self) -> None:
        """While commits have no standby the lease is not renewed, and the reason is known."""

        async def refuse() -> None:
            raise StoreBusy("no standby")

        self.node.keeper._check = refuse
        self.wait(LEASE_SECONDS + 0.1)
        self.assertEqual(self.node.keeper.problem, "this node holds no lease: no standby")

    def test_unexpected(self) -> None:
        """An unexpected error is logged, and the lease goes on."""
        number = self.node.leases.number
        failures = [ValueError("a bug")]

        async def check() -> None:
            if failures:
                raise failures.pop()

        self.node.keeper._check = check
        self.wait(LEASE_SECONDS)
        self.assertEqual(len(self.flushLoggedErrors(ValueError)), 1)
        self.assertEqual(self.node.leases.number, number)

    def test_stop(self) -> None:
        """A node that stops ends its lease after its commits; nothing is left of it."""
        self.do(self.cluster.put(self.node, "a"))
        number = self.node.leases.number
        done = Deferred.fromCoroutine(self.node.keeper.stop())
        self.cluster.drain()
        self.successResultOf(done)
        self.assertNotIn(number, self.cluster.server.leases)
        self.assertEqual(self.node.leases.number, 0)

    def test_stopUnsettled(self) -> None:
        """The lease of a node that leaves an upload stays for the sweeper."""
        self.node.leases.newBlobId()
        number = self.node.leases.number
        done = Deferred.fromCoroutine(self.node.keeper.stop())
        self.cluster.drain()
        self.successResultOf(done)
        self.assertFalse(self.cluster.server.leases[number].alive)

    def test_stopAlone(self) -> None:
        """A node stops without the catalog, too: the time of its lease will be over."""
        self.cut(self.node)
        done = Deferred.fromCoroutine(self.node.keeper.stop())
        self.node.lists.expire()
        self.node.lookups.expire()
        self.successResultOf(done)
        self.assertEqual(self.node.leases.number, 0)
