"""
The parent process of a program in development: holds its listening sockets, watches its files.

The process that was started as the program becomes the supervisor by exec, when the program first
listens. It runs the program in a child process. When a file of the program changes, it starts a
successor, and lets it serve when that is ready; the predecessor then finishes its responses and
ends. A successor that fails changes nothing. This module imports neither Twisted nor the program.

Each child has a control socket, with one JSON object a line. Child to supervisor::

    {"kind": "files", "files": [PATH]}          to watch besides those named before
    {"kind": "hold", "endpoint": DESCRIPTION}   with the descriptor of a new listening socket
    {"kind": "drop", "endpoint": DESCRIPTION}   a socket that is not needed any more
    {"kind": "ready"}                           loaded; waits for "serve"
    {"kind": "failed", "report": {...}}         an L{ErrorReport}; nothing follows
    {"kind": "left"}                            the predecessor accepts no more

and back::

    {"kind": "serve", "files": [PATH], "ms": N} the files that changed, the time that it took
    {"kind": "retire", "files": [PATH]}         finish what is in flight, then end
    {"kind": "error", "report": {...}}          a successor has failed

The end of the control socket is an order to stop.
"""

import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from importlib.util import cache_from_source
from typing import Any, NoReturn

from attrs import define, field

_POLL_SECONDS = 0.25
"""The pause between two checks of the files, of which a hundred take half a millisecond."""

_SETTLE_SECONDS = 0.04
"""How long files have to stay unchanged: editors write them in several steps."""

_MAX_SETTLE_ROUNDS = 10
"""A file that is written to all the time is not waited for."""

_START_SECONDS = 60.0
"""How long a successor may take until it listens; most need one."""

_LEAVE_SECONDS = 2.0
"""How long a predecessor may take to stop accepting: one in an endless loop never does."""

GRACE_SECONDS = 30.0
"""How long a predecessor may finish its responses."""

_KILL_SECONDS = 5.0
"""How long it may take to end after that."""

_MAX_RETIRED = 8
"""Predecessors that finish their responses at the same time; the oldest beyond it is killed."""

_MAX_FILES = 10_000
"""Files below the watched directories: to check so many takes 30 ms."""

_SKIPPED_DIRECTORIES = ("node_modules", "__pycache__")

_ROOT = os.path.dirname(__file__).rpartition(os.sep + "storagegate" + os.sep)[0]

_SUPERVISE = (
    "from storagegate.http.development.supervisor import superviseProgram; superviseProgram()"
)

_RUN = (
    "from storagegate.http.application import Application; "
    "from storagegate.http.development.reloader import runProgram; runProgram(Application)"
)

FileState = tuple[int, int, int] | None
"""Time of change in ns, length, inode (editors write a new file and rename it); L{None}: absent."""


