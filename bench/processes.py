"""A server as processes: start it, read its CPU time and memory, stop it."""

import contextlib
import http.client
import os
import shutil
import signal
import socket
import ssl
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from attrs import frozen

from bench.cases import Server

STOP_SECONDS = 10
ANSWER_SECONDS = 60
_ASK_SECONDS = 0.05
"""Time between two questions whether a server answers yet."""

_TICKS = os.sysconf("SC_CLK_TCK")


class StartError(Exception):
    """A server did not start."""


@frozen
class Answer:
    """
    An HTTP response.

    @ivar contentType: The media type without its parameters.
    """

    status: int
    contentType: str
    body: bytes


def freePort() -> int:
    """Find a free port of the loopback interface."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def cpuSeconds(stat: str, withEnded: bool = False) -> float:
    """
    Read the CPU time of a process from its C{/proc/PID/stat}.

    @param withEnded: Whether to add the time of its ended children.
    """
    # The name of the command is in parentheses and may hold any character.
    fields = stat.rsplit(")", 1)[1].split()
    return sum(map(int, fields[11 : 15 if withEnded else 13])) / _TICKS


def sessionOf(stat: str) -> int:
    """Read the session of a process from its C{/proc/PID/stat}."""
    return int(stat.rsplit(")", 1)[1].split()[3])


def memoryBytes(status: str, name: str) -> int:
    """
    Read a resident size from a C{/proc/PID/status}; 0 if it is absent.

    @param name: C{VmRSS} for the present size, C{VmHWM} for the peak.
    """
    for line in status.splitlines():
        if line.startswith(f"{name}:"):
            return 1024 * int(line.split()[1])
    return 0


def favour(pid: int, nice: int) -> None:
    """
    Set the weight of a session against other work of the machine, where that is allowed.

    With the scheduler's autogroups the nice value of the session counts, not that of a process.
    """
    with contextlib.suppress(OSError):
        Path(f"/proc/{pid}/autogroup").write_text(str(nice))


class Session:
    """
    The directory of a run, and the resources that several servers share until it ends.

    @ivar folder: Holds all data of the run.
    @ivar scale: Divides the number of objects and connections of the largest settings.
    """

    def __init__(self, folder: Path, stack: ExitStack, scale: int = 1) -> None:
        self.folder = folder
        self.stack = stack
        self.scale = scale
        self._shared: dict[str, Any] = {}

    def once(self, name: str, make: Callable[[], AbstractContextManager[Any]]) -> Any:
        """Return a shared resource, which is made at the first request."""
        if name not in self._shared:
            self._shared[name] = self.stack.enter_context(make())
        return self._shared[name]


class Running:
    """
    A server that runs while the context lasts; its folder goes with it.

    @ivar notes: Anything that the recipe has to remember about this process.
    @ivar prefix: Words before the command, such as those of valgrind; C{{folder}} is its folder.
    """

    def __init__(self, server: Server, session: Session, prefix: tuple[str, ...] = ()) -> None:
        self.server = server
        self.session = session
        self.port = freePort()
        self.host = f"127.0.0.1:{self.port}"
        self.notes: dict[str, Any] = {}
        self.prefix = prefix
        self.process: subprocess.Popen[bytes] | None = None
        self.folder = Path(tempfile.mkdtemp(prefix=f"{server.name}-", dir=session.folder))

    def __enter__(self) -> Self:
        try:
            self.server.prepare(self)
            if self.server.command is not None:
                self._start([str(word) for word in self.server.command(self)])
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

    def _start(self, command: list[str]) -> None:
        prefix = [word.replace("{folder}", str(self.folder)) for word in self.prefix]
        words = ["taskset", "-c", self.server.cores, *prefix, *command]
        with (self.folder / "log").open("wb") as log:
            self.process = subprocess.Popen(
                words,
                cwd=self.folder,
                env={**os.environ, **self.server.environment},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        slower = 10 if self.prefix else 1
        limit = time.monotonic() + self.server.startSeconds * slower
        while time.monotonic() < limit and self.process.poll() is None:
            with contextlib.suppress(OSError, http.client.HTTPException):
                self.server.ask(self)
                return
            # A server that ends at once is reported at once.
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(_ASK_SECONDS)
        raise StartError(f"{self.server.name} does not answer:\n{self.logEnd()}")

    def _stop(self) -> None:
        """End every process of the session and remove the folder."""
        if self.process is not None:
            self.process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(STOP_SECONDS)
            for pid in self._read("stat"):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            self.process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)

    def explain(self, error: Exception) -> str:
        """Describe an error on one line, with the end of the log if the server has ended."""
        ended = self.process is not None and self.process.poll() is not None
        text = f"{error}; it has ended: ...{self.logEnd()[-300:]}" if ended else str(error)
        return " ".join(text.split())[:600]

    def logEnd(self) -> str:
        """Read the last lines that the server wrote."""
        return (self.folder / "log").read_text(errors="replace")[-2000:]

    def _read(self, name: str) -> dict[int, str]:
        """Read a C{/proc} file of each process in the server's session."""
        texts = {}
        if self.process is None:
            return texts
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                with contextlib.suppress(OSError):
                    if sessionOf((entry / "stat").read_text()) == self.process.pid:
                        texts[int(entry.name)] = (entry / name).read_text()
        return texts

    def url(self, target: str) -> str:
        """Return the URL of a request target."""
        return f"{'https' if self.server.isTLS else 'http'}://{self.host}{target}"

    def cpu(self) -> tuple[float, float]:
        """Return the CPU seconds of the first process, and of the others."""
        stats = self._read("stat")
        first = stats.pop(self.process.pid, "") if self.process else ""
        others = sum(map(cpuSeconds, stats.values()))
        for pid in self.server.behind(self):
            with contextlib.suppress(OSError):
                # A database has a process for each connection, and it ends with the connection.
                others += cpuSeconds(Path(f"/proc/{pid}/stat").read_text(), withEnded=True)
        return cpuSeconds(first) if first else 0.0, others

    def memory(self, name: str = "VmRSS") -> int:
        """Add up the resident sizes of its processes in bytes; C{VmHWM} for the peaks."""
        return sum(memoryBytes(status, name) for status in self._read("status").values())

    def favour(self, nice: int) -> None:
        """Set its weight against other work of the machine."""
        if self.process is not None:
            favour(self.process.pid, nice)
        for pid in self.server.behind(self):
            favour(pid, nice)

    def exchange(
        self,
        method: str,
        target: str,
        body: bytes | None = None,
        fields: Mapping[str, str] | None = None,
        port: int = 0,
    ) -> Answer:
        """
        Send one request over HTTP/1.1, outside of any measurement.

        @param port: Another port, without TLS.
        """
        place = ("127.0.0.1", port or self.port)
        connection = http.client.HTTPConnection(*place, timeout=ANSWER_SECONDS)
        if self.server.isTLS and not port:
            context = ssl._create_unverified_context()
            connection = http.client.HTTPSConnection(
                *place, timeout=ANSWER_SECONDS, context=context
            )
        try:
            connection.request(method, target, body, dict(fields or {}))
            response = connection.getresponse()
            kind = response.getheader("Content-Type", "").partition(";")[0].strip().lower()
            return Answer(response.status, kind, response.read())
        finally:
            connection.close()
