"""The copy of a store, while its objects come and go at the worst moments."""

import errno
import fcntl
import os
import shutil
import signal
import sqlite3
import stat
import tempfile
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from storagegate.storage.embedded import backup as backups
from storagegate.storage.embedded.backup import BackupError, backup
from storagegate.storage.embedded.logbinding import BINDING
from storagegate.storage.files import Files
from storagegate.storage.identity import MARKER
from storagegate.storage.layout import SESSIONS, BlobLayout
from tests.cli.test_main import ScriptCase
from tests.support.stores import StoreDriver, fastDirectory


class WatchedFiles(Files):
    """
    Files that call somebody before a blob gets its second name.

    @ivar before: Called with the blob's id, for each link under a directory of shards.
    """

    def __init__(self, before: Callable[[str], object] = lambda blob: None) -> None:
        self.before = before

    def link(self, source: str, target: str) -> None:
        """Call, then link."""
        if "/blobs/" in target:
            self.before(os.path.basename(target))
        super().link(source, target)


class FarFiles(WatchedFiles):
    """
    Files whose target is on another file system.

    @ivar far: What lies below this cannot be linked to.
    """

    far = ""

    def link(self, source: str, target: str) -> None:
        """Refuse as the system does."""
        if target.startswith(self.far):
            raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))
        super().link(source, target)


class BackupCase(SynchronousTestCase):
    """What the cases of this file share."""

    timeout = 60

    def setUp(self) -> None:
        """Make a store with objects in the catalog and in blobs."""
        directory = fastDirectory(self)
        self.target = os.path.join(os.path.dirname(directory), "copy")
        self.driver = StoreDriver(directory, Files())
        self.addCleanup(lambda: self.driver.close())
        self.reported: list[str] = []
        self.driver.createBucket("bucket")
        self.bodies = {b"small": b"inline", b"one": b"1" * 5000, b"two": b"2" * 300_000}
        for key, body in self.bodies.items():
            self.driver.put("bucket", key, body)

    def backUp(self, files: Files | None = None, verify: bool = True) -> int:
        """Copy the store, which is open."""
        data = self.driver.directory
        return backup(data, self.target, verify, self.reported.append, files)

    def copied(self) -> dict[bytes, bytes | None]:
        """Open the copy and read all of its objects."""
        copy = StoreDriver(self.target, Files())
        try:
            return {key: copy.get("bucket", key) for key in copy.listing("bucket", b"")}
        finally:
            copy.close()

    def blobsOf(self, directory: str) -> set[str]:
        """Give the names of the files under C{blobs/}."""
        return {name for _, _, names in os.walk(BlobLayout(directory).blobs) for name in names} - {
            MARKER
        }


