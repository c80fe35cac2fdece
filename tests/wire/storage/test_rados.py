"""Blobs in RADOS: the contract, and faults, on a cluster of one node."""

from collections.abc import Mapping
from typing import Any

from twisted.internet.threads import deferToThread
from twisted.trial.unittest import TestCase

from storagegate.storage.cluster.blobs.rados import PoolAddress, RadosPieces
from storagegate.storage.errors import StoreBusy, StoreFull
from tests.contract.blobs import load, store
from tests.contract.remoteblobs import RemoteCase, RemoteContract
from tests.contract.remotefaults import FaultContract
from tests.contract.remoteprocesses import ProcessContract
from tests.support.ceph import cephEnvironment, listObjects, runningCluster
from tests.support.selection import long

POOL = "blobs"


class RadosCase(RemoteCase):
    """A namespace of its own in a pool of the cluster."""

    _numbers = iter(range(1 << 30))

    async def setUp(self: Any) -> None:
        """Start the cluster with the first test."""
        self.cluster = await deferToThread(_clusterWithPool)
        self.address = PoolAddress(
            POOL,
            configuration=str(self.cluster.configuration),
            namespace=f"test{next(RadosCase._numbers)}",
        )
        await super().setUp()

    def openPieces(self: Any) -> RadosPieces:
        """Connect."""
        from twisted.internet import reactor

        return RadosPieces(self.address, reactor, self.pool)

    def url(self: Any) -> tuple[str, Mapping[str, str]]:
        """Name the namespace."""
        address = self.address
        url = f"rados:{POOL}?conf={address.configuration}&namespace={address.namespace}"
        return url, cephEnvironment()

    async def names(self: Any) -> set[str]:
        """List the objects of the namespace."""
        return await deferToThread(listObjects, self.pieces._connection.io)


def _clusterWithPool() -> Any:
    cluster = runningCluster()
    if POOL not in {pool["poolname"] for pool in cluster.command(prefix="osd lspools")}:
        cluster.makePool(POOL)
    return cluster


@long("starts Ceph")
class ContractTests(RadosCase, RemoteContract, ProcessContract, TestCase):
    """The contract of blobs."""


@long("starts Ceph")
class FaultTests(RadosCase, FaultContract, TestCase):
    """What happens while the OSD stands still, is dead, or full."""

    async def goAway(self: Any) -> None:
        """Stop the OSD where it is: its sockets stay open."""
        self.cluster.pauseStorage()
        self.addCleanup(self.cluster.resumeStorage)

    async def comeBack(self: Any) -> None:
        """Let it go on."""
        self.cluster.resumeStorage()

    async def fill(self: Any) -> None:
        """Mark the cluster as full."""
        await deferToThread(self.cluster.setFull, True)
        self.addCleanup(deferToThread, self.cluster.setFull, False)
        # The OSD and the client of the blobs know it later than the monitor.
        taken: list[Any] = []

        async def refuses() -> bool:
            try:
                taken.append(await store(self.blobs, b"early"))
            except StoreFull:
                return True
            except StoreBusy:
                pass
            return False

        await self.eventually(refuses)
        await self.blobs.remove([segment.blob for each in taken for segment in each.segments])

    async def free(self: Any) -> None:
        """Mark it as having space."""
        await deferToThread(self.cluster.setFull, False)

    async def test_killed(self: Any) -> None:
        """An OSD that is killed and started again has what was acknowledged."""
        content = await store(self.blobs, b"acknowledged")
        await deferToThread(self.cluster.killStorage)
        await self.timed(store(self.blobs, b"lost"), StoreBusy)
        await deferToThread(self.cluster.startStorage)
        after = await self.stores(b"after")
        self.assertEqual(await load(self.blobs, content), b"acknowledged")
        await self.onlyThese([content, after])
