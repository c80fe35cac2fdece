"""Reads over a network that are compared with the checksum of the catalog."""

from typing import Any

from twisted.internet.defer import Deferred, succeed
from twisted.internet.task import Clock

from storagegate.core.files import crc32c
from storagegate.storage.cluster.blobs.pieces import PieceRange
from storagegate.storage.errors import CorruptBlob, StoreBusy
from storagegate.storage.mutations import ClearCorrupt, MarkCorrupt, Mutation
from storagegate.storage.records import BlobRow, Segment
from storagegate.storage.scrub import CorruptionLog, Reexamination, Scrubber, VerifyingReader
from tests.contract.blobs import store
from tests.storage.cluster.blobs.test_pieces import PieceCase

BODY = bytes(range(250))


class Rows:
    """The part of a catalog that has rows of blobs."""

    def __init__(self) -> None:
        self.row: BlobRow | None = None
        self.marked: list[str] = []

    async def blobRow(self, id: str) -> BlobRow | None:
        """Look the blob up."""
        return self.row

    async def referenced(self, ids: list[str]) -> list[str]:
        """Say that all are needed."""
        return ids

    def commit(self, mutation: Mutation[Any]) -> Any:
        """Note a mark, or take it away."""
        match mutation:
            case MarkCorrupt(blob):
                self.marked.append(blob)
            case ClearCorrupt(blob):
                self.marked.remove(blob)
        return succeed(None)


class RemoteReadTests(PieceCase):
    """A blob of three pieces of 100 bytes; the store returns some of them wrong."""

    def setUp(self) -> None:
        """Store the blob."""
        self.blobs = self.made(100, growsPieces=True)
        [self.segment] = self.settle(store(self.blobs, BODY, step=100)).segments
        self.catalog = Rows()
        self.catalog.row = BlobRow(self.segment.blob, 250, crc32c(BODY), 1, False)
        self.report = CorruptionLog(self.catalog, self.blobs.markCorrupt, self.blobs.clearCorrupt)
        self.examination = Reexamination(self.catalog, self.blobs, Clock(), self.report)
        self.blobs.reexamine = self.examination.examine
        self.wrong: dict[str, int] = {}
        self.taken: list[bytes] = []
        right = self.pieces.get

        def get(name: str, offset: int, length: int) -> Any:
            def lie(found: PieceRange) -> PieceRange:
                number = name.rpartition(".")[2]
                if self.wrong.get(number, 0):
                    self.wrong[number] -= 1
                    return found._replace(body=bytes(len(found.body)))
                return found

            return right(name, offset, length).addCallback(lie)

        self.pieces.get = get

    def read(self, offset: int = 0, length: int = 250) -> bytes:
        """Read a part of the blob."""
        self.taken.clear()
        reader = VerifyingReader(self.catalog, self.blobs, self.report, False)
        segment = Segment(self.segment.blob, offset, length)
        self.settle(reader.read(segment, self.taken.append))
        return b"".join(self.taken)

    def assertRefused(self, error: type[Exception], offset: int = 0, length: int = 250) -> None:
        """Check that a read fails, and has not sent all."""
        reader = VerifyingReader(self.catalog, self.blobs, self.report, False)
        self.taken.clear()
        segment = Segment(self.segment.blob, offset, length)
        self.failureResultOf(Deferred.fromCoroutine(reader.read(segment, self.taken.append)), error)
        self.assertLess(sum(map(len, self.taken)), length)

    def test_right(self) -> None:
        """All ranges of a right blob are sent."""
        for offset, length in ((0, 250), (0, 1), (99, 2), (249, 1), (50, 200), (100, 100)):
            self.assertEqual(self.read(offset, length), BODY[offset : offset + length])

    def test_wrongOnce(self) -> None:
        """
        Where nothing was sent a wrong answer is replaced by the next; else the response is cut. The
        blob is not marked.
        """
        for offset, length in ((5, 10), (120, 50), (240, 10)):
            for number in "012":
                self.wrong = {number: 1}
                self.assertEqual(self.read(offset, length), BODY[offset : offset + length])
        self.wrong = {"2": 1}
        self.assertRefused(StoreBusy)
        self.assertEqual((self.catalog.marked, self.blobs.corrupt), ([], frozenset()))
        self.assertEqual(self.read(), BODY)

    def test_scrub(self) -> None:
        """The scrubber reads a blob once more before it marks the blob, and takes a mark away."""
        clock = Clock()
        scrubber = Scrubber(self.catalog, self.blobs, clock, self.report, 1 << 40)
        for wrong, marked in ((1, []), (99, [self.segment.blob]), (0, [])):
            self.wrong = {"1": wrong}
            done = Deferred.fromCoroutine(scrubber._check(self.catalog.row))
            clock.pump([1] * 9)
            self.successResultOf(done)
            self.assertEqual(self.catalog.marked, marked)
            self.assertEqual(sorted(self.blobs.corrupt), marked)

    def test_wrongAlways(self) -> None:
        """A blob that stays wrong is marked, and read again when it may be right."""
        for offset, length in ((0, 250), (5, 10)):
            self.wrong = {"1": 99}
            self.assertRefused(CorruptBlob, offset, length)
            self.assertEqual(self.catalog.marked, [self.segment.blob])
            self.wrong = {}
            self.assertEqual(self.read(offset, length), BODY[offset : offset + length])
            self.assertEqual((self.catalog.marked, self.blobs.corrupt), ([], frozenset()))
            self.examination._clock.advance(11)
