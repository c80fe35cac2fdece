"""Processes that share memory with the test."""

import subprocess
import sys
from typing import Any

from storagegate.core.sharedtable import SharedTable
from tests.support.modules import CHECKOUT

PROLOGUE = """
import os, signal, sys
from storagegate.core.sharedtable import SharedTable

fd = int(sys.argv[1])
table = SharedTable(fd)

def say(value):
    print(value, flush=True)
"""

# Dies or stops while it holds the lock of a bucket.
HOLDER = """
def act(record, until, now):
    os.kill(os.getpid(), getattr(signal, sys.argv[2]))
    return b"after", now + 600

say("ready")
table.change(b"key", act)
say("done")
sys.stdin.readline()
"""


class Sharer:
    """
    A process with the test's shared memory.

    @ivar process: The process.
    """

    def __init__(self, case: Any, fds: tuple[int, ...], script: str, *arguments: object) -> None:
        """
        @param case: The test case, whose cleanup kills the process.
        @param fds: The inherited descriptors; C{fd} and C{table} in the script refer to the first
            one.
        """
        words = [str(word) for word in (*fds[:1], *arguments)]
        self.process = subprocess.Popen(
            [sys.executable, "-c", (PROLOGUE if fds else "") + script, *words],
            env={"PYTHONPATH": str(CHECKOUT)},
            pass_fds=fds,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert self.process.stdin is not None and self.process.stdout is not None
        self._input, self._output = self.process.stdin, self.process.stdout
        for cleanup in (self._output.close, self._input.close, self.end):
            case.addCleanup(cleanup)

    def read(self) -> str:
        """Read a line; an empty string is the end."""
        return self._output.readline().decode().strip()

    def tell(self, text: str) -> None:
        """Write a line."""
        self._input.write(text.encode() + b"\n")
        self._input.flush()

    def ask(self, text: str) -> str:
        """Write a line and read the answer."""
        self.tell(text)
        return self.read()

    def end(self) -> None:
        """Kill it in any state, and wait for its end."""
        self.process.kill()
        self.process.wait()


def attached(case: Any, fd: int) -> SharedTable:
    """Attach a table until the test ends."""
    table = SharedTable(fd)
    case.addCleanup(table.close)
    return table
