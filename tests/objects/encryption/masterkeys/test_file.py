"""The provider C{file}: master keys in a file of the store."""

import os
import re
import stat
import subprocess
import sys
from base64 import b64encode
from pathlib import Path
from threading import Barrier, Thread
from typing import Any
from unittest import skipIf

from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from storagegate.objects.encryption.interfaces import MasterKey
from storagegate.objects.encryption.masterkeys import keyfile
from storagegate.objects.encryption.masterkeys.file import (
    CHECK_SECONDS,
    FOREIGN,
    MISSING,
    WATCH_SECONDS,
    FileMasterKeys,
)
from storagegate.objects.encryption.masterkeys.keyfile import (
    DEFAULT_KEY,
    KeyFileError,
    createKeyFile,
    readKeyFile,
)
from storagegate.objects.errors import (
    InvalidArgument,
    MasterKeyDisabled,
    MasterKeyExists,
    MasterKeyNotFound,
    MasterKeysUnavailable,
    WrongMasterKey,
)
from tests.support.modules import CHECKOUT

PLAIN = bytes(range(32))
OPEN_SECONDS = 300.0


class FileCase(SynchronousTestCase):
    """A file, and providers of its keys."""

    def setUp(self) -> None:
        """Make a directory without the file."""
        self.directory = Path(self.mktemp())
        self.directory.mkdir()
        self.path = str((self.directory / "master-keys").absolute())
        self.clock = Clock()
        self.wrapped: list[str] = []

    def provider(self, mayCreate: bool = True) -> FileMasterKeys:
        """Open a provider, as one process has it."""

        async def wrapped(most: int) -> list[str]:
            return self.wrapped[:most]

        made = FileMasterKeys(
            self.path, self.clock, maybeDeferred, wrapped, mayCreate, OPEN_SECONDS
        )
        self.addCleanup(lambda: self.wait(made.close()))
        return made

    def wait(self, awaitable: Any) -> Any:
        """Return the result of a coroutine, which must not wait."""
        return self.successResultOf(Deferred.fromCoroutine(awaitable))

    def refused(self, awaitable: Any, error: type[Exception]) -> Any:
        """Return the error of a coroutine."""
        return self.failureResultOf(Deferred.fromCoroutine(awaitable), error).value

    def secrets(self) -> list[bytes]:
        """Return the forms in which a key of the file could leak."""
        file = readKeyFile(self.path)
        assert file is not None
        keys = [version.key for key in file.keys for version in key.versions]
        return [form for key in keys for form in (key, b64encode(key), key.hex().encode())]


