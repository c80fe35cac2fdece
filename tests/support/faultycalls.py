"""
C library calls that fail, or kill the process, in processes of the test: see C{faultycalls.c}.
"""

import errno
import mmap
import os
import shutil
import struct
import subprocess
from pathlib import Path

from attrs import frozen
from twisted.trial.unittest import SkipTest

WRITE, SYNC, TRUNCATE, MAP = 1, 2, 4, 8
ANY_CALL = WRITE | SYNC | TRUNCATE | MAP

DATABASE, LOG, INDEX, BLOB, STAGING = 1, 2, 4, 8, 16
CATALOG = DATABASE | LOG | INDEX

KILL_BEFORE, KILL_AFTER, FAIL, FAIL_AND_LOSE = 1, 2, 3, 4

_FIELDS = struct.Struct("9i")
_SOURCE = Path(__file__).with_suffix(".c")


@frozen
class CallFault:
    """
    A fault in a call.

    @ivar at: The number of the call among the counted calls, from 1.
    @ivar action: The kind of the fault.
    @ivar error: The error, if it fails.
    @ivar calls: The kinds of counted calls.
    @ivar files: The files whose calls are counted.
    @ivar sticky: Whether all later calls fail too.
    """

    at: int
    action: int
    error: int = errno.EIO
    calls: int = ANY_CALL
    files: int = CATALOG
    sticky: bool = False


class FaultControl:
    """
    Controls the faults of processes.

    @param directory: The directory of the control files.
    """

    def __init__(self, directory: str) -> None:
        """
        Compile the library.

        @raise SkipTest: If no C compiler is installed.
        """
        compiler = shutil.which("cc")
        if compiler is None:
            raise SkipTest("there is no C compiler")
        library = os.path.join(directory, "faultycalls.so")
        command = [compiler, "-O1", "-shared", "-fPIC", "-o", library, str(_SOURCE), "-ldl"]
        subprocess.run(command, check=True)
        self._image = os.path.join(directory, "image")
        path = os.path.join(directory, "control")
        with open(path, "w+b") as file:
            file.truncate(mmap.PAGESIZE)
            self._map = mmap.mmap(file.fileno(), mmap.PAGESIZE)
        self.environment = {
            "LD_PRELOAD": library,
            "FAULTY_CALLS": path,
            "FAULTY_IMAGE": self._image,
        }

    def arm(self, pid: int, fault: CallFault) -> None:
        """Count the calls of a process from 1, and inject a fault into one."""
        numbers = (fault.at, fault.action, fault.error, fault.calls, fault.files, fault.sticky)
        self._map[: _FIELDS.size] = _FIELDS.pack(0, *numbers, 0, 0)
        self._map[:4] = struct.pack("i", pid)

    def disarm(self) -> int:
        """Remove all faults; return the number of injected ones."""
        self._map[:4] = bytes(4)
        hits: int = _FIELDS.unpack(self._map[: _FIELDS.size])[8]
        return hits

    def keepImage(self, database: str) -> None:
        """Use the current content of a database as its content on disk when a sync fails."""
        shutil.copyfile(database, self._image)
