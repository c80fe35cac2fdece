"""The scrubber finds what has rotted, slowly."""

import errno
import os
import sqlite3
from typing import Any

from twisted.internet.defer import Deferred
from twisted.trial.unittest import SynchronousTestCase

from storagegate.storage.errors import CorruptBlob, StoreBusy
from storagegate.storage.layout import BlobLayout
from storagegate.storage.scrub import CorruptionLog, Scrubber
from tests.support.faultyfiles import Fault, FaultyFiles
from tests.support.stores import StoreDriver, fastDirectory

MIB = 1024 * 1024
HOUR = 3600
DAY = 24 * HOUR


class ScrubberTests(SynchronousTestCase):
    """L{Scrubber} in an open store, whose clock the test turns."""

    def setUp(self) -> None:
        self.files = FaultyFiles()
        self.driver = StoreDriver(fastDirectory(self), self.files)
        self.addCleanup(lambda: self.driver.close())
        self.driver.createBucket("b")
        self.bodies = {b"%d" % n: os.urandom(1000 + n) for n in range(5)}
        for key, body in self.bodies.items():
            self.driver.put("b", key, body)
        self.driver.put("b", b"small", b"inline")

    def blob(self, key: bytes) -> str:
        """The blob of an object."""
        record = self.driver.find("b", key)
        return record.content.segments[0].blob

    def flip(self, key: bytes) -> None:
        """Change one byte of an object on the disk."""
        with open(BlobLayout(self.driver.directory).path(self.blob(key)), "r+b") as file:
            first = file.read(1)
            file.seek(0)
            file.write(bytes([first[0] ^ 1]))

    def scrub(self) -> None:
        """Let the first round go by, until the scrubber waits for the next."""
        reactor = self.driver.reactor
        reactor.turnUntil(
            lambda: any(c.getTime() - reactor.seconds() > DAY for c in reactor.getDelayedCalls()),
            lambda: reactor.advance(1),
        )

    def scrubber(self, catalog: object, **named: int) -> Scrubber:
        """A scrubber in place of the store's own, which is stopped."""
        store, reactor = self.driver.store, self.driver.reactor
        reactor.settle(store.scrubber.stop())
        report = CorruptionLog(catalog, store.blobs.markCorrupt)
        return Scrubber(catalog, store.blobs, reactor, report, **named)

    def test_sound(self) -> None:
        """A sound store stays as it is, and every byte of it was read, behind the cache."""
        scrubber = self.scrubber(self.driver.store.catalog)
        self.files.calls.clear()
        reactor = self.driver.reactor
        reactor.settleWith(Deferred.fromCoroutine(scrubber.scrub()), lambda: reactor.advance(HOUR))
        self.assertEqual(self.driver.store.warnings()["corrupt"], None)
        dropped = sum(args[2] for name, args in self.files.calls if name == "dropCache")
        self.assertEqual(dropped, sum(len(body) for body in self.bodies.values()))

    def test_flippedByte(self) -> None:
        """A byte that has changed is found: reads fail, health tells, and a restart remembers."""
        self.assertEqual(self.driver.get("b", b"3"), self.bodies[b"3"])
        self.flip(b"3")
        self.scrub()
        for _ in range(2):
            self.assertEqual(
                self.driver.store.warnings()["corrupt"], "1 objects or blobs are corrupt"
            )
            self.assertEqual(set(self.driver.store.health().values()), {None})
            self.assertRaises(CorruptBlob, self.driver.get, "b", b"3")
            self.assertEqual(self.driver.get("b", b"4"), self.bodies[b"4"])
            self.driver.close()
            self.driver.open()

    def test_rightAgain(self) -> None:
        """
        A blob whose bytes are right again is served: a reader, or the next round, takes its mark
        away for good. One that stays wrong is read again only after a while.
        """
        for find in (lambda: self.driver.get("b", b"3"), lambda: None):
            self.flip(b"3")
            self.scrub()
            self.assertEqual(self.driver.store.blobs.corrupt, frozenset({self.blob(b"3")}))
            self.assertRaises(CorruptBlob, self.driver.get, "b", b"3")
            self.files.calls.clear()
            self.assertRaises(CorruptBlob, self.driver.get, "b", b"3")
            self.assertNotIn("read", self.files.namesCalled())
            self.flip(b"3")
            self.driver.reactor.advance(11)
            if find() is None:
                # A week later.
                self.driver.reactor.advance(7 * DAY)
                self.scrub()
            store = self.driver.store
            self.assertEqual(store.blobs.corrupt, frozenset())
            self.driver.reactor.settle(store.idle())
            self.driver.close()
            self.driver.open()
            self.assertIsNone(self.driver.store.warnings()["corrupt"])
            self.assertEqual(self.driver.get("b", b"3"), self.bodies[b"3"])

    def test_replaced(self) -> None:
        """Damage goes away with the object."""
        self.flip(b"3")
        self.scrub()
        self.driver.put("b", b"3", b"new" * 100)
        self.driver.reactor.settle(self.driver.store.idle())
        self.assertEqual(self.driver.store.warnings()["corrupt"], None)
        self.assertEqual(self.driver.get("b", b"3"), b"new" * 100)

    def test_missingAndUnreadable(self) -> None:
        """A blob that is gone and one that the disk cannot read are damaged as well."""
        os.unlink(BlobLayout(self.driver.directory).path(self.blob(b"1")))
        self.files.arm(Fault(0, errno.EIO, only=frozenset({"read"})))
        self.scrub()
        self.files.arm(None)
        self.assertEqual(self.driver.store.warnings()["corrupt"], "5 objects or blobs are corrupt")

    def test_deletedMeanwhile(self) -> None:
        """A blob that was deleted after its row was read is not damaged."""
        store, reactor = self.driver.store, self.driver.reactor
        rows = reactor.settle(store.catalog.blobRows("", 10))
        self.driver.delete("b", list(self.bodies))
        reactor.settle(store.idle())

        class Stale:
            """The catalog, with an old list of blobs."""

            def __getattr__(self, name: str) -> object:
                return getattr(store.catalog, name)

            async def blobRows(self, after: str, limit: int) -> list:
                return [row for row in rows if row.id > after]

        scrubber = self.scrubber(Stale())
        reactor.settleWith(Deferred.fromCoroutine(scrubber.scrub()), lambda: reactor.advance(HOUR))
        self.assertEqual(store.warnings()["corrupt"], None)

    def test_smallObjects(self) -> None:
        """The bytes that are kept in the catalog are checked too."""
        self.driver.close()
        connection = sqlite3.connect(os.path.join(self.driver.directory, "catalog.sqlite"))
        with connection:
            connection.execute("UPDATE inline SET bytes = X'00'")
        connection.close()
        self.driver.open()
        self.scrub()
        self.assertEqual(self.driver.store.warnings()["corrupt"], "1 objects or blobs are corrupt")

    def test_rate(self) -> None:
        """A blob of eight pieces at one piece a second takes its eight seconds."""
        self.driver.delete("b", [*self.bodies, b"small"])
        self.driver.reactor.settle(self.driver.store.idle())
        self.driver.put("b", b"large", bytes(8 * MIB))
        store, reactor = self.driver.store, self.driver.reactor
        scrubber = self.scrubber(store.catalog, bytesPerSecond=MIB)
        begin = reactor.seconds()
        # The store polls its keys all the time: time passes only while the scrubber waits, too.
        polls = len(reactor.getDelayedCalls())

        def wait() -> None:
            if len(reactor.getDelayedCalls()) > polls:
                reactor.advance(0.25)

        reactor.settleWith(Deferred.fromCoroutine(scrubber.scrub()), wait)
        self.assertEqual(reactor.seconds() - begin, 8)

    def test_rounds(self) -> None:
        """The first round comes a minute after the start, the next after a week; stop ends it."""
        store, reactor = self.driver.store, self.driver.reactor
        self.flip(b"2")
        reactor.advance(59)
        self.assertEqual(store.blobs.corrupt, frozenset())
        reactor.turnUntil(lambda: bool(store.blobs.corrupt), lambda: reactor.advance(1))
        self.scrub()
        self.flip(b"4")
        reactor.turnUntil(lambda: reactor.seconds() > 6 * DAY, lambda: reactor.advance(HOUR))
        self.assertEqual(store.blobs.corrupt, frozenset({self.blob(b"2")}))
        reactor.turnUntil(lambda: len(store.blobs.corrupt) == 2, lambda: reactor.advance(HOUR))
        self.assertGreaterEqual(reactor.seconds(), 7 * DAY)
        reactor.settle(store.accessKeys.stop())
        reactor.settle(store.scrubber.stop())
        self.assertEqual(reactor.getDelayedCalls(), [])

    def test_aborted(self) -> None:
        """A round that ends because the store is busy is followed by another in an hour."""
        store, reactor = self.driver.store, self.driver.reactor
        begun: list[float] = []
        blobRows = store.catalog.blobRows

        async def busyAtFirst(after: str, limit: int) -> Any:
            begun.append(reactor.seconds())
            if len(begun) == 1:
                raise StoreBusy("too many list requests are waiting")
            return await blobRows(after, limit)

        self.patch(store.catalog, "blobRows", busyAtFirst)
        reactor.turnUntil(lambda: len(begun) > 1, lambda: reactor.advance(60))
        self.assertEqual(begun[1] - begun[0], HOUR)
