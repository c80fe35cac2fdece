"""The marks of a migration."""

import msgspec
from twisted.trial.unittest import SynchronousTestCase

from storagegate.cluster.tables import START, TABLES
from storagegate.migration.marks import FILLING, FOLLOWING, MOVED, Mark, movedMark, newMarks


class MarkTests(SynchronousTestCase):
    """L{Mark}."""

    def test_new(self) -> None:
        """The source serves and the target does not; both have the id of the migration."""
        source, target = newMarks("here", "there")
        self.assertEqual((source.state, source.peer, source.refuses), (FOLLOWING, "there", ""))
        self.assertEqual((target.state, target.peer), (FILLING, "here"))
        self.assertIn("target of a migration from here", target.refuses)
        self.assertEqual(source.id, target.id)
        self.assertNotEqual(source.id, newMarks("here", "there")[0].id)

    def test_moved(self) -> None:
        """A source that was switched refuses to serve, and says where its objects are."""
        mark = movedMark(newMarks("here", "there")[0])
        self.assertEqual(mark.state, MOVED)
        self.assertIn("was migrated to there", mark.refuses)

    def test_position(self) -> None:
        """A position goes through all tables and ends after the last."""
        mark = newMarks("here", "there")[1]
        first, *_, last = TABLES
        self.assertEqual(mark.position, (first, START))
        key = (1, b"k", 2, "")
        self.assertEqual(mark.at(first, key).position, (first, key))
        self.assertEqual(mark.at(first, None).position, (TABLES[1], START))
        self.assertEqual(mark.at(last, None).position, (None, START))

    def test_durable(self) -> None:
        """A mark is read from the catalog as it was written."""
        mark = newMarks("here", "there")[1].at(TABLES[1], (1, b"k\xff", 2, "v"))
        self.assertEqual(msgspec.json.decode(msgspec.json.encode(mark), type=Mark), mark)
