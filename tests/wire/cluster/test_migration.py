"""The move of a store from a data directory to a cluster and back, with real servers."""

import itertools
import os
import random
from collections.abc import Callable
from pathlib import Path

from psycopg import Error
from twisted.internet.defer import Deferred
from twisted.internet.threads import deferToThread
from twisted.trial.unittest import TestCase

from storagegate.cluster.options import ClusterOptions
from storagegate.cluster.tables import TABLES, MigrationError
from storagegate.migration.command import abandon, move
from storagegate.migration.engine import Outcome
from storagegate.storage.cluster.schema import migrate
from storagegate.storage.embedded.connections import Durability, prepare
from storagegate.storage.embedded.fsck import check
from storagegate.storage.errors import StoreBusy
from storagegate.storage.sqlite import CatalogUnusable
from tests.support.cluster import Cluster
from tests.support.selection import long
from tests.support.storechanges import StoreChanges, dumpStore
from tests.wire.s3.fixture import eventually

CHANGES = 150
"""Of a store while it is moved: with pages so small each change is several steps."""


ALWAYS = {
    "follow",
    "clear",
    "claim",
    "claimBlobs",
    *(f"copy {table.name}" for table in TABLES),
    "intend blobs",
    "copy bytes",
    "name blobs",
    "drop notes",
    "seal",
    "settle",
    "finish",
    "retire",
    "open",
    "clear source",
    "clear target",
}
"""Steps of each move of a store that changes."""


class Interrupted(BaseException):
    """The end of a run, as a crash would be: nothing handles it."""


class MigrationCase(TestCase):
    """A cluster that is empty, and stores beside it."""

    timeout = 300

    def setUp(self) -> None:
        self.cluster = Cluster(isInitialised=False)
        self.addCleanup(self.cluster.close)
        self.options = ClusterOptions(**self.cluster.options)
        self.lines: list[str] = []

    def directory(self, name: str) -> str:
        """Return the path of a data directory."""
        return str(self.cluster.directory / name)

    def move(
        self, directory: str, isTarget: bool, onStep: Callable[[str], object] = lambda name: None
    ) -> Deferred[Outcome]:
        """Move a store, in small pages."""
        from twisted.internet import reactor

        report = self.lines.append
        return deferToThread(
            move,
            self.options,
            directory,
            isTarget,
            reactor,
            report,
            None,
            onStep,
            mostRows=3,
        )

    def serves(self, directory: str) -> bool:
        """Return whether a daemon may start on a data directory, and serves what was moved."""
        path = os.path.join(directory, "catalog.sqlite")
        if not os.path.exists(path):
            return False
        try:
            prepare(path, Durability.OS)
        except CatalogUnusable as error:
            self.assertNotIn("\n", str(error))
            return False
        return len(dumpStore(directory)["buckets"]) > 0

    def clusterServes(self) -> bool:
        """Return whether nodes may start, and serve what was moved."""
        try:
            migrate(self.cluster.conninfos[0])
        except CatalogUnusable as error:
            self.assertNotIn("\n", str(error))
            return False
        if self.cluster.rows("SELECT count(*) FROM buckets") == [(0,)]:
            return False
        # The connection of a run that has ended may be there for a moment.
        return eventually(self.givesLease)

    def givesLease(self) -> bool:
        """Return whether a node can have a lease."""
        try:
            self.cluster.rows(
                "INSERT INTO leases (node, expires, high, readsfrom, alive)"
                " VALUES ('test', now(), 0, 0, false)"
            )
        except Error:
            return False
        return True

    def assertSound(self, directory: str) -> None:
        """Check a store by C{storagegate fsck --verify}."""
        lines: list[str] = []
        self.assertEqual((check(directory, False, True, lines.append), lines), (0, []))

    def clusterFsck(self) -> None:
        """Check the cluster by C{storagegate cluster fsck --verify}."""
        code, text = self.cluster.command("cluster", "fsck", "--verify")
        self.assertEqual(code, 0, text)


