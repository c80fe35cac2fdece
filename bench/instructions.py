"""Instructions of a server, counted by callgrind; only those outside of the kernel."""

import re
import shutil
import subprocess
from pathlib import Path

from bench.cases import Case, MeasureError
from bench.processes import Running

PREFIX = (
    "valgrind",
    "-q",
    "--tool=callgrind",
    "--instr-atstart=no",
    "--callgrind-out-file={folder}/callgrind",
)
"""Words before the command of a server. Nothing is counted until L{count}."""

SECONDS = 5
CONNECTIONS = 4
"""Few, because an accepted connection takes as much as some requests."""

_TOTAL = re.compile(r"^(?:summary|totals): (\d+)", re.MULTILINE)


def canCount() -> bool:
    """Return whether callgrind is installed."""
    return shutil.which("callgrind_control") is not None


def count(running: Running, case: Case) -> float:
    """Count the instructions of a request of a case."""
    assert running.process is not None
    pid = str(running.process.pid)
    connections = min(CONNECTIONS, case.connections[-1])
    case.load(running, connections, SECONDS).run(SECONDS, None)
    load = case.load(running, connections, SECONDS)
    _control("-i", "on", pid)
    _control("-z", pid)
    seen = load.run(SECONDS, None)
    before = set(running.folder.glob("callgrind.*"))
    _control("-d", pid)
    [written] = set(running.folder.glob("callgrind.*")) - before
    if not seen.requests:
        raise MeasureError("no request was answered")
    return readTotal(written) / seen.requests


def readTotal(path: Path) -> int:
    """
    Read the total of a file of callgrind.

    @raise MeasureError: It has none.
    """
    found = _TOTAL.search(path.read_text())
    if found is None:
        raise MeasureError("callgrind wrote no total")
    return int(found[1])


def _control(*words: str) -> None:
    subprocess.run(["callgrind_control", *words], check=True, capture_output=True)
