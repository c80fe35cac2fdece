"""Records that are kept for the next reader."""

from twisted.trial.unittest import SynchronousTestCase

from storagegate.storage.catalog.cache import RecordCache
from storagegate.storage.records import Attributes, Bucket, Content, ObjectRecord

HOME = Bucket("home", "ada", 0, "us-east-1")


def record(key: bytes, size: int = 0) -> ObjectRecord:
    """A record with C{size} inline bytes."""
    content = Content(size, b"x" * size)
    return ObjectRecord("home", key, size, "etag", 0, "ada", Attributes(), content)


class HotRecordsTests(SynchronousTestCase):
    """L{RecordCache}."""

    def test_keepsAndForgets(self) -> None:
        """A record is found until its name is forgotten; a newer one takes its place."""
        hot = RecordCache()
        self.assertIsNone(hot.find("home", b"a"))
        for each in (record(b"a"), record(b"a", 7)):
            hot.keep(HOME, each)
            self.assertEqual(hot.find("home", b"a"), (HOME, each))
        hot.forget([("home", b"other"), ("home", b"a")])
        self.assertIsNone(hot.find("home", b"a"))

    def keepUntilIn(self, hot: RecordCache, each: ObjectRecord) -> None:
        """Offer a record until it is let in."""
        for _ in range(100):
            hot.keep(HOME, each)
            if hot.find("home", each.key) is not None:
                return
        self.fail("it was never let in")

    def test_bounded(self) -> None:
        """Where it is full the longest unread makes room; what is read stays."""
        hot = RecordCache(limit=10 * 2048)
        for number in range(10):
            hot.keep(HOME, record(b"%d" % number, 1024))
        hot.find("home", b"0")
        for number in (10, 11):
            self.keepUntilIn(hot, record(b"%d" % number, 1024))
        kept = [n for n in range(12) if hot.find("home", b"%d" % n) is not None]
        self.assertEqual(kept, [0, 3, 4, 5, 6, 7, 8, 9, 10, 11])

    def test_roundsOverMoreThanFits(self) -> None:
        """A round that is too long for it leaves most of what it holds where it is."""
        hot = RecordCache(limit=100 * 2048)
        hits = 0
        for _ in range(20):
            for number in range(125):
                if hot.find("home", b"%d" % number) is not None:
                    hits += 1
                else:
                    hot.keep(HOME, record(b"%d" % number, 1024))
        self.assertGreater(hits, 20 * 125 // 2)

    def test_weightIsGivenBack(self) -> None:
        """Forgetting and replacing give their room back, however often."""
        hot = RecordCache(limit=5 * 2048)
        for _ in range(100):
            hot.keep(HOME, record(b"a", 1024))
            hot.keep(HOME, record(b"b", 1024))
            hot.forget([("home", b"b")])
        for key in (b"b", b"c", b"d"):
            hot.keep(HOME, record(key, 1024))
        for key in (b"a", b"b", b"c", b"d"):
            self.assertIsNotNone(hot.find("home", key), key)

    def test_buckets(self) -> None:
        """A bucket is found until it is forgotten by its name with no key; they are bounded."""
        hot = RecordCache()
        hot.keepBucket(HOME)
        hot.forget([("home", b"a"), ("other", b"")])
        self.assertEqual(hot.findBucket("home"), HOME)
        hot.forget([("home", b"")])
        self.assertIsNone(hot.findBucket("home"))
        for number in range(5000):
            hot.keepBucket(Bucket(str(number), "ada", 0, ""))
        kept = sum(hot.findBucket(str(number)) is not None for number in range(5000))
        self.assertLessEqual(kept, 1024)

    def test_tooLarge(self) -> None:
        """A record larger than all of the room is not kept, and nothing is owed for it."""
        hot = RecordCache(limit=2048)
        hot.keep(HOME, record(b"a", 4096))
        self.assertIsNone(hot.find("home", b"a"))
        hot.keep(HOME, record(b"b", 100))
        self.assertIsNotNone(hot.find("home", b"b"))
