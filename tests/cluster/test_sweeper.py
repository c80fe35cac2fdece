"""What nodes leave is swept, what they have committed stays, and a crash at any step repeats it."""

from collections.abc import Sequence
from typing import Any

from twisted.internet.defer import Deferred, fail

from storagegate.storage.blobids import blobId
from storagegate.storage.errors import StoreError
from tests.cluster.nodecase import ModelCase
from tests.support.clustermodel import LATE_SECONDS, LEASE_SECONDS, Cluster, Node


class SweeperTests(ModelCase):
    """The sweeper."""

    def leave(self, count: int = 12) -> Node:
        """Have a node die, with an object and uploads; return it."""
        node = self.spawn()
        self.do(self.cluster.put(node, "kept"))
        for _ in range(count):
            # Numbers are reserved while they are taken.
            self.cluster.drain()
            self.cluster.stored.add(node.leases.newBlobId())
        self.cluster.drain()
        self.cluster.kill(node)
        return node

    def kept(self) -> set[str]:
        """Return the blobs of objects."""
        return {blob for blob, _ in self.cluster.server.objects.values() if blob is not None}

    def test_sweeps(self) -> None:
        """Uploads of a dead node go when no write of it can come any more, and objects stay."""
        self.leave()
        self.assertEqual(len(self.cluster.stored), 13)
        self.wait(LEASE_SECONDS + LATE_SECONDS - 0.5)
        self.assertEqual(len(self.cluster.stored), 13)
        self.wait(4.0)
        self.assertEqual(self.cluster.stored, self.kept())
        self.assertEqual([*self.cluster.server.leases], [self.node.leases.number])
        self.assertEqual(self.node.sweeper.problem, None)

    def test_crash(self) -> None:
        """A sweeper that dies after any of its steps is followed by another, with the same end."""
        for steps in range(12):
            self.cluster = Cluster(1)
            sweeping = self.spawn()
            self.leave()
            done = 0
            settle = sweeping.cleanup.settleLease
            remove = sweeping.blobs.remove

            def count(made: Any, sweeping: Node = sweeping, steps: int = steps) -> Any:
                def counted(*args: Any) -> Any:
                    nonlocal done
                    done += 1
                    if done == steps:
                        self.cluster.kill(sweeping)
                    return made(*args)

                return counted

            sweeping.blobs.remove = count(remove)  # type: ignore[method-assign]
            sweeping.cleanup.settleLease = count(settle)  # type: ignore[method-assign]
            self.node = self.spawn()
            self.wait(LEASE_SECONDS + LATE_SECONDS + 3.0)
            if sweeping.isAlive:
                self.cluster.kill(sweeping)
            self.wait(2 * (LEASE_SECONDS + LATE_SECONDS) + 6.0)
            self.assertEqual(self.cluster.stored, self.kept(), steps)
            self.assertEqual([*self.cluster.server.leases], [self.node.leases.number])

    def test_stuckBlob(self) -> None:
        """A blob that cannot be removed is tried again; the uploads of other nodes go meanwhile."""
        first, second = self.leave(), self.leave()
        stuck = blobId(1 + self.cluster.nodes.index(first), 3)
        self.assertIn(stuck, self.cluster.stored)
        remove = self.node.blobs.remove
        tried: list[str] = []

        def refuse(blobs: Sequence[str]) -> Deferred[None]:
            if stuck in blobs:
                tried.append(stuck)
                return fail(StoreError("it is stuck"))
            return remove(blobs)

        self.node.blobs.remove = refuse  # type: ignore[method-assign]
        self.wait(LEASE_SECONDS + LATE_SECONDS + 5.0)
        self.assertGreater(len(tried), 1)
        self.assertEqual(self.node.sweeper.problem, "it is stuck")
        lease = 1 + self.cluster.nodes.index(second)
        self.assertNotIn(lease, self.cluster.server.leases)
        self.node.blobs.remove = remove  # type: ignore[method-assign]
        self.wait(3.0)
        self.assertEqual(self.cluster.stored, self.kept())
        self.assertIsNone(self.node.sweeper.problem)

    def test_unforeseen(self) -> None:
        """An error of any kind ends a round, and not the sweeping: no other node takes it over."""
        self.leave()
        remove = self.node.blobs.remove
        self.node.blobs.remove = lambda blobs: fail(KeyError())  # type: ignore[method-assign]
        self.wait(LEASE_SECONDS + LATE_SECONDS + 5.0)
        self.assertTrue(self.flushLoggedErrors(KeyError))
        self.node.blobs.remove = remove  # type: ignore[method-assign]
        self.wait(4.0)
        self.assertEqual(self.cluster.stored, self.kept())
        self.assertIsNone(self.node.sweeper.problem)

    def test_notConfirmed(self) -> None:
        """A node that may not be the one that sweeps removes nothing."""
        self.leave()

        async def refuse() -> bool:
            return False

        self.node.sweeper._confirm = refuse
        self.wait(LEASE_SECONDS + LATE_SECONDS + 5.0)
        self.assertEqual(len(self.cluster.stored), 13)

    def test_settled(self) -> None:
        """What is settled is not looked up again: the row says how far."""
        node = self.spawn()
        for key in "abc":
            self.do(self.cluster.put(node, key))
        self.wait(1.1)
        self.assertEqual(self.row(node).low, 3)
        number = node.leases.number
        self.cluster.kill(node)
        looked: list[str] = []
        known = self.node.catalog.knownBlobs

        async def look(ids: Sequence[str]) -> frozenset[str]:
            looked.extend(ids)
            found: frozenset[str] = await known(ids)
            return found

        self.node.catalog.knownBlobs = look
        self.wait(LEASE_SECONDS + LATE_SECONDS + 3.0)
        self.assertEqual(looked[0], blobId(number, 3))
        self.assertNotIn(number, self.cluster.server.leases)

    def test_waitsForCommits(self) -> None:
        """A lease ends after the commits under it, and what they store is no upload."""
        node = self.spawn()
        number = node.leases.number
        self.cluster.begin(self.cluster.put(node, "k"))
        while not self.cluster.server.inFlight:
            for event in self.cluster.events()[:1]:
                event()
        node.writer.canExecute = lambda: False  # type: ignore[method-assign]
        node.isStopped = True
        self.wait(LEASE_SECONDS + 2.0)
        self.assertTrue(self.cluster.server.leases[number].alive)
        del node.writer.canExecute
        self.wait(LEASE_SECONDS + LATE_SECONDS + 2.0)
        self.assertNotIn(number, self.cluster.server.leases)
        self.assertEqual(self.cluster.stored, self.kept())
        self.assertEqual(len(self.kept()), 1)
