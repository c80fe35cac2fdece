"""What the kernel tells of a process's memory."""

from pathlib import Path


def peakMemory(pid: int) -> int:
    """Tell the most memory, in bytes, that a process has had resident."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise ValueError("the kernel does not tell the peak")


def forgetPeak(pid: int) -> None:
    """Have the kernel measure the peak from now on."""
    Path(f"/proc/{pid}/clear_refs").write_text("5")
