"""The removal of uploads that failed, and the end of the store of blobs."""

from collections.abc import Sequence
from typing import Any

from twisted.internet.defer import Deferred, succeed
from twisted.internet.task import Clock
from twisted.trial.unittest import TestCase

from storagegate.storage.blobids import blobId
from storagegate.storage.cluster.blobs.pieces import MARKER, UNLIMITED, MissingPiece, PieceRange
from storagegate.storage.cluster.blobs.remote import RemoteBlobs, UploadRemovals
from storagegate.storage.errors import StoreBusy
from storagegate.storage.files import FailStopLatch
from tests.support.pools import ImmediatePool

STORE = "0123456789abcdef0123456789abcdef"


class UploadRemovalsTests(TestCase):
    """A store that is away for a while."""

    def test_away(self) -> None:
        """An upload is removed when the store is back, and those after it; also of a directory."""
        errors = [StoreBusy("away"), MissingPiece("directory"), OSError(5, "broken")]
        asked: list[str] = []
        removed: list[str] = []

        async def remove(blob: str) -> None:
            asked.append(blob)
            if errors:
                raise errors.pop(0)

        clock = Clock()
        removals = UploadRemovals(remove, clock, 60.0, removed.append)
        removals.add("a", False)
        removals.add("b", False)
        for seconds in (0.5, 1.0, 2.0):
            self.assertEqual(removed, [])
            clock.advance(seconds)
        self.assertEqual((asked, removed), (["a", "a", "a", "a", "b"], ["a", "b"]))


class HeldPieces:
    """
    A piece store in memory, whose reads of blobs wait for the test.

    @ivar reads: The names and Deferreds of the reads that wait.
    """

    name = "held pieces"
    pieceSize = UNLIMITED
    growsPieces = True
    bufferSize = buffersSize = 1 << 20
    unconfirmedWrites = rereads = 0
    onError: Any = None

    def __init__(self, store: str) -> None:
        self.pieces = {MARKER: store.encode()}
        self.reads: list[tuple[str, Deferred[PieceRange]]] = []
        self.isClosed = False

    def put(self, name: str, offset: int, body: Sequence[Any], isLast: bool) -> Deferred[None]:
        """Write a piece at once."""
        self.pieces[name] = b"".join(body)
        return succeed(None)

    def get(self, name: str, offset: int, length: int) -> Deferred[PieceRange]:
        """Read the marker at once; others wait."""
        if name == MARKER:
            return succeed(self.read(name))
        self.reads.append((name, Deferred()))
        return self.reads[-1][1]

    def read(self, name: str) -> PieceRange:
        """Return the content of a piece."""
        return PieceRange(self.pieces[name], len(self.pieces[name]))

    def remove(self, name: str) -> Deferred[bool]:
        """Remove a piece at once."""
        return succeed(self.pieces.pop(name, None) is not None)

    def close(self) -> Deferred[None]:
        """Record the call."""
        self.isClosed = True
        return succeed(None)


class CloseTests(TestCase):
    """The end of the store of blobs."""

    def test_probe(self) -> None:
        """
        A probe in progress ends first, so its blob is removed and its number is settled; later
        health checks start no other.
        """
        clock, pieces, settled = Clock(), HeldPieces(STORE), []
        blobs = RemoteBlobs(
            pieces,
            ImmediatePool(),
            clock,
            lambda bucket: blobId(1, 0),
            STORE,
            FailStopLatch(),
        )
        blobs.onRemoved = settled.append
        clock.advance(60)
        [(name, read)] = pieces.reads
        closing = Deferred.fromCoroutine(blobs.close())
        clock.advance(0)
        self.assertFalse(pieces.isClosed)
        blobs.health()
        read.callback(pieces.read(name))
        self.successResultOf(closing)
        self.assertEqual((settled, set(pieces.pieces)), ([name], {MARKER}))
        self.assertEqual((pieces.isClosed, len(pieces.reads)), (True, 1))
