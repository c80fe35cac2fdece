"""The store: its two halves together, and what a crash or a refusal leaves of them."""

import errno
import os
import shutil

from twisted.internet.defer import CancelledError, Deferred, fail
from twisted.trial.unittest import SynchronousTestCase

from storagegate.storage.embedded.fsck import check
from storagegate.storage.embedded.opening import openStore
from storagegate.storage.embedded.recovery import removeUnconfirmed
from storagegate.storage.errors import (
    CommitUnknown,
    NoSuchUpload,
    PreconditionFailed,
    StoreBusy,
    StoreError,
    StoreReadOnly,
)
from storagegate.storage.files import StoreLocked
from storagegate.storage.layout import BlobLayout
from storagegate.storage.records import WriteCondition
from tests.support.delayed import TurnedReactor
from tests.support.faultyfiles import Fault, FaultyFiles
from tests.support.stores import ALWAYS, StoreDriver, fastDirectory

BODY = b"a blob of its own " * 100


class CatalogStub:
    """A catalog that does what the test says instead of storing."""

    def __init__(self, catalog: object, result: Deferred) -> None:
        self._catalog = catalog
        self._result = result
        self.failure: str | None = None

    def health(self) -> dict[str, str | None]:
        """Tell the failure that the test set."""
        return {"catalog": self.failure}

    def commit(self, mutation: object) -> Deferred:
        """Give the test's Deferred."""
        return self._result

    def __getattr__(self, name: str) -> object:
        return getattr(self._catalog, name)


class StoreCase(SynchronousTestCase):
    """A store with a bucket."""

    def setUp(self) -> None:
        self.files = FaultyFiles()
        self.directory = fastDirectory(self)
        self.driver = StoreDriver(self.directory, self.files)
        self.layout = BlobLayout(self.directory)
        self.closing = True
        self.addCleanup(lambda: self.driver.close() if self.closing else None)
        self.driver.createBucket("b")

    def settle(self) -> None:
        """Let everything in the background end."""
        self.driver.reactor.advance(0)
        self.driver.reactor.settle(self.driver.store.idle())
        self.driver.reactor.settle(self.driver.store.blobs.idle())

    def reopen(self) -> None:
        """Close the store and open it again."""
        self.driver.close()
        self.driver.open()

    def crash(self) -> None:
        """Go on with a copy of what the disk holds now, as after the power went."""
        self.settle()
        copy = fastDirectory(self)
        shutil.copytree(self.directory, copy)
        self.driver.close()
        self.driver.directory = self.directory = copy
        self.layout = BlobLayout(copy)
        self.files.arm(None)
        self.driver.open()

    def assertSound(self) -> None:
        """Nothing is wrong, and nothing is left over."""
        self.driver.close()
        problems: list[str] = []
        self.assertEqual((check(self.directory, False, True, problems.append), problems), (0, []))
        self.assertEqual(self.files.opened, set())
        self.driver.open()


