"""
The real daemon as a process, from the checkout, with free ports and a directory of the test.

L{Daemon} blocks and is for tests (and their threads) that drive blocking clients;
L{tests.support.daemonprocess} has one on the reactor. Both read the addresses of the listeners from
the daemon's log.
"""

import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

CHECKOUT = Path(__file__).resolve().parent.parent.parent

ACCESS_KEY = "TESTROOTKEY"
SECRET_KEY = "test-root-secret"

# A start takes a second; a shared machine may be slower, but not this slow.
START_SECONDS = 60.0
STOP_SECONDS = 60.0

_LISTENING = re.compile(r"listening name=(\w+) address=([^\s\"]+)")
_LOCAL = ("--s3", "tcp:0:interface=127.0.0.1", "--admin", "tcp:0:interface=127.0.0.1")
_ROOMS_OFF = ("--http", "off", "--grpc", "off", "--tcp", "off", "--udp", "off")


_PROGRAM = "from twisted.scripts.twistd import run; run()"


def daemonCommand(
    data: str | Path,
    arguments: Sequence[str] = (),
    program: str = _PROGRAM,
    backEnds: Sequence[str] = (),
) -> list[str]:
    """
    Return the command that runs the daemon in the foreground; C{arguments} override the free ports.

    @param program: Python code that runs C{twistd} with the arguments of the process.
    @param backEnds: Modules of C{tests.contract} whose back ends replace the store's own. The
        variable C{STORE_UNDER_TEST}, a comma-separated list, sets them for every daemon of a run.
    """
    for name in backEnds or os.environ.get("STORE_UNDER_TEST", "").split(","):
        if name:
            program = f"import {name} as backEnd; backEnd.install(); {program}"
    return [
        sys.executable,
        "-c",
        program,
        "-n",
        "--pidfile=",
        "storagegate",
        "--data",
        str(data),
        *_LOCAL,
        *_ROOMS_OFF,
        *arguments,
    ]


def daemonEnvironment(extra: Mapping[str, str] = {}) -> dict[str, str]:
    """
    Return the daemon's environment: the checkout first on the path, and a known root key pair.

    @param extra: Variables to set; an empty value removes a variable.
    """
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("STORAGEGATE_") and name != "STATE_DIRECTORY"
    }
    path = [str(CHECKOUT), environment.get("PYTHONPATH", "")]
    environment["PYTHONPATH"] = os.pathsep.join(item for item in path if item)
    environment["PYTHONUNBUFFERED"] = "1"
    # Compiling the imported modules takes a third of a start's CPU time; it is done only once.
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    environment["STORAGEGATE_ACCESS_KEY"] = ACCESS_KEY
    environment["STORAGEGATE_SECRET_KEY"] = SECRET_KEY
    environment.update(extra)
    return {name: value for name, value in environment.items() if value}


class DaemonFailed(Exception):
    """
    The daemon ended, or an expected event did not occur in time; the text contains its whole log.
    """


class SecretLogged(AssertionError):
    """A daemon has logged a secret that it was started with."""


def checkLog(text: str, environment: Mapping[str, str]) -> None:
    """
    Search the log of a daemon for its secrets.

    @raise SecretLogged: If the log contains one.
    """
    secret = environment.get("STORAGEGATE_SECRET_KEY")
    if secret and secret in text:
        [line, *_] = [line for line in text.split("\n") if secret in line] or [text]
        raise SecretLogged(f"the root secret is in the log: {line}")


class DaemonLog:
    """The daemon's output so far, and the addresses of its listeners."""

    def __init__(self) -> None:
        self.text = ""
        self.addresses: dict[str, str] = {}
        self._rest = ""

    def feed(self, data: bytes) -> None:
        """Process output."""
        text = data.decode("utf-8", "backslashreplace")
        self.text += text
        *lines, self._rest = (self._rest + text).split("\n")
        for line in lines:
            match = _LISTENING.search(line)
            if match:
                self.addresses[match.group(1)] = match.group(2)

    def address(self, name: str) -> tuple[str, int]:
        """Return host and port of a listener."""
        host, _colon, port = self.addresses[name].rpartition(":")
        return host, int(port)

    def ready(self, expected: Sequence[str]) -> bool:
        """Return whether all expected listeners are in the log."""
        return all(name in self.addresses for name in expected)


