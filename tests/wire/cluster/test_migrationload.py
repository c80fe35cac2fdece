"""
A store that is moved to a cluster and back while clients write: what was acknowledged is there.

STORAGEGATE_MIGRATION_SECONDS is how long they write before each move, and
STORAGEGATE_MIGRATION_KILLS how many runs of each are killed: a soak sets more.
"""

import os
import random
import re
import signal
import subprocess
import sys
from threading import Event, Thread
from time import monotonic

from twisted.trial.unittest import SynchronousTestCase

from tests.support.clients import botoClient
from tests.support.cluster import Cluster
from tests.support.daemon import Daemon, daemonEnvironment
from tests.support.journal import Journal
from tests.support.selection import long
from tests.wire.s3.fixture import makeDaemon, ownDirectory, runStoragegate
from tests.wire.s3.verdict import judge
from tests.wire.s3.workload import Load, Writers, setVersioning

SECONDS = float(os.environ.get("STORAGEGATE_MIGRATION_SECONDS", "0.4"))
KILLS = int(os.environ.get("STORAGEGATE_MIGRATION_KILLS", "1"))


class Move:
    """
    C{storagegate cluster migrate} as a process.

    @ivar text: What it has said so far.
    """

    def __init__(self, cluster: Cluster, *arguments: str) -> None:
        self.text = ""
        self._ready = Event()
        self._process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "storagegate",
                "cluster",
                "migrate",
                *arguments,
                "--config",
                str(cluster.configuration()),
            ],
            env=daemonEnvironment(cluster.environment()),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self._reader = Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.text += line
            if line.startswith("ready: "):
                self._ready.set()
        self._ready.set()

    def waitUntilReady(self) -> None:
        """Wait until the source should be stopped."""
        assert self._ready.wait(120), self.text
        assert "ready: " in self.text, self.text

    def kill(self) -> None:
        """End it at once."""
        self._process.send_signal(signal.SIGKILL)
        self.wait()

    def terminate(self) -> None:
        """End it as an operator does."""
        self._process.terminate()

    def wait(self) -> int:
        """Wait until it ends; return its exit code."""
        code = self._process.wait(120)
        self._reader.join()
        return code


@long("starts a cluster")
class LoadTests(SynchronousTestCase):
    """There and back, with three buckets that are written to."""

    timeout = 600

    def setUp(self) -> None:
        self.seed = random.SystemRandom().randrange(1 << 32)
        self.journals = {"plain": Journal(), "versions": Journal(), "locked": Journal()}
        self.cluster = Cluster(isInitialised=False)
        self.addCleanup(self.cluster.close)

    def loads(self, daemon: Daemon, number: int) -> list[Load]:
        """Return the loads of a server."""
        seed, address = self.seed + number, daemon.address()
        status = setVersioning(daemon, "versions", number)
        return [
            Load(address, "plain", self.journals["plain"], seed, 3),
            Load(address, "versions", self.journals["versions"], -seed, 2, 6, status),
            Load(address, "locked", self.journals["locked"], seed, 1, 6, "Enabled", True),
        ]

    def moveUnderLoad(self, daemon: Daemon, number: int, *arguments: str) -> str:
        """Move a store while it is written to, with runs that are killed; return what was said."""
        moments = random.Random(self.seed)
        with Writers(*self.loads(daemon, number)) as writers:
            writers.let(SECONDS)
            for _ in range(KILLS):
                killed = Move(self.cluster, *arguments)
                Event().wait(moments.uniform(1.0, 2.5))
                killed.kill()
            ended = Move(self.cluster, *arguments)
            ended.waitUntilReady()
            ended.terminate()
            self.assertEqual(ended.wait(), 130, ended.text)
            self.assertIn("interrupted: run the command again to continue", ended.text)
            move = Move(self.cluster, *arguments)
            move.waitUntilReady()
            writers.let(SECONDS / 2)
            stopping = monotonic()
            daemon.stop()
            stopped = monotonic() - stopping
        self.assertEqual(move.wait(), 0, move.text)
        print(f"{move.text}stopping took {stopped:.2f} s", file=sys.stderr)
        return move.text

    def judge(self, daemon: Daemon, where: str) -> None:
        """Compare what a server has with the journals."""
        for bucket, journal in self.journals.items():
            judge(daemon, bucket, journal, f"{where}, seed {self.seed}")

    def test_thereAndBack(self) -> None:
        """All acknowledged writes are in the cluster, and in the directory after that."""
        old, new = ownDirectory("old") / "data", ownDirectory("new") / "data"
        daemon = makeDaemon(old)
        self.addCleanup(daemon.kill)
        daemon.start()
        for bucket in self.journals:
            botoClient(daemon.url()).create_bucket(
                Bucket=bucket, ObjectLockEnabledForBucket=bucket == "locked"
            )
        text = self.moveUnderLoad(daemon, 0, "--from", str(old))
        self.assertRegex(text, r"(?m)^switched: \d+ rows copied")
        self.cluster.initialise()
        [node] = self.cluster.start()
        self.judge(node, "in the cluster")
        daemon.launch()
        self.assertEqual(daemon.wait(), 1)
        self.assertIn("this store was migrated to the cluster", daemon.log)
        text = self.moveUnderLoad(node, 1, "--to", str(new))
        self.assertTrue(re.search(r"(?m)^switched: ", text), text)
        runStoragegate("fsck", "--verify", "--data", new)
        node.launch()
        self.assertEqual(node.wait(), 1)
        self.assertIn("this store was migrated to", node.log)
        back = makeDaemon(new)
        self.addCleanup(back.kill)
        back.start()
        self.judge(back, "back again")
        back.stop()