class WrappingTests(FileCase):
    """Keys that are wrapped and opened."""

    def test_firstNeed(self) -> None:
        """The first wrapped key makes the file, for its owner only, and leaves no draft."""
        keys = self.provider()
        self.assertEqual(self.wait(keys.keys()), [])
        self.refused(keys.rotate(DEFAULT_KEY), MasterKeyNotFound)
        self.refused(keys.disable(DEFAULT_KEY, True), MasterKeyNotFound)
        self.assertFalse(os.path.exists(self.path))
        wrapped = self.wait(keys.wrap(DEFAULT_KEY, PLAIN, b"a"))
        self.assertEqual(stat.S_IMODE(os.stat(self.path).st_mode), 0o600)
        self.assertEqual(os.listdir(self.directory), ["master-keys"])
        self.assertTrue(wrapped.isascii())
        self.assertEqual(self.wait(keys.unwrap(DEFAULT_KEY, wrapped, b"a")), PLAIN)
        # Another process opens it, too.
        self.assertEqual(self.wait(self.provider().unwrap(DEFAULT_KEY, wrapped, b"a")), PLAIN)

    def test_random(self) -> None:
        """Keys are never built in, derived or zero: those of two stores differ."""
        keys = []
        for _ in range(2):
            self.wait(self.provider().newKey("photos"))
            keys += self.secrets()
            os.unlink(self.path)
        self.assertEqual(len(set(keys)), len(keys))
        self.assertNotIn(bytes(32), keys)

    def test_binding(self) -> None:
        """A text opens with its binding and its key only, and not if a digit differs."""
        keys = self.provider()
        self.wait(keys.newKey("other"))
        wrapped = self.wait(keys.wrap(DEFAULT_KEY, PLAIN, b"a"))
        self.assertNotEqual(wrapped, self.wait(keys.wrap(DEFAULT_KEY, PLAIN, b"a")))
        self.refused(keys.unwrap(DEFAULT_KEY, wrapped, b"b"), WrongMasterKey)
        self.refused(keys.unwrap("other", wrapped, b"a"), MasterKeyNotFound)
        self.refused(keys.unwrap("absent", wrapped, b"a"), MasterKeyNotFound)
        for text in ("", "x", "vault:v1:AAAA", wrapped[:-4], f"{wrapped}AAAA", "file:v1::"):
            error = WrongMasterKey
            if text == "file:v1::":
                error = MasterKeyNotFound  # type: ignore[assignment]
                text = "file:v1:00:AAAA"
            self.refused(keys.unwrap(DEFAULT_KEY, text, b"a"), error)
        head, sealed = wrapped.rsplit(":", 1)
        for index in range(0, len(sealed), 7):
            other = "B" if sealed[index] == "A" else "A"
            changed = f"{head}:{sealed[:index]}{other}{sealed[index + 1 :]}"
            self.refused(keys.unwrap(DEFAULT_KEY, changed, b"a"), WrongMasterKey)

    def test_rotated(self) -> None:
        """After a rotation the new version wraps, and the old one opens."""
        keys = self.provider()
        old = self.wait(keys.wrap(DEFAULT_KEY, PLAIN, b"a"))
        self.assertTrue(keys.isCurrent(DEFAULT_KEY, old))
        self.wait(keys.rotate(DEFAULT_KEY))
        self.assertFalse(keys.isCurrent(DEFAULT_KEY, old))
        new = self.wait(keys.wrap(DEFAULT_KEY, PLAIN, b"a"))
        self.assertTrue(keys.isCurrent(DEFAULT_KEY, new))
        for wrapped in (old, new):
            self.assertEqual(self.wait(keys.unwrap(DEFAULT_KEY, wrapped, b"a")), PLAIN)
        self.assertFalse(keys.isCurrent(DEFAULT_KEY, "vault:v2:AAAA"))
        self.refused(keys.rotate("absent"), MasterKeyNotFound)

    def test_disabled(self) -> None:
        """A disabled key neither wraps nor opens, until it is enabled."""
        keys = self.provider()
        wrapped = self.wait(keys.wrap(DEFAULT_KEY, PLAIN, b"a"))
        self.wait(keys.disable(DEFAULT_KEY, True))
        self.refused(keys.wrap(DEFAULT_KEY, PLAIN, b"a"), MasterKeyDisabled)
        self.refused(keys.unwrap(DEFAULT_KEY, wrapped, b"a"), MasterKeyDisabled)
        self.wait(keys.disable(DEFAULT_KEY, False))
        self.assertEqual(self.wait(keys.unwrap(DEFAULT_KEY, wrapped, b"a")), PLAIN)

    def test_listed(self) -> None:
        """Keys are listed by name without their secrets; names have one form."""
        keys = self.provider()
        self.wait(keys.newKey("photos"))
        self.wait(keys.rotate("photos"))
        self.refused(keys.newKey("photos"), MasterKeyExists)
        for name in ("", "../a", ".a", "a/b", "a" * 129, "ä", "a b"):
            self.refused(keys.newKey(name), InvalidArgument)
        [first, second] = self.wait(keys.keys())
        self.assertEqual((first.name, first.versions, first.isDefault), ("default", 1, True))
        self.assertEqual(second, MasterKey("photos", 2, second.createdMs))