@long("starts a cluster")
class RoundTripTests(MigrationCase):
    """There and back."""

    async def test_changing(self) -> None:
        """
        A store that changes at every step is in the cluster as it was at its end, and back again in
        a directory: all rows, all bytes.
        """
        changes = StoreChanges(self.directory("old"), 1)
        changes.change(300)
        steps: list[str] = []

        def onStep(name: str) -> None:
            steps.append(name)
            if name == "seal":
                changes.close()
            elif "seal" not in steps and len(steps) < CHANGES:
                changes.change(2)

        outcome = await self.move(self.directory("old"), True, onStep)
        self.assertGreater(outcome.rounds, 0)
        # Leases of another cluster that had this place of blobs have lower numbers.
        [(lease,)] = self.cluster.rows("SELECT nextval('leases_id_seq')")
        self.assertGreater(lease, 10**12)
        self.assertTrue(self.clusterServes())
        self.assertFalse(self.serves(self.directory("old")))
        self.cluster.initialise()
        self.clusterFsck()
        self.cluster.rows("SELECT nextval('writes')")
        await self.move(self.directory("new"), False)
        self.assertFalse(self.clusterServes())
        self.assertTrue(self.serves(self.directory("new")))
        self.assertSound(self.directory("new"))
        before, after = dumpStore(self.directory("old")), dumpStore(self.directory("new"))
        [sequence] = [value for name, value in before["meta"] if name == "sequence"]
        before["meta"].remove(("sequence", sequence))
        after["meta"].remove(("sequence", sequence + 1))
        self.assertEqual(before, after)

    async def test_overwritten(self) -> None:
        """An object that gets another number, and goes before that was copied, is not there."""
        changes = StoreChanges(self.directory("old"), 1)
        changes.driver.put("plain", b"key", b"bytes")
        changes.close()
        await self.move(self.directory("old"), True)

        def onStep(name: str) -> None:
            if name == "copy versions":
                self.cluster.rows("UPDATE objects SET sequence = nextval('writes')")
                self.cluster.rows("DELETE FROM objects")
                self.cluster.rows(
                    "INSERT INTO usagedeltas SELECT id, -1, -5, 0, 0 FROM buckets"
                    " WHERE name = 'plain'"
                )

        await self.move(self.directory("new"), False, onStep)
        self.assertEqual(dumpStore(self.directory("new"))["objects"], [])
        self.assertSound(self.directory("new"))

    async def test_empty(self) -> None:
        """A store without anything."""
        StoreChanges(self.directory("old"), 1).close()
        prepare(os.path.join(self.directory("old"), "catalog.sqlite"), Durability.OS)
        await self.move(self.directory("old"), True)
        self.assertTrue(self.clusterServes())


