"""
Processes that open one store, each forked from this one, for tests of the state after a crash.

C{python -m tests.support.commitprogram} reads one JSON list a line: the number of a process, an
operation of L{Member} and its arguments. The answer is a JSON list, C{["ok", result]}, C{["error",
name, text]} or C{["died"]}. The process C{-1} is this process, with the operations C{fork} and
C{kill}. A fork takes a few milliseconds; starting Python would take a second.
"""

import json
import os
import resource
import signal
import socket
import sqlite3
import sys
from collections.abc import Callable
from typing import Any

from storagegate.storage.embedded import wal
from storagegate.storage.embedded.fsck import check
from storagegate.storage.embedded.keyadmin import openForTools
from storagegate.storage.embedded.opening import openStore, prepareStore
from storagegate.storage.embedded.sharedmemory import ProcessGroupConfig
from storagegate.storage.files import Files
from storagegate.storage.records import AccessKey
from tests.support.delayed import PassingReactor
from tests.support.stores import StoreDriver


class GroupDriver(StoreDriver):
    """A driver of one of several processes."""

    def __init__(self, directory: str, sharing: ProcessGroupConfig | None) -> None:
        self._sharing = sharing
        super().__init__(directory, Files())

    def open(self) -> None:
        """Open the store."""
        self.reactor = PassingReactor()
        self.store = openStore(
            self.directory, self.reactor, files=self.files, sharing=self._sharing
        )


class Member:
    """One process."""

    def __init__(self) -> None:
        self.driver: Any = None
        self.other: Any = None
        self.lock: Any = None

    def prepare(self, directory: str) -> None:
        """Lock a store for several processes, and hold the lock."""
        self.lock = prepareStore(directory)

    def open(self, directory: str, index: int = -1, memory: int = -1) -> None:
        """Open the store, alone or as one of two workers."""
        sharing = None
        if index >= 0:
            sharing = ProcessGroupConfig(
                index, 2, memory, lambda topic, payload: None, lambda topic, subscriber: None
            )
        self.driver = GroupDriver(directory, sharing)

    def checkpointAt(self, size: int) -> None:
        """Make checkpoints more often."""
        wal.CHECKPOINT_AT = size

    def endCheckpoint(self) -> None:
        """Wait for the end of a running checkpoint."""
        checkpoints, reactor = self.driver.store.catalog._checkpoints, self.driver.reactor
        reactor.turnUntil(lambda: not checkpoints._isRunning, lambda: reactor.advance(0.01))

    def createBucket(self) -> None:
        """Create the bucket."""
        self.driver.createBucket("b")

    def put(self, key: str, body: str, inline: int = 100) -> None:
        """Store an object."""
        self.driver.inlineLimit = inline
        self.driver.put("b", key.encode(), body.encode())

    def fill(self, count: int) -> None:
        """Store objects of 64 KiB in the catalog, so that the log grows."""
        for number in range(count):
            self.put(f"fill-{number}", "f" * 65_000, 65_536)

    def get(self, key: str) -> str | None:
        """Read an object."""
        body = self.driver.get("b", key.encode())
        return None if body is None else body.decode()

    def getAll(self, keys: list[str]) -> list[str | None]:
        """Read objects; for an unreadable object return the name of the error in brackets."""
        found: list[str | None] = []
        for key in keys:
            try:
                found.append(self.get(key))
            except Exception as error:
                found.append(f"<{type(error).__name__}>")
        return found

    def delete(self, key: str) -> None:
        """Remove an object."""
        self.driver.delete("b", [key.encode()])

    def idle(self) -> None:
        """Wait until garbage is removed."""
        self.driver.reactor.advance(1)
        self.driver.reactor.settle(self.driver.store.idle())

    def health(self) -> dict[str, str | None]:
        """Return the health of the store."""
        health: dict[str, str | None] = self.driver.store.health()
        return health

    def files(self) -> list[int]:
        """Count the blobs and the staging files."""
        return [len(names) for names in self.driver.blobFiles()]

    def loseReserve(self) -> None:
        """Release the reserve, as a delete on a full disk does."""
        self.driver.store.catalog._committer._reserve.release()

    def limitFiles(self, more: int) -> None:
        """Limit the process to this many more open files; a negative number removes the limit."""
        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        most = max(map(int, os.listdir("/proc/self/fd"))) + more if more >= 0 else hard
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))

    def close(self) -> None:
        """Close the store cleanly."""
        self.driver.close()

    def look(self, path: str) -> None:
        """Open the catalog and start to read, as a shell or a backup does."""
        self.other = sqlite3.connect(path, isolation_level=None)
        self.other.execute("BEGIN")
        self.other.execute("SELECT count(*) FROM objects").fetchall()

    def lookAway(self) -> None:
        """End the read, and keep the file open."""
        self.other.execute("COMMIT")

    def addKey(self, path: str, name: str) -> None:
        """Issue a key while the daemon runs."""
        admin = openForTools(path)
        try:
            admin.addAccessKey(AccessKey(name, "secret", "account"))
        finally:
            admin.close()

    def check(self, directory: str, repair: bool = False) -> list[str]:
        """Check the store; return the problems."""
        problems: list[str] = []
        check(directory, repair, True, problems.append)
        return problems


class Program:
    """The process that forks the members."""

    def __init__(self) -> None:
        self._members: dict[int, tuple[int, Any]] = {}
        self.memory = -1

    def do(self, member: int, operation: str, arguments: list[Any]) -> list[Any]:
        """Run an operation in this process or a member."""
        if member < 0:
            act: Callable[..., Any] = getattr(self, operation)
            return ["ok", act(*arguments)]
        if member not in self._members:
            return ["died"]
        pid, link = self._members[member]
        try:
            link.write(json.dumps([operation, arguments]) + "\n")
            link.flush()
            line = link.readline()
        except OSError:
            line = ""
        if not line:
            os.waitpid(pid, 0)
            del self._members[member]
            return ["died"]
        answer: list[Any] = json.loads(line)
        return answer

    def makeMemory(self) -> int:
        """Create the shared memory of a group."""
        if self.memory >= 0:
            os.close(self.memory)
        self.memory = os.memfd_create("store", 0)
        os.ftruncate(self.memory, ProcessGroupConfig.memorySize())
        return self.memory

    def fork(self, member: int) -> int:
        """Start a process."""
        ours, its = socket.socketpair()
        pid = os.fork()
        if not pid:
            ours.close()
            for _, link in self._members.values():
                link.close()
            _serve(its.makefile("rw"))
            os._exit(0)
        its.close()
        self._members[member] = (pid, ours.makefile("rw"))
        ours.close()
        return pid

    def kill(self, member: int) -> None:
        """Kill a process, if it is running."""
        if member in self._members:
            pid, _ = self._members.pop(member)
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)

    def killAll(self) -> None:
        """Kill all processes."""
        for member in list(self._members):
            self.kill(member)


def _serve(link: Any) -> None:
    member = Member()
    for line in link:
        operation, arguments = json.loads(line)
        try:
            answer = ["ok", getattr(member, operation)(*arguments)]
        except Exception as error:
            answer = ["error", type(error).__name__, str(error)]
        link.write(json.dumps(answer) + "\n")
        link.flush()


def main() -> None:
    """Serve until the input ends."""
    program = Program()
    for line in sys.stdin:
        print(json.dumps(program.do(*json.loads(line))), flush=True)
    program.killAll()


if __name__ == "__main__":
    main()
