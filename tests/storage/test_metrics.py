"""What is told of a store."""

import os
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from storagegate.storage import metrics
from storagegate.storage.metrics import MeteredFiles, watchStore
from storagegate.telemetry.metrics import MetricsRegistry
from tests.support.stores import StoreDriver, fastDirectory

BODY = b"a blob of its own " * 100


class StoreMetersTests(SynchronousTestCase):
    """A real store, with meters."""

    def setUp(self) -> None:
        """Open it."""
        self.meters = MetricsRegistry()
        self.directory = fastDirectory(self)
        self.driver = StoreDriver(self.directory, MeteredFiles(self.meters))
        self.addCleanup(self.driver.close)
        watchStore(self.driver.store, self.meters, self.directory, True)

    def value(self, name: str, *labels: str) -> Any:
        """Give a value."""
        for family in self.meters.snapshot():
            if family.name == f"storagegate_store_{name}":
                return dict(family.samples)[labels]
        raise self.failureException(f"there is no {name}")

    def count(self, name: str, *labels: str) -> int:
        """Count what a histogram has seen."""
        return int(sum(self.value(name, *labels)[:-1]))

    def test_commits(self) -> None:
        """Transactions are counted and timed, with their mutations."""
        self.assertEqual(self.value("commits_total"), 0)
        self.driver.createBucket("b")
        self.driver.put("b", b"k", b"small")
        self.assertEqual(self.value("commits_total"), 2)
        self.assertEqual(self.count("commit_seconds"), 2)
        self.assertEqual(self.value("commit_mutations")[-1], 2)
        self.assertEqual(self.value("commit_waiting"), 0)

    def test_fsyncs(self) -> None:
        """Those of blobs are timed, files and directories apart."""
        self.driver.createBucket("b")
        files, directories = (self.count("fsync_seconds", kind) for kind in ("file", "directory"))
        self.driver.put("b", b"k", BODY)
        self.assertEqual(self.count("fsync_seconds", "file"), files + 1)
        self.assertGreater(self.count("fsync_seconds", "directory"), directories)
        self.assertGreater(self.value("fsync_seconds", "file")[-1], 0)

    def test_failedFsync(self) -> None:
        """One that fails has taken its time too."""
        files = MeteredFiles(self.meters)
        before = self.count("fsync_seconds", "file")
        self.assertRaises(OSError, files.sync, 1 << 20)
        self.assertEqual(self.count("fsync_seconds", "file"), before + 1)

    def test_state(self) -> None:
        """What the store knows of itself is told as it is now."""
        self.driver.createBucket("b")
        self.driver.put("b", b"k", BODY)
        store = self.driver.store
        # What the last write has left behind is done by then.
        self.driver.reactor.turnUntil(lambda: not store.pool.figures().waiting, lambda: None)
        self.assertEqual(self.value("pool_threads"), store.pool.figures().threads)
        self.assertEqual((self.value("pool_waiting"), self.value("pool_lag_seconds")), (0, 0.0))
        self.assertEqual((self.value("read_only"), self.value("damaged")), (0, 0))
        wal = os.path.join(self.directory, "catalog.sqlite-wal")
        self.assertEqual(self.value("wal_bytes"), os.stat(wal).st_size)
        free, total = store.space()
        self.assertEqual(self.value("disk_bytes", "total"), total)
        self.assertGreater(free, 0)
        store.blobs.latch.set("a test")
        self.flushLoggedErrors()
        self.assertEqual(self.value("read_only"), 1)

    def bucketValue(self, name: str, bucket: str) -> Any:
        """Give a value of a bucket; C{None} if it has none."""
        families = {family.name: family for family in self.meters.snapshot()}
        return dict(families[f"storagegate_bucket_{name}"].samples).get((bucket,))

    def test_usage(self) -> None:
        """Objects and bytes of each bucket are those of the catalog; many share one sample."""
        self.driver.createBucket("b")
        self.driver.createBucket("other")
        self.driver.put("b", b"k", BODY)
        self.driver.put("other", b"k", b"12345")
        self.driver.createUpload("u", "b", b"up")
        self.driver.putPart("b", b"up", "u", 1, b"y" * 700)
        found = [
            self.bucketValue(name, "b") for name in ("objects", "bytes", "uploads", "upload_bytes")
        ]
        self.assertEqual(found, [1, len(BODY), 1, 700])
        [keys] = [each for each in self.meters.snapshot() if each.name.endswith("access_keys")]
        self.assertEqual(keys.samples, [((), 0)])
        self.patch(metrics, "_BUCKETS", 1)
        self.assertEqual(self.bucketValue("bytes", "other"), 5)
        self.patch(metrics, "_BUCKETS", 2)
        self.driver.createBucket("c")
        self.driver.put("c", b"k", b"1")
        self.assertEqual(self.bucketValue("bytes", "other"), 6)
        self.assertIsNone(self.bucketValue("bytes", "c"))

    def test_unnamed(self) -> None:
        """Unless they are asked for, no sample names a bucket: there are the sums alone."""
        self.driver.createBucket("b")
        self.driver.createBucket("c")
        self.driver.put("b", b"k", BODY)
        self.driver.put("c", b"k", b"12345")
        for most in (500, 1):
            self.patch(metrics, "_BUCKETS", most)
            reader = metrics._UsageReader(self.driver.store.catalog, False)
            found = {family.name: family for family in reader.families()}
            for name, value in (("objects", 2), ("bytes", len(BODY) + 5), ("uploads", 0)):
                family = found[f"storagegate_bucket_{name}"]
                self.assertEqual((family.labels, family.samples), ((), [((), value)]), most)

    def test_usageOfClosed(self) -> None:
        """A store that is closed tells the last figures, without an error."""
        self.driver.createBucket("b")
        self.driver.put("b", b"k", BODY)
        before = self.bucketValue("objects", "b")
        reader = metrics._UsageReader(self.driver.store.catalog, True)
        list(reader.families())
        self.driver.close()
        found = {family.name: family for family in reader.families()}
        self.assertEqual(dict(found["storagegate_bucket_objects"].samples), {("b",): before})
        self.driver.open()

    def test_backlog(self) -> None:
        """Blobs that are held by a reader wait to be removed."""
        self.driver.createBucket("b")
        self.driver.put("b", b"k", BODY)
        record = self.driver.find("b", b"k")
        assert record is not None
        hold = self.driver.store.hold(record.content)
        self.driver.delete("b", [b"k"])
        self.assertEqual(self.value("reclaim_backlog"), 1)
        hold.release()
        self.driver.reactor.settle(self.driver.store.idle())
        self.assertEqual(self.value("reclaim_backlog"), 0)

    def test_scrubbing(self) -> None:
        """A round tells how much it has read, of blobs and of what is in the catalog."""
        self.driver.createBucket("b")
        self.driver.put("b", b"blob", BODY)
        self.driver.put("b", b"inline", b"small")
        reactor, scrubber = self.driver.reactor, self.driver.store.scrubber
        reactor.turnUntil(lambda: bool(scrubber.rounds), lambda: reactor.advance(1))
        self.assertEqual(self.value("scrubbed_bytes_total"), len(BODY) + len(b"small"))
        self.assertEqual(self.value("scrub_rounds_total"), 1)

    def test_diskSilent(self) -> None:
        """A disk that does not answer takes nothing but its own figures away."""

        def space() -> tuple[int, int]:
            raise OSError("no answer")

        self.driver.store.space = space
        names = {family.name for family in self.meters.snapshot()}
        self.assertNotIn("storagegate_store_disk_bytes", names)
        self.assertIn("storagegate_store_wal_bytes", names)
