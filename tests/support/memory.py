"""What the kernel tells of a process's memory."""

from pathlib import Path


def peakMemory(pid: int) -> int:
    """Tell the most memory, in bytes, that a process has had resident."""
    return _memory(pid, "VmHWM")


def residentMemory(pid: int) -> int:
    """Tell how much memory, in bytes, a process has resident."""
    return _memory(pid, "VmRSS")


def _memory(pid: int, name: str) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * 1024
    raise ValueError(f"the kernel does not tell {name}")


def forgetPeak(pid: int) -> None:
    """Have the kernel measure the peak from now on."""
    Path(f"/proc/{pid}/clear_refs").write_text("5")
