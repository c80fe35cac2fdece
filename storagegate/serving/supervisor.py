"""
The supervisor of a program's workers.

The process that has started a program finds out what it listens on, and becomes its supervisor by
exec, so its process ID stays and its memory is freed. The supervisor binds the listeners and runs
the program in each worker, see L{storagegate.serving.worker}. It imports neither the program nor
its libraries::

    program -exec-> supervisor -spawns-> worker: the program, on inherited sockets

C{SIGHUP} replaces the workers one by one with workers that run the new code. A worker that cannot
start has no effect on the others. C{SIGTERM} and C{SIGINT} stop everything gracefully.
"""

import json
import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pkgutil import resolve_name
from secrets import token_hex
from time import monotonic
from typing import Any, NoReturn

from attrs import asdict, frozen
from twisted.internet.defer import Deferred
from twisted.internet.error import CannotListenError, ReactorNotRunning
from twisted.logger import Logger, globalLogBeginner

from storagegate.net.endpoints import formatAddress, processReactor
from storagegate.net.process import SignalHandlers, oneLine
from storagegate.net.systemd import Notifier
from storagegate.net.workers import (
    IDLE_GRACE_SECONDS,
    WorkerCommand,
    WorkerFailed,
    WorkerPool,
)
from storagegate.serving.listeners import SharedListeners, Sharing, workerCommand
from storagegate.serving.program import Program
from storagegate.telemetry.log import LEVELS, LogObserver, standardError
from storagegate.telemetry.redaction import Redactor

MAX_WORKERS = 256
"""The maximum number of workers of a program: no machine has more cores to spare."""

_SOCKET_VARIABLES = ("LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES")

_ROOT = os.path.dirname(__file__).rpartition(os.sep + "storagegate" + os.sep)[0]

_BOOT = f"import sys; sys.path.insert(0, {_ROOT!r}); from storagegate.serving."
_SUPERVISE = _BOOT + "supervisor import superviseProgram; superviseProgram()"
_WORK = _BOOT + "worker import main; main()"


@frozen
class SharedListener:
    """
    A listener of a program.

    @ivar name: Its name, unique in the program.
    @ivar endpoint: An endpoint string for a stream, otherwise C{HOST:PORT}.
    @ivar sharing: How workers share it.
    """

    name: str
    endpoint: str
    sharing: Sharing = "stream"


@frozen
class ProgramPlan:
    """
    A program, and how to run its workers.

    @ivar options: Options of the interpreter.
    @ivar program: A L{Program<storagegate.serving.program.Program>}.
    @ivar workers: The number of workers.
    @ivar listeners: Its listeners.
    @ivar memory: The functions that make the shared memory of the workers and return its
        descriptor, as C{module:function}, by the name of the memory.
    @ivar graceMs: The grace of requests in flight at a stop.
    @ivar reloadGraceMs: The same at a reload.
    @ivar idleGraceSeconds: The time that a replaced worker keeps idle connections open.
    @ivar warnings: Logged when the workers serve.
    @ivar quiet: Whether to print no listening addresses.
    """

    options: Sequence[str]
    program: Program
    workers: int
    listeners: Sequence[SharedListener]
    memory: Mapping[str, str]
    graceMs: float
    reloadGraceMs: float
    idleGraceSeconds: float = IDLE_GRACE_SECONDS
    warnings: Sequence[str] = ()
    quiet: bool = False


