"""
The daemon: starts, reloads and stops the listeners, the store and the services.

The listeners are bound in C{privilegedStartService}, before a process that was started as root
drops its privileges; the store is opened in C{startService}, as the user that owns its files. Both
run before the reactor; a failure raises L{SystemExit} with one line. The ports begin to listen when
everything else is open: an earlier client is refused and can retry, and does not wait for a start
that may fail. The threads of the store do not keep a failed process alive.
"""

import os
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from twisted.application.service import Service
from twisted.internet.defer import Deferred, gatherResults, maybeDeferred
from twisted.internet.error import CannotListenError
from twisted.internet.interfaces import IListeningPort
from twisted.python.failure import Failure

from storagegate.core.definitions import DefinitionError
from storagegate.daemon.config import (
    Configuration,
    ConfigurationError,
    applied,
    needRestart,
    withoutRestart,
)
from storagegate.daemon.health import (
    Readiness,
    ReadinessChecks,
    WorkerHealth,
    certificateFamily,
    certificateWarnings,
    listening,
)
from storagegate.daemon.listenerfile import removeListeners
from storagegate.daemon.rootcredentials import CredentialsError
from storagegate.daemon.service import ProcessService, ProcessSetup, ReloadResult, servingText
from storagegate.gateway.transports.registry import listenerTransports
from storagegate.net.transport import HeldPort
from storagegate.objects.issuedkeys import KeyPair

if TYPE_CHECKING:
    from storagegate.daemon.gatewayservice import DaemonGatewayService
    from storagegate.net.http.site import Site
    from storagegate.net.ipc import WorkerIPC
    from storagegate.storage.store import ObjectStore

# Responses of the admin listener are small; a client that is still connected then is not reading.
_ADMIN_GRACE_SECONDS = 1


class StartError(Exception):
    """A listener did not open synchronously."""


