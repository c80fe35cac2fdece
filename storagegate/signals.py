"""
What the process does on a signal.

C{twistd} notes the signal that stopped it and sends it to itself again at the end, so that a
supervisor sees a death where there was an orderly stop; and it dies of SIGHUP. The handlers here
only ask the reactor, so the exit code of an orderly stop is 0::

    SIGTERM, SIGINT   first: stop in order; second: die of it at once
    SIGHUP            read the configuration again
    SIGUSR2           write the stacks of all threads to standard error
"""

import faulthandler
import os
import signal
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any


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
