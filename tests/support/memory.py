"""The kernel's statistics of a process's memory, and the return of memory to the kernel."""

import ctypes
import gc
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

_M_MMAP_THRESHOLD = -3
"""See mallopt(3)."""

LARGE = 1 << 20

GROWTH = 64 << 20
"""Growth of a process after which its garbage is collected."""


def returnLargeBlocks() -> None:
    """
    Make malloc of glibc return blocks of a megabyte and more to the kernel when they are freed.

    By default it does so only until the first is freed; later ones leave holes in the heap.
    """
    if hasattr(library := ctypes.CDLL(None), "mallopt"):
        library.mallopt(_M_MMAP_THRESHOLD, LARGE)


def collecting(run: Callable[..., Any]) -> Callable[..., Any]:
    """
    Wrap C{TestCase.run} to collect the garbage of a process that has grown.

    The collector counts objects, not bytes: a few cycles with large bodies would stay for long.

    @param run: The method of trial.
    """
    most = residentMemory(os.getpid()) + GROWTH

    def collected(case: Any, result: Any) -> Any:
        nonlocal most
        try:
            return run(case, result)
        finally:
            if residentMemory(os.getpid()) > most:
                gc.collect()
                most = residentMemory(os.getpid()) + GROWTH

    return collected


def peakMemory(pid: int) -> int:
    """Return the peak resident memory of a process in bytes."""
    return _memory(pid, "VmHWM")


def residentMemory(pid: int) -> int:
    """Return the resident memory of a process in bytes."""
    return _memory(pid, "VmRSS")


def _memory(pid: int, name: str) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * 1024
    raise ValueError(f"the kernel does not tell {name}")


def forgetPeak(pid: int) -> None:
    """Reset the peak measurement of the kernel."""
    Path(f"/proc/{pid}/clear_refs").write_text("5")
