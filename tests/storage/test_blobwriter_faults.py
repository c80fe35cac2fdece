"""What a failing disk does to blobs."""

import errno
import os

from twisted.internet.defer import Deferred

from storagegate.storage.errors import StoreBusy, StoreFull, StoreReadOnly
from tests.contract.blobs import KIB, claim
from tests.support.blobs import BlobsCase, filesBelow, makeBlobs
from tests.support.faultyfiles import Fault
from tests.support.garbage import findCycles, withoutCollector
from tests.support.selection import long


class FaultTests(BlobsCase):
    """What a failing disk does to an upload."""

    def failing(self, fault: Fault) -> Deferred:
        """Store a body while the disk fails."""
        sink = self.blobs.writer(0)
        sink.write(b"x" * 512 * KIB)
        self.files.arm(fault)
        sink.write(b"y" * 1000)
        finished = sink.finish()
        self.pool.goAll()
        return finished

    def test_full(self) -> None:
        """A full disk is StoreFull, nothing of the upload is left, and the store goes on."""
        for name in ("create", "write", "sync", "makeDirectory", "link"):
            fault = Fault(1, errno.ENOSPC, sticky=True, only=frozenset({name}))
            self.blobs = makeBlobs(self.mktemp(), self.pool, self.files)
            self.failureResultOf(self.failing(fault), StoreFull)
            self.files.arm(None)
            self.assertEqual(self.files.opened, set())
            self.assertEqual(self.blobs.latch.failure, None)
            self.put(b"there is space again")
        self.assertEqual(filesBelow(self.directory), [])

    def test_fullWhileWriting(self) -> None:
        """Who waits for a pause hears that the disk is full when the space is free again."""
        sink = self.blobs.writer(0)
        sink.write(b"x" * 512 * KIB)
        waiting = sink.write(b"x" * 512 * KIB)
        self.files.arm(Fault(1, errno.ENOSPC, sticky=True, only=frozenset({"write"})))
        self.pool.go()
        self.assertNoResult(waiting)
        self.pool.go()
        self.failureResultOf(waiting, StoreFull)
        self.assertEqual(filesBelow(self.directory), [])
        with self.assertRaises(StoreFull):
            sink.write(b"more")

    def test_shortWrites(self) -> None:
        """Writes that take only half of what they get lose nothing."""
        self.files.arm(Fault(1, 0, sticky=True))
        body = os.urandom(300_000)
        blob = self.put(body)
        handle = claim(self.blobs, blob)
        handle = Deferred.fromCoroutine(handle)
        self.pool.goAll()
        self.assertTrue(os.pread(self.successResultOf(handle).fd, 400_000, 0) == body)

    def test_latch(self) -> None:
        """After a failed fsync nothing is written again, though the disk would say it works."""
        faults = (
            ("sync", errno.EIO),
            ("syncDirectory", errno.EIO),
            ("syncDirectory", errno.ENOSPC),
        )
        for name, code in faults:
            blobs = self.blobs = makeBlobs(self.mktemp(), self.pool, self.files)
            kept = self.put(b"kept")
            fault = Fault(1, code, sticky=True, only=frozenset({name}))
            self.failureResultOf(self.failing(fault), StoreReadOnly)
            self.files.arm(None)
            self.assertIn(os.strerror(code), str(blobs.latch.failure))
            self.failureResultOf(blobs.writer(100).finish(), StoreReadOnly)
            with self.assertRaises(StoreReadOnly):
                blobs.writer(0).write(b"more")
            self.failureResultOf(blobs.remove([kept]), StoreReadOnly)
            opened = Deferred.fromCoroutine(claim(blobs, kept))
            self.pool.goAll()
            self.assertEqual(self.successResultOf(opened).size, 4)
        self.assertEqual(filesBelow(self.directory), [])

    def test_latchStopsUploads(self) -> None:
        """An upload that is under way when the latch falls does not end well."""
        sink = self.blobs.writer(0)
        sink.write(b"x" * 512 * KIB)
        self.pool.goAll()
        self.blobs.latch.set("told so")
        finished = sink.finish()
        self.pool.goAll()
        self.failureResultOf(finished, StoreReadOnly)

    def test_otherErrors(self) -> None:
        """An error that the store has no word for stays what it is, and leaves nothing."""
        fault = Fault(1, errno.EIO, sticky=True, only=frozenset({"write"}))
        self.failureResultOf(self.failing(fault), OSError)
        self.assertEqual((filesBelow(self.directory), self.files.opened), ([], set()))
        fault = Fault(1, errno.EMFILE, sticky=True, only=frozenset({"openDirectory"}))
        self.failureResultOf(self.failing(fault), StoreBusy)
        self.assertIsNone(self.blobs.latch.failure)

    def test_linkThatLands(self) -> None:
        """A link that reports an error but was made is taken away as well."""
        fault = Fault(1, errno.EIO, sticky=True, lands=True, only=frozenset({"link"}))
        self.failureResultOf(self.failing(fault), OSError)
        self.assertEqual(filesBelow(self.directory), [])

    def test_stubborn(self) -> None:
        """What cannot be removed keeps its first name, for the next start to find."""
        only = frozenset({"sync", "unlink"})
        self.failureResultOf(self.failing(Fault(1, errno.EIO, True, only=only)), StoreReadOnly)
        self.assertEqual(len(filesBelow(os.path.join(self.directory, "staging"))), 1)

    def test_settleThatFails(self) -> None:
        """A first name that cannot be taken away stops none of the others."""
        sinks = [self.blobs.writer(0) for _ in range(3)]
        finished = [sink.finish() for sink in sinks]
        self.pool.goAll()
        blobs = [self.successResultOf(content).segments[0].blob for content in finished]
        self.files.arm(Fault(2, errno.EIO))
        self.blobs.confirm(blobs)
        self.pool.goAll()
        left = filesBelow(os.path.join(self.directory, "staging"))
        self.assertEqual(left, [blobs[1]])

    def test_discardThatFails(self) -> None:
        """A discard that could not remove everything says so, and removes what it can."""
        blobs = [self.put(b"x") for _ in range(3)]
        self.files.arm(Fault(1, errno.EIO))
        discarded = self.blobs.remove(blobs)
        self.pool.goAll()
        self.failureResultOf(discarded, OSError)
        self.assertEqual(len(filesBelow(self.directory)), 1)

    @long("takes a second or more")
    def test_lifetimes(self) -> None:
        """No error is part of a reference cycle when its caller has dropped it."""

        def use(name: str) -> None:
            blob = self.put(b"x")
            self.files.arm(Fault(1, errno.EIO, sticky=True, only=frozenset({name})))
            opening = Deferred.fromCoroutine(self.blobs.open(blob))
            self.pool.goAll()
            opening.addCallbacks(lambda handle: handle.close(), lambda failure: None)
            removing = self.blobs.remove([blob])
            self.pool.goAll()
            removing.addErrback(lambda failure: None)
            self.files.arm(None)

        for name in ("openForReading", "size", "close", "unlink", "syncDirectory"):
            self.blobs = makeBlobs(self.mktemp(), self.pool, self.files)
            use(name)
            self.blobs = makeBlobs(self.mktemp(), self.pool, self.files)
            with withoutCollector(self):
                use(name)
                cycles = findCycles()
            self.assertEqual((name, cycles), (name, []))
