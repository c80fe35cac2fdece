"""The profile of real servers, made quickly."""

import json
import subprocess
import sys

from twisted.trial.unittest import SynchronousTestCase

from bench.places import CHECKOUT
from tests.support.selection import long
from tests.wire.bench.test_gatewayservers import needPrograms


@long("measures programs of the bench")
class ProfileTests(SynchronousTestCase):
    """A profile runs from beginning to end."""

    def makeProfile(self, *words: str) -> dict[str, object]:
        """Make a profile as short as can be."""
        command = [sys.executable, str(CHECKOUT / "bench" / "profile.py"), *words, "--json"]
        command += ["--rounds", "1", "--seconds", "1", "--sampled", "1"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        found: dict[str, object] = json.loads(done.stdout)
        return found

    def checkProfile(self, found: object, *wanted: str) -> None:
        """Check that stages add up to the whole, cover it, and that some have time and calls."""
        assert isinstance(found, dict)
        stages = {stage["name"]: stage for stage in found["stages"]}
        whole = sum(stage["micros"] for stage in stages.values())
        self.assertAlmostEqual(whole, found["cpuMicros"], places=3)
        self.assertGreater(found["covered"], 0.9)
        self.assertGreater(found["samples"], 100)
        for name in wanted:
            self.assertGreater(stages[name]["micros"], 0, name)
            self.assertGreater(stages[name]["calls"], 0, name)

    def test_s3(self) -> None:
        """Writes have a stage for the signature and one for the commit, which is a thread's."""
        needPrograms("gcc", "taskset")
        found = self.makeProfile("put4k")["profile"]
        self.checkProfile(found, "head", "authenticate", "commit", "write")
        assert isinstance(found, dict)
        self.assertIn("storagegate-catalog", [each["name"] for each in found["threads"]])

    def test_compare(self) -> None:
        """Another checkout, here the same one, is measured alike."""
        needPrograms("taskset", "wrk")
        found = self.makeProfile("hello", "--compare", str(CHECKOUT))
        for side in ("profile", "before"):
            self.checkProfile(found[side], "head", "route", "response", "write")
