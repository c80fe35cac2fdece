"""Nodes that are killed in mid-write."""

from tests.support.selection import long, rounds
from tests.wire.cluster.case import ClusterCase

ROUNDS = rounds(2, 2, soak=200)


@long("starts a cluster")
class KillTests(ClusterCase):
    """C{kill -9} of a node under load, again and again."""

    def test_killedUnderLoad(self) -> None:
        """What was acknowledged by a node that is killed is there for all others."""
        cluster = self.makeCluster()
        nodes = self.startNodes(cluster)
        load = self.startLoad(cluster)
        for number in range(ROUNDS):
            self.letPass(self.random.uniform(0.05, 0.9))
            node = nodes[number % 2]
            node.kill()
            self.waitForWrites(load)
            node.start()
            load.setAddresses([each.address() for each in nodes])
        self.waitForWrites(load)
        report = self.finish(cluster, load)
        self.figures(f"{ROUNDS} kills: {report}")
