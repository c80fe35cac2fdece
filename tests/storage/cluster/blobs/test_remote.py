"""The removal of uploads that failed."""

from twisted.internet.task import Clock
from twisted.trial.unittest import TestCase

from storagegate.storage.cluster.blobs.pieces import MissingPiece
from storagegate.storage.cluster.blobs.remote import UploadRemovals
from storagegate.storage.errors import StoreBusy


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
