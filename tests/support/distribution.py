"""
The order in which C{trial -j} hands tests to its workers: module by module.

Trial itself hands out single tests, so each worker imports every module and starts every server
that the tests of a module share. Here a worker runs a whole module, and one worker runs all modules
that use Ceph. The modules come in a fixed order that separates neighbours, because the tests of one
package need the same resources; packages with long tests come first, so that no worker runs one
while the others have ended.
"""

import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any
from zlib import crc32

from twisted.python.failure import Failure

FIRST = ("tests.wire.", "tests.browser.", "tests.storage.", "tests.typing.")
"""Packages with long tests."""

CEPH = "runningCluster"
"""The name that modules import to use Ceph; see L{tests.support.ceph}."""


def byModule(cases: Iterable[Any]) -> list[list[Any]]:
    """Return the tests that one worker runs together, in the order of distribution."""
    groups: dict[str, list[Any]] = {}
    for case in cases:
        name = type(case).__module__
        group = CEPH if hasattr(sys.modules.get(name), CEPH) else name
        groups.setdefault(group, []).append(case)

    def place(name: str) -> tuple[bool, bool, int]:
        return name != CEPH, not name.startswith(FIRST), crc32(name.encode())

    return [groups[name] for name in sorted(groups, key=place)]


def distributeModules(trial: Any) -> None:
    """
    Make the manager of the workers hand out modules.

    @param trial: The module C{twisted.trial._dist.disttrial}; it has no public hook for this.
    """
    tests: Callable[[Any], Iterator[Any]] = trial._iterateTests

    async def drive(runner: Any, result: Any, modules: Iterable[list[Any]], worker: Any) -> None:
        for cases in modules:
            for case in cases:
                try:
                    await worker.run(case, result)
                except Exception:
                    result.original.addError(case, Failure())

    trial._iterateTests = lambda suite: byModule(tests(suite))
    trial.DistTrialRunner._driveWorker = drive
