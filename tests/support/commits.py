"""The processes of L{tests.support.commitprogram}, for tests that wait for each answer."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from typing import Any

from storagegate.storage import errors
from storagegate.storage.sqlite import CatalogUnusable
from tests.support.daemon import daemonEnvironment
from tests.support.faultycalls import CallFault, FaultControl


class ProcessDied(Exception):
    """The process has ended during an operation."""


class CommitProcesses:
    """
    Processes that open one store after another.

    @ivar directory: The data directory, on a memory file system if available.
    @ivar faults: Injects faults into calls of the processes.
    """

    def __init__(self, case: Any) -> None:
        where = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
        self._top = tempfile.mkdtemp(prefix="storagegate-test-", dir=where)
        case.addCleanup(shutil.rmtree, self._top, ignore_errors=True)
        self.faults = FaultControl(self._top)
        self.directory = os.path.join(self._top, "data")
        self.catalog = os.path.join(self.directory, "catalog.sqlite")
        self._pids: dict[int, int] = {}
        self._memory = -1
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.commitprogram"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=daemonEnvironment(self.faults.environment),
        )
        case.addCleanup(self.end)

    def end(self) -> None:
        """End all processes."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()

    def do(self, member: int, operation: str, *arguments: Any) -> Any:
        """
        Run an operation in a process.

        @raise StoreError: If the store has refused it.
        @raise ProcessDied: If the process has ended.
        """
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps([member, operation, arguments]).encode() + b"\n")
        self._process.stdin.flush()
        kind, *rest = json.loads(self._process.stdout.readline())
        if kind == "ok":
            return rest[0]
        if kind == "died":
            raise ProcessDied
        name, text = rest
        error = getattr(errors, name, CatalogUnusable if name == "CatalogUnusable" else None)
        raise AssertionError(f"{name}: {text}") if error is None else error(text)

    def start(self, *members: int) -> None:
        """Start processes."""
        for member in members:
            self._pids[member] = self.do(-1, "fork", member)

    def open(self, member: int) -> None:
        """Start a process that opens the store alone."""
        self.start(member)
        self.do(member, "open", self.directory)

    def openGroup(self) -> None:
        """Start a parent, which is process 9, and the workers 0 and 1."""
        self._memory = self.do(-1, "makeMemory")
        self.start(9)
        self.do(9, "prepare", self.directory)
        for member in (0, 1):
            self.join(member)

    def join(self, member: int) -> None:
        """Start a worker of the group."""
        self.start(member)
        self.do(member, "open", self.directory, member, self._memory)

    def arm(self, member: int, fault: CallFault) -> None:
        """Inject a fault into a call of a process."""
        self.faults.arm(self._pids[member], fault)

    def kill(self, *members: int) -> None:
        """Kill processes; ended ones are ignored."""
        for member in members:
            self.do(-1, "kill", member)

    def killAll(self) -> None:
        """Kill all processes."""
        self.do(-1, "killAll")

    def clear(self) -> None:
        """Kill all processes and remove the store."""
        self.faults.disarm()
        self.killAll()
        shutil.rmtree(self.directory, ignore_errors=True)
