"""
The parent process of a program in development, which holds its listening sockets and replaces it.

When the program first listens, its process becomes the supervisor by exec, and runs the program in
a child process. When files of the program change, the supervisor starts a successor. Once the
successor is ready, the predecessor is retired, finishes its responses and ends. A successor that
fails has no effect. This module imports neither Twisted nor the program.

Each child has a connection for messages, which are pairs of a kind and a value::

    child to supervisor                            supervisor to child
    changed  [PATH], files of the program          retire   [PATH], the files that have changed
    hold     DESCRIPTION, then a listening socket  serve    the predecessor has stopped accepting
    drop     DESCRIPTION, no longer needed         failed   of a successor: its own, or one without
    ready    loaded; waits for "serve"                      files
    failed   REPORT, [PATH]: an L{ErrorReport} as
             a mapping, and files it came from
    left     has stopped accepting

Closing the connection is an order to stop.
"""

import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from math import inf
from multiprocessing.connection import Connection, Pipe, wait
from multiprocessing.reduction import recv_handle
from typing import Any, NoReturn

from attrs import define

_POLL_SECONDS = 0.25
"""Seconds between checks of the processes."""

_START_SECONDS = 60.0
"""Time for a successor to listen; most need one second."""

GRACE_SECONDS = 30.0
"""Time for a predecessor to finish its responses."""

_KILL_SECONDS = 5.0
"""Time for a predecessor to end after that."""

_MAX_RETIRED = 8
"""Maximum number of predecessors that finish responses; the oldest excess one is killed."""

_ROOT = os.path.dirname(__file__).rpartition(os.sep + "storagegate" + os.sep)[0]

_BOOT = f"import sys; sys.path.insert(0, {_ROOT!r}); from storagegate.http."
_SUPERVISE = _BOOT + "development.supervisor import superviseProgram; superviseProgram()"
_RUN = _BOOT + (
    "application import Application; "
    "from storagegate.http.development.reloader import runProgram; runProgram(Application)"
)


@define(eq=False)
class _Child:
    """A process of the program; it is killed after its deadline."""

    process: subprocess.Popen[bytes]
    control: Connection
    deadline: float

    def send(self, kind: str, value: object = None) -> None:
        """Send a message, unless the child has ended or does not read."""
        if not self.control.closed and select.select([], [self.control], [], 0)[1]:
            with suppress(OSError):
                self.control.send((kind, value))

    def kill(self) -> None:
        """Kill the process."""
        self.control.close()
        self.process.kill()