class Daemon(ProcessService):
    """The service of a process that serves requests."""

    def __init__(self, setup: ProcessSetup, link: "WorkerIPC | None" = None) -> None:
        """@param link: The connection of a worker to the other workers; C{None} without workers."""
        super().__init__(setup)
        self._link = link
        self._idleGraceSeconds = 0.0
        self._checks = ReadinessChecks(
            self._reactor,
            self._storeParts,
            self._listening,
            self._warnings,
            self._onReadinessChange,
            None if link is None else WorkerHealth(link, self._reactor),
        )
        self._store: ObjectStore | None = None
        self._sites: dict[str, Site] = {}
        self._ports: dict[str, IListeningPort] = {}
        self._gateway: DaemonGatewayService | None = None
        self._console: Any = None
        self._parts.meters.watch(lambda: [certificateFamily(self._openPorts())])

    def privilegedStartService(self) -> None:
        """
        Bind every listener.

        @raise SystemExit: If a listener cannot be opened.
        """
        super().privilegedStartService()
        listeners = self._configuration.listeners
        # Done first: errors of the cluster and of services are reported before any port is open.
        try:
            self._joinCluster()
            self._gateway = self._parts.gateway(self._configuration)
        except ConfigurationError as error:
            raise self._refusal(error) from error
        if listeners.s3 is not None:
            self._bind("s3", listeners.s3)
        if listeners.admin is not None:
            self._bind("admin", listeners.admin, self._adminResource())
        for row in listenerTransports():
            if row.inherit != "reuseport":
                self._open(row.name)
        if listeners.gatewayOnS3 and self._gateway is not None:
            self._join(self._gateway)

    def startService(self) -> None:
        """
        Open the store and serve it.

        @raise SystemExit: If the data directory cannot be used.
        """
        Service.startService(self)
        with self._openingData() as directory:
            root = self._rootPair(self._configuration)
            self._checkShared()
            self._store = self._parts.store(self._configuration.store, directory)
        # Bound separately: only processes of one user can share a port that each of them binds, and
        # the gRPC library listens as soon as it binds.
        for row in listenerTransports():
            if row.inherit == "reuseport":
                self._open(row.name)
        self._attachStore(root)
        if self._gateway is not None:
            region = self._configuration.s3.region
            encryption = self._parts.encryption
            self._gateway.attachStore(self._store, root, region, directory, encryption)
        self._beginListening()
        if self._link is None:
            # With workers, the supervisor does this once for all.
            self._publishListeners()
            self._logServing()
        self._checks.start()
        self._reactor.callWhenRunning(self._notifyReady)
        self._parts.freezeHeap()

    def drainAndExit(self, idleGraceSeconds: float) -> None:
        """
        Stop because another process takes over the addresses.

        @param idleGraceSeconds: The time that idle connections stay open; a response within this
            time closes its connection.
        """
        self._idleGraceSeconds = idleGraceSeconds
        self.stopNow()

    def stopNow(self) -> None:
        """Start to shut down, unless a shutdown is in progress."""
        if not self._isStopping:
            self._drain()
            self._reactor.stop()

    def _drain(self) -> None:
        """Report that this process is stopping, unless another process replaces it."""
        self._isStopping = True
        self._checks.isDraining = not self._idleGraceSeconds

    def reload(self) -> ReloadResult:
        """Reload the configuration, and apply the changes that a running daemon can apply."""
        if self._isStopping:
            return ReloadResult(error="the daemon is stopping")
        self._notifier.reloading()
        old = self._configuration
        try:
            self._configuration = self._load()
            self._attachStore(self._rootPair(self._configuration))
        except (ConfigurationError, CredentialsError) as error:
            self._configuration = old
            return self._refusedReload(error)
        else:
            self._parts.configure(self._configuration)
            self._publishListeners()
            self._log.info("configuration reloaded")
            unchanged = needRestart(self._started, self._configuration)
            self._logUnchanged(unchanged)
            return ReloadResult(applied(old, self._configuration, isReplacing=False), unchanged)
        finally:
            # The access log and the certificates are reopened even if the reload was refused.
            self._parts.logs.reopen()
            self._checks.check()
            self._notifyReady()

    def readiness(self) -> Readiness:
        """Return whether requests are served, and the problems of each part."""
        return self._checks.evaluate()

    @property
    def _served(self) -> Configuration:
        """The configuration without changes that need a restart."""
        return withoutRestart(self._started, self._configuration)

    def _storeParts(self) -> Mapping[str, str | None]:
        return {"store": "closed"} if self._store is None else self._store.health()

    def _warnings(self) -> Mapping[str, str | None]:
        parts = (self._store, self._gateway, self._parts)
        found = {name: text for part in parts if part for name, text in part.warnings().items()}
        return {**found, **certificateWarnings(self._openPorts(), time.time())}

    def _openPorts(self) -> Mapping[str, Any]:
        return {**self._ports, **({} if self._gateway is None else self._gateway.ports)}

    def _listening(self) -> Mapping[str, str | None]:
        return listening(self._openPorts())

    def _onReadinessChange(self, readiness: Readiness) -> None:
        if self._gateway is not None:
            self._gateway.onReadinessChange(readiness)

    async def _stop(self) -> None:
        """Stop accepting, wait for requests in flight, and close the store."""
        self._drain()
        self._checks.check()
        self._checks.stop()
        grace = self._notifyStopping()
        if self._gateway is not None:
            # Discovery is notified first, so that no new clients arrive while this process drains.
            await self._gateway.leave()
        # The admin listener closes last, to report that this daemon is stopping. If another process
        # replaces this one, that process reports.
        closing = [self._close("s3", grace), self._closeGateway(grace)]
        if self._idleGraceSeconds:
            closing.append(self._close("admin", _ADMIN_GRACE_SECONDS))
        await gatherResults([Deferred.fromCoroutine(each) for each in closing])
        await self._parts.stopMonitoring()
        if self._console is not None:
            await self._console.close()
        await self._parts.closeEncryption()
        if self._link is None:
            # Closing the store releases the lock of the directory.
            removeListeners(self._directory())
        if self._store is not None:
            try:
                await self._store.close()
            except Exception:
                self._log.failure("closing the store failed")
            self._store = None
        self._parts.closeCounts()
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
            # Closing the store matters more than this listener.
            self._log.failure("listener {name} failed to close", name=name)

    async def _closeGateway(self, graceSeconds: float) -> None:
        gateway, self._gateway = self._gateway, None
        if gateway is None:
            return
        try:
            await gateway.close(graceSeconds, self._idleGraceSeconds)
        except Exception:
            self._log.failure("the gateway failed to close")

    def _bind(self, name: str, description: str, root: Any = None) -> None:
        site = self._parts.site(name, self._configuration.listeners, root)
        results: list[IListeningPort | Failure] = []
        maybeDeferred(self._parts.listen, description, site).addBoth(results.append)
        port = results[0] if results else Failure(StartError("it did not open synchronously"))
        if isinstance(port, Failure):
            raise self._cannotListen(name, description, port.value)
        self._sites[name] = site
        self._ports[name] = port
        self._addresses[name] = port.getHost()

    def _adminResource(self) -> Any:
        configuration = self._configuration
        return self._parts.adminResource(configuration, self.readiness, self._makeConsole)

    def _makeConsole(self) -> Any:
        """Return the console, made on first use; C{None} before the store is open."""
        if self._store is None:
            return None
        if self._console is None:
            from storagegate.daemon.consoleview import ConsoleView

            root = self._rootPair(self._configuration)
            view = ConsoleView(
                self.readiness,
                self._addresses,
                lambda: self._gateway,
                os.path.abspath(self._configuration.store.directory),
                reactor=self._reactor,
                configurations=lambda: (self._started, self._configuration),
                flags=self._flags,
                reload=self.reload,
                link=self._link,
            )
            self._console = self._parts.console(self._served, self._store, root, view)
        return self._console.app

    def _checkShared(self) -> None:
        """
        Check the addresses that are bound after the store is open.

        @raise SystemExit: If an address is in use.
        """
        if self._link is not None or self._gateway is None:
            # The supervisor has reserved them.
            return
        for row in listenerTransports():
            endpoint = self._configuration.listeners.of(row.name)
            if row.inherit == "reuseport" and endpoint is not None:
                try:
                    self._parts.checkAddress(endpoint)
                except (CannotListenError, ValueError) as error:
                    raise self._cannotListen(row.name, endpoint, error) from error

    def _beginListening(self) -> None:
        """
        Listen on all bound ports.

        @raise SystemExit: If another process listens on one of them by now.
        """
        for name, port in self._openPorts().items():
            if isinstance(port, HeldPort):
                try:
                    port.beginListening()
                except OSError as error:
                    endpoint = self._configuration.endpoint(name) or ""
                    raise self._cannotListen(name, endpoint, error.strerror) from error

    def _open(self, name: str) -> None:
        """Open a listener of the gateway."""
        endpoint = self._configuration.listeners.of(name)
        if endpoint is None or self._gateway is None:
            return
        try:
            self._addresses[name] = self._gateway.open(name, endpoint)
        except (CannotListenError, DefinitionError, ValueError) as error:
            raise self._cannotListen(name, endpoint, error) from error

    def _join(self, gateway: "DaemonGatewayService") -> None:
        """Serve the gateway on the S3 listener."""
        try:
            gateway.join(self._sites["s3"], self._addresses["s3"])
        except (DefinitionError, ValueError) as error:
            raise self._refusal(ConfigurationError(f"gatewayOnS3: {error}")) from error

    def _readyText(self) -> str:
        return servingText(self._addresses)

    def _attachStore(self, root: KeyPair) -> None:
        """Serve the store with a root key pair; requests in flight keep the previous one."""
        self._parts.logs.redactor.hide(root.secretKey)
        if "s3" in self._sites and self._store is not None:
            self._parts.serveS3(self._sites["s3"], self._store, self._served, root, self.readiness)
        if self._gateway is not None:
            self._gateway.setRootCredentials(root)
        if self._console is not None:
            self._console.services.accounts.setRoot(root.accessKey, root.secretKey)
