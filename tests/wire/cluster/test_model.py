"""Random operations on two nodes that take turns and on the model: they must agree."""

import os

from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test
from twisted.trial.unittest import SynchronousTestCase

from tests.storage.test_lifecycle_model import liveOn
from tests.support.postgresql import sharedServer
from tests.support.selection import long, rounds, soak
from tests.support.stores import fastDirectory
from tests.support.storeworkers import StoreWorkers
from tests.wire.cluster.agreement import disagreements, sharedFiles, waitUntilSettled
from tests.wire.storage.test_workers_model import PairDriver, PairMachine

LEASE_SECONDS = 30.0


class NodesDriver(PairDriver):
    """The operations on two nodes of a cluster with a database and a directory of its own."""

    def __init__(self, workers: StoreWorkers) -> None:
        super().__init__(workers)
        self.conninfo = sharedServer().store()
        self.blobs = os.path.join(workers.directory, "blobs")
        self._isNew = True

    def open(self) -> None:
        """Open the store in both."""
        os.makedirs(self.blobs, exist_ok=True)
        options = {
            "catalog": [self.conninfo],
            "blobs": f"files:{self.blobs}",
            "leaseSeconds": LEASE_SECONDS,
            "lateSeconds": 0.0,
            "isNew": self._isNew,
        }
        self._isNew = False
        self._workers.openNodes(options)

    def close(self) -> None:
        """Close it in both, once nothing is left to be done."""
        for process in self._workers.processes:
            process.do("idle")
            process.do("close")


class NodesMachine(PairMachine):
    """Two nodes beside the model."""

    def makeDriver(self) -> NodesDriver:
        """Open a new store in the processes that are there."""
        self.workers.directory = self.directory
        driver = NodesDriver(self.workers)
        driver.open()
        return driver

    def teardown(self) -> None:
        """After all, the catalog and the blobs agree, and there is nothing else."""
        try:
            self.restart()
            waitUntilSettled(self.driver.conninfo)
            self.driver.close()
            read = sharedFiles(self.driver.blobs)
            found = disagreements(self.driver.conninfo, read)
            assert not found, found
        finally:
            for cleanup in self.cleanups:
                cleanup()


@long("starts a cluster")
class NodesModelTests(SynchronousTestCase):
    """Two nodes beside the model of one store."""

    def setUp(self) -> None:
        """Start them, without a store."""
        workers = StoreWorkers(self, fastDirectory(self), inherits=False)
        workers.closeStores()
        self.machine = type("Machine", (NodesMachine,), {"workers": workers})

    @soak("takes minutes")
    def test_lifecycle(self) -> None:
        """Rounds of the scanner, of whichever of them, remove what one would."""
        removed, _ = liveOn(self.machine, seeds=rounds(1, 1, soak=10), steps=50)
        self.assertGreater(removed, 0)

    def test_agree(self) -> None:
        """Two nodes do what one would, whichever of them is asked."""
        run_state_machine_as_test(
            self.machine,
            settings=settings(
                max_examples=rounds(2, 2, soak=100),
                stateful_step_count=25,
                deadline=None,
                suppress_health_check=list(HealthCheck),
            ),
        )