@long("starts a cluster")
class RefusalTests(MigrationCase):
    """What cannot be moved, or not there."""

    async def assertRefuses(self, directory: str, isTarget: bool, text: str) -> None:
        """Check that a move is refused, with one line."""
        error = await self.assertFailure(self.move(directory, isTarget), MigrationError)
        self.assertIn(text, str(error))
        self.assertNotIn("\n", str(error))

    async def test_occupied(self) -> None:
        """A target with something in it; a source that is none; a store that has moved before."""
        first, second = self.directory("first"), self.directory("second")
        for name in (first, second):
            changes = StoreChanges(name, 1)
            changes.change(5)
            changes.close()
        await self.assertRefuses(self.directory("missing"), True, "contains no store")
        await self.move(first, True)
        await self.assertRefuses(second, True, "is not empty, or in use")
        self.assertTrue(self.serves(second))
        await self.assertRefuses(second, False, "is not empty, or in use")
        await self.move(first, True)
        self.assertIn("switched the store", self.lines[-1])

    async def test_serverAway(self) -> None:
        """A server that ends the connection ends the run, with one line; the next goes on."""
        old = self.directory("old")
        changes = StoreChanges(old, 1)
        changes.change(50)
        changes.close()

        def terminate(name: str) -> None:
            if name == "copy versions":
                self.cluster.rows(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                    " WHERE datname = current_database() AND pid <> pg_backend_pid()"
                )

        error = await self.assertFailure(self.move(old, True, terminate), StoreBusy)
        self.assertIn("the cluster in ", str(error))
        self.assertNotIn("\n", str(error))
        await self.move(old, True)
        self.assertTrue(self.clusterServes())

    async def test_abandoned(self) -> None:
        """A move that is given up leaves a store as it was; the half cluster is not taken again."""
        old = self.directory("old")
        changes = StoreChanges(old, 1)
        changes.change(50)
        changes.close()
        before = dumpStore(old)

        def stop(name: str) -> None:
            if name == "copy versions":
                raise Interrupted

        await self.assertFailure(self.move(old, True, stop), Interrupted)
        self.assertTrue(self.serves(old))
        self.assertFalse(self.clusterServes())
        abandon(self.options, old, True)
        self.assertEqual(dumpStore(old), before)
        self.assertRaises(MigrationError, abandon, self.options, old, True)
        await self.assertRefuses(old, True, "part of another migration")

    async def test_damaged(self) -> None:
        """A blob that is not what was written ends the move, and names itself."""
        old = self.directory("old")
        changes = StoreChanges(old, 1)
        changes.driver.put("plain", b"whole", b"a" * 5000)
        changes.driver.put("plain", b"wrong", b"b" * 5000)
        record = changes.driver.find("plain", b"wrong")
        assert record is not None
        [segment] = record.content.segments
        changes.close()
        path = Path(old, "blobs", segment.blob[:2], segment.blob[2:4], segment.blob)
        path.write_bytes(b"c" * 5000)
        await self.assertRefuses(old, True, f"blob {segment.blob}")
        self.assertTrue(self.serves(old))
        # Once that is known it moves as it is.
        check(old, True, True, lambda line: None)
        await self.move(old, True)
        rows = self.cluster.rows("SELECT id, damaged FROM blobs WHERE damaged")
        self.assertEqual(rows, [(segment.blob, True)])


@long("starts a cluster")
class CrashTests(MigrationCase):
    """A run that ends anywhere."""

    async def moveInRuns(
        self,
        directory: str,
        isTarget: bool,
        change: Callable[[str], object],
        sides: tuple[Callable[[], bool], Callable[[], bool]],
    ) -> set[str]:
        """
        Move a store in runs, each of which ends at the first step at which none before did; return
        all those.

        @param change: Called before each step.
        @param sides: Return whether the source, and whether the target, may serve.
        """
        ended: set[str] = set()

        def onStep(name: str) -> None:
            change(name)
            if name not in ended:
                ended.add(name)
                raise Interrupted

        while True:
            try:
                await self.move(directory, isTarget, onStep)
            except Interrupted:
                old, new = (side() for side in sides)
                self.assertEqual(new, "clear source" in ended)
                self.assertEqual(old, "open" not in ended)
            else:
                self.assertEqual([side() for side in sides], [False, True])
                return ended

    async def test_anywhere(self) -> None:
        """
        Runs that end at each step, while the store changes: the next goes on. Never do both serve;
        the old one does until the switch. In the end all is in the cluster, and then back.
        """
        seed = random.SystemRandom().randrange(1 << 32)
        old, new = self.directory("old"), self.directory("new")
        changes = StoreChanges(old, seed)
        changes.change(150)
        closed: list[None] = []
        count = itertools.count()

        def change(name: str) -> None:
            if name == "seal" and not closed:
                closed.append(None)
                changes.close()
            elif not closed and next(count) < CHANGES:
                changes.change()

        ended = await self.moveInRuns(
            old, True, change, (lambda: self.serves(old), self.clusterServes)
        )
        self.assertEqual(ALWAYS - ended, set(), f"seed {seed}")
        self.cluster.initialise()
        self.clusterFsck()
        ended = await self.moveInRuns(
            new, False, lambda name: None, (self.clusterServes, lambda: self.serves(new))
        )
        self.assertEqual(ALWAYS - {"drop notes"} - ended, set())
        self.assertSound(new)
        self.assertEqual(dumpStore(old), dumpStore(new), f"seed {seed}")