def becomeSupervisor(plan: ProgramPlan) -> NoReturn:
    """Replace this process with the supervisor of a program, by exec. The process ID stays."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError, AttributeError):
            stream.flush()
    command = [sys.executable, *plan.options, "-c", _SUPERVISE, json.dumps(asdict(plan))]
    os.execve(sys.executable, command, {**os.environ, **_socketVariables()})


def _socketVariables() -> dict[str, str]:
    """
    Return the variables of systemd's sockets.

    Twisted has removed them from the environment if this process has imported its endpoints.
    """
    try:
        with open("/proc/self/environ", "rb") as file:
            variables = os.fsdecode(file.read()).split("\0")
    except OSError:
        return {}
    pairs = (each.partition("=")[::2] for each in variables)
    return {name: value for name, value in pairs if name in _SOCKET_VARIABLES}


def superviseProgram() -> None:
    """Run as the supervisor; L{becomeSupervisor} executes this."""
    given = json.loads(sys.argv[1])
    listeners = [SharedListener(**each) for each in given.pop("listeners")]
    WorkerSupervisor(processReactor(), ProgramPlan(listeners=listeners, **given)).run()


class WorkerSupervisor:
    """Binds the listeners of a program, and starts, replaces and stops its workers."""

    _log = Logger()

    def __init__(self, reactor: Any, plan: ProgramPlan) -> None:
        self._reactor = reactor
        self._plan = plan
        self._listeners = SharedListeners(reactor, plan.workers)
        self._memory: dict[str, int] = {}
        self._secret = token_hex(32)
        self._pool: WorkerPool | None = None
        self._signals = SignalHandlers(reactor, self.stop, self.reload, abort=self._abort)
        self._notifier = Notifier(reactor, os.environ)
        self._isStopping = self._isReloading = self._isReloadWanted = False

    def run(self) -> None:
        """
        Supervise until a signal stops the process.

        @raise SystemExit: If an address is taken, or a worker cannot start.
        """
        self._beginLog()
        self._signals.install()
        self._bind()
        self._memory = {name: resolve_name(make)() for name, make in self._plan.memory.items()}
        pool = self._pool = WorkerPool(
            self._reactor,
            self._command(),
            changed=self._changed,
            answer=self._answer,
            idleGraceSeconds=self._plan.idleGraceSeconds,
        )
        try:
            serves = pool.start(lambda: self._signals.isStopping)
        except WorkerFailed as error:
            raise SystemExit(f"storagegate: {error}") from None
        if serves:
            self._reportServing()
            self._reactor.callWhenRunning(self._notifyReady)
        self._reactor.addSystemEventTrigger(
            "before", "shutdown", lambda: Deferred.fromCoroutine(self._drain(pool))
        )
        self._reactor.run()

    def stop(self) -> None:
        """Start to shut down."""
        with suppress(ReactorNotRunning):
            self._reactor.stop()

    def _abort(self) -> None:
        """Kill the workers, in the handler of a second signal."""
        if self._pool is not None:
            self._pool.abort()

    def reload(self, files: Sequence[str] = ()) -> None:
        """
        Start to replace every worker.

        @param files: The changed files, if they are the reason.
        """
        if self._isStopping or self._pool is None:
            return
        if self._isReloading:
            self._isReloadWanted = True
            return
        self._isReloading = True
        self._notifier.reloading()
        Deferred.fromCoroutine(self._roll(self._pool, files)).addErrback(
            lambda failure: self._log.failure("the reload failed", failure)
        )

    def _answer(self, topic: str, payload: Any) -> Any:
        """Handle a request of a worker: C{reload} with the changed files."""
        if topic == "reload":
            self.reload(payload)

    async def _roll(self, pool: WorkerPool, files: Sequence[str]) -> None:
        began = monotonic()
        try:
            await pool.roll(self._command(), self._plan.reloadGraceMs / 1000)
        except WorkerFailed as error:
            if not self._isStopping:
                self._log.error(
                    "reload refused, the old code continues to serve: {error}",
                    error=oneLine(str(error)),
                )
        else:
            what = ", ".join(map(os.path.relpath, files)) or "the program"
            milliseconds = (monotonic() - began) * 1000
            self._log.info("reloaded {what} in {time:.0f} ms", what=what, time=milliseconds)
        finally:
            self._isReloading = False
            self._notifyReady()
        if self._isReloadWanted:
            self._isReloadWanted = False
            self.reload()

    async def _drain(self, pool: WorkerPool) -> None:
        self._isStopping = True
        grace = self._plan.graceMs / 1000
        text = f"stopping, requests in flight have {grace:g} s"
        self._log.info("{text}", text=text)
        self._notifier.stopping(text)
        self._listeners.stopListening()
        await pool.stop(grace)
        self._listeners.close()
        self._notifier.close()

    def _beginLog(self) -> None:
        writer = standardError(self._reactor)
        observers = []
        if writer is not None:
            writer.lowest = LEVELS.index("warn" if self._plan.quiet else "info")
            observers.append(LogObserver(writer, Redactor()))
        globalLogBeginner.beginLoggingTo(observers, discardBuffer=True, redirectStandardIO=False)

    def _bind(self) -> None:
        for each in self._plan.listeners:
            try:
                self._listeners.bind(each.name, each.endpoint, each.sharing)
            except (CannotListenError, ValueError) as error:
                raise SystemExit(
                    f"storagegate: cannot listen name={each.name} endpoint={each.endpoint}: {error}"
                ) from None

    def _command(self) -> WorkerCommand:
        plan = self._plan
        inheritance = self._listeners.inheritance()
        places = self._listeners.handOver(inheritance)
        memory = {name: inheritance.add(each) for name, each in self._memory.items()}
        options = {
            "program": plan.program,
            "endpoints": {each.name: each.endpoint for each in plan.listeners},
            "secret": self._secret,
            "reloadGraceMs": plan.reloadGraceMs,
        }
        command = [sys.executable, *plan.options, "-c", _WORK]
        return workerCommand(command, os.environ, inheritance, places, memory, options)

    def _reportServing(self) -> None:
        for text in self._plan.warnings:
            self._log.warn("{text}", text=text)
        if not self._plan.quiet:
            # Standard error may be closed.
            with suppress(OSError, ValueError, AttributeError):
                for name, address in self._listeners.addresses.items():
                    text = formatAddress(address)
                    print(f"listening name={name} address={text}", file=sys.stderr, flush=True)
        self._log.info("{count} workers are serving", count=self._plan.workers)

    def _changed(self) -> None:
        """Report the number of workers to the service manager."""
        if not self._isStopping:
            self._notifier.status(self._state())

    def _notifyReady(self) -> None:
        if not self._isStopping:
            self._notifier.ready(self._state())

    def _state(self) -> str:
        addresses = self._listeners.addresses.items()
        served = ", ".join(f"{name} {formatAddress(address)}" for name, address in addresses)
        ready = 0 if self._pool is None else self._pool.ready
        return f"serving {served}; {ready} of {self._plan.workers} workers"


def readWorkers(value: Any) -> int:
    """
    Check a number of workers.

    @raise ValueError: If it is not a whole number from 1 to L{MAX_WORKERS}.
    """
    isNumber = isinstance(value, int) and not isinstance(value, bool)
    if not isNumber or not 1 <= value <= MAX_WORKERS:
        raise ValueError(f"workers is a number from 1 to {MAX_WORKERS}, not {value!r}")
    return int(value)
