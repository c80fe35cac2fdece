"""How a sink and its caller keep pace."""

import tracemalloc

from twisted.internet.defer import CancelledError
from twisted.trial.unittest import SynchronousTestCase

from storagegate.storage.blobwriter import BUFFER, BUFFERS, FULL_BUFFERS, bufferSize
from storagegate.storage.errors import StoreBusy
from tests.contract.blobs import KIB, MIB
from tests.support.blobs import BlobsCase, filesBelow, makeBlobs
from tests.support.pools import ImmediatePool


class FlowTests(BlobsCase):
    """How a sink and its caller keep pace."""

    def test_pauses(self) -> None:
        """One buffer is written while the next fills; then the caller is told to wait."""
        sink = self.blobs.writer(0)
        half = b"x" * (256 * KIB)
        self.assertEqual([sink.write(half) for _ in range(3)], [None] * 3)
        waiting = sink.write(half)
        self.assertNoResult(waiting)
        self.assertEqual(len(self.pool.waiting), 1)
        with self.assertRaises(RuntimeError):
            sink.write(b"impatient")
        self.pool.go()
        self.successResultOf(waiting)
        self.assertEqual(len(self.pool.waiting), 1)
        self.assertIsNone(sink.write(half))
        sink.abort()
        self.pool.goAll()

    def test_crowd(self) -> None:
        """Among many uploads each has one buffer: the caller waits while it is written."""
        crowd = [self.blobs.writer(0) for _ in range(FULL_BUFFERS)]
        sink = self.blobs.writer(0)
        waiting = sink.write(b"x" * (512 * KIB))
        self.assertNoResult(waiting)
        self.pool.go()
        self.successResultOf(waiting)
        self.assertEqual(self.pool.waiting, [])
        waiting = sink.write(b"y" * (512 * KIB))
        finished = sink.finish()
        self.pool.goAll()
        self.assertEqual(self.successResultOf(finished).size, MIB)
        for each in crowd:
            each.abort()

    def test_finishBehindJob(self) -> None:
        """A finish waits for the write that runs, and for the caller's own pause."""
        sink = self.blobs.writer(0)
        sink.write(b"a" * 512 * KIB)
        waiting = sink.write(b"b" * 512 * KIB)
        finished = sink.finish()
        self.pool.go()
        self.assertNoResult(finished)
        self.pool.goAll()
        content = self.successResultOf(finished)
        self.assertEqual(content.size, MIB)
        self.assertIsNotNone(waiting)

    def test_memory(self) -> None:
        """A body of 64 MiB never takes more than its two buffers, and neither do tiny chunks."""
        pool = ImmediatePool()
        blobs = makeBlobs(self.mktemp(), pool, durable=False)
        for step, total in ((64 * KIB, 64 * MIB), (2, MIB // 8)):
            sink = blobs.writer(0)
            tracemalloc.start()
            try:
                for number in range(total // step):
                    self.assertIsNone(sink.write(number.to_bytes(2, "big") * (step // 2)))
                peak = tracemalloc.get_traced_memory()[1]
            finally:
                tracemalloc.stop()
            self.assertLess(peak, MIB + 256 * KIB)
            sink.abort()

    def test_memoryWhileHeld(self) -> None:
        """While the disk stands still, a sink that was declared small holds two buffers at most."""
        sink = self.blobs.writer(0, MIB)
        taken = 0
        while True:
            taken += 64 * KIB
            if (waiting := sink.write(b"x" * 64 * KIB)) is not None:
                break
        self.assertLessEqual(taken, MIB + 512 * KIB + 128 * KIB)
        sink.abort()
        self.failureResultOf(waiting, CancelledError)
        self.pool.goAll()

    def test_abortWhileWriting(self) -> None:
        """An abort in the middle of a write removes the file behind it, and tells who waits."""
        sink = self.blobs.writer(0)
        sink.write(b"x" * 512 * KIB)
        waiting = sink.write(b"x" * 512 * KIB)
        sink.abort()
        self.failureResultOf(waiting, CancelledError)
        self.pool.goAll()
        self.assertEqual((filesBelow(self.directory), self.files.opened), ([], set()))

    def test_abortBetweenWrites(self) -> None:
        """An abort when no job runs removes the file."""
        sink = self.blobs.writer(0)
        sink.write(b"x" * 512 * KIB)
        self.pool.goAll()
        self.assertEqual(len(filesBelow(self.directory)), 1)
        sink.abort()
        self.pool.goAll()
        self.assertEqual((filesBelow(self.directory), self.files.opened), ([], set()))

    def test_cancelledFinish(self) -> None:
        """A finish that is cancelled while it runs leaves nothing, though the blob was linked."""
        sink = self.blobs.writer(0)
        sink.write(b"bytes")
        finished = sink.finish()
        finished.cancel()
        self.failureResultOf(finished, CancelledError)
        self.pool.goAll()
        self.assertEqual((filesBelow(self.directory), self.files.opened), ([], set()))
        self.assertIn("link", self.called())

    def test_busyPool(self) -> None:
        """A pool that refuses fails the upload with that, and the file goes."""
        sink = self.blobs.writer(0)
        sink.write(b"x" * 512 * KIB)
        self.pool.go()
        self.pool.busy = True
        sink.write(b"x" * 512 * KIB)
        self.pool.goAll()
        with self.assertRaises(StoreBusy):
            sink.write(b"more")
        self.failureResultOf(sink.finish(), StoreBusy)
        self.assertEqual((filesBelow(self.directory), self.files.opened), ([], set()))


class BufferSizeTests(SynchronousTestCase):
    """L{bufferSize}."""

    def test_shared(self) -> None:
        """However many uploads there are, all their buffers together stay within the bound."""
        for sinks in (FULL_BUFFERS + 1, 24, 64):
            self.assertLessEqual(2 * sinks * bufferSize(sinks), BUFFERS)
        for sinks in (1, FULL_BUFFERS):
            self.assertEqual(bufferSize(sinks), BUFFER)
        self.assertGreaterEqual(bufferSize(10_000), 64 * 1024)
