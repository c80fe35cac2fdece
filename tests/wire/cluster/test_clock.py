"""A node of a cluster while its machine's clock is set: the catalog is that of several machines."""

from collections.abc import Mapping
from pathlib import Path

from tests.support.cluster import Cluster
from tests.support.daemon import Daemon
from tests.support.faketime import MISSING
from tests.support.selection import long
from tests.wire.daemon.test_clock import StepTests


@long("starts a cluster")
class ClusterStepTests(StepTests):
    """The same by a node on PostgreSQL, whose server has the right clock."""

    skip = MISSING or None

    def makeDaemon(self, data: Path, environment: Mapping[str, str]) -> Daemon:
        """Make a node."""
        cluster = Cluster()
        self.addCleanup(cluster.close)
        wanted = {**environment, **cluster.environment()}
        return cluster.node("--workers", str(self.workers), environment=wanted)