def fileState(path: str) -> FileState:
    """Return the state of a file."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    return (status.st_mtime_ns, status.st_size, status.st_ino)


class ChangeNotifier:
    """
    Find files that have changed since the last check.

    @ivar files: The watched files, each with its last known state.
    @ivar directories: Directories below which all files with some suffixes are watched; their
        values are the files that were found there, L{None} before the first check.
    """

    def __init__(self, suffixes: tuple[str, ...] = (), isDeep: bool = True) -> None:
        """
        @param suffixes: Of the files below directories.
        @param isDeep: Whether directories below directories are searched too.
        """
        self.files: dict[str, FileState] = {}
        self.directories: dict[str, dict[str, FileState] | None] = {}
        self._suffixes = suffixes
        self._isDeep = isDeep

    def watch(self, files: Iterable[str], directories: Iterable[str] = ()) -> None:
        """Watch exactly these; what is new here has the state of now."""
        self.files = {
            path: self.files[path] if path in self.files else fileState(path) for path in files
        }
        self.directories = {path: self.directories.get(path) for path in directories}
        for path, known in self.directories.items():
            if known is None:
                self.directories[path] = self._find(path)

    def check(self) -> set[str]:
        """
        Return the files that have changed, are gone, or are new in a directory.

        May be called in a thread, one call at a time, and not during L{watch}.
        """
        changed = set()
        for path, known in self.files.items():
            state = fileState(path)
            if state != known:
                self.files[path] = state
                changed.add(path)
        for directory, before in self.directories.items():
            found = self.directories[directory] = self._find(directory)
            changed |= {path for path, _ in (before or {}).items() ^ found.items()}
        return changed

    def settled(self) -> set[str]:
        """
        Return the changes of L{check}, when no more follow. Blocks if there are some.

        May be called in a thread, as L{check}.
        """
        changed = more = self.check()
        for _ in range(_MAX_SETTLE_ROUNDS):
            if not more:
                break
            time.sleep(_SETTLE_SECONDS)
            more = self.check()
            changed |= more
        return changed

    def _find(self, directory: str) -> dict[str, FileState]:
        found: dict[str, FileState] = {}
        for parent, children, names in os.walk(directory):
            children[:] = [
                each
                for each in children
                if self._isDeep and each not in _SKIPPED_DIRECTORIES and not each.startswith(".")
            ]
            for name in names:
                if name.endswith(self._suffixes):
                    path = os.path.join(parent, name)
                    found[path] = fileState(path)
            if len(found) > _MAX_FILES:
                break
        return found


@define(eq=False)
class _Child:
    """A process of the program."""

    process: subprocess.Popen[bytes]
    control: socket.socket | None
    started: float = field(factory=time.monotonic)
    files: set[str] = field(factory=set)
    isReady: bool = False
    hasLeft: bool = False
    deadline: float | None = None
    received: bytes = b""
    descriptors: list[int] = field(factory=list)

    def send(self, message: Mapping[str, Any]) -> None:
        """Send a message, unless the other side is gone or does not read."""
        if self.control is not None:
            with suppress(OSError):
                self.control.send(json.dumps(message).encode() + b"\n", socket.MSG_DONTWAIT)

    def receive(self) -> list[dict[str, Any]]:
        """Read what has come, and close the socket at its end."""
        if self.control is None:
            return []
        try:
            data, descriptors, _, _ = socket.recv_fds(self.control, 65536, 16, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return []
        except OSError:
            data, descriptors = b"", []
        self.descriptors += descriptors
        if not data:
            self.close()
        *lines, self.received = (self.received + data).split(b"\n")
        return [json.loads(line) for line in lines]

    def close(self) -> None:
        """Close the control socket: an order to stop."""
        if self.control is not None:
            self.control.close()
            self.control = None

    def kill(self) -> None:
        """Kill the process, if it has not ended."""
        self.close()
        self.process.kill()


class Supervisor:
    """
    Run a program, and start it again when its files change.

    The program that serves, its successor that starts and those that finish their responses are
    all in C{_children}.
    """

    def __init__(self, command: Sequence[str], program: Mapping[str, Any]) -> None:
        """
        @param command: The executable and its options.
        @param program: What L{runProgram<storagegate.http.development.reloader.runProgram>} runs.
        """
        self._command = list(command)
        self._program = program
        self._sockets: list[tuple[str, socket.socket]] = []
        self._children: list[_Child] = []
        self._serving: _Child | None = None
        self._starting: _Child | None = None
        self._retireDeadline: float | None = None
        self._modules = ChangeNotifier()
        self._neighbours = ChangeNotifier((".py",), isDeep=False)
        self._changed: set[str] = set()
        self._isStale = False
        # Those of a successor that has failed.
        self._failedFiles: set[str] = set()
        self._stops = 0
        self._status = 0

    def run(self) -> int:
        """
        Run until the program has ended.

        @return: Its exit status; negative for a signal.
        """
        reading, writing = os.pipe()
        for end in (reading, writing):
            os.set_blocking(end, False)
        signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._countStop)
        signal.signal(signal.SIGCHLD, lambda number, frame: None)
        self._start()
        stops = 0
        while self._children:
            self._wait(reading)
            if self._stops > stops:
                stops = self._stops
                self._stop()
            for child in list(self._children):
                if child.process.poll() is not None:
                    self._ended(child)
            if not self._stops and self._serving is not None:
                self._checkFiles()
            self._checkDeadlines()
        for endpoint, held in self._sockets:
            if endpoint.startswith("unix:"):
                with suppress(OSError):
                    os.unlink(held.getsockname())
        return self._status

    def _wait(self, wakeup: int) -> None:
        controls = {
            each.control.fileno(): each for each in self._children if each.control is not None
        }
        readable, _, _ = select.select([wakeup, *controls], [], [], _POLL_SECONDS)
        for descriptor in readable:
            if descriptor == wakeup:
                with suppress(OSError):
                    os.read(wakeup, 4096)
            else:
                child = controls[descriptor]
                for message in child.receive():
                    self._received(child, message)

    # The program

    def _start(self) -> None:
        """Start the program, or a successor in place of one that is starting."""
        if self._starting is not None:
            self._starting.kill()
        ours, theirs = socket.socketpair()
        inherited = [(endpoint, held.fileno()) for endpoint, held in self._sockets]
        setup = {
            "program": self._program,
            "control": theirs.fileno(),
            "sockets": inherited,
            "isSuccessor": self._serving is not None,
        }
        with theirs:
            process = subprocess.Popen(
                [*self._command, "-c", _bootText(_RUN), json.dumps(setup)],
                pass_fds=[theirs.fileno(), *(descriptor for _, descriptor in inherited)],
            )
        self._starting = _Child(process, ours)
        self._children.append(self._starting)

    def _received(self, child: _Child, message: dict[str, Any]) -> None:
        kind = message["kind"]
        if kind == "files":
            child.files.update(message["files"])
            self._watch()
        elif kind == "hold":
            self._sockets.append(
                (message["endpoint"], socket.socket(fileno=child.descriptors.pop(0)))
            )
        elif kind == "drop":
            self._drop(message["endpoint"])
        elif kind == "ready" and child is self._starting and not child.isReady:
            # Each port that waits says so.
            child.isReady = True
            if self._serving is None:
                self._serve(child)
            else:
                self._serving.send({"kind": "retire", "files": sorted(self._changed)})
                self._retireDeadline = time.monotonic() + _LEAVE_SECONDS
        elif kind == "left":
            child.hasLeft = True
            self._checkDeadlines()
        elif kind == "failed" and child is self._starting:
            self._fail(message["report"])

    def _drop(self, endpoint: str) -> None:
        for each in self._sockets:
            if each[0] == endpoint:
                each[1].close()
                self._sockets.remove(each)
                break

    def _serve(self, child: _Child) -> None:
        """Let a successor serve; its predecessor has left."""
        if self._serving is not None:
            self._serving.deadline = time.monotonic() + GRACE_SECONDS + _KILL_SECONDS
        taken = (time.monotonic() - child.started) * 1000
        child.send({"kind": "serve", "files": sorted(self._changed), "ms": taken})
        self._serving, self._starting, self._retireDeadline = child, None, None
        if not self._isStale:
            self._changed.clear()
        self._failedFiles = set()
        self._watch()
        retired = [each for each in self._children if each is not child]
        for each in retired[:-_MAX_RETIRED]:
            each.kill()

    def _fail(self, report: Mapping[str, Any]) -> None:
        """Give a successor up, and report why."""
        child, self._starting = self._starting, None
        if child is None or self._serving is None:
            return
        child.kill()
        self._failedFiles = child.files
        self._watch()
        self._serving.send({"kind": "error", "report": report})

    def _ended(self, child: _Child) -> None:
        """Handle the end of a process."""
        # What it sent before its end.
        while messages := child.receive():
            for message in messages:
                self._received(child, message)
        child.close()
        self._children.remove(child)
        code = child.process.returncode
        if child is self._starting:
            title = f"The program ended with {_describe(code)} before it listened"
            self._fail({"title": title, "file": None, "line": None, "text": ""})
            if self._serving is None:
                self._status = code
        elif child is self._serving:
            self._serving, self._status = None, code
            if self._starting is not None and self._starting.isReady and not self._stops:
                self._serve(self._starting)
            else:
                for each in self._children:
                    each.close()
                if self._starting is not None:
                    self._starting.kill()

    def _checkDeadlines(self) -> None:
        now = time.monotonic()
        starting, serving = self._starting, self._serving
        if starting is not None and starting.isReady and serving is not None:
            if serving.hasLeft or now > (self._retireDeadline or 0.0):
                self._serve(starting)
        elif starting is not None and now > starting.started + _START_SECONDS:
            title = f"The program did not listen within {_START_SECONDS:.0f} s"
            self._fail({"title": title, "file": None, "line": None, "text": ""})
        for child in self._children:
            if child.deadline is not None and now > child.deadline:
                child.kill()

    def _countStop(self, number: int, frame: object) -> None:
        self._stops += 1

    def _stop(self) -> None:
        """Stop the children in order at the first signal, kill them at the second."""
        for child in self._children:
            if self._stops > 1 or child is self._starting:
                child.kill()
            else:
                child.close()

    # The files

    def _watch(self) -> None:
        files = set(self._failedFiles)
        for child in (self._serving, self._starting):
            files |= child.files if child is not None else set()
        self._modules.watch(files)
        # A file that the program does not import yet may be what a failed one lacks.
        directories = {os.path.dirname(path) for path in files} if self._failedFiles else set()
        self._neighbours.watch((), directories)

    def _checkFiles(self) -> None:
        changed = self._modules.settled() | self._neighbours.settled()
        for path in changed:
            _removeCompiled(path)
        self._changed |= changed
        self._isStale = self._isStale or bool(changed)
        # A successor that waits for its predecessor to leave serves in a moment.
        if self._isStale and not (self._starting is not None and self._starting.isReady):
            self._isStale = False
            self._start()


def _removeCompiled(path: str) -> None:
    """
    Remove the compiled file of a module.

    Python compares only the length and the second of the change, so it would run the old code of a
    module that was saved twice within a second.
    """
    with suppress(OSError, NotImplementedError):
        os.unlink(cache_from_source(path))


def _describe(code: int) -> str:
    return f"exit code {code}" if code >= 0 else f"signal {-code}"


def _bootText(code: str) -> str:
    return f"import sys; sys.path.insert(0, {_ROOT!r}); {code}"


def becomeSupervisor(options: Sequence[str], program: Mapping[str, Any]) -> NoReturn:
    """
    Replace this process by a supervisor of a program, by exec. Its process id stays.

    @param options: Of the Python interpreter.
    @param program: See L{programCommand<storagegate.http.development.reloader.programCommand>}.
    """
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError, AttributeError):
            stream.flush()
    setup = json.dumps({"options": list(options), "program": program})
    boot = _bootText(_SUPERVISE)
    os.execv(sys.executable, [sys.executable, *options, "-c", boot, setup])


def superviseProgram() -> NoReturn:
    """Run as the supervisor: what L{becomeSupervisor} executes."""
    setup = json.loads(sys.argv[1])
    status = Supervisor([sys.executable, *setup["options"]], setup["program"]).run()
    if status < 0:
        signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    sys.exit(status)