class ProgramSupervisor:
    """
    Runs a program, and replaces it when its files change.

    C{_children} holds the serving program, its starting successor and the predecessors that finish
    their responses, in order of start.
    """

    def __init__(self, command: Sequence[str], program: Sequence[Any]) -> None:
        """
        @param command: The executable and its options.
        @param program: A C{Program}; see L{storagegate.serving.program}.
        """
        self._command = command
        self._program = program
        self._sockets: list[tuple[str, socket.socket]] = []
        self._children: list[_Child] = []
        self._serving: _Child | None = None
        self._starting: _Child | None = None
        # The last retired child, while it may still accept.
        self._leaving: _Child | None = None
        # Files changed since the start of the serving program.
        self._changed: set[str] = set()
        self._status = 0

    def run(self) -> int:
        """
        Run until the program has ended.

        @return: Its exit status; negative for a signal.
        """
        stops: list[int] = []
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda number, frame: stops.append(number))
        self._start()
        handled = 0
        while self._children:
            controls: dict[Any, _Child] = {each.control: each for each in self._children}
            for control in wait([each for each in controls if not each.closed], _POLL_SECONDS):
                self._receive(controls[control])
            if len(stops) > handled:
                handled = len(stops)
                self._stop(isUrgent=handled > 1)
            for child in list(self._children):
                if child.process.poll() is not None:
                    self._ended(child)
                elif time.monotonic() > child.deadline and child is self._starting:
                    self._failed(f"The program did not listen within {_START_SECONDS:.0f} s")
                elif time.monotonic() > child.deadline:
                    child.kill()
        for endpoint, held in self._sockets:
            if endpoint.startswith("unix:"):
                with suppress(OSError):
                    os.unlink(held.getsockname())
        return self._status

    def _stop(self, isUrgent: bool = False) -> None:
        """
        Stop all processes, gracefully for the ones that serve or have served unless it is urgent.
        """
        for child in self._children:
            if isUrgent or child is self._starting:
                child.kill()
            else:
                child.control.close()

    def _start(self, changed: Iterable[str] = ()) -> None:
        """Start the program, or a successor that replaces any starting one."""
        if self._starting is not None:
            self._starting.kill()
        self._changed.update(changed)
        ours, theirs = Pipe()
        inherited = [(endpoint, held.fileno()) for endpoint, held in self._sockets]
        isSuccessor = self._serving is not None
        setup = {
            "program": self._program,
            "control": theirs.fileno(),
            "sockets": inherited,
            "isSuccessor": isSuccessor,
            "files": sorted(self._changed),
            "started": time.monotonic(),
        }
        with theirs:
            process = subprocess.Popen(
                [*self._command, "-c", _RUN, json.dumps(setup)],
                pass_fds=[theirs.fileno(), *(descriptor for _, descriptor in inherited)],
            )
        deadline = time.monotonic() + _START_SECONDS if isSuccessor else inf
        self._starting = _Child(process, ours, deadline)
        self._children.append(self._starting)

    def _receive(self, child: _Child) -> None:
        """Handle a message from a child, or the end of its connection."""
        try:
            kind, value = child.control.recv()
        except (EOFError, OSError):
            child.control.close()
            return
        if kind == "hold":
            self._sockets.append((value, socket.socket(fileno=recv_handle(child.control))))
        elif kind == "drop":
            held = next((each for each in self._sockets if each[0] == value), None)
            if held is not None:
                held[1].close()
                self._sockets.remove(held)
        elif kind == "left":
            self._left(child)
        elif kind == "changed" and self._serving is not None:
            self._start(value)
        elif kind == "failed" and child is self._starting:
            self._failed(*value)
        elif kind == "ready" and child is self._starting:
            self._replace(child)

    def _replace(self, successor: _Child) -> None:
        """Retire the serving program, as its successor is ready."""
        self._leaving, self._serving, self._starting = self._serving, successor, None
        successor.deadline = inf
        if self._leaving is None:
            successor.send("serve")
        else:
            self._leaving.send("retire", sorted(self._changed))
            self._leaving.deadline = time.monotonic() + GRACE_SECONDS + _KILL_SECONDS
        self._changed.clear()
        for each in self._children[: -1 - _MAX_RETIRED]:
            each.kill()

    def _left(self, child: _Child) -> None:
        """Let the successor serve once its predecessor has stopped accepting."""
        if child is self._leaving and self._serving is not None:
            self._leaving = None
            self._serving.send("serve")

    def _failed(self, report: object, files: Sequence[str] = ()) -> None:
        """Give up on a successor, and report the reason."""
        child, self._starting = self._starting, None
        if child is not None and self._serving is not None:
            child.kill()
            if isinstance(report, str):
                report = {"title": report, "file": None, "line": None, "text": ""}
            self._serving.send("failed", (report, files))

    def _ended(self, child: _Child) -> None:
        """Handle the end of a process."""
        # Process the messages sent before its end.
        while not child.control.closed and child.control.poll():
            self._receive(child)
        child.control.close()
        self._children.remove(child)
        code = child.process.returncode
        if child is self._starting and self._serving is not None:
            how = f"exit code {code}" if code >= 0 else f"signal {-code}"
            self._failed(f"The program ended with {how} before it listened")
        elif child in (self._starting, self._serving):
            self._status = code
            self._stop()
            self._starting = self._serving = None
        self._left(child)


def becomeSupervisor(options: Sequence[str], program: Sequence[Any]) -> NoReturn:
    """
    Replace this process with a supervisor of a program, by exec. The process ID stays.

    @param options: Options of the Python interpreter.
    @param program: A C{Program}; see L{storagegate.serving.program}.
    """
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError, AttributeError):
            stream.flush()
    command = [sys.executable, *options]
    setup = json.dumps({"command": command, "program": program})
    os.execv(sys.executable, [*command, "-c", _SUPERVISE, setup])


def superviseProgram() -> NoReturn:
    """Run as the supervisor; L{becomeSupervisor} executes this."""
    status = ProgramSupervisor(**json.loads(sys.argv[1])).run()
    if status < 0:
        signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    sys.exit(status)
