"""The checks of the machine: permissions, disk, clock, limits, versions."""

import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path
from unittest import skipUnless

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from storagegate.cli.doctor import Finding, configuration, system
from tests.support.modules import CHECKOUT


def lines(found: Iterable[Finding]) -> list[str]:
    """Write findings as the command does."""
    return [f"{each.level} {each.text}" for each in found]


class PermissionTests(SynchronousTestCase):
    """Who may do what."""

    def setUp(self) -> None:
        """Make a data directory as the daemon does."""
        self.data = Path(self.mktemp()).absolute()
        self.data.mkdir(mode=0o700)
        for name in ("catalog.sqlite", "root-credentials", "lock"):
            (self.data / name).touch(0o600)

    def check(self, path: Path | None = None) -> list[str]:
        """Check the directory."""
        return lines(system.checkData(str(path or self.data)))

    def test_well(self) -> None:
        """A directory as the daemon makes it is one line, and so is one that it will make."""
        [line] = self.check()
        self.assertRegex(line, "^ok .* belongs to ")
        new = self.data.parent / "new" / "data"
        self.assertEqual(self.check(new), [f"ok {new} will be created by the first start"])
        self.assertFalse(new.parent.exists())

    def test_file(self) -> None:
        """A file in the directory's place, or above it, is no directory."""
        path = self.data / "lock"
        self.assertEqual(self.check(path), [f"problem {path} is not a directory"])
        self.assertEqual(
            self.check(path / "data"),
            [f"problem {path / 'data'} cannot be created: {path} is not writable"],
        )

    def test_open(self) -> None:
        """A directory that others may enter is a warning, a secret that they may read a problem."""
        self.data.chmod(0o755)
        (self.data / "root-credentials").chmod(0o640)
        (self.data / "catalog.sqlite").chmod(0o604)
        (self.data / "lock").chmod(0o644)
        directory, catalog, keys = self.check()
        self.assertIn("warning", directory)
        self.assertIn(f"mode 0755, other users can list it: chmod 700 {self.data}", directory)
        self.assertRegex(catalog, "^problem .*catalog.sqlite contains secrets and has mode 0604")
        self.assertRegex(keys, "^problem .*root-credentials contains secrets and has mode 0640")

    @skipUnless(os.geteuid() == 0, "only root can give files away")
    def test_owner(self) -> None:
        """A file of another user is what a command leaves that was run as root."""
        os.chown(self.data / "catalog.sqlite", 1, 1)
        [line] = self.check()
        self.assertRegex(line, r"^problem .*catalog.sqlite belongs to \w+, the directory to root")

    def test_secretFile(self) -> None:
        """A key that everybody may read is a problem, one that is not there is, too."""
        path = self.data / "server.key"
        self.assertIn("No such file", lines(system.checkSecretFile(str(path), "the key"))[0])
        path.touch(0o640)
        self.assertRegex(lines(system.checkSecretFile(str(path), "the key"))[0], "^ok ")
        path.chmod(0o644)
        [line] = lines(system.checkSecretFile(str(path), "the key"))
        self.assertEqual(
            line, f"problem the key {path} is readable by every user: chmod o-r {path}"
        )


# Syncs for ever, with a line after the first.
SYNCING = """
import os, sys
from storagegate.cli.doctor import system
sync = os.fdatasync
def told(descriptor):
    sync(descriptor)
    print("syncing", flush=True)
os.fdatasync = told
while True:
    list(system.checkSyncs(sys.argv[1]))
"""


class DiskTests(SynchronousTestCase):
    """The disk."""

    timeout = 60

    def setUp(self) -> None:
        """Make a directory."""
        self.data = Path(self.mktemp()).absolute()
        self.data.mkdir()

    def figures(self, **changes: int) -> os.statvfs_result:
        """Give figures of a file system, half full but for some."""
        names = ("bsize", "frsize", "blocks", "bfree", "bavail", "files", "ffree", "favail")
        base = dict(zip(names, (4096, 4096, 10**6, 0, 5 * 10**5, 10**6, 0, 5 * 10**5), strict=True))
        return os.statvfs_result([*{**base, **changes}.values(), 0, 255])

    def test_here(self) -> None:
        """The disk of the tests has room, and its syncs have a time."""
        [space] = lines(system.checkSpace(str(self.data)))
        self.assertIn("GiB are free", space)
        syncs = lines(system.checkSyncs(str(self.data)))[-1]
        self.assertRegex(syncs, r"a sync takes [0-9.]+ ms, [0-9.]+ ms at the 99th percentile")

    def test_full(self) -> None:
        """A disk that fills is a warning, one that is full a problem; the same for inodes."""
        for figures, expected in (
            (self.figures(), "ok"),
            (self.figures(bavail=40_000), "warning"),
            (self.figures(bavail=100), "problem"),
            (self.figures(favail=40_000), "warning"),
            (self.figures(favail=0), "problem"),
            (self.figures(files=0, favail=0), "ok"),
        ):
            self.assertEqual(system.evaluateSpace("/data", figures).level, expected)

    @skipUnless(os.access("/dev/shm", os.W_OK), "there is no /dev/shm")
    def test_memory(self) -> None:
        """A data directory in memory is a problem."""
        [line] = lines(system.checkSyncs("/dev/shm/nothing"))
        self.assertEqual(
            line,
            "problem /dev/shm/nothing is in memory (tmpfs): a restart loses all data",
        )

    def test_unwritable(self) -> None:
        """Where nothing can be written, that is said."""
        [line] = lines(system.checkSyncs("/proc/nothing"))
        self.assertRegex(line, "^problem cannot write to /proc: ")

    def test_slow(self) -> None:
        """The verdict is of the slow ones among a hundred."""
        fast = [0.001] * 97
        self.assertEqual(system.evaluateSyncs([*fast, 0.002, 0.002, 0.003]).level, "ok")
        self.assertEqual(system.evaluateSyncs([*fast, 0.05, 0.05, 0.05]).level, "warning")
        self.assertEqual(system.evaluateSyncs([*fast, 0.5, 0.5, 0.5]).level, "problem")

    def test_leavesNothing(self) -> None:
        """Nothing is left of the probe, not even if it is killed in the middle."""
        list(system.checkSyncs(str(self.data)))
        self.assertEqual(os.listdir(self.data), [])
        with subprocess.Popen(
            [sys.executable, "-c", SYNCING, str(self.data)],
            stdout=subprocess.PIPE,
            cwd=CHECKOUT,
        ) as process:
            assert process.stdout is not None
            self.assertEqual(process.stdout.readline(), b"syncing\n")
            process.send_signal(signal.SIGKILL)
        self.assertEqual(os.listdir(self.data), [])


