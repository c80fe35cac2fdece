"""The choice of the tests that run, and the limit of their duration."""

import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

from twisted.internet.defer import Deferred
from twisted.trial.unittest import SkipTest, SynchronousTestCase

from tests.support.distribution import byModule, distributeModules
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


class DistributionTests(SynchronousTestCase):
    """The distribution of tests over the workers of C{trial -j}."""

    MODULES = ("tests.auth.test_a", "tests.wire.test_b", "tests.auth.test_a", "tests.core.test_c")

    def cases(self) -> list[Any]:
        """Make a test of each module."""
        return [type("Case", (), {"__module__": name})() for name in self.MODULES]

    def test_order(self) -> None:
        """The tests of a module stay together, and packages with long tests come first."""
        cases = self.cases()
        found = byModule(cases)
        self.assertEqual(found[0], [cases[1]])
        self.assertEqual(sorted(map(len, found[1:])), [1, 2])
        self.assertIn([cases[0], cases[2]], found)
        self.assertEqual(byModule(reversed(cases))[0], [cases[1]])

    def test_ceph(self) -> None:
        """The modules that use Ceph are one group, the first."""
        cases = self.cases()
        for name in self.MODULES[:2]:
            module = ModuleType(name)
            module.runningCluster = None  # type: ignore[attr-defined]
            self.patch(sys, "modules", {**sys.modules, name: module})
        self.assertEqual(byModule(cases), [cases[:3], cases[3:]])

    def test_workers(self) -> None:
        """A worker runs a whole module, while another one runs the others; errors are reported."""
        trial: Any = SimpleNamespace(_iterateTests=iter, DistTrialRunner=type("Runner", (), {}))
        distributeModules(trial)
        modules = iter(trial._iterateTests(self.cases()))
        drive = trial.DistTrialRunner()._driveWorker
        errors: list[Any] = []
        result = SimpleNamespace(
            original=SimpleNamespace(addError=lambda case, failure: errors.append(failure))
        )
        running: list[tuple[str, str, Deferred[None]]] = []

        def worker(name: str) -> Any:
            def run(case: Any, result: Any) -> Deferred[None]:
                running.append((name, type(case).__module__, Deferred()))
                return running[-1][2]

            return SimpleNamespace(run=run)

        ends = [Deferred.fromCoroutine(drive(result, modules, worker(name))) for name in "ab"]
        seen = []
        while running:
            name, module, ended = running.pop(0)
            seen.append((name, module))
            if len(seen) == 1:
                ended.errback(ValueError("a broken test"))
            else:
                ended.callback(None)
        for end in ends:
            self.successResultOf(end)
        self.assertEqual(sorted(module for _, module in seen), sorted(self.MODULES))
        self.assertEqual(len({name for name, module in seen if module == self.MODULES[0]}), 1)
        self.assertEqual([str(each.value) for each in errors], ["a broken test"])


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