class ProblemTests(FileCase):
    """A file that cannot be used."""

    def test_lost(self) -> None:
        """If keys of the store are wrapped already, a missing file is not made anew."""
        self.wrapped = ["file:v1:0011223344556677:AAAA"]
        keys = self.provider()
        self.refused(keys.wrap(DEFAULT_KEY, PLAIN, b""), MasterKeysUnavailable)
        self.refused(keys.newKey("a"), MasterKeysUnavailable)
        self.refused(keys.keys(), MasterKeysUnavailable)
        self.assertEqual((keys.problem, os.listdir(self.directory)), (MISSING, []))

    def test_foreign(self) -> None:
        """
        The file of another store wraps nothing: what it seals could not be opened when the right
        one is back. One known key is enough, as a file may have been replaced before.
        """
        own = self.wait(self.provider().wrap(DEFAULT_KEY, PLAIN, b""))
        os.rename(self.path, f"{self.path}-own")
        createKeyFile(self.path)
        theirs = self.wait(self.provider().wrap(DEFAULT_KEY, PLAIN, b""))
        keys = self.provider()
        for self.wrapped in ([own], [own, "vault:v1:AAAA"], ["vault:v1:AAAA"]):
            keys = self.provider()
            for _ in range(2):
                self.wait(keys.check())
                self.assertEqual(keys.problem, FOREIGN)
                self.refused(keys.wrap(DEFAULT_KEY, PLAIN, b""), MasterKeysUnavailable)
                self.wait(keys.keys())
                self.assertEqual(keys.problem, FOREIGN)
        self.refused(keys.unwrap(DEFAULT_KEY, own, b""), MasterKeysUnavailable)
        self.wrapped = [own]
        os.replace(f"{self.path}-own", self.path)
        self.wait(keys.check())
        self.assertIsNone(keys.problem)
        self.wait(keys.wrap(DEFAULT_KEY, PLAIN, b""))
        self.wrapped = [theirs, own]
        self.wait(self.provider().wrap(DEFAULT_KEY, PLAIN, b""))

    def test_foreignNoMore(self) -> None:
        """Once no bucket has keys of another file, this one serves, without a change or a start."""
        self.wait(self.provider().newKey("photos"))
        self.wrapped = ["vault:v1:AAAA"]
        unchecked, checked = self.provider(), self.provider()
        self.wait(checked.check())
        for keys in (unchecked, checked):
            self.refused(keys.wrap(DEFAULT_KEY, PLAIN, b""), MasterKeysUnavailable)
            self.assertEqual(keys.problem, FOREIGN)
        self.wrapped = []
        self.clock.advance(CHECK_SECONDS)
        self.wait(unchecked.wrap(DEFAULT_KEY, PLAIN, b""))
        for keys in (unchecked, checked):
            self.assertIsNone(keys.problem)
            self.wait(keys.keys())
            self.assertIsNone(keys.problem)

    def test_givenUp(self) -> None:
        """A file is of this store also if many buckets have keys of a file that was lost."""
        own = self.wait(self.provider().wrap(DEFAULT_KEY, PLAIN, b""))
        self.wrapped = ["vault:v1:AAAA"] * 100 + [own]
        keys = self.provider()
        self.wait(keys.check())
        self.assertIsNone(keys.problem)
        self.wait(keys.wrap(DEFAULT_KEY, PLAIN, b""))

    def test_foreignLater(self) -> None:
        """
        A file that was there before the first wrapped key is foreign as soon as another one has
        wrapped that: two nodes, each with a file of its own.
        """
        self.wait(self.provider().newKey("photos"))
        keys = self.provider(mayCreate=False)
        self.wait(keys.check())
        self.assertIsNone(keys.problem)
        self.path += "-of-another-node"
        self.wrapped = [self.wait(self.provider().wrap(DEFAULT_KEY, PLAIN, b""))]
        self.refused(keys.wrap(DEFAULT_KEY, PLAIN, b""), MasterKeysUnavailable)
        self.assertEqual(keys.problem, FOREIGN)

    def test_cluster(self) -> None:
        """A node never makes the file: each node would have its own keys."""
        keys = self.provider(mayCreate=False)
        self.wait(keys.check())
        self.assertIn("masterkeys create", keys.problem or "")
        self.refused(keys.wrap(DEFAULT_KEY, PLAIN, b""), MasterKeysUnavailable)
        self.assertIn("masterkeys create", keys.problem or "")
        self.assertEqual(os.listdir(self.directory), [])
        # A command does.
        self.wait(keys.newKey(DEFAULT_KEY))
        self.assertTrue(self.wait(keys.wrap(DEFAULT_KEY, PLAIN, b"")))
        self.assertIsNone(keys.problem)

    def test_unreadKeys(self) -> None:
        """Without the file nothing opens, and reading makes none."""
        self.refused(self.provider().unwrap(DEFAULT_KEY, "file:v1:a:b", b""), MasterKeysUnavailable)
        self.assertEqual(os.listdir(self.directory), [])

    def test_mode(self) -> None:
        """A file that others can use is refused with the command that helps."""
        keys = self.provider()
        self.wait(keys.newKey("photos"))
        for mode in (0o640, 0o604, 0o660, 0o620, 0o601):
            os.chmod(self.path, mode)
            self.refused(keys.wrap(DEFAULT_KEY, PLAIN, b""), MasterKeysUnavailable)
            self.assertIn(f"chmod 600 {self.path}", keys.problem or "")
            self.refused(keys.rotate(DEFAULT_KEY), MasterKeysUnavailable)
        for mode in (0o600, 0o400):
            os.chmod(self.path, mode)
            self.wait(keys.wrap(DEFAULT_KEY, PLAIN, b""))
            self.assertIsNone(keys.problem)

    def test_damaged(self) -> None:
        """Each truncation and each changed byte is a problem, and nothing overwrites the file."""
        self.wait(self.provider().newKey("photos"))
        whole = Path(self.path).read_bytes()
        secrets = self.secrets()
        damaged = [whole[:length] for length in range(0, len(whole) - 2, 37)]
        for index in range(0, len(whole), 11):
            changed = whole[:index] + bytes([whole[index] ^ 1]) + whole[index + 1 :]
            damaged.append(changed)
        for number, content in enumerate(damaged):
            Path(self.path).write_bytes(content)
            try:
                same = readKeyFile(self.path)
            except KeyFileError as error:
                self.assertIn(self.path, str(error))
                self.assertFalse([each for each in secrets if each in str(error).encode()])
            else:
                # The changed byte was white space.
                self.assertEqual(secrets, self.secrets(), number)
                self.assertIsNotNone(same)
                continue
            keys = self.provider()
            self.refused(keys.wrap(DEFAULT_KEY, PLAIN, b""), MasterKeysUnavailable)
            self.refused(keys.newKey("a"), MasterKeysUnavailable)
            self.refused(keys.rotate(DEFAULT_KEY), MasterKeysUnavailable)
            self.assertIn("damaged", keys.problem or "")
            self.assertEqual(Path(self.path).read_bytes(), content)

    def test_notDurable(self) -> None:
        """A file that cannot be made leaves nothing, and the next write tries again."""
        os.chmod(self.directory, 0o700)
        keys = self.provider()
        self.patch(keyfile, "createFile", _full)
        self.refused(keys.wrap(DEFAULT_KEY, PLAIN, b""), MasterKeysUnavailable)
        self.assertIn("No space left", keys.problem or "")

    def test_hidden(self) -> None:
        """No error, log line or description has a key."""
        keys = self.provider()
        wrapped = self.wait(keys.wrap(DEFAULT_KEY, PLAIN, b""))
        error = self.refused(keys.unwrap(DEFAULT_KEY, wrapped, b"x"), WrongMasterKey)
        shown = f"{keys.__dict__!r} {readKeyFile(self.path)!r} {error!r} {error.__cause__!r}"
        for secret in self.secrets():
            self.assertNotIn(secret.decode("latin-1"), shown)
        self.assertNotIn("\\x", shown)


