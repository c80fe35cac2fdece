"""Blobs that are copied from one store to another, both in memory."""

from collections.abc import AsyncIterator
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from storagegate.cluster.blobcopier import BlobCopier, MissingBlob, PieceEnd
from storagegate.cluster.tables import MigrationError
from storagegate.core.files import crc32c
from storagegate.storage.errors import StoreBusy
from tests.storage.cluster.blobs.test_pieces import MemoryPieces
from tests.support.selection import long

BLOB = "0123456789abcdef" * 2


class MemoryEnd:
    """Blobs in memory, which come in pieces of seven bytes."""

    def __init__(self) -> None:
        self.blobs: dict[str, bytes] = {}

    async def read(self, blob: str, size: int) -> AsyncIterator[bytes]:
        """Yield the bytes."""
        if blob not in self.blobs:
            raise MissingBlob(blob)
        body = self.blobs[blob]
        for start in range(0, len(body), 7):
            yield body[start : start + 7]

    async def write(self, blob: str, chunks: AsyncIterator[bytes]) -> None:
        """Keep the bytes."""
        self.blobs[blob] = b"".join([chunk async for chunk in chunks])

    async def remove(self, blob: str) -> None:
        """Forget them."""
        self.blobs.pop(blob, None)


class OccupiedPieces(MemoryPieces):
    """Pieces that do not replace others, as those of RADOS and of files."""

    def put(self, name: str, offset: int, body: Any, isLast: bool) -> Any:
        """Write a piece."""

        def refuse() -> None:
            raise FileExistsError(name)

        if not offset and name in self.pieces:
            return Deferred.fromCoroutine(_raise(refuse))
        return super().put(name, offset, body, isLast)


async def _raise(function: Any) -> None:
    function()


def rowOf(body: bytes, damaged: bool = False) -> tuple[Any, ...]:
    """Return the row of a blob."""
    return BLOB, len(body), crc32c(body, 0), 1, damaged


class CopyTests(SynchronousTestCase):
    """L{BlobCopier}."""

    def setUp(self) -> None:
        self.source = MemoryEnd()
        self.clock = Clock()

    def copy(self, target: Any, row: tuple[Any, ...]) -> Deferred[list[str]]:
        """Copy a blob."""
        copier = BlobCopier(self.source, target, self.clock)
        return Deferred.fromCoroutine(copier.copy([row]))

    @long("takes a second or more")
    @given(st.integers(0, 1000), st.integers(1, 300), st.booleans())
    def test_pieces(self, size: int, pieceSize: int, grows: bool) -> None:
        """A blob of any size in pieces of any size, there and back, and removed without a rest."""
        body = bytes(number % 251 for number in range(size))
        self.source = MemoryEnd()
        self.source.blobs[BLOB] = body
        pieces = MemoryPieces(pieceSize, grows)
        cluster = PieceEnd(pieces)
        self.assertEqual(self.successResultOf(self.copy(cluster, rowOf(body))), [])
        back = MemoryEnd()
        copier = BlobCopier(cluster, back, self.clock)
        copied = Deferred.fromCoroutine(copier.copy([rowOf(body)]))
        self.assertEqual(self.successResultOf(copied), [])
        self.assertEqual(back.blobs[BLOB], body)
        self.successResultOf(Deferred.fromCoroutine(cluster.remove(BLOB)))
        self.assertEqual(pieces.pieces, {})

    def test_again(self) -> None:
        """What an earlier run has left of a blob is removed first."""
        self.source.blobs[BLOB] = body = b"x" * 350
        pieces = OccupiedPieces(100, True)
        pieces.pieces = {f"{BLOB}.0": b"y" * 100, f"{BLOB}.1": b"y" * 30}
        self.assertEqual(self.successResultOf(self.copy(PieceEnd(pieces), rowOf(body))), [])
        whole = b"".join(pieces.pieces[f"{BLOB}.{number}"] for number in range(4))
        self.assertEqual(whole, body)

    def test_intact(self) -> None:
        """A restore keeps a blob that the target has, and replaces one with other bytes."""
        for there, copies in ((b"right", b"rotten"), (b"rotten", b"right")):
            target = MemoryEnd()
            self.source.blobs[BLOB], target.blobs[BLOB] = copies, there
            copier = BlobCopier(self.source, target, self.clock, keepsIntact=True)
            copied = Deferred.fromCoroutine(copier.copy([rowOf(b"right")]))
            self.assertEqual(self.successResultOf(copied), [])
            self.assertEqual(target.blobs[BLOB], b"right")

    def test_gone(self) -> None:
        """A blob that is missing, or has other bytes than its row says, is named."""
        target = MemoryEnd()
        self.assertEqual(self.successResultOf(self.copy(target, rowOf(b"a"))), [BLOB])
        self.source.blobs[BLOB] = b"b"
        self.assertEqual(self.successResultOf(self.copy(target, rowOf(b"a"))), [BLOB])
        # Of one that is known to be damaged there is what there is.
        self.assertEqual(self.successResultOf(self.copy(target, rowOf(b"a", True))), [])
        self.assertEqual(target.blobs, {BLOB: b"b"})

    def test_forgetful(self) -> None:
        """A target that has other bytes than were written to it ends the migration."""
        self.source.blobs[BLOB] = b"bytes"
        target = MemoryEnd()

        async def write(blob: str, chunks: AsyncIterator[bytes]) -> None:
            async for _ in chunks:
                target.blobs[blob] = b"other"

        target.write = write  # type: ignore[method-assign]
        self.failureResultOf(self.copy(target, rowOf(b"bytes")), MigrationError)

    def test_busy(self) -> None:
        """A target that is away for seconds is waited for; one that stays away is not."""
        self.source.blobs[BLOB] = b"bytes"
        pieces = MemoryPieces(100, True)
        pieces.fails = StoreBusy("away")
        copied = self.copy(PieceEnd(pieces), rowOf(b"bytes"))
        self.clock.advance(1)
        self.assertNoResult(copied)
        pieces.fails = None
        self.clock.advance(1)
        self.assertEqual(self.successResultOf(copied), [])
        pieces.fails = StoreBusy("away")
        copied = self.copy(PieceEnd(pieces), rowOf(b"bytes"))
        self.clock.pump([1] * 20)
        self.failureResultOf(copied, StoreBusy)