class OpeningTests(StoreCase):
    """L{ObjectStore.open}."""

    def test_private(self) -> None:
        """Only the owner may look into the data directory."""
        for name in ("", "blobs", "staging"):
            mode = os.stat(os.path.join(self.directory, name)).st_mode
            self.assertEqual(mode & 0o777, 0o700, name)

    def test_locked(self) -> None:
        """A second store on the same data is refused in one line, until the first is closed."""
        with self.assertRaises(StoreLocked) as caught:
            openStore(self.directory, TurnedReactor())
        self.assertEqual(str(caught.exception), f"{self.directory} is in use by another process")
        self.reopen()

    def test_newParents(self) -> None:
        """A data directory whose parents are missing is made with them."""
        directory = os.path.join(fastDirectory(self), "deep", "data")
        StoreDriver(directory, self.files).close()
        self.assertTrue(os.path.isdir(os.path.join(directory, "blobs")))

    def test_unusable(self) -> None:
        """A store that cannot be opened is not left locked."""
        self.driver.close()
        path = os.path.join(self.directory, "catalog.sqlite")
        os.rename(path, path + ".away")
        with open(path, "wb") as file:
            file.write(b"this is no catalog" * 1000)
        for _ in range(2):
            with self.assertRaises(StoreError) as caught:
                self.driver.open()
            self.assertNotIsInstance(caught.exception, StoreLocked)
        os.unlink(path)
        os.rename(path + ".away", path)
        self.driver.open()

    def test_idle(self) -> None:
        """A store that has nothing to do has no thread."""
        directory = fastDirectory(self)
        driver = StoreDriver(directory, self.files)
        self.assertEqual(driver.store.pool.figures().threads, 0)
        driver.close()

    def test_swept(self) -> None:
        """Whatever lies in staging is judged against the catalog before the store is open."""
        self.driver.put("b", b"kept", BODY)
        self.settle()
        (kept,), _ = self.driver.blobFiles()
        self.driver.close()
        os.link(self.layout.path(kept), self.layout.stagingPath(kept))
        for blob, linked in (("0" * 32, True), ("1" * 32, False)):
            with open(self.layout.stagingPath(blob), "wb") as file:
                file.write(b"never committed")
            if linked:
                os.makedirs(self.layout.shard(blob))
                os.link(self.layout.stagingPath(blob), self.layout.path(blob))
        foreign = os.path.join(self.layout.staging, "notes")
        with open(foreign, "w") as file:
            file.write("mine")
        self.driver.open()
        self.assertEqual(self.driver.blobFiles(), ({kept}, {"notes"}))
        self.assertEqual(self.driver.get("b", b"kept"), BODY)
        os.unlink(foreign)
        self.assertSound()

    def test_restored(self) -> None:
        """A committed blob that a power cut without fsyncs left under its first name only."""
        self.driver.put("b", b"kept", BODY)
        self.settle()
        (kept,), _ = self.driver.blobFiles()
        self.driver.close()
        os.rename(self.layout.path(kept), self.layout.stagingPath(kept))
        self.driver.open()
        self.assertEqual(self.driver.get("b", b"kept"), BODY)
        self.assertSound()


class CrashTests(StoreCase):
    """What is on the disk at one moment is all that the next start has."""

    def setUp(self) -> None:
        super().setUp()
        # The crash comes before anything was cleared up in the background.
        self.files.arm(Fault(1, errno.EIO, sticky=True, only=frozenset({"unlink"})))

    def test_beforeCommit(self) -> None:
        """An upload that was finished and not committed is gone after a crash."""
        self.driver.upload(BODY, 0)
        self.crash()
        self.assertEqual(self.driver.blobFiles(), (set(), set()))
        self.assertSound()

    def test_afterCommit(self) -> None:
        """An object is whole from the moment that it was acknowledged."""
        self.driver.put("b", b"key", BODY)
        self.assertEqual(len(self.driver.blobFiles()[1]), 1)
        self.crash()
        self.assertEqual(self.driver.get("b", b"key"), BODY)
        self.assertEqual(self.driver.blobFiles()[1], set())
        self.assertSound()

    def test_garbage(self) -> None:
        """A blob that lost its last reference just before a crash is removed after it."""
        self.driver.put("b", b"key", BODY)
        self.driver.delete("b", [b"key"])
        self.assertEqual(len(self.driver.blobFiles()[0]), 1)
        self.crash()
        self.settle()
        self.assertEqual(self.driver.blobFiles(), (set(), set()))
        self.assertSound()


