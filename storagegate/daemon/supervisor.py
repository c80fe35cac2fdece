"""
The supervisor of several workers; it serves no requests itself.

It binds every listener, creates the shared memory of the workers, and starts and watches the
workers. C{SIGHUP} reloads the configuration and replaces the workers one by one, so that no client
is refused.

A supervisor does not import the modules of its workers, which would take 40 MB as long as it lives.
Instead, a forked child makes the configured gateway before any port is open, reports errors, and
exits. At this time the supervisor has no threads, and the child never runs the reactor.
"""

import os
import select
import signal
import sys
import time
from collections.abc import Callable
from typing import Any

from attrs import asdict, evolve
from msgspec.structs import replace
from twisted.application.service import Service
from twisted.internet.defer import Deferred
from twisted.internet.error import CannotListenError

from storagegate.daemon.config import Configuration, ConfigurationError, applied, portable
from storagegate.daemon.configkeys import KEYS
from storagegate.daemon.listenerfile import removeListeners
from storagegate.daemon.rootcredentials import CredentialsError
from storagegate.daemon.service import ProcessService, ProcessSetup, ReloadResult, servingText
from storagegate.gateway.transports.registry import listenerTransports
from storagegate.net.process import oneLine, setParentDeathSignal
from storagegate.net.workers import WorkerCommand, WorkerFailed, WorkerPool
from storagegate.serving.listeners import SharedListeners, Sharing, workerCommand

LIMIT_SECONDS = 60.0
"""Limit of the preflight: as long as the start of a worker may take."""

_LOOK_SECONDS = 0.2
"""The interval in which a preflight checks for a stop."""

_MAX_TEXT = 4096
"""Limit of an error text in bytes: a pipe accepts this much in one write."""


def preflight(
    act: Callable[[], object], isUnwanted: Callable[[], bool], moreSeconds: float = 0.0
) -> None:
    """
    Call a function in a forked child.

    @param act: Checks the configuration; the child exits afterwards.
    @param isUnwanted: Returns whether to stop waiting.
    @param moreSeconds: Additional time for the function to wait for other machines.
    @raise ConfigurationError: If C{act} raises it in the child, or takes too long. Other errors are
        ignored, because the workers report them.
    """
    reader, writer = os.pipe()
    parent = os.getpid()
    child = os.fork()
    if not child:
        try:
            setParentDeathSignal(signal.SIGKILL)
            if os.getppid() == parent:
                act()
        except ConfigurationError as error:
            lines = "\n".join(map(oneLine, error.errors))
            os.write(writer, lines.encode("utf-8", "backslashreplace")[:_MAX_TEXT])
        finally:
            # Skips the exit handlers of the parent.
            os._exit(0)
    os.close(writer)
    end = time.monotonic() + LIMIT_SECONDS + moreSeconds
    try:
        while not select.select([reader], [], [], _LOOK_SECONDS)[0]:
            if isUnwanted():
                return
            if time.monotonic() >= end:
                seconds = f"{LIMIT_SECONDS + moreSeconds:.0f} s"
                raise ConfigurationError(f"the services were not imported within {seconds}")
        wrong = os.read(reader, _MAX_TEXT).decode("utf-8", "replace")
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(reader)
    if wrong:
        raise ConfigurationError(*wrong.splitlines())


