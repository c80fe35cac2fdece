"""
Power cuts: the file system is shut down under load, and forgets what was not synced.

ext4 on a loop device is told by C{ioctl} to go down without flushing its journal; that is what the
disk would hold if the machine had lost its power at that moment.
"""

import fcntl
import os
import random
import struct
import subprocess
from pathlib import Path

from twisted.trial.unittest import SkipTest, SynchronousTestCase

from tests.support.clients import botoClient
from tests.support.journal import Journal
from tests.support.programs import needProgram
from tests.support.selection import long, rounds
from tests.wire.s3.fixture import leftovers, makeDaemon, ownDirectory, runStoragegate
from tests.wire.s3.verdict import judge
from tests.wire.s3.workload import Load, Writers, encrypt, setVersioning

ROUNDS = rounds(2, 3, soak=50)
"""Five show a missing fsync nearly always; a soak sets more."""

DISK_MIB = 256

SHUTDOWN = 0x8004587D
"""C{EXT4_IOC_SHUTDOWN}; XFS has the same."""

WITHOUT_FLUSH = 2
"""C{EXT4_GOING_FLAGS_NOLOGFLUSH}: not even the journal in memory is written."""


class Disk:
    """An ext4 in a file that can lose its power."""

    def __init__(self, directory: Path) -> None:
        """
        @raise SkipTest: If this user, kernel or container does not let us.
        """
        if os.geteuid() != 0:
            raise SkipTest("only root may mount a disk whose power can be cut")
        self.path = directory / "mounted"
        self._image = directory / "disk.img"
        self.path.mkdir()
        with self._image.open("wb") as image:
            image.truncate(DISK_MIB << 20)
        self._run(needProgram("mkfs.ext4"), "-q", "-F", str(self._image))

    def mount(self) -> None:
        """Mount it; what a cut left in its journal is replayed."""
        self._run("mount", "-o", "loop", str(self._image), str(self.path))

    def cut(self) -> None:
        """Cut the power: from here on nothing reaches the disk, and every call fails."""
        handle = os.open(self.path, os.O_RDONLY)
        try:
            fcntl.ioctl(handle, SHUTDOWN, struct.pack("I", WITHOUT_FLUSH))
        except OSError as error:
            raise SkipTest(f"the file system cannot be shut down: {error}") from error
        finally:
            os.close(handle)

    def unmount(self) -> None:
        """Unmount it, if it is mounted."""
        if os.path.ismount(self.path):
            self._run("umount", str(self.path))

    def _run(self, *command: str) -> None:
        done = subprocess.run(command, capture_output=True, check=False)
        if done.returncode != 0:
            raise SkipTest(f"{command[0]} is refused: {done.stderr.decode().strip()}")


@long("mounts a disk")
class PowerCutTests(SynchronousTestCase):
    """One disk that loses its power again and again."""

    def test_cutUnderLoad(self) -> None:
        """After each cut all acknowledged writes are whole, and the rest is whole or absent."""
        seed = random.SystemRandom().randrange(1 << 32)
        moments = random.Random(seed)
        names = ("power", "versions", "locked", "sealed")
        journals = {name: Journal() for name in names}
        disk = Disk(ownDirectory("power"))
        self.addCleanup(disk.unmount)
        disk.mount()
        daemon = makeDaemon(disk.path / "data")
        self.addCleanup(daemon.kill)
        daemon.start()
        for bucket in journals:
            botoClient(daemon.url()).create_bucket(
                Bucket=bucket, ObjectLockEnabledForBucket=bucket == "locked"
            )
        encrypt(daemon, "sealed")
        for number in range(ROUNDS):
            status = setVersioning(daemon, "versions", number)
            loads = [
                Load(daemon.address(), bucket, journals[bucket], seed + number, writers, 5, *kind)
                for bucket, writers, *kind in (
                    ("power", 3),
                    ("versions", 3, status),
                    ("locked", 2, "Enabled", True),
                    ("sealed", 2),
                )
            ]
            with Writers(*loads) as writers:
                writers.let(moments.uniform(0.05, 1.2))
                for journal in journals.values():
                    journal.freeze()
                disk.cut()
                daemon.kill()
            disk.unmount()
            disk.mount()
            if number % 2:
                runStoragegate("fsck", "--repair", "--data", daemon.data)
            daemon.start()
            self.assertEqual(leftovers(daemon), [], f"round {number}, seed {seed}")
            for bucket, journal in journals.items():
                journal.thaw()
                judge(daemon, bucket, journal, f"round {number}, seed {seed}")
        daemon.stop()
        runStoragegate("fsck", "--data", daemon.data)