class WritingTests(StoreCase):
    """How writes end."""

    def test_replaced(self) -> None:
        """The blobs of what was replaced, deleted or aborted are removed."""
        self.driver.put("b", b"key", BODY)
        self.driver.put("b", b"key", BODY + BODY)
        self.driver.createUpload("u", "b", b"up")
        for body in (BODY, BODY + b"again"):
            self.driver.putPart("b", b"up", "u", 1, body)
        self.settle()
        self.assertEqual(len(self.driver.blobFiles()[0]), 2)
        self.driver.abort("b", b"up", "u")
        self.driver.delete("b", [b"key"])
        self.settle()
        self.assertEqual(self.driver.blobFiles(), (set(), set()))

    def test_copy(self) -> None:
        """A copy makes no blob, and the bytes stay until the last object that has them is gone."""
        self.driver.put("b", b"key", BODY)
        self.driver.copy("b", b"key", b"copy")
        self.assertEqual(len(self.driver.blobFiles()[0]), 1)
        self.driver.delete("b", [b"key"])
        self.settle()
        self.assertEqual(self.driver.get("b", b"copy"), BODY)
        self.assertSound()

    def test_refused(self) -> None:
        """A write that the catalog refuses leaves no blob."""
        self.driver.put("b", b"key", BODY)
        absent = WriteCondition(absent=True)
        self.assertRaises(PreconditionFailed, self.driver.put, "b", b"key", BODY, absent)
        self.assertRaises(NoSuchUpload, self.driver.putPart, "b", b"key", "none", 1, BODY)
        self.driver.reactor.settle(self.driver.store.run(int))
        self.assertSound()
        self.assertEqual(len(self.driver.blobFiles()[0]), 1)

    def test_abandoned(self) -> None:
        """An upload that is given up leaves nothing; one that was stored is not harmed by it."""
        store = self.driver.store
        sink, _ = self.driver.upload(BODY, 0)
        store.abort(sink)
        unfinished = store.blobs.writer(0)
        unfinished.write(BODY)
        store.abort(unfinished)
        sink, content = self.driver.upload(BODY, 0)
        record = self.driver.record("b", b"key", content, "etag")
        self.driver.reactor.settle(store.putObject(record, sink, ALWAYS))
        store.abort(sink)
        self.assertSound()
        self.assertEqual(self.driver.get("b", b"key"), BODY)
        self.assertEqual(len(self.driver.blobFiles()[0]), 1)

    def test_cancelled(self) -> None:
        """A caller who goes away takes nothing back: what is committed keeps its bytes."""
        sink, content = self.driver.upload(BODY, 0)
        record = self.driver.record("b", b"key", content, "etag")
        stored = self.driver.store.putObject(record, sink, ALWAYS)
        stored.cancel()
        self.failureResultOf(stored, CancelledError)
        self.driver.put("b", b"behind", b"it")
        self.assertEqual(self.driver.get("b", b"key"), BODY)
        self.assertSound()

    def test_commitUnknown(self) -> None:
        """
        When the catalog cannot say whether it has committed, the blob stays for the next start to
        judge, and nothing is written any more in either half.
        """
        store = self.driver.store
        sink, content = self.driver.upload(BODY, 0)
        store.catalog = CatalogStub(store.catalog, fail(StoreReadOnly("fsync failed")))
        record = self.driver.record("b", b"key", content, "etag")
        self.failureResultOf(store.putObject(record, sink, ALWAYS), StoreReadOnly)
        self.assertEqual(len(self.driver.blobFiles()[0]), 1)
        self.assertIn("fsync failed", store.readOnly)
        self.assertIn("fsync failed", store.health()["blobs"])
        self.failureResultOf(store.blobs.writer(100).finish(), StoreReadOnly)
        self.failureResultOf(store.deleteObjects("b", []), StoreReadOnly)
        self.reopen()
        self.assertEqual(self.driver.blobFiles(), (set(), set()))
        self.assertSound()

    def test_commitLost(self) -> None:
        """
        When a catalog on a network cannot say so, the blob stays for a sweep to judge, and the
        store goes on.
        """
        store = self.driver.store
        catalog = store.catalog
        sink, content = self.driver.upload(BODY, 0)
        store.catalog = CatalogStub(catalog, fail(CommitUnknown("lost")))
        record = self.driver.record("b", b"key", content, "etag")
        self.failureResultOf(store.putObject(record, sink, ALWAYS), StoreBusy)
        self.driver.reactor.settle(store.run(int))
        self.assertEqual(len(self.driver.blobFiles()[0]), 1)
        store.catalog = catalog
        self.driver.put("b", b"behind", b"it")
        self.reopen()
        self.assertEqual(self.driver.blobFiles(), (set(), set()))
        self.assertSound()

    def test_catalogLatched(self) -> None:
        """Once the catalog is read-only a finished upload is removed: it was not begun there."""
        store = self.driver.store
        sink, content = self.driver.upload(BODY, 0)
        stub = CatalogStub(store.catalog, Deferred())
        stub.failure = "broken"
        store.catalog = stub
        record = self.driver.record("b", b"key", content, "etag")
        self.failureResultOf(store.putObject(record, sink, ALWAYS), StoreReadOnly)
        self.driver.reactor.settle(store.run(int))
        self.assertEqual(store.health()["catalog"], "broken")
        self.assertSound()

    def test_unexpected(self) -> None:
        """An error that nobody foresaw is no reason to stop, nor to remove what may be stored."""
        store = self.driver.store
        catalog = store.catalog
        sink, content = self.driver.upload(BODY, 0)
        store.catalog = CatalogStub(catalog, fail(ZeroDivisionError()))
        record = self.driver.record("b", b"key", content, "etag")
        self.failureResultOf(store.putObject(record, sink, ALWAYS), ZeroDivisionError)
        store.catalog = catalog
        self.assertEqual(len(self.driver.blobFiles()[0]), 1)
        self.driver.put("b", b"other", BODY)
        self.reopen()
        self.assertEqual(len(self.driver.blobFiles()[0]), 1)
        self.assertSound()

    def test_held(self) -> None:
        """A reader that holds an object reads the whole of it, though it is replaced meanwhile."""
        self.driver.put("b", b"key", BODY)
        record = self.driver.find("b", b"key")
        hold = self.driver.store.hold(record.content)
        self.driver.put("b", b"key", b"new" * 100)
        self.driver.delete("b", [b"key"])
        self.settle()
        self.assertEqual(self.driver.read(record.content), BODY)
        hold.release()
        self.settle()
        self.assertEqual(self.driver.blobFiles(), (set(), set()))

    def test_heldAtTheEnd(self) -> None:
        """What a reader held when the store closed is removed at the next start."""
        self.driver.put("b", b"key", BODY)
        record = self.driver.find("b", b"key")
        self.driver.store.hold(record.content)
        self.driver.delete("b", [b"key"])
        self.reopen()
        self.settle()
        self.assertEqual(self.driver.blobFiles(), (set(), set()))

    def test_healthy(self) -> None:
        """A store that is well says so of each part."""
        store = self.driver.store
        self.assertEqual(store.health(), {"catalog": None, "blobs": None, "disk": None})
        names = {"corrupt", "disk", "inodes", "garbage", "scrubber"}
        self.assertEqual(set(store.warnings()), names)
        self.assertIsNone(store.readOnly)

    def test_silentDisk(self) -> None:
        """A disk that does not even say how much room it has is ill."""
        self.files.arm(Fault(0, errno.EIO, only=frozenset({"space"})))
        wrong = "the disk does not respond: Input/output error"
        self.assertEqual(self.driver.store.health()["disk"], wrong)
        self.files.arm(None)


class UnconfirmedTests(StoreCase):
    """Blobs that were written and never committed, while the store is open."""

    def test_removed(self) -> None:
        """What has been left for long goes, what was committed stays, and so does what is young."""
        self.driver.inlineLimit = 0
        self.driver.put("b", b"k", BODY)
        self.settle()
        kept = self.driver.find("b", b"k").content.segments[0].blob
        os.link(self.layout.path(kept), self.layout.stagingPath(kept))
        _, content = self.driver.upload(BODY, 0)
        _, young = self.driver.upload(BODY, 0)
        old = content.segments[0].blob
        for blob in (kept, old):
            os.utime(self.layout.stagingPath(blob), (0, 0))
        catalog, blobs = self.driver.store.catalog, self.driver.store.blobs
        swept = self.driver.reactor.settle(removeUnconfirmed(catalog, blobs))
        assert swept is not None
        self.assertEqual((swept.settled, swept.removed), (1, 1))
        self.settle()
        segment = young.segments[0].blob
        self.assertEqual(self.driver.blobFiles(), ({kept, segment}, {segment}))
        self.assertEqual(self.driver.get("b", b"k"), BODY)
        self.reopen()
        self.assertSound()
