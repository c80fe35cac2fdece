"""A load client as a process on its own core."""

import resource
import subprocess
from collections.abc import Callable, Sequence

from attrs import frozen

CLIENT_CORE = "1"
RUN_SECONDS = 300
"""No run takes longer: the slowest fill of a batch has taken a tenth of it."""

Started = Callable[[int], None]
"""Told the client's process id at once."""


@frozen
class Finished:
    """
    What a client left.

    @ivar cpuSeconds: What it used of its core.
    """

    output: bytes
    cpuSeconds: float


def _childrenSeconds() -> float:
    """Add up the CPU time of the processes that were started here and have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def runPinned(command: Sequence[str], started: Started | None = None) -> Finished:
    """
    Run a client on its core until it ends.

    @raise RuntimeError: If the client fails; with what it wrote.
    """
    before = _childrenSeconds()
    with subprocess.Popen(
        ["taskset", "-c", CLIENT_CORE, *command],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    ) as process:
        if started is not None:
            started(process.pid)
        try:
            output, complaint = process.communicate(timeout=RUN_SECONDS)
        except BaseException:
            process.kill()
            raise
    if process.returncode:
        raise RuntimeError(f"the client failed: {complaint.decode(errors='replace')}")
    return Finished(output, _childrenSeconds() - before)
