"""
C{kill -9} at random moments under load: what was acknowledged is there, and nothing is half there.
"""

import random

from twisted.trial.unittest import SynchronousTestCase

from tests.support.clients import botoClient
from tests.support.daemon import DaemonFailed
from tests.support.journal import Journal
from tests.support.selection import long, rounds
from tests.wire.s3.fixture import eventually, leftovers, makeDaemon, ownDirectory, runStoragegate
from tests.wire.s3.verdict import isCollected, judge
from tests.wire.s3.workload import Load, Writers, encrypt, setVersioning

ROUNDS = rounds(2, 6, soak=200)


class CrashTests(SynchronousTestCase):
    """One store that dies again and again."""

    @long("takes seconds")
    def test_killedUnderLoad(self) -> None:
        """After each kill all acknowledged writes are whole, and the rest is whole or absent."""
        seed = random.SystemRandom().randrange(1 << 32)
        moments = random.Random(seed)
        names = ("crash", "versions", "locked", "sealed")
        journals = {name: Journal() for name in names}
        daemon = makeDaemon(ownDirectory("crash") / "data")
        self.addCleanup(daemon.kill)
        daemon.start()
        for bucket in journals:
            botoClient(daemon.url()).create_bucket(
                Bucket=bucket, ObjectLockEnabledForBucket=bucket == "locked"
            )
        encrypt(daemon, "sealed")
        for number in range(ROUNDS):
            status = setVersioning(daemon, "versions", number)
            loads = (
                Load(daemon.address(), "crash", journals["crash"], seed + number),
                Load(daemon.address(), "sealed", journals["sealed"], 3 * seed + number, 3, 6),
                Load(
                    daemon.address(), "versions", journals["versions"], -number - seed, 4, 6, status
                ),
                Load(
                    daemon.address(),
                    "locked",
                    journals["locked"],
                    number - seed,
                    2,
                    6,
                    "Enabled",
                    True,
                ),
            )
            with Writers(*loads) as writers:
                writers.let(moments.uniform(0.05, 0.9))
                daemon.kill()
            if number % 4 == 3:
                runStoragegate("fsck", "--repair", "--data", daemon.data)
            daemon.start()
            self.assertEqual(leftovers(daemon), [], f"round {number}, seed {seed}")
            for bucket, journal in journals.items():
                judge(daemon, bucket, journal, f"round {number}, seed {seed}")
        self.assertNotIn("Traceback", daemon.log)
        self.assertTrue(eventually(lambda: isCollected(daemon)))
        daemon.stop()
        runStoragegate("fsck", "--data", daemon.data)

    @long("takes seconds")
    def test_killedWhileStarting(self) -> None:
        """A start that is killed leaves nothing that keeps the next from starting."""
        daemon = makeDaemon(ownDirectory("crash") / "data")
        self.addCleanup(daemon.kill)
        daemon.start()
        s3 = botoClient(daemon.url())
        s3.create_bucket(Bucket="crash")
        s3.put_object(Bucket="crash", Key="k", Body=b"x" * 100_000)
        daemon.kill()
        moments = random.Random(1)
        for _ in range(5):
            daemon.launch()
            try:
                daemon.wait(moments.uniform(0.1, 0.8))
            except DaemonFailed:
                pass  # It ran, and was killed.
        daemon.start()
        found = botoClient(daemon.url()).get_object(Bucket="crash", Key="k")
        self.assertEqual(found["Body"].read(), b"x" * 100_000)