class Supervisor(ProcessService):
    """The service of C{twistd storagegate} with C{--workers} above one."""

    def __init__(self, setup: ProcessSetup) -> None:
        super().__init__(setup)
        self._listeners = SharedListeners(self._reactor, self._started.workers)
        self._memory: dict[str, int] = {}
        self._lock: Any = None
        self._workers: WorkerPool | None = None
        self._isReloading = False
        self._isReloadWanted = False
        self._reloadResult = ReloadResult()

    def privilegedStartService(self) -> None:
        """
        Bind every listener that the workers do not bind themselves.

        @raise SystemExit: If a listener cannot be bound, or the services are invalid.
        """
        super().privilegedStartService()
        configuration = self._configuration
        # Services and tables are checked before any port is open. The check takes a second, and the
        # reference services do not need it.
        if configuration.gateway or configuration.services or configuration.cluster:
            cluster = configuration.cluster
            moreSeconds = 0.0 if cluster is None else float(cluster.connectWait)
            if cluster is not None:
                self._notifier.starting("connecting to the cluster", moreSeconds)

            def check() -> None:
                # The service manager only accepts notifications from the parent.
                self._notifier.close()
                self._joinCluster()
                self._parts.gateway(configuration)

            try:
                preflight(check, lambda: self._signals.isStopping, moreSeconds)
            except ConfigurationError as error:
                raise self._refusal(error) from error
        listeners = configuration.listeners
        self._open("s3", listeners.s3)
        self._open("admin", listeners.admin)
        for row in listenerTransports():
            if row.inherit != "reuseport":
                self._open(row.name, listeners.of(row.name), row.inherit)

    def startService(self) -> None:
        """
        Create the shared memory of the workers, and start the workers.

        @raise SystemExit: If a port is in use, the data cannot be opened, or a worker cannot start.
        """
        Service.startService(self)
        # Bound separately: only processes of one user can share a port that each of them binds, and
        # by now this process runs as the user of its workers.
        for row in listenerTransports():
            if row.inherit == "reuseport":
                listeners = self._configuration.listeners
                self._open(row.name, listeners.of(row.name), row.inherit)
        with self._openingData() as directory:
            self._configuration = self._rooted(self._configuration)
            isCluster = self._configuration.cluster is not None
            self._lock = self._parts.prepareStore(self._configuration.store, directory, isCluster)
            self._memory = self._parts.makeMemory(isCluster)
        self._workers = WorkerPool(
            self._reactor,
            self._program(),
            output=None if self._parts.logs.sink is not None else self._parts.logs.relay,
            changed=self._changed,
            answer=self._answer,
        )
        try:
            if not self._workers.start(lambda: self._signals.isStopping):
                # The reactor stops as soon as it starts.
                return
        except WorkerFailed as error:
            raise self._refusal(error) from error
        self._publishListeners()
        self._logServing()
        self._log.info("{count} workers are serving", count=self._configuration.workers)
        self._reactor.callWhenRunning(self._notifyReady)
        self._parts.freezeHeap()

    def stopNow(self) -> None:
        """Start to shut down."""
        self._reactor.stop()

    def abort(self) -> None:
        """Kill the workers, in the handler of a second signal: they keep the data locked."""
        if self._workers is not None:
            self._workers.abort()

    def reload(self) -> ReloadResult:
        """Reload the configuration, and start to replace every worker."""
        if self._isStopping or self._workers is None:
            return ReloadResult(error="the daemon is stopping")
        if self._isReloading:
            self._isReloadWanted = True
            return ReloadResult(error="the workers are already being replaced")
        self._isReloading = True
        self._notifier.reloading()
        # The coroutine reads the configuration before this method returns.
        reloading = Deferred.fromCoroutine(self._reload(self._workers))
        reloading.addErrback(lambda failure: self._log.failure("the reload failed", failure))
        result = self._reloadResult
        reloading.addCallback(self._reloaded)
        return result

    def _answer(self, topic: str, payload: Any) -> Any:
        """Return the reply to a worker's question; C{None} for an unknown topic."""
        return asdict(self.reload()) if topic == "reload" else None

    async def _reload(self, workers: WorkerPool) -> None:
        before = self._configuration
        try:
            configuration = self._rooted(self._load())
            self._configuration = self._pinned(configuration)
            self._parts.logs.configure(self._configuration)
            names = self._unchanged(configuration)
            self._reloadResult = ReloadResult(
                applied(before, self._configuration, isReplacing=True),
                names,
                replacing=self._started.workers,
            )
            await workers.roll(self._program(), before.shutdownGraceSeconds)
        except (ConfigurationError, CredentialsError, WorkerFailed, OSError) as error:
            self._configuration = before
            self._parts.logs.configure(before)
            if not self._isStopping:
                self._reloadResult = self._refusedReload(error)
            return
        self._publishListeners()
        count = self._started.workers
        self._log.info("configuration reloaded, {count} workers replaced", count=count)
        self._logUnchanged(names)

    def _pinned(self, configuration: Configuration) -> Configuration:
        """Keep the values that a reload cannot change: the sockets, the memory and the store."""
        started = self._started
        values, origins = dict(configuration.values), dict(configuration.origins)
        for name in (key.name for key in KEYS if key.isShared):
            for mine, theirs in ((values, started.values), (origins, started.origins)):
                mine.pop(name, None)
                if name in theirs:
                    mine[name] = theirs[name]
        return evolve(
            configuration,
            listeners=configuration.listeners.at(started.listeners.addresses),
            store=started.store,
            cluster=started.cluster,
            workers=started.workers,
            values=values,
            origins=origins,
        )

    def _unchanged(self, configuration: Configuration) -> list[str]:
        """Return the keys that differ from the start and require a restart."""
        started = self._started.values
        shared = [key.name for key in KEYS if key.isShared]
        names = [name for name in shared if started.get(name) != configuration.values.get(name)]
        tables = (
            ("cluster", configuration.cluster, self._started.cluster),
            ("vault", configuration.vault, self._started.vault),
        )
        return [*names, *(name for name, now, before in tables if now != before)]

    def _reloaded(self, result: None) -> None:
        self._isReloading = False
        self._notifyReady()
        if self._isReloadWanted:
            self._isReloadWanted = False
            self.reload()

    def _rooted(self, configuration: Configuration) -> Configuration:
        """Add the root key pair, which the supervisor generates once for all workers."""
        if configuration.cluster is not None:
            # Each worker reads the cluster's root key pair.
            return configuration
        return evolve(
            configuration, s3=replace(configuration.s3, root=self._rootPair(configuration))
        )

    def _open(self, name: str, endpoint: str | None, sharing: Sharing = "stream") -> None:
        if endpoint is None:
            return
        try:
            self._listeners.bind(name, endpoint, sharing)
        except (CannotListenError, ValueError) as error:
            raise self._cannotListen(name, endpoint, error) from error
        self._addresses[name] = self._listeners.addresses[name]

    def _program(self) -> WorkerCommand:
        """Return the command of the workers with the current configuration."""
        inheritance = self._listeners.inheritance()
        endpoints = self._listeners.handOver(inheritance)
        memory = {name: inheritance.add(each) for name, each in self._memory.items()}
        log = self._parts.logs.handOver(inheritance.add)
        if self._lock is not None:
            # Workers only hold it: the data stay locked while any worker lives.
            inheritance.add(self._lock.descriptor)
        root = self._configuration.s3.root
        flags = {name: value for name, value in self._flags.items() if value is not None}
        options: dict[str, Any] = {**portable(self._configuration), "log": log, "flags": flags}
        if root is not None:
            options["root"] = [root.accessKey, root.secretKey]
        command = [sys.executable, "-m", "storagegate.daemon.worker"]
        # Workers import from the same path.
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        return workerCommand(command, environment, inheritance, endpoints, memory, options)

    def _changed(self) -> None:
        """Report the number of workers to the service manager."""
        if not self._isStopping and self._workers is not None:
            self._notifier.status(self._state(self._workers))

    def _readyText(self) -> str | None:
        return None if self._workers is None else self._state(self._workers)

    def _state(self, workers: WorkerPool) -> str:
        text = servingText(self._addresses)
        return f"{text}; {workers.ready} of {self._started.workers} workers"

    async def _stop(self) -> None:
        """Shut down the workers gracefully."""
        self._isStopping = True
        grace = self._notifyStopping()
        # Closed first: the workers accept the connections that the kernel has queued.
        self._listeners.stopListening()
        if self._workers is not None:
            await self._workers.stop(grace)
        removeListeners(self._directory())
        self._listeners.close()
        self._notifier.close()
        self._log.info("stopped")
