"""A program in a process of its own: a script that serves, or C{storagegate run}."""

import http.client
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from threading import Condition, Event, Thread
from typing import Any

from tests.support.modules import CHECKOUT

SECONDS = 60.0
"""Longer than any wait takes on a busy machine."""


_PAUSE_SECONDS = 0.02

_never = Event()


class ServedProgram:
    """
    A running program; a thread reads what it writes.

    @ivar process: The process: the supervisor, with workers.
    """

    def __init__(
        self,
        case: Any,
        directory: Path,
        *arguments: str,
        environment: Mapping[str, str] | None = None,
        passed: Callable[[], None] | None = None,
        descriptors: tuple[int, ...] = (),
    ) -> None:
        """
        @param case: Kills the program in the end.
        @param arguments: The command line, without the interpreter.
        @param passed: Called in the process before it runs the interpreter.
        @param descriptors: The descriptors that it inherits.
        """
        self._text = ""
        self._hasEnded = False
        self._changed = Condition()
        self.process = subprocess.Popen(
            [sys.executable, *arguments],
            cwd=directory,
            env={**os.environ, "PYTHONPATH": str(CHECKOUT), **(environment or {})},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            preexec_fn=passed,
            pass_fds=descriptors,
            start_new_session=True,
        )
        self._reader = Thread(target=self._read, daemon=True)
        self._reader.start()
        case.addCleanup(self.kill)

    @property
    def log(self) -> str:
        """Return what it has written so far."""
        with self._changed:
            return self._text

    def wait(self, pattern: str, count: int = 1) -> str:
        """
        Wait until a pattern is in the log as often as a number.

        @return: The last match.
        """

        def isThere() -> bool:
            return len(re.findall(pattern, self._text)) >= count or self._hasEnded

        with self._changed:
            self._changed.wait_for(isThere, SECONDS)
            found = [each.group() for each in re.finditer(pattern, self._text)]
            assert len(found) >= count, f"no {pattern!r} in:\n{self._text}"
            return found[-1]

    def port(self, name: str = "http") -> int:
        """Wait for the line of a listener, and return its port."""
        return int(self.wait(rf"name={name} address=\S+:\d+").rpartition(":")[2])

    def ask(self, path: str = "/", port: int | None = None) -> str:
        """Make a request on a connection of its own, and return the body of the response."""
        return self.request(path, port)[1]

    def request(self, path: str = "/", port: int | None = None) -> tuple[int, str]:
        """Make a request on a connection of its own; return the status and the body."""
        client = http.client.HTTPConnection("127.0.0.1", port or self.port(), timeout=SECONDS)
        try:
            client.request("GET", path, headers={"Connection": "close"})
            response = client.getresponse()
            return response.status, response.read().decode()
        finally:
            client.close()

    def until(self, done: Callable[[str], bool], path: str = "/") -> str:
        """Ask until a response is as wanted, and return it."""
        while not done(found := self.ask(path)):
            assert self.process.poll() is None, self.log
            # The requests take their time from the program that is waited for.
            _never.wait(_PAUSE_SECONDS)
        return found

    def signal(self, number: int) -> None:
        """Send a signal to the process."""
        self.process.send_signal(number)

    def end(self) -> int:
        """Wait for the end of all its processes; return the exit code."""
        code = self.process.wait(SECONDS)
        self._reader.join(SECONDS)
        assert not self._reader.is_alive(), "a process of the program still runs"
        return code

    def stop(self) -> int:
        """Shut it down gracefully; return the exit code."""
        self.signal(signal.SIGTERM)
        return self.end()

    def kill(self) -> None:
        """Kill all its processes."""
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()
        assert self.process.stdout is not None
        self._reader.join(SECONDS)
        self.process.stdout.close()

    def _read(self) -> None:
        assert self.process.stdout is not None
        while data := os.read(self.process.stdout.fileno(), 65536):
            with self._changed:
                self._text += data.decode("utf-8", "replace")
                self._changed.notify_all()
        with self._changed:
            self._hasEnded = True
            self._changed.notify_all()
