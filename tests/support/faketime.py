"""
A wall clock that a test sets while a process runs: libfaketime, preloaded.

The monotonic clock is unaffected, as when C{date --set} or a time server sets the wall clock.
"""

import os
from glob import glob
from pathlib import Path

LIBRARIES = glob("/usr/lib/*/faketime/libfaketimeMT.so.1")

MISSING = "" if LIBRARIES else "libfaketime is not installed"
"""Why tests with libfaketime are skipped."""


class FakeTime:
    """
    The wall clock of processes.

    @ivar environment: The environment variables of a process with this clock.
    """

    def __init__(self, path: str | Path) -> None:
        """@param path: The file that stores the offset."""
        self._path = Path(path).absolute()
        self.set(0)
        self.environment = {
            "LD_PRELOAD": LIBRARIES[0] if LIBRARIES else "",
            "FAKETIME_TIMESTAMP_FILE": str(self._path),
            "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "DONT_FAKE_MONOTONIC": "1",
        }

    def set(self, seconds: int) -> None:
        """
        Set the clock.

        @param seconds: The offset from the machine's clock.
        """
        # Atomically, because a process may read the file at any time.
        written = self._path.with_suffix(".new")
        written.write_text(f"{seconds:+d}\n")
        os.replace(written, self._path)
