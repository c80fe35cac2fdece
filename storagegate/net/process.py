"""
The signals of a process that serves, and of a process that supervises.

C{twistd} and Twisted's own handlers re-send the signal that stopped them to the process at the end,
so that a graceful shutdown looks like a crash, and SIGHUP kills it. The handlers here only schedule
a call in the reactor, so the exit code of a graceful shutdown is 0::

    SIGTERM, SIGINT   first: graceful shutdown; second: immediate exit
    SIGHUP            reload
    SIGUSR2           write the stacks of all threads to standard error
"""

import ctypes
import faulthandler
import os
import signal
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

_SET_DEATH_SIGNAL = 1
"""C{PR_SET_PDEATHSIG} of C{prctl(2)}."""


def setParentDeathSignal(number: int) -> None:
    """Make the kernel send a signal to this process when its parent ends; 0 disables it."""
    prctl = getattr(ctypes.CDLL(None), "prctl", None)
    if prctl is not None:
        prctl(_SET_DEATH_SIGNAL, number, 0, 0, 0)


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
        abort: Callable[[], object] = lambda: None,
    ) -> None:
        """
        @param reactor: A reactor of Twisted; its SIGTERM handler is replaced.
        @param stop: Called in the reactor to shut down gracefully.
        @param reload: Called in the reactor to reload.
        @param isWorker: Whether a supervisor handles SIGINT and SIGHUP, which a terminal sends to
            all processes of a group.
        @param abort: Called in the handler of the second stop signal, before the process dies.
        """
        self._isWorker = isWorker
        self._reactor = reactor
        self._stop = stop
        self._reload = reload
        self._abort = abort
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
            self._abort()
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
        self.isStopping = True
        self._reactor.callFromThread(self._stop)

    def reloadReceived(self, number: int, frame: FrameType | None) -> None:
        """Schedule a reload."""
        self._reactor.callFromThread(self._reload)


def oneLine(text: str) -> str:
    """Replace the line breaks of a message with spaces."""
    return " ".join(text.split())