class CopyTests(BackupCase):
    """A copy that succeeds."""

    def test_whole(self) -> None:
        """Every object is in the copy, which is checked; the store goes on."""
        self.assertEqual(self.backUp(), 0)
        linked = "3 objects of 1 buckets copied, 2 blobs linked"
        self.assertEqual(self.reported, [linked, "the copy was verified"])
        self.driver.put("bucket", b"later", b"3" * 5000)
        self.driver.delete("bucket", [b"one"])
        self.assertEqual(self.copied(), self.bodies)

    def test_private(self) -> None:
        """Nobody but the owner gets into the copy, whatever the umask."""
        self.addCleanup(os.umask, os.umask(0))
        Path(self.driver.directory, "root-credentials").write_text("secret")
        self.backUp()
        for directory, _, names in os.walk(self.target):
            self.assertEqual(stat.S_IMODE(os.stat(directory).st_mode), 0o700)
            for name in names:
                mode = os.stat(os.path.join(directory, name)).st_mode
                self.assertEqual(stat.S_IMODE(mode), 0o600, name)

    def test_others(self) -> None:
        """
        The root key and other databases are copied, also what only their WAL holds so far; the
        sessions of the console are not, which were perhaps signed out since.
        """
        Path(self.driver.directory, "root-credentials").write_text("secret")
        with closing(sqlite3.connect(os.path.join(self.driver.directory, SESSIONS))) as sessions:
            sessions.execute("CREATE TABLE sessions (id TEXT)")
        path = os.path.join(self.driver.directory, "users.sqlite")
        with closing(sqlite3.connect(path, isolation_level=None)) as users:
            users.execute("PRAGMA journal_mode = WAL")
            users.execute("CREATE TABLE users (name TEXT)")
            users.execute("INSERT INTO users VALUES ('ada')")
            self.backUp()
        names = {"root-credentials", "backup.json", "blobs", "staging", "lock"}
        for name in ("catalog.sqlite", "users.sqlite"):
            names |= {name, f"{name}-wal", f"{name}-shm"}
        found = {name for name in os.listdir(self.target) if not name.startswith(BINDING)}
        self.assertEqual(found, names)
        self.assertEqual(Path(self.target, "root-credentials").read_text(), "secret")
        with closing(sqlite3.connect(os.path.join(self.target, "users.sqlite"))) as copy:
            self.assertEqual(copy.execute("SELECT name FROM users").fetchall(), [("ada",)])

    def test_anotherFileSystem(self) -> None:
        """Where nothing can be linked the bytes are copied, and nothing is left in the store."""
        files = FarFiles()
        files.far = self.target
        before = set(os.listdir(self.driver.directory))
        self.assertEqual(self.backUp(files), 0)
        self.assertEqual(self.reported[0], "3 objects of 1 buckets and 2 blobs copied")
        self.assertEqual(set(os.listdir(self.driver.directory)), before)
        self.assertEqual(self.copied(), self.bodies)
        layout = BlobLayout(self.target)
        links = {os.stat(layout.path(blob)).st_nlink for blob in self.blobsOf(self.target)}
        self.assertEqual(links, {1})

    def test_realOtherFileSystem(self) -> None:
        """So it is with a real one, if this machine has two."""
        self.target = tempfile.mkdtemp(prefix="storagegate-backup-", dir=os.getcwd())
        self.addCleanup(shutil.rmtree, self.target)
        linked = os.stat(self.target).st_dev == os.stat(self.driver.directory).st_dev
        self.assertEqual(self.backUp(), 0)
        form = "copied, 2 blobs linked" if linked else "and 2 blobs copied"
        self.assertEqual(self.reported[0], f"3 objects of 1 buckets {form}")
        self.assertEqual(self.copied(), self.bodies)

    def test_logStaysShort(self) -> None:
        """
        While blobs are copied slowly to another file system, the daemon's writes do not make the
        WAL longer than at any other time.
        """
        self.driver.close()
        # Without zeros that are written in advance the length is that of the frames.
        self.driver = StoreDriver(self.driver.directory, Files(), durability="os")
        bound = 1 << 20
        wal: Any = self.driver.store.catalog
        wal._checkpoints._wal._restartAt = bound
        longest = 0

        class SlowFiles(FarFiles):
            """Files to which the store writes four times its bound for each that is copied."""

            def copy(own, source: str, target: str) -> int:
                """Write, then copy."""
                nonlocal longest
                for number in range(80):
                    self.driver.put("bucket", b"w%d" % number, os.urandom(50_000))
                path = os.path.join(self.driver.directory, "catalog.sqlite-wal")
                longest = max(longest, os.stat(path).st_size)
                return super().copy(source, target)

        self.driver.inlineLimit = 60_000
        files = SlowFiles()
        files.far = self.target
        self.assertEqual(self.backUp(files), 0)
        self.assertGreater(longest, 0)
        self.assertLess(longest, 2 * bound)
        self.assertEqual(self.copied(), self.bodies)

    def test_uploads(self) -> None:
        """A multipart upload that is under way can be completed in the copy."""
        self.driver.createUpload("u", "bucket", b"big")
        self.driver.putPart("bucket", b"big", "u", 1, b"p" * 9000)
        self.assertEqual(self.backUp(), 0)
        copy = StoreDriver(self.target, Files())
        self.addCleanup(copy.close)
        copy.complete("bucket", b"big", "u", [(1, b"p" * 9000)])
        self.assertEqual(copy.get("bucket", b"big"), b"p" * 9000)


