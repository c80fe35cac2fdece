"""A data directory out of a backup: whole, or not at all."""

import errno
import fcntl
import os
import shutil
import sqlite3
import stat
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from storagegate.storage.embedded.backup import backup, readManifest
from storagegate.storage.embedded.fsck import check
from storagegate.storage.embedded.restore import restore
from storagegate.storage.errors import StoreError
from storagegate.storage.files import DirectoryLock, Files
from storagegate.storage.identity import UNFINISHED
from storagegate.storage.layout import BlobLayout
from storagegate.storage.sqlite import CatalogUnusable
from tests.cli.test_main import ScriptCase
from tests.storage.embedded.test_backup import BackupCase
from tests.support.stores import StoreDriver


def ignore(line: str) -> None:
    """Report nothing."""


class StoppingFiles(Files):
    """
    Files that end a restore before one of its calls.

    @ivar left: How many calls are made before.
    """

    def __init__(self, left: int) -> None:
        self.left = left

    def _count(self) -> None:
        if not self.left:
            raise KeyboardInterrupt
        self.left -= 1

    def copy(self, source: str, target: str) -> int:
        """Count, then copy."""
        self._count()
        return super().copy(source, target)

    def makeDirectory(self, path: str) -> None:
        """Count, then make."""
        self._count()
        super().makeDirectory(path)


class RestoreCase(BackupCase):
    """A store, its backup, and the place of the restored one."""

    def setUp(self) -> None:
        """Make the store and the backup."""
        super().setUp()
        Path(self.driver.directory, "root-credentials").write_text("secret")
        with closing(sqlite3.connect(os.path.join(self.driver.directory, "users.sqlite"))) as users:
            users.execute("PRAGMA journal_mode = WAL")
            users.execute("CREATE TABLE users (name TEXT)")
        self.assertEqual(backup(self.driver.directory, self.target, True, ignore), 0)
        self.copy = self.target
        self.place = os.path.join(os.path.dirname(self.copy), "restored")
        self.reported = []

    def restore(self, verify: bool = True, **more: object) -> int:
        """Restore the backup."""
        return restore(self.copy, self.place, verify, self.reported.append, **more)  # type: ignore[arg-type]

    def held(self, directory: str) -> dict[bytes, bytes | None]:
        """Open a store and read all of its objects."""
        store = StoreDriver(directory, Files())
        try:
            return {key: store.get("bucket", key) for key in store.listing("bucket", b"")}
        finally:
            store.close()


class RestoreTests(RestoreCase):
    """A restore that succeeds."""

    def test_whole(self) -> None:
        """Every object is there, and the command says what it did."""
        manifest = readManifest(self.copy)
        assert manifest is not None
        self.assertEqual(self.restore(), 0)
        [line] = self.reported
        self.assertRegex(
            line,
            r"^restored 3 objects of 1 buckets, 2 blobs with 305000 bytes to \S+, from a backup"
            rf" made by storagegate {manifest.version} at \d{{4}}-\d\d-\d\d \d\d:\d\d:\d\d\+00:00$",
        )
        self.assertEqual(check(self.place, False, True, ignore), 0)
        self.assertEqual(self.held(self.place), self.bodies)
        self.assertEqual(os.listdir(os.path.dirname(self.place)).count("restored"), 1)
        self.assertFalse(os.path.exists(f"{self.place}.{UNFINISHED}"))

    def test_modes(self) -> None:
        """Only the owner reads the data and the keys, whatever the umask and the backup's modes."""
        for directory, _, names in os.walk(self.copy):
            os.chmod(directory, 0o755)
            for name in names:
                os.chmod(os.path.join(directory, name), 0o644)
        self.addCleanup(os.umask, os.umask(0))
        self.restore()
        self.assertEqual(Path(self.place, "root-credentials").read_text(), "secret")
        for directory, _, names in os.walk(self.place):
            self.assertEqual(stat.S_IMODE(os.stat(directory).st_mode), 0o700)
            for name in names:
                mode = stat.S_IMODE(os.stat(os.path.join(directory, name)).st_mode)
                self.assertEqual(mode, 0o600, name)

    def test_backupIsNotChanged(self) -> None:
        """A backup on a medium that cannot be written is restored: nothing of it is changed."""

        def content() -> dict[str, tuple[bytes, int]]:
            found = {}
            for directory, _, names in os.walk(self.copy):
                for name in names:
                    path = os.path.join(directory, name)
                    found[path] = (Path(path).read_bytes(), os.stat(path).st_mtime_ns)
            return found

        before = content()
        self.restore()
        self.assertEqual(content(), before)

    def test_emptyDirectory(self) -> None:
        """An empty directory is replaced, and so is what a restore that was killed has left."""
        os.mkdir(self.place)
        left = f"{self.place}.{UNFINISHED}"
        os.makedirs(os.path.join(left, "blobs"))
        self.assertEqual(self.restore(), 0)
        self.assertFalse(os.path.exists(left))
        self.assertEqual(self.held(self.place), self.bodies)

    def test_inside(self) -> None:
        """
        Where nothing can be made beside the directory, the copy is made in it; until it is whole no
        daemon starts there.
        """
        os.mkdir(self.place)
        real = os.makedirs

        def makedirs(path: str, *more: object, **named: object) -> None:
            if path.endswith(f"restored.{UNFINISHED}"):
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)
            real(path, *more, **named)  # type: ignore[arg-type]

        self.patch(os, "makedirs", makedirs)
        refused: list[Exception] = []

        class LookingFiles(Files):
            """Files that try to start a daemon before each copy."""

            def copy(own, source: str, target: str) -> int:
                """Start, then copy."""
                error = self.assertRaises(CatalogUnusable, StoreDriver, self.place, Files())
                refused.append(error)
                shutil.rmtree(os.path.join(self.place, "staging"))
                shutil.rmtree(os.path.join(self.place, "blobs"))
                os.unlink(os.path.join(self.place, "lock"))
                return super().copy(source, target)

        self.assertEqual(self.restore(files=LookingFiles()), 0)
        self.assertIn("unfinished restore", str(refused[0]))
        self.assertNotIn(UNFINISHED, os.listdir(self.place))
        self.assertEqual(self.held(self.place), self.bodies)

    def test_earlierVersion(self) -> None:
        """A backup without a manifest is restored, and the line says so."""
        os.unlink(os.path.join(self.copy, "backup.json"))
        self.assertEqual(self.restore(), 0)
        self.assertIn("made by an earlier version", self.reported[0])

    def test_partial(self) -> None:
        """With a flag a backup that lacks a blob is restored, and the lack is said."""
        lost = sorted(self.blobsOf(self.copy))[0]
        os.unlink(BlobLayout(self.copy).path(lost))
        self.assertEqual(self.restore(isPartial=True), 1)
        self.assertIn(f"blob {lost} is missing", self.reported[0])
        self.assertEqual(len(self.blobsOf(self.place)), 1)


