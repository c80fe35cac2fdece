"""
The parent process of a program in development: holds its listening sockets, watches its files.

The process that was started as the program becomes the supervisor by exec, when the program first
listens, and runs the program in a child process. When a file of the program changes, it starts a
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
    {"kind": "retire", "files": [PATH]}         finish the requests in flight, then end
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

_ROOT = os.path.dirname(__file__).rpartition(os.sep + "storagegate" + os.sep)[0]

_BOOT = f"import sys; sys.path.insert(0, {_ROOT!r}); from storagegate.http."
_SUPERVISE = _BOOT + "development.supervisor import superviseProgram; superviseProgram()"
_RUN = _BOOT + (
    "application import Application; "
    "from storagegate.http.development.reloader import runProgram; runProgram(Application)"
)

FileState = tuple[int, int, int] | None
"""Time of change in ns, length, inode (editors write a new file and rename it); L{None}: absent."""


def fileState(path: str) -> FileState:
    """
    Return the state of a file.

    @param path: A file, which may be absent: the state is then C{None}.
    """
    try:
        status = os.stat(path)
    except OSError:
        return None
    return (status.st_mtime_ns, status.st_size, status.st_ino)


class ChangeNotifier:
    """
    Finds changes of files and of directory trees, by comparing their states.

    @ivar files: The files with their last known states.
    @ivar directories: The directories, each with the states of the files below it.
    """

    def __init__(self, suffixes: tuple[str, ...]) -> None:
        """
        @param suffixes: Of the files below directories; others are ignored there.
        """
        self.files: dict[str, FileState] = {}
        self.directories: dict[str, dict[str, FileState]] = {}
        self._suffixes = suffixes

    def watch(self, files: Iterable[str], directories: Iterable[str] = ()) -> None:
        """
        Watch these files and directories, and no others.

        @param files: Paths; a new one has its present state.
        @param directories: Directories, whose files below are watched too.
        """
        known, trees = self.files, self.directories
        self.files = {path: known[path] if path in known else fileState(path) for path in files}
        self.directories = {
            path: trees[path] if path in trees else self._find(path) for path in directories
        }

    def check(self) -> set[str]:
        """
        Return the files that have changed, are gone, or are new in a directory.

        May be called in a thread, one call at a time, and not during L{watch}.
        """
        changed = set()
        for path, known in self.files.items():
            state = self.files[path] = fileState(path)
            if state != known:
                changed.add(path)
        for directory, before in self.directories.items():
            found = self.directories[directory] = self._find(directory)
            changed |= {path for path, _ in before.items() ^ found.items()}
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
                if each not in ("node_modules", "__pycache__") and not each.startswith(".")
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

    def send(self, **message: Any) -> None:
        """Send a message, unless the other side is gone or does not read."""
        if self.control is not None:
            with suppress(OSError):
                self.control.send(json.dumps(message).encode() + b"\n", socket.MSG_DONTWAIT)

    def receive(self) -> list[dict[str, Any]]:
        """Read the messages that have come, and close the socket at its end."""
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


class ProgramSupervisor:
    """
    Run a program, and start it again when its files change.

    The program that serves, its successor that starts and those that finish their responses are
    all in C{_children}.
    """

    def __init__(self, command: Sequence[str], program: Sequence[Any]) -> None:
        """
        @param command: The executable and its options.
        @param program: A L{Program<storagegate.http.development.reloader.Program>}.
        """
        self._command = command
        self._program = program
        self._sockets: list[tuple[str, socket.socket]] = []
        self._children: list[_Child] = []
        self._serving: _Child | None = None
        self._starting: _Child | None = None
        self._leaveDeadline = 0.0
        self._notifier = ChangeNotifier((".py",))
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
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._countStop)
        self._start()
        stops = 0
        while self._children:
            controls = {each.control: each for each in self._children if each.control is not None}
            for control in select.select(list(controls), [], [], _POLL_SECONDS)[0]:
                self._receive(controls[control])
            if self._stops > stops:
                stops = self._stops
                for child in self._children:
                    # In order at the first signal.
                    if stops > 1 or child is self._starting:
                        child.kill()
                    else:
                        child.close()
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

    def _countStop(self, number: int, frame: object) -> None:
        self._stops += 1

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
                [*self._command, "-c", _RUN, json.dumps(setup)],
                pass_fds=[theirs.fileno(), *(descriptor for _, descriptor in inherited)],
            )
        self._starting = _Child(process, ours)
        self._children.append(self._starting)

    def _receive(self, child: _Child) -> bool:
        """Handle what a child has sent, and return whether there was anything."""
        messages = child.receive()
        for message in messages:
            kind = message["kind"]
            if kind == "files":
                child.files.update(message["files"])
                self._watch()
            elif kind == "hold":
                held = socket.socket(fileno=child.descriptors.pop(0))
                self._sockets.append((message["endpoint"], held))
            elif kind == "drop":
                self._drop(message["endpoint"])
            elif kind == "ready" and child is self._starting and not child.isReady:
                # Each port that waits sends one.
                child.isReady = True
                if self._serving is None:
                    self._serve(child)
                else:
                    self._serving.send(kind="retire", files=sorted(self._changed))
                    self._leaveDeadline = time.monotonic() + _LEAVE_SECONDS
            elif kind == "left":
                child.hasLeft = True
            elif kind == "failed" and child is self._starting:
                self._fail(message["report"])
        return bool(messages)

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
        milliseconds = (time.monotonic() - child.started) * 1000
        child.send(kind="serve", files=sorted(self._changed), ms=milliseconds)
        self._serving, self._starting = child, None
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
        self._serving.send(kind="error", report=report)

    def _failWith(self, title: str) -> None:
        self._fail({"title": title, "file": None, "line": None, "text": ""})

    def _ended(self, child: _Child) -> None:
        """Handle the end of a process."""
        # Messages that it sent before its end.
        while self._receive(child):
            pass
        child.close()
        self._children.remove(child)
        code = child.process.returncode
        if child is self._starting:
            if self._serving is None:
                self._status = code
            how = f"exit code {code}" if code >= 0 else f"signal {-code}"
            self._failWith(f"The program ended with {how} before it listened")
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
            if serving.hasLeft or now > self._leaveDeadline:
                self._serve(starting)
        elif starting is not None and now > starting.started + _START_SECONDS:
            self._failWith(f"The program did not listen within {_START_SECONDS:.0f} s")
        for child in self._children:
            if child.deadline is not None and now > child.deadline:
                child.kill()

    # The files

    def _watch(self) -> None:
        files = set(self._failedFiles)
        for child in (self._serving, self._starting):
            files |= child.files if child is not None else set()
        # A file that the program does not import yet may be what a failed one lacks.
        directories = {os.path.dirname(path) for path in files} if self._failedFiles else set()
        self._notifier.watch(files, directories)

    def _checkFiles(self) -> None:
        changed = self._notifier.settled()
        for path in changed:
            # Python compares the length and the second of the change with those in the compiled
            # file, so it would run the old code of a module that was saved twice in a second.
            with suppress(OSError, NotImplementedError):
                os.unlink(cache_from_source(path))
        self._changed |= changed
        self._isStale = self._isStale or bool(changed)
        # A successor that waits for its predecessor to leave serves in a moment.
        if self._isStale and not (self._starting is not None and self._starting.isReady):
            self._isStale = False
            self._start()


def becomeSupervisor(options: Sequence[str], program: Sequence[Any]) -> NoReturn:
    """
    Replace this process by a supervisor of a program, by exec. Its process id stays.

    @param options: Of the Python interpreter.
    @param program: A L{Program<storagegate.http.development.reloader.Program>}.
    """
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError, AttributeError):
            stream.flush()
    command = [sys.executable, *options]
    setup = json.dumps({"command": command, "program": program})
    os.execv(sys.executable, [*command, "-c", _SUPERVISE, setup])


def superviseProgram() -> NoReturn:
    """Run as the supervisor: what L{becomeSupervisor} executes."""
    status = ProgramSupervisor(**json.loads(sys.argv[1])).run()
    if status < 0:
        signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    sys.exit(status)
