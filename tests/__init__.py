"""The tests: C{python -m twisted.trial -j 2 tests}, on machines that others use as well."""

import shutil
import sys
from pathlib import Path

from twisted.trial.runner import TestLoader
from twisted.trial.unittest import SynchronousTestCase

# Before any test imports grpc itself, which is then as it is in the daemon.
import storagegate.rpc  # noqa: F401
from tests.support.distribution import distributeModules
from tests.support.durations import timed
from tests.support.memory import collecting, returnLargeBlocks
from tests.support.programs import collectMissing
from tests.support.selection import rounds, selecting

_mktemp = SynchronousTestCase.mktemp


def mktemp(case: SynchronousTestCase) -> str:
    """
    Make a path as trial does, and remove what is there when the test has ended.

    Trial keeps it all until the next run: 10 GB.
    """
    path = _mktemp(case)
    case.addCleanup(shutil.rmtree, Path(path).absolute().parent, ignore_errors=True)
    return path


SynchronousTestCase.mktemp = mktemp
SynchronousTestCase.run = timed(collecting(SynchronousTestCase.run))
TestLoader.getTestCaseNames = selecting(TestLoader.getTestCaseNames)
collectMissing()
returnLargeBlocks()
# Only the manager of workers has imported it.
if (trial := sys.modules.get("twisted.trial._dist.disttrial")) is not None:
    distributeModules(trial)

# Python's word for "a module to run is looked for": a program of the tests, which has no examples
# to try and would spend a third of its start on the import.
if sys.argv[0] != "-m":
    from hypothesis import HealthCheck, settings
    from hypothesis.configuration import set_hypothesis_home_dir

    # trial's directory is new in each run, and the tables of Unicode take two seconds to make.
    set_hypothesis_home_dir(Path(__file__).parents[1] / ".hypothesis")
    # On a shared machine the time of an example says nothing, and a slow moment is no failure.
    settings.register_profile(
        "storagegate",
        deadline=None,
        database=None,
        max_examples=rounds(25, 100),
        suppress_health_check=[HealthCheck.too_slow],
    )
    settings.load_profile("storagegate")
