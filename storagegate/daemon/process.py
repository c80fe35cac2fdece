"""
Settings of the whole process, its signals, and the end of a start that fails.

C{twistd} sends the signal that stopped it to itself again at the end, so that an orderly stop looks
like a crash, and it dies of SIGHUP. The handlers here only schedule a call in the reactor, so the
exit code of an orderly stop is 0::

    SIGTERM, SIGINT   first: stop in order; second: die of it immediately
    SIGHUP            read the configuration again
    SIGUSR2           write the stacks of all threads to standard error

A start that fails ends with one line and an exit code other than 0. C{twistd} cleans up after
exceptions, whose traceback it prints, but not after a L{SystemExit}. So L{startError} removes the
pid file, which would prevent the next start in a container, where process ids repeat; and it
notifies the command that waits for the daemon in the background.
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

from storagegate.net.heap import trimHeap

_COLLECT_AFTER = 10_000
"""
New containers between two runs of the collector. Python's 700 are one batch of uploads; the objects
of a request are freed by their reference counts, and the collector took 7 % of the time.
"""

_COLLECT_AT_START = 2000
"""
The same while the process starts: each attrs class leaves garbage behind, whose memory the next
class can use. That saves a megabyte.
"""

_NEVER = 1_000_000
"""The thresholds of the older generations at the start: they are not collected."""

_SWITCH_SECONDS = 0.0002
"""
How long a busy reactor holds the interpreter's lock while a thread waits. With Python's 5 ms a
commit, which releases it at each statement, starved behind reads: 630 ms at the 99th percentile
instead of 80.
"""


def tuneProcess() -> None:
    """Apply all settings of the process, before anything listens."""
    # Objects that survive one run live on: further runs over them take 60 ms.
    gc.set_threshold(_COLLECT_AT_START, _NEVER, _NEVER)
    gc.callbacks.append(_forgetSources)
    sys.setswitchinterval(_SWITCH_SECONDS)
    # The usual soft limit of 1024 descriptors is below the connections of one listener.
    _soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    # Services are imported by name, and the user's files come first.
    sys.path.insert(0, os.getcwd())


_SET_DEATH_SIGNAL = 1
"""C{PR_SET_PDEATHSIG} of C{prctl(2)}."""


def setParentDeathSignal(number: int) -> None:
    """Make the kernel send this process a signal when its parent ends; 0 for none."""
    prctl = getattr(ctypes.CDLL(None), "prctl", None)
    if prctl is not None:
        prctl(_SET_DEATH_SIGNAL, number, 0, 0, 0)


def freezeHeap() -> None:
    """
    Exclude the objects of the start from garbage collection: they live as long as the process.

    L{tuneProcess} has to be called first.
    """
    # Only the youngest generation: the others contain almost no garbage.
    gc.collect(0)
    gc.callbacks.remove(_forgetSources)
    gc.freeze()
    gc.set_threshold(_COLLECT_AFTER, 20, 20)
    # Returns 0.3 MB to the system in 2 ms.
    trimHeap()


def _forgetSources(phase: str, found: object) -> None:
    """
    Drop the source of generated methods, which attrs keeps for debuggers: 0.8 MB in all.

    It is a callback of the collector, so that the memory is used again during the start.
    """
    linecache.clearcache()


class SignalHandlers:
    """
    Handles signals in the reactor: a handler may interrupt any line of the main thread, even while
    it writes the log.

    @ivar isStopping: Whether a signal to stop was received, even before the reactor runs.
    """

    def __init__(
        self,
        reactor: Any,
        stop: Callable[[], object],
        reload: Callable[[], object],
        isWorker: bool = False,
    ) -> None:
        """
        @param reactor: One of Twisted's own: its handler of SIGTERM is replaced.
        @param stop: Called in the reactor to stop in order.
        @param reload: Called in the reactor to read the configuration again.
        @param isWorker: Whether a supervisor handles SIGINT and SIGHUP, which a terminal sends to
            every process of its group.
        """
        self._isWorker = isWorker
        self._reactor = reactor
        self._stop = stop
        self._reload = reload
        self.isStopping = False

    def install(self) -> None:
        """
        Install the handlers, before the reactor runs.

        The reactor installs its handler of SIGTERM as it starts, when a signal may already come: so
        that handler is replaced, too.
        """
        self._reactor.sigTerm = self.stopReceived
        signal.signal(signal.SIGTERM, self.stopReceived)
        signal.signal(signal.SIGINT, signal.SIG_IGN if self._isWorker else self.stopReceived)
        signal.signal(signal.SIGHUP, signal.SIG_IGN if self._isWorker else self.reloadReceived)
        if sys.__stderr__ is not None:
            faulthandler.register(signal.SIGUSR2, file=sys.__stderr__, all_threads=True)

    def stopReceived(self, number: int, frame: FrameType | None) -> None:
        """Stop in order the first time; the second time die of the signal."""
        if self.isStopping and self._isWorker:
            # A service manager may send it to every process, besides the supervisor.
            return
        if self.isStopping:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
        self.isStopping = True
        self._reactor.callFromThread(self._stop)

    def reloadReceived(self, number: int, frame: FrameType | None) -> None:
        """Schedule a reload of the configuration."""
        self._reactor.callFromThread(self._reload)


# twistd reads no more than this from the pipe.
_STATUS_BYTES = 100


def oneLine(text: str) -> str:
    """Replace the line breaks of a message by spaces."""
    return " ".join(text.split())


def startError(reason: str, twistdOptions: Mapping[str, Any] | None = None) -> SystemExit:
    """
    Make the exception that ends a start.

    @param reason: The line for the operator.
    @param twistdOptions: The options of C{twistd} itself, once it starts the service.
    """
    line = oneLine(f"storagegate: {reason}")
    options = twistdOptions or {}
    if options.get("pidfile"):
        with suppress(OSError):
            os.unlink(options["pidfile"])
    if options.get("statusPipe") is not None:
        status = f"1 {line}".encode("ascii", "backslashreplace")[:_STATUS_BYTES]
        with suppress(OSError):
            os.write(options["statusPipe"], status)
    return SystemExit(line)
