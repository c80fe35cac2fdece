"""A disk that is really full."""

import contextlib
import os
import subprocess

from twisted.logger import LogEvent, formatEvent, globalLogPublisher
from twisted.trial.unittest import SkipTest, SynchronousTestCase

from storagegate.storage.embedded.fsck import check
from storagegate.storage.embedded.opening import prepareStore
from storagegate.storage.errors import StoreFull
from storagegate.storage.files import Files
from tests.support.selection import long
from tests.support.stores import StoreDriver


class FullDiskTests(SynchronousTestCase):
    """A store on a file system of one megabyte."""

    def setUp(self) -> None:
        if os.geteuid() != 0:
            raise SkipTest("only root may mount a file system of a megabyte")
        self.mount = os.path.abspath(self.mktemp())
        os.mkdir(self.mount)
        mounted = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", self.mount],
            capture_output=True,
            check=False,
        )
        if mounted.returncode:
            raise SkipTest(f"no tmpfs here: {mounted.stderr.decode().strip()}")
        # Lazily: a test that fails leaves the store open.
        self.addCleanup(subprocess.run, ["umount", "--lazy", self.mount], check=True)
        self.directory = os.path.join(self.mount, "data")
        self.driver = StoreDriver(self.directory, Files())
        self.driver.createBucket("b")

    def fill(self, body: bytes) -> list[bytes]:
        """Store objects until the disk is full; return the keys of those that were stored."""
        keys: list[bytes] = []
        with self.assertRaises(StoreFull):
            for number in range(1000):
                self.driver.put("b", b"%d" % number, body)
                keys.append(b"%d" % number)
        self.assertGreater(len(keys), 3)
        return keys

    def assertServes(self, keys: list[bytes], body: bytes) -> None:
        """What was stored is there, and can be deleted."""
        self.assertEqual(self.driver.listing("b", b""), sorted(keys))
        for key in keys:
            self.assertEqual(self.driver.get("b", key), body)
        self.assertEqual(self.driver.delete("b", keys), [True] * len(keys))
        self.driver.reactor.settle(self.driver.store.idle())

    def assertSound(self) -> None:
        """Nothing of the refused is left."""
        self.assertIsNone(self.driver.store.readOnly)
        self.driver.close()
        problems: list[str] = []
        self.assertEqual((check(self.directory, False, True, problems.append), problems), (0, []))

    def test_blobs(self) -> None:
        """Full of files, the store serves and deletes; what was deleted makes room again."""
        body = os.urandom(40_000)
        for _ in range(3):
            self.assertServes(self.fill(body), body)
            self.driver.put("b", b"after", body)
            self.assertServes([b"after"], body)
        self.assertSound()

    def test_rows(self) -> None:
        """Full of rows, the store serves and deletes; what was deleted makes room again."""
        self.driver.inlineLimit = 64 * 1024
        for size in (20_000, 4_000, 20_000):
            body = os.urandom(size)
            stored = self.fill(body)
            self.assertGreater(len(stored) * size, 600_000)
            self.assertServes(stored, body)
        self.assertSound()

    def removeMarked(self, body: bytes) -> None:
        """
        Fill a bucket with versions, and its disk with delete markers; then remove all versions.

        Each delete that is refused leaves its key as it was.
        """
        self.driver.setVersioning("b", "Enabled")
        stored = self.fill(body)
        marked = refused = 0
        while refused < 20:
            self.assertLess(marked, 5000, "markers are never refused")
            key = stored[marked % len(stored)]
            before = self.driver.stack("b", key)
            try:
                (result,) = self.driver.delete("b", [key])
            except StoreFull as error:
                result = error
            if isinstance(result, StoreFull):
                refused += 1
                self.assertEqual(self.driver.stack("b", key), before)
            else:
                marked += 1
                self.assertEqual(self.driver.stack("b", key)[1:], before)
                self.assertIsNone(self.driver.get("b", key))
        for key in stored:
            for versionId, isDeleteMarker in self.driver.stack("b", key):
                if not isDeleteMarker:
                    self.assertEqual(self.driver.get("b", key, versionId), body)
                self.assertEqual(self.driver.deleteVersion("b", key, versionId), [True])
        self.assertEqual(self.driver.listed("b"), ([], []))
        self.driver.reactor.settle(self.driver.store.idle())
        self.driver.put("b", b"after", body)
        self.assertEqual(self.driver.delete("b", [b"after"]), [True])

    @long("takes seconds")
    def test_versionsInBlobs(self) -> None:
        """Delete markers leave the space that a delete by version takes; none is made by half."""
        self.removeMarked(os.urandom(40_000))
        self.assertSound()

    @long("takes seconds")
    def test_versionsInRows(self) -> None:
        """So do they where the rows of versions fill the disk."""
        self.driver.inlineLimit = 64 * 1024
        self.removeMarked(os.urandom(4_000))
        self.assertSound()

    def test_health(self) -> None:
        """A full disk shows in the health, and goes from it."""
        self.assertIsNone(self.driver.store.health()["disk"])
        ballast = os.path.join(self.mount, "ballast")
        with open(ballast, "wb") as file:
            file.write(bytes(300_000))
        self.fill(os.urandom(1000))
        self.assertRegex(self.driver.store.health()["disk"], "^[0-9]+ KiB are free$")
        os.unlink(ballast)
        self.assertIsNone(self.driver.store.health()["disk"])
        self.driver.close()

    def fillDisk(self) -> str:
        """Take all the room that is left; return the file that does."""
        ballast = os.path.join(self.mount, "ballast")
        with open(ballast, "ab", buffering=0) as file:
            for size in (4096, 1):
                with contextlib.suppress(OSError):
                    while file.write(bytes(size)):
                        pass
        return ballast

    def test_start(self) -> None:
        """A store that was closed on a full disk opens: C{reserve} has the room for that."""
        reserve = os.path.join(self.directory, "reserve")
        self.driver.put("b", b"kept", b"x" * 1000)
        for _ in range(3):
            self.driver.close()
            ballast = self.fillDisk()
            self.driver.open()
            self.assertEqual(self.driver.get("b", b"kept"), b"x" * 1000)
            # Some of it is kept, for the next start on this disk.
            self.assertGreater(os.stat(reserve).st_size, 0)
        whole = os.stat(reserve).st_size
        self.assertEqual(self.driver.delete("b", [b"kept"]), [True])
        self.driver.reactor.settle(self.driver.store.idle())
        os.unlink(ballast)
        self.driver.put("b", b"new", b"y" * 1000)
        self.assertGreater(os.stat(reserve).st_size, whole)
        self.assertSound()

    def test_startShared(self) -> None:
        """Several processes can serve a store that was closed on a full disk."""
        self.driver.close()
        self.fillDisk()
        prepareStore(self.directory).release()

    def test_fsck(self) -> None:
        """C{fsck} checks, and repairs, a store that was closed on a full disk."""
        self.driver.put("b", b"kept", b"x" * 1000)
        self.driver.close()
        self.fillDisk()
        for isRepair in (False, True):
            problems: list[str] = []
            self.assertEqual(check(self.directory, isRepair, True, problems.append), 0, problems)

    def test_inodes(self) -> None:
        """Without inodes large objects are refused as on a full disk, which is a warning."""
        subprocess.run(["mount", "-o", "remount,size=16m,nr_inodes=60", self.mount], check=True)
        self.assertIsNone(self.driver.store.warnings()["inodes"])
        body = b"x" * 1000
        keys = self.fill(body)
        self.assertRegex(self.driver.store.warnings()["inodes"], "^[0-2] inodes are free$")
        self.assertIsNone(self.driver.store.health()["blobs"])
        self.driver.inlineLimit = 2000
        self.driver.put("b", b"small", body)
        self.assertServes([*keys, b"small"], body)
        self.assertIsNone(self.driver.store.warnings()["inodes"])
        self.assertSound()

    def test_log(self) -> None:
        """A full disk is one line of the log, and its end is one."""
        lines: list[str] = []

        def observe(event: LogEvent) -> None:
            lines.append(formatEvent(event))

        globalLogPublisher.addObserver(observe)
        self.addCleanup(globalLogPublisher.removeObserver, observe)
        for limit in (100, 64 * 1024):
            lines.clear()
            self.driver.inlineLimit = limit
            keys = self.fill(os.urandom(30_000))
            for _ in range(3):
                self.driver.store.health()
                self.driver.reactor.advance(1)
                with self.assertRaises(StoreFull):
                    self.driver.put("b", b"more", os.urandom(50_000))
            self.driver.store.health()
            self.assertEqual([line for line in lines if "disk" in line], lines)
            self.assertEqual(len(lines), 1, lines)
            self.assertIn("the disk is full, only deletes work: ", lines[0])
            self.driver.delete("b", keys)
            self.driver.reactor.settle(self.driver.store.idle())
            for _ in range(20):
                self.driver.store.health()
                self.driver.reactor.advance(1)
            # The file of the rows does not shrink.
            self.assertEqual(lines[1:], ["the disk has space again"] * (limit == 100))
        self.assertSound()
