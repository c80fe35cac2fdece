"""The clock: whether somebody steers it, whether it jumps, and whether it can be right at all."""

import ctypes
import os
import time
from collections.abc import Callable, Iterator

from storagegate.doctor.findings import Check, Finding

_check = Check("clock")

# S3 refuses signatures that are further away than this; clients are on other machines.
_SKEW_SECONDS = 900

_UNSYNCHRONISED = 0x40

# Less than this is what a clock that is being steered does.
_JUMP_SECONDS = 0.5


class _Timex(ctypes.Structure):
    """The beginning of C{struct timex}, and room for the rest of it."""

    _fields_ = [
        ("modes", ctypes.c_uint),
        ("offset", ctypes.c_long),
        ("frequency", ctypes.c_long),
        ("maximumError", ctypes.c_long),
        ("estimatedError", ctypes.c_long),
        ("status", ctypes.c_int),
        ("rest", ctypes.c_long * 32),
    ]


class ClockWatch:
    """Compares the clock with the monotonic one, between its making and its check."""

    def __init__(
        self,
        wall: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._difference = lambda: wall() - monotonic()
        self._start = self._difference()

    def check(self) -> Iterator[Finding]:
        """Tell whether the clock was set meanwhile."""
        jump = self._difference() - self._start
        if abs(jump) > _JUMP_SECONDS:
            yield _check.problem(f"it jumped by {jump:.1f} s while it was looked at")


def checkSynchronisation() -> Iterator[Finding]:
    """Ask the kernel whether a time service steers the clock."""
    timex = _Timex()
    adjust = getattr(ctypes.CDLL(None), "adjtimex", None)
    if adjust is None or adjust(ctypes.byref(timex)) < 0:
        yield _check.warning("the kernel does not say whether the clock is synchronised")
        return
    yield judgeSynchronisation(timex.status, timex.maximumError)


def judgeSynchronisation(status: int, maximumErrorUs: int) -> Finding:
    """Say what the kernel's state of the clock means."""
    if status & _UNSYNCHRONISED:
        return _check.warning(
            "no time service steers it (chrony, systemd-timesyncd, or the host of a container):"
            f" S3 clients are refused once it is {_SKEW_SECONDS // 60} minutes off"
        )
    return _check.ok(f"it is synchronised, at most {maximumErrorUs / 1e6:.3f} s off")


def checkFiles(directory: str) -> Iterator[Finding]:
    """Compare the clock with the last writes to the data, which cannot be later than now."""
    for name in ("catalog.sqlite", "catalog.sqlite-wal"):
        path = os.path.join(directory, name)
        try:
            ahead = os.stat(path).st_mtime - time.time()
        except OSError:
            continue
        if ahead > _JUMP_SECONDS:
            yield _check.problem(
                f"it is at least {ahead:.0f} s behind: {path} was written later than now"
            )
            return
