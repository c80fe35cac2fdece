"""Several real processes on one store, for tests that wait for each answer."""

import json
import os
import signal
import subprocess
import sys
from concurrent.futures import Future
from itertools import count
from threading import Lock, Thread
from typing import Any

from storagegate.storage import errors
from storagegate.storage.embedded.opening import prepareStore
from storagegate.storage.embedded.sharedmemory import ProcessGroupConfig
from tests.support.daemon import daemonEnvironment

PATIENCE_SECONDS = 60.0
"""Timeout of every operation, enough for a process start on a slow disk."""


class WorkerDied(Exception):
    """The process ended before it answered."""


class StoreProcess:
    """One process; see L{tests.support.storeworker}. A thread receives its answers."""

    def __init__(self, workers: "StoreWorkers", index: int, lock: int | None) -> None:
        self._workers = workers
        self._ids = count()
        self._asked: dict[int, Future[Any]] = {}
        self._guard = Lock()
        self._ended = False
        self.index = index
        passed = (workers.memory,) if lock is None else (workers.memory, lock)
        arguments = [str(workers.memory), str(index), str(workers.count)]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.storeworker", *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            pass_fds=passed,
            env=daemonEnvironment(),
        )
        self._thread = Thread(target=self._read, daemon=True)
        self._thread.start()

    def ask(self, operation: str, **arguments: Any) -> "Future[Any]":
        """Start an operation."""
        id = next(self._ids)
        future: Future[Any] = Future()
        self._asked[id] = future
        try:
            self.send({"id": id, "do": operation, "with": arguments})
        except (OSError, ValueError):
            self._lose(id)
        # A process that dies sometimes closes its output before its input.
        if self._ended:
            self._lose(id)
        return future

    def do(self, operation: str, **arguments: Any) -> Any:
        """Run an operation, and wait for it."""
        return self.ask(operation, **arguments).result(PATIENCE_SECONDS)

    def send(self, plain: dict[str, Any]) -> None:
        """Write a line. May be called in any thread."""
        assert self.process.stdin is not None
        with self._guard:
            self.process.stdin.write(json.dumps(plain).encode() + b"\n")
            self.process.stdin.flush()

    def kill(self) -> None:
        """Kill the process."""
        self.process.send_signal(signal.SIGKILL)
        self.wait()

    def end(self) -> None:
        """End the process, and wait."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.wait()

    def wait(self) -> None:
        """Wait for the end of the process and its thread."""
        self.process.wait(PATIENCE_SECONDS)
        self._thread.join(PATIENCE_SECONDS)
        assert self.process.stdin is not None and self.process.stdout is not None
        try:
            self.process.stdin.close()
        except OSError:
            pass
        self.process.stdout.close()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            told = json.loads(line)
            if "topic" in told:
                self._workers.relay(self, told)
                continue
            future = self._asked.pop(told["id"])
            if "error" in told:
                future.set_exception(_errorOf(*told["error"]))
            else:
                future.set_result(told["result"])
        self._ended = True
        for id in list(self._asked):
            self._lose(id)

    def _lose(self, id: int) -> None:
        """Fail a pending operation, because no answer will arrive. Both threads may detect this."""
        future = self._asked.pop(id, None)
        if future is not None:
            future.set_exception(WorkerDied())


class StoreWorkers:
    """
    Several processes on one store, and the lock that their parent holds.

    @param inherits: Whether the processes inherit the lock.
    """

    def __init__(
        self,
        case: Any,
        directory: str,
        count: int = 2,
        durability: str = "full",
        inherits: bool = True,
    ) -> None:
        self.directory = directory
        self.count = count
        self.durability = durability
        self._inherits = inherits
        self.memory = os.memfd_create("store")
        os.ftruncate(self.memory, ProcessGroupConfig.memorySize())
        self.lock = prepareStore(directory, durability=durability)
        self._isLocked = True
        self.processes: list[StoreProcess] = []
        case.addCleanup(self.release)
        case.addCleanup(self.close)
        # Python's own start takes the longest, so all processes start at once; then they open the
        # store one by one.
        for index in range(count):
            self._launch(index)
        for process in self.processes:
            self._open(process)

    def start(self, index: int) -> StoreProcess:
        """Start a process that opens the store, in place of an earlier one."""
        process = self._launch(index)
        self._open(process)
        return process

    def _launch(self, index: int) -> StoreProcess:
        process = StoreProcess(self, index, self.lock.descriptor if self._inherits else None)
        self.processes[index : index + 1] = [process]
        return process

    def _open(self, process: StoreProcess) -> None:
        process.do("open", directory=self.directory, durability=self.durability)

    def relay(self, sender: StoreProcess, told: dict[str, Any]) -> None:
        """Forward a message of one process to the others."""
        for process in self.processes:
            if process is not sender:
                try:
                    process.send(told)
                except (OSError, ValueError):
                    continue

    def closeStores(self) -> None:
        """Close the store in all processes, and release the lock; the processes stay alive."""
        for process in self.processes:
            process.do("close")
        self.release()

    def openStores(self) -> None:
        """Prepare the store, and open it in all processes again."""
        self.lock = prepareStore(self.directory, durability=self.durability)
        self._isLocked = True
        for process in self.processes:
            self._open(process)

    def openNodes(self, options: dict[str, Any]) -> None:
        """Open a store over several machines in all processes, each as its own node."""
        for process in self.processes:
            own = {**options, "node": f"node{process.index}"}
            directory = os.path.join(self.directory, f"node{process.index}")
            process.do("openNode", directory=directory, options=own)

    def release(self) -> None:
        """Release the parent's lock. Further calls have no effect."""
        if self._isLocked:
            self._isLocked = False
            self.lock.release()

    def close(self) -> None:
        """Kill all processes. Further calls have no effect."""
        processes, self.processes = self.processes, []
        for process in processes:
            process.kill()
        if self.memory >= 0:
            os.close(self.memory)
            self.memory = -1


def _errorOf(name: str, text: str) -> Exception:
    kind = getattr(errors, name, None)
    if kind is None or name == "BucketExists":
        return AssertionError(f"{name}: {text}")
    error: Exception = kind(text)
    return error
