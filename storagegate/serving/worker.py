"""
A worker that runs a program: a script, or C{storagegate run}.

The L{supervisor<storagegate.serving.supervisor>} starts a worker as an interpreter that runs the
program from the beginning. When the program serves, L{storagegate.serving.group} finds the L{worker
<ProgramWorker>} of this process, and opens the inherited sockets in place of the addresses.
"""

import signal
import socket
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.error import ReactorNotRunning

from storagegate.net.ipc import WorkerIPC, WorkerSetup, adopt, encode, receiveSetup
from storagegate.net.process import SignalHandlers, oneLine, setParentDeathSignal
from storagegate.serving import becomeWorker
from storagegate.serving.program import execute, showError


class ProgramWorker:
    """
    The worker of a program.

    @ivar link: The connection to the supervisor and the other workers.
    @ivar places: The addresses to listen on, by listener.
    @ivar endpoints: The addresses that the program had at the start of the supervisor.
    @ivar secret: Random bytes that all workers have.
    @ivar hasServed: Whether the program has begun to serve.
    @ivar onRetired: Called when another process takes the worker's place.
    """

    def __init__(self, control: socket.socket, setup: WorkerSetup) -> None:
        self.link = WorkerIPC(setup)
        self.places: Mapping[str, str] = setup.places
        self.endpoints: Mapping[str, str] = setup.options["endpoints"]
        self.secret = bytes.fromhex(setup.options["secret"])
        self.hasServed = False
        self.onRetired: Callable[[], object] = lambda: None
        self._control = control
        self._reloadGraceMs: int = setup.options["reloadGraceMs"]
        self._idleGraceMs = 0.0
        self._isStopping = self._isRetired = False

    def fail(self, reason: str) -> None:
        """
        Report that this worker cannot serve.

        @param reason: The reason for the operator.
        """
        # The supervisor may have ended.
        with suppress(OSError):
            self._control.sendall(encode({"kind": "failed", "reason": oneLine(reason)}))

    def follow(
        self,
        reactor: Any,
        opening: Deferred[Any],
        close: Callable[[float, float], Any],
        graceMs: float,
    ) -> Callable[[], Deferred[Any]]:
        """
        Obey the supervisor: report when the listeners are open, and stop when it says so.

        @param reactor: Provides all interfaces of a reactor; it does not run yet.
        @param opening: Fires when the listeners are open.
        @param close: C{close(graceMs, patienceMs)} stops serving.
        @param graceMs: The grace of a stop.
        @return: Stops serving; to be called before the reactor ends.
        """
        self.hasServed = True
        link = self.link

        def stop() -> None:
            if not self._isStopping:
                self._isStopping = True
                with suppress(ReactorNotRunning):
                    reactor.stop()

        def retire(idleGraceSeconds: float) -> None:
            self._isRetired = True
            self._idleGraceMs = idleGraceSeconds * 1000
            self.onRetired()
            stop()

        def opened(result: Any) -> Any:
            self._control.setblocking(False)
            adopt(reactor, self._control, link.control)
            # From now on the end of the control socket shuts this process down gracefully.
            reactor.callWhenRunning(setParentDeathSignal, 0)
            reactor.callWhenRunning(link.ready)
            return result

        def failed(reason: Any) -> Any:
            self.fail(reason.getErrorMessage())
            return reason

        def drain() -> Deferred[Any]:
            grace = self._reloadGraceMs if self._isRetired else graceMs
            return maybeDeferred(close, grace, self._idleGraceMs)

        link.stopped = stop
        link.retired = retire
        SignalHandlers(reactor, stop, lambda: None, isWorker=True).install()
        opening.addCallbacks(opened, failed)
        return drain


def main() -> None:
    """
    Run the program of the setup that this process receives.

    @raise SystemExit: If the program fails, or ends before it has served.
    """
    # The supervisor handles them; a terminal sends them to all processes of a group.
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    control, setup = receiveSetup()
    worker = ProgramWorker(control, setup)
    becomeWorker(worker)
    if "rates" in setup.memory:
        from storagegate.core.ratelimit import shareRates

        shareRates(setup.memory["rates"])
    try:
        execute(*setup.options["program"])
    except SystemExit as ended:
        if not worker.hasServed:
            worker.fail(_exitReason(ended.code))
        raise
    except BaseException as error:
        if not worker.hasServed:
            worker.fail(f"{type(error).__name__}: {error}")
        showError(error)
        raise SystemExit(1) from None
    if not worker.hasServed:
        worker.fail("the program has ended without serving")
        raise SystemExit(1)


def _exitReason(code: object) -> str:
    if isinstance(code, str):
        return code.removeprefix("storagegate: ")
    return f"the program has ended with exit code {code or 0} before it served"
