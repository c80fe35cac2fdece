"""
Promised times on a machine that others use as well.

A step of an exchange is late by the time that its thread was ready to run while others had the
CPUs. The kernel counts this time for each thread; see C{Documentation/scheduler/sched-stats.rst}.
"""

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from time import monotonic


def _family(pid: int) -> Iterator[Path]:
    """Iterate over the threads of a process and of its descendants."""
    with suppress(OSError):
        for thread in Path(f"/proc/{pid}/task").iterdir():
            yield thread
            for child in (thread / "children").read_text().split():
                yield from _family(int(child))


def _waits() -> dict[str, float]:
    found = {}
    for thread in _family(os.getpid()):
        with suppress(OSError):
            found[thread.name] = int((thread / "schedstat").read_text().split()[1]) / 1e9
    return found


class Stopwatch:
    """
    Measures the time from its creation, without the time that this process and its descendants
    waited for a CPU. On a quiet machine it measures what a clock does.
    """

    def __init__(self) -> None:
        self._waits = _waits()
        self._began = monotonic()

    def waitedSeconds(self) -> float:
        """Return for how long all threads together have waited for a CPU."""
        return sum(each - self._waits.get(name, 0.0) for name, each in _waits().items())

    def seconds(self) -> float:
        """Return the seconds so far: a tenth of the passed time at least, so that loops end."""
        passed = monotonic() - self._began
        return max(passed - self.waitedSeconds(), passed / 10)
