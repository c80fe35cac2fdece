"""
Calls of the C library that fail, or end a process, in processes of the test: see C{faultycalls.c}.
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
    A call that goes wrong.

    @ivar at: Its number among the calls that are counted, from 1.
    @ivar action: What becomes of it.
    @ivar error: The error, if it fails.
    @ivar calls: The kinds of calls that are counted.
    @ivar files: The files whose calls are counted.
    @ivar sticky: Whether all later ones go wrong, too.
    """

    at: int
    action: int
    error: int = errno.EIO
    calls: int = ANY_CALL
    files: int = CATALOG
    sticky: bool = False


class FaultControl:
    """
    The control of the calls of processes.

    @param directory: Of the files of the control.
    """

    def __init__(self, directory: str) -> None:
        """
        Compile the library.

        @raise SkipTest: There is no compiler.
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
        """Count the calls of a process from 1, and let one go wrong."""
        numbers = (fault.at, fault.action, fault.error, fault.calls, fault.files, fault.sticky)
        self._map[: _FIELDS.size] = _FIELDS.pack(0, *numbers, 0, 0)
        self._map[:4] = struct.pack("i", pid)

    def disarm(self) -> int:
        """Let all calls succeed; return how many went wrong."""
        self._map[:4] = bytes(4)
        hits: int = _FIELDS.unpack(self._map[: _FIELDS.size])[8]
        return hits

    def keepImage(self, database: str) -> None:
        """Take what a database holds now for what it holds on the disk when a sync of it fails."""
        shutil.copyfile(database, self._image)