def _full(path: str, content: bytes) -> None:
    raise OSError(28, os.strerror(28))


class ChangeTests(FileCase):
    """Changes by other processes."""

    def test_noticed(self) -> None:
        """While bucket keys may be open, a change closes them within a second."""
        keys, other = self.provider(), self.provider()
        changes: list[float] = []
        self.wait(keys.wrap(DEFAULT_KEY, PLAIN, b""))
        keys.onChange = lambda: changes.append(self.clock.seconds())
        self.clock.pump([WATCH_SECONDS] * 3)
        self.assertEqual(changes, [])
        self.wait(other.disable(DEFAULT_KEY, True))
        self.clock.advance(WATCH_SECONDS)
        self.assertEqual(changes, [4.0])
        self.refused(keys.wrap(DEFAULT_KEY, PLAIN, b""), MasterKeyDisabled)

    def test_idle(self) -> None:
        """When no bucket key can be open any more, nothing is checked."""
        keys = self.provider()
        self.wait(keys.wrap(DEFAULT_KEY, PLAIN, b""))
        self.clock.pump([WATCH_SECONDS] * int(OPEN_SECONDS + 2))
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_check(self) -> None:
        """The check finds a lost file, and that it is back."""
        keys = self.provider()
        self.wait(keys.check())
        self.assertIsNone(keys.problem)
        self.wrapped = [self.wait(keys.wrap(DEFAULT_KEY, PLAIN, b""))]
        os.rename(self.path, f"{self.path}-away")
        self.clock.advance(CHECK_SECONDS)
        self.assertEqual(keys.problem, MISSING)
        os.rename(f"{self.path}-away", self.path)
        self.clock.advance(CHECK_SECONDS)
        self.assertIsNone(keys.problem)
        self.wait(keys.close())
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_races(self) -> None:
        """Processes that make and change the file at once end with one file and all changes."""
        program = (
            "import sys\n"
            "from storagegate.objects.encryption.masterkeys.keyfile import *\n"
            "sys.stdin.read()\n"
            "for number in range(5):\n"
            "    addKey(sys.argv[1], f'{sys.argv[2]}-{number}')\n"
            "    rotateKey(sys.argv[1], DEFAULT_KEY)\n"
        )
        processes = [
            subprocess.Popen(
                [sys.executable, "-c", program, self.path, f"p{number}"],
                stdin=subprocess.PIPE,
                env={**os.environ, "PYTHONPATH": str(CHECKOUT)},
            )
            for number in range(3)
        ]
        for process in processes:
            assert process.stdin is not None
            process.stdin.close()
        self.assertEqual([process.wait(60) for process in processes], [0, 0, 0])
        file = readKeyFile(self.path)
        assert file is not None
        names = {f"p{process}-{number}" for process in range(3) for number in range(5)}
        self.assertEqual({key.name for key in file.keys}, names | {DEFAULT_KEY})
        self.assertEqual(len(file.find(DEFAULT_KEY).versions), 16)
        self.assertEqual(os.listdir(self.directory), ["master-keys"])

    def test_threads(self) -> None:
        """The first writes of several buckets make the file at once, in threads of one process."""
        found: list[object] = []

        def make(path: str, barrier: Barrier) -> None:
            barrier.wait(60)
            try:
                createKeyFile(path)
                found.append(readKeyFile(path))
            except KeyFileError as error:
                found.append(error)

        for number in range(10):
            found.clear()
            barrier = Barrier(6)
            path = f"{self.path}-{number}"
            threads = [Thread(target=make, args=(path, barrier)) for _ in range(6)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(60)
            file = readKeyFile(path)
            assert file is not None
            self.assertEqual(found, [file] * 6)
        self.assertEqual(len(os.listdir(self.directory)), 10)

    @skipIf(os.geteuid(), "only root can give files away")
    def test_owner(self) -> None:
        """A command of root does not take the file from the user of the daemon."""
        keys = self.provider()
        self.wait(keys.newKey("photos"))
        os.chown(self.path, 12345, 23456)
        self.wait(keys.rotate("photos"))
        found = os.stat(self.path)
        self.assertEqual((found.st_uid, found.st_gid), (12345, 23456))
        self.assertEqual(stat.S_IMODE(found.st_mode), 0o600)

    def test_link(self) -> None:
        """A change follows a link to the file, and keeps the link."""
        keyfile.createKeyFile(self.path)
        link = str(self.directory.absolute() / "link")
        os.symlink(self.path, link)
        keyfile.rotateKey(link, DEFAULT_KEY)
        self.assertTrue(os.path.islink(link))
        file = readKeyFile(self.path)
        assert file is not None
        self.assertTrue(re.fullmatch(r"[0-9a-f]{64}", file.digest))
        self.assertEqual(len(file.find(DEFAULT_KEY).versions), 2)
