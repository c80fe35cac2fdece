"""
The daemon: listeners, store and rooms put together, started, reloaded and stopped.

The listeners are bound in C{privilegedStartService}, while a process that was started as root
still may; the store is opened in C{startService}, under the user who will own its files. Both run
before the reactor does, so nothing is served early, and what fails there is a L{SystemExit} with
one line. The store comes last, for it alone starts threads: a process that cannot start must end.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from twisted.application.service import Service
from twisted.internet.defer import Deferred, gatherResults, maybeDeferred
from twisted.internet.error import CannotListenError
from twisted.internet.interfaces import IListeningPort
from twisted.python.failure import Failure

from storagegate.core.definitions import DefinitionError
from storagegate.daemon.components import GatewayService, ListenerProtocol, RequestSite, Store
from storagegate.daemon.config import ConfigurationError, needRestart
from storagegate.daemon.health import (
    Readiness,
    ReadinessChecks,
    ReadinessMonitor,
    WorkerHealth,
    listening,
)
from storagegate.daemon.rootcredentials import CredentialsError, RootCredentials
from storagegate.daemon.service import ProcessService, ProcessSetup, servingText
from storagegate.gateway.transports.registry import listenerTransports

if TYPE_CHECKING:
    # A process that is alone has no use for it.
    from storagegate.net.ipc import WorkerIPC

# An answer of the admin listener is made at once; whoever is still there after this does not read.
_ADMIN_GRACE_SECONDS = 1


class StartError(Exception):
    """A listener is not there when the daemon has to serve."""


class Daemon(ProcessService):
    """The service of a process that serves."""

    def __init__(self, setup: ProcessSetup, link: "WorkerIPC | None" = None) -> None:
        """
        @param link: What a worker knows of the others; C{None} for the only process.
        """
        super().__init__(setup)
        self._link = link
        self._idleGraceSeconds = 0.0
        self._checks = ReadinessChecks(None if link is None else WorkerHealth(link, self._reactor))
        self._checks.add(self._storeParts)
        self._checks.addListeners(self._listening)
        self._checks.addWarnings(lambda: {} if self._store is None else self._store.warnings())
        self._checks.addWarnings(lambda: {} if self._gateway is None else self._gateway.warnings())
        self._monitor = ReadinessMonitor(self._reactor, self._checks, self._onReadinessChange)
        self._store: Store | None = None
        self._s3Root: ListenerProtocol | None = None
        self._sites: dict[str, RequestSite] = {}
        self._ports: dict[str, IListeningPort] = {}
        self._gateway: GatewayService | None = None

    def privilegedStartService(self) -> None:
        """
        Bind every listener.

        @raise SystemExit: If one cannot be opened.
        """
        super().privilegedStartService()
        listeners = self._configuration.listeners
        # The first of all: what is wrong with a service is said before any port is open.
        try:
            self._gateway = self._parts.gateway(self._configuration)
        except ConfigurationError as error:
            raise self._refusal(error) from error
        if listeners.s3 is not None:
            self._s3Root = self._parts.door()
            self._bind("s3", listeners.s3, self._s3Root)
        if listeners.admin is not None:
            self._bind("admin", listeners.admin, self._parts.adminResource(self.readiness))
        for row in listenerTransports():
            if row.inherit != "reuseport":
                self._open(row.name)

    def startService(self) -> None:
        """
        Open the store and put the S3 room on it.

        @raise SystemExit: If the data directory cannot be used.
        """
        Service.startService(self)
        with self._openingData() as directory:
            # First the key pair, then the store: once that is open there are threads.
            root = self._rootPair(self._configuration)
            # Here and not with the others: only processes of one user share a port that each of
            # them binds; and the library of gRPC begins to work as it binds, which it should not
            # before the process is the user that it stays.
            for row in listenerTransports():
                if row.inherit == "reuseport":
                    self._open(row.name)
            self._store = self._parts.store(self._configuration.store, directory)
        self._attachStore(root)
        if self._gateway is not None:
            region = self._configuration.s3.region
            self._gateway.attachStore(self._store, root, region, directory)
        if self._link is None:
            # Of several workers, their supervisor does.
            self._announce()
        self._monitor.start()
        self._reactor.callWhenRunning(self._tellReady)
        self._parts.freezeHeap()

    def drainAndExit(self, idleGraceSeconds: float) -> None:
        """
        Stop in favour of another process that serves the same places.

        @param idleGraceSeconds: How long connections stay on which nothing is under way: whoever
            asks within this time is told by the answer to connect anew.
        """
        self._idleGraceSeconds = idleGraceSeconds
        self.stopNow()

    def stopNow(self) -> None:
        """Begin to stop, unless that has begun."""
        if not self._isStopping:
            self._drain()
            self._reactor.stop()

    def _drain(self) -> None:
        """Say to whoever asks that this process stops, unless another one serves in its place."""
        self._isStopping = True
        self._checks.isDraining = not self._idleGraceSeconds

    def reload(self) -> None:
        """Read the configuration again and apply what a running daemon can change."""
        if self._isStopping:
            return
        self._notifier.reloading()
        try:
            self._reload()
        finally:
            self._tellReady()

    def _reload(self) -> None:
        old = self._configuration
        try:
            self._configuration = self._load()
            self._attachStore(self._rootPair(self._configuration))
        except (ConfigurationError, CredentialsError) as error:
            self._configuration = old
            self._refuseReload(error)
            return
        self._parts.logs.configure(self._configuration)
        self._log.info("configuration reloaded")
        self._tellUnchanged(needRestart(self._started, self._configuration))

    def readiness(self) -> Readiness:
        """Tell whether requests are served, and of each part what is wrong with it."""
        return self._checks.look()

    def _storeParts(self) -> Mapping[str, str | None]:
        return {"store": "closed"} if self._store is None else self._store.health()

    def _listening(self) -> Mapping[str, str | None]:
        room = {} if self._gateway is None else self._gateway.ports
        return listening({**self._ports, **room})

    def _onReadinessChange(self, readiness: Readiness) -> None:
        if self._gateway is not None:
            self._gateway.onReadinessChange(readiness)

    async def _stop(self) -> None:
        """Stop accepting, let finish what is in flight, and close the store."""
        self._drain()
        self._monitor.look()
        self._monitor.stop()
        grace = self._tellStopping()
        # The admin listener goes last: it tells whoever asks that this daemon is stopping. Where
        # another process has taken over, it does not: that one is asked.
        closing = [self._close("s3", grace), self._closeGateway(grace)]
        if self._idleGraceSeconds:
            closing.append(self._close("admin", _ADMIN_GRACE_SECONDS))
        await gatherResults([Deferred.fromCoroutine(each) for each in closing])
        await self._parts.stopMonitoring()
        if self._store is not None:
            try:
                await self._store.close()
            except Exception:
                self._log.failure("the store did not close in order")
            self._store = None
        await self._close("admin", _ADMIN_GRACE_SECONDS)
        self._notifier.close()
        self._log.info("stopped")

    async def _close(self, name: str, graceSeconds: float) -> None:
        port = self._ports.pop(name, None)
        if port is None:
            return
        try:
            await maybeDeferred(port.stopListening)
            await self._sites.pop(name).drain(graceSeconds, self._idleGraceSeconds)
        except Exception:
            # What follows, above all closing the store, matters more than this listener.
            self._log.failure("listener {name} did not close in order", name=name)

    async def _closeGateway(self, graceSeconds: float) -> None:
        room, self._gateway = self._gateway, None
        if room is None:
            return
        try:
            await room.close(graceSeconds, self._idleGraceSeconds)
        except Exception:
            self._log.failure("the gateway did not close in order")

    def _bind(self, name: str, description: str, root: Any) -> None:
        site = self._parts.site(root)
        results: list[IListeningPort | Failure] = []
        maybeDeferred(self._parts.listen, description, site).addBoth(results.append)
        port = results[0] if results else Failure(StartError("it did not open at once"))
        if isinstance(port, Failure):
            raise self._cannotListen(name, description, port.value)
        self._sites[name] = site
        self._ports[name] = port
        self._addresses[name] = port.getHost()

    def _open(self, name: str) -> None:
        """Open a listener of the gateway."""
        place = self._configuration.listeners.of(name)
        if place is None or self._gateway is None:
            return
        try:
            self._addresses[name] = self._gateway.open(name, place)
        except (CannotListenError, DefinitionError, ValueError) as error:
            raise self._cannotListen(name, place, error) from error

    def _readyText(self) -> str:
        return servingText(self._addresses)

    def _attachStore(self, root: RootCredentials) -> None:
        """Give the S3 listener its room; requests in flight keep the one that they entered."""
        self._parts.logs.redactor.hide(root.secretKey)
        if self._s3Root is not None and self._store is not None:
            self._s3Root.handler = self._parts.s3Resource(self._store, self._configuration.s3, root)
        if self._gateway is not None:
            self._gateway.setRootCredentials(root)
