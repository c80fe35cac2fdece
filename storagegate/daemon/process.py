"""
What concerns the whole process: the limits of the system, and where modules are looked for.

What the process does on a signal.

C{twistd} notes the signal that stopped it and sends it to itself again at the end, so that a
supervisor sees a death where there was an orderly stop; and it dies of SIGHUP. The handlers here
only ask the reactor, so the exit code of an orderly stop is 0::

    SIGTERM, SIGINT   first: stop in order; second: die of it at once
    SIGHUP            read the configuration again
    SIGUSR2           write the stacks of all threads to standard error

How a start is refused: one line, an exit code that is not 0, and nothing left behind.

C{twistd} cleans up after an exception, whose traceback it shows; a L{SystemExit} passes by it. So
what it would have done is done here: its pid file goes, for one that stays keeps the next start
from running where numbers of processes repeat, as they do in a container; and the command that
waits for the daemon in the background is told, for it would wait for ever.
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

_COLLECT_AFTER = 10_000
"""
New containers between two looks of the collector. Python's 700 are one batch of uploads; all that
a request makes is freed by its reference count, and the collector took 7 % of the time.
"""


_COLLECT_AT_START = 2000
"""
The same while the process starts: each attrs class leaves a first form of itself behind, and what
it took is better used for the next class. It is a megabyte less at the end.
"""

_NEVER = 1_000_000
"""How often the collector looks at what it has found to be in use: not at all at the start."""

_SWITCH_SECONDS = 0.0002
"""
How long a busy reactor keeps the interpreter from a thread that waits for it. With Python's 5 ms a
commit, which gives it up at each statement, starved behind reads: at the 99th percentile it took
630 ms where it now takes 80.
"""


def tuneProcess() -> None:
    """Set the process up before anything listens; the one place for such settings."""
    # What survives one look stays: looking at it again and again takes 60 ms.
    gc.set_threshold(_COLLECT_AT_START, _NEVER, _NEVER)
    gc.callbacks.append(_forgetSources)
    sys.setswitchinterval(_SWITCH_SECONDS)
    # The usual soft limit of 1024 descriptors is below the connections that one listener takes.
    _soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    # Services are named by module, and the user's files come first.
    sys.path.insert(0, os.getcwd())


_SET_DEATH_SIGNAL = 1
"""C{PR_SET_PDEATHSIG} of C{prctl(2)}."""


def setParentDeathSignal(number: int) -> None:
    """Have the system send this process a signal when its parent ends; 0 for none."""
    prctl = getattr(ctypes.CDLL(None), "prctl", None)
    if prctl is not None:
        prctl(_SET_DEATH_SIGNAL, number, 0, 0, 0)


def freezeHeap() -> None:
    """
    Keep the garbage collector off what the start has made: it lives as long as the process.

    After L{tuneProcess}, with which the start began.
    """
    # Only what was made last: among what has survived is next to nothing to find.
    gc.collect(0)
    gc.callbacks.remove(_forgetSources)
    gc.freeze()
    gc.set_threshold(_COLLECT_AFTER, 20, 20)
    _giveBack()


def _forgetSources(phase: str, found: object) -> None:
    """
    Drop the text of generated methods, which attrs keeps for debuggers; a look of the collector.

    Together it is 0.8 MB, which is of use to the start only if it comes back while that goes on.
    """
    linecache.clearcache()


def _giveBack() -> None:
    """Give the system back what only the start needed: a third of a megabyte, once, in 2 ms."""
    # Not every C library has it.
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


class SignalHandlers:
    """
    Hands signals over to the reactor.

    A handler may interrupt any line of the main thread, also one that writes the log. So nothing
    is done in it but to ask the reactor to do it.
    """

    def __init__(
        self,
        reactor: Any,
        stop: Callable[[], object],
        reload: Callable[[], object],
        isWorker: bool = False,
    ) -> None:
        """
        @param reactor: One of Twisted's own, for its handler of SIGTERM is replaced.
        @param isWorker: Whether another process has an eye on the terminal, which tells every
            process of its group, and reads the configuration.
        """
        self._isWorker = isWorker
        self._reactor = reactor
        self._stop = stop
        self._reload = reload
        self._stopping = False

    def install(self) -> None:
        """
        Take the signals, before the reactor runs.

        The reactor takes SIGTERM as it starts, and by then somebody may know that this process
        listens. So what it takes it for is this, and there is no moment in between.
        """
        self._reactor.sigTerm = self.stopReceived
        signal.signal(signal.SIGTERM, self.stopReceived)
        signal.signal(signal.SIGINT, signal.SIG_IGN if self._isWorker else self.stopReceived)
        signal.signal(signal.SIGHUP, signal.SIG_IGN if self._isWorker else self.reloadReceived)
        if sys.__stderr__ is not None:
            faulthandler.register(signal.SIGUSR2, file=sys.__stderr__, all_threads=True)

    @property
    def isStopping(self) -> bool:
        """Tell whether the process was told to stop; also before the reactor runs."""
        return self._stopping

    def stopReceived(self, number: int, frame: FrameType | None) -> None:
        """Stop in order the first time; the second time die of the signal."""
        if self._stopping and self._isWorker:
            # A service manager may tell every process, besides the supervisor.
            return
        if self._stopping:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
        self._stopping = True
        self._reactor.callFromThread(self._stop)

    def reloadReceived(self, number: int, frame: FrameType | None) -> None:
        """Ask for the configuration to be read again."""
        self._reactor.callFromThread(self._reload)


# twistd reads no more than this from the pipe.
_STATUS_BYTES = 100


def oneLine(text: str) -> str:
    """Make a message fit for a single line."""
    return " ".join(text.split())


def startError(reason: str, twistdOptions: Mapping[str, Any] | None = None) -> SystemExit:
    """
    Make the exception that ends a start.

    @param twistdOptions: The options of C{twistd} itself, once it has begun to start the service.
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
