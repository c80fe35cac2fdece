"""The kernel's statistics of a process's memory."""

from pathlib import Path


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
