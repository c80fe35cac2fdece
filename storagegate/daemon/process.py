"""
Settings of the whole process, its signals, and the handling of a failed start.

C{twistd} re-sends the signal that stopped it to itself at the end, so that a graceful shutdown
looks like a crash, and SIGHUP kills it. The handlers here only schedule a call in the reactor, so
the exit code of a graceful shutdown is 0::

    SIGTERM, SIGINT   first: graceful shutdown; second: immediate exit
    SIGHUP            reload the configuration
    SIGUSR2           write the stacks of all threads to standard error

A failed start ends with one line for each mistake, and a non-zero exit code. C{twistd} cleans up
after exceptions, whose traceback it prints, but not after a L{SystemExit}. Therefore L{startError}
removes the pid file, which would prevent the next start in a container, where process ids repeat.
It also notifies the command that waits for the daemon in the background.
"""

import ctypes
import faulthandler
import gc
import linecache
import os
import resource
import signal
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from types import FrameType
from typing import Any

from storagegate.daemon.config import ConfigurationError
from storagegate.net.heap import trimHeap

_COLLECT_AFTER = 10_000
"""
New containers between two runs of the garbage collector. Python's default of 700 is one batch of
uploads; reference counts free the objects of a request, and the collector took 7 % of the time.
"""

_COLLECT_AT_START = 2000
"""
The threshold during the start: each attrs class leaves garbage behind, and the next class can reuse
its memory. This saves a megabyte.
"""

_NEVER = 1_000_000
"""The threshold of the older generations at the start: they are not collected."""

_SWITCH_SECONDS = 0.0002
"""
How long a busy reactor holds the GIL while a thread waits. With Python's 5 ms a commit, which
releases the GIL at each statement, starved behind reads: its p99 was 630 ms instead of 80 ms.
"""


def tuneProcess() -> None:
    """Apply all settings of the process. Must be called before a listener opens."""
    # Objects that survive one run stay alive: further runs over them take 60 ms.
    gc.set_threshold(_COLLECT_AT_START, _NEVER, _NEVER)
    gc.callbacks.append(_forgetSources)
    sys.setswitchinterval(_SWITCH_SECONDS)
    # The usual soft limit of 1024 descriptors is lower than the connections of one listener.
    _soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    # Services are imported by name, and the user's modules take precedence.
    sys.path.insert(0, os.getcwd())


_SET_DEATH_SIGNAL = 1
"""C{PR_SET_PDEATHSIG} of C{prctl(2)}."""


def setParentDeathSignal(number: int) -> None:
    """Make the kernel send a signal to this process when its parent ends; 0 disables it."""
    prctl = getattr(ctypes.CDLL(None), "prctl", None)
    if prctl is not None:
        prctl(_SET_DEATH_SIGNAL, number, 0, 0, 0)


def freezeHeap() -> None:
    """
    Exclude the objects of the start from garbage collection: they live as long as the process.

    L{tuneProcess} must be called first.
    """
    # Only the youngest generation: the older ones contain almost no garbage.
    gc.collect(2)
    gc.callbacks.remove(_forgetSources)
    gc.freeze()
    gc.set_threshold(_COLLECT_AFTER, 20, 20)
    # Returns 0.3 MB to the system in 2 ms.
    trimHeap()


def _forgetSources(phase: str, found: object) -> None:
    """
    Drop the source of generated methods, which attrs keeps for debuggers: 0.8 MB in total.

    As a callback of the collector it makes the memory reusable during the start.
    """
    linecache.clearcache()


class SignalHandlers:
    """
    Handles signals in the reactor, because a handler may interrupt any line of the main thread,
    even a write to the log.

    @ivar isStopping: Whether a stop signal was received, even before the reactor runs.
    """

    def __init__(
        self,
        reactor: Any,
        stop: Callable[[], object],
        reload: Callable[[], object],
        isWorker: bool = False,
    ) -> None:
        """
        @param reactor: A reactor of Twisted; its SIGTERM handler is replaced.
        @param stop: Called in the reactor to shut down gracefully.
        @param reload: Called in the reactor to reload the configuration.
        @param isWorker: Whether a supervisor handles SIGINT and SIGHUP, which a terminal sends to
            all processes of a group.
        """
        self._isWorker = isWorker
        self._reactor = reactor
        self._stop = stop
        self._reload = reload
        self.isStopping = False

    def install(self) -> None:
        """
        Install the handlers, before the reactor runs.

        The reactor installs its SIGTERM handler as it starts, when a signal may already arrive, so
        that handler is replaced too.
        """
        self._reactor.sigTerm = self.stopReceived
        signal.signal(signal.SIGTERM, self.stopReceived)
        signal.signal(signal.SIGINT, signal.SIG_IGN if self._isWorker else self.stopReceived)
        signal.signal(signal.SIGHUP, signal.SIG_IGN if self._isWorker else self.reloadReceived)
        if sys.__stderr__ is not None:
            faulthandler.register(signal.SIGUSR2, file=sys.__stderr__, all_threads=True)

    def stopReceived(self, number: int, frame: FrameType | None) -> None:
        """Shut down gracefully on the first signal; die from the second one."""
        if self.isStopping and self._isWorker:
            # A service manager may signal every process, not only the supervisor.
            return
        if self.isStopping:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
        self.isStopping = True
        self._reactor.callFromThread(self._stop)

    def reloadReceived(self, number: int, frame: FrameType | None) -> None:
        """Schedule a reload of the configuration."""
        self._reactor.callFromThread(self._reload)


# twistd reads at most this many bytes from the pipe.
_STATUS_BYTES = 100


def oneLine(text: str) -> str:
    """Replace the line breaks of a message with spaces."""
    return " ".join(text.split())


def startError(
    reason: str | ConfigurationError, twistdOptions: Mapping[str, Any] | None = None
) -> SystemExit:
    """
    Make the exception that ends a start.

    @param reason: The reason for the operator; each mistake of a configuration gets its own line.
    @param twistdOptions: The options of C{twistd} itself, if it is starting the service.
    """
    reasons = reason.errors if isinstance(reason, ConfigurationError) else (reason,)
    text = "\n".join(oneLine(f"storagegate: {each}") for each in reasons)
    options = twistdOptions or {}
    if options.get("pidfile"):
        with suppress(OSError):
            os.unlink(options["pidfile"])
    if options.get("statusPipe") is not None:
        status = f"1 {oneLine(text)}".encode("ascii", "backslashreplace")[:_STATUS_BYTES]
        with suppress(OSError):
            os.write(options["statusPipe"], status)
    return SystemExit(text)
