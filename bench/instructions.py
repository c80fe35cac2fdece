"""
Instructions of a server, counted by callgrind: other work of the machine does not change them.

Only those outside of the kernel are counted. A server runs some fifty times slower meanwhile.
"""

import re
import shutil
import subprocess
from pathlib import Path

START_SECONDS = 300
"""A start takes half a minute."""

_TOTAL = re.compile(r"^(?:summary|totals): (\d+)", re.MULTILINE)


def canCount() -> bool:
    """Say whether the program is there."""
    return shutil.which("callgrind_control") is not None


def commandPrefix(folder: Path) -> list[str]:
    """Write what stands before the command of a server, which counts nothing yet."""
    options = ["-q", "--tool=callgrind", "--instr-atstart=no"]
    return ["valgrind", *options, f"--callgrind-out-file={folder / 'callgrind'}"]


def begin(pid: int) -> None:
    """Begin to count, from zero."""
    _control("-i", "on", str(pid))
    _control("-z", str(pid))


def end(pid: int, folder: Path) -> int:
    """
    Count no more.

    @return: How many instructions there were.
    """
    before = set(folder.glob("callgrind.*"))
    _control("-d", str(pid))
    [written] = set(folder.glob("callgrind.*")) - before
    return readTotal(written.read_text())


def readTotal(text: str) -> int:
    """
    Read the total of a file of callgrind's.

    @raise ValueError: If there is none.
    """
    found = _TOTAL.search(text)
    if found is None:
        raise ValueError("there is no total")
    return int(found[1])


def _control(*words: str) -> None:
    subprocess.run(["callgrind_control", *words], check=True, capture_output=True)
