"""The real daemon as a process on the reactor; see L{tests.support.daemon}."""

import os
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.error import ProcessExitedAlready
from twisted.internet.protocol import ProcessProtocol
from twisted.python.failure import Failure

from tests.support.daemon import (
    START_SECONDS,
    STOP_SECONDS,
    DaemonFailed,
    DaemonLog,
    checkLog,
    daemonCommand,
    daemonEnvironment,
)


class DaemonProcess(ProcessProtocol):
    """
    A daemon for tests that run in the reactor.

    @ivar code: The exit code once it has ended; negative if a signal ended it.
    """

    def __init__(self, reactor: Any, expect: Sequence[str] = ("s3", "admin")) -> None:
        """
        @param reactor: Starts the process and times the waits.
        @param expect: The listeners that L{start} waits for.
        """
        self.code: int | None = None
        self._reactor = reactor
        self._expect = expect
        self._log = DaemonLog()
        self._environment: Mapping[str, str] = {}
        self._waiting: list[tuple[Callable[[], bool], Deferred[None]]] = []

    @property
    def log(self) -> str:
        """The complete log."""
        return self._log.text

    def address(self, name: str = "s3") -> tuple[str, int]:
        """Return host and port of a listener."""
        return self._log.address(name)

    def url(self, name: str = "s3", scheme: str = "http") -> str:
        """Return the URL of a listener, without a trailing slash."""
        host, port = self.address(name)
        return f"{scheme}://{host}:{port}"

    async def start(
        self, data: str | Path, *arguments: str, environment: Mapping[str, str] = {}
    ) -> None:
        """
        Start it and wait until it listens.

        @param arguments: Flags after those of C{daemonCommand}.
        @param environment: See C{daemonEnvironment}.
        @raise DaemonFailed: If it ends instead, or takes too long; it is then killed.
        """
        command = daemonCommand(Path(data).absolute(), arguments)
        self._environment = daemonEnvironment(environment)
        self._reactor.spawnProcess(
            self, command[0], command, env=self._environment, path=os.getcwd()
        )
        await self._until(lambda: self._log.ready(self._expect), START_SECONDS, "listen")

    async def waitForLog(self, pattern: str) -> re.Match[str]:
        """Wait until a pattern is in the log, and return the first match."""
        await self._until(
            lambda: re.search(pattern, self.log) is not None, STOP_SECONDS, f"say {pattern!r}"
        )
        match = re.search(pattern, self.log)
        assert match is not None
        return match

    def signal(self, name: str) -> None:
        """Send it a signal, named without SIG; harmless if it has ended."""
        assert self.transport is not None, "it was never started"
        try:
            self.transport.signalProcess(name)
        except ProcessExitedAlready:
            pass

    async def stop(self) -> int:
        """Shut it down gracefully, and return the exit code."""
        self.signal("TERM")
        return await self.wait()

    async def kill(self) -> None:
        """Kill it, as in a crash; harmless if it has ended."""
        self.signal("KILL")
        await self.wait()

    async def wait(self) -> int:
        """Wait until it has ended, return the exit code, and check its log for secrets."""
        await self._until(lambda: self.code is not None, STOP_SECONDS, "end")
        assert self.code is not None
        checkLog(self.log, self._environment)
        return self.code

    def outReceived(self, data: bytes) -> None:
        """Process output."""
        self._log.feed(data)
        self._tell()

    def errReceived(self, data: bytes) -> None:
        """Process error output as log."""
        self.outReceived(data)

    def processEnded(self, reason: Failure) -> None:
        """Record the exit code."""
        error: Any = reason.value
        self.code = -error.signal if error.signal else error.exitCode
        self._tell()

    def _tell(self) -> None:
        for entry in list(self._waiting):
            done, waiter = entry
            if done() or self.code is not None:
                self._waiting.remove(entry)
                waiter.callback(None)

    async def _until(self, done: Callable[[], bool], seconds: float, what: str) -> None:
        if not done() and self.code is None:
            waiter: Deferred[None] = Deferred()
            entry = (done, waiter)
            self._waiting.append(entry)

            def late() -> None:
                self._waiting.remove(entry)
                waiter.callback(None)

            timeout = self._reactor.callLater(seconds, late)
            await waiter
            if timeout.active():
                timeout.cancel()
        if not done():
            self.signal("KILL")
            raise DaemonFailed(f"did not {what} (exit code {self.code}):\n{self.log}")