class RefusalTests(RestoreCase):
    """What is not restored."""

    def refused(self, *, verify: bool = False) -> str:
        """Return the one line of a refusal, after which nothing was made."""
        beside = sorted(os.listdir(os.path.dirname(self.place)))
        error = self.assertRaises(StoreError, self.restore, verify)
        self.assertNotIn("\n", str(error))
        self.assertEqual(sorted(os.listdir(os.path.dirname(self.place))), beside)
        return str(error)

    def test_notEmpty(self) -> None:
        """A directory with anything in it is left as it is."""
        os.mkdir(self.place)
        Path(self.place, "mine").write_text("mine")
        self.assertIn("is not empty", self.refused())
        self.assertEqual(os.listdir(self.place), ["mine"])

    def test_incomplete(self) -> None:
        """A backup without its catalog, which comes last, or with an empty one, is none."""
        path = os.path.join(self.copy, "catalog.sqlite")
        os.truncate(path, 0)
        self.assertIn("not a complete backup", self.refused())
        os.unlink(path)
        self.assertIn("not a complete backup", self.refused())

    def test_damagedCatalog(self) -> None:
        """A catalog that is not sound is found before a blob is copied."""
        path = Path(self.copy, "catalog.sqlite")
        content = bytearray(path.read_bytes())
        for page in range(4, len(content) // 4096):
            content[page * 4096 : page * 4096 + 200] = b"\xff" * 200
        path.write_bytes(content)
        files = StoppingFiles(1)
        error = self.assertRaises(StoreError, self.restore, False, files=files)
        self.assertNotIn("\n", str(error))
        path.write_bytes(b"no database " * 1000)
        self.refused()

    def test_blobs(self) -> None:
        """A blob that is missing or short is found before a blob is copied."""
        one, two = sorted(self.blobsOf(self.copy))
        os.unlink(BlobLayout(self.copy).path(one))
        os.truncate(BlobLayout(self.copy).path(two), 17)
        self.assertIn("2 problems", self.refused())
        self.assertIn(f"blob {one} is not in the backup", self.reported)
        self.assertTrue(any(line.startswith(f"blob {two} has 17 bytes") for line in self.reported))

    def test_wrongBit(self) -> None:
        """A wrong bit in a blob is found if every byte is read."""
        blob = sorted(self.blobsOf(self.copy))[0]
        path = Path(BlobLayout(self.copy).path(blob))
        content = bytearray(path.read_bytes())
        content[1000] ^= 1
        os.unlink(path)
        path.write_bytes(content)
        self.assertIn("1 problems", self.refused(verify=True))
        self.assertEqual(self.restore(False), 0)

    def test_inUse(self) -> None:
        """A backup that a daemon serves is refused, and one that it has left unclosed."""
        lock = DirectoryLock.take(self.copy)
        self.assertIn("in use", self.refused())
        lock.release()
        store = StoreDriver(self.copy, Files(), durability="os")
        store.put("bucket", b"more", b"m" * 10)
        shutil.copytree(self.copy, f"{self.copy}-crashed")
        store.close()
        self.copy = f"{self.copy}-crashed"
        self.assertIn("fsck --data", self.refused())
        self.assertEqual(check(self.copy, False, False, ignore), 0)
        self.assertEqual(self.restore(), 0)

    def test_within(self) -> None:
        """Neither directory may lie in the other."""
        self.place = os.path.join(self.copy, "restored")
        self.assertIn("must not contain each other", self.refused())

    def test_atOnce(self) -> None:
        """A second restore to the same directory is refused."""
        draft = f"{self.place}.{UNFINISHED}"
        os.mkdir(draft)
        descriptor = os.open(draft, os.O_RDONLY)
        self.addCleanup(os.close, descriptor)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        self.assertIn("another process restores", self.refused())

    def test_interrupted(self) -> None:
        """Interrupted before any of its steps, the directory is absent, and the next one works."""
        beside = sorted(os.listdir(os.path.dirname(self.place)))
        number = 0
        while True:
            files = StoppingFiles(number)
            try:
                self.restore(files=files)
            except KeyboardInterrupt:
                self.assertEqual(sorted(os.listdir(os.path.dirname(self.place))), beside)
                number += 1
            else:
                break
        self.assertGreater(number, 6)
        self.assertEqual(self.held(self.place), self.bodies)


class OverwriteTests(RestoreCase):
    """A backup that is copied by hand over the directory of a daemon that was killed."""

    def setUp(self) -> None:
        """Write after the backup, and keep the directory as a kill leaves it."""
        super().setUp()
        self.driver.delete("bucket", [b"one"])
        self.driver.put("bucket", b"later", b"3" * 5000)
        self.driver.put("bucket", b"small", b"changed")
        self.crash = f"{self.driver.directory}-crashed"
        shutil.copytree(self.driver.directory, self.crash)

    def test_whole(self) -> None:
        """The store is that of the backup: the log of the crash is void."""
        shutil.copytree(self.copy, self.crash, dirs_exist_ok=True)
        self.assertEqual(self.held(self.crash), self.bodies)
        self.assertEqual(check(self.crash, True, True, ignore), 0)
        self.assertEqual(self.held(self.crash), self.bodies)

    def test_catalogOnly(self) -> None:
        """Without the rest of the backup the catalog is refused, by the daemon and by fsck."""
        shutil.copy(os.path.join(self.copy, "catalog.sqlite"), self.crash)
        starts: tuple[Callable[[], object], ...] = (
            lambda: StoreDriver(self.crash, Files()),
            lambda: check(self.crash, True, False, ignore),
            lambda: backup(self.crash, f"{self.crash}-copy", False, ignore),
        )
        for start in starts:
            error = self.assertRaises(CatalogUnusable, start)
            self.assertIn("is the log of another catalog.sqlite", str(error))
        os.unlink(os.path.join(self.crash, "catalog.sqlite-wal"))
        shutil.copytree(os.path.join(self.copy, "blobs"), f"{self.crash}/blobs", dirs_exist_ok=True)
        self.assertEqual(self.held(self.crash), self.bodies)


class CommandTests(ScriptCase):
    """C{storagegate restore}."""

    def test_restore(self) -> None:
        """It says what it did, and its exit code is 0; a second one is refused in one line."""
        copy, place = self.mktemp(), self.mktemp()
        self.script("backup", "--data", str(self.data), "--to", copy)
        flags = ("--from", copy, "--to", place, "--verify")
        code, output, errors = self.script("restore", *flags)
        self.assertEqual((code, errors), (0, ""))
        self.assertRegex(output, r"^restored 0 objects of 0 buckets, 0 blobs with 0 bytes to ")
        self.assertEqual(self.script("fsck", "--data", place)[0], 0)
        code, output, errors = self.script("restore", *flags)
        self.assertEqual((code, output), (1, ""))
        self.assertEqual(errors, f"storagegate: {place} is not empty\n")

    def test_noBackup(self) -> None:
        """What is no backup is refused in one line."""
        code, output, errors = self.script("restore", "--from", ".", "--to", self.mktemp())
        self.assertEqual((code, output), (1, ""))
        self.assertEqual(
            errors, "storagegate: . is not a complete backup: it has no catalog.sqlite\n"
        )
