"""A store that is made ready for several processes, and opened by them."""

import os

from msgspec.structs import replace
from twisted.trial.unittest import SynchronousTestCase

from storagegate.net.ipc import MAX_FRAME, encode
from storagegate.storage.embedded.fsck import check
from storagegate.storage.embedded.opening import openStore, prepareStore
from storagegate.storage.embedded.sharedmemory import ProcessGroupConfig
from storagegate.storage.errors import StoreError
from storagegate.storage.files import DirectoryLock, StoreLocked
from storagegate.storage.mutations import AddBucket
from storagegate.storage.records import (
    Attributes,
    Bucket,
    Checksum,
    Content,
    ObjectChange,
    ObjectRecord,
    PartSummary,
    WriteCondition,
)
from storagegate.storage.store import ObjectStore
from tests.support.delayed import TurnedReactor
from tests.support.faultyfiles import FaultyFiles
from tests.support.sharedstores import Post, sharedDescriptor
from tests.support.stores import StoreDriver, fastDirectory


class PrepareTests(SynchronousTestCase):
    """L{prepareStore}."""

    def setUp(self) -> None:
        """Choose a directory."""
        self.directory = fastDirectory(self)

    def test_makes(self) -> None:
        """A new store is made and kept locked by a descriptor that children inherit."""
        lock = prepareStore(self.directory)
        self.assertTrue(os.get_inheritable(lock.descriptor))
        for refused in (
            lambda: prepareStore(self.directory),
            lambda: openStore(self.directory, TurnedReactor()),
            lambda: check(self.directory, False, False, lambda _: None),
        ):
            self.assertRaises(StoreLocked, refused)
        lock.release()
        self.assertEqual(check(self.directory, False, False, lambda _: None), 0)

    def test_sweeps(self) -> None:
        """What a crash has left is gone before any process comes."""
        driver = StoreDriver(self.directory, FaultyFiles())
        driver.upload(b"left" * 100, 0)
        driver.close()
        self.assertEqual(len(driver.blobFiles()[1]), 1)
        prepareStore(self.directory).release()
        self.assertEqual(driver.blobFiles(), (set(), set()))

    def test_unusable(self) -> None:
        """A store that cannot be used is not left locked."""
        os.makedirs(self.directory)
        with open(os.path.join(self.directory, "catalog.sqlite"), "wb") as file:
            file.write(b"this is no catalog" * 1000)
        for _ in range(2):
            with self.assertRaises(StoreError) as caught:
                prepareStore(self.directory)
            self.assertNotIsInstance(caught.exception, StoreLocked)


class SharingTests(SynchronousTestCase):
    """L{ObjectStore.open} with L{ProcessGroupConfig}."""

    def setUp(self) -> None:
        """Choose a directory, and make what is shared."""
        self.directory = fastDirectory(self)
        self.descriptor = sharedDescriptor(self)
        self.post = Post()

    def open(self, index: int) -> tuple[TurnedReactor, ObjectStore]:
        """Open the store as one of the processes."""
        reactor = TurnedReactor()
        sharing = self.post.sharing(index, self.descriptor)
        return reactor, openStore(self.directory, reactor, sharing=sharing)

    def test_nobodyHoldsIt(self) -> None:
        """A store that nobody has prepared and locked is refused, and left unlocked."""
        os.makedirs(self.directory)
        with self.assertRaisesRegex(StoreError, "is not locked"):
            self.open(0)
        self.assertFalse(DirectoryLock.isTaken(self.directory))

    def test_memorySize(self) -> None:
        """Less memory than is needed is refused, and no slot is lost by it."""
        self.addCleanup(prepareStore(self.directory).release)
        os.ftruncate(self.descriptor, ProcessGroupConfig.memorySize() - 4096)
        with self.assertRaisesRegex(StoreError, "cannot share the memory"):
            self.open(0)

    def test_firstScrubs(self) -> None:
        """The first process reads blobs again and catches up; another one need not."""
        self.addCleanup(prepareStore(self.directory).release)
        opened = [self.open(index) for index in range(2)]
        for reactor, store in opened:
            reactor.settle(store.accessKeys.stop())
        waiting = [len(reactor.getDelayedCalls()) for reactor, _ in opened]
        self.assertEqual(waiting, [2, 0])
        for reactor, store in opened:
            reactor.settle(store.close())
            self.assertEqual(reactor.getDelayedCalls(), [])

    def test_changes(self) -> None:
        """
        A watcher learns of the changes of the other process. Even a hundred changes of the largest
        objects fit into one message.
        """
        self.addCleanup(prepareStore(self.directory).release)
        (reactor, store), (other, watching) = (self.open(index) for index in range(2))
        seen: list[ObjectChange] = []
        watching.observers.append(seen.append)
        reactor.settle(store.catalog.commit(AddBucket(Bucket("b", "account", 1, "us-east-1"))))
        checksum = Checksum("SHA256", "=" * 44, "COMPOSITE")
        attributes = Attributes(
            contentType="t" * 8192,
            metadata={"name": "x" * 2048},
            parts=tuple(PartSummary(number, 5 << 20, checksum) for number in range(10_000)),
        )
        key = b"k" * 1024
        record = ObjectRecord("b", key, 3, "etag", 1, "account", attributes, Content(3, b"abc"))
        made = reactor.settle(store.putObject(record, None, WriteCondition()))
        reactor.advance(0)
        shown = Attributes(contentType=attributes.contentType)
        expected = replace(made, attributes=shown, content=Content(3))
        self.assertEqual(seen, [ObjectChange("b", key, expected)])
        [payload] = [payload for topic, payload in self.post.sent if topic == "store.changes"]
        self.assertLess(100 * len(encode({"payload": payload})), MAX_FRAME)
        for reactor_, store_ in ((reactor, store), (other, watching)):
            reactor_.settle(store_.close())
