"""The leases of nodes on one catalog in PostgreSQL, and what is collected and swept after them."""

import contextlib
from typing import Any

import psycopg
from twisted.internet.defer import Deferred, DeferredList

from storagegate.storage.blobids import blobId, blobIds, readBlobId
from storagegate.storage.cluster.catalog import PostgreSQLCatalog
from storagegate.storage.cluster.databaselocks import LEASE_LOCKS
from storagegate.storage.cluster.leases import BLOCK
from storagegate.storage.cluster.writer import Writer
from storagegate.storage.errors import (
    CommitUnknown,
    PreconditionFailed,
    StoreBusy,
    StoreReadOnly,
)
from storagegate.storage.mutations import (
    AbortUpload,
    AddBucket,
    CompleteUpload,
    CreateUpload,
    ForgetBlobs,
    PutObject,
    PutPart,
    PutSettings,
    PutTags,
    RemoveAccessKey,
    RemoveBucket,
    RemoveObjects,
    SetVersioning,
)
from storagegate.storage.records import (
    VERSIONING_ENABLED,
)
from tests.contract.catalogcase import (
    ALWAYS,
    IF_ABSENT,
    blobRecord,
    bucketNamed,
    inlineRecord,
    newBlobsOf,
    partOf,
    uploadOf,
)
from tests.support.selection import long
from tests.wire.storage.nodescase import NodesCase, pause, under