class RaceTests(BackupCase):
    """What the daemon removes while it is copied."""

    def remove(self, keys: list[bytes]) -> None:
        """Remove objects and wait until their blobs are gone."""
        self.driver.delete("bucket", keys)
        self.driver.reactor.settle(self.driver.store.idle())

    def test_removedMeanwhile(self) -> None:
        """A blob that goes between the catalog and its link begins a later moment, whole again."""
        removed: list[str] = []

        def remove(blob: str) -> None:
            if not removed:
                removed.append(blob)
                self.driver.put("bucket", b"three", b"3" * 5000)
                self.remove([b"one", b"two"])

        self.assertEqual(self.backUp(WatchedFiles(remove)), 0)
        self.assertEqual(self.copied(), {b"small": b"inline", b"three": b"3" * 5000})
        self.assertEqual(len(self.blobsOf(self.target)), 1)

    def test_removedAfter(self) -> None:
        """What goes once it is held, is in the copy: the moment is the one that was begun."""
        listed: list[str | None] = []

        class Again(Files):
            """Files by which objects are removed when the first links are looked at again."""

            def names(own, path: str) -> list[str]:
                """Remove the objects, then list."""
                if path in listed and None not in listed:
                    listed.append(None)
                    self.remove([b"one", b"two"])
                listed.append(path)
                return super().names(path)

        self.assertEqual(self.backUp(Again()), 0)
        self.assertIn(None, listed)
        self.assertEqual(self.driver.listing("bucket", b""), [b"small"])
        self.assertEqual(self.copied(), self.bodies)

    def test_neverStill(self) -> None:
        """Where each attempt loses a blob, the last one keeps writers out while it links."""
        numbers = iter(range(1000))
        attempts: list[bool] = []
        path = os.path.join(self.driver.directory, "catalog.sqlite")

        def churn(blob: str) -> None:
            with closing(sqlite3.connect(path, isolation_level=None, timeout=0)) as other:
                try:
                    other.execute("BEGIN IMMEDIATE")
                    other.execute("ROLLBACK")
                except sqlite3.OperationalError:
                    attempts.append(False)
                    return
            attempts.append(True)
            number = next(numbers)
            self.driver.put("bucket", b"n%d" % number, b"n" * 5000)
            new = b"n%d" % number
            listed = self.driver.listing("bucket", b"")
            self.remove([key for key in listed if key not in (b"small", new)])

        self.assertEqual(self.backUp(WatchedFiles(churn)), 0)
        # Before the first moment, in four attempts, in the last one.
        self.assertGreaterEqual(len(attempts), 6)
        self.assertEqual(attempts.index(False), len(attempts) - 1)
        self.assertEqual(len(self.copied()), 2)
        self.assertEqual(len(self.blobsOf(self.target)), 1)

    def test_damage(self) -> None:
        """A blob that is missing in the store is a problem of the copy, and no endless race."""
        blobs = sorted(self.blobsOf(self.driver.directory))
        os.unlink(BlobLayout(self.driver.directory).path(blobs[0]))
        self.assertEqual(self.backUp(), 1)
        self.assertIn(f"blob {blobs[0]} is missing", self.reported[1])
        self.assertEqual(self.reported[2], "the copy has 1 problems")

    def test_garbage(self) -> None:
        """What was garbage at the moment is not in the copy, nor its row."""
        with closing(sqlite3.connect(os.path.join(self.driver.directory, "catalog.sqlite"))) as own:
            own.execute("INSERT INTO blobs VALUES ('" + "0" * 32 + "', 1, 1, 0, 0)")
            own.commit()
        self.assertEqual(self.backUp(), 0)


