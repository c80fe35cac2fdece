"""A server as processes: start it on its core, watch what it uses, stop it."""

import contextlib
import http.client
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from types import TracebackType
from typing import Self

from attrs import field, frozen

SERVER_CORE = "0"
FLOOR_NAME = "floor"
"""The name of the programs of C{floor/} as servers of a bench."""

_ASK_SECONDS = 0.05
"""Between two questions whether a server answers yet."""

START_SECONDS = 40
STOP_SECONDS = 10
ANSWER_SECONDS = 60
_TICKS = os.sysconf("SC_CLK_TCK")


def _nothing(folder: Path, port: int) -> None:
    """Prepare nothing."""


@frozen
class Recipe:
    """
    A server to be.

    @ivar command: Makes the command line out of the server's folder and port.
    @ivar prepare: Makes what must lie in the folder before the start.
    @ivar describe: Gives its version.
    @ivar cores: Where it may run, as C{taskset} has it.
    @ivar startSeconds: How long its start may take.
    """

    name: str
    command: Callable[[Path, int], list[str]]
    describe: Callable[[], str]
    environment: Mapping[str, str] = field(factory=dict)
    prepare: Callable[[Path, int], None] = _nothing
    cores: str = SERVER_CORE
    startSeconds: float = START_SECONDS


@frozen
class Answer:
    """
    What a server answered.

    @ivar contentType: The media type without its parameters.
    """

    status: int
    contentType: str
    body: bytes


def freePort() -> int:
    """Find a port of the loopback interface that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def favour(pid: int, nice: int) -> None:
    """
    Set a session's weight against the other work of the machine, where that is allowed.

    With the scheduler's autogroups the nice value of a session counts, not that of a process.
    """
    with contextlib.suppress(OSError):
        Path(f"/proc/{pid}/autogroup").write_text(str(nice))


def cpuSeconds(stat: str) -> float:
    """Read the CPU time of a process out of its C{/proc/PID/stat}."""
    # The command's name stands in parentheses and may hold any character, so count behind it.
    fields = stat.rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def sessionOf(stat: str) -> int:
    """Read a process's session out of its C{/proc/PID/stat}."""
    return int(stat.rsplit(")", 1)[1].split()[3])


def memoryBytes(status: str, name: str) -> int:
    """
    Read a resident size out of a C{/proc/PID/status}; 0 where there is none.

    @param name: C{VmRSS} for the size of now, C{VmHWM} for its peak.
    """
    for line in status.splitlines():
        if line.startswith(f"{name}:"):
            return 1024 * int(line.split()[1])
    return 0


class StartError(Exception):
    """A server did not start."""


class Server:
    """A server that runs while the context lasts; its folder goes with it."""

    def __init__(self, recipe: Recipe, parent: Path) -> None:
        self.recipe = recipe
        self.port = freePort()
        self.host = f"127.0.0.1:{self.port}"
        self.folder = Path(tempfile.mkdtemp(prefix=f"bench-{recipe.name}-", dir=parent))

    def __enter__(self) -> Self:
        try:
            self.recipe.prepare(self.folder, self.port)
            command = self.recipe.command(self.folder, self.port)
        except BaseException:
            shutil.rmtree(self.folder)
            raise
        with (self.folder / "log").open("wb") as log:
            self.process = subprocess.Popen(
                ["taskset", "-c", self.recipe.cores, *command],
                cwd=self.folder,
                env={**os.environ, **self.recipe.environment},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        try:
            self._awaitAnswer()
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop()

    def _awaitAnswer(self) -> None:
        """
        Wait until a request is answered, whatever the answer; a port may be open long before.

        @raise StartError: If the process ends first or takes too long; with the log's end.
        """
        limit = time.monotonic() + self.recipe.startSeconds
        while time.monotonic() < limit and self.process.poll() is None:
            with contextlib.suppress(OSError, http.client.HTTPException):
                self.ask()
                return
            # Waiting for the process itself: one that ends at once is told of at once.
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(_ASK_SECONDS)
        raise StartError(f"{self.recipe.name} does not answer:\n{self.logEnd()}")

    def ask(self) -> None:
        """
        Have anything answered.

        @raise OSError: If nobody answers yet; that or C{HTTPException}.
        """
        self.exchange("GET", "/")

    def watched(self) -> AbstractContextManager[None]:
        """Give a context that lasts as long as a load; a profile is made within it."""
        return contextlib.nullcontext()

    def explain(self, error: Exception) -> str:
        """Write on one line what went wrong, with the log's end where the server is gone."""
        ended = self.process.poll() is not None
        text = f"{error}; it has ended: ...{self.logEnd()[-300:]}" if ended else str(error)
        return " ".join(text.split())[:600]

    def _stop(self) -> None:
        """End every process of the session and remove the folder."""
        self.process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(STOP_SECONDS)
        for pid in self.pids():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)

    def logEnd(self) -> str:
        """Read the last lines that the server wrote."""
        return (self.folder / "log").read_text(errors="replace")[-2000:]

    def _read(self, name: str) -> dict[int, str]:
        """Read one C{/proc} file of each process in the server's session."""
        texts = {}
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                with contextlib.suppress(OSError):
                    if sessionOf((entry / "stat").read_text()) == self.process.pid:
                        texts[int(entry.name)] = (entry / name).read_text()
        return texts

    def pids(self) -> list[int]:
        """List the processes of the server's session."""
        return list(self._read("stat"))

    def cpu(self) -> float:
        """Add up the CPU seconds that the server has used."""
        return sum(map(cpuSeconds, self._read("stat").values()))

    def firstCpu(self) -> float:
        """Give the CPU seconds of the process alone that was started, without those it has."""
        return cpuSeconds(Path(f"/proc/{self.process.pid}/stat").read_text())

    def memory(self) -> int:
        """Add up the resident sizes of the server's processes, in bytes."""
        return self._memory("VmRSS")

    def peakMemory(self) -> int:
        """Add up the peaks of the same, so far."""
        return self._memory("VmHWM")

    def _memory(self, name: str) -> int:
        return sum(memoryBytes(status, name) for status in self._read("status").values())

    def exchange(
        self,
        method: str,
        target: str,
        body: bytes | None = None,
        fields: Mapping[str, str] | None = None,
    ) -> Answer:
        """Send one request, outside of any measurement."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=ANSWER_SECONDS)
        try:
            connection.request(method, target, body, dict(fields or {}))
            response = connection.getresponse()
            kind = response.getheader("Content-Type", "").partition(";")[0].strip().lower()
            return Answer(response.status, kind, response.read())
        finally:
            connection.close()