class Daemon:
    """
    A daemon for blocking tests, as a context manager or with L{start} and L{stop}.

    @ivar data: The data directory.
    @ivar code: The exit code once it has ended; negative if a signal ended it.
    """

    def __init__(
        self,
        data: str | Path,
        *arguments: str,
        environment: Mapping[str, str] = {},
        expect: Sequence[str] = ("s3", "admin"),
        directory: str | Path | None = None,
        prefix: Sequence[str] = (),
        descriptors: Sequence[int] = (),
        program: str = _PROGRAM,
        backEnds: Sequence[str] = (),
    ) -> None:
        """
        @param arguments: Flags after those of L{daemonCommand}.
        @param environment: See L{daemonEnvironment}.
        @param expect: The listeners that L{start} waits for.
        @param directory: The working directory.
        @param prefix: A command that runs the daemon, such as C{strace} with its options.
        @param descriptors: Descriptors that the process inherits in addition to its output.
        @param program: See L{daemonCommand}.
        @param backEnds: See L{daemonCommand}.
        """
        self.data = Path(data)
        self.code: int | None = None
        command = daemonCommand(Path(data).absolute(), arguments, program, backEnds)
        self._command = [*prefix, *command]
        self._environment = daemonEnvironment(environment)
        self._expect = expect
        self._directory = directory
        self._descriptors = descriptors
        self._log = DaemonLog()
        self._news = threading.Condition()
        self._ended = False
        self._process: subprocess.Popen[bytes] | None = None
        self._reader: threading.Thread | None = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.kill()

    @property
    def pid(self) -> int:
        """The process id; with a prefix, the id of the prefix's process."""
        return self._running().pid

    @property
    def storeArguments(self) -> tuple[str, ...]:
        """Arguments with which a command finds the store."""
        return ("--data", str(self.data))

    @property
    def log(self) -> str:
        """The complete log, over all starts."""
        with self._news:
            return self._log.text

    def address(self, name: str = "s3") -> tuple[str, int]:
        """Return host and port of a listener."""
        with self._news:
            return self._log.address(name)

    def url(self, name: str = "s3", scheme: str = "http") -> str:
        """Return the URL of a listener, without a trailing slash."""
        host, port = self.address(name)
        return f"{scheme}://{host}:{port}"

    def start(self) -> Self:
        """
        Start or restart it, and wait until it listens.

        @raise DaemonFailed: If it ends instead.
        """
        self.launch()
        return self.waitForListeners()

    def waitForListeners(self) -> Self:
        """
        Wait until it listens.

        @raise DaemonFailed: If it ends instead.
        """
        self._waitFor(lambda: self._log.ready(self._expect), START_SECONDS, "listen")
        return self

    def launch(self) -> None:
        """Start it without waiting."""
        assert self._process is None or self.code is not None, "it runs already"
        with self._news:
            self._log.addresses.clear()
            self._ended = False
            self.code = None
        self._process = subprocess.Popen(
            self._command,
            env=self._environment,
            cwd=self._directory,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            pass_fds=self._descriptors,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def waitForLog(self, pattern: str, seconds: float = STOP_SECONDS) -> re.Match[str]:
        """
        Wait until a pattern is in the log, and return the first match.

        @raise DaemonFailed: If the pattern does not appear in time.
        """
        self._waitFor(
            lambda: re.search(pattern, self._log.text) is not None, seconds, f"say {pattern!r}"
        )
        match = re.search(pattern, self.log)
        assert match is not None
        return match

    def signal(self, number: int) -> None:
        """Send it a signal."""
        self._running().send_signal(number)

    def wait(self, seconds: float = STOP_SECONDS) -> int:
        """
        Wait until it has ended.

        The log is searched for the secrets that it was started with.

        @return: The exit code.
        @raise DaemonFailed: If it does not end in time; it is then killed.
        """
        process = self._running()
        try:
            self.code = process.wait(seconds)
        except subprocess.TimeoutExpired as error:
            self.kill()
            raise DaemonFailed(f"did not end in {seconds} s:\n{self.log}") from error
        assert self._reader is not None
        self._reader.join()
        checkLog(self.log, self._environment)
        return self.code

    def stop(self) -> int:
        """Shut it down gracefully, and return the exit code."""
        self.signal(signal.SIGTERM)
        return self.wait()

    def kill(self) -> None:
        """Kill it, as in a crash; harmless if it has ended."""
        if self._process is not None and self.code is None:
            # Kill the whole group: the child of a prefix such as strace would survive it.
            os.killpg(self._process.pid, signal.SIGKILL)
            self.wait()

    def _running(self) -> "subprocess.Popen[bytes]":
        assert self._process is not None, "it was never started"
        return self._process

    def _read(self) -> None:
        """Read the output, in a separate thread."""
        stream = self._running().stdout
        assert stream is not None
        with stream:
            while data := os.read(stream.fileno(), 65536):
                with self._news:
                    self._log.feed(data)
                    self._news.notify_all()
        with self._news:
            self._ended = True
            self._news.notify_all()

    def _waitFor(self, done: Callable[[], bool], seconds: float, what: str) -> None:
        with self._news:
            self._news.wait_for(lambda: done() or self._ended, seconds)
            success = done()
        if not success:
            self.kill()
            raise DaemonFailed(f"did not {what} (exit code {self.code}):\n{self.log}")
