"""A job runs on one node, and on another when that is gone."""

from storagegate.cluster.jobs import Job
from storagegate.storage.errors import StoreBusy
from tests.cluster.nodecase import ModelCase
from tests.support.clustermodel import LEASE_SECONDS, Node
from tests.wire.cluster.test_node import CountedTask


class JobTests(ModelCase):
    """One job on two nodes."""

    def setUp(self) -> None:
        """Start the second node, and the job on both."""
        super().setUp()
        self.other = self.spawn()
        self.tasks = [CountedTask(), CountedTask()]
        self.jobs = [self.job(self.node), self.job(self.other)]
        self.jobs[0].start(self.tasks[0])
        self.wait(LEASE_SECONDS / 2)
        self.jobs[1].start(self.tasks[1])
        self.wait(LEASE_SECONDS)

    def job(self, node: Node) -> Job:
        """Make the job of a node."""
        made = Job("job", node.leases, node.cleanup, node.clock, LEASE_SECONDS)
        made._random = lambda least, most: most
        return made

    def running(self) -> list[bool]:
        """Return on which nodes it runs."""
        return [task.isRunning for task in self.tasks]

    def test_one(self) -> None:
        """It runs on the first that has claimed it, and stays there."""
        for _ in range(10):
            self.assertEqual(self.running(), [True, False])
            self.wait(1.0)
        self.assertEqual((self.tasks[0].started, self.tasks[1].started), (1, 0))

    def test_rareClaims(self) -> None:
        """A node that has not got it asks more rarely."""
        names = self.sent()
        self.wait(4 * LEASE_SECONDS)
        jobs = sum(bool(job.number) for node in self.cluster.nodes for job in node.jobs) + 1
        claims = names.count("claimjob") - sum(1 for name in names if name in ("settled", "forget"))
        self.assertLess(claims, 13 * jobs + 5 * (6 - jobs) + 8)

    def test_stop(self) -> None:
        """When its node stops it goes on elsewhere within the time of a claim."""
        self.run_(self.jobs[0].stop())
        self.assertEqual(self.running(), [False, False])
        self.wait(LEASE_SECONDS + 0.2)
        self.assertEqual(self.running(), [False, True])

    def test_crash(self) -> None:
        """When its node dies it goes on elsewhere after the lease."""
        self.cluster.kill(self.node)
        self.wait(2 * LEASE_SECONDS + 1.0)
        self.assertTrue(self.tasks[1].isRunning)

    def test_cut(self) -> None:
        """A node without the catalog stops it in the time of the claim, before another begins."""
        self.cut(self.node)
        for _ in range(80):
            self.assertNotEqual(self.running(), [True, True])
            self.wait(0.1)
            self.node.lists.expire()
        self.assertEqual(self.running(), [False, True])
        self.mend(self.node)
        self.wait(3 * LEASE_SECONDS)
        self.assertEqual(self.running(), [False, True])

    def test_short(self) -> None:
        """A claim that is not answered once costs nothing."""
        for _ in range(4):
            self.node.lists.lose(self.cluster.dice)
            self.wait(1.1)
        self.assertEqual((self.tasks[0].started, self.running()), (1, [True, False]))

    def test_otherLease(self) -> None:
        """Under another lease the task begins anew: what it has read may be of another server."""
        self.node.leases.giveUp()
        self.assertFalse(self.run_(self.jobs[0].confirm()))
        self.wait(0.3)
        self.assertFalse(self.run_(self.jobs[0].confirm()))
        self.wait(3 * LEASE_SECONDS)
        self.assertEqual(self.running().count(True), 1)
        self.assertEqual(self.tasks[0].stopped, 1)

    def test_confirm(self) -> None:
        """It is confirmed by a commit, and only where it runs."""
        names = self.sent()
        self.assertTrue(self.run_(self.jobs[0].confirm()))
        self.assertIn("claimjob", names)
        self.assertFalse(self.run_(self.jobs[1].confirm()))
        self.cluster.server.jobs["job"] = (self.other.leases.number, self.cluster.now + 60.0)
        self.assertFalse(self.run_(self.jobs[0].confirm()))

    def test_unconfirmed(self) -> None:
        """Without a standby that confirms the commit, it is not known."""
        self.cluster.promote()

        async def confirm() -> bool:
            return await self.jobs[0].confirm()

        from twisted.internet.defer import Deferred

        done = Deferred.fromCoroutine(confirm())
        self.node.lists.cancel()
        self.cluster.drain()
        self.failureResultOf(done, StoreBusy)
