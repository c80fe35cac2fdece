"""Instructions of a process, where the processor counts them: other work does not change them."""

import re
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

EVENT = "instructions:u"
_COUNT = re.compile(r"^(\d+),[^,]*,instructions", re.MULTILINE)


def readCount(report: str) -> int | None:
    """Read what C{perf stat -x,} wrote; L{None} if nothing was counted."""
    found = _COUNT.search(report)
    return int(found[1]) if found else None


def canCount() -> bool:
    """Say whether C{perf} is there and this machine's processor counts instructions for it."""
    if shutil.which("perf") is None:
        return False
    words = ["perf", "stat", "-x,", "-e", EVENT, "true"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    return done.returncode == 0 and readCount(done.stderr) is not None


@contextmanager
def countInstructions(pid: int) -> Iterator[list[int]]:
    """
    Count the instructions of a process while the context lasts.

    @return: Receives the number at the end.
    """
    counts: list[int] = []
    words = ["perf", "stat", "-x,", "-e", EVENT, "-p", str(pid)]
    with subprocess.Popen(words, stderr=subprocess.PIPE, text=True) as process:
        yield counts
        process.send_signal(signal.SIGINT)
        _, report = process.communicate()
    count = readCount(report)
    if count is not None:
        counts.append(count)
