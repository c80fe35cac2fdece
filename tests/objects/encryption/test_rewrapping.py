"""Bucket keys that are wrapped under the last versions of their master keys."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from storagegate.objects.encryption.bucketkeys import BucketKeys, keysIn
from storagegate.objects.encryption.masterkeys.file import FileMasterKeys
from storagegate.objects.encryption.masterkeys.keyfile import DEFAULT_KEY
from storagegate.objects.encryption.rewrapping import PAGE, RewrapResult, rewrapPage
from storagegate.objects.errors import MasterKeysUnavailable
from storagegate.storage.errors import NoSuchBucket, SettingsChanged
from storagegate.storage.mutations import PutSettings
from storagegate.storage.records import KEYED


class SettingsCatalog:
    """
    The settings of buckets in memory.

    @ivar buckets: The settings by bucket.
    @ivar onCommit: Called before each change.
    """

    def __init__(self) -> None:
        self.buckets: dict[str, dict[str, bytes]] = {}
        self.onCommit: Any = None

    async def settings(self, bucket: str) -> tuple[int, Mapping[str, bytes]]:
        """Read the settings of a bucket."""
        if bucket not in self.buckets:
            raise NoSuchBucket(bucket)
        return 1, dict(self.buckets[bucket])

    async def bucketsWith(self, setting: str, after: str, limit: int) -> list[str]:
        """List the buckets that have a setting."""
        found = (name for name, kept in self.buckets.items() if setting in kept and name > after)
        return sorted(found)[:limit]

    async def commit(self, change: PutSettings) -> int:
        """Change settings by compare and set."""
        if self.onCommit is not None:
            self.onCommit()
        kept = self.buckets[change.bucket]
        if any(kept.get(name) != document for name, document in change.expected.items()):
            raise SettingsChanged
        kept.update({name: each for name, each in change.documents.items() if each is not None})
        return 1


class RewrapTests(SynchronousTestCase):
    """Pages of buckets with keys in a file."""

    def setUp(self) -> None:
        """Make more buckets than a page has, each with a key, and one without."""
        directory = Path(self.mktemp())
        directory.mkdir()
        self.catalog: Any = SettingsCatalog()

        async def nothing(most: int) -> list[str]:
            return []

        path = str(directory.absolute() / "master-keys")
        self.masterKeys = FileMasterKeys(path, Clock(), maybeDeferred, nothing, True, 0)
        self.catalog.buckets = {f"b{number:03}": {} for number in range(PAGE + 5)}
        self.keys = {name: self.open(name) for name in self.catalog.buckets}
        self.catalog.buckets["plain"] = {}

    def wait(self, awaitable: Any) -> Any:
        """Return the result of a coroutine."""
        return self.successResultOf(Deferred.fromCoroutine(awaitable))

    def open(self, bucket: str) -> bytes:
        """Return the open key of a bucket in another process, which is made if it is absent."""
        keys = BucketKeys(self.catalog, lambda: self.masterKeys, lambda: 1.0, 300, float)
        documents = self.catalog.buckets[bucket]
        found: bytes
        _, found = self.wait(keys.forMaster(bucket, documents, DEFAULT_KEY))
        return found

    def rewrap(self, after: str = "") -> RewrapResult:
        """Rewrap a page."""
        found: RewrapResult = self.wait(rewrapPage(self.catalog, self.masterKeys, after))
        return found

    def test_pages(self) -> None:
        """Each key is wrapped anew once, page by page, and stays the same key."""
        self.assertNotIn(KEYED, self.catalog.buckets["plain"])
        self.assertEqual(self.rewrap().current, PAGE)
        self.wait(self.masterKeys.rotate(DEFAULT_KEY))
        first = self.rewrap()
        self.assertEqual((first.rewrapped, first.current, first.next), (PAGE, 0, f"b{PAGE - 1:03}"))
        # A repetition after a stop leaves them alone.
        self.assertEqual(self.rewrap().current, PAGE)
        last = self.rewrap(first.next or "")
        self.assertEqual((last.rewrapped, last.current, last.next), (5, 0, None))
        self.assertEqual({name: self.open(name) for name in self.keys}, self.keys)
        for name in self.keys:
            [key] = keysIn(self.catalog.buckets[name]).values()
            self.assertTrue(self.masterKeys.isCurrent(DEFAULT_KEY, key.wrapped))

    def test_race(self) -> None:
        """A key that another process has rewrapped is not overwritten."""
        self.wait(self.masterKeys.rotate(DEFAULT_KEY))

        def interfere() -> None:
            self.catalog.onCommit = None
            self.rewrap()

        self.catalog.onCommit = interfere
        found = self.rewrap()
        self.assertEqual((found.rewrapped, found.current), (0, PAGE))
        self.assertEqual({name: self.open(name) for name in self.keys}, self.keys)

    def test_failed(self) -> None:
        """A key that does not open is named with its bucket, and the others are rewrapped."""
        buckets = self.catalog.buckets
        [(_, document)] = [each for each in buckets["b001"].items() if each[0] != KEYED]
        [setting] = [name for name in buckets["b002"] if name != KEYED]
        buckets["b002"][setting] = document
        self.wait(self.masterKeys.rotate(DEFAULT_KEY))
        found = self.rewrap()
        self.assertEqual(found.rewrapped, PAGE - 1)
        [failed] = found.failed
        self.assertIn("b002", failed)

    def test_unproven(self) -> None:
        """A key that would not open again stays wrapped as it is: it has no other copy."""
        self.wait(self.masterKeys.rotate(DEFAULT_KEY))
        before = {name: dict(each) for name, each in self.catalog.buckets.items()}
        wrap = self.masterKeys.wrap
        for isOther in (False, True):

            async def wrong(
                name: str, plain: bytes, binding: bytes, isOther: bool = isOther
            ) -> str:
                """Wrap another key, or for another bucket."""
                if isOther:
                    return await wrap(name, plain[::-1], binding)
                return await wrap(name, plain, binding + b"x")

            self.patch(self.masterKeys, "wrap", wrong)
            found = self.rewrap()
            self.assertEqual((found.rewrapped, len(found.failed)), (0, PAGE))
            self.assertEqual(self.catalog.buckets, before)
        self.patch(self.masterKeys, "wrap", wrap)
        self.assertEqual(self.rewrap().rewrapped, PAGE)
        self.assertEqual({name: self.open(name) for name in self.keys}, self.keys)

    def test_unavailable(self) -> None:
        """Without the provider nothing is changed."""
        self.wait(self.masterKeys.close())
        before = {name: dict(each) for name, each in self.catalog.buckets.items()}
        self.failureResultOf(
            Deferred.fromCoroutine(rewrapPage(self.catalog, self.masterKeys, "")),
            MasterKeysUnavailable,
        )
        self.assertEqual(self.catalog.buckets, before)
