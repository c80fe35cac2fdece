"""The choice of the tests that run, and the limit of their duration."""

import os
import subprocess
import sys
from pathlib import Path

from twisted.trial.unittest import SkipTest, SynchronousTestCase

from tests.support.durations import tooLong
from tests.support.modules import CHECKOUT
from tests.support.programs import VARIABLE, missing, needProgram
from tests.support.selection import long, partOf, soak

MODULE = """
from twisted.trial.unittest import SynchronousTestCase

from tests.support.programs import needProgram, needs
from tests.support.selection import long, soak


class Tests(SynchronousTestCase):
    def test_short(self):
        pass

    @long("waits")
    def test_long(self):
        pass

    @soak("takes hours")
    def test_soak(self):
        pass

    def test_dynamic(self):
        needProgram("no-such-program")

    @needs("no-such-program")
    def test_declared(self):
        pass


@long("starts a server")
class LongTests(SynchronousTestCase):
    def test_one(self):
        pass
"""


class MarkTests(SynchronousTestCase):
    """The marks of tests."""

    def test_part(self) -> None:
        """A test has its own mark, or that of its class or of a base of it."""

        class Base:
            part = "short"

            def test_one(self) -> None:
                """Do nothing."""

            @soak("takes hours")
            def test_two(self) -> None:
                """Do nothing."""

        @long("waits")
        class Slow(Base):
            pass

        class Slower(Slow):
            pass

        for case, part in ((Base, "short"), (Slow, "long"), (Slower, "long")):
            self.assertEqual(partOf(case, "test_one"), part)
            self.assertEqual(partOf(case, "test_two"), "soak")


class ChoiceTests(SynchronousTestCase):
    """A run of trial with each choice."""

    def run_(self, choice: str) -> tuple[int, str]:
        """Run the module; return the status and the output."""
        directory = Path(self.mktemp()).absolute()
        directory.mkdir()
        module = directory / "test_chosen.py"
        module.write_text(MODULE)
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(CHECKOUT), str(directory)])}
        for name in (VARIABLE, "TESTS_CHOICE", "TESTS_DURATIONS"):
            environment.pop(name, None)
        done = subprocess.run(
            # The package of the tests makes the choice, so it is loaded first.
            [sys.executable, "-m", "twisted.trial", "tests.core.test_backoff", "test_chosen"],
            cwd=directory,
            env={**environment, "STORAGEGATE_TESTS": choice},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        return done.returncode, done.stdout

    def test_short(self) -> None:
        """The short part names the number of long tests, and the programs that are missing."""
        status, text = self.run_("short")
        self.assertEqual(status, 0, text)
        self.assertIn("test_short", text)
        for name in ("test_long", "test_one", "test_soak"):
            self.assertNotIn(name, text)
        self.assertIn("2 long tests were left out: STORAGEGATE_TESTS=all runs them", text)
        self.assertIn("2 tests were skipped: no-such-program is not installed", text)

    def test_long(self) -> None:
        """The long part has no short test."""
        status, text = self.run_("long")
        self.assertEqual(status, 0, text)
        self.assertIn("test_long", text)
        self.assertIn("test_one", text)
        for name in ("test_short", "test_soak"):
            self.assertNotIn(name, text)

    def test_unknown(self) -> None:
        """A choice that does not exist ends the run with one line."""
        status, text = self.run_("quick")
        self.assertNotEqual(status, 0)
        self.assertIn("STORAGEGATE_TESTS is 'quick'; it may be short, long, all, soak", text)


class ProgramTests(SynchronousTestCase):
    """Programs that tests need."""

    def test_missing(self) -> None:
        """A missing program skips the test, and the reason says how to install it."""
        self.patch(os, "environ", {})
        error = self.assertRaises(SkipTest, needProgram, "no-such-program")
        self.assertEqual(
            str(error), "no-such-program is not installed: pip install no-such-program"
        )
        self.assertIn("apt-get install redis-server", str(missing("redis-server")))


class DurationTests(SynchronousTestCase):
    """The limit of the short part."""

    def test_median(self) -> None:
        """The median of several runs counts, so that one slow moment fails nothing."""
        lines = ["2.5 1 a", "0.1 0.1 a", "0.2 0.1 a", "2.5 1 b", "2.1 1 b", "0.1 1 b"]
        self.assertEqual(tooLong(lines), {"b": 2.1})
