"""Records that are kept for the next reader."""

from twisted.trial.unittest import SynchronousTestCase

from storagegate.storage.catalog.sqlite import RecordCache
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
        cache = RecordCache()
        self.assertIsNone(cache.find("home", b"a"))
        for each in (record(b"a"), record(b"a", 7)):
            cache.add(HOME, each)
            self.assertEqual(cache.find("home", b"a"), (HOME, each))
        cache.forget([("home", b"other"), ("home", b"a")])
        self.assertIsNone(cache.find("home", b"a"))

    def keepUntilIn(self, cache: RecordCache, each: ObjectRecord) -> None:
        """Offer a record until it is let in."""
        for _ in range(100):
            cache.add(HOME, each)
            if cache.find("home", each.key) is not None:
                return
        self.fail("it was never let in")

    def test_bounded(self) -> None:
        """Where it is full the longest unread makes room; what is read stays."""
        cache = RecordCache(limit=10 * 2048)
        for number in range(10):
            cache.add(HOME, record(b"%d" % number, 1024))
        cache.find("home", b"0")
        for number in (10, 11):
            self.keepUntilIn(cache, record(b"%d" % number, 1024))
        kept = [n for n in range(12) if cache.find("home", b"%d" % n) is not None]
        self.assertEqual(kept, [0, 3, 4, 5, 6, 7, 8, 9, 10, 11])

    def test_roundsOverMoreThanFits(self) -> None:
        """A round that is too long for it leaves most of what it holds where it is."""
        cache = RecordCache(limit=100 * 2048)
        hits = 0
        for _ in range(20):
            for number in range(125):
                if cache.find("home", b"%d" % number) is not None:
                    hits += 1
                else:
                    cache.add(HOME, record(b"%d" % number, 1024))
        self.assertGreater(hits, 20 * 125 // 2)

    def test_weightIsGivenBack(self) -> None:
        """Forgetting and replacing give their room back, however often."""
        cache = RecordCache(limit=5 * 2048)
        for _ in range(100):
            cache.add(HOME, record(b"a", 1024))
            cache.add(HOME, record(b"b", 1024))
            cache.forget([("home", b"b")])
        for key in (b"b", b"c", b"d"):
            cache.add(HOME, record(key, 1024))
        for key in (b"a", b"b", b"c", b"d"):
            self.assertIsNotNone(cache.find("home", key), key)

    def test_buckets(self) -> None:
        """A bucket is found until it is forgotten by its name with no key; they are bounded."""
        cache = RecordCache()
        cache.addBucket(HOME)
        cache.forget([("home", b"a"), ("other", b"")])
        self.assertEqual(cache.findBucket("home"), HOME)
        cache.forget([("home", b"")])
        self.assertIsNone(cache.findBucket("home"))
        for number in range(5000):
            cache.addBucket(Bucket(str(number), "ada", 0, ""))
        kept = sum(cache.findBucket(str(number)) is not None for number in range(5000))
        self.assertLessEqual(kept, 1024)

    def test_tooLarge(self) -> None:
        """A record larger than all of the room is not kept, and nothing is owed for it."""
        cache = RecordCache(limit=2048)
        cache.add(HOME, record(b"a", 4096))
        self.assertIsNone(cache.find("home", b"a"))
        cache.add(HOME, record(b"b", 100))
        self.assertIsNotNone(cache.find("home", b"b"))
