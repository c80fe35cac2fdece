"""Records that are kept for the next reader."""

from twisted.trial.unittest import SynchronousTestCase

from storagegate.storage.embedded.catalog import RecordCache
from storagegate.storage.records import NULL_VERSION, Attributes, Bucket, Content, ObjectRecord

HOME = Bucket("home", "ada", 0, "us-east-1")


def record(key: bytes, size: int = 0, versionId: str = NULL_VERSION) -> ObjectRecord:
    """A record with C{size} inline bytes."""
    content = Content(size, b"x" * size)
    return ObjectRecord("home", key, size, "etag", 0, "ada", Attributes(), content, versionId)


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

    def test_versions(self) -> None:
        """Versions are found by their ids, and the current object without one or by its own."""
        cache = RecordCache()
        old, current = record(b"a", 1, "v1"), record(b"a", 2, "v2")
        cache.add(HOME, old, "v1")
        self.assertIsNone(cache.find("home", b"a"))
        cache.add(HOME, current)
        found = [cache.find("home", b"a", each) for each in ("v1", "v2", None, "v3", NULL_VERSION)]
        self.assertEqual(found, [(HOME, old), (HOME, current), (HOME, current), None, None])

    def test_changedKeyHasNoVersions(self) -> None:
        """With a name all versions of it are forgotten, those that had to make room too."""
        cache = RecordCache()
        for _ in range(2):
            for number in range(3):
                cache.add(HOME, record(b"a", versionId=f"v{number}"), f"v{number}")
            cache.add(HOME, record(b"b", versionId="v1"), "v1")
            cache.forget([("home", b"a")])
            found = [cache.find("home", b"a", f"v{number}") for number in range(3)]
            self.assertEqual(found, [None] * 3)
            self.assertIsNotNone(cache.find("home", b"b", "v1"))

    def test_changedBucketHasNoVersions(self) -> None:
        """With a bucket all versions in it are forgotten: each is kept with the bucket."""
        cache = RecordCache()
        cache.add(HOME, record(b"a", versionId="v1"), "v1")
        cache.forget([("home", b"")])
        self.assertIsNone(cache.find("home", b"a", "v1"))
        cache.add(HOME, record(b"a", versionId="v1"), "v1")
        cache.clear()
        self.assertIsNone(cache.find("home", b"a", "v1"))

    def test_versionsAreBounded(self) -> None:
        """Versions and current objects have one bound; their room is given back, however often."""
        cache = RecordCache(limit=5 * 2048)
        for _ in range(100):
            for number in range(8):
                cache.add(HOME, record(b"a", 1024, f"v{number}"), f"v{number}")
            cache.add(HOME, record(b"a", 1024))
            kept = [cache.find("home", b"a", f"v{number}") for number in range(8)]
            self.assertLessEqual(sum(each is not None for each in kept), 5)
            cache.forget([("home", b"a")])
        for key in (b"a", b"b", b"c"):
            cache.add(HOME, record(key, 1024))
        cache.add(HOME, record(b"d", 1024, "v1"), "v1")
        cache.add(HOME, record(b"e", 1024, "v1"), "v1")
        for key, versionId in (
            (b"a", None),
            (b"b", None),
            (b"c", None),
            (b"d", "v1"),
            (b"e", "v1"),
        ):
            self.assertIsNotNone(cache.find("home", key, versionId), key)