class ClockTests(SynchronousTestCase):
    """The clock."""

    def test_jump(self) -> None:
        """A clock that is set while it is looked at is a problem; one that is steered is none."""
        for step, expected in ((0.0, 0), (0.1, 0), (3600.0, 1), (-2.0, 1)):
            wall = iter([1000.0, 1010.0 + step])
            monotonic = iter([1.0, 11.0])
            watch = system.ClockWatch(lambda w=wall: next(w), lambda m=monotonic: next(m))
            self.assertEqual(len(list(watch.check())), expected)
        self.assertEqual(list(system.ClockWatch().check()), [])

    def test_synchronisation(self) -> None:
        """The kernel's word is told."""
        self.assertEqual(system.evaluateSynchronisation(0x40, 16_000_000).level, "warning")
        finding = system.evaluateSynchronisation(0x2001, 2000)
        self.assertEqual(finding.level, "ok")
        self.assertIn("at most 0.002 s off", finding.text)
        [here] = system.checkSynchronisation()
        self.assertIn(here.level, ("ok", "warning"))

    def test_future(self) -> None:
        """A catalog that was written later than now shows a clock that is behind."""
        data = Path(self.mktemp()).absolute()
        data.mkdir()
        self.assertEqual(list(system.checkFiles(str(data))), [])
        path = data / "catalog.sqlite"
        path.touch()
        self.assertEqual(list(system.checkFiles(str(data))), [])
        os.utime(path, (0, time.time() + 7200))
        [line] = lines(system.checkFiles(str(data)))
        self.assertRegex(line, r"^problem it is at least 7\d\d\d s behind: ")


class LimitTests(SynchronousTestCase):
    """The limits."""

    def test_files(self) -> None:
        """Few files are a warning, too few a problem."""
        for hard, expected in (
            (resource.RLIM_INFINITY, "ok"),
            (1 << 20, "ok"),
            (4096, "warning"),
            (1000, "problem"),
        ):
            self.assertEqual(system.evaluateFiles(hard).level, expected)

    def test_real(self) -> None:
        """It is the hard limit of the process that counts: the daemon raises the other itself."""
        script = (
            "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (64, 700));"
            "from storagegate.cli.doctor.system import checkLimits; print(*checkLimits())"
        )
        result = subprocess.run(
            [sys.executable, "-c", script], cwd=CHECKOUT, capture_output=True, text=True, check=True
        )
        self.assertIn("level='problem'", result.stdout)
        self.assertIn("700 open files are allowed", result.stdout)


class VersionTests(SynchronousTestCase):
    """The versions."""

    def evaluate(self, *requirements: str) -> list[str]:
        """Compare with what is installed here."""
        return lines(configuration.evaluatePackages(requirements, metadata.version))

    def test_packages(self) -> None:
        """What is too old, too new or not there is named; those of extras are ignored."""
        have = metadata.version("attrs")
        self.assertEqual(
            self.evaluate("attrs>=999", "attrs<1", "nowhere-to-be-found>=2"),
            [
                f"problem attrs {have} is installed, >=999 is required",
                f"problem attrs {have} is installed, <1 is required",
                "problem nowhere-to-be-found is not installed: nowhere-to-be-found>=2 is required",
            ],
        )
        self.assertEqual(
            self.evaluate(
                "attrs>=1,<999", "twisted[tls]>=1", 'nowhere>=1; extra == "test"', "attrs"
            ),
            [],
        )

    @given(st.lists(st.integers(0, 99), min_size=1, max_size=4), st.integers(0, 3))
    def test_bounds(self, numbers: list[int], zeros: int) -> None:
        """A version is within its own bounds, however many zeros stand behind it."""
        version = ".".join(map(str, numbers))
        longer = ".".join(map(str, [*numbers, *[0] * zeros]))
        larger = ".".join(map(str, [*numbers[:-1], numbers[-1] + 1]))
        for bound, isMet in (
            (f">={longer}", True),
            (f"=={longer},<{larger}", True),
            (f"<{longer}", False),
            (f">={larger}", False),
            (f"!={longer}", False),
        ):
            found = list(configuration.evaluatePackages([f"x{bound}"], lambda name: version))
            self.assertEqual(not found, isMet, (version, bound))

    def test_ours(self) -> None:
        """The bounds of setup.cfg itself are met here, every one of them is read."""
        text = (CHECKOUT / "setup.cfg").read_text().partition("install_requires =")[2]
        listed = text.partition("\n[")[0].splitlines()
        requirements = [each.strip() for each in listed if each.strip() and "#" not in each]
        self.assertGreater(len(requirements), 10)
        self.assertEqual(self.evaluate(*requirements), [])