class RefusalTests(BackupCase):
    """Copies that are not made."""

    def refused(self, files: Files | None = None) -> str:
        """Give the line of a copy that is refused."""
        return str(self.assertRaises(BackupError, self.backUp, files))

    def test_notEmpty(self) -> None:
        """A target in which something is, is left alone."""
        Path(self.target).mkdir()
        Path(self.target, "mine").write_text("mine")
        self.assertEqual(self.refused(), f"{self.target} is not empty")
        self.assertEqual(os.listdir(self.target), ["mine"])

    def test_inside(self) -> None:
        """A target in the data directory would be copied with it the next time."""
        data = self.driver.directory
        for place in (data, os.path.join(data, "copy")):
            self.target = place
            self.assertIn("is inside the data directory", self.refused())

    def test_noStore(self) -> None:
        """Where there is no store none is made."""
        nowhere = self.mktemp()
        with self.assertRaises(BackupError) as caught:
            backup(nowhere, self.target, False, print)
        self.assertIn("contains no store", str(caught.exception))
        self.assertFalse(os.path.exists(nowhere) or os.path.exists(self.target))

    def test_interrupted(self) -> None:
        """An end in the middle leaves an empty target and nothing in the store."""

        def interrupt(blob: str) -> None:
            raise KeyboardInterrupt

        before = set(os.listdir(self.driver.directory))
        for files in (WatchedFiles(interrupt), FarFiles(interrupt)):
            if isinstance(files, FarFiles):
                files.far = self.target
            self.assertRaises(KeyboardInterrupt, self.backUp, files)
            self.assertEqual(os.listdir(self.target), [])
            self.assertEqual(set(os.listdir(self.driver.directory)), before)

    def test_another(self) -> None:
        """Two copies to other file systems at once are refused; what a killed one left is not."""
        files = FarFiles()
        files.far = self.target
        hold = Path(self.driver.directory, "backup-hold")
        (hold / "blobs").mkdir(parents=True)
        (hold / "blobs" / "left").write_text("left")
        descriptor = os.open(hold, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            self.assertEqual(self.refused(files), "another backup is running")
        finally:
            os.close(descriptor)
        self.assertEqual(self.backUp(files), 0)
        self.assertFalse(hold.exists())


class CommandTests(ScriptCase):
    """C{storagegate backup}."""

    def test_copy(self) -> None:
        """It says what it did, and its exit code is 0."""
        target = self.mktemp()
        code, output, errors = self.script("backup", "--data", str(self.data), "--to", target)
        self.assertEqual((code, errors), (0, ""))
        self.assertEqual(
            output, "0 objects of 0 buckets copied, 0 blobs linked\nthe copy was verified\n"
        )
        self.assertEqual(self.script("fsck", "--data", target)[0], 0)

    def test_hungUp(self) -> None:
        """The end of the terminal ends it as SIGTERM does, unless nohup protects it."""
        before = signal.getsignal(signal.SIGHUP)
        self.addCleanup(signal.signal, signal.SIGHUP, before)
        found: list[object] = []

        def watch(*arguments: object, **named: object) -> int:
            found.append(signal.getsignal(signal.SIGHUP))
            return 0

        self.patch(backups, "backup", watch)
        for handler in (signal.SIG_DFL, signal.SIG_IGN):
            signal.signal(signal.SIGHUP, handler)
            command = ("backup", "--data", str(self.data), "--to", self.mktemp())
            self.assertEqual(self.script(*command)[0], 0)
            self.assertIs(signal.getsignal(signal.SIGHUP), handler)
        ended, ignored = found
        assert callable(ended)
        self.assertEqual(self.assertRaises(SystemExit, ended, signal.SIGHUP, None).code, 129)
        self.assertIs(ignored, signal.SIG_IGN)

    def test_refused(self) -> None:
        """What is refused is one line, and exit code 1."""
        code, output, errors = self.script("backup", "--data", str(self.data), "--to", ".")
        self.assertEqual((code, output), (1, ""))
        self.assertEqual(errors, "storagegate: . is not empty\n")
