"""
The duration of each test, for the limit that C{.ci/run} sets for the short part.

If C{TESTS_DURATIONS} names a file, each process of a run appends a line for each of its tests: its
seconds as a L{Stopwatch} measures them, the CPU seconds of the test and of the processes that it
waited for, and its name.
"""

import os
import resource
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable
from statistics import median
from typing import Any

from tests.support.contention import Stopwatch

VARIABLE = "TESTS_DURATIONS"

MOST_SECONDS = 2.0
"""The limit of a test of the short part; it applies to the median of its runs."""


def _processorSeconds() -> float:
    usages = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def timed(run: Callable[..., Any]) -> Callable[..., Any]:
    """
    Wrap C{TestCase.run} to record durations; return it unchanged if recording is disabled.

    @param run: The method of trial.
    """
    path = os.environ.get(VARIABLE)
    if not path:
        return run

    def measured(case: Any, result: Any) -> Any:
        watch, used = Stopwatch(), _processorSeconds()
        try:
            return run(case, result)
        finally:
            with open(path, "a") as file:
                file.write(f"{watch.seconds():.3f} {_processorSeconds() - used:.3f} {case.id()}\n")

    return measured


def tooLong(lines: Iterable[str]) -> dict[str, float]:
    """
    Return the median seconds of each test that exceeds the limit.

    @param lines: The lines of one or several runs.
    """
    runs: dict[str, list[float]] = defaultdict(list)
    for line in lines:
        seconds, _, name = line.split()
        runs[name].append(float(seconds))
    medians = {name: median(found) for name, found in runs.items()}
    return {name: found for name, found in medians.items() if found > MOST_SECONDS}


if __name__ == "__main__":
    with open(sys.argv[1]) as recorded:
        for test, seconds in sorted(tooLong(recorded).items()):
            print(test if "--names" in sys.argv else f"{seconds:6.2f} s {test}")
