"""The scanner of life cycles in an open store, whose clock the test turns."""

from typing import Any

import msgspec
from twisted.internet.defer import Deferred
from twisted.internet.task import deferLater
from twisted.trial.unittest import SynchronousTestCase

from storagegate.objects import expiry
from storagegate.objects.expiry import PAGE, LifecycleScanner, Round
from storagegate.objects.lifecycle import Calendar, LifecycleRule
from storagegate.storage.files import Files
from storagegate.storage.mutations import PutLegalHold, PutObject, PutSettings
from storagegate.storage.periodic import PeriodicTask
from storagegate.storage.records import (
    COMPLIANCE,
    VERSIONING_ENABLED,
    Attributes,
    Content,
    ObjectRecord,
)
from tests.support.stores import ALWAYS, StoreDriver, fastDirectory

DAY = 24 * 3600
EXPIRE = LifecycleRule("expire", True, days=1)
OLD = LifecycleRule("old", True, noncurrentDays=1)
MARKERS = LifecycleRule("markers", True, markers=True)


class ScannerTests(SynchronousTestCase):
    """L{LifecycleScanner}."""

    def setUp(self) -> None:
        self.driver = StoreDriver(fastDirectory(self), Files())
        self.addCleanup(lambda: self.driver.close())
        self.now = 100.5 * DAY
        for name in ("a", "b", "c"):
            self.driver.createBucket(name)
        self.restart()

    def restart(self) -> None:
        """Have a scanner that knows nothing but what is in the catalog."""
        store = self.driver.store
        self.scanner = LifecycleScanner(
            store,
            Calendar(),
            self.driver.reactor,
            lambda: self.now,
        )

    def set(self, bucket: str, *rules: LifecycleRule) -> None:
        """Set the rules of a bucket."""
        document = msgspec.json.encode(rules)
        catalog = self.driver.store.catalog
        self.driver.reactor.settle(catalog.commit(PutSettings(bucket, {"lifecycle": document})))

    def put(self, bucket: str, *keys: bytes) -> None:
        """Store objects."""
        for key in keys:
            self.driver.put(bucket, key, b"x")

    def locked(self, *keys: bytes) -> None:
        """Store objects in a bucket that gets object lock."""
        self.driver.setVersioning("a", VERSIONING_ENABLED)
        self.driver.setObjectLock("a", "")
        self.put("a", *keys)

    def scan(self, days: float = 1) -> None:
        """Let time go by, and make a round."""
        self.now += days * DAY
        reactor = self.driver.reactor
        reactor.settleWith(Deferred.fromCoroutine(self.scanner.scan()), lambda: reactor.advance(1))

    def figures(self) -> tuple[int, int, int]:
        """Give what the scanner has counted."""
        return self.scanner.seen, self.scanner.removed, self.scanner.kept

    def progress(self) -> Round | None:
        """Read what is kept of the round."""
        catalog = self.driver.store.catalog
        found: Any = self.driver.reactor.settle(
            Deferred.fromCoroutine(catalog.progress("lifecycle"))
        )
        return None if found is None else msgspec.json.decode(found, type=Round)

    def test_noRules(self) -> None:
        """Without rules nothing is removed, and nothing is written."""
        self.put("a", b"k")
        self.scan()
        self.assertEqual((self.figures(), self.progress()), ((0, 0, 0), None))
        self.assertEqual(self.driver.listing("a", b""), [b"k"])

    def test_pages(self) -> None:
        """More than a page, of two of three buckets."""
        keys = [b"%04d" % number for number in range(PAGE + 3)]
        self.put("a", *keys)
        self.put("b", b"k")
        self.put("c", b"k", b"l/k")
        self.set("a", EXPIRE)
        self.set("c", LifecycleRule("l", True, prefix="l/", days=1))
        self.scan()
        self.assertEqual(self.driver.listing("a", b""), [])
        self.assertEqual(self.driver.listing("b", b""), [b"k"])
        self.assertEqual(self.driver.listing("c", b""), [b"k"])
        self.assertEqual(self.figures(), (len(keys) + 1, len(keys) + 1, 0))
        found = self.progress()
        assert found is not None
        self.assertTrue(found.isOver)

    def test_onceADay(self) -> None:
        """What is due after the round waits for the next day's, also in a new process."""
        self.set("a", EXPIRE)
        self.scan()
        self.put("a", b"k")
        for _ in range(2):
            self.scan(0.1)
            self.assertEqual(self.driver.listing("a", b""), [b"k"])
            self.restart()
        self.scan()
        self.assertEqual(self.driver.listing("a", b""), [])

    def test_busy(self) -> None:
        """Each page waits for ten turns of a busy loop, and of an idle one for none."""
        self.put("a", b"k")
        self.set("a", LifecycleRule("late", True, days=1000))
        reactor = self.driver.reactor
        pauses: list[float] = []

        async def pause(task: PeriodicTask, seconds: float) -> None:
            pauses.append(seconds)

        self.patch(PeriodicTask, "pause", pause)
        for turn, seconds in (0.0, None), (0.01, 0.1), (1.0, 0.2):

            def later(clock: Any, delay: float, turn: float = turn) -> Any:
                reactor.rightNow += turn
                return deferLater(clock, delay)

            self.patch(expiry, "deferLater", later)
            self.now += DAY
            reactor.settle(self.scanner.scan())
            # A page of versions, and one of uploads.
            self.assertEqual(len(pauses), 0 if seconds is None else 2)
            for each in pauses:
                self.assertAlmostEqual(each, seconds)
            pauses.clear()

    def test_place(self) -> None:
        """A round that was cut goes on where it was, with what it has to know of the key."""
        self.driver.setVersioning("a", VERSIONING_ENABLED)
        for _ in range(PAGE + 20):
            self.put("a", b"k")
        self.set("a", LifecycleRule("old", True, noncurrentDays=1, newer=10))
        versions = LifecycleScanner._versions

        async def once(scanner: LifecycleScanner, name: str) -> bool:
            scanner._task.isStopping = True
            return await versions(scanner, name)

        undo = self.patch(LifecycleScanner, "_versions", once)
        self.scan()
        undo.restore()
        found = self.progress()
        assert found is not None and found.place is not None
        self.assertEqual((found.place.newer, found.isOver), (10, False))
        self.assertEqual(self.scanner.removed, PAGE - 11)
        self.restart()
        self.scan(0)
        self.assertEqual(self.figures(), (20, 20, 0))
        self.assertEqual(len(self.driver.versions("a")), 11)

    def test_stack(self) -> None:
        """A current object gets a marker; then it goes, and the marker at last."""
        self.driver.setVersioning("a", VERSIONING_ENABLED)
        self.put("a", b"k", b"k")
        self.set("a", EXPIRE, OLD, MARKERS)
        counts = []
        for _ in range(6):
            self.scan()
            counts.append(len(self.driver.versions("a")))
        self.assertEqual(counts[-1], 0, counts)
        self.assertEqual(counts, sorted(counts, reverse=True))

    def test_locked(self) -> None:
        """What is locked stays for as long as it is."""
        self.locked(b"k", b"k")
        self.set("a", OLD)
        until = int((self.now + 10 * DAY) * 1000)
        for lock in (
            lambda: self.driver.hold("a", b"k", 1, True),
            lambda: self.driver.retain("a", b"k", 1, COMPLIANCE, until, False),
        ):
            lock()
            self.scan(2)
            self.driver.hold("a", b"k", 1, False)
            self.assertEqual(len(self.driver.versions("a")), 2)
            self.assertEqual(self.scanner.kept, 1)
            self.scanner.kept = 0
        self.scan(10)
        self.assertEqual(len(self.driver.versions("a")), 1)

    def test_lockedMeanwhile(self) -> None:
        """What is locked after it was judged stays, though it was due."""
        self.locked(b"k", b"k")
        self.set("a", OLD)
        catalog = self.driver.store.catalog
        commit = catalog.commit
        version = self.driver.versionId("a", b"k", 1)

        def late(mutation: Any) -> Any:
            # It is committed first.
            commit(PutLegalHold("a", b"k", version, True))
            return commit(mutation)

        self.patch(catalog, "commit", late)
        self.scan()
        self.assertEqual(len(self.driver.versions("a")), 2)
        self.assertEqual(self.figures(), (2, 0, 1))

    def test_writtenMeanwhile(self) -> None:
        """What is written after it was judged stays."""
        self.put("a", b"k")
        self.set("a", EXPIRE)
        store = self.driver.store
        commit = store.catalog.commit

        def late(mutation: Any) -> Any:
            record = ObjectRecord("a", b"k", 0, "e", 1, "account", Attributes(), Content(0))
            commit(PutObject(record, ALWAYS))
            return commit(mutation)

        self.patch(store.catalog, "commit", late)
        self.scan()
        self.assertEqual(self.driver.listing("a", b""), [b"k"])
        self.assertEqual(self.figures(), (1, 0, 1))

    def test_ruleRemovedMeanwhile(self) -> None:
        """A rule that is removed between the look and the removal removes nothing."""
        self.put("a", b"k")
        self.set("a", EXPIRE)
        catalog = self.driver.store.catalog
        commit = catalog.commit

        def late(mutation: Any) -> Any:
            document = msgspec.json.encode([LifecycleRule("other", True, days=10_000)])
            # It is committed first.
            commit(PutSettings("a", {"lifecycle": document}))
            return commit(mutation)

        self.patch(catalog, "commit", late)
        self.scan()
        self.assertEqual(self.driver.listing("a", b""), [b"k"])
        self.assertEqual(self.figures(), (1, 0, 0))

    def test_uploads(self) -> None:
        """Uploads are aborted, more than a page of them."""
        for number in range(PAGE + 2):
            self.driver.createUpload(f"{number:04d}", "a", b"k")
        self.driver.createUpload("other", "a", b"l")
        self.set("a", LifecycleRule("abort", True, prefix="k", abortDays=1))
        self.scan()
        self.assertEqual(self.scanner.removed, PAGE + 2)
        self.driver.abort("a", b"l", "other")
