"""Reads that compare the bytes on their way out."""

import errno
import os
import sqlite3
from typing import Any

from twisted.internet.defer import Deferred
from twisted.trial.unittest import SynchronousTestCase

from storagegate.storage.errors import CorruptBlob, CorruptObject
from storagegate.storage.layout import BlobLayout
from storagegate.storage.records import Segment
from storagegate.storage.scrub import PIECE, CorruptionLog, VerifyingReader
from tests.support.faultyfiles import Fault, FaultyFiles
from tests.support.stores import StoreDriver, fastDirectory

SIZES = (1, PIECE - 1, PIECE, PIECE + 1, 3 * PIECE, 3 * PIECE + 5)


class VerifyingReaderTests(SynchronousTestCase):
    """L{VerifyingReader} on a real store."""

    def setUp(self) -> None:
        self.files = FaultyFiles()
        self.driver = StoreDriver(fastDirectory(self), self.files)
        self.driver.inlineLimit = 0
        self.addCleanup(lambda: self.driver.close())
        self.driver.createBucket("b")
        self.taken: list[bytes] = []

    def reader(self) -> VerifyingReader:
        """Make a reader of the open store."""
        store = self.driver.store
        report = CorruptionLog(store.catalog, store.blobs.markCorrupt)
        return VerifyingReader(store.catalog, store.blobs, report)

    def put(self, body: bytes) -> Segment:
        """Store an object of one blob and give its segment."""
        self.driver.put("b", b"k", body)
        record = self.driver.find("b", b"k")
        (segment,) = record.content.segments
        return segment

    def read(self, segment: Segment) -> bytes:
        """Read a segment to its end and give what was taken."""
        self.taken.clear()
        self.driver.reactor.settle(self.reader().read(segment, self.taken.append))
        return b"".join(self.taken)

    def change(self, segment: Segment, position: int, replacement: bytes) -> None:
        """Overwrite bytes of a blob on the disk."""
        with open(BlobLayout(self.driver.directory).path(segment.blob), "r+b") as file:
            file.seek(position)
            file.write(replacement)

    def assertDamaged(self, segment: Segment, taken: int) -> None:
        """A read ends before the last piece, having given C{taken} bytes; the damage is known."""
        self.assertRaises(CorruptBlob, self.read, segment)
        self.assertEqual(len(b"".join(self.taken)), taken)
        blob = frozenset({segment.blob})
        # The object before this one is garbage.
        self.driver.reactor.settle(self.driver.store.idle())
        self.assertEqual(self.driver.store.blobs.corrupt, blob)
        self.assertEqual(self.driver.store.catalog.corruptBlobs(), blob)
        self.assertRaises(CorruptBlob, self.read, segment)
        self.assertEqual(self.taken, [])

    def test_sound(self) -> None:
        """A sound blob comes whole, in pieces that are never large."""
        for size in SIZES:
            body = os.urandom(size)
            self.assertEqual(self.read(self.put(body)), body)
            self.assertLessEqual(max(map(len, self.taken)), PIECE)

    def test_part(self) -> None:
        """A part of a sound blob comes as it is."""
        body = os.urandom(2 * PIECE + 5)
        blob = self.put(body).blob
        for offset, length in ((0, 1), (1, PIECE), (PIECE - 1, PIECE + 2), (2 * PIECE + 4, 1)):
            found = self.read(Segment(blob, offset, length))
            self.assertEqual(found, body[offset : offset + length])

    def test_flippedBit(self) -> None:
        """Wherever a byte has changed, the last piece stays back, and the damage is noted."""
        for size, position in ((1, 0), (PIECE, 7), (3 * PIECE, 0), (2 * PIECE + 5, 2 * PIECE + 4)):
            body = os.urandom(size)
            segment = self.put(body)
            self.change(segment, position, bytes([body[position] ^ 1]))
            self.assertDamaged(segment, (size - 1) // PIECE * PIECE)

    def test_damageElsewhere(self) -> None:
        """No byte of a part is given where another part of its blob has changed."""
        body = os.urandom(2 * PIECE)
        segment = self.put(body)
        self.change(segment, 2 * PIECE - 1, bytes([body[-1] ^ 1]))
        self.assertDamaged(Segment(segment.blob, 0, 10), 0)

    def test_tooLong(self) -> None:
        """A blob with bytes behind its end is damaged; its reader could take it for whole."""
        segment = self.put(os.urandom(PIECE))
        self.change(segment, PIECE, b"!")
        self.assertDamaged(segment, 0)

    def test_shrinking(self) -> None:
        """A blob that is cut short while it is open is damaged."""
        segment = self.put(os.urandom(2 * PIECE))
        self.read(segment)
        os.truncate(BlobLayout(self.driver.directory).path(segment.blob), PIECE + 1)
        self.assertDamaged(segment, PIECE + 1)

    def test_unreadable(self) -> None:
        """A blob that the disk cannot read is damaged."""
        segment = self.put(os.urandom(2 * PIECE))
        self.files.arm(Fault(1, errno.EIO, only=frozenset({"read"})))
        self.assertDamaged(segment, 0)

    def test_notNoted(self) -> None:
        """A reader hears of the damage also where the catalog cannot note it."""
        body = os.urandom(100)
        segment = self.put(body)
        self.change(segment, 0, bytes([body[0] ^ 1]))
        self.driver.store.catalog._latch.set("no more")
        self.assertRaises(CorruptBlob, self.read, segment)
        self.assertEqual(self.taken, [])

    def test_slowReader(self) -> None:
        """The next piece is read when the reader wants it, and not before."""
        segment = self.put(os.urandom(3 * PIECE))
        waits: list[Deferred[None]] = []

        def take(piece: bytes) -> Deferred[None]:
            self.taken.append(piece)
            waits.append(Deferred())
            return waits[-1]

        reactor = self.driver.reactor
        done = Deferred.fromCoroutine(self.reader().read(segment, take))
        for count in (1, 2, 3):
            reactor.turnUntil(lambda count=count: len(waits) == count, lambda: None)
            self.assertEqual(self.files.namesCalled().count("read"), count)
            waits[-1].callback(None)
        reactor.settle(done)

    def test_inline(self) -> None:
        """Bytes in the catalog that have changed, or are gone, are not given out."""
        self.driver.inlineLimit = 100
        for key in (b"changed", b"gone", b"sound"):
            self.driver.put("b", key, key)
        self.driver.close()
        connection = sqlite3.connect(os.path.join(self.driver.directory, "catalog.sqlite"))
        with connection:
            connection.execute(
                "UPDATE inline SET bytes = X'00' WHERE bytes = CAST('changed' AS BLOB)"
            )
            connection.execute("DELETE FROM inline WHERE bytes = CAST('gone' AS BLOB)")
        connection.close()
        self.driver.open()

        def verified(key: bytes) -> Any:
            found = self.driver.store.catalog.object("b", key, verify=True)
            return self.driver.reactor.settle(found)[1]

        self.assertRaises(CorruptObject, verified, b"changed")
        self.assertRaises(CorruptObject, verified, b"gone")
        self.assertEqual(verified(b"sound").content.inline, b"sound")