@long("starts PostgreSQL")
class LeaseTests(NodesCase):
    """A lease fences its node."""

    async def endLease(self, node: PostgreSQLCatalog) -> int:
        """End the lease of a node, of which it learns nothing."""
        number = node.lease
        self.execute("UPDATE leases SET expires = now() - interval '1 s' WHERE id = %s", number)
        await self.nodes[1].cleanup.endLapsed()
        return number

    async def test_everyMutationIsFenced(self) -> None:
        """Under a lease that is over nothing is stored, whatever it is."""
        node = self.nodes[0]
        await node.commit(PutObject(blobRecord(b"k", "x"), ALWAYS, newBlobsOf("x")))
        await node.commit(CreateUpload(uploadOf(b"k", "u")))
        await node.commit(PutPart("b", b"k", "u", partOf(1, "p"), newBlobsOf("p")))
        before = self.everything()
        number = await self.endLease(node)
        record = inlineRecord(b"k", b"new")
        for refused in (
            node.commit(PutObject(record, ALWAYS)),
            node.commit(PutObject(blobRecord(b"l", "y"), ALWAYS, newBlobsOf("y"))),
            node.commit(PutObject(blobRecord(b"l", "x"), ALWAYS)),
            node.commit(RemoveObjects("b", [(b"k", None, ALWAYS), (b"l", None, ALWAYS)])),
            node.commit(PutTags("b", b"k", None, "a=b")),
            node.commit(CreateUpload(uploadOf(b"k", "v"))),
            node.commit(PutPart("b", b"k", "u", partOf(2, "q"), newBlobsOf("q"))),
            node.commit(CompleteUpload("u", record, [(1, "p1")], ALWAYS)),
            node.commit(AbortUpload("b", b"k", "u")),
            node.commit(AddBucket(bucketNamed("c"))),
            node.commit(SetVersioning("b", VERSIONING_ENABLED)),
            node.commit(PutSettings("b", {"cors": b"x"})),
            node.commit(RemoveBucket("b")),
            node.commit(RemoveAccessKey("x")),
        ):
            error = await self.assertFails(refused, StoreBusy)
            self.assertNotIsInstance(error, CommitUnknown)
        self.assertEqual(self.everything(), before)
        with self.assertRaises(StoreReadOnly):
            await node.leases.renew(60.0, 0)
        self.assertEqual(node.lease, 0)
        with self.assertRaises(StoreReadOnly):
            node.newBlobId()
        await node.leases.take("again", 60.0)
        self.assertGreater(node.lease, number)
        # A request that came under the old lease is not stored under the new one.
        await self.assertFails(under(number, node.commit, PutObject(record, ALWAYS)), StoreBusy)
        self.assertEqual(self.everything(), before)
        await node.commit(PutObject(record, ALWAYS))

    async def test_blobsOfAnotherLease(self) -> None:
        """Blobs that were made under a lease which is over are named by nothing, at any time."""
        node = self.nodes[0]
        await node.commit(CreateUpload(uploadOf(b"k", "u")))
        old, other = node.newBlobId(), node.newBlobId()
        await self.endLease(node)
        await node.leases.take("again", 60.0)
        await self.assertFails(
            node.commit(PutObject(blobRecord(b"k", old), ALWAYS, {old: 7})), StoreBusy
        )
        part = node.commit(PutPart("b", b"k", "u", partOf(1, other), {other: 7}))
        await self.assertFails(part, StoreBusy)
        self.assertEqual(await node.knownBlobs([old, other]), frozenset())
        made = node.newBlobId()
        await node.commit(PutObject(blobRecord(b"k", made), ALWAYS, {made: 7}))

    async def test_fenceIsNeeded(self) -> None:
        """Without the fence a node whose lease is over overwrites: the tests above would see it."""
        self.patch(Writer, "isFenced", False)
        node = self.nodes[0]
        await self.endLease(node)
        await node.commit(PutObject(inlineRecord(b"k", b"new"), ALWAYS))
        self.assertIsNotNone((await self.nodes[1].object("b", b"k"))[1])

    async def test_leasesInOneBatch(self) -> None:
        """Of what waits together under several leases only what is over is refused."""
        node = self.nodes[0]
        old = await self.endLease(node)
        await node.leases.take("again", 60.0)
        puts = [
            under(old if n % 2 else 0, node.commit, PutObject(inlineRecord(b"%d" % n), ALWAYS))
            for n in range(10)
        ]
        results = await DeferredList(puts, consumeErrors=True)
        self.assertEqual([success for success, _ in results], [True, False] * 5)

    async def test_endWaitsForCommits(self) -> None:
        """The end of a lease waits for a commit under it, and those after it find it over."""

        node, other = self.nodes
        number = node.lease
        self.execute("UPDATE leases SET expires = now() - interval '1 s' WHERE id = %s", number)
        with psycopg.connect(self.conninfo) as committing:
            committing.execute("SELECT pg_advisory_xact_lock_shared(%s)", (LEASE_LOCKS + number,))
            ending = Deferred.fromCoroutine(other.cleanup.endLapsed())
            await pause(0.3)
            self.assertFalse(ending.called)
            committing.commit()
            ended = await ending
        self.assertEqual([each.number for each in ended], [number])
        await self.assertFails(node.commit(PutObject(inlineRecord(b"k"), ALWAYS)), StoreBusy)

    async def test_frozenInBatch(self) -> None:
        """
        A node that stops while it sends a batch keeps the locks of its keys and of its lease only
        until its lease is over.
        """
        node, other = self.nodes
        await pause(0.3)
        frozen = node.writer._idle[-1]
        # libpq sends what fills its buffer; the rest and the end of the batch stay there.
        self.patch(frozen, "_endTransaction", lambda: None)
        sent = [
            node.commit(PutObject(inlineRecord(key, bytes(16_000)), ALWAYS)) for key in (b"k", b"l")
        ]
        await pause(0.2)
        frozen._timer.cancel()
        frozen._timer = None
        number = node.lease
        self.execute("UPDATE leases SET expires = now() - interval '1 s' WHERE id = %s", number)
        await self.assertFails(other.commit(PutObject(inlineRecord(b"k"), ALWAYS)), StoreBusy)
        ended: list[Any] = []
        for _ in range(3):
            with contextlib.suppress(StoreBusy):
                ended = await other.cleanup.endLapsed()
        self.assertEqual([each.number for each in ended], [number])
        await other.commit(PutObject(inlineRecord(b"k"), ALWAYS))
        for each in sent:
            await self.assertFails(each, CommitUnknown)

    async def test_lockIsNeeded(self) -> None:
        """
        A lease that is ended without its lock is over while a commit under it is under way, which
        then happens: that with the lock waits for it.
        """

        node, other = self.nodes
        await node.commit(PutObject(inlineRecord(b"k", b"old"), ALWAYS))
        number = node.lease
        for isLocked in (False, True):
            with psycopg.connect(self.conninfo) as held:
                held.execute("SELECT * FROM objects FOR UPDATE")
                writing = node.commit(PutObject(inlineRecord(b"k", b"new"), ALWAYS))
                await self.waiting(1)
                if isLocked:
                    ending = Deferred.fromCoroutine(other.cleanup.endLease(number, True))
                    await pause(0.3)
                    self.assertFalse(ending.called)
                    held.rollback()
                    await writing
                    await ending
                else:
                    self.execute("UPDATE leases SET alive = false WHERE id = %s", number)
                    held.rollback()
                    await writing
                    self.execute("UPDATE leases SET alive = true WHERE id = %s", number)
        await self.assertFails(node.commit(PutObject(inlineRecord(b"k"), ALWAYS)), StoreBusy)

    async def test_renewedInTime(self) -> None:
        """A lease that is renewed is not ended, and one that is ended is not renewed."""
        node, other = self.nodes
        await node.leases.renew(60.0, 0)
        self.assertEqual(await other.cleanup.endLapsed(), [])
        await self.endLease(node)
        with self.assertRaises(StoreReadOnly):
            await node.leases.renew(60.0, 0)

    async def test_ownClock(self) -> None:
        """A node that could not renew stops by its own clock, before the server ends its lease."""
        now = [100.0]
        node = self.nodes[0]
        node.leases._clock = lambda: now[0]
        await node.leases.take("n", 10.0)
        now[0] = 109.9
        node.newBlobId()
        await node.commit(PutObject(inlineRecord(b"k"), ALWAYS))
        now[0] = 110.0
        with self.assertRaises(StoreReadOnly):
            node.newBlobId()
        await self.assertFails(node.commit(PutObject(inlineRecord(b"k"), ALWAYS)), StoreBusy)
        self.assertIsNotNone(node.health()["lease"])

    async def test_numbers(self) -> None:
        """
        The row of a lease has all numbers that may have been used, and that are not settled; more
        are reserved while some are left.
        """
        node = self.nodes[0]
        number = node.lease
        ids = [node.newBlobId() for _ in range(3)]
        self.assertEqual([readBlobId(id) for id in ids], [(number, n) for n in range(3)])
        self.assertEqual(ids, list(blobIds(number, 0, 3)))
        await node.commit(PutObject(blobRecord(b"k", ids[0]), ALWAYS, {ids[0]: 7}))
        await self.assertFails(
            node.commit(PutObject(blobRecord(b"k", ids[2]), IF_ABSENT, {ids[2]: 7})),
            PreconditionFailed,
        )
        await node.leases.renew(60.0, 0)
        row = "SELECT low, high FROM leases WHERE id = %s"
        self.assertEqual(self.execute(row, number)[0][0], 1)
        node.leases.settle(ids[1])
        node.leases.settle(ids[2])
        await node.leases.renew(60.0, 0)
        self.assertEqual(self.execute(row, number)[0][0], 3)
        used = 0
        while used < 4 * BLOCK:
            try:
                last = node.newBlobId()
                used += 1
            except StoreBusy:
                await pause()
        found = readBlobId(last)
        assert found is not None
        self.assertLess(found[1], self.execute(row, number)[0][1])

    async def test_reservedBeforeRenewal(self) -> None:
        """A renewal takes no numbers back that were reserved while it was made."""
        node = self.nodes[0]
        for _ in range(BLOCK // 2 + 1):
            node.newBlobId()
        self.assertTrue(node.leases._isReserving)
        await node.leases.renew(60.0, 0)
        while node.leases._isReserving:
            await pause()
        current = node.leases.current
        assert current is not None
        self.assertGreater(current.high, BLOCK)
        self.assertEqual(
            self.execute("SELECT high FROM leases WHERE id = %s", current.number),
            [(current.high,)],
        )

    def test_ids(self) -> None:
        """An id is read as it was made; what differs in form is none."""
        for lease, number in ((1, 0), (7, 4095), (2**40, 2**50), (0, 1)):
            made = blobId(lease, number)
            self.assertEqual((len(made), readBlobId(made)), (32, (lease, number)))
        for text in ("", "x" * 32, "A" * 32, "0" * 31):
            self.assertIsNone(readBlobId(text))

    def everything(self) -> list[Any]:
        """Read all rows that mutations change."""
        tables = (
            "buckets",
            "bucketsettings",
            "objects",
            "versions",
            "blobs",
            "freed",
            "uploads",
            "parts",
            "usagedeltas",
            "accesskeys",
        )
        return [self.execute(f"SELECT * FROM {table} ORDER BY 1, 2") for table in tables]


@long("starts PostgreSQL")
class CollectionTests(NodesCase):
    """Blobs without references, across nodes."""

    async def test_readerKeepsItsBlobs(self) -> None:
        """
        A blob is garbage only when no read that began before its last reference ended is in
        progress on any node.
        """
        node, other = self.nodes
        await node.commit(PutObject(blobRecord(b"k", "x"), ALWAYS, newBlobsOf("x")))
        reads = await other.leases.renew(60.0, 1 << 62)
        await node.commit(RemoveObjects("b", [(b"k", None, ALWAYS)]))
        for _ in range(3):
            await node.leases.renew(60.0, 1 << 62)
            await other.leases.renew(60.0, reads)
            self.assertEqual(await node.cleanup.fold(), (0, 0))
        self.assertEqual(await node.garbage("", 10), [])
        later = await other.leases.renew(60.0, reads)
        self.assertGreater(later, reads)
        await other.leases.renew(60.0, later)
        self.assertEqual(await node.cleanup.fold(), (1, 1))
        self.assertEqual(await node.garbage("", 10), ["x"])
        await node.commit(ForgetBlobs(["x"]))
        self.assertEqual(await other.knownBlobs(["x"]), frozenset())

    async def test_transactionUnderWay(self) -> None:
        """A reference that an unfinished transaction gives back is kept for those who read now."""

        node, other = self.nodes
        await node.commit(PutObject(blobRecord(b"k", "x"), ALWAYS, newBlobsOf("x")))
        with psycopg.connect(self.conninfo) as slow:
            slow.execute("INSERT INTO freed (blob) VALUES ('x')")
            slow.execute("DELETE FROM objects")
            # This read finds the object, though it begins after the reference was given back.
            stamp = await other.leases.renew(60.0, 1 << 62)
            self.assertIsNotNone((await other.object("b", b"k"))[1])
            slow.commit()
        for each in self.nodes:
            await each.leases.renew(60.0, stamp)
        self.assertEqual(await node.cleanup.fold(), (0, 0))

    async def test_leaseThatIsOver(self) -> None:
        """The reads of a node whose lease has ended keep nothing."""
        node, other = self.nodes
        await node.commit(PutObject(blobRecord(b"k", "x"), ALWAYS, newBlobsOf("x")))
        await node.commit(RemoveObjects("b", [(b"k", None, ALWAYS)]))
        await node.leases.renew(60.0, 1 << 62)
        self.assertEqual(await node.cleanup.fold(), (0, 0))
        await node.cleanup.endLease(other.lease, evenValid=True)
        self.assertEqual(await node.cleanup.fold(), (1, 1))

    async def test_holds(self) -> None:
        """A blob that a long read has named stays until it is released, or the lease forgotten."""
        node, other = self.nodes
        blobs = ["x", "y", "z"]
        await node.commit(PutObject(blobRecord(b"k", *blobs), ALWAYS, newBlobsOf(*blobs)))
        await other.cleanup.hold(other.lease, blobs[:2])
        await other.cleanup.hold(other.lease, blobs[:2])
        await node.commit(RemoveObjects("b", [(b"k", None, ALWAYS)]))
        await self.assertConsistent()
        self.assertEqual(await node.garbage("", 10), ["z"])
        await other.cleanup.release(other.lease, ["x"])
        self.assertEqual(await node.garbage("", 10), ["x", "z"])
        number = other.lease
        await node.cleanup.endLease(number, evenValid=True)
        await node.cleanup.forgetLease(number)
        self.assertEqual(await node.garbage("", 10), blobs)
        self.assertEqual(await node.cleanup.endLapsed(), [])
        backlog = await node.cleanup.backlog()
        self.assertEqual((backlog.freed, backlog.garbage, backlog.holds), (0, 3, 0))

    async def test_copyBeforeFold(self) -> None:
        """A copy of a blob whose last reference was given back, but not yet folded, keeps it."""
        node, other = self.nodes
        await node.commit(PutObject(blobRecord(b"k", "x"), ALWAYS, newBlobsOf("x")))
        await node.commit(RemoveObjects("b", [(b"k", None, ALWAYS)]))
        await other.commit(PutObject(blobRecord(b"copy", "x"), ALWAYS))
        await self.assertConsistent()
        self.assertEqual(await node.garbage("", 10), [])

    async def test_jobs(self) -> None:
        """Work of one node is one node's, until it gives it up, or its lease or time is over."""
        node, other = self.nodes
        claim = self.nodes[0].cleanup.claimJob
        self.assertTrue(await claim("sweep", node.lease, 60.0))
        self.assertTrue(await claim("sweep", node.lease, 60.0))
        self.assertFalse(await claim("sweep", other.lease, 60.0))
        self.assertTrue(await claim("scrub", other.lease, 60.0))
        await node.cleanup.releaseJob("sweep", other.lease)
        self.assertFalse(await claim("sweep", other.lease, 60.0))
        await node.cleanup.releaseJob("sweep", node.lease)
        self.assertTrue(await claim("sweep", other.lease, 0.0))
        self.assertTrue(await claim("sweep", node.lease, 60.0))
        await other.cleanup.endLease(node.lease, evenValid=True)
        self.assertTrue(await claim("sweep", other.lease, 60.0))

    async def test_sweeping(self) -> None:
        """Of a lease that ended all numbers are known that may have blobs without rows."""
        node, other = self.nodes
        ids = [node.newBlobId() for _ in range(5)]
        for at in (0, 3):
            await node.commit(PutObject(blobRecord(b"%d" % at, ids[at]), ALWAYS, {ids[at]: 7}))
        number = node.lease
        await node.leases.renew(60.0, 0)
        await other.cleanup.endLease(number, evenValid=True)
        [ended] = await other.cleanup.endLapsed()
        self.assertEqual((ended.number, ended.low), (number, 1))
        names = list(blobIds(number, ended.low, ended.high))
        known = await other.knownBlobs(names)
        self.assertEqual(known, {ids[3]})
        self.assertTrue(set(ids[1:]) <= set(names))
        await other.cleanup.settleLease(number, 4)
        self.assertEqual((await other.cleanup.endLapsed())[0].low, 4)
        await other.cleanup.forgetLease(number)
        self.assertEqual(await other.cleanup.endLapsed(), [])
